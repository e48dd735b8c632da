//! The flowgraph file of a run, read again and applied while the flowgraph runs.

use crate::client::with_help;
use crate::commands::apply::summary;
use crate::examples;
use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::signals::Signals;
use crate::terminal::Terminal;
use fxgraph::Control;
use fxgraph::control::{Applied, UpdateError, Updated};
use fxgraph::diagnostic::{Severity, Sources, render_all};
use fxgraph::runtime::{EventKind, with_causes};
use fxgraph_api::changes::UpdateInfo;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two checks for a request.
const TICK: Duration = Duration::from_millis(100);
/// Number of ticks between two looks at the files: an editor writes within one interval.
const LOOK: u32 = 5;
/// Number of looks after which a file that is not there counts as removed.
const MISSING: u32 = 6;
/// Help for an update that is not possible while frames flow.
const RESTART: &str =
    "start the program again, or use `fxgraph apply FILE --restart` (with `run --listen`)";
/// Time limit for an update.
const APPLY: Duration = Duration::from_secs(20);

/// Thread that applies the flowgraph file at SIGHUP, and when the file changes if it is watched. Ends when this is
/// dropped.
pub struct Reload {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Reload {
    /// Starts the thread. With `watches` it looks for changes of the files in `sources`.
    pub fn start(
        target: &Target,
        sources: &Sources,
        watches: bool,
        (control, signals): (&Control, &Signals),
        terminal: &Terminal,
    ) -> Self {
        let mut files = Files::new(target, sources);
        let (stop, stopped) = mpsc::channel();
        let source =
            Source { target: target.clone(), control: control.clone(), terminal: terminal.clone() };
        let signals = signals.clone();
        let thread = thread::spawn(move || {
            let mut ticks = 0;
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                ticks += 1;
                let is_changed = watches && ticks % LOOK == 0 && files.have_changed();
                if signals.take_reload() || is_changed {
                    source.apply(&mut files);
                }
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Reload {
    fn drop(&mut self) {
        self.stop.take();
        // A thread in the middle of an update ends with the program.
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }
}

/// Returns an error if the file of `target` cannot be read again.
pub fn check_file(target: &Target) -> Result<(), Failure> {
    let why = if target.file == Path::new("-") {
        "standard input"
    } else if examples::name_in(&target.file).is_some() {
        "an example inside the program"
    } else {
        return Ok(());
    };
    Err(Failure::failed(format!("the flowgraph is {why}, which cannot be read again")))
}

/// Time of the last change, number and length of a file.
type Stamp = (i64, i64, u64, u64);

/// Files of a flowgraph.
pub struct Files {
    paths: Vec<PathBuf>,
    /// Stamps of the files when they were read.
    applied: Vec<Option<Stamp>>,
    /// Stamps at the last look.
    seen: Vec<Option<Stamp>>,
    /// Number of looks since the last one with other stamps.
    alike: u32,
}

impl Files {
    /// The files in `sources`, as they are now.
    pub fn new(target: &Target, sources: &Sources) -> Self {
        let mut files = Self { paths: Vec::new(), applied: Vec::new(), seen: Vec::new(), alike: 0 };
        files.are_those_of(target, sources);
        files.note();
        files
    }

    /// Takes the files in `sources`, without a look at them.
    pub fn are_those_of(&mut self, target: &Target, sources: &Sources) {
        self.paths = sources.iter().map(|source| source.path.clone()).collect();
        // A file that cannot be read is no source.
        if self.paths.is_empty() {
            self.paths.push(target.file.clone());
        }
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let stamp = |path: &PathBuf| {
            let file = path.metadata().ok()?;
            Some((file.mtime(), file.mtime_nsec(), file.ino(), file.len()))
        };
        self.paths.iter().map(stamp).collect()
    }

    /// Notes the files as read.
    pub fn note(&mut self) {
        self.applied = self.stamps();
        self.seen.clone_from(&self.applied);
    }

    /// Whether the files differ from those that were read, and are as they were at the last look. An editor may remove a
    /// file before it writes the new one: a missing file counts after several looks.
    pub fn have_changed(&mut self) -> bool {
        let now = self.stamps();
        self.alike = if now == self.seen { self.alike + 1 } else { 0 };
        let looks = if now.iter().all(Option::is_some) { 1 } else { MISSING };
        let is_settled = self.alike >= looks;
        let is_changed = is_settled && now != self.applied;
        self.seen = now;
        is_changed
    }
}

/// The flowgraph file, and the run that it is applied to.
struct Source {
    target: Target,
    control: Control,
    terminal: Terminal,
}

impl Source {
    /// Applies the file and says what has become of that.
    fn apply(&self, files: &mut Files) {
        files.note();
        let name = self.target.file.display();
        match check_file(&self.target)
            .map_err(|failure| failure.first_line())
            .and_then(|()| self.made(files))
        {
            Ok(text) => self.terminal.note(&format!("applied `{name}`: {text}")),
            Err(text) => {
                let text = text.trim_end();
                self.terminal.warning(&format!(
                    "`{name}` was not applied: the flowgraph continues unchanged\n{text}"
                ));
            }
        }
    }

    fn made(&self, files: &mut Files) -> Result<String, String> {
        let loaded = flowgraph::load_here(&self.target.file, &self.target.set, Severity::Error);
        files.are_those_of(&self.target, &loaded.sources);
        // A change since the files were read is applied next.
        let read = std::mem::take(&mut files.applied);
        files.note();
        if read.len() == files.applied.len() {
            files.applied = read;
        }
        let style = flowgraph::style(&self.terminal);
        let plan = loaded.result.map_err(|problems| {
            let first = problems.first().map_or("", |problem| &problem.message);
            let text = format!("`{}`: {first}", self.target.file.display());
            self.control.tell(EventKind::Rejected, None, &text);
            render_all(&problems, &loaded.sources, style)
        })?;
        if !plan.warnings.is_empty() {
            self.terminal.note(render_all(&plan.warnings, &loaded.sources, style).trim_end());
        }
        let authored = plan.clone();
        let update =
            self.control.owners_update(plan, APPLY).map_err(|error| with_causes(&error))?;
        let made = self.control.apply_or_restart(&update, false, APPLY, false);
        let mut info = fxgraph_web::update_info(&update);
        let rejected = |error: UpdateError| match error {
            UpdateError::Restart(_) => with_help(&error.to_string(), [RESTART]),
            error => with_causes(&error),
        };
        let made = made.map_err(rejected)?;
        self.control.note_authored(authored);
        match made {
            Applied::Restarting => info.is_restarting = true,
            Applied::Updated(Updated { effective_timestamp }) => {
                info = UpdateInfo { is_made: true, effective_timestamp, ..info };
            }
        }
        let changed = info.blocks.iter().filter(|block| block.way != "nothing").count();
        Ok(summary(&info, changed, false))
    }
}
