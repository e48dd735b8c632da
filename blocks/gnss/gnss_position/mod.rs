#![doc = include_str!("README.md")]

mod clients;
mod cpu;
mod files;
mod receiver;
mod satellites;
#[cfg(test)]
mod tests;

use crate::gnss::gnss_tracker::{PROMPT_VALUES, VALUES as TRACKED_VALUES};
use crate::gnss::navigation;
use fxgraph::access::{ReadPath, WrittenPath};
use fxgraph::diagnostic::codes;
use fxgraph::time::sky::Place;
use fxgraph::{
    At, Axis, Checked, Clock, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    PortType, Rejection, Resources, ValidityType,
};
use fxgraph_navigation::rinex::Navigation;
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::SocketAddr;

/// Names of the values of the output, in order.
pub const LABELS: [&str; 29] = [
    "fix",
    "x_metres",
    "y_metres",
    "z_metres",
    "latitude_degrees",
    "longitude_degrees",
    "height_metres",
    "velocity_east_metres_per_second",
    "velocity_north_metres_per_second",
    "velocity_up_metres_per_second",
    "deviation_east_metres",
    "deviation_north_metres",
    "deviation_up_metres",
    "gps_week",
    "gps_seconds",
    "clock_seconds",
    "clock_rate",
    "galileo_offset_seconds",
    "gdop",
    "pdop",
    "hdop",
    "vdop",
    "tdop",
    "satellites_used",
    "satellites_seen",
    "raim",
    "excluded_system",
    "excluded_satellite",
    "chi_square",
];
/// Number of values of the output.
pub const VALUES: usize = LABELS.len();

/// Names of the values of a satellite in the output `satellites`, in order.
pub const SATELLITE_LABELS: [&str; 11] = [
    "system",
    "satellite",
    "is_used",
    "azimuth_degrees",
    "elevation_degrees",
    "cn0_db_hz",
    "pseudorange_metres",
    "residual_metres",
    "doppler_hz",
    "carrier_cycles",
    "ephemeris",
];
/// Number of values of a satellite.
pub const SATELLITE_VALUES: usize = SATELLITE_LABELS.len();

/// A place that the receiver is near.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Near {
    /// Geodetic latitude on WGS 84, in degrees.
    pub latitude_degrees: f64,
    /// Longitude in degrees, east positive.
    pub longitude_degrees: f64,
    /// Height above the ellipsoid in metres.
    #[serde(default)]
    pub height_metres: f64,
}

impl Near {
    fn itrf_metres(self) -> [f64; 3] {
        let place = Place {
            latitude: self.latitude_degrees.to_radians(),
            longitude: self.longitude_degrees.to_radians(),
            height_metres: self.height_metres,
        };
        place.itrf_metres()
    }
}

/// Parameters of `gnss_position`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "gnss_position",
    page = "README.md",
    examples("example.yaml"),
    inputs("tracked", "prompts"),
    outputs("output", "satellites")
)]
pub struct GnssPosition {
    /// Time from one position to the next, rounded to whole frames.
    #[param(default = 1.0, range = 0.001..=3600, unit = "s")]
    pub interval_seconds: f64,
    /// Satellites below this elevation are not used.
    #[param(default = 5.0, range = -90..=90, unit = "degrees")]
    pub elevation_mask_degrees: f64,
    /// Whether the delay of the ionosphere is corrected: by the model that the satellites broadcast, and before it is received
    /// by a nominal one.
    #[param(default = true)]
    pub ionosphere: bool,
    /// Whether the delay of the troposphere is corrected, by Saastamoinen's model.
    #[param(default = true)]
    pub troposphere: bool,
    /// Whether a Kalman filter combines the epochs; without it each position is that of one epoch.
    #[param(default = true)]
    pub filter: bool,
    /// Noise of the receiver's acceleration that the filter expects, along each axis: 0.001 for a receiver that stands, 0.1
    /// for one that walks, 10 for a car.
    #[param(default = 0.1, range = 0..=1e6, unit = "(m/s^2)^2/Hz")]
    pub acceleration_density: f64,
    /// Probability, in an epoch without a fault, that the check of the residuals (RAIM) reports one.
    #[param(default = 1e-5, range = 1e-12..=0.1)]
    pub false_alarm_probability: f64,
    /// RINEX navigation file (versions 2 to 4) with ephemerides of the time, so that a position needs no messages of the
    /// satellites. Broadcast ephemerides replace it.
    pub navigation: Option<ReadPath>,
    /// Place within 100 km of the receiver. With ephemerides, it gives a position from code phases alone.
    pub near: Option<Near>,
    /// Standard deviation of the time of timestamp 0 for a position from code phases alone.
    #[param(default = 1.0, range = 1e-9..=30, unit = "s")]
    pub time_uncertainty_seconds: f64,
    /// RINEX 3.04 observation file that the block writes.
    pub observation_file: Option<WrittenPath>,
    /// RINEX 3.04 navigation file that the block writes when it ends, with the broadcast ephemerides.
    pub navigation_file: Option<WrittenPath>,
    /// Address and port on which TCP clients get sentences of NMEA 0183 in each epoch, such as `127.0.0.1:10110`.
    pub nmea_listen: Option<String>,
}

