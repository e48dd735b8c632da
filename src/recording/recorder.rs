//! Recorder of a stream: keeps the newest frames in memory, and at a trigger writes them to a file with the frames
//! that follow.

use super::options::{EventTrigger, Loud, RecorderOptions, Trigger};
use super::ring::Ring;
use super::{Budget, SideFile, lock};
use fxgraph_core::edge::TapFrame;
use fxgraph_core::event::Event;
use fxgraph_core::flowgraph_texts::FlowgraphTexts;
use fxgraph_core::recorders::{AnyRecorder, Recorders, Reports};
use fxgraph_core::{BlockError, Counter, Counters, Header, PortType};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Lifecycle state of a recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderState {
    /// The recorder keeps the newest frames in memory and waits for a trigger.
    Waiting,
    /// The recorder writes frames to a file.
    Recording,
    /// The recorder has ended because it could not read or write frames.
    Failed,
    /// The recorder has ended: it was stopped, or the stream ended.
    Ended,
}

impl RecorderState {
    /// Name of the state in REST and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Recording => "recording",
            Self::Failed => "failed",
            Self::Ended => "ended",
        }
    }
}

/// A finished recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Path of the data array or archive.
    pub path: PathBuf,
    /// All files of the recording.
    pub files: Vec<PathBuf>,
    /// Number of frames.
    pub frames: u64,
    /// Size of the payloads in bytes.
    pub bytes: u64,
    /// Timestamps of the first and last frame, in ADC samples.
    pub timestamps: (u64, u64),
    /// Number of frames dropped for lack of memory within the time of the recording.
    pub lost: u64,
    /// Trigger of the recording, as text.
    pub cause: String,
}

/// Status of a recorder.
#[derive(Clone, Debug)]
pub struct RecorderStatus {
    /// Name: that of its block, or a number.
    pub name: String,
    /// Recorded output, `block.port`; empty for a block of the flowgraph.
    pub output: String,
    /// Lifecycle state.
    pub state: RecorderState,
    /// Number of frames in memory.
    pub frames_kept: u64,
    /// Number of frames dropped because the disk is too slow.
    pub frames_lost: u64,
    /// Number of frames written to files.
    pub frames_written: u64,
    /// Finished recordings, oldest first; at most the last 256.
    pub recordings: Vec<Recorded>,
    /// Cause of the failure, if the recorder failed.
    pub fault: Option<String>,
}

/// State of a recorder, with the frames in memory.
pub(super) struct State {
    pub ring: Ring,
    /// No further frames arrive.
    pub has_ended: bool,
    /// The thread that writes has ended.
    pub is_over: bool,
    fault: Option<String>,
    /// The limit on disk space is reached.
    is_full: bool,
    pub recordings: Vec<Recorded>,
}

pub(super) struct Inner {
    name: String,
    output: String,
    pub port: PortType,
    pub blank: SideFile,
    pub texts: FlowgraphTexts,
    pub options: RecorderOptions,
    /// Limits on the disk space of the files.
    pub budgets: Vec<Arc<Budget>>,
    state: Mutex<State>,
    pub moved: Condvar,
    pub written: Counter,
    pub lost: Counter,
    reports: Weak<Reports>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A recorder of one stream; cheap to clone.
///
/// The caller [pushes](Self::push) frames and never waits: a separate thread writes them, and frames for which there
/// is no memory are dropped and counted.
#[derive(Clone)]
pub struct Recorder(pub(super) Arc<Inner>);

impl Recorder {
    /// Starts a recorder of a stream like `port` and adds it to `recorders` as `name`. `blank` is the initial side
    /// file of its recordings, which get the flowgraph of their first frame from `texts` if it is known.
    ///
    /// # Errors
    /// If the thread that writes cannot be created.
    pub fn start(
        (name, output): (&str, &str),
        port: &PortType,
        blank: SideFile,
        options: RecorderOptions,
        counters: &Counters,
        (texts, recorders): (&FlowgraphTexts, &Recorders),
    ) -> Result<Self, BlockError> {
        let samples = |seconds: f64| (seconds * port.clock.adc_sample_rate_hz).round() as u64;
        let mut ring = Ring::new(
            options.frames(port),
            port.clock.samples_per_frame,
            samples(options.before_seconds),
            options.after_seconds.map_or(u64::MAX, samples),
        );
        if options.trigger == Trigger::Start {
            ring.trigger(None, "the first frame");
        }
        let recordings = Vec::new();
        let state = State {
            ring,
            has_ended: false,
            is_over: false,
            fault: None,
            is_full: false,
            recordings,
        };
        let budgets = options.budgets();
        let recorder = Self(Arc::new(Inner {
            name: name.to_owned(),
            output: output.to_owned(),
            port: port.clone(),
            blank,
            texts: texts.clone(),
            options,
            budgets,
            state: Mutex::new(state),
            moved: Condvar::new(),
            written: counters.count("frames_written", "frames written to disk"),
            lost: counters
                .loss("frames_lost", "frames dropped because memory is full: the disk is too slow"),
            reports: recorders.reports(),
            thread: Mutex::default(),
        }));
        let writing = recorder.clone();
        let thread = counters
            .threads()
            .spawn("record", name, move || writing.write())
            .map_err(|error| BlockError::new("cannot create the writer thread").because(error))?;
        *lock(&recorder.0.thread) = Some(thread);
        recorders.add(Arc::new(recorder.clone()));
        Ok(recorder)
    }

