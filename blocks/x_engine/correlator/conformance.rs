//! Cases that compare the GPU implementations with the reference; integers must be exact.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use serde_json::json;

/// Type and values of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Voltages {
    Ci4,
    Ci8,
    /// Half-precision values in (-1, 1).
    Cf16,
    /// Half-precision values that are eighths of 4-bit integers: all sums are exact in single precision, for any
    /// order and rounding.
    Eighths,
}

/// A stream of stacked antennas with random samples, and the length of its dumps.
#[derive(Clone, Copy)]
struct Stream {
    antennas: usize,
    k_major: bool,
    voltages: Voltages,
    spectra: usize,
    channels: usize,
    heaps_per_frame: usize,
    frames: usize,
    heaps_per_dump: usize,
    /// Every `missing_every`-th heap of an antenna is missing; its place still contains samples.
    missing_every: Option<usize>,
    /// Whether each channel and polarisation of a heap has a flag.
    by_channel: bool,
    pols: usize,
}

const STREAM: Stream = Stream {
    antennas: 5,
    k_major: true,
    voltages: Voltages::Ci8,
    spectra: 256,
    channels: 2,
    heaps_per_frame: 2,
    frames: 4,
    heaps_per_dump: 3,
    missing_every: None,
    by_channel: false,
    pols: 2,
};

impl Stream {
    fn name(&self) -> String {
        let Self { antennas, spectra, .. } = self;
        let layout = match (self.pols, self.k_major) {
            (1, true) => "one polarisation, K-major",
            (1, false) => "one polarisation",
            (_, true) => "K-major",
            (_, false) => "standard",
        };
        let voltages = format!("{:?}", self.voltages).to_lowercase();
        let (frame, dump) = (self.heaps_per_frame, self.heaps_per_dump);
        let units = if self.by_channel { " channels" } else { "" };
        let missing =
            self.missing_every.map_or(String::new(), |n| format!(", 1 of {n}{units} missing"));
        format!(
            "{antennas} antennas, {layout}, {voltages}, {spectra} x {frame} for {dump} heaps{missing}"
        )
    }

    fn axes(&self, antenna: bool) -> Vec<serde_json::Value> {
        let axis = |name: &str, len: usize| json!({"name": name, "len": len});
        let mut axes = vec![axis("heap", self.heaps_per_frame)];
        if antenna {
            axes.push(axis("antenna", self.antennas));
        }
        axes.push(axis("channel", self.channels));
        let (spectrum, pol) = (axis("spectrum", self.spectra), axis("pol", self.pols));
        axes.extend(if self.k_major { [pol, spectrum] } else { [spectrum, pol] });
        axes
    }

    /// YAML of the blocks that generate the voltages of all antennas or of one; the last block is `name`.
    fn source(&self, name: &str, all: bool, seed: usize, frames: usize, late: usize) -> String {
        let samples = 8 * self.spectra * self.heaps_per_frame;
        let axes = self.axes(all);
        let units = if all { 2 } else { 1 };
        let mut validity = axes[..units].to_vec();
        if self.by_channel {
            validity.extend([axes[units].clone(), json!({"name": "pol", "len": self.pols})]);
        }
        let dtype = match self.voltages {
            Voltages::Ci4 | Voltages::Eighths => "ci4",
            Voltages::Ci8 => "ci8",
            Voltages::Cf16 => "cf16",
        };
        let parameters = json!({
            "dtype": dtype, "axes": axes, "validity_axes": validity,
            "samples_per_frame": samples, "first_timestamp": late * samples,
            "frames": frames, "pattern": "random", "seed": seed, "missing_every": self.missing_every,
        });
        let source =
            |name: &str| format!("{name}: {{kind: null_source, parameters: {parameters}}}\n");
        if self.voltages != Voltages::Eighths {
            return source(name);
        }
        let integers = format!("{name}_integers");
        let convert = format!(
            "{name}: {{kind: convert, input: {integers}, parameters: {{dtype: cf16, scale: 0.125}}}}\n"
        );
        source(&integers) + &convert
    }

