//! The blocks `upload`, `download` and `peer_copy`, which the plan inserts in edges between devices.
#![allow(unsafe_code)] // copies between frames that the job owns

use super::{Device, GpuJob, GpuMap, GpuMapped, IN_FLIGHT, Link, frame_address};
use fxgraph_core::block::Block;
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::{Frame, FrameMut};
use fxgraph_core::kind::{AnyConfigured, Env, Ports, Rejection, Resources};
use fxgraph_core::port::PortType;
use std::sync::Arc;

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From host memory to the device.
    Upload,
    /// From the device to host memory.
    Download,
    /// From GPU number `from` to the device, which reads the memory of that GPU.
    Peer {
        /// Number of the GPU that writes the frames.
        from: usize,
        /// Connection of the two GPUs.
        link: Link,
    },
}

impl Transfer {
    /// Kind of [`Upload`](Self::Upload).
    pub const UPLOAD: &str = "upload";
    /// Kind of [`Download`](Self::Download).
    pub const DOWNLOAD: &str = "download";
    /// Kind of [`Peer`](Self::Peer).
    pub const PEER_COPY: &str = "peer_copy";
    /// Names of all kinds of transfers.
    pub const KINDS: [&str; 3] = [Self::UPLOAD, Self::DOWNLOAD, Self::PEER_COPY];

    /// Name of the kind.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Upload => Self::UPLOAD,
            Self::Download => Self::DOWNLOAD,
            Self::Peer { .. } => Self::PEER_COPY,
        }
    }

    /// Name of the implementation: the link of a peer copy, otherwise that of the kind.
    #[must_use]
    pub fn implementation(self) -> &'static str {
        match self {
            Self::Peer { link, .. } => link.name(),
            way => way.kind(),
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

    fn connect(&self, inputs: &[PortType]) -> Result<Arc<dyn AnyConfigured>, Vec<Rejection>> {
        let ports = Ports { inputs: inputs.to_vec(), outputs: inputs.to_vec() };
        Ok(Arc::new(Self { way: self.way, ports }))
    }

    fn resources(&self) -> Resources {
        Resources { holds: vec![IN_FLIGHT - 1], fills: vec![IN_FLIGHT], ..Resources::default() }
    }

    fn build(&self, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        let bytes = self.ports.inputs[0].frame_bytes();
        GpuMapped::build(env, |pipeline| {
            let way = match self.way {
                Transfer::Upload => Way::Upload,
                Transfer::Download => Way::Download,
                Transfer::Peer { from, .. } => {
                    let writer = Device::open(from)?;
                    pipeline.device().read_memory_of(&writer)?;
                    Way::Peer(writer)
                }
            };
            Ok(Running { way, bytes })
        })
    }
}

/// Direction of a running transfer.
enum Way {
    Upload,
    Download,
    /// From this GPU.
    Peer(Arc<Device>),
}

struct Running {
    way: Way,
    bytes: usize,
}

impl GpuMap for Running {
    fn addresses(
        &mut self,
        input: &Frame,
        output: &mut FrameMut,
        device: &Device,
    ) -> Result<[u64; 2], BlockError> {
        Ok(match &self.way {
            Way::Upload => {
                [input.as_slice::<u8>()?.as_ptr() as u64, frame_address(output, device)?]
            }
            Way::Download => {
                [frame_address(input, device)?, output.as_mut_slice::<u8>()?.as_mut_ptr() as u64]
            }
            // The writer's GPU has finished the frame (ADR 007), so the copy waits for no event of that GPU.
            Way::Peer(writer) => [frame_address(input, writer)?, frame_address(output, device)?],
        })
    }

    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        job.pipeline.work()?;
        // SAFETY: the job owns both frames, which are of equal size.
        unsafe { job.pipeline.copy(job.to, job.from, self.bytes) }
    }
}
