//! Heaps into the flowgraph and out of it.

use fxgraph::flowgraph::{Plan, PlannedBlock};
use fxgraph::{Dtype, PortType};

/// Heaps of the streams of a flowgraph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layout {
    /// Samples per second of each polarisation.
    pub rate_hz: f64,
    /// Bits of a sample.
    pub bits: u8,
    /// Samples of a digitiser heap.
    pub samples_per_heap: u64,
    /// Samples from one heap of spectra to the next.
    pub samples_per_output: u64,
    /// Payload bytes of all channels of a heap of spectra.
    pub output_bytes: u64,
    /// Spectra of a heap.
    pub spectra: u64,
    /// Samples of the longest frame, of the sources or of the sink.
    pub longest_frame: u64,
    /// Samples from the beginning of the first spectrum's window to the end of the last one's; until
    /// [`with_window`](Self::with_window), as if a window were as long as a spectrum.
    pub span: u64,
}

impl Layout {
    /// Returns the layout of `plan`, which must have two sources of digitiser heaps and a sink of F-engine heaps.
    pub fn of(plan: &Plan) -> Result<Self, String> {
        let sources = plan.blocks.iter().filter_map(source).collect::<Vec<_>>();
        let sinks = plan.blocks.iter().filter_map(sink).collect::<Vec<_>>();
        let ([source, second], [sink]) = (&sources[..], &sinks[..]) else {
            return Err(format!(
                "the flowgraph must have 2 blocks `spead_source` of digitiser streams and 1 block `spead_sink` of an \
                 F-engine stream, got {} and {}",
                sources.len(),
                sinks.len()
            ));
        };
        if source != second {
            return Err("the sources of both polarisations must have the same heaps".to_owned());
        }
        let ((bits, samples_per_heap, input_frame), (port, heaps, spectra)) = (source, sink);
        let samples_per_output = port.clock.samples_per_frame / heaps;
        Ok(Self {
            rate_hz: port.clock.adc_sample_rate_hz,
            bits: *bits,
            samples_per_heap: *samples_per_heap,
            samples_per_output,
            output_bytes: port.frame_bytes() as u64 / heaps,
            spectra: *spectra,
            longest_frame: port.clock.samples_per_frame.max(*input_frame),
            span: samples_per_output,
        })
    }

    /// Sets the length of a spectrum's window, in samples.
    pub fn with_window(self, window: u64) -> Self {
        let step = self.samples_per_spectrum();
        Self { span: self.samples_per_output - step + window.max(step), ..self }
    }

    /// Payload bytes of a digitiser heap.
    pub fn heap_bytes(&self) -> usize {
        (self.samples_per_heap * u64::from(self.bits) / 8) as usize
    }

    /// Duration of a digitiser heap.
    pub fn heap_seconds(&self) -> f64 {
        self.samples_per_heap as f64 / self.rate_hz
    }

    /// Returns the number of complete heaps of spectra that `heaps` digitiser heaps of each polarisation yield, from
    /// timestamp 0.
    pub fn outputs(&self, heaps: u64) -> u64 {
        let samples = heaps * self.samples_per_heap;
        samples.checked_sub(self.span).map_or(0, |after| after / self.samples_per_output + 1)
    }

    /// Returns the digitiser heap with the last sample that the heap of spectra with `timestamp` needs.
    pub fn last_needed(&self, timestamp: u64) -> u64 {
        (timestamp + self.span - 1) / self.samples_per_heap
    }

    /// Shortest measured time in which at least two heaps of spectra are complete.
    pub fn least_seconds(&self) -> f64 {
        (self.span + 2 * self.samples_per_output) as f64 / self.rate_hz
    }

    fn samples_per_spectrum(&self) -> u64 {
        self.samples_per_output / self.spectra
    }
}

/// Bits of a sample, samples of a heap, and samples of a frame of a source of digitiser heaps.
fn source(block: &PlannedBlock) -> Option<(u8, u64, u64)> {
    let port = block.ports.outputs.first().filter(|_| block.kind == "spead_source")?;
    let Dtype::Packed(bits) = port.dtype else { return None };
    let samples = port.clock.samples_per_frame;
    Some((bits, samples / port.validity.units().max(1) as u64, samples))
}

/// Input, heaps of a frame, and spectra of a heap of a sink of F-engine heaps.
fn sink(block: &PlannedBlock) -> Option<(&PortType, u64, u64)> {
    let port = block.ports.inputs.first().filter(|_| block.kind == "spead_sink")?;
    let len = |name| port.axis_len(name).filter(|len| *len > 0).map(|len| len as u64);
    Some((port, len("heap")?, len("spectrum")?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::flowgraph::load_text;

    #[test]
    fn layout_of_the_flowgraph_counts_complete_heaps_of_spectra() {
        let file = std::path::Path::new(super::super::FLOWGRAPH);
        let plan = crate::flowgraph::load_file(file, &[]);
        let layout = Layout::of(&plan.result.unwrap()).unwrap();
        assert_eq!((layout.bits, layout.samples_per_heap), (10, 4096));
        assert_eq!(layout.heap_bytes(), 5120);
        assert_eq!((layout.samples_per_output, layout.spectra), (256 * 8192, 256));
        assert_eq!(layout.output_bytes, 4096 * 256 * 2 * 2);
        assert_eq!(layout.longest_frame, 1 << 22);
        // Windows of 16 taps reach 15 spectra beyond the last one.
        let layout = layout.with_window(16 * 8192);
        assert_eq!(layout.span, (256 + 15) * 8192);
        assert_eq!(layout.last_needed(0), 271 * 2 - 1);
        assert_eq!(layout.last_needed(256 * 8192), (256 + 271) * 2 - 1);
        assert_eq!(layout.outputs(0), 0);
        assert_eq!(layout.outputs(271 * 2 - 1), 0);
        assert_eq!(layout.outputs(271 * 2), 1);
        assert_eq!(layout.outputs((256 + 271) * 2), 2);
    }

    #[test]
    fn flowgraph_without_streams_is_an_error() {
        let text = "flowgraph: none\nblocks:\n  source:\n    kind: null_source\n    parameters: {dtype: i8, axes: \
                    [{name: sample, len: 64}], samples_per_frame: 64}\n  sink: {kind: null_sink, input: source}\n";
        let plan = load_text("none.yaml", text, &[], &fxgraph_blocks::kinds());
        let error = Layout::of(&plan.result.unwrap()).unwrap_err();
        assert!(error.ends_with("got 0 and 0"), "{error}");
    }
}
