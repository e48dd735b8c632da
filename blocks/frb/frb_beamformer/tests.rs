use super::*;
use crate::tests::chain::{Out, Plain, drive, kind};
use fxgraph::frame::Annotations;
use fxgraph::{Axis, Band, Clock, Dtype, ValidityType};
use fxgraph_dsp::geometry::SPEED_OF_LIGHT;
use fxgraph_dsp::random::Random;
use half::f16;
use num_complex::Complex64;
use serde_json::{Value, json};
use std::f64::consts::TAU;

const STEP: u64 = 2048;
const BAND: Band = Band::signed(1024, 300, 600e6, 400e6);

/// A small array.
#[derive(Clone, Copy)]
pub struct Array {
    pub dtype: Dtype,
    pub spectra: usize,
    pub channels: usize,
    pub cylinders: usize,
    pub feeds: usize,
    /// Lengths of the axes of validity.
    pub units: [usize; 2],
}

pub const SMALL: Array =
    Array { dtype: Dtype::Ci8, spectra: 16, channels: 2, cylinders: 3, feeds: 12, units: [16, 2] };

impl Array {
    pub fn port(&self) -> PortType {
        let axes = [
            ("spectrum", self.spectra),
            ("channel", self.channels),
            ("pol", 2),
            ("east_west", self.cylinders),
            ("north_south", self.feeds),
        ];
        let [in_time, in_frequency] = self.units;
        PortType {
            dtype: self.dtype,
            axes: axes.map(|(name, len)| Axis::new(name, len)).to_vec(),
            clock: Clock::new(800e6, STEP * self.spectra as u64),
            band: Some(BAND),
            validity: ValidityType::flags(vec![
                Axis::new("spectrum", in_time),
                Axis::new("channel", in_frequency),
            ]),
        }
    }

    fn hz(&self, channel: usize) -> f64 {
        BAND.centre_hz + (300.0 + channel as f64 - 512.0) * BAND.bandwidth_hz / 1024.0
    }

    /// One frame whose value for (spectrum, channel, pol, cylinder, feed) is `value`, rounded.
    fn frame(&self, value: impl Fn([usize; 5]) -> Complex64) -> Plain {
        let mut payload = Vec::new();
        for n in 0..self.port().elements() {
            let value = value(self.place(n));
            let [re, im] = [value.re, value.im].map(|part| part.round() as i8);
            match self.dtype {
                Dtype::Ci4 => payload.push(((re << 4) | (im & 15)).cast_unsigned()),
                Dtype::Ci8 => payload.extend([re.cast_unsigned(), im.cast_unsigned()]),
                _ => [value.re, value.im].iter().for_each(|part| {
                    payload.extend(f16::from_f64(*part).to_le_bytes());
                }),
            }
        }
        let validity = vec![1; self.units.iter().product()];
        Plain { timestamp: 0, validity, annotations: Annotations::default(), payload }
    }

    fn place(&self, mut n: usize) -> [usize; 5] {
        let mut place = [0; 5];
        let lengths = [self.spectra, self.channels, 2, self.cylinders, self.feeds];
        for (place, len) in place.iter_mut().zip(lengths).rev() {
            *place = n % len;
            n /= len;
        }
        place
    }

    fn run(&self, parameters: Value, frame: Plain) -> Out {
        drive(&kind::<FrbBeamformer>(parameters), &[self.port()], vec![vec![frame]])
    }
}

/// Random integers up to `limit`.
fn noise(seed: u64, limit: f64) -> impl Fn([usize; 5]) -> Complex64 {
    move |place| {
        let index = place.iter().fold(0, |index, part| index * 1000 + *part as u64);
        let mut random = Random::of(seed, index);
        let mut part = || ((random.uniform() - 0.5) * (2.0 * limit + 1.0)).round();
        Complex64::new(part(), part())
    }
}

