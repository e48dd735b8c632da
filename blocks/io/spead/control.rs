//! Heaps without data: descriptors and stream control.

use super::packet::{Head, Pointer, VALUE_BITS};
use super::send::{Outgoing, Sender, send};
use fxgraph::BlockError;
use std::net::SocketAddr;

/// Numbers of the heaps of a sender.
pub struct HeapCounter {
    next: u64,
    step: u64,
}

impl HeapCounter {
    /// Counts from `first` in steps of `step`.
    #[must_use]
    pub fn new(first: u64, step: u64) -> Self {
        Self { next: first, step }
    }

    /// Returns the number of the next heap.
    pub fn take(&mut self) -> u64 {
        let number = self.next;
        self.next = (number + self.step) & ((1 << VALUE_BITS) - 1);
        number
    }
}

/// A heap without data that is being sent to all destinations.
pub struct Control {
    items: Vec<Pointer>,
    payload: Vec<u8>,
    /// The next destination, the heap's number there, and the bytes sent to it.
    destination: usize,
    number: u64,
    done: usize,
    /// Whether the network dropped a part of what was sent to this destination, and the destinations before it of which
    /// it dropped none.
    is_cut: bool,
    told: usize,
}

impl Control {
    /// Creates a heap of which nothing is sent yet.
    pub fn new(items: Vec<Pointer>, payload: Vec<u8>, counter: &mut HeapCounter) -> Self {
        let number = counter.take();
        Self { items, payload, destination: 0, number, done: 0, is_cut: false, told: 0 }
    }

    /// Sends as much as fits the socket buffer, with at most `size` bytes of payload per packet; returns whether all of
    /// it is sent.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn send(
        &mut self,
        mut sender: Option<&mut Sender>,
        destinations: &[SocketAddr],
        size: usize,
        counter: &mut HeapCounter,
    ) -> Result<bool, BlockError> {
        let all = self.payload.len();
        while let Some(&to) = destinations.get(self.destination) {
            let payload = &self.payload[self.done..all.min(self.done + size)];
            let head = Head::new(self.number, all, self.done, payload.len(), &self.items);
            let burst = send(sender.as_deref_mut(), &[Outgoing { to, head, payload }])?;
            if burst.packets == 0 {
                return Ok(false);
            }
            self.is_cut |= burst.dropped > 0;
            self.done += payload.len();
            if self.done == all {
                self.destination += 1;
                self.done = 0;
                self.told += usize::from(!std::mem::take(&mut self.is_cut));
                if self.destination < destinations.len() {
                    self.number = counter.take();
                }
            }
        }
        Ok(true)
    }

    /// Number of destinations that all of it was sent to.
    #[must_use]
    pub fn told(&self) -> usize {
        self.told
    }

    /// Whether a packet of it was sent.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.destination > 0 || self.done > 0
    }
}
