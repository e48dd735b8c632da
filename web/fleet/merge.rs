//! Answers from all parts.

use super::Fleet;
use super::metrics::{Federation, PartState};
use super::parts::{Part, full_name};
use crate::guard::Peer;
use crate::handlers::flowgraph::{alive, passing};
use crate::handlers::history::Wanted;
use crate::problem::Problem;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use fxgraph::edge::WhenFull;
use fxgraph::runtime::RunState;
use fxgraph_api::blocks::{BlockSummary, Fault};
use fxgraph_api::events::{EventInfo, EventList};
use fxgraph_api::flowgraph::{EdgeInfo, FlowgraphPage, Graph, Health, ScheduledValue};
use fxgraph_api::history::{GaugeSeries, History};
use fxgraph_api::parts::{PartInfo, TargetGroup};
use fxgraph_api::recordings::RecorderInfo;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;

/// States of a flowgraph; that of the fleet is the first one that a part has.
const STATES: [&str; 6] = ["failed", "draining", "running", "starting", "prepared", "ended"];

/// All parts: addresses, states, configurations
#[utoipa::path(get, path = "/api/v1/parts", tag = "parts", operation_id = "list_parts",
    responses((status = 200, description = "the parts, in the order of the deployment", body = Vec<PartInfo>)))]
pub(super) async fn parts(State(fleet): State<Fleet>) -> Json<Vec<PartInfo>> {
    Json(fleet.parts().iter().map(|part| part.info()).collect())
}

/// Servers of the parts, in Prometheus' format of `http_sd_configs`
#[utoipa::path(get, path = "/api/v1/targets", tag = "parts", operation_id = "list_targets",
    responses((status = 200, description = "one group for each part that has a machine, with the label `part`",
        body = Vec<TargetGroup>)))]
pub(super) async fn targets(State(fleet): State<Fleet>) -> Json<Vec<TargetGroup>> {
    let group = |part: &Arc<Part>| {
        let address = part.server().ok()?.0;
        let labels = [("part".to_owned(), part.name.clone())].into();
        Some(TargetGroup { targets: vec![address], labels })
    };
    Json(fleet.parts().iter().filter_map(group).collect())
}

/// 503 if a part has a trouble or has failed.
pub(super) async fn health(State(fleet): State<Fleet>) -> Result<Json<Health>, Problem> {
    Ok(Json(health_of(&fleet, |_| true).await?))
}

pub(super) async fn live(
    State(fleet): State<Fleet>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Health>, Problem> {
    // A part that rejects the token lives.
    alive(health_of(&fleet, |part| part.contact != "rejects_token").await?, &query)
}

pub(super) async fn ready(
    State(fleet): State<Fleet>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<Health>, Problem> {
    let health = health_of(&fleet, |_| true).await?;
    let idle = fleet.parts().into_iter().find_map(|part| {
        let state = part.info().state.filter(|state| state != RunState::Running.name())?;
        Some(format!("part `{}`: the state of its flowgraph is `{state}`", part.name))
    });
    match idle {
        Some(detail) => Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)),
        None => passing(health, &query),
    }
}

/// Health of the parts that count.
async fn health_of(fleet: &Fleet, counts: impl Fn(&PartInfo) -> bool) -> Result<Health, Problem> {
    let answers = fleet.ask(|part| async move { part.get::<Health>("/api/v1/health").await }).await;
    let parts: Vec<PartInfo> = answers.iter().map(|(part, _)| part.info()).collect();
    let is_bad = |(part, info): &(&Part, &PartInfo)| {
        counts(info) && (part.trouble().is_some() || info.state.as_deref() == Some("failed"))
    };
    let bad = answers.iter().map(|(part, _)| &**part).zip(&parts).filter(is_bad);
    let said: Vec<String> = bad
        .map(|(_, part)| format!("part `{}`: {}", part.name, part.troubles.join("; ")))
        .collect();
    if !said.is_empty() || parts.is_empty() {
        let detail =
            if parts.is_empty() { "no part is known".to_owned() } else { said.join(" | ") };
        return Err(
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).help("see `GET /api/v1/parts`")
        );
    }
    let stalls = answers.iter().flat_map(|(part, answer)| {
        let stalls = answer.iter().flat_map(|health| health.stalls.iter().cloned());
        stalls.map(|stall| part.named(stall))
    });
    let stalls = stalls.collect();
    let all: Vec<Health> = answers.into_iter().filter_map(|(_, answer)| answer.ok()).collect();
    let known = all.iter().map(|one| one.state.as_str());
    Ok(Health {
        // Of parts that reject the token, none may be known.
        state: if all.is_empty() { "starting".to_owned() } else { state(known) },
        faults: all.iter().map(|one| one.faults).fold(0, u64::saturating_add),
        survived_faults: all.iter().map(|one| one.survived_faults).fold(0, u64::saturating_add),
        elapsed_seconds: all.iter().map(|one| one.elapsed_seconds).fold(0.0, f64::max),
        stalls,
    })
}

