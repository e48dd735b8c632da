#![doc = include_str!("README.md")]

mod committing;
mod cpu;
mod describe;
mod matching;
mod ports;
mod queue;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod writing;

use crate::io::files::FileParameters;
use fxgraph::access::ReadPath;
use fxgraph::kind::Rounded;
use fxgraph::time::EarthOrientations;
use fxgraph::{
    Checked, Configured, Implementation, Implementations, Kind, KindSpec, PerBase, PortType,
    Rejection, Resources, TimedSink,
};
use fxgraph_formats::uvh5;
use ports::Layout;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// Largest size of a table of the orientation of the Earth; one of 50 years has 4 MB.
const MAX_ORIENTATION_BYTES: u64 = 64 << 20;
/// Dumps that wait for the thread that writes.
const QUEUE: usize = 2;

/// Parameters of `uvh5_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "uvh5_sink", page = "README.md", examples("example.yaml"), inputs(numbered("input")))]
pub struct Uvh5Sink {
    #[param(flatten)]
    pub(crate) files: FileParameters,
    /// Shortest time between commits: readers of the growing file, and of a file whose writer was killed, see
    /// all dumps before the last commit.
    #[param(default = 1.0, range = 0..=3600, unit = "s")]
    pub commit_seconds: f64,
    /// Name and place of the telescope.
    pub telescope: Telescope,
    /// Antennas in the order of the correlator's inputs, or with the numbers that the stream has (`antenna_numbers` of
    /// `antenna_stack`); then in any order, and also others. Set either this or `antennas_enu_metres`.
    #[param(default)]
    pub antennas: Vec<Antenna>,
    /// Position of each antenna relative to the telescope: east, north, up in metres.
    #[param(default)]
    pub antennas_enu_metres: Vec<[f64; 3]>,
    /// Number of the first antenna in the file; the others follow, unless `antennas` has their numbers.
    #[param(default = 0, range = 0..=1_000_000)]
    pub first_antenna_number: u32,
    /// Feed that receives each polarisation: `x` and `y`, or `r` and `l`, or one of them for an input with one polarisation.
    /// By default `[x, y]`, or `[x]`.
    #[param(default)]
    pub feeds: Vec<Feed>,
    /// Position angle of each feed, from north through east. By default 90 for `x` and `r`, which point to the east, and 0
    /// for `y` and `l`.
    #[param(default, unit = "deg")]
    pub feed_angles_degrees: Vec<f64>,
    /// Source that the delays of the F-engines follow. Without it the visibilities are those of fixed
    /// or no delays, and are written as unprojected.
    pub phase_centre: Option<PhaseCentre>,
    /// File with UT1 - UTC and the motion of the pole for each day, in the format `finals2000A` of the International Earth
    /// Rotation and Reference Systems Service (IERS). After its last day, and before its first, their values hold.
    pub earth_orientation_file: Option<ReadPath>,
    /// UT1 - UTC, for the local sidereal times, if there is no `earth_orientation_file`. Without both they are left out, and
    /// readers compute them.
    #[param(range = -1..=1, unit = "s")]
    pub ut1_utc_seconds: Option<f64>,
    /// Divides sums by the number of samples that contributed; otherwise sums are written.
    #[param(default = true)]
    pub normalise: bool,
    /// Time to wait for an input after the last dump of any input; then its channels are flagged until
    /// it sends again.
    #[param(default = 10.0, range = 0..=1e6, unit = "s")]
    pub wait_seconds: f64,
}

/// Name and place of a telescope.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Telescope {
    /// Name.
    pub name: String,
    /// Geodetic latitude (WGS 84) in degrees.
    pub latitude_degrees: f64,
    /// Longitude in degrees, east positive.
    pub longitude_degrees: f64,
    /// Height above the ellipsoid in metres.
    pub height_metres: f64,
    /// Instrument; by default `fxgraph`.
    #[serde(default = "instrument")]
    pub instrument: String,
    /// Type of the mounts.
    #[serde(default)]
    pub mount: Mount,
}

fn instrument() -> String {
    "fxgraph".to_owned()
}

/// Type of the mounts of antennas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mount {
    /// Does not move.
    #[default]
    Fixed,
    /// Azimuth and elevation.
    AltAz,
    /// Hour angle and declination.
    Equatorial,
    /// Two horizontal axes.
    XY,
    /// Steered by phases.
    Phased,
    /// Another type.
    Other,
}

impl Mount {
    /// Its name in files.
    fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::AltAz => "alt-az",
            Self::Equatorial => "equatorial",
            Self::XY => "x-y",
            Self::Phased => "phased",
            Self::Other => "other",
        }
    }
}

