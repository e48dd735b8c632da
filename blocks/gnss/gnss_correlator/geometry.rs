//! Launch configuration of the GPU kernel.

use super::Shape;
use crate::gnss::samples::Samples;
use fxgraph::cuda::Defines;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, Rejection};
use fxgraph_dsp::gnss::System;

/// Threads of a block.
pub const THREADS: usize = 128;
/// Largest number of correlator taps: their sums stay in registers.
pub const MAX_TAPS: usize = 8;
/// Code entries that a thread block stores, for all its satellites together, and for one satellite: phases
/// within a block have 16 integer bits.
const WINDOW_BYTES: usize = 36 << 10;
const MOST_WINDOW_BYTES: usize = 30 << 10;
/// Largest useful number of rounds per thread block.
const MAX_ROUNDS: usize = 512;
/// Largest number of blocks in y, and in z, of a grid.
const MAX_BLOCKS: usize = 65_535;

/// The kernel's parameters, except those of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    pub antennas_at_once: usize,
    pub satellites_at_once: usize,
    group: usize,
    /// Whether no code changes twice within a group.
    pub suffix: bool,
    /// Thread blocks resident on a multiprocessor.
    pub resident: usize,
    rounds: usize,
    /// Thread blocks that share an epoch.
    pub runs: usize,
    /// Bytes of each code that a thread block stores.
    pub window: usize,
}

/// Returns the number of samples in 16 bytes.
pub fn alignment(shape: &Shape) -> usize {
    16 / shape.samples.dtype.bytes(1)
}

fn component_bytes(shape: &Shape) -> usize {
    shape.samples.dtype.bytes(1) / if shape.samples.is_real() { 1 } else { 2 }
}

/// Returns the largest number of code entries per sample of `system`, for a carrier within the band.
fn most_entries(system: System, shape: &Shape) -> f64 {
    let per_chip = system.entries_per_chip() as f64;
    let Samples { rate_hz, .. } = shape.samples;
    let most_doppler_hz = 0.5 * rate_hz + shape.samples.carrier_hz(system).abs();
    system.code_rate_hz(most_doppler_hz) * per_chip / rate_hz
}

/// Estimates the time of `blocks` thread blocks on a multiprocessor with `resident` blocks at once, each
/// with `work` units: one for a group of samples and one for each satellite of the group.
///
/// The work of a block occupies a quarter of its time, so four blocks share the pipes of a multiprocessor;
/// each wave of blocks adds memory latencies at its start and end. Fitted to an H200.
fn time(blocks: usize, resident: usize, work: usize) -> f64 {
    const LATENCIES: f64 = 8.0;
    const SHARE: f64 = 0.25;
    let waves = blocks.div_ceil(resident) as f64;
    blocks as f64 * work as f64 * SHARE + waves * (LATENCIES + work as f64)
}

