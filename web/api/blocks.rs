//! One block: ports, parameters, figures, faults.

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

/// Why a block failed.
#[derive(Clone, Serialize, ToSchema)]
pub(super) struct Fault {
    /// Name of the block.
    block: String,
    /// What went wrong, and what caused it.
    cause: String,
    /// Whether the block panicked, which is a fault of the program and not of its input.
    is_panic: bool,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self { block: failure.block, cause: failure.cause, is_panic: failure.panic }
    }
}

/// What a block did since the start.
#[derive(Serialize, ToSchema)]
pub(super) struct Totals {
    /// Frames it took, all inputs together.
    frames_in: u64,
    /// Frames it pushed, all outputs together.
    frames_out: u64,
    /// Payload bytes it took.
    bytes_in: u64,
    /// Payload bytes it pushed.
    bytes_out: u64,
    /// How often it was called.
    works: u64,
    /// Time it spent working.
    busy_seconds: f64,
    /// Time it waited for frames; a source: for what it makes them of.
    input_wait_seconds: f64,
    /// Time it waited for room behind it.
    room_wait_seconds: f64,
    /// Time that its GPU spent on its frames; `null` on the processor.
    device_busy_seconds: Option<f64>,
    /// Lost data, all causes together, each in its own unit.
    losses: u64,
    /// Times that it failed, also those that it survived.
    faults: u64,
    /// Times that it was built anew after a fault.
    restarts: u64,
}

/// A block in short.
#[derive(Serialize, ToSchema)]
pub(super) struct BlockSummary {
    /// Its name in the flowgraph.
    #[schema(example = "f[0].pfb")]
    name: String,
    /// Its kind.
    #[schema(example = "pfb")]
    kind: &'static str,
    /// Where it runs.
    #[schema(example = "cpu")]
    device: String,
    /// The form of the kind that runs.
    #[schema(example = "cpu")]
    implementation: &'static str,
    /// Where it is in its life: starting, running, stalled (no frame passes it), finished or failed.
    #[schema(example = "running")]
    state: &'static str,
    /// What it does after a fault: stop, skip or restart.
    #[schema(example = "stop")]
    on_fault: &'static str,
    /// Why it failed last, if it did.
    fault: Option<Fault>,
    /// What it did since the start.
    totals: Totals,
    /// What it does now; `null` in the first second.
    rates: Option<Rates>,
    /// Time by which the newest sample that came through it is behind real time; `null` before the first one and
    /// after the end.
    lag_seconds: Option<f64>,
    /// How long frames were under way from the sources, for a sink.
    latency: Option<LatencyInfo>,
}

/// An input with its queue.
#[derive(Serialize, ToSchema)]
struct InputInfo {
    /// Its name.
    name: String,
    /// The output that feeds it.
    #[schema(example = "source.output")]
    from: String,
    /// What it carries.
    carries: Carries,
    /// Frames that wait in front of it.
    queued_frames: usize,
    /// Most frames that waited there in the last second; `null` in the first one.
    queue_peak_frames: Option<usize>,
    /// Frames that its queue holds at most.
    queue_frames: usize,
    /// Frames it takes per second; `null` in the first second.
    frames_per_second: Option<f64>,
}

/// An output with its readers.
#[derive(Serialize, ToSchema)]
struct OutputInfo {
    /// Its name.
    name: String,
    /// The inputs that read it.
    to: Vec<String>,
    /// What it carries.
    carries: Carries,
}

/// Something a block counts.
#[derive(Serialize, ToSchema)]
struct CounterInfo {
    /// What is counted.
    #[schema(example = "heaps_missing")]
    name: &'static str,
    /// The count.
    count: u64,
    /// Whether it counts lost data.
    is_loss: bool,
    /// What it means, and what to do when it grows.
    help: &'static str,
}

