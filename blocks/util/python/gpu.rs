//! Frames in the memory of a GPU, which the process opens by CUDA IPC. The side of the process is in gpu.py.
//!
//! A frame is handed over when the GPU has finished it, as between all blocks (`src/adr/007`), and the process answers
//! when the GPU has finished the output. So neither side waits for an event of the other (`src/adr/033`).

use super::memory::MAX_JOBS;
use fxgraph::cuda::{self, Device, DeviceArray, Exported, HANDLE_BYTES, IN_FLIGHT};
use fxgraph::{BlockError, Env, Frame, Ports};
use std::sync::Arc;

/// Bytes of frames whose copy takes as long as the way of an answer and of the next frame: 150 us at 4 TB/s. The GPU
/// has that much queued.
const QUEUED_BYTES: usize = 600 << 20;
/// Size of the memory that the process opens at its start, to see that it can.
const PROBE_BYTES: usize = 256;

/// Number of frames that are with the process at a time.
pub fn jobs(ports: &Ports) -> usize {
    let bytes: usize =
        ports.inputs.iter().chain(&ports.outputs).map(fxgraph::PortType::frame_bytes).sum();
    (1 + QUEUED_BYTES.div_ceil(bytes.max(1))).clamp(IN_FLIGHT, MAX_JOBS)
}

/// The GPU of a block.
pub struct Gpu {
    device: Arc<Device>,
    probe: Option<DeviceArray<u8>>,
}

/// The GPU as the process gets it.
pub struct Shown {
    /// Value of `CUDA_VISIBLE_DEVICES`.
    pub visible: String,
    /// Handle of memory that the process opens at its start.
    pub probe: [u8; HANDLE_BYTES],
}

impl Gpu {
    /// The GPU of the block of `env`, if it has one.
    pub fn of(env: &Env) -> Option<Self> {
        Device::of(env).map(|device| Self { device, probe: None })
    }

    /// Exports the probe.
    pub fn show(&mut self) -> Result<Shown, BlockError> {
        let probe = match self.probe.take() {
            Some(probe) => probe,
            None => DeviceArray::new(&self.device, PROBE_BYTES)?,
        };
        let visible = cuda::visible(self.device.ordinal());
        Ok(Shown { visible, probe: *self.probe.insert(probe).exported()? })
    }

    /// Exports the payload of `frame`.
    pub fn exported<'a>(&self, frame: &'a Frame) -> Result<Exported<'a>, BlockError> {
        cuda::exported(frame, &self.device)
    }
}
