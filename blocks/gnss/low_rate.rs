//! Signals at less than the rate of their main lobes, GPS at 2.000 MS/s and Galileo E1-B at 4.000 MS/s: satellites are
//! found and tracked, at the C/N0 that the warning states.
//!
//! The samples do not come from the simulator, which samples chips without a filter. They are computed from the Fourier
//! series of the code, without its harmonics outside the band, as an ideal filter before the ADC leaves them.
#![allow(clippy::unwrap_used)]

use super::gnss_acquisition::{self, Acquired, GnssAcquisition};
use super::gnss_tracker::{self, GnssTracker};
use crate::tests::chain::{Out, Plain, connected, drive, kind};
use fxgraph::frame::Annotations;
use fxgraph::{Axis, Clock, Dtype, PortType, ValidityType};
use fxgraph_dsp::fourier::{forward_f64, inverse_f64};
use fxgraph_dsp::gnss::{System, codes};
use fxgraph_dsp::random::Random;
use num_complex::{Complex32, Complex64};
use serde_json::json;
use std::f64::consts::{PI, TAU};

/// Frames per second.
const FRAME_RATE_HZ: usize = 50;
const CHIP_RATE_HZ: f64 = 1.023e6;
const CARRIER_HZ: f64 = 1575.42e6;
/// Points of the table of a filtered code for each chip.
const POINTS: usize = 64;

/// A signal, and the rate of its samples.
struct Signal {
    name: &'static str,
    letter: char,
    rate_hz: f64,
    chips: usize,
    periods_per_symbol: usize,
    /// Chips of a satellite, 1 and -1.
    code: fn(usize) -> Vec<f64>,
    /// Fourier transform of a chip that starts at 0, at this number of cycles per chip.
    of_chip: fn(f64) -> Complex64,
}

const GPS: Signal = Signal {
    name: "gps_l1_ca",
    letter: 'G',
    rate_hz: 2e6,
    chips: 1023,
    periods_per_symbol: 20,
    code: gps_code,
    of_chip: |x| Complex64::cis(-PI * x) * sinc(x),
};
const GALILEO: Signal = Signal {
    name: "galileo_e1b",
    letter: 'E',
    rate_hz: 4e6,
    chips: 4092,
    periods_per_symbol: 1,
    code: galileo_code,
    of_chip: of_cboc,
};

/// PRN, Doppler shift in Hz, code phase in chips at timestamp 0, C/N0 in dB Hz.
type Satellite = (usize, f64, f64, f64);
const GPS_SATELLITES: [Satellite; 4] = [
    (1, 2310.0, 311.4, 46.0),
    (2, -3120.0, 12.7, 47.0),
    (3, 740.0, 888.2, 48.0),
    (4, -1455.0, 602.9, 47.5),
];
const GALILEO_SATELLITES: [Satellite; 2] = [(3, 1815.0, 2711.3, 47.0), (6, -2260.0, 95.6, 48.0)];

/// Stages of the second register whose sum delays it, and first ten chips in octal of PRN 1 to 4 (IS-GPS-200, table 3-I).
const GPS_CODES: [([usize; 2], u32); 4] =
    [([2, 6], 0o1440), ([3, 7], 0o1620), ([4, 8], 0o1710), ([5, 9], 0o1744)];

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (PI * x).sin() / (PI * x) }
}

/// Transform of a chip of CBOC(6,1,1/11): the square waves of 1.023 and 6.138 MHz with 10/11 and 1/11 of the power.
fn of_cboc(x: f64) -> Complex64 {
    let [slow, fast] = [10.0_f64, 1.0].map(|parts| (parts / 11.0).sqrt());
    let part = |n: u32| {
        let level =
            if n < 6 { slow } else { -slow } + if n.is_multiple_of(2) { fast } else { -fast };
        level * Complex64::cis(-TAU * x * (f64::from(n) + 0.5) / 12.0)
    };
    (0..12).map(part).sum::<Complex64>() / 12.0 * sinc(x / 12.0)
}

/// The published memory code, whose copy has tests of its own.
fn galileo_code(prn: usize) -> Vec<f64> {
    codes::chips(System::GalileoE1b, prn).unwrap().into_iter().map(f64::from).collect()
}

