//! SIGHUP of a run as parts: the edited file, applied to all parts or to none of them.
//!
//! Each part first says what the update would do. If only live parameters differ, all parts take them at one timestamp;
//! otherwise the parts are updated one after the other, and those that were go back if one fails.

use crate::client::{Client, Connection};
use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::parts::{HostPart, parts};
use crate::reload::check_file;
use crate::terminal::Terminal;
use fxgraph::diagnostic::{Severity, render_all};
use fxgraph::flowgraph::Loopback;
use fxgraph_api::changes::{LiveUpdate, PreparedUpdate, UpdateInfo};
use fxgraph_api::flowgraph::FlowgraphPage;
use serde_json::{Map, Value};
use ureq::http::Method;

const FLOWGRAPH: &str = "/api/v1/flowgraph";
/// Prefix of the key of a changed parameter.
const PARAMETERS: &str = "parameters.";
/// Distance of the common timestamp from the newest samples, in seconds: more than the time for committing.
const LEAD_SECONDS: f64 = 2.0;

/// The server of a part; other threads than that of the part's process ask it.
pub struct Server {
    /// Name of the part.
    pub name: String,
    /// `None` if the part has no server yet.
    pub url: Option<String>,
}

/// A part that the update changes.
struct Changed<'a> {
    server: &'a Server,
    yaml: &'a str,
    update: UpdateInfo,
}

/// A file that was applied to all parts.
pub struct Reloaded {
    /// Says what was done.
    pub text: String,
    /// The parts as the file has them.
    pub hosts: Vec<HostPart>,
    /// Names of the parts that have changed.
    pub changed: Vec<String>,
}

/// Reason why the file was not applied to all parts.
pub struct NotApplied {
    pub why: String,
    /// Parts that have the new flowgraph nevertheless, or may have it, with the reasons.
    pub left: Vec<String>,
}

impl From<String> for NotApplied {
    fn from(why: String) -> Self {
        Self { why, left: Vec::new() }
    }
}

/// Applies `hosts`, the parts as the file has them, to the running parts. It takes as long as the blocks need to be
/// swapped.
pub fn reload(hosts: Vec<HostPart>, servers: &[Server]) -> Result<Reloaded, NotApplied> {
    let same_names = hosts.len() == servers.len();
    let pairs = hosts.iter().map(|host| {
        let server = servers.iter().find(|server| server.name == host.part.name)?;
        Some((server, host))
    });
    let pairs: Option<Vec<_>> = pairs.collect();
    let pairs = pairs
        .filter(|_| same_names)
        .ok_or_else(|| "the hosts differ, which needs a restart".to_owned())?;
    let (mut changed, mut rejected) = (Vec::new(), Vec::new());
    for (server, host) in pairs {
        match dry_run(server, &host.part.yaml) {
            Ok(update) if update.blocks.iter().all(|block| block.way == "nothing") => {}
            Ok(update) => changed.push(Changed { server, yaml: &host.part.yaml, update }),
            Err(why) => rejected.push(of_part(server, &why)),
        }
    }
    if !rejected.is_empty() {
        return Err(rejected.join("\n").into());
    }
    let names: Vec<String> = changed.iter().map(|part| part.server.name.clone()).collect();
    let text = made(&changed)?;
    Ok(Reloaded { text, hosts, changed: names })
}

