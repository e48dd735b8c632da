//! Ends of a sub-flowgraph: from frames to a stream of samples, and from a stream of samples to frames.
//!
//! FutureSDR has its own buffers, so every sample is copied once at each end. The locks are never contended: both
//! ends run on the thread of the hosting block.

use crate::{Sample, lock};
use futuresdr::runtime::Result;
use futuresdr::runtime::dev::{
    BlockMeta, BufferReader, BufferWriter, CpuBufferReader, CpuBufferWriter, DefaultCpuReader,
    DefaultCpuWriter, Kernel, MessageOutputs, WorkIo,
};
use fxgraph::{Frame, FrameMut};
use std::sync::{Arc, Mutex};

/// Input of the first block of the sub-flowgraph.
#[derive(Default)]
pub(crate) struct Inlet {
    /// The frame being read.
    pub frame: Option<Arc<Frame>>,
    /// Number of samples of the frame that have been read.
    at: usize,
    /// Number of samples still to skip before the first one.
    skip: u64,
    /// Number of samples given to the sub-flowgraph.
    pub fed: u64,
    /// Whether the last frame has been put.
    pub ended: bool,
}

impl Inlet {
    /// Begins a stream and skips its first `skip` samples.
    pub fn begin(&mut self, skip: u64) {
        *self = Self { skip, ..Self::default() };
    }

    pub fn put(&mut self, frame: Arc<Frame>) {
        self.frame = Some(frame);
        self.at = 0;
    }

    /// Copies samples; returns their number.
    fn read<T: Sample>(&mut self, to: &mut [T]) -> Result<usize> {
        let Some(frame) = &self.frame else { return Ok(0) };
        let samples = frame.as_slice::<T>()?;
        let skipped = self.skip.min((samples.len() - self.at) as u64);
        self.skip -= skipped;
        self.at += skipped as usize;
        let count = to.len().min(samples.len() - self.at);
        to[..count].copy_from_slice(&samples[self.at..][..count]);
        self.at += count;
        self.fed += count as u64;
        if self.at == samples.len() {
            self.frame = None;
        }
        Ok(count)
    }
}

/// Output of the last block of the sub-flowgraph.
#[derive(Default)]
pub(crate) struct Outlet {
    /// The frame being filled.
    pub frame: Option<FrameMut>,
    /// Number of samples of the frame that have been filled.
    pub at: usize,
    /// Number of samples output by the sub-flowgraph.
    pub made: u64,
    /// Whether the frame contains any of these samples.
    pub has_samples: bool,
}

impl Outlet {
    /// Copies samples; returns their number.
    fn write<T: Sample>(&mut self, from: &[T]) -> Result<usize> {
        let Some(frame) = &mut self.frame else { return Ok(0) };
        let samples = &mut frame.as_mut_slice::<T>()?[self.at..];
        let count = from.len().min(samples.len());
        samples[..count].copy_from_slice(&from[..count]);
        self.at += count;
        self.made += count as u64;
        self.has_samples |= count > 0;
        Ok(count)
    }

    /// Fills the frame up to sample `to` with zeros.
    pub fn fill<T: Sample>(&mut self, to: usize) -> Result<(), fxgraph::NotOnHost> {
        if let Some(frame) = &mut self.frame {
            frame.as_mut_slice::<T>()?[self.at..to].fill(T::zeroed());
        }
        self.at = to;
        Ok(())
    }
}

/// First block of the sub-flowgraph: outputs the samples of the frames.
#[derive(futuresdr::runtime::macros::Block)]
pub(crate) struct FramesToStream<T: Sample> {
    #[output]
    output: DefaultCpuWriter<T>,
    inlet: Arc<Mutex<Inlet>>,
}

impl<T: Sample> FramesToStream<T> {
    pub fn new(inlet: Arc<Mutex<Inlet>>) -> Self {
        Self { output: DefaultCpuWriter::default(), inlet }
    }
}

impl<T: Sample> Kernel for FramesToStream<T> {
    async fn work(
        &mut self,
        io: &mut WorkIo,
        _: &mut MessageOutputs,
        _: &mut BlockMeta,
    ) -> Result<()> {
        let mut inlet = lock(&self.inlet);
        let count = inlet.read(self.output.slice())?;
        if count > 0 {
            self.output.produce(count);
        }
        io.finished = inlet.ended && inlet.frame.is_none();
        Ok(())
    }
}

/// Last block of the sub-flowgraph: writes its input to frames.
#[derive(futuresdr::runtime::macros::Block)]
pub(crate) struct StreamToFrames<T: Sample> {
    #[input]
    input: DefaultCpuReader<T>,
    outlet: Arc<Mutex<Outlet>>,
}

impl<T: Sample> StreamToFrames<T> {
    pub fn new(outlet: Arc<Mutex<Outlet>>) -> Self {
        Self { input: DefaultCpuReader::default(), outlet }
    }
}

impl<T: Sample> Kernel for StreamToFrames<T> {
    async fn work(
        &mut self,
        io: &mut WorkIo,
        _: &mut MessageOutputs,
        _: &mut BlockMeta,
    ) -> Result<()> {
        let samples = self.input.slice();
        let available = samples.len();
        let count = lock(&self.outlet).write(samples)?;
        if count > 0 {
            self.input.consume(count);
        }
        io.finished = self.input.finished() && count == available;
        Ok(())
    }
}
