//! Signals with a known answer.
#![allow(clippy::unwrap_used)]

use super::cpu::Digitiser;
use super::*;
use fxgraph::Next;
use fxgraph::edge::Harness;
use fxgraph::{Env, Ports};
use num_complex::Complex64;
use serde_json::{Value, json};
use std::f64::consts::TAU;
use std::time::Duration;

fn parameters(mut json: Value) -> DigitiserSimulator {
    let defaults = [
        ("samples_per_frame", json!(1024)),
        ("samples_per_heap", json!(256)),
        ("period_samples", json!(4096)),
        ("adc_sample_rate_hz", json!(4096.0)),
        ("frames", json!(4)),
    ];
    for (key, value) in defaults {
        json.as_object_mut().unwrap().entry(key).or_insert(value);
    }
    serde_json::from_value(json).unwrap()
}

#[test]
fn start_tells_which_polarisation_is_computed() {
    let parameters = parameters(json!({"signals": "wgn(0.1)"}));
    let told = std::cell::RefCell::new(Vec::new());
    let program = parameters.program().unwrap();
    Periods::new(&parameters, &program, |polarisation| told.borrow_mut().push(polarisation));
    assert_eq!(*told.borrow(), [0, 1]);
}

/// Unpacks bit by bit, slowly and independently of the implementation.
fn unpack(bytes: &[u8], bits: usize) -> Vec<i64> {
    let bit = |i: usize| i64::from(bytes[i / 8] >> (7 - i % 8) & 1);
    let value = |n: usize| (0..bits).fold(0i64, |v, i| v << 1 | bit(n * bits + i));
    let signed = |v: i64| if v >> (bits - 1) == 1 { v - (1 << bits) } else { v };
    (0..bytes.len() * 8 / bits).map(|n| signed(value(n))).collect()
}

/// Returns all samples of both polarisations.
fn run(parameters: &DigitiserSimulator) -> [Vec<i64>; 2] {
    let ports = Ports { inputs: vec![], outputs: parameters.outputs(&[]).unwrap() };
    let program = parameters.program().unwrap();
    let block = Digitiser::new(parameters.clone(), program, &Env::detached("dig"));
    let mut harness = Harness::new(Box::new(block), &ports, 2).unwrap();
    Harness::block_on(harness.start()).unwrap();
    let mut samples = [vec![], vec![]];
    let FirstTimestamp::At(first) = parameters.first_timestamp else { panic!("no timestamp") };
    loop {
        let next = Harness::block_on(harness.run()).unwrap();
        for (pol, samples) in samples.iter_mut().enumerate() {
            while let Some(frame) = harness.receive(pol) {
                assert!(frame.header().validity.iter().all(|v| *v == 1));
                let at = samples.len() as u64 + first;
                assert_eq!(frame.header().timestamp, at);
                samples.extend(unpack(frame.as_slice().unwrap(), usize::from(parameters.bits)));
            }
        }
        if next == Next::Finished {
            return samples;
        }
    }
}

#[test]
fn tone_without_dither_is_the_rounded_cosine_at_every_width() {
    for bits in [2u8, 3, 7, 8, 10, 12, 16] {
        let text = "nodither(cw(0.9, 129.4)); nodither(cw(2, 3))";
        let [pol0, pol1] = run(&parameters(json!({"signals": text, "bits": bits})));
        let full = f64::from((1i32 << (bits - 1)) - 1);
        let expected = |t: usize, a: f64, cycles: f64| {
            (a * full * (TAU * cycles * t as f64 / 4096.0).cos()).clamp(-full, full)
        };
        assert_eq!(pol0.len(), 4096);
        for t in 0..4096 {
            // 129.4 Hz is rounded to 129 whole cycles of the period.
            assert!((pol0[t] as f64 - expected(t, 0.9, 129.0)).abs() < 0.5001, "{bits} {t}");
            assert!((pol1[t] as f64 - expected(t, 2.0, 3.0)).abs() < 0.5001);
        }
    }
}

