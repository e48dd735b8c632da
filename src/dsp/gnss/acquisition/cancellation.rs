//! Removal of a found satellite from the samples of a frame, so that it does not leak into the search for others.

use super::Acquired;
use crate::gnss::correlate::{ROW, Rotors, write_code};
use crate::gnss::phase::tap;
use crate::gnss::{BLOCK_SAMPLES, Carriers, Nco, Planes, Replica, Satellite};
use crate::simd::InstructionSet;
use num_complex::{Complex32, Complex64};
use std::f64::consts::TAU;

/// Offsets of the replicas in chips. Their sum with the best weights follows the filter of the receiver and the error of
/// the code phase.
const OFFSETS: [f64; 11] = [0.0, 0.0625, -0.0625, 0.125, -0.125, 0.25, -0.25, 0.5, -0.5, 1.0, -1.0];
const TAPS: usize = OFFSETS.len();
/// Shortest part of a period that is fitted: the fit removes one value of noise per replica.
const FEWEST_SAMPLES: usize = 16 * TAPS;
/// Weight of small coefficients, relative to the power of a replica: neighbouring replicas can be equal.
const RIDGE: f64 = 1e-6;

/// Removes satellites from frames, period by period: data symbols change the sign at the beginning of a period only.
pub struct Cancellation {
    rate_hz: f64,
    carriers: Carriers,
    rotors: Rotors,
    /// Implementation for the codes; the list of those that the CPU supports is made once.
    instructions: InstructionSet,
    /// Codes of one period, `[tap][sample]`.
    codes: Vec<i8>,
    row: usize,
    /// Samples of one period without the carrier.
    mixed: Vec<Complex32>,
}

impl Cancellation {
    /// Allocates the memory for periods of at most `period` samples.
    #[must_use]
    pub fn new(period: usize, rate_hz: f64, carriers: Carriers) -> Self {
        // The Doppler shift stretches a period by less than 1 %.
        let period = period + period / 100 + 2;
        let row = period.next_multiple_of(BLOCK_SAMPLES) + ROW;
        Self {
            rate_hz,
            carriers,
            rotors: Rotors::default(),
            instructions: InstructionSet::best(),
            codes: vec![0; TAPS * row],
            row,
            mixed: vec![Complex32::ZERO; period],
        }
    }

    /// Approximate memory in bytes.
    #[must_use]
    pub fn host_bytes(period: usize) -> usize {
        (TAPS + size_of::<Complex32>()) * period
    }

    /// Removes the signal `acquired` with this replica from `planes`.
    pub fn apply(&mut self, planes: &mut Planes, replica: &Replica, acquired: &Acquired) {
        let mut satellite = Satellite {
            system: acquired.system,
            prn: acquired.prn,
            doppler_hz: acquired.doppler_hz,
            code_phase_chips: acquired.code_phase_chips,
            carrier_turns: 0.0,
            at_timestamp: 0,
        };
        // The search is accurate to a fraction of its step; a fit needs a few Hz.
        for _ in 0..3 {
            satellite.doppler_hz += self.frequency_error_hz(planes, replica, &satellite);
        }
        self.each_period(planes, replica, &satellite, |this, planes, first, len| {
            let weights = this.fit(len);
            this.subtract(planes, first, len, &weights, &satellite);
        });
    }

    /// Calls `work` with the first sample and the length of each period, with codes and mixed samples loaded.
    fn each_period(
        &mut self,
        planes: &mut Planes,
        replica: &Replica,
        satellite: &Satellite,
        mut work: impl FnMut(&mut Self, &mut Planes, usize, usize),
    ) {
        let carrier_hz = self.carriers.hz(satellite.system);
        let mut nco = Nco::new(satellite, replica, carrier_hz, self.rate_hz, 0);
        let taps = OFFSETS.map(|chips| tap(chips, replica));
        let mut first = 0;
        while first < planes.len() {
            let left = (nco.code_wrap - nco.code).div_ceil(nco.code_step) as usize;
            let len = left.min(planes.len() - first).min(self.mixed.len());
            if len >= FEWEST_SAMPLES {
                self.load(planes, replica, nco, &taps, first, len);
                work(self, planes, first, len);
            }
            nco.advance(len as u64);
            first += len;
        }
    }

    fn load(
        &mut self,
        planes: &Planes,
        replica: &Replica,
        mut nco: Nco,
        taps: &[u64; TAPS],
        first: usize,
        len: usize,
    ) {
        self.rotors.set(nco.carrier_step);
        let mut at = 0;
        while at < len {
            let block = (len - at).min(BLOCK_SAMPLES);
            for (offset, row) in taps.iter().zip(self.codes.chunks_exact_mut(self.row)) {
                let code = nco.code_at(*offset);
                write_code(self.instructions, replica, &nco, code, block, &mut row[at..at + ROW]);
            }
            let turn = Complex64::cis(-TAU * nco.carrier_turns());
            let turn = Complex32::new(turn.re as f32, turn.im as f32);
            let (re, im) = planes.parts(0, first + at..first + at + block);
            let samples = re.iter().zip(im).map(|(re, im)| Complex32::new(*re, *im));
            let mixed =
                samples.zip(self.rotors.iter()).map(|(sample, rotor)| sample * rotor * turn);
            self.mixed[at..].iter_mut().zip(mixed).for_each(|(to, value)| *to = value);
            nco.advance(block as u64);
            at += block;
        }
    }

