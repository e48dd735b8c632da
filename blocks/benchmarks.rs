//! The flowgraphs that `fxgraph bench` measures.
//!
//! In each a block is fed with random frames that lie where it runs, made before the start, so that
//! what is measured is the block. Several blocks in a row are measured as they run together.

use fxgraph::DeviceName;

/// A flowgraph to measure.
#[derive(Clone, Debug)]
pub struct Benchmark {
    /// What it is, in a few words: kind or kinds, form, parameters that count.
    pub name: String,
    /// The text of the flowgraph. Its sources go on for ever.
    pub flowgraph: String,
    /// The blocks to measure, in the order in which frames pass them.
    pub blocks: &'static [&'static str],
}

/// Real samples of each polarisation in a frame.
struct Sizes {
    /// Binary logarithm of the samples that an F-engine's frame has.
    f_engine_log2_samples: u32,
    /// The same for narrowband frames, which take a GPU less time.
    ddc_log2_samples: u32,
    /// Samples of a correlator's frame.
    correlator_spectra: usize,
    /// Spectra of a frame of feeds of cylinders: a multiple of 384.
    frb_spectra: usize,
    /// Bytes of the frames of copies and transpositions.
    copy_bytes: usize,
}

impl Sizes {
    fn on(device: DeviceName) -> Self {
        match device {
            DeviceName::Cpu => Self {
                f_engine_log2_samples: 21,
                ddc_log2_samples: 21,
                correlator_spectra: 256,
                frb_spectra: 384,
                copy_bytes: 1 << 24,
            },
            DeviceName::Cuda(_) => Self {
                f_engine_log2_samples: 26,
                ddc_log2_samples: 28,
                correlator_spectra: 8192,
                frb_spectra: 8448,
                copy_bytes: 1 << 30,
            },
        }
    }
}

/// Spectra of a heap.
const HEAP: usize = 256;

/// Everything that is measured on `device`.
#[must_use]
pub fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
    let sizes = Sizes::on(device);
    let mut all = Vec::new();
    for channels in [1024, 4096, 8192, 32768] {
        all.push(three_blocks(device, &sizes, channels));
    }
    for channels in [1024, 4096, 8192, 16384, 32768] {
        all.push(f_engine(device, &sizes, channels));
    }
    for decimation in [8, 16] {
        all.push(ddc(device, &sizes, decimation));
    }
    for implementation in forms(device, &["hopper", "tensor_core"]) {
        for (antennas, channels) in [(64, 256), (80, 256), (256, 128), (512, 64)] {
            let stream = ("k_major", "ci8");
            all.push(correlator(device, &sizes, implementation, stream, antennas, channels));
        }
        let stream = ("standard", "ci8");
        all.push(correlator(device, &sizes, implementation, stream, 256, 128));
    }
    for implementation in forms(device, &["tensor_core"]) {
        for (antennas, channels) in [(64, 256), (80, 256), (256, 128), (512, 64)] {
            let stream = ("k_major", "cf16");
            all.push(correlator(device, &sizes, implementation, stream, antennas, channels));
        }
    }
    for beams in [4, 16, 64] {
        all.push(beamformer(device, &sizes, beams));
    }
    for implementation in forms(device, &["radix8", "tensor_core", "fp32"]) {
        for stages in FRB_STAGES {
            all.push(frb_beamformer(device, &sizes, implementation, stages));
        }
    }
    for (dtype, bytes) in [("i8", 1), ("i16", 2), ("f32", 4), ("cf32", 8), ("cf64", 16)] {
        all.push(transpose(device, &sizes, dtype, bytes));
    }
    for (from, to, bytes) in [("ci8", "cf16", 2), ("cf32", "cf16", 8), ("cf32", "ci8", 8)] {
        all.push(convert(device, &sizes, (from, to), bytes));
    }
    for setup in GNSS {
        all.push(gnss(device, setup));
    }
    if device != DeviceName::Cpu {
        all.push(transfer(device, &sizes, "upload"));
        all.push(transfer(device, &sizes, "download"));
        all.push(both_ways(device, &sizes));
        all.push(around_a_block(device, &sizes));
    }
    all
}

/// Antennas, samples of an epoch, epochs of a frame, samples per second in millions, satellites of GPS and of Galileo.
type GnssSetup = (usize, usize, usize, usize, [usize; 2]);