/// Voltages `[spectrum][channel][pol][beam]` before the transform in time, from the equations in double precision.
fn voltages(
    array: &Array,
    value: &dyn Fn([usize; 5]) -> Complex64,
    angles_degrees: &[f64],
    points: usize,
    beams: usize,
) -> Vec<Complex64> {
    let mut out = Vec::new();
    for n in 0..array.spectra * array.channels * 2 {
        let [t, c, p] = [n / 2 / array.channels, n / 2 % array.channels, n % 2];
        let hz = array.hz(c);
        for angle in angles_degrees {
            for beam in 0..beams {
                // Horizon to horizon: the sine covers -1 to 1 with as many beams as feeds.
                let sine = 2.0 * (beam as f64 - (beams / 2) as f64) / array.feeds as f64;
                let point = (points as f64 * 0.3048 * hz * sine / SPEED_OF_LIGHT).round();
                let mut sum = Complex64::ZERO;
                for x in 0..array.cylinders {
                    for feed in 0..array.feeds {
                        let across =
                            -hz * 22.0 * x as f64 * angle.to_radians().sin() / SPEED_OF_LIGHT;
                        let along = point * feed as f64 / points as f64;
                        sum += value([t, c, p, x, feed]) * Complex64::cis(TAU * (across + along));
                    }
                }
                out.push(sum);
            }
        }
    }
    out
}

