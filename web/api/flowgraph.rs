//! The flowgraph as a whole: state, graph, configuration, start and stop.

use super::blocks::{Fault, Look};
use crate::app::App;
use crate::problem::Problem;
use crate::verdict::{self, Limit};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use fxgraph::flowgraph::Plan;
use fxgraph::flowgraph::draw::Drawing;
use serde::Serialize;
use utoipa::ToSchema;

/// A parameter of the flowgraph.
#[derive(Serialize, ToSchema)]
struct ParameterInfo {
    /// Name.
    name: String,
    /// Current value.
    #[schema(value_type = Value)]
    value: serde_json::Value,
    /// Description.
    doc: Option<String>,
    /// Whether the value was set with `--set`.
    is_set: bool,
}

/// An instance of a template.
#[derive(Serialize, ToSchema)]
struct GroupInfo {
    /// Name.
    #[schema(example = "f[0]")]
    name: String,
    /// Name of the template.
    #[schema(example = "f_engine")]
    template: String,
    /// Index of the enclosing group.
    parent: Option<usize>,
}

/// A block in the graph.
#[derive(Serialize, ToSchema)]
struct NodeInfo {
    /// Name.
    name: String,
    /// Kind.
    kind: String,
    /// Device.
    device: String,
    /// Index of the group that contains it.
    group: Option<usize>,
    /// State.
    #[schema(example = "running")]
    state: &'static str,
    /// Fraction of the time spent working; `null` in the first second.
    busy_fraction: Option<f64>,
}

/// An edge of the graph.
#[derive(Serialize, ToSchema)]
struct EdgeInfo {
    /// Name of the writing block.
    from: String,
    /// Output of the writing block.
    output: String,
    /// Name of the reading block.
    to: String,
    /// Input of the reading block.
    input: String,
    /// Type of the frames, in one line.
    carries: String,
    /// Frames per second of signal time.
    expected_frames_per_second: f64,
    /// Payload bytes per second of signal time.
    expected_bytes_per_second: f64,
    /// Frames per second; `null` in the first second.
    frames_per_second: Option<f64>,
    /// Payload bytes per second; `null` in the first second.
    bytes_per_second: Option<f64>,
    /// Number of queued frames.
    queued_frames: usize,
    /// Maximum number of queued frames in the last second; `null` in the first second.
    queue_peak_frames: Option<usize>,
    /// Capacity of the queue in frames.
    queue_frames: usize,
}

/// Blocks and edges, with data rates.
#[derive(Serialize, ToSchema)]
struct Graph {
    /// Instances of templates; outer ones precede inner ones.
    groups: Vec<GroupInfo>,
    /// Blocks.
    blocks: Vec<NodeInfo>,
    /// Edges.
    edges: Vec<EdgeInfo>,
}

/// The running flowgraph.
#[derive(Serialize, ToSchema)]
pub(super) struct FlowgraphPage {
    /// Name.
    #[schema(example = "first_light")]
    name: String,
    /// Description.
    doc: Option<String>,
    /// State: prepared, starting, running, draining, ended or failed.
    #[schema(example = "running")]
    state: &'static str,
    /// Whether it can be started again after its end (`fxgraph run --hold`).
    is_held: bool,
    /// Permission of clients: `live` (live parameters only) or `full` (also blocks and the flowgraph).
    #[schema(example = "full")]
    control: &'static str,
    /// Time since the first frame.
    elapsed_seconds: f64,
    /// Configuration id in frame headers, in hexadecimal.
    #[schema(example = "9f2c0d4be1a7583d", pattern = "^[0-9a-f]{16}$")]
    config_id: String,
    /// SHA-256 over `resolved_yaml`, in hexadecimal.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    config_hash: String,
    /// Timestamp (ADC samples since the sync time) from which data reflect all changes so far.
    steady_state_timestamp: u64,
    /// Version of fxgraph.
    version: &'static str,
    /// Parameters.
    parameters: Vec<ParameterInfo>,
    /// Bottleneck; `null` in the first second.
    limited_by: Option<Limit>,
    /// Headroom of the slowest block, as a fraction of signal time; negative if it cannot keep up with the telescope.
    deadline_margin_fraction: Option<f64>,
    /// Largest lag of a block behind real time; `null` before the first frame and after the end.
    lag_seconds: Option<f64>,
    /// Name of the block with the largest lag.
    lag_block: Option<String>,
    /// Faults that ended the flowgraph, in order.
    faults: Vec<Fault>,
    /// Blocks and edges, with data rates.
    graph: Graph,
    /// The flowgraph with all parameters and templates resolved, as YAML.
    resolved_yaml: String,
    /// Original text with its comments; `null` if parameters were set at the start or the flowgraph was changed since.
    written_yaml: Option<String>,
}

