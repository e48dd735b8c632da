//! Unix time of the timestamps of a source.

use crate::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Unix time of timestamp 0 of a stream in real time, set by the source if known.
///
/// If the source does not set it, latency is measured relative to the frame that arrived earliest with respect to its
/// timestamp.
#[derive(Clone, Debug)]
pub struct RealTime(Arc<AtomicU64>);

impl Default for RealTime {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(f64::NAN.to_bits())))
    }
}

impl RealTime {
    /// Sets the Unix time of the sample with timestamp 0, in seconds.
    pub fn set_zero(&self, unix_seconds: f64) {
        self.0.store(unix_seconds.to_bits(), Ordering::Relaxed);
    }

    /// Sets the time of the sample with timestamp 0. Leap seconds since then count, so that latencies are right now.
    pub fn set_sync_time(&self, time: Time) {
        let now = Time::now();
        self.set_zero(now.to_unix_f64() - now.seconds_since(time));
    }

    /// Unix time of timestamp 0 in seconds, if set.
    #[must_use]
    pub fn zero(&self) -> Option<f64> {
        Some(f64::from_bits(self.0.load(Ordering::Relaxed))).filter(|zero| zero.is_finite())
    }
}
