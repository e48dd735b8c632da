//! Complex samples of any type as two rows of floats for each antenna.

use crate::common::simd::Lines;
use fxgraph::diagnostic::codes;
use fxgraph::{At, Dtype, PortType, Refusal};
use std::ops::Range;

/// Types of samples that are read.
pub const DTYPES: [Dtype; 3] = [Dtype::Ci8, Dtype::Ci16, Dtype::Cf32];

/// Samples as they come: `[antenna][sample]`, or `[sample]` of one antenna.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Samples {
    /// Type of a complex sample.
    pub dtype: Dtype,
    /// Antennas.
    pub antennas: usize,
    /// Samples of a frame.
    pub samples: usize,
    /// Samples per second.
    pub rate_hz: f64,
}

impl Samples {
    /// Those of `port`, input number `index`; all refusals at once.
    pub fn of_port(port: &PortType, index: usize) -> Result<Self, Vec<Refusal>> {
        let mut refusals = Vec::new();
        if !DTYPES.contains(&port.dtype) {
            let message = format!("samples are ci8, ci16 or cf32, not {}", port.dtype);
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
                        "these are not plain samples",
                    )
                    .label(format!("this is {port}"))
                    .help("[sample], or [antenna][sample]"),
                );
                return Err(refusals);
            }
        };
        let samples = port.axes[port.axes.len() - 1].len;
        if port.clock.samples_per_frame != samples as u64 {
            let message = format!(
                "frames of {samples} samples that are {} apart",
                port.clock.samples_per_frame
            );
            refusals.push(
                Refusal::new(codes::INPUT_AXIS, At::Input(index), message)
                    .help("phases go on from frame to frame: there must be no gaps"),
            );
        }
        let rate_hz = port.clock.adc_sample_rate_hz;
        if refusals.is_empty() {
            Ok(Self { dtype: port.dtype, antennas, samples, rate_hz })
        } else {
            Err(refusals)
        }
    }
}

/// Some samples of each antenna as floats.
pub struct Planes {
    re: Lines,
    im: Lines,
    /// Samples that fit.
    room: usize,
    /// Samples that there are.
    len: usize,
}

impl Planes {
    /// Room for `room` samples of each of `antennas` antennas.
    #[must_use]
    pub fn new(antennas: usize, room: usize) -> Self {
        Self { re: Lines::new(antennas * room), im: Lines::new(antennas * room), room, len: 0 }
    }

    /// Takes the samples `range` of each antenna from a frame's `payload`.
    pub fn read(&mut self, samples: &Samples, payload: &[u8], range: Range<usize>) {
        self.len = range.len().min(self.room);
        let row = samples.dtype.bytes(samples.samples);
        for antenna in 0..samples.antennas {
            let bytes = &payload[antenna * row..][..row];
            let bytes = &bytes[samples.dtype.bytes(range.start)..samples.dtype.bytes(range.end)];
            let at = antenna * self.room;
            let re = &mut self.re[at..at + self.len];
            let im = &mut self.im[at..at + self.len];
            match samples.dtype {
                Dtype::Ci8 => split(bytemuck::cast_slice::<u8, [i8; 2]>(bytes), re, im, f32::from),
                Dtype::Ci16 => {
                    split(bytemuck::cast_slice::<u8, [i16; 2]>(bytes), re, im, f32::from);
                }
                _ => split(bytemuck::cast_slice::<u8, [f32; 2]>(bytes), re, im, |value| value),
            }
        }
    }

    /// Real and imaginary parts of some samples of an antenna.
    #[must_use]
    pub fn parts(&self, antenna: usize, range: Range<usize>) -> (&[f32], &[f32]) {
        let at = antenna * self.room;
        (&self.re[at + range.start..at + range.end], &self.im[at + range.start..at + range.end])
    }

    /// Samples that were read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none were.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

fn split<T: Copy>(samples: &[[T; 2]], re: &mut [f32], im: &mut [f32], number: impl Fn(T) -> f32) {
    for ((sample, re), im) in samples.iter().zip(re).zip(im) {
        [*re, *im] = [number(sample[0]), number(sample[1])];
    }
}
