//! Comparison with sums in double precision, and with code indices from exact integer arithmetic.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::gnss::correlate::tests::{TAPS, reference, samples, satellite, wrong_entries};
use crate::gnss::phase::{tap, turns};
use crate::gnss::{Planes, Satellite, System};

/// Returns the sums `[antenna][tap]` and the length of the cells; `shared_hz` is the frequency shared by all
/// satellites.
fn correlate(
    instructions: InstructionSet,
    input: &[[i16; 2]],
    antennas: usize,
    satellite: &Satellite,
    (rate_hz, shared_hz): (f64, f64),
    taps: &[f64],
) -> (Vec<Complex64>, u32) {
    let count = input.len() / antennas;
    let replica = Replica::of(satellite).unwrap();
    let mut nco = Nco::new(satellite, &replica, 0.0, rate_hz, 0);
    let taps: Vec<u64> = taps.iter().map(|chips| tap(*chips, &replica)).collect();
    let mut planes = Planes::new(antennas, BLOCK_SAMPLES);
    let mut shared = Rotors::new(BLOCK_SAMPLES);
    shared.set(turns(shared_hz / rate_hz));
    let step = nco.carrier_step.wrapping_sub(turns(shared_hz / rate_hz));
    let log2_cell = log2_cell(&nco, step).unwrap();
    let mut weights = Weights::default();
    weights.set(step, log2_cell);
    let mut moments: Vec<_> = (0..antennas).map(|_| Moments::default()).collect();
    moments.iter_mut().for_each(|moments| moments.set_cell(log2_cell));
    let mut correlator = EdgeCorrelator::new(instructions, taps.len());
    let mut sums = vec![Complex64::ZERO; antennas * taps.len()];
    for start in (0..count).step_by(BLOCK_SAMPLES) {
        let end = count.min(start + BLOCK_SAMPLES);
        planes.read(input, count, start..end, false);
        for (antenna, moments) in moments.iter_mut().enumerate() {
            moments.read(instructions, planes.parts(antenna, 0..end - start), &shared);
        }
        correlator.add(&moments, (&replica, &nco), &taps, &weights, &mut sums);
        nco.advance((end - start) as u64);
    }
    (sums, log2_cell)
}

#[test]
fn sums_equal_double_precision_up_to_the_fastest_carrier_of_each_cell() {
    let mut cells = std::collections::BTreeSet::new();
    for (system, count, rate_hz) in [
        (System::GpsL1Ca, 16_500, 16.5e6),
        (System::GpsL1Ca, 25_000, 25e6),
        (System::GpsL1Ca, 100_000, 100e6),
        (System::GalileoE1b, 100_001, 200e6),
        (System::GpsL2cM, 25_000, 25e6),
        (System::GpsL1cP, 100_001, 200e6),
    ] {
        let input = samples(count, 7);
        let power = |[re, im]: &[i16; 2]| f64::from(*re).powi(2) + f64::from(*im).powi(2);
        let power = TAPS.len() as f64 * input.iter().map(power).sum::<f64>();
        for log2_cell in LOG2_CELLS {
            let half = f64::from(1_u32 << (log2_cell - 1));
            let fastest_hz = 0.999 * MOST_RADIANS / half / std::f64::consts::TAU * rate_hz;
            for (shared_hz, doppler_hz) in [(0.0, fastest_hz), (321e3, 321e3 - fastest_hz)] {
                let satellite = Satellite { doppler_hz, ..satellite(5, system) };
                let mut errors = 0.0;
                let (found, log2) = correlate(
                    InstructionSet::best(),
                    &input,
                    1,
                    &satellite,
                    (rate_hz, shared_hz),
                    &TAPS,
                );
                assert_eq!(log2, log2_cell);
                cells.insert(log2);
                for (tap, found) in TAPS.iter().zip(found) {
                    let expected = reference(&input, &satellite, rate_hz, *tap);
                    errors += (found - expected).norm_sqr();
                }
                // The levels of CBOC are rounded to integers; other rounding errors are negligible.
                let most = if system == System::GalileoE1b { 3e-4 } else { 1e-6 };
                let error = f64::sqrt(errors / power);
                assert!(error < most, "{system:?} {count} {log2} {doppler_hz}: {error:e}");
            }
        }
    }
    assert_eq!(cells.len(), LOG2_CELLS.count());
}

