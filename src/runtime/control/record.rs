//! Recordings of outputs, asked for while the flowgraph runs.

use super::{Control, Tap, TapError, TapOptions, Tapped};
use fxgraph_core::access::WrittenPath;
use fxgraph_core::device::DeviceName;
use fxgraph_core::error::BlockError;
use fxgraph_core::error::with_causes;
use fxgraph_core::event::EventKind;
use fxgraph_core::files::Files;
use fxgraph_core::kind::Refusal;
use fxgraph_core::port::PortType;
use fxgraph_flowgraph::{Plan, Refused, request};
use fxgraph_recording::{
    Budget, PLACEHOLDER, Recorder, RecorderOptions, RecorderStatus, SideFile, try_folder,
    used_bytes,
};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Recorders that may be at work at once: each takes memory and two threads.
const MOST: usize = 16;
/// Recorders that have ended and can still be looked at.
const REMEMBERED: usize = 256;
/// Longest name of a file.
const MOST_LETTERS: usize = 128;
/// Memory that an output's pool is lent so that a moment's delay of the disk costs no frame, and how many
/// frames at least and at most.
const LENT_BYTES: usize = 64 << 20;
const LENT_FRAMES: (usize, usize) = (4, 64);
/// How often a reader looks whether it is to end.
const TICK: Duration = Duration::from_millis(50);
/// How often lost frames are told of.
const TELL: Duration = Duration::from_secs(1);

/// Where recordings go that are asked for.
pub(super) struct Place {
    folder: PathBuf,
    /// The folder, which no link leads out of.
    files: Files,
    budget: Arc<Budget>,
    /// Held where recorders are counted and one more is begun.
    beginning: Mutex<()>,
}

/// Why a recorder was not made, or did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Nobody said where files may be written.
    #[error("this program writes no recordings: it was not told where to")]
    NoFolder,
    /// There are as many recorders as there may be.
    #[error("there are {MOST} recorders at work; one of them has to end first")]
    TooMany,
    /// The file's name leads elsewhere, or is too long.
    #[error(
        "`{0}` is no name of a file: letters, digits, `.`, `_`, `-` and `{{timestamp}}` make one"
    )]
    Name(String),
    /// The request cannot be read, or does not fit to the output.
    #[error("{}", .0.problems.first().map_or("the request was refused", |first| &first.message))]
    Request(Refused),
    /// The options do not fit to the output.
    #[error("{}", .0.first().map_or("the recording was refused", |first| &first.message))]
    Refused(Vec<Refusal>),
    /// The frames to be kept do not fit into memory.
    #[error(
        "{needed} bytes of frames are to be kept in memory, and {allowed} are left for recorders: half \
         of what is free"
    )]
    Memory {
        /// What it needs.
        needed: usize,
        /// What it may have.
        allowed: usize,
    },
    /// The output cannot be read.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The disk has no room for it, or recordings may take no more.
    #[error("{}", with_causes(.0))]
    Room(BlockError),
    /// Files cannot be written or removed.
    #[error("{}", with_causes(.0))]
    Files(BlockError),
    /// There is no such recorder.
    #[error("there is no recorder `{0}`")]
    NoSuchRecorder(String),
    /// It has ended.
    #[error("recorder `{0}` has ended")]
    Ended(String),
    /// It belongs to the flowgraph.
    #[error("recorder `{0}` is a block of the flowgraph, which ends with it")]
    IsBlock(String),
}

impl Control {
    /// Lets recordings be asked for: files in `folder`, which is made, up to `most_bytes` with those that are
    /// there already, and as long as `left_free_bytes` of its disk stay free for everything else that writes there.
    /// The first call counts.
    pub fn allow_recordings(
        &self,
        folder: &Path,
        most_bytes: u64,
        left_free_bytes: u64,
    ) -> Result<(), BlockError> {
        try_folder(&folder.join("x").as_path().into())?;
        let cannot = |error: io::Error| {
            BlockError::new(format!("cannot read {}", folder.display())).because(error)
        };
        let files = Files::below(folder).map_err(cannot)?;
        let used = used_bytes(folder, "").map_err(cannot)?;
        let budget = Arc::new(Budget::new(folder, most_bytes, used, left_free_bytes));
        // A second call changes nothing.
        let (folder, beginning) = (folder.to_owned(), Mutex::default());
        let _ = self.0.recordings.set(Place { folder, files, budget, beginning });
        Ok(())
    }

