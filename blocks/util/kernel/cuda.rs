//! The CUDA implementation: one launch per frame, with one argument.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::declaration::Validity;
use super::file::KernelFile;
use super::layout::Layout;
use super::prelude::{HEAD, Member, members};
use super::{Kernel, counted};
use crate::common::gpu::Table;
use crate::util::python::Scheduled;
use fxgraph::changes::Change;
use fxgraph::cuda::{
    Arg, DeviceArray, Frames, GpuJob, GpuMap, Grid, Kernel as Compiled, Needs, Pipeline, Program,
    ProgramSource,
};
use fxgraph::{BlockError, Configured, Counter, Env, Header};
use fxgraph_kernels::HEADERS;
use serde_json::{Map, Value};
use std::time::Duration;

/// The running block.
pub struct Cuda {
    kernel: Compiled,
    grid: Grid,
    /// The kernel's argument, `Fx`.
    argument: Vec<u64>,
    parameters: Vec<Member>,
    is_continuous: usize,
    /// First word with the address of a counter.
    first_counter: usize,
    scheduled: Scheduled,
    samples_per_frame: u64,
    /// Timestamp of the next frame, if it follows the one before.
    next: Option<u64>,
    /// Validity of the input, for a kernel that reads it, and of the output, for one that writes it.
    read: Option<Table<u32>>,
    written: Option<Table<u32>>,
    counts: Option<Table<u64>>,
    counters: Vec<Counter>,
    is_whole_rule: bool,
    /// Counts of complete units of input and output.
    full: [u32; 2],
    is_complete: bool,
    output_bytes: usize,
    /// Buffers, whose addresses are in the argument.
    _buffers: Vec<DeviceArray<u8>>,
}

impl Cuda {
    pub fn new(
        block: &Configured<Kernel>,
        env: &Env,
        pipeline: &Pipeline<Frames>,
    ) -> Result<Self, BlockError> {
        let (layout, device) = (&block.shape, pipeline.device());
        let limit = Duration::from_secs_f64(block.parameters.deadline_seconds);
        let KernelFile { kernel, name, .. } = &layout.file;
        pipeline.set_deadline(&format!("the kernel `{kernel}` ({name})"), limit);
        let (input, output) = (&block.ports.inputs[0], &block.ports.outputs[0]);
        let program = ProgramSource {
            source: layout.source.clone(),
            headers: HEADERS,
            needs: Needs::Ampere,
            cases: &[],
        };
        let program = Program::compile(&program, device, Vec::new())?;
        let kernel = program.kernel(&layout.file.kernel, layout.shared_bytes)?;
        let buffers = layout
            .buffers
            .iter()
            .map(|(_, dtype, length)| DeviceArray::zeros(device, dtype.bytes(*length)));
        let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
        let places = members(&layout.file);
        let mut argument = vec![0; places.bytes / 8];
        for (word, buffer) in argument[HEAD..].iter_mut().zip(&buffers) {
            *word = buffer.address();
        }
        let counters = counted::counters(layout, env)?;
        let validity = &layout.declaration().output.validity;
        let table = |is_used: bool, units| is_used.then(|| Table::new(device, units)).transpose();
        let mut cuda = Self {
            kernel,
            grid: layout.grid,
            first_counter: HEAD + buffers.len(),
            argument,
            parameters: places.parameters,
            is_continuous: places.is_continuous,
            scheduled: Scheduled::default(),
            samples_per_frame: input.clock.samples_per_frame,
            next: None,
            read: table(layout.reads_validity(), input.validity.units())?,
            written: table(layout.writes_validity(), output.validity.units())?,
            counts: (!counters.is_empty())
                .then(|| Table::new(device, counters.len()))
                .transpose()?,
            counters,
            is_whole_rule: *validity == Validity::Whole,
            full: [input.validity.full, output.validity.full],
            is_complete: true,
            output_bytes: output.frame_bytes(),
            _buffers: buffers,
        };
        cuda.set(&layout.values);
        Ok(cuda)
    }

    /// Device memory without frames, in bytes.
    pub fn device_bytes(block: &Configured<Kernel>) -> usize {
        block.shape.buffer_bytes() + Self::pinned_bytes(block)
    }

