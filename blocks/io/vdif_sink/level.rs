//! Level of the samples: measured or given.

use super::{Layout, VdifSink};
use crate::common::output_level::OutputLevels;
use crate::io::rows::Rows;
use fxgraph::event::{BlockEvents, EventKind};
use fxgraph::{Counter, Env, Gauge};
use fxgraph_formats::vdif::{THRESHOLD, nominal_rms};

/// Samples at the start of each frame whose level is compared with that of the quantiser.
const MEASURED: usize = 256;
/// Numbers of a row that its level is measured from: that of noise is then known to 0.14 dB, one standard deviation.
const ENOUGH: u64 = 2048;
/// Distance of a level from that of the quantiser from which on it is off, in dB: 2 bits lose up to 3.4 % of their
/// signal-to-noise ratio within it, and 7 to 14 % at twice this distance.
const OFF_DB: f64 = 3.0;
/// Largest number of rows whose levels are in the summary.
const MOST_STATED: usize = 8;
/// Distance up to which a level is right again, so that one about the limit does not repeat the warning.
const RIGHT_DB: f64 = 2.0;

/// Factors from samples of the input to units of the quantiser, for each row.
pub struct Level {
    gains: Vec<f32>,
    /// RMS of a row in units of the quantiser, if it is measured or given.
    target: Option<f32>,
    is_measured: bool,
    /// Weight of the power of a new frame; 0 holds the first measurement.
    weight: f64,
    /// Measured power of each row.
    powers: Vec<Option<f64>>,
    /// Sums of squares and numbers of the frames before the first one that is written.
    first: Vec<(f64, u64)>,
    /// Number of these frames, and the largest one.
    frames: usize,
    most_frames: usize,
    gauges: Vec<Gauge>,
    /// Levels of the output; `None` for 1 bit, which has no level.
    output: Option<OutputLevels>,
    /// Distances of the rows from the level of the quantiser; empty without one.
    distances: Vec<Distance>,
    /// Frames of a second of the stream.
    frames_per_second: f64,
    samples_off: Counter,
    events: BlockEvents,
    /// Step of the quantiser, in units of the scaled values.
    step: f32,
}

/// Distance of the level of a row from that of the quantiser.
struct Distance {
    gauge: Gauge,
    /// Sum of squares in units of the quantiser, numbers, and frames since the gauge was set.
    squares: f64,
    numbers: u64,
    frames: u64,
    is_off: bool,
}

/// Level that the parameters give, as a factor from samples to units of the quantiser; `None` if it is measured.
fn fixed(sink: &VdifSink, rows: &Rows) -> Option<f32> {
    let fits = rows.integer_bits().is_some_and(|bits| bits <= sink.bits) && sink.bits > 2;
    match (sink.scale, sink.rms) {
        (Some(scale), _) => Some(scale),
        (_, Some(rms)) => Some(nominal_rms(sink.bits).unwrap_or(1.0) / rms),
        _ => (fits && sink.tracking_seconds.is_none()).then_some(1.0),
    }
}

/// Largest number of frames of which the level is measured before the first one is written.
pub fn frames_measured(sink: &VdifSink, rows: &Rows) -> usize {
    let numbers = (rows.samples * rows.components()) as u64;
    fixed(sink, rows).map_or(ENOUGH.div_ceil(numbers) as usize, |_| 0)
}

/// Positions of the values of a row: from one row and from one sample to the next.
fn steps(rows: &Rows, by_row: bool) -> (usize, usize) {
    let components = rows.components();
    if by_row {
        (rows.samples * components, components)
    } else {
        (components, rows.count * components)
    }
}

/// Sum of squares and number of the finite values of the valid samples of a row.
fn power(rows: &Rows, by_row: bool, validity: &[u32], values: &[f32], row: usize) -> (f64, u64) {
    let (row_step, sample_step) = steps(rows, by_row);
    let valid = (0..rows.parts()).filter(|part| rows.is_valid(validity, row, *part));
    let samples = valid.flat_map(|part| rows.part(part));
    let numbers = samples
        .flat_map(|sample| &values[row * row_step + sample * sample_step..][..rows.components()]);
    numbers.filter(|value| value.is_finite()).fold((0.0, 0), |(sum, count), value| {
        (sum + f64::from(*value) * f64::from(*value), count + 1)
    })
}

