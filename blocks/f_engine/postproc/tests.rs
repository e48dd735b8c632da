use super::Postproc;
use crate::common::spectra::Shape;
use crate::f_engine::fft::Fft;
use crate::tests::chain::{
    Digitised, Out, RATE_HZ, dft, drive, filtered, kind, noise, pfb, spectra, then, weights,
};
use fxgraph::{KindSpec, PortType};
use num_complex::Complex64;
use serde_json::{Value, json};
use std::f64::consts::PI;

/// Quantised values of one heap: timestamp, validity, \[channel\]\[spectrum\]\[pol\].
pub type Heap = (u64, bool, Vec<[i8; 2]>);

pub fn heaps(out: &Out) -> Vec<Heap> {
    let port = &out.port;
    let len = |name| port.axis_len(name).unwrap();
    let (per_frame, n, t, p) = (len("heap"), len("channel"), len("spectrum"), len("pol"));
    let k_major = port.axes[2].name == "pol";
    let step = port.clock.samples_per_frame / per_frame as u64;
    let mut heaps = Vec::new();
    for frame in &out.frames {
        assert_eq!(frame.timestamp % port.clock.samples_per_frame, 0, "absolute multiples");
        let values: Vec<[i8; 2]> = if port.dtype == fxgraph::Dtype::Ci8 {
            frame.values()
        } else {
            frame.payload.iter().map(|b| [*b as i8 >> 4, (*b << 4) as i8 >> 4]).collect()
        };
        for (h, heap) in values.chunks_exact(n * t * p).enumerate() {
            let at = |i: usize| {
                let (k, s, pol) = (i / (t * p), i / p % t, i % p);
                if k_major { heap[(k * p + pol) * t + s] } else { heap[i] }
            };
            let time = frame.timestamp + h as u64 * step;
            heaps.push((time, frame.validity[h] == 1, (0..heap.len()).map(at).collect()));
        }
    }
    heaps
}

pub fn f_engine(pfb_parameters: Value, parameters: Value, pols: &[Digitised]) -> (Out, Out) {
    let channelised = || then::<Fft>(json!({}), pfb(pfb_parameters.clone(), pols));
    (channelised(), then::<Postproc>(parameters, channelised()))
}

const CHANNELS: usize = 32;
const STEP: usize = 2 * CHANNELS;

/// Spectra of `samples` in double precision, from the equations: one for each multiple of a step whose
/// window, shifted by the coarse part of `delay_samples`, is within the samples.
fn exact_spectra(
    samples: &[i16],
    delay_samples: impl Fn(f64) -> f64,
) -> Vec<Option<Vec<Complex64>>> {
    let w = weights(STEP, 16, true, 1.0);
    let spectrum = |t: usize| {
        let coarse = delay_samples(t as f64).round_ties_even() as i64;
        let start = usize::try_from(t as i64 - coarse).ok()?;
        let window = samples.get(start..start + w.len())?;
        Some(dft(&filtered(window, &w, STEP), CHANNELS))
    };
    (0..samples.len()).step_by(STEP).map(spectrum).collect()
}

fn two_pols(seed: u64) -> Vec<Digitised> {
    (0..2).map(|pol| Digitised::new(noise(seed + pol, 32768, 60.0, 10))).collect()
}

/// Annotations `output_power` of all frames.
fn output_powers(out: &Out) -> Vec<f64> {
    let powers = out.frames.iter().map(|frame| frame.annotations.get("output_power"));
    powers.flatten().copied().collect()
}

