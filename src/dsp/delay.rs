//! Delay models: arithmetic without samples.
//!
//! A sample that arrived at t must appear at t + d. The model consists of linear pieces:
//! d(t) = d0 + rate (t - t0) and phase(t) = phi0 + phase_rate (t - t0) from each piece's t0 on;
//! before the first piece there is neither delay nor phase.
//!
//! Times are timestamps of the frames, which do not wrap, and a piece is extrapolated from its start however long ago
//! that was. Only a new time base ends this: the sender counts from another sync time, so the time since the start of an
//! earlier piece is unknown. Such a piece has expired; its delay and phase stay those of its start.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::f64::consts::TAU;

/// Linear piece of a delay model, as a parameter.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Piece {
    /// Timestamp of the frames at which the piece starts; it is valid until the next piece starts.
    pub start_samples: u64,
    /// Delay at the start of the piece, in ticks of the clock: samples of the source. Give this or `delay_seconds`.
    pub delay_samples: Option<f64>,
    /// Delay at the start of the piece, in seconds. Give this or `delay_samples`.
    pub delay_seconds: Option<f64>,
    /// Change of the delay in seconds per second (or samples per sample).
    pub rate: f64,
    /// Phase of the centre of the band at the start of the piece, in radians on the sky.
    pub phase_radians: f64,
    /// Change of the phase in radians per second, on the sky.
    pub phase_rate_radians_per_second: f64,
}

impl Piece {
    /// Returns the delay at the start of the piece in seconds, 0 if none is given.
    #[must_use]
    pub fn delay_seconds(&self, adc_sample_rate_hz: f64) -> f64 {
        let in_samples = || self.delay_samples.map(|samples| samples / adc_sample_rate_hz);
        self.delay_seconds.or_else(in_samples).unwrap_or(0.0)
    }
}

/// Timing of the samples that a model delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Ticks of the clock per second, the unit of timestamps.
    pub tick_rate_hz: f64,
    /// Ticks from one sample to the next.
    pub ticks: usize,
    /// Whether the samples are complex, with the centre of their band at 0 Hz.
    pub is_complex: bool,
}

impl Timing {
    /// Ticks of a sample of the real stream of the same bandwidth, whose rate is twice that of complex samples.
    fn real_ticks(&self) -> f64 {
        self.ticks as f64 / if self.is_complex { 2.0 } else { 1.0 }
    }
}

/// Delay and phase of one output spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay {
    /// Coarse delay in whole input samples, rounded half to even.
    pub coarse_samples: i64,
    /// Fine delay, in samples of a real stream of the same bandwidth: -1/2 to 1/2, or -1 to 1 for complex samples,
    /// of which there are half as many.
    pub fine_samples: f64,
    /// Phase of the samples at the centre of the band, in turns (0 to 1), including the quarter turns of the coarse delay if the
    /// input is real.
    pub phase_turns: f64,
}

/// Piece in the internal units of the model.
#[derive(Clone, Copy, Debug)]
struct Linear {
    /// First timestamp for which the piece is valid: its start, or the effective timestamp of its update.
    from: u64,
    start: u64,
    delay_samples: f64,
    rate: f64,
    phase_turns: f64,
    phase_turns_per_sample: f64,
}

impl Linear {
    fn changes(&self) -> bool {
        self.rate != 0.0 || self.phase_turns_per_sample != 0.0
    }
}

/// Delay model of one polarisation.
#[derive(Clone, Debug)]
pub struct DelayModel {
    timing: Timing,
    /// 1, or -1 for samples with an inverted spectrum.
    phase_sign: f64,
    /// Pieces in order of the timestamp from which they are valid.
    pieces: Vec<Linear>,
    /// First timestamp of the time base of the stream.
    base: u64,
}

impl DelayModel {
    /// Creates a model without delay.
    #[must_use]
    pub fn new(timing: Timing) -> Self {
        Self { timing, phase_sign: 1.0, pieces: Vec::new(), base: 0 }
    }

    /// Creates a model of these pieces, queued in order.
    #[must_use]
    pub fn of(timing: Timing, pieces: &[Piece]) -> Self {
        let mut model = Self::new(timing);
        pieces.iter().for_each(|piece| model.queue(piece));
        model
    }

    /// Sets the sign of the phases: -1 for samples with an inverted spectrum, whose phases are opposite to those on the
    /// sky. Delays keep their sign: a shift of the samples delays every frequency of any Nyquist zone, and about the
    /// centre of the band it has the same slope across the frequencies of the samples.
    #[must_use]
    pub fn with_phase_sign(self, phase_sign: f64) -> Self {
        Self { phase_sign, ..self }
    }

