//! `fxgraph watch`

mod answer;
mod report;
mod trial;

use super::{shadow, swap};
use crate::client::{Client, Connection, in_path, typed, with_help};
use crate::edits::{self, Files};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::Terminal;
use answer::{Answer, Answers};
use fxgraph_api::blocks::{BlockPage, BlockSummary};
use fxgraph_api::changes::ChangeInfo;
use fxgraph_api::events::{EventInfo, EventList};
use fxgraph_api::shadows::ShadowInfo;
use report::{Report, Step};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};
use trial::{Trial, Verdict};

/// Swaps a block of a running flowgraph whenever the file of its code is saved
///
/// Each saved version is checked, compared with the running one in a shadow, and swapped in. If it has an error, the
/// message names the line, and the running version runs on. Ends with Ctrl-C, and with the flowgraph.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples: fxgraph watch flag\n          \
                        fxgraph watch flag new_flagger.cu --ask\n          \
                        fxgraph watch flag --shadow 0 --json")]
pub struct Watch {
    /// Block of the kind `kernel` or `python`
    block: String,

    /// File with the code; by default that of the block. Another file is swapped in first, if the program allows it
    /// (`fxgraph run --code`)
    file: Option<PathBuf>,

    /// Number of frames that the shadow compares before the swap; 0 swaps without a shadow
    #[arg(long, value_name = "FRAMES", default_value_t = 8)]
    shadow: u64,

    /// When to try a version in a process of its own first, where a fault costs no flowgraph: `auto` means kernels on a GPU
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    trial: When,

    /// Swaps a version once you press Enter; any other word keeps the running version
    #[arg(long)]
    ask: bool,

    /// Lets the flowgraph wait for the new block (for files, not for live data)
    #[arg(long)]
    allow_stall: bool,

    /// Writes one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connection: Connection,
}

/// When a version is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum When {
    Auto,
    Always,
    Never,
}

/// Time between two looks at the files.
const LOOK: Duration = Duration::from_millis(75);
/// Time between two checks whether a trial has ended, and number of checks between two looks at the files.
const CHECK: Duration = Duration::from_millis(10);
const CHECKS: u32 = 7;
/// Number of looks between two requests for events.
const EVENTS: u32 = 5;
/// Time after which a swap that waits for its first frames is left to itself.
const SWAP: Duration = Duration::from_mins(1);
/// Time without a compared frame after which a shadow ends.
const SILENCE: Duration = Duration::from_secs(10);
/// Events of a block that report what became of its code.
const TOLD: [&str; 6] =
    ["fault", "skipped", "restarted", "rolled_back", "not_swapped", swap::SWAPPED];

impl Watch {
    pub fn execute(self, terminal: &mut Terminal) -> Result<(), Failure> {
        let client = self.connection.client()?;
        let signals = Signals::count()?;
        let page: BlockPage = client.get(&block_path(&self.block))?;
        let (entry, files) = self.subject(&client, &page)?;
        let since = last_event(&client)?;
        let report = Report::new(self.json, terminal);
        let answers = self.ask.then(Answers::start);
        let mut session =
            Session { options: &self, client, signals, entry, files, since, answers, report };
        session.report.begins(&self.block, session.files.paths())?;
        match session.follow() {
            Err(Left::Interrupted) => Ok(()),
            // A program that ends takes its server along.
            Err(_) if session.has_ended() => {
                terminal.note(&format!("the program at {} has ended", session.client.url()));
                Ok(())
            }
            Err(Left::Failed(failure)) => Err(failure),
            _ => Ok(()),
        }
    }

