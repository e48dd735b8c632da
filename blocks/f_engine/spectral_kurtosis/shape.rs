//! Sizes and layout of the heaps.

use crate::common::units::Units;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, PortType, Rejection, ValidityType};
use fxgraph_dsp::kurtosis::{SPECTRA, Sums};

/// Sizes and layout of the input.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Heaps per frame.
    pub heaps: usize,
    /// Antennas per heap; 1 without an antenna axis.
    pub antennas: usize,
    /// Channels per heap.
    pub channels: usize,
    /// Spectra per heap.
    pub spectra: usize,
    /// Polarisations, 1 or 2.
    pub pols: usize,
    /// Whether the spectra of a polarisation are adjacent.
    pub k_major: bool,
    /// Whether values have 4 bits.
    pub is_4_bit: bool,
    /// ADC samples of a frame.
    pub samples_per_frame: u64,
    /// Units of the validity of the input.
    pub units: Units,
}

impl Shape {
    /// Reads the sizes from a port.
    pub(super) fn of_port(port: &PortType) -> Result<Self, Vec<Rejection>> {
        let mut rejections = Vec::new();
        if !matches!(port.dtype, Dtype::Ci8 | Dtype::Ci4) {
            let message = format!("the input must carry `ci8` or `ci4`, got `{}`", port.dtype);
            let help = "insert this block before `convert`, after the F-engine";
            rejections.push(Rejection::new(codes::INPUT_DTYPE, At::Input(0), message).help(help));
        }
        let names: Vec<&str> = port.axes.iter().map(|axis| axis.name).collect();
        let rest: &[&str] = match &names[..] {
            ["heap", "antenna", rest @ ..] | ["heap", rest @ ..] => rest,
            _ => &[],
        };
        if rest != ["channel", "spectrum", "pol"] && rest != ["channel", "pol", "spectrum"] {
            let message = format!("the input must be F-engine heaps, got [{}]", names.join("]["));
            let help = "connect a `postproc`, `f_engine` or `antenna_stack`: [heap][channel][spectrum][pol] or \
                        [heap][channel][pol][spectrum], with or without [antenna] after [heap]";
            rejections.push(Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help));
            return Err(rejections);
        }
        let len = |name| port.axis_len(name).unwrap_or(0);
        let (spectra, pols) = (len("spectrum"), len("pol"));
        if !SPECTRA.contains(&spectra) {
            let message = format!(
                "a heap must have {} to {} spectra, got {spectra}",
                SPECTRA.start(),
                SPECTRA.end()
            );
            let help = "set `spectra_per_heap` of the F-engine, for example to 256";
            rejections.push(
                Rejection::new(codes::INPUT_AXIS, At::InputAxis(0, "spectrum"), message).help(help),
            );
        }
        if !(1..=2).contains(&pols) {
            let message = format!("the input must have 1 or 2 polarisations, got {pols}");
            rejections.push(Rejection::new(codes::INPUT_AXIS, At::InputAxis(0, "pol"), message));
        }
        let mut heap = vec![("heap", len("heap"))];
        heap.extend(port.axis_len("antenna").map(|antennas| ("antenna", antennas)));
        let units =
            Units::of_port(0, port, &heap).map_err(|rejection| rejections.push(*rejection)).ok();
        let heaps = len("heap") as u64;
        if heaps == 0 || !port.clock.samples_per_frame.is_multiple_of(heaps) {
            let message = format!(
                "the length of a frame, {} samples, must be a multiple of its {heaps} heaps",
                port.clock.samples_per_frame
            );
            rejections.push(Rejection::new(codes::RATE, At::Input(0), message));
        }
        let Some(units) = units.filter(|_| rejections.is_empty()) else { return Err(rejections) };
        Ok(Self {
            heaps: len("heap"),
            antennas: port.axis_len("antenna").unwrap_or(1),
            channels: len("channel"),
            spectra,
            pols,
            k_major: names.last() == Some(&"spectrum"),
            is_4_bit: port.dtype == Dtype::Ci4,
            samples_per_frame: port.clock.samples_per_frame,
            units,
        })
    }

    /// Returns the type of the output for an `input` of this shape.
    pub(super) fn output(&self, input: &PortType) -> PortType {
        let heap =
            input.validity.axes.iter().filter(|axis| ["heap", "antenna"].contains(&axis.name));
        let axes = Units::Channel.axes(input, heap.cloned().collect());
        PortType { validity: ValidityType { axes, ..input.validity.clone() }, ..input.clone() }
    }

    /// Returns the number of units of the output: channels and polarisations of all heaps of a frame.
    pub(super) const fn units(&self) -> usize {
        self.rows() * self.pols
    }

    /// Returns the number of rows: channels of all heaps and antennas of a frame.
    pub(super) const fn rows(&self) -> usize {
        self.heaps * self.antennas * self.channels
    }

    /// Returns the bytes of a row; all spectra and polarisations are contiguous.
    pub(super) const fn row_bytes(&self) -> usize {
        self.pols * self.spectra * if self.is_4_bit { 1 } else { 2 }
    }

    /// Returns the timestamp of heap `heap` of a frame that starts at `timestamp`.
    pub(super) const fn heap_timestamp(&self, timestamp: u64, heap: usize) -> u64 {
        timestamp.saturating_add(heap as u64 * (self.samples_per_frame / self.heaps as u64))
    }

    /// Returns the sums of a row for each polarisation; the second ones are 0 if there is one polarisation.
    pub(super) fn sums(&self, row: &[u8]) -> [Sums; 2] {
        let of_pol = |values: &[u8]| {
            if self.is_4_bit {
                Sums::of_nibbles(values)
            } else {
                Sums::of_bytes(bytemuck::cast_slice(values))
            }
        };
        match (self.pols, self.k_major, self.is_4_bit) {
            (1, _, _) => [of_pol(row), Sums::default()],
            (_, true, _) => {
                let (x, y) = row.split_at(row.len() / 2);
                [of_pol(x), of_pol(y)]
            }
            (_, false, false) => Sums::of_byte_pairs(bytemuck::cast_slice(row)),
            (_, false, true) => Sums::of_nibble_pairs(row.as_chunks().0),
        }
    }

    /// Sets the samples of polarisation `pol` of a row to 0.
    pub(super) fn clear(&self, row: &mut [u8], pol: usize) {
        let part = row.len() / self.pols;
        if self.pols == 1 || self.k_major {
            row[pol * part..][..part].fill(0);
        } else {
            let value = if self.is_4_bit { 1 } else { 2 };
            row.chunks_exact_mut(value).skip(pol).step_by(2).for_each(|value| value.fill(0));
        }
    }

    /// Writes the validity of the output `[row][pol]` from that of the input: the same units, or each unit of the input
    /// for all of its channels and polarisations.
    pub(super) fn expand(&self, input: &[u32], output: &mut [u32]) {
        let of_unit = output.len() / input.len().max(1);
        for (output, input) in output.chunks_exact_mut(of_unit.max(1)).zip(input) {
            output.fill(*input);
        }
    }
}
