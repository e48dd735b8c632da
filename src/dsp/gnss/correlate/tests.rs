//! Comparison with sums in double precision, with code indices from exact integer arithmetic.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::gnss::{Satellite, Subcarrier, System, codes};
use crate::random::Random;

/// Satellites, samples, samples per second.
const CONFIGURATIONS: [(&[System], usize, usize, f64); 7] = [
    (&[System::GpsL1Ca], 4, 5000, 5e6),
    (&[System::GpsL1Ca], 16, 5000, 5e6),
    (&[System::GalileoE1b], 4, 25_000, 25e6),
    (&[System::GalileoE1b], 16, 25_000, 25e6),
    (&[System::GalileoE1b], 4, 100_000, 25e6),
    (&[System::GalileoE1b], 16, 100_000, 100e6),
    (&System::ALL, 48, 25_000, 25e6),
];

/// Offsets of the correlator taps in chips.
pub(in crate::gnss) const TAPS: [f64; 3] = [0.5, 0.0, -0.5];

pub(in crate::gnss) fn satellite(index: usize, system: System) -> Satellite {
    let n = index as f64;
    Satellite {
        system,
        prn: system.prns().nth(index % system.prns().count()).unwrap(),
        doppler_hz: 737.3 * n - 4321.1,
        code_phase_chips: 137.77 * n + 0.123,
        carrier_turns: 0.37 * n,
        at_timestamp: 0,
    }
}

/// Returns the level at a phase in chips, from the modulation's formula.
fn level(system: System, chips: &[i8], phase: f64) -> f64 {
    let chip = f64::from(chips[phase as usize % chips.len()]);
    let sign = |turns: f64| if turns.fract() < 0.5 { 1.0 } else { -1.0 };
    let (slow, fast) = (sign(phase), sign(6.0 * phase));
    let [more, less] = [10.0_f64, 1.0].map(|parts| (parts / 11.0).sqrt());
    let half = |is_here: bool| if is_here { 2.0_f64.sqrt() } else { 0.0 };
    chip * match system.signal().subcarrier {
        Subcarrier::None => 1.0,
        Subcarrier::Sine(_) => slow,
        Subcarrier::Cosine(_) => sign(phase + 0.25),
        Subcarrier::Sum => more * slow + less * fast,
        Subcarrier::Difference => more * slow - less * fast,
        Subcarrier::TimeMultiplexed => match phase as usize % 33 {
            0 | 4 | 6 | 29 => fast,
            _ => slow,
        },
        Subcarrier::FirstHalf => half(slow > 0.0),
        Subcarrier::SecondHalf => half(slow < 0.0),
    }
}

pub(in crate::gnss) fn samples(count: usize, seed: u64) -> Vec<[i16; 2]> {
    let mut random = Random::new(seed);
    (0..count).map(|_| random.normal_pair().map(|value| (700.0 * value) as i16)).collect()
}

fn correlate(
    instructions: InstructionSet,
    input: &[[i16; 2]],
    antennas: usize,
    satellite: &Satellite,
    rate_hz: f64,
    taps: &[f64],
) -> Vec<Complex64> {
    let count = input.len() / antennas;
    let replica = Replica::of(satellite).unwrap();
    let mut nco = Nco::new(satellite, &replica, 0.0, rate_hz, 0);
    let taps: Vec<u64> = taps.iter().map(|tap| crate::gnss::phase::tap(*tap, &replica)).collect();
    let mut planes = Planes::new(antennas, BLOCK_SAMPLES);
    let mut correlator = Correlator::new(instructions, taps.len());
    let mut rotors = Rotors::default();
    rotors.set(nco.carrier_step);
    let mut sums = vec![Complex64::ZERO; antennas * taps.len()];
    for start in (0..count).step_by(BLOCK_SAMPLES) {
        let end = count.min(start + BLOCK_SAMPLES);
        planes.read(input, count, start..end, false);
        correlator.add((&planes, 0..end - start), (&replica, &nco), &taps, &rotors, &mut sums);
        nco.advance((end - start) as u64);
    }
    sums
}

/// Computes the correlation with phases and sums in double precision.
pub(in crate::gnss) fn reference(
    input: &[[i16; 2]],
    satellite: &Satellite,
    rate_hz: f64,
    tap: f64,
) -> Complex64 {
    let chips = codes::chips(satellite.system, satellite.prn).unwrap();
    let (length, step) = (chips.len() as f64, satellite.code_rate_hz() / rate_hz);
    let sum = input.iter().enumerate().map(|(n, [re, im])| {
        let n = n as f64;
        let turns = satellite.carrier_turns + satellite.doppler_hz / rate_hz * n;
        let phase = (satellite.code_phase_chips + step * n + tap).rem_euclid(length);
        let carrier = Complex64::cis(-std::f64::consts::TAU * turns.fract());
        Complex64::new(f64::from(*re), f64::from(*im))
            * carrier
            * level(satellite.system, &chips, phase)
    });
    sum.sum()
}

