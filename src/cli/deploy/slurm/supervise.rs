//! Supervision of the parts of an array: each runs on a host of its own, and is started again when its process fails.

use super::super::manifest::Part;
use super::directory::{Directory, PLACE, cannot, of};
use super::queue::{self, Queue, insist};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::Terminal;
use fxgraph::lock::lock;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant, SystemTime};

/// Delay before a process is started again: the first one, and the longest one.
const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(30);
/// Time after which a process that ends has not failed at its start.
const STARTED: Duration = Duration::from_secs(10);
/// Time between two looks: at a part that is elsewhere, at one that goes on from before, and after a failure.
const TICK: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(2);

/// Supervisor of the parts in a directory. It has the lock of the directory.
pub struct Supervisor {
    pub directory: Directory,
    pub queue: Queue,
    pub lock: File,
    pub terminal: Terminal,
    /// Parts are placed one at a time.
    pub placing: Mutex<()>,
}

/// Where and from which flowgraph a process is started.
#[derive(Debug, PartialEq)]
struct Start {
    job: String,
    host: String,
    port: u16,
    flowgraph: String,
    /// Whether an update starts it beside an older version, from which it takes over.
    is_beside: bool,
}

/// Next action of the supervisor of a part.
enum Next {
    Start(Start),
    /// Waits: it is in another directory, or runs since an earlier supervisor.
    Leave(Duration),
    /// Waits for a host.
    NoHost,
}

/// Meaning of the end of a process.
#[derive(Debug, PartialEq)]
enum End {
    /// The part is not started again, for this reason.
    Over(String),
    /// The part was ended on request.
    Asked,
    Failed,
}

impl Supervisor {
    /// Starts to supervise all parts; the threads end with the parts.
    pub fn supervise_all(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let supervise = |part: &Part| {
            let (supervisor, part) = (Arc::clone(self), part.clone());
            spawn(move || supervisor.supervise(&part))
        };
        self.directory.parts().iter().map(supervise).collect()
    }

    /// Allocates the hosts of all classes that have none.
    pub fn allocate(&self, signals: &Signals) -> Result<(), Failure> {
        for class in &self.directory.array.classes {
            if signals.look() > 0 {
                return Err(Failure::Interrupted);
            }
            match insist(|| self.queue.job(&class.name))? {
                Some(job) => {
                    self.terminal.note(&format!("class {}: job {job} goes on", class.name));
                }
                None => self.queue.allocate(class)?,
            }
        }
        Ok(())
    }

    fn say(&self, part: &Part, text: &str) {
        self.terminal.note(&format!("{}: {text}", part.name));
    }

    /// Keeps `part` running. Its first process waits to be started in order, later ones start at once.
    fn supervise(&self, part: &Part) {
        let (mut hold, mut delay) = (true, SHORTEST);
        while self.is_supervised(part) {
            let ended = match self.next(part) {
                Ok(Next::Start(start)) => {
                    let is_held = std::mem::take(&mut hold) || start.is_beside;
                    self.run(part, &start, is_held)
                }
                Ok(Next::Leave(time)) => {
                    hold = false;
                    sleep(time);
                    continue;
                }
                Ok(Next::NoHost) => {
                    sleep(PAUSE);
                    continue;
                }
                Err(failure) => Err(failure),
            };
            match ended {
                Ok((End::Asked, _)) => {}
                Ok((End::Over(why), _)) => self.say(part, &why),
                Ok((End::Failed, ran)) => {
                    delay = next_delay(delay, ran);
                    sleep(delay);
                }
                Err(failure) => {
                    self.say(part, &failure.first_line());
                    sleep(PAUSE);
                }
            }
        }
    }

    /// An update that takes the parts removes the lock.
    fn is_supervised(&self, part: &Part) -> bool {
        let is_over = self.directory.has("stop") || self.directory.has(&of(part, "over"));
        !is_over && self.directory.is_held_by(&self.lock)
    }

    fn next(&self, part: &Part) -> Result<Next, Failure> {
        if let Some(start) = self.take_order(part)? {
            return Ok(Next::Start(start));
        }
        if self.directory.has(&of(part, "away")) {
            return Ok(Next::Leave(TICK));
        }
        if let Some(host) = self.directory.get(&of(part, "host")) {
            let goes_on = self.queue.step(&self.directory, part)?.is_some() && queue::is_up(&host)?;
            if goes_on {
                return Ok(Next::Leave(LOOK));
            }
        }
        self.directory.remove(&of(part, "again"))?;
        let Some((job, host)) = self.place(part)? else { return Ok(Next::NoHost) };
        self.directory.fetch_values(part)?;
        let flowgraph = format!("parts/{}.yaml", part.file_name);
        Ok(Next::Start(Start { job, host, port: part.port, flowgraph, is_beside: false }))
    }

