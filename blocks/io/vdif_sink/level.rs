//! Level of the samples: measured or given.

use super::{Layout, VdifSink};
use crate::common::output_level::OutputLevels;
use fxgraph::{Env, Gauge};
use fxgraph_formats::vdif::{THRESHOLD, nominal_rms};

/// Samples at the start of each frame whose level is measured.
const MEASURED: usize = 256;

/// Factors from samples of the input to units of the quantiser, for each row.
pub struct Level {
    gains: Vec<f32>,
    /// RMS of a row in units of the quantiser, if it is measured.
    target: Option<f32>,
    /// Weight of the power of a new frame; 0 holds the first one.
    weight: f64,
    /// Measured power of each row.
    powers: Vec<Option<f64>>,
    gauges: Vec<Gauge>,
    /// Levels of the output; `None` for 1 bit, which has no level.
    output: Option<OutputLevels>,
    /// Step of the quantiser, in units of the scaled values.
    step: f32,
}

impl Level {
    /// Creates the level of a sink.
    pub fn new(sink: &VdifSink, layout: &Layout, env: &Env) -> Self {
        let rows = &layout.rows;
        let nominal = nominal_rms(sink.bits).unwrap_or(1.0);
        let fits = rows.integer_bits().is_some_and(|bits| bits <= sink.bits) && sink.bits > 2;
        let is_unchanged = fits && sink.tracking_seconds.is_none();
        let fixed = match (sink.scale, sink.rms) {
            (Some(scale), _) => Some(scale),
            (_, Some(rms)) => Some(nominal / rms),
            _ => is_unchanged.then_some(1.0),
        };
        let frame_seconds = rows.samples as f64 / layout.grid.rate_hz as f64;
        let weight = sink.tracking_seconds.map_or(0.0, |tau| 1.0 - (-frame_seconds / tau).exp());
        let help = "rms of a polarisation, measured for its thresholds";
        let gauge = |row: usize| env.counters.state_of("input_rms", help, "pol", row.to_string());
        let measured = if fixed.is_none() { rows.count } else { 0 };
        let action = match (sink.scale, sink.rms) {
            (Some(_), _) => "raise `scale`",
            (_, Some(_)) => "lower `rms`",
            _ if is_unchanged => "set `scale`",
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
        Self {
            // Without any measurement yet, the rows are silent.
            gains: vec![fixed.unwrap_or(0.0); rows.count],
            target: fixed.is_none().then_some(nominal),
            weight,
            powers: vec![None; rows.count],
            gauges: (0..measured).map(gauge).collect(),
            output,
            step: if sink.bits == 2 { THRESHOLD } else { 1.0 },
        }
    }

    /// Measures the valid samples of a frame, if necessary, and scales all of them. A row has `run` adjacent values
    /// every `stride` values: all of its samples, or one sample in each of them.
    pub fn apply(&mut self, layout: &Layout, by_row: bool, validity: &[u32], values: &mut [f32]) {
        let (rows, components) = (&layout.rows, layout.rows.components());
        let (row_step, sample_step) = if by_row {
            (rows.samples * components, components)
        } else {
            (components, rows.count * components)
        };
        for row in 0..rows.count {
            if let Some(target) = self.target
                && (self.powers[row].is_none() || self.weight > 0.0)
            {
                let valid = (0..rows.parts()).filter(|part| rows.is_valid(validity, row, *part));
                let (mut sum, mut count) = (0.0, 0_u64);
                for sample in valid.flat_map(|part| rows.part(part)) {
                    for value in &values[row * row_step + sample * sample_step..][..components] {
                        if value.is_finite() {
                            sum += f64::from(*value) * f64::from(*value);
                            count += 1;
                        }
                    }
                }
                if sum > 0.0 {
                    let power = sum / count as f64;
                    let before = self.powers[row].unwrap_or(power);
                    let power = before + (power - before) * self.weight;
                    self.powers[row] = Some(power);
                    self.gains[row] = (f64::from(target) / power.sqrt()) as f32;
                    self.gauges[row].set(power.sqrt());
                }
            }
            let gain = self.gains[row];
            if gain.to_bits() != 1.0_f32.to_bits() {
                for sample in 0..rows.samples {
                    let at = row * row_step + sample * sample_step;
                    values[at..at + components].iter_mut().for_each(|value| *value *= gain);
                }
            }
            if let Some(output) = &mut self.output
                && rows.is_valid(validity, row, 0)
            {
                let samples = rows.part(0).take(MEASURED);
                let starts = samples.map(|sample| row * row_step + sample * sample_step);
                // NaN, which is written as 0, becomes 0.
                let square = |value: &f32| ((value / self.step).round() as i16).unsigned_abs();
                let squares = starts.flat_map(|at| &values[at..at + components]).map(square);
                output.add(row, squares.map(|square| u64::from(square).pow(2)).sum());
            }
        }
    }
}
