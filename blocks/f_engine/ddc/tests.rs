//! Compares the block with the equations in double precision, alone and with `pfb`, `fft` and `postproc`.

use super::filter_tests::low_pass;
use super::{Ddc, HEAP_SAMPLES};
use crate::f_engine::pfb::Pfb;
use crate::tests::chain::{self, Digitised, Out, RATE_HZ, kind, noise, then};
use fxgraph::flowgraph::load_text;
use fxgraph::{Band, KindSpec, PortType};
use fxgraph_dsp::low_pass::Mode;
use fxgraph_dsp::mixer::Frequency;
use num_complex::{Complex32, Complex64};
use serde_json::{Value, json};
use std::f64::consts::{PI, TAU};

fn ddc(parameters: Value, input: &Digitised) -> Out {
    chain::drive(&kind::<Ddc>(parameters), &[input.port()], vec![input.frames()])
}

/// Timestamp, validity and value of each output sample.
fn samples(out: &Out) -> Vec<(u64, bool, Complex32)> {
    let step = out.port.samples_per("sample").unwrap();
    let sample = |frame: &chain::Plain| {
        let values: Vec<Complex32> = frame.values();
        let (t, validity) = (frame.timestamp, frame.validity.clone());
        let one = move |(j, y): (usize, Complex32)| {
            (t + j as u64 * step, validity[j / HEAP_SAMPLES] == 1, y)
        };
        values.into_iter().enumerate().map(one).collect::<Vec<_>>()
    };
    out.frames.iter().flat_map(sample).collect()
}

/// exp(-2 pi i f t) for `hz` at sample `t`, with the phase reduced to one turn in integer arithmetic.
fn oscillator(hz: u64, t: u64) -> Complex64 {
    let rate = RATE_HZ as u128;
    let turns = (u128::from(hz) * u128::from(t) % rate) as f64 / RATE_HZ;
    Complex64::from_polar(1.0, -TAU * turns)
}

/// Output sample for the window that starts with `x[0]`, at timestamp `t`, from the equation.
fn converted(x: &[i16], t: u64, weights: &[f64], hz: u64) -> Complex64 {
    let term = |(k, h): (usize, &f64)| oscillator(hz, t + k as u64) * (h * f64::from(x[k]));
    weights.iter().enumerate().map(term).sum()
}

#[test]
fn output_agrees_with_double_precision_for_all_widths_and_sizes() {
    let day = 1_712_000_000_u64 * 86_400 * 3 / 65_536 * 65_536;
    let widths = fxgraph_dsp::packed::WIDTHS.map(|bits| (bits, "discard", 8, 128, 0));
    let sizes = [
        (10, "discard", 2, 32, day),
        (10, "discard", 8, 128, day),
        (10, "discard", 10, 75, 0),
        (12, "discard", 16, 256, day),
        (10, "no_discard", 4, 128, day),
        (10, "no_discard", 1, 24, 0),
        (10, "discard", 64, 256, 0),
    ];
    for (bits, mode, decimation, taps, start) in widths.into_iter().chain(sizes) {
        let len = 1 << 16;
        let input = Digitised {
            bits,
            start,
            ..Digitised::new(noise(u64::from(bits), len, f64::from(1 << (bits - 1)) / 3.0, bits))
        };
        // The whole band has only one possible centre.
        let hz = if decimation == 1 { RATE_HZ as u64 / 4 } else { 434_567_891 };
        let out = ddc(
            json!({"centre_hz": hz, "decimation": decimation, "mode": mode, "taps": taps, "samples_per_frame": 512}),
            &input,
        );
        let mode = if mode == "discard" { Mode::Discard } else { Mode::NoDiscard };
        let subsampling = out.port.samples_per("sample").unwrap() as usize;
        let weights = low_pass(mode, subsampling, taps).weights().unwrap();
        let full = f64::from(1_u32 << bits);
        let (mut squares, mut compared) = (0.0, 0);
        for (t, valid, y) in samples(&out) {
            if !valid {
                continue;
            }
            let expected = converted(&input.samples[(t - start) as usize..], t, &weights, hz);
            let apart = Complex64::new(f64::from(y.re), f64::from(y.im)) - expected;
            assert!(
                apart.norm() < 2e-5 * full,
                "{bits} bits, S {subsampling}, {t}: {y} {expected}"
            );
            squares += apart.norm_sqr();
            compared += 1;
        }
        let heaps = (len - taps) / (subsampling * HEAP_SAMPLES);
        assert!(compared >= heaps * HEAP_SAMPLES - HEAP_SAMPLES && compared > 0, "{compared}");
        assert!(
            (squares / f64::from(compared as u32)).sqrt() < 2e-6 * full,
            "{bits} {subsampling}"
        );
    }
}

