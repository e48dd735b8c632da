//! `fxgraph run`

mod as_parts;
mod child;
mod reload_parts;
mod results;

use crate::chosen;
use crate::ending::{Ending, within};
use crate::failure::{Failure, judge};
use crate::flowgraph::{self, Target};
use crate::kernel_directory;
use crate::reload::{Reload, check_file};
use crate::runs::{Hold, Runs};
use crate::serve::Serve;
use crate::shadows;
use crate::signals::Signals;
use crate::state::Kept;
use crate::terminal::{ProgressLine, Terminal};
use crate::tuning;
use crate::units;
use as_parts::AsParts;
use fxgraph::Control;
use fxgraph::control::ShadowReport;
use fxgraph::diagnostic::Severity;
use fxgraph::flowgraph::{Plan, PlannedBlock};
use fxgraph::runtime::{BlockStats, EventKind, Handle, Report};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a flowgraph until its sources end, `--duration` expires, or it receives SIGINT or SIGTERM
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The first SIGINT or SIGTERM drains the flowgraph: sources stop and queued frames are processed. If no \
                  frame passes for 10 s and the time of two frames, or after `--drain-limit`, the flowgraph is aborted; a \
                  block that does not end within 10 s after that is named, and the program ends without it, with exit \
                  status 1. A second signal, or one before the flowgraph has started, stops at once with exit status \
                  130.\n\n\
                  SIGHUP applies the edited flowgraph file, like `PUT /api/v1/flowgraph`: all of it at one timestamp, or \
                  nothing if it has errors or needs a restart; with `--as-parts` at all parts, or at none. If the terminal of the program has gone, SIGHUP drains \
                  the flowgraph like SIGTERM; under `nohup` it has no effect.\n\n\
                  If a block writes samples to stdout, the results go to stderr."
)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Run {
    #[command(flatten)]
    target: Target,

    /// Time after which to stop, like 10s, 5m or 200ms
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    duration: Option<Duration>,

    /// Longest time in which the flowgraph drains, like 20s: then it is aborted. By default it drains as long as
    /// frames pass
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration)]
    drain_limit: Option<Duration>,

    /// Directory with edited GPU kernels, which replace the built-in ones of the same file name; a file
    /// changed during the run replaces its kernels if it compiles
    #[arg(long, value_name = "DIR", value_parser = kernel_directory::parse)]
    kernels: Option<PathBuf>,

    /// Tuning file written by `fxgraph tune`
    #[arg(long, value_name = "FILE")]
    tuning: Option<PathBuf>,

    /// File in which live values survive the process: those that clients set are written to it, and the next run with
    /// the same flowgraph begins with them. With `--as-parts` each part has a file of its own, `FILE.PART`
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Runs the part of each host as a process of its own on this machine, with the loopback interface as network.
    /// `--listen` serves all parts as one flowgraph
    #[arg(long)]
    as_parts: bool,

    /// Directory for the flowgraphs of the parts; by default a temporary one
    #[arg(long, short, value_name = "DIR", requires = "as_parts")]
    output: Option<PathBuf>,

    /// Process that has started this one as a part, and with whose end it ends
    #[arg(long, value_name = "PID", hide = true)]
    part_of: Option<i32>,

    /// Applies the flowgraph file, and the files that it includes, whenever they change, and swaps blocks of the kinds
    /// `kernel` and `python` whenever their files change
    #[arg(long, conflicts_with = "as_parts")]
    watch: bool,

    /// Shows the results of every replica. By default more than 8 blocks are folded: `f[0..63].pfb` has the minimum and
    /// the maximum of its replicas, and the worst one below it
    #[arg(long)]
    all: bool,

    /// Writes the results as JSON
    #[arg(long)]
    json: bool,

    /// Shows neither progress nor results
    #[arg(long, short)]
    quiet: bool,

    // Last, since its heading applies to all following options.
    #[command(flatten)]
    serve: Serve,
}

/// Time for recorders to write their files after the end of a run.
const RECORDINGS: Duration = Duration::from_mins(10);
/// Time between two updates of progress and checks for signals.
const TICK: Duration = Duration::from_millis(100);