fn state<'a>(states: impl Iterator<Item = &'a str> + Clone) -> String {
    let found = STATES.iter().find(|state| states.clone().any(|one| one == **state));
    (*found.unwrap_or(&"failed")).to_owned()
}

pub(super) async fn flowgraph(State(fleet): State<Fleet>) -> Result<Json<FlowgraphPage>, Problem> {
    let ask = |part: Arc<Part>| async move { part.flowgraph().await };
    let mut pages = Vec::new();
    let mut faults = Vec::new();
    let mut hash = Sha256::new();
    for (part, answer) in fleet.ask(ask).await {
        hash.update(part.name.as_bytes());
        if let Some(trouble) = part.trouble() {
            let cause = format!("part `{}`: {trouble}", part.name);
            faults.push(Fault { block: part.name.clone(), cause, is_panic: false });
        }
        if let Ok(mut page) = answer {
            hash.update(page.config_hash.as_bytes());
            page.stalls = page.stalls.into_iter().map(|stall| part.named(stall)).collect();
            pages.push((part.name.clone(), page));
        }
    }
    if pages.is_empty() {
        return Err(Problem::busy("no part answers").help("see `GET /api/v1/parts`"));
    }
    let hash = hash.finalize().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    Ok(Json(one_page(&fleet.0.name, fleet.0.permission.name(), pages, faults, hash)))
}

/// The pages of parts as one page.
fn one_page(
    name: &str,
    control: &str,
    pages: Vec<(String, FlowgraphPage)>,
    mut faults: Vec<Fault>,
    config_hash: String,
) -> FlowgraphPage {
    let all = || pages.iter().map(|(_, page)| page);
    let least = |a: f64, b: f64| if a.total_cmp(&b).is_le() { a } else { b };
    let margin = all().filter_map(|page| page.deadline_margin_fraction).reduce(least);
    let slowest = all().find(|page| margin.is_some() && page.deadline_margin_fraction == margin);
    let limited_by = slowest.and_then(|page| page.limited_by.clone());
    let lags = all().filter_map(|page| Some((page.lag_seconds?, page.lag_block.clone()?)));
    let (lag_seconds, lag_block) = lags.max_by(|a, b| a.0.total_cmp(&b.0)).unzip();
    let mut yaml = String::new();
    for (part, page) in &pages {
        let sep = if yaml.is_empty() { "" } else { "---\n" };
        let _ = write!(yaml, "{sep}# part {part}\n{}", page.resolved_yaml);
    }
    let mut parameters: Vec<fxgraph_api::flowgraph::ParameterInfo> = Vec::new();
    for parameter in all().flat_map(|page| &page.parameters) {
        if !parameters.contains(parameter) {
            parameters.push(parameter.clone());
        }
    }
    faults.extend(all().flat_map(|page| page.faults.iter().cloned()));
    let stalls = all().flat_map(|page| page.stalls.iter().cloned()).collect();
    let of_part = |(part, page): &(String, FlowgraphPage)| -> Vec<ScheduledValue> {
        let kinds: HashMap<&str, &str> =
            page.graph.blocks.iter().map(|block| (&*block.name, &*block.kind)).collect();
        let kind = |name: &str| kinds.get(name).copied().unwrap_or_default();
        let values = page.scheduled.iter().cloned();
        let named = values.map(|value| ScheduledValue {
            block: full_name(part, kind(&value.block), &value.block),
            ..value
        });
        named.collect()
    };
    let mut scheduled: Vec<ScheduledValue> = pages.iter().flat_map(of_part).collect();
    scheduled.sort_by_key(|value| value.timestamp);
    let is_live = all().any(|page| page.control != "full");
    FlowgraphPage {
        name: name.to_owned(),
        doc: all().find_map(|page| page.doc.clone()),
        state: state(all().map(|page| page.state.as_str()).collect::<Vec<_>>().into_iter()),
        is_held: all().all(|page| page.is_held),
        starting: pages
            .iter()
            .find_map(|(part, page)| Some(format!("part `{part}`: {}", page.starting.as_ref()?))),
        control: if is_live { "live" } else { control }.to_owned(),
        elapsed_seconds: all().map(|page| page.elapsed_seconds).fold(0.0, f64::max),
        config_id: config_hash[..16].to_owned(),
        config_hash,
        steady_state_timestamp: all().map(|page| page.steady_state_timestamp).max().unwrap_or(0),
        scheduled,
        version: all().next().map_or_else(String::new, |page| page.version.clone()),
        parameters,
        limited_by,
        deadline_margin_fraction: margin,
        lag_seconds,
        lag_block,
        faults,
        stalls,
        resolved_yaml: yaml,
        written_yaml: None,
        graph: one_graph(pages),
    }
}

