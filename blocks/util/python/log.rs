//! Lines that a block in Python writes, as log and events of the run.

use super::process::Log;
use fxgraph::Env;
use fxgraph::event::EventKind;
use std::time::{Duration, Instant};

/// Largest number of warnings, and of other lines, per second that are passed on, and of warnings that become events.
const LINES_PER_SECOND: u64 = 100;
const EVENTS_PER_SECOND: u64 = 5;
/// Syslog level of warnings.
const WARNING: u8 = 4;

/// Returns a function that passes on lines of the block in `env`.
pub fn of_block(env: &Env) -> Log {
    let (name, events) = (env.name.clone(), env.events.clone());
    let dropped = env.counters.count(
        "log_lines_dropped",
        "lines that the block wrote beyond 100 lines per second; write less per frame",
    );
    let (mut began, mut lines, mut told) = (Instant::now(), [0_u64; 2], 0);
    Box::new(move |level, line| {
        if began.elapsed() > Duration::from_secs(1) {
            (began, lines, told) = (Instant::now(), [0; 2], 0);
        }
        // Warnings have a limit of their own, so that other lines do not hide them.
        let lines = &mut lines[usize::from(level <= WARNING)];
        *lines += 1;
        if *lines > LINES_PER_SECOND {
            dropped.add(1);
            return;
        }
        match level {
            0..=WARNING => tracing::warn!(block = name, "{line}"),
            5 | 6 => tracing::info!(block = name, "{line}"),
            _ => tracing::debug!(block = name, "{line}"),
        }
        if level <= WARNING && told < EVENTS_PER_SECOND {
            told += 1;
            events.add(EventKind::Warning, line);
        }
    })
}