#[test]
fn output_is_independent_of_frame_sizes_and_threads() {
    let mut input = Digitised::new(noise(4, 1 << 16, 150.0, 10));
    input.lost_heaps = vec![90];
    let mut reference = None;
    for (frame_samples, samples_per_frame, threads) in
        [(1024, 256, 1), (256, 1024, 3), (8192, 4096, 0), (65536, 512, 2)]
    {
        input.frame_samples = frame_samples;
        let out = ddc(
            json!({"centre_hz": 3e8, "decimation": 8, "samples_per_frame": samples_per_frame, "threads": threads}),
            &input,
        );
        let mut got = samples(&out);
        got.retain(|sample| sample.1);
        assert_eq!(reference.get_or_insert_with(|| got.clone()), &got, "{frame_samples}");
    }
}

#[test]
fn missing_heap_invalidates_exactly_the_overlapping_output() {
    let mut input = Digitised::new(noise(5, 1 << 16, 150.0, 10));
    input.lost_heaps = vec![100, 101];
    input.lost_frames = vec![50];
    let (subsampling, taps) = (4, 64);
    let out = ddc(json!({"centre_hz": 3e8, "decimation": 4, "samples_per_frame": 1024}), &input);
    let is_lost =
        |i: usize| input.lost_heaps.contains(&(i / 256)) || input.lost_frames.contains(&(i / 1024));
    let window = subsampling * (HEAP_SAMPLES - 1) + taps;
    let mut lost = 0;
    for heap in samples(&out).chunks(HEAP_SAMPLES) {
        let t = heap[0].0 as usize;
        let touches = (t..t + window).any(is_lost);
        let expected = t + window <= input.samples.len() && !touches;
        assert!(heap.iter().all(|sample| sample.1 == expected), "{t}");
        assert!(expected || heap.iter().all(|sample| sample.2 == Complex32::default()));
        lost += u64::from(touches);
    }
    assert!(lost > 3);
    assert_eq!(out.count("heaps_missing"), lost);
}

/// Level in dB of the output at frequency `turns` per output sample, for a real tone of amplitude 2 at `hz`,
/// half of which is at the positive frequency.
fn tone(parameters: &Value, hz: f64, turns: f64) -> f64 {
    let amplitude = 30_000.0;
    let wave = |i: usize| (amplitude * (TAU * hz / RATE_HZ * i as f64).cos()).round() as i16;
    let input = Digitised { bits: 16, ..Digitised::new((0..1 << 15).map(wave).collect()) };
    let out = ddc(parameters.clone(), &input);
    let valid: Vec<Complex32> =
        samples(&out).into_iter().filter(|sample| sample.1).map(|sample| sample.2).collect();
    // A window suppresses other frequencies.
    let window = |j: usize| (PI * (j as f64 + 0.5) / valid.len() as f64).sin().powi(2);
    let term = |(j, y): (usize, &Complex32)| {
        let y = Complex64::new(f64::from(y.re), f64::from(y.im));
        y * Complex64::from_polar(window(j), -TAU * turns * j as f64)
    };
    let sum: Complex64 = valid.iter().enumerate().map(term).sum();
    let full: f64 = (0..valid.len()).map(window).sum();
    let scale = (out.port.samples_per("sample").unwrap() as f64).sqrt() * amplitude / 2.0;
    20.0 * (sum.norm() / full / scale).log10()
}