#[test]
fn every_implementation_antenna_and_number_of_taps_and_samples_agrees() {
    let taps = [0.5, 0.25, 0.0, -0.25, -0.5, 3.3, -7.7];
    for len in [1, 7, 64, 600, 2047, 2048, 2049, 2048 + 3 * 128, 5003] {
        let input = samples(3 * len, 9);
        let satellite = satellite(3, System::GpsL1Ca);
        let all = correlate(InstructionSet::Portable, &input, 3, &satellite, (20e6, 0.0), &taps).0;
        for instructions in InstructionSet::available() {
            for count in [1, 2, 5, 7] {
                let (found, _) =
                    correlate(instructions, &input, 3, &satellite, (20e6, 0.0), &taps[..count]);
                for (antenna, found) in found.chunks(count).enumerate() {
                    let alone = &input[antenna * len..][..len];
                    for (tap, found) in found.iter().enumerate() {
                        let offset = taps[tap];
                        let expected = reference(alone, &satellite, 20e6, offset);
                        assert!(
                            (found - expected).norm() < 1.0,
                            "{instructions:?} {len} {found} {expected}"
                        );
                        assert!((found - all[antenna * taps.len() + tap]).norm() < 1.0);
                    }
                }
            }
        }
    }
}

#[test]
fn phasors_equal_sine_and_cosine() {
    let phasors = Phasors::new();
    let mut phase = 0_u64;
    for _ in 0..if cfg!(miri) { 100 } else { 100_000 } {
        assert!((phasors.at(phase) - rotor(phase)).norm() < 1e-14, "{phase}");
        phase = phase.wrapping_add(0x0123_4567_89ab_cdef);
    }
    // Halfway between two phases of the table, and the last phase.
    for phase in [1 << 55, (1 << 55) - 1, u64::MAX] {
        assert!((phasors.at(phase) - rotor(phase)).norm() < 1e-14, "{phase}");
    }
}

#[test]
fn fast_carriers_and_fast_codes_are_rejected() {
    let of = |system, doppler_hz, rate_hz| {
        let satellite = Satellite { doppler_hz, ..satellite(1, system) };
        let nco = Nco::new(&satellite, &Replica::of(&satellite).unwrap(), 0.0, rate_hz, 0);
        log2_cell(&nco, nco.carrier_step)
    };
    assert_eq!(of(System::GpsL1Ca, 0.0, 16.5e6), Some(7));
    assert_eq!(of(System::GpsL1Ca, 0.0, 16e6), None);
    assert_eq!(of(System::GpsL1Ca, -5000.0, 100e6), Some(7));
    assert_eq!(of(System::GpsL1Ca, -5000.0, 25e6), Some(6));
    assert_eq!(of(System::GpsL1Ca, 10_000.0, 25e6), Some(5));
    assert_eq!(of(System::GpsL1Ca, 20_000.0, 25e6), None);
    assert_eq!(of(System::GalileoE1b, 0.0, 100e6), None);
    assert_eq!(of(System::GalileoE1b, 0.0, 200e6), Some(7));
}

#[test]
fn code_indices_of_100_000_samples_are_exact() {
    for (system, rate_hz, doppler_chips) in [
        (System::GpsL1Ca, 17e6, 1.0),
        (System::GpsL1Ca, 25e6, -3.0),
        (System::GpsL1Ca, 100e6, 2.0),
        (System::GpsL1Ca, 17_345_679.0, 0.0),
        (System::GalileoE1b, 200e6, 2.0),
        (System::GpsL1cP, 200e6, -3.0),
        (System::GpsL2cL, 25e6, 1.0),
    ] {
        for instructions in InstructionSet::available() {
            let mut edges = Edges::new(1);
            let signal = (system, rate_hz, doppler_chips);
            let wrong = wrong_entries(signal, BLOCK_SAMPLES, |replica, nco, code| {
                assert!(ENTRY / nco.code_step >= WORTH_EDGES);
                edges.find(
                    instructions,
                    replica,
                    nco.code_step,
                    code.len(),
                    std::iter::once(nco.code),
                );
                let (at, change) = edges.row(0);
                // The code of a sample is the sum of the changes after it.
                let mut value: f32 = change.iter().sum();
                let mut ends = at.iter().zip(change).peekable();
                for (k, code) in code.iter_mut().enumerate() {
                    while let Some((_, change)) = ends.next_if(|(at, _)| **at as usize <= k) {
                        value -= change;
                    }
                    *code = value as i8;
                }
            });
            assert_eq!(wrong, 0, "{system:?} at {rate_hz}, {instructions:?}");
        }
    }
}
