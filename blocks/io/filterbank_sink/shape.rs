//! Places of the values of a spectrum in a frame, and the header that follows from the port.

use super::MOST_BEAMS;
use crate::io::validity_counts::{Place, places};
use bytemuck::AnyBitPattern;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Axis, Clock, Dtype, Frame, NotOnHost, PortType, Rejection};
use fxgraph_formats::filterbank::Header;
use half::f16;

/// Offsets of the indices of one axis, in elements of the payload and in validity counts.
#[derive(Clone, Debug)]
pub struct Offsets(Vec<(usize, usize)>);

impl Offsets {
    fn new(place: Place, len: usize) -> Self {
        Self((0..len).map(|n| (n * place.stride, place.count(n))).collect())
    }

    /// Number of indices.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the offsets with different counts.
    fn distinct(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut before = None;
        self.iter().filter(move |(_, count)| before.replace(*count) != Some(*count))
    }

    /// Iterates over the offsets of elements and counts.
    pub fn iter(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.0.iter().copied()
    }
}

/// Layout of the input, and of a file.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Spectra of a frame.
    pub spectra: Offsets,
    /// Beams or antennas, each with a file of its own.
    pub beams: Offsets,
    /// Products of polarisations: IFs of the file.
    pub products: Offsets,
    /// Channels.
    pub channels: Offsets,
    /// Axis of these beams or antennas, if the input has one.
    pub file_axis: Option<Axis>,
    /// Number of values in a complete sum; 1 if the values are no sums.
    pub full: u32,
    /// Header without the time of the first spectrum.
    pub header: Header,
    /// ADC samples from one spectrum to the next.
    pub step: u64,
    /// Clock of the input.
    pub clock: Clock,
    dtype: Dtype,
    /// Offsets of all counts of a spectrum, each once.
    distinct: Vec<usize>,
}

/// Element types of the values.
const DTYPES: [Dtype; 8] =
    [Dtype::F32, Dtype::F64, Dtype::F16, Dtype::U8, Dtype::I8, Dtype::I16, Dtype::I32, Dtype::I64];
/// Axes along which each element has a file of its own.
pub(super) const FILE_AXES: [&str; 2] = ["beam", "antenna"];
const HELP: &str = "connect the output of `detect`, f32 [spectrum][product][channel], or intensities of beams, \
                    f32 [spectrum][channel][beam]";

/// Placeholder of the number of an element of a file axis in a path.
pub(super) fn placeholder(axis: &str) -> String {
    format!("{{{axis}}}")
}

fn reject_axes(message: impl Into<String>) -> Vec<Rejection> {
    vec![Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(HELP)]
}

