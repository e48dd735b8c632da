//! Time bases: the Unix time of the timestamps of frames, which changes when a sender is synchronised again.
//!
//! Timestamps of a flowgraph only grow. When a sender starts to count again from another sync time, its source
//! continues at a later multiple of 2^48, and frames from there on have another time base. The base is in the header
//! of the frames, so that every block changes it with the first frame of the new base.

use crate::Time;
use crate::lock::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Limit of the bases that a block keeps; frames of older ones have left it.
const KEPT: usize = 64;

/// Time base of a frame. The default is the base with which the run began, that of the clock of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimeBase {
    /// First timestamp that may belong to the base, a multiple of 2^48, which identifies the base.
    pub from: u64,
    /// Sync time of the sender, the time of timestamp `from`: (time of a sample) = this + (timestamp -
    /// `from`) / (ADC sample rate). `None` is the sync time of the clock of the port.
    pub sync_time: Option<Time>,
    /// Largest error of `sync_time`, in seconds: 0 of a sync time that was given, positive of one that a source measured,
    /// and infinite if it is not known.
    pub uncertainty_seconds: f64,
}

impl TimeBase {
    /// Whether `other` is the same base.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.from == other.from
    }

    /// Statement about a sync time that was measured, for messages: `uncertain by 0.27 s`. `None` of one that was given, or
    /// that is not known.
    #[must_use]
    pub fn uncertainty(&self) -> Option<String> {
        self.sync_time.filter(|time| *time != Time::default())?;
        match self.uncertainty_seconds {
            0.0 => None,
            seconds if seconds.is_finite() => Some(format!("uncertain by {seconds:.2} s")),
            _ => Some("of unknown uncertainty".to_owned()),
        }
    }
}

/// Time bases of the frames that a block has taken. Its output frames get them by their timestamps.
#[derive(Clone, Default)]
pub struct BasesTaken(Arc<Taken>);

#[derive(Default)]
struct Taken {
    count: AtomicUsize,
    bases: Mutex<VecDeque<TimeBase>>,
}

impl BasesTaken {
    /// Notes that a frame of `base` was taken.
    pub fn note(&self, base: TimeBase) {
        let mut bases = lock(&self.0.bases);
        let at = bases.partition_point(|known| known.from < base.from);
        if base == TimeBase::default() || bases.get(at).is_some_and(|known| known.is(&base)) {
            return;
        }
        bases.insert(at, base);
        if bases.len() > KEPT {
            bases.pop_front();
        }
        self.0.count.store(bases.len(), Ordering::Release);
    }

    /// Base of a frame of this timestamp.
    #[must_use]
    pub fn at(&self, timestamp: u64) -> TimeBase {
        if self.0.count.load(Ordering::Acquire) == 0 {
            return TimeBase::default();
        }
        let bases = lock(&self.0.bases);
        let newest = bases.iter().rev().find(|base| base.from <= timestamp);
        newest.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_measured_sync_time_states_its_uncertainty() {
        let base = |time, uncertainty_seconds| TimeBase {
            from: 1 << 48,
            sync_time: Some(time),
            uncertainty_seconds,
        };
        let stated = |base: TimeBase| base.uncertainty();
        assert_eq!((stated(TimeBase::default()), stated(base(Time::unix(9), 0.0))), (None, None));
        assert_eq!(stated(base(Time::unix(9), 0.256)).as_deref(), Some("uncertain by 0.26 s"));
        let unknown = stated(base(Time::unix(9), f64::INFINITY));
        assert_eq!(unknown.as_deref(), Some("of unknown uncertainty"));
        // A file, whose times count from 1970.
        assert_eq!(stated(base(Time::default(), f64::INFINITY)), None);
    }

    #[test]
    fn base_of_a_timestamp_is_the_newest_that_began_before() {
        let bases = BasesTaken::default();
        assert_eq!(bases.at(9), TimeBase::default());
        let base = |from| TimeBase {
            from,
            sync_time: Some(Time::unix(from as u32)),
            ..TimeBase::default()
        };
        for from in [300, 100, 200, 100] {
            bases.note(base(from));
        }
        let found = [99, 100, 299, 300].map(|timestamp| bases.at(timestamp));
        assert_eq!(found, [TimeBase::default(), base(100), base(200), base(300)]);
        (0..2 * KEPT as u64).for_each(|from| bases.note(base(1000 + from)));
        assert_eq!(bases.0.bases.lock().map(|bases| bases.len()).ok(), Some(KEPT));
        assert_eq!(bases.at(u64::MAX), base(999 + 2 * KEPT as u64));
    }
}
