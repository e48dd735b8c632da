//! Powers of the voltages of several antennas or beams: sizes, validity, and the implementation on the CPU.

use super::{Antennas, Detect, Products, spectra_missing};
use crate::common::stacked::Stacked;
use crate::common::units::Units;
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, Axis, BlockError, Checked, Counter, Dtype, Env, Frame, FrameMut, Map, PortType, Rejection,
    Sideband, ValidityType,
};

/// Supported types of the voltages.
const DTYPES: &[Dtype] = &[Dtype::Ci8, Dtype::Ci4];

/// Sizes of input and output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack {
    /// Sizes of the input. Its antennas are beams, or pairs of them, for the voltages of beams.
    pub(super) input: Stacked,
    /// Whether the input has beams, one for each polarisation of an antenna of `input`.
    pub(super) of_beams: bool,
    pub(super) products: Products,
    /// Antennas in a sum: 1 or all.
    pub(super) of_sum: usize,
    /// Sums in time of a frame.
    pub(super) sums: usize,
    /// Spectra per sum.
    pub(super) spectra: usize,
    /// Sideband of the voltages, which sets the sign of Stokes V.
    pub(super) sideband: Sideband,
}

impl Stack {
    /// Returns the sizes and the type of the output for the voltages of antennas.
    pub(super) fn of_antennas(detect: &Detect, port: &PortType) -> Checked<Self> {
        let input = Stacked::of_port(port, DTYPES)?;
        let of_sum = if detect.antennas == Antennas::Sum { input.antennas } else { 1 };
        // With the numbers of the antennas.
        let outer = (detect.antennas == Antennas::Separate).then(|| port.axes[1].clone());
        Self::checked(detect, port, (input, false), of_sum, outer)
    }

