//! Parts, and the look at each of them twice a second.
//!
//! A part that gives no answer may be busy: what was known of it stays, with its age, and is a trouble after several looks
//! in a row. Only a part that is not there is left out at once.

use super::client::{Asked, Contact, Unanswered};
use super::log::Log;
use axum::body::Bytes;
use fxgraph::lock::lock;
use fxgraph_api::events::EventList;
use fxgraph_api::flowgraph::{FlowgraphPage, StallInfo};
use fxgraph_api::parts::PartInfo;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time limit of a part for an answer that goes into a merged one.
pub(super) const LIMIT: Duration = Duration::from_secs(1);
/// Looks in a row without an answer from which this is a trouble of the part.
pub(super) const MISSED: u32 = 3;
const FLOWGRAPH: &str = "/api/v1/flowgraph";
/// Largest such answer, in bytes.
const MOST_BYTES: usize = 16 << 20;
/// Kinds of the blocks that the cut puts between parts.
const CUT: [&str; 2] = ["stream_sink", "stream_source"];

/// A part as it was deployed.
#[derive(Clone, Debug, PartialEq)]
pub struct Deployed {
    /// Name of its host in the flowgraph.
    pub name: String,
    /// Address of its server, `HOST:PORT`; `None` if the engine has not placed the part.
    pub address: Option<String>,
    /// Hash of its configuration.
    pub config_hash: String,
    /// Token of its server.
    pub token: Option<String>,
}

/// Returns the parts of the deployment as they are now: an engine may have moved one.
pub type Find = Arc<dyn Fn() -> Result<Vec<Deployed>, String> + Send + Sync>;

/// A part with its last answers.
pub(super) struct Part {
    pub name: String,
    /// Time limit of its answers.
    limit: Duration,
    state: Mutex<Seen>,
    is_asking: AtomicBool,
}

struct Seen {
    deployed: Deployed,
    /// Its flowgraph at the last answer, unless it is not there.
    page: Option<Arc<FlowgraphPage>>,
    /// Its last answers to requests whose answers are merged, by path.
    answers: BTreeMap<&'static str, Bytes>,
    /// Why it has not answered the last request.
    failure: Option<Failure>,
    /// Time of the last answer; at first, that of the first request.
    answered: Option<Instant>,
    /// Number and time of its last event in the log.
    last_event: (u64, f64),
}

/// Requests without an answer.
struct Failure {
    contact: Contact,
    why: String,
    /// Number of looks in a row.
    looks: u32,
}

impl Seen {
    fn silence(&self) -> Duration {
        self.answered.map_or(Duration::ZERO, |answered| answered.elapsed())
    }

    /// Whether it has not answered the last request, which may be the fault of the network.
    fn is_silent(&self) -> bool {
        self.failure.as_ref().is_some_and(|failure| failure.contact == Contact::NoAnswer)
    }

    /// Notes that a request had no answer.
    fn fail(&mut self, error: &Unanswered, is_look: bool) {
        let Unanswered { contact, why, .. } = error;
        // Older versions do not know all requests of a fleet: only a look finds out that a part is not there.
        if !is_look && *contact == Contact::NotThere {
            return;
        }
        let before = self.failure.as_ref().map_or(0, |failure| failure.looks);
        let looks = before.saturating_add(u32::from(is_look));
        self.failure = Some(Failure { contact: *contact, why: why.clone(), looks });
        if *contact == Contact::NotThere {
            self.page = None;
            self.answers.clear();
        }
    }

    /// The reason why requests cannot be passed to it, if there is one.
    fn trouble(&self) -> Option<String> {
        let Some(Failure { contact, why, looks }) = &self.failure else {
            return self.page.is_none().then(|| "it has not been asked yet".to_owned());
        };
        match contact {
            Contact::NotThere => Some(format!("is not there: {why}")),
            Contact::RejectsToken => Some("rejects the token of the deployment".to_owned()),
            Contact::NoAnswer if self.page.is_some() && *looks < MISSED => None,
            Contact::NoAnswer => Some(format!("{}: {why}", no_answer(self.silence()))),
        }
    }
}

