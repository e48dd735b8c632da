//! Blocks: ports, parameters, statistics, faults.

use super::types::Carries;
use crate::app::App;
use crate::live::Rates;
use crate::metrics::sample_age;
use crate::problem::Problem;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use fxgraph::DeviceName;
use fxgraph::counter::NamedGauge;
use fxgraph::device_jobs::JobTimes;
use fxgraph::diagnostic::suggest;
use fxgraph::flowgraph::{Plan, PlannedBlock};
use fxgraph::runtime::{
    BlockStats, Failure, LATENCY_BOUNDS_SECONDS, Latencies, State as BlockState,
};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;

/// A fault of a block.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct Fault {
    /// Name of the block.
    block: String,
    /// Cause of the fault.
    cause: String,
    /// Whether the block panicked, which is a bug in the program.
    is_panic: bool,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self { block: failure.block, cause: failure.cause, is_panic: failure.panic }
    }
}

/// Totals of a block since the start.
#[derive(Serialize, ToSchema)]
pub(super) struct Totals {
    /// Input frames, all inputs together.
    frames_in: u64,
    /// Output frames, all outputs together.
    frames_out: u64,
    /// Input payload bytes.
    bytes_in: u64,
    /// Output payload bytes.
    bytes_out: u64,
    /// Number of calls of `work`.
    works: u64,
    /// Time spent working.
    busy_seconds: f64,
    /// Time spent waiting for input frames; for a source, for external data.
    input_wait_seconds: f64,
    /// Time spent waiting for space in output queues.
    room_wait_seconds: f64,
    /// GPU time spent on frames of the block; `null` for a block on the CPU.
    device_busy_seconds: Option<f64>,
    /// Missing and dropped data, all causes together, each in its own unit.
    losses: u64,
    /// Number of faults, including those that the block survived.
    faults: u64,
    /// Number of restarts after a fault.
    restarts: u64,
}

/// Summary of a block.
#[derive(Serialize, ToSchema)]
pub(super) struct BlockSummary {
    /// Name in the flowgraph.
    #[schema(example = "f[0].pfb")]
    name: String,
    /// Kind.
    #[schema(example = "pfb")]
    kind: &'static str,
    /// Device.
    #[schema(example = "cpu")]
    device: String,
    /// Implementation.
    #[schema(example = "cpu")]
    implementation: &'static str,
    /// State: starting, running, stalled (no frame passes), finished or failed.
    #[schema(example = "running")]
    state: &'static str,
    /// Policy after a fault: stop, skip or restart.
    #[schema(example = "stop")]
    on_fault: &'static str,
    /// The last fault, if any.
    fault: Option<Fault>,
    /// Totals since the start.
    totals: Totals,
    /// Rates over the last second; `null` in the first second.
    rates: Option<Rates>,
    /// Delay of the newest sample relative to real time; `null` before the first sample and after the end.
    lag_seconds: Option<f64>,
    /// Latency from the sources, for a sink.
    latency: Option<LatencyInfo>,
}

/// An input with its queue.
#[derive(Serialize, ToSchema)]
struct InputInfo {
    /// Name.
    name: String,
    /// The connected output.
    #[schema(example = "source.output")]
    from: String,
    /// Type of the frames.
    carries: Carries,
    /// Number of queued frames.
    queued_frames: usize,
    /// Maximum number of queued frames in the last second; `null` in the first second.
    queue_peak_frames: Option<usize>,
    /// Capacity of the queue in frames.
    queue_frames: usize,
    /// Input frames per second; `null` in the first second.
    frames_per_second: Option<f64>,
}

/// An output with its readers.
#[derive(Serialize, ToSchema)]
struct OutputInfo {
    /// Name.
    name: String,
    /// The inputs that read it.
    to: Vec<String>,
    /// Type of the frames.
    carries: Carries,
}

