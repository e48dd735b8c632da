//! Replacement of a running array by another deployment, part by part and without a missing frame.
//!
//! Each changed part starts in its new version beside the old one, and takes its streams over (`fxgraph takeover`). Then
//! the new directory has the array, and this process supervises its parts. If a part fails, the parts before it are taken
//! back, and nothing has changed. Parts that go on as they are have the new version when they start the next time.

use super::super::manifest::{Part, Streams};
use super::NAME;
use super::array::{Array, by_level};
use super::directory::{Directory, PLACE, cannot, of, remove};
use super::supervise::Supervisor;
use crate::client::with_help;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::units;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// Time for a new version to build its blocks.
const PREPARED: Duration = Duration::from_mins(2);
/// Time for an old version to end by itself, and to end after a signal.
const DRAIN: Duration = Duration::from_secs(20);
const END: Duration = Duration::from_secs(20);
/// Time for a version that has not taken over to end.
const WITHDRAWN: Duration = Duration::from_secs(90);
/// Time for the supervisors of an update that has failed to end.
const SUPERVISORS: Duration = Duration::from_mins(1);
/// Seconds for a whole takeover, which has limits of its own for its steps.
const TAKEOVER: &str = "900";
const TICK: Duration = Duration::from_millis(300);

/// Options of an update.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Updates these parts, changed or not
    #[arg(long, value_name = "PART", num_args = 1..)]
    only: Vec<String>,

    /// Takes live parameters from the new flowgraph; by default those of the running parts are kept
    #[arg(long)]
    new_values: bool,

    /// Time limit for each step of a takeover
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "60s")]
    limit: Duration,
}

impl Options {
    /// The same for `fxgraph takeover`.
    fn of_takeover(&self) -> Vec<String> {
        let mut words = vec!["--limit".to_owned(), format!("{}s", self.limit.as_secs_f64())];
        words.extend(self.new_values.then(|| "--new-values".to_owned()));
        words
    }

    fn all(&self) -> Vec<String> {
        let only = self.only.first().map(|_| "--only".to_owned());
        self.of_takeover().into_iter().chain(only).chain(self.only.iter().cloned()).collect()
    }
}

/// Lets the program of the deployment in `new` replace the array in `old`: it supervises the parts afterwards. Returns only
/// if that is not possible.
pub fn hand_over(old: &Directory, new: &Path, options: &Options) -> Result<(), Failure> {
    let new = Directory::open(new)?;
    if new.path == old.path {
        let what = format!(
            "`{}` must be another directory than that of the running array",
            new.path.display()
        );
        return Err(Failure::failed(what));
    }
    let script = new.path.join(NAME);
    let mut command = Command::new(&script);
    command.arg("update-from").arg(&old.path).args(options.all());
    Err(cannot("run", &script, &command.exec()))
}

/// Parts of an update, by what happens to them.
#[derive(Debug, Default, PartialEq)]
struct Steps<'a> {
    /// Parts to update, receivers first.
    order: Vec<&'a Part>,
    /// Parts that an update that was killed has moved already, the last one first.
    moved: Vec<&'a Part>,
}

/// Parts of an update from one deployment to another. `is_moved` and `is_same` tell about a part.
fn steps<'a>(
    parts: &'a [Part],
    only: &[String],
    is_moved: impl Fn(&Part) -> bool,
    is_same: impl Fn(&Part) -> bool,
) -> Steps<'a> {
    let mut steps = Steps::default();
    for part in by_level(&parts.iter().collect::<Vec<_>>()).into_iter().flatten() {
        if is_moved(part) {
            steps.moved.insert(0, part);
        } else if if only.is_empty() { !is_same(part) } else { only.contains(&part.name) } {
            steps.order.push(part);
        }
    }
    steps
}