/// An antenna.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Antenna {
    /// Name; by default `ant` and the number.
    pub name: Option<String>,
    /// Number; by default its place in the list, counted from `first_antenna_number`.
    pub number: Option<u32>,
    /// Position relative to the telescope: east, north, up in metres.
    pub enu_metres: [f64; 3],
    /// Diameter in metres.
    pub diameter_metres: Option<f64>,
}

/// Feed that receives a polarisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Feed {
    /// Linear.
    X,
    /// Linear, at a right angle to `x`.
    Y,
    /// Right circular.
    R,
    /// Left circular.
    L,
}

impl From<Feed> for uvh5::Feed {
    fn from(feed: Feed) -> Self {
        match feed {
            Feed::X => Self::X,
            Feed::Y => Self::Y,
            Feed::R => Self::R,
            Feed::L => Self::L,
        }
    }
}

/// Source that the delays follow.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseCentre {
    /// Name.
    pub name: String,
    /// Right ascension (ICRS) in degrees.
    pub right_ascension_degrees: f64,
    /// Declination (ICRS) in degrees.
    pub declination_degrees: f64,
}

impl Uvh5Sink {
    /// Orientation of the Earth in the file of the user; the error is a sentence.
    fn orientations(&self) -> Result<Option<EarthOrientations>, String> {
        let Some(path) = &self.earth_orientation_file else { return Ok(None) };
        let mut text = String::new();
        let read =
            path.open().and_then(|file| file.take(MAX_ORIENTATION_BYTES).read_to_string(&mut text));
        read.map_err(|error| format!("cannot read `{path}`: {}", fxgraph::files::reason(&error)))?;
        let read = EarthOrientations::finals2000a(&text);
        read.map(Some).map_err(|why| format!("`{path}` must be a file finals2000A: {why}"))
    }

    /// Antennas, from either parameter.
    fn all_antennas(&self) -> Vec<Antenna> {
        let plain = self.antennas_enu_metres.iter();
        let plain = plain.map(|place| Antenna { enu_metres: *place, ..Antenna::default() });
        self.antennas.iter().cloned().chain(plain).collect()
    }

    /// Feed of each polarisation.
    fn feeds(&self, pols: usize) -> Vec<Feed> {
        let default = || [Feed::X, Feed::Y].into_iter().take(pols).collect();
        if self.feeds.is_empty() { default() } else { self.feeds.clone() }
    }

    /// Position angles of `feeds`.
    fn feed_angles_degrees(&self, feeds: &[Feed]) -> Vec<f64> {
        let default = |feed: &Feed| if matches!(feed, Feed::X | Feed::R) { 90.0 } else { 0.0 };
        match self.feed_angles_degrees.as_slice() {
            [] => feeds.iter().map(default).collect(),
            angles => angles.to_vec(),
        }
    }

    /// Place of the antenna with `number` in the stream: the antenna with this `number`, or, if no antenna has one, the
    /// antenna at this place.
    fn place_of(&self, number: u32) -> Option<usize> {
        if self.antennas.iter().all(|antenna| antenna.number.is_none()) {
            let place = number as usize;
            return (place < self.antennas.len().max(self.antennas_enu_metres.len()))
                .then_some(place);
        }
        self.antennas.iter().position(|antenna| antenna.number == Some(number))
    }

    /// Numbers of all antennas in the file.
    fn antenna_numbers(&self) -> Vec<u32> {
        let by_place = (self.first_antenna_number..).zip(self.all_antennas());
        by_place.map(|(by_place, antenna)| antenna.number.unwrap_or(by_place)).collect()
    }
}

impl TimedSink for Uvh5Sink {
    fn continue_in_later_base(&mut self, _number: u64) {
        self.files.overwrite = false;
    }
}

impl KindSpec for Uvh5Sink {
    type Shape = Layout;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        PerBase::block(block, env, |block, env| {
            Ok(Box::new(cpu::Sink::new(block.parameters.clone(), &block.ports, &block.shape, env)))
        })
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Layout> {
        let mut rejections: Vec<Rejection> = Vec::new();
        self.check(&mut rejections);
        let layout = self.layout(inputs, &mut rejections);
        match layout {
            Some(layout) if rejections.is_empty() => Ok((layout, vec![])),
            _ => Err(rejections),
        }
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        block.parameters.files.rounded(&block.ports.inputs[0].clock)
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let shape = &block.shape.shape;
        let rows = shape.baselines.saturating_mul(size_of::<[f64; 3]>() + 32);
        Resources {
            // Complex value, flag and number of samples, the last two also compressed.
            host_bytes: shape.chunk_values().saturating_mul(8 + 5 + 5).saturating_add(rows),
            holds: vec![QUEUE + 1; block.ports.inputs.len()],
            fixes_band: true,
            writes: vec![block.parameters.files.path.path().to_owned()],
            ..Resources::default()
        }
    }
}