    /// Returns the changed keys of a swap, and the files to look at.
    fn subject(&self, client: &Client, page: &BlockPage) -> Result<(Value, Files), Failure> {
        let block = &self.block;
        let running: Vec<PathBuf> = page.content_files.iter().map(PathBuf::from).collect();
        let Some(own) = running.first() else {
            let what = format!("`{block}` ({}) runs no file", page.summary.kind);
            let help = "name a block of the kind `kernel` or `python` with the parameter `file`";
            return Err(Failure::failed(with_help(&what, [help])));
        };
        let file = self.file.as_deref().map(|file| {
            std::path::absolute(file).map_err(|error| {
                Failure::because(&format!("cannot use `{}`", file.display()), &error)
            })
        });
        let other = file.transpose()?.filter(|file| file != own);
        let (entry, paths) = match other {
            None => (json!({}), running),
            Some(file) => {
                let text = spelling(client, &page.summary.kind, &file)?;
                // Its reference, until the program says which one that is.
                let reference = file.with_extension("py");
                let paths = if reference == file { vec![file] } else { vec![file, reference] };
                (json!({ "parameters": { "file": text } }), paths)
            }
        };
        if let Err(error) = std::fs::metadata(&paths[0]) {
            let what = format!("cannot read `{}`", paths[0].display());
            let because = Failure::because(&what, &error).first_line();
            let help = match self.file {
                Some(_) => "name a file that exists",
                None => "run `fxgraph watch` on the machine of the flowgraph",
            };
            return Err(Failure::failed(with_help(&because, [help])));
        }
        Ok((entry, Files::new(paths, edits::content)))
    }
}

fn block_path(block: &str) -> String {
    format!("/api/v1/blocks/{}", in_path(block))
}

/// Number of the last event.
fn last_event(client: &Client) -> Result<u64, Failure> {
    Ok(client.get::<EventList>("/api/v1/events?since=0")?.last)
}

/// Returns the path of `file` as a block of the same kind gives it, which all clients may name, or else its absolute path.
fn spelling(client: &Client, kind: &str, file: &Path) -> Result<String, Failure> {
    let blocks: Vec<BlockSummary> = client.get("/api/v1/blocks")?;
    for block in blocks.iter().filter(|block| block.kind == kind) {
        let page: BlockPage = client.get(&block_path(&block.name))?;
        if page.content_files.first().is_some_and(|known| Path::new(known) == file)
            && let Some(text) = page.parameters["file"].as_str()
        {
            return Ok(text.to_owned());
        }
    }
    file.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::failed(format!("`{}` must be UTF-8 text", file.display())))
}

/// A watch of one block.
struct Session<'a> {
    options: &'a Watch,
    client: Client,
    signals: Signals,
    /// Changed keys of the block in a swap.
    entry: Value,
    files: Files,
    /// Number of the last event that was seen.
    since: u64,
    answers: Option<Answers>,
    report: Report<'a>,
}

/// Reason why a version is not swapped in, after the steps before.
enum Left {
    /// The user ends the watch.
    Interrupted,
    /// A newer version was saved.
    Superseded,
    /// The version was reported as rejected.
    Rejected,
    Failed(Failure),
}

impl From<Failure> for Left {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Session<'_> {
    /// Takes each version that is saved, until the user ends the watch.
    fn follow(&mut self) -> Result<(), Left> {
        let mut looks = 0;
        let mut is_edited = true;
        loop {
            if is_edited {
                self.files.take();
                self.report.version(self.files.identity());
                match self.take_version() {
                    Ok(()) | Err(Left::Rejected) => {}
                    Err(Left::Superseded) => {
                        self.report.step(&Step::new("superseded").text("by a newer version"))?;
                    }
                    Err(left) => return Err(left),
                }
            }
            if self.signals.wait(LOOK) {
                return Err(Left::Interrupted);
            }
            looks += 1;
            if looks % EVENTS == 0 {
                for event in self.events()? {
                    self.report.step(&Step::new(&event.kind).text(&event.text))?;
                }
            }
            is_edited = self.files.are_edited();
        }
    }

    /// Checks the version in the files, compares it in a shadow, and swaps it in.
    fn take_version(&mut self) -> Result<(), Left> {
        let block = &self.options.block;
        let began = Instant::now();
        let change: ChangeInfo = match swap::check(&self.client, block, &self.entry) {
            Ok(change) => typed(change)?,
            Err(failure) => return self.reject(began, failure),
        };
        if change.way == "nothing" {
            self.report.step(&Step::new("runs").took(began))?;
            return self.look_where_the_block_does();
        }
        if let Some(why) = &change.restart_because {
            return self.reject(began, Failure::failed(format!("needs a restart: {why}")));
        }
        self.report.step(&Step::new("checked").took(began).details("change", json!(change)))?;
        self.try_apart()?;
        // A block without outputs has nothing to compare.
        if self.options.shadow > 0 && change.way == "seamless" {
            self.compare()?;
        }
        if self.answers.is_some() {
            self.ask()?;
        }
        self.swap()
    }