/// A C/A code, from its two shift registers.
fn gps_code(prn: usize) -> Vec<f64> {
    let (stages, expected) = GPS_CODES[prn - 1];
    let (mut first, mut second) = ([1_u8; 10], [1_u8; 10]);
    let sum = |register: &[u8; 10], stages: &[usize]| {
        stages.iter().fold(0, |sum, stage| sum ^ register[stage - 1])
    };
    let shift = |register: &mut [u8; 10], new| {
        register.copy_within(..9, 1);
        register[0] = new;
    };
    let chip = |_| {
        let chip = first[9] ^ sum(&second, &stages);
        let new = [sum(&first, &[3, 10]), sum(&second, &[2, 3, 6, 8, 9, 10])];
        shift(&mut first, new[0]);
        shift(&mut second, new[1]);
        chip
    };
    let chips: Vec<u8> = (0..GPS.chips).map(chip).collect();
    let octal = chips[..10].iter().fold(0, |word, chip| word << 1 | u32::from(*chip));
    assert_eq!(octal, expected, "PRN {prn}");
    chips.into_iter().map(|chip| 1.0 - 2.0 * f64::from(chip)).collect()
}

impl Signal {
    fn frame_samples(&self) -> usize {
        self.rate_hz as usize / FRAME_RATE_HZ
    }

    fn port(&self) -> PortType {
        let samples = self.frame_samples();
        PortType {
            dtype: Dtype::Cf32,
            axes: vec![Axis::new("sample", samples)],
            clock: Clock::new(self.rate_hz, samples as u64),
            band: None,
            validity: ValidityType::flags(vec![]),
        }
    }

    /// A period of the code at [`POINTS`] points for each chip: its harmonics that a Doppler shift leaves within half of
    /// the rate about the carrier.
    fn filtered(&self, prn: usize, doppler_hz: f64) -> Vec<Complex64> {
        let (chips, len) = (self.chips, self.chips * POINTS);
        let mut spectrum: Vec<Complex64> =
            (self.code)(prn).into_iter().map(Complex64::from).collect();
        forward_f64(chips).process(&mut spectrum);
        let mut table = vec![Complex64::ZERO; len];
        let most = (self.rate_hz / CHIP_RATE_HZ * chips as f64) as i32;
        for k in -most..most {
            let x = f64::from(k) / chips as f64;
            if (doppler_hz + x * CHIP_RATE_HZ).abs() >= self.rate_hz / 2.0 {
                continue;
            }
            let of_code = spectrum[k.rem_euclid(chips as i32) as usize] / chips as f64;
            table[k.rem_euclid(len as i32) as usize] = of_code * (self.of_chip)(x);
        }
        inverse_f64(len).process(&mut table);
        table
    }

    /// Amplitude of a satellite whose samples have noise with a variance of 2.
    fn amplitude(&self, cn0_db_hz: f64) -> f64 {
        (2.0 * 10_f64.powf(cn0_db_hz / 10.0) / self.rate_hz).sqrt()
    }

    /// Frames of noise with a variance of 2, and of the satellites.
    fn frames(&self, satellites: &[Satellite], frames: usize) -> Vec<Plain> {
        let mut random = Random::new(17 + satellites[0].0 as u64);
        let mut samples: Vec<Complex64> = (0..self.frame_samples() * frames)
            .map(|_| random.normal_pair())
            .map(|[re, im]| Complex64::new(re, im))
            .collect();
        let length = self.chips as f64;
        for &(prn, doppler_hz, phase, cn0_db_hz) in satellites {
            let table = self.filtered(prn, doppler_hz);
            let amplitude = self.amplitude(cn0_db_hz);
            let step = CHIP_RATE_HZ * (1.0 + doppler_hz / CARRIER_HZ) / self.rate_hz;
            let periods = (phase + step * samples.len() as f64) / length;
            let symbols: Vec<f64> = (0..periods as usize / self.periods_per_symbol + 2)
                .map(|_| if random.bits() & 1 == 1 { -1.0 } else { 1.0 })
                .collect();
            for (n, sample) in samples.iter_mut().enumerate() {
                let code = phase + step * n as f64;
                let symbol = symbols[(code / length) as usize / self.periods_per_symbol];
                let value = table[(code.rem_euclid(length) * POINTS as f64) as usize];
                let turns = (doppler_hz / self.rate_hz * n as f64).fract();
                *sample += amplitude * symbol * value * Complex64::cis(TAU * turns);
            }
        }
        let frame = |(n, samples): (usize, &[Complex64])| {
            let narrow = samples.iter().map(|z| Complex32::new(z.re as f32, z.im as f32));
            Plain {
                timestamp: (n * samples.len()) as u64,
                validity: vec![1],
                annotations: Annotations::default(),
                payload: bytemuck::cast_slice(&narrow.collect::<Vec<_>>()).to_vec(),
            }
        };
        samples.chunks_exact(self.frame_samples()).enumerate().map(frame).collect()
    }