/// Long frames of many satellites, then single epochs as receivers have them.
const GNSS: &[GnssSetup] = &[
    (1, 100_000, 64, 100, [32, 0]),
    (4, 100_000, 64, 100, [32, 0]),
    (1, 100_000, 64, 25, [0, 32]),
    (1, 5000, 1, 5, [4, 0]),
    (1, 5000, 1, 5, [16, 0]),
    (1, 25_000, 1, 25, [0, 4]),
    (1, 25_000, 1, 25, [0, 16]),
    (1, 100_000, 1, 25, [0, 4]),
    (1, 100_000, 1, 25, [0, 16]),
    (1, 25_000, 1, 25, [4, 4]),
    (1, 25_000, 1, 25, [8, 8]),
    (1, 100_000, 1, 25, [8, 8]),
    (1, 100_000, 1, 100, [16, 0]),
];

fn gnss(device: DeviceName, setup: &GnssSetup) -> Benchmark {
    let (antennas, samples, epochs, rate, [gps, galileo]) = *setup;
    // On a processor fewer epochs say the same.
    let epochs = if device == DeviceName::Cpu { epochs.min(4) } else { epochs };
    let row = samples * epochs;
    let antenna = format!("{{name: antenna, len: {antennas}}}, ");
    let antenna = if antennas > 1 { antenna } else { String::new() };
    let satellite = |system: &str, n: usize| {
        let (prn, doppler_hz, phase) = (n + 1, 250 * n, 31 * n);
        format!(
            "{{system: {system}, prn: {prn}, doppler_hz: {doppler_hz}, code_phase_chips: {phase}}}"
        )
    };
    let satellites = (0..gps)
        .map(|n| satellite("gps_l1_ca", n))
        .chain((0..galileo).map(|n| satellite("galileo_e1b", n)));
    let satellites = satellites.collect::<Vec<_>>().join(", ");
    let blocks = format!(
        "  source: {{kind: null_source, parameters: {{dtype: ci16, axes: [{antenna}{{name: sample, len: {row}}}], \
         samples_per_frame: {row}, adc_sample_rate_hz: {rate}000000, pattern: random}}}}\n  \
         block: {{kind: gnss_correlator, queue: 1, input: source, parameters: {{satellites: [{satellites}], \
         epochs_per_frame: {epochs}, threads: 1}}}}\n  sink: {{kind: null_sink, input: block}}\n"
    );
    Benchmark {
        name: format!(
            "gnss_correlator, {gps} GPS and {galileo} Galileo, {antennas} antennas, {epochs} x {samples} at {rate} MS/s"
        ),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["block"],
    }
}

fn forms(device: DeviceName, cuda: &'static [&'static str]) -> &'static [&'static str] {
    if device == DeviceName::Cpu { &["cpu"] } else { cuda }
}

fn flowgraph(device: DeviceName, blocks: &str) -> String {
    format!("flowgraph: bench\ndevice: \"{device}\"\nblocks:\n{blocks}")
}

/// Two polarisations of packed 10-bit samples.
fn digitisers(samples: usize) -> String {
    format!(
        "  source:\n    kind: null_source\n    replicate: 2\n    parameters: {{dtype: i10p, axes: \
         [{{name: sample, len: {samples}}}], samples_per_frame: {samples}, pattern: random, \
         seed: \"${{index}}\"}}\n"
    )
}

fn f_engine(device: DeviceName, sizes: &Sizes, channels: usize) -> Benchmark {
    let samples = 1_usize << sizes.f_engine_log2_samples;
    let heaps = (samples / (2 * channels * HEAP)).max(1);
    let implementation = if device == DeviceName::Cpu { "cpu" } else { "two_pass" };
    let blocks = format!(
        "{}  block: {{kind: f_engine, queue: 1, implementation: {implementation}, inputs: [\"source[*]\"], \
         parameters: {{channels: {channels}, taps: 16, gains: 0.1, dither: none, \
         spectra_per_heap: {HEAP}, heaps_per_frame: {heaps}}}}}\n  \
         sink: {{kind: null_sink, input: block}}\n",
        digitisers(samples)
    );
    Benchmark {
        name: format!("f_engine {implementation}, {channels} channels"),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["block"],
    }
}

fn three_blocks(device: DeviceName, sizes: &Sizes, channels: usize) -> Benchmark {
    let samples = 1_usize << sizes.f_engine_log2_samples;
    let heaps = (samples / (2 * channels * HEAP)).max(1);
    let spectra = samples / (2 * channels);
    let blocks = format!(
        "{}  pfb: {{kind: pfb, queue: 1, inputs: [\"source[*]\"], parameters: {{channels: {channels}, taps: \
         16, unzip: 2, spectra_per_frame: {spectra}}}}}\n  fft: {{kind: fft, input: pfb}}\n  \
         postproc: {{kind: postproc, input: fft, parameters: {{gains: 0.1, dither: none, \
         spectra_per_heap: {HEAP}, heaps_per_frame: {heaps}}}}}\n  \
         sink: {{kind: null_sink, input: postproc}}\n",
        digitisers(samples)
    );
    Benchmark {
        name: format!("pfb, fft, postproc, {channels} channels"),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["pfb", "fft", "postproc"],
    }
}