    /// Size of the tables of validity and counters, which the device and the host have, in bytes.
    pub fn pinned_bytes(block: &Configured<Kernel>) -> usize {
        let layout: &Layout = &block.shape;
        let units = |is_used: bool, units: usize| {
            if is_used { Table::<u32>::device_bytes(units) } else { 0 }
        };
        units(layout.reads_validity(), block.ports.inputs[0].validity.units())
            + units(layout.writes_validity(), block.ports.outputs[0].validity.units())
            + Table::<u64>::device_bytes(layout.declaration().counters.len())
    }

    /// Writes these parameters to the argument.
    fn set(&mut self, values: &Map<String, Value>) {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.argument);
        for Member { name, number, offset } in &self.parameters {
            if let Some(value) = values.get(name) {
                bytes[*offset..][..number.bytes()]
                    .copy_from_slice(&number.device_bytes(value)[..number.bytes()]);
            }
        }
    }

    /// Sets the part of the argument that differs from frame to frame.
    fn set_frame(&mut self, header: &Header, [from, to]: [u64; 2], slot: usize) {
        while let Some(values) = self.scheduled.take(header.timestamp, self.samples_per_frame) {
            self.set(&values.0);
        }
        let address =
            |table: &Option<Table<u32>>| table.as_ref().map_or(0, |table| table.address(slot));
        let head = [
            from,
            to,
            address(&self.read),
            address(&self.written),
            header.timestamp,
            header.sequence,
        ];
        self.argument[..HEAD].copy_from_slice(&head);
        if let Some(counts) = &self.counts {
            let words = &mut self.argument[self.first_counter..][..self.counters.len()];
            for (n, word) in words.iter_mut().enumerate() {
                *word = counts.address(slot) + 8 * n as u64;
            }
        }
        let is_continuous = self.next == Some(header.timestamp);
        self.next = header.timestamp.checked_add(self.samples_per_frame);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut self.argument);
        bytes[self.is_continuous] = u8::from(is_continuous);
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        let GpuJob { pipeline, slot, header, from, to } = job;
        self.set_frame(header, [from, to], slot);
        pipeline.tables();
        if let Some(read) = &mut self.read {
            read.host_mut(slot)?.copy_from_slice(&header.validity);
            read.send(pipeline, slot, 0..header.validity.len())?;
        }
        if let Some(written) = &mut self.written {
            let units = written.slot_len();
            written.host_mut(slot)?.fill(if self.is_complete { self.full[1] } else { 0 });
            written.send(pipeline, slot, 0..units)?;
        }
        if let Some(counts) = &self.counts {
            counts.clear(pipeline, slot)?;
        }
        pipeline.work()?;
        let argument = [Arg::Bytes(bytemuck::cast_slice(&self.argument))];
        // SAFETY: the declaration before the kernel's text makes `Fx` its only argument, and `members` gives the places in
        // it. The job owns the frames, the block the buffers and tables. Code of the kernel's author may still write
        // elsewhere on the device, as every kernel may: the file is named by those who may run code.
        unsafe { self.kernel.launch(pipeline.stream(), self.grid, &argument) }?;
        if self.is_whole_rule && !self.is_complete {
            // SAFETY: the job owns the output, which has these bytes.
            unsafe { pipeline.clear(to, self.output_bytes) }?;
        }
        if self.written.is_some() || self.counts.is_some() {
            pipeline.results()?;
        }
        if let Some(written) = &mut self.written {
            written.fetch(pipeline, slot)?;
        }
        match &mut self.counts {
            Some(counts) => counts.fetch(pipeline, slot),
            None => Ok(()),
        }
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.is_complete = input.iter().all(|count| *count >= self.full[0]);
        if self.is_whole_rule || self.written.is_some() {
            output.fill(if self.is_complete { self.full[1] } else { 0 });
        } else {
            output.copy_from_slice(input);
        }
    }

    fn complete(&mut self, slot: usize, output: &mut Header) -> Result<(), BlockError> {
        if let Some(written) = &self.written {
            for (count, written) in output.validity.iter_mut().zip(written.host(slot)?) {
                *count = (*written).min(self.full[1]);
            }
        }
        if let Some(counts) = &self.counts {
            self.counters.iter().zip(counts.host(slot)?).for_each(|(counter, n)| counter.add(*n));
        }
        Ok(())
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.scheduled.offer(change)
    }
}
