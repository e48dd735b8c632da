//! Samples through the F-engine and back, and spectra whose samples are known.

use super::Synthesiser;
use crate::f_engine::fft::Fft;
use crate::f_engine::postproc::Postproc;
use crate::tests::chain::{self, Digitised, Out, Plain, kind, noise, pfb, then};
use fxgraph::{Axis, Band, Clock, Dtype, KindSpec, PortType, ValidityType};
use num_complex::{Complex32, Complex64};
use serde_json::{Value, json};
use std::f64::consts::TAU;

/// Quantised spectra of noise with a standard deviation of 100, times 0.4.
fn spectra(filter: &Value, channels: usize, input: &Digitised) -> Out {
    let mut parameters = filter.clone();
    parameters["channels"] = json!(channels);
    parameters["spectra_per_frame"] = json!(16);
    let postproc = json!({"spectra_per_heap": 16, "gains": 0.4, "dither": "none"});
    then::<Postproc>(
        postproc,
        then::<Fft>(json!({}), pfb(parameters, &[input.clone(), input.clone()])),
    )
}

/// Timestamp, validity and value of the samples of a row; `None` for the heaps that are invalid.
fn valid_samples(out: &Out, row: usize, heaps: usize) -> Vec<(u64, f32)> {
    let samples = out.port.axis_len("sample").unwrap();
    let of_frame = |frame: &Plain| {
        let values: Vec<f32> = frame.values();
        let (t, validity) = (frame.timestamp, frame.validity.clone());
        let row = values[row * samples..][..samples].to_vec();
        let one = move |(n, y)| (validity[n * heaps / samples] > 0).then_some((t + n as u64, y));
        row.into_iter().enumerate().filter_map(one).collect::<Vec<_>>()
    };
    out.frames.iter().flat_map(of_frame).collect()
}

#[test]
fn samples_return_at_their_times() {
    for (filter, channels, most_decibels) in [
        // The error is the quantisation (a sixth of a unit) and the missing Nyquist channel, 1 of 512.
        (json!({"taps": 1, "window": "rect", "w_cutoff": 0}), 256, -25.9),
        // The error of the inverse (-27, -25 and -14 dB), and -21 dB of the missing channel, 1 of 128.
        (json!({"taps": 16}), 64, -20.1),
        (json!({"taps": 4, "margin": 8}), 64, -19.5),
        (json!({"taps": 4, "margin": 0}), 64, -13.5),
    ] {
        let input = Digitised { start: 1 << 20, ..Digitised::new(noise(5, 1 << 17, 100.0, 10)) };
        let mut of_pfb = filter.clone();
        of_pfb.as_object_mut().unwrap().remove("margin");
        let out = then::<Synthesiser>(filter.clone(), spectra(&of_pfb, channels, &input));
        assert_eq!(out.count("heaps_missing"), 0);
        for pol in [0, 1] {
            let samples = valid_samples(&out, pol, out.port.validity.units());
            assert!(samples.len() > 1 << 16, "{filter}: {}", samples.len());
            let square = |(t, y): &(u64, f32)| {
                let x = f64::from(input.samples[(t - input.start) as usize]);
                (0.4 * x - f64::from(*y)).powi(2)
            };
            let power = samples.iter().map(square).sum::<f64>() / samples.len() as f64;
            let decibels = 10.0 * (power / 1600.0).log10();
            assert!((decibels - most_decibels).abs() < 1.0, "{filter}: {decibels} dB");
        }
    }
}

/// Spectra by hand, `ci8 [heap 2][beam 2][channel 8][spectrum 4]` of channels 4 to 11 of 32.
fn port() -> PortType {
    let heap = Axis::new("heap", 2);
    PortType {
        dtype: Dtype::Ci8,
        axes: vec![
            heap.clone(),
            Axis::new("beam", 2),
            Axis::new("channel", 8),
            Axis::new("spectrum", 4),
        ],
        clock: Clock::new(64e6, 512),
        band: Some(Band::signed(32, 4, 1e9, 32e6)),
        validity: ValidityType { axes: vec![heap], full: 3 },
    }
}

/// Frames in which each beam has one channel: 6 and 1.
fn frames(validity: &[[u32; 2]]) -> Vec<Plain> {
    let frame = |(n, validity): (usize, &[u32; 2])| {
        let mut payload = vec![0; 2 * 2 * 8 * 4 * 2];
        for (i, value) in payload.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let (beam, channel) = (i / 32 % 2, i / 4 % 8);
            *value = if channel == [6, 1][beam] { [30, 40] } else { [0, 0] };
        }
        Plain {
            timestamp: 5120 + 512 * n as u64,
            validity: validity.to_vec(),
            annotations: fxgraph::frame::Annotations::default(),
            payload,
        }
    };
    validity.iter().enumerate().map(frame).collect()
}

