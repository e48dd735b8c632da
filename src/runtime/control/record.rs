//! Recordings of outputs, requested while the flowgraph runs.

use super::{Control, Tap, TapError, TapOptions, Tapped};
use fxgraph_core::access::WrittenPath;
use fxgraph_core::device::DeviceName;
use fxgraph_core::error::BlockError;
use fxgraph_core::error::with_causes;
use fxgraph_core::event::EventKind;
use fxgraph_core::files::Files;
use fxgraph_core::kind::Rejection;
use fxgraph_core::lock::lock;
use fxgraph_core::port::PortType;
use fxgraph_flowgraph::request::{self, Request};
use fxgraph_flowgraph::{Plan, Rejected};
use fxgraph_recording::{
    Budget, PLACEHOLDER, Recorder, RecorderOptions, RecorderStatus, SideFile, try_directory,
    used_bytes,
};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Largest number of recorders that run at once: each takes memory and two threads.
const MOST: usize = 16;
/// Number of ended recorders whose status is still available.
const REMEMBERED: usize = 256;
/// Longest file name, in bytes.
const MOST_LETTERS: usize = 128;
/// Memory in bytes for frames that wait for a recorder during a short delay of the disk.
const LENT_BYTES: usize = 64 << 20;
/// Smallest and largest number of these frames.
const LENT_FRAMES: (usize, usize) = (4, 64);
/// Interval at which a reader checks whether its recorder has ended.
const TICK: Duration = Duration::from_millis(50);
/// Shortest interval between two events about dropped frames.
const TELL: Duration = Duration::from_secs(1);

/// Directory of the requested recordings.
pub(super) struct Place {
    directory: PathBuf,
    /// Access to files in the directory; symbolic links cannot lead out of it.
    files: Files,
    budget: Arc<Budget>,
    /// Locked while recorders are counted and a new one is started.
    beginning: Mutex<()>,
}

/// Reason why a request for a recorder failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The program has no directory for recordings.
    #[error("recording is disabled: the program has no directory for recordings")]
    NoDirectory,
    /// The largest number of recorders is running.
    #[error("{MOST} recorders are running, the maximum; end one of them first")]
    TooMany,
    /// The file name contains other characters, such as `/`, or is too long.
    #[error(
        "`{0}` is not a valid file name: use a short name of letters, digits, `.`, `_`, `-` and \
         `{{timestamp}}`"
    )]
    Name(String),
    /// The request cannot be parsed, or does not suit the output.
    #[error("{}", .0.problems.first().map_or("invalid request", |first| &first.message))]
    Request(Rejected),
    /// The options do not suit the output.
    #[error("{}", .0.first().map_or("invalid recording options", |first| &first.message))]
    Rejected(Vec<Rejection>),
    /// The frames of the recorder do not fit into memory.
    #[error(
        "the recorder needs {needed} bytes of memory for frames, but only {allowed} bytes are left for \
         recorders (half of the free memory)"
    )]
    Memory {
        /// Memory that the recorder needs, in bytes.
        needed: usize,
        /// Memory left for recorders, in bytes.
        allowed: usize,
    },
    /// The output cannot be read.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The disk has no room, or recordings have reached their limit.
    #[error("{}", with_causes(.0))]
    Room(BlockError),
    /// Files cannot be written or removed.
    #[error("{}", with_causes(.0))]
    Files(BlockError),
    /// The recorder does not exist.
    #[error("there is no recorder `{0}`")]
    NoSuchRecorder(String),
    /// The recorder has ended.
    #[error("recorder `{0}` has ended")]
    Ended(String),
    /// The recorder is a block of the flowgraph.
    #[error("recorder `{0}` is a block of the flowgraph and ends with the flowgraph")]
    IsBlock(String),
}

