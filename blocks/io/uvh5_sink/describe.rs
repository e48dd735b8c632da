//! Description of the file, and rows of its dumps.

use super::ports::Layout;
use super::{Feed, Uvh5Sink};
use fxgraph::time::sky::{Place, Pointing, Sky};
use fxgraph::time::{EarthOrientation, EarthOrientations};
use fxgraph::{Clock, Env, Ports};
use fxgraph_formats::uvh5::arrange::Order;
use fxgraph_formats::uvh5::hdf5::Values;
use fxgraph_formats::uvh5::{self, Description, DumpTime};

/// The description of the files of a sink.
pub fn description(
    parameters: &Uvh5Sink,
    ports: &Ports,
    layout: &Layout,
    env: &Env,
) -> Description {
    let telescope = &parameters.telescope;
    let place = place(parameters);
    let clock = &ports.inputs[0].clock;
    let frequencies = layout.inputs.iter().flat_map(|input| {
        let band = ports.inputs[input.input].band;
        (0..input.channels).map(move |c| band.map_or(0.0, |band| band.channel_hz(c)))
    });
    let antenna = |(number, antenna): (u32, super::Antenna)| uvh5::Antenna {
        number,
        name: antenna.name.unwrap_or_else(|| format!("ant{number}")),
        position_metres: place.enu_to_itrf(antenna.enu_metres),
        diameter_metres: antenna.diameter_metres,
    };
    let antennas = parameters.antenna_numbers().into_iter().zip(parameters.all_antennas());
    let phase_centre = match &parameters.phase_centre {
        None => uvh5::PhaseCentre::Unprojected,
        Some(centre) => uvh5::PhaseCentre::Sidereal {
            name: centre.name.clone(),
            right_ascension: centre.right_ascension_degrees.to_radians(),
            declination: centre.declination_degrees.to_radians(),
        },
    };
    let history = format!(
        "Written by fxgraph {}, block {}, configuration {}.",
        env!("CARGO_PKG_VERSION"),
        env.name,
        env.flowgraph.config_hash
    );
    let scale = if parameters.normalise { "mean" } else { "sum" };
    let keywords = vec![
        ("FXVER", Values::text(env!("CARGO_PKG_VERSION"))),
        ("FXBLOCK", Values::text(&env.name)),
        ("FXCONFIG", Values::text(&env.flowgraph.config_hash)),
        ("FXSCALE", Values::text(scale)),
        ("FXNSAMP", Values::float(samples_per_dump(ports))),
        ("ADCRATE", Values::float(clock.adc_sample_rate_hz)),
        ("SYNCTIME", Values::float(clock.sync_time.to_unix_f64())),
    ];
    let feeds = parameters.feeds(layout.pols);
    let feed_angles = parameters.feed_angles_degrees(&feeds);
    let mut baselines = layout.baselines.clone();
    baselines.sort_unstable();
    Description {
        telescope: uvh5::Telescope {
            name: telescope.name.clone(),
            instrument: telescope.instrument.clone(),
            latitude_degrees: telescope.latitude_degrees,
            longitude_degrees: telescope.longitude_degrees,
            height_metres: telescope.height_metres,
            mount: telescope.mount.name().to_owned(),
        },
        antennas: antennas.map(antenna).collect(),
        baselines,
        feeds: feeds.into_iter().map(Feed::into).collect(),
        feed_angles: feed_angles.into_iter().map(f64::to_radians).collect(),
        frequencies_hz: frequencies.collect(),
        channel_width_hz: channel_width_hz(ports),
        integration_seconds: 1.0 / clock.frames_per_second(),
        phase_centre,
        has_sidereal_time: parameters.ut1_utc_seconds.is_some()
            || parameters.earth_orientation_file.is_some(),
        history,
        keywords,
        texts: vec![("flowgraph", Values::text(&env.flowgraph.yaml()))],
    }
}

/// Order and scale of the visibilities.
pub fn order(
    parameters: &Uvh5Sink,
    ports: &Ports,
    layout: &Layout,
    description: &Description,
) -> Order {
    // The rows are sorted, and each baseline is one of them.
    let row = |pair| description.baselines.binary_search(pair).unwrap_or(0);
    let polarisations = uvh5::polarisations(&description.feeds);
    Order {
        rows: layout.baselines.iter().map(row).collect(),
        polarisations: polarisations.map_or_else(Vec::new, |(_, places)| places),
        samples: parameters.normalise.then(|| samples_per_dump(ports)),
    }
}

