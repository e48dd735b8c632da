//! The running block.

use super::settings::Settings;
use super::sums::{POLS, Shape, Sums};
use super::{GAINS, GainSolver, Mode};
use fxgraph::event::EventKind;
use fxgraph::live_updates::{Answer, Requester};
use fxgraph::{Block, BlockError, Counter, Env, Frame, FrameMut, Io, Next, Summary};
use fxgraph_dsp::stefcal::{self, Data, Limits};
use num_complex::{Complex32, Complex64};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt::Write;

/// Solutions in the table: the first ones.
const MAX_ROWS: usize = 20;

struct Figures {
    solutions: Counter,
    solutions_failed: Counter,
    dumps_ignored: Counter,
    updates: Counter,
    updates_rejected: Counter,
}

/// Errors of a solution, before its update.
#[derive(Clone, Copy, Debug)]
struct Errors {
    /// Number of the dump with which the solution ends, from 1.
    dump: u64,
    amplitude: f64,
    phase_degrees: f64,
    residual: f64,
}

/// The running block.
pub(super) struct Solver {
    parameters: GainSolver,
    shape: Shape,
    targets: Vec<String>,
    limits: Limits,
    sums: Sums,
    /// Dumps in the sums, and timestamp of the first one.
    summed: usize,
    first: u64,
    /// Request that is not answered yet.
    request: Option<Answer>,
    /// Gains of the last solution `[group][pol][antenna]`, `None` without a solution.
    gains: Vec<Option<Complex64>>,
    /// Residuals of the last solution `[group][pol]`, NaN without a solution.
    residuals: Vec<f64>,
    /// Factors of the next update `[antenna][group]`.
    corrections: Vec<[Complex64; POLS]>,
    /// Errors of a solution that is not output yet.
    solved: Option<Errors>,
    /// Reason of the last rejected update.
    last_reason: String,
    stefcal: stefcal::Solver,
    /// Number of dumps so far.
    dumps: u64,
    table: Vec<Errors>,
    last: Option<Errors>,
    model: Vec<Complex64>,
    means: Vec<Complex64>,
    requester: Requester,
    env: Env,
    summary: Summary,
    figures: Figures,
}

impl Solver {
    pub(super) fn new(parameters: &GainSolver, shape: &Shape, env: &Env) -> Self {
        let counters = &env.counters;
        let figures = Figures {
            solutions: counters
                .count("solutions", "solutions, one for each polarisation and group of channels"),
            solutions_failed: counters.count(
                "solutions_failed",
                "solutions that were not found: too few antennas with data, or no convergence; their gains stay",
            ),
            dumps_ignored: counters.count(
                "dumps_ignored",
                "dumps ignored because they began before the last update took effect; no action needed",
            ),
            updates: counters.count("updates", "live updates of the gains of all antennas"),
            updates_rejected: counters.count(
                "updates_rejected",
                "live updates that were not made, with the reason as a warning; look at the targets",
            ),
        };
        Self {
            targets: parameters.targets_of(shape.antennas),
            limits: Limits {
                reference: parameters.reference_antenna,
                min_antennas: parameters.min_antennas,
                iterations: parameters.iterations,
                tolerance: parameters.tolerance,
            },
            sums: Sums::new(parameters, *shape),
            summed: 0,
            first: 0,
            request: None,
            gains: vec![None; shape.groups() * POLS * shape.antennas],
            residuals: vec![f64::NAN; shape.groups() * POLS],
            corrections: vec![[Complex64::ONE; POLS]; shape.antennas * shape.groups()],
            solved: None,
            last_reason: String::new(),
            stefcal: stefcal::Solver::new(shape.antennas),
            dumps: 0,
            table: Vec::with_capacity(MAX_ROWS),
            last: None,
            model: vec![Complex64::ONE; shape.baselines()],
            means: Vec::with_capacity(shape.baselines()),
            requester: Requester::new(env),
            env: env.clone(),
            summary: env.summary.clone(),
            figures,
            parameters: parameters.clone(),
            shape: *shape,
        }
    }