    /// The version that an update wants to be started beside the running one, unless it changes its mind first.
    fn take_order(&self, part: &Part) -> Result<Option<Start>, Failure> {
        let (beside, begun, ended) = (of(part, "beside"), of(part, "begun"), of(part, "ended"));
        if !self.directory.has(&beside) {
            return Ok(None);
        }
        // As long as there is an order, this is the end of an earlier process.
        self.directory.remove(&ended)?;
        if !self.directory.claim(&beside, &begun) {
            return Ok(None);
        }
        // The flowgraph that takes over has its values from its file and from the old process.
        self.directory.forget_values(part)?;
        let order = self.directory.get(&begun).unwrap_or_default();
        let job = insist(|| self.queue.job(&part.class)).ok().flatten();
        let start = job.and_then(|job| Start::ordered(job, &order));
        if start.is_none() {
            self.directory.put(&ended, "1")?;
        }
        Ok(start)
    }

    /// Job and host for `part`: the host of before if it is up, otherwise one that no part has.
    fn place(&self, part: &Part) -> Result<Option<(String, String)>, Failure> {
        let _placing = lock(&self.placing);
        let before = self.directory.get(&of(part, "host"));
        let Some(job) = self.queue.job(&part.class)? else { return Ok(None) };
        for host in candidates(before, self.queue.hosts(&job)?, &self.taken()) {
            if queue::is_up(&host)? {
                self.directory.put(&of(part, "host"), &host)?;
                return Ok(Some((job, host)));
            }
        }
        Ok(None)
    }

    /// Hosts that parts have. During an update the parts are in two directories.
    fn taken(&self) -> Vec<String> {
        let names = || self.directory.parts().iter().map(|part| of(part, "host"));
        let own = names().filter_map(|name| self.directory.get(&name));
        let peer = self.directory.get("peer");
        let others = peer.iter().flat_map(|peer| {
            let of_peer = |name| std::fs::read_to_string(format!("{peer}/run/{name}")).ok();
            names().filter_map(of_peer).map(|host| host.trim_end().to_owned()).collect::<Vec<_>>()
        });
        own.chain(others).collect()
    }

    /// Runs a process of `part` until it ends, and returns the time for which it ran.
    fn run(&self, part: &Part, start: &Start, hold: bool) -> Result<(End, Duration), Failure> {
        let Start { job, host, port, flowgraph, .. } = start;
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let step = format!("{}-{}", part.file_name, since.as_nanos());
        let address =
            insist(|| queue::address(host)).ok().flatten().unwrap_or_else(|| host.clone());
        for (key, text) in PLACE.iter().zip([host, &format!("{address}:{port}"), &step]) {
            self.directory.put(&of(part, key), text)?;
        }
        let path = self.directory.path.join("log").join(format!("{}.log", part.file_name));
        let log = File::options().create(true).append(true).open(&path);
        let log = log.and_then(|log| Ok((log.try_clone()?, log)));
        let (output, errors) = log.map_err(|error| cannot("open", &path, &error))?;
        self.say(part, &format!("starts on {host}"));
        let mut srun = Command::new("srun");
        srun.args([&format!("--jobid={job}"), "--overlap", "--no-kill", "--immediate=30"]);
        srun.args(["-N", "1", "-n", "1", "-w", host, "-J", &step, "--cpu-bind=none"]);
        srun.args([&self.directory.array.program, "run", flowgraph]);
        srun.args(["--listen", &format!("0.0.0.0:{port}"), "--token-file", "token"]);
        srun.args(["--state", &format!("state/{}.json", part.file_name)]);
        srun.args(hold.then_some("--hold-once")).current_dir(&self.directory.path);
        // A process group of its own: Ctrl-C ends the supervision, and the part goes on.
        srun.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let began = Instant::now();
        let status =
            srun.status().map_err(|error| Failure::because("cannot run `srun`", &error))?;
        let ran = began.elapsed();
        Ok((self.ended(part, host, status.code())?, ran))
    }

