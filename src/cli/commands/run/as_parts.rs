//! `fxgraph run --as-parts`: each part of a flowgraph with hosts as a process of this machine.

use super::child::Child;
use super::reload_parts::{self, NotApplied, Reloaded, Server};
use crate::client::with_help;
use crate::commands::fleet::find;
use crate::deploy::processes;
use crate::failure::Failure;
use crate::flowgraph::Target;
use crate::parts::{HostPart, levels, parts};
use crate::serve::Serve;
use crate::signals::Signals;
use crate::state::beside;
use crate::terminal::{Paint, Terminal};
use fxgraph::flowgraph::{Loopback, PartPlan, Plan};
use rustix::process::Signal;
use serde_json::{Map, json};
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Time for a part to build its blocks and open its sockets.
const START: Duration = Duration::from_mins(5);
/// Time to connect on the loopback interface.
const LOOPBACK: Duration = Duration::from_secs(5);
/// Time between two notes about a wait.
const NOTE: Duration = Duration::from_secs(10);
/// Time for parts that receive to end by themselves once the parts that send to them have been stopped.
const DRAIN: Duration = Duration::from_secs(10);
/// Further time until parts that do not answer are killed, and between two checks of that. A part that answers ends
/// within limits of its own.
const KILL: Duration = Duration::from_secs(10);
/// Time for parts to end after they were killed.
const GONE: Duration = Duration::from_secs(10);
/// Time between two checks.
const TICK: Duration = Duration::from_millis(50);

/// Options for all parts.
pub struct AsParts {
    /// Directory for the flowgraphs of the parts; by default a temporary one.
    pub output: Option<PathBuf>,
    /// Time after which to stop.
    pub duration: Option<Duration>,
    /// File with live values, to which each part adds its name.
    pub state: Option<PathBuf>,
    /// Whether the results are written as JSON.
    pub json: bool,
    /// Whether neither progress nor results are shown.
    pub quiet: bool,
    /// Options of the server of all parts.
    pub serve: Serve,
    /// Further arguments of `run`.
    pub arguments: Vec<OsString>,
}

impl AsParts {
    /// Arguments of `run` for `part`.
    fn arguments_of(&self, part: &PartPlan) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        if let Some(state) = &self.state {
            let state = beside(state, &format!(".{}", part.file_name()));
            arguments.extend([OsString::from("--state"), state.into()]);
        }
        let flags = [("--json", self.json), ("--quiet", self.quiet)];
        let flags = flags.iter().filter(|(_, is_set)| *is_set);
        arguments.extend(flags.map(|(flag, _)| OsString::from(flag)));
        arguments
    }

    /// Runs the parts of `plan` until all have ended. SIGHUP applies the file of `target`.
    pub fn run(
        &self,
        plan: &Plan,
        target: &Target,
        signals: Signals,
        terminal: &Terminal,
    ) -> Result<(), Failure> {
        if plan.hosts.is_none() {
            let message = format!("`{}` has no `hosts`, so it has no parts", plan.name);
            return Err(Failure::failed(message));
        }
        self.serve.reject_for_fleet()?;
        let server = self.serve.bind(terminal)?;
        let cannot = |what: &str, error: &std::io::Error| Failure::because(what, error);
        try_loopback().map_err(|error| {
            let what = "parts need the loopback interface, but cannot connect to 127.0.0.1";
            let why = Failure::because(what, &error).first_line();
            Failure::failed(with_help(&why, ["bring the interface up: `ip link set lo up`"]))
        })?;
        // A port of its own keeps the groups apart from those of other runs on this machine.
        let port =
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| socket.local_addr());
        let port = port.map_err(|error| cannot("cannot find a free UDP port", &error))?.port();
        let parts = parts(plan, Some(Loopback { port }))?;
        let temporary;
        let directory = if let Some(directory) = &self.output {
            directory.as_path()
        } else {
            temporary = tempfile::tempdir()
                .map_err(|error| cannot("cannot create a temporary directory", &error))?;
            temporary.path()
        };
        let files = write(&parts, directory)?;
        let (lines, from_parts) = channel();
        let mut run = Run {
            options: self,
            target,
            port,
            directory,
            signals,
            terminal,
            from_parts,
            parts: Vec::new(),
            stopping: None,
            has_started: false,
            reloading: None,
            seen: 0,
        };
        let plans: Vec<&PartPlan> = parts.iter().map(|host| &host.part).collect();
        let levels = levels(&plans);
        for index in levels.iter().flatten() {
            let HostPart { part, .. } = &parts[*index];
            let (arguments, number) = (self.arguments_of(part), run.parts.len());
            let child = Child::spawn(part, &files[*index], &arguments, number, &lines);
            run.parts.push(
                child.map_err(|error| {
                    cannot(&format!("cannot start part `{}`", part.name), &error)
                })?,
            );
        }
        let prepared =
            run.wait_until(0..run.parts.len(), "built", |part| part.is_in(&["prepared"]));
        let described = prepared.and_then(|()| {
            let addresses = run.parts.iter().map(|part| (part.name(), part.address()));
            processes::write(plan, &parts, &levels, &addresses.collect(), directory)
        });
        let _serving = described.as_ref().ok().and(server).map(|server| {
            let url = server.url();
            let serving = server.serve_fleet(plan.name.clone(), find(directory));
            terminal.note(&format!("serving {url}"));
            serving
        });
        if let Err(failure) = described.and_then(|()| run.start(&levels)) {
            run.end_all();
            return Err(failure);
        }
        run.has_started = true;
        run.wait_ended();
        run.verdict(&plan.name)
    }
}