    /// Counts an update that was not made, and reports a reason that is not the last one.
    fn rejected(&mut self, why: &str) {
        self.figures.updates_rejected.add(1);
        if self.last_reason != why {
            why.clone_into(&mut self.last_reason);
            self.env.events.add(EventKind::Warning, format!("the gains were not updated: {why}"));
        }
    }

    fn hear_answer(&mut self) {
        let Some(result) = self.request.as_ref().and_then(Answer::get).cloned() else { return };
        self.request = None;
        match result {
            Ok(_) => {
                self.figures.updates.add(1);
                self.last_reason.clear();
            }
            Err(why) => self.rejected(&why),
        }
    }

    /// Adds a dump, unless it began before the gains in force. Returns whether the sums are complete.
    fn add(&mut self, frame: &Frame) -> Result<bool, BlockError> {
        self.dumps += 1;
        let timestamp = frame.header().timestamp;
        // Without targets this reads the timestamp only.
        let from = self.requester.in_force(&[], GAINS).map_or(0, |in_force| in_force.from);
        if self.request.is_some() || timestamp < from {
            self.figures.dumps_ignored.add(1);
            return Ok(false);
        }
        // Dumps before and after a change by a client do not belong together.
        if self.summed > 0 && self.first < from {
            self.figures.dumps_ignored.add(self.summed as u64);
            self.clear();
        }
        if self.summed == 0 {
            self.first = timestamp;
        }
        self.sums.add(frame)?;
        self.summed += 1;
        Ok(self.summed == self.parameters.dumps)
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.summed = 0;
    }

    /// Solves the sums for every group of channels and polarisation, and requests the update.
    fn solve(&mut self) {
        let (antennas, groups) = (self.shape.antennas, self.shape.groups());
        let mut errors =
            Errors { dump: self.dumps, amplitude: 0.0, phase_degrees: 0.0, residual: 0.0 };
        self.corrections.fill([Complex64::ONE; POLS]);
        let mut is_solved = false;
        for solution in 0..groups * POLS {
            let (group, pol) = (solution / POLS, solution % POLS);
            let gains = &mut self.gains[solution * antennas..][..antennas];
            let weights = self.sums.means(group, pol, &mut self.means);
            let data = Data { measured: &self.means, model: &self.model, weights };
            let Ok(quality) = self.stefcal.solve(&data, &self.limits, gains) else {
                self.figures.solutions_failed.add(1);
                self.residuals[solution] = f64::NAN;
                continue;
            };
            is_solved = true;
            self.figures.solutions.add(1);
            self.residuals[solution] = quality.residual;
            errors.residual = errors.residual.max(quality.residual);
            normalise(gains);
            for (antenna, gain) in gains.iter().enumerate() {
                let Some(gain) = *gain else { continue };
                errors.amplitude = errors.amplitude.max((gain.norm() - 1.0).abs());
                errors.phase_degrees = errors.phase_degrees.max(gain.arg().to_degrees().abs());
                let error = match self.parameters.mode {
                    Mode::Complex => gain,
                    Mode::Phase => gain / gain.norm(),
                };
                let correction = correction(error, self.parameters.loop_gain);
                self.corrections[antenna * groups + group][pol] = correction;
            }
        }
        self.clear();
        if !is_solved {
            return;
        }
        self.last = Some(errors);
        if self.table.len() < MAX_ROWS {
            self.table.push(errors);
        }
        if let Err(why) = self.update() {
            self.rejected(&why);
        }
        self.solved = Some(errors);
    }

