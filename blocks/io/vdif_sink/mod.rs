#![doc = include_str!("README.md")]

mod cpu;
mod level;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests;

use crate::io::files::{FileParameters, FileSink};
use crate::io::rows::Rows;
use fxgraph::diagnostic::codes;
use fxgraph::kind::Rounded;
use fxgraph::{
    At, Checked, Clock, Configured, Implementation, Implementations, Kind, KindSpec, PerBase,
    PortType, Rejection, Resources, Time, TimedSink,
};
use fxgraph_formats::vdif::{
    Grid, Header, MAX_FRAME_BYTES, epoch_of, frames_per_second, is_width, payload_sizes, station,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest payload of the default: with its headers it fits into a network packet of 9000 bytes.
const MAX_DEFAULT_BYTES: u32 = 8000;
/// Largest payload that the help of an error lists.
const MAX_LISTED_BYTES: u32 = 1 << 16;
/// Number of threads that a header can express.
const THREADS: usize = 1024;

/// Parameters of `vdif_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "vdif_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct VdifSink {
    #[param(flatten)]
    pub(crate) files: FileParameters,
    /// Bits of a sample, of each part of a complex sample: 1, 2, 4, 8 or 16.
    #[param(default = 2)]
    pub bits: u8,
    /// Payload of a VDIF frame in bytes: a multiple of 8 that gives a whole number of frames per second. By default the
    /// largest one up to 8000.
    pub payload_bytes: Option<u32>,
    /// Station: two characters such as `Mk`, or a number such as `0x12`. By default 0.
    #[param(default)]
    pub station: String,
    /// Thread of the first polarisation; the others follow.
    #[param(default, range = 0..=1023)]
    pub first_thread: u16,
    /// Whether polarisations are channels of one thread instead of threads of their own; their number must be a power
    /// of two.
    #[param(default)]
    pub channels: bool,
    /// Form of the headers. By default `edv1` if it can express the sample rate, otherwise `edv0`.
    pub header: Option<HeaderKind>,
    /// RMS of the input, of each part of complex samples. By default it is measured.
    pub rms: Option<f32>,
    /// Time constant in seconds with which the measured RMS follows the input. By default the RMS of the first samples
    /// is held.
    pub tracking_seconds: Option<f64>,
    /// Factor from values of the input to steps of the quantiser, instead of the RMS; for 4, 8 and 16 bits. By default
    /// integers that fit into `bits` are written unchanged.
    pub scale: Option<f32>,
    /// Time of timestamp 0, if it is not that of the input: Unix seconds, or a time in UTC such as
    /// `2026-11-25T14:20:40.25Z`.
    pub sync_time_seconds: Option<Time>,
    /// Longest gap that is filled with invalid frames; frames of longer gaps are left out.
    #[param(default = 10.0, range = 0..=86400, unit = "s")]
    pub max_gap_seconds: f64,
}

/// Form of the headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HeaderKind {
    /// 32 bytes, extended data version 1 with the sample rate.
    Edv1,
    /// 32 bytes without extended data.
    Edv0,
    /// 16 bytes.
    Legacy,
}

/// Layout of the input and of the file.
#[derive(Clone)]
pub struct Layout {
    /// Samples of the input.
    rows: Rows,
    /// Grid of the samples.
    grid: Grid,
    /// Header of all frames, without time, thread and validity.
    header: Header,
    /// Number of threads.
    threads: usize,
}

impl Layout {
    /// Rows of the input in each thread.
    fn channels(&self) -> usize {
        self.rows.count / self.threads
    }

    /// Length of one frame of each thread in bytes.
    fn set_bytes(&self) -> usize {
        self.threads * self.header.frame_bytes as usize
    }
}

