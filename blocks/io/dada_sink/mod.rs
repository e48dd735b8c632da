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
use fxgraph_formats::dada::HEADER_BYTES;

/// Parameters of `dada_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "dada_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct DadaSink {
    #[param(flatten)]
    pub(crate) files: FileParameters,
    /// Largest number of bytes of samples in a file. The files are then called
    /// `x_0000000000000000.000000.dada`, with the offset of their first byte and their number. By default there is one
    /// file.
    #[param(range = 1..)]
    pub file_bytes: Option<u64>,
    /// Name of the telescope.
    #[param(default)]
    pub telescope: String,
    /// Name of the source.
    #[param(default)]
    pub source: String,
    /// Name of the instrument.
    #[param(default)]
    pub instrument: String,
    /// Time of timestamp 0, if it is not that of the input: Unix seconds, or a time in UTC such as
    /// `2026-11-25T14:20:40.25Z`.
    pub sync_time_seconds: Option<Time>,
    /// Longest gap that is filled with zeros; a longer one begins a new file.
    #[param(default = 10.0, range = 0..=86400, unit = "s")]
    pub max_gap_seconds: f64,
}

/// Role of an axis of the input in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Time,
    Channel,
    Pol,
}

/// Shape of the input and of the file.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Bytes of a sample of one channel and polarisation.
    element_bytes: usize,
    /// Bits of a real or imaginary part.
    bits: u8,
    is_complex: bool,
    times: usize,
    channels: usize,
    pols: usize,
    /// Strides in the payload: for each axis of the file (time, channel, polarisation) the lengths and strides of the
    /// axes of the input, slowest first.
    strides: [Vec<(usize, usize)>; 3],
    /// For each of those axes the number of elements that share a validity count, and the stride of the counts.
    units: [Vec<(usize, usize)>; 3],
    /// ADC samples from one time to the next.
    step: u64,
    centre_hz: f64,
    bandwidth_hz: f64,
}

impl Shape {
    /// Bytes of one time.
    fn time_bytes(&self) -> usize {
        self.channels * self.pols * self.element_bytes
    }

    /// Place of an element along one axis of the file: offset in the payload, and in the validity counts.
    fn place(&self, axis: usize, mut index: usize) -> (usize, usize) {
        let (mut element, mut unit) = (0, 0);
        for ((len, stride), (shared, count)) in
            self.strides[axis].iter().zip(&self.units[axis]).rev()
        {
            let here = index % len;
            index /= len;
            element += here * stride;
            unit += here / shared * count;
        }
        (element, unit)
    }
}

