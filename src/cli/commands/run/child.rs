//! The process of one part.

use super::reload_parts::Server;
use crate::client::{Client, Connection};
use crate::failure::{Failure, INTERRUPTED};
use fxgraph::flowgraph::PartPlan;
use fxgraph_api::flowgraph::Health;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use ureq::http::Method;

/// Number of last lines on stderr that are kept for the error of a part.
const KEPT: usize = 20;
/// Time for its server to answer a request.
const ANSWER: Duration = Duration::from_secs(10);
/// Time for a killed process to end, and for its last results.
const END: Duration = Duration::from_secs(10);
/// Time between two looks at a killed process.
const TICK: Duration = Duration::from_millis(20);
/// Beginning of the line with the address of a part.
const SERVING: &str = "serving ";

/// A running part. Dropping it ends its process.
pub struct Child {
    process: std::process::Child,
    part: PartPlan,
    url: Option<String>,
    client: RefCell<Option<Client>>,
    status: Option<ExitStatus>,
    last: VecDeque<String>,
    killed: Option<Instant>,
    /// Why its server did not answer the last request; empty if it did.
    silence: RefCell<String>,
    stdout: Option<Receiver<String>>,
    results: String,
}

impl Child {
    /// Starts `part`, whose flowgraph is in `file`, as number `index`, with further `arguments`; its lines go to `lines`.
    pub fn spawn(
        part: &PartPlan,
        file: &Path,
        arguments: &[OsString],
        index: usize,
        lines: &Sender<(usize, String)>,
    ) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("run").arg(file).args(["--listen", "127.0.0.1:0", "--part-of"]);
        command.arg(std::process::id().to_string()).args(arguments);
        // A process group of its own: Ctrl-C reaches it through this process alone.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut process = command.spawn()?;
        if let Some(stderr) = process.stderr.take() {
            let lines = lines.clone();
            thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    if lines.send((index, line)).is_err() {
                        return;
                    }
                }
            });
        }
        let stdout = process.stdout.take().map(|mut stdout| {
            let (tell, told) = channel();
            thread::spawn(move || {
                let mut bytes = Vec::new();
                let _ = stdout.read_to_end(&mut bytes);
                let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
            });
            told
        });
        Ok(Self {
            process,
            part: part.clone(),
            url: None,
            client: RefCell::new(None),
            status: None,
            last: VecDeque::new(),
            killed: None,
            silence: RefCell::default(),
            stdout,
            results: String::new(),
        })
    }

    pub fn name(&self) -> &str {
        &self.part.name
    }

    /// Address of its server, `HOST:PORT`, once it serves.
    pub fn address(&self) -> Option<&str> {
        self.url.as_deref().and_then(|url| url.strip_prefix("http://"))
    }

    /// Whether it receives from other parts.
    pub fn receives(&self) -> bool {
        self.part.received.iter().any(|rate| rate.address.is_some())
    }

    /// One line on what it does.
    pub fn about(&self) -> String {
        let streams = |rates: &[fxgraph::flowgraph::Rate]| {
            rates.iter().filter(|rate| rate.address.is_some()).count()
        };
        format!(
            "{}: runs at {}: blocks {}, streams sent {}, received {}",
            self.part.name,
            self.url.as_deref().unwrap_or("no address"),
            self.part.blocks.len(),
            streams(&self.part.sent),
            streams(&self.part.received)
        )
    }

    /// Takes a line; returns it if the user should see it.
    pub fn take(&mut self, line: String) -> Option<String> {
        if let Some(url) = line.strip_prefix(SERVING)
            && self.url.is_none()
        {
            self.url = Some(url.trim().to_owned());
            return None;
        }
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line.clone());
        Some(line)
    }

    /// Calls `ask` with a client of its server, once that has an address.
    pub fn ask<T>(
        &self,
        ask: impl FnOnce(&Client) -> Result<T, Failure>,
    ) -> Option<Result<T, Failure>> {
        let url = self.url.as_ref()?;
        let mut client = self.client.borrow_mut();
        if client.is_none() {
            *client = Connection::to(url).client_within(ANSWER).ok();
        }
        let answer = client.as_ref().map(ask);
        let why = answer.as_ref().and_then(|answer| answer.as_ref().err()).map(Failure::first_line);
        *self.silence.borrow_mut() = why.unwrap_or_default();
        answer
    }

    /// Its server, for requests that change its flowgraph, which may take as long as frames do.
    pub fn server(&self) -> Server {
        Server { name: self.part.name.clone(), url: self.url.clone() }
    }

    /// Why its server did not answer the last request, to be added to a text; empty if it did.
    pub fn last_answer(&self) -> String {
        let silence = self.silence.borrow();
        if silence.is_empty() { String::new() } else { format!(": {silence}") }
    }

    /// Whether its flowgraph is in one of `states`.
    pub fn is_in(&self, states: &[&str]) -> bool {
        match self.ask(|client| client.get::<Health>("/api/v1/health")) {
            Some(Ok(health)) => states.contains(&health.state.as_str()),
            _ => false,
        }
    }

    /// Starts its flowgraph, unless it has ended.
    pub fn start(&self) -> Result<(), Failure> {
        let start =
            |client: &Client| client.send::<Health>(Method::POST, "/api/v1/flowgraph/start", None);
        match self.ask(start) {
            Some(Err(failure)) if !self.has_ended() => Err(Failure::failed(format!(
                "part `{}` cannot be started: {}",
                self.part.name,
                failure.first_line()
            ))),
            _ => Ok(()),
        }
    }

    /// Checks whether it has ended.
    pub fn look(&mut self) {
        if self.status.is_none() {
            self.status = self.process.try_wait().ok().flatten();
        }
    }

    pub fn has_ended(&self) -> bool {
        self.status.is_some()
    }

    pub fn has_failed(&self) -> bool {
        self.status.is_some_and(|status| !status.success())
    }

    /// Whether a signal has ended it before its flowgraph had ended.
    pub fn was_ended(&self) -> bool {
        let code = self.status.and_then(|status| status.code());
        self.killed.is_some() || code == Some(i32::from(INTERRUPTED))
    }

    /// Sends `signal`, unless it has ended.
    pub fn signal(&self, signal: Signal) {
        // Not waited for yet, so the process identifier is still that of this process.
        if self.status.is_none()
            && let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, signal);
        }
    }

    /// Ends it at once, unless it has ended.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            self.killed.get_or_insert_with(Instant::now);
            let _ = self.process.kill();
        }
    }

    /// Time since it was killed; 0 if it was not.
    pub fn killed_for(&self) -> Duration {
        self.killed.map_or(Duration::ZERO, |killed| killed.elapsed())
    }

    /// Its error, if it has failed by itself.
    pub fn failure(&self) -> Option<String> {
        let status = self.status.filter(|status| !status.success())?;
        if self.was_ended() {
            return None;
        }
        let error = self.last.iter().find_map(|line| line.strip_prefix("error"));
        let error = error.map(|error| error.trim_start_matches(':').trim().to_owned());
        let said = error.or_else(|| self.last.back().cloned()).unwrap_or_default();
        Some(format!("part `{}` failed ({status}): {said}", self.part.name))
    }

    /// Its results on stdout, after its end. A process that it has started may keep them open.
    pub fn results(&mut self) -> &str {
        if let Some(stdout) = self.stdout.take() {
            self.results = stdout.recv_timeout(END).unwrap_or_default();
        }
        &self.results
    }

    /// Its results as JSON; null if it has none.
    pub fn json(&mut self) -> Value {
        serde_json::from_str(self.results()).unwrap_or_default()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.look();
        if self.status.is_none() {
            let _ = self.process.kill();
        }
        let began = Instant::now();
        while self.status.is_none() && began.elapsed() < END {
            thread::sleep(TICK);
            self.look();
        }
    }
}
