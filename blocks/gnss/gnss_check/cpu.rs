//! The block: accumulates deviations, and compares them with the limits at the end.

use super::GnssCheck;
use crate::gnss::gnss_signal_simulator::Transmission;
use crate::gnss::gnss_tracker::VALUES;
use fxgraph::{Block, BlockError, Clock, Counter, Env, Frame, Io, Next, PortType, Summary};
use fxgraph_dsp::gnss::System;
use std::fmt::Write;

/// The running block.
pub(super) struct Check {
    parameters: GnssCheck,
    clock: Clock,
    /// Sums of each satellite of the parameters.
    sums: Vec<Sums>,
    /// Name of the first satellite that is locked but not in `satellites`.
    false_one: Option<String>,
    summary: Summary,
    frames: Counter,
}

/// Sums over frames.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    frames: f64,
    cn0_db_hz: f64,
    doppler_hz: f64,
    /// Sum of the deviation of the code in chips, and of its square.
    chips: [f64; 2],
}

impl Sums {
    /// Returns the deviations of C/N0 in dB and Doppler shift in Hz, and mean and rms deviation of the code
    /// in chips.
    fn deviations(&self, truth: &Transmission) -> Option<[f64; 4]> {
        let mean = |sum: f64| sum / self.frames;
        (self.frames > 0.0).then(|| {
            [
                mean(self.cn0_db_hz) - truth.cn0_db_hz,
                mean(self.doppler_hz) - truth.doppler_hz,
                mean(self.chips[0]),
                mean(self.chips[1]).sqrt(),
            ]
        })
    }
}

/// Returns the phase of the code in chips `seconds` after timestamp 0.
fn true_phase_chips(truth: &Transmission, seconds: f64, rate_hz: f64) -> f64 {
    let satellite = truth.satellite();
    let passed_seconds = seconds - truth.at_timestamp as f64 / rate_hz;
    let chips = truth.code_phase_chips + satellite.code_rate_hz() * passed_seconds;
    chips.rem_euclid(truth.system.chips() as f64)
}

impl Check {
    pub(super) fn new(parameters: GnssCheck, input: &PortType, env: &Env) -> Self {
        Self {
            clock: input.clock,
            sums: vec![Sums::default(); parameters.satellites.len()],
            parameters,
            false_one: None,
            summary: env.summary.clone(),
            frames: env.counters.count("frames", "frames compared"),
        }
    }

    fn add(&mut self, frame: &Frame) {
        let end = frame.header().timestamp.saturating_add(self.clock.samples_per_frame);
        let seconds = end as f64 / self.clock.adc_sample_rate_hz;
        if seconds < self.parameters.settle_seconds || frame.header().validity.contains(&0) {
            return;
        }
        self.frames.add(1);
        for row in frame.as_slice::<[f64; VALUES]>().expect(fxgraph::ON_HOST) {
            let [system, prn, locked, cn0_db_hz, doppler_hz, code_phase_chips, ..] = *row;
            let is_locked = locked > 0.5;
            if !is_locked {
                continue;
            }
            let named = System::numbered(system).and_then(|s| Some((s, s.satellite(prn)?)));
            let is_it = |truth: &Transmission| named == Some((truth.system, truth.prn));
            let Some(place) = self.parameters.satellites.iter().position(is_it) else {
                let label =
                    named.map_or("an unknown satellite".to_owned(), |(s, prn)| s.label(prn));
                self.false_one.get_or_insert(label);
                continue;
            };
            let truth = &self.parameters.satellites[place];
            let length = truth.system.chips() as f64;
            let expected = true_phase_chips(truth, seconds, self.clock.adc_sample_rate_hz);
            let off =
                (code_phase_chips - expected + length / 2.0).rem_euclid(length) - length / 2.0;
            let sums = &mut self.sums[place];
            sums.frames += 1.0;
            sums.cn0_db_hz += cn0_db_hz;
            sums.doppler_hz += doppler_hz;
            sums.chips[0] += off;
            sums.chips[1] += off * off;
        }
    }

    fn table(&self) -> String {
        let rate_hz = self.clock.adc_sample_rate_hz;
        let seconds = self.clock.samples_per_frame as f64 / rate_hz * self.frames.get() as f64;
        let mut text = format!("{} satellites over {seconds:.2} s\n", self.sums.len());
        text += "satellite  C/N0 [dB Hz]      Doppler [Hz]            code phase [chips]\n";
        text += "           true  measured       true   measured     at 0 s     mean      rms\n";
        for (truth, sums) in self.parameters.satellites.iter().zip(&self.sums) {
            let label = truth.satellite().label();
            let (cn0, doppler) = (truth.cn0_db_hz, truth.doppler_hz);
            // Writing to a string cannot fail.
            let _ = match sums.deviations(truth) {
                None => writeln!(text, "{label:<9} {cn0:>5.1} not locked {doppler:>9.2}"),
                Some([cn0_off, doppler_off, mean, rms]) => writeln!(
                    text,
                    "{label:<9} {cn0:>5.1} {:>9.1} {doppler:>10.2} {:>10.2} {:>10.3} {mean:>+8.4} {rms:>8.4}",
                    cn0 + cn0_off,
                    doppler + doppler_off,
                    true_phase_chips(truth, 0.0, rate_hz),
                ),
            };
        }
        text
    }

    /// Returns the error, if a limit is exceeded.
    fn fault(&self) -> Option<String> {
        let GnssCheck { max_cn0_error_db, max_doppler_error_hz, max_code_error_chips, .. } =
            self.parameters;
        let limits = [max_cn0_error_db, max_doppler_error_hz, None, max_code_error_chips];
        if limits.iter().all(Option::is_none) {
            return None;
        }
        if let Some(label) = &self.false_one {
            return Some(format!("{label} is locked, but is not in `satellites`"));
        }
        let names = [("C/N0", "dB"), ("Doppler shift", "Hz"), ("code", "chips"), ("code", "chips")];
        self.parameters.satellites.iter().zip(&self.sums).find_map(|(truth, sums)| {
            let label = truth.satellite().label();
            let Some(deviations) = sums.deviations(truth) else {
                return Some(format!("{label} was never locked"));
            };
            let judged = limits.iter().zip(deviations).zip(names);
            judged.into_iter().find_map(|((limit, deviation), (name, unit))| {
                let most = limit.filter(|most| deviation.abs() > *most || deviation.is_nan())?;
                Some(format!(
                    "the {name} of {label} deviates by {deviation:.4} {unit}, the limit is {most} {unit}"
                ))
            })
        })
    }
}

impl Block for Check {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while let Some(frame) = io.inputs[0].pop() {
            self.add(&frame);
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        self.summary.set(self.table());
        match self.fault() {
            Some(fault) => Err(BlockError::new(fault)),
            None => Ok(Next::Finished),
        }
    }
}
