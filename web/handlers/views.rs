//! Views of an output.

use super::output::Output;
use super::request::{asked, within};
use crate::app::App;
use crate::guard::Peer;
use crate::problem::Problem;
use crate::taps::{Look, Watch};
use crate::views::{self, POINTS, View};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream::select_all;
use fxgraph::PortType;
use fxgraph::control::TapFrame;
use fxgraph::diagnostic::suggest;
use fxgraph_api::views::{Message, Select, Selected, ViewInfo, ViewList};
use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Range of the time between two messages, in seconds.
pub(super) const EVERY_SECONDS: RangeInclusive<f64> = 0.05..=60.0;
pub(super) const DEFAULT_EVERY_SECONDS: f64 = 0.25;
/// Default number of points.
const DEFAULT_POINTS: usize = 1024;
/// Query parameters other than axes.
const OTHERS: [&str; 3] = ["every_seconds", "points", "once"];

/// Views of an output
#[utoipa::path(get, path = "/blocks/{name}/outputs/{port}/views", tag = "blocks",
    operation_id = "list_views",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`",
            example = "source"),
        ("port" = String, Path, description = "name of the output", example = "output"),
    ),
    responses(
        (status = 200, description = "the views, and the axes with a selectable index",
            body = ViewList),
        (status = 404, description = "unknown block or output"),
    ))]
pub(super) async fn list(
    State(app): State<App>,
    Path((name, port)): Path<(String, String)>,
) -> Result<Json<ViewList>, Problem> {
    let output = Output::find(&app, &name, &port)?;
    let views = views::of(&output.port).into_iter().map(|(view, selects)| ViewInfo {
        name: view.name.to_owned(),
        title: view.title.to_owned(),
        kind: view.kind,
        selects,
    });
    Ok(Json(ViewList { views: views.collect() }))
}

/// Finds the view `name` of `output`, with its selectable axes.
fn find(output: &Output, name: &str) -> Result<(&'static View, Vec<Select>), Problem> {
    let views = views::of(&output.port);
    let known: Vec<&str> = views.iter().map(|(view, _)| view.name).collect();
    let unknown = || {
        let detail = format!("`{}` has no view `{name}`", output.name);
        Problem::new(StatusCode::NOT_FOUND, detail).maybe_help(suggest(name, "view", &known))
    };
    views.into_iter().find(|(view, _)| view.name == name).ok_or_else(unknown)
}

/// Returns the indices in `query`, or the defaults in `selects`.
fn select(
    query: &HashMap<String, String>,
    view: &View,
    selects: &[Select],
) -> Result<Vec<Selected>, Problem> {
    let known: Vec<&str> = selects.iter().map(|select| select.axis.as_str()).collect();
    let is_known = |name: &str| OTHERS.contains(&name) || known.contains(&name);
    if let Some(unknown) = query.keys().filter(|name| !is_known(name)).min() {
        let detail = format!("the view `{}` has no selectable axis `{unknown}`", view.name);
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail)
            .maybe_help(suggest(unknown, "axis", &known)));
    }
    let selected = selects.iter().map(|select| {
        let index = within(query, &select.axis, &(0..=select.len - 1))?;
        Ok(select.at(index.unwrap_or(select.default)))
    });
    selected.collect()
}

/// A view of the newest frames, as server-sent events; or once, as JSON
#[utoipa::path(get, path = "/blocks/{name}/outputs/{port}/views/{view}", tag = "blocks",
    operation_id = "follow_view",
    params(
        ("name" = String, Path, description = "name of the block, like `f[0].pfb`",
            example = "source"),
        ("port" = String, Path, description = "name of the output", example = "output"),
        ("view" = String, Path, description = "name of the view", example = "spectrum"),
        ("every_seconds" = Option<f64>, Query, minimum = 0.05, maximum = 60,
            description = "minimum time between two messages, in seconds; 0.25 by default; frames in \
                between are skipped"),
        ("points" = Option<usize>, Query, minimum = 16, maximum = 4096,
            description = "maximum number of points on the longest axis, 1024 by default; each point is the mean \
                over its interval"),
        ("once" = Option<bool>, Query,
            description = "`true` for one message as JSON in place of a stream"),
        ("pol" = Option<usize>, Query,
            description = "index of the polarisation, if the view selects one"),
        ("antenna" = Option<usize>, Query, description = "index of the antenna, if the view selects one"),
        ("beam" = Option<usize>, Query, description = "index of the beam, if the view selects one"),
        ("baseline" = Option<usize>, Query, description = "index of the baseline, if the view selects one"),
        ("product" = Option<usize>, Query,
            description = "index of the polarisation product, if the view selects one"),
        ("value" = Option<usize>, Query,
            description = "index of the measured value of a satellite, if the view selects one"),
    ),
    responses(
        (status = 200, description = "each message as the `data` of an event `view`, until the output \
            ends; an event `problem` reports why the stream ends early",
            content((Message = "text/event-stream"), (Message = "application/json"))),
        (status = 400, description = "a value is malformed, out of range, or of an axis that the view does not select"),
        (status = 404, description = "unknown block, output or view"),
        (status = 409, description = "the output has ended, or no frame came because its frames are longer than a request may wait"),
        (status = 422, description = "the frames are too large"),
        (status = 429, description = "too many streams of outputs, of all clients or of this one"),
        (status = 500, description = "copying from the device failed"),
        (status = 503, description = "no frame arrived in time, or memory for it is short"),
    ))]
pub(super) async fn get(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Path((name, port, view)): Path<(String, String, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Problem> {
    let once = asked(&query, "once", "true")?.unwrap_or(false);
    let look = if once { Look::Once } else { Look::Follow };
    let (watch, made) = open(&app, (client, look), [&name, &port, &view], &query).await?;
    if once {
        return Ok(Json(watch.first(made).await?.0).into_response());
    }
    let events = watch.events("view", None, made);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// Opens a tap of an output, and returns it with the function that computes the view.
async fn open(
    app: &App,
    looks: (IpAddr, Look),
    [name, port, view]: [&str; 3],
    query: &HashMap<String, String>,
) -> Result<(Watch, impl Fn(&PortType, TapFrame) -> Message + Clone + use<>), Problem> {
    let output = Output::find(app, name, port)?;
    let (view, selects) = find(&output, view)?;
    let selected = select(query, view, &selects)?;
    let seconds = within(query, "every_seconds", &EVERY_SECONDS)?.unwrap_or(DEFAULT_EVERY_SECONDS);
    let points = within(query, "points", &POINTS)?.unwrap_or(DEFAULT_POINTS);
    let bytes = output.port.frame_bytes();
    let pause = Duration::from_secs_f64(seconds);
    let watch = app.taps.open(&app.control, looks, output.name, bytes, 1, pause).await?;
    let made =
        move |port: &PortType, frame: TapFrame| view.message(port, &frame, &selected, points);
    Ok((watch, made))
}

/// Several views in one stream, for clients with few connections, like browsers
#[utoipa::path(get, path = "/views", tag = "blocks", operation_id = "follow_views",
    params(("view" = Vec<String>, Query, example = json!(["source/output/spectrum?points=512"]),
        description = "`block/output/view`, with the query of the view; may be given several times")),
    responses(
        (status = 200, description = "the events of all views; the `index` in the data is that of the view",
            content((Message = "text/event-stream"))),
        (status = 400, description = "no view is given, or one is malformed"),
        (status = 404, description = "unknown block, output or view"),
        (status = 409, description = "an output has ended"),
        (status = 422, description = "the frames are too large"),
        (status = 429, description = "too many streams of outputs, of all clients or of this one"),
        (status = 503, description = "a block does not respond, or memory for its frames is short"),
    ))]
pub(super) async fn follow(
    State(app): State<App>,
    Extension(Peer(client)): Extension<Peer>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<Response, Problem> {
    let wrong = |detail: String| {
        Problem::new(StatusCode::BAD_REQUEST, detail)
            .help("give `view=block/output/view`; percent-encode the `?` of a query in it")
    };
    if query.is_empty() {
        return Err(wrong("no view is given".to_owned()));
    }
    let mut streams = Vec::new();
    for (index, (key, asked)) in query.iter().enumerate() {
        if key != "view" {
            return Err(wrong(format!("unknown query parameter `{key}`")));
        }
        let (path, own) = asked.split_once('?').unwrap_or((asked, ""));
        let &[name, port, view] = path.split('/').collect::<Vec<_>>().as_slice() else {
            return Err(wrong(format!("expected block/output/view, got `{path}`")));
        };
        let own = format!("/?{own}").parse().ok().and_then(|uri| Query::try_from_uri(&uri).ok());
        let Some(Query(own)) = own else {
            return Err(wrong(format!("invalid query in `{asked}`")));
        };
        let (watch, made) = open(&app, (client, Look::Follow), [name, port, view], &own).await?;
        streams.push(Box::pin(watch.events("view", Some(index), made)));
    }
    Ok(Sse::new(select_all(streams)).keep_alive(KeepAlive::default()).into_response())
}