fn no_answer(silence: Duration) -> String {
    format!("no answer for {:.0} s", silence.as_secs_f64().ceil())
}

/// Name of a block of a part in the fleet. The cut gives no unique names to its blocks.
pub(super) fn full_name(part: &str, kind: &str, block: &str) -> String {
    if CUT.contains(&kind) { format!("{part}/{block}") } else { block.to_owned() }
}

impl Part {
    /// A part that must answer within `limit`.
    pub fn new(deployed: Deployed, limit: Duration) -> Self {
        let name = deployed.name.clone();
        let seen = Seen {
            deployed,
            page: None,
            answers: BTreeMap::new(),
            failure: None,
            answered: None,
            last_event: (0, 0.0),
        };
        Self { name, limit, state: Mutex::new(seen), is_asking: AtomicBool::new(false) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.state)
    }

    pub fn deploy(&self, deployed: Deployed) {
        self.seen().deployed = deployed;
    }

    /// Its flowgraph when it last answered; the reason if it is not there.
    pub fn page(&self) -> Result<Arc<FlowgraphPage>, String> {
        let seen = self.seen();
        seen.page.clone().ok_or_else(|| seen.trouble().unwrap_or_default())
    }

    /// The reason why requests cannot be passed to it, if there is one.
    pub fn trouble(&self) -> Option<String> {
        self.seen().trouble()
    }

    /// Whether it has not answered the last look, and may do so at the next one.
    pub fn may_answer(&self) -> bool {
        let seen = self.seen();
        seen.is_silent() && seen.failure.as_ref().is_some_and(|failure| failure.looks < MISSED)
    }

    /// `stall` with the name of its block in the fleet.
    pub fn named(&self, mut stall: StallInfo) -> StallInfo {
        if let Ok(page) = self.page() {
            let named = |name: &str| {
                let node = page.graph.blocks.iter().find(|block| block.name == name);
                full_name(&self.name, node.map_or("", |node| &node.kind), name)
            };
            stall.block = named(&stall.block);
            stall.lacks.iter_mut().for_each(|name| *name = named(name));
        }
        stall
    }

    /// Address and token of its server.
    pub fn server(&self) -> Result<(String, Option<String>), String> {
        let seen = self.seen();
        let address = seen.deployed.address.clone();
        let address = address.ok_or("the engine has not placed it")?;
        Ok((address, seen.deployed.token.clone()))
    }

    async fn ask(&self, path: &str) -> Result<Bytes, Unanswered> {
        let (address, token) = self.server().map_err(Unanswered::not_there)?;
        Asked::get(&address, token.as_deref(), path, self.limit).read(MOST_BYTES).await
    }

    /// Body of the answer to `GET path`, unless it did not answer the last request: then the next look asks it.
    pub async fn bytes(&self, path: &str) -> Result<Bytes, String> {
        self.page()?;
        if let Some(failure) = &self.seen().failure {
            return Err(failure.why.clone());
        }
        let answer = self.ask(path).await;
        answer.map_err(|error| {
            self.seen().fail(&error, false);
            error.why
        })
    }

    /// The answer to `GET path` as `T`; the last one if it does not answer now.
    pub async fn get<T: DeserializeOwned>(&self, path: &'static str) -> Result<T, String> {
        match self.bytes(path).await {
            Ok(body) => {
                let answer = read(&body).map_err(|error| error.why)?;
                self.seen().answers.insert(path, body);
                Ok(answer)
            }
            Err(why) => {
                let last = self.seen().answers.get(path).cloned();
                read(&last.ok_or(why)?).map_err(|error| error.why)
            }
        }
    }

    /// Its flowgraph; as it was when it last answered if it does not answer now.
    pub async fn flowgraph(&self) -> Result<FlowgraphPage, String> {
        match self.bytes(FLOWGRAPH).await {
            Ok(body) => read(&body).map_err(|error| error.why),
            Err(_) => self.page().map(|page| (*page).clone()),
        }
    }

