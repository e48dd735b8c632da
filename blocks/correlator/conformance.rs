//! Cases that hold the forms for GPUs to the definition: exactly.

use crate::conformance::{Case, Tolerance};
use fxgraph::DeviceName;
use serde_json::json;

/// A stream of stacked antennas with random samples, and the dumps made of it.
#[derive(Clone, Copy)]
struct Stream {
    antennas: usize,
    k_major: bool,
    four_bit: bool,
    spectra: usize,
    channels: usize,
    heaps_per_frame: usize,
    frames: usize,
    heaps_per_dump: usize,
}

const STREAM: Stream = Stream {
    antennas: 5,
    k_major: true,
    four_bit: false,
    spectra: 256,
    channels: 2,
    heaps_per_frame: 2,
    frames: 4,
    heaps_per_dump: 3,
};

impl Stream {
    fn name(&self) -> String {
        let Self { antennas, spectra, .. } = self;
        let layout = if self.k_major { "K-major" } else { "standard" };
        let bits = if self.four_bit { 4 } else { 8 };
        let (frame, dump) = (self.heaps_per_frame, self.heaps_per_dump);
        format!("{antennas} antennas, {layout}, {bits} bit, {spectra} x {frame} for {dump} heaps")
    }

    fn axes(&self, antenna: bool) -> Vec<serde_json::Value> {
        let axis = |name: &str, len: usize| json!({"name": name, "len": len});
        let mut axes = vec![axis("heap", self.heaps_per_frame)];
        if antenna {
            axes.push(axis("antenna", self.antennas));
        }
        axes.push(axis("channel", self.channels));
        let (spectrum, pol) = (axis("spectrum", self.spectra), axis("pol", 2));
        axes.extend(if self.k_major { [pol, spectrum] } else { [spectrum, pol] });
        axes
    }

    /// A source of it, for all antennas or for one.
    fn source(&self, all: bool, seed: usize, frames: usize, late: usize) -> serde_json::Value {
        let samples = 8 * self.spectra * self.heaps_per_frame;
        let axes = self.axes(all);
        let units = if all { 2 } else { 1 };
        json!({"kind": "null_source", "parameters": {
            "dtype": if self.four_bit { "ci4" } else { "ci8" },
            "axes": axes, "validity_axes": axes[..units],
            "samples_per_frame": samples, "first_timestamp": late * samples,
            "frames": frames, "pattern": "random", "seed": seed,
        }})
    }

    fn case(&self, form: &'static str, name: String, upstream: &str, device: DeviceName) -> Case {
        let parameters = json!({"spectra_per_dump": self.heaps_per_dump * self.spectra});
        let input = (upstream, &["stack"][..]);
        Case::new(("correlator", form), name, &parameters, input, Tolerance::EXACT, device)
    }

    /// All antennas at all times.
    fn whole(&self, form: &'static str, device: DeviceName) -> Case {
        let upstream = format!("stack: {}", self.source(true, self.antennas, self.frames, 0));
        self.case(form, self.name(), &upstream, device)
    }

    /// Antennas that begin late or end early, for less and more than a dump.
    fn missing(&self, form: &'static str, device: DeviceName) -> Case {
        let mut upstream = String::new();
        for antenna in 0..self.antennas {
            let late = [0, 0, 1, 0, 3][antenna % 5];
            let early = [0, 2, 0, 0, 1][antenna % 5];
            let source = self.source(false, antenna, self.frames - late - early, late);
            upstream += &format!("a{antenna}: {source}\n");
        }
        let inputs: Vec<String> = (0..self.antennas).map(|a| format!("a{a}")).collect();
        upstream += &format!("stack: {{kind: antenna_stack, inputs: [{}]}}", inputs.join(", "));
        self.case(form, format!("missing antennas of {}", self.name()), &upstream, device)
    }
}

/// Streams of every size of tile with every way to read a frame.
fn streams() -> Vec<Stream> {
    const LAYOUTS: [(bool, bool); 3] = [(false, false), (false, true), (true, true)];
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
        let (k_major, four_bit) = LAYOUTS[i % LAYOUTS.len()];
        let spectra = SPECTRA[(i + 3) % SPECTRA.len()];
        streams.extend([stream, Stream { k_major, four_bit, spectra, ..stream }]);
    }
    let long = Stream { antennas: 1, channels: 1, ..STREAM };
    streams.extend([
        // Dumps of many frames, several dumps of a frame, many heaps of a frame.
        Stream { heaps_per_dump: 7, frames: 9, ..STREAM },
        Stream { heaps_per_frame: 5, heaps_per_dump: 2, ..STREAM },
        Stream { heaps_per_frame: 40, heaps_per_dump: 64, spectra: 16, ..STREAM },
        // Sums beyond 32 bits, which are clamped.
        Stream { spectra: 1024, heaps_per_frame: 64, frames: 8, heaps_per_dump: 256, ..long },
        // Heaps whose sums can leave 32 bits by themselves.
        Stream { spectra: 70_000, heaps_per_dump: 1, ..long },
        Stream { spectra: 70_001, heaps_per_dump: 2, k_major: false, ..long },
    ]);
    streams
}

/// All cases of the correlator.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let mut cases = vec![STREAM.whole("cuda", device)];
    for form in ["hopper", "tensor_core"] {
        cases.extend(streams().iter().map(|stream| stream.whole(form, device)));
        for k_major in [false, true] {
            let stream = Stream { k_major, frames: 6, ..STREAM };
            cases.push(stream.missing(form, device));
            cases.push(Stream { four_bit: true, antennas: 70, ..stream }.missing(form, device));
        }
    }
    cases
}