impl Geometry {
    /// Selects the configuration for satellites of `systems`, correlator taps that span `span_chips`, and a GPU
    /// with this number of multiprocessors.
    pub fn new(shape: &Shape, systems: &[System], span_chips: f64, multiprocessors: usize) -> Self {
        let step = |system: &System| most_entries(*system, shape);
        let step = systems.iter().map(step).fold(0.0, f64::max);
        let per_chip = systems.iter().map(|system| system.entries_per_chip()).max().unwrap_or(1);
        let antennas = shape.samples.antennas;
        // The samples of the antennas are in shared memory; floats need twice the space of the other types.
        let most = if shape.samples.dtype == Dtype::Cf32 { 2 } else { 4 };
        let antennas_at_once = (1..=most).rev().find(|n| antennas.is_multiple_of(*n)).unwrap_or(1);
        let is_one = antennas_at_once == 1;
        let few_taps = shape.taps <= 3;
        let is_float = shape.samples.dtype == Dtype::Cf32;
        // A group has at least the 16 bytes of a copy.
        let least = if shape.samples.dtype == Dtype::I8 { 16 } else { 8 };
        let groups: &[usize] = match (is_one, few_taps && !is_float) {
            (true, true) => &[32, 16],
            (true, false) => &[16],
            (false, _) => &[least],
        };
        // A longer group makes taps cheaper, as long as its code changes at most once.
        let suffix_group = groups.iter().copied().find(|group| *group as f64 * step < 1.0);
        let suffix = suffix_group.is_some();
        let group = suffix_group.unwrap_or(if is_one { 16 } else { least });
        // Limits from the registers: satellites at once, and blocks per multiprocessor.
        let choices: &[(usize, usize)] = match (suffix, is_one) {
            (true, true) if few_taps => &[(4, 4), (2, 4), (1, 4)],
            (true, true) => &[(2, 4), (1, 4)],
            (true, false) if few_taps => &[(2, 3), (1, 3)],
            (false, true) if few_taps => &[(2, 4), (1, 6)],
            (false, true) => &[(1, 3)],
            (_, false) => &[(1, 2)],
        };
        let samples = shape.samples_per_epoch() + alignment(shape) - 1;
        let all_rounds = samples.div_ceil(THREADS * group);
        let span = span_chips * per_chip as f64;
        let of_round = (THREADS * group) as f64 * step;
        let cuts = choices.iter().flat_map(|&(satellites_at_once, resident)| {
            let room = (WINDOW_BYTES / satellites_at_once).min(MOST_WINDOW_BYTES) as f64 - span;
            let fitting = ((room / of_round) as usize).clamp(1, MAX_ROUNDS);
            (1..=all_rounds.min(fitting)).map(move |rounds| (satellites_at_once, resident, rounds))
        });
        let cost = |&(satellites_at_once, resident, rounds): &(usize, usize, usize)| {
            let sets = shape.satellites.div_ceil(satellites_at_once);
            let tasks = shape.epochs * sets * (antennas / antennas_at_once);
            let blocks = tasks * all_rounds.div_ceil(rounds);
            let most = blocks.div_ceil(multiprocessors.max(1));
            time(most, resident, rounds * (1 + satellites_at_once))
        };
        let best = cuts.min_by(|a, b| cost(a).total_cmp(&cost(b)));
        let (satellites_at_once, resident, rounds) = best.unwrap_or((1, 1, 1));
        // One entry for each end, one after a change, and those before the first entry in its 16 bytes.
        let window = (of_round * rounds as f64 + span).ceil() as usize + 3 + 15;
        Self {
            antennas_at_once,
            satellites_at_once,
            group,
            suffix,
            resident,
            rounds,
            runs: all_rounds.div_ceil(rounds),
            window: window.next_multiple_of(16),
        }
    }

    /// Returns the number of thread blocks in x, y and z.
    pub fn blocks(&self, shape: &Shape) -> [usize; 3] {
        let sets = shape.satellites.div_ceil(self.satellites_at_once);
        [self.runs, shape.epochs * sets, shape.samples.antennas / self.antennas_at_once]
    }

    /// Returns the number of sums of a task, counting real and imaginary parts.
    pub fn values(&self, shape: &Shape) -> usize {
        2 * self.satellites_at_once * self.antennas_at_once * shape.taps
    }

    pub fn shared_bytes(&self, shape: &Shape) -> usize {
        let group_bytes = self.group * shape.samples.dtype.bytes(1);
        let suffixes = if self.suffix { 8 * (self.group + 1) } else { 0 };
        let of_thread = self.antennas_at_once * (group_bytes + suffixes);
        self.satellites_at_once * self.window + THREADS * of_thread
    }

    pub fn defines(&self, shape: &Shape) -> Defines {
        crate::common::gpu::numbers([
            ("COMPONENT_BYTES", component_bytes(shape)),
            ("IS_REAL", usize::from(shape.samples.is_real())),
            ("CONJUGATE", usize::from(shape.samples.is_inverted)),
            ("ANTENNAS", shape.samples.antennas),
            ("ANTENNAS_AT_ONCE", self.antennas_at_once),
            ("TAPS", shape.taps),
            ("EPOCHS", shape.epochs),
            ("SATELLITES", shape.satellites),
            ("SATELLITES_AT_ONCE", self.satellites_at_once),
            ("ROW", shape.samples.samples),
            ("GROUP", self.group),
            ("SUFFIX", usize::from(self.suffix)),
            ("THREADS", THREADS),
            ("BLOCKS", self.resident),
            ("ROUNDS", self.rounds),
            ("WINDOW", self.window),
        ])
    }
}

