//! Blocks: ports, parameters, statistics, faults.

use super::ports::carries;
use crate::app::App;
use crate::live::BlockRates;
use crate::metrics::sample_age;
use crate::problem::Problem;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use fxgraph::DeviceName;
use fxgraph::device_jobs::JobTimes;
use fxgraph::diagnostic::suggest;
use fxgraph::flowgraph::{Plan, PlannedBlock};
use fxgraph::gauge::NamedGauge;
use fxgraph::runtime::{
    BlockStats, Failure, LATENCY_BOUNDS_SECONDS, Latencies, State as BlockState,
};
use fxgraph::threads::ThreadTime;
use fxgraph_api::blocks::{
    BlockPage, BlockSummary, CounterInfo, DeviceJobsInfo, Fault, GaugeInfo, InputInfo, LatencyInfo,
    OutputInfo, SourceFrameInfo, ThreadInfo, Totals,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) fn fault(failure: Failure) -> Fault {
    Fault { block: failure.block, cause: failure.cause, is_panic: failure.panic }
}

fn gauge(named: &NamedGauge) -> GaugeInfo {
    let (label, label_value) = named.label.clone().unzip();
    GaugeInfo {
        name: named.name.to_owned(),
        label: label.map(str::to_owned),
        label_value,
        value: named.gauge.get(),
        help: named.help.to_owned(),
    }
}

fn latency(latencies: &Latencies) -> LatencyInfo {
    let frames: u64 = latencies.counts.iter().sum();
    let mut seen = 0;
    let class = latencies.counts.iter().position(|count| {
        seen += count;
        seen * 100 >= frames * 99
    });
    LatencyInfo {
        frames,
        mean_seconds: (frames > 0).then(|| latencies.sum.as_secs_f64() / frames as f64),
        within_seconds: class
            .filter(|_| frames > 0)
            .and_then(|class| LATENCY_BOUNDS_SECONDS.get(class).copied()),
    }
}

fn content_files(block: &PlannedBlock) -> Vec<String> {
    let files = block.configured.content_files().into_iter();
    let absolute = files.filter_map(|file| std::path::absolute(file).ok());
    absolute.map(|file| file.display().to_string()).collect()
}

fn device_jobs(times: JobTimes) -> DeviceJobsInfo {
    DeviceJobsInfo {
        jobs: times.jobs,
        p50_seconds: times.p50.as_secs_f64(),
        p99_seconds: times.p99.as_secs_f64(),
    }
}

/// Snapshot of a flowgraph: its blocks with their statistics.
pub(super) struct Look {
    stats: HashMap<String, BlockStats>,
    rates: Arc<HashMap<String, BlockRates>>,
}

impl Look {
    pub fn at(app: &App) -> Self {
        let stats = app.control.stats().into_iter().map(|stats| (stats.name.clone(), stats));
        Self { stats: stats.collect(), rates: app.live.rates() }
    }

    /// Statistics of a block; `None` for a block added after this snapshot.
    pub fn stats(&self, block: &PlannedBlock) -> Option<&BlockStats> {
        self.stats.get(&block.name)
    }

    /// Lag in seconds and name of the block with the largest lag, without side branches that drop frames.
    pub fn lag(&self, plan: &Plan) -> Option<(f64, String)> {
        let blocks = plan.blocks.iter().zip(plan.side_branches()).filter(|(_, is_aside)| !is_aside);
        let lags = blocks.filter_map(|(block, _)| {
            let stats = self.stats(block)?;
            Some((stats.lag_seconds?, &stats.name))
        });
        let by_lag = |one: &(f64, _), other: &(f64, _)| one.0.total_cmp(&other.0);
        lags.max_by(by_lag).map(|(lag, name)| (lag, name.clone()))
    }

    pub fn rates(&self, block: &PlannedBlock) -> Option<&BlockRates> {
        self.rates.get(&block.name)
    }

    fn summary(&self, block: &PlannedBlock) -> BlockSummary {
        let stats = self.stats(block);
        let count = |figure: fn(&BlockStats) -> u64| stats.map_or(0, figure);
        let on_device = block.device != DeviceName::Cpu;
        BlockSummary {
            name: block.name.clone(),
            kind: block.kind.to_owned(),
            device: block.device.to_string(),
            implementation: block.implementation.to_owned(),
            state: stats.map_or(BlockState::Starting, |stats| stats.state).name().to_owned(),
            on_fault: block.on_fault.name().to_owned(),
            fault: stats.and_then(|stats| stats.last_fault.clone()).map(fault),
            totals: Totals {
                frames_in: count(|stats| stats.frames_in),
                frames_out: count(|stats| stats.frames_out),
                bytes_in: count(|stats| stats.bytes_in),
                bytes_out: count(|stats| stats.bytes_out),
                works: count(|stats| stats.works),
                busy_seconds: stats.map_or(0.0, |stats| stats.busy.as_secs_f64()),
                input_wait_seconds: stats.map_or(0.0, |stats| stats.input_wait.as_secs_f64()),
                room_wait_seconds: stats.map_or(0.0, |stats| stats.room_wait.as_secs_f64()),
                device_busy_seconds: stats
                    .filter(|_| on_device)
                    .map(|stats| stats.device_busy.as_secs_f64()),
                losses: count(BlockStats::losses),
                faults: count(|stats| stats.faults),
                restarts: count(|stats| stats.restarts),
            },
            rates: self.rates(block).map(|rates| rates.total.clone()),
            lag_seconds: stats.and_then(|stats| stats.lag_seconds),
            latency: stats.and_then(|stats| stats.latencies.as_ref()).map(latency),
        }
    }

