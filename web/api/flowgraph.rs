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
    /// Its name.
    name: String,
    /// The value in force.
    #[schema(value_type = Value)]
    value: serde_json::Value,
    /// What it is for.
    doc: Option<String>,
    /// Whether `--set` changed it.
    is_set: bool,
}

/// A use of a template.
#[derive(Serialize, ToSchema)]
struct GroupInfo {
    /// Its name.
    #[schema(example = "f[0]")]
    name: String,
    /// Name of the template.
    #[schema(example = "f_engine")]
    template: String,
    /// Index of the group around it.
    parent: Option<usize>,
}

/// A block in the graph.
#[derive(Serialize, ToSchema)]
struct NodeInfo {
    /// Its name.
    name: String,
    /// Its kind.
    kind: String,
    /// Where it runs.
    device: String,
    /// Index of the group it stands in.
    group: Option<usize>,
    /// Where it is in its life.
    #[schema(example = "running")]
    state: &'static str,
    /// Share of the time it works; `null` in the first second.
    busy_fraction: Option<f64>,
}

/// An edge of the graph.
#[derive(Serialize, ToSchema)]
struct EdgeInfo {
    /// Name of the block that writes.
    from: String,
    /// Its output.
    output: String,
    /// Name of the block that reads.
    to: String,
    /// Its input.
    input: String,
    /// What flows, in one line.
    carries: String,
    /// Frames per second of signal time.
    expected_frames_per_second: f64,
    /// Payload bytes per second of signal time.
    expected_bytes_per_second: f64,
    /// Frames per second; `null` in the first second.
    frames_per_second: Option<f64>,
    /// Payload bytes per second; `null` in the first second.
    bytes_per_second: Option<f64>,
    /// Frames that wait.
    queued_frames: usize,
    /// Most frames that waited in the last second; `null` in the first one.
    queue_peak_frames: Option<usize>,
    /// Frames that the queue holds at most.
    queue_frames: usize,
}

/// Blocks and edges, with what flows.
#[derive(Serialize, ToSchema)]
struct Graph {
    /// Uses of templates, each before those inside it.
    groups: Vec<GroupInfo>,
    /// Blocks.
    blocks: Vec<NodeInfo>,
    /// Edges.
    edges: Vec<EdgeInfo>,
}

/// The flowgraph that runs.
#[derive(Serialize, ToSchema)]
pub(super) struct FlowgraphPage {
    /// Its name.
    #[schema(example = "first_light")]
    name: String,
    /// What it is for.
    doc: Option<String>,
    /// Where it is in its life: prepared, starting, running, draining, ended or failed.
    #[schema(example = "running")]
    state: &'static str,
    /// Whether it can be started again when it has ended, as with `fxgraph run --hold`.
    is_held: bool,
    /// What clients may change: `live` (live parameters) or `full` (blocks and the flowgraph too).
    #[schema(example = "full")]
    control: &'static str,
    /// Time since frames began to move.
    elapsed_seconds: f64,
    /// What frame headers carry to say which configuration made them, in hexadecimal.
    #[schema(example = "9f2c0d4be1a7583d", pattern = "^[0-9a-f]{16}$")]
    config_id: String,
    /// SHA-256 over `resolved_yaml`, in hexadecimal.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    config_hash: String,
    /// Data from this timestamp on (ADC samples since sync time) reflects every change so far.
    steady_state_timestamp: u64,
    /// Version of the program's framework.
    version: &'static str,
    /// Its parameters.
    parameters: Vec<ParameterInfo>,
    /// What limits it; `null` in the first second.
    limited_by: Option<Limit>,
    /// Share of signal time that the slowest block has to spare; below zero it cannot keep up with the telescope.
    deadline_margin_fraction: Option<f64>,
    /// Time by which the block that is furthest behind real time is behind it; `null` before the first frame and
    /// after the end.
    lag_seconds: Option<f64>,
    /// Name of that block.
    lag_block: Option<String>,
    /// Faults that ended it, in order.
    faults: Vec<Fault>,
    /// Blocks and edges, with what flows.
    graph: Graph,
    /// All of it, expanded, as YAML.
    resolved_yaml: String,
    /// The text that it was read from, with its comments; `null` where that is not all that runs, because parameters
    /// were set at the start or something has been changed since.
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
    // A drawing has its edges in the order of the blocks' inputs.
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

/// The flowgraph: state, configuration, graph with what flows
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

/// How the flowgraph is, in a few bytes.
#[derive(Serialize, ToSchema)]
pub(super) struct Health {
    /// Where it is in its life: prepared, starting, running, draining, ended or failed.
    #[schema(example = "running")]
    state: &'static str,
    /// Number of faults so far, also those that the flowgraph survived.
    faults: u64,
    /// Number of faults that it survived.
    survived_faults: u64,
    /// Time since frames began to move.
    elapsed_seconds: f64,
}

impl Health {
    fn of(app: &App) -> Self {
        // A fault that ends the flowgraph may be one of the runtime, which no block counts.
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

/// How the flowgraph is, in a few bytes
#[utoipa::path(get, path = "/health", tag = "flowgraph", operation_id = "get_health",
    responses((status = 200, description = "it answers", body = Health)))]
pub(super) async fn health(State(app): State<App>) -> Json<Health> {
    Json(Health::of(&app))
}

/// Starts a flowgraph that is prepared; one that runs stays as it is
#[utoipa::path(post, path = "/flowgraph/start", tag = "flowgraph", operation_id = "start",
    responses(
        (status = 202, description = "it starts", body = Health),
        (status = 409, description = "it drains, or has ended for good"),
    ))]
pub(super) async fn start(State(app): State<App>) -> Result<(StatusCode, Json<Health>), Problem> {
    match app.control.request_start() {
        Ok(()) => Ok((StatusCode::ACCEPTED, Json(Health::of(&app)))),
        Err(error) => Err(Problem::from(error)),
    }
}

/// Ends the flowgraph: sources finish, what is queued flows to its end
#[utoipa::path(post, path = "/flowgraph/stop", tag = "flowgraph", operation_id = "stop",
    responses((status = 202, description = "it drains; done again, it changes nothing", body = Health)))]
pub(super) async fn stop(State(app): State<App>) -> (StatusCode, Json<Health>) {
    app.control.request_stop();
    (StatusCode::ACCEPTED, Json(Health::of(&app)))
}

/// Ends the flowgraph at once: what is queued is dropped
#[utoipa::path(post, path = "/flowgraph/abort", tag = "flowgraph", operation_id = "abort",
    responses((status = 202, description = "it ends; done again, it changes nothing", body = Health)))]
pub(super) async fn abort(State(app): State<App>) -> (StatusCode, Json<Health>) {
    app.control.abort();
    (StatusCode::ACCEPTED, Json(Health::of(&app)))
}
