//! Sizes of input, stages and output, with their checks.

use super::{FrbBeamformer, Integrate, Voltages};
use fxgraph::diagnostic::codes;
use fxgraph::{At, Axis, Band, Clock, Dtype, PortType, Rejection, ValidityType};

/// Axes of the input.
const AXES: [&str; 5] = ["spectrum", "channel", "pol", "east_west", "north_south"];
/// Supported types of the feeds' voltages.
const DTYPES: [Dtype; 3] = [Dtype::Ci4, Dtype::Ci8, Dtype::Cf16];
/// Largest number of points; more are taken to be a mistake.
const MOST_POINTS: usize = 1 << 16;
/// Largest number of rows of beams, the limit of a CUDA grid in y and z.
const MOST_ROWS: usize = 65_535;
/// Largest size of beams or factors in bytes; more are taken to be a mistake.
const MOST_BYTES: usize = 1 << 36;

/// Sizes of the stream at each stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Spectra of an input frame.
    pub spectra: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Polarisations.
    pub pols: usize,
    /// Cylinders, from west to east.
    pub cylinders: usize,
    /// Feeds of a cylinder, from north to south.
    pub feeds: usize,
    /// Rows of beams from north to south: one for each beam across the cylinders, or each cylinder.
    pub rows: usize,
    /// Beams of a row.
    pub row_beams: usize,
    /// Narrow channels per channel of the input, which is also the length of the transform in spectra.
    pub fine_channels: usize,
    /// Sums of intensities; `None` for voltages.
    pub integrate: Option<Integrate>,
    /// Number of validity units of a frame, `[time, frequency]`.
    pub units: [usize; 2],
    /// ADC samples from one input spectrum to the next.
    pub samples_per_spectrum: u64,
    /// Type of the feeds' voltages.
    pub dtype: Dtype,
}

impl Sizes {
    /// Beams of all rows.
    pub const fn beams(&self) -> usize {
        self.rows * self.row_beams
    }

    /// Transformed spectra per spectrum of the output.
    pub fn spectra_per_sum(&self) -> usize {
        self.integrate.map_or(1, |integrate| integrate.spectra)
    }

    /// Spectra of an output frame.
    pub fn output_spectra(&self) -> usize {
        self.spectra / self.fine_channels / self.spectra_per_sum()
    }

    /// Elements of one spectrum of the output.
    pub fn output_spectrum(&self) -> usize {
        let fine = self.channels * self.fine_channels * self.beams();
        self.integrate.map_or(fine * self.pols, |integrate| fine / integrate.channels)
    }

