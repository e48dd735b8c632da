//! Complex samples, in both sidebands, against the equations in double precision.

use super::filter_tests::low_pass;
use super::{Ddc, HEAP_SAMPLES};
use crate::f_engine::fft::Fft;
use crate::f_engine::pfb::Pfb;
use crate::tests::chain::{self, Out, Plain, kind, then};
use fxgraph::frame::Annotations;
use fxgraph::{Axis, Band, Clock, Configured, Dtype, KindSpec, PortType, ValidityType};
use fxgraph_dsp::low_pass::Mode;
use fxgraph_dsp::random::Random;
use num_complex::{Complex32, Complex64};
use serde_json::{Value, json};
use std::f64::consts::TAU;

/// Rate of the samples, and frequency on the sky at their 0 Hz.
const RATE_HZ: u64 = 4_000_000;
const SKY_HZ: f64 = 1e9;
const FRAME: usize = 2048;

/// Input of samples that take `ticks` ticks of the clock each.
fn port(ticks: u64, signed_width_hz: f64) -> PortType {
    PortType {
        dtype: Dtype::Cf32,
        axes: vec![Axis::new("sample", FRAME)],
        clock: Clock::new((RATE_HZ * ticks) as f64, FRAME as u64 * ticks),
        band: Some(Band::signed(1, 0, SKY_HZ, signed_width_hz)),
        validity: ValidityType::flags(vec![Axis::new("heap", 4)]),
    }
}

/// Runs `ddc` over `samples`, the first of which is sample `start` of the clock.
fn ddc(parameters: Value, port: &PortType, start: u64, samples: &[Complex64]) -> Out {
    let ticks = port.samples_per("sample").unwrap();
    let frame = |(f, samples): (usize, &[Complex64])| Plain {
        timestamp: (start + (f * FRAME) as u64) * ticks,
        validity: vec![1; 4],
        annotations: Annotations::default(),
        payload: samples
            .iter()
            .flat_map(|z| [z.re as f32, z.im as f32])
            .flat_map(f32::to_ne_bytes)
            .collect(),
    };
    let frames = samples.chunks_exact(FRAME).enumerate().map(frame).collect();
    chain::drive(&kind::<Ddc>(parameters), std::slice::from_ref(port), vec![frames])
}

fn noise(len: usize) -> Vec<Complex64> {
    let mut random = Random::new(17);
    let number = |x: f64| f64::from(x as f32);
    let sample = |_| {
        let [re, im] = random.normal_pair();
        Complex64::new(number(re), number(im))
    };
    (0..len).map(sample).collect()
}

/// exp(-2 pi i f t) for sample `t`, with the phase reduced to one turn in integer arithmetic.
fn oscillator(hz: i64, t: u64) -> Complex64 {
    let turns = (i128::from(hz) * i128::from(t)).rem_euclid(i128::from(RATE_HZ)) as f64;
    Complex64::cis(-TAU * turns / RATE_HZ as f64)
}

#[test]
fn complex_samples_agree_with_double_precision_in_both_sidebands() {
    let samples = noise(24 * FRAME);
    let day = RATE_HZ * 86_400 * 3 / 65_536 * 65_536;
    for (mode, decimation, subsampling, taps, ticks, hz, start) in [
        ("discard", 16, 8, 128, 1, -1_234_567, 0),
        ("discard", 4, 2, 32, 1, 777_777, day),
        ("discard", 6, 3, 50, 2, 0, 0),
        ("no_discard", 5, 5, 80, 1, -1_500_000, day),
        ("no_discard", 2, 2, 24, 4, 999_999, day),
    ] {
        for sign in [1.0, -1.0] {
            let input = port(ticks, sign * RATE_HZ as f64);
            let parameters = json!({
                "centre_hz": hz, "decimation": decimation, "mode": mode, "taps": taps,
                "samples_per_frame": 512, "threads": 2,
            });
            let out = ddc(parameters, &input, start, &samples);
            assert_eq!(out.port.samples_per("sample"), Some(subsampling * ticks));
            let band = out.port.band.unwrap();
            assert!((band.centre_hz - SKY_HZ - sign * hz as f64).abs() < 1e-6, "{band:?}");
            let width_hz = RATE_HZ as f64 / subsampling as f64;
            assert!((band.signed_bandwidth_hz() - sign * width_hz).abs() < 1e-6, "{band:?}");
            let mode = if mode == "discard" { Mode::Discard } else { Mode::NoDiscard };
            let weights = low_pass(mode, subsampling as usize, taps).weights().unwrap();
            let mut compared = 0;
            for frame in &out.frames {
                for (j, y) in frame.values::<Complex32>().iter().enumerate() {
                    if frame.validity[j / HEAP_SAMPLES] == 0 {
                        continue;
                    }
                    let t = frame.timestamp / ticks + j as u64 * subsampling;
                    let x = &samples[(t - start) as usize..];
                    let term = |(k, h): (usize, &f64)| oscillator(hz, t + k as u64) * x[k] * *h;
                    let expected: Complex64 = weights.iter().enumerate().map(term).sum();
                    let apart = Complex64::new(f64::from(y.re), f64::from(y.im)) - expected;
                    assert!(apart.norm() < 2e-5, "S {subsampling}, {t}: {y} {expected}");
                    compared += 1;
                }
            }
            let heaps = (samples.len() - taps) / (subsampling as usize * HEAP_SAMPLES);
            assert!(compared >= (heaps - 1) * HEAP_SAMPLES, "{compared}");
        }
    }
}