/// Mean squares of the parts of the first 4 of 32 spectra of heaps of two polarisations, \[heap\]\[pol\].
fn powers_of(heaps: &[Heap]) -> Vec<f64> {
    let power = |(_, is_valid, values): &Heap, pol: usize| {
        let of_pol = |(i, _): &(usize, &[i8; 2])| i % 2 == pol && i / 2 % 32 < 4;
        let measured = values.iter().enumerate().filter(of_pol);
        let squares = measured.flat_map(|(_, value)| value).map(|part| f64::from(*part).powi(2));
        let count = 2 * 4 * values.len() / 64;
        if *is_valid { squares.sum::<f64>() / count as f64 } else { 0.0 }
    };
    heaps.iter().flat_map(|heap| [0, 1].map(|pol| power(heap, pol))).collect()
}

#[test]
fn output_agrees_with_double_precision_within_one() {
    let delays = json!([
        [{"delay_samples": 7.37, "rate": 2e-9, "phase_radians": 1.1,
            "phase_rate_radians_per_second": 40.0}],
        [{"delay_samples": -3.81, "phase_radians": -2.0}]
    ]);
    let per_channel: Vec<Value> = (0..CHANNELS)
        .map(|k| json!({"re": 0.2 + 0.01 * k as f64, "im": 0.3 - 0.02 * k as f64}))
        .collect();
    let gain = |pol: usize, k: usize| {
        let k = k as f64;
        let z = Complex64::new(0.2 + 0.01 * k, 0.3 - 0.02 * k);
        if pol == 0 { z } else { Complex64::new(0.45, 0.0) }
    };
    let pols = two_pols(20);
    let delay = |pol: usize, t: f64| if pol == 0 { 7.37 + 2e-9 * t } else { -3.81 };
    let spectra = [0, 1].map(|pol| exact_spectra(&pols[pol].samples, |t| delay(pol, t)));
    for unzip in [1, 2, 4, 8] {
        for (layout, bits, limit) in [
            ("standard", 8, 127.0),
            ("k_major", 8, 127.0),
            ("standard", 4, 7.0),
            ("k_major", 4, 7.0),
        ] {
            let pfb_parameters = |unzip: usize| {
                json!({"channels": CHANNELS, "spectra_per_frame": 24, "delays": delays,
                    "unzip": unzip})
            };
            let (_, out) = f_engine(
                pfb_parameters(unzip),
                json!({"spectra_per_heap": 32, "layout": layout, "bits": bits, "dither": "none",
                    "gains": [per_channel, 0.45]}),
                &pols,
            );
            let (mut values, mut off, mut clamped) = (0, 0, 0_u64);
            for (time, valid, heap) in heaps(&out) {
                if !valid {
                    continue;
                }
                for (i, got) in heap.iter().enumerate() {
                    let (k, s, pol) = (i / 64, i / 2 % 32, i % 2);
                    let t = time + (s * STEP) as u64;
                    let z = spectra[pol][t as usize / STEP].as_ref().unwrap()[k];
                    let seconds = t as f64 / RATE_HZ;
                    let d = delay(pol, t as f64);
                    let phase = if pol == 0 { 1.1 + 40.0 * seconds } else { -2.0 };
                    let coarse = d.round_ties_even();
                    let angle = phase + PI / 2.0 * coarse
                        - PI * (d - coarse) * (k as f64 - 16.0) / CHANNELS as f64;
                    let exact = z * gain(pol, k) * Complex64::from_polar(1.0, angle);
                    clamped += u64::from(exact.re.abs() > limit || exact.im.abs() > limit);
                    for (got, exact) in got.iter().zip([exact.re, exact.im]) {
                        let want = exact.clamp(-limit, limit).round_ties_even() as i32;
                        let difference = (i32::from(*got) - want).abs();
                        assert!(difference <= 1, "{unzip} {layout} {bits}: {got} {exact}");
                        (values, off) = (values + 1, off + difference);
                    }
                }
            }
            assert!(values > 50_000, "{values}");
            assert!(f64::from(off) < 1e-3 * f64::from(values), "{unzip} {layout}: {off}");
            let counted: f64 =
                out.frames.iter().flat_map(|frame| frame.annotations.get("saturated")).sum();
            assert!((counted - clamped as f64).abs() <= 2.0, "{counted} {clamped}");
            assert_eq!(out.count("values_saturated"), counted as u64);
            assert_eq!(output_powers(&out), powers_of(&heaps(&out)), "{unzip} {layout} {bits}");
            assert!(bits == 8 || clamped > 0);
        }
    }
}

