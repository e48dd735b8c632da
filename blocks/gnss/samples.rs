//! Samples read by GNSS receivers: complex, or real at an intermediate frequency.

use fxgraph::diagnostic::codes;
use fxgraph::{At, Band, Dtype, PortType, Rejection, Sideband};
use fxgraph_dsp::gnss::{Carriers, Planes, System};
use std::ops::Range;

/// Supported types of samples.
pub const DTYPES: [Dtype; 6] =
    [Dtype::Ci8, Dtype::Ci16, Dtype::Cf32, Dtype::I8, Dtype::I16, Dtype::F32];

/// Type of the input: `[antenna][sample]`, or `[sample]` of one antenna.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Samples {
    /// Type of a sample.
    pub dtype: Dtype,
    /// Number of antennas.
    pub antennas: usize,
    /// Samples of a frame, per antenna.
    pub samples: usize,
    /// Samples per second.
    pub rate_hz: f64,
    /// Ticks of the clock from one frame to the next.
    pub frame_ticks: u64,
    /// Whether the spectrum is inverted: values are conjugated when they are read.
    pub is_inverted: bool,
    /// Frequencies of carriers in the samples as they are read, without Doppler shift.
    pub carriers: Carriers,
}

impl Samples {
    /// Complex samples with the carrier at 0 Hz.
    #[must_use]
    pub fn complex(dtype: Dtype, antennas: usize, samples: usize, rate_hz: f64) -> Self {
        let frame_ticks = samples as u64;
        let carriers = Carriers::At(0.0);
        Self { dtype, antennas, samples, rate_hz, frame_ticks, is_inverted: false, carriers }
    }

    /// Reads the type from `port`, input number `index`; returns all diagnostics at once.
    ///
    /// All carriers are at the parameter `intermediate_hz` if it is given, a frequency of the samples as they arrive;
    /// otherwise each is where the band of the port has it, or at 0 Hz without a band.
    pub fn of_port(
        port: &PortType,
        index: usize,
        intermediate_hz: Option<f64>,
    ) -> Result<Self, Vec<Rejection>> {
        let mut rejections = Vec::new();
        if !DTYPES.contains(&port.dtype) {
            let message =
                format!("the input must carry ci8, ci16, cf32, i8, i16 or f32, got {}", port.dtype);
            let rejection = Rejection::new(codes::INPUT_DTYPE, At::Input(index), message);
            rejections.push(rejection.help("insert a `convert` to one of these types"));
        }
        let names: Vec<&str> = port.axes.iter().map(|axis| axis.name).collect();
        let antennas = match names[..] {
            ["sample"] => 1,
            ["antenna", "sample"] => port.axes[0].len,
            _ => {
                rejections.push(
                    Rejection::new(
                        codes::INPUT_AXIS,
                        At::Input(index),
                        "the input must have the axes [sample] or [antenna][sample]",
                    )
                    .label(format!("this is {port}"))
                    .help("connect samples, such as from `file_source`"),
                );
                return Err(rejections);
            }
        };
        let samples = port.axes[port.axes.len() - 1].len;
        // Exact for a whole number of ticks per sample.
        let ticks = port.clock.samples_per_frame as f64 / samples as f64;
        let rate_hz = port.clock.adc_sample_rate_hz / ticks;
        let is_complex = port.dtype.is_complex();
        if let Some(hz) = intermediate_hz.filter(|hz| !hz.is_finite()) {
            let message = format!("`intermediate_hz` must be finite, got {hz}");
            rejections.push(
                Rejection::parameter("intermediate_hz", message)
                    .help("give 0 if the band is centred on the carrier"),
            );
        }
        let is_inverted = port.band.is_some_and(|band| band.sideband == Sideband::Lower);
        let carriers = match (intermediate_hz, &port.band) {
            (Some(hz), _) if is_inverted => Carriers::At(-hz),
            (Some(hz), _) => Carriers::At(hz),
            (None, Some(band)) => Carriers::Around(zero_hz(band, is_complex)),
            (None, None) => Carriers::At(0.0),
        };
        if rejections.is_empty() {
            Ok(Self {
                dtype: port.dtype,
                antennas,
                samples,
                rate_hz,
                frame_ticks: port.clock.samples_per_frame,
                is_inverted,
                carriers,
            })
        } else {
            Err(rejections)
        }
    }

    /// Frequency of the carrier of `system` in the samples as they are read, without Doppler shift.
    #[must_use]
    pub fn carrier_hz(&self, system: System) -> f64 {
        self.carriers.hz(system)
    }

    /// Ticks of the clock, and the number of samples that take as many.
    #[must_use]
    pub fn ratio(&self) -> (u64, u64) {
        (self.frame_ticks, self.samples as u64)
    }

