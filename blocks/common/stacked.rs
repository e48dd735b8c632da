//! Stream of stacked antennas, the input of correlator and beamformer:
//! `ci8`, `ci4` or `cf16` `[heap][antenna][channel][spectrum][pol]`, or K-major
//! `[heap][antenna][channel][pol][spectrum]`, with 1 or 2 polarisations.

use crate::units::Units;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, PortType, Rejection};
use half::f16;

/// Sizes and layout of such a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stacked {
    /// Heaps (batches) per frame.
    pub heaps: usize,
    /// Number of antennas.
    pub antennas: usize,
    /// Channels in the frame.
    pub channels: usize,
    /// Polarisations: 1 or 2.
    pub pols: usize,
    /// Spectra per heap.
    pub spectra: usize,
    /// ADC samples from one spectrum to the next.
    pub samples_per_spectrum: u64,
    /// Whether polarisation is slower than spectrum, and always with one polarisation, which is in memory as the K-major
    /// layout.
    pub k_major: bool,
    /// Element type: `ci4`, `ci8` or `cf16`.
    pub dtype: Dtype,
    /// Units of validity: `[heap][antenna]`, or also `[channel][pol]`.
    pub units: Units,
}

const STANDARD: [&str; 5] = ["heap", "antenna", "channel", "spectrum", "pol"];
const K_MAJOR: [&str; 5] = ["heap", "antenna", "channel", "pol", "spectrum"];

impl Stacked {
    /// Reads the sizes from a port; returns diagnostics if the port does not carry such a stream with one of
    /// `dtypes`.
    pub fn of_port(port: &PortType, dtypes: &[Dtype]) -> Result<Self, Vec<Rejection>> {
        let mut rejections = Vec::new();
        if !dtypes.contains(&port.dtype) {
            let names: Vec<_> = dtypes.iter().map(|dtype| format!("`{dtype}`")).collect();
            let names = names.join(" or ");
            let message = format!("the input must carry {names}, got `{}`", port.dtype);
            rejections.push(
                Rejection::new(codes::INPUT_DTYPE, At::Input(0), message)
                    .help("insert `postproc` and `antenna_stack` before this block"),
            );
        }
        let names: Vec<&str> = port.axes.iter().map(|axis| axis.name).collect();
        if names != STANDARD && names != K_MAJOR {
            let message = format!(
                "expected the axes [heap][antenna][channel][spectrum][pol] or \
                 [heap][antenna][channel][pol][spectrum], got [{}]",
                names.join("][")
            );
            let help = "insert an `antenna_stack`, also for a single antenna";
            rejections.push(Rejection::new(codes::INPUT_AXIS, At::Input(0), message).help(help));
            return Err(rejections);
        }
        let len = |name| port.axis_len(name).unwrap_or(0);
        if !(1..=2).contains(&len("pol")) {
            rejections.push(Rejection::new(
                codes::INPUT_AXIS,
                At::InputAxis(0, "pol"),
                format!("the input must have 1 or 2 polarisations, got {}", len("pol")),
            ));
        }
        for name in ["heap", "antenna", "channel", "spectrum"] {
            if len(name) == 0 {
                let message = format!("the {name} axis of the input must not be empty");
                rejections.push(Rejection::new(codes::INPUT_AXIS, At::InputAxis(0, name), message));
            }
        }
        let heap = [("heap", len("heap")), ("antenna", len("antenna"))];
        let units = Units::of_port(0, port, &heap).unwrap_or_else(|rejection| {
            rejections.push(*rejection);
            Units::Heap
        });
        let spectra = (len("heap") as u64).saturating_mul(len("spectrum") as u64).max(1);
        let samples_per_spectrum = port.clock.samples_per_frame / spectra;
        if samples_per_spectrum == 0 || !port.clock.samples_per_frame.is_multiple_of(spectra) {
            rejections.push(Rejection::new(
                codes::RATE,
                At::Input(0),
                format!(
                    "the length of a frame, {} samples, must be a multiple of its {spectra} spectra",
                    port.clock.samples_per_frame
                ),
            ));
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        Ok(Self {
            heaps: len("heap"),
            antennas: len("antenna"),
            channels: len("channel"),
            pols: len("pol"),
            spectra: len("spectrum"),
            samples_per_spectrum,
            k_major: names == K_MAJOR || len("pol") == 1,
            dtype: port.dtype,
            units,
        })
    }

    /// Returns the size of one complex value in bytes.
    #[must_use]
    pub const fn value_bytes(&self) -> usize {
        self.dtype.bytes(1)
    }

    /// Returns the size of all polarisations of one channel, heap and antenna in bytes; they are contiguous.
    #[must_use]
    pub const fn row_bytes(&self) -> usize {
        self.pols * self.spectra * self.value_bytes()
    }

    /// Returns the payload of one frame in bytes.
    #[must_use]
    pub const fn frame_bytes(&self) -> usize {
        self.heaps * self.antennas * self.channels * self.row_bytes()
    }

    /// Returns the ADC samples in one heap.
    #[must_use]
    pub const fn samples_per_heap(&self) -> u64 {
        self.spectra as u64 * self.samples_per_spectrum
    }

    /// Returns the number of units of validity of a frame.
    #[must_use]
    pub const fn validity_units(&self) -> usize {
        self.heaps * self.antennas * self.units.per_heap(self.channels, self.pols)
    }

    /// Returns the number of baselines, including autocorrelations.
    #[must_use]
    pub const fn baselines(&self) -> usize {
        self.antennas * (self.antennas + 1) / 2
    }

    /// Returns the number of inputs: antennas times polarisations.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.pols * self.antennas
    }

