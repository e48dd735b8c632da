//! Ring buffer of the newest frames of a stream, and the choice of those that are recorded.

use fxgraph_core::edge::TapFrame;
use std::collections::VecDeque;

/// Largest number of recordings that wait for the disk; later triggers extend the last one.
const MOST_WINDOWS: usize = 64;

/// A recording: the frames that overlap this interval, in ADC samples.
struct Window {
    from: u64,
    until: u64,
    cause: String,
}

/// A frame in the ring.
struct Kept {
    frame: TapFrame,
    /// Number of frames dropped directly before this one.
    lost: u64,
}

/// Ring buffer of frames. Buffers are reused: once full, it does not allocate.
pub(super) struct Ring {
    /// Oldest first.
    frames: VecDeque<Kept>,
    /// Number of frames dropped since the newest frame.
    lost: u64,
    spare: Vec<TapFrame>,
    /// Number of buffers: in the ring, spare, being filled and being written.
    buffers: usize,
    most_buffers: usize,
    samples_per_frame: u64,
    before_samples: u64,
    after_samples: u64,
    /// In order of time, without overlap.
    windows: VecDeque<Window>,
    /// End of the frame written last.
    written_until: u64,
    /// Cause of a window that opens with the first frame.
    opens_at_first: Option<String>,
    /// End of the newest frame.
    now: Option<u64>,
}

/// Next step of the thread that writes.
pub(super) enum Step {
    /// Write this frame to the file, and [return](Ring::give_back) its buffer.
    Write {
        frame: TapFrame,
        /// Number of frames dropped before this one within the recording.
        lost: u64,
    },
    /// Close the current recording, which is complete.
    Close {
        /// Number of frames dropped at its end.
        lost: u64,
    },
    /// Wait for a frame or a trigger.
    Wait,
}

impl Ring {
    /// Creates a ring of up to `most_buffers` frames of `samples_per_frame` ADC samples.
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

    /// Returns a buffer to fill; `None` if all frames in the ring still have to be written.
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

    /// Returns an unused buffer.
    pub fn give_back(&mut self, frame: TapFrame) {
        self.spare.push(frame);
    }

    /// Notes that frames were dropped after the newest one.
    pub fn lose(&mut self, frames: u64) {
        self.lost += frames;
    }

    fn end(&self, frame: &TapFrame) -> u64 {
        frame.header.timestamp.saturating_add(self.samples_per_frame)
    }

    /// Adds a frame.
    pub fn push(&mut self, frame: TapFrame) {
        if let Some(cause) = self.opens_at_first.take() {
            self.open(frame.header.timestamp, cause);
        }
        self.now = self.now.max(Some(self.end(&frame)));
        let lost = std::mem::take(&mut self.lost);
        self.frames.push_back(Kept { frame, lost });
        self.forget();
    }

    /// Removes frames that are too old for a future recording.
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

    /// Triggers a recording around timestamp `at`, or now. Extends a recording that contains that time.
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

    /// Limits recordings to the frames in the ring.
    pub fn cut(&mut self) {
        self.opens_at_first = None;
        let now = self.now.unwrap_or_default();
        self.windows.iter_mut().for_each(|window| window.until = window.until.min(now));
    }

    /// Ends the current recording.
    pub fn close(&mut self) {
        self.windows.pop_front();
        self.forget();
    }

    /// Whether a recording is in progress.
    pub fn is_recording(&self) -> bool {
        !self.windows.is_empty()
    }

    /// Cause of the current recording.
    pub fn cause(&self) -> &str {
        self.windows.front().map_or("", |window| &window.cause)
    }

    /// Number of frames in the ring.
    pub fn kept(&self) -> usize {
        self.frames.len()
    }

    /// Returns the next step; with `has_ended` no further frames arrive.
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
        // Frames are in order: the next one starts at or after the end of the newest.
        if has_ended || self.now.is_some_and(|now| now >= until) {
            let lost = self.lost_in(from, until, self.lost);
            self.close();
            Step::Close { lost }
        } else {
            Step::Wait
        }
    }

    /// Returns how many of `lost` frames lie between the frame written last, in a window that opened at `from`, and
    /// the timestamp `until`.
    fn lost_in(&self, from: u64, until: u64, lost: u64) -> u64 {
        let missing = until.saturating_sub(self.written_until.max(from));
        lost.min(missing.div_ceil(self.samples_per_frame))
    }
}