/// Connects to a server on the loopback interface, as this process does to each part.
fn try_loopback() -> std::io::Result<()> {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    TcpStream::connect_timeout(&server.local_addr()?, LOOPBACK).map(drop)
}

/// Writes the flowgraph of each part to `directory`.
fn write(parts: &[HostPart], directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let cannot = |path: &Path, error: &std::io::Error| {
        Failure::because(&format!("cannot write `{}`", path.display()), error)
    };
    fs::create_dir_all(directory).map_err(|error| cannot(directory, &error))?;
    let file = |HostPart { part, .. }: &HostPart| {
        let path = directory.join(format!("{}.yaml", part.file_name()));
        fs::write(&path, &part.yaml).map_err(|error| cannot(&path, &error))?;
        Ok(path)
    };
    parts.iter().map(file).collect()
}

/// A stop of all parts.
#[derive(Clone, Copy)]
struct Stopping {
    since: Instant,
    /// Whether also the parts that receive have been stopped.
    is_for_all: bool,
    /// Number of the next check for parts that do not answer.
    looks: u32,
}

/// Result of an edited file: a text and the parts as the file has them.
type Applied = Result<Reloaded, NotApplied>;

struct Run<'a> {
    options: &'a AsParts,
    target: &'a Target,
    /// Port of the groups on the loopback interface.
    port: u16,
    /// Directory of the flowgraphs of the parts.
    directory: &'a Path,
    signals: Signals,
    terminal: &'a Terminal,
    from_parts: Receiver<(usize, String)>,
    parts: Vec<Child>,
    stopping: Option<Stopping>,
    /// All parts run; before, no edited file is applied.
    has_started: bool,
    /// Result of the edited file, which a thread of its own applies to the parts: swaps may take as long as some frames.
    reloading: Option<Receiver<Applied>>,
    /// Number of signals that were forwarded.
    seen: usize,
}