/// One polarisation: each has a block of its own.
fn ddc(device: DeviceName, sizes: &Sizes, decimation: usize) -> Benchmark {
    let samples = 1_usize << sizes.ddc_log2_samples;
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: i10p, axes: [{{name: sample, len: \
         {samples}}}], samples_per_frame: {samples}, pattern: random, adc_sample_rate_hz: 1.712e+9}}\n  \
         block: {{kind: ddc, queue: 1, input: source, parameters: {{centre_hz: 4.0e+8, decimation: \
         {decimation}, samples_per_frame: {}}}}}\n  sink: {{kind: null_sink, input: block}}\n",
        samples / decimation
    );
    Benchmark {
        name: format!("ddc, subsampling {decimation}, {} taps", 16 * decimation),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["block"],
    }
}

/// Random quantised spectra of all antennas.
fn stacked(
    (layout, dtype): (&str, &str),
    heaps: usize,
    antennas: usize,
    channels: usize,
    spectra: usize,
) -> String {
    let [slower, faster] = match layout {
        "k_major" => [("pol", 2), ("spectrum", spectra)],
        _ => [("spectrum", spectra), ("pol", 2)],
    };
    let axes = [("heap", heaps), ("antenna", antennas), ("channel", channels), slower, faster]
        .map(|(name, len)| format!("{{name: {name}, len: {len}}}"))
        .join(", ");
    let samples = heaps * spectra * 8192;
    format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: {dtype}, axes: [{axes}], \
         validity_axes: [{{name: heap, len: {heaps}}}, {{name: antenna, len: {antennas}}}], \
         samples_per_frame: {samples}, pattern: random}}\n"
    )
}

fn correlator(
    device: DeviceName,
    sizes: &Sizes,
    implementation: &str,
    stream: (&str, &str),
    antennas: usize,
    channels: usize,
) -> Benchmark {
    let heaps = sizes.correlator_spectra / HEAP;
    let dump = 16 * heaps * HEAP;
    let blocks = format!(
        "{}  block: {{kind: correlator, queue: 1, implementation: {implementation}, input: source, \
         parameters: {{spectra_per_dump: {dump}}}}}\n  sink: {{kind: null_sink, input: block}}\n",
        stacked(stream, heaps, antennas, channels, HEAP)
    );
    Benchmark {
        name: format!(
            "correlator {implementation}, {antennas} antennas, {}, {}",
            stream.0, stream.1
        ),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["block"],
    }
}

fn beamformer(device: DeviceName, sizes: &Sizes, beams: usize) -> Benchmark {
    let heaps = sizes.correlator_spectra / HEAP;
    let list = vec!["{pol: 0, gain: 0.05}, {pol: 1, gain: 0.05}"; beams / 2].join(", ");
    let blocks = format!(
        "{}  block: {{kind: beamformer, queue: 1, input: source, parameters: {{beams: [{list}], \
         dither: none}}}}\n  sink: {{kind: null_sink, input: block}}\n",
        stacked(("standard", "ci8"), heaps, 80, 256, HEAP)
    );
    Benchmark {
        name: format!("beamformer, 80 antennas, {beams} beams"),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["block"],
    }
}

/// What is done, the type of the voltages, and the parameters.
const FRB_STAGES: [(&str, &str, &str); 3] = [
    ("first transform alone", "cf16", "north_south: {points: 512}, voltages: cf16"),
    (
        "clamped beams of single cylinders",
        "ci4",
        "north_south: {points: 512}, clamp: {beams: 256}, voltages: cf16",
    ),
    (
        "all stages",
        "ci4",
        "east_west: {}, north_south: {points: 512}, clamp: {beams: 256}, upchannelise: 128, integrate: \
         {channels: 8, spectra: 3}",
    ),
];

/// 4 cylinders of 256 feeds in 16 channels: 128 transforms of feeds for each spectrum.
fn frb_beamformer(
    device: DeviceName,
    sizes: &Sizes,
    implementation: &str,
    (stages, dtype, parameters): (&str, &str, &str),
) -> Benchmark {
    let spectra = sizes.frb_spectra;
    let samples = 2048 * spectra;
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: {dtype}, axes: [{{name: spectrum, len: \
         {spectra}}}, {{name: channel, len: 16}}, {{name: pol, len: 2}}, {{name: east_west, len: 4}}, {{name: \
         north_south, len: 256}}], samples_per_frame: {samples}, pattern: random, band: {{channels: 1024, \
         first_channel: 500, centre_hz: 600.0e+6, bandwidth_hz: 400.0e+6}}}}\n  \
         block: {{kind: frb_beamformer, queue: 1, implementation: {implementation}, input: source, \
         parameters: {{{parameters}}}}}\n  sink: {{kind: null_sink, input: block}}\n"
    );
    Benchmark {
        name: format!("frb_beamformer {implementation}, {stages}"),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["block"],
    }
}

