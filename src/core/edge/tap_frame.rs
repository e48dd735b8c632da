//! Frames as plain data of the host.

use crate::frame::{Frame, Header, NotOnHost};
use crate::npy;
use crate::port::PortType;

/// A frame as plain data of the host.
#[derive(Clone, Debug, Default)]
pub struct TapFrame {
    /// Sequence number, timestamp, configuration, validity and annotations.
    pub header: Header,
    /// The payload, as the port's type says.
    pub payload: Vec<u8>,
}

impl TapFrame {
    /// Becomes the same as `frame`, if it is in host memory, reusing allocations.
    pub fn copy_from(&mut self, frame: &Frame) -> Result<(), NotOnHost> {
        let payload = frame.as_slice()?;
        self.header.copy_from(frame.header());
        self.payload.clear();
        self.payload.extend_from_slice(payload);
        Ok(())
    }

    /// The payload as a NumPy array of its own, `.npy`: a frame of what `port` carries.
    #[must_use]
    pub fn to_npy(&self, port: &PortType) -> Vec<u8> {
        npy::array(port, &self.payload)
    }
}