    /// Tolerance of the comparison. Integers, and half-precision values whose sums need no rounding, must be exact.
    ///
    /// For other half-precision values, matrix instructions round towards zero: each step of 8 spectra reduces a sum by
    /// about 2^-23 of its value, for up to 4096 consecutive spectra. Each addition to the total in memory has half of
    /// this error. Autocorrelations, which are most of the power, grow steadily, so their error is half of that of
    /// their last value; the tolerance is twice as large. The largest difference is limited as well, because the
    /// values of missing products are so large that the rms of such a case is meaningless.
    fn tolerance(&self) -> Tolerance {
        if self.voltages != Voltages::Cf16 {
            return Tolerance::EXACT;
        }
        let in_a_row = (self.spectra * self.heaps_per_frame).min(4096) / 8;
        let summed = self.spectra * self.heaps_per_dump;
        let additions = summed.div_ceil(self.spectra.min(4096));
        let relative = (in_a_row + additions + 1) as f64 * 2f64.powi(-23);
        // The power of a sample is 2/3 on average.
        Tolerance { largest: relative * summed as f64, ..Tolerance::floating(relative) }
    }

    fn case(
        &self,
        implementation: &'static str,
        name: String,
        upstream: &str,
        device: DeviceName,
    ) -> Case {
        let parameters = json!({"spectra_per_dump": self.heaps_per_dump * self.spectra});
        let input = (upstream, &["stack"][..]);
        Case::new(
            ("correlator", implementation),
            name,
            &parameters,
            input,
            self.tolerance(),
            device,
        )
    }

    /// A case with all antennas at all times.
    fn whole(&self, implementation: &'static str, device: DeviceName) -> Case {
        let upstream = self.source("stack", true, self.antennas, self.frames, 0);
        self.case(implementation, self.name(), &upstream, device)
    }

    /// A case in which antennas start late or end early, by less and by more than a dump.
    fn missing(&self, implementation: &'static str, device: DeviceName) -> Case {
        let mut upstream = String::new();
        for antenna in 0..self.antennas {
            let late = [0, 0, 1, 0, 3][antenna % 5];
            let early = [0, 2, 0, 0, 1][antenna % 5];
            let (name, frames) = (format!("a{antenna}"), self.frames - late - early);
            upstream += &self.source(&name, false, antenna, frames, late);
        }
        let inputs: Vec<String> = (0..self.antennas).map(|a| format!("a{a}")).collect();
        upstream += &format!("stack: {{kind: antenna_stack, inputs: [{}]}}", inputs.join(", "));
        self.case(implementation, format!("missing antennas of {}", self.name()), &upstream, device)
    }
}

/// Streams for every size of tile and every layout of a frame.
fn streams() -> Vec<Stream> {
    const LAYOUTS: [(bool, Voltages); 3] =
        [(false, Voltages::Ci8), (false, Voltages::Ci4), (true, Voltages::Ci4)];
    const SPECTRA: [usize; 8] = [256, 64, 16, 1024, 200, 37, 72, 48];
    let mut streams = Vec::new();
    for (i, antennas) in [1, 2, 3, 8, 17, 40, 64, 65, 80, 81, 128, 130, 200].into_iter().enumerate()
    {
        let stream = Stream {
            antennas,
            channels: if antennas < 64 { 7 } else { 2 },
            spectra: SPECTRA[i % SPECTRA.len()],
            ..STREAM
        };
        let (k_major, voltages) = LAYOUTS[i % LAYOUTS.len()];
        let spectra = SPECTRA[(i + 3) % SPECTRA.len()];
        streams.extend([stream, Stream { k_major, voltages, spectra, ..stream }]);
    }
    // Heaps that `hopper` reads in the standard layout, with a partial last stage or none: every size of tile, and of the
    // last row of tiles.
    for (i, antennas) in [1, 17, 40, 64, 80, 81, 104, 128, 130].into_iter().enumerate() {
        let (spectra, channels) = ([256, 96, 64, 160][i % 4], if antennas < 64 { 7 } else { 3 });
        streams.push(Stream { antennas, k_major: false, spectra, channels, ..STREAM });
    }
    // One polarisation: odd and even numbers of antennas, in heaps that kernels read directly and in others.
    for (i, antennas) in [1, 2, 5, 16, 33, 80, 128, 161, 162].into_iter().enumerate() {
        let (voltages, spectra) = ([Voltages::Ci8, Voltages::Ci4][i / 2 % 2], SPECTRA[i % 6]);
        let k_major = i % 2 == 0;
        streams.push(Stream { pols: 1, antennas, voltages, spectra, k_major, ..STREAM });
    }
    let long = Stream { antennas: 1, channels: 1, ..STREAM };
    let one = Stream { pols: 1, ..long };
    streams.extend([
        Stream { antennas: 2, spectra: 70_000, heaps_per_dump: 2, ..one },
        Stream { spectra: 1024, heaps_per_frame: 64, frames: 8, heaps_per_dump: 256, ..one },
        // Dumps of many frames, several dumps of a frame, many heaps of a frame.
        Stream { heaps_per_dump: 7, frames: 9, ..STREAM },
        Stream { heaps_per_frame: 5, heaps_per_dump: 2, ..STREAM },
        Stream { heaps_per_frame: 40, heaps_per_dump: 64, spectra: 16, ..STREAM },
        // Sums above 32 bits, which are clamped.
        Stream { spectra: 1024, heaps_per_frame: 64, frames: 8, heaps_per_dump: 256, ..long },
        // Heaps whose sums alone can exceed 32 bits.
        Stream { spectra: 70_000, heaps_per_dump: 1, ..long },
        Stream { spectra: 70_001, heaps_per_dump: 2, k_major: false, ..long },
    ]);
    streams
}

