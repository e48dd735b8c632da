//! `run --state FILE`: live values that survive the process.
//!
//! A thread writes the file whenever live values change, so that neither clients nor blocks wait for the disk. The file
//! is replaced as a whole: it has the values before a change or those after it.
//!
//! Values belong to those of the flowgraph file that they replaced. Once the file was edited and the flowgraph has its
//! values, by SIGHUP, `fxgraph apply` or live updates, later values belong to those of the edited file.

use crate::client::with_help;
use crate::edits::{self, Files};
use crate::ending::within;
use crate::failure::Failure;
use crate::flowgraph::{Target, load_here};
use crate::reload::paths;
use crate::terminal::Terminal;
use fxgraph::Control;
use fxgraph::diagnostic::{Severity, Sources};
use fxgraph::files::read_regular;
use fxgraph::flowgraph::{MAX_STATE_BYTES, Plan, RestoredPlan, State};
use fxgraph::runtime::with_causes;
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Shortest time between two writes of the file, and its multiple of the time that a write takes.
const PAUSE: Duration = Duration::from_secs(1);
const WRITES_TO_PAUSE: u32 = 20;
/// Time after which the places of streams are written again.
const REFRESH: Duration = Duration::from_mins(10);
/// Time between two looks for the first data of streams that restored values wait for.
const LOOK: Duration = Duration::from_millis(20);
/// Time for the last write at the end of the program.
const LAST: Duration = Duration::from_secs(10);

/// The state file of a run, the flowgraph without its values, and what was restored.
pub struct Kept {
    file: StateFile,
    authored: Plan,
    restored: Option<(RestoredPlan, State)>,
}

impl Kept {
    /// Takes the state file at `path`, and gives `plan` its values.
    pub fn restore(path: &Path, plan: &mut Plan, terminal: &Terminal) -> Result<Self, Failure> {
        let file = StateFile::open(path)?;
        let authored = plan.clone();
        let restored = file.restore(plan)?;
        if let Some((restored, state)) = &restored {
            tell(restored, state, &file, terminal);
            *plan = restored.plan.clone();
        }
        Ok(Self { file, authored, restored })
    }

    /// Keeps the live values of `control`, whose flowgraph file is that of `target` with its `sources`, in the file until the
    /// result is dropped.
    pub fn keep(
        self,
        (target, sources): (&Target, &Sources),
        control: &Control,
        terminal: &Terminal,
    ) -> Keeper {
        let has_dropped = |(restored, _): &(RestoredPlan, State)| !restored.dropped.is_empty();
        let is_copied = self.restored.as_ref().is_some_and(has_dropped);
        control.keep_live_values(self.authored, self.restored);
        let edited = Edited {
            target: target.clone(),
            files: Files::new(paths(target, sources), edits::stamp),
            plan: None,
            looked: Instant::now(),
        };
        Keeper::start(self.file, is_copied, edited, control, terminal)
    }
}

/// File with live values, which no other process uses.
struct StateFile {
    path: PathBuf,
    /// Locked as long as the process uses the file. A file of its own, because the file with the values is replaced.
    _lock: File,
}