fn relative_rms(found: &[Complex64], expected: &[Complex64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let power = |values: &[Complex64]| values.iter().map(Complex64::norm_sqr).sum::<f64>();
    let errors: Vec<_> = found.iter().zip(expected).map(|(f, e)| f - e).collect();
    (power(&errors) / power(expected)).sqrt()
}

fn double(values: Vec<[f32; 2]>) -> Vec<Complex64> {
    values.iter().map(|[re, im]| Complex64::new((*re).into(), (*im).into())).collect()
}

#[test]
fn beams_agree_with_equations_for_every_type_of_voltages() {
    for (dtype, limit) in [(Dtype::Ci4, 7.0), (Dtype::Ci8, 127.0), (Dtype::Cf16, 100.0)] {
        let array = Array { dtype, spectra: 2, ..SMALL };
        let array = Array { units: [1, 1], ..array };
        let value = noise(1, limit);
        let parameters = json!({
            "east_west": {"angles_degrees": [-0.4, 0.0, 0.4, 0.8]},
            "north_south": {"points": 24}, "clamp": {"beams": 10}, "threads": 2,
        });
        let out = array.run(parameters.clone(), array.frame(&value));
        let expected = voltages(&array, &value, &[-0.4, 0.0, 0.4, 0.8], 24, 10);
        let found = double(out.frames[0].values());
        assert!(relative_rms(&found, &expected) < 1e-6, "{dtype}");
        assert_eq!(
            out.port.to_string(),
            "cf32 [spectrum 2][channel 2][pol 2][beam 40] @ 800 MS/s / 4096"
        );

        let mut half_precision = parameters;
        half_precision["voltages"] = json!("cf16");
        let out = array.run(half_precision, array.frame(&value));
        let values: Vec<[f16; 2]> = out.frames[0].values();
        let found = double(values.iter().map(|pair| pair.map(f16::to_f32)).collect());
        let error = relative_rms(&found, &expected);
        assert!((1e-5..3e-4).contains(&error), "{error}");
    }
}

#[test]
fn north_south_alone_is_the_first_transform() {
    let value = noise(2, 7.0);
    let array = Array { dtype: Dtype::Ci4, ..SMALL };
    let out = array.run(json!({"north_south": {"points": 20}}), array.frame(&value));
    let found = double(out.frames[0].values());
    for n in [0, 7, 63] {
        for q in 0..20 {
            let sum = |feed: usize| {
                let turns = (q * feed) as f64 / 20.0;
                value([n / 12, n / 6 % 2, n / 3 % 2, n % 3, feed]) * Complex64::cis(TAU * turns)
            };
            let expected: Complex64 = (0..12).map(sum).sum();
            assert!((found[n * 20 + q] - expected).norm() < 1e-4, "{n} {q}");
        }
    }
}

#[test]
fn intensities_are_powers_of_transformed_voltages() {
    let value = noise(3, 127.0);
    let array = SMALL;
    let stages = json!({
        "east_west": {"angles_degrees": [0.3, 1.0]}, "north_south": {"points": 24},
        "clamp": {"beams": 12}, "upchannelise": 4, "integrate": {"channels": 2, "spectra": 2},
    });
    let out = array.run(stages, array.frame(&value));
    assert_eq!(out.port.to_string(), "f32 [spectrum 2][channel 4][beam 24] @ 800 MS/s / 32768");
    let found: Vec<f32> = out.frames[0].values();
    let beams = voltages(&array, &value, &[0.3, 1.0], 24, 12);
    let mut expected = vec![0.0; found.len()];
    for n in 0..4 * 2 * 2 * 24 {
        let [transform, c, p, beam] = [n / 96, n / 48 % 2, n / 24 % 2, n % 24];
        for fine in 0..4 {
            // Ascending frequencies: -2, -1, 0, 1 quarters of a channel.
            let k = fine as f64 - 2.0;
            let sum: Complex64 = (0..4)
                .map(|t| {
                    let voltage = beams[(((transform * 4 + t) * 2 + c) * 2 + p) * 24 + beam];
                    voltage * Complex64::cis(-TAU * k * t as f64 / 4.0)
                })
                .sum();
            expected[((transform / 2) * 4 + c * 2 + fine / 2) * 24 + beam] += sum.norm_sqr();
        }
    }
    for (found, expected) in found.iter().zip(expected) {
        assert!((f64::from(*found) - expected).abs() < 1e-5 * expected, "{found} {expected}");
    }
}

#[test]
fn source_is_brightest_in_the_beam_towards_it() {
    let array = Array { spectra: 1, channels: 2, cylinders: 4, feeds: 64, units: [1, 1], ..SMALL };
    let angles = [-0.4, 0.0, 0.4, 0.8];
    for (row, beam) in [(0, 3), (2, 40), (3, 32), (1, 61)] {
        let sine = 2.0 * (beam as f64 - 32.0) / 64.0;
        let value = |[_, c, _, x, feed]: [usize; 5]| {
            let metres_east = 22.0 * x as f64 * f64::to_radians(angles[row]).sin();
            let delay = (0.3048 * feed as f64 * sine - metres_east) / SPEED_OF_LIGHT;
            100.0 * Complex64::cis(-TAU * array.hz(c) * delay)
        };
        let stages = json!({
            "east_west": {}, "north_south": {"points": 128}, "clamp": {"beams": 64}, "integrate": {},
        });
        let out = array.run(stages, array.frame(value));
        let intensities: Vec<f32> = out.frames[0].values();
        for of_channel in intensities.chunks_exact(256) {
            let brightest = (0..256).max_by(|a, b| of_channel[*a].total_cmp(&of_channel[*b]));
            assert_eq!(brightest, Some(row * 64 + beam));
            // The distance to the nearest point of the transform is at most a quarter of a beam.
            let full = 2.0 * (100.0_f32 * 256.0).powi(2);
            assert!(of_channel[row * 64 + beam] > 0.81 * full);
        }
    }
}

#[test]
fn beams_and_gains_of_the_lower_sideband_are_those_of_the_sky() {
    let array = Array { spectra: 1, channels: 2, cylinders: 4, feeds: 64, units: [1, 1], ..SMALL };
    // The frequency falls with the channel.
    let port = PortType { band: Some(Band::signed(1024, 300, 400e6, -400e6)), ..array.port() };
    let hz = |c: usize| 400e6 - (300.0 + c as f64 - 512.0) * 400e6 / 1024.0;
    // Phase by which each feed is ahead.
    let ahead = |x: usize, feed: usize| 0.7 * (x * 64 + feed) as f64;
    let gain =
        |n: usize| json!({"re": ahead(n / 64, n % 64).cos(), "im": -ahead(n / 64, n % 64).sin()});
    let gains: Vec<Value> = (0..256).map(gain).collect();
    let angles = [-0.4, 0.0, 0.4, 0.8];
    for (row, beam) in [(0, 3), (2, 40), (3, 32), (1, 61)] {
        let sine = 2.0 * (beam as f64 - 32.0) / 64.0;
        let value = |[_, c, _, x, feed]: [usize; 5]| {
            let metres_east = 22.0 * x as f64 * f64::to_radians(angles[row]).sin();
            let delay = (0.3048 * feed as f64 * sine - metres_east) / SPEED_OF_LIGHT;
            let on_sky = Complex64::cis(ahead(x, feed) - TAU * hz(c) * delay);
            100.0 * on_sky.conj()
        };
        let stages = json!({
            "gains": [gains, gains], "east_west": {}, "north_south": {"points": 128}, "clamp": {"beams": 64},
            "integrate": {},
        });
        let frames = vec![vec![array.frame(value)]];
        let out = drive(&kind::<FrbBeamformer>(stages), std::slice::from_ref(&port), frames);
        let intensities: Vec<f32> = out.frames[0].values();
        for of_channel in intensities.chunks_exact(256) {
            let brightest = (0..256).max_by(|a, b| of_channel[*a].total_cmp(&of_channel[*b]));
            assert_eq!(brightest, Some(row * 64 + beam));
            let full = 2.0 * (100.0_f32 * 256.0).powi(2);
            assert!(of_channel[row * 64 + beam] > 0.81 * full);
        }
    }
}

#[test]
fn tone_is_in_the_narrow_channel_of_its_frequency() {
    let array = Array { spectra: 32, channels: 2, cylinders: 1, feeds: 1, units: [1, 1], ..SMALL };
    for (fine, merged) in [(16, 1), (16, 4), (8, 8), (32, 2)] {
        let stages = json!({"upchannelise": fine, "integrate": {"channels": merged}});
        let port =
            KindSpec::outputs(&kind::<FrbBeamformer>(stages.clone()), &[array.port()]).unwrap();
        let band = port[0].band.unwrap();
        let per_channel = fine / merged;
        let width_hz = band.bandwidth_hz / band.channels as f64;
        for k in 0..fine {
            let offset = (k as f64 - (fine / 2) as f64) / fine as f64;
            let tone = |[t, c, ..]: [usize; 5]| {
                Complex64::cis(TAU * offset * t as f64) * if c == 1 { 100.0 } else { 0.0 }
            };
            let out = array.run(stages.clone(), array.frame(tone));
            let intensities: Vec<f32> = out.frames[0].values();
            let spectrum = &intensities[..2 * per_channel];
            let found =
                (0..2 * per_channel).max_by(|a, b| spectrum[*a].total_cmp(&spectrum[*b])).unwrap();
            assert_eq!(found, per_channel + k / merged);
            let from_centre = (band.first_channel + found) as f64 - (band.channels / 2) as f64;
            let found_hz = band.centre_hz + from_centre * width_hz;
            let tone_hz = array.hz(1) + offset * BAND.bandwidth_hz / 1024.0;
            assert!((found_hz - tone_hz).abs() < 0.5 * width_hz + 1e-3, "{found_hz} {tone_hz}");
        }
    }
}

#[test]
fn missing_transforms_are_left_out_and_counted() {
    let array = SMALL;
    let value = noise(4, 127.0);
    let stages = json!({"upchannelise": 4, "integrate": {"channels": 2, "spectra": 2}});
    let whole = array.run(stages.clone(), array.frame(&value));
    assert_eq!(whole.frames[0].validity, [2; 4]);
    assert_eq!(whole.count("transforms_missing"), 0);
    // Missing in channel 1: one spectrum of the second transform, and all of the last two.
    let mut lost = array.frame(&value);
    for spectrum in [5, 8, 9, 10, 11, 12, 13, 14, 15] {
        lost.validity[2 * spectrum + 1] = 0;
    }
    let out = array.run(stages, lost);
    assert_eq!(out.frames[0].validity, [2, 1, 2, 0]);
    assert_eq!(out.count("transforms_missing"), 3);
    let [all, found]: [Vec<f32>; 2] = [whole.frames[0].values(), out.frames[0].values()];
    let row = 2 * 36;
    assert_eq!(all[..row], found[..row]);
    assert_eq!(all[2 * row..3 * row], found[2 * row..3 * row]);
    assert!(found[3 * row..].iter().all(|sum| *sum == 0.0));
    // Only the first transform remains.
    let first = Array { spectra: 4, units: [4, 2], ..array };
    let stages = json!({"upchannelise": 4, "integrate": {"channels": 2}});
    let alone: Vec<f32> = first.run(stages, first.frame(&value)).frames[0].values();
    assert_eq!(alone[row..], found[row..2 * row]);
    // Without a transform in time the flags do not change.
    let mut lost = array.frame(&value);
    lost.validity[7] = 0;
    let out = array.run(json!({"north_south": {"points": 12}}), lost.clone());
    assert_eq!(out.frames[0].validity, lost.validity);
}

#[test]
fn gains_align_phases_of_feeds() {
    let array = Array { spectra: 1, cylinders: 2, feeds: 4, units: [1, 1], ..SMALL };
    let turned = |c: usize, p: usize, feed: usize| {
        Complex64::cis(0.7 * (feed * feed + 3 * p + 5 * c) as f64)
    };
    let value = |[_, c, p, x, feed]: [usize; 5]| 100.0 * turned(c, p, x * 4 + feed).conj();
    let of = |c: usize, p: usize| {
        let gain = |feed: usize| json!({"re": turned(c, p, feed).re, "im": turned(c, p, feed).im});
        (0..8).map(gain).collect::<Vec<_>>()
    };
    let by_channel: Vec<_> = (0..2).map(|c| vec![of(c, 0), of(c, 1)]).collect();
    let stages = json!({"gains": by_channel, "north_south": {"points": 4}, "integrate": {}});
    let out = array.run(stages, array.frame(value));
    let intensities: Vec<f32> = out.frames[0].values();
    for row in intensities.chunks_exact(4) {
        assert!((row[0] / (2.0 * 400.0 * 400.0) - 1.0).abs() < 0.02, "{row:?}");
        assert!(row[1..].iter().all(|other| *other < 200.0), "{row:?}");
    }
}

#[test]
fn frb_beamformer_rejects_mismatched_stages_and_inputs() {
    let port = SMALL.port();
    let rejected = |parameters: Value, port: &PortType| {
        let kind = kind::<FrbBeamformer>(parameters);
        let rejections = KindSpec::outputs(&kind, std::slice::from_ref(port)).unwrap_err();
        rejections.iter().map(|rejection| rejection.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let cases = [
        (
            json!({"north_south": {"points": 8}}),
            "`north_south.points` must be between 12, the feeds, and 65536, got 8",
        ),
        (json!({"clamp": {"beams": 4}}), "`clamp` needs `north_south`"),
        (
            json!({"north_south": {"points": 24}, "clamp": {"beams": 12, "reference_hz": 300e6}}),
            "`clamp` points beams below the horizon: the sine of beam 0 is -1.639",
        ),
        (
            json!({"north_south": {"points": 24}, "clamp": {"beams": 13}}),
            "`clamp.beams` must be between 1 and 12, the feeds, got 13",
        ),
        (json!({"upchannelise": 5}), "`upchannelise` must divide the 16 spectra of a frame, got 5"),
        (
            json!({"upchannelise": 8, "integrate": {"channels": 3}}),
            "`integrate.channels` must divide the 8 narrow channels, got 3",
        ),
        (
            json!({"upchannelise": 8, "integrate": {"spectra": 3}}),
            "`integrate.spectra` must divide the 2 transforms of a frame, got 3",
        ),
        (json!({"gains": [[1, 2], [3, 4]]}), "`gains` has the shape [2][2]"),
        (
            json!({"east_west": {"angles_degrees": [91]}}),
            "`east_west.angles_degrees` must be between -90 and 90",
        ),
        (
            json!({"east_west": {"angles_degrees": vec![0; 65_536]}}),
            "`east_west.angles_degrees` must have 1 to 65535 entries, got 65536",
        ),
    ];
    for (parameters, message) in cases {
        assert_eq!(rejected(parameters, &port), message);
    }
    let without_band = PortType { band: None, ..port.clone() };
    assert_eq!(rejected(json!({"east_west": {}}), &without_band), "the input has no band");
    let other = PortType { dtype: Dtype::F32, ..port.clone() };
    assert!(rejected(json!({}), &other).contains("ci4, ci8 or cf16, got f32"));
    let mut other = port;
    other.axes.swap(0, 1);
    assert!(rejected(json!({}), &other).contains("expected the axes [spectrum][channel][pol]"));
    let uneven = serde_json::from_value::<FrbBeamformer>(json!({"gains": [[1, 2], [3]]}));
    assert!(uneven.unwrap_err().to_string().contains("of equal length"));
}
