//! Arrays with one polarisation: their products equal those of polarisation 0 of the same data with two polarisations, and
//! sums in double precision.

use crate::common::dither::Dither;
use crate::common::visibilities::parallel;
use crate::f_engine::detect::{Antennas, Detect, Products};
use crate::x_engine::average::{Average, Values};
use crate::x_engine::beamformer::{Beam, Beamformer};
use crate::x_engine::correlator::Correlator;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Band, Clock, Dtype, Env, Frame, KindSpec, PortType, Ports, ValidityType};
use fxgraph_dsp::random::Random;
use half::f16;
use serde_json::json;
use std::sync::Arc;

const HEAPS: usize = 2;
const CHANNELS: usize = 3;
const FRAMES: usize = 4;

/// A stream of stacked antennas with two polarisations.
#[derive(Clone, Copy, Debug)]
struct Stream {
    antennas: usize,
    spectra: usize,
    dtype: Dtype,
    k_major: bool,
    /// Whether each channel and polarisation of a heap has a flag.
    by_channel: bool,
}

/// Validity and payload of a frame.
type Sent = (Vec<u32>, Vec<u8>);

fn streams() -> impl Iterator<Item = Stream> {
    let types = [Dtype::Ci8, Dtype::Ci4, Dtype::Cf16];
    [1, 2, 3, 8, 17].into_iter().enumerate().flat_map(move |(n, antennas)| {
        types.into_iter().enumerate().map(move |(m, dtype)| Stream {
            antennas,
            spectra: [37, 256, 16][(n + m) % 3],
            dtype,
            k_major: (n + m) % 2 == 0,
            by_channel: n % 2 == 0,
        })
    })
}

impl Stream {
    fn port(&self, pols: usize) -> PortType {
        let heap = [Axis::new("heap", HEAPS), Axis::new("antenna", self.antennas)];
        let channel = Axis::new("channel", CHANNELS);
        let (spectrum, pol) = (Axis::new("spectrum", self.spectra), Axis::new("pol", pols));
        let last = if self.k_major { [pol.clone(), spectrum] } else { [spectrum, pol.clone()] };
        let units = self.by_channel.then(|| [channel.clone(), pol]);
        PortType {
            dtype: self.dtype,
            axes: heap.iter().cloned().chain([channel]).chain(last).collect(),
            clock: Clock::new(1e6, 8 * (HEAPS * self.spectra) as u64),
            band: Some(Band::signed(8, 1, 1e9, 1e6)),
            validity: ValidityType::flags(
                heap.into_iter().chain(units.into_iter().flatten()).collect(),
            ),
        }
    }

    /// Place of a value in a row of two polarisations.
    fn place(&self, spectrum: usize, pol: usize) -> usize {
        if self.k_major { pol * self.spectra + spectrum } else { 2 * spectrum + pol }
    }

    /// Random frames, in which some units are missing and 0.
    fn frames(&self, random: &mut Random) -> Vec<Sent> {
        let value_bytes = self.dtype.bytes(1);
        let row = 2 * self.spectra * value_bytes;
        let frame = |_| {
            let mut payload: Vec<u8> = match self.dtype {
                Dtype::Cf16 => (0..HEAPS * self.antennas * CHANNELS * row / 2)
                    .flat_map(|_| f16::from_f64(random.uniform() - 0.5).to_le_bytes())
                    .collect(),
                _ => (0..HEAPS * self.antennas * CHANNELS * row)
                    .map(|_| random.bits() as u8)
                    .collect(),
            };
            let units = HEAPS * self.antennas * if self.by_channel { 2 * CHANNELS } else { 1 };
            let valid: Vec<u32> = (0..units).map(|_| u32::from(random.uniform() > 0.2)).collect();
            for (unit, _) in valid.iter().enumerate().filter(|(_, valid)| **valid == 0) {
                if self.by_channel {
                    for spectrum in 0..self.spectra {
                        let at = unit / 2 * row + self.place(spectrum, unit % 2) * value_bytes;
                        payload[at..at + value_bytes].fill(0);
                    }
                }
            }
            (valid, payload)
        };
        (0..FRAMES).map(frame).collect()
    }

    /// Polarisation 0 of a frame.
    fn first(&self, (valid, payload): &Sent) -> Sent {
        let value_bytes = self.dtype.bytes(1);
        let rows = payload.chunks_exact(2 * self.spectra * value_bytes);
        let value = |row: &[u8], spectrum| {
            let at = self.place(spectrum, 0) * value_bytes;
            row[at..at + value_bytes].to_vec()
        };
        let payload = rows.flat_map(|row| (0..self.spectra).flat_map(move |s| value(row, s)));
        let step = if self.by_channel { 2 } else { 1 };
        (valid.iter().step_by(step).copied().collect(), payload.collect())
    }

