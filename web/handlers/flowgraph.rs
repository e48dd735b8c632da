//! The flowgraph as a whole: state, graph, configuration, start and stop.

use super::blocks::{Look, fault};
use super::request::within;
use crate::app::App;
use crate::problem::Problem;
use crate::verdict;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use fxgraph::flowgraph::Plan;
use fxgraph::flowgraph::draw::Drawing;
use fxgraph::runtime::{BlockStats, RunState, State as BlockState};
use fxgraph_api::flowgraph::{
    EdgeInfo, FlowgraphPage, Graph, GroupInfo, Health, NodeInfo, ParameterInfo, ScheduledValue,
    StallInfo, TunedBandInfo,
};
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

/// Range of `limit_seconds`.
const LIMITS: RangeInclusive<f64> = 0.0..=86_400.0;
/// Default of `limit_seconds` of the liveness check: a restart costs data, and disks and GPUs may be busy for seconds.
const LIVE_SECONDS: f64 = 60.0;

/// Returns the band of block `index` that a live parameter moves.
fn tuned_band(plan: &Plan, index: usize) -> Option<TunedBandInfo> {
    let block = &plan.blocks[index];
    let tuned = block.configured.tuned_band()?;
    let output = block.ports.outputs.first()?.band?;
    let [low, high] = tuned.edges_hz.map(|hz| tuned.in_band(&output, hz));
    Some(TunedBandInfo {
        parameter: tuned.parameter.to_owned(),
        value_hz: tuned.value_hz,
        centre_hz: output.centre_hz,
        bandwidth_hz: tuned.bandwidth_hz,
        is_inverted: output.sideband.is_inverted(),
        input_low_hz: low.min(high),
        input_high_hz: low.max(high),
        fixed_by: plan.fixes_band_of(index).map(str::to_owned),
    })
}

fn graph(plan: &Plan, look: &Look) -> Graph {
    let drawing = Drawing::of(plan);
    let nodes = drawing.nodes.into_iter().zip(&plan.blocks).enumerate();
    let nodes = nodes.map(|(index, (node, block))| NodeInfo {
        name: node.name,
        kind: node.kind,
        device: node.device,
        group: node.group,
        state: look.stats(block).map_or("starting", |stats| stats.state.name()).to_owned(),
        busy_fraction: look.rates(block).map(|rates| rates.total.busy_fraction),
        tuned_band: tuned_band(plan, index),
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
            queue_frames: queue.map_or_else(|| block.queue_frames(input), |queue| queue.depth),
            when_full: queue
                .map_or(block.when_full[input], |queue| queue.when_full)
                .name()
                .to_owned(),
            frames_dropped: queue.map_or(0, |queue| queue.dropped),
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

pub(super) fn scheduled(value: fxgraph::flowgraph::ScheduledValue) -> ScheduledValue {
    ScheduledValue {
        block: value.block,
        parameter: value.parameter.to_owned(),
        value: value.value,
        timestamp: value.timestamp,
    }
}

/// The flowgraph: state, configuration, graph with data rates
#[utoipa::path(get, path = "/flowgraph", tag = "flowgraph", operation_id = "get_flowgraph",
    responses((status = 200, description = "the flowgraph", body = FlowgraphPage)))]
pub(super) async fn get(State(app): State<App>) -> Json<FlowgraphPage> {
    let (plan, later) = app.control.in_force_and_scheduled();
    let look = Look::at(&app);
    let graph = graph(&plan, &look);
    let (lag_seconds, lag_block) = look.lag(&plan).unzip();
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
        state: app.control.state().name().to_owned(),
        is_held: app.control.is_held(),
        starting: (app.control.state() == RunState::Starting)
            .then(|| starting(&app.control.stats()))
            .flatten(),
        control: app.permission.name().to_owned(),
        elapsed_seconds: app.control.elapsed().as_secs_f64(),
        config_id: format!("{:016x}", plan.config_id()),
        config_hash: plan.config_hash.clone(),
        steady_state_timestamp: app.control.steady_state_timestamp(),
        scheduled: later.into_iter().map(scheduled).collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        parameters: parameters.collect(),
        limited_by: verdict::limit(&known),
        deadline_margin_fraction: verdict::deadline_margin(&known),
        lag_seconds,
        lag_block,
        faults: app.control.failures().into_iter().map(fault).collect(),
        stalls: stalls(&app),
        graph,
        resolved_yaml: plan.resolved_yaml().to_owned(),
        written_yaml: plan.written_yaml().map(str::to_owned),
    })
}