impl VdifSink {
    /// Diagnostics of the parameters by themselves.
    fn parameter_rejections(&self) -> Vec<Rejection> {
        let mut rejections = self.files.rejections(&[], "out.vdif");
        let mut reject = |name, message: String, help: &str| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        if !is_width(self.bits) {
            let message = format!("`bits` must be 1, 2, 4, 8 or 16, got {}", self.bits);
            reject("bits", message, "omit it for 2 bits");
        }
        if station(&self.station).is_none() {
            let message = format!(
                "`station` must be two characters or a number up to 65535, got `{}`",
                self.station
            );
            reject("station", message, "write a name such as `station: Mk`");
        }
        let is_positive = |value: f64| value > 0.0 && value.is_finite();
        for (name, value) in [
            ("rms", self.rms.map(f64::from)),
            ("scale", self.scale.map(f64::from)),
            ("tracking_seconds", self.tracking_seconds),
        ] {
            if let Some(value) = value.filter(|value| !is_positive(*value)) {
                let message = format!("`{name}` must be positive and finite, got {value}");
                reject(name, message, "give a number such as 0.5");
            }
        }
        if self.scale.is_some() && self.bits <= 2 {
            let message = format!("`scale` needs 4, 8 or 16 `bits`, got {}", self.bits);
            reject("scale", message, "set `rms`: thresholds of 1 and 2 bits are relative to it");
        }
        let given = [self.rms.is_some(), self.scale.is_some(), self.tracking_seconds.is_some()];
        if given.into_iter().filter(|is_given| *is_given).count() > 1 {
            let message =
                "at most one of `rms`, `scale` and `tracking_seconds` may be given".to_owned();
            let name = if self.scale.is_some() { "scale" } else { "tracking_seconds" };
            reject(name, message, "omit `tracking_seconds` if the level is known");
        }
        rejections
    }

    /// Samples per second of `input`, if they are a whole number.
    fn rate_hz(input: &PortType, rows: &Rows) -> Result<u64, Box<Rejection>> {
        let clock = &input.clock;
        let rate = clock.adc_sample_rate_hz * rows.samples as f64 / clock.samples_per_frame as f64;
        if rate.fract() == 0.0 && (1.0..1e12).contains(&rate) {
            return Ok(rate as u64);
        }
        let message = format!(
            "the sample rate must be a whole number of Hz below 10^12, got {rate} samples per second"
        );
        let help = "VDIF has a whole number of frames per second; insert a resampler, or choose another \
                    decimation";
        Err(Box::new(Rejection::new(codes::RATE, At::Input(0), message).help(help)))
    }

    /// Payload of a frame in bytes.
    fn payload(&self, rate_hz: u64, sample_bits: u64) -> Result<u32, Box<Rejection>> {
        let listed = payload_sizes(rate_hz, sample_bits, MAX_LISTED_BYTES);
        let Some(bytes) = self.payload_bytes else {
            let usual = listed.iter().rev().find(|bytes| **bytes <= MAX_DEFAULT_BYTES);
            return usual.or(listed.first()).copied().ok_or_else(|| {
                let message = format!(
                    "no payload of a multiple of 8 bytes up to {MAX_LISTED_BYTES} divides a second of \
                     {rate_hz} samples into whole frames"
                );
                let help = "set `payload_bytes` for a larger payload, or use a sample rate with more \
                            factors of two and five";
                Box::new(Rejection::new(codes::RATE, At::Input(0), message).help(help))
            });
        };
        if bytes <= MAX_FRAME_BYTES - 32 && frames_per_second(rate_hz, sample_bits, bytes).is_some()
        {
            return Ok(bytes);
        }
        let message = format!(
            "`payload_bytes` must be a multiple of 8 that gives a whole number of frames per second of \
             {rate_hz} samples, got {bytes}"
        );
        let mut near = listed;
        near.sort_by_key(|size| size.abs_diff(bytes));
        near.truncate(6);
        near.sort_unstable();
        let near: Vec<String> = near.iter().map(u32::to_string).collect();
        let help = if near.is_empty() {
            "use a sample rate with more factors of two and five".to_owned()
        } else {
            format!("use one of {}", near.join(", "))
        };
        Err(Box::new(Rejection::parameter("payload_bytes", message).help(help)))
    }

    /// Extended words of the headers; `None` for a legacy header.
    fn extended(&self, rate_hz: u64, is_complex: bool) -> Result<Option<[u32; 4]>, Box<Rejection>> {
        let edv1 = Header::edv1(rate_hz, is_complex, "");
        match self.header {
            Some(HeaderKind::Legacy) => Ok(None),
            Some(HeaderKind::Edv0) => Ok(Some([0; 4])),
            None => Ok(Some(edv1.unwrap_or_default())),
            Some(HeaderKind::Edv1) => edv1.map(Some).ok_or_else(|| {
                let unit = if is_complex { "1000" } else { "2000" };
                let message = format!(
                    "`edv1` needs a sample rate that is a multiple of {unit} Hz, got {rate_hz} Hz"
                );
                Box::new(Rejection::parameter("header", message).help("set `header: edv0`"))
            }),
        }
    }

