//! Loads of all blocks of a running flowgraph, from which `fxgraph plan` estimates those of other flowgraphs.

use crate::ending::aborted;
use fxgraph::flowgraph::{Load, MeasuredLoad, Plan, PlannedBlock, Work};
use fxgraph::runtime::{self, BlockStats, with_causes};
use std::time::Duration;

/// Runs `plan` for `time`, after a warm-up of a third of that, at the rate of its sources.
pub fn run(plan: &Plan, time: Duration) -> Result<Vec<MeasuredLoad>, String> {
    let assembly = plan.build().map_err(|error| with_causes(&error))?;
    let running = runtime::start(assembly, runtime::Options::default());
    let running = running.map_err(|error| with_causes(&error))?;
    let mut ended = running.wait_timeout(time / 3);
    let before = Totals::of(&running);
    ended = ended || running.wait_timeout(time);
    let after = Totals::of(&running);
    let report = aborted(running)?;
    if let Some(failure) = report.failures.first() {
        return Err(failure.to_string());
    }
    if ended {
        return Err(
            "the flowgraph ended before the measurement; give more frames, or a shorter --time"
                .to_owned(),
        );
    }
    let loads = loads(plan, &before, &after);
    if loads.is_empty() {
        return Err(
            "no block has processed a frame; start the senders, or give a longer --time".to_owned()
        );
    }
    Ok(loads)
}

/// Statistics and CPU time of a flowgraph of this process since its start.
pub struct Totals {
    /// Statistics of its blocks.
    pub blocks: Vec<BlockStats>,
    /// CPU time of the process.
    cpu: Duration,
}

impl Totals {
    pub fn of(running: &runtime::Running) -> Self {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let cpu = Duration::new(cpu.tv_sec.unsigned_abs(), cpu.tv_nsec as u32);
        Self { blocks: running.stats(), cpu }
    }
}

/// Loads between two times. Blocks without new frames have none.
pub fn loads(plan: &Plan, before: &Totals, after: &Totals) -> Vec<MeasuredLoad> {
    let both = || before.blocks.iter().zip(&after.blocks);
    // Blocks are busy while they wait for a core, and the runtime works between their calls: what the process used is
    // divided among them as they were busy.
    let busy: Duration = both().map(|(a, b)| all_threads(b).saturating_sub(all_threads(a))).sum();
    let used = after.cpu.saturating_sub(before.cpu);
    let scale = if busy.is_zero() { 1.0 } else { used.as_secs_f64() / busy.as_secs_f64() };
    let blocks = plan.blocks.iter().zip(both());
    blocks.filter_map(|(block, (a, b))| load(block, a, b, scale)).collect()
}

fn all_threads(block: &BlockStats) -> Duration {
    block.busy + block.threads.iter().map(|thread| thread.busy).sum::<Duration>()
}

fn load(
    block: &PlannedBlock,
    before: &BlockStats,
    after: &BlockStats,
    scale: f64,
) -> Option<MeasuredLoad> {
    let samples = after.newest_timestamp?.checked_sub(before.newest_timestamp?)?;
    let seconds = samples as f64 / block.ports.clock()?.adc_sample_rate_hz;
    if seconds <= 0.0 {
        return None;
    }
    let share =
        |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64() / seconds;
    let own = share(after.busy, before.busy);
    // Threads are in the order of their start, and stay.
    let threads = before.threads.iter().zip(&after.threads);
    let threads: Vec<f64> = threads.map(|(a, b)| share(b.busy, a.busy)).collect();
    Some(MeasuredLoad {
        kind: block.kind.to_owned(),
        implementation: block.implementation.to_owned(),
        parameters: serde_json::Value::clone(&block.parameters),
        work: Work::of(block),
        load: Load {
            cores: scale * (own + threads.iter().sum::<f64>()),
            busiest_thread: scale * threads.iter().copied().fold(own, f64::max),
            gpu: share(after.device_busy, before.device_busy),
        },
    })
}