    /// Adds a piece, which replaces all pieces that start at the same time or later.
    pub fn queue(&mut self, piece: &Piece) {
        self.add(piece.start_samples, piece);
    }

    /// Replaces the model by these pieces from timestamp `from` on. Until the first of them starts, the previous
    /// piece stays valid; an empty list means no delay.
    pub fn replace(&mut self, from: u64, pieces: &[Piece]) {
        if pieces.is_empty() {
            self.add(from, &Piece { start_samples: from, ..Piece::default() });
        }
        let started = pieces.partition_point(|piece| piece.start_samples <= from);
        for piece in &pieces[started.saturating_sub(1)..] {
            self.add(piece.start_samples.max(from), piece);
        }
    }

    /// Begins a time base: timestamps from `from` on count from another sync time, and pieces that start before
    /// expire.
    pub fn begin_base(&mut self, from: u64) {
        self.base = from;
    }

    /// First timestamp of the time base.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    fn in_force(&self, t: u64) -> Option<&Linear> {
        let after = self.pieces.partition_point(|piece| piece.from <= t);
        after.checked_sub(1).map(|last| &self.pieces[last])
    }

    /// Whether the piece in force at timestamp `t` has rates that are not applied, because it has expired.
    #[must_use]
    pub fn has_expired(&self, t: u64) -> bool {
        let is_of_earlier_base = |piece: &&Linear| piece.changes() && piece.start < self.base;
        t >= self.base && self.in_force(t).is_some_and(|piece| is_of_earlier_base(&piece))
    }

    /// Forgets pieces that are valid only before timestamp `t`.
    pub fn forget_before(&mut self, t: u64) {
        let in_force = self.pieces.partition_point(|piece| piece.from <= t);
        self.pieces.drain(..in_force.saturating_sub(1));
    }

    fn add(&mut self, from: u64, piece: &Piece) {
        self.pieces.retain(|known| known.from < from);
        self.pieces.push(Linear {
            from,
            start: piece.start_samples,
            delay_samples: piece
                .delay_samples
                .unwrap_or_else(|| piece.delay_seconds.unwrap_or(0.0) * self.timing.tick_rate_hz),
            rate: piece.rate,
            phase_turns: piece.phase_radians / TAU,
            phase_turns_per_sample: piece.phase_rate_radians_per_second
                / TAU
                / self.timing.tick_rate_hz,
        });
    }

    /// Returns the whole delay in seconds.
    #[must_use]
    pub fn seconds(&self, delay: &Delay) -> f64 {
        let coarse = delay.coarse_samples as f64 * self.timing.ticks as f64;
        (coarse + self.timing.real_ticks() * delay.fine_samples) / self.timing.tick_rate_hz
    }

    /// Returns the delay for all timestamps from `start` up to `end`, if it does not change.
    #[must_use]
    pub fn constant(&self, start: u64, end: u64) -> Option<Delay> {
        let in_force = self.pieces.partition_point(|piece| piece.from <= start);
        let is_constant = !self.pieces[..in_force].last().is_some_and(Linear::changes)
            && self.pieces.get(in_force).is_none_or(|next| next.from >= end);
        is_constant.then(|| self.at(start))
    }

    /// Returns the delays for `count` spectra from timestamp `start` on, `step` apart.
    pub fn each(&self, start: u64, step: u64, count: usize) -> impl Iterator<Item = Delay> {
        let constant = self.constant(start, start + step * count as u64);
        (0..count as u64).map(move |n| constant.unwrap_or_else(|| self.at(start + n * step)))
    }

    /// Returns the delay for the spectrum with timestamp `t`.
    #[must_use]
    pub fn at(&self, t: u64) -> Delay {
        let Some(piece) = self.in_force(t) else {
            return Delay { coarse_samples: 0, fine_samples: 0.0, phase_turns: 0.0 };
        };
        let is_expired = piece.start < self.base && t >= self.base;
        let dt = if is_expired { 0.0 } else { (t - piece.start) as f64 };
        let delay = piece.delay_samples + piece.rate * dt;
        let ticks = self.timing.ticks as f64;
        let coarse = (delay / ticks).round_ties_even();
        let fine_samples = (delay - coarse * ticks) / self.timing.real_ticks();
        // A coarse delay of c real samples turns the centre of the band by c quarter cycles; complex samples have
        // their centre at frequency 0, which is not turned.
        let quarter_turns = if self.timing.is_complex { 0.0 } else { coarse.rem_euclid(4.0) / 4.0 };
        let phase = self.phase_sign * (piece.phase_turns + piece.phase_turns_per_sample * dt);
        Delay {
            coarse_samples: coarse as i64,
            fine_samples,
            phase_turns: (phase.rem_euclid(1.0) + quarter_turns).rem_euclid(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of an ADC.
    const REAL: Timing = Timing { tick_rate_hz: 1e9, ticks: 1, is_complex: false };

    fn piece(start_samples: u64, delay_samples: f64) -> Piece {
        Piece { start_samples, delay_samples: Some(delay_samples), ..Piece::default() }
    }

    #[test]
    fn delays_of_a_frame_equal_those_of_its_spectra() {
        let mut model = DelayModel::new(REAL);
        model.queue(&piece(100, 7.25));
        model.queue(&Piece { rate: 1e-9, ..piece(300, -3.0) });
        model.queue(&piece(500, 2.5));
        for start in (0..700).step_by(10) {
            let expected: Vec<Delay> = (0..9).map(|n| model.at(start + 20 * n)).collect();
            assert_eq!(model.each(start, 20, 9).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn delay_of_any_timing_adds_up_to_the_model_in_seconds() {
        for (ticks, is_complex) in [(1, false), (3, false), (1, true), (2, true), (8, true)] {
            let timing = Timing { ticks, is_complex, ..REAL };
            let model = DelayModel::of(timing, &[piece(0, -1234.3)]);
            assert!((model.seconds(&model.at(77)) + 1234.3e-9).abs() < 1e-18, "{timing:?}");
        }
    }

    #[test]
    fn complex_samples_have_a_fine_delay_of_half_samples_and_no_quarter_turns() {
        // 7 complex samples and 0.3, or 0.6 samples of the real stream of the same bandwidth.
        for ticks in [1, 2, 8] {
            let timing = Timing { ticks, is_complex: true, ..REAL };
            let got = DelayModel::of(timing, &[piece(0, 7.3 * ticks as f64)]).at(0);
            assert_eq!((got.coarse_samples, got.phase_turns), (7, 0.0), "{ticks}");
            assert!((got.fine_samples - 0.6).abs() < 1e-12, "{ticks}: {}", got.fine_samples);
        }
        let timing = Timing { ticks: 3, ..REAL };
        let got = DelayModel::of(timing, &[piece(0, 16.5)]).at(0);
        assert_eq!((got.coarse_samples, got.fine_samples, got.phase_turns), (6, -0.5, 0.5));
    }

    #[test]
    fn coarse_delay_rounds_half_to_even_and_fine_is_the_remainder() {
        for (delay, coarse) in [(0.5, 0), (1.5, 2), (-0.5, 0), (-1.5, -2), (7.3, 7), (-7.6, -8)] {
            let got = DelayModel::of(REAL, &[piece(0, delay)]).at(12345);
            assert_eq!(got.coarse_samples, coarse, "delay {delay}");
            assert!((got.coarse_samples as f64 + got.fine_samples - delay).abs() < 1e-12);
        }
    }

    #[test]
    fn each_coarse_sample_turns_the_centre_by_a_quarter() {
        for (delay, turns) in [(1.0, 0.25), (2.0, 0.5), (-1.0, 0.75), (4.0, 0.0), (-6.0, 0.5)] {
            let got = DelayModel::of(REAL, &[piece(0, delay)]).at(0).phase_turns;
            assert!((got - turns).abs() < 1e-12, "delay {delay}: {got} turns");
        }
    }

    #[test]
    fn piece_is_valid_until_the_next_one_starts() {
        let model = DelayModel::of(REAL, &[piece(100, 3.0), piece(200, 5.0)]);
        let coarse: Vec<i64> =
            [99, 100, 199, 200, u64::MAX].iter().map(|&t| model.at(t).coarse_samples).collect();
        assert_eq!(coarse, [0, 3, 3, 5, 5]);
    }

    #[test]
    fn new_piece_replaces_pieces_at_or_after_its_start() {
        let mut model = DelayModel::of(REAL, &[piece(100, 1.0), piece(200, 2.0), piece(300, 3.0)]);
        model.queue(&piece(200, 7.0));
        assert_eq!(model.at(250).coarse_samples, 7);
        assert_eq!(model.at(350).coarse_samples, 7);
        assert_eq!(model.at(150).coarse_samples, 1);
    }

    #[test]
    fn model_is_replaced_from_a_timestamp_and_keeps_its_start_times() {
        let mut model = DelayModel::of(REAL, &[piece(100, 1.0), piece(900, 9.0)]);
        let drifting = Piece { rate: 1e-3, ..piece(200, 50.0) };
        model.replace(500, &[piece(150, 4.0), drifting, piece(700, 6.0)]);
        let delays = |model: &DelayModel, times: &[u64]| -> Vec<f64> {
            let at = |t: &u64| model.at(*t);
            times.iter().map(at).map(|d| d.coarse_samples as f64 + d.fine_samples).collect()
        };
        let times = [99, 100, 499, 500, 699, 700, 2000];
        assert_eq!(delays(&model, &times), [0.0, 1.0, 1.0, 50.3, 50.499, 6.0, 6.0]);
        // A scheduled model: until then the previous one stays valid.
        model.replace(600, &[piece(800, 8.0)]);
        assert_eq!(delays(&model, &[600, 750, 799, 800]), [50.4, 6.0, 6.0, 8.0]);
        model.forget_before(750);
        assert_eq!(delays(&model, &[750, 800]), [6.0, 8.0]);
        assert_eq!(model.pieces.len(), 2);
        model.replace(900, &[]);
        assert_eq!(delays(&model, &[899, 900]), [8.0, 0.0]);
    }

    /// Samples of a turn of timestamps on the wire.
    const TURN: u64 = 1 << 48;

    #[test]
    fn piece_of_any_age_keeps_its_rates_and_means_the_same_at_the_start_and_as_an_update() {
        // 1 sample of delay in 2^40, and a turn of phase in 2^44, exact in f64.
        let rate = 1.0 / (1_u64 << 40) as f64;
        let phase_rate_radians_per_second = TAU * 1e9 / (1_u64 << 44) as f64;
        for start in [0, 1000, TURN - 10, TURN + 10] {
            let old = Piece { rate, phase_rate_radians_per_second, ..piece(start, 7.0) };
            let built = DelayModel::of(REAL, std::slice::from_ref(&old));
            for t in [start, TURN - 1, TURN, TURN + (1 << 45), 5 * TURN + 12_345] {
                let Some(age) = t.checked_sub(start) else { continue };
                let mut updated = DelayModel::of(REAL, &[piece(0, 100.0)]);
                updated.replace(t, std::slice::from_ref(&old));
                let (got, delay) = (built.at(t), 7.0 + age as f64 / (1_u64 << 40) as f64);
                assert_eq!(got, updated.at(t), "{start} {t}");
                assert!((got.coarse_samples as f64 + got.fine_samples - delay).abs() < 1e-9);
                // Integer arithmetic: the fraction of 2^44 samples, and a quarter turn for each sample of delay.
                let phase = (age % (1 << 44)) as f64 / (1_u64 << 44) as f64;
                let turns = phase + got.coarse_samples.rem_euclid(4) as f64 / 4.0 - got.phase_turns;
                let apart = turns.rem_euclid(1.0);
                assert!(apart.min(1.0 - apart) < 1e-9, "{start} {t}: {apart}");
                assert!(!built.has_expired(t));
            }
        }
    }

    #[test]
    fn piece_expires_at_a_new_time_base_and_keeps_its_first_values() {
        let drifting = Piece { rate: 1e-9, phase_radians: 1.0, ..piece(1000, 7.0) };
        let mut model = DelayModel::of(REAL, &[drifting]);
        model.begin_base(TURN);
        assert!(!model.has_expired(TURN - 1) && model.has_expired(TURN));
        assert!(model.at(TURN - 1).fine_samples.abs() > 1e-3);
        let kept = model.at(TURN + 5000);
        assert_eq!((kept.coarse_samples, kept.fine_samples), (7, 0.0));
        model.replace(TURN + 6000, &[Piece { rate: 0.5, ..piece(TURN + 5000, 3.0) }]);
        assert_eq!(model.at(TURN + 6000).coarse_samples, 503);
        assert!(model.has_expired(TURN + 5999) && !model.has_expired(TURN + 6000));
        // A constant delay has nothing to extrapolate.
        model.replace(TURN + 7000, &[piece(0, 2.0)]);
        assert!(!model.has_expired(TURN + 7000));
        assert_eq!(model.at(TURN + 7000).coarse_samples, 2);
    }

    #[test]
    fn rates_stay_exact_after_two_days() {
        let rate_hz = 1.712e9;
        let start = 172_800 * 1_712_000_000_u64;
        let model = DelayModel::of(
            Timing { tick_rate_hz: rate_hz, ..REAL },
            &[Piece {
                start_samples: start,
                delay_seconds: Some(1e-6),
                rate: 2.56e-9,
                phase_radians: 1.0,
                phase_rate_radians_per_second: -49.0,
                ..Piece::default()
            }],
        );
        let dt_samples = 1_712_000_000_u64;
        let got = model.at(start + dt_samples);
        let delay = (1e-6 + 2.56e-9) * rate_hz;
        assert!((got.coarse_samples as f64 + got.fine_samples - delay).abs() < 1e-9);
        let phase = (1.0 - 49.0) / TAU + delay.round() * 0.25;
        let difference = (got.phase_turns - phase).rem_euclid(1.0);
        assert!(difference.min(1.0 - difference) < 1e-9);
    }
}
