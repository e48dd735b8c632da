//! The CUDA implementation: fills each frame once, and sends it unchanged from then on.
#![allow(unsafe_code)] // copies to frames that the job owns

use super::{NullSource, Pattern, Times, write_validity};
use fxgraph::cuda::{Pinned, Pipeline, frame_address};
use fxgraph::{Block, BlockError, Dtype, Env, FrameMut, Io, Next, PortType};
use std::collections::{HashSet, VecDeque};

/// The running block.
pub struct Cuda {
    pipeline: Pipeline<FrameMut>,
    dtype: Dtype,
    pattern: Pattern,
    seed: u64,
    times: Times,
    full: u32,
    missing_every: Option<u64>,
    frame: u64,
    frames: u64,
    /// Bytes of a frame.
    bytes: usize,
    /// Buffer of the frame being copied to the device.
    pinned: Pinned<u8>,
    /// Filled frames that wait to be sent: at the start all frames of the pool, so that none is filled
    /// later.
    ready: VecDeque<FrameMut>,
    /// Addresses of the filled buffers. Readers do not modify them.
    filled: HashSet<u64>,
}

impl Cuda {
    /// Creates a source with these parameters for `port`.
    pub fn new(parameters: &NullSource, port: &PortType, env: &Env) -> Result<Self, BlockError> {
        let pipeline = Pipeline::new(env)?;
        let is_copied = matches!(parameters.pattern, Pattern::Counter | Pattern::Random);
        let bytes = port.frame_bytes();
        Ok(Self {
            pinned: Pinned::new(pipeline.device(), if is_copied { bytes } else { 0 })?,
            pipeline,
            dtype: port.dtype,
            pattern: parameters.pattern,
            seed: parameters.seed,
            times: Times::new(parameters, port),
            full: port.validity.full,
            missing_every: parameters.missing_every,
            frame: 0,
            frames: parameters.frames.unwrap_or(u64::MAX),
            bytes,
            ready: VecDeque::new(),
            filled: HashSet::new(),
        })
    }

    /// Fills a frame that has not been filled.
    fn begin(&mut self, frame: FrameMut, address: u64) -> Result<(), BlockError> {
        self.pattern.fill(self.dtype, self.seed, self.frame - 1, self.pinned.get_mut()?);
        self.pipeline.begin(frame.header().timestamp)?;
        self.pipeline.hold(frame)?;
        self.pipeline.work()?;
        // SAFETY: the job owns the frame; the pinned memory has the same size, and is filled again only
        // after this job.
        unsafe {
            match self.pattern {
                Pattern::Untouched => {}
                Pattern::Zeros => self.pipeline.clear(address, self.bytes)?,
                Pattern::Counter | Pattern::Random => {
                    self.pipeline.copy(address, self.pinned.address(), self.bytes)?;
                }
            }
        }
        self.filled.insert(address);
        self.pipeline.submit()
    }
}

impl Block for Cuda {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let output = &mut io.outputs[0];
        self.ready.extend(self.pipeline.done()?);
        // Frames stay in order: no frame overtakes one that is being filled.
        if !self.pipeline.is_idle() {
            return Ok(Next::Wait);
        }
        let is_over = io.stopping || self.frame == self.frames;
        let taken = if is_over { None } else { output.take() };
        let has_taken = taken.is_some();
        if let Some(mut frame) = taken {
            self.times.write(frame.header_mut(), self.frame);
            let validity = &mut frame.header_mut().validity;
            write_validity(validity, self.frame, self.full, self.missing_every);
            self.frame += 1;
            let address = frame_address(&frame, self.pipeline.device())?;
            if self.filled.contains(&address) {
                self.ready.push_back(frame);
            } else {
                self.begin(frame, address)?;
                return Ok(Next::Again);
            }
        }
        while output.has_room()
            && let Some(frame) = self.ready.pop_front()
        {
            output.push(frame);
        }
        Ok(match (has_taken, is_over && self.ready.is_empty()) {
            (_, true) => Next::Finished,
            (true, false) => Next::Again,
            (false, false) => Next::Wait,
        })
    }
}