/// Reason why the new version of a part cannot take over from the old one, which is in `state`.
fn problem(old: &Streams, new: &Streams, state: Option<&str>) -> Option<String> {
    if let Some(why) = old.obstacle.as_ref().or(new.obstacle.as_ref()) {
        return Some(format!("cannot be taken over: {why}"));
    }
    if old.sent != new.sent {
        let why = "cannot be taken over: its streams have other groups or types, and their receivers expect the old ones";
        return Some(why.to_owned());
    }
    (state != Some("running")).then(|| "must run".to_owned())
}

/// Whether two deployments have the same parts and classes of hosts.
fn is_same_layout(old: &Directory, new: &Directory) -> bool {
    let parts = |directory: &Directory| -> Vec<[String; 3]> {
        let names = |part: &Part| [&part.name, &part.file_name, &part.class].map(String::clone);
        directory.parts().iter().map(names).collect()
    };
    parts(old) == parts(new) && old.array.classes == new.array.classes
}

/// Blocks of the flowgraph of a part; its head has parameters of the whole flowgraph.
fn blocks(flowgraph: &str) -> &str {
    flowgraph.find("\nblocks:").map_or("", |at| &flowgraph[at..])
}

/// Whether `part` has the same program and blocks in both directories.
fn is_same_part(part: &Part, old: &Directory, new: &Directory) -> bool {
    let is_same_program =
        old.array.program == new.array.program && old.manifest.version == new.manifest.version;
    let path = format!("parts/{}.yaml", part.file_name);
    let [before, after] = [old, new].map(|it| fs::read_to_string(it.path.join(&path)));
    let has_same_blocks =
        before.is_ok_and(|before| after.is_ok_and(|after| blocks(&before) == blocks(&after)));
    is_same_program && has_same_blocks
}

/// Port for a second server beside that at `address`: the one of its deployment, unless the first one has it. Other parts
/// of the `count` parts have the ports between.
fn port_beside(address: &str, port: u16, count: usize) -> u16 {
    let is_taken = address.rsplit_once(':').is_some_and(|(_, taken)| taken == port.to_string());
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    if is_taken { port.checked_add(count).unwrap_or(port.saturating_sub(count)) } else { port }
}

/// Signal for a process that must end: an interrupt after `grace`, once, and a kill later.
fn signal_after(waited: Duration, grace: Duration, is_interrupted: bool) -> Option<&'static str> {
    if waited >= grace + END {
        Some("KILL")
    } else {
        (waited >= grace && !is_interrupted).then_some("INT")
    }
}

/// An update that runs.
struct Update<'a> {
    old: &'a Directory,
    new: &'a Supervisor,
    options: &'a Options,
    signals: &'a Signals,
}