fn transpose(device: DeviceName, sizes: &Sizes, dtype: &str, bytes: usize) -> Benchmark {
    let elements = sizes.copy_bytes / bytes;
    let channels = ((elements as f64).sqrt() as usize).next_power_of_two();
    let spectra = elements / channels;
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: {dtype}, axes: [{{name: \
         channel, len: {channels}}}, {{name: spectrum, len: {spectra}}}], samples_per_frame: \
         1048576, pattern: random}}\n  block: {{kind: transpose, queue: 1, input: source, parameters: \
         {{axes: [spectrum, channel]}}}}\n  sink: {{kind: null_sink, input: block}}\n"
    );
    Benchmark {
        name: format!("transpose, {bytes}-byte elements"),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["block"],
    }
}

/// `bytes` are those of an element of the input.
fn convert(device: DeviceName, sizes: &Sizes, (from, to): (&str, &str), bytes: usize) -> Benchmark {
    let len = sizes.copy_bytes / bytes;
    let blocks = format!(
        "  source:\n    kind: null_source\n    parameters: {{dtype: {from}, axes: [{{name: sample, \
         len: {len}}}], samples_per_frame: {len}, pattern: random}}\n  block: {{kind: convert, queue: 1, \
         input: source, parameters: {{dtype: {to}, scale: 0.5}}}}\n  \
         sink: {{kind: null_sink, input: block}}\n"
    );
    Benchmark {
        name: format!("convert, {from} to {to}"),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["block"],
    }
}

fn transfer(device: DeviceName, sizes: &Sizes, way: &'static str) -> Benchmark {
    let (source, sink) = match way {
        "upload" => ("cpu".to_owned(), device.to_string()),
        _ => (device.to_string(), "cpu".to_owned()),
    };
    let len = sizes.copy_bytes / 4;
    let blocks = format!(
        "  source:\n    kind: null_source\n    device: \"{source}\"\n    parameters: {{dtype: i8, \
         axes: [{{name: sample, len: {len}}}], samples_per_frame: {len}, pattern: untouched}}\n  \
         sink: {{kind: null_sink, input: source, device: \"{sink}\"}}\n"
    );
    let transfer: &'static [&'static str] = match way {
        "upload" => &["source.output>cuda:0"],
        _ => &["source.output>cpu"],
    };
    Benchmark { name: way.to_owned(), flowgraph: flowgraph(device, &blocks), blocks: transfer }
}

/// Copies in and out at the same time, of which neither waits for the other.
fn both_ways(device: DeviceName, sizes: &Sizes) -> Benchmark {
    let len = sizes.copy_bytes / 4;
    let source = |at: &str| {
        format!(
            "{{kind: null_source, device: \"{at}\", parameters: {{dtype: i8, axes: [{{name: sample, \
             len: {len}}}], samples_per_frame: {len}, pattern: untouched}}}}"
        )
    };
    let blocks = format!(
        "  host: {}\n  gpu: {}\n  to_gpu: {{kind: null_sink, input: host, device: \"{device}\"}}\n  \
         to_host: {{kind: null_sink, input: gpu, device: cpu}}\n",
        source("cpu"),
        source(&device.to_string())
    );
    Benchmark {
        name: "upload and download at once".to_owned(),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["host.output>cuda:0", "gpu.output>cpu"],
    }
}

/// What a block on a GPU between blocks on the processor gets.
fn around_a_block(device: DeviceName, sizes: &Sizes) -> Benchmark {
    let side = (sizes.copy_bytes as f64 / 4.0).sqrt() as usize;
    let blocks = format!(
        "  source:\n    kind: null_source\n    device: cpu\n    parameters: {{dtype: i8, axes: [{{name: \
         channel, len: {side}}}, {{name: spectrum, len: {side}}}], samples_per_frame: 1048576, \
         pattern: untouched}}\n  block: {{kind: transpose, input: source, parameters: \
         {{axes: [spectrum, channel]}}}}\n  sink: {{kind: null_sink, input: block, device: cpu}}\n"
    );
    Benchmark {
        name: "upload, transpose, download".to_owned(),
        flowgraph: flowgraph(device, &blocks),
        blocks: &["source.output>cuda:0", "block", "block.output>cpu"],
    }
}
