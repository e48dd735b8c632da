//! The supervisor of an array under Slurm, while one command of Slurm after the other fails once.

use crate::support::programs;
use crate::support::repository::root;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const COMMANDS: [&str; 6] = ["squeue", "sinfo", "scontrol", "salloc", "scancel", "srun"];
/// Name under which calls of the parts' servers are counted.
const SERVER: &str = "server";
/// Longest wait for a state of the array.
const LIMIT: Duration = Duration::from_mins(2);

/// A deployed array, a Slurm of files, and the servers of its parts.
struct Site {
    directory: tempfile::TempDir,
    /// Command and number of its call that fails.
    fails: String,
    /// Port of the first part; the second part has the next one, and their second versions those after.
    port: u16,
}

impl Site {
    fn new(fails: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["slurm/calls", "slurm/jobs", "slurm/steps", "bin"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        for command in COMMANDS {
            let fake = root().join("tests/slurm/fake.sh");
            symlink(fake, directory.path().join("bin").join(command)).unwrap();
        }
        let listeners = listeners();
        let port = listeners[0].local_addr().unwrap().port();
        for listener in listeners {
            let (slurm, fails) = (directory.path().join("slurm"), fails.to_owned());
            std::thread::spawn(move || serve(&listener, &slurm, &fails));
        }
        let site = Self { directory, fails: fails.to_owned(), port };
        site.deploy("array", "true");
        site
    }

    /// Writes an array of two parts on one class of two hosts; `b` sends to `a`. `program` is run for a takeover.
    fn deploy(&self, directory: &str, program: &str) {
        let part = |name: &str, level: u16| {
            json!({
                "name": name, "file_name": name, "class": "x", "index": level, "config_hash": "",
                "level": level, "sends_to": [], "port": self.port + level,
                "server": {"address_file": format!("run/{name}.address")},
                "streams": {"sent": [], "obstacle": null},
            })
        };
        let class = json!({"name": "x", "size": 2, "constraint": null, "gpus": 0});
        let deployment = json!({
            "flowgraph": "fake", "engine": "slurm", "version": "1", "token_file": "token",
            "files": [], "parts": [part("a", 0), part("b", 1)],
            "array": {"program": program, "classes": [class]},
        });
        fs::create_dir(self.path(directory)).unwrap();
        fs::write(self.path(directory).join("deployment.json"), deployment.to_string()).unwrap();
        fs::write(self.path(directory).join("token"), "0123456789abcdef\n").unwrap();
        let script = format!(
            "#!/bin/sh\nexec '{}' array \"$(dirname \"$0\")\" \"$@\"\n",
            env!("CARGO_BIN_EXE_fxgraph")
        );
        programs::write(&self.path(directory).join("array.sh"), &script);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn script(&self, arguments: &[&str]) -> Command {
        self.script_of("array", arguments)
    }

    fn script_of(&self, directory: &str, arguments: &[&str]) -> Command {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(self.path(directory).join("array.sh"));
        command.args(arguments).env("PATH", path).env("FAKE", self.path("slurm"));
        command.env("FAIL", &self.fails).stdin(Stdio::null());
        command
    }

    /// Starts the supervisor and waits until both parts run. A start that says why it failed is repeated.
    fn start(&self) -> Script {
        let began = Instant::now();
        loop {
            let log = fs::File::create(self.path("log")).unwrap();
            let mut script = self.script(&["start"]);
            let mut script = Script::start(script.stdout(log.try_clone().unwrap()).stderr(log));
            loop {
                let said = fs::read_to_string(self.path("log")).unwrap();
                if said.contains("a: runs\n") && said.contains("b: runs\n") {
                    return script;
                }
                if let Some(status) = script.0.try_wait().unwrap() {
                    assert!(!status.success() && said.contains("must"), "{}: {said}", self.fails);
                    assert!(self.steps().is_empty(), "{}: {said}", self.fails);
                    break;
                }
                assert!(began.elapsed() < LIMIT, "{}: {said}", self.fails);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// Runs a command of the script until it succeeds: it may say once why it failed.
    fn run(&self, arguments: &[&str]) -> Output {
        for _ in 0..2 {
            let output = self.script(arguments).output().unwrap();
            if output.status.success() {
                return output;
            }
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("must"), "{} of {arguments:?}: {said}", self.fails);
        }
        panic!("{}: {arguments:?} fails again", self.fails);
    }

    /// Kills the `srun`s of a supervisor that was killed; the steps go on.
    fn kill_sruns(&self) {
        let processes = fs::read_to_string(self.path("slurm/sruns")).unwrap();
        let mut kill = Command::new("kill");
        assert!(kill.arg("-9").args(processes.split_whitespace()).status().unwrap().success());
    }

    /// Name of the running step of each port.
    fn steps(&self) -> BTreeMap<u16, String> {
        let files = fs::read_dir(self.path("slurm/steps")).unwrap().flatten();
        let words = files.filter_map(|file| {
            let text = fs::read_to_string(file.path()).ok()?;
            let mut words = text.split(' ').map(str::to_owned);
            let name = words.next()?;
            Some((words.next()?.parse().ok()?, name))
        });
        words.collect()
    }

    fn calls(&self, command: &str) -> usize {
        let count = fs::read_to_string(self.path("slurm/calls").join(command));
        count.map_or(0, |count| count.trim().parse().unwrap())
    }
}

/// Listeners on four ports, one after the other.
fn listeners() -> Vec<TcpListener> {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let others = (1..4).map(|n| TcpListener::bind(("127.0.0.1", port.checked_add(n)?)).ok());
        let others = others.collect::<Option<Vec<_>>>();
        if let Some(mut listeners) = others {
            listeners.insert(0, first);
            return listeners;
        }
    }
}

/// Answers as the part that runs at a port, according to the files in `slurm`, until the test ends.
fn serve(listener: &TcpListener, slurm: &Path, fails: &str) {
    let port = listener.local_addr().unwrap().port();
    for stream in listener.incoming() {
        // A connection that is closed without an answer is one to a port where no part listens.
        let _ = answer(&stream.unwrap(), port, slurm, fails);
    }
}

fn answer(mut stream: &TcpStream, port: u16, slurm: &Path, fails: &str) -> Option<()> {
    let mut head = BufReader::new(stream).lines().map_while(Result::ok);
    let request = head.next()?;
    head.find(String::is_empty)?;
    let lock = fs::File::create(slurm.join("lock")).ok()?;
    lock.lock().ok()?;
    let calls = slurm.join("calls").join(SERVER);
    let call = fs::read_to_string(&calls).map_or(0, |n| n.parse::<usize>().unwrap()) + 1;
    fs::write(calls, call.to_string()).ok()?;
    if fails == format!("{SERVER} {call}") {
        fs::write(slurm.join("failed"), "").ok()?;
        return None;
    }
    let step = fs::read_dir(slurm.join("steps")).ok()?.flatten().find_map(|file| {
        let text = fs::read_to_string(file.path()).ok()?;
        let (name, state) = text.split_once(&format!(" {port} "))?;
        Some((file.path(), name.to_owned(), state.trim().to_owned()))
    });
    let (path, name, mut state) = step?;
    if request.starts_with("POST") && state == "prepared" {
        "running".clone_into(&mut state);
        fs::write(path, format!("{name} {port} {state}")).ok()?;
    }
    let health = json!({"state": state, "faults": 0, "survived_faults": 0, "elapsed_seconds": 1.0});
    let (health, close) = (health.to_string(), "Connection: close");
    let length = health.len();
    write!(stream, "HTTP/1.1 200 OK\r\n{close}\r\nContent-Length: {length}\r\n\r\n{health}").ok()
}

/// A script with a process group of its own. When it is dropped, also by a test that fails, it is killed; its `srun`s and
/// the steps go on.
struct Script(Child);

impl Script {
    fn start(command: &mut Command) -> Self {
        Self(command.process_group(0).spawn().unwrap())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|status| status.is_none()) {
            let group = format!("-{}", self.0.id());
            let _ = Command::new("kill").args(["-9", "--", &group]).status();
            let _ = self.0.wait();
        }
    }
}

/// The life of an array whose supervisor is killed and started again; returns the site.
fn live(fails: &str) -> Site {
    let site = Site::new(fails);
    drop(site.start());
    site.kill_sruns();
    let before = site.steps();
    assert_eq!(before.len(), 2, "{fails}");
    let mut supervisor = site.start();
    assert_eq!(site.steps(), before, "{fails}: parts that run are not started again");
    site.run(&["restart", "a"]);
    let after = site.steps();
    let (a, b) = (site.port, site.port + 1);
    assert!(after[&a] != before[&a] && after[&b] == before[&b], "{fails}");
    let listed = site.run(&["status"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.lines().count(), 2, "{fails}: {listed}");
    for (line, name) in listed.lines().zip(["a", "b"]) {
        let words: Vec<&str> = line.split(' ').collect();
        let [part, "h0" | "h1", address, "running" | "no_answer"] = words[..] else {
            panic!("{fails}: {listed}")
        };
        let port = if name == "a" { a } else { b };
        assert_eq!((part, address), (name, &*format!("127.0.0.1:{port}")), "{fails}");
    }
    site.run(&["stop"]);
    let began = Instant::now();
    while supervisor.0.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < LIMIT, "{fails}: `array.sh start` does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(site.steps().is_empty(), "{fails}");
    assert_eq!(fs::read_dir(site.path("slurm/jobs")).unwrap().count(), 0, "{fails}: a job is left");
    let doubled = fs::read_to_string(site.path("slurm/doubled")).unwrap_or_default();
    assert_eq!(doubled, "", "{fails}: a part was started beside itself");
    site
}

#[test]
fn each_command_of_slurm_may_fail_once_at_each_call() {
    let site = live("");
    let calls = COMMANDS
        .iter()
        .chain(&[SERVER])
        .flat_map(|command| (1..=site.calls(command)).map(move |call| format!("{command} {call}")));
    let calls: Vec<String> = calls.collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // The scripts mostly wait.
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let Some(fails) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let has_failed = live(fails).path("slurm/failed").exists();
                    failed.fetch_add(usize::from(has_failed), Ordering::Relaxed);
                }
            });
        }
    });
    // Commands that are repeated until a state comes may have fewer calls than in the first life.
    let failed = failed.into_inner();
    assert!(failed > 50, "{failed} of {} calls failed: {calls:?}", calls.len());
}