/// The graphs of parts as one graph.
fn one_graph(pages: Vec<(String, FlowgraphPage)>) -> Graph {
    let mut one = Graph { groups: Vec::new(), blocks: Vec::new(), edges: Vec::new() };
    for (part, page) in pages {
        let Graph { groups, blocks, edges } = page.graph;
        let names: HashMap<String, String> = blocks
            .iter()
            .map(|block| (block.name.clone(), full_name(&part, &block.kind, &block.name)))
            .collect();
        let full = |name: String| names.get(&name).cloned().unwrap_or(name);
        // Parts of one group may run on several hosts.
        let mut indices: Vec<usize> = Vec::new();
        for mut group in groups {
            group.parent = group.parent.and_then(|parent| indices.get(parent).copied());
            let known = one.groups.iter().position(|other| *other == group);
            indices.push(known.unwrap_or(one.groups.len()));
            if known.is_none() {
                one.groups.push(group);
            }
        }
        one.blocks.extend(blocks.into_iter().map(|mut block| {
            block.group = block.group.and_then(|group| indices.get(group).copied());
            block.name = full(block.name);
            if let Some(tuned) = &mut block.tuned_band {
                tuned.fixed_by = tuned.fixed_by.take().map(full);
            }
            block
        }));
        one.edges.extend(edges.into_iter().map(|mut edge| {
            (edge.from, edge.to) = (full(edge.from), full(edge.to));
            edge
        }));
    }
    let streams = streams(&one);
    one.edges.extend(streams);
    one
}

/// Edges for the streams between parts. The cut names both ends of a stream after the output that it carries.
fn streams(graph: &Graph) -> Vec<EdgeInfo> {
    let ends = |kind: &'static str, prefix: &'static str| {
        graph.blocks.iter().filter(move |block| block.kind == kind).filter_map(move |block| {
            let (_, local) = block.name.split_once('/')?;
            Some((local.strip_prefix(prefix)?, &block.name))
        })
    };
    let senders = ends("stream_sink", "send.").filter_map(|(stream, sender)| {
        let edge = graph.edges.iter().find(|edge| edge.to == *sender)?;
        Some((stream, sender, edge))
    });
    let edges = senders.flat_map(|(stream, sender, edge)| {
        let receivers = ends("stream_source", "receive.").filter(move |end| end.0 == stream);
        receivers.map(move |(_, receiver)| EdgeInfo {
            from: sender.clone(),
            output: "network".to_owned(),
            to: receiver.clone(),
            input: "network".to_owned(),
            queued_frames: 0,
            queue_peak_frames: None,
            queue_frames: 0,
            when_full: WhenFull::Wait.name().to_owned(),
            frames_dropped: 0,
            ..edge.clone()
        })
    });
    edges.collect()
}

/// Lists of all parts, one after the other.
async fn lists<T: serde::de::DeserializeOwned>(
    fleet: &Fleet,
    path: &'static str,
) -> Vec<(String, T)> {
    let answers = fleet.ask(|part| async move { part.get::<Vec<T>>(path).await }).await;
    let answers =
        answers.into_iter().filter_map(|(part, answer)| Some((part.name.clone(), answer.ok()?)));
    answers.flat_map(|(part, list)| list.into_iter().map(move |one| (part.clone(), one))).collect()
}

pub(super) async fn blocks(State(fleet): State<Fleet>) -> Json<Vec<BlockSummary>> {
    let all = lists::<BlockSummary>(&fleet, "/api/v1/blocks").await;
    let named = all.into_iter().map(|(part, mut block)| {
        block.name = full_name(&part, &block.kind, &block.name);
        block
    });
    Json(named.collect())
}

