//! The blocks between host and device, which the plan puts where an edge crosses.
#![allow(unsafe_code)] // copies between frames that the job owns

use super::{IN_FLIGHT, Lane, Turn, frame_address};
use async_trait::async_trait;
use fxgraph_core::block::{Block, Io, Next};
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::{Frame, FrameMut};
use fxgraph_core::kind::{AnyConfigured, Env, Ports, Refusal, Resources};
use fxgraph_core::port::PortType;
use std::sync::Arc;

/// Which way frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From host memory to the device.
    Upload,
    /// From the device to host memory.
    Download,
}

impl Transfer {
    /// The kind's name.
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
    /// Its direction.
    pub way: Transfer,
    /// Input and output, which carry the same.
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
        let lane = Lane::new(env)?;
        Ok(Box::new(Running { way: self.way, lane, bytes: self.ports.inputs[0].frame_bytes() }))
    }
}

struct Running {
    way: Transfer,
    lane: Lane<(Arc<Frame>, FrameMut)>,
    bytes: usize,
}

impl Running {
    fn copy(&mut self, input: Arc<Frame>, mut output: FrameMut) -> Result<(), BlockError> {
        let (from, header) = (input.header(), output.header_mut());
        header.continue_from(from);
        header.validity.copy_from_slice(&from.validity);
        let timestamp = from.timestamp;
        let device = self.lane.device();
        let (to, from) = match self.way {
            Transfer::Upload => {
                (frame_address(&output, device)?, input.as_slice::<u8>()?.as_ptr() as u64)
            }
            Transfer::Download => {
                (output.as_mut_slice::<u8>()?.as_mut_ptr() as u64, frame_address(&input, device)?)
            }
        };
        self.lane.begin(timestamp)?;
        self.lane.hold((input, output))?;
        self.lane.work()?;
        // SAFETY: the job owns both frames, which are of equal size.
        unsafe { self.lane.copy(to, from, self.bytes) }?;
        self.lane.submit()
    }
}

#[async_trait]
impl Block for Running {
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        match self.lane.turn(io)? {
            Turn::Begin(input, output) => self.copy(input, output).map(|()| Next::Again),
            Turn::Rest(next) => Ok(next),
        }
    }
}