/// A counter of a block.
#[derive(Serialize, ToSchema)]
struct CounterInfo {
    /// Name of the counter.
    #[schema(example = "heaps_missing")]
    name: &'static str,
    /// Value.
    count: u64,
    /// Whether it counts missing or dropped data.
    is_loss: bool,
    /// Meaning, and advice for a growing value.
    help: &'static str,
}

/// A gauge of a block.
#[derive(Serialize, ToSchema)]
struct GaugeInfo {
    /// Name, with the unit as suffix.
    #[schema(example = "digitiser_level_dbfs")]
    name: &'static str,
    /// Name of the label that distinguishes gauges of the same name; `null` for a single gauge.
    #[schema(example = "input")]
    label: Option<&'static str>,
    /// Value of the label.
    #[schema(example = "0")]
    label_value: Option<String>,
    /// Value; `null` while unknown.
    value: Option<f64>,
    /// Meaning, and advice.
    help: &'static str,
}

impl From<&NamedGauge> for GaugeInfo {
    fn from(named: &NamedGauge) -> Self {
        let label = named.label.clone();
        Self {
            name: named.name,
            label: label.as_ref().map(|(name, _)| *name),
            label_value: label.map(|(_, value)| value),
            value: named.gauge.get(),
            help: named.help,
        }
    }
}

/// Latency of frames from the source to a sink.
#[derive(Serialize, ToSchema)]
struct LatencyInfo {
    /// Number of frames measured.
    frames: u64,
    /// Mean latency; `null` before the first frame.
    mean_seconds: Option<f64>,
    /// Upper bound of the histogram bin with the 99th percentile; `null` if beyond the last bin.
    within_seconds: Option<f64>,
}

impl LatencyInfo {
    fn of(latencies: &Latencies) -> Self {
        let frames: u64 = latencies.counts.iter().sum();
        let mut seen = 0;
        let class = latencies.counts.iter().position(|count| {
            seen += count;
            seen * 100 >= frames * 99
        });
        Self {
            frames,
            mean_seconds: (frames > 0).then(|| latencies.sum.as_secs_f64() / frames as f64),
            within_seconds: class
                .filter(|_| frames > 0)
                .and_then(|class| LATENCY_BOUNDS_SECONDS.get(class).copied()),
        }
    }
}

/// GPU times of the jobs of a block; a job is a frame or a part of one.
#[derive(Serialize, ToSchema)]
struct DeviceJobsInfo {
    /// Number of jobs since the block was created.
    jobs: u64,
    /// Median.
    p50_seconds: f64,
    /// 99th percentile.
    p99_seconds: f64,
}

impl From<JobTimes> for DeviceJobsInfo {
    fn from(times: JobTimes) -> Self {
        Self {
            jobs: times.jobs,
            p50_seconds: times.p50.as_secs_f64(),
            p99_seconds: times.p99.as_secs_f64(),
        }
    }
}

/// A block.
#[derive(Serialize, ToSchema)]
pub(super) struct BlockPage {
    #[serde(flatten)]
    summary: BlockSummary,
    /// Inputs.
    inputs: Vec<InputInfo>,
    /// Outputs.
    outputs: Vec<OutputInfo>,
    /// Current parameters.
    #[schema(value_type = Object)]
    parameters: serde_json::Value,
    /// JSON Schema of the parameters; `null` for a copy between devices.
    #[schema(value_type = Option<Object>)]
    parameters_schema: Option<serde_json::Value>,
    /// Timestamp after the newest output sample; for a sink, after the newest input sample.
    newest_timestamp: Option<u64>,
    /// Age of the newest sample, relative to the stream's sync time, or without one to the source's first sample.
    sample_age_seconds: Option<f64>,
    /// Kernel times, for a block on a GPU.
    device_jobs: Option<DeviceJobsInfo>,
    /// Counters.
    counters: Vec<CounterInfo>,
    /// Gauges.
    gauges: Vec<GaugeInfo>,
    /// Summary text of the block.
    text: String,
}

