//! Time until the first ephemeris.

use crate::ephemeris::SatelliteId;
use crate::message::{Broadcast, Channel, Signal, encode};

#[test]
fn ephemeris_is_known_after_its_three_subframes() {
    let ephemeris = super::orbit(SatelliteId::gps(5), -1.0, 0.5);
    let broadcast = Broadcast { ephemeris, klobuchar: None, nequick: None, utc: None };
    let mut channel = Channel::new(Signal::GpsL1Ca, SatelliteId::gps(5), 2190);
    let start = 2190 * 604_800 + 518_427_i64;
    let mut known = None;
    for period in 0..60_000_u64 {
        let milliseconds = start * 1000 + period as i64;
        let seconds = milliseconds.div_euclid(1000);
        let unit = Signal::GpsL1Ca.unit_start(seconds);
        let symbols = encode(Signal::GpsL1Ca, &broadcast, seconds).unwrap();
        let symbol = symbols[((milliseconds - unit * 1000) / 20) as usize];
        let noise = if period % 2 == 0 { 0.1 } else { -0.1 };
        channel.add(period, [if symbol { -1.0 } else { 1.0 }, noise]);
        if channel.ephemeris().is_some() && known.is_none() {
            known = Some(period);
        }
    }
    assert!(known.unwrap() < 22_000, "{known:?}");
}
