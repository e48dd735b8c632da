//! Start, stop, state and restart of an array.

use super::super::manifest::Part;
use super::NAME;
use super::directory::{Directory, PLACE, of};
use super::queue::{Queue, insist};
use super::supervise::Supervisor;
use crate::client::with_help;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::Terminal;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Time for a part to build its blocks, to start, and to start again.
const START: Duration = Duration::from_mins(5);
/// Time for a part to end before it is killed.
const END: Duration = Duration::from_secs(20);
/// Time between two checks.
const TICK: Duration = Duration::from_millis(300);

/// An array, seen by a command.
pub struct Array {
    pub directory: Directory,
    pub queue: Queue,
    pub terminal: Terminal,
}

impl Array {
    pub fn new(directory: Directory, terminal: &Terminal) -> Self {
        let name = directory.get("jobs").unwrap_or_else(|| own_jobs(&directory));
        Self { directory, queue: Queue { name }, terminal: terminal.clone() }
    }

    /// Allocates hosts, starts the parts, and keeps them running until they end.
    pub fn start(mut self) -> Result<(), Failure> {
        let signals = Signals::count()?;
        let lock = self.directory.lock("lock")?;
        let lock =
            lock.ok_or_else(|| Failure::failed(format!("`{NAME} start` must not run already")))?;
        if !self.is_allocated()? {
            // Without hosts, no other directory has the parts either.
            self.directory.remove_all(&PLACE)?;
            self.directory.remove_all(&["away"])?;
            self.queue.name = own_jobs(&self.directory);
        }
        self.reject_if_given_away()?;
        self.directory.put("jobs", &self.queue.name)?;
        let supervisor = self.supervisor(lock)?;
        supervisor.allocate(&signals)?;
        for part in supervisor.directory.parts() {
            if insist(|| supervisor.queue.step(&supervisor.directory, part))?.is_none() {
                PLACE.iter().try_for_each(|key| supervisor.directory.remove(&of(part, key)))?;
            }
        }
        if signals.look() > 0 {
            return Err(Failure::Interrupted);
        }
        let threads = supervisor.supervise_all();
        supervisor.start_in_order(&signals)?;
        supervisor.wait_ended(&threads, &signals)
    }

    /// Makes this process the supervisor of the parts, without the orders to an earlier one.
    pub fn supervisor(self, lock: File) -> Result<Arc<Supervisor>, Failure> {
        let Self { directory, queue, terminal } = self;
        directory.remove("stop")?;
        directory.remove("peer")?;
        directory.remove_all(&["over", "beside", "ended", "again"])?;
        Ok(Arc::new(Supervisor { directory, queue, lock, terminal, placing: Mutex::default() }))
    }

