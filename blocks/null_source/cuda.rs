//! The form for CUDA devices: frames that are filled once, and handed out again as they are.
#![allow(unsafe_code)] // copies to frames that the job owns

use super::{NullSource, Pattern};
use fxgraph::cuda::{Lane, Pinned, frame_address};
use fxgraph::{Block, BlockError, Dtype, Env, FrameMut, Io, Next, PortType, async_trait};
use std::collections::HashSet;

/// The running block.
pub struct Cuda {
    lane: Lane<FrameMut>,
    dtype: Dtype,
    pattern: Pattern,
    seed: u64,
    timestamp: u64,
    step: u64,
    full: u32,
    frame: u64,
    frames: u64,
    /// Bytes of a frame.
    bytes: usize,
    /// A frame on its way to the device.
    pinned: Pinned<u8>,
    /// Addresses of the buffers that have been filled. Readers leave them as they are.
    filled: HashSet<u64>,
}

impl Cuda {
    /// A source with these parameters for `port`.
    pub fn new(parameters: &NullSource, port: &PortType, env: &Env) -> Result<Self, BlockError> {
        let lane = Lane::new(env)?;
        let is_copied = matches!(parameters.pattern, Pattern::Counter | Pattern::Random);
        let bytes = port.frame_bytes();
        Ok(Self {
            pinned: Pinned::new(lane.device(), if is_copied { bytes } else { 0 })?,
            lane,
            dtype: port.dtype,
            pattern: parameters.pattern,
            seed: parameters.seed,
            timestamp: parameters.first_timestamp,
            step: port.clock.samples_per_frame,
            full: port.validity.full,
            frame: 0,
            frames: parameters.frames.unwrap_or(u64::MAX),
            bytes,
            filled: HashSet::new(),
        })
    }

    /// Fills a frame that has not been filled.
    fn begin(&mut self, frame: FrameMut, address: u64) -> Result<(), BlockError> {
        self.lane.begin(frame.header().timestamp)?;
        self.pattern.fill(self.dtype, self.seed, self.frame, &mut self.pinned);
        // SAFETY: the job owns the frame; the pinned memory is as large, and filled again only
        // after this job.
        unsafe {
            match self.pattern {
                Pattern::Untouched => {}
                Pattern::Zeros => self.lane.clear(address, self.bytes)?,
                Pattern::Counter | Pattern::Random => {
                    self.lane.copy(address, self.pinned.address(), self.bytes)?;
                }
            }
        }
        self.filled.insert(address);
        self.lane.submit(frame)
    }
}

#[async_trait]
impl Block for Cuda {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let output = &mut io.outputs[0];
        if let Some(frame) = self.lane.done()? {
            output.push(frame);
        }
        // Frames stay in order: none overtakes one that is being filled.
        if !self.lane.is_idle() {
            return Ok(Next::Wait);
        }
        if io.stopping || self.frame == self.frames {
            return Ok(Next::Finished);
        }
        let Some(mut frame) = output.take() else { return Ok(Next::Wait) };
        frame.header_mut().timestamp = self.timestamp;
        frame.fill_validity(self.full);
        let address = frame_address(&frame, self.lane.device())?;
        if self.filled.contains(&address) {
            output.push(frame);
        } else {
            self.begin(frame, address)?;
        }
        self.timestamp = self.timestamp.wrapping_add(self.step);
        self.frame += 1;
        Ok(Next::Again)
    }
}