    /// Searches a frame with the satellites for PRN 1 to 8; returns by how many dB C/N0 is lower according to the warning,
    /// and the output.
    fn acquire(&self, satellites: &[Satellite]) -> (f64, Out) {
        let searched = (1..=8).map(|prn| json!({"system": self.name, "prn": prn}));
        let parameters =
            json!({"satellites": searched.collect::<Vec<_>>(), "every_frames": 100_000});
        let port = self.port();
        let block = connected("gnss_acquisition", "cpu", &parameters, std::slice::from_ref(&port));
        let warnings = block.ok().unwrap().warnings();
        let [warning] = &warnings[..] else { panic!("{} warnings", warnings.len()) };
        let words: Vec<&str> = warning.message.split_whitespace().collect();
        let unit = words.iter().position(|word| *word == "dB").unwrap();
        let stated_db: f64 = words[unit - 1].parse().unwrap();
        let found =
            drive(&kind::<GnssAcquisition>(parameters), &[port], vec![self.frames(satellites, 1)]);
        let rows: Vec<[f64; gnss_acquisition::VALUES]> = found.frames[0].values();
        for (row, prn) in rows.iter().zip(1..) {
            let acquired = Acquired::found(*row);
            let present = satellites.iter().find(|satellite| satellite.0 == prn);
            assert_eq!(acquired.is_some(), present.is_some(), "PRN {prn}: {row:?}");
            let (Some(acquired), Some((_, doppler_hz, phase, _))) = (acquired, present) else {
                continue;
            };
            assert!((acquired.doppler_hz - doppler_hz).abs() < 150.0, "{acquired:?}");
            assert!((acquired.code_phase_chips - phase).abs() < 0.2, "{acquired:?}");
        }
        (stated_db, found)
    }

    /// Tracks a satellite by itself, because others add to its noise; returns its row in each frame. Asserts that it is
    /// locked at the end of each second, and the gauges.
    fn track(
        &self,
        satellite: Satellite,
        found: &Out,
        frames: usize,
    ) -> Vec<[f64; gnss_tracker::VALUES]> {
        let (prn, doppler_hz, phase, _) = satellite;
        // Later frames were not searched.
        let unsearched = (1..frames).map(|n| Plain {
            timestamp: (n * self.frame_samples()) as u64,
            payload: vec![0; found.frames[0].payload.len()],
            ..found.frames[0].clone()
        });
        let acquired = found.frames[..1].iter().cloned().chain(unsearched).collect();
        let frames = vec![self.frames(&[satellite], frames), acquired];
        let inputs = [self.port(), found.port.clone()];
        let tracked = drive(&kind::<GnssTracker>(json!({})), &inputs, frames);
        let row = |frame: &Plain| frame.values::<[f64; gnss_tracker::VALUES]>()[prn - 1];
        let rows: Vec<_> = tracked.frames.iter().map(row).collect();
        for (second, row) in
            (1_i32..).zip(rows.iter().skip(FRAME_RATE_HZ - 1).step_by(FRAME_RATE_HZ))
        {
            assert!((row[2] - 1.0).abs() < 1e-9, "locked: {row:?}");
            assert!((row[4] - doppler_hz).abs() < 5.0, "{row:?}");
            let length = self.chips as f64;
            let code = phase + CHIP_RATE_HZ * (1.0 + doppler_hz / CARRIER_HZ) * f64::from(second);
            let apart = (row[5] - code + length / 2.0).rem_euclid(length) - length / 2.0;
            assert!(apart.abs() < 0.05, "{apart} chips: {row:?}");
        }
        let last = rows[rows.len() - 1];
        for other in 1..=8 {
            let label = format!("{}{other:02}", self.letter);
            let gauge = |name: &str| {
                let gauges = tracked.counters.gauges();
                let is_it = |label_of: &Option<(&str, String)>| {
                    label_of.as_ref().is_some_and(|of| (of.0, &of.1) == ("satellite", &label))
                };
                let named = gauges.iter().find(|named| named.name == name && is_it(&named.label));
                named.unwrap_or_else(|| panic!("{name} of {label}")).gauge.get()
            };
            let is_here = other == prn;
            assert_eq!(gauge("satellite_locked"), Some(f64::from(u8::from(is_here))), "{label}");
            if is_here {
                assert_eq!(["cn0_db_hz", "doppler_hz"].map(gauge), [Some(last[3]), Some(last[4])]);
            }
        }
        rows
    }
}