pub(super) async fn history(
    State(fleet): State<Fleet>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<History>, Problem> {
    let Wanted { gauge, block, seconds } = Wanted::of(&query)?;
    let gauge = gauge.map(|gauge| format!("&gauge={gauge}")).unwrap_or_default();
    let path = format!("/api/v1/history?seconds={seconds}{gauge}");
    let ask = |part: Arc<Part>| {
        let path = path.clone();
        async move { (part.page(), part.get_if_known::<History>(&path).await) }
    };
    let mut one = History::default();
    for (part, (page, answer)) in fleet.ask(ask).await {
        if let Ok(history) = answer {
            add_history(&mut one, &part.name, page.ok().as_deref(), history);
        }
    }
    if let Some(block) = block {
        one.series.retain(|series| series.block == block);
    }
    Ok(Json(one))
}

/// Adds the history of the part `name`, whose flowgraph is `page`, to that of the fleet.
fn add_history(one: &mut History, name: &str, page: Option<&FlowgraphPage>, history: History) {
    for gauge in history.gauges {
        match one.gauges.iter_mut().find(|known| known.name == gauge.name) {
            Some(known) => known.series += gauge.series,
            None => one.gauges.push(gauge),
        }
    }
    one.step_seconds = history.step_seconds;
    one.end_unix_seconds = one.end_unix_seconds.max(history.end_unix_seconds);
    one.left_out += history.left_out;
    let kinds: HashMap<&str, &str> = page
        .iter()
        .flat_map(|page| &page.graph.blocks)
        .map(|block| (&*block.name, &*block.kind))
        .collect();
    one.series.extend(history.series.into_iter().map(|series| {
        let kind = kinds.get(&*series.block).copied().unwrap_or_default();
        GaugeSeries { block: full_name(name, kind, &series.block), ..series }
    }));
}

pub(super) async fn recorders(State(fleet): State<Fleet>) -> Json<Vec<RecorderInfo>> {
    let all = lists::<RecorderInfo>(&fleet, "/api/v1/recorders").await;
    let named = all.into_iter().map(|(part, mut recorder)| {
        recorder.name = format!("{part}/{}", recorder.name);
        recorder
    });
    Json(named.collect())
}

pub(super) async fn shadows(State(fleet): State<Fleet>) -> Json<Vec<Value>> {
    let all = lists::<Value>(&fleet, "/api/v1/shadows").await;
    Json(all.into_iter().map(|(_, shadow)| shadow).collect())
}

pub(super) async fn metrics(State(fleet): State<Fleet>) -> Response {
    let mut all = Federation::default();
    let answers = fleet.ask(|part| async move { part.bytes("/metrics").await }).await;
    let mut parts = Vec::new();
    for (part, answer) in answers {
        let rejected = answer.map(|body| all.add(&part.name, &String::from_utf8_lossy(&body)));
        let (info, rejected) = (part.info(), rejected.unwrap_or_default());
        let is_up = part.trouble().is_none() || info.contact == "rejects_token";
        parts.push(PartState { info, is_up, rejected });
    }
    all.add_parts(&fleet.0.name, &parts);
    let media_type = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, media_type)], all.finish()).into_response()
}

/// Number of the last event that the client knows.
fn since(text: Option<&str>) -> Result<u64, Problem> {
    let Some(text) = text else { return Ok(0) };
    text.parse().map_err(|_| {
        Problem::new(StatusCode::BAD_REQUEST, "`since` must be the number of an event")
            .help("give the `sequence` of the last known event, or 0 for all events")
    })
}

pub(super) async fn events(
    State(fleet): State<Fleet>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<EventList>, Problem> {
    Ok(Json(fleet.0.log.since(since(query.get("since").map(String::as_str))?)))
}

pub(super) async fn follow_events(
    State(fleet): State<Fleet>,
    Extension(Peer(client)): Extension<Peer>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?"));
    let last = since(id.or(query.get("since").map(String::as_str)))?;
    let place = fleet.0.forwarded.take(client, 1).ok_or_else(super::forward::too_many)?;
    let waiting = VecDeque::<EventInfo>::new();
    let events = stream::unfold(
        (fleet, last, waiting, place),
        |(fleet, mut last, mut waiting, place)| async move {
            if waiting.is_empty() {
                let list = fleet.0.log.next(last).await;
                waiting = list.events.into();
            }
            let event = waiting.pop_front()?;
            last = event.sequence;
            let told = SseEvent::default().id(last.to_string()).json_data(event).ok()?;
            Some((Ok::<_, Infallible>(told), (fleet, last, waiting, place)))
        },
    );
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}