    /// Number of threads for `rows` rows.
    fn threads(&self, rows: usize) -> Result<usize, Box<Rejection>> {
        let threads = if self.channels { 1 } else { rows };
        if self.channels && !rows.is_power_of_two() {
            let message =
                format!("the number of channels must be a power of two, the input has {rows} rows");
            let help = "omit `channels` for a thread for each of them";
            return Err(Box::new(Rejection::parameter("channels", message).help(help)));
        }
        if self.channels && rows > 1 << 16 || usize::from(self.first_thread) + threads > THREADS {
            let first = self.first_thread;
            let message =
                format!("threads must be below 1024, got {threads} threads from {first} on");
            let help = "lower `first_thread`, or set `channels: true`";
            return Err(Box::new(Rejection::parameter("first_thread", message).help(help)));
        }
        Ok(threads)
    }

    fn layout(&self, input: &PortType) -> Result<Layout, Box<Rejection>> {
        let rows = Rows::of(Self::NAME, input)?;
        let is_complex = input.dtype.is_complex();
        let rate_hz = Self::rate_hz(input, &rows)?;
        let threads = self.threads(rows.count)?;
        let channels = rows.count / threads;
        let sample_bits = u64::from(self.bits) * (rows.components() * channels) as u64;
        let payload_bytes = self.payload(rate_hz, sample_bits)?;
        let extended = self.extended(rate_hz, is_complex)?;
        let sync_time = self.sync_time_seconds.unwrap_or(input.clock.sync_time);
        let clock = Clock { sync_time, ..input.clock };
        let Some(signal_time) = clock.signal_time(0).filter(|time| epoch_of(*time).is_some())
        else {
            let message = format!(
                "VDIF needs times from 2000 to 2031, the time of timestamp 0 is {sync_time}"
            );
            let help = "set `sync_time_seconds` here or at the source, for example 1.8e9";
            return Err(Box::new(Rejection::parameter("sync_time_seconds", message).help(help)));
        };
        let header = Header {
            is_invalid: false,
            is_legacy: extended.is_none(),
            seconds: 0,
            epoch: 0,
            frame: 0,
            version: 0,
            log2_channels: channels.trailing_zeros() as u8,
            frame_bytes: payload_bytes + if extended.is_none() { 16 } else { 32 },
            is_complex,
            bits: self.bits,
            thread: 0,
            station: station(&self.station).unwrap_or_default(),
            extended: extended.unwrap_or_default(),
        };
        let grid = Grid {
            rate_hz,
            sync_time: signal_time,
            samples: rows.samples as u64,
            adc_samples: input.clock.samples_per_frame,
        };
        Ok(Layout { rows, grid, header, threads })
    }
}

impl TimedSink for VdifSink {
    fn continue_in_later_base(&mut self, _number: u64) {
        self.files.overwrite = false;
        self.sync_time_seconds = None;
    }
}

impl KindSpec for VdifSink {
    type Shape = Layout;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            let format = cpu::Vdif::new(block.parameters.clone(), block.shape.clone(), env);
            let clock = block.ports.inputs[0].clock;
            let sync_time = block.parameters.sync_time_seconds.unwrap_or(clock.sync_time);
            let clock = Clock { sync_time, ..clock };
            Ok(Box::new(FileSink::new(format, &block.parameters.files, clock, env)))
        })
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Layout> {
        let mut rejections = self.parameter_rejections();
        if rejections.is_empty() {
            match self.layout(&inputs[0]) {
                Ok(layout) => return Ok((layout, vec![])),
                Err(rejection) => rejections.push(*rejection),
            }
        }
        Err(rejections)
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        block.parameters.files.rounded(&block.ports.inputs[0].clock)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let layout = &block.shape;
        Resources {
            host_bytes: 2 * layout.set_bytes() + size_of::<f32>() * layout.rows.values(),
            holds: vec![level::frames_measured(&block.parameters, &layout.rows).max(1)],
            fixes_band: true,
            writes: vec![block.parameters.files.path.path().to_owned()],
            ..Resources::default()
        }
    }
}
