//! Sums of visibilities over dumps and groups of channels.

use super::GainSolver;
use crate::common::axes::reject_means;
use crate::common::visibilities::parallel;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Band, BlockError, Dtype, Frame, PortType, Rejection};
use num_complex::{Complex32, Complex64};

/// Sizes of input and solutions.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    dtype: Dtype,
    band: Option<Band>,
    pub(super) antennas: usize,
    pub(super) channels: usize,
    /// Polarisations: 1 or 2.
    pub(super) pols: usize,
    /// Channels with a common gain.
    pub(super) of_group: usize,
    /// Products of independent samples in a visibility of one channel, for each count of its validity.
    products_per_count: f64,
    /// ADC samples in an hour.
    pub(super) samples_per_hour: f64,
    /// Strides of the validity counts along channels, baselines and products; 0 for an axis that the counts lack.
    units: [usize; 3],
}

/// Diagnostic for means, and for validity axes that are not different axes of the payload.
pub(super) fn reject_validity(port: &PortType) -> Option<Rejection> {
    if let Some(rejection) = reject_means(0, port) {
        return Some(rejection);
    }
    let axes = &port.validity.axes;
    let is_fine = axes.iter().enumerate().all(|(n, axis)| {
        port.axes.contains(axis) && axes[..n].iter().all(|other| other.name != axis.name)
    });
    (!is_fine).then(|| {
        let message = "the axes of the input's validity must be those of its payload";
        Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
            .help("connect a `correlator`, whose validity is [baseline]")
    })
}

/// Memory of the sums, in bytes.
pub(super) fn host_bytes(shape: &Shape) -> usize {
    let sums = shape.groups() * shape.pols * shape.baselines();
    let phases = if shape.band.is_some() { shape.antennas * shape.channels } else { 0 };
    let others = super::fit::host_bytes(shape.antennas) + super::antenna_gains::host_bytes(shape);
    sums * size_of::<(Complex64, f64)>() + phases * size_of::<Complex64>() + others
}

impl Shape {
    /// The shape of a checked `port`.
    pub(super) fn new(block: &GainSolver, port: &PortType, antennas: usize) -> Self {
        let mut units = [0; 3];
        let mut stride = 1;
        for axis in port.validity.axes.iter().rev() {
            if let Some(position) = port.axes.iter().position(|known| known == axis) {
                units[position] = stride;
            }
            stride *= axis.len;
        }
        let channels = port.axes[0].len;
        let of_group = block.channels.unwrap_or(channels);
        // A channel has as many independent complex samples per second as it has hertz.
        let channel_hz =
            port.band.map_or(0.0, |band| band.bandwidth_hz.abs() / band.channels as f64);
        let clock = &port.clock;
        let seconds = clock.samples_per_frame as f64 / clock.adc_sample_rate_hz;
        let products_per_count = seconds * channel_hz / f64::from(port.validity.full.max(1));
        Self {
            dtype: port.dtype,
            band: port.band,
            antennas,
            channels,
            pols: port.axes[2].len.isqrt(),
            of_group,
            products_per_count,
            samples_per_hour: 3600.0 * clock.adc_sample_rate_hz,
            units,
        }
    }

    /// Groups of channels with a common gain.
    pub(super) fn groups(&self) -> usize {
        self.channels / self.of_group
    }

    pub(super) fn baselines(&self) -> usize {
        self.antennas * (self.antennas + 1) / 2
    }
}

/// Sums `[group][pol][baseline]` of visibilities and of their counts.
pub(super) struct Sums {
    shape: Shape,
    /// Factors that stop the fringes of the source, `[channel][antenna]`; empty if the F-engines do.
    stops: Vec<Complex64>,
    visibilities: Vec<Complex64>,
    counts: Vec<f64>,
}

impl Sums {
    pub(super) fn new(block: &GainSolver, shape: Shape) -> Self {
        let mut stops = Vec::new();
        if let (Some(source), Some(band)) = (block.source, shape.band) {
            for channel in 0..shape.channels {
                for place in &block.antennas_enu_metres[..shape.antennas] {
                    let turns = band.channel_hz(channel) * source.delay_seconds(*place);
                    stops.push(Complex64::cis(std::f64::consts::TAU * turns.fract()));
                }
            }
        }
        let len = shape.groups() * shape.pols * shape.baselines();
        Self { shape, stops, visibilities: vec![Complex64::ZERO; len], counts: vec![0.0; len] }
    }

    /// Resets the sums to 0.
    pub(super) fn clear(&mut self) {
        self.visibilities.fill(Complex64::ZERO);
        self.counts.fill(0.0);
    }

    /// Adds a dump.
    pub(super) fn add(&mut self, frame: &Frame) -> Result<(), BlockError> {
        let validity = &frame.header().validity;
        // Gains are on the sky, and so are the visibilities from which they are solved.
        let sign = self.shape.band.map_or(1.0, |band| band.sideband.sign());
        if self.shape.dtype == Dtype::Ci32 {
            let values = frame.as_slice::<[i32; 2]>()?;
            self.add_values(values, validity, |[re, im]| {
                Complex64::new(re.into(), sign * f64::from(im))
            });
        } else {
            let values = frame.as_slice::<Complex32>()?;
            self.add_values(values, validity, |v| {
                Complex64::new(v.re.into(), sign * f64::from(v.im))
            });
        }
        Ok(())
    }

    fn add_values<T: Copy>(
        &mut self,
        values: &[T],
        validity: &[u32],
        number: impl Fn(T) -> Complex64,
    ) {
        let Shape { antennas, channels, pols, of_group, units, .. } = self.shape;
        let products = pols * pols;
        let baselines = self.shape.baselines();
        // The lowest channel of a real-sampled band contains the DC offsets of the digitisers.
        let has_offset = self.shape.band.is_some_and(|band| band.first_channel == 0);
        let first = usize::from(has_offset && of_group > 1);
        for channel in first..channels {
            let mut baseline = 0;
            for a2 in 0..antennas {
                for a1 in 0..=a2 {
                    let stop = match self.stops.get(channel * antennas..) {
                        Some(stops) if !stops.is_empty() => stops[a1] * stops[a2].conj(),
                        _ => Complex64::ONE,
                    };
                    for (pol, product) in parallel(products).iter().enumerate() {
                        let unit = channel * units[0] + baseline * units[1] + product * units[2];
                        let count = validity[unit];
                        if count == 0 {
                            continue;
                        }
                        let value = values[(channel * baselines + baseline) * products + product];
                        let sum = (channel / of_group * pols + pol) * baselines + baseline;
                        self.visibilities[sum] += number(value) * stop;
                        self.counts[sum] += f64::from(count);
                    }
                    baseline += 1;
                }
            }
        }
    }

    /// Writes the mean visibilities of a group and a polarisation to `means`, and the number of products of samples in
    /// each to `products`.
    pub(super) fn means(
        &self,
        group: usize,
        pol: usize,
        means: &mut Vec<Complex64>,
        products: &mut Vec<f64>,
    ) {
        let baselines = self.shape.baselines();
        let which = (group * self.shape.pols + pol) * baselines;
        let counts = &self.counts[which..which + baselines];
        let sums = &self.visibilities[which..which + baselines];
        let per_count = self.shape.products_per_count;
        means.clear();
        means.extend(sums.iter().zip(counts).map(|(sum, count)| match *count {
            0.0 => Complex64::ZERO,
            count => sum / (count * per_count),
        }));
        products.clear();
        products.extend(counts.iter().map(|count| count * per_count));
    }
}
