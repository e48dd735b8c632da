//! Sums the dumps, then compares the fringes with the expected ones.

use super::FringeCheck;
use crate::common::visibilities::parallel;
use fxgraph::{Band, Block, BlockError, Counter, Env, Frame, Io, Next, PortType, Summary};
use fxgraph_dsp::fringe::{Expected, Measured, measure};
use num_complex::Complex64;
use std::f64::consts::TAU;
use std::fmt::Write;

/// Largest number of baselines in the table; those with the largest deviations are shown.
const MAX_ROWS: usize = 20;
/// Largest number of baselines that an error names.
const MAX_NAMES: usize = 8;
/// Probability that noise on a baseline counts as a fringe.
const FALSE_ALARM: f64 = 1e-5;

/// The running block.
pub struct Check {
    parameters: FringeCheck,
    band: Option<Band>,
    channels: usize,
    baselines: usize,
    products: usize,
    /// Numbers of the antennas.
    numbers: Vec<u32>,
    /// Visibilities on the sky, `[baseline][channel]`, all parallel-hand products added.
    sums: Vec<Complex64>,
    summary: Summary,
    /// Dumps that are still left out.
    to_skip: u64,
    dumps: Counter,
    missing: Counter,
    missing_visibilities: Counter,
}

/// One line of the table.
struct Row {
    /// Numbers of the antennas.
    antennas: (u32, u32),
    expected: Expected,
    /// `None` for a baseline without a fringe above the noise.
    measured: Option<Measured>,
}

impl Row {
    /// Absolute deviation in degrees; 180, the largest, for a baseline without a fringe.
    fn deviation(&self) -> f64 {
        self.measured.map_or(180.0, |measured| measured.deviation_degrees.abs())
    }

    fn delay_error_seconds(&self) -> Option<f64> {
        let expected = self.expected.delay_seconds + self.expected.applied_seconds;
        self.measured.map(|measured| (measured.delay_seconds - expected).abs())
    }
}

impl Check {
    /// A check of `input`.
    pub fn new(parameters: FringeCheck, numbers: Vec<u32>, input: &PortType, env: &Env) -> Self {
        let (channels, baselines) = (input.axes[0].len, input.axes[1].len);
        Self {
            to_skip: parameters.skip_dumps,
            parameters,
            band: input.band,
            channels,
            baselines,
            products: input.axes[2].len,
            numbers,
            sums: vec![Complex64::ZERO; channels * baselines],
            summary: env.summary.clone(),
            dumps: env.counters.count("dumps", "dumps summed"),
            missing: env.counters.loss(
                "baselines_missing",
                "baselines of dumps without any data; look for missing data upstream",
            ),
            missing_visibilities: env.counters.count(
                "visibilities_missing",
                "visibilities of dumps without any data, if these are counted one by one: missing or flagged",
            ),
        }
    }

    fn add(&mut self, frame: &Frame) {
        self.dumps.add(1);
        let validity = &frame.header().validity;
        // Counts of each visibility if the input of the correlator has flags of channels.
        let is_by_product = validity.len() > self.baselines;
        let missing = validity.iter().filter(|count| **count == 0).count();
        let counter = if is_by_product { &self.missing_visibilities } else { &self.missing };
        counter.add(missing as u64);
        let values = frame.as_slice::<[i32; 2]>().expect(fxgraph::ON_HOST);
        let sign = self.band.map_or(1.0, |band| band.sideband.sign());
        for (n, products) in values.chunks_exact(self.products).enumerate() {
            let (channel, baseline) = (n / self.baselines, n % self.baselines);
            for &product in parallel(self.products) {
                let unit = if is_by_product { n * self.products + product } else { baseline };
                let count = validity[unit];
                if count == 0 {
                    continue;
                }
                let [re, im] = products[product];
                let value = Complex64::new(f64::from(re), sign * f64::from(im));
                self.sums[baseline * self.channels + channel] += value;
            }
        }
    }

