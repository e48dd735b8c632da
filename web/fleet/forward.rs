//! Requests about one block, passed to its part.

use super::Fleet;
use super::client::Asked;
use super::parts::Part;
use super::update::{self, Values};
use crate::app::Permission;
use crate::guard::Peer;
use crate::handlers::request::asked;
use crate::problem::Problem;
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _, stream};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit of a part for the head of its answer: a swap or a frame of a slow output takes this long.
const LIMIT: Duration = Duration::from_mins(1);
/// Largest answer whose names are replaced, in bytes.
const MOST_BYTES: usize = 16 << 20;
/// Maximum number of blocks in one request.
const MOST_BLOCKS: usize = 4096;
/// Headers of a request that a part gets.
const PASSED: [header::HeaderName; 2] = [header::ACCEPT, header::CONTENT_TYPE];
/// Headers about the connection to the part.
const KEPT_BACK: [header::HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::CONTENT_LENGTH, header::DATE];

pub(super) fn too_many() -> Problem {
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too many requests to parts are open")
        .help("close a stream, or send fewer requests at once")
}

fn encoded(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Decodes percent-encoded text; `None` if it is none.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
            bytes.push(u8::try_from(16 * high + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// A request of a client.
pub(super) struct Of {
    fleet: Fleet,
    client: std::net::IpAddr,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
}

impl Of {
    /// Passes the request to `part`, as one for `path` with its query.
    async fn pass(self, part: &Part, path: &str) -> Result<Response, Problem> {
        let place = self.fleet.0.forwarded.take(self.client, 1).ok_or_else(too_many)?;
        let lost = |why: String| {
            let detail = format!("part `{}` does not answer: {why}", part.name);
            Problem::new(StatusCode::BAD_GATEWAY, detail).help("see `GET /api/v1/parts`")
        };
        if let Some(trouble) = part.trouble() {
            let detail = format!("part `{}`: {trouble}", part.name);
            return Err(Problem::busy(detail).help("see `GET /api/v1/parts`"));
        }
        let (address, token) = part.server().map_err(lost)?;
        let mut headers = HeaderMap::new();
        for name in &PASSED {
            if let Some(value) = self.headers.get(name) {
                headers.insert(name, value.clone());
            }
        }
        let (method, body) = (self.method, self.body);
        let token = token.as_deref();
        let asked = Asked { address: &address, token, method, path, headers, body, limit: LIMIT };
        let (mut head, body) = asked.send().await.map_err(|error| lost(error.into()))?.into_parts();
        for name in &KEPT_BACK {
            head.headers.remove(name);
        }
        // The place is held until the body has ended.
        let body = body.into_data_stream().map(move |chunk| {
            let _ = &place;
            chunk
        });
        Ok(Response::from_parts(head, Body::from_stream(body)))
    }
}

/// Replaces names in a JSON answer by those of the fleet; other answers pass.
async fn renamed(answer: Response, rename: impl FnOnce(&mut Value)) -> Result<Response, Problem> {
    let is_json =
        answer.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_json || !answer.status().is_success() {
        return Ok(answer);
    }
    let (head, body) = answer.into_parts();
    let bad = || Problem::new(StatusCode::BAD_GATEWAY, "the answer of the part is unreadable");
    let body = timeout(LIMIT, axum::body::to_bytes(body, MOST_BYTES)).await;
    let body = body.map_err(|_| bad())?.map_err(|_| bad())?;
    let mut value: Value = serde_json::from_slice(&body).map_err(|_| bad())?;
    rename(&mut value);
    Ok(Response::from_parts(head, Body::from(value.to_string())))
}

fn with_query(path: String, uri: &Uri) -> String {
    uri.query().map_or(path.clone(), |query| format!("{path}?{query}"))
}

/// `/api/v1/blocks/NAME...`: to the part of the block.
pub(super) async fn block(
    State(fleet): State<Fleet>,
    Extension(Peer(client)): Extension<Peer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let below = uri.path().strip_prefix("/api/v1/blocks/").unwrap_or_default();
    let (name, rest) = below.split_at(below.find('/').unwrap_or(below.len()));
    let bad = || Problem::new(StatusCode::BAD_REQUEST, "the path is not percent-encoded text");
    let full = decoded(name).ok_or_else(bad)?;
    let is_recording = rest.ends_with("/recordings");
    let is_live = is_recording || method == Method::PUT && rest.starts_with("/parameters/");
    if fleet.0.permission != Permission::Full && method != Method::GET && !is_live {
        let detail = "clients may change live parameters only";
        return Err(Problem::new(StatusCode::FORBIDDEN, detail)
            .help("start the fleet with `--control full` to allow other changes"));
    }
    let (part, local) = fleet.find(&full)?;
    let path = with_query(format!("/api/v1/blocks/{}{rest}", encoded(&local)), &uri);
    let is_page = rest.is_empty() && method == Method::GET;
    let of = Of { fleet, client, method, headers, body };
    let answer = of.pass(&part, &path).await?;
    if is_recording {
        let prefix = part.name.clone();
        return renamed(answer, |value| prefix_name(value, &prefix)).await;
    }
    if is_page {
        return renamed(answer, |page| full_names(page, &part, &full)).await;
    }
    Ok(answer)
}

fn prefix_name(value: &mut Value, part: &str) {
    if let Some(Value::String(name)) = value.get_mut("name") {
        *name = format!("{part}/{name}");
    }
}

/// Replaces the names of blocks in the page of a block.
fn full_names(page: &mut Value, part: &Part, full: &str) {
    if let Some(name) = page.get_mut("name") {
        *name = full.into();
    }
    let Ok(known) = part.page() else { return };
    let names: Vec<(String, String)> = known
        .graph
        .blocks
        .iter()
        .map(|block| {
            (
                format!("{}.", block.name),
                super::full_name(&part.name, &block.kind, &block.name) + ".",
            )
        })
        .filter(|(local, full)| local != full)
        .collect();
    let rename = |port: &mut Value| {
        let Value::String(text) = port else { return };
        let longest = names.iter().filter(|(local, _)| text.starts_with(local.as_str()));
        if let Some((local, full)) = longest.max_by_key(|(local, _)| local.len()) {
            *text = format!("{full}{}", &text[local.len()..]);
        }
    };
    for input in page.get_mut("inputs").and_then(Value::as_array_mut).into_iter().flatten() {
        input.get_mut("from").into_iter().for_each(rename);
    }
    for output in page.get_mut("outputs").and_then(Value::as_array_mut).into_iter().flatten() {
        output.get_mut("to").and_then(Value::as_array_mut).into_iter().flatten().for_each(rename);
    }
}

/// `/api/v1/recorders/NAME...`: to the part that `NAME` begins with.
pub(super) async fn recorder(
    State(fleet): State<Fleet>,
    Extension(Peer(client)): Extension<Peer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let below = uri.path().strip_prefix("/api/v1/recorders/").unwrap_or_default();
    let (name, rest) = below.split_at(below.find('/').unwrap_or(below.len()));
    let name = decoded(name).unwrap_or_default();
    let parts = fleet.parts();
    let found = name
        .split_once('/')
        .and_then(|(part, local)| Some((parts.iter().find(|known| known.name == part)?, local)));
    let Some((part, local)) = found else {
        let detail = format!("there is no recorder `{name}`");
        return Err(Problem::new(StatusCode::NOT_FOUND, detail)
            .help("list the recorders with `fxgraph record` or `GET /api/v1/recorders`"));
    };
    let path = with_query(format!("/api/v1/recorders/{}{rest}", encoded(local)), &uri);
    let answer = Of { fleet, client, method, headers, body }.pass(part, &path).await?;
    renamed(answer, |value| prefix_name(value, &part.name)).await
}

/// `/api/v1/kinds...`: to the first part that answers.
pub(super) async fn kinds(
    State(fleet): State<Fleet>,
    Extension(Peer(client)): Extension<Peer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let part = fleet.parts().into_iter().find(|part| part.trouble().is_none());
    let part = part.ok_or_else(|| Problem::busy("no part answers"))?;
    let path = with_query(uri.path().to_owned(), &uri);
    Of { fleet, client, method, headers, body: Bytes::new() }.pass(&part, &path).await
}

/// The views of one part in a request: their positions in the request, and their queries at the part.
struct ViewsOf {
    part: Arc<Part>,
    indices: Vec<usize>,
    query: Vec<String>,
}

/// `/api/v1/views?view=BLOCK/OUTPUT/VIEW&...`: the events of all parts of these blocks in one stream.
pub(super) async fn views(
    State(fleet): State<Fleet>,
    Extension(Peer(client)): Extension<Peer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut parts: BTreeMap<String, ViewsOf> = BTreeMap::new();
    let bad = || {
        Problem::new(StatusCode::BAD_REQUEST, "every query parameter must be a view")
            .help("give `view=block/output/view`; percent-encode the `?` of a query in it")
    };
    for (index, view) in uri.query().unwrap_or_default().split('&').enumerate() {
        let asked = view.strip_prefix("view=").and_then(decoded).ok_or_else(bad)?;
        let (path, own) = asked.split_at(asked.find('?').unwrap_or(asked.len()));
        let &[view, port, name] = path.rsplitn(3, '/').collect::<Vec<_>>().as_slice() else {
            return Err(bad());
        };
        let (part, local) = fleet.find(name)?;
        let of_part = parts.entry(part.name.clone());
        let of_part =
            of_part.or_insert_with(|| ViewsOf { part, indices: Vec::new(), query: Vec::new() });
        of_part.indices.push(index);
        of_part.query.push(format!("view={}", encoded(&format!("{local}/{port}/{view}{own}"))));
    }
    let mut streams = Vec::new();
    for ViewsOf { part, indices, query } in parts.into_values() {
        let path = format!("/api/v1/views?{}", query.join("&"));
        let (fleet, method, headers) = (fleet.clone(), method.clone(), headers.clone());
        let of = Of { fleet, client, method, headers, body: Bytes::new() };
        let answer = of.pass(&part, &path).await?;
        if !answer.status().is_success() {
            return Ok(answer);
        }
        streams.push(Box::pin(view_events(answer, part.name.clone(), indices)));
    }
    let body = Body::from_stream(stream::select_all(streams));
    let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((head, body).into_response())
}

/// Events of a stream of views of `part`, with the `indices` of the views in the request of the client.
fn view_events(
    answer: Response,
    part: String,
    indices: Vec<usize>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
    let body = answer.into_body().into_data_stream();
    stream::unfold(Some((body, Vec::new(), part, indices)), |state| async move {
        let (mut body, mut bytes, part, indices) = state?;
        let mut searched: usize = 0;
        loop {
            let from = searched.saturating_sub(1);
            let end = bytes[from..].windows(2).position(|pair| pair == b"\n\n");
            if let Some(end) = end {
                let event: Vec<u8> = bytes.drain(..from + end + 2).collect();
                let event = renumbered(&event, &indices);
                return Some((Ok(event), Some((body, bytes, part, indices))));
            }
            searched = bytes.len();
            match body.next().await {
                Some(Ok(chunk)) if bytes.len() + chunk.len() <= MOST_BYTES => {
                    bytes.extend_from_slice(&chunk);
                }
                None => return None,
                Some(_) => {
                    let detail = format!("the stream of part `{part}` has broken off");
                    let document = Problem::new(StatusCode::BAD_GATEWAY, detail).document;
                    let mut events = String::new();
                    for index in indices {
                        let mut told = serde_json::to_value(&document).unwrap_or_default();
                        told["index"] = index.into();
                        events.push_str(&format!("event: problem\ndata: {told}\n\n"));
                    }
                    return Some((Ok(events.into()), None));
                }
            }
        }
    })
}

/// Replaces the index in the data of an event.
fn renumbered(event: &[u8], indices: &[usize]) -> Bytes {
    let text = String::from_utf8_lossy(event);
    let mut lines = String::with_capacity(event.len());
    for line in text.split_inclusive('\n') {
        let data = line.strip_prefix("data:").and_then(|data| serde_json::from_str(data).ok());
        let index = data.as_ref().and_then(|data: &Value| data["index"].as_u64());
        let index = index.and_then(|index| indices.get(usize::try_from(index).ok()?));
        match (data, index) {
            (Some(mut data), Some(index)) => {
                data["index"] = (*index).into();
                lines.push_str(&format!("data: {data}\n"));
            }
            _ => lines.push_str(line),
        }
    }
    lines.into()
}

/// Names and values of the blocks in a request.
struct Blocks(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Blocks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Blocks;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object of blocks")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Blocks, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Blocks(all))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

/// `PATCH /api/v1/blocks`: to the part of these blocks, or in two steps to several.
pub(super) async fn live_update(
    State(fleet): State<Fleet>,
    Extension(Peer(client)): Extension<Peer>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let bad = |detail: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
    let Blocks(blocks) = serde_json::from_slice(&body)
        .map_err(|_| bad("the body must be a JSON object of blocks".to_owned()))?;
    if blocks.is_empty() || blocks.len() > MOST_BLOCKS {
        let detail = format!("a request must name 1 to {MOST_BLOCKS} blocks, got {}", blocks.len());
        return Err(bad(detail));
    }
    let mut parts = Values::new();
    for (name, values) in blocks {
        let (part, local) = fleet.find(&name)?;
        if local != name {
            return Err(bad(format!("`{name}` connects parts and has no live parameters")));
        }
        let entry = parts.entry(part.name.clone());
        let (_, of_part) = entry.or_insert_with(|| (part, Map::new()));
        if of_part.insert(local, values).is_some() {
            return Err(bad(format!("`{name}` is in the request twice")));
        }
    }
    if let (Some((part, _)), 1) = (parts.values().next(), parts.len()) {
        // The text as it came, with the places of values for diagnostics.
        let (part, path) = (Arc::clone(part), with_query("/api/v1/blocks".to_owned(), &uri));
        return Of { fleet, client, method, headers, body }.pass(&part, &path).await;
    }
    let _places = fleet.0.forwarded.take(client, parts.len()).ok_or_else(too_many)?;
    let at = asked::<u64>(&query, "at", "123456")?;
    // Two updates at once would wait for each other at their parts.
    let turn = timeout(LIMIT, Arc::clone(&fleet.0.updates).lock_owned()).await;
    let turn = turn.map_err(|_| Problem::busy("other updates of several parts are in progress"))?;
    // It goes on if the client leaves, so that no part keeps an update that others have not.
    let update = async move {
        let _turn = turn;
        let made = update::update(parts, at).await;
        // Others should know, too.
        if let Err(problem) = &made
            && problem.document.status == StatusCode::BAD_GATEWAY
        {
            fleet.0.log.warn(&problem.document.detail);
        }
        made
    };
    let update = tokio::spawn(update).await;
    let lost = |_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the update has failed");
    Ok(update.map_err(lost)??.into_response())
}
