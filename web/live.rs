//! Rates over the last second, computed by the server once a second, so that all clients see the same
//! rates.

use crate::event_counts::EventCounts;
use crate::history::History;
use fxgraph::Control;
use fxgraph::runtime::BlockStats;
use fxgraph::threads::ThreadTime;
use fxgraph_api::blocks::Rates;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// Time between two samples of the statistics.
const INTERVAL: Duration = Duration::from_secs(1);

/// Rates of a block, as means over the last second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BlockRates {
    /// All inputs and outputs together.
    pub total: Rates,
    /// Frames per second at each input.
    pub inputs: Vec<f64>,
    /// Maximum number of queued frames at each input.
    pub input_peaks: Vec<usize>,
    /// Fraction of the time that each of the block's own threads is busy.
    pub threads: Vec<(&'static str, f64)>,
    /// Data per second that the block drops because it is too slow.
    pub overruns: f64,
    /// Data dropped per second because later blocks are too slow.
    pub held_up: f64,
}

impl BlockRates {
    fn between(
        before: &BlockStats,
        now: &BlockStats,
        seconds: f64,
        input_peaks: Vec<usize>,
    ) -> Self {
        // A swapped block counts from zero again.
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        let share =
            |before: Duration, now: Duration| now.saturating_sub(before).as_secs_f64() / seconds;
        let thread = |thread: &ThreadTime| {
            let known = before.threads.iter().find(|known| known.name == thread.name);
            let before = known.map_or(Duration::ZERO, |known| known.busy);
            (thread.name, share(before, thread.busy))
        };
        let threads: Vec<_> = now.threads.iter().map(thread).collect();
        let busiest = threads.iter().map(|(_, share)| *share).fold(0.0, f64::max);
        let queues = before.queues.iter().zip(&now.queues);
        let total = Rates {
            frames_in_per_second: rate(before.frames_in, now.frames_in),
            frames_out_per_second: rate(before.frames_out, now.frames_out),
            bytes_in_per_second: rate(before.bytes_in, now.bytes_in),
            bytes_out_per_second: rate(before.bytes_out, now.bytes_out),
            busy_fraction: share(before.busy, now.busy).max(busiest),
            device_busy_fraction: share(before.device_busy, now.device_busy),
            input_wait_fraction: share(before.input_wait, now.input_wait),
            room_wait_fraction: share(before.room_wait, now.room_wait),
        };
        let inputs = queues.map(|(before, now)| rate(before.taken, now.taken)).collect();
        let overruns = rate(before.overruns(), now.overruns());
        let held_up = rate(before.held_up(), now.held_up());
        Self { total, inputs, input_peaks, threads, overruns, held_up }
    }
}

type ByBlock = Arc<HashMap<String, BlockRates>>;

/// Rates of all blocks.
#[derive(Default)]
pub(crate) struct Live(RwLock<ByBlock>);

impl Live {
    /// Rates by name of block; empty until two samples were taken while frames flow.
    pub fn rates(&self) -> ByBlock {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Samples `control` once a second: its rates, the gauges for `history`, and its events before the log drops them.
    pub async fn watch(&self, control: &Control, events: &EventCounts, history: &History) {
        let look = || (Instant::now(), control.stats(), control.elapsed());
        let mut before = look();
        // The work below does not add to the interval.
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            events.counts(control);
            let now = look();
            history.sample(&now.1);
            let seconds = (now.0 - before.0).as_secs_f64();
            // No rates while a flowgraph starts.
            let measured = before.1.iter().filter(|_| !before.2.is_zero());
            let known: HashMap<&str, &BlockStats> =
                measured.map(|stats| (stats.name.as_str(), stats)).collect();
            let mut peaks: HashMap<String, Vec<usize>> =
                control.take_queue_peaks().into_iter().collect();
            let rates = now.1.iter().filter_map(|stats| {
                let before = known.get(stats.name.as_str())?;
                let peaks = peaks.remove(&stats.name).unwrap_or_default();
                Some((stats.name.clone(), BlockRates::between(before, stats, seconds, peaks)))
            });
            let rates = Arc::new(rates.collect());
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = rates;
            before = now;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use fxgraph::edge::WhenFull;
    use fxgraph::runtime::{Queue, State};

    pub(crate) fn stats(frames: u64) -> BlockStats {
        BlockStats {
            name: "a".to_owned(),
            kind: "a",
            state: State::Running,
            faults: 0,
            restarts: 0,
            last_fault: None,
            frames_in: frames,
            frames_out: 2 * frames,
            bytes_in: 10 * frames,
            bytes_out: 20 * frames,
            busy: Duration::from_millis(frames),
            threads: vec![ThreadTime { name: "receive", busy: Duration::from_millis(8 * frames) }],
            device_busy: Duration::ZERO,
            device_jobs: None,
            input_wait: Duration::from_millis(2 * frames),
            room_wait: Duration::from_millis(3 * frames),
            newest_timestamp: None,
            lag_seconds: None,
            time_zero: None,
            latencies: None,
            works: frames,
            queues: vec![Queue {
                queued: 0,
                depth: 4,
                taken: frames,
                when_full: WhenFull::Wait,
                dropped: 0,
            }],
            counters: Vec::new(),
            gauges: Vec::new(),
            summary: String::new(),
        }
    }

    #[test]
    fn rates_are_differences_per_second_and_never_negative() {
        let rates = BlockRates::between(&stats(100), &stats(300), 2.0, vec![3]);
        let total = Rates {
            frames_in_per_second: 100.0,
            frames_out_per_second: 200.0,
            bytes_in_per_second: 1000.0,
            bytes_out_per_second: 2000.0,
            busy_fraction: 0.8,
            device_busy_fraction: 0.0,
            input_wait_fraction: 0.2,
            room_wait_fraction: 0.3,
        };
        let expected = BlockRates {
            total,
            inputs: vec![100.0],
            input_peaks: vec![3],
            threads: vec![("receive", 0.8)],
            overruns: 0.0,
            held_up: 0.0,
        };
        assert_eq!(rates, expected);
        let swapped = BlockRates::between(&stats(300), &stats(0), 1.0, Vec::new());
        let threads = vec![("receive", 0.0)];
        assert_eq!(swapped, BlockRates { inputs: vec![0.0], threads, ..BlockRates::default() });
    }
}
