//! Report of a comparison as text and JSON, and its verdict.

use crate::failure::Failure;
use crate::table::{Align, Table};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph::difference::StreamDifference;
use serde_json::{Value, json};

/// One side of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    pub name: String,
    /// Processing time per frame.
    pub seconds_per_frame: Option<f64>,
    /// Memory of the block and of its output frames.
    pub memory_bytes: Option<u64>,
}

/// Report of a comparison.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub a: Side,
    pub b: Side,
    /// Differences between the frames.
    pub difference: StreamDifference,
    /// Frames dropped because the shadow was too slow.
    pub frames_dropped: u64,
    /// Timestamp of the first pair that differs, in ADC samples.
    pub first_difference_timestamp: Option<u64>,
    /// Indices of the first value that differs, for two arrays.
    pub first_difference_index: Option<Vec<u64>>,
    /// Reason for an early end.
    pub ended: Option<String>,
}

impl Report {
    pub fn as_text(&self, terminal: &Terminal) -> String {
        let mut text = String::new();
        for (letter, side) in [("a", &self.a), ("b", &self.b)] {
            text += &format!("{}  {}\n", terminal.paint(Paint::Bold, letter), side.name);
        }
        let sides = [&self.a, &self.b];
        if sides
            .iter()
            .any(|side| side.seconds_per_frame.or(side.memory_bytes.map(|_| 0.0)).is_some())
        {
            let columns = [("", Align::Left), ("a", Align::Right), ("b", Align::Right)];
            let mut table = Table::new(terminal.coloured_results, &columns);
            let cells = |what: &str, cell: fn(&Side) -> Option<String>| {
                let cells = sides.map(|side| cell(side).unwrap_or("-".to_owned()));
                [what.to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
            };
            table.row(cells("time per frame", |side| {
                Some(format!("{:.3} ms", side.seconds_per_frame? * 1e3))
            }));
            table.row(cells("memory", |side| Some(units::bytes(side.memory_bytes? as f64))));
            text += &format!("\n{}", table.finish());
        }
        let StreamDifference { frames, frames_different, frames_alone, values } = self.difference;
        text.push('\n');
        // Arrays have no frames.
        if frames + frames_alone + self.frames_dropped > 0 {
            text += &format!(
                "{frames} frames compared, {frames_different} different{}{}\n",
                others("without counterpart", frames_alone),
                others("dropped", self.frames_dropped),
            );
        }
        text += &format!(
            "{} values compared, {} different ({})\n",
            values.values,
            values.values_different,
            share(values.share()),
        );
        let verdict = if values.values_different == 0 { Paint::Good } else { Paint::Bad };
        let differences = format!(
            "largest difference {}, rms {}",
            units::three_digits(values.max),
            units::three_digits(values.rms())
        );
        text += &format!("{}\n", terminal.paint(verdict, &differences));
        if let Some(timestamp) = self.first_difference_timestamp {
            text += &format!("first difference in the frame of timestamp {timestamp}\n");
        }
        if let Some(index) = &self.first_difference_index {
            text += &format!("first difference at {index:?}\n");
        }
        if let Some(why) = &self.ended {
            text += &format!("ended early: {why}\n");
        }
        text
    }

    pub fn as_json(&self) -> Value {
        let side = |side: &Side| {
            json!({
                "name": side.name,
                "seconds_per_frame": side.seconds_per_frame,
                "memory_bytes": side.memory_bytes,
            })
        };
        let StreamDifference { frames, frames_different, frames_alone, values } = self.difference;
        json!({
            "a": side(&self.a),
            "b": side(&self.b),
            "frames_compared": frames,
            "frames_different": frames_different,
            "frames_alone": frames_alone,
            "frames_dropped": self.frames_dropped,
            "values_compared": values.values,
            "values_different": values.values_different,
            "different_fraction": values.share(),
            // JSON has no infinity.
            "max_difference": finite(values.max),
            "rms_difference": finite(values.rms()),
            "first_difference_timestamp": self.first_difference_timestamp,
            "first_difference_index": self.first_difference_index,
            "ended": self.ended,
        })
    }

    /// Returns an error if nothing was compared, or if a difference exceeds `max_error`.
    pub fn verdict(&self, max_error: Option<f64>) -> Result<(), Failure> {
        let values = self.difference.values;
        if values.values == 0 {
            let why = "nothing was compared: no two frames have the same timestamp and validity, or the arrays are \
                       empty";
            return Err(Failure::failed(why));
        }
        match max_error {
            Some(limit) if values.max > limit => Err(Failure::failed(format!(
                "the largest difference is {}, more than {limit} (`--max-error`)",
                values.max
            ))),
            _ => Ok(()),
        }
    }

    /// Returns an error if frames have no counterpart and `max_error` is set: they differ by more than any number.
    pub fn frames_missing(&self, max_error: Option<f64>) -> Result<(), Failure> {
        match self.difference.frames_alone {
            0 => Ok(()),
            _ if max_error.is_none() => Ok(()),
            alone => Err(Failure::failed(format!(
                "{alone} frames are in one of the recordings only (`--max-error`)"
            ))),
        }
    }
}

fn others(what: &str, count: u64) -> String {
    if count > 0 { format!(", {count} {what}") } else { String::new() }
}

fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}

/// Formats a fraction as percent with three significant digits.
fn share(share: f64) -> String {
    format!("{} %", units::three_digits(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fxgraph::difference::Difference;

    fn report(max: f64) -> Report {
        let values =
            Difference { values: 10, values_different: 1, max, squares: max * max, power: 0.0 };
        let difference = StreamDifference { values, ..StreamDifference::default() };
        Report { difference, ..Report::default() }
    }

    #[test]
    fn verdict_accepts_difference_equal_to_limit_and_rejects_infinity() {
        assert!(report(2.0).verdict(None).is_ok());
        assert!(report(2.0).verdict(Some(2.0)).is_ok());
        assert!(report(2.001).verdict(Some(2.0)).is_err());
        assert!(report(f64::INFINITY).verdict(Some(1e300)).is_err());
        assert_eq!(report(f64::INFINITY).as_json()["max_difference"], Value::Null);
    }

    #[test]
    fn frames_of_one_recording_only_exceed_any_limit() {
        let mut report = report(0.0);
        assert!(report.frames_missing(Some(1.0)).is_ok());
        report.difference.frames_alone = 1;
        assert!(report.frames_missing(Some(1.0)).is_err());
        assert!(report.frames_missing(None).is_ok());
    }

    #[test]
    fn verdict_rejects_empty_comparison() {
        assert!(Report::default().verdict(None).is_err());
    }
}
