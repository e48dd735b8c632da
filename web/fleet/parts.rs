//! Parts, and the look at each of them twice a second.

use super::client::Asked;
use super::log::Log;
use axum::body::Bytes;
use fxgraph_api::events::EventList;
use fxgraph_api::flowgraph::{FlowgraphPage, StallInfo};
use fxgraph_api::parts::PartInfo;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Time limit of a part for an answer that goes into a merged one.
const LIMIT: Duration = Duration::from_secs(1);
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

/// A part with its last answer.
pub(super) struct Part {
    pub name: String,
    state: Mutex<Seen>,
    is_asking: AtomicBool,
}

struct Seen {
    deployed: Deployed,
    /// Its flowgraph, if it answers; otherwise the reason.
    page: Result<Arc<FlowgraphPage>, String>,
    /// Number and time of its last event in the log.
    last_event: (u64, f64),
}

/// Name of a block of a part in the fleet. The cut gives no unique names to its blocks.
pub(super) fn full_name(part: &str, kind: &str, block: &str) -> String {
    if CUT.contains(&kind) { format!("{part}/{block}") } else { block.to_owned() }
}

impl Part {
    pub fn new(deployed: Deployed) -> Self {
        let name = deployed.name.clone();
        let page = Err("it has not been asked yet".to_owned());
        let seen = Seen { deployed, page, last_event: (0, 0.0) };
        Self { name, state: Mutex::new(seen), is_asking: AtomicBool::new(false) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn deploy(&self, deployed: Deployed) {
        self.seen().deployed = deployed;
    }

    /// Its flowgraph at the last look; the reason if it does not answer.
    pub fn page(&self) -> Result<Arc<FlowgraphPage>, String> {
        self.seen().page.clone()
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

    /// Notes that it does not answer.
    fn lost(&self, why: &str) {
        self.seen().page = Err(why.to_owned());
    }

    /// Address and token of its server.
    pub fn server(&self) -> Result<(String, Option<String>), String> {
        let seen = self.seen();
        let address = seen.deployed.address.clone();
        let address = address.ok_or("the engine has not placed it")?;
        Ok((address, seen.deployed.token.clone()))
    }

    async fn ask(&self, path: &str) -> Result<Bytes, String> {
        let (address, token) = self.server()?;
        Asked::get(&address, token.as_deref(), path, LIMIT).read(MOST_BYTES).await
    }

    /// Body of the answer to `GET path`, unless it did not answer at the last look.
    pub async fn bytes(&self, path: &str) -> Result<Bytes, String> {
        self.page()?;
        self.ask(path).await.inspect_err(|why| self.lost(why))
    }

    /// The answer to `GET path` as `T`, unless it did not answer at the last look.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        read(&self.bytes(path).await?).inspect_err(|why| self.lost(why))
    }

    /// Like [`Self::get`], of a path that a part of an earlier version does not know: an error does not mean that the part
    /// is gone.
    pub async fn get_if_known<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        self.page()?;
        read(&self.ask(path).await?)
    }

    /// Asks for its flowgraph and its new events, unless an earlier look still waits.
    pub async fn look(&self, log: &Log) {
        if self.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let page =
            self.ask("/api/v1/flowgraph").await.and_then(|body| read::<FlowgraphPage>(&body));
        let was_lost = {
            let mut seen = self.seen();
            let restarted = match (&seen.page, &page) {
                (Ok(before), Ok(now)) => now.elapsed_seconds < before.elapsed_seconds,
                (before, _) => before.is_err(),
            };
            seen.page = page.map(Arc::new);
            restarted
        };
        if self.page().is_ok() {
            let _ = self.take_events(log, was_lost).await;
        }
        self.is_asking.store(false, Ordering::Release);
    }

    /// Copies its new events to `log`. If it may have been restarted, its events are counted from 1 again.
    async fn take_events(&self, log: &Log, may_be_new: bool) -> Result<(), String> {
        let (number, time) = self.seen().last_event;
        let since = if may_be_new { 0 } else { number };
        let body = self.ask(&format!("/api/v1/events?since={since}")).await?;
        let mut events = read::<EventList>(&body)?.events;
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
        let mut troubles = Vec::new();
        let page = match &seen.page {
            Ok(page) => Some(page),
            Err(why) => {
                troubles.push(format!("does not answer: {why}"));
                None
            }
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
            answers: page.is_some(),
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

fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|_| "its answer is not that of fxgraph".to_owned())
}