    /// Notes the end of a process of `part` on `host`, with an exit code unless a signal ended it.
    fn ended(&self, part: &Part, host: &str, code: Option<i32>) -> Result<End, Failure> {
        let directory = &self.directory;
        // Once an update has taken the parts, another process supervises them.
        if directory.has("stop") || !directory.is_held_by(&self.lock) {
            return Ok(End::Asked);
        }
        let code_text = code.map_or_else(|| "signal".to_owned(), |code| code.to_string());
        if directory.has(&of(part, "away")) {
            // During an update its sinks may be disabled for the takeover, which must not be so when it is started
            // again.
            directory.forget_values(part)?;
            directory.put(&of(part, "ended"), &code_text)?;
            return Ok(End::Asked);
        }
        if directory.has(&of(part, "again")) {
            return Ok(End::Asked);
        }
        let see = format!("see log/{}.log", part.file_name);
        let end = end(code, || self.is_host_up(host), &see);
        match &end {
            End::Over(_) => directory.put(&of(part, "over"), "")?,
            _ => self.say(part, &format!("ended on {host} (exit {code_text}), {see}")),
        }
        Ok(end)
    }

    /// Whether `host` is up, as soon as Slurm answers; `false` once the array is being stopped.
    fn is_host_up(&self, host: &str) -> bool {
        loop {
            match insist(|| queue::is_up(host)) {
                Ok(is_up) => return is_up,
                Err(_) if self.directory.has("stop") => return false,
                Err(_) => {}
            }
        }
    }
}

impl Start {
    /// The start that an update has ordered in job `job`.
    fn ordered(job: String, order: &str) -> Option<Self> {
        let words: Vec<&str> = order.split_whitespace().collect();
        let [host, port, flowgraph] = words[..] else { return None };
        let port = port.parse().ok()?;
        let (host, flowgraph) = (host.to_owned(), flowgraph.to_owned());
        Some(Self { job, host, port, flowgraph, is_beside: true })
    }
}

/// Meaning of the exit code of `srun`; `see` names the log.
fn end(code: Option<i32>, is_host_up: impl FnOnce() -> bool, see: &str) -> End {
    match code {
        // With `--no-kill` srun returns 0 also if the host has failed.
        Some(0) if is_host_up() => End::Over("has ended".to_owned()),
        Some(code @ (2 | 78)) => End::Over(format!("rejected (exit {code}), {see}")),
        _ => End::Failed,
    }
}

/// Delay before the start that follows a process that ran for a time.
fn next_delay(before: Duration, ran: Duration) -> Duration {
    if ran >= STARTED { SHORTEST } else { LONGEST.min(before * 2) }
}

/// Hosts for a part, the best first: that of `before`, and those of `hosts` that are not `taken`.
fn candidates(before: Option<String>, hosts: Vec<String>, taken: &[String]) -> Vec<String> {
    let others = hosts.into_iter().filter(|host| !taken.contains(host));
    before.clone().into_iter().chain(others.filter(|host| Some(host) != before.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_is_started_again_unless_it_has_ended_or_its_flowgraph_is_rejected() {
        let end = |code, is_up: bool| end(code, || is_up, "see log");
        assert_eq!(end(Some(0), true), End::Over("has ended".to_owned()));
        assert_eq!(end(Some(0), false), End::Failed, "the host has failed");
        for code in [2, 78] {
            assert_eq!(
                end(Some(code), false),
                End::Over(format!("rejected (exit {code}), see log"))
            );
        }
        assert_eq!((end(Some(1), true), end(None, true)), (End::Failed, End::Failed));
    }

    #[test]
    fn delay_doubles_up_to_its_limit_while_processes_end_at_their_start() {
        let mut delay = SHORTEST;
        let mut seconds = Vec::new();
        for _ in 0..9 {
            delay = next_delay(delay, Duration::from_secs(9));
            seconds.push(delay.as_secs_f64());
        }
        assert_eq!(seconds, [0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]);
        assert_eq!(next_delay(delay, STARTED), SHORTEST);
    }

    #[test]
    fn part_stays_on_its_host_or_gets_one_that_no_part_has() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let taken = words("h0 h1");
        assert_eq!(candidates(Some("h1".to_owned()), words("h0 h1 h2"), &taken), ["h1", "h2"]);
        assert_eq!(candidates(None, words("h0 h1 h2 h3"), &taken), ["h2", "h3"]);
        assert!(candidates(None, words("h0 h1"), &taken).is_empty());
    }

    #[test]
    fn order_of_an_update_has_host_port_and_flowgraph() {
        let start = Start::ordered("7".to_owned(), "h0 9080 parts/a.yaml").unwrap();
        let [job, host, flowgraph] = ["7", "h0", "parts/a.yaml"].map(str::to_owned);
        assert_eq!(start, Start { job, host, port: 9080, flowgraph, is_beside: true });
        for wrong in ["", "h0 9080", "h0 99999 parts/a.yaml", "h0 1 a b"] {
            assert_eq!(Start::ordered("7".to_owned(), wrong), None, "{wrong}");
        }
    }
}
