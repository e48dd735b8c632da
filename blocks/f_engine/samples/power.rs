//! Power and clipping of the digitiser's samples.

use super::input::{is_complex, rate_hz};
use fxgraph::{Counters, Gauge, PortType};

/// Power and clipping of some samples of one polarisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Sum of the squares of the samples.
    pub power: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples at the limits of the digitiser.
    pub clipped: u64,
}

impl Measured {
    /// Adds the values of more samples.
    pub fn add(&mut self, more: Self) {
        self.power += more.power;
        self.samples += more.samples;
        self.clipped += more.clipped;
    }
}

/// Names of the inputs, for metrics.
pub const INPUTS: [&str; 2] = ["pol0", "pol1"];
/// Level that the metric shows if all samples are 0.
const LOWEST_DBFS: f64 = -120.0;

/// Level and clipping of one polarisation over the whole run, and over the last second as metrics.
pub struct Level {
    /// A sample of this magnitude or more counts as clipped.
    pub limit: i16,
    /// Sum of squares in double precision, which lasts for runs of days.
    power: f64,
    samples: u64,
    clipped: u64,
    /// Samples per second.
    samples_per_second: u64,
    /// Values since the metrics were set.
    recent: Measured,
    rms_dbfs: Gauge,
    clipped_ratio: Gauge,
    clipped_samples: Gauge,
}

impl Level {
    /// Creates a level for each input with ADC samples.
    pub fn of_inputs(inputs: &[PortType], counters: &Counters) -> Vec<Self> {
        let digitised = inputs.iter().zip(INPUTS).filter(|(input, _)| !is_complex(input));
        digitised.map(|(input, name)| Self::new(input, name, counters)).collect()
    }

    fn new(input: &PortType, name: &'static str, counters: &Counters) -> Self {
        let measured = |gauge, help| counters.measurement_of(gauge, help, "input", name);
        Self {
            limit: i16::MAX >> (16 - input.dtype.bits()),
            power: 0.0,
            samples: 0,
            clipped: 0,
            samples_per_second: rate_hz(input) as u64,
            recent: Measured::default(),
            rms_dbfs: measured(
                "digitiser_level_dbfs",
                "rms of the digitiser's samples in the last second, offset included, relative to a full-scale sine, at \
                 least -120; adjust the level at its input",
            ),
            clipped_ratio: measured(
                "digitiser_clipped_ratio",
                "fraction of the digitiser's samples in the last second at its limits; lower the level at its input",
            ),
            clipped_samples: counters.state_of(
                "digitiser_clipped_samples",
                "number of samples at the limits of the digitiser since the start",
                "input",
                name,
            ),
        }
    }

    /// Adds the values of an output frame, and sets the metrics once a second.
    pub fn add(&mut self, measured: Measured) {
        self.power += measured.power as f64;
        self.samples += measured.samples;
        self.clipped += measured.clipped;
        self.recent.add(measured);
        let is_first = self.samples == self.recent.samples && measured.samples > 0;
        if is_first || self.recent.samples >= self.samples_per_second.max(1) {
            self.show();
        }
    }

    /// Sets the metrics and starts the next second.
    fn show(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        let samples = recent.samples as f64;
        self.rms_dbfs.set(self.dbfs(recent.power as f64 / samples).max(LOWEST_DBFS));
        self.clipped_ratio.set(recent.clipped as f64 / samples);
        self.clipped_samples.set(self.clipped as f64);
    }

    /// Level of a mean square in dB relative to a full-scale sine.
    fn dbfs(&self, mean_square: f64) -> f64 {
        10.0 * (mean_square / (f64::from(self.limit).powi(2) / 2.0)).log10()
    }

    /// Level and clipping as text; `None` without samples.
    pub fn words(&self) -> Option<String> {
        let rms_dbfs = self.dbfs(self.power / self.samples as f64);
        let clipped_percent = 100.0 * self.clipped as f64 / self.samples as f64;
        let samples = self.samples;
        (samples > 0).then(|| {
            format!("rms {rms_dbfs:.2} dBFS, {clipped_percent:.4} % of {samples} samples clipped")
        })
    }
}

/// Level and clipping, one line for each polarisation.
pub fn summary(levels: &[Level]) -> String {
    let line = |(p, level): (usize, &Level)| Some(format!("pol{p}: {}\n", level.words()?));
    levels.iter().enumerate().filter_map(line).collect()
}
