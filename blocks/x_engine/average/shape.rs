//! Axes of input and output, and their validity.

use super::{Average, Values, is_known};
use crate::common::axes::{MEAN, reject_means};
use crate::common::visibilities::{label, pairs};
use fxgraph::diagnostic::codes;
use fxgraph::{At, Axis, Band, Clock, Dtype, PortType, Rejection, ValidityType};

/// Index of the spectra of a frame in lists of five axes; visibilities have one.
pub(super) const SPECTRUM: usize = 0;
/// Index of the axis before the channels.
pub(super) const ROW: usize = 1;
/// Index of the channels.
pub(super) const CHANNEL: usize = 2;
/// Index of the baselines.
pub(super) const BASELINE: usize = 3;
/// Index of the axis after the baselines.
pub(super) const PRODUCT: usize = 4;

/// Largest length of an average in ADC samples.
const MOST_SAMPLES: u64 = 1 << 60;

/// Axes of the payload of a frame: `[spectrum][row][channel][baseline][product]`. Visibilities have no spectra and no
/// rows; in spectra of powers the products are the rows.
#[derive(Clone, Debug)]
pub(super) struct Axes {
    /// Names, empty for an axis that the payload lacks.
    pub names: [&'static str; 5],
    /// Lengths, 1 for an axis that the payload lacks.
    pub lengths: [usize; 5],
}

impl Axes {
    /// Axes of `port`, if the block can read it.
    pub(super) fn of_port(port: &PortType) -> Option<Self> {
        let list: Vec<_> = port.axes.iter().map(|axis| (axis.name, axis.len)).collect();
        match *list.as_slice() {
            [("channel", channels), ("baseline", baselines), ("product", products)]
                if is_known(port.dtype) && port.dtype != Dtype::F32 =>
            {
                let names = ["", "", "channel", "baseline", "product"];
                Some(Self { names, lengths: [1, 1, channels, baselines, products] })
            }
            [("spectrum", spectra), ("product", products), ("channel", channels)]
                if port.dtype == Dtype::F32 =>
            {
                let names = ["spectrum", "product", "channel", "", ""];
                Some(Self { names, lengths: [spectra, products, channels, 1, 1] })
            }
            _ => None,
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }

    /// Diagnostic for means, and for validity axes that are not different axes of the payload.
    pub(super) fn reject_validity(&self, port: &PortType) -> Option<Rejection> {
        if let Some(rejection) = reject_means(0, port) {
            return Some(rejection);
        }
        let axes = &port.validity.axes;
        let is_fine = axes.iter().enumerate().all(|(n, axis)| {
            let is_repeated = axes[..n].iter().any(|other| other.name == axis.name);
            let position = self.position(axis.name).filter(|_| !is_repeated);
            position.is_some_and(|position| self.lengths[position] == axis.len)
        });
        (!is_fine).then(|| {
            let found: Vec<String> =
                axes.iter().map(|axis| format!("[{} {}]", axis.name, axis.len)).collect();
            let found = found.concat();
            let message = format!(
                "the axes of the input's validity must be those of its payload, got {found}"
            );
            Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
        })
    }

    /// Diagnostics for averages that do not fit the input.
    pub(super) fn reject_factors(&self, block: &Average, port: &PortType) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        let [spectra, _, channels, ..] = self.lengths;
        if !channels.is_multiple_of(block.channels) {
            let message = format!(
                "`channels` must divide the {channels} channels of the input, got {}",
                block.channels
            );
            rejections.push(
                Rejection::parameter("channels", message)
                    .note(At::InputAxis(0, "channel"), "channels are set here"),
            );
        }
        if !spectra.is_multiple_of(block.dumps) && !block.dumps.is_multiple_of(spectra) {
            let message = format!(
                "`dumps` must divide or be a multiple of the {spectra} spectra of a frame, got {}",
                block.dumps
            );
            rejections.push(Rejection::parameter("dumps", message));
        }
        let samples = port.clock.samples_per_frame;
        if !samples.is_multiple_of(spectra as u64) {
            let message = format!(
                "the {samples} ADC samples of a frame must be a multiple of its {spectra} spectra"
            );
            rejections.push(Rejection::new(
                codes::INPUT_AXIS,
                At::InputAxis(0, "spectrum"),
                message,
            ));
        }
        let of_average = (samples / spectra as u64).checked_mul(block.dumps as u64);
        if of_average.is_none_or(|samples| samples >= MOST_SAMPLES) || samples >= MOST_SAMPLES {
            let message = "an average must take fewer than 2^60 ADC samples";
            rejections.push(Rejection::parameter("dumps", message).help("use fewer dumps"));
        }
        let values = block.dumps.checked_mul(block.channels);
        let is_many = values.is_none_or(|values| u32::try_from(values).is_err());
        if is_many || count_of_average(block, port).is_none() {
            let message = format!(
                "the validity count of {} dumps of {} channels must be less than 2^32",
                block.dumps, block.channels
            );
            rejections
                .push(Rejection::parameter("dumps", message).help("use fewer dumps or channels"));
        }
        rejections
    }
}

/// Validity count of a complete average.
fn count_of_average(block: &Average, port: &PortType) -> Option<u32> {
    let by_channel = port.validity.axes.iter().any(|axis| axis.name == "channel");
    let channels = if by_channel { block.channels } else { 1 };
    let full = (port.validity.full as usize).checked_mul(block.dumps)?.checked_mul(channels)?;
    u32::try_from(full).ok()
}

/// Input, output and factors.
#[derive(Clone, Debug)]
pub struct Shape {
    pub(super) dtype: Dtype,
    /// Real numbers of a value: 2 for complex values.
    pub(super) parts: usize,
    /// Lengths of the input's axes.
    pub(super) input: [usize; 5],
    /// Strides of the input's validity counts along these axes, 0 for an axis that the counts lack.
    pub(super) input_units: [usize; 5],
    /// Lengths of the output's axes.
    pub(super) lengths: [usize; 5],
    /// Strides of the output's validity counts.
    pub(super) units: [usize; 5],
    /// Names and lengths of the output's validity axes.
    validity: Vec<(&'static str, usize)>,
    /// Validity count of a complete average.
    pub(super) full: u32,
    /// Input's index of each baseline of the output.
    pub(super) baselines: Vec<u32>,
    /// Dumps per average.
    pub(super) dumps: usize,
    /// Channels per average.
    pub(super) channels: usize,
    /// Channels that share a validity count, of those of an average.
    pub(super) channels_per_count: u32,
    /// ADC samples per dump of the input.
    pub(super) samples_per_dump: u64,
    pub(super) values: Values,
    /// Antennas of selected baselines as labels; empty without a selection.
    labels: Vec<String>,
}

/// Strides of counts with the axes `validity`, in the order of `names`; 0 for an axis that the counts lack.
fn strides(names: &[&str; 5], validity: &[(&'static str, usize)]) -> [usize; 5] {
    let mut strides = [0; 5];
    let mut stride = 1;
    for (name, len) in validity.iter().rev() {
        if let Some(position) = names.iter().position(|known| known == name) {
            strides[position] = stride;
        }
        stride *= len;
    }
    strides
}

impl Shape {
    /// The shape of checked parameters.
    pub(super) fn new(block: &Average, axes: &Axes, baselines: Vec<u32>, port: &PortType) -> Self {
        let &Axes { names, lengths: input } = axes;
        let mut lengths = input;
        lengths[SPECTRUM] = (input[SPECTRUM] / block.dumps).max(1);
        lengths[CHANNEL] = input[CHANNEL] / block.channels;
        lengths[BASELINE] = baselines.len();
        let of_input: Vec<_> =
            port.validity.axes.iter().map(|axis| (axis.name, axis.len)).collect();
        let has = |name: &str| of_input.iter().any(|(known, _)| *known == name);
        // Averages of one frame have counts of their own.
        let spectrum = axes.position("spectrum").filter(|_| !has("spectrum"));
        let counted: Vec<(&'static str, usize)> = spectrum
            .map(|_| "spectrum")
            .into_iter()
            .chain(of_input.iter().map(|(name, _)| *name))
            .map(|name| (name, axes.position(name).map_or(1, |position| lengths[position])))
            .collect();
        let is_mean = block.values == Values::Mean && names[BASELINE] == "baseline";
        let validity = counted.into_iter().chain(is_mean.then_some((MEAN, 1))).collect::<Vec<_>>();
        let spectra = input[SPECTRUM] as u64;
        let is_selection = block.smearing.is_some() || block.baselines.is_some();
        let labels = pairs(port).filter(|_| is_selection).map_or_else(Vec::new, |pairs| {
            let of_baselines = baselines.iter().map(|baseline| pairs[*baseline as usize]);
            of_baselines.map(|(one, two)| label(one, two)).collect()
        });
        Self {
            dtype: port.dtype,
            parts: if port.dtype == Dtype::F32 { 1 } else { 2 },
            input,
            input_units: strides(&names, &of_input),
            lengths,
            units: strides(&names, &validity),
            validity,
            full: count_of_average(block, port).unwrap_or(u32::MAX),
            labels,
            baselines,
            dumps: block.dumps,
            channels: block.channels,
            channels_per_count: if has("channel") { 1 } else { block.channels as u32 },
            samples_per_dump: port.clock.samples_per_frame / spectra,
            values: block.values,
        }
    }

    /// Real numbers of a spectrum of the output.
    pub(super) fn numbers(&self) -> usize {
        self.lengths[ROW..].iter().product::<usize>() * self.parts
    }

    /// Averages in time of an output frame.
    pub(super) fn spectra_out(&self) -> usize {
        self.lengths[SPECTRUM]
    }

    /// Dumps of an output frame.
    pub(super) fn dumps_out(&self) -> usize {
        self.dumps * self.spectra_out()
    }

    /// ADC samples of an output frame.
    pub(super) fn samples_out(&self) -> u64 {
        self.samples_per_dump * self.dumps_out() as u64
    }

    /// Validity counts of an input frame.
    pub(super) fn units_in(&self) -> usize {
        let axes = self.input.iter().zip(self.input_units).filter(|(_, stride)| *stride > 0);
        axes.map(|(len, _)| len).product()
    }

    /// Validity counts of an output frame.
    pub(super) fn units_out(&self) -> usize {
        self.validity.iter().map(|(_, len)| len).product()
    }

    /// Type of the output.
    pub(super) fn output(&self, input: &PortType) -> PortType {
        let axes = input.axes.iter().map(|axis| match axis.name {
            "channel" => Axis { len: self.lengths[CHANNEL], ..axis.clone() },
            "spectrum" => Axis { len: self.lengths[SPECTRUM], ..axis.clone() },
            "baseline" if !self.labels.is_empty() => {
                Axis::labelled("baseline", self.labels.iter().cloned())
            }
            _ => axis.clone(),
        });
        PortType {
            dtype: if self.dtype == Dtype::F32 { Dtype::F32 } else { Dtype::Cf32 },
            axes: axes.collect(),
            clock: Clock { samples_per_frame: self.samples_out(), ..input.clock },
            band: input.band.map(|band| averaged(band, self.input[CHANNEL], self.channels)),
            validity: ValidityType {
                axes: self.validity.iter().map(|(name, len)| Axis::new(name, *len)).collect(),
                full: self.full,
            },
        }
    }
}

/// Antennas `a1 <= a2` of `baseline`, which is `a2 (a2 + 1) / 2 + a1`.
pub(super) fn antennas_of(baseline: usize) -> (usize, usize) {
    let a2 = ((8 * baseline + 1).isqrt() - 1) / 2;
    (baseline - a2 * (a2 + 1) / 2, a2)
}

/// Band of averages over `factor` channels of `band`, of which the axis has `channels`.
fn averaged(band: Band, channels: usize, factor: usize) -> Band {
    let is_whole =
        band.channels.is_multiple_of(factor) && band.first_channel.is_multiple_of(factor);
    // Averages that are not at multiples of their width in the whole band are described without it.
    let (all, first) = if is_whole { (band.channels, band.first_channel) } else { (channels, 0) };
    let width_hz = band.step_hz();
    let averages = all / factor;
    // Mean frequency of the channels of average number `averages / 2` of the whole band.
    let middle = (averages / 2 * factor) as f64 + (factor - 1) as f64 / 2.0;
    let from_first = middle - first as f64;
    Band {
        channels: averages,
        first_channel: first / factor,
        centre_hz: band.channel_hz(0) + from_first * width_hz,
        bandwidth_hz: all as f64 * width_hz.abs(),
        ..band
    }
}