/// Replaces the array in the directory `old` by that in `new`, and supervises its parts.
pub fn update_from(
    old: &Path,
    new: Directory,
    options: &Options,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let old = Directory::open(old)?;
    options.only.iter().try_for_each(|name| new.part(name).map(drop))?;
    if !is_same_layout(&old, &new) {
        let (old, new) = (old.path.display(), new.path.display());
        let what = format!("parts and classes of hosts must be the same in {old} and {new}");
        return Err(Failure::failed(with_help(
            &what,
            ["stop the old array, and start the new one"],
        )));
    }
    let (updating, lock) = locks(&old, &new)?;
    let mut array = Array::new(new, terminal);
    let must_run = || Failure::failed(format!("{}/{NAME} start must run", old.path.display()));
    array.queue.name = old.get("jobs").ok_or_else(must_run)?;
    if !array.is_allocated()? {
        return Err(must_run());
    }
    let signals = Signals::count()?;
    let new = &array.directory;
    let here = new.path.to_string_lossy().into_owned();
    let is_moved = |part: &Part| old.get(&of(part, "away")).as_ref() == Some(&here);
    let steps = steps(new.parts(), &options.only, is_moved, |part| is_same_part(part, &old, new));
    let Steps { order, moved } = &steps;
    if order.is_empty() && moved.is_empty() {
        terminal.note("no part has changed");
        return Ok(());
    }
    reject_problems(order, &old, new)?;
    let names = |parts: &[&Part]| parts.iter().map(|part| (*part).clone()).collect::<Vec<Part>>();
    let (order, mut moved) = (names(order), names(moved));

    copy_token(&old, new)?;
    let supervisor = array.supervisor(lock)?;
    let new = &supervisor.directory;
    new.put("jobs", &supervisor.queue.name)?;
    new.put("peer", &old.path.to_string_lossy())?;
    old.put("peer", &here)?;
    moved.iter().try_for_each(|part| old.forget_values(part))?;
    for part in new.parts().iter().filter(|part| !moved.contains(part)) {
        new.put(&of(part, "away"), &old.path.to_string_lossy())?;
        new.adopt(part, &old)?;
    }
    // A part must not stay between both versions, however often the user interrupts.
    signals.hold(true);
    let threads = supervisor.supervise_all();
    let update = Update { old: &old, new: &supervisor, options, signals: &signals };
    if let Err(why) = update.move_all(&order, &mut moved) {
        moved.iter().for_each(|part| update.take_back(part));
        let cleaned_up = update.clean_up(&threads).map_err(|failure| failure.first_line());
        let old = old.path.display();
        let what = format!("not updated: {why}. The array goes on as it was, from {old}");
        return Err(Failure::Failed([what].into_iter().chain(cleaned_up.err()).collect()));
    }
    update.hand_on()?;
    signals.hold(false);
    drop(updating);
    terminal.note(&format!("updated {} parts; the array runs from {here}", moved.len()));
    supervisor.wait_ended(&threads, &signals)
}

/// The locks of an update, and that of the supervisors in `new`. The supervisors in `old` must run.
fn locks(old: &Directory, new: &Directory) -> Result<([File; 2], File), Failure> {
    let (Some(first), Some(second)) = (old.lock("update.lock")?, new.lock("update.lock")?) else {
        return Err(Failure::failed("another update runs"));
    };
    if old.lock("lock")?.is_some() {
        return Err(Failure::failed(format!("{}/{NAME} start must run", old.path.display())));
    }
    let lock = new.lock("lock")?;
    let running = || Failure::failed(format!("{} is a running array itself", new.path.display()));
    Ok(([first, second], lock.ok_or_else(running)?))
}

/// Rejects an update that some parts of `order` cannot take part in.
fn reject_problems(order: &[&Part], old: &Directory, new: &Directory) -> Result<(), Failure> {
    let of_part = |part: &&Part| {
        let before = old.part(&part.name).ok()?;
        let problem = match (&before.streams, &part.streams) {
            (Some(before), Some(after)) => problem(before, after, old.state(part).as_deref()),
            _ => Some("must be deployed by a program that knows updates".to_owned()),
        };
        problem.map(|problem| format!("{}: {problem}", part.name))
    };
    let mut problems: Vec<String> = order.iter().filter_map(of_part).collect();
    if problems.is_empty() {
        return Ok(());
    }
    problems.push(format!(
        "nothing was changed. Name the parts to update with `--only PART...`; then `{NAME} restart PART...` in {} gives \
         others the new version, and the time that this takes is missing in their output",
        new.path.display()
    ));
    Err(Failure::Failed(problems))
}

fn copy_token(old: &Directory, new: &Directory) -> Result<(), Failure> {
    let [from, to] = [old, new].map(|it| it.path.join(&it.manifest.token_file));
    let draft = to.with_extension("new");
    // A copy has the permissions of the file.
    let copied = fs::copy(&from, &draft).and_then(|_| fs::rename(&draft, &to));
    copied.map_err(|error| cannot("copy", &from, &error))
}