impl Control {
    /// Enables recordings on request. Files are written to `directory`, which is created, up to `most_bytes` including
    /// the files already in it, and while `left_free_bytes` of its disk stay free. Only the first call has an effect.
    ///
    /// # Errors
    /// If the directory cannot be created, written or read.
    pub fn allow_recordings(
        &self,
        directory: &Path,
        most_bytes: u64,
        left_free_bytes: u64,
    ) -> Result<(), BlockError> {
        try_directory(&directory.join("x").as_path().into())?;
        let cannot = |error: io::Error| {
            BlockError::new(format!("cannot read {}", directory.display())).because(error)
        };
        let files = Files::below(directory).map_err(cannot)?;
        let used = used_bytes(directory, "").map_err(cannot)?;
        let budget = Arc::new(Budget::new(directory, most_bytes, used, left_free_bytes));
        // A second call has no effect.
        let (directory, beginning) = (directory.to_owned(), Mutex::default());
        let _ = self.0.recordings.set(Place { directory, files, budget, beginning });
        Ok(())
    }

    /// Reads `request`, a mapping of [`RecorderOptions`], all of them optional, for a recorder
    /// of `output`.
    pub fn recorder_options(
        &self,
        output: &str,
        request: impl Into<Request>,
    ) -> Result<RecorderOptions, RecordError> {
        let plan = self.plan();
        let (block, index) = Self::find_output(&plan, output)?;
        let port = &plan.blocks[block].ports.outputs[index];
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let stem: String = output.chars().map(plain).take(MOST_LETTERS / 2).collect();
        let defaults = format!("path: \"{stem}_{PLACEHOLDER}.npz\"");
        let rejections = |options: &RecorderOptions| options.rejections(port);
        request::read(request, &defaults, rejections).map_err(RecordError::Request)
    }

    /// Starts a recorder of `output`, a block's output such as `f[0].fft.output`, from its next frame on. The path
    /// is a file name in the [directory for recordings](Self::allow_recordings). Waits up to about `limit`
    /// for the block.
    ///
    /// A recorder never slows the flowgraph: frames for which neither the disk nor the memory has room are
    /// dropped, counted and reported.
    pub fn record(
        &self,
        output: &str,
        mut options: RecorderOptions,
        limit: Duration,
    ) -> Result<RecorderStatus, RecordError> {
        let place = self.0.recordings.get().ok_or(RecordError::NoDirectory)?;
        let plan = self.plan_in_force();
        let (block, index) = Self::find_output(&plan, output)?;
        let port = plan.blocks[block].ports.outputs[index].clone();
        if !is_file_name(&options.path) {
            return Err(RecordError::Name(options.path.to_string()));
        }
        let rejections = options.rejections(&port);
        if !rejections.is_empty() {
            return Err(RecordError::Rejected(rejections));
        }
        place.budget.begin(port.frame_bytes() as u64).map_err(RecordError::Room)?;
        admit(&plan, &options, &port)?;
        let depth = (LENT_BYTES / port.frame_bytes().max(1)).clamp(LENT_FRAMES.0, LENT_FRAMES.1);
        let tap = self.tap(output, TapOptions { queue: depth, ..TapOptions::default() }, limit)?;

        // Checked again, because other recorders may have started meanwhile.
        let _alone = lock(&place.beginning);
        admit(&plan, &options, &port)?;
        let path = place.directory.join(options.path.path()).display().to_string();
        options.path = WrittenPath::new(place.files.clone(), path);
        options.budget = Some(Arc::clone(&place.budget));
        let blank = SideFile { block: tap.output().to_owned(), ..SideFile::of(&port) };
        let blank = blank.of_flowgraph(plan.flowgraph_text());
        let name = (self.0.recorders_made.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        let counters = fxgraph_core::Counters::default();
        let names = (name.as_str(), tap.output());
        let known = (&plan.texts, &plan.recorders);
        let recorder = Recorder::start(names, &port, blank, options, &counters, known);
        let recorder = recorder.map_err(RecordError::Files)?;
        let (reading, control) = (recorder.clone(), self.clone());
        let thread = std::thread::Builder::new().name(format!("read {name}"));
        thread.spawn(move || control.read(tap, &reading)).map_err(|error| {
            recorder.end();
            RecordError::Files(BlockError::new("cannot create the reader thread").because(error))
        })?;
        Ok(recorder.status())
    }

    /// Passes the frames of a probe to a recorder until either ends.
    fn read(&self, mut tap: Tap, recorder: &Recorder) {
        let block = tap.output().rsplit_once('.').map(|(block, _)| block.to_owned());
        let (mut lost, mut told, mut last) = (0, 0, None::<Instant>);
        while !recorder.is_over() {
            // While the disk is slow, frames wait in the queue of the probe, which drops the oldest when full.
            let Some(buffer) = recorder.take_within(TICK) else { continue };
            match tap.next_into(buffer, TICK) {
                Ok((Tapped::Frame(frame), _)) => {
                    recorder.lose(tap.dropped_before());
                    lost += tap.dropped_before();
                    recorder.push(frame);
                }
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
                    "recorder {name} dropped {} frames of `{output}`: the disk is too slow",
                    lost - told
                );
                self.0.run().tell(EventKind::Recorded, block.as_deref(), text);
                (told, last) = (lost, Some(Instant::now()));
            }
        }
        // Those dropped while nothing was taken.
        recorder.lose(tap.dropped().saturating_sub(lost));
        recorder.end();
    }