/// Describes how far the start of blocks with these statistics has come, and what one that has not started does: its text.
/// `None` if all have started.
#[must_use]
pub fn starting(stats: &[BlockStats]) -> Option<String> {
    let waits: Vec<&BlockStats> =
        stats.iter().filter(|block| block.state == BlockState::Starting).collect();
    let said = waits.iter().find(|block| !block.summary.trim().is_empty());
    let said = said.map(|block| format!("`{}` {}", block.name, block.summary.trim()));
    let first = waits.first().map(|block| format!("waits for `{}`", block.name))?;
    let (all, started) = (stats.len(), stats.len() - waits.len());
    Some(format!("{started} of {all} blocks have started; {}", said.unwrap_or(first)))
}

fn health_of(app: &App) -> Health {
    // A fatal fault may be one of the runtime, which no block counts.
    let fatal = app.control.failures().len() as u64;
    let survived_faults = app.control.faults().saturating_sub(fatal);
    Health {
        state: app.control.state().name().to_owned(),
        faults: fatal + survived_faults,
        survived_faults,
        elapsed_seconds: app.control.elapsed().as_secs_f64(),
        stalls: stalls(app),
    }
}

fn stalls(app: &App) -> Vec<StallInfo> {
    let stalls = app.control.stalls();
    if stalls.is_empty() {
        return Vec::new();
    }
    let plan = app.control.plan();
    let aside = plan.blocks.iter().zip(plan.side_branches()).filter(|(_, is_aside)| *is_aside);
    let aside: HashSet<&str> = aside.map(|(block, _)| block.name.as_str()).collect();
    let stalls = stalls.into_iter().map(|stall| StallInfo {
        is_aside: aside.contains(&*stall.block),
        block: stall.block,
        silent_seconds: stall.silent.as_secs_f64(),
        reason: stall.reason.text().to_owned(),
        holds_frames: stall.reason.holds_frames(),
        lacks: stall.lacks,
    });
    stalls.collect()
}

/// `health`, or a problem: if its state is none of `states`, or if one of `stalls` is longer than `limit_seconds` of the
/// query, or than `default_seconds`.
fn checked(
    health: Health,
    states: &[RunState],
    stalls: impl Fn(&StallInfo) -> bool,
    query: &HashMap<String, String>,
    default_seconds: f64,
) -> Result<Json<Health>, Problem> {
    let limit = within(query, "limit_seconds", &LIMITS)?.unwrap_or(default_seconds);
    let unavailable = |detail| Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
    if !states.iter().any(|state| state.name() == health.state) {
        return Err(unavailable(format!("the state of the flowgraph is `{}`", health.state)));
    }
    let is_long =
        |stall: &&StallInfo| stalls(stall) && !stall.is_aside && stall.silent_seconds >= limit;
    let long: Vec<StallInfo> = health.stalls.iter().filter(is_long).cloned().collect();
    match StallInfo::describe(&long) {
        Some(said) => {
            Err(unavailable(said).help("see the event `stalled` at `GET /api/v1/events`"))
        }
        None => Ok(Json(health)),
    }
}

/// The answer of [`live`] for `health`.
pub(crate) fn alive(
    health: Health,
    query: &HashMap<String, String>,
) -> Result<Json<Health>, Problem> {
    use RunState::{Draining, Ended, Prepared, Running, Starting};
    let states = [Prepared, Starting, Running, Draining, Ended];
    checked(health, &states, |stall| stall.holds_frames, query, LIVE_SECONDS)
}

/// The answer of [`ready`] for `health`.
pub(crate) fn passing(
    health: Health,
    query: &HashMap<String, String>,
) -> Result<Json<Health>, Problem> {
    checked(health, &[RunState::Running], |_| true, query, 0.0)
}

/// Liveness: whether a restart would not help
///
/// Fails if the flowgraph has failed, or if a block has had frames for `limit_seconds` and processed none. A source whose
/// data do not come is alive, and so is a flowgraph with a side branch that drops frames and does not move.
#[utoipa::path(get, path = "/health/live", tag = "flowgraph", operation_id = "get_liveness",
    params(("limit_seconds" = Option<f64>, Query, minimum = 0, maximum = 86_400,
        description = "time without a frame from which the check fails; default: 60")),
    responses((status = 200, description = "the flowgraph is alive", body = Health),
        (status = 400, description = "`limit_seconds` is out of range"),
        (status = 503, description = "the flowgraph has failed, or a block holds its frames")))]
