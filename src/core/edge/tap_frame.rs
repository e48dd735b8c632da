//! Copies of frames in host memory.

use crate::frame::{Frame, Header, NotOnHost};
use crate::npy;
use crate::port::PortType;

/// A copy of a frame in host memory.
#[derive(Clone, Debug, Default)]
pub struct TapFrame {
    /// Sequence number, timestamp, configuration, validity and annotations.
    pub header: Header,
    /// The payload, with data type and axes of the port.
    pub payload: Vec<u8>,
}

impl TapFrame {
    /// Copies `frame`, if it is in host memory. Allocations are reused.
    pub fn copy_from(&mut self, frame: &Frame) -> Result<(), NotOnHost> {
        let payload = frame.as_slice()?;
        self.header.copy_from(frame.header());
        self.payload.clear();
        self.payload.extend_from_slice(payload);
        Ok(())
    }

    /// The payload as a NumPy file (`.npy`) with one frame of `port`.
    #[must_use]
    pub fn to_npy(&self, port: &PortType) -> Vec<u8> {
        npy::array(port, &self.payload)
    }
}