    /// Returns the number of pairs of inputs: of antennas with 2 polarisations, of two antennas with 1, the last of which
    /// may be half a pair.
    #[must_use]
    pub const fn pairs(&self) -> usize {
        self.inputs().div_ceil(2)
    }

    /// Returns the number of products of each baseline.
    #[must_use]
    pub const fn products(&self) -> usize {
        self.pols * self.pols
    }

    /// Returns the index of the product of antenna `a1`, polarisation `p1` with antenna `a2`, polarisation `p2`
    /// (`a1 <= a2`) among the products of a channel.
    #[must_use]
    pub const fn product(&self, a1: usize, p1: usize, a2: usize, p2: usize) -> usize {
        self.products() * (a2 * (a2 + 1) / 2 + a1) + p1 + self.pols * p2
    }

    /// Returns the bytes of one heap, antenna and channel within a frame's payload.
    #[must_use]
    pub fn row<'a>(
        &self,
        payload: &'a [u8],
        heap: usize,
        antenna: usize,
        channel: usize,
    ) -> &'a [u8] {
        let index = (heap * self.antennas + antenna) * self.channels + channel;
        &payload[index * self.row_bytes()..][..self.row_bytes()]
    }

    /// Returns the index of a complex value in a [`row`](Self::row).
    #[must_use]
    pub const fn index(&self, spectrum: usize, pol: usize) -> usize {
        if self.k_major { pol * self.spectra + spectrum } else { self.pols * spectrum + pol }
    }

    /// Returns one complex value of a [`row`](Self::row) of integers.
    #[must_use]
    pub fn value(&self, row: &[u8], spectrum: usize, pol: usize) -> [i8; 2] {
        let index = self.index(spectrum, pol);
        if self.dtype == Dtype::Ci4 {
            let byte = row[index].cast_signed();
            [byte >> 4, (byte << 4) >> 4]
        } else {
            [row[2 * index].cast_signed(), row[2 * index + 1].cast_signed()]
        }
    }

    /// Returns one complex value of a [`row`](Self::row) in half precision.
    #[must_use]
    pub fn half_value(&self, row: &[u8], spectrum: usize, pol: usize) -> [f16; 2] {
        let value = &row[4 * self.index(spectrum, pol)..];
        [f16::from_le_bytes([value[0], value[1]]), f16::from_le_bytes([value[2], value[3]])]
    }
}
