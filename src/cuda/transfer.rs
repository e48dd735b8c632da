//! The blocks `upload` and `download`, which the plan inserts in edges between host and device.
#![allow(unsafe_code)] // copies between frames that the job owns

use super::{Device, GpuJob, GpuMap, GpuMapped, IN_FLIGHT, frame_address};
use fxgraph_core::block::Block;
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::{Frame, FrameMut};
use fxgraph_core::kind::{AnyConfigured, Env, Ports, Refusal, Resources};
use fxgraph_core::port::PortType;
use std::sync::Arc;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From host memory to the device.
    Upload,
    /// From the device to host memory.
    Download,
}

impl Transfer {
    /// Name of the kind.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Download => "download",
        }
    }
}

/// A transfer of the frames of one port.
pub struct Connected {
    /// Direction.
    pub way: Transfer,
    /// Input and output, which have the same type.
    pub ports: Ports,
}

impl AnyConfigured for Connected {
    fn ports(&self) -> &Ports {
        &self.ports
    }

    fn connect(&self, inputs: &[PortType]) -> Result<Arc<dyn AnyConfigured>, Vec<Refusal>> {
        let ports = Ports { inputs: inputs.to_vec(), outputs: inputs.to_vec() };
        Ok(Arc::new(Self { way: self.way, ports }))
    }

    fn resources(&self) -> Resources {
        Resources { holds: vec![IN_FLIGHT - 1], fills: vec![IN_FLIGHT], ..Resources::default() }
    }

    fn build(&self, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let bytes = self.ports.inputs[0].frame_bytes();
        GpuMapped::build(env, |_| Ok(Running { way: self.way, bytes }))
    }
}

struct Running {
    way: Transfer,
    bytes: usize,
}

impl GpuMap for Running {
    fn addresses(
        &mut self,
        input: &Frame,
        output: &mut FrameMut,
        device: &Device,
    ) -> Result<[u64; 2], BlockError> {
        Ok(match self.way {
            Transfer::Upload => {
                [input.as_slice::<u8>()?.as_ptr() as u64, frame_address(output, device)?]
            }
            Transfer::Download => {
                [frame_address(input, device)?, output.as_mut_slice::<u8>()?.as_mut_ptr() as u64]
            }
        })
    }

    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        job.lane.work()?;
        // SAFETY: the job owns both frames, which are of equal size.
        unsafe { job.lane.copy(job.to, job.from, self.bytes) }
    }
}
