//! Description of the data: the group `Header`.

use super::hdf5::{Objects, Type, Values};
use std::f64::consts::FRAC_PI_2;

/// Growing arrays of `Header`: name, type, columns, and whether there is one row per dump instead of one per baseline.
pub(super) const TIMES: [(&str, Type, Option<u64>, bool); 11] = [
    ("ant_1_array", Type::I64, None, false),
    ("ant_2_array", Type::I64, None, false),
    ("time_array", Type::F64, None, false),
    ("lst_array", Type::F64, None, false),
    ("integration_time", Type::F64, None, false),
    ("uvw_array", Type::F64, Some(3), false),
    ("phase_center_app_ra", Type::F64, None, false),
    ("phase_center_app_dec", Type::F64, None, false),
    ("phase_center_frame_pa", Type::F64, None, false),
    ("phase_center_id_array", Type::I64, None, false),
    ("fxgraph_config_id", Type::U64, None, true),
];

/// A telescope.
#[derive(Clone, Debug)]
pub struct Telescope {
    /// Name.
    pub name: String,
    /// Instrument: the receivers, or the program.
    pub instrument: String,
    /// Geodetic latitude in degrees (WGS 84).
    pub latitude_degrees: f64,
    /// Longitude in degrees, east positive.
    pub longitude_degrees: f64,
    /// Height above the ellipsoid in metres.
    pub height_metres: f64,
    /// Type of the mounts, a word of pyuvdata: `fixed`, `alt-az`, ...
    pub mount: String,
}

/// An antenna.
#[derive(Clone, Debug)]
pub struct Antenna {
    /// Number.
    pub number: u32,
    /// Name.
    pub name: String,
    /// Position relative to the telescope, in metres along the axes of ITRF.
    pub position_metres: [f64; 3],
    /// Diameter in metres.
    pub diameter_metres: Option<f64>,
}

/// Feed that receives one polarisation of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// Linear.
    X,
    /// Linear, at a right angle to `X`.
    Y,
    /// Right circular.
    R,
    /// Left circular.
    L,
}

impl Feed {
    fn letter(self) -> char {
        match self {
            Self::X => 'x',
            Self::Y => 'y',
            Self::R => 'r',
            Self::L => 'l',
        }
    }
}

/// Direction to which the phases refer.
#[derive(Clone, Debug, PartialEq)]
pub enum PhaseCentre {
    /// None: each baseline vector is east, north, up, and sources drift through the fringes.
    Unprojected,
    /// A source at this ICRS right ascension and declination in radians, followed by the delays.
    Sidereal {
        /// Name.
        name: String,
        /// Right ascension.
        right_ascension: f64,
        /// Declination.
        declination: f64,
    },
}