    fn expected(&self, a1: usize, a2: usize) -> Expected {
        let parameters = &self.parameters;
        if parameters.tracked {
            return Expected::default();
        }
        let delay = |a: usize| parameters.source.delay_seconds(parameters.antennas_enu_metres[a]);
        let applied = |list: &[f64], a: usize| list.get(a).copied().unwrap_or(0.0);
        let difference = |list: &[f64]| applied(list, a1) - applied(list, a2);
        Expected {
            delay_seconds: delay(a1) - delay(a2),
            applied_seconds: difference(&parameters.applied_delays_seconds),
            applied_radians: difference(&parameters.applied_phases_radians),
        }
    }

    /// Rows of the table for all baselines between two antennas.
    fn rows(&self, band: &Band) -> Vec<Row> {
        let first = first_used(band, self.channels);
        let hz: Vec<f64> = (first..self.channels).map(|c| band.channel_hz(c)).collect();
        let mut rows = Vec::new();
        for a2 in 0..self.parameters.antennas_enu_metres.len() {
            for a1 in 0..a2 {
                let baseline = a2 * (a2 + 1) / 2 + a1;
                let all = &self.sums[baseline * self.channels..][..self.channels];
                let expected = self.expected(a1, a2);
                let used = &all[first..];
                let measured = measure(used, &hz, band.centre_hz, &expected).filter(|found| {
                    ln_false_alarm(used, &hz, found.delay_seconds) < FALSE_ALARM.ln()
                });
                let antennas = (self.numbers[a1], self.numbers[a2]);
                rows.push(Row { antennas, expected, measured });
            }
        }
        rows
    }

