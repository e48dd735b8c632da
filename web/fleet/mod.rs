//! The parts of a deployment as one flowgraph: the same REST paths, answered from all parts.
//!
//! A fleet holds no state of the telescope. It looks at each part twice a second, answers a request about all parts
//! from those that are there, and passes a request about one block to the part of that block. A part that does not answer
//! delays a request once, by its time limit; until it answers again, its last answers count, and after several looks it is
//! named. A part that is not there is left out and named at once.
//!
//! # Layout
//! - `client`: requests to parts
//! - `parts`: the parts, and the look at them
//! - `log`: events of all parts
//! - `merge`: answers from all parts
//! - `forward`: requests about one block
//! - `update`: live updates of blocks of several parts
//! - `metrics`: metrics of all parts
//! - `requests`: router, and its OpenAPI description

mod client;
mod forward;
mod log;
mod merge;
mod metrics;
mod parts;
mod requests;
#[cfg(test)]
mod tests;
mod update;

pub use parts::{Deployed, Find};
pub use requests::openapi;
pub(crate) use requests::{description, router};

use crate::app::Permission;
use crate::problem::Problem;
use crate::shares::Shares;
use axum::http::StatusCode;
use futures_util::future::join_all;
use fxgraph_api::parts::PartInfo;
use log::Log;
#[cfg(test)]
use parts::MISSED;
use parts::{LIMIT, Part, full_name};
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Time between two looks at the parts.
const LOOK: Duration = Duration::from_millis(500);
/// Time limit of a part for a look by a command, which nothing else waits for.
const LONG_LIMIT: Duration = Duration::from_secs(3);
/// Maximum number of requests that are passed to parts at once, half of it for one client.
const FORWARDED: usize = 1024;

/// The parts of a deployment; cheap to clone.
#[derive(Clone)]
pub(crate) struct Fleet(Arc<Inner>);

struct Inner {
    name: String,
    find: Find,
    permission: Permission,
    parts: RwLock<Vec<Arc<Part>>>,
    log: Log,
    forwarded: Shares,
    /// Turn of updates of several parts.
    updates: Arc<tokio::sync::Mutex<()>>,
}

impl Fleet {
    pub fn new(name: String, find: Find, permission: Permission) -> Self {
        let (parts, log, forwarded) = (RwLock::default(), Log::default(), Shares::new(FORWARDED));
        let updates = Arc::default();
        Self(Arc::new(Inner { name, find, permission, parts, log, forwarded, updates }))
    }

    fn parts(&self) -> Vec<Arc<Part>> {
        self.0.parts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over the parts as they are deployed now.
    async fn deployed(&self) {
        let find = Arc::clone(&self.0.find);
        let found = tokio::task::spawn_blocking(move || find()).await;
        let found = match found {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return tracing::debug!("the parts stay as they were: {error}"),
            Err(error) => return tracing::debug!("the parts stay as they were: {error}"),
        };
        let mut parts = self.0.parts.write().unwrap_or_else(PoisonError::into_inner);
        let known = std::mem::take(&mut *parts);
        *parts = found
            .into_iter()
            .map(|deployed| match known.iter().find(|part| part.name == deployed.name) {
                Some(part) => {
                    part.deploy(deployed);
                    Arc::clone(part)
                }
                None => Arc::new(Part::new(deployed, LIMIT)),
            })
            .collect();
    }

    /// Looks at all parts, and waits for their answers or their time limits.
    pub async fn look(&self) {
        self.deployed().await;
        join_all(self.parts().iter().map(|part| part.look(&self.0.log))).await;
    }

    /// Looks at the parts twice a second, for ever.
    pub async fn watch(&self) {
        loop {
            self.deployed().await;
            for part in self.parts() {
                let fleet = self.clone();
                // A look that waits delays no other.
                tokio::spawn(async move { part.look(&fleet.0.log).await });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Asks all parts at once; returns the answers in the order of the parts.
    async fn ask<T, F: Future<Output = T>>(
        &self,
        ask: impl Fn(Arc<Part>) -> F,
    ) -> Vec<(Arc<Part>, T)> {
        let parts = self.parts();
        let answers = join_all(parts.iter().map(|part| ask(Arc::clone(part)))).await;
        parts.into_iter().zip(answers).collect()
    }

    /// Finds the part of the block called `name` in the fleet, and its name in the part.
    fn find(&self, name: &str) -> Result<(Arc<Part>, String), Problem> {
        let mut absent = Vec::new();
        for part in self.parts() {
            let page = match part.page() {
                Ok(page) => page,
                Err(why) => {
                    absent.push(format!("part `{}`: {why}", part.name));
                    continue;
                }
            };
            let is_it = |block: &&fxgraph_api::flowgraph::NodeInfo| {
                full_name(&part.name, &block.kind, &block.name) == name
            };
            if let Some(block) = page.graph.blocks.iter().find(is_it) {
                return Ok((Arc::clone(&part), block.name.clone()));
            }
        }
        if absent.is_empty() {
            return Err(Problem::new(StatusCode::NOT_FOUND, format!("there is no block `{name}`"))
                .help("list the blocks with `GET /api/v1/blocks`"));
        }
        let detail = format!("there is no block `{name}` in the parts that are there");
        Err(absent.into_iter().fold(Problem::busy(detail), Problem::help))
    }
}

/// Looks at the parts that `find` returns, at those that give no answer several times, and returns them in its order.
///
/// # Errors
/// If `find` fails, or the system creates no threads.
pub fn look_once(find: Find) -> Result<Vec<PartInfo>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let part = |deployed| Part::new(deployed, LONG_LIMIT);
    let parts: Vec<Part> = find()?.into_iter().map(part).collect();
    let log = Log::default();
    let look = async |part: &Part| {
        part.look(&log).await;
        while part.may_answer() {
            part.look(&log).await;
        }
    };
    runtime.block_on(join_all(parts.iter().map(look)));
    Ok(parts.iter().map(Part::info).collect())
}