#[test]
fn tone_in_band_passes_and_aliased_tone_is_suppressed() {
    let (centre, rate) = (4.1e8, RATE_HZ / 8.0);
    for (mode, decimation, most_ripple, most_alias) in
        [("discard", 8_u32, 0.001, -110.0), ("no_discard", 4, 0.045, -90.0)]
    {
        let parameters = json!({"centre_hz": centre, "decimation": decimation, "mode": mode, "samples_per_frame": 256});
        let pass = if mode == "discard" { 0.25 * rate } else { 0.375 * rate };
        for i in -8..=8 {
            let offset = pass * f64::from(i) / 8.0;
            let decibels = tone(&parameters, centre + offset, offset / rate);
            assert!(decibels.abs() < most_ripple, "{mode}: {offset} Hz: {decibels} dB");
            // Tones that decimation aliases to the same frequency.
            for alias in [-1.0, 1.0, 2.0] {
                let hz = centre + offset + alias * rate;
                if (0.0..RATE_HZ / 2.0).contains(&hz) {
                    let decibels = tone(&parameters, hz, offset / rate);
                    assert!(decibels < most_alias, "{mode}: {hz} Hz: {decibels} dB");
                }
            }
        }
    }
}

#[test]
fn centre_frequency_is_exact_after_days() {
    let frequency = Frequency::new(434_567_891.0, RATE_HZ);
    for t in [1_u64, 1_712_000_000 * 86_400, 1_712_000_000 * 86_400 * 365 + 12_345] {
        assert!((frequency.phasor(t) - oscillator(434_567_891, t)).norm() < 1e-14);
    }
}

/// Spectra of `ddc`, `pfb`, `fft` and `postproc`.
fn narrowband(ddc_parameters: Value, pfb_parameters: Value, input: &Digitised) -> Out {
    then::<crate::f_engine::fft::Fft>(
        json!({}),
        then::<Pfb>(pfb_parameters, ddc(ddc_parameters, input)),
    )
}

#[test]
fn channels_are_in_order_of_frequency_around_the_centre() {
    let (channels, centre, rate) = (64_usize, 4e8, RATE_HZ / 8.0);
    for channel in [1_usize, 17, 32, 33, 50, 63] {
        let hz = centre + (channel as f64 - 32.0) * rate / channels as f64;
        let wave = |i: usize| (400.0 * (TAU * hz / RATE_HZ * i as f64).cos()).round() as i16;
        let input = Digitised::new((0..1 << 16).map(wave).collect());
        let out = narrowband(
            json!({"centre_hz": centre, "decimation": 8, "samples_per_frame": 512}),
            json!({"channels": channels, "taps": 4, "spectra_per_frame": 4}),
            &input,
        );
        let band = out.port.band.unwrap();
        assert_eq!((band.channels, band.centre_hz, band.bandwidth_hz), (channels, centre, rate));
        let spectra = chain::spectra(&out);
        let valid: Vec<_> = spectra[0].iter().filter(|spectrum| spectrum.1).collect();
        assert!(valid.len() > 20);
        for (t, _, spectrum) in valid {
            let strongest =
                (0..channels).max_by(|a, b| spectrum[*a].norm().total_cmp(&spectrum[*b].norm()));
            // The response in the outer half of the channels is undefined.
            let is_kept = (16..48).contains(&channel);
            assert!(!is_kept || strongest == Some(channel), "{t}: {strongest:?} for {channel}");
        }
    }
}

#[test]
fn delay_rotates_channels_in_proportion_to_their_frequency() {
    // The same signal with and without delay: the outputs differ by a phase proportional to the distance
    // from the centre of the band, plus the phase of the model.
    let (channels, subsampling, delay) = (64_usize, 8_usize, 13.3);
    let samples = noise(7, 1 << 17, 150.0, 10);
    let input = Digitised::new(samples);
    let run = |delays: Value| {
        let out = narrowband(
            json!({"centre_hz": 4e8, "decimation": 8, "samples_per_frame": 512}),
            json!({"channels": channels, "taps": 8, "spectra_per_frame": 4, "delays": delays, "max_delay_seconds": 1e-6, "centre_hz": 4e8}),
            &input,
        );
        let out = then::<crate::f_engine::postproc::Postproc>(
            json!({"spectra_per_heap": 4, "dither": "none", "gains": 0.3, "channels": 32}),
            out,
        );
        assert_eq!(out.port.band.unwrap().channels, 32);
        let heaps: Vec<(u64, Vec<[i8; 2]>)> =
            out.frames.iter().map(|frame| (frame.timestamp, frame.values())).collect();
        heaps
    };
    let plain = run(json!([[]]));
    let delayed = run(json!([[{"delay_samples": delay, "phase_radians": 0.7}]]));
    let mut products = vec![Complex64::default(); 32];
    let mut powers = vec![0.0; 32];
    for (t, heap) in &delayed {
        let Some((_, before)) = plain.iter().find(|(other, _)| other == t) else { continue };
        for (i, (a, b)) in heap.iter().zip(before).enumerate() {
            let value = |z: &[i8; 2]| Complex64::new(f64::from(z[0]), f64::from(z[1]));
            products[i / 4] += value(a) * value(b).conj();
            powers[i / 4] += value(b).norm_sqr();
        }
    }
    for (k, (product, power)) in products.iter().zip(&powers).enumerate() {
        let from_centre_turns = (k as f64 - 16.0) / (channels * subsampling) as f64;
        // A delay d rotates a channel by -2 pi f d; the centre is not rotated.
        let expected = 0.7 - TAU * from_centre_turns * delay;
        let apart = (product.arg() - expected + PI).rem_euclid(TAU) - PI;
        assert!(apart.abs() < 0.12, "channel {k}: {} for {expected}", product.arg());
        assert!(product.norm() > 0.5 * power, "channel {k}: {} of {power}", product.norm());
    }
}

