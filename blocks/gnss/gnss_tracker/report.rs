//! State of each satellite: metrics while the block runs, and a table at its end.

use super::VALUES;
use fxgraph::{Env, Gauge, Summary};
use std::fmt::Write as _;

/// Metrics and table of all satellites.
pub struct Report {
    satellites: Vec<Satellite>,
    frame_seconds: f64,
    summary: Summary,
}

/// One satellite.
struct Satellite {
    label: String,
    /// Lock (0 or 1), C/N0 and Doppler shift.
    gauges: [Gauge; 3],
    /// C/N0 and Doppler shift when it was locked last; NaN if not known.
    last: [f64; 2],
    is_locked: bool,
    locked_frames: u64,
    tracked_frames: u64,
}

impl Report {
    pub fn new(labels: Vec<String>, frame_seconds: f64, env: &Env) -> Self {
        let satellite = |label: String| {
            let gauge =
                |name, help| env.counters.measurement_of(name, help, "satellite", label.clone());
            Satellite {
                gauges: [
                    gauge(
                        "satellite_locked",
                        "1 while the satellite is locked, also over a short gap; 0 without samples for 5 s",
                    ),
                    gauge("cn0_db_hz", "C/N0 of the satellite while it is locked"),
                    gauge("doppler_hz", "Doppler shift of the satellite while it is locked"),
                ],
                label,
                last: [f64::NAN; 2],
                is_locked: false,
                locked_frames: 0,
                tracked_frames: 0,
            }
        };
        Self {
            satellites: labels.into_iter().map(satellite).collect(),
            frame_seconds,
            summary: env.summary.clone(),
        }
    }

    /// Adds the rows of a frame. Without valid samples (`is_whole` false) the rows are extrapolated: the frame does not
    /// count as locked, and the gauges stay as long as the satellite is tracked.
    pub fn add(&mut self, rows: &[[f64; VALUES]], is_whole: bool) {
        for (satellite, row) in self.satellites.iter_mut().zip(rows) {
            let [_, prn, locked, cn0_db_hz, doppler_hz, ..] = *row;
            satellite.tracked_frames += u64::from(prn > 0.0);
            satellite.is_locked = locked > 0.5;
            let mut shown = [locked, f64::NAN, f64::NAN];
            if satellite.is_locked {
                // In a row 0 is a C/N0 that is not known.
                let cn0_db_hz = if cn0_db_hz == 0.0 { f64::NAN } else { cn0_db_hz };
                shown = [locked, cn0_db_hz, doppler_hz];
                if is_whole {
                    satellite.locked_frames += 1;
                    satellite.last = [cn0_db_hz, doppler_hz];
                }
            }
            for (gauge, value) in satellite.gauges.iter().zip(shown) {
                gauge.set(value);
            }
        }
    }

    /// Sets the table that is printed after the run: the satellites that were tracked.
    pub fn finish(&self) {
        let tracked = || self.satellites.iter().filter(|s| s.tracked_frames > 0);
        let locked = tracked().filter(|s| s.is_locked).count();
        let mut text = format!("{locked} of {} satellites locked\n", self.satellites.len());
        text += "satellite  Doppler [Hz]  C/N0 [dB Hz]  locked [s]  tracked [s]\n";
        for Satellite { label, last: [cn0, doppler], locked_frames, tracked_frames, .. } in
            tracked()
        {
            let seconds = |frames: &u64| *frames as f64 * self.frame_seconds;
            let (locked, tracked) = (seconds(locked_frames), seconds(tracked_frames));
            let known = |value: &f64| {
                if value.is_nan() { "-".to_owned() } else { format!("{value:.1}") }
            };
            let (doppler, cn0) = (known(doppler), known(cn0));
            // Writing to a string cannot fail.
            let _ =
                writeln!(text, "{label:<9} {doppler:>13} {cn0:>13} {locked:>11.2} {tracked:>12.2}");
        }
        self.summary.set(text);
    }
}