#[test]
fn gps_at_2_mega_samples_is_found_and_tracked_with_the_stated_loss() {
    let (stated_db, found) = GPS.acquire(&GPS_SATELLITES);
    let mut losses = Vec::new();
    for satellite in GPS_SATELLITES {
        let rows = GPS.track(satellite, &found, 3 * FRAME_RATE_HZ);
        // C/N0 is a mean over half a second: values a second apart are independent.
        let of_seconds = rows.iter().skip(FRAME_RATE_HZ - 1).step_by(FRAME_RATE_HZ);
        losses.extend(of_seconds.map(|row| satellite.3 - row[3]));
    }
    let count = losses.len() as f64;
    let mean = losses.iter().sum::<f64>() / count;
    let variance = losses.iter().map(|loss| (loss - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let uncertainty = (variance / count).sqrt();
    // The statement is rounded to 0.1 dB.
    assert!(uncertainty < 0.15, "{losses:?}");
    assert!(
        (mean - stated_db).abs() < 3.0 * uncertainty + 0.05,
        "{mean:.2} +- {uncertainty:.2} dB instead of {stated_db}: {losses:?}"
    );
}

#[test]
fn galileo_at_4_mega_samples_is_found_and_tracked_with_the_stated_loss() {
    let (stated_db, found) = GALILEO.acquire(&GALILEO_SATELLITES);
    // 79.94 % of the power of CBOC is within 2 MHz of the carrier: integral of its density, computed in Python.
    let expected_db = -20.0 * 0.7994_f64.log10();
    assert!((stated_db - expected_db).abs() < 0.051, "{stated_db} dB instead of {expected_db}");
    let period_samples = 0.004 * GALILEO.rate_hz;
    let mut mean_db = 0.0;
    for satellite in GALILEO_SATELLITES {
        let rows = GALILEO.track(satellite, &found, 2 * FRAME_RATE_HZ);
        let settled = &rows[FRAME_RATE_HZ..];
        let power = settled.iter().map(|row| row[7].powi(2) + row[8].powi(2)).sum::<f64>();
        // The sum over a period has the noise of all of its samples.
        let of_signal = power / settled.len() as f64 - 2.0 * period_samples;
        let part = of_signal.sqrt() / (period_samples * GALILEO.amplitude(satellite.3));
        mean_db -= 20.0 * part.log10() / GALILEO_SATELLITES.len() as f64;
        let cn0_db_hz = rows[rows.len() - 1][3];
        assert!((cn0_db_hz - satellite.3 + expected_db).abs() < 1.5, "{cn0_db_hz} dB Hz");
    }
    // At 45 dB Hz a sum has 126 times the power of its noise, so the mean of 100 sums is uncertain by 0.06 dB.
    assert!((mean_db - expected_db).abs() < 0.2, "{mean_db} dB instead of {expected_db}");
}
