#![doc = include_str!("README.md")]

mod cpu;
mod level;
mod shape;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests;

use crate::io::files::{FileParameters, FileSink};
use fxgraph::kind::Rounded;
use fxgraph::{
    Checked, Configured, Implementation, Implementations, Kind, KindSpec, PerBase, PortType,
    Rejection, Resources, TimedSink,
};
use fxgraph_formats::filterbank::{Header, Quantiser, declination, right_ascension};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shape::{FILE_AXES, Shape, placeholder};

/// Largest number of beams or antennas, which are files that are open at the same time.
const MOST_BEAMS: usize = 4096;

/// Values that are written for missing data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// 0.
    #[default]
    Zero,
    /// Mean of the channel over the latest frame in which it has valid data.
    Mean,
}

/// Parameters of `filterbank_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "filterbank_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct FilterbankSink {
    #[param(flatten)]
    pub(crate) files: FileParameters,
    /// Bits of a value: 32 (floats), 16 or 8 (unsigned integers `round(scale x value + offset)`).
    #[param(default = 32)]
    pub bits: u32,
    /// Factor of the values for integers.
    #[param(default = 1.0)]
    pub scale: f32,
    /// Integer for the value 0.
    #[param(default)]
    pub offset: f32,
    /// Divides each value by its validity count, if the stream's values are sums: the file has means.
    #[param(default = true)]
    pub normalise: bool,
    /// Values for missing data: `zero`, or `mean` (of the channel over the latest frame in which it has valid data).
    #[param(default)]
    pub fill: Fill,
    /// Longest gap that is filled; a longer one begins a new file.
    #[param(default = 10.0, range = 0..=86400, unit = "s")]
    pub max_gap_seconds: f64,
    /// Name of the source, at most 80 characters of ASCII.
    #[param(default = "unknown".to_owned())]
    pub source_name: String,
    /// Number of the telescope in SIGPROC's list.
    #[param(default)]
    pub telescope_id: i32,
    /// Number of the recording machine in SIGPROC's list.
    #[param(default)]
    pub machine_id: i32,
    /// Right ascension of the source (J2000) as `hh:mm:ss.s`.
    pub right_ascension: Option<String>,
    /// Declination of the source (J2000) as `dd:mm:ss.s`, with a sign if it is negative.
    pub declination: Option<String>,
}

impl FilterbankSink {
    fn quantiser(&self) -> Quantiser {
        Quantiser { nbits: self.bits, scale: self.scale, offset: self.offset }
    }

    /// Right ascension and declination as in a header.
    fn position(&self, rejections: &mut Vec<Rejection>) -> [f64; 2] {
        let mut read = |parameter, text: &Option<String>, read: fn(&str) -> Option<f64>, rule| {
            let Some(text) = text else { return 0.0 };
            read(text).unwrap_or_else(|| {
                let message = format!("`{parameter}` must be {rule}, got `{text}`");
                rejections.push(Rejection::parameter(parameter, message));
                0.0
            })
        };
        [
            read("right_ascension", &self.right_ascension, right_ascension, "hh:mm:ss.s"),
            read("declination", &self.declination, declination, "dd:mm:ss.s"),
        ]
    }
}

impl TimedSink for FilterbankSink {
    fn continue_in_later_base(&mut self, _number: u64) {
        self.files.overwrite = false;
    }
}

impl KindSpec for FilterbankSink {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            let format = cpu::Filterbank::new(block.parameters.clone(), block.shape.clone(), env);
            Ok(Box::new(FileSink::new(format, &block.parameters.files, block.shape.clock, env)))
        })
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let mut rejections = self.files.rejections(&["fil"], "x.fil");
        if ![8, 16, 32].contains(&self.bits) {
            let message = format!("`bits` must be 8, 16 or 32, got {}", self.bits);
            rejections.push(Rejection::parameter("bits", message));
        }
        for (name, value) in [("scale", self.scale), ("offset", self.offset)] {
            if !value.is_finite() {
                let message = format!("`{name}` must be finite, got {value}");
                rejections.push(Rejection::parameter(name, message));
            }
        }
        let [src_raj, src_dej] = self.position(&mut rejections);
        let header = Header {
            source_name: self.source_name.clone(),
            telescope_id: self.telescope_id,
            machine_id: self.machine_id,
            nbits: self.bits,
            src_raj,
            src_dej,
            ..Header::default()
        };
        match Shape::new(&inputs[0], header) {
            Ok(shape) => {
                rejections.extend(self.reject_beams(&shape));
                if rejections.is_empty() { Ok((shape, vec![])) } else { Err(rejections) }
            }
            Err(of_input) => Err(rejections.into_iter().chain(of_input).collect()),
        }
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        block.parameters.files.rounded(&block.shape.clock)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let (parameters, shape) = (&block.parameters, &block.shape);
        let beams = shape.beams.len();
        let path = &parameters.files.path;
        Resources {
            host_bytes: shape.scratch_bytes(),
            fixes_band: true,
            writes: (0..beams).map(|beam| shape.path(path, beam).into()).collect(),
            ..Resources::default()
        }
    }
}

impl FilterbankSink {
    fn reject_beams(&self, shape: &Shape) -> Option<Rejection> {
        let beams = shape.beams.len();
        let of_files = shape.file_axis.as_ref().map(|axis| axis.name);
        for axis in FILE_AXES {
            let placeholder = placeholder(axis);
            let is_there = self.files.path.contains(&placeholder);
            if of_files == Some(axis) && beams > 1 && !is_there {
                let message = format!("`path` must contain {placeholder} for {beams} {axis}s");
                let help = format!("write a name such as {axis}_{placeholder}.fil");
                return Some(Rejection::parameter("path", message).help(help));
            }
            if of_files != Some(axis) && is_there {
                let message = format!(
                    "`path` must not contain {placeholder}, because the input has no axis `{axis}`"
                );
                return Some(Rejection::parameter("path", message));
            }
        }
        None
    }
}
