//! The flowgraph file of a run, read again and applied while the flowgraph runs, and the files that its blocks run.

use crate::client::with_help;
use crate::commands::apply::summary;
use crate::edits::{self, Files};
use crate::examples;
use crate::failure::Failure;
use crate::flowgraph::{self, Target};
use crate::signals::Signals;
use crate::terminal::Terminal;
use fxgraph::Control;
use fxgraph::control::{Applied, Step, Update, UpdateError, Updated};
use fxgraph::diagnostic::{Severity, Sources, render_all};
use fxgraph::files::read_regular;
use fxgraph::flowgraph::Plan;
use fxgraph::runtime::{EventKind, with_causes};
use fxgraph_api::changes::UpdateInfo;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two checks for a request.
const TICK: Duration = Duration::from_millis(100);
/// Number of ticks between two looks at the files: an editor writes within one interval.
const LOOK: u32 = 5;
/// Number of times that edited code is read, if clients change the flowgraph meanwhile.
const READS: usize = 5;
/// Largest flowgraph file that is compared with what was loaded.
const MOST_BYTES: u64 = 64 << 20;
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
    /// Starts the thread. With `watches` it looks for changes of the files in `sources`, and of those that blocks run.
    pub fn start(
        target: &Target,
        sources: &Sources,
        watches: bool,
        (control, signals): (&Control, &Signals),
        terminal: &Terminal,
    ) -> Self {
        let mut files = Files::new(paths(target, sources), edits::stamp);
        // An edit since the start is applied at the first look.
        let mut is_old = watches && !are_current(sources);
        let mut code = watches.then(|| Code::of(control));
        let (stop, stopped) = mpsc::channel();
        let source =
            Source { target: target.clone(), control: control.clone(), terminal: terminal.clone() };
        let signals = signals.clone();
        let thread = thread::spawn(move || {
            let mut ticks = 0;
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                ticks += 1;
                let looks = watches && ticks % LOOK == 0;
                let is_changed = looks && (files.are_edited() || std::mem::take(&mut is_old));
                if signals.take_reload() || is_changed {
                    source.apply(&mut files);
                }
                if let Some(code) = code.as_mut().filter(|_| looks) {
                    source.swap_edited(code);
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

/// Paths of the flowgraph file of `target` and of the files that it includes.
pub fn paths(target: &Target, sources: &Sources) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = sources.iter().map(|source| source.path.clone()).collect();
    // A file that cannot be read is no source.
    if paths.is_empty() { vec![target.file.clone()] } else { paths }
}

/// Whether the files have the texts that were loaded.
fn are_current(sources: &Sources) -> bool {
    let is_same = |path: &Path, text: &str| {
        let now = read_regular(path, MOST_BYTES).ok();
        // A file that is being replaced is seen by its stamp.
        now.is_none_or(|now| String::from_utf8_lossy(&now).trim_start_matches('\u{feff}') == text)
    };
    sources.iter().all(|source| is_same(&source.path, &source.text))
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
        files.take();
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
        // A change since the files were taken is applied next.
        files.follow(paths(&self.target, &loaded.sources));
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
        let text = self.make(&update)?;
        self.control.note_authored(authored);
        Ok(text)
    }

    /// Makes an update, and returns a line on it.
    fn make(&self, update: &Update) -> Result<String, String> {
        let made = self.control.apply_or_restart(update, false, APPLY, false);
        let mut info = fxgraph_web::update_info(update);
        let rejected = |error: UpdateError| match error {
            UpdateError::Restart(_) => with_help(&error.to_string(), [RESTART]),
            error => with_causes(&error),
        };
        match made.map_err(rejected)? {
            Applied::Restarting => info.is_restarting = true,
            Applied::Updated(Updated { effective_timestamp }) => {
                info = UpdateInfo { is_made: true, effective_timestamp, ..info };
            }
        }
        let changed = info.blocks.iter().filter(|block| block.way != "nothing").count();
        Ok(summary(&info, changed, false))
    }

    /// Swaps the blocks whose files were edited, all at one timestamp, and says what has become of that.
    fn swap_edited(&self, code: &mut Code) {
        code.follow(&self.control);
        let is_first = std::mem::take(&mut code.is_first) && !code.files.paths().is_empty();
        if !code.files.are_edited() && !is_first {
            return;
        }
        let edited: Vec<String> =
            code.files.edited().map(|path| format!("`{}`", path.display())).collect();
        // Otherwise the same content was saved again, or a file that a rejected version names.
        let edited =
            if edited.is_empty() { "the saved code".to_owned() } else { edited.join(", ") };
        code.files.take();
        match self.swapped() {
            Ok(Some(text)) => self.terminal.note(&format!("{edited}: {text}")),
            Ok(None) => {}
            Err(text) => {
                code.files.reject();
                self.terminal.warning(&format!(
                    "{edited}: the edit was not taken over, and the version before runs on\n{text}"
                ));
            }
        }
    }

    /// Updates the flowgraph to what it is with the files as they are now; `None` if no block differs.
    fn swapped(&self) -> Result<Option<String>, String> {
        // Not the flowgraph file, whose values would replace those of live updates. Values that clients set while the code
        // is read would be taken back, too.
        for _ in 0..READS {
            let running = self.control.plan_in_force();
            let update = self.read(running.resolved_yaml())?;
            if self.control.plan_in_force().resolved_yaml() != running.resolved_yaml() {
                continue;
            }
            if update.blocks.iter().all(|block| block.step == Step::Same) {
                return Ok(None);
            }
            return self.make(&update).map(Some);
        }
        Err("values of the flowgraph change all the time; save the file again".to_owned())
    }

    /// Reads a flowgraph, and returns the update to it.
    fn read(&self, flowgraph: &str) -> Result<Update, String> {
        self.control.update(flowgraph, &[]).map_err(|rejected| {
            let first = rejected.problems.first().map_or("", |problem| &problem.message);
            self.control.tell(EventKind::Rejected, None, first);
            let texts = rejected.problems.iter().map(|problem| {
                let text = format!("{} ({})", problem.message, problem.code);
                with_help(&text, problem.help.iter().map(String::as_str))
            });
            texts.collect::<Vec<_>>().join("\n")
        })
    }
}

/// Files that the blocks of a flowgraph run.
struct Code {
    plan: Arc<Plan>,
    files: Files,
    /// Whether nobody has looked yet. The files may have been edited since the flowgraph was loaded, so that the first look
    /// reads them, and compares them with what was loaded.
    is_first: bool,
}

impl Code {
    fn of(control: &Control) -> Self {
        let plan = control.plan();
        let files = Files::new(content_files(&plan), edits::content);
        Self { plan, files, is_first: true }
    }

    /// Looks at the files of the flowgraph as it is now: clients may have swapped blocks.
    fn follow(&mut self, control: &Control) {
        let plan = control.plan();
        if !Arc::ptr_eq(&plan, &self.plan) {
            self.files.follow(content_files(&plan));
            self.plan = plan;
        }
    }
}

/// Paths of the files that the blocks of `plan` run, each once.
fn content_files(plan: &Plan) -> Vec<PathBuf> {
    let files = plan.blocks.iter().flat_map(|block| block.configured.content_files());
    files.collect::<BTreeSet<_>>().into_iter().collect()
}