impl Level {
    /// Creates the level of a sink.
    pub fn new(sink: &VdifSink, layout: &Layout, env: &Env) -> Self {
        let rows = &layout.rows;
        let fixed = fixed(sink, rows);
        let is_measured = fixed.is_none();
        let target =
            (is_measured || sink.rms.is_some()).then(|| nominal_rms(sink.bits).unwrap_or(1.0));
        let frame_seconds = rows.samples as f64 / layout.grid.rate_hz as f64;
        let weight = sink.tracking_seconds.map_or(0.0, |tau| 1.0 - (-frame_seconds / tau).exp());
        let counters = &env.counters;
        let help = "rms of a polarisation for which its thresholds are set: measured at its start, or followed";
        let gauge = |row: usize| counters.state_of("input_rms", help, "pol", row.to_string());
        let help = "level of a polarisation in the last second relative to the rms for which its thresholds are set, \
                    in dB; beyond 3 dB set `rms`, or `tracking_seconds`, and begin another file";
        let distance = |row: usize| Distance {
            gauge: counters.measurement_of("level_difference_db", help, "pol", row.to_string()),
            squares: 0.0,
            numbers: 0,
            frames: 0,
            is_off: false,
        };
        let action = match (sink.scale, sink.rms) {
            (Some(_), _) => "raise `scale`",
            (_, Some(_)) => "lower `rms`",
            _ if !is_measured => "set `scale`",
            _ => "set `tracking_seconds`",
        };
        let of_output = "rms of the quantised output in the last second, in steps of the quantiser, measured in the \
                         first 256 samples of each input frame; below 0.5 raise the level";
        let numbers = MEASURED.min(rows.part(0).len()) * rows.components();
        let names = (0..rows.count).map(|row| format!("pol{row}"));
        let output = (sink.bits > 1).then(|| {
            let rates = (numbers, frame_seconds.recip());
            OutputLevels::measuring(("", of_output), names, rates, action, env)
        });
        // The sign, all that 1 bit keeps, does not depend on the level.
        let compared = if target.is_some() && sink.bits > 1 { rows.count } else { 0 };
        Self {
            // Without any measurement yet, the rows are silent.
            gains: vec![fixed.unwrap_or(0.0); rows.count],
            target,
            is_measured,
            weight,
            powers: vec![None; rows.count],
            first: vec![(0.0, 0); rows.count],
            frames: 0,
            most_frames: frames_measured(sink, rows),
            gauges: (0..if is_measured { rows.count } else { 0 }).map(gauge).collect(),
            output,
            distances: (0..compared).map(distance).collect(),
            frames_per_second: frame_seconds.recip(),
            samples_off: counters.count(
                "samples_off_level",
                "samples of a polarisation in seconds whose level is more than 3 dB from that of the quantiser; set \
                 `rms`, or `tracking_seconds`, and begin another file",
            ),
            events: env.events.clone(),
            step: if sink.bits == 2 { THRESHOLD } else { 1.0 },
        }
    }

    /// Whether the level of a row must be measured.
    pub fn is_unknown(&self) -> bool {
        self.is_measured && self.powers.contains(&None)
    }

    /// Measures a frame before it is written. Returns whether another one is needed for the level of a row that has a
    /// signal: few samples do not decide for all that follow.
    pub fn looks_further(
        &mut self,
        layout: &Layout,
        by_row: bool,
        validity: &[u32],
        values: &[f32],
    ) -> bool {
        self.frames += 1;
        let is_last = self.frames >= self.most_frames;
        let mut needs_more = false;
        for row in 0..layout.rows.count {
            if self.powers[row].is_some() {
                continue;
            }
            let (sum, count) = power(&layout.rows, by_row, validity, values, row);
            let first = &mut self.first[row];
            if first.0 + sum == 0.0 {
                continue;
            }
            *first = (first.0 + sum, first.1 + count);
            if first.1 >= ENOUGH || is_last {
                let power = first.0 / first.1 as f64;
                self.set(row, power);
            } else {
                needs_more = true;
            }
        }
        if !needs_more {
            self.frames = 0;
        }
        needs_more
    }

    /// Ends the measurement before the first frame is written, as the stream has ended.
    fn settle(&mut self, row: usize) {
        let (sum, count) = self.first[row];
        if self.is_measured && self.powers[row].is_none() && sum > 0.0 {
            self.set(row, sum / count as f64);
        }
    }

    fn set(&mut self, row: usize, power: f64) {
        self.powers[row] = Some(power);
        self.gains[row] = (f64::from(self.target.unwrap_or(1.0)) / power.sqrt()) as f32;
        self.gauges[row].set(power.sqrt());
    }

