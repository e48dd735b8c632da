//! Live settings of a receiver, and the samples that are flagged while it is tuned.

use super::assembler::Layout;
use fxgraph::changes::{Change, Changes};
use fxgraph::{BlockError, Counter, FrameMut};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// New value of a live parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Setting {
    /// Centre frequency in Hz.
    CentreHz(f64),
    /// Gain in dB; `None`: the tuner controls it.
    GainDb(Option<f64>),
    /// Error of the oscillator that is corrected, in parts per million.
    Correction(i32),
}

/// State that the block and its thread share.
#[derive(Default)]
struct State {
    /// Settings that the receiver has not got.
    pending: Vec<Setting>,
    /// Timestamps of samples that are flagged, because the receiver was tuned.
    unsettled: Range<u64>,
}

/// The thread's side.
#[derive(Clone, Default)]
pub struct Tuning(Arc<Mutex<State>>);

impl Tuning {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the settings that the receiver has not got, each parameter once.
    pub fn pending(&self) -> Vec<Setting> {
        std::mem::take(&mut self.state().pending)
    }

    /// Timestamps of the samples that are flagged.
    #[cfg(test)]
    pub fn unsettled(&self) -> Range<u64> {
        self.state().unsettled.clone()
    }

    /// Flags samples up to timestamp `until`, from `since` on unless earlier ones are flagged already.
    pub fn settles(&self, since: Option<u64>, until: u64) {
        let mut state = self.state();
        let start = match since {
            Some(since) if state.unsettled.end > since => state.unsettled.start.min(since),
            since => since.unwrap_or(state.unsettled.start),
        };
        // A change that came meanwhile flags without an end.
        let is_open = state.pending.iter().any(|setting| matches!(setting, Setting::CentreHz(_)));
        state.unsettled = start..if is_open { u64::MAX } else { until };
    }
}

/// The block's side: passes settings on at their timestamps.
pub struct Settings {
    changes: Changes<Setting>,
    tuning: Tuning,
    /// Whether the thread can tune the receiver.
    has_tuner: bool,
    layout: Layout,
    unsettled: Counter,
}

impl Settings {
    /// Passes settings to `tuning`.
    pub fn new(tuning: Tuning, has_tuner: bool, layout: Layout, unsettled: Counter) -> Self {
        Self { changes: Changes::default(), tuning, has_tuner, layout, unsettled }
    }

    /// Schedules a live update.
    pub fn offer(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }

    /// Begins a frame: passes on the settings that become effective in it, and flags samples of the time of tuning.
    pub fn begin(&mut self, frame: &mut FrameMut) {
        let (start, samples) = (frame.header().timestamp, self.layout.samples as u64);
        let due = self.changes.begin(start, samples);
        if !self.has_tuner {
            return;
        }
        let mut state = self.tuning.state();
        for (from, setting) in due {
            if matches!(setting, Setting::CentreHz(_)) {
                let since = if state.unsettled.end > from { state.unsettled.start } else { from };
                state.unsettled = since..u64::MAX;
            }
            let same =
                |other: &Setting| std::mem::discriminant(other) == std::mem::discriminant(&setting);
            state.pending.retain(|other| !same(other));
            state.pending.push(setting);
        }
        let unsettled = state.unsettled.clone();
        drop(state);
        let within = |timestamp: u64| timestamp.clamp(start, start + samples) - start;
        let flagged = within(unsettled.start) as usize..within(unsettled.end) as usize;
        if flagged.is_empty() {
            return;
        }
        let heap = self.layout.heap;
        let (header, payload) = frame.parts_mut::<u8>().expect(fxgraph::ON_HOST);
        let heap_bytes = payload.len() / header.validity.len();
        for heap in flagged.start / heap..flagged.end.div_ceil(heap) {
            self.unsettled.add(u64::from(header.validity[heap]) * self.layout.heap as u64);
            header.validity[heap] = 0;
            payload[heap * heap_bytes..(heap + 1) * heap_bytes].fill(0);
        }
    }
}