impl Run {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        if let Some(parent) = self.part_of {
            end_with(parent)?;
        }
        if self.watch {
            check_file(&self.target)?;
        }
        // Before the check, which may take long.
        let signals = Signals::count_with_reloads()?;
        let check = || flowgraph::plan_and_sources(&self.target, Severity::Error, terminal);
        let (mut plan, sources) = signals.starting(|| false, check)??;
        self.offer_stdout(&plan, terminal)?;
        if self.as_parts {
            let target = self.target.clone();
            return self.parts().run(&plan, &target, signals, terminal);
        }
        plan.kernel_directory.clone_from(&self.kernels);
        plan.tuning = match &self.tuning {
            Some(path) => tuning::read(path)?,
            None => tuning::usual(terminal),
        };
        let state = self.state.as_deref().map(|file| Kept::restore(file, &mut plan, terminal));
        let state = state.transpose()?;
        let server = self.serve.bind(terminal)?;
        if !self.quiet {
            chosen::lines(&plan).for_each(|line| terminal.note(&line));
        }
        let progress = if self.quiet { None } else { terminal.progress() };
        if let Some(line) = &progress {
            line.follow(building(&plan));
        }
        let mut runs = Runs::new(plan, self.hold(), &signals)?;
        let control = runs.control().clone();
        let _watched = self.kernels.map(|directory| kernel_directory::watch(directory, &control));
        self.serve.allow_recordings(&control)?;
        let _keeper = state.map(|kept| kept.keep((&self.target, &sources), &control, terminal));
        let _reload =
            Reload::start(&self.target, &sources, self.watch, (&control, &signals), terminal);
        let _serving = match server {
            None => None,
            Some(server) => {
                let url = server.url();
                let serving = server
                    .serve(control.clone())
                    .map_err(|error| Failure::because("nothing was started", &error))?;
                terminal.note(&format!("serving {url}"));
                Some(serving)
            }
        };
        // The terminal has said what was restored.
        let mut told = control.events_since(0).last().map_or(0, |event| event.sequence);
        let mut last = None;
        while let Some(running) = runs.next(progress.as_ref(), terminal)? {
            shadows::start(&control, terminal);
            let watched = Watched {
                control: &control,
                run: running.handle(),
                duration: self.duration,
                drain_limit: self.drain_limit,
                signals: &signals,
                progress: progress.as_ref(),
            };
            watch(&watched, &mut told, terminal);
            let report = running.wait();
            let recorded = control.clone();
            within(RECORDINGS, "the files of recorders", terminal, move || {
                recorded.finish_recordings();
            });
            last = Some(Ran {
                report,
                plan: control.plan(),
                starting: runs.starting(),
                shadows: control.shadows(),
            });
            runs.ended(terminal)?;
        }
        drop(progress);
        let Some(Ran { report, plan, starting, shadows: shadowed }) = last else {
            return Ok(());
        };

        let verdict = if !report.failures.is_empty() {
            Err(Failure::Failed(report.failures.iter().map(ToString::to_string).collect()))
        } else if report.is_aborted {
            Err(Failure::Interrupted)
        } else {
            Ok(())
        };
        let written = if self.json {
            terminal.json(&results::as_json(&plan, &report, &shadowed))
        } else if !self.quiet {
            let mut text = results::as_text(&plan, &report, starting, self.all, terminal);
            if !shadowed.is_empty() {
                let shadowed: Vec<_> =
                    shadowed.iter().cloned().map(fxgraph_web::shadow_info).collect();
                text += &format!("\n{}", shadows::as_text(&shadowed, terminal));
            }
            terminal.results(&text)
        } else {
            Ok(())
        };
        judge(verdict, written, terminal)
    }
}

impl Run {
    /// Leaves stdout to the block that writes to it.
    fn offer_stdout(&self, plan: &Plan, terminal: &mut Terminal) -> Result<(), Failure> {
        let writes_stdout = |block: &&PlannedBlock| {
            block.resources.writes.iter().any(|path| path == Path::new(fxgraph::stdout::PATH))
        };
        let Some(block) = plan.blocks.iter().find(writes_stdout) else {
            return Ok(());
        };
        if self.as_parts {
            return Err(Failure::failed(format!(
                "`{}` writes to stdout, which processes of parts do not have; write to a FIFO or a socket, or run the \
                 part alone",
                block.name
            )));
        }
        terminal.offer_stdout();
        Ok(())
    }

    fn hold(&self) -> Hold {
        if self.serve.hold {
            Hold::All
        } else if self.serve.hold_once || self.part_of.is_some() {
            // All parts are built before the first one starts.
            Hold::Once
        } else {
            Hold::None
        }
    }

    /// Options of a run as parts.
    fn parts(self) -> AsParts {
        let mut arguments: Vec<OsString> = Vec::new();
        for (option, path) in [("--kernels", self.kernels), ("--tuning", self.tuning)] {
            if let Some(path) = path {
                arguments.extend([option.into(), path.into()]);
            }
        }
        if let Some(limit) = self.drain_limit {
            arguments.extend(["--drain-limit".into(), format!("{}ms", limit.as_millis()).into()]);
        }
        let Self { output, duration, json, quiet, state, serve, .. } = self;
        AsParts { output, duration, state, json, quiet, serve, arguments }
    }
}