#[test]
fn channels_with_factors_3_and_5_agree_with_double_precision() {
    for (channels, kept, unzip) in
        [(10, 10, 1), (30, 28, 1), (120, 120, 2), (1000, 1000, 1), (1000, 1000, 2), (1536, 1000, 1)]
    {
        let (step, taps, per_heap) = (2 * channels, 4, 4);
        let samples = noise(60, (1 << 13) + (1 << 10) * channels / 32, 60.0, 10);
        let w = weights(step, taps, true, 1.0);
        let (_, out) = f_engine(
            json!({"channels": channels, "taps": taps, "spectra_per_frame": 5, "unzip": unzip,
                "delays": [[{"delay_samples": 7.37, "phase_radians": 0.6}]]}),
            json!({"channels": kept, "spectra_per_heap": per_heap, "dither": "none", "gains": 0.3}),
            &[Digitised::new(samples.clone())],
        );
        let (mut values, mut off) = (0, 0);
        for (time, _, heap) in heaps(&out).iter().filter(|heap| heap.1) {
            for s in 0..per_heap {
                let start = *time as usize + s * step - 7;
                let spectrum = dft(&filtered(&samples[start..], &w, step), channels);
                for k in 0..kept {
                    let channel = k + (channels - kept) / 2;
                    let from_centre = channel as f64 - (channels / 2) as f64;
                    let angle = 0.6 + PI / 2.0 * 7.0 - PI * 0.37 * from_centre / channels as f64;
                    let exact = spectrum[channel] * Complex64::from_polar(0.3, angle);
                    let got = heap[k * per_heap + s].map(f64::from);
                    for (got, exact) in got.into_iter().zip([exact.re, exact.im]) {
                        let difference = (got - exact.clamp(-127.0, 127.0)).abs();
                        assert!(difference < 0.51, "{channels} {kept} {unzip}: {got} {exact}");
                        (values, off) = (values + 1, off + i32::from(difference > 0.501));
                    }
                }
            }
        }
        assert!(values >= 2 * kept * per_heap && off == 0, "{channels}: {values} {off}");
    }
}

#[test]
fn heaps_with_missing_spectrum_are_exactly_the_invalid_ones() {
    let mut pols = two_pols(30);
    pols[1].lost_heaps = vec![40];
    let (channelised, out) = f_engine(
        json!({"channels": CHANNELS, "spectra_per_frame": 10}),
        json!({"spectra_per_heap": 16, "heaps_per_frame": 2}),
        &pols,
    );
    let spectra = spectra(&channelised);
    let is_whole = |time: u64| {
        spectra.iter().all(|rows| {
            let mine = rows.iter().filter(|row| row.1 && row.0 / 1024 == time / 1024);
            mine.count() == 16
        })
    };
    let heaps = heaps(&out);
    for heap in 0..32 {
        let time = heap * 1024;
        let valid = heaps.iter().any(|heap| heap.0 == time && heap.1);
        assert_eq!(valid, is_whole(time), "heap {heap}");
    }
    for (_, _, heap) in heaps.iter().filter(|heap| !heap.1) {
        assert!(heap.iter().all(|value| *value == [0, 0]));
    }
    let lost = (10_240 - 15 * 64) / 1024..=10_495 / 1024;
    assert_eq!(out.count("heaps_missing"), lost.count() as u64);
}