    /// Writes the table to the summary.
    ///
    /// # Errors
    /// With a limit: if no visibilities arrived, if a baseline has no fringe, or if it exceeds a limit.
    fn conclude(&self) -> Result<(), BlockError> {
        let Some(band) = &self.band else { return Ok(()) };
        let mut rows = self.rows(band);
        let most = self.parameters.max_phase_error_degrees;
        let most_seconds = self.parameters.max_delay_error_seconds;
        let has_limit = most.is_some() || most_seconds.is_some();
        if self.dumps.get() == 0 {
            self.summary.set("no visibilities arrived\n");
            if has_limit {
                return Err(BlockError::new("no visibilities arrived"));
            }
            return Ok(());
        }
        let without = without_fringe(&rows);
        rows.sort_by(|a, b| b.deviation().total_cmp(&a.deviation()));
        let worst = rows.first().map(|row| (row.antennas, row.deviation()));
        let worst_delay = rows
            .iter()
            .filter_map(|row| Some((row.antennas, row.delay_error_seconds()?)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let left_out = rows.len().saturating_sub(MAX_ROWS);
        rows.truncate(MAX_ROWS);
        rows.sort_by_key(|row| (row.antennas.1, row.antennas.0));
        self.summary.set(self.table(&rows, left_out, worst, band));
        if let (true, Some(without)) = (has_limit, without) {
            return Err(BlockError::new(without));
        }
        match (worst, most) {
            (Some(((a1, a2), deviation)), Some(most)) if deviation > most => {
                return Err(BlockError::new(format!(
                    "the phase of baseline {a1}-{a2} deviates by {deviation:.2} degrees, the limit is {most}"
                )));
            }
            _ => {}
        }
        match (worst_delay, most_seconds) {
            (Some(((a1, a2), error)), Some(most)) if error > most => Err(BlockError::new(format!(
                "the delay of baseline {a1}-{a2} deviates by {:.3} ns, the limit is {:.3}",
                error * 1e9,
                most * 1e9
            ))),
            _ => Ok(()),
        }
    }

    fn table(
        &self,
        rows: &[Row],
        left_out: usize,
        worst: Option<((u32, u32), f64)>,
        band: &Band,
    ) -> String {
        let centre = band.centre_hz;
        let mut text = format!(
            "fringes of {} antennas, {} channels, {} dumps; phases at {:.3} MHz\n",
            self.parameters.antennas_enu_metres.len(),
            self.channels,
            self.dumps.get(),
            centre / 1e6
        );
        text += "baseline     delay [ns]              phase [deg]                coherence\n";
        text += "           expected  measured    expected  measured  deviation\n";
        for Row { antennas: (a1, a2), expected, measured } in rows {
            let baseline = format!("{a1}-{a2}");
            let delay = (expected.delay_seconds + expected.applied_seconds) * 1e9;
            let phase = wrapped(expected.phase(centre, centre).to_degrees());
            // Writing to a string cannot fail.
            let _ = match measured {
                None => writeln!(text, "{baseline:<8} {delay:>10.3}  no fringe {phase:>11.2}"),
                Some(found) => writeln!(
                    text,
                    "{baseline:<8} {delay:>10.3} {:>9.3} {phase:>11.2} {:>9.2} {:>10.2} {:>9.1} %",
                    found.delay_seconds * 1e9,
                    wrapped(phase + found.deviation_degrees),
                    // No minus before a zero.
                    (found.deviation_degrees * 100.0).round() / 100.0 + 0.0,
                    found.coherence * 100.0
                ),
            };
        }
        if left_out > 0 {
            let _ = writeln!(text, "({left_out} baselines with smaller deviations)");
        }
        if let Some(((a1, a2), deviation)) = worst {
            let _ = write!(text, "largest deviation {deviation:.2} degrees on baseline {a1}-{a2}");
        }
        if let Some(most) = self.parameters.max_phase_error_degrees {
            let _ = write!(text, ", limit {most}");
        }
        text + "\n"
    }
}

/// Returns the first channel that is measured: the lowest one of a real-sampled band contains the DC offsets of the
/// digitisers.
pub(super) fn first_used(band: &Band, channels: usize) -> usize {
    usize::from(band.first_channel == 0 && channels > 1)
}

/// Returns an upper bound of the natural logarithm of the probability that visibilities of noise (one per channel at `hz`)
/// add up at the best of all delays as well as these do at `delay_seconds`.
///
/// `x = |sum V|^2 / (n sum |V|^2)` of noise in n channels exceeds a value at one delay with the probability
/// `(1 - x)^(n - 1)`; the best delay is within a tube about all fringes on the unit sphere of the visibilities, whose
/// volume is less than `n^(3/2) (1 - x)^(n - 3/2)` (Hotelling 1939). One channel is never enough.
pub(super) fn ln_false_alarm(visibilities: &[Complex64], hz: &[f64], delay_seconds: f64) -> f64 {
    let with_data = visibilities.iter().filter(|v| v.norm_sqr() > 0.0).count();
    if with_data < 2 {
        return 0.0;
    }
    let turned = |(v, at): (&Complex64, &f64)| {
        v * Complex64::cis(TAU * ((at - hz[0]) * delay_seconds).fract())
    };
    let sum: Complex64 = visibilities.iter().zip(hz).map(turned).sum();
    let power: f64 = visibilities.iter().map(Complex64::norm_sqr).sum();
    let n = with_data as f64;
    let part = (sum.norm_sqr() / (n * power)).min(1.0);
    // The length of the tube depends on the distances of the channels, also of those without data.
    (visibilities.len() as f64 * n.sqrt()).ln() + (n - 1.5) * (1.0 - part).ln()
}

/// Names the baselines that have no fringe above the noise; `None` if all have one.
fn without_fringe(rows: &[Row]) -> Option<String> {
    let all = rows.iter().filter(|row| row.measured.is_none());
    let names: Vec<String> =
        all.map(|row| format!("{}-{}", row.antennas.0, row.antennas.1)).collect();
    let more = match names.len().saturating_sub(MAX_NAMES) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let listed = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        1 => Some(format!("baseline {listed} has no fringe above the noise")),
        _ => Some(format!("baselines {listed}{more} have no fringe above the noise")),
    }
}

/// An angle between -180 and 180 degrees.
fn wrapped(degrees: f64) -> f64 {
    180.0 - (180.0 - degrees).rem_euclid(360.0)
}

impl Block for Check {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while let Some(frame) = io.inputs[0].pop() {
            if self.to_skip > 0 {
                self.to_skip -= 1;
            } else {
                self.add(&frame);
            }
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        self.conclude()?;
        Ok(Next::Finished)
    }
}