    /// Reports a version that cannot run.
    fn reject(&mut self, began: Instant, failure: Failure) -> Result<(), Left> {
        if self.has_ended() {
            return Err(failure.into());
        }
        self.files.reject();
        self.report.failed(Step::new("rejected").took(began), &failure)?;
        Err(Left::Rejected)
    }

    fn has_ended(&self) -> bool {
        self.client.is_gone()
    }

    /// The answer to `GET` of `path`, for which it waits while the program is busy.
    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Left> {
        loop {
            if let Some(answer) = self.client.get_in_time(path)? {
                return Ok(answer);
            }
            self.report.step(&Step::new("waits").text("the program answers late"))?;
            if self.signals.wait(LOOK) {
                return Err(Left::Interrupted);
            }
        }
    }

    /// Tries the version in a process of its own, and reports its differences from the reference.
    fn try_apart(&mut self) -> Result<(), Left> {
        let page: BlockPage = self.get(&block_path(&self.options.block))?;
        let is_on_gpu = page.summary.device.starts_with("cuda") && page.summary.kind == "kernel";
        if self.options.trial == When::Never || self.options.trial == When::Auto && !is_on_gpu {
            return Ok(());
        }
        let began = Instant::now();
        let mut trial = Trial::start(&page, &self.entry, self.files.paths())?;
        let mut checks = 0;
        let verdict = loop {
            if let Some(verdict) = trial.verdict() {
                break verdict;
            }
            if self.signals.wait(CHECK) {
                return Err(Left::Interrupted);
            }
            checks += 1;
            if checks % CHECKS == 0 && self.files.are_edited() {
                return Err(Left::Superseded);
            }
        };
        match verdict {
            Verdict::Passed(difference) => {
                Ok(self.report.tried(Step::new("tried").took(began), difference)?)
            }
            Verdict::NotTried(why) => {
                Ok(self.report.step(&Step::new("not tried").took(began).text(&why))?)
            }
            Verdict::Failed(why) => self.reject(began, Failure::failed(why)),
        }
    }

    /// Runs a shadow of the version, and reports its differences.
    fn compare(&mut self) -> Result<(), Left> {
        let block = &self.options.block;
        let began = Instant::now();
        if let Err(failure) = shadow::start(&self.client, block, &self.entry, false) {
            return self.reject(began, failure);
        }
        let waited = self.wait_for_frames();
        if matches!(waited, Ok(false)) {
            let what = "another client has ended the shadow";
            let help = "save the file again, or give `--shadow 0`";
            return self.reject(began, Failure::failed(with_help(what, [help])));
        }
        let ended = self.end_shadow();
        waited?;
        let ended: ShadowInfo = match ended {
            Ok(ended) => typed(ended)?,
            Err(failure) => return self.reject(began, failure),
        };
        if let Some(why) = &ended.ended {
            let why = format!("the shadow failed: {why}");
            return self.reject(began, Failure::failed(why));
        }
        Ok(self.report.compared(Step::new("compared").took(began), &ended)?)
    }

    /// Ends the shadow, also if it does not finish a frame at once.
    fn end_shadow(&self) -> Result<Value, Failure> {
        let began = Instant::now();
        loop {
            match shadow::end(&self.client, &self.options.block) {
                Err(_) if began.elapsed() < SILENCE && !self.has_ended() => sleep(LOOK),
                ended => return ended,
            }
        }
    }

    /// Waits until the shadow has compared its frames, or no frame comes; false if the block has no shadow any more.
    fn wait_for_frames(&mut self) -> Result<bool, Left> {
        let mut last = (0, Instant::now());
        loop {
            self.wait()?;
            let shadows: Vec<ShadowInfo> = self.get("/api/v1/shadows")?;
            let own = shadows.into_iter().find(|shadow| shadow.block == self.options.block);
            let Some(info) = own else { return Ok(false) };
            if info.frames_compared != last.0 {
                last = (info.frames_compared, Instant::now());
            }
            let is_silent = last.1.elapsed() >= SILENCE;
            if info.frames_compared >= self.options.shadow || info.ended.is_some() || is_silent {
                return Ok(true);
            }
        }
    }

    /// Waits for the next look at the files, and looks.
    fn wait(&mut self) -> Result<(), Left> {
        if self.signals.wait(LOOK) {
            return Err(Left::Interrupted);
        }
        if self.files.are_edited() { Err(Left::Superseded) } else { Ok(()) }
    }