/// Ends this process with SIGTERM when the process `parent`, which has started it, ends.
#[cfg(target_os = "linux")]
fn end_with(parent: i32) -> Result<(), Failure> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Failure::because("cannot follow the process of `--part-of`", &error))?;
    // It may have ended before.
    match getppid() {
        Some(found) if found.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(Failure::failed(format!("the process {parent} of `--part-of` has ended"))),
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with(_: i32) -> Result<(), Failure> {
    Ok(())
}

/// Text that names the block of `plan` that is being built: it may compile kernels or simulate samples.
fn building(plan: &Plan) -> impl Fn() -> String + Clone + use<> {
    let names: Arc<[String]> =
        plan.blocks.iter().map(|block| format!("`{}` ({})", block.name, block.kind)).collect();
    let progress = Arc::clone(&plan.build_progress);
    move || {
        let (index, count) = (progress.current(), names.len());
        let name = names.get(index).map_or("", String::as_str);
        format!("starting: building {name}, block {} of {count}", index + 1)
    }
}

/// A run that has ended.
struct Ran {
    report: Report,
    /// Plan at the end of the run.
    plan: Arc<Plan>,
    starting: Duration,
    shadows: Vec<ShadowReport>,
}

/// A run with its limits.
struct Watched<'a> {
    control: &'a Control,
    run: Handle,
    duration: Option<Duration>,
    drain_limit: Option<Duration>,
    signals: &'a Signals,
    progress: Option<&'a ProgressLine>,
}

/// Reports events after number `told`, until the run has ended.
fn watch(watched: &Watched<'_>, told: &mut u64, terminal: &Terminal) {
    let &Watched { control, ref run, duration, drain_limit, signals, progress } = watched;
    let mut ending = Ending::new(&control.plan(), drain_limit);
    let start = Instant::now();
    let mut last = (start, totals(&control.stats()));
    let (mut stopped, mut limit) = (0, duration);
    let mut tell = || {
        for event in control.events_since(*told) {
            *told = event.sequence;
            // Fatal faults are reported with the results.
            match (event.kind, event.block) {
                (EventKind::Skipped | EventKind::Restarted, Some(block)) => {
                    terminal.note(&format!("`{block}` {}; {}", event.text, event.kind.name()));
                }
                (EventKind::Warning, Some(block)) => {
                    terminal.warning(&format!("`{block}`: {}", event.text));
                }
                (
                    EventKind::Resynchronised | EventKind::TimeJumped | EventKind::SenderStopped,
                    Some(block),
                ) => terminal.note(&format!("`{block}`: {}", event.text)),
                (EventKind::Restored, _) => terminal.note(&format!("restored: {}", event.text)),
                (EventKind::NotSaved, _) => terminal.warning(&event.text),
                _ => {}
            }
        }
    };
    while !control.wait_timeout(TICK) {
        tell();
        let signals = signals.look();
        if signals > stopped {
            stopped = signals;
            if signals == 1 {
                terminal.note("stopping (press Ctrl-C again to abort)");
                control.request_stop();
            } else {
                ending.abort(run);
            }
        }
        ending.look(run, terminal);
        if stopped == 0
            && let Some(limit) = limit.take_if(|limit| start.elapsed() >= *limit)
        {
            let time = units::elapsed(limit);
            terminal
                .note(&format!("stopped by `--duration` after {time}, before the sources ended"));
            control.request_stop();
        }
        if let Some(line) = progress {
            let now = totals(&control.stats());
            line.show(progress_text(start.elapsed(), duration, last, now));
            // Rates over a second: shorter ones flicker.
            if last.0.elapsed() >= Duration::from_secs(1) {
                last = (Instant::now(), now);
            }
        }
    }
    // Events since the last check.
    tell();
}

/// Frames and bytes consumed by blocks, and drops.
type Totals = (u64, u64, u64);

fn totals(stats: &[BlockStats]) -> Totals {
    stats.iter().fold((0, 0, 0), |(frames, bytes, lost), block| {
        (frames + block.frames_in, bytes + block.bytes_in, lost + block.losses())
    })
}

fn progress_text(
    elapsed: Duration,
    duration: Option<Duration>,
    (since, before): (Instant, Totals),
    now: Totals,
) -> String {
    let seconds = since.elapsed().as_secs_f64().max(1e-3);
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let of = duration.map(|duration| format!(" of {}", units::elapsed(duration)));
    format!(
        "{}{}  {} frames/s  {}/s  {} drops",
        units::elapsed(elapsed),
        of.unwrap_or_default(),
        units::count(rate(now.0, before.0)),
        units::bytes(rate(now.1, before.1)),
        now.2
    )
}
