//! Steady state of a flowgraph on a GPU: no allocation and no wait.

use super::Settings;
use super::run::plan;
use crate::ending::aborted;
use fxgraph::Registry;
use fxgraph::cuda::{self, Calls};
use fxgraph::examples::Example;
use fxgraph::runtime::{self, BlockStats, with_causes};
use std::time::{Duration, Instant};

/// Frames per block before counting starts, and while counting.
const WARM_UP: u64 = 64;
const FRAMES: u64 = 2000;
/// Time between two checks of the statistics.
const LOOK: Duration = Duration::from_millis(5);

/// Runs a flowgraph and counts device allocations and waits for the GPU; any of them is an error.
pub fn run(example: &Example, registry: &Registry, settings: &Settings) -> Result<String, String> {
    let timeout = settings.timeout;
    let assembly = plan(&example.flowgraph, registry, settings)?.build();
    let assembly = assembly.map_err(|error| with_causes(&error))?;
    let running = runtime::start(assembly, runtime::Options::default());
    let running = running.map_err(|error| with_causes(&error))?;
    let began = Instant::now();
    let moved = |frames: u64| {
        let has_moved = |stats: &BlockStats| stats.frames_out.max(stats.frames_in) >= frames;
        while !running.stats().iter().all(has_moved) && !running.wait_timeout(LOOK) {
            if began.elapsed() > timeout {
                return Err(format!("fewer than {frames} frames within {} s", timeout.as_secs()));
            }
        }
        Ok(cuda::calls())
    };
    let before = moved(WARM_UP)?;
    let after = moved(WARM_UP + FRAMES)?;
    if let Some(failure) = aborted(running)?.failures.first() {
        return Err(format!("`{}` failed: {}", failure.block, failure.cause));
    }
    let Calls { allocations, waits } = Calls {
        allocations: after.allocations - before.allocations,
        waits: after.waits - before.waits,
    };
    let said = format!("{allocations} allocations, {waits} waits for the GPU in {FRAMES} frames");
    if before == after { Ok(said) } else { Err(said) }
}
