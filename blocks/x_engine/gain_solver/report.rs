//! Table of the solutions, and limits of the last one.

use super::GainSolver;
use fxgraph::{BlockError, Summary};
use std::fmt::Write;

/// Solutions in the table: the first ones.
const MAX_ROWS: usize = 20;

/// Errors of a solution, before its update.
#[derive(Clone, Copy, Debug)]
pub(super) struct Errors {
    /// Number of the dump with which the solution ends, from 1.
    pub(super) dump: u64,
    pub(super) amplitude: f64,
    pub(super) phase_degrees: f64,
    pub(super) residual: f64,
}

/// Errors of the first solutions and of the last one.
#[derive(Default)]
pub(super) struct Report {
    table: Vec<Errors>,
    last: Option<Errors>,
}

impl Report {
    /// Adds a solution.
    pub(super) fn add(&mut self, errors: Errors) {
        self.last = Some(errors);
        if self.table.len() < MAX_ROWS {
            self.table.push(errors);
        }
    }

    /// Writes the table to the summary.
    ///
    /// # Errors
    /// If the last solution exceeds a limit, or if there is none.
    pub(super) fn conclude(
        &self,
        parameters: &GainSolver,
        summary: &Summary,
    ) -> Result<(), BlockError> {
        let mut text = String::from("  dump   amplitude error   phase error   residual\n");
        for errors in &self.table {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}", row(errors));
        }
        if let Some(last) = self.last.filter(|last| self.table.iter().all(|e| e.dump != last.dump))
        {
            let _ = writeln!(text, "{}  (last)", row(&last));
        }
        summary.set(text);
        let GainSolver { max_phase_error_degrees, max_amplitude_error, .. } = parameters;
        let Some(last) = self.last else {
            let has_limit = max_phase_error_degrees.is_some() || max_amplitude_error.is_some();
            return if has_limit { Err(BlockError::new("there is no solution")) } else { Ok(()) };
        };
        for (error, most, quantity, unit) in [
            (last.phase_degrees, max_phase_error_degrees, "phase", " degrees"),
            (last.amplitude, max_amplitude_error, "relative amplitude", ""),
        ] {
            if let Some(most) = most.filter(|most| error > *most) {
                return Err(BlockError::new(format!(
                    "the largest error of a {quantity} is {error:.4}{unit}, the limit is {most}"
                )));
            }
        }
        Ok(())
    }
}

fn row(errors: &Errors) -> String {
    let Errors { dump, amplitude, phase_degrees, residual } = errors;
    format!("{dump:>6} {:>15.3} % {phase_degrees:>9.3} deg {residual:>10.5}", amplitude * 100.0)
}
