//! Shadows that a flowgraph requests with `shadow:`, and their results.

use crate::table::{Align, Table};
use crate::terminal::Terminal;
use fxgraph::Control;
use fxgraph::control::ShadowReport;
use fxgraph::difference::StreamDifference;
use fxgraph::runtime::with_causes;
use fxgraph_api::shadows::ShadowInfo;
use serde_json::{Value, json};
use std::time::Duration;

/// Starts the shadows that the flowgraph requests. A shadow that cannot start is only reported.
pub fn start(control: &Control, terminal: &Terminal) {
    for block in &control.plan().blocks {
        let Some(shadow) = &block.shadow else { continue };
        // The shadow was checked with the file; only a lack of memory or a missing block can stop it.
        let started = match control.change(&block.name, &shadow.to_string()) {
            Ok(change) => control.shadow(&change, false).map_err(|error| with_causes(&error)),
            Err(rejected) => Err(rejected.problems.into_iter().map(|p| p.message).collect()),
        };
        if let Err(why) = started {
            terminal.note(&format!("`{}` has no shadow: {why}", block.name));
        }
    }
}

/// Returns the results of the shadows as a table; empty without shadows.
pub fn as_text(shadows: &[ShadowInfo], terminal: &Terminal) -> String {
    use Align::{Left, Right};
    if shadows.is_empty() {
        return String::new();
    }
    let columns = [
        ("shadow of", Left),
        ("implementation", Left),
        ("compared", Right),
        ("different", Right),
        ("values different", Right),
        ("largest", Right),
        ("rms", Right),
        ("dropped", Right),
        ("unpaired", Right),
        ("time/frame", Right),
        ("shadow time/frame", Right),
    ];
    let mut table = Table::new(terminal.coloured_results, &columns);
    for shadow in shadows {
        let time = |seconds: Option<f64>| {
            seconds.map_or("-".to_owned(), |seconds| format!("{:.3} ms", seconds * 1e3))
        };
        // A difference that is not finite has no number.
        let difference = |value: Option<f64>| format!("{:.3e}", value.unwrap_or(f64::INFINITY));
        table.row([
            shadow.block.clone(),
            format!("{} {}", shadow.kind, shadow.implementation),
            shadow.frames_compared.to_string(),
            shadow.frames_different.to_string(),
            format!("{:.4} %", shadow.different_fraction * 100.0),
            difference(shadow.max_difference),
            difference(shadow.rms_difference),
            shadow.frames_dropped.to_string(),
            shadow.frames_alone.to_string(),
            time(shadow.seconds_per_frame),
            time(shadow.shadow_seconds_per_frame),
        ]);
    }
    table.finish()
}

/// Returns the results of one shadow as JSON.
pub fn as_json(shadow: &ShadowReport) -> Value {
    let compared = &shadow.compared;
    let StreamDifference { frames, frames_different, frames_alone, values } = compared.difference;
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    json!({
        "block": shadow.block,
        "kind": shadow.kind,
        "implementation": shadow.implementation,
        "parameters": shadow.parameters,
        "bytes": shadow.bytes,
        "block_bytes": shadow.block_bytes,
        "shadow_bytes": shadow.shadow_bytes,
        "frames_compared": frames,
        "frames_different": frames_different,
        "frames_alone": frames_alone,
        "frames_dropped": compared.frames_dropped,
        "values_compared": values.values,
        "values_different": values.values_different,
        "max_difference": values.max,
        "rms_difference": values.rms(),
        "first_difference_timestamp": compared.first.as_ref().map(|pair| pair.timestamp),
        "seconds_per_frame": seconds(compared.block_time),
        "shadow_seconds_per_frame": seconds(compared.shadow_time),
        "ended": compared.ended,
    })
}
