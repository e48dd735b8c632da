#![doc = include_str!("README.md")]

mod cpu;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests;

use crate::io::files::{FileParameters, FileSink};
use fxgraph::diagnostic::codes;
use fxgraph::kind::Rounded;
use fxgraph::{
    At, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PerBase, PortType, Rejection, Resources, Time, TimedSink,
};

/// Largest block in bytes: 4 GiB.
const MAX_BLOCK_BYTES: usize = 1 << 32;

/// Parameters of `guppi_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "guppi_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct GuppiSink {
    #[param(flatten)]
    pub(crate) files: FileParameters,
    /// Heaps in a block. By default those of an input frame.
    #[param(range = 1..)]
    pub heaps_per_block: Option<usize>,
    /// Name of the telescope, `TELESCOP` in the header.
    #[param(default)]
    pub telescope: String,
    /// Name of the source, `SRC_NAME` in the header.
    #[param(default)]
    pub source: String,
    /// Time of timestamp 0, if it is not that of the input: Unix seconds, or a time in UTC such as
    /// `2026-11-25T14:20:40.25Z`.
    pub sync_time_seconds: Option<Time>,
    /// Longest gap that is filled with blocks of zeros; blocks of longer gaps are left out.
    #[param(default = 10.0, range = 0..=86400, unit = "s")]
    pub max_gap_seconds: f64,
}

/// Shape of the input and of the blocks.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Heaps of a frame.
    heaps: usize,
    antennas: usize,
    channels: usize,
    spectra: usize,
    pols: usize,
    /// Heaps in a block.
    block_heaps: usize,
    /// ADC samples of a heap.
    heap_samples: u64,
    /// Strides of the validity counts along heaps and antennas; 0 if they share a count.
    strides: [usize; 2],
    /// Frequency at the centre of the channels, and their total width, in Hz.
    centre_hz: f64,
    bandwidth_hz: f64,
}

impl Shape {
    /// Bytes of the spectra of one channel in a heap.
    fn row_bytes(&self) -> usize {
        2 * self.spectra * self.pols
    }

    /// Bytes of a heap of one antenna.
    fn heap_bytes(&self) -> usize {
        self.channels * self.row_bytes()
    }

    fn block_bytes(&self) -> usize {
        self.block_heaps * self.antennas * self.heap_bytes()
    }
}

impl GuppiSink {
    fn shape(&self, input: &PortType) -> Result<Shape, Box<Rejection>> {
        if input.dtype != Dtype::Ci8 {
            let message = format!("`guppi_sink` cannot read {} voltages", input.dtype);
            let help = "set `bits: 8` in `postproc` or `f_engine`, or insert a `convert` to ci8";
            return Err(Box::new(
                Rejection::new(codes::INPUT_DTYPE, At::Input(0), message).help(help),
            ));
        }
        let axes: Vec<_> = input.axes.iter().map(|axis| (axis.name, axis.len)).collect();
        let (heaps, antennas, channels, spectra, pols) = match axes[..] {
            [("heap", h), ("channel", c), ("spectrum", s), ("pol", p)] => (h, 1, c, s, p),
            [("heap", h), ("antenna", a), ("channel", c), ("spectrum", s), ("pol", p)] => {
                (h, a, c, s, p)
            }
            _ => {
                let message = format!("`guppi_sink` cannot read `{input}`");
                let help = "connect the output of `postproc` or `f_engine` with `layout: standard`: \
                            [heap][channel][spectrum][pol], or with [antenna] after [heap]";
                return Err(Box::new(
                    Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help),
                ));
            }
        };
        if pols > 2 {
            let message = format!("GUPPI raw has 1 or 2 polarisations, the input has {pols}");
            return Err(Box::new(Rejection::new(
                codes::INPUT_AXIS,
                At::InputAxis(0, "pol"),
                message,
            )));
        }
        let Some(band) = input.band else {
            let message = "the input has no frequencies for OBSFREQ and OBSBW";
            let help = "set `band` at the source, for example `band` of `null_source`";
            return Err(Box::new(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help),
            ));
        };
        let mut strides = [0; 2];
        let mut stride = 1;
        for axis in input.validity.axes.iter().rev() {
            match axis.name {
                "heap" if axis.len == heaps => strides[0] = stride,
                "antenna" if axis.len == antennas => strides[1] = stride,
                name => {
                    let message = format!("`guppi_sink` cannot read validity along `{name}`");
                    let help = "use validity axes [heap], or [heap][antenna]";
                    return Err(Box::new(
                        Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help),
                    ));
                }
            }
            stride *= axis.len;
        }
        let samples = input.clock.samples_per_frame;
        if !samples.is_multiple_of(heaps as u64) {
            let message = format!(
                "a frame of {heaps} heaps must have a multiple of {heaps} ADC samples, got {samples}"
            );
            return Err(Box::new(Rejection::new(codes::RATE, At::Input(0), message)));
        }
        let width_hz = band.step_hz();
        let shape = Shape {
            heaps,
            antennas,
            channels,
            spectra,
            pols,
            block_heaps: self.heaps_per_block.unwrap_or(heaps),
            heap_samples: samples / heaps as u64,
            strides,
            centre_hz: band.channel_hz(0) + width_hz * (channels as f64 - 1.0) / 2.0,
            bandwidth_hz: width_hz * channels as f64,
        };
        let bytes = (shape.antennas * shape.heap_bytes()).checked_mul(shape.block_heaps);
        if bytes.is_none_or(|bytes| bytes > MAX_BLOCK_BYTES) {
            let message = format!(
                "a block must have at most 4 GiB, got {} heaps of {} bytes",
                shape.block_heaps,
                shape.antennas * shape.heap_bytes()
            );
            return Err(Box::new(
                Rejection::parameter("heaps_per_block", message).help("lower it"),
            ));
        }
        Ok(shape)
    }
}

impl TimedSink for GuppiSink {
    fn continue_in_later_base(&mut self, _number: u64) {
        self.files.overwrite = false;
        self.sync_time_seconds = None;
    }
}

impl KindSpec for GuppiSink {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            let clock = block.ports.inputs[0].clock;
            let sync_time = block.parameters.sync_time_seconds.unwrap_or(clock.sync_time);
            let clock = Clock { sync_time, ..clock };
            let format = cpu::Guppi::new(block.parameters.clone(), block.shape, clock);
            Ok(Box::new(FileSink::new(format, &block.parameters.files, clock, env)))
        })
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let rejections = self.files.rejections(&[], "out.0000.raw");
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let shape = self.shape(&inputs[0]).map_err(|rejection| vec![*rejection])?;
        Ok((shape, vec![]))
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        block.parameters.files.rounded(&block.ports.inputs[0].clock)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        Resources {
            host_bytes: 2 * block.shape.block_bytes(),
            holds: vec![1],
            fixes_band: true,
            writes: vec![block.parameters.files.path.path().to_owned()],
            ..Resources::default()
        }
    }
}