    fn threads(&self, block: &PlannedBlock) -> Vec<ThreadInfo> {
        let fraction = |name: &str| {
            let mut known = self.rates(block)?.threads.iter();
            known.find(|known| known.0 == name).map(|known| known.1)
        };
        let threads = self.stats(block).map_or(&[][..], |stats| &stats.threads);
        let info = |thread: &ThreadTime| ThreadInfo {
            name: thread.name.to_owned(),
            busy_seconds: thread.busy.as_secs_f64(),
            busy_fraction: fraction(thread.name),
        };
        threads.iter().map(info).collect()
    }

    fn page(&self, app: &App, plan: &Plan, index: usize) -> BlockPage {
        let block = &plan.blocks[index];
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let queue = |input: usize| self.stats(block)?.queues.get(input).copied();
        let inputs = block.inputs.iter().zip(&block.ports.inputs).enumerate();
        let outputs = block.ports.outputs.iter().enumerate();
        let reader = |(reader, input): (usize, usize)| {
            let reader = &plan.blocks[reader];
            format!("{}.{}", reader.name, reader.input_names[input])
        };
        let counters = self.stats(block).map_or(&[][..], |stats| &stats.counters);
        BlockPage {
            summary: self.summary(block),
            inputs: inputs
                .map(|(input, ((from, port), port_type))| InputInfo {
                    name: block.input_names[input].clone(),
                    from: format!(
                        "{}.{}",
                        plan.blocks[*from].name, plan.blocks[*from].output_names[*port]
                    ),
                    carries: carries(port_type),
                    queued_frames: queue(input).map_or(0, |queue| queue.queued),
                    queue_peak_frames: self
                        .rates(block)
                        .and_then(|rates| rates.input_peaks.get(input).copied()),
                    queue_frames: queue(input)
                        .map_or_else(|| block.queue_frames(input), |queue| queue.depth),
                    when_full: queue(input)
                        .map_or(block.when_full[input], |queue| queue.when_full)
                        .name()
                        .to_owned(),
                    frames_dropped: queue(input).map_or(0, |queue| queue.dropped),
                    frames_per_second: self
                        .rates(block)
                        .and_then(|rates| rates.inputs.get(input).copied()),
                })
                .collect(),
            outputs: outputs
                .map(|(output, port_type)| OutputInfo {
                    name: block.output_names[output].clone(),
                    to: plan.readers(index, output).map(reader).collect(),
                    carries: carries(port_type),
                })
                .collect(),
            parameters: serde_json::Value::clone(&block.parameters),
            content_files: content_files(block),
            parameters_schema: app
                .control
                .registry()
                .get(block.kind)
                .map(|kind| (kind.schema)().to_value()),
            threads: self.threads(block),
            counters: counters
                .iter()
                .map(|named| CounterInfo {
                    name: named.name.to_owned(),
                    count: named.counter.get(),
                    is_loss: named.is_loss,
                    help: named.help.to_owned(),
                })
                .collect(),
            gauges: self
                .stats(block)
                .map_or_else(Vec::new, |stats| stats.gauges.iter().map(gauge).collect()),
            frame: block.frame.as_ref().map(|frame| SourceFrameInfo {
                parameter: frame.parameter.to_owned(),
                samples: frame.samples,
                seconds: frame.seconds,
                latency_seconds: frame.latency_seconds,
                why: frame.why(),
            }),
            newest_timestamp: self.stats(block).and_then(|stats| stats.newest_timestamp),
            sample_age_seconds: self.stats(block).and_then(|stats| sample_age(block, stats, now)),
            device_jobs: self.stats(block).and_then(|stats| stats.device_jobs).map(device_jobs),
            text: self.stats(block).map_or_else(String::new, |stats| stats.summary.clone()),
        }
    }
}

/// All blocks with their statistics
#[utoipa::path(get, path = "/blocks", tag = "blocks", operation_id = "list_blocks",
    responses((status = 200, description = "in the order of the flowgraph", body = Vec<BlockSummary>)))]
pub(super) async fn list(State(app): State<App>) -> Json<Vec<BlockSummary>> {
    let look = Look::at(&app);
    Json(app.control.plan().blocks.iter().map(|block| look.summary(block)).collect())
}

/// One block: ports, parameters, statistics, faults
#[utoipa::path(get, path = "/blocks/{name}", tag = "blocks", operation_id = "get_block",
    params(("name" = String, Path, description = "name of the block, like `f[0].pfb`", example = "source")),
    responses(
        (status = 200, description = "the block", body = BlockPage),
        (status = 404, description = "unknown block"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<BlockPage>, Problem> {
    let (plan, index) = find(&app, &name)?;
    Ok(Json(Look::at(&app).page(&app, &plan, index)))
}

/// Returns the plan with the values in force, and the index of the block called `name` in it.
pub(super) fn find(app: &App, name: &str) -> Result<(Arc<Plan>, usize), Problem> {
    let plan = app.control.plan_in_force();
    if let Some(index) = plan.block(name) {
        return Ok((plan, index));
    }
    let known: Vec<&str> = plan.blocks.iter().map(|block| block.name.as_str()).collect();
    Err(Problem::new(StatusCode::NOT_FOUND, format!("there is no block `{name}`"))
        .maybe_help(suggest(name, "block", &known)))
}
