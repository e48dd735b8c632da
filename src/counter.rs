//! Figures that blocks count while they run.

use crate::device_jobs::DeviceJobs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A number that only grows, shared between a block and whoever watches it.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a counter stands for in the list of a block's counters.
#[derive(Clone, Debug)]
pub struct Named {
    /// `heaps_missing`, `packets_malformed`, ...: plural noun first, then the cause.
    pub name: &'static str,
    /// What it counts and what to do when it grows.
    pub help: &'static str,
    /// Whether growth means lost data (shown as drops).
    pub is_loss: bool,
    /// The count.
    pub counter: Counter,
}

/// The counters of one block.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    named: Arc<Mutex<Vec<Named>>>,
    device_nanoseconds: Counter,
    device_jobs: DeviceJobs,
}

impl Counters {
    /// A new counter; the same one again if the block is rebuilt.
    #[must_use]
    pub fn count(&self, name: &'static str, help: &'static str) -> Counter {
        self.register(name, help, false)
    }

    /// A new counter whose growth means lost data.
    #[must_use]
    pub fn loss(&self, name: &'static str, help: &'static str) -> Counter {
        self.register(name, help, true)
    }

    /// Nanoseconds that a device spent on the block's frames, from the first kernel of each to its
    /// last.
    #[must_use]
    pub fn device_nanoseconds(&self) -> &Counter {
        &self.device_nanoseconds
    }

    /// How long each of a block's jobs took a device.
    #[must_use]
    pub fn device_jobs(&self) -> &DeviceJobs {
        &self.device_jobs
    }

    fn register(&self, name: &'static str, help: &'static str, is_loss: bool) -> Counter {
        let mut all = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|known| known.name == name) {
            return known.counter.clone();
        }
        let counter = Counter::default();
        all.push(Named { name, help, is_loss, counter: counter.clone() });
        counter
    }

    /// All counters in the order they were made.
    #[must_use]
    pub fn list(&self) -> Vec<Named> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
