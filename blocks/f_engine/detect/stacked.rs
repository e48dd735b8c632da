//! Powers of the voltages of several antennas: sizes, validity, and the implementation on the CPU.

use super::{Antennas, Detect, Products, spectra_missing};
use crate::common::stacked::Stacked;
use fxgraph::{
    Axis, BlockError, Checked, Counter, Dtype, Env, Frame, FrameMut, Map, PortType, Refusal,
    ValidityType,
};

/// Supported types of the voltages.
const DTYPES: &[Dtype] = &[Dtype::Ci8, Dtype::Ci4];

/// Sizes of input and output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stack {
    pub(super) input: Stacked,
    pub(super) products: Products,
    /// Antennas in a sum: 1 or all.
    pub(super) of_sum: usize,
    /// Sums in time of a frame.
    pub(super) sums: usize,
    /// Spectra per sum.
    pub(super) spectra: usize,
}

impl Stack {
    /// Returns the sizes and the type of the output.
    pub(super) fn of_port(detect: &Detect, port: &PortType) -> Checked<Self> {
        let input = Stacked::of_port(port, DTYPES)?;
        let all = input.heaps * input.spectra;
        let mut refusals = Vec::new();
        if !all.is_multiple_of(detect.spectra) {
            let message = format!(
                "`spectra` must divide the {all} spectra of a frame, got {}",
                detect.spectra
            );
            refusals.push(Refusal::parameter("spectra", message));
        }
        let of_sum = if detect.antennas == Antennas::Sum { input.antennas } else { 1 };
        let full = detect.spectra.checked_mul(of_sum).and_then(|full| u32::try_from(full).ok());
        let Some(full) = full.filter(|_| refusals.is_empty()) else {
            if refusals.is_empty() {
                let message = "a sum must have fewer than 2^32 spectra of all antennas";
                refusals.push(Refusal::parameter("spectra", message));
            }
            return Err(refusals);
        };
        let stack = Self {
            input,
            products: detect.products,
            of_sum,
            sums: all / detect.spectra,
            spectra: detect.spectra,
        };
        let mut units = vec![Axis::new("spectrum", stack.sums)];
        if detect.antennas == Antennas::Separate {
            units.insert(0, Axis::new("antenna", input.antennas));
        }
        let mut axes = units.clone();
        axes.push(Axis::labelled("product", detect.products.labels(2).iter().copied()));
        axes.extend(port.axes.iter().find(|axis| axis.name == "channel").cloned());
        let output = PortType {
            dtype: Dtype::F32,
            axes,
            validity: ValidityType { axes: units, full },
            ..port.clone()
        };
        Ok((stack, vec![output]))
    }

    /// Products of a value.
    pub(super) fn rows(&self) -> usize {
        self.products.labels(2).len()
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

    /// Writes the number of spectra of all antennas in each sum to `output`, given the validity `[heap][antenna]` of the
    /// input. Returns the number of spectra that are in no sum.
    pub(super) fn validity(&self, input: &[u32], output: &mut [u32]) -> u64 {
        let mut missing = 0;
        for (unit, count) in output.iter_mut().enumerate() {
            let (antennas, sum) = self.of_unit(unit);
            *count = 0;
            for (heap, spectra) in self.heaps_of(sum) {
                for antenna in antennas.clone() {
                    if input[heap * self.input.antennas + antenna] == 0 {
                        missing += spectra.len() as u64;
                    } else {
                        *count += spectra.len() as u32;
                    }
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
        let Stack { input: stacked, products, .. } = self.stack;
        let (_, powers) = output.parts_mut::<f32>()?;
        let payload = input.as_slice::<u8>()?;
        let validity = &input.header().validity;
        let (rows, channels) = (self.stack.rows(), stacked.channels);
        for (unit, powers) in powers.chunks_exact_mut(rows * channels).enumerate() {
            let (antennas, sum) = self.stack.of_unit(unit);
            for channel in 0..channels {
                let mut sums = [0_i64; 4];
                for (heap, spectra) in self.stack.heaps_of(sum) {
                    for antenna in antennas.clone() {
                        if validity[heap * stacked.antennas + antenna] == 0 {
                            continue;
                        }
                        let row = stacked.row(payload, heap, antenna, channel);
                        for spectrum in spectra.clone() {
                            let value = |pol| stacked.value(row, spectrum, pol).map(i32::from);
                            add(products, value(0), value(1), &mut sums);
                        }
                    }
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
