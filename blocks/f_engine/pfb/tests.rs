use super::Pfb;
use crate::f_engine::samples::power::{Level, Measured};
use crate::tests::chain::{self, Digitised, Out, RATE_HZ, filtered, kind, noise, pfb};
use fxgraph::edge::Harness;
use fxgraph::event::Events;
use fxgraph::{Configured, Dtype, Env, KindSpec, PortType, TimeBase};
use fxgraph_dsp::polyphase::{Window, weights};
use serde_json::json;
use std::sync::Arc;

/// Spectra by polarisation: timestamp, validity, filtered samples.
fn rows(out: &Out) -> Vec<Vec<(u64, bool, Vec<f32>)>> {
    let pols = out.port.axis_len("pol").unwrap();
    let per_frame = out.port.axis_len("spectrum").unwrap();
    let step = out.port.samples_per("spectrum").unwrap() as usize;
    let mut all = vec![Vec::new(); pols];
    for frame in &out.frames {
        assert_eq!(frame.timestamp % (per_frame * step) as u64, 0, "absolute multiples");
        let values: Vec<f32> = frame.values();
        for (i, row) in values.chunks_exact(step).enumerate() {
            let t = frame.timestamp + (i % per_frame * step) as u64;
            all[i / per_frame].push((t, frame.validity[i] == 1, row.to_vec()));
        }
    }
    all
}

