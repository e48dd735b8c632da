//! The CUDA implementation: one launch per frame.

use super::cpu::{Counts, limit};
use super::{KurtosisFlagger, Shape};
use fxgraph::cuda::{Grid, Kernel, Pipeline, Needs, Program, ProgramSource, Source, frame_address};
use fxgraph::changes::{Change, Changes};
use fxgraph::{Block, BlockError, Configured, Env, Frame, FrameMut, Io, Next};
use fxgraph_blocks::common::gpu::{Table, numbers};
use std::sync::Arc;

/// The CUDA program of this crate; `fxgraph-sk kernels` compiles it without a GPU.
pub(super) static PROGRAMS: &[ProgramSource] = &[ProgramSource {
    source: Source::embedded("kurtosis_flagger.cu", include_str!("kurtosis_flagger.cu")),
    headers: &[],
    needs: Needs::Ampere,
    cases: &["SPECTRA=4 CHANNELS=1", "SPECTRA=256 CHANNELS=1024", "SPECTRA=4096 CHANNELS=32768"],
}];

/// Number of channels of a thread block, as in the kernel.
const COLUMNS: usize = 32;
/// Number of spectra that a thread block reads at once, as in the kernel.
const ROWS: usize = 8;

/// The running block.
pub struct Flagger {
    sigmas: f64,
    changes: Changes<f64>,
    shape: Shape,
    samples_per_frame: u64,
    full: u32,
    pipeline: Pipeline<Job>,
    kernel: Kernel,
    /// Number of flagged channels in the frame of each job.
    flagged: Table<u64>,
    counts: Counts,
}

/// The output frames of a job. The CUDA pipeline keeps the input frame.
struct Job {
    output: FrameMut,
    kurtosis: FrameMut,
    slot: usize,
}

impl Flagger {
    pub fn new(block: &Configured<KurtosisFlagger>, env: &Env) -> Result<Self, BlockError> {
        let (shape, input) = (block.shape, &block.ports.inputs[0]);
        let pipeline = Pipeline::new(env)?;
        let device = pipeline.device();
        let defines = numbers([("SPECTRA", shape.spectra), ("CHANNELS", shape.channels)]);
        let kernel =
            Program::compile(&PROGRAMS[0], device, defines)?.kernel("kurtosis_flagger", 0)?;
        Ok(Self {
            sigmas: block.parameters.sigmas,
            changes: Changes::default(),
            shape,
            samples_per_frame: input.clock.samples_per_frame,
            full: input.validity.full,
            flagged: Table::new(device, 1)?,
            pipeline,
            kernel,
            counts: Counts::new(&env.counters),
        })
    }

    /// Device memory without frames, in bytes.
    pub const fn device_bytes() -> usize {
        Table::<u64>::device_bytes(1)
    }

    /// Queues the work on one frame.
    fn begin(
        &mut self,
        input: &Arc<Frame>,
        mut output: FrameMut,
        mut kurtosis: FrameMut,
    ) -> Result<(), BlockError> {
        let from = input.header();
        for (_, sigmas) in self.changes.begin(from.timestamp, self.samples_per_frame) {
            self.sigmas = sigmas;
        }
        let is_complete = from.validity.iter().all(|count| *count == self.full);
        self.counts.incomplete.add(u64::from(!is_complete));
        let header = kurtosis.header_mut();
        header.continue_from(from);
        header.validity.fill(u32::from(is_complete));
        let header = output.header_mut();
        header.continue_from(from);
        header.validity.copy_from_slice(&from.validity);

        let slot = self.pipeline.begin(from.timestamp)?;
        let read = self.pipeline.read(input)?;
        let device = self.pipeline.device();
        let written = [frame_address(&output, device)?, frame_address(&kurtosis, device)?];
        self.pipeline.hold(Job { output, kurtosis, slot })?;
        self.pipeline.tables();
        self.flagged.clear(&mut self.pipeline, slot)?;
        self.pipeline.work()?;
        let arguments = [
            read.into(),
            written[0].into(),
            written[1].into(),
            self.flagged.address(slot).into(),
            limit(self.sigmas, self.shape.spectra).into(),
            i32::from(is_complete).into(),
        ];
        let Shape { pols, channels, .. } = self.shape;
        let grid =
            Grid { blocks: [channels.div_ceil(COLUMNS), pols, 1], threads: [COLUMNS, ROWS, 1] };
        // SAFETY: these are the kernel's arguments; the CUDA pipeline and the job own the frames, which have the sizes
        // that the kernel was compiled for, and no other job in flight has the slot.
        unsafe { self.kernel.launch(self.pipeline.stream(), grid, &arguments) }?;
        self.pipeline.results()?;
        self.flagged.fetch(&mut self.pipeline, slot)?;
        self.pipeline.submit()
    }
}

impl Block for Flagger {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs.iter().all(fxgraph::Output::has_room)
            && let Some(Job { output, kurtosis, slot }) = self.pipeline.done()?
        {
            self.counts.flagged.add(self.flagged.host(slot)?[0]);
            io.outputs[0].push(output);
            io.outputs[1].push(kurtosis);
        }
        if io.inputs[0].ended() && self.pipeline.is_idle() {
            return Ok(Next::Finished);
        }
        if !self.pipeline.has_room() || io.inputs[0].peek().is_none() {
            return Ok(Next::Wait);
        }
        let Some(output) = io.outputs[0].take() else { return Ok(Next::Wait) };
        let Some(kurtosis) = io.outputs[1].take() else { return Ok(Next::Wait) };
        let Some(input) = io.inputs[0].pop() else { return Ok(Next::Wait) };
        self.begin(&input, output, kurtosis)?;
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}
