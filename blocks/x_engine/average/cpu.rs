//! The block on the CPU.

use super::Values;
use super::groups::{Groups, Taken};
use super::shape::{BASELINE, CHANNEL, PRODUCT, ROW, SPECTRUM, Shape};
use bytemuck::AnyBitPattern;
use fxgraph::{Block, BlockError, Dtype, Env, Frame, Io, Next};
use std::ops::AddAssign;
use std::sync::Arc;

/// A number of the input, with the type in which it is summed.
trait Number: AnyBitPattern + Send {
    /// Type of the sums.
    type Sum: Copy + Default + AddAssign + Send + 'static;

    fn widened(self) -> Self::Sum;

    /// The sum in double precision, rounded to nearest.
    fn double(sum: Self::Sum) -> f64;
}

impl Number for i32 {
    // An average has fewer than 2^32 numbers.
    type Sum = i64;

    fn widened(self) -> i64 {
        i64::from(self)
    }

    fn double(sum: i64) -> f64 {
        sum as f64
    }
}

impl Number for f32 {
    type Sum = f64;

    fn widened(self) -> f64 {
        f64::from(self)
    }

    fn double(sum: f64) -> f64 {
        sum
    }
}

/// The block for `shape`.
pub(super) fn block(shape: &Arc<Shape>, env: &Env) -> Box<dyn Block> {
    match shape.dtype {
        Dtype::Ci32 => Box::new(Cpu::<i32>::new(shape, env)),
        _ => Box::new(Cpu::<f32>::new(shape, env)),
    }
}

/// The running block.
struct Cpu<N: Number> {
    shape: Arc<Shape>,
    groups: Groups,
    /// Current frame, and its next dump.
    frame: Option<(Arc<Frame>, usize)>,
    /// Sums of the output frame, in the order of its payload.
    sums: Vec<N::Sum>,
}

impl<N: Number> Cpu<N> {
    fn new(shape: &Arc<Shape>, env: &Env) -> Self {
        Self {
            groups: Groups::new(shape, &env.counters),
            frame: None,
            sums: vec![N::Sum::default(); shape.numbers() * shape.spectra_out()],
            shape: Arc::clone(shape),
        }
    }

    /// Sums dumps of a frame.
    fn add(&mut self, values: &[N], validity: &[u32], taken: &Taken) {
        let Shape { input, input_units: units, lengths, parts, .. } = &*self.shape;
        // Products with one count are summed together.
        let (products, width) = match units[PRODUCT] {
            0 => (1, input[PRODUCT] * parts),
            _ => (input[PRODUCT], *parts),
        };
        let rows = input[ROW] * input[CHANNEL];
        for (dump, place) in taken.dumps.clone().zip(taken.place..) {
            for row_channel in 0..rows {
                let (row, channel) = (row_channel / input[CHANNEL], row_channel % input[CHANNEL]);
                let unit = dump * units[SPECTRUM] + row * units[ROW] + channel * units[CHANNEL];
                let from = (dump * rows + row_channel) * input[BASELINE];
                let average = place / self.shape.dumps * lengths[ROW] + row;
                let to = (average * lengths[CHANNEL] + channel / self.shape.channels)
                    * lengths[BASELINE];
                for (n, baseline) in self.shape.baselines.iter().enumerate() {
                    let baseline = *baseline as usize;
                    for product in 0..products {
                        let unit = unit + baseline * units[BASELINE] + product * units[PRODUCT];
                        if validity[unit] == 0 {
                            continue;
                        }
                        let from = ((from + baseline) * products + product) * width;
                        let to = ((to + n) * products + product) * width;
                        let sums = &mut self.sums[to..to + width];
                        for (sum, value) in sums.iter_mut().zip(&values[from..from + width]) {
                            *sum += value.widened();
                        }
                    }
                }
            }
        }
    }

    /// Outputs the sums and resets them to 0. Returns `false` if there is no free output frame.
    fn output(&mut self, io: &mut Io<'_>) -> Result<bool, BlockError> {
        let Some(mut frame) = io.outputs[0].take() else { return Ok(false) };
        let (header, values) = frame.parts_mut::<f32>()?;
        self.groups.end(header);
        let Shape { lengths, units, parts, .. } = &*self.shape;
        let divides = self.shape.values == Values::Mean;
        let mut numbers = values.iter_mut().zip(&mut self.sums);
        let [spectra, rows, channels, baselines, products] = *lengths;
        for cell in 0..spectra * rows * channels * baselines * products {
            let (cell, product) = (cell / products, cell % products);
            let (cell, baseline) = (cell / baselines, cell % baselines);
            let (cell, channel) = (cell / channels, cell % channels);
            let (spectrum, row) = (cell / rows, cell % rows);
            let index = [spectrum, row, channel, baseline, product];
            let unit: usize = index.iter().zip(units).map(|(n, stride)| n * stride).sum();
            let count = header.validity[unit];
            let divisor = if divides {
                f64::from(count) * f64::from(self.shape.channels_per_count)
            } else {
                1.0
            };
            for (value, sum) in numbers.by_ref().take(*parts) {
                let sum = std::mem::take(sum);
                *value = if count == 0 { 0.0 } else { (N::double(sum) / divisor) as f32 };
            }
        }
        io.outputs[0].push(frame);
        Ok(true)
    }
}

impl<N: Number> Block for Cpu<N> {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if self.groups.is_complete() && !self.output(io)? {
            return Ok(Next::Wait);
        }
        if let Some((frame, dump)) =
            self.frame.take().or_else(|| io.inputs[0].pop().map(|frame| (frame, 0)))
        {
            let taken = self.groups.take(frame.header(), dump);
            let next = taken.dumps.end;
            if !taken.dumps.is_empty() {
                self.add(frame.as_slice()?, &frame.header().validity, &taken);
            }
            self.frame = (next < self.shape.input[SPECTRUM]).then_some((frame, next));
            return Ok(Next::Again);
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        if self.groups.has_data() && !self.output(io)? {
            return Ok(Next::Wait);
        }
        Ok(Next::Finished)
    }
}