fn channel_width_hz(ports: &Ports) -> f64 {
    ports.inputs[0].band.map_or(1.0, |band| band.step_hz().abs())
}

/// Samples of a channel in a dump: a filter bank makes one per inverse width of a channel.
fn samples_per_dump(ports: &Ports) -> f64 {
    channel_width_hz(ports) / ports.inputs[0].clock.frames_per_second()
}

fn place(parameters: &Uvh5Sink) -> Place {
    let telescope = &parameters.telescope;
    Place {
        latitude: telescope.latitude_degrees.to_radians(),
        longitude: telescope.longitude_degrees.to_radians(),
        height_metres: telescope.height_metres,
    }
}

/// Times and baseline vectors of dumps.
pub struct Times {
    place: Place,
    clock: Clock,
    /// Orientation of the Earth without a table.
    orientation: EarthOrientation,
    orientations: Option<EarthOrientations>,
    /// Right ascension and declination of the source that the delays follow, in radians.
    source: Option<[f64; 2]>,
    /// Positions of the antennas along the axes of ITRF.
    antennas: Vec<[f64; 3]>,
    rows: Vec<(usize, usize)>,
    /// Positions of the antennas as seen from the source.
    turned: Vec<[f64; 3]>,
    uvw: Vec<[f64; 3]>,
}

impl Times {
    /// Creates the times of the files with this description.
    pub fn new(parameters: &Uvh5Sink, ports: &Ports, description: &Description) -> Self {
        let source = parameters.phase_centre.as_ref().map(|centre| {
            [centre.right_ascension_degrees, centre.declination_degrees].map(f64::to_radians)
        });
        Self {
            place: place(parameters),
            clock: ports.inputs[0].clock,
            // An error is a diagnostic of the check.
            orientations: parameters.orientations().ok().flatten(),
            orientation: EarthOrientation {
                ut1_utc_seconds: parameters.ut1_utc_seconds.unwrap_or(0.0),
                ..EarthOrientation::default()
            },
            source,
            antennas: description.antennas.iter().map(|antenna| antenna.position_metres).collect(),
            rows: description.baselines.clone(),
            turned: Vec::new(),
            uvw: Vec::new(),
        }
    }

    /// Rows of the dump that begins at `timestamp`.
    pub fn at(&mut self, timestamp: u64, config_id: u64) -> DumpTime<'_> {
        let Place { latitude, longitude, .. } = self.place;
        let half = self.clock.samples_per_frame as f64 / 2.0 / self.clock.adc_sample_rate_hz;
        let centre = self.clock.signal_time(timestamp).and_then(|begin| begin.plus_seconds(half));
        // A time that no calendar has is written as 1970.
        let centre = centre.unwrap_or_default();
        let table = self.orientations.as_ref();
        let orientation = table.map_or(self.orientation, |table| table.nearest(centre));
        let sky = Sky::new(centre, &orientation, &self.place);
        let sidereal_time = sky.as_ref().map_or(0.0, Sky::sidereal_time);
        // Without a source the phase centre is the zenith.
        let phase_centre = match (self.source, sky) {
            (Some([ra, dec]), Some(sky)) => sky.apparent_with_north(ra, dec),
            _ => [sidereal_time, latitude, 0.0],
        };
        let [ra, declination, north_angle] = phase_centre;
        let greenwich_hour_angle = sidereal_time - ra - longitude;
        let pointing = Pointing { greenwich_hour_angle, declination, north_angle };
        self.turned.clear();
        self.turned.extend(self.antennas.iter().map(|place| pointing.uvw(*place)));
        self.uvw.clear();
        self.uvw.extend(self.rows.iter().map(|(one, two)| {
            let (one, two) = (self.turned[*one], self.turned[*two]);
            std::array::from_fn(|n| two[n] - one[n])
        }));
        DumpTime {
            julian_date: centre.to_julian_date().iter().sum(),
            sidereal_time,
            uvw_metres: &self.uvw,
            phase_centre,
            config_id,
        }
    }
}