fn table(out: &Out, name: &str) -> Vec<f64> {
    let mut sums: Vec<f64> = Vec::new();
    for frame in &out.frames {
        let values = frame.annotations.get(name);
        sums.resize(values.len(), 0.0);
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums
}

#[test]
fn weights_follow_their_formula_and_have_unit_energy() {
    for (window, hann) in [(Window::Hann, true), (Window::Rect, false)] {
        for cutoff in [0.0, 0.7, 1.0] {
            let got = weights(64, 16, window, cutoff);
            let expected = chain::weights(64, 16, hann, cutoff);
            let close = got.iter().zip(&expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-8);
            assert!(close, "{window:?} {cutoff}");
            let energy: f64 = got.iter().map(|w| f64::from(*w).powi(2)).sum();
            assert!((energy - 1.0).abs() < 1e-6);
        }
    }
}

#[test]
fn default_frame_size_depends_on_device() {
    let port = |samples| Digitised { frame_samples: samples, ..Digitised::new(vec![]) }.port();
    for (channels, cpu, cuda) in [(64, 256, 8192), (1024, 64, 2048), (32768, 16, 64)] {
        for (implementation, spectra) in [("cpu", cpu), ("cuda", cuda)] {
            let given = [(None, spectra), (Some(20), 20)];
            for (spectra_per_frame, expected) in given {
                let parameters =
                    json!({"channels": channels, "spectra_per_frame": spectra_per_frame});
                let inputs = [port(4096), port(4096)];
                let block = chain::connected("pfb", implementation, &parameters, &inputs).unwrap();
                let made = &block.ports().outputs;
                assert_eq!(made[0].axis_len("spectrum"), Some(expected), "{implementation}");
            }
        }
    }
}

#[test]
fn impulse_response_is_the_weights() {
    let (step, taps, at) = (16, 4, 16 * 10 + 5);
    let mut samples = vec![0; 1024];
    samples[at] = 100;
    let out = pfb(
        json!({"channels": 8, "taps": taps, "spectra_per_frame": 4}),
        &[Digitised::new(samples)],
    );
    let w = chain::weights(step, taps, true, 1.0);
    for (t, valid, row) in &rows(&out)[0] {
        for (s, y) in row.iter().enumerate() {
            let i = at as i64 - *t as i64;
            let hit = *valid && (0..(step * taps) as i64).contains(&i) && i as usize % step == s;
            let expected = if hit { 100.0 * w[i as usize] } else { 0.0 };
            assert!((f64::from(*y) - expected).abs() < 1e-4, "t {t} s {s}: {y} {expected}");
        }
    }
}

#[test]
fn output_agrees_with_double_precision_for_all_widths_and_sizes() {
    let widths = fxgraph_dsp::packed::WIDTHS.into_iter().map(|bits| (bits, 16, 8));
    let sizes = [
        (10, 4, 16),
        (10, 64, 1),
        (10, 256, 16),
        (12, 32, 3),
        (10, 10, 5),
        (7, 30, 3),
        (10, 1000, 2),
    ];
    for (bits, channels, taps) in widths.chain(sizes) {
        let samples = noise(u64::from(bits), 16384, f64::from(1 << (bits - 1)) / 3.0, bits);
        let pol = Digitised { bits, ..Digitised::new(samples.clone()) };
        let out = pfb(json!({"channels": channels, "taps": taps, "spectra_per_frame": 8}), &[pol]);
        let step = 2 * channels;
        let w = chain::weights(step, taps, true, 1.0);
        let mut compared = 0;
        for (t, valid, row) in rows(&out)[0].iter().filter(|(_, valid, _)| *valid) {
            let expected = filtered(&samples[*t as usize..], &w, step);
            for (y, e) in row.iter().zip(&expected) {
                let tolerance = 1e-5 * e.abs() + 1e-6 * f64::from(1_u32 << bits);
                assert!((f64::from(*y) - e).abs() <= tolerance, "{bits} bits: {y} {e}");
            }
            compared += usize::from(*valid);
        }
        assert_eq!(compared, 16384 / step - taps + 1);
    }
}

#[test]
fn unzip_splits_pairs_into_interleaved_series() {
    let pol = Digitised::new(noise(1, 8192, 100.0, 10));
    let parameters = |n: usize| json!({"channels": 64, "spectra_per_frame": 8, "unzip": n});
    let plain = rows(&pfb(parameters(1), std::slice::from_ref(&pol)));
    for n in [2, 4, 16] {
        let out = pfb(parameters(n), std::slice::from_ref(&pol));
        assert_eq!(out.port.dtype, Dtype::Cf32);
        for ((_, _, plain), (_, _, row)) in plain[0].iter().zip(&rows(&out)[0]) {
            for i in 0..64 {
                let at = 2 * ((i % n) * (64 / n) + i / n);
                assert_eq!(row[at..at + 2], plain[2 * i..2 * i + 2]);
            }
        }
    }
}

#[test]
fn window_starts_at_timestamp_minus_coarse_delay() {
    let samples: Vec<i16> = (0..8192).map(|i| (i * 37 % 1000 - 500) as i16).collect();
    let delay = json!([[{"delay_samples": 5.4}], [
        {"delay_samples": -17.0}, {"start_samples": 4000, "delay_samples": 30.5}
    ]]);
    let out = pfb(
        json!({"channels": 16, "taps": 1, "w_cutoff": 0, "window": "rect",
            "spectra_per_frame": 16, "delays": delay}),
        &[Digitised::new(samples.clone()), Digitised::new(samples.clone())],
    );
    let w = chain::weights(32, 1, false, 0.0);
    for (pol, rows) in rows(&out).iter().enumerate() {
        for (t, valid, row) in rows {
            let coarse = if pol == 0 {
                5
            } else if *t < 4000 {
                -17
            } else {
                30
            };
            let from = *t as i64 - coarse;
            let is_there = from >= 0 && from + 32 <= 8192;
            assert_eq!(*valid, is_there, "pol {pol} t {t}");
            if is_there {
                let expected = filtered(&samples[from as usize..], &w, 32);
                assert!(row.iter().zip(&expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-3));
            }
        }
    }
    let fine = out.frames[0].annotations.get("fine_delay_samples");
    assert!((fine[0] - 0.4).abs() < 1e-9 && fine[16].abs() < 1e-9);
    let phase = out.frames[0].annotations.get("phase_turns");
    assert!((phase[0] - 0.25).abs() < 1e-9 && (phase[16] - 0.75).abs() < 1e-9);
}

#[test]
fn missing_heap_invalidates_exactly_the_overlapping_spectra() {
    let (step, taps) = (32, 4);
    let samples = noise(2, 16384, 100.0, 10);
    let good = Digitised::new(samples.clone());
    let mut bad = good.clone();
    bad.lost_heaps = vec![9, 10, 40];
    bad.lost_frames = vec![5, 6];
    let out =
        pfb(json!({"channels": 16, "taps": taps, "spectra_per_frame": 16}), &[good, bad.clone()]);
    let is_lost =
        |i: usize| bad.lost_heaps.contains(&(i / 256)) || bad.lost_frames.contains(&(i / 1024));
    let rows = rows(&out);
    let mut lost = 0;
    for (pol, rows) in rows.iter().enumerate() {
        for (t, valid, row) in rows {
            let window = *t as usize..*t as usize + step * taps;
            let touches = pol == 1 && window.clone().any(is_lost);
            let expected = window.end <= samples.len() && !touches;
            assert_eq!(*valid, expected, "pol {pol} t {t}");
            assert!(*valid || row.iter().all(|y| *y == 0.0), "invalid spectra are zero");
            lost += u64::from(touches);
        }
    }
    assert_eq!(out.count("spectra_missing"), lost);
    let measured = table(&out, "adc_power");
    assert_eq!(measured[1] as usize, samples.len() - (taps - 1) * step);
    let present = (3 * 32..samples.len()).filter(|i| !is_lost(*i)).count();
    assert_eq!(measured[3] as usize, present);
}

#[test]
fn missing_end_of_stream_counts_only_if_other_stream_continues() {
    let good = Digitised::new(noise(2, 16384, 100.0, 10));
    let cut = Digitised { lost_heaps: (50..64).collect(), ..good.clone() };
    let parameters = json!({"channels": 16, "taps": 4, "spectra_per_frame": 16});
    assert_eq!(pfb(parameters.clone(), std::slice::from_ref(&cut)).count("spectra_missing"), 0);
    let out = pfb(parameters, &[good, cut]);
    let lost = rows(&out)[1].iter().filter(|(t, valid, _)| !valid && *t + 128 <= 16384).count();
    assert!(lost > 100);
    assert_eq!(out.count("spectra_missing"), lost as u64);
}

#[test]
fn spectra_missing_counts_also_if_no_spectrum_is_valid() {
    let heaps: Vec<usize> = (1..64).step_by(2).collect();
    let bad = Digitised { lost_heaps: heaps, ..Digitised::new(noise(2, 16384, 100.0, 10)) };
    for pols in 1..3 {
        let parameters = json!({"channels": 64, "taps": 4, "spectra_per_frame": 16});
        let out = pfb(parameters, &vec![bad.clone(); pols]);
        assert!(out.frames.is_empty());
        // Windows of 512 samples, 128 apart, that end before the last heap.
        assert_eq!(out.count("spectra_missing"), (pols * (63 * 256 - 512) / 128 + pols) as u64);
    }
}

#[test]
fn long_gap_is_skipped_with_correct_timestamps() {
    let start = 1_712_000_000_u64 * 3600 * 50 / 1024 * 1024;
    let samples = noise(3, 8192, 100.0, 10);
    let early = Digitised::new(samples.clone());
    let late = Digitised { start, ..early.clone() };
    let mut frames = early.frames();
    frames.extend(late.frames());
    let pfb: Pfb = kind(json!({"channels": 16, "taps": 4, "spectra_per_frame": 16,
        "delays": [[{"delay_samples": 100}]]}));
    let out = chain::drive(&pfb, &[early.port()], vec![frames]);
    let w = chain::weights(32, 4, true, 1.0);
    let rows = rows(&out);
    for (t, _, row) in rows[0].iter().filter(|row| row.1) {
        let origin = if *t < start { 0 } else { start };
        let expected = filtered(&samples[(*t - origin - 100) as usize..], &w, 32);
        assert!(row.iter().zip(&expected).all(|(a, b)| (f64::from(*a) - b).abs() < 2e-3));
    }
    let windows = |n: usize| n / 32 - 3;
    // The delay is no multiple of 32 samples, so each of the two streams has one window less.
    let valid = rows[0].iter().filter(|row| row.1).count();
    assert_eq!(valid, 2 * (windows(8192) - 1));
    assert!(out.frames.len() < 40, "no frames for the gap: {}", out.frames.len());
}

#[test]
fn output_is_independent_of_frame_sizes_and_threads() {
    let samples = noise(4, 32768, 200.0, 10);
    let mut pols = vec![Digitised::new(samples.clone()), Digitised::new(samples)];
    pols[0].lost_heaps = vec![60];
    let delays = json!([
        [{"delay_samples": 3.2, "rate": 2.5e-9}],
        [{"delay_samples": -9.7}, {"start_samples": 9000, "delay_samples": 40.0}]
    ]);
    let mut reference = None;
    let variants = [(1024, 16, 1), (256, 3, 1), (4096, 128, 3), (32768, 1, 0), (2048, 7, 2)];
    for (frame_samples, spectra, threads) in variants {
        pols.iter_mut().for_each(|pol| pol.frame_samples = frame_samples);
        let out = pfb(
            json!({"channels": 64, "spectra_per_frame": spectra, "delays": delays,
                "threads": threads}),
            &pols,
        );
        let mut rows = rows(&out);
        rows.iter_mut().for_each(|rows| rows.retain(|row| row.1));
        let statistics = (table(&out, "adc_power"), table(&out, "adc_clipped"));
        let got = (rows, statistics);
        assert_eq!(reference.get_or_insert_with(|| got.clone()), &got, "{frame_samples} {spectra}");
    }
}

#[test]
fn power_and_clipping_match_known_signals() {
    let full_scale = 511.0;
    let sine: Vec<i16> = (0..65536)
        .map(|i| {
            (full_scale * (std::f64::consts::TAU * 0.1234 * f64::from(i)).sin()).round() as i16
        })
        .collect();
    let mut square = vec![-512_i16; 65536];
    square.iter_mut().step_by(2).for_each(|x| *x = 511);
    let out = pfb(
        json!({"channels": 256, "taps": 4, "spectra_per_frame": 4}),
        &[Digitised::new(sine.clone()), Digitised::new(square)],
    );
    let power = table(&out, "adc_power");
    let dbfs = |p: usize| 10.0 * (power[2 * p] / power[2 * p + 1] / (511.0 * 511.0 / 2.0)).log10();
    assert!(dbfs(0).abs() < 0.01, "a full-scale sine has 0 dBFS: {}", dbfs(0));
    assert!((dbfs(1) - 3.0103 - 0.0085).abs() < 1e-3, "a square wave 3 dB more: {}", dbfs(1));
    let exact: i64 = sine[3 * 512..].iter().map(|x| i64::from(*x).pow(2)).sum();
    assert_eq!(power[0] as i64, exact);
    let clipped = table(&out, "adc_clipped");
    let expected = sine[3 * 512..].iter().filter(|x| x.abs() >= 511).count();
    assert_eq!(clipped, [expected as f64, power[3]]);
    assert_eq!(out.count("samples_clipped"), (clipped[0] + clipped[1]) as u64);
}

/// Values of the gauge `name`, by input.
fn gauges(out: &Out, name: &str) -> Vec<(Option<String>, Option<f64>)> {
    let all = out.counters.gauges().into_iter().filter(|gauge| gauge.name == name);
    all.map(|gauge| (gauge.label.map(|label| label.1), gauge.gauge.get())).collect()
}

#[test]
fn metrics_show_level_clipping_and_delay_of_each_input() {
    let input = |name: &str, value| (Some(name.to_owned()), Some(value));
    // One sample in four at the limit, and zeros.
    let quarter: Vec<i16> = (0..8192).map(|i| if i % 4 == 0 { 511 } else { 0 }).collect();
    let delay_seconds = 12.25 / RATE_HZ;
    let out = pfb(
        json!({
            "channels": 16, "taps": 4, "spectra_per_frame": 16,
            "delays": [[{"delay_seconds": delay_seconds}], []],
        }),
        &[Digitised::new(quarter), Digitised::new(vec![0; 8192])],
    );
    let levels = gauges(&out, "digitiser_level_dbfs");
    assert!((levels[0].1.unwrap() + 3.0103).abs() < 1e-3, "{levels:?}");
    assert_eq!(levels[1], input("pol1", -120.0));
    assert_eq!(gauges(&out, "digitiser_clipped_ratio"), [input("pol0", 0.25), input("pol1", 0.0)]);
    let delays = gauges(&out, "applied_delay_seconds");
    assert!((delays[0].1.unwrap() - delay_seconds).abs() < 1e-18, "{delays:?}");
    assert_eq!(delays[1], input("pol1", 0.0));
    let group_delay = gauges(&out, "filter_group_delay_seconds");
    assert_eq!(group_delay, [(None, Some(63.5 / RATE_HZ))]);
}

#[test]
fn level_metric_covers_the_last_second() {
    let counters = fxgraph::Counters::default();
    let mut port = Digitised::new(Vec::new()).port();
    port.clock.adc_sample_rate_hz = 100.0;
    let mut levels = Level::of_inputs(&[port], &counters);
    let level = || {
        let all = counters.gauges();
        all.iter().find(|gauge| gauge.name == "digitiser_level_dbfs").unwrap().gauge.get()
    };
    assert_eq!(level(), None);
    let full_scale =
        |samples: u64| Measured { power: samples * 511 * 511 / 2, samples, clipped: 0 };
    levels[0].add(full_scale(10));
    assert!(level().unwrap().abs() < 1e-3, "a first value at once");
    levels[0].add(Measured { samples: 60, ..Measured::default() });
    assert!(level().unwrap().abs() < 1e-3, "no second is over");
    levels[0].add(Measured { samples: 60, ..Measured::default() });
    assert_eq!(level(), Some(-120.0));
}

#[test]
fn summary_has_level_and_clipping_of_each_polarisation() {
    // Half of full scale, and one sample in four at the limit.
    let half: Vec<i16> = (0..8192)
        .map(|i| (255.5 * (std::f64::consts::TAU * f64::from(i) / 64.0).sin()).round() as i16)
        .collect();
    let quarter: Vec<i16> = (0..8192).map(|i| if i % 4 == 0 { 511 } else { 0 }).collect();
    let pols = [Digitised::new(half), Digitised::new(quarter)];
    let out = pfb(json!({"channels": 16, "taps": 4, "spectra_per_frame": 16}), &pols);
    let lines: Vec<&str> = out.summary.lines().collect();
    let measured = 8192 - 3 * 32;
    assert_eq!(lines[0], format!("pol0: rms -6.02 dBFS, 0.0000 % of {measured} samples clipped"));
    assert_eq!(lines[1], format!("pol1: rms -3.01 dBFS, 25.0000 % of {measured} samples clipped"));
}

#[test]
fn max_delay_without_delays_reserves_memory_and_keeps_output() {
    let pol = [Digitised::new(noise(8, 8192, 50.0, 10))];
    let parameters = |max: serde_json::Value| json!({"channels": 16, "spectra_per_frame": 16, "max_delay_seconds": max});
    let host_bytes = |max: serde_json::Value| {
        let kind: Pfb = kind(parameters(max));
        let inputs = vec![pol[0].port()];
        Pfb::resources(&Configured::new(kind, &inputs).unwrap()).host_bytes
    };
    // Delays of +-1 us, buffered twice, with two bytes per sample.
    let added = host_bytes(json!(1e-6)) - host_bytes(serde_json::Value::Null);
    assert!((2 * 4 * 1712..2 * 4 * 1732).contains(&added), "{added}");
    let valid = |max: serde_json::Value| {
        let mut rows = rows(&pfb(parameters(max), &pol));
        rows[0].retain(|row| row.1);
        rows
    };
    assert!(!valid(json!(1e-6))[0].is_empty());
    assert_eq!(valid(json!(1e-6)), valid(serde_json::Value::Null));
}

#[test]
fn delay_beyond_limit_invalidates_spectra() {
    let delays = json!([[{"delay_seconds": 1e-6, "rate": 2.5e-9}]]);
    let start = 1 << 40;
    let pol = Digitised { start, ..Digitised::new(noise(5, 8192, 50.0, 10)) };
    let out = pfb(
        json!({"channels": 16, "spectra_per_frame": 16, "delays": delays, "max_delay_seconds": 1.1e-6}),
        &[pol],
    );
    assert!(out.frames.is_empty());
    assert!(out.count("spectra_delay_out_of_range") > 0);
}

#[test]
fn late_and_misaligned_frames_are_dropped_and_counted() {
    let pol = Digitised::new(noise(6, 4096, 50.0, 10));
    let mut frames = pol.frames();
    let mut hostile = frames[0].clone();
    hostile.timestamp = u64::MAX;
    frames.insert(1, hostile.clone());
    hostile.timestamp = 3;
    frames.insert(2, hostile.clone());
    hostile.timestamp = 0;
    frames.insert(3, hostile);
    let pfb: Pfb = kind(json!({"channels": 16, "spectra_per_frame": 16}));
    let out = chain::drive(&pfb, &[pol.port()], vec![frames]);
    assert_eq!(out.count("frames_misplaced"), 3);
    let valid = rows(&out)[0].iter().filter(|row| row.1).count();
    assert_eq!(valid, 4096 / 32 - 15);
}

fn rejections(parameters: serde_json::Value, inputs: &[PortType]) -> Vec<fxgraph::Rejection> {
    KindSpec::outputs(&kind::<Pfb>(parameters), inputs).unwrap_err()
}

#[test]
fn pfb_rejects_hostile_parameters_with_nearest_valid_value() {
    let port = Digitised::new(Vec::new()).port();
    let one = |parameters| {
        let mut all = rejections(parameters, std::slice::from_ref(&port));
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    };
    let help = one(json!({"channels": 1001})).help.unwrap();
    assert_eq!(help, "use 1000 or 1024, the nearest such numbers");
    for parameters in [
        json!({"channels": 0}),
        json!({"channels": u64::MAX}),
        json!({"channels": 64, "taps": 0}),
        json!({"channels": 64, "taps": 1_000_000}),
        json!({"channels": 64, "w_cutoff": -1.0}),
        // Beyond the whole band the weights of this one would be rounding errors.
        json!({"channels": 4, "w_cutoff": 16.0}),
        json!({"channels": 64, "unzip": 3}),
        json!({"channels": 64, "unzip": 64}),
        json!({"channels": 64, "spectra_per_frame": 0}),
        json!({"channels": 64, "spectra_per_frame": u64::MAX}),
        json!({"channels": 64, "delays": [[], []]}),
        json!({"channels": 64, "delays": [[{"delay_seconds": 1e-3}]]}),
        json!({"channels": 64, "delays": [[{"rate": 1e-8}]]}),
        json!({"channels": 64, "delays": [[{"rate": 1e-8}]], "max_delay_rate": 0.9e-8}),
        json!({"channels": 64, "max_delay_rate": -1.0}),
        json!({"channels": 64, "max_fringe_rate_radians_per_second": -1.0}),
        json!({"channels": 64, "max_delay_seconds": 1.0}),
    ] {
        one(parameters);
    }
    let fast = json!([[{"rate": 1e-6, "phase_rate_radians_per_second": 4e3}]]);
    let room = json!({
        "channels": 64, "delays": fast, "max_delay_rate": 1e-6,
        "max_fringe_rate_radians_per_second": 4e3,
    });
    assert!(KindSpec::outputs(&kind::<Pfb>(room), std::slice::from_ref(&port)).is_ok());
    let both = rejections(json!({"channels": 3, "taps": 0}), &[port]);
    assert_eq!(both.len(), 2, "all diagnostics at once");
}

#[test]
fn pfb_rejects_mismatched_inputs() {
    let good = Digitised::new(Vec::new()).port();
    let mut dtype = good.clone();
    dtype.dtype = Dtype::Packed(11);
    let mut axes = good.clone();
    axes.axes[0].name = "channel";
    let mut clock = good.clone();
    clock.clock.adc_sample_rate_hz = RATE_HZ / 2.0;
    for bad in [dtype, axes, clock] {
        let all = rejections(json!({"channels": 64}), &[good.clone(), bad]);
        assert_eq!(all.len(), 1, "{all:?}");
    }
    let mut complex = good.clone();
    complex.dtype = Dtype::Cf32;
    complex.clock.samples_per_frame *= 8;
    let unknown = rejections(json!({"channels": 64}), std::slice::from_ref(&complex));
    assert_eq!(unknown.len(), 1, "{unknown:?}");
    assert_eq!(unknown[0].at, fxgraph::At::Parameter("centre_hz"));
    let band = |centre_hz| fxgraph::Band::signed(1, 0, centre_hz, 1e8);
    let pols = [3e8, 4e8].map(|hz| PortType { band: Some(band(hz)), ..complex.clone() });
    let differ = rejections(json!({"channels": 64}), &pols);
    assert_eq!(differ.len(), 1, "{differ:?}");
    assert!(differ[0].message.contains("300000000 Hz and at 400000000 Hz"), "{differ:?}");
    assert!(
        KindSpec::outputs(&kind::<Pfb>(json!({"channels": 64, "centre_hz": 1e9})), &pols).is_ok()
    );
    let mut endless = good;
    endless.dtype = Dtype::Cf32;
    endless.clock.samples_per_frame <<= 50;
    let all = rejections(json!({"channels": 64, "centre_hz": 4e8}), &[endless]);
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn delay_model_that_expires_is_one_event() {
    let digitised = Digitised::new(noise(5, 1 << 15, 50.0, 10));
    let (frames, from) = (digitised.frames(), 1_u64 << 48);
    let parameters = json!({
        "channels": 16, "taps": 2, "spectra_per_frame": 4,
        "delays": [[{"delay_samples": 3.2, "rate": 2.5e-9}], [{"delay_samples": 1.0}]],
    });
    let inputs = [digitised.port(), digitised.port()];
    let block = chain::connected("pfb", "cpu", &parameters, &inputs).unwrap();
    let (env, events) = (Env::detached("pfb"), Arc::new(Events::default()));
    env.events.redirect(Some((Arc::clone(&events), "pfb".to_owned())));
    let mut harness = Harness::new(block.build(&env).unwrap(), block.ports(), 4).unwrap();
    // The sender counts from 0 again twice; a constant delay does not expire.
    for base in [0, from, 2 * from] {
        for (plain, input) in frames.iter().flat_map(|plain| [(plain, 0), (plain, 1)]) {
            assert!(harness.send(input, |frame| {
                plain.copy_to(frame);
                frame.header_mut().timestamp += base;
                frame.header_mut().base = TimeBase { from: base, ..TimeBase::default() };
            }));
            Harness::block_on(harness.run()).unwrap();
            while harness.receive(0).is_some() {
                Harness::block_on(harness.run()).unwrap();
            }
        }
    }
    let texts: Vec<String> = events.since(0).iter().map(|event| event.text.clone()).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].starts_with("delay model of pol0 expired: "), "{texts:?}");
    let gauges = env.counters.gauges();
    let expired = gauges.iter().find(|named| named.name == "delay_models_expired");
    assert_eq!(expired.unwrap().gauge.get(), Some(1.0));
}
