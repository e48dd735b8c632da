//! Events of the run, as a list and as a stream.

use crate::app::App;
use crate::guard::Peer;
use crate::problem::Problem;
use crate::shares::Share;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use fxgraph::runtime::{Event, EventKind};
use fxgraph_api::events::{EventInfo, EventList};
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::time::UNIX_EPOCH;

fn info(event: Event) -> EventInfo {
    let time = event.time.duration_since(UNIX_EPOCH).unwrap_or_default();
    EventInfo {
        sequence: event.sequence,
        part_sequence: None,
        unix_time_seconds: time.as_secs_f64(),
        block: event.block,
        kind: event.kind.name().to_owned(),
        text: event.text,
    }
}

/// Parses the number of an event.
fn number(text: &str, name: &str) -> Result<u64, Problem> {
    // Limited to signed 64-bit numbers, as the API description states.
    text.parse::<i64>().ok().and_then(|number| u64::try_from(number).ok()).ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, format!("`{name}` must be the number of an event"))
            .help("give the `sequence` of the last known event, or 0 for all events")
    })
}

/// Events so far
#[utoipa::path(get, path = "/events", tag = "events", operation_id = "list_events",
    params(("since" = Option<u64>, Query, description = "number of the last event that the client knows")),
    responses(
        (status = 200, description = "the later events, in order", body = EventList),
        (status = 400, description = "`since` is not a number"),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Json<EventList>, Problem> {
    let since = query.get("since").map_or(Ok(0), |text| number(text, "since"))?;
    let events = app.control.events_since(since);
    Ok(Json(EventList {
        last: events.last().map_or(since, |event| event.sequence),
        forgotten: events.first().map_or(0, |event| event.sequence - since - 1),
        events: events.into_iter().map(info).collect(),
    }))
}

/// State of a stream of events.
struct Following {
    app: App,
    last: u64,
    waiting: VecDeque<Event>,
    has_ended: bool,
    _place: Share,
}

impl Following {
    async fn next(mut self) -> Option<(Result<SseEvent, Infallible>, Self)> {
        if self.has_ended {
            return None;
        }
        if self.waiting.is_empty() {
            self.waiting = self.app.control.next_events(self.last).await.into();
        }
        let event = self.waiting.pop_front()?;
        self.last = event.sequence;
        self.has_ended = event.kind == EventKind::Ended;
        let id = event.sequence.to_string();
        let told = SseEvent::default().id(id).json_data(info(event)).ok()?;
        Some((Ok(told), self))
    }
}

/// Events as server-sent events, until the run ends
#[utoipa::path(get, path = "/events/stream", tag = "events", operation_id = "follow_events",
    params(
        ("since" = Option<u64>, Query, description = "number of the last event that the client knows"),
        ("Last-Event-ID" = Option<u64>, Header,
            description = "like `since`, sent by clients that reconnect; takes precedence over `since`"),
    ),
    responses(
        (status = 200, description = "each event with its `sequence` as `id`", body = EventInfo,
            content_type = "text/event-stream"),
        (status = 400, description = "malformed number"),
        (status = 429, description = "too many streams of events, of all clients or of this one"),
    ))]
pub(super) async fn stream(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = match headers.get("last-event-id") {
        Some(id) => number(id.to_str().unwrap_or_default(), "Last-Event-ID")?,
        None => query.get("since").map_or(Ok(0), |text| number(text, "since"))?,
    };
    let Some(place) = app.streams.take(client, 1) else {
        let detail = "too many streams of events are open";
        return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, detail)
            .help("close one, or poll `/api/v1/events?since=...`"));
    };
    let following =
        Following { app, last, waiting: VecDeque::new(), has_ended: false, _place: place };
    let events = stream::unfold(following, Following::next);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}
