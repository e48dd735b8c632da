//! Flowgraphs that go on for ever, for whoever counts what happens in them besides: once their
//! first frames are through, nothing may allocate memory or wait for a device.
//!
//! Their frames are small, so that many flow in a short time.

use fxgraph::DeviceName;

/// A flowgraph that goes on for ever.
#[derive(Clone, Debug)]
pub struct Steady {
    /// What is in it, in a few words.
    pub name: String,
    /// The text of the flowgraph.
    pub flowgraph: String,
}

/// The signal chain of an array, three blocks to each F-engine: `correlator` in this form.
const ARRAY: &str = "
  source:
    kind: null_source
    replicate: 4
    parameters: {dtype: i10p, axes: [{name: sample, len: 4096}], samples_per_frame: 4096, pattern: random, seed: '${index}'}
  align:
    kind: pol_aligner
    replicate: 2
    inputs: ['source[${2 * index}]', 'source[${2 * index + 1}]']
  pfb:
    kind: pfb
    replicate: 2
    inputs: ['align[${index}].pol0', 'align[${index}].pol1']
    parameters: {channels: 64, spectra_per_frame: 64, delays: [[{delay_samples: 3.2, rate: 2.5e-9}], [{delay_samples: -100.7}]]}
  fft: {kind: fft, replicate: 2, input: 'pfb[${index}]'}
  postproc:
    kind: postproc
    replicate: 2
    input: 'fft[${index}]'
    parameters: {layout: k_major, spectra_per_heap: 64, gains: 0.1}
  array: {kind: antenna_stack, inputs: ['postproc[*]']}
  correlator: {kind: correlator, input: array, implementation: FORM, parameters: {spectra_per_dump: 128}}
  beamformer: {kind: beamformer, input: array, parameters: {beams: [{pol: 0}, {pol: 1}]}}
  transpose: {kind: transpose, input: array, parameters: {axes: [heap, channel, antenna, spectrum, pol]}}
  halves: {kind: convert, input: array, parameters: {dtype: cf16, scale: 0.125}}
  correlator_of_halves: {kind: correlator, input: halves, parameters: {spectra_per_dump: 128}}
  visibilities: {kind: null_sink, input: correlator}
  visibilities_of_halves: {kind: null_sink, input: correlator_of_halves}
  beams: {kind: null_sink, input: beamformer}
  transposed: {kind: null_sink, input: transpose}
";

/// An F-engine of one block.
const F_ENGINE: &str = "
  source:
    kind: null_source
    replicate: 2
    parameters: {dtype: i10p, axes: [{name: sample, len: 24576}], samples_per_frame: 24576, pattern: random, seed: '${index}'}
  f_engine:
    kind: f_engine
    inputs: ['source[*]']
    parameters: {channels: 1024, spectra_per_heap: 16, gains: 0.1, delays: [[{delay_samples: 3.2, rate: 2.5e-9}], [{delay_samples: -100.7}]]}
  heaps: {kind: null_sink, input: f_engine}
";

/// A narrowband F-engine.
const NARROWBAND: &str = "
  source:
    kind: null_source
    replicate: 2
    parameters: {dtype: i10p, axes: [{name: sample, len: 16384}], samples_per_frame: 16384, pattern: random, seed: '${index}'}
  ddc:
    kind: ddc
    replicate: 2
    input: 'source[${index}]'
    parameters: {centre_hz: 4.0e+8, decimation: 8, samples_per_frame: 1024}
  pfb:
    kind: pfb
    device: cpu
    inputs: ['ddc[*]']
    parameters: {channels: 64, spectra_per_frame: 16, centre_hz: 4.0e+8, delays: [[{delay_samples: 3.2, rate: 2.5e-9}], [{delay_samples: -100.7}]]}
  fft: {kind: fft, input: pfb}
  postproc: {kind: postproc, input: fft, parameters: {channels: 32, spectra_per_heap: 16, gains: 0.1}}
  heaps: {kind: null_sink, input: postproc}
";

/// Feeds of cylinders to points on the sky.
const CYLINDERS: &str = "
  source:
    kind: null_source
    parameters:
      dtype: ci4
      axes: [{name: spectrum, len: 8}, {name: channel, len: 2}, {name: pol, len: 2}, {name: east_west, len: 4}, {name: north_south, len: 256}]
      samples_per_frame: 32
      pattern: random
  beamformer: {kind: frb_beamformer, input: source, parameters: {north_south: {points: 512}}}
  points: {kind: null_sink, input: beamformer}
";

/// Satellites of two systems.
const SATELLITES: &str = "
  source:
    kind: null_source
    parameters: {dtype: ci16, axes: [{name: sample, len: 40000}], samples_per_frame: 40000, adc_sample_rate_hz: 10.0e+6, pattern: random}
  correlator:
    kind: gnss_correlator
    input: source
    parameters:
      satellites: [{system: gps_l1_ca, prn: 7, doppler_hz: 1200}, {system: galileo_e1b, prn: 11, doppler_hz: -2500}]
      taps_chips: [0.5, 0, -0.5]
  sums: {kind: null_sink, input: correlator}
";

/// Blocks between others that run on the processor.
const AROUND: &str = "
  source:
    kind: null_source
    device: cpu
    parameters: {dtype: i8, axes: [{name: channel, len: 256}, {name: spectrum, len: 256}], samples_per_frame: 65536, pattern: random}
  transpose: {kind: transpose, input: source, parameters: {axes: [spectrum, channel]}}
  convert: {kind: convert, input: transpose, parameters: {dtype: f16}}
  sink: {kind: null_sink, input: convert, device: cpu}
";

/// All of them, on `device`.
#[must_use]
pub fn flowgraphs(device: DeviceName) -> Vec<Steady> {
    let steady = |name: &str, blocks: &str| Steady {
        name: name.to_owned(),
        flowgraph: format!("flowgraph: steady\ndevice: \"{device}\"\nblocks:{blocks}"),
    };
    let forms: &[&str] = match device {
        DeviceName::Cpu => &["cpu"],
        DeviceName::Cuda(_) => &["cuda", "tensor_core"],
    };
    let array =
        |form: &&str| steady(&format!("array, correlator {form}"), &ARRAY.replace("FORM", form));
    let others = [
        ("f_engine", F_ENGINE),
        ("narrowband", NARROWBAND),
        ("cylinders", CYLINDERS),
        ("satellites", SATELLITES),
        ("blocks between others on the processor", AROUND),
    ];
    forms.iter().map(array).chain(others.map(|(name, blocks)| steady(name, blocks))).collect()
}