    /// Returns the sum of the samples `range` of the loaded period times the prompt code.
    fn prompt(&self, range: std::ops::Range<usize>) -> Complex64 {
        let products = self.mixed[range.clone()].iter().zip(&self.codes[range]);
        let sum: Complex32 = products.map(|(value, code)| value * f32::from(*code)).sum();
        Complex64::new(f64::from(sum.re), f64::from(sum.im))
    }

    /// Returns the error of the frequency, from the turn between the two parts of each period.
    fn frequency_error_hz(
        &mut self,
        planes: &mut Planes,
        replica: &Replica,
        satellite: &Satellite,
    ) -> f64 {
        let mut turned = Complex64::ZERO;
        // The Doppler shift shortens a period by less than 1 %.
        let half = ((0.495 * satellite.system.period_seconds() * self.rate_hz) as usize).max(1);
        self.each_period(planes, replica, satellite, |this, _, _, len| {
            if len >= 2 * half {
                turned += this.prompt(half..2 * half) * this.prompt(0..half).conj();
            }
        });
        turned.arg() / TAU * self.rate_hz / half as f64
    }

    /// Returns the weights of the codes whose sum is closest to the samples of the loaded period.
    #[allow(clippy::needless_range_loop, reason = "indices of a matrix")]
    fn fit(&self, len: usize) -> [Complex64; TAPS] {
        let row = |tap: usize| &self.codes[tap * self.row..][..len];
        let mut matrix = [[0.0; TAPS]; TAPS];
        let mut right = [Complex64::ZERO; TAPS];
        for a in 0..TAPS {
            for b in 0..=a {
                let products =
                    row(a).iter().zip(row(b)).map(|(a, b)| i32::from(*a) * i32::from(*b));
                matrix[a][b] = products.map(i64::from).sum::<i64>() as f64;
            }
            let products = self.mixed[..len].iter().zip(row(a));
            let sum: Complex32 = products.map(|(value, code)| value * f32::from(*code)).sum();
            right[a] = Complex64::new(f64::from(sum.re), f64::from(sum.im));
        }
        let ridge = RIDGE * matrix[0][0];
        for (tap, row) in matrix.iter_mut().enumerate() {
            row[tap] += ridge;
        }
        solve(matrix, right)
    }

    fn subtract(
        &mut self,
        planes: &mut Planes,
        first: usize,
        len: usize,
        weights: &[Complex64; TAPS],
        satellite: &Satellite,
    ) {
        self.mixed[..len].fill(Complex32::ZERO);
        for (weight, row) in weights.iter().zip(self.codes.chunks_exact(self.row)) {
            let weight = Complex32::new(weight.re as f32, weight.im as f32);
            for (model, code) in self.mixed[..len].iter_mut().zip(row) {
                *model += weight * f32::from(*code);
            }
        }
        let carrier_hz = self.carriers.hz(satellite.system);
        let turns = (carrier_hz + satellite.doppler_hz) / self.rate_hz;
        let (re, im) = planes.parts_mut(0);
        let parts = re[first..].iter_mut().zip(&mut im[first..]);
        for (n, ((re, im), model)) in parts.zip(&self.mixed[..len]).enumerate() {
            let turn = Complex64::cis(TAU * (turns * (first + n) as f64).fract());
            let value = model * Complex32::new(turn.re as f32, turn.im as f32);
            *re -= value.re;
            *im -= value.im;
        }
    }
}

/// Solves `matrix x = right` for a positive definite matrix, of which the lower triangle is used (Cholesky).
fn solve(mut matrix: [[f64; TAPS]; TAPS], mut right: [Complex64; TAPS]) -> [Complex64; TAPS] {
    for column in 0..TAPS {
        for row in column..TAPS {
            let known: f64 = (0..column).map(|k| matrix[row][k] * matrix[column][k]).sum();
            let rest = matrix[row][column] - known;
            matrix[row][column] =
                if row == column { rest.max(1e-300).sqrt() } else { rest / matrix[column][column] };
        }
    }
    for row in 0..TAPS {
        let known: Complex64 = (0..row).map(|k| right[k] * matrix[row][k]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    for row in (0..TAPS).rev() {
        let known: Complex64 = (row + 1..TAPS).map(|k| right[k] * matrix[k][row]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    right
}