    /// Returns the sizes and the type of the output for the voltages of beams, `ci8`
    /// `[heap][beam][channel][spectrum]`.
    pub(super) fn of_beams(detect: &Detect, port: &PortType) -> Checked<Self> {
        let names: Vec<&str> = port.axes.iter().map(|axis| axis.name).collect();
        let counted: Vec<&str> = port.validity.axes.iter().map(|axis| axis.name).collect();
        let units = match counted.as_slice() {
            ["heap"] => Some(Units::Heap),
            ["heap", "beam", "channel"] => Some(Units::Channel),
            _ => None,
        };
        let known = names == ["heap", "beam", "channel", "spectrum"] && port.dtype == Dtype::Ci8;
        let Some(units) = units.filter(|_| known && port.axes.iter().all(|axis| axis.len > 0))
        else {
            let message = format!("`detect` cannot read `{port}`");
            let help = "connect the output of `beamformer`, ci8 [heap][beam][channel][spectrum]";
            return Err(vec![Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help)]);
        };
        let [heaps, beams, channels, spectra] = [0, 1, 2, 3].map(|n| port.axes[n].len);
        let pols = if detect.products == Products::Power { 1 } else { 2 };
        if !beams.is_multiple_of(pols) {
            let message = format!(
                "`products: intensity` and `stokes` need pairs of beams, polarisations 0 and 1 of one direction, \
                 got {beams} beams"
            );
            let rejection = Rejection::parameter("products", message);
            return Err(vec![
                rejection.help("set `products: power`, or form two beams in each direction"),
            ]);
        }
        let input = Stacked {
            heaps,
            antennas: beams / pols,
            channels,
            pols,
            spectra,
            samples_per_spectrum: port.clock.samples_per_frame / (heaps * spectra) as u64,
            k_major: true,
            dtype: port.dtype,
            units,
        };
        let outer = Some(Axis::new("beam", input.antennas));
        Self::checked(detect, port, (input, true), 1, outer)
    }

    /// Checks the sums. `outer` is the axis of antennas or beams of the output.
    fn checked(
        detect: &Detect,
        port: &PortType,
        (input, of_beams): (Stacked, bool),
        of_sum: usize,
        outer: Option<Axis>,
    ) -> Checked<Self> {
        if input.pols == 1 && detect.products != Products::Power {
            let message = "`products` must be `power`, because the input has one polarisation";
            return Err(vec![Rejection::parameter("products", message)]);
        }
        let all = input.heaps * input.spectra;
        if !all.is_multiple_of(detect.spectra) {
            let message = format!(
                "`spectra` must divide the {all} spectra of a frame, got {}",
                detect.spectra
            );
            return Err(vec![Rejection::parameter("spectra", message)]);
        }
        // A complete heap of beams counts its antennas.
        let of_heap = if of_beams { port.validity.full as usize } else { of_sum };
        let full = detect.spectra.checked_mul(of_heap).and_then(|full| u32::try_from(full).ok());
        let Some(full) = full else {
            let message = "a sum must have fewer than 2^32 spectra of all antennas";
            return Err(vec![Rejection::parameter("spectra", message)]);
        };
        let stack = Self {
            input,
            of_beams,
            products: detect.products,
            of_sum,
            sums: all / detect.spectra,
            spectra: detect.spectra,
            sideband: port.sideband(),
        };
        let spectrum = Axis::new("spectrum", stack.sums);
        let channel = port.axes.iter().find(|axis| axis.name == "channel").cloned();
        let product =
            Axis::labelled("product", detect.products.labels(stack.pols()).iter().copied());
        let axes = outer.iter().cloned().chain([spectrum.clone(), product]);
        let units = match (input.units, of_beams) {
            // All beams have the same antennas.
            (Units::Heap, true) => vec![spectrum],
            (Units::Heap, false) => outer.iter().cloned().chain([spectrum]).collect(),
            (Units::Channel, _) => {
                outer.iter().cloned().chain([spectrum]).chain(channel.clone()).collect()
            }
        };
        let output = PortType {
            dtype: Dtype::F32,
            axes: axes.chain(channel).collect(),
            validity: ValidityType { axes: units, full },
            ..port.clone()
        };
        Ok((stack, vec![output]))
    }

    /// Polarisations that belong together.
    pub(super) fn pols(&self) -> usize {
        self.input.pols
    }

    /// Products of a value.
    pub(super) fn rows(&self) -> usize {
        self.products.labels(self.pols()).len()
    }

    /// Number of units of the input's validity.
    pub(super) fn units(&self) -> usize {
        let Stacked { heaps, antennas, channels, .. } = self.input;
        match (self.input.units, self.of_beams) {
            (Units::Heap, true) => heaps,
            (Units::Heap, false) => heaps * antennas,
            (Units::Channel, _) => heaps * antennas * channels * self.pols(),
        }
    }

    /// Count of a heap of an antenna or beam in a channel: the smaller one of the polarisations. Antennas have flags.
    fn count(&self, validity: &[u32], heap: usize, antenna: usize, channel: usize) -> u32 {
        let Stacked { antennas, channels, .. } = self.input;
        let (unit, pols) = (heap * antennas + antenna, self.pols());
        match (self.input.units, self.of_beams) {
            (Units::Heap, true) => validity[heap],
            (Units::Heap, false) => validity[unit].min(1),
            (Units::Channel, false) => {
                let of = |pol: usize| validity[(unit * channels + channel) * pols + pol];
                of(0).min(of(pols - 1)).min(1)
            }
            (Units::Channel, true) => {
                let of = |pol: usize| validity[(unit * pols + pol) * channels + channel];
                of(0).min(of(pols - 1))
            }
        }
    }

    /// Value of a spectrum of a heap in a polarisation.
    fn value(
        &self,
        payload: &[u8],
        (heap, antenna, channel): (usize, usize, usize),
        spectrum: usize,
        pol: usize,
    ) -> [i32; 2] {
        let Stacked { antennas, channels, spectra, .. } = self.input;
        if !self.of_beams {
            let row = self.input.row(payload, heap, antenna, channel);
            return self.input.value(row, spectrum, pol).map(i32::from);
        }
        let beam = (heap * antennas + antenna) * self.pols() + pol;
        let index = 2 * ((beam * channels + channel) * spectra + spectrum);
        [payload[index], payload[index + 1]].map(|part| i32::from(part.cast_signed()))
    }

    /// Heaps with the spectra of sum `sum`, each with the number of these spectra.
    fn heaps_of(&self, sum: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
        let (begin, end) = (sum * self.spectra, (sum + 1) * self.spectra);
        let of_heap = self.input.spectra;
        (begin / of_heap..end.div_ceil(of_heap)).map(move |heap| {
            let first = heap * of_heap;
            (heap, begin.max(first) - first..end.min(first + of_heap) - first)
        })
    }

    /// Antennas of sum number `unit` of the output `[antenna][spectrum]`, and its number in time.
    fn of_unit(&self, unit: usize) -> (std::ops::Range<usize>, usize) {
        let group = unit / self.sums;
        (group * self.of_sum..(group + 1) * self.of_sum, unit % self.sums)
    }

    /// Writes the number of spectra of all antennas in each sum to `output`, given the validity of the input. Returns the
    /// number of spectra that are in no sum, of all channels if these have flags.
    pub(super) fn validity(&self, input: &[u32], output: &mut [u32]) -> u64 {
        let mut missing = 0;
        // Sums of channels follow each other, and so do those of beams with one count.
        let channels = if self.input.units == Units::Channel { self.input.channels } else { 1 };
        for (n, count) in output.iter_mut().enumerate() {
            let (unit, channel) = (n / channels, n % channels);
            let (antennas, sum) = self.of_unit(unit);
            *count = 0;
            for (heap, spectra) in self.heaps_of(sum) {
                for antenna in antennas.clone() {
                    let antennas = self.count(input, heap, antenna, channel);
                    missing += if antennas == 0 { spectra.len() as u64 } else { 0 };
                    *count += antennas * spectra.len() as u32;
                }
            }
        }
        missing
    }
}