/// Snapshot of a flowgraph: its blocks with their statistics.
pub(super) struct Look {
    stats: HashMap<String, BlockStats>,
    rates: Arc<HashMap<String, Rates>>,
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

    /// Lag in seconds and name of the block with the largest lag.
    pub fn lag(&self) -> Option<(f64, String)> {
        let lags = self.stats.values().filter_map(|stats| Some((stats.lag_seconds?, &stats.name)));
        let by_lag = |one: &(f64, _), other: &(f64, _)| one.0.total_cmp(&other.0);
        lags.max_by(by_lag).map(|(lag, name)| (lag, name.clone()))
    }

    pub fn rates(&self, block: &PlannedBlock) -> Option<&Rates> {
        self.rates.get(&block.name)
    }

    fn summary(&self, block: &PlannedBlock) -> BlockSummary {
        let stats = self.stats(block);
        let count = |figure: fn(&BlockStats) -> u64| stats.map_or(0, figure);
        let on_device = block.device != DeviceName::Cpu;
        BlockSummary {
            name: block.name.clone(),
            kind: block.kind,
            device: block.device.to_string(),
            implementation: block.implementation,
            state: stats.map_or(BlockState::Starting, |stats| stats.state).name(),
            on_fault: block.on_fault.name(),
            fault: stats.and_then(|stats| stats.last_fault.clone()).map(Into::into),
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
            rates: self.rates(block).cloned(),
            lag_seconds: stats.and_then(|stats| stats.lag_seconds),
            latency: stats.and_then(|stats| stats.latencies.as_ref()).map(LatencyInfo::of),
        }
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
                .map(|(input, ((from, port), carries))| InputInfo {
                    name: block.input_names[input].clone(),
                    from: format!(
                        "{}.{}",
                        plan.blocks[*from].name, plan.blocks[*from].output_names[*port]
                    ),
                    carries: carries.into(),
                    queued_frames: queue(input).map_or(0, |queue| queue.queued),
                    queue_peak_frames: self
                        .rates(block)
                        .and_then(|rates| rates.input_peaks.get(input).copied()),
                    queue_frames: queue(input).map_or(block.queue, |queue| queue.depth),
                    frames_per_second: self
                        .rates(block)
                        .and_then(|rates| rates.inputs.get(input).copied()),
                })
                .collect(),
            outputs: outputs
                .map(|(output, carries)| OutputInfo {
                    name: block.output_names[output].clone(),
                    to: plan.readers(index, output).map(reader).collect(),
                    carries: carries.into(),
                })
                .collect(),
            parameters: block.parameters.clone(),
            parameters_schema: app
                .control
                .registry()
                .get(block.kind)
                .map(|kind| (kind.schema)().to_value()),
            counters: counters
                .iter()
                .map(|named| CounterInfo {
                    name: named.name,
                    count: named.counter.get(),
                    is_loss: named.is_loss,
                    help: named.help,
                })
                .collect(),
            gauges: self
                .stats(block)
                .map_or_else(Vec::new, |stats| stats.gauges.iter().map(Into::into).collect()),
            newest_timestamp: self.stats(block).and_then(|stats| stats.newest_timestamp),
            sample_age_seconds: self.stats(block).and_then(|stats| sample_age(block, stats, now)),
            device_jobs: self.stats(block).and_then(|stats| stats.device_jobs).map(Into::into),
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

/// Returns the plan, and the index of the block called `name` in it.
pub(super) fn find(app: &App, name: &str) -> Result<(Arc<Plan>, usize), Problem> {
    let plan = app.control.plan();
    if let Some(index) = plan.block(name) {
        return Ok((plan, index));
    }
    let known: Vec<&str> = plan.blocks.iter().map(|block| block.name.as_str()).collect();
    Err(Problem::new(StatusCode::NOT_FOUND, format!("there is no block `{name}`"))
        .maybe_help(suggest(name, "block", &known)))
}
