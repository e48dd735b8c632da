//! What of a stream is recorded, and when: the newest frames are kept in memory, and when something
//! happens they go to a file with what comes after.

use super::options::{EventTrigger, Loud, RecorderOptions, Trigger};
use super::ring::Ring;
use super::{Budget, SideFile, lock};
use fxgraph_core::edge::TapFrame;
use fxgraph_core::event::Event;
use fxgraph_core::recorders::{AnyRecorder, Recorders, Reports};
use fxgraph_core::{BlockError, Counter, Counters, Header, PortType};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where a recorder is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecorderState {
    /// It keeps the newest frames in memory.
    Waiting,
    /// Frames go to a file.
    Recording,
    /// It could not write, and has ended.
    Failed,
    /// It has ended: it was stopped, or the stream ended.
    Ended,
}

impl RecorderState {
    /// The word for it in REST and logs.
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

/// A recording that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its file.
    pub path: PathBuf,
    /// All files that belong to it.
    pub files: Vec<PathBuf>,
    /// Frames in it.
    pub frames: u64,
    /// Bytes of payload in it.
    pub bytes: u64,
    /// Timestamps of its first and last frame, in ADC samples.
    pub timestamps: (u64, u64),
    /// Frames that should be in it and found no room in memory, before its trigger or after.
    pub lost: u64,
    /// Why it was made.
    pub cause: String,
}

/// What a recorder does.
#[derive(Clone, Debug)]
pub struct RecorderStatus {
    /// Its name: that of its block, or a number.
    pub name: String,
    /// What it reads: `block.port`; empty for a block of the flowgraph.
    pub output: String,
    /// Where it is in its life.
    pub state: RecorderState,
    /// Frames in memory.
    pub frames_kept: u64,
    /// Frames that it could not keep: the disk is too slow.
    pub frames_lost: u64,
    /// Frames that are in files.
    pub frames_written: u64,
    /// The recordings that it has made, oldest first; not more than some hundred.
    pub recordings: Vec<Recorded>,
    /// Why it failed.
    pub fault: Option<String>,
}

/// Where a recorder stands, and what its frames are.
pub(super) struct State {
    pub ring: Ring,
    /// No frame comes any more.
    pub has_ended: bool,
    /// Nothing is written any more.
    pub is_over: bool,
    fault: Option<String>,
    /// The files may take no more of the disk.
    is_full: bool,
    pub recordings: Vec<Recorded>,
}

pub(super) struct Inner {
    name: String,
    output: String,
    pub port: PortType,
    pub blank: SideFile,
    pub options: RecorderOptions,
    /// What the files may take of the disk.
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
/// Whoever has the stream [pushes](Self::push) its frames and never waits: a thread of its own writes, and
/// frames for which there is no room are counted.
#[derive(Clone)]
pub struct Recorder(pub(super) Arc<Inner>);

impl Recorder {
    /// A recorder of `port`, known to `recorders` as `name`. Its files begin as `blank`.
    pub fn start(
        (name, output): (&str, &str),
        port: &PortType,
        blank: SideFile,
        options: RecorderOptions,
        counters: &Counters,
        recorders: &Recorders,
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
            options,
            budgets,
            state: Mutex::new(state),
            moved: Condvar::new(),
            written: counters.count("frames_written", "Frames on disk."),
            lost: counters.loss(
                "frames_lost",
                "Frames that were to be recorded and found no room in memory: the disk is too slow.",
            ),
            reports: recorders.reports(),
            thread: Mutex::default(),
        }));
        let writing = recorder.clone();
        let thread = std::thread::Builder::new()
            .name(format!("record {name}"))
            .spawn(move || writing.write())
            .map_err(|error| BlockError::new("no thread to write files").because(error))?;
        *lock(&recorder.0.thread) = Some(thread);
        recorders.add(Arc::new(recorder.clone()));
        Ok(recorder)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// A buffer for the next frame; without one, the frame is to be left out and [counted](Self::lose).
    #[must_use]
    pub fn take(&self) -> Option<TapFrame> {
        self.state().ring.take()
    }

    /// [`take`](Self::take), which waits up to `limit` for the disk.
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

    /// Takes back a buffer that was not filled.
    pub fn give_back(&self, frame: TapFrame) {
        self.state().ring.give_back(frame);
    }

    /// Keeps a frame of the stream.
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

    /// Counts frames that were left out before the one that is [pushed](Self::push) next.
    pub fn lose(&self, frames: u64) {
        self.0.lost.add(frames);
        self.state().ring.lose(frames);
    }

    /// What there is about a frame that a recording is to begin with.
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

    /// What came shortly before timestamp `at` (the newest frame's end without one) and what comes shortly after
    /// it goes to a file, because of `cause`; `false` if it has ended. A recording that is being made goes on
    /// for longer.
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

    /// No frame comes any more, or no more shall be taken: what is being recorded is closed.
    pub fn end(&self) {
        let mut state = self.state();
        state.ring.cut();
        state.has_ended = true;
        drop(state);
        self.0.moved.notify_all();
    }

    /// Waits until everything is on the disk, after the [end](Self::end).
    pub fn join(&self) {
        let thread = lock(&self.0.thread).take();
        // What it panicked with stands in the log; the run is over.
        let _ = thread.map(JoinHandle::join);
    }

    /// It cannot go on, for this reason.
    pub fn fail(&self, why: &str) {
        self.state().fault.get_or_insert_with(|| why.to_owned());
        self.say(&format!("the recorder failed: {why}"));
        self.end();
    }

    /// Notes that its files may take no more of the disk.
    pub(super) fn fill(&self) {
        self.state().is_full = true;
    }

    /// Whether it has failed because its files may take no more of the disk.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.state().is_full
    }

    /// Why it has failed, if it has.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.state().fault.clone()
    }

    /// Whether nothing is written any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Memory for the frames that it may keep.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.options.memory_bytes(&self.0.port).unwrap_or(usize::MAX)
    }

    /// What it does.
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

    /// Tells whoever watches the run.
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
            // One that has ended records nothing more.
            let _ = self.trigger(None, &cause);
        }
    }
}