    /// Requests gains with the corrections. Updates are rare, so that their texts may be allocated.
    fn update(&mut self) -> Result<(), Cow<'static, str>> {
        let in_force = self.requester.in_force(&self.targets, GAINS);
        let in_force = in_force.ok_or("a target does not exist, or this run has no control")?;
        let mut parameters = Map::new();
        let corrections = self.corrections.chunks_exact(self.shape.groups());
        for ((target, value), corrections) in
            self.targets.iter().zip(in_force.values).zip(corrections)
        {
            let gains = Settings::read(value)
                .and_then(|settings| settings.corrected(corrections, self.shape.of_group))
                .map_err(|why| format!("`{target}`: {why}"))?;
            parameters.insert(target.clone(), Map::from_iter([(GAINS.to_owned(), gains)]).into());
        }
        self.request = Some(self.requester.request(Value::Object(parameters))?);
        Ok(())
    }

    /// Writes the last solution to a frame.
    fn write(&self, frame: &mut FrameMut, errors: &Errors) -> Result<(), BlockError> {
        let (antennas, groups) = (self.shape.antennas, self.shape.groups());
        let (header, values) = frame.parts_mut::<Complex32>()?;
        header.timestamp = self.first;
        for (place, gain) in self.gains.iter().enumerate() {
            let (solution, antenna) = (place / antennas, place % antennas);
            let (group, pol) = (solution / POLS, solution % POLS);
            let place = (antenna * POLS + pol) * groups + group;
            let value = gain.unwrap_or_default();
            values[place] = Complex32::new(value.re as f32, value.im as f32);
            header.validity[place] = u32::from(gain.is_some());
        }
        header.annotations.reset("residual", self.residuals.len()).copy_from_slice(&self.residuals);
        header.annotations.reset("amplitude_error", 1)[0] = errors.amplitude;
        header.annotations.reset("phase_error_degrees", 1)[0] = errors.phase_degrees;
        Ok(())
    }

    /// Writes the table to the summary.
    ///
    /// # Errors
    /// If the last solution exceeds a limit, or if there is none.
    fn conclude(&self) -> Result<(), BlockError> {
        let mut text = String::from("  dump   amplitude error   phase error   residual\n");
        for errors in &self.table {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", row(errors));
        }
        if let Some(last) = self.last.filter(|last| self.table.iter().all(|e| e.dump != last.dump))
        {
            let _ = writeln!(text, "{}  (last)", row(&last));
        }
        self.summary.set(text);
        let GainSolver { max_phase_error_degrees, max_amplitude_error, .. } = &self.parameters;
        let Some(last) = self.last else {
            let has_limit = max_phase_error_degrees.is_some() || max_amplitude_error.is_some();
            return if has_limit { Err(BlockError::new("there is no solution")) } else { Ok(()) };
        };
        for (error, most, quantity, unit) in [
            (last.phase_degrees, max_phase_error_degrees, "phase", " degrees"),
            (last.amplitude, max_amplitude_error, "relative amplitude", ""),
        ] {
            if let Some(most) = most.filter(|most| error > *most) {
                return Err(BlockError::new(format!(
                    "the largest error of a {quantity} is {error:.4}{unit}, the limit is {most}"
                )));
            }
        }
        Ok(())
    }
}

fn row(errors: &Errors) -> String {
    let Errors { dump, amplitude, phase_degrees, residual } = errors;
    format!("{dump:>6} {:>15.3} % {phase_degrees:>9.3} deg {residual:>10.5}", amplitude * 100.0)
}

/// Factor that corrects a gain, in part if `loop_gain` is below 1.
fn correction(gain: Complex64, loop_gain: f64) -> Complex64 {
    Complex64::from_polar(gain.norm().powf(-loop_gain), -loop_gain * gain.arg())
}

/// Divides the gains by the geometric mean of their amplitudes: the level of the signals is not known.
fn normalise(gains: &mut [Option<Complex64>]) {
    let logarithms = gains.iter().flatten().map(|gain| gain.norm().ln());
    let number = gains.iter().flatten().count();
    let mean = (logarithms.sum::<f64>() / number as f64).exp();
    gains.iter_mut().flatten().for_each(|gain| *gain /= mean);
}

impl Block for Solver {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        self.hear_answer();
        if let Some(errors) = self.solved {
            let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
            self.solved = None;
            self.write(&mut frame, &errors)?;
            io.outputs[0].push(frame);
        }
        if let Some(frame) = io.inputs[0].pop() {
            if self.add(&frame)? {
                self.solve();
            }
            return Ok(Next::Again);
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        self.conclude()?;
        Ok(Next::Finished)
    }
}