/// Derived sizes, and the file of the user.
#[derive(Debug)]
pub struct Shape {
    satellites: usize,
    slots: usize,
    /// Frames of the input from one position to the next.
    frames: u64,
    nmea: Option<SocketAddr>,
    navigation: Navigation,
}

impl GnssPosition {
    /// Checks the inputs; returns the numbers of satellites and of prompt sums.
    fn inputs(inputs: &[PortType], rejections: &mut Vec<Rejection>) -> [usize; 2] {
        let shapes: [(&[&str], usize, &str); 2] = [
            (
                &["satellite", "value"],
                TRACKED_VALUES,
                "input `tracked` must be the output of `gnss_tracker`",
            ),
            (
                &["satellite", "slot", "value"],
                PROMPT_VALUES,
                "input `prompts` must be the output `prompts` of `gnss_tracker`",
            ),
        ];
        for (n, (input, (axes, values, message))) in inputs.iter().zip(shapes).enumerate() {
            let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
            let is_it = names == axes && input.axes.last().is_some_and(|axis| axis.len == values);
            if !is_it || input.dtype != Dtype::F64 {
                let rejection = Rejection::new(codes::INPUT_AXIS, At::Input(n), message);
                let help = "give the `gnss_tracker` the parameter `prompts: true`, and connect both of its outputs";
                rejections.push(rejection.label(format!("this is {input}")).help(help));
            }
        }
        let [tracked, prompts] = inputs else { return [0; 2] };
        if rejections.is_empty()
            && (tracked.clock != prompts.clock || tracked.axes[0].len != prompts.axes[0].len)
        {
            let message =
                "inputs `tracked` and `prompts` must be outputs of the same `gnss_tracker`";
            rejections.push(Rejection::new(codes::INPUTS_DIFFER, At::Input(1), message));
        }
        if rejections.is_empty() { [prompts.axes[0].len, prompts.axes[1].len] } else { [0; 2] }
    }

    /// Checks the parameters that need more than a range; returns address and file.
    fn check(&self, rejections: &mut Vec<Rejection>) -> (Option<SocketAddr>, Navigation) {
        let mut reject = |parameter, message: String, help: &str| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        if let Some(near) = self.near {
            let is_place = near.latitude_degrees.abs() <= 90.0
                && near.longitude_degrees.abs() <= 360.0
                && near.height_metres.abs() <= 1e5;
            if !is_place {
                let message = format!(
                    "`near` must have a latitude within 90 degrees, a longitude within 360 degrees and a height within 100 km, got {}, {}, {}",
                    near.latitude_degrees, near.longitude_degrees, near.height_metres
                );
                reject("near", message, "give the place to 100 km");
            }
        }
        let address = self.nmea_listen.as_ref().and_then(|text| {
            text.parse()
                .map_err(|_| {
                    let message =
                        format!("`nmea_listen` must be an IP address and a port, got `{text}`");
                    reject("nmea_listen", message, "give an address such as 127.0.0.1:10110");
                })
                .ok()
        });
        let navigation = self.navigation.as_ref().map(navigation::read_file).transpose();
        let navigation = navigation.unwrap_or_else(|why| {
            reject("navigation", why, "give a RINEX navigation file of the day");
            None
        });
        (address, navigation.unwrap_or_default())
    }
}

impl KindSpec for GnssPosition {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let input = &block.ports.inputs[0];
        Ok(Box::new(cpu::Position::new(&block.parameters, &block.shape, input, env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let mut rejections = Vec::new();
        let [satellites, slots] = Self::inputs(inputs, &mut rejections);
        let (nmea, navigation) = self.check(&mut rejections);
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let clock = inputs[0].clock;
        let frame_seconds = clock.samples_per_frame as f64 / clock.adc_sample_rate_hz;
        let frames = (self.interval_seconds / frame_seconds).round().max(1.0) as u64;
        let Some(samples_per_frame) = clock.samples_per_frame.checked_mul(frames) else {
            let message = "`interval_seconds` has too many samples";
            return Err(vec![
                Rejection::parameter("interval_seconds", message).help("give a shorter time"),
            ]);
        };
        let output = PortType {
            dtype: Dtype::F64,
            axes: vec![Axis::labelled("value", LABELS)],
            clock: Clock { samples_per_frame, ..clock },
            band: None,
            validity: ValidityType::flags(vec![]),
        };
        let axes = vec![inputs[0].axes[0].clone(), Axis::labelled("value", SATELLITE_LABELS)];
        let of_satellites = PortType { axes, ..output.clone() };
        Ok((Shape { satellites, slots, frames, nmea, navigation }, vec![output, of_satellites]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let parameters = &block.parameters;
        let written = [&parameters.observation_file, &parameters.navigation_file];
        Resources {
            host_bytes: block.shape.satellites.saturating_mul(satellites::BYTES),
            writes: written.into_iter().flatten().map(|path| path.path().to_owned()).collect(),
            binds: parameters.nmea_listen.clone().into_iter().collect(),
            ..Resources::default()
        }
    }
}