impl Shape {
    /// Layout of `input`; `header` has everything that does not follow from the input.
    pub fn new(input: &PortType, header: Header) -> Result<Self, Vec<Rejection>> {
        if !DTYPES.contains(&input.dtype) {
            let message = format!("`filterbank_sink` writes real numbers, got `{input}`");
            return Err(vec![Rejection::new(codes::INPUT_DTYPE, At::Input(0), message).help(HELP)]);
        }
        let is_known = |name: &str| {
            ["spectrum", "channel", "product", "pol", "beam", "antenna"].contains(&name)
        };
        let len = |name| input.axis_len(name);
        let is_double = [["product", "pol"], FILE_AXES]
            .iter()
            .any(|names| names.iter().all(|name| len(name).is_some()));
        if len("channel").is_none() || is_double || !input.axes.iter().all(|a| is_known(a.name)) {
            return Err(reject_axes(format!(
                "`filterbank_sink` cannot read the axes of `{input}`"
            )));
        }
        let places = places(input, "spectrum").map_err(|why| {
            reject_axes(format!("`filterbank_sink` cannot read the validity of the input: {why}"))
        })?;
        let offsets = |names: &[&str]| {
            let axis = input.axes.iter().position(|axis| names.contains(&axis.name));
            axis.map_or_else(
                || Offsets::new(Place::NONE, 1),
                |n| Offsets::new(places[n], input.axes[n].len),
            )
        };
        let (spectra, beams) = (offsets(&["spectrum"]), offsets(&FILE_AXES));
        let (products, channels) = (offsets(&["product", "pol"]), offsets(&["channel"]));
        if beams.len() > MOST_BEAMS {
            let message = format!(
                "the input must have at most {MOST_BEAMS} beams or antennas, got {}",
                beams.len()
            );
            return Err(reject_axes(message));
        }
        let clock = &input.clock;
        let samples = clock.samples_per_frame;
        if !samples.is_multiple_of(spectra.len() as u64) {
            let message = format!(
                "the {samples} ADC samples of a frame must be a multiple of its {} spectra",
                spectra.len()
            );
            return Err(vec![Rejection::new(codes::RATE, At::Input(0), message)]);
        }
        let step = samples / spectra.len() as u64;
        let Some(band) = input.band else {
            let message = "the channels of the input have no known frequencies";
            let help =
                "set the centre frequency in the block upstream, such as `centre_hz` of `pfb`";
            return Err(vec![Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help)]);
        };
        let distinct = [&beams, &products, &channels].into_iter().fold(vec![0], |known, axis| {
            let add = |(_, count)| known.iter().map(move |before| before + count);
            let mut all: Vec<usize> = axis.distinct().flat_map(add).collect();
            all.sort_unstable();
            all.dedup();
            all
        });
        let whole = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let file_axis = input.axes.iter().find(|axis| FILE_AXES.contains(&axis.name)).cloned();
        let has_beams = len("beam").is_some();
        let header = Header {
            nchans: whole(channels.len()),
            nifs: whole(products.len()),
            nbeams: if has_beams { beams.len() as i32 } else { 0 },
            fch1_mhz: band.channel_hz(0) / 1e6,
            foff_mhz: band.step_hz() / 1e6,
            tsamp_seconds: step as f64 / clock.adc_sample_rate_hz,
            ..header
        };
        // Widths that are not supported are reported for the parameter.
        let checked = Header { nbits: 32, ..header.clone() };
        checked.check().map_err(|why| {
            reject_axes(format!("`filterbank_sink` cannot write `{input}`: {why}"))
        })?;
        Ok(Self {
            spectra,
            beams,
            products,
            channels,
            file_axis,
            full: input.validity.full,
            header,
            step,
            clock: *clock,
            dtype: input.dtype,
            distinct,
        })
    }

    /// Number of beam `beam`, or number of the antenna; `None` without such an axis.
    pub fn number(&self, beam: usize) -> Option<String> {
        let axis = self.file_axis.as_ref()?;
        Some(axis.labels.get(beam).cloned().unwrap_or_else(|| beam.to_string()))
    }

    /// `path` with the number of the beam or antenna in its place.
    pub fn path(&self, path: &str, beam: usize) -> String {
        match (&self.file_axis, self.number(beam)) {
            (Some(axis), Some(number)) => path.replace(&placeholder(axis.name), &number),
            _ => path.to_owned(),
        }
    }

    /// Number of values of a spectrum of one beam.
    pub fn values(&self) -> usize {
        self.products.len() * self.channels.len()
    }

    /// Memory of the block: offsets, a spectrum, a frame of a file, and the values for missing data.
    pub fn scratch_bytes(&self) -> usize {
        let of_spectrum = self.values();
        let offsets = self.spectra.len() + self.channels.len() + self.beams.len();
        16 * offsets + 4 * of_spectrum * (2 + self.spectra.len() + 5 * self.beams.len())
    }

    /// Copies the values of a spectrum of one beam to `row`.
    pub fn read(
        &self,
        frame: &Frame,
        spectrum: usize,
        beam: usize,
        row: &mut [f32],
    ) -> Result<(), NotOnHost> {
        let base = self.spectra.0[spectrum].0 + self.beams.0[beam].0;
        match self.dtype {
            Dtype::F64 => self.copy(frame, base, row, |value: f64| value as f32),
            Dtype::F16 => self.copy(frame, base, row, f16::to_f32),
            Dtype::U8 => self.copy(frame, base, row, |value: u8| f32::from(value)),
            Dtype::I8 => self.copy(frame, base, row, |value: i8| f32::from(value)),
            Dtype::I16 => self.copy(frame, base, row, |value: i16| f32::from(value)),
            Dtype::I32 => self.copy(frame, base, row, |value: i32| value as f32),
            Dtype::I64 => self.copy(frame, base, row, |value: i64| value as f32),
            _ => self.copy(frame, base, row, |value: f32| value),
        }
    }

    fn copy<T: AnyBitPattern>(
        &self,
        frame: &Frame,
        base: usize,
        row: &mut [f32],
        convert: impl Fn(T) -> f32,
    ) -> Result<(), NotOnHost> {
        let payload = frame.as_slice::<T>()?;
        for (row, (product, _)) in row.chunks_mut(self.channels.len()).zip(self.products.iter()) {
            let from = &payload[base + product..];
            row.iter_mut()
                .zip(self.channels.iter())
                .for_each(|(to, (n, _))| *to = convert(from[n]));
        }
        Ok(())
    }

    /// Returns the counts of a spectrum of one beam, `[product][channel]`.
    pub fn counts<'a>(
        &'a self,
        validity: &'a [u32],
        spectrum: usize,
        beam: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        let base = self.spectra.0[spectrum].1 + self.beams.0[beam].1;
        let of_product = move |(_, product): (usize, usize)| {
            self.channels.iter().map(move |(_, channel)| validity[base + product + channel])
        };
        self.products.iter().flat_map(of_product)
    }

    /// Returns the least count of a value of a spectrum.
    pub fn least_count(&self, validity: &[u32], spectrum: usize) -> u32 {
        let base = self.spectra.0[spectrum].1;
        let counts = self.distinct.iter().map(|count| validity[base + count]);
        counts.min().unwrap_or(self.full)
    }

    /// Returns whether a spectrum has valid values, and whether all of its values are valid.
    pub fn presence(&self, validity: &[u32], spectrum: usize) -> (bool, bool) {
        let base = self.spectra.0[spectrum].1;
        let is_valid = |count: &usize| validity[base + count] > 0;
        (self.distinct.iter().any(is_valid), self.distinct.iter().all(is_valid))
    }
}