#[test]
fn wave_on_the_sky_is_in_its_channel_in_both_sidebands() {
    let (channels, centre_hz) = (64, -900_000.0);
    for offset_hz in [-60_000.0, 0.0, 103_000.0] {
        for sign in [1.0, -1.0] {
            // A wave at this frequency on the sky; an inverted spectrum has its conjugate.
            let sky_hz = SKY_HZ + sign * centre_hz + offset_hz;
            let turns = |t: usize| sign * (sky_hz - SKY_HZ) * t as f64 / RATE_HZ as f64;
            let wave: Vec<Complex64> =
                (0..1 << 16).map(|t| Complex64::cis(TAU * turns(t).fract())).collect();
            let parameters =
                json!({"centre_hz": centre_hz, "decimation": 16, "samples_per_frame": 512});
            let narrow = ddc(parameters, &port(1, sign * RATE_HZ as f64), 0, &wave);
            let filter = json!({"channels": channels, "taps": 4, "spectra_per_frame": 4});
            let out = then::<Fft>(json!({}), then::<Pfb>(filter, narrow));
            let band = out.port.band.unwrap();
            let spectra = chain::spectra(&out);
            let valid: Vec<_> = spectra[0].iter().filter(|spectrum| spectrum.1).collect();
            assert!(valid.len() > 20);
            for (t, _, spectrum) in valid {
                let power = |k: &usize| spectrum[*k].norm();
                let strongest = (0..channels).max_by(|a, b| power(a).total_cmp(&power(b))).unwrap();
                let apart_hz = band.channel_hz(strongest) - sky_hz;
                assert!(apart_hz.abs() <= 0.5 * band.step_hz().abs(), "{t}: {apart_hz} Hz {sign}");
            }
        }
    }
}

#[test]
#[allow(clippy::float_cmp, reason = "values are exact")]
fn tuned_band_gives_the_place_of_each_value_in_both_sidebands() {
    let connected = |centre_hz: f64, port: &PortType| {
        let ddc = kind::<Ddc>(json!({"centre_hz": centre_hz, "decimation": 8}));
        Configured::new(ddc, std::slice::from_ref(port)).unwrap()
    };
    for width_hz in [4e6, -4e6] {
        let port = port(1, width_hz);
        let block = connected(300e3, &port);
        let (tuned, band) =
            (Ddc::tuned_band(&block).unwrap(), block.ports.outputs[0].band.unwrap());
        assert_eq!(
            (tuned.parameter, tuned.value_hz, tuned.bandwidth_hz),
            ("centre_hz", 300e3, 5e5)
        );
        for value_hz in [-1e6, 0.0, 123_456.0] {
            let other = connected(value_hz, &port).ports.outputs[0].band.unwrap();
            assert_eq!(tuned.in_band(&band, value_hz), other.centre_hz);
        }
        let edges = tuned.edges_hz.map(|hz| tuned.in_band(&band, hz) - SKY_HZ);
        assert_eq!(edges, [-width_hz / 2.0, width_hz / 2.0]);
    }
    let real = PortType { dtype: Dtype::I16, band: None, ..port(1, 4e6) };
    let tuned = Ddc::tuned_band(&connected(300e3, &real)).unwrap();
    assert_eq!((tuned.edges_hz, tuned.bandwidth_hz), ([0.0, 2e6], 2.5e5));
}

#[test]
fn ddc_rejects_bands_beyond_complex_samples() {
    let input = port(1, RATE_HZ as f64);
    let first = |parameters: Value| {
        let ddc = kind::<Ddc>(parameters);
        let rejections = KindSpec::outputs(&ddc, std::slice::from_ref(&input)).unwrap_err();
        assert_eq!(rejections.len(), 1, "{rejections:?}");
        rejections[0].clone()
    };
    let outside = first(json!({"centre_hz": -1.9e6, "decimation": 16}));
    assert_eq!(
        outside.message,
        "a band of 250000 Hz around -1900000 Hz is not within -2000000 to 2000000 Hz"
    );
    assert_eq!(outside.help.unwrap(), "set `centre_hz` between -1875000 and 1875000");
    for (mode, decimation, rule) in [
        ("discard", 2, "an even number from 4 to 128"),
        ("discard", 7, "an even number from 4 to 128"),
        ("no_discard", 1, "a number from 2 to 64"),
        ("no_discard", 65, "a number from 2 to 64"),
    ] {
        let rejected = first(json!({"centre_hz": 0.0, "decimation": decimation, "mode": mode}));
        assert_eq!(rejected.message, format!("`decimation` must be {rule}, got {decimation}"));
    }
}