impl DadaSink {
    fn shape(&self, input: &PortType) -> Result<Shape, Box<Rejection>> {
        let bits = match input.dtype {
            Dtype::I8 | Dtype::Ci8 => 8,
            Dtype::I16 | Dtype::Ci16 => 16,
            Dtype::F32 | Dtype::Cf32 => 32,
            other => {
                let message = format!("`dada_sink` cannot read {other} samples");
                let help =
                    "connect i8, i16, f32, ci8, ci16 or cf32; `convert` converts other types";
                return Err(Box::new(
                    Rejection::new(codes::INPUT_DTYPE, At::Input(0), message).help(help),
                ));
            }
        };
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        let times = names.iter().filter(|name| ["heap", "sample", "spectrum"].contains(*name));
        let is_known = names.iter().all(|name| Self::role(name).is_some())
            && matches!(
                times.copied().collect::<Vec<_>>()[..],
                ["sample" | "spectrum"] | ["heap", "spectrum"]
            );
        if !is_known {
            let message = format!("`dada_sink` cannot read `{input}`");
            let help = "connect time samples such as [pol][sample], spectra such as \
                        [spectrum][channel][pol], or heaps such as [heap][channel][spectrum][pol]";
            return Err(Box::new(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help),
            ));
        }
        let Some(band) = input.band else {
            let message = "the input has no frequencies for FREQ and BW";
            let help = "set `band` at the source, with `channels: 1` for time samples";
            return Err(Box::new(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help),
            ));
        };
        let validity = &input.validity.axes;
        let (mut strides, mut units) = ([const { vec![] }; 3], [const { vec![] }; 3]);
        let (mut stride, mut known_units) = (input.elements(), 1);
        for axis in &input.axes {
            stride /= axis.len;
            let Some(role) = Self::role(axis.name) else { continue };
            let place = role as usize;
            strides[place].push((axis.len, stride));
            let unit = validity.iter().position(|unit| {
                unit.name == axis.name || (unit.name == "heap" && axis.name == "sample")
            });
            units[place].push(unit.map_or((axis.len, 0), |index| {
                let after: usize = validity[index + 1..].iter().map(|unit| unit.len).product();
                known_units *= validity[index].len;
                (axis.len.div_ceil(validity[index].len), after)
            }));
        }
        if known_units != input.validity.units() {
            let message = "`dada_sink` cannot read the validity axes of its input";
            let help = "use validity axes such as [pol][heap], that are axes of the payload";
            return Err(Box::new(
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help),
            ));
        }
        let len = |role: Role| strides[role as usize].iter().map(|(len, _)| len).product::<usize>();
        let (times, channels, pols) = (len(Role::Time), len(Role::Channel), len(Role::Pol));
        let samples = input.clock.samples_per_frame;
        if !samples.is_multiple_of(times as u64) {
            let message = format!(
                "a frame of {times} samples must have a multiple of {times} ADC samples, got {samples}"
            );
            return Err(Box::new(Rejection::new(codes::RATE, At::Input(0), message)));
        }
        let width_hz = band.step_hz();
        let has_channels = input.axis_len("channel").is_some();
        let centre_hz = if has_channels {
            band.channel_hz(0) + width_hz * (channels as f64 - 1.0) / 2.0
        } else {
            band.centre_hz
        };
        Ok(Shape {
            element_bytes: input.dtype.bits() / 8,
            bits,
            is_complex: input.dtype.is_complex(),
            times,
            channels,
            pols,
            strides,
            units,
            step: samples / times as u64,
            centre_hz,
            bandwidth_hz: if has_channels {
                width_hz * channels as f64
            } else {
                band.signed_bandwidth_hz()
            },
        })
    }

    fn role(axis: &str) -> Option<Role> {
        match axis {
            "heap" | "sample" | "spectrum" => Some(Role::Time),
            "channel" => Some(Role::Channel),
            "pol" => Some(Role::Pol),
            _ => None,
        }
    }
}

impl TimedSink for DadaSink {
    fn continue_in_later_base(&mut self, _number: u64) {
        self.files.overwrite = false;
        self.sync_time_seconds = None;
    }
}

impl KindSpec for DadaSink {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            let clock = block.ports.inputs[0].clock;
            let sync_time = block.parameters.sync_time_seconds.unwrap_or(clock.sync_time);
            let clock = Clock { sync_time, ..clock };
            let format = cpu::Dada::new(block.parameters.clone(), block.shape.clone(), clock);
            Ok(Box::new(FileSink::new(format, &block.parameters.files, clock, env)))
        })
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let rejections = self.files.rejections(&[], "out.dada");
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let shape = self.shape(&inputs[0]).map_err(|rejection| vec![*rejection])?;
        let time_bytes = shape.time_bytes() as u64;
        if let Some(bytes) = self.file_bytes.filter(|bytes| *bytes < time_bytes) {
            let message = format!(
                "`file_bytes` must be at least the {time_bytes} bytes of a sample of all channels, got {bytes}"
            );
            let rejection = Rejection::parameter("file_bytes", message);
            return Err(vec![rejection.help("set for example `file_bytes: 1000000000`")]);
        }
        Ok((shape, vec![]))
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        block.parameters.files.rounded(&block.ports.inputs[0].clock)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let shape = &block.shape;
        Resources {
            host_bytes: 2 * shape.times * shape.time_bytes() + HEADER_BYTES,
            holds: vec![1],
            fixes_band: true,
            writes: vec![block.parameters.files.path.path().to_owned()],
            ..Resources::default()
        }
    }
}
