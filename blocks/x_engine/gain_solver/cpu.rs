//! The running block.

use super::antenna_gains::AntennaGains;
use super::applied::Applied;
use super::corrections::Corrections;
use super::fit::{Failure, Fit, UNKNOWN};
use super::health::Health;
use super::report::{Errors, Report};
use super::settings::Settings;
use super::sums::{Shape, Sums};
use super::{FLAGGED, GAINS, GainSolver};
use fxgraph::event::EventKind;
use fxgraph::live_updates::{Answer, InForce, Requester};
use fxgraph::{Block, BlockError, Counter, Env, Frame, FrameMut, Gauge, Io, Next, TimeBase};
use fxgraph_dsp::stefcal::{Estimate, Limits};
use num_complex::{Complex32, Complex64};
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Name of an annotation, and its value for an antenna.
type Uncertainty = (&'static str, fn(&Estimate) -> f64);

/// Annotations of the uncertainties.
const UNCERTAINTIES: [Uncertainty; 2] = [
    ("amplitude_uncertainty", |estimate| estimate.ln_amplitude),
    ("phase_uncertainty_degrees", |estimate| estimate.phase.to_degrees()),
];

struct Figures {
    solutions: Counter,
    solutions_failed: Counter,
    solutions_without_signal: Counter,
    corrections_limited: Counter,
    silent_antennas: Gauge,
    dumps_ignored: Counter,
    updates: Counter,
    updates_rejected: Counter,
}

/// The running block.
pub(super) struct Solver {
    parameters: GainSolver,
    shape: Shape,
    targets: Vec<String>,
    sums: Sums,
    /// Dumps in the sums, and timestamp of the first one.
    summed: usize,
    first: u64,
    /// Time base of the first dump in the sums.
    base: TimeBase,
    /// Request that is not answered yet.
    request: Option<Answer>,
    /// Gains of the last solution `[group][pol][antenna]`, `None` without a solution.
    gains: Vec<Option<Complex64>>,
    /// Uncertainties of these gains.
    estimates: Vec<Estimate>,
    /// Residuals of the last solution `[group][pol]`, NaN without a solution.
    residuals: Vec<f64>,
    /// Gains in force in the targets; `None` without a control, or if a target does not exist.
    settings: Option<Vec<Result<Settings, String>>>,
    antenna_gains: AntennaGains,
    corrections: Corrections,
    health: Health,
    /// Places of the antennas that the request flags.
    flagging: Vec<usize>,
    /// Errors of a solution that is not output yet.
    solved: Option<Errors>,
    /// Reason of the last rejected update.
    last_reason: String,
    fit: Fit,
    /// Number of dumps so far.
    dumps: u64,
    report: Report,
    requester: Requester,
    env: Env,
    figures: Figures,
    applied: Applied,
}

impl Solver {
    /// The block for antennas with these `numbers`.
    pub(super) fn new(
        parameters: &GainSolver,
        shape: &Shape,
        numbers: Vec<u32>,
        env: &Env,
    ) -> Self {
        let counters = &env.counters;
        let figures = Figures {
            solutions: counters
                .count("solutions", "solutions, one for each polarisation and group of channels"),
            solutions_failed: counters.count(
                "solutions_failed",
                "solutions that were not found: too few antennas with data, or no convergence; their gains stay",
            ),
            solutions_without_signal: counters.count(
                "solutions_without_signal",
                "polarisations and groups of channels without a correlated signal, or with one in fewer than `min_antennas` antennas; their gains stay",
            ),
            corrections_limited: counters.count(
                "corrections_limited",
                "corrections limited by `max_amplitude_step` or `max_amplitude_change`; look at the antenna",
            ),
            silent_antennas: counters.measurement(
                "silent_antennas",
                "antennas without a signal in at least one polarisation",
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
        let (reference, after) = (parameters.reference(&numbers), parameters.silent_solutions);
        let limits = Limits {
            reference,
            min_antennas: parameters.min_antennas,
            iterations: parameters.iterations,
            tolerance: parameters.tolerance,
        };
        let false_detection = parameters.false_detection_probability;
        let targets = parameters.targets_of(shape.antennas);
        Self {
            applied: Applied::new(&targets, shape.pols, counters),
            targets,
            sums: Sums::new(parameters, *shape),
            summed: 0,
            first: 0,
            base: TimeBase::default(),
            request: None,
            gains: vec![None; shape.groups() * shape.pols * shape.antennas],
            estimates: vec![UNKNOWN; shape.groups() * shape.pols * shape.antennas],
            residuals: vec![f64::NAN; shape.groups() * shape.pols],
            settings: None,
            antenna_gains: AntennaGains::new(parameters, shape),
            corrections: Corrections::new(parameters, shape),
            health: Health::new((numbers, shape.pols), reference, after, env),
            flagging: Vec::with_capacity(shape.antennas),
            solved: None,
            last_reason: String::new(),
            fit: Fit::new(shape.antennas, limits, false_detection),
            dumps: 0,
            report: Report::default(),
            requester: Requester::new(env),
            env: env.clone(),
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
                self.corrections.apply();
                let block = self.parameters.flag_antennas_in.as_deref().unwrap_or_default();
                for antenna in self.flagging.drain(..) {
                    self.health.to_flag[antenna] = false;
                    let number = self.health.numbers[antenna];
                    let text = format!("antenna {number} is flagged in `{block}`");
                    self.env.events.add(EventKind::Warning, text);
                }
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
            self.ignore();
        }
        if self.summed == 0 {
            (self.first, self.base) = (timestamp, frame.header().base);
        }
        self.sums.add(frame)?;
        self.summed += 1;
        Ok(self.summed == self.parameters.dumps)
    }

    /// Ignores the dumps in the sums.
    fn ignore(&mut self) {
        self.figures.dumps_ignored.add(self.summed as u64);
        self.clear();
    }

    fn clear(&mut self) {
        self.sums.clear();
        self.summed = 0;
    }

    /// Solves the sums for every group of channels and polarisation, and requests the update.
    fn solve(&mut self) {
        let in_force = self.requester.in_force(&self.targets, GAINS);
        // A client has changed gains since the last dump was added.
        if in_force.as_ref().is_some_and(|in_force| self.first < in_force.from) {
            return self.ignore();
        }
        let read = |in_force: InForce| in_force.values.into_iter().map(Settings::read).collect();
        self.settings = in_force.map(read);
        let begin = (self.first, self.base);
        self.antenna_gains.begin(begin, self.settings.as_deref().unwrap_or_default());
        let mut errors =
            Errors { dump: self.dumps, amplitude: 0.0, phase_degrees: 0.0, residual: 0.0 };
        self.corrections.clear();
        let mut is_solved = false;
        for pol in 0..self.shape.pols {
            is_solved |= self.solve_pol(pol, &mut errors);
        }
        self.figures.silent_antennas.set(self.health.silent() as f64);
        self.clear();
        if let Err(why) = self.update() {
            self.rejected(&why);
        }
        if !is_solved {
            return;
        }
        self.report.add(errors);
        self.solved = Some(errors);
    }

    /// Solves all groups of a polarisation. Returns whether any of them has a solution.
    fn solve_pol(&mut self, pol: usize, errors: &mut Errors) -> bool {
        let (antennas, groups) = (self.shape.antennas, self.shape.groups());
        let (mut is_empty, mut is_solved) = (false, false);
        self.health.begin();
        for group in 0..groups {
            let solution = group * self.shape.pols + pol;
            let of_antennas = solution * antennas..(solution + 1) * antennas;
            let gains = &mut self.gains[of_antennas.clone()];
            let estimates = &mut self.estimates[of_antennas];
            self.fit.load(&self.sums, group, pol);
            let result = self.fit.solve(gains, estimates);
            self.health.add((&self.fit.silent, self.fit.is_shown), estimates);
            self.residuals[solution] = result.unwrap_or(f64::NAN);
            let counter = match result {
                Ok(residual) => {
                    is_solved = true;
                    errors.residual = errors.residual.max(residual);
                    &self.figures.solutions
                }
                Err(Failure::NoSignal) => {
                    is_empty = true;
                    &self.figures.solutions_without_signal
                }
                Err(Failure::Unsolved) => &self.figures.solutions_failed,
            };
            counter.add(1);
        }
        // Failed solutions alone do not show whether there is a source.
        if is_solved || is_empty {
            self.health.end(pol, !is_solved);
        }
        for group in 0..groups {
            self.correct(group, pol, errors);
        }
        is_solved
    }

    /// Adds a solution to the evidence, sets the corrections, and turns its gains to the reference antenna and the level of
    /// the amplitudes.
    fn correct(&mut self, group: usize, pol: usize, errors: &mut Errors) {
        let antennas = self.shape.antennas;
        let solution = group * self.shape.pols + pol;
        let gains = &mut self.gains[solution * antennas..][..antennas];
        let estimates = &mut self.estimates[solution * antennas..][..antennas];
        let reference = self.health.references[pol];
        let anchor = self.antenna_gains.anchor(solution, reference, gains, estimates);
        let Some(anchor) = anchor else { return };
        self.fit.load(&self.sums, group, pol);
        self.fit.estimate(gains, anchor, estimates);
        let common = self.antenna_gains.add(solution, (reference, anchor), gains, estimates);
        let Some(common) = common else { return };
        let (level, limited) = self.corrections.set(&self.antenna_gains.residuals, (group, pol));
        self.figures.corrections_limited.add(limited as u64);
        for gain in gains.iter_mut().flatten() {
            *gain /= common * level.exp();
            errors.amplitude = errors.amplitude.max((gain.norm() - 1.0).abs());
            errors.phase_degrees = errors.phase_degrees.max(gain.arg().to_degrees().abs());
        }
    }

    /// Requests gains with the corrections, and flags of antennas without a signal. Updates are rare, so that their texts
    /// may be allocated.
    fn update(&mut self) -> Result<(), Cow<'static, str>> {
        let mut parameters = Map::new();
        self.add_flags(&mut parameters)?;
        if !self.corrections.is_empty() {
            let settings = self.settings.as_ref();
            let settings = settings.ok_or("a target does not exist, or this run has no control")?;
            let Shape { pols, of_group, .. } = self.shape;
            let corrections = self.corrections.factors.chunks_exact(self.shape.groups() * pols);
            for ((target, settings), corrections) in
                self.targets.iter().zip(settings).zip(corrections)
            {
                // An antenna that keeps its gains need not answer.
                if corrections.iter().all(|factor| *factor == Complex64::ONE) {
                    continue;
                }
                let settings = settings.as_ref().map_err(Clone::clone);
                let gains = settings
                    .and_then(|settings| settings.corrected(corrections, pols, of_group))
                    .map_err(|why| format!("`{target}`: {why}"))?;
                parameters.insert(target.clone(), json!({ GAINS: gains }));
            }
        }
        if !parameters.is_empty() {
            let shown = parameters.clone();
            self.request = Some(self.requester.request(Value::Object(parameters))?);
            self.applied.show(&shown, GAINS);
        }
        Ok(())
    }

    /// Adds the flags of antennas without a signal to an update.
    fn add_flags(&mut self, parameters: &mut Map<String, Value>) -> Result<(), Cow<'static, str>> {
        self.flagging.clear();
        let Some(block) = &self.parameters.flag_antennas_in else { return Ok(()) };
        let antennas = self.shape.antennas;
        let has_gain = |a: usize| self.gains[a..].iter().step_by(antennas).any(Option::is_some);
        if !self.health.may_flag(has_gain, self.parameters.min_antennas, block) {
            return Ok(());
        }
        let in_force = self.requester.in_force(std::slice::from_ref(block), FLAGGED);
        let in_force =
            in_force.ok_or("`flag_antennas_in` does not exist, or there is no control")?;
        let flagged = in_force.values.into_iter().flatten().next();
        let flagged = flagged.map_or(Ok(Vec::new()), serde_json::from_value::<Vec<u32>>);
        let mut flagged =
            flagged.map_err(|error| format!("`{FLAGGED}` cannot be read: {error}"))?;
        let Health { numbers, to_flag, .. } = &mut self.health;
        let antennas = (0..antennas).filter(|a| to_flag[*a]);
        self.flagging.extend(antennas.filter(|a| !flagged.contains(&numbers[*a])));
        if self.flagging.is_empty() {
            to_flag.fill(false);
            return Ok(());
        }
        flagged.extend(self.flagging.iter().map(|antenna| numbers[*antenna]));
        flagged.sort_unstable();
        parameters.insert(block.clone(), json!({ FLAGGED: flagged }));
        Ok(())
    }

    /// Writes the last solution to a frame.
    fn write(&self, frame: &mut FrameMut, errors: &Errors) -> Result<(), BlockError> {
        let Shape { antennas, pols, .. } = self.shape;
        let groups = self.shape.groups();
        let (header, values) = frame.parts_mut::<Complex32>()?;
        header.timestamp = self.first;
        for (place, gain) in self.gains.iter().enumerate() {
            let (solution, antenna) = (place / antennas, place % antennas);
            let (group, pol) = (solution / pols, solution % pols);
            let place = (antenna * pols + pol) * groups + group;
            let value = gain.unwrap_or_default();
            values[place] = Complex32::new(value.re as f32, value.im as f32);
            header.validity[place] = u32::from(gain.is_some());
        }
        for (name, uncertainty) in UNCERTAINTIES {
            let values = header.annotations.reset(name, self.estimates.len());
            for (place, estimate) in self.estimates.iter().enumerate() {
                let (solution, antenna) = (place / antennas, place % antennas);
                let (group, pol) = (solution / pols, solution % pols);
                values[(antenna * pols + pol) * groups + group] = uncertainty(estimate);
            }
        }
        header.annotations.reset("residual", self.residuals.len()).copy_from_slice(&self.residuals);
        header.annotations.reset("amplitude_error", 1)[0] = errors.amplitude;
        header.annotations.reset("phase_error_degrees", 1)[0] = errors.phase_degrees;
        Ok(())
    }
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
        self.report.conclude(&self.parameters, &self.env.summary)?;
        Ok(Next::Finished)
    }
}