/// Returns diagnostics for shapes that the kernel does not support.
pub fn rejections(shape: &Shape) -> Vec<Rejection> {
    let mut rejections = Vec::new();
    let mut reject = |at, message: String, help: &str| {
        rejections.push(Rejection::new(codes::IMPLEMENTATION, at, message).help(help));
    };
    if shape.taps > MAX_TAPS {
        let message = format!(
            "`taps_chips` must have at most {MAX_TAPS} entries on a GPU, got {}",
            shape.taps
        );
        reject(At::Parameter("taps_chips"), message, "divide the taps among several blocks");
    }
    let Shape { samples, .. } = shape;
    if samples.antennas > 1 && !samples.samples.is_multiple_of(alignment(shape)) {
        let message = format!(
            "the samples of each antenna must be a multiple of 16 bytes on a GPU, got {} samples",
            samples.samples
        );
        let help = format!("use frames of a multiple of {} samples", alignment(shape));
        reject(At::InputAxis(0, "sample"), message, &help);
    }
    if shape.epochs.saturating_mul(shape.satellites) > MAX_BLOCKS {
        let message = format!(
            "epochs times satellites must be at most {MAX_BLOCKS} on a GPU, got {} x {}",
            shape.epochs, shape.satellites
        );
        reject(At::Parameter("epochs_per_frame"), message, "use shorter frames with fewer epochs");
    }
    if samples.antennas > MAX_BLOCKS {
        let message =
            format!("the input must have at most {MAX_BLOCKS} antennas, got {}", samples.antennas);
        reject(At::InputAxis(0, "antenna"), message, "divide the antennas among several blocks");
    }
    rejections
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_covers_all_samples_with_sufficient_windows() {
        let systems: [&[System]; 6] = [
            &[System::GpsL1Ca],
            &[System::GalileoE1b],
            &[System::GpsL1cP, System::GpsL1cD],
            &[System::GpsL2cL],
            &[System::GpsL5I, System::GalileoE5bQ],
            &System::ALL,
        ];
        for of in systems {
            for (samples, rate_hz) in [(5000, 5e6), (25_003, 25e6), (100_000, 100e6), (4092, 4.2e6)]
            {
                for (antennas, epochs, satellites, taps) in
                    [(1, 1, 4, 3), (4, 64, 32, 3), (6, 3, 1, 8), (1, 7, 5, 1)]
                {
                    for dtype in
                        [Dtype::Ci8, Dtype::Ci16, Dtype::Cf32, Dtype::I8, Dtype::I16, Dtype::F32]
                    {
                        let samples = Samples::complex(dtype, antennas, samples * epochs, rate_hz);
                        let shape = Shape { samples, epochs, satellites, taps };
                        let geometry = Geometry::new(&shape, of, 20.0, 132);
                        let block = THREADS * geometry.group * geometry.rounds;
                        let all = shape.samples_per_epoch() + alignment(&shape) - 1;
                        assert!(geometry.runs * block >= all, "{geometry:?}");
                        let step = of.iter().map(|s| most_entries(*s, &shape)).fold(0.0, f64::max);
                        let per_chip =
                            of.iter().map(|s| s.entries_per_chip() as f64).fold(0.0, f64::max);
                        // From the fraction of the first entry and 15 skipped entries to the one after the last.
                        let last = 15.0 + 1.0 + block as f64 * step + 20.0 * per_chip + 1.0;
                        assert!(geometry.window as f64 > last, "{geometry:?} {last}");
                        assert!(
                            geometry.window < 1 << 15,
                            "phases of a block have 16 integer bits"
                        );
                        assert!(!geometry.suffix || geometry.group as f64 * step < 1.0);
                        // Shared memory per block of the smallest current GPUs.
                        assert!(geometry.shared_bytes(&shape) <= 99 << 10, "{geometry:?}");
                    }
                }
            }
        }
    }
}