#[test]
fn jump_of_stream_time_counts_no_missing_heap() {
    let parameters = || json!({"spectra_per_heap": 16, "heaps_per_frame": 1});
    let missing_after = |jump: u64| {
        let mut spectra = pfb(json!({"channels": CHANNELS, "spectra_per_frame": 16}), &two_pols(8));
        let middle = spectra.frames.len() / 2;
        spectra.frames[middle..].iter_mut().for_each(|frame| frame.timestamp += jump);
        let out = then::<Postproc>(parameters(), then::<Fft>(json!({}), spectra));
        out.count("heaps_missing")
    };
    let heap = 16 * STEP as u64;
    let whole = missing_after(0);
    assert_eq!(missing_after(1000 * heap), whole + 1000);
    // A restarted digitiser continues after the next wrap of the 48-bit timestamps.
    assert_eq!(missing_after(1 << 48), whole);
}

#[test]
fn output_is_independent_of_frame_sizes_and_threads_after_two_days() {
    let start = 172_800 * 1_712_000_000_u64 / (1 << 20) * (1 << 20);
    let mut pols = two_pols(40);
    pols.iter_mut().for_each(|pol| pol.start = start);
    let delays = json!([[{"start_samples": start, "delay_samples": 3.3, "rate": 2.5e-9,
        "phase_rate_radians_per_second": 49.0}], []]);
    let mut reference: Option<Vec<Heap>> = None;
    for (spectra, heaps_per_frame, threads) in [(16, 1, 1), (7, 2, 1), (128, 4, 3), (1, 1, 0)] {
        let (_, out) = f_engine(
            json!({"channels": CHANNELS, "spectra_per_frame": spectra, "delays": delays}),
            json!({"spectra_per_heap": 32, "heaps_per_frame": heaps_per_frame,
                "threads": threads, "dither_seed": 5}),
            &pols,
        );
        let got: Vec<Heap> = heaps(&out).into_iter().filter(|heap| heap.1).collect();
        assert!(got.len() >= 14);
        assert_eq!(reference.get_or_insert_with(|| got.clone()), &got, "{spectra} per frame");
    }
}

#[test]
fn dither_is_uniform_reproducible_and_differs_between_seeds() {
    // A constant input of 0 would hide a bias; 0.25 must be 0.25 on average in the output.
    let run = |seed: u64| {
        let pols = vec![Digitised::new(noise(50, 65536, 100.0, 10))];
        let parameters = json!({"channels": CHANNELS, "spectra_per_frame": 32});
        let (_, out) = f_engine(
            parameters,
            json!({"spectra_per_heap": 32, "gains": 1e-9, "dither_seed": seed}),
            &pols,
        );
        heaps(&out)
    };
    assert!(run(1) == run(1));
    // With no signal, |dither| < 1/2 rounds to 0 everywhere.
    assert!(run(1).iter().all(|heap| heap.2.iter().all(|v| *v == [0, 0])));
    let with_signal = |seed: u64| {
        let pols = vec![Digitised::new(noise(51, 65536, 100.0, 10))];
        let (exact, out) = f_engine(
            json!({"channels": CHANNELS, "spectra_per_frame": 32}),
            json!({"spectra_per_heap": 32, "gains": 0.01, "dither_seed": seed}),
            &pols,
        );
        (spectra(&exact), heaps(&out))
    };
    let ((exact, one), (_, two)) = (with_signal(1), with_signal(2));
    assert!(one != two);
    // Dithered values are unbiased: their mean error within a narrow range of the exact value is far below
    // that of rounding alone.
    let (mut sum, mut count) = (0.0, 0.0);
    for (time, _, heap) in one.iter().filter(|heap| heap.1) {
        for (i, got) in heap.iter().enumerate() {
            let t = time + (i % 32 * STEP) as u64;
            let row = exact[0].iter().find(|row| row.0 == t).unwrap();
            let exact = 0.01 * f64::from(row.2[i / 32].re);
            let fraction = exact - exact.floor();
            if (0.2..0.4).contains(&fraction) {
                sum += f64::from(got[0]) - exact;
                count += 1.0;
            }
        }
    }
    assert!(count > 3000.0);
    assert!((sum / count).abs() < 0.04, "bias {}", sum / count);
}

