//! In place of AF_XDP sockets in a program without the feature `xdp`: none can be opened.

use super::port::Causes;
use super::receive::{Reader, Received};
use fxgraph::BlockError;
use queue::Queue;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;
use std::{convert, io};

pub mod queue {
    //! Types without values.

    use std::sync::Arc;

    /// An AF_XDP socket.
    pub enum Queue {}

    impl Queue {
        /// View of the socket.
        #[must_use]
        pub fn watch(&self) -> Arc<Watched> {
            match *self {}
        }

        /// Bytes of its buffer.
        #[must_use]
        pub fn buffer_bytes(&self) -> usize {
            match *self {}
        }
    }

    /// View of an AF_XDP socket.
    pub enum Watched {}

    impl Watched {
        /// Whether packets wait.
        #[must_use]
        pub fn has_data(&self) -> bool {
            match *self {}
        }

        /// Used fraction of the ring.
        #[must_use]
        pub fn fill(&self) -> f32 {
            match *self {}
        }
    }

    /// Bytes that the socket of a queue allocates: none.
    #[must_use]
    pub fn allocated_bytes(_: usize) -> usize {
        0
    }
}

/// Programs that redirect packets.
pub type Redirection = convert::Infallible;

/// Always returns the error that the feature is off, which the check of the parameters reports before.
///
/// # Errors
/// Always.
pub fn open(
    _: usize,
    _: &[SocketAddrV4],
    _: &[String],
    _: usize,
) -> Result<(Vec<Vec<Queue>>, Redirection), BlockError> {
    Err(BlockError::new("this program was built without `xdp`, which `receive: af_xdp` needs"))
}

/// The queues of a thread: none.
pub struct Batch(Vec<Queue>);

impl Batch {
    /// Creates the receiver of `queues`.
    #[must_use]
    pub fn new(queues: Vec<Queue>, _: Arc<[SocketAddrV4]>, _: usize) -> Self {
        Self(queues)
    }

    /// Returns nothing.
    ///
    /// # Errors
    /// None.
    pub fn receive(&mut self, _: Duration, _: &mut dyn Reader) -> io::Result<(Received, Causes)> {
        debug_assert!(self.0.is_empty());
        Ok(Default::default())
    }
}