/// The live values that the part `file` of `directory` begins with when it is started again.
fn values(site: &Site, directory: &str, file: &str) -> Option<String> {
    let text = fs::read_to_string(site.path(directory).join(format!("state/{file}.json"))).ok()?;
    Path::new(text.trim()).file_name()?.to_str().map(str::to_owned)
}

#[test]
fn state_file_of_a_takeover_is_not_kept_and_that_of_other_parts_goes_along() {
    let site = Site::new("");
    let supervisor = site.start();
    let of = |directory: &str, file: &str| values(&site, directory, file);
    let array = || Some("array".to_owned());
    assert_eq!((of("array", "a"), of("array", "b")), (array(), array()));

    // The sinks of a version that has failed to take over are disabled.
    site.deploy("failing", "false");
    let failing = site.path("failing").display().to_string();
    let output = site.script(&["update", &failing]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the takeover has failed"), "{said}");
    assert_eq!((of("failing", "a"), of("array", "a")), (None, array()), "{said}");

    // A takeover ends the old process, whose sinks are disabled.
    let program = site.path("bin/takeover");
    let end = format!("#!/bin/sh\ngrep -l ' {} ' \"$FAKE\"/steps/* | xargs rm\n", site.port);
    programs::write(&program, &end);
    site.deploy("new", "takeover");
    fs::create_dir(site.path("new/state")).unwrap();
    for part in ["a", "b"] {
        // Of an earlier time in which this directory had the array.
        fs::write(site.path("new/state").join(format!("{part}.json")), "/stale\n").unwrap();
    }
    let log = fs::File::create(site.path("log")).unwrap();
    let new = site.path("new").display().to_string();
    let mut update = site.script(&["update", &new, "--only", "a"]);
    let update = Script::start(update.stdout(log.try_clone().unwrap()).stderr(log));
    let began = Instant::now();
    while !fs::read_to_string(site.path("log")).unwrap().contains("updated 1 parts") {
        let said = || fs::read_to_string(site.path("log")).unwrap();
        assert!(began.elapsed() < LIMIT && !said().contains("not updated"), "{}", said());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((of("array", "a"), of("new", "a")), (None, Some("new".to_owned())));
    let restarted = site.script_of("new", &["restart", "b"]).output().unwrap();
    assert!(restarted.status.success(), "{}", String::from_utf8_lossy(&restarted.stderr));
    assert_eq!((of("array", "b"), of("new", "b")), (None, array()), "b goes on as it was");
    let stopped = site.script_of("new", &["stop"]).output().unwrap();
    assert!(stopped.status.success(), "{}", String::from_utf8_lossy(&stopped.stderr));
    drop((update, supervisor));
}