#[test]
fn digitiser_statistics_are_passed_on_once() {
    let pols = two_pols(60);
    let (channelised, out) = f_engine(
        json!({"channels": CHANNELS, "spectra_per_frame": 8}),
        json!({"spectra_per_heap": 32}),
        &pols,
    );
    assert!(channelised.frames.len() > 4 * out.frames.len(), "some frames complete no heap");
    assert_eq!(out.frames.len(), 15);
    for (heap, frame) in out.frames.iter().enumerate() {
        let power = frame.annotations.get("adc_power");
        let clipped = frame.annotations.get("adc_clipped");
        for (p, pol) in pols.iter().enumerate() {
            // The last step of the window of each of 32 spectra.
            let samples = &pol.samples[(32 * heap + 15) * STEP..][..32 * STEP];
            let exact: f64 = samples.iter().map(|x| f64::from(*x).powi(2)).sum();
            assert_eq!(power[2 * p..][..2], [exact, 32.0 * STEP as f64], "heap {heap}");
            let at_limit = samples.iter().filter(|x| x.abs() >= 511).count();
            assert_eq!(clipped[p] as usize, at_limit);
        }
    }
}

#[test]
fn frames_beyond_timestamp_range_are_dropped_and_counted() {
    let (channelised, _) = f_engine(
        json!({"channels": CHANNELS, "spectra_per_frame": 32}),
        json!({"spectra_per_heap": 32}),
        &two_pols(70),
    );
    let mut frames = channelised.frames;
    let mut hostile = frames[0].clone();
    hostile.timestamp = u64::MAX / STEP as u64 * STEP as u64;
    frames.insert(0, hostile);
    let out = drive(
        &kind::<Postproc>(json!({"spectra_per_heap": 32})),
        &[channelised.port],
        vec![frames],
    );
    assert_eq!(out.count("frames_misplaced"), 1);
    assert_eq!(out.frames.len(), 15);
}

#[test]
fn postproc_rejects_hostile_parameters_and_inputs() {
    let samples = Digitised::new(Vec::new());
    let before =
        then::<Fft>(json!({}), pfb(json!({"channels": 16, "spectra_per_frame": 8}), &[samples]));
    let port = before.port;
    assert!(Shape::of_channels(&port).is_some());
    let rejections = |parameters: Value, port: &PortType| {
        KindSpec::outputs(&kind::<Postproc>(parameters), std::slice::from_ref(port))
            .unwrap_err()
            .len()
    };
    for parameters in [
        json!({"bits": 7}),
        json!({"spectra_per_heap": 0}),
        json!({"spectra_per_heap": u64::MAX}),
        json!({"heaps_per_frame": 0}),
        json!({"heaps_per_frame": u64::MAX}),
        json!({"gains": 1e300}),
        json!({"gains": [1, 2, 3]}),
        json!({"gains": [[1, 2, 3]]}),
    ] {
        assert!(rejections(parameters.clone(), &port) >= 1, "{parameters}");
    }
    let mut wide = port.clone();
    wide.axes[2].len = 1 << 20;
    wide.clock.samples_per_frame = 8 << 21;
    let all = KindSpec::outputs(&kind::<Postproc>(json!({"spectra_per_heap": 65536})), &[wide]);
    let all = all.unwrap_err();
    assert_eq!((all.len(), all[0].help.as_deref()), (1, Some("use at most 2048")));
    let mut slow = port.clone();
    slow.clock.samples_per_frame += 8;
    assert_eq!(rejections(json!({}), &slow), 1);
    let mut endless = port.clone();
    endless.clock.samples_per_frame = 1 << 62;
    assert_eq!(rejections(json!({}), &endless), 1);
    let mut real = port;
    real.dtype = fxgraph::Dtype::F32;
    assert_eq!(rejections(json!({}), &real), 1);
}
