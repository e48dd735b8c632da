//! The newest frames of a stream in memory, and which of them go to a file.

use fxgraph_core::edge::TapFrame;
use std::collections::VecDeque;

/// Recordings that wait for the disk at once; later triggers lengthen the last one.
const MOST_WINDOWS: usize = 64;

/// What is to be recorded: frames that overlap this time, in ADC samples.
struct Window {
    from: u64,
    until: u64,
    cause: String,
}

/// A frame that is kept.
struct Kept {
    frame: TapFrame,
    /// Frames that were left out right before it.
    lost: u64,
}

/// The frames that are kept. Its buffers go round: once it is full it allocates nothing.
pub(super) struct Ring {
    /// Oldest first.
    frames: VecDeque<Kept>,
    /// Frames left out since the newest.
    lost: u64,
    spare: Vec<TapFrame>,
    /// Buffers kept, spare, and out to be filled or written.
    buffers: usize,
    most_buffers: usize,
    samples_per_frame: u64,
    before_samples: u64,
    after_samples: u64,
    /// In order of time, one behind the other.
    windows: VecDeque<Window>,
    /// End of what was written last.
    written_until: u64,
    /// Why a window is to open with the first frame.
    opens_at_first: Option<String>,
    /// End of the newest frame.
    now: Option<u64>,
}

/// What is to be done next.
pub(super) enum Step {
    /// This frame goes to the file; its buffer comes [back](Ring::give_back).
    Write {
        frame: TapFrame,
        /// Frames that belong before it and were left out.
        lost: u64,
    },
    /// Nothing more belongs to what is being recorded.
    Close {
        /// Frames that belong to its end and were left out.
        lost: u64,
    },
    /// Nothing before something happens.
    Wait,
}

impl Ring {
    /// A ring of up to `most_buffers` frames that are `samples_per_frame` apart.
    pub fn new(
        most_buffers: usize,
        samples_per_frame: u64,
        before_samples: u64,
        after_samples: u64,
    ) -> Self {
        Self {
            frames: VecDeque::new(),
            lost: 0,
            spare: Vec::new(),
            buffers: 0,
            most_buffers,
            samples_per_frame,
            before_samples,
            after_samples,
            windows: VecDeque::new(),
            written_until: 0,
            opens_at_first: None,
            now: None,
        }
    }

    /// A buffer to fill; `None` if every frame that is kept still has to be written.
    pub fn take(&mut self) -> Option<TapFrame> {
        if let Some(spare) = self.spare.pop() {
            return Some(spare);
        }
        if self.buffers < self.most_buffers {
            self.buffers += 1;
            return Some(TapFrame::default());
        }
        let is_wanted = self
            .windows
            .front()
            .zip(self.frames.front())
            .is_some_and(|(window, oldest)| self.end(&oldest.frame) > window.from);
        if is_wanted { None } else { self.frames.pop_front().map(|oldest| oldest.frame) }
    }

    /// Takes back a buffer.
    pub fn give_back(&mut self, frame: TapFrame) {
        self.spare.push(frame);
    }

    /// Frames are left out here.
    pub fn lose(&mut self, frames: u64) {
        self.lost += frames;
    }

    fn end(&self, frame: &TapFrame) -> u64 {
        frame.header.timestamp.saturating_add(self.samples_per_frame)
    }

    /// Keeps a frame.
    pub fn push(&mut self, frame: TapFrame) {
        if let Some(cause) = self.opens_at_first.take() {
            self.open(frame.header.timestamp, cause);
        }
        self.now = self.now.max(Some(self.end(&frame)));
        let lost = std::mem::take(&mut self.lost);
        self.frames.push_back(Kept { frame, lost });
        self.forget();
    }

    /// Gives up the frames that nobody will ask for.
    fn forget(&mut self) {
        if self.is_recording() {
            return;
        }
        let first = self.now.unwrap_or_default().saturating_sub(self.before_samples);
        while let Some(oldest) = self.frames.pop_front() {
            if self.end(&oldest.frame) > first {
                self.frames.push_front(oldest);
                return;
            }
            self.spare.push(oldest.frame);
        }
    }

    /// Something happened at timestamp `at`, or now: what came shortly before and comes after goes to a
    /// file. If that time is being recorded, it is recorded for longer.
    pub fn trigger(&mut self, at: Option<u64>, cause: &str) {
        let Some(at) = at.or(self.now) else {
            self.opens_at_first = Some(cause.to_owned());
            return;
        };
        let until = at.saturating_add(self.after_samples);
        let is_full = self.windows.len() == MOST_WINDOWS;
        match self.windows.back_mut() {
            Some(last) if is_full || at <= last.until => last.until = last.until.max(until),
            _ => self.open(at, cause.to_owned()),
        }
    }

    fn open(&mut self, at: u64, cause: String) {
        let before = self.windows.back().map_or(0, |last| last.until);
        let from = at.saturating_sub(self.before_samples).max(before);
        let until = at.saturating_add(self.after_samples);
        self.windows.push_back(Window { from, until, cause });
    }

    /// Nothing more is recorded than what is kept.
    pub fn cut(&mut self) {
        self.opens_at_first = None;
        let now = self.now.unwrap_or_default();
        self.windows.iter_mut().for_each(|window| window.until = window.until.min(now));
    }

    /// Nothing more goes to what is being recorded.
    pub fn close(&mut self) {
        self.windows.pop_front();
        self.forget();
    }

    /// Whether something is being recorded.
    pub fn is_recording(&self) -> bool {
        !self.windows.is_empty()
    }

    /// Why what is being recorded is.
    pub fn cause(&self) -> &str {
        self.windows.front().map_or("", |window| &window.cause)
    }

    /// Frames that are kept.
    pub fn kept(&self) -> usize {
        self.frames.len()
    }

    /// What is to be done next; `has_ended` says that no frame comes any more.
    pub fn step(&mut self, has_ended: bool) -> Step {
        let Some(window) = self.windows.front() else { return Step::Wait };
        let (from, until) = (window.from, window.until);
        while let Some(kept) = self.frames.pop_front() {
            let (timestamp, end) = (kept.frame.header.timestamp, self.end(&kept.frame));
            if timestamp >= until {
                let lost = self.lost_in(from, until, kept.lost);
                self.frames.push_front(kept);
                self.close();
                return Step::Close { lost };
            }
            if end > from {
                let lost = self.lost_in(from, timestamp, kept.lost);
                self.written_until = end;
                return Step::Write { frame: kept.frame, lost };
            }
            self.spare.push(kept.frame);
        }
        // Frames are in order: one that begins where the newest ends comes too late.
        if has_ended || self.now.is_some_and(|now| now >= until) {
            let lost = self.lost_in(from, until, self.lost);
            self.close();
            Step::Close { lost }
        } else {
            Step::Wait
        }
    }

    /// How many of `lost` frames belong between what was written last in a window that opened at `from`, and
    /// the time `until`.
    fn lost_in(&self, from: u64, until: u64, lost: u64) -> u64 {
        let missing = until.saturating_sub(self.written_until.max(from));
        lost.min(missing.div_ceil(self.samples_per_frame))
    }
}