    /// Name of the recorder.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Returns a buffer for the next frame. If there is none, the caller drops the frame and
    /// [counts](Self::lose) it.
    #[must_use]
    pub fn take(&self) -> Option<TapFrame> {
        self.state().ring.take()
    }

    /// Returns a buffer like [`take`](Self::take), after waiting up to `limit` for the disk.
    #[must_use]
    pub fn take_within(&self, limit: Duration) -> Option<TapFrame> {
        let mut state = self.state();
        let taken = state.ring.take();
        if taken.is_some() || state.is_over {
            return taken;
        }
        let (mut state, _) =
            self.0.moved.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner);
        state.ring.take()
    }

    /// Returns an unused buffer.
    pub fn give_back(&self, frame: TapFrame) {
        self.state().ring.give_back(frame);
    }

    /// Adds a frame of the stream.
    pub fn push(&self, frame: TapFrame) {
        let found = self.finds(&frame.header);
        let mut state = self.state();
        if state.is_over {
            return state.ring.give_back(frame);
        }
        state.ring.push(frame);
        if let Some(cause) = found {
            state.ring.trigger(None, &cause);
        }
        drop(state);
        self.0.moved.notify_all();
    }

    /// Counts frames that the caller dropped before the one that is [pushed](Self::push) next.
    pub fn lose(&self, frames: u64) {
        self.0.lost.add(frames);
        self.state().ring.lose(frames);
    }

    /// Returns the cause if a frame triggers a recording.
    fn finds(&self, header: &Header) -> Option<String> {
        let at = header.timestamp;
        match &self.0.options.trigger {
            Trigger::Missing => {
                let full = self.0.port.validity.full;
                let missing = header.validity.iter().filter(|count| **count < full).count();
                (missing > 0).then(|| format!("{missing} units missing at timestamp {at}"))
            }
            Trigger::Loud(Loud { annotation, above }) => {
                let values = header.annotations.get(annotation);
                let found = values.iter().find(|value| **value > *above)?;
                Some(format!("`{annotation}` of {found} at timestamp {at}"))
            }
            Trigger::Start | Trigger::Request | Trigger::Events(_) => None,
        }
    }

    /// Triggers a recording of the frames around timestamp `at`, or around the end of the newest frame if `None`;
    /// `cause` describes the trigger. Extends a recording in progress. Returns `false` if the recorder has ended.
    #[must_use]
    pub fn trigger(&self, at: Option<u64>, cause: &str) -> bool {
        let mut state = self.state();
        if state.is_over {
            return false;
        }
        state.ring.trigger(at, cause);
        drop(state);
        self.0.moved.notify_all();
        true
    }

    /// Ends the recorder: frames in memory that belong to a recording are written, and the recording is closed.
    pub fn end(&self) {
        let mut state = self.state();
        state.ring.cut();
        state.has_ended = true;
        drop(state);
        self.0.moved.notify_all();
    }

    /// Waits, after the [end](Self::end), until all recordings are on the disk.
    pub fn join(&self) {
        let thread = lock(&self.0.thread).take();
        // A panic of the thread is in the log already.
        let _ = thread.map(JoinHandle::join);
    }

    /// Ends the recorder with a failure, for the reason `why`.
    pub fn fail(&self, why: &str) {
        self.state().fault.get_or_insert_with(|| why.to_owned());
        self.say(&format!("the recorder failed: {why}"));
        self.end();
    }

    /// Notes that the limit on disk space is reached.
    pub(super) fn fill(&self) {
        self.state().is_full = true;
    }

    /// Whether the recorder has failed because the limit on disk space is reached.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.state().is_full
    }

    /// Cause of the failure, if the recorder has failed.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.state().fault.clone()
    }

    /// Whether the thread that writes has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Memory for frames, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.options.memory_bytes(&self.0.port).unwrap_or(usize::MAX)
    }

    /// Current status.
    #[must_use]
    pub fn status(&self) -> RecorderStatus {
        let state = self.state();
        RecorderStatus {
            name: self.0.name.clone(),
            output: self.0.output.clone(),
            state: match (&state.fault, state.is_over) {
                (Some(_), _) => RecorderState::Failed,
                (None, true) => RecorderState::Ended,
                (None, false) if state.ring.is_recording() => RecorderState::Recording,
                (None, false) => RecorderState::Waiting,
            },
            frames_kept: state.ring.kept() as u64,
            frames_lost: self.0.lost.get(),
            frames_written: self.0.written.get(),
            recordings: state.recordings.clone(),
            fault: state.fault.clone(),
        }
    }

    /// Adds an event of the run.
    pub(super) fn say(&self, text: &str) {
        let block = self.0.output.rsplit_once('.').map_or(self.0.name.as_str(), |(block, _)| block);
        if let Some(reports) = self.0.reports.upgrade() {
            reports.say(block, text);
        }
    }
}

impl AnyRecorder for Recorder {
    fn name(&self) -> &str {
        self.name()
    }

    fn see(&self, event: &Event) {
        let Trigger::Events(EventTrigger { kinds, blocks }) = &self.0.options.trigger else {
            return;
        };
        let is_own = event.block.as_ref() == Some(&self.0.name);
        let is_named =
            |blocks: &Vec<String>| event.block.as_ref().is_some_and(|block| blocks.contains(block));
        if kinds.contains(&event.kind) && !is_own && blocks.as_ref().is_none_or(is_named) {
            let block = event.block.as_ref().map(|block| format!(" of `{block}`"));
            let cause =
                format!("{}{}: {}", event.kind.name(), block.unwrap_or_default(), event.text);
            // An ended recorder ignores triggers.
            let _ = self.trigger(None, &cause);
        }
    }
}