    /// Ticks of the clock that `samples` samples take, rounded up.
    #[must_use]
    pub fn ticks_of(&self, samples: usize) -> u64 {
        let (ticks, of) = self.ratio();
        let all = (samples as u128 * u128::from(ticks)).div_ceil(u128::from(of));
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Whole samples that `ticks` ticks of the clock take.
    #[must_use]
    pub fn samples_in(&self, ticks: u64) -> u64 {
        let (of, samples) = self.ratio();
        let all = u128::from(ticks) * u128::from(samples) / u128::from(of);
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Whether the samples are real.
    #[must_use]
    pub fn is_real(&self) -> bool {
        !self.dtype.is_complex()
    }

    /// Copies the samples `range` of each antenna from a frame's `payload` to `planes`.
    pub fn read(&self, payload: &[u8], range: Range<usize>, planes: &mut Planes) {
        let payload = &payload[..self.antennas * self.dtype.bytes(self.samples)];
        let (row, inverted) = (self.samples, self.is_inverted);
        match self.dtype {
            Dtype::Ci8 => planes.read::<i8>(bytemuck::cast_slice(payload), row, range, inverted),
            Dtype::Ci16 => planes.read::<i16>(bytemuck::cast_slice(payload), row, range, inverted),
            Dtype::I8 => planes.read_real::<i8>(bytemuck::cast_slice(payload), row, range),
            Dtype::I16 => planes.read_real::<i16>(bytemuck::cast_slice(payload), row, range),
            Dtype::F32 => planes.read_real::<f32>(bytemuck::cast_slice(payload), row, range),
            _ => planes.read::<f32>(bytemuck::cast_slice(payload), row, range, inverted),
        }
    }
}

/// Returns the frequency on the sky at 0 Hz of samples that are conjugated if the band is inverted.
///
/// Real samples begin at an edge of the band. A real sample is its own conjugate, so that its negative frequencies are
/// those of an inverted band.
fn zero_hz(band: &Band, is_complex: bool) -> f64 {
    let edge = if is_complex { 0.0 } else { 0.5 * band.sideband.sign() * band.bandwidth_hz };
    band.centre_hz - edge
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::{Axis, Clock, ValidityType};

    fn port(dtype: Dtype, rate_hz: f64, samples_per_frame: u64, band: Option<Band>) -> PortType {
        PortType {
            dtype,
            axes: vec![Axis::new("sample", 1000)],
            clock: Clock::new(rate_hz, samples_per_frame),
            band,
            validity: ValidityType::flags(vec![]),
        }
    }

    fn samples(dtype: Dtype, band: Option<Band>, intermediate_hz: Option<f64>) -> Samples {
        Samples::of_port(&port(dtype, 12e6, 1000, band), 0, intermediate_hz).unwrap()
    }

    #[test]
    fn carrier_is_where_the_band_has_it() {
        let band = |centre_hz, width_hz| Some(Band::signed(1, 0, centre_hz, width_hz));
        for (dtype, band, intermediate_hz, expected) in [
            (Dtype::Ci8, None, None, 0.0),
            (Dtype::Ci8, band(1575e6, 4e6), None, 0.42e6),
            // Values of an inverted band are conjugated: frequencies rise again.
            (Dtype::Ci8, band(1575e6, -4e6), None, 0.42e6),
            (Dtype::Ci8, band(1575e6, -4e6), Some(-0.42e6), 0.42e6),
            (Dtype::I8, band(1575.42e6, 6e6), None, 3e6),
            (Dtype::I8, band(1575e6, 6e6), None, 3.42e6),
            // Real samples keep their values: the negative frequencies are those of the sky.
            (Dtype::I8, band(1575e6, -6e6), None, -2.58e6),
            (Dtype::I8, None, Some(3e6), 3e6),
        ] {
            let carrier_hz = samples(dtype, band, intermediate_hz).carrier_hz(System::GpsL1Ca);
            assert!((carrier_hz - expected).abs() < 1e-3, "{dtype} {band:?}: {carrier_hz}");
        }
    }

    #[test]
    fn values_of_an_inverted_band_are_conjugated() {
        let payload: Vec<u8> = (0..2000_u32).map(|n| (n % 100) as u8).collect();
        let mut planes = Planes::new(1, 1000);
        for (width_hz, sign) in [(4e6, 1.0), (-4e6, -1.0)] {
            let band = Some(Band::signed(1, 0, 1575.42e6, width_hz));
            samples(Dtype::Ci8, band, None).read(&payload, 7..9, &mut planes);
            let (re, im) = planes.parts(0, 0..2);
            assert_eq!((re, im), (&[14.0, 16.0][..], &[sign * 15.0, sign * 17.0][..]));
        }
    }

    #[test]
    fn samples_of_several_ticks_have_a_lower_rate() {
        // After `ddc`, a `resampler` by 2/5, and one by 2.
        for (frame_ticks, rate_hz) in [(4000, 4e6), (2500, 6.4e6), (500, 32e6)] {
            let port = port(Dtype::Cf32, 16e6, frame_ticks, None);
            let samples = Samples::of_port(&port, 0, None).unwrap();
            assert!((samples.rate_hz - rate_hz).abs() < 1e-6);
            assert_eq!(
                (samples.ticks_of(1000), samples.samples_in(frame_ticks)),
                (frame_ticks, 1000)
            );
        }
    }
}
