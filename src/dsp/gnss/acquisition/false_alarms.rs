//! False alarms are as frequent as stated: beside strong satellites, with a carrier, and in a recording.
#![allow(clippy::expect_used, clippy::print_stdout)]

use super::*;
use crate::gnss::Satellite;
use crate::gnss::correlate::{ROW, Rotors, write_code};
use crate::gnss::{BLOCK_SAMPLES, Nco};
use crate::random::Random;
use crate::simd::InstructionSet;
use num_complex::Complex64;
use std::f64::consts::TAU;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Signals in the samples, in addition to noise with a variance of 1.
#[derive(Clone, Copy, Default)]
struct Sky {
    /// Number, Doppler shift, code phase and C/N0 in dB Hz.
    satellites: &'static [(usize, f64, f64, f64)],
    /// Power and frequency of a carrier.
    carrier: Option<(f64, f64)>,
}

const STRONG: &[(usize, f64, f64, f64)] = &[(3, 1234.5, 100.3, 53.0), (17, -2222.0, 900.7, 53.0)];

fn settings(samples: usize, rate_hz: f64, probability: f64) -> Settings {
    Settings {
        samples,
        rate_hz,
        carriers: Carriers::At(0.0),
        max_doppler_hz: 5000.0,
        false_alarm_probability: probability,
    }
}

/// Fills the samples with a frame of `sky`.
fn simulate(planes: &mut Planes, sky: &Sky, settings: &Settings, seed: u64) {
    let mut random = Random::new(seed);
    let mut samples: Vec<Complex64> = (0..settings.samples)
        .map(|_| Complex64::from_polar((-random.uniform().ln()).sqrt(), TAU * random.uniform()))
        .collect();
    for &(prn, doppler_hz, code_phase_chips, cn0_db_hz) in sky.satellites {
        let system = System::GpsL1Ca;
        let (carrier_turns, at_timestamp) = (0.0, 0);
        let satellite =
            Satellite { system, prn, doppler_hz, code_phase_chips, carrier_turns, at_timestamp };
        let replica = Replica::of(&satellite).expect("the satellite exists");
        let mut nco = Nco::new(&satellite, &replica, 0.0, settings.rate_hz, 0);
        let amplitude = (10.0_f64.powf(cn0_db_hz / 10.0) / settings.rate_hz).sqrt();
        let mut rotors = Rotors::default();
        rotors.set(nco.carrier_step.wrapping_neg());
        let mut row = [0; ROW];
        for block in samples.chunks_mut(BLOCK_SAMPLES) {
            write_code(InstructionSet::Portable, &replica, &nco, nco.code, block.len(), &mut row);
            let turn = Complex64::cis(TAU * nco.carrier_turns()) * amplitude;
            for ((sample, rotor), code) in block.iter_mut().zip(rotors.iter()).zip(row) {
                let rotor = Complex64::new(f64::from(rotor.re), f64::from(rotor.im));
                *sample += turn * rotor * f64::from(code);
            }
            nco.advance(block.len() as u64);
        }
    }
    if let Some((power, hz)) = sky.carrier {
        for (n, sample) in samples.iter_mut().enumerate() {
            *sample += Complex64::from_polar(power.sqrt(), TAU * hz / settings.rate_hz * n as f64);
        }
    }
    let samples: Vec<[f32; 2]> = samples.iter().map(|v| [v.re as f32, v.im as f32]).collect();
    planes.read(&samples, samples.len(), 0..samples.len(), false);
}

/// Runs the search of the samples.
fn search(all: &mut FrameSearch) {
    all.start();
    while !all.step(1000, &|peaks, scratches, work| work(0, peaks, &mut scratches[0])) {}
}

/// Numbers of searches and of false alarms, at one frequency and at all of them, for codes that no satellite has.
#[derive(Debug, Default)]
struct Counts {
    single: [u64; 2],
    full: [u64; 2],
}

