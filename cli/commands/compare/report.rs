//! What a comparison showed, for people, for programs and for CI.

use crate::failure::Failure;
use crate::table::{Align, Table};
use crate::terminal::{Paint, Terminal};
use crate::units;
use fxgraph::difference::StreamDifference;
use serde_json::{Value, json};

/// One of the two that are compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Side {
    pub name: String,
    /// Time it works on a frame.
    pub seconds_per_frame: Option<f64>,
    /// Memory of its own and of the frames it makes.
    pub memory_bytes: Option<u64>,
}

/// What a comparison showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub a: Side,
    pub b: Side,
    /// What is different in their frames.
    pub difference: StreamDifference,
    /// Frames that a shadow was too slow for.
    pub frames_dropped: u64,
    /// Time of the first pair that differs, in ADC samples.
    pub first_difference_timestamp: Option<u64>,
    /// Place of the first value that differs, where two arrays are compared.
    pub first_difference_index: Option<Vec<u64>>,
    /// Why it ended before its end.
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
        // Arrays have none.
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
            text += &format!("it ended early: {why}\n");
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

    /// An error if nothing was compared, or a difference is larger than `max_error`.
    pub fn verdict(&self, max_error: Option<f64>) -> Result<(), Failure> {
        let values = self.difference.values;
        if values.values == 0 {
            let why = "nothing was compared: no frames of one time and one validity came from both, or the arrays \
                       are empty";
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
}

fn others(what: &str, count: u64) -> String {
    if count > 0 { format!(", {count} {what}") } else { String::new() }
}

fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite())
}

/// A share in percent, also where it is tiny.
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
    fn the_limit_itself_is_no_error_and_infinity_is_more_than_any() {
        assert!(report(2.0).verdict(None).is_ok());
        assert!(report(2.0).verdict(Some(2.0)).is_ok());
        assert!(report(2.001).verdict(Some(2.0)).is_err());
        assert!(report(f64::INFINITY).verdict(Some(1e300)).is_err());
        assert_eq!(report(f64::INFINITY).as_json()["max_difference"], Value::Null);
    }

    #[test]
    fn a_comparison_of_nothing_is_an_error() {
        assert!(Report::default().verdict(None).is_err());
    }
}
