//! Level of integers: the changes from one spectrum to the next, which the steps of the integers must resolve.

use super::shape::Shape;
use crate::common::output_level::OutputLevels;
use fxgraph::Env;
use fxgraph_formats::filterbank::Quantiser;

/// Numbers that are measured together: at most this many of a spectrum, and of as many spectra as needed.
const MEASURED: usize = 256;

/// Levels of the beams.
pub struct Level {
    levels: OutputLevels,
    quantiser: Quantiser,
    /// Distance of the values of a spectrum that are measured.
    step: usize,
    /// Pairs of spectra that are measured together.
    pairs: usize,
    beams: Vec<Beam>,
}

/// Measured integers of the spectrum before; empty if that is not complete.
struct Beam {
    before: Vec<i32>,
    squares: u64,
    pairs: usize,
}

impl Level {
    /// Creates the levels; `None` for floats, which have no steps.
    pub fn new(quantiser: Quantiser, shape: &Shape, env: &Env) -> Option<Self> {
        let values = shape.values();
        let step = values.div_ceil(MEASURED).max(1);
        let measured = values.div_ceil(step).max(1);
        let pairs = MEASURED.div_ceil(measured);
        let units_per_second = 1.0 / (shape.header.tsamp_seconds * pairs as f64);
        let help = "rms of the noise of the integers in the last second, from their changes between spectra, in \
                    steps; below 0.5 raise the scale";
        let beams = shape.beams.len();
        let beam = |_| Beam { before: Vec::with_capacity(measured), squares: 0, pairs: 0 };
        (quantiser.nbits < 32).then(|| Self {
            // The difference of two values has twice their variance.
            levels: OutputLevels::measuring(
                ("the changes between spectra of ", help),
                (0..beams).map(|beam| {
                    let axis = shape.file_axis.as_ref().map_or("beam", |axis| axis.name);
                    format!("{axis}{}", shape.number(beam).unwrap_or_else(|| "0".to_owned()))
                }),
                (2 * measured * pairs, units_per_second),
                "raise `scale`",
                env,
            ),
            quantiser,
            step,
            pairs,
            beams: (0..beams).map(beam).collect(),
        })
    }

    /// Forgets the spectrum before: the next one does not follow it, or has missing values.
    pub fn interrupt(&mut self, beam: usize) {
        self.beams[beam].before.clear();
    }

    /// Measures a complete spectrum, `[product][channel]` before it is quantised.
    pub fn measure(&mut self, beam: usize, row: &[f32]) {
        let Self { levels, quantiser, step, pairs, beams } = self;
        let Beam { before, squares, pairs: done } = &mut beams[beam];
        let numbers = row.iter().step_by(*step).map(|value| quantiser.integer(*value).0);
        if before.is_empty() {
            before.extend(numbers.map(i32::from));
            return;
        }
        for (before, number) in before.iter_mut().zip(numbers.map(i32::from)) {
            *squares += u64::from(number.abs_diff(*before)).pow(2);
            *before = number;
        }
        *done += 1;
        if *done == *pairs {
            levels.add(beam, std::mem::take(squares));
            *done = 0;
        }
    }
}