impl StateFile {
    /// Takes the file at `path`, which need not exist yet.
    fn open(path: &Path) -> Result<Self, Failure> {
        // A link stays.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let cannot = |error: &io::Error| {
            Failure::because(&format!("cannot use the state file `{}`", path.display()), error)
        };
        if path.is_dir() {
            return Err(cannot(&ErrorKind::IsADirectory.into()));
        }
        let lock = File::options().create(true).append(true).open(beside(&path, ".lock"));
        let lock = lock.map_err(|error| cannot(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let text = format!("another process uses the state file `{}`", path.display());
                Err(Failure::failed(with_help(&text, ["give each process a file of its own"])))
            }
            Err(TryLockError::Error(error)) => Err(cannot(&error)),
        }
    }

    /// Reads the file, and returns `plan` with its live values; `None` if there is no file.
    fn restore(&self, plan: &Plan) -> Result<Option<(RestoredPlan, State)>, Failure> {
        let file = self.path.display();
        let help = format!(
            "to start with the values of the flowgraph file, move it away: `mv {file} {file}.old`"
        );
        let unusable = |why: &str| {
            let text = format!("the state file `{file}` cannot be read: {why}");
            Failure::failed(with_help(&text, [&*help]))
        };
        let text = match read_regular(&self.path, MAX_STATE_BYTES as u64) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(&error.to_string())),
        };
        let text = String::from_utf8(text).map_err(|_| unusable("it is not UTF-8 text"))?;
        let state = State::read(&text, &plan.name).map_err(|error| unusable(&error.to_string()))?;
        Ok(Some((plan.with_state(&state, &crate::flowgraph::registry()), state)))
    }

    /// Copies the file to `FILE.old`, which is returned.
    fn copy(&self) -> Result<PathBuf, (PathBuf, io::Error)> {
        let old = beside(&self.path, ".old");
        match fs::copy(&self.path, &old) {
            Ok(_) => Ok(old),
            Err(error) => Err((old, error)),
        }
    }

    /// Replaces the content of the file.
    fn write(&self, text: &str) -> io::Result<()> {
        let directory = match self.path.parent() {
            Some(directory) if !directory.as_os_str().is_empty() => directory,
            _ => Path::new("."),
        };
        let mut written = tempfile::Builder::new().prefix(".state").tempfile_in(directory)?;
        written.write_all(text.as_bytes())?;
        written.as_file().sync_all()?;
        written.persist(&self.path).map_err(|error| error.error)?;
        // The name is on the disk, too.
        File::open(directory)?.sync_all()
    }
}

/// The path with `ending` after the name of the file.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Says on the terminal what was restored. If values were dropped, the file stays under another name.
fn tell(restored: &RestoredPlan, state: &State, file: &StateFile, terminal: &Terminal) {
    let blocks: BTreeSet<_> = restored.values.iter().map(|value| &value.block).collect();
    let (values, blocks) = (restored.values.len(), blocks.len());
    let (path, time) = (&file.path, &state.time);
    terminal.note(&format!(
        "live values restored: {values}, in blocks: {blocks}, from `{}` as of {time}",
        path.display()
    ));
    if !restored.waiting.is_empty() {
        let values = restored.waiting.len();
        terminal
            .note(&format!("live values that wait for the first data of their stream: {values}"));
    }
    for (value, why) in &restored.dropped {
        terminal.warning(&format!("the live value of `{}` was not restored: {why}", value.name()));
    }
    if !restored.dropped.is_empty() {
        match file.copy() {
            Ok(old) => terminal.note(&format!("`{}` still has them", old.display())),
            Err((old, error)) => {
                terminal.warning(&format!("cannot write `{}`: {error}", old.display()));
            }
        }
    }
}

/// Thread that keeps the file up to date. Dropping this writes the last values and ends it.
pub struct Keeper {
    is_over: Arc<AtomicBool>,
    control: Control,
    ended: Option<mpsc::Receiver<()>>,
    terminal: Terminal,
}

impl Keeper {
    fn start(
        file: StateFile,
        is_copied: bool,
        edited: Edited,
        control: &Control,
        terminal: &Terminal,
    ) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (end, ended) = mpsc::channel();
        let keeping = Keeping {
            file,
            control: control.clone(),
            is_over: Arc::clone(&is_over),
            written: None,
            is_copied,
            edited,
        };
        thread::spawn(move || {
            keeping.keep();
            let _ = end.send(());
        });
        let (control, terminal) = (control.clone(), terminal.clone());
        Self { is_over, control, ended: Some(ended), terminal }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.control.request_save();
        if let Some(ended) = self.ended.take() {
            within(LAST, "the state file", &self.terminal, move || ended.recv());
        }
    }
}

