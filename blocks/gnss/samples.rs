//! Complex samples read by GNSS receivers.

use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, PortType, Refusal};
use fxgraph_dsp::gnss::Planes;
use std::ops::Range;

/// Supported types of samples.
pub const DTYPES: [Dtype; 3] = [Dtype::Ci8, Dtype::Ci16, Dtype::Cf32];

/// Type of the input: `[antenna][sample]`, or `[sample]` of one antenna.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Samples {
    /// Type of a complex sample.
    pub dtype: Dtype,
    /// Number of antennas.
    pub antennas: usize,
    /// Samples of a frame, per antenna.
    pub samples: usize,
    /// Samples per second.
    pub rate_hz: f64,
}

impl Samples {
    /// Reads the type from `port`, input number `index`; returns all diagnostics at once.
    pub fn of_port(port: &PortType, index: usize) -> Result<Self, Vec<Refusal>> {
        let mut refusals = Vec::new();
        if !DTYPES.contains(&port.dtype) {
            let message = format!("the input must carry ci8, ci16 or cf32, got {}", port.dtype);
            refusals.push(Refusal::new(codes::INPUT_DTYPE, At::Input(index), message));
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
                    .help("connect complex samples, such as from `file_source`"),
                );
                return Err(refusals);
            }
        };
        let samples = port.axes[port.axes.len() - 1].len;
        if port.clock.samples_per_frame != samples as u64 {
            let message = format!(
                "frames must be contiguous, got frames of {samples} samples every {} samples",
                port.clock.samples_per_frame
            );
            refusals.push(
                Refusal::new(codes::INPUT_AXIS, At::Input(index), message)
                    .help("set `samples_per_frame` of the source to the length of a frame"),
            );
        }
        let rate_hz = port.clock.adc_sample_rate_hz;
        if refusals.is_empty() {
            Ok(Self { dtype: port.dtype, antennas, samples, rate_hz })
        } else {
            Err(refusals)
        }
    }

    /// Copies the samples `range` of each antenna from a frame's `payload` to `planes`.
    pub fn read(&self, payload: &[u8], range: Range<usize>, planes: &mut Planes) {
        let payload = &payload[..self.antennas * self.dtype.bytes(self.samples)];
        match self.dtype {
            Dtype::Ci8 => {
                planes.read::<i8>(bytemuck::cast_slice(payload), self.samples, range);
            }
            Dtype::Ci16 => {
                planes.read::<i16>(bytemuck::cast_slice(payload), self.samples, range);
            }
            _ => planes.read::<f32>(bytemuck::cast_slice(payload), self.samples, range),
        }
    }
}