    /// The answer to `GET path`, which a part of an earlier version does not know, as `T`.
    pub async fn get_if_known<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.page()?;
        read(&self.ask(path).await?).map_err(|error| error.why)
    }

    /// Asks for its flowgraph and its new events, unless an earlier look still waits.
    pub async fn look(&self, log: &Log) {
        if self.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        self.seen().answered.get_or_insert_with(Instant::now);
        let page = self.ask(FLOWGRAPH).await.and_then(|body| read::<FlowgraphPage>(&body));
        let may_be_new = {
            let mut seen = self.seen();
            match page {
                Ok(page) => {
                    let before = seen.page.take();
                    let may_be_new =
                        before.is_none_or(|before| page.elapsed_seconds < before.elapsed_seconds);
                    seen.page = Some(Arc::new(page));
                    (seen.failure, seen.answered) = (None, Some(Instant::now()));
                    Some(may_be_new)
                }
                Err(error) => {
                    seen.fail(&error, true);
                    None
                }
            }
        };
        if let Some(may_be_new) = may_be_new {
            let _ = self.take_events(log, may_be_new).await;
        }
        self.is_asking.store(false, Ordering::Release);
    }

    /// Copies its new events to `log`. If it may have been restarted, its events are counted from 1 again.
    async fn take_events(&self, log: &Log, may_be_new: bool) -> Result<(), String> {
        let (number, time) = self.seen().last_event;
        let since = if may_be_new { 0 } else { number };
        let body = self.ask(&format!("/api/v1/events?since={since}")).await?;
        let mut events = read::<EventList>(&body).map_err(|error| error.why)?.events;
        if may_be_new {
            // The same run as before, if the last known event is still there.
            let known = |event: &fxgraph_api::events::EventInfo| {
                event.sequence == number && event.unix_time_seconds.total_cmp(&time).is_eq()
            };
            if let Some(at) = events.iter().position(known) {
                events.drain(..=at);
            }
        }
        if let Some(last) = events.last() {
            self.seen().last_event = (last.sequence, last.unix_time_seconds);
        }
        log.add(&self.name, events);
        Ok(())
    }

    pub fn info(&self) -> PartInfo {
        let seen = self.seen();
        let deployed = &seen.deployed;
        let mut troubles = Vec::from_iter(seen.trouble());
        let page = seen.page.as_ref();
        let contact = match seen.failure.as_ref().map(|failure| failure.contact) {
            Some(Contact::NoAnswer) => "no_answer",
            Some(Contact::NotThere) => "not_there",
            Some(Contact::RejectsToken) => "rejects_token",
            None if page.is_some() => "answers",
            None => "not_asked",
        };
        if let Some(page) = page.filter(|page| page.state == "failed") {
            let cause = page.faults.first().map_or("", |fault| &fault.cause);
            troubles.push(format!("its flowgraph has failed: {cause}"));
        }
        let stalls = page.iter().flat_map(|page| &page.stalls);
        let of_main: Vec<StallInfo> = stalls.filter(|stall| !stall.is_aside).cloned().collect();
        troubles.extend(StallInfo::describe(&of_main));
        PartInfo {
            name: self.name.clone(),
            address: deployed.address.clone(),
            answers: contact == "answers",
            contact: contact.to_owned(),
            silent_seconds: seen.is_silent().then(|| seen.silence().as_secs_f64()),
            is_healthy: troubles.is_empty(),
            troubles,
            is_changed: page.is_some_and(|page| page.config_hash != deployed.config_hash),
            state: page.map(|page| page.state.clone()),
            config_hash: page.map(|page| page.config_hash.clone()),
            deployed_config_hash: deployed.config_hash.clone(),
            version: page.map(|page| page.version.clone()),
            lag_seconds: page.and_then(|page| page.lag_seconds),
        }
    }
}

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Unanswered> {
    serde_json::from_slice(body)
        .map_err(|_| Unanswered::not_there("the answer at its address is not that of fxgraph"))
}
