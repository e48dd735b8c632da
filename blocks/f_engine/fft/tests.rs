use super::Fft;
use crate::tests::chain::{self, Digitised, dft, filtered, kind, noise, pfb, spectra, then};
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, KindSpec, PortType, Ports, ValidityType};
use fxgraph_dsp::random::Random;
use num_complex::{Complex32, Complex64};
use serde_json::json;
use std::f64::consts::TAU;

fn tone(channel: f64, channels: usize, len: usize) -> Vec<i16> {
    let turns = channel / (2 * channels) as f64;
    (0..len).map(|i| (400.0 * (TAU * turns * i as f64).cos()).round() as i16).collect()
}

fn chain_of(parameters: serde_json::Value, samples: Vec<i16>) -> chain::Out {
    then::<Fft>(json!({}), pfb(parameters, &[Digitised::new(samples)]))
}

#[test]
fn agrees_with_a_direct_transform_in_double_precision() {
    for (channels, taps) in
        [(4, 16), (16, 4), (64, 16), (128, 2), (10, 3), (30, 16), (1000, 2), (1536, 1)]
    {
        let samples = noise(7, 8192, 150.0, 10);
        let step = 2 * channels;
        let out = chain_of(
            json!({"channels": channels, "taps": taps, "spectra_per_frame": 4}),
            samples.clone(),
        );
        let w = chain::weights(step, taps, true, 1.0);
        for (t, _, spectrum) in spectra(&out)[0].iter().filter(|row| row.1) {
            let expected = dft(&filtered(&samples[*t as usize..], &w, step), channels);
            for (got, want) in spectrum.iter().zip(&expected) {
                let off = (f64::from(got.re) - want.re).hypot(f64::from(got.im) - want.im);
                assert!(off < 4e-3, "{channels} channels: {got} {want}");
            }
        }
    }
}

#[test]
fn many_channels_agree_with_direct_sums_in_double_precision() {
    let channels = 24_576;
    let step = 2 * channels;
    let samples = noise(7, 2 * step, 150.0, 10);
    let out = chain_of(json!({"channels": channels, "taps": 1}), samples.clone());
    let w = chain::weights(step, 1, true, 1.0);
    let turns: Vec<Complex64> =
        (0..step).map(|n| Complex64::cis(-TAU * n as f64 / step as f64)).collect();
    let rows = spectra(&out).swap_remove(0);
    let mut compared = 0;
    for (t, _, spectrum) in rows.iter().filter(|row| row.1) {
        let series = filtered(&samples[*t as usize..], &w, step);
        for k in (0..channels).step_by(97) {
            let term = |(n, x): (usize, &f64)| turns[n * k % step] * x;
            let want: Complex64 = series.iter().enumerate().map(term).sum();
            let got = spectrum[k];
            let off = (f64::from(got.re) - want.re).hypot(f64::from(got.im) - want.im);
            assert!(off < 4e-3, "channel {k}: {got} {want}");
            compared += 1;
        }
    }
    assert_eq!(compared, 2 * channels.div_ceil(97));
}

#[test]
fn complex_samples_agree_with_a_direct_transform_in_double_precision() {
    for channels in [30, 64, 1000] {
        let mut random = Random::new(channels as u64);
        let samples: Vec<Complex32> = (0..2 * channels)
            .map(|_| random.normal_pair().map(|x| (100.0 * x) as f32))
            .map(|[re, im]| Complex32::new(re, im))
            .collect();
        let axes = [("pol", 1), ("spectrum", 2), ("sample", channels)];
        let axes = axes.map(|(name, len)| Axis::new(name, len));
        let input = PortType {
            dtype: Dtype::Cf32,
            axes: axes.to_vec(),
            clock: Clock::new(1e6, 8 * channels as u64),
            band: None,
            validity: ValidityType::flags(axes[..2].to_vec()),
        };
        let fft: Fft = kind(json!({}));
        let outputs = KindSpec::outputs(&fft, std::slice::from_ref(&input)).unwrap();
        let ports = Ports { inputs: vec![input], outputs };
        let block = fft.build(&ports.inputs, &Env::detached("fft")).unwrap();
        let mut harness = Harness::new(block, &ports, 1).unwrap();
        harness.send(0, |frame| frame.as_mut_slice().unwrap().copy_from_slice(&samples));
        harness.end(0);
        Harness::block_on(harness.run()).unwrap();
        let frame = harness.receive(0).unwrap();
        let spectra = frame.as_slice::<Complex32>().unwrap().chunks_exact(channels);
        for (series, spectrum) in samples.chunks_exact(channels).zip(spectra) {
            for (k, got) in spectrum.iter().enumerate() {
                let term = |(n, x): (usize, &Complex32)| {
                    let turns = (n * k % channels) as f64 / channels as f64;
                    Complex64::new(x.re.into(), x.im.into()) * Complex64::cis(-TAU * turns)
                };
                let want: Complex64 = series.iter().enumerate().map(term).sum();
                let off = (f64::from(got.re) - want.re).hypot(f64::from(got.im) - want.im);
                assert!(off < 1e-2, "{channels} channels: {got} {want}");
            }
        }
    }
}

