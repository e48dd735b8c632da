//! What the benchmarks of several kinds share.
//!
//! In each a block is fed with random frames that lie where it runs, made before the start, so that
//! what is measured is the block.

use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// How much a frame holds, by device.
pub struct Sizes {
    /// Binary logarithm of the samples that an F-engine's frame has.
    pub f_engine_log2_samples: u32,
    /// The same for narrowband frames, which take a GPU less time.
    pub ddc_log2_samples: u32,
    /// Samples of a correlator's frame.
    pub correlator_spectra: usize,
    /// Spectra of a frame of feeds of cylinders: a multiple of 384.
    pub frb_spectra: usize,
    /// Bytes of the frames of copies and transpositions.
    pub copy_bytes: usize,
}

impl Sizes {
    /// The sizes of frames on `device`.
    pub fn on(device: DeviceName) -> Self {
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
pub const HEAP: usize = 256;

/// `cpu` on the CPU, these implementations on a GPU.
pub fn implementations(
    device: DeviceName,
    cuda: &'static [&'static str],
) -> &'static [&'static str] {
    if device == DeviceName::Cpu { &["cpu"] } else { cuda }
}

/// The benchmark `name` of `block` in these `blocks`, which run on `device`.
pub fn benchmark(name: String, device: DeviceName, blocks: &str) -> Benchmark {
    Benchmark { name, flowgraph: flowgraph(device, blocks), blocks: &["block"] }
}

/// A flowgraph of these `blocks` on `device`.
pub fn flowgraph(device: DeviceName, blocks: &str) -> String {
    format!("flowgraph: bench\ndevice: \"{device}\"\nblocks:\n{blocks}")
}

/// Two polarisations of packed 10-bit samples.
pub fn digitisers(samples: usize) -> String {
    format!(
        "  source:\n    kind: null_source\n    replicate: 2\n    parameters: {{dtype: i10p, axes: \
         [{{name: sample, len: {samples}}}], samples_per_frame: {samples}, pattern: random, \
         seed: \"${{index}}\"}}\n"
    )
}

/// Random quantised spectra of all antennas.
pub fn stacked(
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