impl Update<'_> {
    /// Moves the parts of `order` to the new directory, until one fails or a signal comes; `moved` gets them, the last one
    /// first.
    fn move_all(&self, order: &[Part], moved: &mut Vec<Part>) -> Result<(), String> {
        for part in order {
            self.say(part, "is updated");
            let flowgraph = format!("parts/{}.yaml", part.file_name);
            let backup = self.old.path.join(before(part)).to_string_lossy().into_owned();
            let backup = ["--backup".to_owned(), backup];
            let is_interrupted = || self.signals.look() > 0;
            self.take_over(part, self.old, self.directory(), &flowgraph, &backup, is_interrupted)
                .inspect_err(|why| self.say(part, why))
                .map_err(|why| format!("{}: {why}", part.name))?;
            moved.insert(0, part.clone());
            if is_interrupted() {
                return Err(format!("{}: the update was interrupted", part.name));
            }
        }
        Ok(())
    }

    fn directory(&self) -> &Directory {
        &self.new.directory
    }

    fn say(&self, part: &Part, text: &str) {
        self.new.terminal.note(&format!("{}: {text}", part.name));
    }

    /// Gives `part` back to the old directory. With `--new-values` the old version gets the values of its backup, and
    /// otherwise keeps those that the new version has now.
    fn take_back(&self, part: &Part) {
        self.say(part, "is taken back");
        let taken_back =
            self.take_over(part, self.directory(), self.old, &before(part), &[], || {
                self.signals.look();
                false
            });
        let Err(why) = taken_back else { return };
        self.say(
            part,
            &format!(
                "{why}; the old version is started again, and the time that this takes is missing"
            ),
        );
        let given = self.directory().put(&of(part, "away"), &self.old.path.to_string_lossy());
        self.end_step(part, self.directory(), Duration::ZERO);
        if let Err(failure) = given.and_then(|()| self.old.remove(&of(part, "away"))) {
            self.say(part, &failure.first_line());
        }
    }

    /// Lets the version of `part` with `flowgraph` in the directory `to` take over from the one in the directory `from`. The
    /// error says why it did not.
    fn take_over(
        &self,
        part: &Part,
        from: &Directory,
        to: &Directory,
        flowgraph: &str,
        options: &[String],
        is_interrupted: impl Fn() -> bool,
    ) -> Result<(), String> {
        let [host, address] = ["host", "address"].map(|key| from.get(&of(part, key)));
        let (Some(host), Some(address)) = (host, address) else {
            return Err("it does not run".to_owned());
        };
        let port = port_beside(&address, part.port, from.parts().len());
        let beside = format!("{}:{port}", address.rsplit_once(':').map_or(&*address, |(at, _)| at));
        let path = |directory: &Directory| directory.path.to_string_lossy().into_owned();
        let line = |failure: Failure| failure.first_line();
        to.put(&of(part, "away"), &path(from)).map_err(line)?;
        to.put(&of(part, "beside"), &format!("{host} {port} {flowgraph}")).map_err(line)?;
        let taken_over =
            self.wait_prepared(part, from, to, &beside, is_interrupted).and_then(|()| {
                // The old supervisor must not start a process that ends because its streams were taken over.
                from.put(&of(part, "away"), &path(to)).map_err(line)?;
                self.run_takeover(&address, &beside, options).map_err(line)
            });
        if taken_over.is_err() {
            self.withdraw(part, to);
            from.remove(&of(part, "away")).map_err(line)?;
            return taken_over;
        }
        to.remove(&of(part, "away")).map_err(line)?;
        self.end_step(part, from, DRAIN);
        // For a process of an earlier supervisor.
        from.forget_values(part).map_err(line)
    }

    /// Waits until the version at the address `beside` is prepared.
    fn wait_prepared(
        &self,
        part: &Part,
        from: &Directory,
        to: &Directory,
        beside: &str,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<(), String> {
        let began = Instant::now();
        let see = format!("see {}/log/{}.log", to.path.display(), part.file_name);
        while to.state_at(beside).as_deref() != Some("prepared") {
            // `ended` is that of an earlier process as long as the order exists.
            let code = to.get(&of(part, "ended")).filter(|_| !to.has(&of(part, "beside")));
            if let Some(code) = code {
                return Err(format!("its process has ended (exit {code}), {see}"));
            }
            if from.has("stop") || to.has("stop") {
                return Err("the array was stopped".to_owned());
            }
            if is_interrupted() {
                return Err("the update was interrupted".to_owned());
            }
            if began.elapsed() > PREPARED {
                return Err(format!("it must be prepared within 2 minutes, {see}"));
            }
            sleep(TICK);
        }
        Ok(())
    }

    /// Runs `fxgraph takeover`. It is not interrupted: in its middle both processes are needed.
    fn run_takeover(&self, from: &str, to: &str, options: &[String]) -> Result<(), Failure> {
        let mut command = Command::new("timeout");
        command.args(["-k", "10", TAKEOVER, &self.directory().array.program, "takeover"]);
        command.args(["--connect", &format!("http://{from}"), "--to", &format!("http://{to}")]);
        command.args(["--token-file", "token"]).args(self.options.of_takeover()).args(options);
        command.current_dir(&self.directory().path).process_group(0);
        command.stdin(Stdio::null()).stdout(std::io::stderr());
        let cannot = |error| Failure::because("cannot run `fxgraph takeover`", &error);
        let mut process = command.spawn().map_err(cannot)?;
        loop {
            match process.try_wait().map_err(cannot)? {
                Some(status) if status.success() => return Ok(()),
                Some(_) => return Err(Failure::failed("the takeover has failed")),
                None => {
                    self.signals.look();
                    sleep(TICK);
                }
            }
        }
    }

    /// Ends the version of `part` in the directory `to` that has not taken over.
    fn withdraw(&self, part: &Part, to: &Directory) {
        if to.claim(&of(part, "beside"), &of(part, "begun")) {
            return;
        }
        let began = Instant::now();
        while !to.has(&of(part, "ended")) {
            if began.elapsed() > WITHDRAWN {
                let to = to.path.display();
                self.say(
                    part,
                    &format!("the version in {to} must end within 90 s; end it with scancel"),
                );
                return;
            }
            self.end_step(part, to, Duration::ZERO);
            sleep(TICK);
        }
    }

    /// Waits until the process of `part` in `directory` has ended; interrupts it after `grace`, and kills it later.
    fn end_step(&self, part: &Part, directory: &Directory, grace: Duration) {
        let began = Instant::now();
        let mut is_interrupted = false;
        while self.new.queue.runs(directory, part) {
            if let Some(signal) = signal_after(began.elapsed(), grace, is_interrupted) {
                self.new.queue.signal(signal, directory, part);
                if signal == "KILL" {
                    return;
                }
                is_interrupted = true;
            }
            self.signals.look();
            sleep(TICK);
        }
    }

    /// Ends the supervisors of an update that has failed.
    fn clean_up(&self, threads: &[JoinHandle<()>]) -> Result<(), Failure> {
        let new = self.directory();
        new.put("stop", "")?;
        let began = Instant::now();
        while !threads.iter().all(JoinHandle::is_finished) && began.elapsed() < SUPERVISORS {
            sleep(TICK);
        }
        new.remove_all(&PLACE)?;
        new.remove_all(&["away", "state_from"])?;
        new.remove("jobs")?;
        new.remove("peer")?;
        self.old.remove("peer")?;
        self.remove_backups()
    }

    /// Gives the parts that go on as they are to the new directory. The supervisors in the old one end with their processes.
    fn hand_on(&self) -> Result<(), Failure> {
        let (old, new) = (self.old, self.directory());
        old.remove("lock")?;
        old.remove("peer")?;
        new.remove("peer")?;
        for part in new.parts().iter().filter(|part| new.has(&of(part, "away"))) {
            new.adopt(part, old)?;
            let from = of(part, "state_from");
            if !new.has(&from) {
                new.put(&from, &old.values(part).to_string_lossy())?;
            }
            if old.has(&of(part, "over")) {
                new.put(&of(part, "over"), "")?;
            }
            old.put(&of(part, "away"), &new.path.to_string_lossy())?;
            new.remove(&of(part, "away"))?;
        }
        old.remove_all(&PLACE)?;
        old.remove_all(&["state_from"])?;
        self.remove_backups()
    }

    fn remove_backups(&self) -> Result<(), Failure> {
        self.old.parts().iter().try_for_each(|part| remove(&self.old.path.join(before(part))))
    }
}