/// Changes the parts; returns what was done.
fn made(changed: &[Changed<'_>]) -> Result<String, NotApplied> {
    if changed.is_empty() {
        return Ok("no block differs".to_owned());
    }
    let names: Vec<String> = changed.iter().map(|part| format!("`{}`", part.server.name)).collect();
    let names = names.join(", ");
    let mut ways = changed.iter().flat_map(|part| &part.update.blocks).map(|block| &*block.way);
    if ways.all(is_live)
        && let Some(at) = set_at_once(changed)?
    {
        return Ok(format!("changed parts {names} from timestamp {at} on"));
    }
    apply(changed)?;
    Ok(format!("changed parts {names}, one after the other"))
}

/// Whether a block is changed in this way by a live update, or not at all.
fn is_live(way: &str) -> bool {
    ["nothing", "live_update"].contains(&way)
}

/// Reads the parts of the file of `target`, which use the port of `loopback`.
pub fn read(
    target: &Target,
    loopback: Loopback,
    terminal: &Terminal,
) -> Result<Vec<HostPart>, String> {
    check_file(target).map_err(|failure| failure.first_line())?;
    let loaded = flowgraph::load_here(&target.file, &target.set, Severity::Error);
    let style = flowgraph::style(terminal);
    let plan = loaded.result.map_err(|problems| render_all(&problems, &loaded.sources, style))?;
    if plan.hosts.is_none() {
        return Err("it has no `hosts` any more, which needs a restart".to_owned());
    }
    parts(&plan, Some(loopback)).map_err(|failure| match failure {
        Failure::Configuration(text) => text,
        other => other.first_line(),
    })
}

/// Asks the server of a part.
fn ask<T>(server: &Server, ask: impl FnOnce(&Client) -> Result<T, Failure>) -> Result<T, String> {
    let url = server.url.as_ref().ok_or("it has no server")?;
    let client = Connection::to(url).client();
    client.and_then(|client| ask(&client)).map_err(|failure| failure.first_line())
}

/// Changes of a part by the flowgraph `yaml`, without making them; the error says why it cannot be applied.
fn dry_run(server: &Server, yaml: &str) -> Result<UpdateInfo, String> {
    let path = format!("{FLOWGRAPH}?dry_run=true");
    let update: UpdateInfo = ask(server, |client| client.put_yaml(&path, yaml.to_owned()))?;
    if update.restart_because.is_empty() {
        return Ok(update);
    }
    Err(format!("it needs a restart: {}", update.restart_because.join("; ")))
}

/// The changed live parameters of a part.
fn values(update: &UpdateInfo) -> Value {
    let of_block = update.blocks.iter().filter(|block| !block.differences.is_empty());
    let values = of_block.map(|block| {
        let parameters = block.differences.iter().filter_map(|difference| {
            Some((difference.key.strip_prefix(PARAMETERS)?.to_owned(), difference.to.clone()))
        });
        (block.block.clone(), Value::Object(parameters.collect()))
    });
    Value::Object(values.collect::<Map<_, _>>())
}

/// Sets live parameters of the parts at one timestamp, which is returned; `None` if they have none in common.
fn set_at_once(changed: &[Changed<'_>]) -> Result<Option<u64>, NotApplied> {
    let mut prepared: Vec<(&Server, PreparedUpdate)> = Vec::new();
    for part in changed {
        let values = values(&part.update);
        let update = ask(part.server, |client| {
            client.send::<PreparedUpdate>(Method::POST, "/api/v1/updates", Some(&values))
        });
        match update {
            Ok(update) => prepared.push((part.server, update)),
            Err(why) => {
                undo(&prepared);
                return Err(of_part(part.server, &why).into());
            }
        }
    }
    let Some(at) = common_timestamp(&prepared) else {
        undo(&prepared);
        return Ok(None);
    };
    for (index, (server, update)) in prepared.iter().enumerate() {
        let path = format!("/api/v1/updates/{}/commit?at={at}", update.id);
        let made = ask(server, |client| client.send::<LiveUpdate>(Method::POST, &path, None));
        if let Err(why) = made {
            undo(&prepared[index + 1..]);
            // Without an answer, this part may have taken the values, too.
            let left = undo(&prepared[..=index]);
            return Err(NotApplied { why: of_part(server, &why), left });
        }
    }
    Ok(Some(at))
}

/// A timestamp that no part has reached; `None` if the parts count differently, or have no data yet.
fn common_timestamp(prepared: &[(&Server, PreparedUpdate)]) -> Option<u64> {
    let clock =
        |update: &PreparedUpdate| Some((update.adc_sample_rate_hz?, update.sync_time.clone()?));
    let (_, first) = prepared.first()?;
    let (rate, sync_time) = clock(first)?;
    let newest = prepared.iter().map(|(_, update)| {
        let is_same = clock(update).is_some_and(|other| other == (rate, sync_time.clone()));
        update.newest_timestamp.filter(|_| is_same)
    });
    let newest = newest.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
    Some(newest.saturating_add((LEAD_SECONDS * rate).ceil() as u64))
}

/// Cancels prepared updates, and takes those back that were committed; returns the failures. A prepared update that
/// cannot be cancelled ends by itself.
fn undo(prepared: &[(&Server, PreparedUpdate)]) -> Vec<String> {
    let undone = prepared.iter().map(|(server, update)| {
        let path = format!("/api/v1/updates/{}", update.id);
        let undone = ask(server, |client| client.send::<Value>(Method::DELETE, &path, None));
        undone.map_err(|why| of_part(server, &why))
    });
    undone.filter_map(Result::err).collect()
}

fn of_part(server: &Server, why: &str) -> String {
    format!("part `{}`: {why}", server.name)
}

/// Updates the parts one after the other; if one fails, all get their flowgraphs back.
fn apply(changed: &[Changed<'_>]) -> Result<(), NotApplied> {
    let mut before: Vec<(&Server, String)> = Vec::new();
    for Changed { server, yaml, .. } in changed {
        let was = ask(server, |client| client.get::<FlowgraphPage>(FLOWGRAPH));
        let made = was.and_then(|was| {
            // Without an answer, this part may have been updated, too.
            before.push((server, was.resolved_yaml));
            replace(server, (*yaml).to_owned())
        });
        if let Err(why) = made {
            let back = before
                .into_iter()
                .rev()
                .map(|(server, yaml)| replace(server, yaml).map_err(|why| of_part(server, &why)));
            let left = back.filter_map(Result::err).collect();
            return Err(NotApplied { why: of_part(server, &why), left });
        }
    }
    Ok(())
}

/// Replaces the flowgraph of a part, and waits for the result.
fn replace(server: &Server, yaml: String) -> Result<(), String> {
    ask(server, |client| client.replace_flowgraph(FLOWGRAPH, yaml).map(drop))
}