pub(super) async fn live(
    State(app): State<App>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Health>, Problem> {
    alive(health_of(&app), &query)
}

/// Readiness: whether frames pass all blocks
///
/// Fails if the flowgraph does not run, or if no frame has passed a block although ten were due. Side branches that drop
/// frames do not count.
#[utoipa::path(get, path = "/health/ready", tag = "flowgraph", operation_id = "get_readiness",
    params(("limit_seconds" = Option<f64>, Query, minimum = 0, maximum = 86_400,
        description = "time without a frame from which the check fails, above ten frame intervals; default: 0")),
    responses((status = 200, description = "the flowgraph runs, and frames pass", body = Health),
        (status = 400, description = "`limit_seconds` is out of range"),
        (status = 503, description = "the flowgraph does not run, or no frame passes a block")))]
pub(super) async fn ready(
    State(app): State<App>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Health>, Problem> {
    passing(health_of(&app), &query)
}

/// Health check
#[utoipa::path(get, path = "/health", tag = "flowgraph", operation_id = "get_health",
    responses((status = 200, description = "the health of the flowgraph", body = Health)))]
pub(super) async fn health(State(app): State<App>) -> Json<Health> {
    Json(health_of(&app))
}

/// Starts a prepared flowgraph; no effect on a running one
#[utoipa::path(post, path = "/flowgraph/start", tag = "flowgraph", operation_id = "start",
    responses(
        (status = 202, description = "the flowgraph starts", body = Health),
        (status = 409, description = "the flowgraph drains, or has ended and cannot be started again"),
    ))]
pub(super) async fn start(State(app): State<App>) -> Result<(StatusCode, Json<Health>), Problem> {
    match app.control.request_start() {
        Ok(()) => Ok((StatusCode::ACCEPTED, Json(health_of(&app)))),
        Err(error) => Err(Problem::from(error)),
    }
}

/// Stops the flowgraph: sources stop, and queued frames are processed
#[utoipa::path(post, path = "/flowgraph/stop", tag = "flowgraph", operation_id = "stop",
    responses((status = 202, description = "the flowgraph drains; repeating the request has no effect",
        body = Health)))]
pub(super) async fn stop(State(app): State<App>) -> (StatusCode, Json<Health>) {
    app.control.request_stop();
    (StatusCode::ACCEPTED, Json(health_of(&app)))
}

/// Stops the flowgraph at once: queued frames are dropped
#[utoipa::path(post, path = "/flowgraph/abort", tag = "flowgraph", operation_id = "abort",
    responses((status = 202, description = "the flowgraph ends; repeating the request has no effect", body = Health)))]
pub(super) async fn abort(State(app): State<App>) -> (StatusCode, Json<Health>) {
    app.control.abort();
    (StatusCode::ACCEPTED, Json(health_of(&app)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::stats;

    #[test]
    fn starting_names_a_block_with_its_text_and_counts_the_others() {
        let block = |name: &str, state, summary: &str| BlockStats {
            name: name.to_owned(),
            state,
            summary: summary.to_owned(),
            ..stats(0)
        };
        let mut blocks = [
            block("x", BlockState::Running, "a text of its own"),
            block("d[0]", BlockState::Starting, ""),
            block("d[1]", BlockState::Starting, "computes its signals, polarisation 1 of 2"),
        ];
        let said = starting(&blocks).unwrap();
        assert_eq!(
            said,
            "1 of 3 blocks have started; `d[1]` computes its signals, polarisation 1 of 2"
        );
        blocks[2].state = BlockState::Running;
        assert_eq!(starting(&blocks).unwrap(), "2 of 3 blocks have started; waits for `d[0]`");
        blocks[1].state = BlockState::Finished;
        assert_eq!(starting(&blocks), None);
    }

    #[test]
    fn stall_of_a_side_branch_fails_no_check() {
        let health = |is_aside| Health {
            state: "running".to_owned(),
            faults: 0,
            survived_faults: 0,
            elapsed_seconds: 100.0,
            stalls: vec![StallInfo {
                block: "look".to_owned(),
                silent_seconds: 90.0,
                reason: "the block is busy".to_owned(),
                holds_frames: true,
                is_aside,
                lacks: Vec::new(),
            }],
        };
        let query = HashMap::new();
        assert!(alive(health(false), &query).is_err() && passing(health(false), &query).is_err());
        assert!(alive(health(true), &query).is_ok() && passing(health(true), &query).is_ok());
    }
}
