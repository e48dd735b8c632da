//! The supervisor of an array under Slurm, while one command of Slurm after the other fails once.

use crate::support::programs;
use crate::support::repository::root;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const COMMANDS: [&str; 7] = ["squeue", "sinfo", "scontrol", "salloc", "scancel", "srun", "curl"];
/// Longest wait for a state of the array.
const LIMIT: Duration = Duration::from_mins(2);
/// Two parts on one class of two hosts; `b` sends to `a`.
const PARTS: &str = "flowgraph='fake'\nprogram='true'\nversion='1'\nname=('a' 'b')\nfile=('a' 'b')\nclass=('x' 'x')\n\
    port=('7001' '7002')\nlevel=('0' '1')\nsent=('' '')\nobstacle=('' '')\nclasses=('x')\nsize=('2')\n\
    constraint=('')\ngpus=('0')\n";

/// A deployed array and a Slurm of files.
struct Site {
    directory: tempfile::TempDir,
    /// Command and number of its call that fails.
    fails: String,
}

impl Site {
    fn new(fails: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["slurm/calls", "slurm/jobs", "slurm/steps", "bin"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        for command in COMMANDS.iter().chain(&["sleep"]) {
            let fake = root().join("tests/slurm/fake.sh");
            symlink(fake, directory.path().join("bin").join(command)).unwrap();
        }
        let site = Self { directory, fails: fails.to_owned() };
        site.deploy("array", PARTS);
        site
    }

    /// Writes the files of an array to `directory`.
    fn deploy(&self, directory: &str, parts: &str) {
        let script = self.path(directory).join("array.sh");
        fs::create_dir_all(self.path(directory).join("parts")).unwrap();
        let text = root().join("src/cli/deploy/array.sh");
        programs::write(&script, &fs::read_to_string(text).unwrap());
        fs::write(self.path(directory).join("parts.sh"), parts).unwrap();
        fs::write(self.path(directory).join("token"), "0123456789abcdef\n").unwrap();
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

    /// Name of the running step of each port.
    fn steps(&self) -> BTreeMap<String, String> {
        let files = fs::read_dir(self.path("slurm/steps")).unwrap().flatten();
        let words = files.filter_map(|file| {
            let text = fs::read_to_string(file.path()).ok()?;
            let mut words = text.split(' ').map(str::to_owned);
            let name = words.next()?;
            Some((words.next()?, name))
        });
        words.collect()
    }

    fn calls(&self, command: &str) -> usize {
        let count = fs::read_to_string(self.path("slurm/calls").join(command));
        count.map_or(0, |count| count.trim().parse().unwrap())
    }
}

/// A script with a process group of its own. When it is dropped, also by a test that fails, it is killed with its `srun`s;
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
    let before = site.steps();
    assert_eq!(before.len(), 2, "{fails}");
    let mut supervisor = site.start();
    assert_eq!(site.steps(), before, "{fails}: parts that run are not started again");
    site.run(&["restart", "a"]);
    let after = site.steps();
    assert!(after["7001"] != before["7001"] && after["7002"] == before["7002"], "{fails}");
    let listed = site.run(&["status"]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.lines().count(), 2, "{fails}: {listed}");
    for (line, name) in listed.lines().zip(["a", "b"]) {
        let words: Vec<&str> = line.split(' ').collect();
        let [part, "h0" | "h1", address, "running" | "no_answer"] = words[..] else {
            panic!("{fails}: {listed}")
        };
        let port = if name == "a" { "7001" } else { "7002" };
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
        .flat_map(|command| (1..=site.calls(command)).map(move |call| format!("{command} {call}")));
    let calls: Vec<String> = calls.collect();
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    // The scripts mostly wait.
    std::thread::scope(|scope| {
        for _ in 0..4 {
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
    site.deploy("failing", &PARTS.replace("program='true'", "program='false'"));
    let failing = site.path("failing").display().to_string();
    let output = site.script(&["update", &failing]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("the takeover has failed"), "{said}");
    assert_eq!((of("failing", "a"), of("array", "a")), (None, array()), "{said}");

    // A takeover ends the old process, whose sinks are disabled.
    let program = site.path("bin/takeover");
    programs::write(&program, "#!/bin/sh\ngrep -l ' 7001 ' \"$FAKE\"/steps/* | xargs rm\n");
    site.deploy("new", &PARTS.replace("program='true'", "program='takeover'"));
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
