//! Sockets of a receiving thread, of the network stack or of AF_XDP, with one interface for both.

use super::datagrams::Rejections;
use super::receive::{Batch, Reader, Received};
use super::xdp;
use super::xdp::queue::{Queue, Watched};
use crate::common::net::membership::Reports;
use crate::common::net::sockets::{self, Listener};
use socket2::Socket;
use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::Duration;

/// Counts that only AF_XDP sockets have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// Packets rejected.
    pub rejected: Rejections,
    /// Times that the kernel had no free chunk.
    pub no_chunk: u64,
}

/// The sockets of a thread.
pub enum Port {
    /// UDP sockets.
    Sockets(Vec<Listener>),
    /// AF_XDP sockets, and the addresses of the source.
    Queues(Vec<Queue>, Arc<[SocketAddrV4]>),
}

impl Port {
    /// Number of sockets.
    #[must_use]
    pub fn sockets(&self) -> usize {
        match self {
            Self::Sockets(sockets) => sockets.len(),
            Self::Queues(queues, _) => queues.len(),
        }
    }

    /// Size of all buffers, in bytes.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        match self {
            Self::Sockets(sockets) => {
                sockets.iter().map(|socket| sockets::buffer_bytes(socket)).sum()
            }
            Self::Queues(queues, _) => queues.iter().map(Queue::buffer_bytes).sum(),
        }
    }

    /// Returns a view of the buffers, for other threads.
    ///
    /// # Errors
    /// If no descriptor is left.
    pub fn watch(&self) -> io::Result<View> {
        Ok(match self {
            Self::Sockets(sockets) => View::Sockets(
                sockets.iter().map(|socket| socket.try_clone()).collect::<io::Result<_>>()?,
            ),
            Self::Queues(queues, _) => View::Queues(queues.iter().map(Queue::watch).collect()),
        })
    }

    /// Returns the receiver, whose streams get out of step by at most about `in_step_bytes` in total. Interfaces that are
    /// gone or back are reported with `reports`.
    #[must_use]
    pub fn receiver(self, in_step_bytes: usize, reports: Reports) -> Receiver {
        match self {
            Self::Sockets(sockets) => {
                Receiver::Sockets(Batch::new(sockets, in_step_bytes).reporting(reports))
            }
            Self::Queues(queues, addresses) => {
                Receiver::Queues(xdp::Batch::new(queues, addresses, in_step_bytes))
            }
        }
    }
}

/// View of the buffers of a thread.
pub enum View {
    /// Duplicates of its sockets.
    Sockets(Vec<Socket>),
    /// Rings of its AF_XDP sockets.
    Queues(Vec<Arc<Watched>>),
}

impl Default for View {
    fn default() -> Self {
        Self::Sockets(Vec::new())
    }
}

impl View {
    /// Whether data wait that no thread has read.
    #[must_use]
    pub fn has_data(&self) -> bool {
        match self {
            Self::Sockets(sockets) => sockets::has_data(sockets),
            Self::Queues(queues) => queues.iter().any(|queue| queue.has_data()),
        }
    }

    /// Returns the used fraction of the fullest buffer.
    #[must_use]
    pub fn fill(&self) -> f32 {
        match self {
            Self::Sockets(sockets) => sockets.iter().map(sockets::fill).fold(0.0, f32::max),
            Self::Queues(queues) => queues.iter().map(|queue| queue.fill()).fold(0.0, f32::max),
        }
    }
}

/// Receiver of a thread.
#[cfg_attr(not(any(feature = "xdp", test)), expect(clippy::large_enum_variant))]
pub enum Receiver {
    /// From UDP sockets.
    Sockets(Batch),
    /// From AF_XDP sockets.
    Queues(xdp::Batch),
}

impl Receiver {
    /// Waits up to `timeout` for datagrams, and gives some of them to `reader`.
    ///
    /// # Errors
    /// If a socket fails.
    pub fn receive(
        &mut self,
        timeout: Duration,
        reader: &mut dyn Reader,
    ) -> io::Result<(Received, Causes)> {
        match self {
            Self::Sockets(batch) => Ok((batch.receive(timeout, reader)?, Causes::default())),
            Self::Queues(batch) => batch.receive(timeout, reader),
        }
    }
}