    /// Value of polarisation 0 of a row of one polarisation.
    fn value(&self, payload: &[u8], row: usize, spectrum: usize) -> [f64; 2] {
        let at = (row * self.spectra + spectrum) * self.dtype.bytes(1);
        let signed = |byte: u8| f64::from(byte.cast_signed());
        match self.dtype {
            Dtype::Ci4 => {
                [signed(payload[at]) / 16.0, signed(payload[at] << 4) / 16.0].map(f64::floor)
            }
            Dtype::Ci8 => [signed(payload[at]), signed(payload[at + 1])],
            _ => [at, at + 2].map(|at| f16::from_le_bytes([payload[at], payload[at + 1]]).to_f64()),
        }
    }
}

/// Runs frames through a block in its reference implementation.
fn run<K: KindSpec>(kind: &K, input: &PortType, frames: &[Sent]) -> (PortType, Vec<Arc<Frame>>) {
    let outputs = kind.outputs(std::slice::from_ref(input)).unwrap();
    let output = outputs[0].clone();
    let ports = Ports { inputs: vec![input.clone()], outputs };
    let block = kind.build(&ports.inputs, &Env::detached("block")).unwrap();
    let mut harness = Harness::new(block, &ports, 2 * frames.len()).unwrap();
    for (n, (valid, payload)) in frames.iter().enumerate() {
        assert!(harness.send(0, |frame| {
            frame.header_mut().timestamp = n as u64 * input.clock.samples_per_frame;
            frame.header_mut().validity.copy_from_slice(valid);
            frame.as_mut_slice().unwrap().copy_from_slice(payload);
        }));
    }
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();
    (output, std::iter::from_fn(|| harness.receive(0)).collect())
}

/// Runs both streams of the same data. Returns the types and the frames of the outputs, those of two polarisations first.
fn both<K: KindSpec>(kind: &K, stream: &Stream) -> [(PortType, Vec<Arc<Frame>>); 2] {
    let two = stream.frames(&mut Random::new(stream.antennas as u64));
    let one: Vec<Sent> = two.iter().map(|sent| stream.first(sent)).collect();
    [run(kind, &stream.port(2), &two), run(kind, &stream.port(1), &one)]
}

/// Elements `[0]` of groups of `group`.
fn firsts<T: Copy>(values: &[T], group: usize) -> Vec<T> {
    values.iter().step_by(group).copied().collect()
}

fn correlator(stream: &Stream) -> Correlator {
    // Dumps end within frames.
    Correlator {
        spectra_per_dump: Some(3 * stream.spectra as u64),
        threads: 2,
        ..Default::default()
    }
}

#[test]
fn correlator_of_one_polarisation_has_the_first_of_four_products() {
    for stream in streams() {
        let [(_, two), (port, one)] = both(&correlator(&stream), &stream);
        assert_eq!(port.axis_len("product"), Some(1));
        assert_eq!(two.len(), one.len());
        for (two, one) in two.iter().zip(&one) {
            // Bits, because both numbers are complex with 32 bits for each part.
            let (of_two, of_one): (&[u64], &[u64]) =
                (two.as_slice().unwrap(), one.as_slice().unwrap());
            assert!(of_one == firsts(of_two, 4), "{stream:?}");
            let counts = if stream.by_channel { 4 } else { 1 };
            assert_eq!(one.header().validity, firsts(&two.header().validity, counts), "{stream:?}");
            assert_eq!(one.header().timestamp, two.header().timestamp);
        }
    }
}

#[test]
fn correlator_of_one_polarisation_equals_sums_in_double_precision() {
    for stream in streams() {
        let Stream { antennas, spectra, .. } = stream;
        let frames: Vec<Sent> =
            stream.frames(&mut Random::new(9)).iter().map(|sent| stream.first(sent)).collect();
        let (_, dumps) = run(&correlator(&stream), &stream.port(1), &frames);
        for (n, dump) in dumps.iter().enumerate() {
            for channel in 0..CHANNELS {
                let mut baseline = 0;
                for a2 in 0..antennas {
                    for a1 in 0..=a2 {
                        let (mut sum, mut count) = ([0.0; 2], 0);
                        for heap in (3 * n..3 * (n + 1)).filter(|heap| *heap < FRAMES * HEAPS) {
                            let (valid, payload) = &frames[heap / HEAPS];
                            let unit = |a| {
                                let unit = heap % HEAPS * antennas + a;
                                let row = unit * CHANNELS + channel;
                                (valid[if stream.by_channel { row } else { unit }] != 0)
                                    .then_some(row)
                            };
                            let (Some(one), Some(two)) = (unit(a1), unit(a2)) else { continue };
                            count += 1;
                            for spectrum in 0..spectra {
                                let [a, b] = stream.value(payload, one, spectrum);
                                let [c, d] = stream.value(payload, two, spectrum);
                                sum = [sum[0] + a * c + b * d, sum[1] + b * c - a * d];
                            }
                        }
                        let at = channel * antennas * (antennas + 1) / 2 + baseline;
                        let counted = if stream.by_channel { at } else { baseline };
                        assert_eq!(dump.header().validity[counted], count);
                        let found = match stream.dtype {
                            Dtype::Cf16 => dump.as_slice::<[f32; 2]>().unwrap()[at].map(f64::from),
                            _ => dump.as_slice::<[i32; 2]>().unwrap()[at].map(f64::from),
                        };
                        let expected = if count == 0 { [-2_147_483_648.0, 1.0] } else { sum };
                        let limit = if stream.dtype == Dtype::Cf16 { 1e-5 } else { 0.0 };
                        for (found, expected) in found.iter().zip(expected) {
                            let is_near =
                                (found - expected).abs() <= limit * expected.abs().max(1.0);
                            assert!(is_near, "{stream:?} {found} {expected}");
                        }
                        baseline += 1;
                    }
                }
            }
        }
    }
}

