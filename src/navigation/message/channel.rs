//! Channel of a satellite: from correlator sums to decoded messages.

use super::{Decoded, Signal};
use crate::ephemeris::SatelliteId;
use fxgraph_time::Time;
use std::collections::VecDeque;

/// Number of units of a channel since it was created, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Units whose parity or CRC is right.
    pub decoded: u64,
    /// Units with a wrong parity or CRC, or with missing symbols, at a place where a unit is expected.
    pub failed: u64,
    /// Units that contradict the time of others, and ephemerides with implausible values.
    pub contradicted: u64,
}

/// Decoder of the message of one satellite, from its correlator sums.
pub struct Channel {
    signal: Signal,
    satellite: SatelliteId,
    decoded: VecDeque<Decoded>,
    counts: Counts,
}

impl Channel {
    /// Creates the decoder of `signal` of `satellite`. LNAV numbers weeks modulo 1024: its week is the one nearest to
    /// `near_week`, a full GPS week.
    #[must_use]
    pub fn new(signal: Signal, satellite: SatelliteId, near_week: u32) -> Self {
        let _ = near_week;
        Self { signal, satellite, decoded: VecDeque::new(), counts: Counts::default() }
    }

    /// Signal of this channel.
    #[must_use]
    pub fn signal(&self) -> Signal {
        self.signal
    }

    /// Satellite of this channel.
    #[must_use]
    pub fn satellite(&self) -> SatelliteId {
        self.satellite
    }

    /// Adds the correlator sum of a whole period of the code, whose carrier loop has its phase on the real axis (with
    /// either sign). `period` counts periods of the code since the start of tracking: a number that is left out is a
    /// period that was missing. A number that is not higher than the one before restarts the channel.
    pub fn add(&mut self, period: u64, [re, im]: [f64; 2]) {
        let _ = (period, re, im);
    }

    /// Takes what was decoded, oldest first.
    pub fn take(&mut self) -> Option<Decoded> {
        self.decoded.pop_front()
    }

    /// Returns the time of transmission of the start of period number `period`, which may be fractional times the period
    /// of the code later than that of another; `None` before two units have given the same time.
    #[must_use]
    pub fn transmission(&self, period: u64) -> Option<Time> {
        let _ = period;
        None
    }

    /// Whether the newest unit had the alert flag: the signal may be worse than the accuracy says (GPS).
    #[must_use]
    pub fn is_alert(&self) -> bool {
        false
    }

    /// Number of units by result.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
