#![doc = include_str!("README.md")]

mod archive;
mod cpu;
mod plain;
mod player;

use crate::common::axes;
use crate::common::nyquist::{self, MAX_NYQUIST_ZONE};
use crate::io::playback::{self, Playback, PlaybackParameters};
use crate::util::null_source::{AxisParameter, BandParameter, NullSource, Pattern};
use fxgraph::access::ReadPath;
use fxgraph::diagnostic::codes;
use fxgraph::kind::{slow_digitiser, unlikely_band};
use fxgraph::{
    At, Checked, Configured, Dtype, Implementation, Implementations, Kind, KindSpec, PortType,
    Rejection, Time, npy,
};
use fxgraph_formats::codes::{Codes, Encoding, First};
use player::Recording;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `file_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "file_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct FileSource {
    /// File to play: a recording (`.npy` or `.npz`), or with `raw` an array of `numpy.save` or any
    /// other file.
    pub path: ReadPath,
    #[param(flatten)]
    playback: PlaybackParameters,
    /// Description of a file that is not a recording.
    pub raw: Option<Raw>,
}

/// Description of a file that is not a recording.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// Element type: `i10p` (packed 10-bit), `i8`, `i16`, `ci8`, `cf16`, `cf32`, ...; by default that of
    /// the header of a `.npy` file.
    pub dtype: Option<String>,
    /// Axes of a frame, slowest first.
    pub axes: Vec<AxisParameter>,
    /// Axes of the validity flags; by default one flag per frame.
    #[serde(default)]
    pub validity_axes: Vec<AxisParameter>,
    /// ADC samples from one frame to the next.
    pub samples_per_frame: u64,
    /// ADC sample rate in Hz.
    #[serde(default = "default_rate")]
    pub adc_sample_rate_hz: f64,
    /// Time of timestamp 0: Unix seconds, or a time in UTC such as `2026-11-25T14:20:40.25Z`.
    #[serde(default)]
    pub sync_time_seconds: Time,
    /// Timestamp of the first frame, in ADC samples.
    #[serde(default)]
    pub first_timestamp: u64,
    /// Bytes before the first frame; by default the header of a `.npy` file.
    pub header_bytes: Option<u64>,
    /// Frequencies of the channel axis; with `channels: 1`, of the band that real samples cover.
    pub band: Option<BandParameter>,
    /// Nyquist zone of the samples of an ADC, counted from 1, in place of `band`. Even zones have an inverted spectrum
    /// (lower sideband).
    pub nyquist_zone: Option<u32>,
    /// Packing of numbers of 1, 2 or 4 bits, for `dtype: i8` or `ci8`.
    pub packed: Option<Packing>,
}

/// Packing of numbers of 1, 2 or 4 bits.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Packing {
    /// Bits of a number: 1, 2 or 4.
    pub bits: u8,
    /// Encoding of a number.
    pub encoding: PackedEncoding,
    /// Place of the first number in a byte.
    #[serde(default)]
    pub first: FirstBits,
}

/// Encoding of packed numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PackedEncoding {
    /// The highest bit is the sign, 1 for negative; the others are the magnitude.
    SignMagnitude,
    /// Codes from the lowest value up.
    OffsetBinary,
    /// Two's complement.
    TwosComplement,
}

/// Place of the first number in a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FirstBits {
    /// Least significant bits.
    #[default]
    Low,
    /// Most significant bits.
    High,
}

impl Packing {
    /// Levels of the numbers; `None` for another width than 1, 2 or 4 bits.
    fn codes(self) -> Option<Codes> {
        let encoding = match self.encoding {
            PackedEncoding::SignMagnitude => Encoding::SignMagnitude,
            PackedEncoding::OffsetBinary => Encoding::OffsetBinary,
            PackedEncoding::TwosComplement => Encoding::TwosComplement,
        };
        let first = match self.first {
            FirstBits::Low => First::Low,
            FirstBits::High => First::High,
        };
        Codes::new(self.bits, encoding, first)
    }
}

fn default_rate() -> f64 {
    1.712e9
}

impl Raw {
    /// Bytes of a frame of `port` in the file.
    fn frame_bytes(&self, port: &PortType) -> usize {
        let bytes = port.frame_bytes();
        self.packed.map_or(bytes, |packed| bytes / 8 * usize::from(packed.bits))
    }

    /// Diagnostic for packed numbers that cannot be those of `port`.
    fn reject_packing(&self, port: &PortType, is_array: bool) -> Option<Rejection> {
        let packed = self.packed?;
        let reject = |at, message: String, help: &str| {
            let rejection =
                Rejection::new(codes::PARAMETER_OUT_OF_RANGE, At::Parameter(at), message);
            Some(rejection.help(help))
        };
        if packed.codes().is_none() {
            let message =
                format!("`bits` of packed numbers must be 1, 2 or 4, got {}", packed.bits);
            return reject(
                "raw.packed.bits",
                message,
                "for other widths give a `dtype` such as i10p",
            );
        }
        if !matches!(port.dtype, Dtype::I8 | Dtype::Ci8) || is_array {
            let message =
                format!("packed numbers become `i8` or `ci8` of a plain file, got {}", port.dtype);
            return reject(
                "raw.packed",
                message,
                "set `dtype: i8` or `dtype: ci8`, and not a .npy file",
            );
        }
        let count = port.frame_bytes();
        if !count.is_multiple_of(8) {
            let message = format!("a frame must have a multiple of 8 packed numbers, got {count}");
            return reject("raw.axes", message, "make the frame longer or shorter");
        }
        None
    }

    /// Returns the type of the stream in the file at `path`, with the checks of `null_source`, which has the
    /// same parameters.
    fn port(&self, path: &ReadPath) -> Result<PortType, Vec<Rejection>> {
        let header = plain::header(path, self).map_err(FileSource::reject)?;
        let of_header = || header.as_ref().map(|header| npy::dtype(&header.descr));
        let dtype =
            self.dtype.clone().map(Ok).or_else(|| Some(of_header()?.map(|d| d.to_string())));
        let missing = || Err("`raw` needs `dtype`: only a .npy file contains its dtype".to_owned());
        let dtype =
            dtype.unwrap_or_else(missing).map_err(|why| vec![Rejection::parameter("raw", why)])?;
        let like = NullSource {
            dtype,
            axes: self.axes.clone(),
            validity_axes: self.validity_axes.clone(),
            validity_full: 1,
            samples_per_frame: self.samples_per_frame,
            adc_sample_rate_hz: self.adc_sample_rate_hz,
            sync_time_seconds: self.sync_time_seconds,
            filter_delay_samples: 0.0,
            first_timestamp: self.first_timestamp,
            frames: None,
            restart_every: None,
            missing_every: None,
            pattern: Pattern::Zeros,
            seed: 0,
            band: self.band,
        };
        let inner = |at: &At| match at {
            At::Parameter("dtype") => At::Parameter("raw.dtype"),
            At::Parameter("axes") => At::Parameter("raw.axes"),
            At::Parameter("validity_axes") => At::Parameter("raw.validity_axes"),
            At::Parameter("samples_per_frame") => At::Parameter("raw.samples_per_frame"),
            At::Parameter("band") => At::Parameter("raw.band"),
            At::Parameter("adc_sample_rate_hz") => At::Parameter("raw.adc_sample_rate_hz"),
            _ => At::Parameter("raw"),
        };
        let mut port = like.output().map_err(|rejections| {
            rejections.into_iter().map(|r| Rejection { at: inner(&r.at), ..r }).collect::<Vec<_>>()
        })?;
        if let Some(rejection) = self.reject_packing(&port, header.is_some()) {
            return Err(vec![rejection]);
        }
        if let Some(zone) = self.nyquist_zone {
            let is_real = !port.dtype.is_complex() && port.axis_len("channel").is_none();
            if !(1..=MAX_NYQUIST_ZONE).contains(&zone) || !is_real || self.band.is_some() {
                let message = format!(
                    "`nyquist_zone` must be from 1 to {MAX_NYQUIST_ZONE}, for real samples without `band`, got {zone}"
                );
                let rejection = Rejection::parameter("raw.nyquist_zone", message);
                return Err(vec![rejection.help("omit it, and give `band` with its `sideband`")]);
            }
            port.band = nyquist::band(zone, self.adc_sample_rate_hz, None);
        }
        if let Some(header) = header {
            plain::frames(&header, &port)
                .map_err(|why| FileSource::reject(format!("cannot use {path}: {why}")))?;
        }
        Ok(port)
    }
}

impl FileSource {
    /// Returns the type of the stream in the file.
    fn port(&self) -> Result<PortType, Vec<Rejection>> {
        let path = &self.path;
        if let Some(raw) = &self.raw {
            return raw.port(path);
        }
        let side = if archive::is_array(path) || archive::is_archive(path) {
            archive::side_file(path)
        } else {
            Err(format!("{path} is not a recording: its name must end in .npy or .npz"))
        };
        let (side, place) = side.map_err(|why| {
            let help = "set `raw` to describe a file that is not a recording";
            let is_other = why.contains("is not a recording");
            let rejection = Rejection::parameter("path", why);
            vec![if is_other { rejection.help(help) } else { rejection }]
        })?;
        let port = side.port(axes::known);
        let port = port.map_err(|why| Self::reject(format!("{place} is wrong: {why}")))?;
        // Checked before memory is allocated for frames that are not in the file.
        Recording::open(path, &side, &port).map_err(Self::reject)?;
        Ok(port)
    }

    fn reject(message: String) -> Vec<Rejection> {
        vec![Rejection::parameter("path", message)]
    }
}

impl KindSpec for FileSource {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let (parameters, port) = (&block.parameters, &block.ports.outputs[0]);
        let playback = Playback::new(&parameters.playback, port.clock, env);
        let format = cpu::RecordedFrames::new(parameters, port, env);
        Ok(Box::new(playback::FileSource::new(playback, format, env)))
    })];

    /// Reads the description from the file, the only source of a recording's type.
    fn ports(&self, _inputs: &[PortType]) -> Checked<()> {
        self.playback.check()?;
        Ok(((), vec![self.port()?]))
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let has_samples = block.ports.outputs[0].axes.iter().any(|axis| axis.name == "sample");
        let raw = block.parameters.raw.as_ref().filter(|_| has_samples);
        let rate =
            raw.and_then(|raw| slow_digitiser("raw.adc_sample_rate_hz", raw.adc_sample_rate_hz));
        let port = &block.ports.outputs[0];
        let band = raw.and_then(|_| unlikely_band("raw.band", port));
        rate.into_iter().chain(band).collect()
    }
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