/// The flowgraph file, which somebody may edit.
struct Edited {
    target: Target,
    files: Files,
    /// The flowgraph of the edited file, until the values of the run are those of the file.
    plan: Option<Plan>,
    looked: Instant,
}

impl Edited {
    /// Reads the file if it was edited, and takes its values for those that live values replace once the flowgraph of
    /// `control` has them. At most once a second.
    fn look(&mut self, control: &Control) {
        if self.looked.elapsed() < PAUSE {
            return;
        }
        self.looked = Instant::now();
        if self.files.are_edited() {
            self.files.take();
            let loaded = load_here(&self.target.file, &self.target.set, Severity::Error);
            self.files.follow(paths(&self.target, &loaded.sources));
            self.plan = loaded.result.ok();
        }
        self.plan = self.plan.take().filter(|plan| !control.note_if_applied(plan));
    }
}

struct Keeping {
    file: StateFile,
    control: Control,
    is_over: Arc<AtomicBool>,
    /// Values and streams that the file has.
    written: Option<State>,
    /// Whether the file as it was at the start has another name, too.
    is_copied: bool,
    edited: Edited,
}

impl Keeping {
    fn keep(mut self) {
        let (mut seen, mut next, mut refresh) = (0, Instant::now(), Instant::now() + REFRESH);
        let mut is_behind = false;
        loop {
            let is_over = self.is_over.load(Ordering::Acquire);
            let now = Instant::now();
            let is_due = is_behind && (now >= next || is_over) || now >= refresh;
            if is_due {
                let saved = self.save();
                self.control.note_saved(seen, saved.as_ref().map(drop).map_err(|why| &**why));
                is_behind = saved.is_err();
                next = Instant::now() + PAUSE.max(now.elapsed() * WRITES_TO_PAUSE);
                refresh = next + REFRESH;
            }
            if is_over {
                return;
            }
            let awaits = self.control.has_waiting_values();
            if awaits {
                self.control.release_restored();
            }
            let until = if is_behind { next } else { refresh };
            let left = until.saturating_duration_since(Instant::now());
            let left = if awaits { left.min(LOOK) } else { left };
            // Taking effect is no change of the flowgraph.
            let has_scheduled = !is_behind && self.has_scheduled();
            self.edited.look(&self.control);
            let changes = self.control.wait_changed(seen, left.min(PAUSE));
            is_behind |= changes != seen || has_scheduled && !awaits && self.is_outdated();
            seen = changes;
        }
    }

    /// Whether the file has values that were not in force yet.
    fn has_scheduled(&self) -> bool {
        let written = self.written.as_ref();
        written.is_some_and(|written| written.values.iter().any(|value| value.at.is_some()))
    }

    /// Whether the file has other values than the flowgraph by now.
    fn is_outdated(&self) -> bool {
        let state = self.control.live_state();
        state
            .zip(self.written.as_ref())
            .is_some_and(|(state, written)| state.values != written.values)
    }

    /// Writes the values, unless the file has them.
    fn save(&mut self) -> Result<(), String> {
        let Some(state) = self.control.live_state() else { return Ok(()) };
        let is_same = |written: &State| {
            written.values == state.values && state.streams.is_empty() && written.streams.is_empty()
        };
        if self.written.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        if self.control.has_dropped_values() && !self.is_copied {
            self.file.copy().map_err(|(old, error)| {
                format!("`{}` was not written: {}", old.display(), with_causes(&error))
            })?;
            self.is_copied = true;
        }
        let text = state.text();
        let path = self.file.path.display();
        if text.len() > MAX_STATE_BYTES {
            let most = MAX_STATE_BYTES >> 20;
            return Err(format!("`{path}` was not written: it may have at most {most} MiB"));
        }
        self.file
            .write(&text)
            .map_err(|error| format!("`{path}` was not written: {}", with_causes(&error)))?;
        self.written = Some(state);
        Ok(())
    }
}