    /// What `request` asks for, a mapping (YAML or JSON) of [`RecorderOptions`], none of which it needs to
    /// have, for a recorder of `output`.
    pub fn recorder_options(
        &self,
        output: &str,
        request: &str,
    ) -> Result<RecorderOptions, RecordError> {
        let plan = self.plan();
        let (block, index) = Self::find_output(&plan, output)?;
        let port = &plan.blocks[block].ports.outputs[index];
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let stem: String = output.chars().map(plain).take(MOST_LETTERS / 2).collect();
        let defaults = format!("path: \"{stem}_{PLACEHOLDER}.npz\"");
        let refusals = |options: &RecorderOptions| options.refusals(port);
        request::read(request, &defaults, refusals).map_err(RecordError::Request)
    }

    /// A recorder of `output`, a block's output like `f[0].fft.output`, from its next frame on. The path
    /// is the name of a file in the folder that was [allowed](Self::allow_recordings). Waits up to about `limit`
    /// for the block.
    ///
    /// A recorder never slows the flowgraph: frames for which neither the disk nor the memory has room are
    /// left out, counted and told of.
    pub fn record(
        &self,
        output: &str,
        mut options: RecorderOptions,
        limit: Duration,
    ) -> Result<RecorderStatus, RecordError> {
        let place = self.0.recordings.get().ok_or(RecordError::NoFolder)?;
        let plan = self.plan();
        let (block, index) = Self::find_output(&plan, output)?;
        let port = plan.blocks[block].ports.outputs[index].clone();
        if !is_file_name(&options.path) {
            return Err(RecordError::Name(options.path.to_string()));
        }
        let refusals = options.refusals(&port);
        if !refusals.is_empty() {
            return Err(RecordError::Refused(refusals));
        }
        place.budget.begin(port.frame_bytes() as u64).map_err(RecordError::Room)?;
        admit(&plan, &options, &port)?;
        let depth = (LENT_BYTES / port.frame_bytes().max(1)).clamp(LENT_FRAMES.0, LENT_FRAMES.1);
        let tap = self.tap(output, TapOptions { queue: depth, ..TapOptions::default() }, limit)?;

        // Again: others may have begun meanwhile.
        let _alone = place.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        admit(&plan, &options, &port)?;
        let path = place.folder.join(options.path.path()).display().to_string();
        options.path = WrittenPath::new(place.files.clone(), path);
        options.budget = Some(Arc::clone(&place.budget));
        let blank = SideFile {
            block: tap.output().to_owned(),
            config_hash: plan.config_hash.clone(),
            flowgraph: plan.resolved_yaml.to_string(),
            ..SideFile::of(&port)
        };
        let name = (self.0.recorders_made.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        let counters = fxgraph_core::Counters::default();
        let names = (name.as_str(), tap.output());
        let recorder = Recorder::start(names, &port, blank, options, &counters, &plan.recorders);
        let recorder = recorder.map_err(RecordError::Files)?;
        let (reading, control) = (recorder.clone(), self.clone());
        let thread = std::thread::Builder::new().name(format!("read {name}"));
        thread.spawn(move || control.read(tap, &reading)).map_err(|error| {
            recorder.end();
            RecordError::Files(BlockError::new("no thread to read frames").because(error))
        })?;
        Ok(recorder.status())
    }

    /// Hands the frames of a tap to a recorder until either ends.
    fn read(&self, mut tap: Tap, recorder: &Recorder) {
        let block = tap.output().rsplit_once('.').map(|(block, _)| block.to_owned());
        let (mut lost, mut told, mut last) = (0, 0, None::<Instant>);
        while !recorder.is_over() {
            // While the disk is slow the tap keeps frames, and leaves out the oldest in the end.
            let Some(buffer) = recorder.take_within(TICK) else { continue };
            let next = tap.next_into(buffer, TICK);
            let dropped = tap.dropped();
            recorder.lose(dropped - lost);
            lost = dropped;
            match next {
                Ok((Tapped::Frame(frame), _)) => recorder.push(frame),
                Ok((Tapped::Nothing, buffer)) => {
                    buffer.into_iter().for_each(|buffer| recorder.give_back(buffer));
                }
                Ok((Tapped::Ended, _)) => break,
                Err(error) => {
                    recorder.fail(&with_causes(&error));
                    break;
                }
            }
            if lost > told && last.is_none_or(|last| last.elapsed() > TELL) {
                let (name, output) = (recorder.name(), tap.output());
                let text = format!(
                    "recorder {name} lost {} frames of `{output}`: the disk is too slow",
                    lost - told
                );
                self.0.run().tell(EventKind::Recorded, block.as_deref(), text);
                (told, last) = (lost, Some(Instant::now()));
            }
        }
        recorder.end();
    }

    /// Every recorder of the flowgraph, its blocks and those that were asked for.
    #[must_use]
    pub fn recorders(&self) -> Vec<RecorderStatus> {
        self.plan()
            .recorders
            .list()
            .iter()
            .map(|recorder: &Arc<Recorder>| recorder.status())
            .collect()
    }

    /// The recorder called `name`.
    pub fn recorder(&self, name: &str) -> Result<RecorderStatus, RecordError> {
        self.find_recorder(name).map(|recorder| recorder.status())
    }

    fn find_recorder(&self, name: &str) -> Result<Recorder, RecordError> {
        let found = self.plan().recorders.get::<Recorder>(name);
        found.map(Arc::unwrap_or_clone).ok_or_else(|| RecordError::NoSuchRecorder(name.to_owned()))
    }

    /// Has a recorder write what it keeps from before timestamp `at` (without one, from before now), and
    /// what comes after.
    pub fn trigger_recorder(
        &self,
        name: &str,
        at: Option<u64>,
    ) -> Result<RecorderStatus, RecordError> {
        let recorder = self.find_recorder(name)?;
        if !recorder.trigger(at, "a request") {
            return Err(RecordError::Ended(name.to_owned()));
        }
        Ok(recorder.status())
    }

    /// The recorder called `name`, if it was asked for and is no block.
    fn find_asked_for(&self, name: &str) -> Result<Recorder, RecordError> {
        let recorder = self.find_recorder(name)?;
        if self.plan().block(name).is_some() {
            return Err(RecordError::IsBlock(name.to_owned()));
        }
        Ok(recorder)
    }

    /// Ends a recorder that was asked for; what it is recording is closed. Waits for the disk.
    pub fn stop_recorder(&self, name: &str) -> Result<RecorderStatus, RecordError> {
        let recorder = self.find_asked_for(name)?;
        recorder.end();
        recorder.join();
        Ok(recorder.status())
    }

    /// Ends a recorder that was asked for, removes its files and forgets it. Waits for the disk.
    pub fn delete_recorder(&self, name: &str) -> Result<RecorderStatus, RecordError> {
        let status = self.stop_recorder(name)?;
        for recorded in &status.recordings {
            for file in &recorded.files {
                match fs::remove_file(file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        let text = format!("cannot remove {}", file.display());
                        return Err(RecordError::Files(BlockError::new(text).because(error)));
                    }
                    _ => {}
                }
            }
        }
        if let Some(place) = self.0.recordings.get() {
            place.budget.free(status.recordings.iter().map(|recorded| recorded.bytes).sum());
        }
        self.plan().recorders.remove(name);
        Ok(status)
    }