/// The running block.
pub(super) struct Cpu {
    stack: Stack,
    spectra_missing: Counter,
}

impl Cpu {
    pub(super) fn new(stack: Stack, env: &Env) -> Self {
        Self { stack, spectra_missing: spectra_missing(env) }
    }
}

impl Map for Cpu {
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
        let Stack { input: stacked, products, sideband, .. } = self.stack;
        let (_, powers) = output.parts_mut::<f32>()?;
        let payload = input.as_slice::<u8>()?;
        let validity = &input.header().validity;
        let (rows, channels, pols) = (self.stack.rows(), stacked.channels, self.stack.pols());
        for (unit, powers) in powers.chunks_exact_mut(rows * channels).enumerate() {
            let (antennas, sum) = self.stack.of_unit(unit);
            for channel in 0..channels {
                let mut sums = [0_i64; 4];
                for (heap, spectra) in self.stack.heaps_of(sum) {
                    for antenna in antennas.clone() {
                        if self.stack.count(validity, heap, antenna, channel) == 0 {
                            continue;
                        }
                        let place = (heap, antenna, channel);
                        for spectrum in spectra.clone() {
                            let value = |pol| self.stack.value(payload, place, spectrum, pol);
                            let second = if pols == 2 { value(1) } else { [0; 2] };
                            add(products, value(0), second, &mut sums);
                        }
                    }
                }
                if sideband.is_inverted() {
                    // Conjugation of both polarisations changes the sign of V only.
                    sums[3] = -sums[3];
                }
                for (product, sum) in sums.iter().take(rows).enumerate() {
                    powers[product * channels + channel] = *sum as f32;
                }
            }
        }
        Ok(())
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.spectra_missing.add(self.stack.validity(input, output));
    }
}

/// Adds the products of one spectrum, `x` of polarisation 0 and `y` of polarisation 1.
fn add(products: Products, x: [i32; 2], y: [i32; 2], sums: &mut [i64; 4]) {
    let power = |[re, im]: [i32; 2]| i64::from(re * re + im * im);
    let (xx, yy) = (power(x), power(y));
    match products {
        Products::Power => {
            sums[0] += xx;
            sums[1] += yy;
        }
        Products::Intensity => sums[0] += xx + yy,
        Products::Stokes => {
            sums[0] += xx + yy;
            sums[1] += xx - yy;
            sums[2] += i64::from(2 * (x[0] * y[0] + x[1] * y[1]));
            sums[3] += i64::from(2 * (x[1] * y[0] - x[0] * y[1]));
        }
    }
}