impl Counts {
    fn add(&mut self, other: &Self) {
        for (own, other) in [(&mut self.single, other.single), (&mut self.full, other.full)] {
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
    }
}

/// Loads a simulated frame of `sky`, or one of `recording`; `false` if the recording has no such frame.
fn load(
    planes: &mut Planes,
    settings: &Settings,
    sky: Option<&Sky>,
    recording: &[u8],
    frame: u64,
) -> bool {
    if let Some(sky) = sky {
        simulate(planes, sky, settings, frame);
        return true;
    }
    let Some(bytes) = recording.chunks_exact(80_000).nth(frame as usize) else { return false };
    let samples: &[[i8; 2]] = bytemuck::cast_slice(bytes);
    planes.read(samples, 40_000, 0..40_000, true);
    true
}

/// Searches for `codes` codes that no satellite has in the samples that the search left.
fn count(all: &mut FrameSearch, codes: impl Iterator<Item = usize>, counts: &mut Counts) {
    let (search, scratches) = &mut all.systems[0];
    let (full, _) = search.threshold();
    let single = search.threshold_of(1.0 / search.grid().bins as f64);
    let bins = search.grid().bins;
    let place = search.candidates.len();
    search.candidates.push(Candidate::other(Replica::gold(0)));
    for code in codes {
        search.candidates[place].replica = Replica::gold(code);
        search.load(place, scratches);
        let statistics =
            (0..bins).map(|bin| search.peak(bin as i64, &mut scratches[0]).statistic());
        let statistics: Vec<f64> = statistics.collect();
        counts.single[0] += bins as u64;
        counts.single[1] += statistics.iter().filter(|t| **t > single).count() as u64;
        counts.full[0] += 1;
        counts.full[1] += u64::from(statistics.iter().any(|t| *t > full));
    }
    search.candidates.pop();
}

/// Delays of the codes that no satellite transmits.
fn unused_codes() -> impl Iterator<Item = usize> {
    let gps: Vec<Replica> = (1..=37).filter_map(|n| Replica::new(System::GpsL1Ca, n)).collect();
    (0..1023).filter(move |delay| {
        let replica = Replica::gold(*delay);
        !AUGMENTATION_DELAY_CHIPS.contains(delay)
            && gps.iter().all(|known| known.entries() != replica.entries())
    })
}

fn gps_satellites() -> Vec<(System, usize)> {
    (1..=32).map(|prn| (System::GpsL1Ca, prn)).collect()
}

#[test]
fn satellites_beside_strong_ones_and_a_carrier_are_not_found() {
    let settings = settings(40_000, 2.5e6, 1e-3);
    for sky in [
        Sky { satellites: STRONG, carrier: None },
        Sky { satellites: STRONG, carrier: Some((1.0, 123_456.7)) },
    ] {
        let mut all = FrameSearch::new(&settings, &gps_satellites(), 1);
        simulate(all.samples_mut(), &sky, &settings, 3);
        search(&mut all);
        let found: Vec<usize> = all
            .results()
            .filter(|(_, acquired)| acquired.statistic > acquired.threshold)
            .map(|(_, acquired)| acquired.prn)
            .collect();
        assert_eq!(found, [3, 17]);
        let mut counts = Counts::default();
        count(&mut all, unused_codes().step_by(20), &mut counts);
        // About 1 in 1000 at each frequency.
        assert!(counts.single[1] <= 6, "{counts:?}");
    }
}

/// Counts false alarms until `FXGRAPH_SEARCHES` searches were made; takes minutes for 10^6.
#[test]
#[ignore = "takes minutes: set FXGRAPH_SEARCHES, and FXGRAPH_RECORDINGS for the recording"]
fn false_alarms_have_the_stated_probability() {
    let most = std::env::var("FXGRAPH_SEARCHES").ok().and_then(|text| text.parse().ok());
    let most: u64 = most.unwrap_or(100_000);
    let codes: Vec<usize> = unused_codes().collect();
    let recording = std::env::var("FXGRAPH_RECORDINGS").map(|directory| {
        std::fs::read(format!("{directory}/gnss_l1_4msps_iq.i8")).expect("the recording exists")
    });
    let recording = recording.unwrap_or_default();
    let carrier = Some((1.0, 123_456.7));
    let skies = [
        ("noise", Some(Sky::default())),
        ("carrier", Some(Sky { carrier, ..Sky::default() })),
        ("two satellites at 53 dB Hz", Some(Sky { satellites: STRONG, carrier: None })),
        ("recording", None),
    ];
    let wanted = std::env::var("FXGRAPH_SKY").ok();
    for (name, sky) in skies {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let (frames, counts) = (AtomicU64::new(0), Mutex::new(Counts::default()));
        let counted = || counts.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    let settings = settings(40_000, 4e6, 1e-3);
                    let mut all = FrameSearch::new(&settings, &gps_satellites(), 1);
                    while counted().single[0] < most {
                        let frame = frames.fetch_add(1, Ordering::Relaxed);
                        if !load(all.samples_mut(), &settings, sky.as_ref(), &recording, frame) {
                            break;
                        }
                        search(&mut all);
                        let mut of_frame = Counts::default();
                        count(&mut all, codes.iter().copied(), &mut of_frame);
                        let mut counts = counted();
                        counts.add(&of_frame);
                        println!("{name}, frame {frame}: removed {}, {counts:?}", all.removed());
                    }
                });
            }
        });
        let counts = counted();
        let [searches, alarms] = counts.single;
        let ratio = alarms as f64 / (1e-3 * searches.max(1) as f64);
        println!("{name}: {counts:?}, {ratio:.3} of the stated probability");
        assert!(searches == 0 || (0.8..1.2).contains(&ratio));
    }
}
