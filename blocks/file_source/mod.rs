#![doc = include_str!("README.md")]

mod archive;
mod cpu;
mod player;

use crate::axes;
use crate::null_source::{AxisParameter, NullSource, Pattern};
use fxgraph::{At, Block, BlockError, Env, Kind, PortNames, PortType, Ports, Refusal, Resources};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::Path;

/// Parameters of `file_source`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileSource {
    /// File to play: a `.npy` or `.npz` with its side file, or with `raw` any file.
    pub path: String,
    /// Frames to play at most.
    pub frames: Option<u64>,
    /// How fast frames come.
    #[serde(default)]
    pub pace: Pace,
    /// What a plain binary file carries.
    pub raw: Option<Raw>,
}

/// How fast frames come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// As fast as they are taken.
    #[default]
    Full,
    /// As far apart as their timestamps.
    RealTime,
}

/// What a plain binary file carries.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// Element type: `i10p` (packed 10-bit), `i8`, `i16`, `ci8`, `cf16`, `cf32`, ...
    pub dtype: String,
    /// Axes of a frame, slowest first.
    pub axes: Vec<AxisParameter>,
    /// Axes of the validity flags; without any there is one flag per frame.
    #[serde(default)]
    pub validity_axes: Vec<AxisParameter>,
    /// ADC samples from one frame to the next.
    pub samples_per_frame: u64,
    /// ADC sample rate in Hz.
    #[serde(default = "default_rate")]
    pub adc_sample_rate_hz: f64,
    /// Unix time of timestamp 0 in seconds.
    #[serde(default)]
    pub sync_time_seconds: f64,
    /// Timestamp of the first frame, in ADC samples.
    #[serde(default)]
    pub first_timestamp: u64,
    /// Bytes before the first frame.
    #[serde(default)]
    pub header_bytes: u64,
}

fn default_rate() -> f64 {
    1.712e9
}

impl Raw {
    /// The stream, by the rules of `null_source`, which has the same parameters.
    fn port(&self) -> Result<PortType, Vec<Refusal>> {
        let like = NullSource {
            dtype: self.dtype.clone(),
            axes: self.axes.clone(),
            validity_axes: self.validity_axes.clone(),
            validity_full: 1,
            samples_per_frame: self.samples_per_frame,
            adc_sample_rate_hz: self.adc_sample_rate_hz,
            sync_time_seconds: self.sync_time_seconds,
            first_timestamp: self.first_timestamp,
            frames: None,
            missing_every: None,
            pattern: Pattern::Zeros,
            seed: 0,
            band: None,
        };
        let inner = |at: &At| match at {
            At::Parameter("dtype") => At::Parameter("raw.dtype"),
            At::Parameter("axes") => At::Parameter("raw.axes"),
            At::Parameter("validity_axes") => At::Parameter("raw.validity_axes"),
            At::Parameter("samples_per_frame") => At::Parameter("raw.samples_per_frame"),
            At::Parameter("adc_sample_rate_hz") => At::Parameter("raw.adc_sample_rate_hz"),
            _ => At::Parameter("raw"),
        };
        let mut outputs = like.ports(&[]).map_err(|refusals| {
            refusals.into_iter().map(|r| Refusal { at: inner(&r.at), ..r }).collect::<Vec<_>>()
        })?;
        Ok(outputs.remove(0))
    }
}

impl FileSource {
    /// What is played.
    fn port(&self) -> Result<PortType, Vec<Refusal>> {
        if let Some(raw) = &self.raw {
            return raw.port();
        }
        let refuse = |message: String| vec![Refusal::parameter("path", message)];
        let stem = self.path.strip_suffix(".npy").or_else(|| self.path.strip_suffix(".npz"));
        if stem.is_none() {
            let mut refusals = refuse(format!("`{}` is no recording", self.path));
            refusals[0].help =
                Some("describe plain binary data with the parameter `raw`".to_owned());
            return Err(refusals);
        }
        let side = archive::side_file(Path::new(&self.path)).map_err(refuse)?;
        let unusable = |why| refuse(format!("{} cannot be used: {why}", self.path));
        side.port(axes::known).map_err(unusable)
    }
}

impl Kind for FileSource {
    const NAME: &'static str = "file_source";
    const DOC: &'static str = include_str!("README.md");
    const INPUTS: PortNames = PortNames::Fixed(&[]);
    const OUTPUTS: PortNames = PortNames::Fixed(&["output"]);

    /// Reads the description: what a recording carries stands nowhere else.
    fn ports(&self, _inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Ok(vec![self.port()?])
    }

    fn resources(&self, _ports: &Ports) -> Resources {
        Resources::default()
    }

    fn build(&self, ports: &Ports, env: &Env) -> Result<Box<dyn Block>, BlockError> {
        Ok(Box::new(cpu::Source::new(self.clone(), &ports.outputs[0], env)))
    }
}

#[cfg(test)]
mod tests;