#[test]
fn sums_equal_those_in_double_precision() {
    for (systems, satellites, count, rate_hz) in CONFIGURATIONS {
        let input = samples(count, 7);
        let (mut errors, mut power) = (0.0, 0.0);
        for index in 0..satellites {
            let satellite = satellite(index, systems[index % systems.len()]);
            let found = correlate(InstructionSet::best(), &input, 1, &satellite, rate_hz, &TAPS);
            for (tap, found) in TAPS.iter().zip(found) {
                let expected = reference(&input, &satellite, rate_hz, *tap);
                errors += (found - expected).norm_sqr();
                power += expected.norm_sqr();
            }
        }
        // The levels of CBOC are rounded to integers; other rounding errors are negligible.
        let most = if systems.contains(&System::GalileoE1b) { 3e-4 } else { 2e-6 };
        let error = f64::sqrt(errors / power);
        assert!(error < most, "{systems:?} {satellites} {count}: {error:e}");
    }
}

#[test]
fn every_implementation_antenna_and_number_of_taps_agrees() {
    let taps = [0.5, 0.25, 0.0, -0.25, -0.5, 3.3, -7.7];
    let input = samples(3 * 3001, 9);
    for (index, system) in System::ALL.into_iter().enumerate() {
        let satellite = satellite(index + 3, system);
        let all = correlate(InstructionSet::Portable, &input, 3, &satellite, 8e6, &taps);
        for instructions in InstructionSet::available() {
            for count in 1..=taps.len() {
                let found = correlate(instructions, &input, 3, &satellite, 8e6, &taps[..count]);
                for (antenna, found) in found.chunks(count).enumerate() {
                    let alone = &input[antenna * 3001..][..3001];
                    for (tap, found) in found.iter().enumerate() {
                        assert!(
                            (found - all[antenna * taps.len() + tap]).norm() < 1.0,
                            "{instructions:?}"
                        );
                        let alone =
                            correlate(instructions, alone, 1, &satellite, 8e6, &taps[tap..=tap]);
                        assert!((found - alone[0]).norm() < 1.0);
                    }
                }
            }
        }
    }
}

/// Returns the index of the code at sample `n`, for a rate in millionths of a chip per second and a phase in
/// millionths of a chip.
fn exact_entry(
    n: u128,
    rate_microchips: u128,
    phase_microchips: u128,
    rate_hz: u128,
    per_chip: u128,
    length: u128,
) -> u128 {
    (phase_microchips * rate_hz + n * rate_microchips) * per_chip / (rate_hz * 1_000_000) % length
}

/// Returns the number of samples, out of 100 000, with a code entry that differs from exact arithmetic, for a Doppler
/// shift in chips per second. `write` gets a
/// code with distinguishable entries, the phases of a block of at most `block` samples, and a buffer for its code.
pub(in crate::gnss) fn wrong_entries(
    (system, rate_hz, doppler_chips): (System, f64, f64),
    block: usize,
    mut write: impl FnMut(&Replica, &Nco, &mut [i8]),
) -> usize {
    const SAMPLES: usize = 100_000;
    let chip_rate_hz = system.signal().chip_rate_hz;
    let rate_microchips = ((chip_rate_hz + doppler_chips) * 1e6) as u128;
    let doppler_hz = doppler_chips * system.carrier_hz() / chip_rate_hz;
    let satellite = Satellite { doppler_hz, code_phase_chips: 0.123_457, ..satellite(0, system) };
    let replica = Replica::of(&satellite).unwrap();
    let mut nco = Nco::new(&satellite, &replica, 0.0, rate_hz, 0);
    let (per_chip, length) = (replica.per_chip() as u128, replica.entries().len() as u128);
    // Modulo a prime.
    let mark = |entry: usize| (entry % 127) as i8;
    let marked = Replica::marked(&replica, mark);
    let mut code = vec![0; block];
    let mut wrong = 0;
    for start in (0..SAMPLES).step_by(block) {
        let code = &mut code[..block.min(SAMPLES - start)];
        write(&marked, &nco, code);
        for (k, found) in code.iter().enumerate() {
            let (n, rate_hz) = ((start + k) as u128, rate_hz as u128);
            let entry = exact_entry(n, rate_microchips, 123_457, rate_hz, per_chip, length);
            wrong += usize::from(*found != mark(entry as usize));
        }
        nco.advance(code.len() as u64);
    }
    wrong
}

#[test]
fn code_indices_of_100_000_samples_are_exact() {
    for system in System::ALL {
        for (rate_hz, doppler_chips) in
            [(5e6, 1.0), (25e6, -3.0), (100e6, 2.0), (12_345_679.0, 0.0)]
        {
            for instructions in InstructionSet::available() {
                let mut row = [0; ROW];
                let signal = (system, rate_hz, doppler_chips);
                let wrong = wrong_entries(signal, BLOCK_SAMPLES, |replica, nco, code| {
                    write_code(instructions, replica, nco, nco.code, code.len(), &mut row);
                    code.copy_from_slice(&row[..code.len()]);
                });
                assert_eq!(wrong, 0, "{system:?} at {rate_hz}, {instructions:?}");
            }
        }
    }
}