#[test]
fn narrowband_channels_agree_with_wideband_channels() {
    // Channels of the same width and windows of the same length; the `ddc` filter adds a delay of 63.5 samples.
    let (wide_channels, narrow_channels, subsampling, first) = (256, 64, 8, 100);
    let centre = RATE_HZ / 2.0 / f64::from(wide_channels) * f64::from(first);
    let input = Digitised::new(noise(9, 1 << 18, 150.0, 10));
    let wide = json!({"channels": wide_channels, "taps": 8, "spectra_per_frame": 4});
    let wide = then::<crate::f_engine::fft::Fft>(
        json!({}),
        chain::pfb(wide, std::slice::from_ref(&input)),
    );
    let narrow = narrowband(
        json!({"centre_hz": centre, "decimation": subsampling, "samples_per_frame": 512}),
        json!({"channels": narrow_channels, "taps": 8, "spectra_per_frame": 4, "centre_hz": centre}),
        &input,
    );
    let (wide, narrow) = (chain::spectra(&wide), chain::spectra(&narrow));
    for channel in 16..48_usize {
        let of_wide = channel + first as usize - 32;
        let (mut product, mut powers) = (Complex64::default(), [0.0; 2]);
        for (t, _, spectrum) in narrow[0].iter().filter(|spectrum| spectrum.1) {
            let Some((.., other)) = wide[0].iter().find(|other| other.0 == *t && other.1) else {
                continue;
            };
            let [a, b] = [spectrum[channel], other[of_wide]]
                .map(|z| Complex64::new(f64::from(z.re), f64::from(z.im)));
            product += a * b.conj();
            powers = [powers[0] + a.norm_sqr(), powers[1] + b.norm_sqr()];
        }
        let coherence = product.norm() / (powers[0] * powers[1]).sqrt();
        assert!(coherence > 0.97, "channel {channel}: {coherence}");
        let ratio = powers[0] / powers[1];
        assert!((ratio - 1.0).abs() < 0.05, "channel {channel}: {ratio}");
    }
}

#[test]
fn ddc_output_has_band_of_selected_part() {
    let sampled = Digitised::new(Vec::new()).port();
    let of_sky = |centre_hz, bandwidth_hz| {
        let band = Band::signed(1, 0, centre_hz, bandwidth_hz);
        PortType { band: Some(band), ..sampled.clone() }
    };
    let (quarter, half) = (RATE_HZ / 4.0, RATE_HZ / 2.0);
    for (input, centre, width) in [
        (sampled.clone(), 3e8, RATE_HZ / 8.0),
        // The second Nyquist zone has an inverted spectrum, the third one has not.
        (of_sky(3.0 * quarter, -half), RATE_HZ - 3e8, -RATE_HZ / 8.0),
        (of_sky(5.0 * quarter, half), RATE_HZ + 3e8, RATE_HZ / 8.0),
    ] {
        let ddc: Ddc = kind(json!({"centre_hz": 3e8, "decimation": 8}));
        let narrow = ddc.outputs(&[input]).unwrap();
        let band = narrow[0].band.unwrap();
        let of_band = |band: Band| (band.channels, band.centre_hz, band.signed_bandwidth_hz());
        assert_eq!(of_band(band), (1, centre, width));
        // A `pfb` downstream needs no `centre_hz`; if set, it overrides the band.
        let spectra =
            |parameters| kind::<Pfb>(parameters).outputs(&narrow).unwrap()[0].band.unwrap();
        let band = spectra(json!({"channels": 64}));
        assert_eq!(of_band(band), (64, centre, width));
        let given = spectra(json!({"channels": 64, "centre_hz": 1e9}));
        assert_eq!((given.channels, given.centre_hz), (64, 1e9));
    }
}

