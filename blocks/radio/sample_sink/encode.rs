//! Samples of a frame as raw samples.

use crate::types::SampleType;
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Clock, Dtype, Frame, PortType, Rejection};

/// Place of the samples of the input.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Type of the samples in frames.
    pub input: SampleType,
    /// Samples of a frame.
    pub samples: usize,
    /// Samples that share a validity count.
    pub run: usize,
    pub clock: Clock,
}

/// Raw type with the numbers of `dtype`.
fn natural(dtype: Dtype) -> Option<SampleType> {
    Some(match dtype {
        Dtype::Ci8 => SampleType::Ci8,
        Dtype::Ci16 => SampleType::Ci16,
        Dtype::Cf32 => SampleType::Cf32,
        Dtype::I8 => SampleType::I8,
        Dtype::I16 => SampleType::I16,
        Dtype::F32 => SampleType::F32,
        _ => return None,
    })
}

impl Layout {
    /// Layout of `input`.
    #[allow(clippy::result_large_err, reason = "once per flowgraph")]
    pub fn new(input: &PortType) -> Result<Self, Rejection> {
        let reject = |code, message: String, help: &str| {
            Rejection::new(code, At::Input(0), message).help(help)
        };
        let natural = natural(input.dtype).ok_or_else(|| {
            let message = format!(
                "the input must carry ci8, ci16, cf32, i8, i16 or f32, got {}",
                input.dtype
            );
            reject(codes::INPUT_DTYPE, message, "insert a `convert` to one of these types")
        })?;
        let others = input.axes.iter().filter(|axis| axis.name != "sample");
        let is_one = others.clone().all(|axis| axis.len == 1);
        let samples = input.axes.iter().find(|axis| axis.name == "sample").map(|axis| axis.len);
        let samples = samples.filter(|_| is_one && others.count() + 1 == input.axes.len());
        let samples = samples.ok_or_else(|| {
            let message = format!("the input must be one stream of samples, got {input}");
            reject(
                codes::INPUT_AXIS,
                message,
                "connect [sample], the samples of one antenna and polarisation",
            )
        })?;
        let units = input.validity.units();
        if samples == 0 || units == 0 || !samples.is_multiple_of(units) {
            let message = format!(
                "the {samples} samples of a frame must be a multiple of its {units} validity counts"
            );
            return Err(reject(
                codes::INPUT_AXIS,
                message,
                "change the length of the frames upstream",
            ));
        }
        Ok(Self { input: natural, samples, run: samples / units, clock: input.clock })
    }

    /// Samples per second.
    pub fn rate_hz(&self) -> f64 {
        self.samples as f64 * self.clock.frames_per_second()
    }

    /// Samples that `ticks` ADC samples take, to the nearest one.
    pub fn samples_in(&self, ticks: u64) -> u64 {
        let of = u128::from(self.clock.samples_per_frame.max(1));
        let samples = (u128::from(ticks) * self.samples as u128 + of / 2) / of;
        u64::try_from(samples).unwrap_or(u64::MAX)
    }
}

/// Numbers of samples that are not those of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Samples that are missing, and zero.
    pub missing: u64,
    /// Real or imaginary parts that were clipped.
    pub clipped: u64,
}

/// Conversion of numbers.
enum Conversion {
    /// None: integers and floats keep their values.
    Same,
    /// Complex conjugates with the same numbers, in this buffer.
    Conjugates(Vec<u8>),
    /// Numbers relative to the full scales, in this buffer, times a factor.
    Scaled { floats: Vec<f32>, scale: f32, conjugates: bool },
}

/// Encoder of the samples of frames.
pub struct Encoder {
    layout: Layout,
    to: SampleType,
    conversion: Conversion,
}

impl Encoder {
    /// Encoder to `to`. Numbers keep their values if `scale` is `None` and both types have the same numbers; otherwise full
    /// scale times `scale`, or 1, becomes full scale.
    pub fn new(layout: Layout, to: SampleType, scale: Option<f32>, conjugates: bool) -> Self {
        let is_same = scale.is_none() && layout.input.dtype() == to.dtype();
        let conversion = match (is_same, conjugates) {
            (true, false) => Conversion::Same,
            (true, true) => Conversion::Conjugates(vec![0; layout.samples * layout.input.bytes()]),
            (false, _) => Conversion::Scaled {
                floats: vec![0.0; layout.samples * to.numbers()],
                scale: scale.unwrap_or(1.0),
                conjugates,
            },
        };
        Self { layout, to, conversion }
    }

    /// Bytes of a frame.
    pub fn frame_bytes(&self) -> usize {
        self.layout.samples * self.to.bytes()
    }

    /// Encodes `frame` to `raw`, of [`frame_bytes`](Self::frame_bytes).
    pub fn encode(&mut self, frame: &Frame, raw: &mut [u8]) -> Result<Encoded, BlockError> {
        let payload = frame.as_slice::<u8>()?;
        let clipped = match &mut self.conversion {
            Conversion::Same => self.to.encode(payload, raw),
            Conversion::Conjugates(samples) => {
                samples.copy_from_slice(payload);
                let clipped = conjugate(self.layout.input, samples);
                clipped + self.to.encode(samples, raw)
            }
            Conversion::Scaled { floats, scale, conjugates } => {
                self.layout.input.normalise(payload, floats);
                if *conjugates {
                    floats.iter_mut().skip(1).step_by(2).for_each(|value| *value = -*value);
                }
                self.to.quantise(floats, *scale, raw)
            }
        };
        let mut missing = 0;
        let runs = raw.chunks_exact_mut(self.layout.run * self.to.bytes());
        for (run, _) in runs.zip(&frame.header().validity).filter(|(_, count)| **count == 0) {
            self.silence(run);
            missing += self.layout.run as u64;
        }
        Ok(Encoded { missing, clipped })
    }

    /// Fills `raw` with zeros: the code nearest to zero of offset binary.
    pub fn silence(&self, raw: &mut [u8]) {
        let is_offset = matches!(self.to, SampleType::Cu8 | SampleType::U8);
        raw.fill(if is_offset { 0x80 } else { 0 });
    }
}

/// Replaces samples by their conjugates. Returns how many were clipped: the least integer has no negative.
fn conjugate(of: SampleType, samples: &mut [u8]) -> u64 {
    let mut clipped = 0;
    match of.dtype() {
        Dtype::Ci8 => {
            for [_, q] in samples.as_chunks_mut::<2>().0 {
                clipped += u64::from(q.cast_signed() == i8::MIN);
                *q = q.cast_signed().saturating_neg().cast_unsigned();
            }
        }
        Dtype::Ci16 => {
            for [_, _, low, high] in samples.as_chunks_mut::<4>().0 {
                let q = i16::from_le_bytes([*low, *high]);
                clipped += u64::from(q == i16::MIN);
                [*low, *high] = q.saturating_neg().to_le_bytes();
            }
        }
        // The sign of a float is its last bit.
        _ => samples.iter_mut().skip(7).step_by(8).for_each(|byte| *byte ^= 0x80),
    }
    clipped
}