fn graph(plan: &Plan, look: &Look) -> Graph {
    let drawing = Drawing::of(plan);
    let nodes = drawing.nodes.into_iter().zip(&plan.blocks).map(|(node, block)| NodeInfo {
        name: node.name,
        kind: node.kind,
        device: node.device,
        group: node.group,
        state: look.stats(block).map_or("starting", |stats| stats.state.name()),
        busy_fraction: look.rates(block).map(|rates| rates.busy_fraction),
    });
    let inputs = plan
        .blocks
        .iter()
        .flat_map(|block| block.ports.inputs.iter().enumerate().map(move |port| (block, port)));
    // A drawing lists its edges in the order of the blocks' inputs.
    let edges = drawing.edges.into_iter().zip(inputs).map(|(edge, (block, (input, port)))| {
        let queue = look.stats(block).and_then(|stats| stats.queues.get(input).copied());
        let rate = look.rates(block).and_then(|rates| rates.inputs.get(input).copied());
        EdgeInfo {
            from: plan.blocks[edge.from].name.clone(),
            output: edge.output,
            to: block.name.clone(),
            input: edge.input,
            carries: edge.carries,
            expected_frames_per_second: port.clock.frames_per_second(),
            expected_bytes_per_second: port.bytes_per_second(),
            frames_per_second: rate,
            bytes_per_second: rate.map(|rate| rate * port.frame_bytes() as f64),
            queued_frames: queue.map_or(0, |queue| queue.queued),
            queue_peak_frames: look
                .rates(block)
                .and_then(|rates| rates.input_peaks.get(input).copied()),
            queue_frames: queue.map_or(block.queue, |queue| queue.depth),
        }
    });
    Graph {
        groups: drawing
            .groups
            .into_iter()
            .map(|group| GroupInfo {
                name: group.name,
                template: group.template,
                parent: group.parent,
            })
            .collect(),
        blocks: nodes.collect(),
        edges: edges.collect(),
    }
}

/// The flowgraph: state, configuration, graph with data rates
#[utoipa::path(get, path = "/flowgraph", tag = "flowgraph", operation_id = "get_flowgraph",
    responses((status = 200, description = "the flowgraph", body = FlowgraphPage)))]
pub(super) async fn get(State(app): State<App>) -> Json<FlowgraphPage> {
    let plan = app.control.plan();
    let look = Look::at(&app);
    let graph = graph(&plan, &look);
    let (lag_seconds, lag_block) = look.lag().unzip();
    let rates = app.live.rates();
    let known = verdict::known(&plan, &rates);
    let parameters = plan.parameters.iter().map(|parameter| ParameterInfo {
        name: parameter.name.clone(),
        value: parameter.value.clone(),
        doc: parameter.doc.clone(),
        is_set: parameter.is_set,
    });
    Json(FlowgraphPage {
        name: plan.name.clone(),
        doc: plan.doc.clone(),
        state: app.control.state().name(),
        is_held: app.control.is_held(),
        control: app.permission.name(),
        elapsed_seconds: app.control.elapsed().as_secs_f64(),
        config_id: format!("{:016x}", plan.config_id()),
        config_hash: plan.config_hash.clone(),
        steady_state_timestamp: app.control.steady_state_timestamp(),
        version: env!("CARGO_PKG_VERSION"),
        parameters: parameters.collect(),
        limited_by: verdict::limit(&known),
        deadline_margin_fraction: verdict::deadline_margin(&known),
        lag_seconds,
        lag_block,
        faults: app.control.failures().into_iter().map(Into::into).collect(),
        graph,
        resolved_yaml: plan.resolved_yaml.to_string(),
        written_yaml: plan.written_yaml().map(str::to_owned),
    })
}

/// Health of the flowgraph.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// State: prepared, starting, running, draining, ended or failed.
    #[schema(example = "running")]
    state: &'static str,
    /// Number of faults so far, including those that the flowgraph survived.
    faults: u64,
    /// Number of faults that the flowgraph survived.
    survived_faults: u64,
    /// Time since the first frame.
    elapsed_seconds: f64,
}

impl Health {
    fn of(app: &App) -> Self {
        // A fatal fault may be one of the runtime, which no block counts.
        let fatal = app.control.failures().len() as u64;
        let survived_faults = app.control.faults().saturating_sub(fatal);
        Self {
            state: app.control.state().name(),
            faults: fatal + survived_faults,
            survived_faults,
            elapsed_seconds: app.control.elapsed().as_secs_f64(),
        }
    }
}

/// Health check
#[utoipa::path(get, path = "/health", tag = "flowgraph", operation_id = "get_health",
    responses((status = 200, description = "the health of the flowgraph", body = Health)))]
pub(super) async fn health(State(app): State<App>) -> Json<Health> {
    Json(Health::of(&app))
}

/// Starts a prepared flowgraph; no effect on a running one
#[utoipa::path(post, path = "/flowgraph/start", tag = "flowgraph", operation_id = "start",
    responses(
        (status = 202, description = "the flowgraph starts", body = Health),
        (status = 409, description = "the flowgraph drains, or has ended and cannot be started again"),
    ))]
pub(super) async fn start(State(app): State<App>) -> Result<(StatusCode, Json<Health>), Problem> {
    match app.control.request_start() {
        Ok(()) => Ok((StatusCode::ACCEPTED, Json(Health::of(&app)))),
        Err(error) => Err(Problem::from(error)),
    }
}

/// Stops the flowgraph: sources stop, and queued frames are processed
#[utoipa::path(post, path = "/flowgraph/stop", tag = "flowgraph", operation_id = "stop",
    responses((status = 202, description = "the flowgraph drains; repeating the request has no effect",
        body = Health)))]
pub(super) async fn stop(State(app): State<App>) -> (StatusCode, Json<Health>) {
    app.control.request_stop();
    (StatusCode::ACCEPTED, Json(Health::of(&app)))
}

/// Stops the flowgraph at once: queued frames are dropped
#[utoipa::path(post, path = "/flowgraph/abort", tag = "flowgraph", operation_id = "abort",
    responses((status = 202, description = "the flowgraph ends; repeating the request has no effect", body = Health)))]
pub(super) async fn abort(State(app): State<App>) -> (StatusCode, Json<Health>) {
    app.control.abort();
    (StatusCode::ACCEPTED, Json(Health::of(&app)))
}