/// Backup of a part: its flowgraph before the update, live values included.
fn before(part: &Part) -> String {
    format!("parts/{}.before.yaml", part.file_name)
}

#[cfg(test)]
mod tests {
    use super::super::array::tests::part;
    use super::*;

    #[test]
    fn update_has_changed_or_named_parts_and_takes_up_one_that_was_killed() {
        let parts = [part("d", 2), part("f0", 1), part("f1", 1), part("x", 0)];
        let planned = |only: &[&str], moved: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            let is_moved = |part: &Part| moved.contains(&&*part.name);
            let steps = steps(&parts, &only, is_moved, |part| part.name == "d");
            [steps.order, steps.moved].map(|parts| {
                let names: Vec<&str> = parts.iter().map(|part| &*part.name).collect();
                names.join(" ")
            })
        };
        assert_eq!(planned(&[], &[]), ["x f0 f1", ""], "receivers first, without the same ones");
        assert_eq!(planned(&["d", "x"], &[]), ["x d", ""], "also those that are the same");
        assert_eq!(planned(&[], &["f0", "x"]), ["f1", "f0 x"], "taken back in reverse order");
    }

    #[test]
    fn part_is_updated_only_if_a_second_process_can_send_the_same_streams() {
        let streams = |obstacle: Option<&str>, sent: &str| Streams {
            sent: vec![sent.to_owned()],
            obstacle: obstacle.map(str::to_owned),
        };
        let (file, plain, other) =
            (streams(Some("file"), "a"), streams(None, "a"), streams(None, "b"));
        let said = |old, new, state| problem(old, new, state).unwrap_or_default();
        assert_eq!(said(&plain, &plain, Some("running")), "");
        assert_eq!(said(&plain, &file, Some("running")), "cannot be taken over: file");
        assert_eq!(said(&file, &plain, None), "cannot be taken over: file");
        assert!(said(&plain, &other, Some("running")).contains("other groups or types"));
        for state in [None, Some("prepared"), Some("draining")] {
            assert_eq!(said(&plain, &plain, state), "must run");
        }
    }

    #[test]
    fn second_server_of_a_part_has_a_port_that_no_part_has() {
        assert_eq!(port_beside("10.0.0.1:8080", 8080, 5), 8085);
        assert_eq!(port_beside("10.0.0.1:8085", 8080, 5), 8080, "the next update goes back");
        assert_eq!(port_beside("10.0.0.1:65533", 65533, 5), 65528);
    }

    #[test]
    fn process_is_interrupted_once_and_then_killed() {
        let signals = [0, 19, 20, 39, 40].map(|seconds| {
            let after = |is_interrupted| {
                signal_after(Duration::from_secs(seconds), DRAIN, is_interrupted).unwrap_or("-")
            };
            (after(false), after(true))
        });
        let expected = [("-", "-"), ("-", "-"), ("INT", "-"), ("INT", "-"), ("KILL", "KILL")];
        assert_eq!(signals, expected);
        assert_eq!(signal_after(Duration::ZERO, Duration::ZERO, false), Some("INT"));
    }

    #[test]
    fn blocks_of_a_flowgraph_begin_after_its_head() {
        let [a, b] =
            ["gain: 1", "gain: 2"].map(|head| format!("parameters:\n  {head}\nblocks:\n  x: 1\n"));
        assert_eq!(blocks(&a), blocks(&b));
        assert_ne!(blocks(&a), blocks(&a.replace("x: 1", "x: 2")));
    }
}
