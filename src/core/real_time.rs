//! How a source tells what time its timestamps stand for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Unix time of timestamp 0 of a stream in real time, set by the source that knows it.
///
/// A source that does not set it is measured by its earliest sample: how much later than that one the
/// others come.
#[derive(Clone, Debug)]
pub struct RealTime(Arc<AtomicU64>);

impl Default for RealTime {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(f64::NAN.to_bits())))
    }
}

impl RealTime {
    /// Sets the Unix time, in seconds, at which the sample of timestamp 0 was taken or would have been.
    pub fn set_zero(&self, unix_seconds: f64) {
        self.0.store(unix_seconds.to_bits(), Ordering::Relaxed);
    }

    /// Unix time of timestamp 0 in seconds, if the source knows it.
    #[must_use]
    pub fn zero(&self) -> Option<f64> {
        Some(f64::from_bits(self.0.load(Ordering::Relaxed))).filter(|zero| zero.is_finite())
    }
}
