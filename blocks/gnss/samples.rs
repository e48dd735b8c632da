//! Samples read by GNSS receivers: complex, or real at an intermediate frequency.

use fxgraph::diagnostic::codes;
use fxgraph::{At, Band, Dtype, PortType, Refusal};
use fxgraph_dsp::gnss::Planes;
use fxgraph_dsp::gnss::system::CARRIER_HZ;
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
    /// Ticks of the clock per sample.
    pub ticks: u64,
    /// Whether the spectrum is inverted: values are conjugated when they are read.
    pub is_inverted: bool,
    /// Frequency of the carrier in the samples as they are read, without Doppler shift.
    pub carrier_hz: f64,
}

impl Samples {
    /// Complex samples with the carrier at 0 Hz.
    pub fn complex(dtype: Dtype, antennas: usize, samples: usize, rate_hz: f64) -> Self {
        Self { dtype, antennas, samples, rate_hz, ticks: 1, is_inverted: false, carrier_hz: 0.0 }
    }

    /// Reads the type from `port`, input number `index`; returns all diagnostics at once.
    ///
    /// The carrier is at the parameter `intermediate_hz` if it is given, a frequency of the samples as they arrive;
    /// otherwise where the band of the port has it, or at 0 Hz.
    pub fn of_port(
        port: &PortType,
        index: usize,
        intermediate_hz: Option<f64>,
    ) -> Result<Self, Vec<Refusal>> {
        let mut refusals = Vec::new();
        if !DTYPES.contains(&port.dtype) {
            let message =
                format!("the input must carry ci8, ci16, cf32, i8, i16 or f32, got {}", port.dtype);
            let refusal = Refusal::new(codes::INPUT_DTYPE, At::Input(index), message);
            refusals.push(refusal.help("insert a `convert` to one of these types"));
        }
        let names: Vec<&str> = port.axes.iter().map(|axis| axis.name).collect();
        let antennas = match names[..] {
            ["sample"] => 1,
            ["antenna", "sample"] => port.axes[0].len,
            _ => {
                refusals.push(
                    Refusal::new(
                        codes::INPUT_AXIS,
                        At::Input(index),
                        "the input must have the axes [sample] or [antenna][sample]",
                    )
                    .label(format!("this is {port}"))
                    .help("connect samples, such as from `file_source`"),
                );
                return Err(refusals);
            }
        };
        let samples = port.axes[port.axes.len() - 1].len;
        let ticks = port.clock.samples_per_frame / samples as u64;
        if ticks * samples as u64 != port.clock.samples_per_frame || ticks == 0 {
            let message = format!(
                "frames must be contiguous, with the same number of ticks per sample, got frames of {samples} \
                 samples every {} ticks",
                port.clock.samples_per_frame
            );
            refusals.push(
                Refusal::new(codes::INPUT_AXIS, At::Input(index), message)
                    .help("set `samples_per_frame` of the source to the length of a frame"),
            );
        }
        let rate_hz = port.clock.adc_sample_rate_hz / ticks.max(1) as f64;
        let is_complex = port.dtype.is_complex();
        if let Some(hz) = intermediate_hz.filter(|hz| !hz.is_finite()) {
            let message = format!("`intermediate_hz` must be finite, got {hz}");
            refusals.push(
                Refusal::parameter("intermediate_hz", message)
                    .help("give 0 if the band is centred on the carrier"),
            );
        }
        let is_inverted = port.band.is_some_and(|band| band.bandwidth_hz < 0.0);
        let carrier_hz = match (intermediate_hz, &port.band) {
            (Some(hz), _) if is_inverted => -hz,
            (Some(hz), _) => hz,
            (None, Some(band)) => CARRIER_HZ - zero_hz(band, is_complex),
            (None, None) => 0.0,
        };
        if refusals.is_empty() {
            Ok(Self {
                dtype: port.dtype,
                antennas,
                samples,
                rate_hz,
                ticks,
                is_inverted,
                carrier_hz,
            })
        } else {
            Err(refusals)
        }
    }

    /// Whether the samples are real.
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
    if is_complex { band.centre_hz } else { band.centre_hz - 0.5 * band.bandwidth_hz }
}