/// Content of a file, apart from the dumps.
#[derive(Clone, Debug)]
pub struct Description {
    /// The telescope.
    pub telescope: Telescope,
    /// All antennas of the telescope.
    pub antennas: Vec<Antenna>,
    /// Places of the antennas of each row of a dump among `antennas`.
    pub baselines: Vec<(usize, usize)>,
    /// Feed of each polarisation of the stream, of which there are 1 or 2.
    pub feeds: Vec<Feed>,
    /// Position angles of the feeds in radians, from north through east.
    pub feed_angles: Vec<f64>,
    /// Frequency of each channel in Hz.
    pub frequencies_hz: Vec<f64>,
    /// Width of a channel in Hz.
    pub channel_width_hz: f64,
    /// Length of a dump in seconds.
    pub integration_seconds: f64,
    /// Direction to which the phases refer.
    pub phase_centre: PhaseCentre,
    /// Whether the local sidereal times are known; otherwise readers compute them.
    pub has_sidereal_time: bool,
    /// Origin of the data, as text.
    pub history: String,
    /// Further descriptions: names of up to 8 capital letters and digits, and numbers or texts of one line, so that
    /// pyuvdata can write them to UVFITS and Miriad.
    pub keywords: Vec<(&'static str, Values)>,
    /// Texts of the program, which other formats do not have.
    pub texts: Vec<(&'static str, Values)>,
}

/// Objects of a file that do not change.
#[derive(Debug)]
pub(super) struct Fixed {
    /// Members of `Header`.
    header: Vec<(&'static str, u64)>,
    /// The group with the texts of the program.
    texts: u64,
    has_sidereal_time: bool,
}

impl Fixed {
    /// Adds the groups of the file to `objects`; `growing` are the headers of the data and then of [`TIMES`], `counts`
    /// the numbers of baseline-times and times. Returns the address of the root group.
    pub(super) fn write(&self, objects: &mut Objects, growing: &[u64], counts: [u64; 2]) -> u64 {
        let mut links = self.header.clone();
        for (name, count) in ["Nblts", "Ntimes"].into_iter().zip(counts) {
            links.push((name, objects.dataset(&Values::integer(count as i64))));
        }
        let (data, times) = growing.split_at(3);
        for ((name, ..), address) in TIMES.iter().zip(times) {
            if *name != "lst_array" || self.has_sidereal_time {
                links.push((name, *address));
            }
        }
        links.sort_unstable();
        let header = objects.group(&links);
        let names = ["visdata", "flags", "nsamples"];
        let data: Vec<(&str, u64)> = names.into_iter().zip(data.iter().copied()).collect();
        let data = objects.group(&data);
        objects.group(&[("Data", data), ("Header", header), ("fxgraph", self.texts)])
    }
}

/// Returns the numbers of the polarisations of a file in its order, and the place of each product of a correlator
/// in it, for products (0, 0), (1, 0), (0, 1), (1, 1) of two feeds, or the product of one; `None` for feeds of different
/// types, the same feed twice, or another number of feeds.
#[must_use]
pub fn polarisations(feeds: &[Feed]) -> Option<(Vec<i64>, Vec<usize>)> {
    let number = |one: Feed, two: Feed| match (one, two) {
        (Feed::R, Feed::R) => Some(-1),
        (Feed::L, Feed::L) => Some(-2),
        (Feed::R, Feed::L) => Some(-3),
        (Feed::L, Feed::R) => Some(-4),
        (Feed::X, Feed::X) => Some(-5),
        (Feed::Y, Feed::Y) => Some(-6),
        (Feed::X, Feed::Y) => Some(-7),
        (Feed::Y, Feed::X) => Some(-8),
        _ => None,
    };
    let of_products: Vec<i64> = match *feeds {
        [feed] => vec![number(feed, feed)?],
        [a, b] if a != b => vec![number(a, a)?, number(b, a)?, number(a, b)?, number(b, b)?],
        _ => return None,
    };
    let mut sorted = of_products.clone();
    sorted.sort_unstable_by(|x, y| y.cmp(x));
    let place = |of: &i64| sorted.iter().position(|other| other == of).unwrap_or(0);
    let places = of_products.iter().map(place).collect();
    Some((sorted, places))
}

impl Description {
    /// Adds the objects that do not change.
    pub(super) fn write(&self, objects: &mut Objects) -> Fixed {
        let mut group = |values: &[(&'static str, Values)]| {
            let links = values.iter().map(|(name, values)| (*name, objects.dataset(values)));
            let links: Vec<(&str, u64)> = links.collect();
            objects.group(&links)
        };
        let [keywords, texts] = [&self.keywords, &self.texts].map(|values| group(values));
        let entry = group(&self.catalogue());
        let catalogue = objects.group(&[("0", entry)]);
        let mut header = vec![("extra_keywords", keywords), ("phase_center_catalog", catalogue)];
        let values = self.values();
        header.extend(values.iter().map(|(name, values)| (*name, objects.dataset(values))));
        Fixed { header, texts, has_sidereal_time: self.has_sidereal_time }
    }

    /// Datasets that do not grow.
    fn values(&self) -> Vec<(&'static str, Values)> {
        let antennas = self.antennas.len();
        let telescope = &self.telescope;
        let count = |count: usize| Values::integer(count as i64);
        let names: Vec<String> = self.antennas.iter().map(|antenna| antenna.name.clone()).collect();
        let positions: Vec<[f64; 3]> =
            self.antennas.iter().map(|antenna| antenna.position_metres).collect();
        let channels = self.frequencies_hz.len();
        let (polarisations, _) = polarisations(&self.feeds).unwrap_or_default();
        let mut with_data: Vec<usize> =
            self.baselines.iter().flat_map(|(one, two)| [*one, *two]).collect();
        with_data.sort_unstable();
        with_data.dedup();
        let per_antenna = |texts: &[String]| -> Vec<String> {
            (0..antennas).flat_map(|_| texts.iter().cloned()).collect()
        };
        let feeds: Vec<String> = self.feeds.iter().map(|feed| feed.letter().to_string()).collect();
        let diameters: Option<Vec<f64>> =
            self.antennas.iter().map(|antenna| antenna.diameter_metres).collect();
        let mut values = vec![
            ("version", Values::text("1.2")),
            ("history", Values::text(&self.history)),
            ("telescope_name", Values::text(&telescope.name)),
            ("telescope_frame", Values::text("itrs")),
            ("instrument", Values::text(&telescope.instrument)),
            ("latitude", Values::float(telescope.latitude_degrees)),
            ("longitude", Values::float(telescope.longitude_degrees)),
            ("altitude", Values::float(telescope.height_metres)),
            ("Nants_data", count(with_data.len())),
            ("Nants_telescope", count(antennas)),
            ("Nbls", count(self.baselines.len())),
            ("Nfreqs", count(channels)),
            ("Npols", count(polarisations.len())),
            ("Nspws", count(1)),
            ("Nphase", count(1)),
            ("Nfeeds", count(feeds.len())),
            ("antenna_names", Values::texts(&names)),
            (
                "antenna_numbers",
                Values::integers(self.antennas.iter().map(|antenna| antenna.number.into())),
            ),
            ("antenna_positions", Values::rows(positions.as_flattened(), 3)),
            ("mount_type", Values::texts(&per_antenna(std::slice::from_ref(&telescope.mount)))),
            ("feed_array", Values::text_rows(&per_antenna(&feeds), feeds.len())),
            ("feed_angle", Values::rows(&self.feed_angles.repeat(antennas), feeds.len())),
            ("freq_array", Values::floats(self.frequencies_hz.iter().copied())),
            ("channel_width", Values::floats((0..channels).map(|_| self.channel_width_hz))),
            ("spw_array", Values::integers([0])),
            ("flex_spw", Values::boolean(false)),
            ("flex_spw_id_array", Values::integers((0..channels).map(|_| 0))),
            ("polarization_array", Values::integers(polarisations)),
            ("vis_units", Values::text("uncalib")),
            ("blt_order", Values::text("time, baseline")),
            ("blts_are_rectangular", Values::boolean(true)),
            ("time_axis_faster_than_bls", Values::boolean(false)),
        ];
        if let Some(diameters) = diameters {
            values.push(("antenna_diameters", Values::floats(diameters)));
        }
        values
    }

    /// The entry of the phase centre in the catalogue.
    fn catalogue(&self) -> Vec<(&'static str, Values)> {
        let (name, kind, frame, [lon, lat]) = match &self.phase_centre {
            PhaseCentre::Unprojected => ("unprojected", "unprojected", "altaz", [0.0, FRAC_PI_2]),
            PhaseCentre::Sidereal { name, right_ascension, declination } => {
                (name.as_str(), "sidereal", "icrs", [*right_ascension, *declination])
            }
        };
        let mut entry = vec![
            ("cat_name", Values::text(name)),
            ("cat_type", Values::text(kind)),
            ("cat_frame", Values::text(frame)),
            ("cat_lon", Values::float(lon)),
            ("cat_lat", Values::float(lat)),
            ("info_source", Values::text("fxgraph")),
        ];
        // UVFITS requires an equinox. The axes of ICRS are those of J2000 within 0.02 arcseconds.
        if self.phase_centre != PhaseCentre::Unprojected {
            entry.push(("cat_epoch", Values::float(2000.0)));
        }
        entry
    }
}
