//! Counters and gauges of running blocks.

use crate::device_jobs::DeviceJobs;
use crate::gauge::{Gauge, Lifetime, NamedGauge};
use crate::lock::lock;
use crate::real_time::RealTime;
use crate::threads::Threads;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A number that only grows, shared between a block and its readers (metrics, REST, the page).
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

/// A counter in the list of a block's counters.
#[derive(Clone, Debug)]
pub struct Named {
    /// Name, plural noun first, then the cause: `heaps_missing`, `packets_malformed`, ...
    pub name: &'static str,
    /// Description, and the action for the operator when it grows.
    pub help: &'static str,
    /// Whether it counts missing or dropped data.
    pub is_loss: bool,
    /// Whether it counts data dropped because the block itself is too slow.
    pub is_overrun: bool,
    /// Whether it counts data dropped because later blocks are too slow.
    pub is_held_up: bool,
    /// The count.
    pub counter: Counter,
}

/// A gauge; a measurement has a lifetime.
type Watched = (NamedGauge, Option<Lifetime>);

/// The counters and gauges of one block.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    named: Arc<Mutex<Vec<Named>>>,
    gauges: Arc<Mutex<Vec<Watched>>>,
    device_nanoseconds: Counter,
    device_jobs: DeviceJobs,
    real_time: RealTime,
    threads: Threads,
}

impl Counters {
    /// Registers a counter; returns the existing one if the block is created again.
    #[must_use]
    pub fn count(&self, name: &'static str, help: &'static str) -> Counter {
        self.register(name, help, [false; 3])
    }

    /// [`count`](Self::count) for a counter of missing or dropped data.
    #[must_use]
    pub fn loss(&self, name: &'static str, help: &'static str) -> Counter {
        self.register(name, help, [true, false, false])
    }

    /// [`loss`](Self::loss) for data that were dropped because the block itself is too slow: while it grows, the block
    /// is the bottleneck of the flowgraph.
    #[must_use]
    pub fn overrun(&self, name: &'static str, help: &'static str) -> Counter {
        self.register(name, help, [true, true, false])
    }

    /// [`loss`](Self::loss) for data that were dropped because later blocks are too slow.
    #[must_use]
    pub fn held_up(&self, name: &'static str, help: &'static str) -> Counter {
        self.register(name, help, [true, false, true])
    }

    /// Time that a GPU spent on the block's frames in nanoseconds, from the first kernel of each frame to its
    /// last.
    #[must_use]
    pub fn device_nanoseconds(&self) -> &Counter {
        &self.device_nanoseconds
    }

    /// Times of the block's jobs on a GPU.
    #[must_use]
    pub fn device_jobs(&self) -> &DeviceJobs {
        &self.device_jobs
    }

    /// Unix time of timestamp 0 of a source.
    #[must_use]
    pub fn real_time(&self) -> &RealTime {
        &self.real_time
    }

    /// Threads that the block starts itself.
    #[must_use]
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    fn register(
        &self,
        name: &'static str,
        help: &'static str,
        [is_loss, is_overrun, is_held_up]: [bool; 3],
    ) -> Counter {
        let mut all = lock(&self.named);
        if let Some(known) = all.iter().find(|known| known.name == name) {
            return known.counter.clone();
        }
        let counter = Counter::default();
        all.push(Named { name, help, is_loss, is_overrun, is_held_up, counter: counter.clone() });
        counter
    }

    /// Registers a gauge of a state, which holds until it is set again: a setting, a total, the time of the last event.
    /// Returns the existing one if the block is created again.
    #[must_use]
    pub fn state(&self, name: &'static str, help: &'static str) -> Gauge {
        self.register_gauge(name, help, None, None)
    }

    /// [`state`](Self::state) with a label, for example `("input", "0")`, for several gauges of one name. All gauges
    /// of a name have the same label name.
    #[must_use]
    pub fn state_of(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        value: impl Into<String>,
    ) -> Gauge {
        self.register_gauge(name, help, Some((label, value.into())), None)
    }

    /// Registers a gauge of a measurement of the data, such as a level: it becomes unknown when no new one comes for some
    /// intervals of the earlier ones. Returns the existing one if the block is created again.
    #[must_use]
    pub fn measurement(&self, name: &'static str, help: &'static str) -> Gauge {
        self.measurement_every(1, name, help)
    }

    /// [`measurement`](Self::measurement) of which one comes in `frames` frames of the block, the longest ones of its
    /// inputs and outputs.
    #[must_use]
    pub fn measurement_every(&self, frames: u64, name: &'static str, help: &'static str) -> Gauge {
        self.register_gauge(name, help, None, Some(Lifetime::of_frames(frames)))
    }

    /// [`measurement`](Self::measurement) with a label, as [`state_of`](Self::state_of).
    #[must_use]
    pub fn measurement_of(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        value: impl Into<String>,
    ) -> Gauge {
        let label = Some((label, value.into()));
        self.register_gauge(name, help, label, Some(Lifetime::of_frames(1)))
    }

    fn register_gauge(
        &self,
        name: &'static str,
        help: &'static str,
        label: Option<(&'static str, String)>,
        lifetime: Option<Lifetime>,
    ) -> Gauge {
        let mut all = lock(&self.gauges);
        let known = all.iter().find(|(known, _)| known.name == name && known.label == label);
        if let Some((known, _)) = known {
            return known.gauge.clone();
        }
        let gauge = Gauge::default();
        all.push((NamedGauge { name, help, label, gauge: gauge.clone() }, lifetime));
        gauge
    }

    /// Makes measurements unknown that are too old, of a block with a frame every `frame`. For the driver, which calls it
    /// every [`Patience::LOOK`](crate::Patience::LOOK); the clock shows `now`.
    pub fn expire(&self, frame: Duration, now: Instant) {
        let mut all = lock(&self.gauges);
        for (named, lifetime) in all.iter_mut() {
            lifetime.iter_mut().for_each(|lifetime| lifetime.look(&named.gauge, frame, now));
        }
    }

    /// Makes all measurements unknown. For the driver, at the end of the run.
    pub fn end_measurements(&self) {
        let all = lock(&self.gauges);
        all.iter()
            .filter(|(_, lifetime)| lifetime.is_some())
            .for_each(|(named, _)| named.gauge.expire());
    }

    /// All gauges in the order of their registration.
    #[must_use]
    pub fn gauges(&self) -> Vec<NamedGauge> {
        let all = lock(&self.gauges);
        all.iter().map(|(named, _)| named.clone()).collect()
    }

    /// All counters in the order of their registration.
    #[must_use]
    pub fn list(&self) -> Vec<Named> {
        lock(&self.named).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauge_is_unknown_until_set_and_shared_when_registered_twice() {
        let counters = Counters::default();
        let gauge = counters.measurement_of("level_dbfs", "", "input", "1");
        assert_eq!(gauge.get(), None);
        gauge.set(-20.5);
        assert_eq!(counters.measurement_of("level_dbfs", "", "input", "1").get(), Some(-20.5));
        assert_eq!(counters.measurement_of("level_dbfs", "", "input", "0").get(), None);
        assert_eq!(counters.gauges().len(), 2);
        gauge.set(f64::NAN);
        assert_eq!(gauge.get(), None);
    }
}
