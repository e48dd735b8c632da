//! Shared code of the benchmarks of several kinds.
//!
//! Each benchmark feeds a block with random frames that are in the memory of its device before the start,
//! so that only the block is measured.

use fxgraph::DeviceName;
use fxgraph::examples::Benchmark;

/// Frame sizes, by device.
pub struct Sizes {
    /// Binary logarithm of the samples in an F-engine's frame.
    pub f_engine_log2_samples: u32,
    /// The same for narrowband frames, which take less time on a GPU.
    pub ddc_log2_samples: u32,
    /// Spectra in a correlator's frame.
    pub correlator_spectra: usize,
    /// Spectra in a frame of cylinder feeds: a multiple of 384.
    pub frb_spectra: usize,
    /// Bytes in a frame for copies and transpositions.
    pub copy_bytes: usize,
}

impl Sizes {
    /// Returns the sizes for `device`.
    #[must_use]
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

/// Values of the parameter `dither`, each with the end of its benchmarks' names.
pub const DITHERS: [(&str, &str); 2] = [("none", ""), ("uniform", ", dither")];

/// Spectra in a heap.
pub const HEAP: usize = 256;

/// Returns `cpu` for the CPU, `cuda` for a GPU.
#[must_use]
pub fn implementations(
    device: DeviceName,
    cuda: &'static [&'static str],
) -> &'static [&'static str] {
    if device == DeviceName::Cpu { &["cpu"] } else { cuda }
}

/// Returns the benchmark `name` of the block `block` in these `blocks`, which run on `device`.
#[must_use]
pub fn benchmark(name: String, device: DeviceName, blocks: &str) -> Benchmark {
    Benchmark { name, flowgraph: flowgraph(device, blocks), blocks: &["block"] }
}

/// Returns a flowgraph of these `blocks` on `device`.
#[must_use]
pub fn flowgraph(device: DeviceName, blocks: &str) -> String {
    format!("flowgraph: bench\ndevice: \"{device}\"\nblocks:\n{blocks}")
}

/// Returns sources of two polarisations of packed 10-bit samples.
#[must_use]
pub fn digitisers(samples: usize) -> String {
    format!(
        "  source:\n    kind: null_source\n    replicate: 2\n    parameters: {{dtype: i10p, axes: \
         [{{name: sample, len: {samples}}}], samples_per_frame: {samples}, pattern: random, \
         seed: \"${{index}}\"}}\n"
    )
}

/// Returns a source of random quantised spectra of all antennas.
#[must_use]
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