/// A value that a block measures.
#[derive(Serialize, ToSchema)]
struct GaugeInfo {
    /// Quantity and unit.
    #[schema(example = "digitiser_level_dbfs")]
    name: &'static str,
    /// Name of the label that tells gauges of one name apart; `null` if there is one gauge.
    #[schema(example = "input")]
    label: Option<&'static str>,
    /// Value of the label.
    #[schema(example = "0")]
    label_value: Option<String>,
    /// The value; `null` while it is unknown.
    value: Option<f64>,
    /// What it measures, and what to do about it.
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

/// How long frames were under way.
#[derive(Serialize, ToSchema)]
struct LatencyInfo {
    /// Frames that were measured.
    frames: u64,
    /// Mean over all of them; `null` without any.
    mean_seconds: Option<f64>,
    /// Time within which 99 % of them came, as the bound of a class; `null` if it is beyond the last one.
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

/// How long a GPU worked on the jobs of a block, each a frame or a part of one.
#[derive(Serialize, ToSchema)]
struct DeviceJobsInfo {
    /// Jobs since the block came.
    jobs: u64,
    /// Half of them took no longer.
    p50_seconds: f64,
    /// 99 of 100 took no longer.
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
    /// Its inputs.
    inputs: Vec<InputInfo>,
    /// Its outputs.
    outputs: Vec<OutputInfo>,
    /// Its parameters as they are in force.
    #[schema(value_type = Object)]
    parameters: serde_json::Value,
    /// JSON Schema of its parameters, with their texts and limits; `null` for a copy between devices.
    #[schema(value_type = Option<Object>)]
    parameters_schema: Option<serde_json::Value>,
    /// Timestamp after the newest sample that it put out; a sink: that it took.
    newest_timestamp: Option<u64>,
    /// The age of that sample: by the stream's sync time, without one by the source's earliest sample.
    sample_age_seconds: Option<f64>,
    /// How long its kernels took, for a block on a GPU.
    device_jobs: Option<DeviceJobsInfo>,
    /// What it counts.
    counters: Vec<CounterInfo>,
    /// What it measures.
    gauges: Vec<GaugeInfo>,
    /// What it says for itself.
    text: String,
}

/// One look at a flowgraph: its blocks with their figures.
pub(super) struct Look {
    stats: HashMap<String, BlockStats>,
    rates: Arc<HashMap<String, Rates>>,
}

impl Look {
    pub fn at(app: &App) -> Self {
        let stats = app.control.stats().into_iter().map(|stats| (stats.name.clone(), stats));
        Self { stats: stats.collect(), rates: app.live.rates() }
    }

    /// The figures of a block; `None` for one that came into the plan since this look.
    pub fn stats(&self, block: &PlannedBlock) -> Option<&BlockStats> {
        self.stats.get(&block.name)
    }

    /// Lag and name of the block that is furthest behind real time.
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

/// All blocks with what they do
#[utoipa::path(get, path = "/blocks", tag = "blocks", operation_id = "list_blocks",
    responses((status = 200, description = "in the order of the flowgraph", body = Vec<BlockSummary>)))]
pub(super) async fn list(State(app): State<App>) -> Json<Vec<BlockSummary>> {
    let look = Look::at(&app);
    Json(app.control.plan().blocks.iter().map(|block| look.summary(block)).collect())
}

/// One block: ports, parameters, figures, faults
#[utoipa::path(get, path = "/blocks/{name}", tag = "blocks", operation_id = "get_block",
    params(("name" = String, Path, description = "its name, like `f[0].pfb`", example = "source")),
    responses(
        (status = 200, description = "the block", body = BlockPage),
        (status = 404, description = "there is no such block"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Path(name): Path<String>,
) -> Result<Json<BlockPage>, Problem> {
    let (plan, index) = find(&app, &name)?;
    Ok(Json(Look::at(&app).page(&app, &plan, index)))
}

/// The plan, and the index of the block called `name` in it.
pub(super) fn find(app: &App, name: &str) -> Result<(Arc<Plan>, usize), Problem> {
    let plan = app.control.plan();
    if let Some(index) = plan.block(name) {
        return Ok((plan, index));
    }
    let known: Vec<&str> = plan.blocks.iter().map(|block| block.name.as_str()).collect();
    Err(Problem::new(StatusCode::NOT_FOUND, format!("there is no block `{name}`"))
        .maybe_help(suggest(name, "block", &known)))
}
