//! Median and spread of several runs.

use super::measure::Measured;
use super::state::State;

/// Results of a benchmark in several runs, each of which started its flowgraph again.
pub struct Runs {
    /// At least one, sorted by time per frame.
    runs: Vec<Measured>,
}

/// Median, smallest and largest value of several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub minimum: f64,
    pub maximum: f64,
}

impl Spread {
    /// Returns the spread of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (minimum, maximum) = (*values.first()?, *values.last()?);
        Some(Self { median: values[values.len() / 2], minimum, maximum })
    }

    /// Difference of the largest and smallest value, as a fraction of the median.
    pub fn fraction(&self) -> f64 {
        (self.maximum - self.minimum) / self.median
    }
}

impl Runs {
    /// Calls `measure` for each of `count` runs, or until `is_over`; the first error is the result.
    pub fn measure(
        count: usize,
        is_over: impl Fn() -> bool,
        measure: impl Fn() -> Result<Measured, String>,
    ) -> Result<Self, String> {
        let mut runs = vec![measure()?];
        while runs.len() < count && !is_over() {
            runs.push(measure()?);
        }
        runs.sort_by(|a, b| a.seconds_per_frame.total_cmp(&b.seconds_per_frame));
        Ok(Self { runs })
    }

    /// Number of runs.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// The run with the median time per frame; of an even number of runs, the slower one of the two in the middle.
    pub fn median(&self) -> &Measured {
        &self.runs[self.runs.len() / 2]
    }

    /// Time per frame in seconds.
    pub fn seconds_per_frame(&self) -> Spread {
        let median = self.median().seconds_per_frame;
        let (minimum, maximum) =
            (self.runs[0].seconds_per_frame, self.runs[self.runs.len() - 1].seconds_per_frame);
        Spread { median, minimum, maximum }
    }

    /// GPU time per frame in seconds; `None` on a CPU.
    pub fn device_seconds_per_frame(&self) -> Option<Spread> {
        let seconds: Option<Vec<f64>> =
            self.runs.iter().map(Measured::device_seconds_per_frame).collect();
        Spread::of(seconds?)
    }

    /// State of the machine at the end of each run, in the order of the times per frame.
    pub fn states(&self) -> impl Iterator<Item = &State> {
        self.runs.iter().map(|run| &run.state)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn measured(seconds_per_frame: f64, device: Option<f64>) -> Measured {
        Measured {
            frames: 10,
            seconds_per_frame,
            blocks: vec![("block".to_owned(), device)],
            loads: Vec::new(),
            samples_per_second: 1.0,
            bytes_per_second: 1.0,
            operations_per_second: 1.0,
            uses_matrix_units: false,
            state: State::Gpu(None),
        }
    }

    #[test]
    fn runs_give_median_minimum_and_maximum() {
        let next = Cell::new(0);
        let runs = Runs::measure(
            3,
            || false,
            || {
                let index = next.replace(next.get() + 1);
                Ok(measured([5.0, 1.0, 2.0][index], Some([0.1, 0.7, 0.4][index])))
            },
        );
        let runs = runs.unwrap();
        assert_eq!(runs.count(), 3);
        let frame = runs.seconds_per_frame();
        assert_eq!(frame, Spread { median: 2.0, minimum: 1.0, maximum: 5.0 });
        assert!((frame.fraction() - 2.0).abs() < 1e-12);
        let device = runs.device_seconds_per_frame().unwrap();
        assert_eq!(device, Spread { median: 0.4, minimum: 0.1, maximum: 0.7 });
    }

    #[test]
    fn interrupted_runs_keep_the_first_one_and_errors_end_them() {
        let runs = Runs::measure(5, || true, || Ok(measured(3.0, None))).unwrap();
        assert_eq!(runs.count(), 1);
        assert_eq!(runs.device_seconds_per_frame(), None);
        let next = Cell::new(0);
        let failed = Runs::measure(
            5,
            || false,
            || {
                if next.replace(next.get() + 1) == 2 {
                    return Err("out of memory".to_owned());
                }
                Ok(measured(3.0, None))
            },
        );
        assert_eq!(failed.err().as_deref(), Some("out of memory"));
    }
}