    /// Status of every recorder: blocks of the flowgraph, and recorders started on request.
    #[must_use]
    pub fn recorders(&self) -> Vec<RecorderStatus> {
        self.plan()
            .recorders
            .list()
            .iter()
            .map(|recorder: &Arc<Recorder>| recorder.status())
            .collect()
    }

    /// Status of the recorder called `name`.
    pub fn recorder(&self, name: &str) -> Result<RecorderStatus, RecordError> {
        self.find_recorder(name).map(|recorder| recorder.status())
    }

    fn find_recorder(&self, name: &str) -> Result<Recorder, RecordError> {
        let found = self.plan().recorders.get::<Recorder>(name);
        found.map(Arc::unwrap_or_clone).ok_or_else(|| RecordError::NoSuchRecorder(name.to_owned()))
    }

    /// Triggers a recorder at timestamp `at`, or now if `None`: it writes the frames that it keeps from before the
    /// trigger, and those after it.
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

    /// Returns the recorder called `name`, if it was started on request and is not a block.
    fn find_asked_for(&self, name: &str) -> Result<Recorder, RecordError> {
        let recorder = self.find_recorder(name)?;
        if self.plan().block(name).is_some() {
            return Err(RecordError::IsBlock(name.to_owned()));
        }
        Ok(recorder)
    }

    /// Ends a recorder started on request, and closes its current recording. Waits for the disk.
    pub fn stop_recorder(&self, name: &str) -> Result<RecorderStatus, RecordError> {
        let recorder = self.find_asked_for(name)?;
        recorder.end();
        recorder.join();
        Ok(recorder.status())
    }

    /// Deletes a recorder started on request, and its files. Waits for the disk.
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

    /// Waits, after the end of the run, until all recordings are on the disk.
    pub fn finish_recordings(&self) {
        self.plan().recorders.list().iter().for_each(|recorder: &Arc<Recorder>| recorder.join());
    }
}

/// Checks that a further recorder, of `port`, is within the limits of number and memory.
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
    // The other recorders may not have allocated all of their memory yet.
    let allowed = (available / 2).saturating_sub(promised);
    if needed > allowed {
        return Err(RecordError::Memory { needed, allowed });
    }
    Ok(())
}

/// Whether `path` is a plain file name, with any timestamp in it.
fn is_file_name(path: &str) -> bool {
    let plain = path.replace(PLACEHOLDER, "0");
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    plain.chars().all(is_plain) && !plain.starts_with('.') && path.len() <= MOST_LETTERS
}

#[cfg(test)]
mod tests {
    use super::is_file_name;

    #[test]
    fn file_name_rejects_other_directories_and_characters() {
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
