//! Places of the samples of a frame.

use crate::io::validity_counts::{Place, places};
use fxgraph::diagnostic::codes;
use fxgraph::{At, Band, Clock, Dtype, PortType, Rejection};
use fxgraph_formats::sigmf::{Datatype, Number};

/// Layout of the input, and of a recording.
#[derive(Clone, Debug)]
pub struct Shape {
    pub datatype: Datatype,
    /// Samples of a frame in each channel.
    pub samples: usize,
    /// Place of the samples.
    pub sample: Place,
    /// Offsets of the channels, in elements of the payload and in validity counts.
    pub channels: Vec<(usize, usize)>,
    /// Names and lengths of the axes of the channels.
    pub channel_axes: Vec<(&'static str, usize)>,
    pub clock: Clock,
    /// ADC samples from one sample to the next.
    pub step: u64,
    pub band: Option<Band>,
}

/// Returns the type of samples in a file.
fn datatype(dtype: Dtype) -> Option<Datatype> {
    let number = match dtype {
        Dtype::I8 | Dtype::Ci8 => Number::I8,
        Dtype::U8 => Number::U8,
        Dtype::I16 | Dtype::Ci16 => Number::I16,
        Dtype::I32 | Dtype::Ci32 => Number::I32,
        Dtype::F32 | Dtype::Cf32 => Number::F32,
        Dtype::F64 | Dtype::Cf64 => Number::F64,
        _ => return None,
    };
    Some(Datatype::new(dtype.is_complex(), number))
}

/// Axes that become channels.
const CHANNELS: [&str; 3] = ["antenna", "pol", "beam"];

impl Shape {
    /// Layout of `input`.
    pub fn new(input: &PortType) -> Result<Self, Box<Rejection>> {
        let reject = |code, message: String, help: &str| {
            Box::new(Rejection::new(code, At::Input(0), message).help(help))
        };
        let help = "use `convert` to make `ci8`, `ci16` or `cf32` of other types";
        let datatype = datatype(input.dtype).ok_or_else(|| {
            let message = format!("SigMF has no samples of type `{}`", input.dtype);
            reject(codes::INPUT_DTYPE, message, help)
        })?;
        let help =
            "connect samples: [sample], or [pol][sample] or [antenna][sample] for several channels";
        let axis = input.axes.iter().position(|axis| axis.name == "sample");
        let is_known = |name: &str| name == "sample" || CHANNELS.contains(&name);
        let axis = axis.filter(|_| input.axes.iter().all(|axis| is_known(axis.name)));
        let axis = axis.ok_or_else(|| {
            let message = format!("`sigmf_sink` cannot read the axes of `{input}`");
            reject(codes::INPUT_AXIS, message, help)
        })?;
        let places = places(input, "sample").map_err(|why| {
            let message = format!("`sigmf_sink` cannot read the validity of the input: {why}");
            reject(codes::INPUT_AXIS, message, "set the validity axes in the block upstream")
        })?;
        let mut channels = vec![(0, 0)];
        let mut channel_axes = Vec::new();
        for (n, of_channels) in input.axes.iter().enumerate().filter(|(n, _)| *n != axis) {
            let place = places[n];
            let offset = |(element, count): (usize, usize)| {
                let each = 0..of_channels.len;
                each.map(move |n| (element + n * place.stride, count + place.count(n)))
            };
            channels = channels.into_iter().flat_map(offset).collect();
            channel_axes.push((of_channels.name, of_channels.len));
        }
        let samples = input.axes[axis].len;
        let (clock, per_frame) = (input.clock, input.clock.samples_per_frame);
        if !per_frame.is_multiple_of(samples as u64) {
            let message = format!(
                "the {per_frame} ADC samples of a frame must be a multiple of its {samples} samples"
            );
            return Err(reject(codes::RATE, message, "change the length of the frames upstream"));
        }
        Ok(Self {
            datatype,
            samples,
            sample: places[axis],
            channels,
            channel_axes,
            clock,
            step: per_frame / samples as u64,
            band: input.band,
        })
    }

    /// Samples per second of each channel.
    pub fn sample_rate_hz(&self) -> f64 {
        self.clock.adc_sample_rate_hz / self.step as f64
    }

    /// Whether all samples from `first` with the same count are valid, in each channel; and the number of samples to the
    /// next count.
    pub fn run(&self, validity: &[u32], first: usize) -> (bool, usize) {
        let Place { shared, counts, .. } = self.sample;
        let len = if counts == 0 { self.samples } else { shared - first % shared };
        let count = self.sample.count(first);
        let is_valid = self.channels.iter().all(|(_, channel)| validity[count + channel] > 0);
        (is_valid, len)
    }

    /// Appends the samples of a frame to `bytes`, channel by channel for each sample, with zeros for missing ones.
    pub fn interleave(&self, payload: &[u8], validity: &[u32], bytes: &mut Vec<u8>) {
        let size = self.datatype.bytes();
        bytes.resize(self.samples * self.channels.len() * size, 0);
        let channels = self.channels.len();
        for (n, (element, count)) in self.channels.iter().enumerate() {
            let outputs = bytes.chunks_exact_mut(size).skip(n).step_by(channels);
            for (sample, to) in outputs.enumerate() {
                if validity[count + self.sample.count(sample)] == 0 {
                    to.fill(0);
                } else {
                    let from = (element + sample * self.sample.stride) * size;
                    to.copy_from_slice(&payload[from..from + size]);
                }
            }
        }
    }
}