impl Run<'_> {
    /// Starts the parts level by level: a part that sends starts when those that receive from it have joined their
    /// groups.
    fn start(&mut self, levels: &[Vec<usize>]) -> Result<(), Failure> {
        let mut first = 0;
        for level in levels {
            let range = first..first + level.len();
            first = range.end;
            if self.is_over() {
                return Ok(());
            }
            for part in &self.parts[range.clone()] {
                part.start()?;
            }
            let running = ["running", "draining", "ended", "failed"];
            self.wait_until(range.clone(), "started", |part| part.is_in(&running))?;
            if !self.options.quiet {
                self.parts[range].iter().for_each(|part| self.terminal.note(&part.about()));
            }
        }
        Ok(())
    }

    /// Whether a part has failed, or all are stopping.
    fn is_over(&self) -> bool {
        self.stopping.is_some() || self.parts.iter().any(Child::has_failed)
    }

    /// Waits until `is_done` holds for the parts in `range`, or they have ended.
    fn wait_until(
        &mut self,
        range: Range<usize>,
        what: &str,
        is_done: impl Fn(&Child) -> bool,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        let mut told = began;
        loop {
            let waits = |part: &&Child| !part.has_ended() && !is_done(part);
            let Some(part) = self.parts[range.clone()].iter().find(waits) else { return Ok(()) };
            if began.elapsed() > START {
                let (limit, name, last) = (START.as_secs(), part.name(), part.last_answer());
                let message = format!("part `{name}` must be {what} within {limit} s{last}");
                return Err(Failure::failed(message));
            }
            if told.elapsed() > NOTE {
                told = Instant::now();
                let (name, last) = (part.name(), part.last_answer());
                self.terminal.note(&format!("waits until part `{name}` is {what}{last}"));
            }
            self.tick();
            if self.is_over() {
                return Ok(());
            }
        }
    }

    fn wait_ended(&mut self) {
        let began = Instant::now();
        while !self.parts.iter().all(Child::has_ended) {
            self.tick();
            if self.is_stuck() {
                break;
            }
            let is_over = self.options.duration.is_some_and(|limit| began.elapsed() >= limit);
            if is_over && self.stopping.is_none() {
                self.stop();
            }
        }
        // The last lines of the parts.
        while let Ok((index, line)) = self.from_parts.recv_timeout(TICK) {
            self.take(index, line);
        }
    }

    /// Shows lines of the parts, forwards signals, and stops all parts if one has failed.
    fn tick(&mut self) {
        if let Ok((index, line)) = self.from_parts.recv_timeout(TICK) {
            self.take(index, line);
            while let Ok((index, line)) = self.from_parts.try_recv() {
                self.take(index, line);
            }
        }
        self.parts.iter_mut().for_each(Child::look);
        self.look_at_reload();
        let signals = self.signals.look();
        if signals > self.seen {
            match self.stopping {
                None => {
                    self.terminal.note("stopping all parts (press Ctrl-C again to abort)");
                    self.stop();
                }
                Some(_) => self.end_all(),
            }
            self.seen = signals;
        }
        if self.stopping.is_none() && self.parts.iter().any(Child::has_failed) {
            self.stop();
        }
        let Some(stopping) = &mut self.stopping else { return };
        let time = stopping.since.elapsed();
        if !stopping.is_for_all && (time > DRAIN || self.parts.iter().any(Child::has_failed)) {
            stopping.is_for_all = true;
            self.parts
                .iter()
                .filter(|part| part.receives())
                .for_each(|part| part.signal(Signal::TERM));
        }
        if time > DRAIN + stopping.looks * KILL {
            stopping.looks += 1;
            let answers = |part: &Child| part.is_in(&["draining", "ended", "failed"]);
            for part in self.parts.iter_mut().filter(|part| !part.has_ended()) {
                let last = part.last_answer();
                if answers(part) {
                    self.terminal.note(&format!("waits for the end of part `{}`", part.name()));
                } else {
                    self.terminal.warning(&format!("part `{}` is killed{last}", part.name()));
                    part.kill();
                }
            }
        }
    }

    /// Begins to apply an edited file if none is being applied, and shows the result of the last one.
    fn look_at_reload(&mut self) {
        match self.reloading.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return,
            Some(result) => {
                self.reloading = None;
                let lost = |_| NotApplied::from("the thread that applied it failed".to_owned());
                self.show(result.unwrap_or_else(|error| Err(lost(error))));
            }
            None => {}
        }
        if !self.has_started || !self.signals.take_reload() || self.stopping.is_some() {
            return;
        }
        let loopback = Loopback { port: self.port };
        match reload_parts::read(self.target, loopback, self.terminal) {
            Ok(hosts) => {
                let servers: Vec<Server> = self.parts.iter().map(Child::server).collect();
                let (sender, result) = channel();
                let reload = move || sender.send(reload_parts::reload(hosts, &servers));
                match std::thread::Builder::new().spawn(reload) {
                    Ok(_) => self.reloading = Some(result),
                    Err(error) => self.show(Err(format!("no thread can be made: {error}").into())),
                }
            }
            Err(why) => self.show(Err(why.into())),
        }
    }

    /// Shows that the edited file was applied to all parts, or why no part has changed.
    fn show(&self, applied: Applied) {
        let name = self.target.file.display();
        match applied {
            Ok(Reloaded { text, hosts, changed }) => {
                // Live values of a part belong to the values of its file.
                let written = write(&hosts, self.directory)
                    .and_then(|_| processes::follow(&hosts, &changed, self.directory));
                if let Err(failure) = written {
                    self.terminal.warning(&failure.first_line());
                }
                self.terminal.note(&format!("applied `{name}`: {text}"));
            }
            Err(NotApplied { why, left }) if left.is_empty() => {
                let why = why.trim_end();
                let text = format!("`{name}` was not applied: the parts continue unchanged\n{why}");
                self.terminal.warning(&text);
            }
            Err(NotApplied { why, left }) => {
                let rule = format!("`{name}` was not applied to all parts\n{}", why.trim_end());
                let left = left.join("\n");
                let text =
                    format!("{rule}\nthese parts may have it, and cannot take it back:\n{left}");
                let help = "send SIGHUP again, or start the program again";
                self.terminal.warning(&with_help(&text, [help]));
            }
        }
    }

    /// Whether killed parts have not ended, although they had time: the kernel does not let them go.
    fn is_stuck(&self) -> bool {
        let mut left = self.parts.iter().filter(|part| !part.has_ended()).peekable();
        left.peek().is_some() && left.all(|part| part.killed_for() > GONE)
    }

    fn take(&mut self, index: usize, line: String) {
        let part = &mut self.parts[index];
        if let Some(shown) = part.take(line)
            && !(self.options.quiet && shown.trim().is_empty())
        {
            self.terminal.note(&format!("{}: {shown}", part.name()));
        }
    }

    /// Stops the parts that receive nothing; the others end with their streams.
    fn stop(&mut self) {
        let sources = || self.parts.iter().filter(|part| !part.receives());
        let is_for_all = sources().all(Child::has_ended);
        self.stopping = Some(Stopping { since: Instant::now(), is_for_all, looks: 1 });
        let stopped = self.parts.iter().filter(|part| is_for_all || !part.receives());
        stopped.for_each(|part| part.signal(Signal::TERM));
    }

    /// Ends all parts at once.
    fn end_all(&mut self) {
        self.parts.iter_mut().for_each(Child::kill);
        self.stopping.get_or_insert(Stopping { since: Instant::now(), is_for_all: true, looks: 1 });
    }

    /// Writes the results of all parts; the error names those that failed.
    fn verdict(&mut self, flowgraph: &str) -> Result<(), Failure> {
        let failures: Vec<String> = self.parts.iter().filter_map(Child::failure).collect();
        let written = if self.options.json {
            let part = |part: &mut Child| (part.name().to_owned(), part.json());
            let parts: Map<_, _> = self.parts.iter_mut().map(part).collect();
            self.terminal.json(&json!({ "flowgraph": flowgraph, "parts": parts }))
        } else if self.options.quiet {
            Ok(())
        } else {
            let mut text = String::new();
            for part in &mut self.parts {
                let name = self.terminal.paint(Paint::Bold, &format!("part {}", part.name()));
                text.push_str(&format!("{name}\n{}\n", part.results().trim_end()));
            }
            self.terminal.results(&text)
        };
        let was_ended = self.parts.iter().any(Child::was_ended);
        let verdict = match failures {
            failures if !failures.is_empty() => Err(Failure::Failed(failures)),
            _ if was_ended => Err(Failure::Interrupted),
            _ => Ok(()),
        };
        crate::failure::judge(verdict, written, self.terminal)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::levels;
    use fxgraph::flowgraph::{Host, PartPlan, Rate};

    /// A part that sends on the groups `sent` and receives on the groups `received`.
    fn part(sent: &[u8], received: &[u8]) -> PartPlan {
        let rate = |group: &u8| Rate {
            name: group.to_string(),
            address: Some(format!("239.0.0.{group}:7148").parse().unwrap()),
            gbit_per_second: 1.0,
        };
        PartPlan {
            name: "h".to_owned(),
            host: Host { class: 0, index: 0 },
            class: "h".to_owned(),
            index: 0,
            blocks: Vec::new(),
            yaml: String::new(),
            sent: sent.iter().map(rate).collect(),
            received: received.iter().map(rate).collect(),
        }
    }

    #[test]
    fn levels_put_receivers_before_their_senders() {
        // Two senders, one of them through a third part.
        let parts = [part(&[1], &[]), part(&[2], &[1]), part(&[3], &[]), part(&[], &[2, 3])];
        assert_eq!(levels(&parts.iter().collect::<Vec<_>>()), [vec![3], vec![1, 2], vec![0]]);
    }

    #[test]
    fn levels_of_parts_that_send_to_each_other_have_all_of_them() {
        let parts = [part(&[1], &[2]), part(&[2], &[1]), part(&[], &[1, 2])];
        let levels = levels(&parts.iter().collect::<Vec<_>>());
        assert_eq!(levels[0], [2]);
        assert_eq!(levels.iter().flatten().count(), 3);
    }
}