    /// Waits for the user's answer.
    fn ask(&mut self) -> Result<(), Left> {
        self.report.asks();
        if let Some(answers) = &self.answers {
            answers.forget();
        }
        loop {
            self.wait()?;
            match self.answers.as_ref().and_then(Answers::next) {
                None => {}
                Some(Answer::Swap) => return Ok(()),
                Some(Answer::Keep) => {
                    self.files.reject();
                    self.report.step(&Step::new("kept").text("the version before runs on"))?;
                    return Err(Left::Rejected);
                }
                Some(Answer::Ended) => {
                    let why = "`--ask` needs answers on standard input, which has ended";
                    return Err(Failure::failed(why).into());
                }
            }
        }
    }

    fn swap(&mut self) -> Result<(), Left> {
        // The program reads the files again: it must not get a version that nobody has checked.
        if !self.files.are_taken() {
            return Err(Left::Superseded);
        }
        let Watch { block, allow_stall, .. } = self.options;
        let began = Instant::now();
        let begun = swap::begin(&self.client, block, &self.entry, *allow_stall);
        let failure = match begun.and_then(typed::<ChangeInfo>) {
            Ok(change) => match self.wait_for_swap(&change)? {
                Ok(()) => return self.swapped(began, &change),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        if self.has_ended() {
            return Err(failure.into());
        }
        let events = self.events()?;
        let rolled_back = events.iter().find(|event| event.kind == "rolled_back");
        let step = Step::new(if rolled_back.is_some() { "rolled back" } else { "not swapped" });
        let failure = rolled_back.map_or(failure, |event| Failure::failed(event.text.clone()));
        self.files.reject();
        self.report.failed(step.took(began), &failure)?;
        Err(Left::Rejected)
    }

    fn swapped(&mut self, began: Instant, change: &ChangeInfo) -> Result<(), Left> {
        let step = Step::new("swapped").took(began).text(&interruption(change));
        self.report.step(&step.details("change", json!(change)))?;
        // Events of this swap.
        self.events()?;
        self.look_where_the_block_does()
    }

    /// Waits for the result of a swap that goes on, but not longer than [`SWAP`]: without frames it has none.
    fn wait_for_swap(&mut self, change: &ChangeInfo) -> Result<Result<(), Failure>, Left> {
        let Some(since) = change.goes_on_after_event else { return Ok(Ok(())) };
        let began = Instant::now();
        while began.elapsed() < SWAP {
            let list: EventList = self.get(&format!("/api/v1/events?since={since}"))?;
            let events = list.events.into_iter();
            let mut own = events.filter(|event| event.block.as_ref() == Some(&change.block));
            let is_result = |kind: &str| kind == swap::SWAPPED || swap::NOT_SWAPPED.contains(&kind);
            if let Some(event) = own.find(|event| is_result(&event.kind)) {
                let is_made = event.kind == swap::SWAPPED;
                return Ok(if is_made { Ok(()) } else { Err(Failure::failed(event.text)) });
            }
            if self.signals.wait(LOOK) {
                return Err(Left::Interrupted);
            }
        }
        let what = format!("no frame has come for {} s, and the swap goes on", SWAP.as_secs());
        Ok(Err(Failure::failed(with_help(&what, ["its result is reported once frames flow"]))))
    }

    /// Follows the files of the block that runs now: its code may name other ones.
    fn look_where_the_block_does(&mut self) -> Result<(), Left> {
        let page: BlockPage = self.get(&block_path(&self.options.block))?;
        self.files.follow(page.content_files.iter().map(PathBuf::from).collect());
        Ok(())
    }

    /// Returns the new events that report what became of the block's code.
    fn events(&mut self) -> Result<Vec<EventInfo>, Left> {
        let path = format!("/api/v1/events?since={}", self.since);
        let list: EventList = self.get(&path)?;
        self.since = list.last;
        let is_told = |event: &EventInfo| {
            event.block.as_ref() == Some(&self.options.block) && TOLD.contains(&event.kind.as_str())
        };
        Ok(list.events.into_iter().filter(is_told).collect())
    }
}

fn interruption(change: &ChangeInfo) -> String {
    match change.way.as_str() {
        "seamless" => "without interruption".to_owned(),
        _ => format!("interruption: {}", change.gap),
    }
}