#[test]
fn part_of_the_band_becomes_complex_samples_around_its_centre() {
    let kind = kind::<Synthesiser>(
        json!({"output": "complex", "taps": 1, "window": "rect", "w_cutoff": 0}),
    );
    let out = chain::drive(&kind, &[port()], vec![frames(&[[3, 3], [2, 0], [3, 1]])]);
    assert_eq!((out.port.dtype, out.port.samples_per("sample")), (Dtype::Cf32, Some(8)));
    let band = out.port.band.unwrap();
    // Channel 8 of 32 is 8 below the centre; a channel has 1 MHz.
    assert_eq!((band.channels, band.centre_hz, band.bandwidth_hz), (1, 992e6, 8e6));
    let validity: Vec<_> = out.frames.iter().map(|frame| frame.validity.as_slice()).collect();
    assert_eq!(validity, [[3, 3], [2, 0], [3, 1]]);
    for (frame, timestamp) in out.frames.iter().zip([5120, 5632, 6144]) {
        assert_eq!(frame.timestamp, timestamp);
        for (n, y) in frame.values::<Complex32>().iter().enumerate() {
            let (beam, m) = (n / 64, n % 64);
            let turns = ([6.0, 1.0][beam] - 4.0) * m as f64 / 8.0;
            let is_missing = frame.validity[m / 32] == 0;
            let expected = Complex64::new(30.0, 40.0) / 8.0_f64.sqrt()
                * Complex64::from_polar(1.0, TAU * turns);
            let expected = if is_missing { Complex64::default() } else { expected };
            let y = Complex64::new(f64::from(y.re), f64::from(y.im));
            assert!((y - expected).norm() < 1e-5 * 50.0, "{n}: {y} {expected}");
        }
    }
    assert_eq!(out.count("heaps_missing"), 1);
}

#[test]
fn heaps_that_depend_on_missing_spectra_are_invalid() {
    let kind = kind::<Synthesiser>(json!({"output": "complex", "taps": 2, "margin": 1}));
    let mut sent = frames(&[[3, 3], [3, 3], [2, 0], [3, 3], [3, 3], [3, 3], [3, 3]]);
    // A frame does not come, and one comes again.
    sent.remove(4);
    sent.push(Plain { ..sent[4].clone() });
    let out = chain::drive(&kind, &[port()], vec![sent]);
    let found: Vec<_> = out
        .frames
        .iter()
        .map(|frame| (frame.timestamp / 512 - 10, frame.validity.as_slice()))
        .collect();
    // A sum has 2 spectra before and 1 after.
    let expected: [(u64, [u32; 2]); 6] =
        [(0, [0, 3]), (1, [3, 2]), (2, [0, 0]), (3, [0, 0]), (5, [0, 3]), (6, [3, 0])];
    assert_eq!(found.len(), expected.len());
    for ((at, validity), (expected_at, expected)) in found.into_iter().zip(expected) {
        assert_eq!((at, validity), (expected_at, expected.as_slice()));
    }
    // Five in these frames, and the two of the frame that did not come.
    assert_eq!((out.count("heaps_missing"), out.count("frames_misplaced")), (7, 1));
}

#[test]
fn inputs_that_cannot_be_inverted_are_rejected() {
    let messages = |parameters: Value, input: PortType| {
        let rejections = kind::<Synthesiser>(parameters).outputs(&[input]).unwrap_err();
        rejections.into_iter().map(|rejection| rejection.message).collect::<Vec<_>>()
    };
    assert_eq!(
        messages(json!({"margin": 9}), port()),
        [
            "`output: real` needs all 32 channels of the band, got 8 from 4 on",
            "`margin` must be at most the 8 spectra of a frame, got 9"
        ]
    );
    let mut narrow = port();
    narrow.axes[2].len = 7;
    assert_eq!(
        messages(json!({"output": "complex", "taps": 1}), narrow),
        ["the channels must be an even number that divides the 64 samples of a spectrum, got 7"]
    );
    let samples = PortType { dtype: Dtype::I16, ..port() };
    assert_eq!(messages(json!({}), samples), ["the input must carry `ci8` or `cf32`, got `i16`"]);
}