    /// Waits until everything that was recorded is on the disk, after the end of the run.
    pub fn finish_recordings(&self) {
        self.plan().recorders.list().iter().for_each(|recorder: &Arc<Recorder>| recorder.join());
    }
}

/// Whether there is room for another recorder, of `port`: of their number, and of memory.
fn admit(plan: &Plan, options: &RecorderOptions, port: &PortType) -> Result<(), RecordError> {
    let mut asked_for = plan.recorders.list::<Recorder>();
    asked_for.retain(|recorder| plan.block(recorder.name()).is_none());
    let (ended, at_work): (Vec<_>, Vec<_>) = asked_for.iter().partition(|one| one.is_over());
    if at_work.len() >= MOST {
        return Err(RecordError::TooMany);
    }
    if let Some(oldest) = ended.first().filter(|_| ended.len() >= REMEMBERED) {
        plan.recorders.remove(oldest.name());
    }
    let needed = options.memory_bytes(port).unwrap_or(usize::MAX);
    let promised: usize = at_work.iter().map(|recorder| recorder.memory_bytes()).sum();
    let available = fxgraph_flowgraph::available_on(DeviceName::Cpu).unwrap_or(usize::MAX);
    // The others may not have taken all of theirs yet.
    let allowed = (available / 2).saturating_sub(promised);
    if needed > allowed {
        return Err(RecordError::Memory { needed, allowed });
    }
    Ok(())
}

/// Whether `path` names a file, and no folder, whatever the timestamp in it.
fn is_file_name(path: &str) -> bool {
    let plain = path.replace(PLACEHOLDER, "0");
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    plain.chars().all(is_plain) && !plain.starts_with('.') && path.len() <= MOST_LETTERS
}

#[cfg(test)]
mod tests {
    use super::is_file_name;

    #[test]
    fn names_of_files_lead_nowhere_else() {
        for good in ["a.npz", "f_0_.fft_{timestamp}.npy", "A-1.npz"] {
            assert!(is_file_name(good), "{good}");
        }
        let long = "a".repeat(200);
        for bad in [
            "../a.npz",
            "/etc/a.npz",
            "a/b.npz",
            ".a.npz",
            "a\0.npz",
            "ä.npz",
            "a b.npz",
            "a\\b",
            &long,
        ] {
            assert!(!is_file_name(bad), "{bad}");
        }
    }
}