#[test]
fn a_tone_lands_in_its_channel() {
    for k in [1, 17, 40, 63] {
        let out =
            chain_of(json!({"channels": 64, "spectra_per_frame": 8}), tone(f64::from(k), 64, 8192));
        for (_, _, spectrum) in spectra(&out)[0].iter().filter(|row| row.1) {
            let power: Vec<f32> = spectrum.iter().map(num_complex::Complex::norm_sqr).collect();
            let total: f32 = power.iter().sum();
            assert!(power[k as usize] > 0.999 * total, "channel {k}");
        }
    }
}

#[test]
fn without_filter_the_power_is_that_of_the_samples() {
    let samples = noise(8, 8192, 100.0, 10);
    let out = chain_of(
        json!({"channels": 64, "taps": 1, "w_cutoff": 0, "window": "rect", "spectra_per_frame": 8}),
        samples.clone(),
    );
    for (t, _, spectrum) in &spectra(&out)[0] {
        let x = &samples[*t as usize..*t as usize + 128];
        let squares: f64 = x.iter().map(|x| f64::from(*x).powi(2)).sum();
        // The weights are 1/sqrt(128); the Nyquist channel is dropped.
        let alternating: f64 = x
            .iter()
            .enumerate()
            .map(|(i, x)| if i % 2 == 0 { f64::from(*x) } else { -f64::from(*x) })
            .sum();
        let nyquist = alternating * alternating / 128.0;
        let power: f64 = spectrum
            .iter()
            .enumerate()
            .map(|(k, z)| f64::from(z.norm_sqr()) * if k == 0 { 1.0 } else { 2.0 })
            .sum();
        assert!((power + nyquist - squares).abs() < 1e-4 * squares);
    }
}

#[test]
fn a_channel_rejects_what_is_beyond_twice_its_width() {
    let (channels, k) = (64, 32);
    let response = |offset: f64| {
        let out = chain_of(
            json!({"channels": channels, "spectra_per_frame": 8}),
            tone(f64::from(k) + offset, channels, 8192),
        );
        let spectra = spectra(&out);
        let valid = spectra[0].iter().filter(|row| row.1);
        let powers: Vec<f64> = valid.map(|row| f64::from(row.2[k as usize].norm_sqr())).collect();
        powers.iter().sum::<f64>() / powers.len() as f64
    };
    let pass = response(0.0);
    for offset in [-9.3, -3.7, -2.0, -1.5, -1.2, -1.0, 1.0, 1.3, 1.6, 2.0, 2.5, 5.1, 17.7] {
        let db = 10.0 * (response(offset) / pass).log10();
        assert!(db < -53.0, "{offset} channels off: {db} dB");
    }
    let edge = 10.0 * (response(0.5) / pass).log10();
    assert!((edge + 6.0).abs() < 0.3, "half a channel off: {edge} dB");
}

#[test]
fn threads_change_nothing() {
    let samples = noise(9, 16384, 100.0, 10);
    for unzip in [1, 4] {
        let before = || {
            pfb(
                json!({"channels": 64, "spectra_per_frame": 10, "unzip": unzip}),
                &[Digitised::new(samples.clone())],
            )
        };
        let one = then::<Fft>(json!({}), before());
        let three = then::<Fft>(json!({"threads": 3}), before());
        assert_eq!(spectra(&one), spectra(&three));
        assert_eq!(one.frames[0].annotations.get("phase_turns").len(), 10);
    }
}

#[test]
fn inputs_that_are_no_spectra_are_rejected() {
    let samples = Digitised::new(Vec::new()).port();
    let fft: Fft = kind(json!({}));
    let rejections = KindSpec::outputs(&fft, std::slice::from_ref(&samples)).unwrap_err();
    assert!(rejections[0].help.as_ref().unwrap().contains("f32 [pol][spectrum][sample]"));
    let mut odd = samples;
    odd.dtype = Dtype::F32;
    odd.axes = vec![Axis::new("pol", 1), Axis::new("spectrum", 4), Axis::new("sample", 98)];
    assert_eq!(KindSpec::outputs(&fft, &[odd]).unwrap_err().len(), 1);
}