fn rejections(parameters: Value, input: &PortType) -> Vec<fxgraph::Rejection> {
    KindSpec::outputs(&kind::<Ddc>(parameters), std::slice::from_ref(input)).unwrap_err()
}

#[test]
fn ddc_rejects_hostile_parameters() {
    let port = Digitised::new(Vec::new()).port();
    for parameters in [
        json!({"centre_hz": 4e8, "decimation": 0}),
        json!({"centre_hz": 4e8, "decimation": 7}),
        json!({"centre_hz": 4e8, "decimation": 66}),
        json!({"centre_hz": 4e8, "decimation": u64::MAX}),
        json!({"centre_hz": 4e8, "decimation": u64::MAX, "mode": "no_discard"}),
        json!({"centre_hz": 4e8, "decimation": 33, "mode": "no_discard"}),
        json!({"centre_hz": 4e8, "decimation": 8, "taps": 7}),
        json!({"centre_hz": 4e8, "decimation": 8, "taps": u64::MAX}),
        json!({"centre_hz": 4e8, "decimation": 8, "pass_weight": 0.0}),
        json!({"centre_hz": 4e8, "decimation": 8, "samples_per_frame": 0}),
        json!({"centre_hz": 4e8, "decimation": 8, "samples_per_frame": 1000}),
        json!({"centre_hz": 4e8, "decimation": 8, "samples_per_frame": u64::MAX}),
        json!({"centre_hz": 4e8, "decimation": 8, "pass_bandwidth_hz": 1e6}),
        json!({"centre_hz": 4e8, "decimation": 8, "mode": "no_discard", "pass_bandwidth_hz": 1.07e8}),
        json!({"centre_hz": 4e8, "decimation": 8, "mode": "no_discard", "pass_bandwidth_hz": -1.0}),
        json!({"centre_hz": 5e7, "decimation": 8}),
        json!({"centre_hz": 8.3e8, "decimation": 8}),
        json!({"centre_hz": -4e8, "decimation": 8}),
    ] {
        let all = rejections(parameters.clone(), &port);
        assert_eq!(all.len(), 1, "{parameters}: {all:?}");
    }
    let first = |parameters| rejections(parameters, &port).remove(0);
    assert_eq!(
        first(json!({"centre_hz": 5e7, "decimation": 8})).help.unwrap(),
        "set `centre_hz` between 53500000 and 802500000"
    );
    let narrow =
        json!({"centre_hz": 4e8, "decimation": 8, "mode": "no_discard", "pass_bandwidth_hz": 1.0});
    assert_eq!(
        first(narrow).message,
        "`pass_bandwidth_hz` must be between 1059300 and 105930000 for a band of 107000000 Hz, got 1"
    );
}

#[test]
fn wideband_and_narrowband_blocks_share_one_upload() {
    let narrow = |name: &str, hz: f64| {
        format!(
            "  {name}: {{kind: ddc, input: source, parameters: {{centre_hz: {hz:e}, decimation: 8}}}}\n  \
             {name}_end: {{kind: null_sink, input: {name}}}\n"
        )
    };
    let text = format!(
        "flowgraph: bands\ndevice: \"cuda:0\"\nblocks:\n  source: {{kind: null_source, device: cpu, parameters: \
         {{dtype: i10p, axes: [{{name: sample, len: 65536}}], samples_per_frame: 65536}}}}\n  \
         wide: {{kind: pfb, inputs: [source], parameters: {{channels: 64}}}}\n  \
         wide_end: {{kind: null_sink, input: wide}}\n{}{}",
        narrow("low", 2e8),
        narrow("high", 6e8)
    );
    let registry = crate::kinds();
    let plan = load_text("bands.yaml", &text, &[], &registry).result.unwrap();
    let uploads: Vec<_> = plan.blocks.iter().filter(|block| block.name.contains('>')).collect();
    assert_eq!(uploads.len(), 1);
    assert_eq!(uploads[0].kind, "upload");
}