    /// Sizes of the stages between `input` and the output.
    ///
    /// # Errors
    /// Diagnostics for stages that do not fit the input or each other.
    pub fn new(parameters: &FrbBeamformer, input: &PortType) -> Result<Self, Vec<Rejection>> {
        let mut rejections = reject_input(input);
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let len = |name| input.axis_len(name).unwrap_or(0);
        let (spectra, feeds) = (len("spectrum"), len("north_south"));
        let mut reject = |parameter, message: String, help: String| {
            rejections.push(Rejection::parameter(parameter, message).help(help));
        };
        let rows = parameters.east_west.as_ref().map(|across| across.angles_degrees.len());
        if rows.is_some_and(|rows| rows == 0 || rows > MOST_ROWS) {
            let message = format!(
                "`east_west.angles_degrees` must have 1 to {MOST_ROWS} entries, got {}",
                rows.unwrap_or(0)
            );
            let help = "give for example `[-0.4, 0, 0.4, 0.8]`".to_owned();
            reject("east_west.angles_degrees", message, help);
        }
        let points = parameters.north_south.as_ref().map(|along| along.points);
        if let Some(points) = points
            && !(feeds..=MOST_POINTS).contains(&points)
        {
            let message = format!(
                "`north_south.points` must be between {feeds}, the feeds, and {MOST_POINTS}, got {points}"
            );
            reject("north_south.points", message, format!("set for example {}", 2 * feeds));
        }
        let kept = parameters.clamp.as_ref().map(|clamp| clamp.beams);
        if kept.is_some_and(|kept| kept == 0 || kept > feeds) {
            let message = format!(
                "`clamp.beams` must be between 1 and {feeds}, the feeds, got {}",
                kept.unwrap_or(0)
            );
            reject("clamp.beams", message, format!("set for example {feeds}"));
        }
        if kept.is_some() && points.is_none() {
            let message = "`clamp` needs `north_south`".to_owned();
            reject("clamp", message, "add for example `north_south: {points: 512}`".to_owned());
        }
        let fine_channels = parameters.upchannelise.unwrap_or(1);
        if fine_channels == 0 || !spectra.is_multiple_of(fine_channels) {
            let message = format!(
                "`upchannelise` must divide the {spectra} spectra of a frame, got {fine_channels}"
            );
            reject("upchannelise", message, "change it, or the source's frame length".to_owned());
        } else if let Some(Integrate { channels, spectra: sum }) = parameters.integrate {
            if channels == 0 || !fine_channels.is_multiple_of(channels) {
                let message = format!(
                    "`integrate.channels` must divide the {fine_channels} narrow channels, got {channels}"
                );
                let help = "use a divisor of `upchannelise`".to_owned();
                reject("integrate.channels", message, help);
            }
            let transforms = spectra / fine_channels;
            if sum == 0 || !transforms.is_multiple_of(sum) {
                let message = format!(
                    "`integrate.spectra` must divide the {transforms} transforms of a frame, got {sum}"
                );
                let help = "change it, or the source's frame length".to_owned();
                reject("integrate.spectra", message, help);
            }
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let units = |name| {
            let axis = input.validity.axes.iter().find(|axis| axis.name == name);
            axis.map_or(1, |axis| axis.len)
        };
        let sizes = Self {
            spectra,
            channels: len("channel"),
            pols: len("pol"),
            cylinders: len("east_west"),
            feeds,
            rows: rows.unwrap_or(len("east_west")),
            row_beams: kept.or(points).unwrap_or(feeds),
            fine_channels,
            integrate: parameters.integrate,
            units: [units("spectrum"), units("channel")],
            samples_per_spectrum: input.clock.samples_per_frame / spectra as u64,
            dtype: input.dtype,
        };
        let Self { channels, pols, cylinders, rows, row_beams, .. } = sizes;
        // Intermediate beams, and weights of the feeds.
        let tables =
            [[spectra, channels, pols, rows, row_beams], [channels, pols, rows, cylinders, feeds]];
        let fits = |table: &[usize; 5]| {
            let bytes = table.iter().try_fold(8_usize, |bytes, len| bytes.checked_mul(*len));
            bytes.is_some_and(|bytes| bytes <= MOST_BYTES)
        };
        if !tables.iter().all(fits) {
            let message =
                "the beams of a frame, or the weights of its feeds, take more than 64 GiB";
            return Err(vec![
                Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
                    .help("use shorter frames, or split the channels among several blocks"),
            ]);
        }
        Ok(sizes)
    }

    /// Type of the output.
    pub fn output(&self, parameters: &FrbBeamformer, input: &PortType) -> PortType {
        let spectra = Axis::new("spectrum", self.output_spectra());
        let fine = self.fine_channels;
        let merged = self.integrate.map_or(1, |integrate| integrate.channels);
        let channels = Axis::new("channel", self.channels * fine / merged);
        let beams = Axis::new("beam", self.beams());
        let pols = Axis::new("pol", self.pols);
        let has_sums = self.integrate.is_some();
        let units = input.validity.axes.iter().filter(|axis| axis.name == "channel").cloned();
        PortType {
            dtype: match parameters.voltages {
                _ if has_sums => Dtype::F32,
                Voltages::Cf32 => Dtype::Cf32,
                Voltages::Cf16 => Dtype::Cf16,
            },
            axes: if has_sums {
                vec![spectra.clone(), channels, beams]
            } else {
                vec![spectra.clone(), channels, pols, beams]
            },
            clock: Clock { ..input.clock },
            band: input.band.map(|band| narrower(&band, fine, merged)),
            validity: if fine == 1 && !has_sums {
                input.validity.clone()
            } else {
                ValidityType {
                    axes: [spectra].into_iter().chain(units).collect(),
                    full: self.spectra_per_sum() as u32,
                }
            },
        }
    }
}

/// `band` with each channel split into `fine` channels, of which `merged` neighbours are summed.
fn narrower(band: &Band, fine: usize, merged: usize) -> Band {
    let of_each = fine / merged;
    let channels = band.channels.saturating_mul(of_each);
    let width_hz = band.step_hz();
    // Distance from the middle channel of `band` to the channel that contains the new middle one.
    let middle = (channels / 2) as f64 / of_each as f64 - (band.channels / 2) as f64;
    let within = ((merged - 1) as f64 / 2.0 - (fine / 2) as f64) / fine as f64;
    Band {
        channels,
        first_channel: band.first_channel.saturating_mul(of_each),
        centre_hz: band.centre_hz + (middle + within) * width_hz,
        ..*band
    }
}

/// Diagnostics for the input that do not depend on the stages.
fn reject_input(input: &PortType) -> Vec<Rejection> {
    let mut rejections = Vec::new();
    if !DTYPES.contains(&input.dtype) {
        let message = format!("the input must be ci4, ci8 or cf16, got {}", input.dtype);
        rejections.push(
            Rejection::new(codes::INPUT_DTYPE, At::Input(0), message).help("insert a `convert`"),
        );
    }
    let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
    if names != AXES {
        let message =
            format!("expected the axes [{}], got [{}]", AXES.join("]["), names.join("]["));
        rejections.push(
            Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
                .help("insert a `transpose` if the order of the axes differs"),
        );
        return rejections;
    }
    let units: Vec<&str> = input.validity.axes.iter().map(|axis| axis.name).collect();
    let parts =
        |axis: &Axis| input.axis_len(axis.name).is_some_and(|len| len.is_multiple_of(axis.len));
    let known = [&AXES[..0], &AXES[..1], &AXES[..2]].contains(&units.as_slice());
    if !known || !input.validity.axes.iter().all(parts) {
        rejections.push(
            Rejection::new(
                codes::INPUT_AXIS,
                At::Input(0),
                "the validity of the input must be by time, or by time and frequency",
            )
            .help("use one flag, [spectrum] or [spectrum][channel], for equal parts of these axes"),
        );
    }
    let spectra = input.axes[0].len as u64;
    if !input.clock.samples_per_frame.is_multiple_of(spectra) {
        let samples = input.clock.samples_per_frame;
        let message =
            format!("a frame of {samples} samples is not a multiple of its {spectra} spectra");
        rejections.push(Rejection::new(codes::RATE, At::Input(0), message));
    }
    rejections
}
