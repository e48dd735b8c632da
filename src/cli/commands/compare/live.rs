//! Comparison with a shadow in a running flowgraph, started and ended over REST.

use super::report::{Report, Side};
use crate::client::{Client, in_path};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::units;
use fxgraph::difference::{Difference, StreamDifference};
use fxgraph_api::blocks::BlockPage;
use fxgraph_api::shadows::ShadowInfo;
use serde_json::Value;
use std::time::{Duration, Instant};
use ureq::http::Method;

/// Time between two requests for the shadow's statistics.
const INTERVAL: Duration = Duration::from_millis(500);

/// The arrays of the first pair that differs, `.npy`.
pub type Pair = [Vec<u8>; 2];

/// Runs a shadow of `block` with the changes `variant` until `duration` is over, a signal arrives, or the
/// shadow ends. Returns the report, and the first pair that differs if `keeps_pair`.
pub fn shadow(
    client: &Client,
    block: &str,
    variant: &Value,
    (duration, stops_at_difference): (Option<Duration>, bool),
    keeps_pair: bool,
    terminal: &Terminal,
) -> Result<(Report, Option<Pair>), Failure> {
    let signals = Signals::count()?;
    let path = format!("/api/v1/blocks/{}", in_path(block));
    let shadow = format!("{path}/shadow");
    let start = format!("{shadow}?stop_at_first_difference={stops_at_difference}");
    let told: BlockPage = client.get(&path)?;
    let _: Value = client.send(Method::POST, &start, Some(variant))?;
    let watched = watch(client, &shadow, duration, &signals, terminal);
    let pair = match &watched {
        Ok(seen) if keeps_pair && seen.values_different > 0 => {
            let side = |side: &str| {
                let array = client.bytes(&format!("{shadow}/first_difference/{side}"));
                array.map(|(_, bytes)| bytes)
            };
            side("block").and_then(|a| Ok([a, side("shadow")?])).map(Some)
        }
        _ => Ok(None),
    };
    // The shadow is removed even if the comparison failed.
    let ended = client.send::<ShadowInfo>(Method::DELETE, &shadow, None);
    let seen = match (watched, ended) {
        (Ok(_), Ok(last)) => last,
        // The flowgraph has ended, and with it the shadow.
        (Ok(seen), Err(_)) => seen,
        (Err(failure), _) => return Err(failure),
    };
    Ok((report(block, told, seen), pair?))
}

/// Shows progress and returns the last statistics of the shadow.
fn watch(
    client: &Client,
    shadow: &str,
    duration: Option<Duration>,
    signals: &Signals,
    terminal: &Terminal,
) -> Result<ShadowInfo, Failure> {
    let progress = terminal.progress();
    let start = Instant::now();
    let mut seen: ShadowInfo = client.get(shadow)?;
    loop {
        let is_over = duration.is_some_and(|duration| start.elapsed() >= duration);
        if is_over || signals.look() > 0 || seen.ended.is_some() {
            return Ok(seen);
        }
        if let Some(line) = &progress {
            line.0.set_message(format!(
                "{}  {} frames compared, {} different  {} dropped",
                units::elapsed(start.elapsed()),
                seen.frames_compared,
                seen.frames_different,
                seen.frames_dropped
            ));
            line.0.tick();
        }
        signals.wait(INTERVAL);
        match client.get(shadow) {
            Ok(newer) => seen = newer,
            // The flowgraph has ended: the last statistics are the result.
            Err(_) if seen.frames_compared > 0 => return Ok(seen),
            Err(failure) => return Err(failure),
        }
    }
}

fn report(block: &str, told: BlockPage, seen: ShadowInfo) -> Report {
    // REST reports a difference that is not finite as `null`.
    let finite_or_infinity = |value: Option<f64>| value.unwrap_or(f64::INFINITY);
    let values = Difference {
        values: seen.values_compared,
        values_different: seen.values_different,
        max: finite_or_infinity(seen.max_difference),
        squares: finite_or_infinity(seen.rms_difference).powi(2) * seen.values_compared as f64,
        // The REST API does not report the power.
        power: 0.0,
    };
    Report {
        a: Side {
            name: format!("{block}: {} {}", told.summary.kind, told.summary.implementation),
            seconds_per_frame: seen.seconds_per_frame,
            memory_bytes: Some(seen.memory_bytes as u64),
        },
        b: Side {
            name: format!("{block} (b): {} {}", seen.kind, seen.implementation),
            seconds_per_frame: seen.shadow_seconds_per_frame,
            memory_bytes: Some(seen.shadow_memory_bytes as u64),
        },
        difference: StreamDifference {
            frames: seen.frames_compared,
            frames_different: seen.frames_different,
            frames_alone: seen.frames_alone,
            values,
        },
        frames_dropped: seen.frames_dropped,
        first_difference_timestamp: seen.first_difference_timestamp,
        first_difference_index: None,
        ended: seen.ended,
    }
}