    /// Whether a job of the array runs.
    pub fn is_allocated(&self) -> Result<bool, Failure> {
        for class in &self.directory.array.classes {
            if insist(|| self.queue.job(&class.name))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn reject_if_given_away(&self) -> Result<(), Failure> {
        let Some(other) = self.directory.given_to() else { return Ok(()) };
        let what = format!("the parts run from {other}");
        Err(Failure::failed(with_help(&what, [&*format!("use {other}/{NAME}")])))
    }

    fn reject_during_update(&self) -> Result<(), Failure> {
        if self.directory.lock("update.lock")?.is_some() {
            return Ok(());
        }
        let help = "interrupt the update first: it takes back what it has changed";
        Err(Failure::failed(with_help("the array is being updated", [help])))
    }

    /// Ends the parts, and releases the hosts.
    pub fn stop(&self) -> Result<(), Failure> {
        self.reject_during_update()?;
        self.reject_if_given_away()?;
        self.directory.put("stop", "")?;
        for part in senders_first(self.directory.parts()) {
            self.queue.signal("INT", &self.directory, part);
            let began = Instant::now();
            while self.queue.runs(&self.directory, part) {
                if began.elapsed() > END {
                    self.terminal.note(&format!("{}: does not end, and is killed", part.name));
                    break;
                }
                sleep(TICK);
            }
        }
        for class in &self.directory.array.classes {
            let job = insist(|| self.queue.job(&class.name));
            let released = job.and_then(|job| job.map_or(Ok(()), |job| self.queue.release(&job)));
            released.map_err(|failure| {
                let what = format!("class {}: {}", class.name, failure.first_line());
                let help = format!("call `{NAME} stop` again");
                Failure::failed(with_help(&what, [&*help]))
            })?;
        }
        self.directory.remove_all(&PLACE)?;
        self.directory.remove_all(&["away"])?;
        self.directory.remove("jobs")
    }

    /// Shows name, host, address and state of each part: `-` without an address, `no_answer` without an answer.
    pub fn status(&self) -> Result<(), Failure> {
        let line = |part: &Part| {
            let [host, address] = ["host", "address"].map(|key| self.directory.get(&of(part, key)));
            let state = address.as_ref().map_or_else(
                || "-".to_owned(),
                |at| self.directory.state_at(at).unwrap_or_else(|| "no_answer".to_owned()),
            );
            let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            format!("{} {} {} {state}\n", part.name, or_dash(host), or_dash(address))
        };
        self.terminal.results(&self.directory.parts().iter().map(line).collect::<String>())
    }

    /// Ends parts, which their supervisor starts again.
    pub fn restart(&self, names: &[String]) -> Result<(), Failure> {
        self.reject_during_update()?;
        let parts = names.iter().map(|name| self.directory.part(name));
        for part in parts.collect::<Result<Vec<_>, _>>()? {
            let reject = |rule: &str| Failure::failed(format!("{}: {rule}", part.name));
            insist(|| self.queue.step(&self.directory, part))?.ok_or_else(|| reject("must run"))?;
            let again = of(part, "again");
            self.directory.put(&again, "")?;
            self.queue.signal("INT", &self.directory, part);
            let began = Instant::now();
            let is_running = || self.directory.state(part).as_deref() == Some("running");
            while self.directory.has(&again) || !is_running() {
                if self.directory.has("stop") {
                    return Err(reject("the array was stopped"));
                }
                if began.elapsed() > START {
                    let rule = format!("must run again within 5 minutes; does `{NAME} start` run?");
                    return Err(reject(&rule));
                }
                sleep(TICK);
            }
            self.terminal.note(&format!("{}: runs again", part.name));
        }
        Ok(())
    }
}

impl Supervisor {
    /// Starts the parts that wait, receivers first: parts of a level send to those of lower levels.
    fn start_in_order(&self, signals: &Signals) -> Result<(), Failure> {
        let is_here = |part: &&Part| !self.directory.has(&of(part, "away"));
        let here: Vec<&Part> = self.directory.parts().iter().filter(is_here).collect();
        for part in &here {
            self.wait_for(part, &["prepared", "running", "draining"], signals)?;
        }
        for level in by_level(&here) {
            for part in &level {
                if self.directory.state(part).as_deref() == Some("prepared") {
                    self.directory.request_start(part);
                }
            }
            for part in level {
                if self.wait_for(part, &["running", "draining"], signals)? {
                    self.terminal.note(&format!("{}: runs", part.name));
                }
            }
        }
        Ok(())
    }

    /// Waits until `part` is in one of `states`; returns whether it is.
    fn wait_for(&self, part: &Part, states: &[&str], signals: &Signals) -> Result<bool, Failure> {
        let began = Instant::now();
        loop {
            let state = self.directory.state(part).unwrap_or_default();
            if states.contains(&&*state) {
                return Ok(true);
            }
            if self.directory.has("stop") || self.directory.has(&of(part, "over")) {
                return Ok(false);
            }
            // A request that failed is repeated.
            if state == "prepared" {
                self.directory.request_start(part);
            }
            if began.elapsed() > START {
                let rule = format!("must be {} within 5 minutes", states.join(" or "));
                self.terminal.note(&format!("{}: {rule}", part.name));
                return Ok(false);
            }
            if signals.wait(TICK) {
                return Err(self.interrupted());
            }
        }
    }

    /// Waits until the parts have ended, or a signal ends their supervision.
    pub fn wait_ended(&self, threads: &[JoinHandle<()>], signals: &Signals) -> Result<(), Failure> {
        while !threads.iter().all(JoinHandle::is_finished) {
            if signals.wait(TICK) {
                return Err(self.interrupted());
            }
        }
        Ok(())
    }

    fn interrupted(&self) -> Failure {
        self.terminal.note(&format!(
            "the parts go on without supervision: `{NAME} start` supervises them again, `{NAME} stop` ends them"
        ));
        Failure::Interrupted
    }
}

/// Beginning of the names of the jobs of `directory`. It depends on the path: two deployments of one flowgraph stay apart.
fn own_jobs(directory: &Directory) -> String {
    let mut hasher = DefaultHasher::new();
    directory.path.hash(&mut hasher);
    format!("{}-{:016x}", directory.manifest.flowgraph, hasher.finish())
}

/// Parts of each level, receivers first.
pub fn by_level<'a>(parts: &[&'a Part]) -> Vec<Vec<&'a Part>> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| part.level);
    parts.chunk_by(|a, b| a.level == b.level).map(<[&Part]>::to_vec).collect()
}

/// Parts in the order of a stop: receivers process what has arrived.
fn senders_first(parts: &[Part]) -> Vec<&Part> {
    let levels = by_level(&parts.iter().collect::<Vec<_>>());
    levels.into_iter().rev().flatten().collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::deploy::manifest::{Server, Streams};

    /// A part with a level.
    pub fn part(name: &str, level: usize) -> Part {
        Part {
            name: name.to_owned(),
            file_name: name.to_owned(),
            class: "x".to_owned(),
            index: 0,
            config_hash: String::new(),
            level,
            sends_to: Vec::new(),
            port: 8080,
            server: Server::AddressFile(format!("run/{name}.address").into()),
            streams: Some(Streams { sent: vec!["s".to_owned()], obstacle: None }),
        }
    }

    #[test]
    fn receivers_start_first_and_senders_end_first() {
        let parts = [part("d", 2), part("f0", 1), part("x", 0), part("f1", 1)];
        let names = |parts: &[&Part]| parts.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
        let levels = by_level(&parts.iter().collect::<Vec<_>>());
        assert_eq!(
            levels.iter().map(|level| names(level)).collect::<Vec<_>>(),
            [vec!["x"], vec!["f0", "f1"], vec!["d"]]
        );
        assert_eq!(names(&senders_first(&parts)), ["d", "f0", "f1", "x"]);
    }
}
