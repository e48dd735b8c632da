//! Sums the dumps, then compares the fringes with the expected ones.

use super::FringeCheck;
use crate::common::visibilities::parallel;
use fxgraph::{Band, Block, BlockError, Counter, Env, Frame, Io, Next, PortType, Summary};
use fxgraph_dsp::fringe::{Expected, Measured, measure};
use num_complex::Complex64;
use std::fmt::Write;

/// Largest number of baselines in the table; those with the largest deviations are shown.
const MAX_ROWS: usize = 20;

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
    measured: Option<Measured>,
}

impl Row {
    /// Absolute deviation in degrees; 180, the largest, for a baseline without signal.
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
        // The lowest channel of a real-sampled band contains the DC offsets of the digitisers.
        let first = usize::from(band.first_channel == 0 && self.channels > 1);
        let hz: Vec<f64> = (first..self.channels).map(|c| band.channel_hz(c)).collect();
        let mut rows = Vec::new();
        for a2 in 0..self.parameters.antennas_enu_metres.len() {
            for a1 in 0..a2 {
                let baseline = a2 * (a2 + 1) / 2 + a1;
                let all = &self.sums[baseline * self.channels..][..self.channels];
                let expected = self.expected(a1, a2);
                let measured = measure(&all[first..], &hz, band.centre_hz, &expected);
                let antennas = (self.numbers[a1], self.numbers[a2]);
                rows.push(Row { antennas, expected, measured });
            }
        }
        rows
    }

    /// Writes the table to the summary.
    ///
    /// # Errors
    /// If a baseline exceeds a limit, or if no visibilities arrived.
    fn conclude(&self) -> Result<(), BlockError> {
        let Some(band) = &self.band else { return Ok(()) };
        let mut rows = self.rows(band);
        let most = self.parameters.max_phase_error_degrees;
        if self.dumps.get() == 0 {
            self.summary.set("no visibilities arrived\n");
            return most.map_or(Ok(()), |_| Err(BlockError::new("no visibilities arrived")));
        }
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
        match (worst, most) {
            (Some(((a1, a2), deviation)), Some(most)) if deviation > most => {
                return Err(BlockError::new(format!(
                    "the phase of baseline {a1}-{a2} deviates by {deviation:.2} degrees, the limit is {most}"
                )));
            }
            _ => {}
        }
        match (worst_delay, self.parameters.max_delay_error_seconds) {
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
                None => writeln!(text, "{baseline:<8} {delay:>10.3}  no signal {phase:>11.2}"),
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