#[test]
fn frames_are_seamless_from_any_timestamp_and_over_short_periods() {
    let text = "nodither(cw(0.5, 16)); nodither(comb(1, 32))";
    let [whole, comb] = run(&parameters(json!({"signals": text, "frames": 8})));
    assert_eq!(whole[..4096], whole[4096..]);
    let later = parameters(json!({"signals": text, "first_timestamp": 2048, "frames": 2}));
    assert_eq!(run(&later)[0], whole[2048..4096]);
    let short = parameters(json!({"signals": text, "period_samples": 256, "frames": 8}));
    assert_eq!(run(&short)[0], whole);
    assert_eq!(comb.iter().step_by(128).sum::<i64>(), comb.iter().sum::<i64>());
    assert_eq!(comb[..128].iter().sum::<i64>(), 511);
}

#[test]
fn noise_has_its_level_and_is_shared_only_with_a_seed() {
    let run_of = |antenna: usize, text: &str| {
        run(&parameters(
            json!({"signals": text, "antenna": antenna, "frames": 64, "period_samples": 65536}),
        ))
    };
    let correlation = |a: &[i64], b: &[i64]| {
        let dot = |x: &[i64], y: &[i64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<i64>() as f64;
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    let a = run_of(0, "wgn(0.1)");
    let power = a[0].iter().map(|v| v * v).sum::<i64>() as f64 / a[0].len() as f64;
    assert!((power.sqrt() / 51.1 - 1.0).abs() < 0.02);
    assert!(correlation(&a[0], &a[1]).abs() < 0.02);
    assert!(correlation(&a[0], &run_of(1, "wgn(0.1)")[0]).abs() < 0.02);
    let shared = |antenna| run_of(antenna, "wgn(0.1, 5)");
    assert!(correlation(&shared(0)[0], &shared(1)[0]) > 0.99);
    let same = run_of(0, "n = wgn(0.1); n; n");
    assert!(correlation(&same[0], &same[1]) > 0.99);
}

#[test]
fn fractional_delay_turns_phases_by_the_exact_slope() {
    let delay = 3.3;
    let text =
        format!("x = 1.5 * multicw(4, 0.1, 0, 300, 400); nodither(x); nodither(delay(x, {delay}))");
    let [plain, delayed] = run(&parameters(json!({"signals": text, "bits": 16})));
    for tone in [300, 700, 1100, 1500] {
        let line = |signal: &[i64]| -> Complex64 {
            let turn = |t: usize| -TAU * ((tone * t) % 4096) as f64 / 4096.0;
            signal.iter().enumerate().map(|(t, v)| Complex64::cis(turn(t)) * *v as f64).sum()
        };
        let ratio = line(&delayed) / line(&plain);
        let expected = Complex64::cis(-TAU * f64::from(tone as u32) / 4096.0 * delay);
        assert!((ratio - expected).norm() < 1e-3, "{tone}: {ratio} {expected}");
    }
}

#[test]
fn source_is_received_with_the_geometric_delay_of_each_antenna() {
    // A distance of 1 m, which is 4.25 samples at this rate.
    let rate = 4.25 * fxgraph_dsp::geometry::SPEED_OF_LIGHT;
    let see = |antenna: usize, polarised: f64| {
        run(&parameters(json!({
            "bits": 16, "antenna": antenna, "adc_sample_rate_hz": rate,
            "antennas_enu_metres": [[0, 0, 0], [1, 0, 0]],
            "source": {"azimuth_degrees": 90.0, "elevation_degrees": 0.0, "amplitude": 0.1,
                "seed": 3, "polarised_fraction": polarised},
        })))
    };
    let (origin, east) = (see(0, 0.0), see(1, 0.0));
    for (a, b) in [(&origin[0], &east[0]), (&origin[1], &east[1])] {
        for k in [100usize, 901, 1777] {
            // The source's own spectrum cancels in the quotient.
            let line = |signal: &[i64]| -> Complex64 {
                let turn = |t: usize| -TAU * ((k * t) % 4096) as f64 / 4096.0;
                signal.iter().enumerate().map(|(t, v)| Complex64::cis(turn(t)) * *v as f64).sum()
            };
            // The eastern antenna is nearer to the source and receives the wave 4.25 samples earlier.
            let expected = Complex64::cis(TAU * k as f64 / 4096.0 * 4.25);
            assert!((line(b) / line(a) - expected).norm() < 0.02);
        }
    }
    let cross = |s: &[Vec<i64>; 2]| {
        let dot = |x: &[i64], y: &[i64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<i64>() as f64;
        dot(&s[0], &s[1]) / dot(&s[0], &s[0])
    };
    assert!(cross(&origin).abs() < 0.1);
    assert!((cross(&see(0, 1.0)) - 1.0).abs() < 0.01);
}

#[test]
fn duration_is_rounded_up_to_whole_frames() {
    let p = parameters(json!({"duration_seconds": 0.6}));
    assert_eq!(p.frame_limit(), Some(3));
    assert_eq!(run(&p)[1].len(), 3 * 1024);
}

#[test]
fn streams_with_first_timestamp_now_agree_on_the_time() {
    let unix = || {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64()
    };
    // A frame each millisecond, and a sync time a while ago.
    let sync_time = (unix() - 1e6).floor();
    let rate = 1_024_000.0;
    let frames = |delay: Duration| {
        std::thread::sleep(delay);
        let parameters = parameters(json!({
            "signals": "wgn(0.1, 3); cw(0.3, 17000)", "first_timestamp": "now", "paced": true,
            "sync_time_seconds": sync_time, "adc_sample_rate_hz": rate, "frames": 60,
        }));
        let ports = Ports { inputs: vec![], outputs: parameters.outputs(&[]).unwrap() };
        let block = parameters.build(&ports.inputs, &Env::detached("dig")).unwrap();
        let mut harness = Harness::new(block, &ports, 64).unwrap();
        Harness::block_on(harness.start()).unwrap();
        let began = (unix() - sync_time) * rate;
        assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
        let ended = (unix() - sync_time) * rate;
        let frames: Vec<(u64, Vec<u8>)> = std::iter::from_fn(|| harness.receive(1))
            .map(|frame| (frame.header().timestamp, frame.as_slice::<u8>().unwrap().to_vec()))
            .collect();
        // No frame left before its last sample was taken.
        assert!(frames[0].0 as f64 >= began && (frames[59].0 + 1024) as f64 <= ended + 1.0);
        assert!(frames.iter().all(|(timestamp, _)| timestamp.is_multiple_of(1024)));
        frames
    };
    let first = frames(Duration::ZERO);
    let second = frames(Duration::from_millis(7));
    // The period of 4096 samples is 4 frames.
    for (timestamp, payload) in &second {
        let same = first.iter().find(|(t, _)| t % 4096 == timestamp % 4096).unwrap();
        assert_eq!(*payload, same.1);
    }
}

#[test]
fn first_timestamp_now_rejects_a_sync_time_in_the_future() {
    let parameters = parameters(json!({"first_timestamp": "now", "sync_time_seconds": 4e9}));
    let ports = Ports { inputs: vec![], outputs: parameters.outputs(&[]).unwrap() };
    let block = parameters.build(&ports.inputs, &Env::detached("dig")).unwrap();
    let mut harness = Harness::new(block, &ports, 2).unwrap();
    Harness::block_on(harness.start()).unwrap();
    let error = Harness::block_on(harness.run()).unwrap_err().to_string();
    assert!(error.contains("sync_time_seconds is in the future"), "{error}");
    let bad = serde_json::from_value::<DigitiserSimulator>(json!({"first_timestamp": "then"}));
    assert!(bad.unwrap_err().to_string().contains("or `now`"));
}

#[test]
fn bad_parameters_are_all_reported_at_once_with_help() {
    let bad = parameters(json!({
        "bits": 11, "samples_per_frame": 1000, "period_samples": 3000, "first_timestamp": 1,
        "signals": "cw(1, 2); cww(1)", "adc_sample_rate_hz": 0.0, "duration_seconds": -1.0, "catch_up": 0.5,
        "source": {"azimuth_degrees": 0, "elevation_degrees": 0, "amplitude": 1, "polarised_fraction": 2},
    }));
    let rejections = bad.outputs(&[]).unwrap_err();
    let at: Vec<_> = rejections.iter().map(|r| r.at.clone()).collect();
    for parameter in [
        "bits",
        "samples_per_frame",
        "first_timestamp",
        "signals",
        "adc_sample_rate_hz",
        "duration_seconds",
        "catch_up",
        "antenna",
        "source.polarised_fraction",
    ] {
        assert!(at.contains(&At::Parameter(parameter)), "{parameter} in {at:?}");
    }
    let signals = rejections.iter().find(|r| r.at == At::Parameter("signals")).unwrap();
    assert_eq!(signals.label, "at `cww`, column 11 of the text");
    let huge = parameters(json!({
        "samples_per_frame": u64::MAX, "samples_per_heap": u64::MAX, "period_samples": u64::MAX,
    }));
    assert!(huge.outputs(&[]).is_err());
    let long =
        parameters(json!({"samples_per_frame": u64::MAX - 4095, "period_samples": u64::MAX - 7}));
    let told = long.outputs(&[]).unwrap_err();
    for parameter in ["`samples_per_frame` must be at most", "`period_samples` must be at most"] {
        assert!(told.iter().any(|one| one.message.contains(parameter)), "{told:?}");
    }
    let zero =
        parameters(json!({"samples_per_frame": 0, "samples_per_heap": 0, "period_samples": 0}));
    assert!(zero.outputs(&[]).is_err());
}

#[test]
fn moving_source_turns_and_shifts_with_its_delay() {
    let generator = || generate::Generator::new(1 << 16, 1e6, 0);
    let (len, late, rate, oscillator_hz) = (1 << 16, 3.7, 2.3e-6, 1.234e9);
    for cycles in [1000.0, 20_000.0, 32_000.0] {
        let turns = |t: f64| cycles * t / f64::from(len);
        let mut signal: Vec<f64> = (0..len).map(|t| (TAU * turns(f64::from(t))).cos()).collect();
        generator().receive(&mut signal, late, rate, oscillator_hz);
        for (t, got) in signal.iter().enumerate() {
            let late = late + rate * t as f64;
            let phase = turns(t as f64 - late) - oscillator_hz / 1e6 * late;
            let want = (TAU * phase.fract()).cos();
            assert!((got - want).abs() < 1e-4, "{cycles} at {t}: {got} {want}");
        }
    }
    let fast = parameters(json!({
        "antennas_enu_metres": [[1e6, 0, 0]],
        "source": {"azimuth_degrees": 0, "elevation_degrees": 45, "amplitude": 0.1,
            "azimuth_rate_degrees_per_second": 10},
    }));
    assert_eq!(fast.outputs(&[]).unwrap_err().len(), 1, "too fast for its period");
}

#[test]
fn frame_sizes_of_a_paced_stream_fit_period_and_first_timestamp() {
    let sizes = |json: Value| {
        let parameters: DigitiserSimulator = serde_json::from_value(json).unwrap();
        parameters.frame_sizes().map(|frame| frame.sizes)
    };
    assert_eq!(sizes(json!({})), None, "not in real time");
    assert_eq!(sizes(json!({"paced": true, "frames": 4})), None, "its frames are counted");
    // Powers of two divide the period of 2^20 or are its multiples, up to 32 MiB of 10 bits.
    let all: Vec<u64> = (12..=24).map(|power| 1 << power).collect();
    assert_eq!(sizes(json!({"paced": true})), Some(all));
    // 12288 = 3 x 4096; the first timestamp has the factor 2^13.
    let odd = json!({"paced": true, "period_samples": 12288, "first_timestamp": 24576});
    assert_eq!(sizes(odd), Some(vec![4096]));
    assert_eq!(sizes(json!({"paced": true, "period_samples": 12280})), Some(vec![]));
}