    /// Follows the level of the valid samples of a frame, if necessary, and scales all of them.
    pub fn apply(&mut self, layout: &Layout, by_row: bool, validity: &[u32], values: &mut [f32]) {
        let (rows, components) = (&layout.rows, layout.rows.components());
        let (row_step, sample_step) = steps(rows, by_row);
        for row in 0..rows.count {
            self.settle(row);
            if let Some(before) = self.powers[row].filter(|_| self.weight > 0.0) {
                let (sum, count) = power(rows, by_row, validity, values, row);
                if sum > 0.0 {
                    self.set(row, before + (sum / count as f64 - before) * self.weight);
                }
            }
            let gain = self.gains[row];
            if gain.to_bits() != 1.0_f32.to_bits() {
                for sample in 0..rows.samples {
                    let at = row * row_step + sample * sample_step;
                    values[at..at + components].iter_mut().for_each(|value| *value *= gain);
                }
            }
            if !rows.is_valid(validity, row, 0) || self.output.is_none() {
                continue;
            }
            let samples = rows.part(0).take(MEASURED);
            let starts = samples.map(|sample| row * row_step + sample * sample_step);
            let measured = starts.flat_map(|at| &values[at..at + components]);
            self.compare(row, measured.clone(), rows.samples);
            if let Some(output) = &mut self.output {
                // NaN, which is written as 0, becomes 0.
                let square = |value: &f32| ((value / self.step).round() as i16).unsigned_abs();
                output.add(row, measured.map(square).map(|square| u64::from(square).pow(2)).sum());
            }
        }
    }

    /// Compares the level of a row with that of the quantiser, once a second; `values` are the first ones of a frame of
    /// `samples` samples.
    fn compare<'a>(&mut self, row: usize, values: impl Iterator<Item = &'a f32>, samples: usize) {
        let Some(distance) = self.distances.get_mut(row).filter(|_| self.gains[row] > 0.0) else {
            return;
        };
        for value in values.filter(|value| value.is_finite()) {
            distance.squares += f64::from(*value) * f64::from(*value);
            distance.numbers += 1;
        }
        distance.frames += 1;
        let is_enough = distance.numbers >= MEASURED as u64;
        if is_enough && distance.frames as f64 >= self.frames_per_second {
            self.judge(row, samples);
        }
    }

    /// Shows the distance of the level of a row, and warns if it is off.
    fn judge(&mut self, row: usize, frame_samples: usize) {
        let Distance { gauge, squares, numbers, frames, is_off } = &mut self.distances[row];
        let target = f64::from(self.target.unwrap_or(1.0));
        let power = std::mem::take(squares) / std::mem::take(numbers) as f64;
        let samples = std::mem::take(frames) * frame_samples as u64;
        // Zeros, too, are a level that a rule can compare.
        let db = (10.0 * (power / (target * target)).log10()).max(-120.0);
        gauge.set(db);
        if db.abs() > OFF_DB {
            self.samples_off.add(samples);
        }
        let was_off = *is_off;
        *is_off = if was_off { db.abs() > RIGHT_DB } else { db.abs() > OFF_DB };
        if *is_off && !was_off {
            let side = if db > 0.0 { "above" } else { "below" };
            let action = if self.weight > 0.0 {
                "which follows it slowly: look for a change of the input, or set a shorter `tracking_seconds`"
            } else {
                "which stays in a file: set `rms`, or `tracking_seconds`, and begin another file"
            };
            let text = format!(
                "level off: pol{row} is {:.1} dB {side} the level for which the quantiser is set, {action}",
                db.abs()
            );
            self.events.add(EventKind::Warning, text);
        }
    }

    /// Judges what is left of a second at the end of a file, from enough numbers.
    pub fn end_file(&mut self, layout: &Layout) {
        for row in 0..self.distances.len() {
            if self.distances[row].numbers >= MEASURED as u64 {
                self.judge(row, layout.rows.samples);
            }
        }
    }

    /// Levels that were measured, for the summary; `None` without any.
    pub fn statement(&self) -> Option<String> {
        let known = self.powers.iter().enumerate().filter(|_| self.weight == 0.0);
        let rms = |(row, power): (usize, &Option<f64>)| {
            Some(format!("pol{row} {:.4}", power.as_ref()?.sqrt()))
        };
        let all: Vec<String> = known.filter_map(rms).take(MOST_STATED).collect();
        (!all.is_empty()).then(|| format!("thresholds for an rms of {}", all.join(", ")))
    }
}