fn beams(antennas: usize, pol: usize) -> Vec<Beam> {
    let each: Vec<f64> = (0..antennas).map(|a| 0.3 * a as f64).collect();
    let beams = json!([
        {"pol": pol, "gain": 0.1},
        {"pol": pol, "phases_radians": each, "gain": 0.2},
        {"pol": pol, "delays_seconds": 1e-7, "weights": each},
    ]);
    serde_json::from_value(beams).unwrap()
}

fn beamformer(beams: Vec<Beam>) -> Beamformer {
    let dither = Dither::Uniform;
    Beamformer { beams, antennas_enu_metres: vec![], dither, dither_seed: 3, threads: 2 }
}

#[test]
fn beams_of_one_polarisation_are_those_of_polarisation_0() {
    for stream in streams().filter(|stream| stream.dtype != Dtype::Cf16) {
        let [(_, two), (_, one)] = both(&beamformer(beams(stream.antennas, 0)), &stream);
        assert_eq!(one.len(), FRAMES);
        for (two, one) in two.iter().zip(&one) {
            let (of_two, of_one): (&[u8], &[u8]) =
                (two.as_slice().unwrap(), one.as_slice().unwrap());
            assert!(of_one == of_two && of_one.iter().any(|byte| *byte != 0), "{stream:?}");
            assert_eq!(one.header().validity, two.header().validity, "{stream:?}");
        }
        let rejected =
            beamformer(beams(stream.antennas, 1)).outputs(&[stream.port(1)]).unwrap_err();
        let expected = "`pol` of beam 0 must be 0, the only polarisation of the input, got 1";
        assert_eq!(rejected[0].message, expected);
    }
}

#[test]
fn powers_of_one_polarisation_are_those_of_polarisation_0() {
    let detect = |products| Detect { products, spectra: 1, antennas: Antennas::Separate };
    for stream in streams().filter(|stream| stream.dtype != Dtype::Cf16) {
        // With flags of channels a spectrum needs both polarisations.
        let stream = Stream { by_channel: false, ..stream };
        let [(port, two), (_, one)] = both(&detect(Products::Power), &stream);
        assert_eq!(port.axis_len("product"), Some(2));
        for (two, one) in two.iter().zip(&one) {
            let (of_two, of_one): (&[f32], &[f32]) =
                (two.as_slice().unwrap(), one.as_slice().unwrap());
            let of_first = of_two.chunks_exact(2 * CHANNELS).flat_map(|rows| &rows[..CHANNELS]);
            assert!(of_one.iter().eq(of_first), "{stream:?}");
            assert_eq!(one.header().validity, two.header().validity);
        }
        let rejected = detect(Products::Stokes).outputs(&[stream.port(1)]).unwrap_err();
        assert!(rejected[0].message.contains("must be `power`"), "{}", rejected[0].message);
    }
}

#[test]
fn averages_of_one_polarisation_are_those_of_the_first_product() {
    let stream = streams().find(|stream| stream.antennas == 3).unwrap();
    let sent = |frames: &[Arc<Frame>]| -> Vec<Sent> {
        let bytes = |frame: &Arc<Frame>| frame.as_slice::<u8>().unwrap().to_vec();
        frames.iter().map(|frame| (frame.header().validity.clone(), bytes(frame))).collect()
    };
    let average =
        Average { dumps: 2, channels: 3, values: Values::Mean, smearing: None, baselines: None };
    let averages = both(&correlator(&stream), &stream)
        .map(|(port, dumps)| run(&average, &port, &sent(&dumps)).1);
    let values = averages.map(|frames| frames[0].as_slice::<[f32; 2]>().unwrap().to_vec());
    assert_eq!(values[1], firsts(&values[0], 4));
    assert!(values[1].iter().flatten().any(|value| *value != 0.0));
}

#[test]
fn parallel_products_are_those_of_equal_polarisations() {
    assert_eq!(parallel(1), [0]);
    assert_eq!(parallel(4), [0, 3]);
}