/// Streams of half-precision values.
fn streams_of_half_precision() -> Vec<Stream> {
    const SPECTRA: [usize; 8] = [256, 24, 16, 1024, 100, 37, 36, 8];
    let mut streams = Vec::new();
    for (i, antennas) in [1, 2, 3, 8, 17, 40, 64, 65, 80, 81, 128, 130].into_iter().enumerate() {
        for (k_major, voltages) in [(true, Voltages::Cf16), (false, Voltages::Eighths)] {
            let k_major = k_major ^ (i % 3 == 2);
            let spectra = SPECTRA[(i + if k_major { 0 } else { 5 }) % SPECTRA.len()];
            let channels = if antennas < 64 { 7 } else { 2 };
            streams.push(Stream { antennas, k_major, voltages, spectra, channels, ..STREAM });
        }
    }
    let half_precision = Stream { voltages: Voltages::Cf16, ..STREAM };
    let eighths = Stream { voltages: Voltages::Eighths, ..STREAM };
    streams.extend([
        Stream { k_major: false, ..half_precision },
        Stream { pols: 1, ..half_precision },
        Stream { pols: 1, antennas: 6, ..eighths },
        eighths,
        Stream { heaps_per_dump: 7, frames: 9, ..eighths },
        Stream { heaps_per_frame: 5, heaps_per_dump: 2, ..eighths },
        // Frames and heaps with more samples than one launch sums.
        Stream { heaps_per_frame: 40, heaps_per_dump: 60, ..half_precision },
        Stream { heaps_per_frame: 40, heaps_per_dump: 60, k_major: false, ..eighths },
        Stream { spectra: 9000, ..half_precision },
        Stream { spectra: 9001, ..eighths },
        Stream { spectra: 5000, k_major: false, antennas: 1, channels: 1, ..half_precision },
    ]);
    streams
}

/// Returns the cases, with the GPU implementations on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let half_precision = Stream { voltages: Voltages::Cf16, ..STREAM };
    let mut cases = vec![STREAM.whole("cuda", device), half_precision.whole("cuda", device)];
    for implementation in ["hopper", "tensor_core"] {
        cases.extend(streams().iter().map(|stream| stream.whole(implementation, device)));
        for k_major in [false, true] {
            let stream = Stream { k_major, frames: 6, ..STREAM };
            cases.push(stream.missing(implementation, device));
            let many = Stream { voltages: Voltages::Ci4, antennas: 70, ..stream };
            cases.push(many.missing(implementation, device));
            // Dumps that lack single heaps, at all places of a frame.
            let scattered = Stream { missing_every: Some(7), heaps_per_frame: 4, ..stream };
            cases.push(scattered.whole(implementation, device));
            cases.push(
                Stream { antennas: 70, missing_every: Some(71), ..scattered }
                    .whole(implementation, device),
            );
            // Flags of channels; every second unit is one polarisation, which is missing in all dumps.
            for (every, pols) in [(2, 2), (7, 2), (7, 1)] {
                let missing_every = Some(every);
                let flagged =
                    Stream { by_channel: true, missing_every, channels: 5, pols, ..stream };
                cases.push(flagged.whole(implementation, device));
                cases.push(flagged.missing(implementation, device));
            }
        }
    }
    let implementation = "tensor_core";
    cases.extend(
        streams_of_half_precision().iter().map(|stream| stream.whole(implementation, device)),
    );
    for (k_major, voltages) in [(false, Voltages::Cf16), (true, Voltages::Eighths)] {
        let stream = Stream { k_major, voltages, frames: 6, ..STREAM };
        cases.push(stream.missing(implementation, device));
        cases.push(Stream { antennas: 70, ..stream }.missing(implementation, device));
        let flagged = Stream { by_channel: true, missing_every: Some(2), ..stream };
        cases.push(flagged.whole(implementation, device));
    }
    cases
}
