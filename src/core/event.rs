//! Events of a run: a bounded, numbered log.

use crate::lock::lock;
use event_listener::Listener;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// Limit of the events that are kept; older ones are removed.
const KEPT: usize = 4096;

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Number of the event in the run, from 1, without gaps.
    pub sequence: u64,
    /// Wall-clock time.
    pub time: SystemTime,
    /// Name of the block, for an event of a block.
    pub block: Option<String>,
    /// Kind of event.
    pub kind: EventKind,
    /// Description with cause and values.
    pub text: String,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// All blocks have started.
    Started,
    /// A draining stop was requested by a user, or caused by a fault.
    Stopping,
    /// The run was aborted.
    Aborted,
    /// The run has ended.
    Ended,
    /// A block failed, and the run stops.
    Fault,
    /// A block failed and continues without the frame at work.
    Skipped,
    /// A block failed, was created again and continues.
    Restarted,
    /// Live parameters of blocks were changed.
    LiveUpdate,
    /// A block was swapped.
    Swapped,
    /// A swapped-in block failed, and the old block is back.
    RolledBack,
    /// A swap failed; the old block continues.
    NotSwapped,
    /// A frame of a shadow differs from that of its block.
    ShadowDiffers,
    /// A block counted missing or dropped data.
    DataLost,
    /// No frame has passed a block for many frame intervals.
    Stalled,
    /// Frames pass a stalled block again.
    Resumed,
    /// A sender is more than a second behind its schedule.
    FellBehind,
    /// A sender that was late is on schedule again.
    CaughtUp,
    /// A recorder has made a recording, or failed.
    // Recorders that trigger on this event would record forever.
    #[serde(skip_deserializing)]
    Recorded,
    /// Another flowgraph was requested and could not start.
    NotStarted,
    /// A block continues but needs the user's attention, for example because a recording was truncated or a
    /// file got another name.
    Warning,
    /// The sender of a stream was restarted with another sync time, and the stream continues.
    Resynchronised,
    /// The timestamps of a stream jumped ahead.
    TimeJumped,
    /// A sender of a stream sent a stop heap.
    SenderStopped,
    /// The stream of a source ended.
    StreamEnded,
    /// Live values of an earlier process were set, from the state file.
    Restored,
    /// Live values could not be written to the state file.
    NotSaved,
    /// A request for a live update, a swap or another flowgraph was rejected, or an edited flowgraph file.
    Rejected,
    /// Another flowgraph has replaced the running one while frames flowed.
    Updated,
    /// Another flowgraph could not replace the running one, which continues.
    NotUpdated,
    /// Edited kernels have replaced those of a program.
    KernelsReplaced,
    /// Edited kernels do not compile; the previous ones stay in use.
    KernelsRejected,
}

impl EventKind {
    /// Name in REST, metrics and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Stopping => "stopping",
            Self::Aborted => "aborted",
            Self::Ended => "ended",
            Self::Fault => "fault",
            Self::Skipped => "skipped",
            Self::Restarted => "restarted",
            Self::LiveUpdate => "live_update",
            Self::Swapped => "swapped",
            Self::RolledBack => "rolled_back",
            Self::NotSwapped => "not_swapped",
            Self::ShadowDiffers => "shadow_differs",
            Self::DataLost => "data_lost",
            Self::Stalled => "stalled",
            Self::Resumed => "resumed",
            Self::FellBehind => "fell_behind",
            Self::CaughtUp => "caught_up",
            Self::Recorded => "recorded",
            Self::NotStarted => "not_started",
            Self::Warning => "warning",
            Self::Resynchronised => "resynchronised",
            Self::TimeJumped => "time_jumped",
            Self::SenderStopped => "sender_stopped",
            Self::StreamEnded => "stream_ended",
            Self::Restored => "restored",
            Self::NotSaved => "not_saved",
            Self::Rejected => "rejected",
            Self::Updated => "updated",
            Self::NotUpdated => "not_updated",
            Self::KernelsReplaced => "kernels_replaced",
            Self::KernelsRejected => "kernels_rejected",
        }
    }
}

/// Called with every event.
type Watch = Box<dyn Fn(&Event) + Send + Sync>;

/// Log of the events of a run.
#[derive(Default)]
pub struct Events {
    log: Mutex<Log>,
    added: event_listener::Event,
    watcher: OnceLock<Watch>,
}

#[derive(Default)]
struct Log {
    kept: VecDeque<Event>,
    count: u64,
}

impl Events {
    fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.log)
    }

    /// Sets a function that is called with every event, on the thread that adds the event. Only the first call has an
    /// effect.
    pub fn watch(&self, watch: impl Fn(&Event) + Send + Sync + 'static) {
        let _ = self.watcher.set(Box::new(watch));
    }

    /// Adds an event, of `block` if given.
    pub fn add(&self, kind: EventKind, block: Option<&str>, text: impl Into<String>) {
        let (block, text) = (block.map(str::to_owned), text.into());
        let mut log = self.log();
        log.count += 1;
        let sequence = log.count;
        if log.kept.len() == KEPT {
            log.kept.pop_front();
        }
        let event = Event { sequence, time: SystemTime::now(), block, kind, text };
        log.kept.push_back(event.clone());
        drop(log);
        if let Some(watch) = self.watcher.get() {
            watch(&event);
        }
        self.added.notify(usize::MAX);
    }

    /// Returns the kept events with numbers above `sequence`.
    pub fn since(&self, sequence: u64) -> Vec<Event> {
        let log = self.log();
        let known = sequence.saturating_sub(log.count - log.kept.len() as u64);
        log.kept.range((known as usize).min(log.kept.len())..).cloned().collect()
    }

    /// [`since`](Self::since), waiting up to `timeout` for the first event.
    pub fn wait(&self, sequence: u64, timeout: Duration) -> Vec<Event> {
        // A timeout beyond the range of the clock is no limit.
        let deadline = Instant::now().checked_add(timeout);
        loop {
            // Listen before checking, so that an event in between is not missed.
            let listener = self.added.listen();
            let found = self.since(sequence);
            if !found.is_empty() {
                return found;
            }
            let Some(deadline) = deadline else {
                listener.wait();
                continue;
            };
            if listener.wait_deadline(deadline).is_none() {
                return Vec::new();
            }
        }
    }

    /// [`since`](Self::since), waiting for the first event.
    pub async fn next(&self, sequence: u64) -> Vec<Event> {
        loop {
            let listener = self.added.listen();
            let found = self.since(sequence);
            if !found.is_empty() {
                return found;
            }
            listener.await;
        }
    }
}

/// Adds events of one block. Cheap to clone; may be used from any thread.
///
/// Events of a block that is not in its slot (a candidate of a swap, a shadow, a block in a test) are
/// discarded.
#[derive(Clone, Default)]
pub struct BlockEvents(Arc<Mutex<Option<Target>>>);

/// Events of the run, and name of the block in the flowgraph.
pub type Target = (Arc<Events>, String);

impl BlockEvents {
    /// Adds an event of the block.
    pub fn add(&self, kind: EventKind, text: impl Into<String>) {
        let target = lock(&self.0).clone();
        if let Some((events, block)) = target {
            events.add(kind, Some(&block), text);
        }
    }

    /// Whether the block is in its slot.
    #[must_use]
    pub fn is_in_slot(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// Sets the target of events; returns the previous one.
    // Only a swap needs the previous one.
    #[allow(clippy::must_use_candidate)]
    pub fn redirect(&self, target: Option<Target>) -> Option<Target> {
        std::mem::replace(&mut *lock(&self.0), target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(events: &[Event]) -> Vec<u64> {
        events.iter().map(|event| event.sequence).collect()
    }

    #[test]
    fn events_are_numbered_from_1_and_old_ones_are_removed() {
        let events = Events::default();
        assert_eq!(events.since(0), []);
        for _ in 0..KEPT + 3 {
            events.add(EventKind::Fault, Some("a"), "x");
        }
        let last = KEPT as u64 + 3;
        assert_eq!(numbers(&events.since(last - 2)), [last - 1, last]);
        assert_eq!(events.since(0).len(), KEPT);
        assert_eq!(events.since(0)[0].sequence, 4);
        assert_eq!(events.since(last + 10), []);
    }

    #[test]
    fn event_kinds_have_one_name_and_all_but_recorded_deserialize() {
        let schema = serde_json::to_value(schemars::schema_for!(EventKind)).unwrap_or_default();
        let named = schema["oneOf"].as_array().into_iter().flatten();
        let names: Vec<&serde_json::Value> = named.map(|kind| &kind["const"]).collect();
        for name in &names {
            let kind: EventKind = serde_json::from_value((*name).clone()).expect("a kind");
            assert_eq!(kind.name(), *name);
        }
        assert_eq!(names.len(), 30);
        let recorded = serde_json::from_value::<EventKind>("recorded".into());
        assert!(recorded.is_err(), "{recorded:?}");
    }

    #[test]
    fn block_events_carry_the_block_name_and_are_discarded_without_a_slot() {
        let (events, block) = (Arc::new(Events::default()), BlockEvents::default());
        block.add(EventKind::DataLost, "before the block has its slot");
        block.clone().redirect(Some((Arc::clone(&events), "f[0].source".to_owned())));
        block.add(EventKind::DataLost, "x");
        assert!(block.redirect(None).is_some());
        block.add(EventKind::DataLost, "after the block has left its slot");
        let found = events.since(0);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].block.as_deref(), Some("f[0].source"));
    }

    #[test]
    fn wait_returns_next_event_or_times_out() {
        let events = Events::default();
        assert_eq!(events.wait(0, Duration::from_millis(5)), []);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| events.wait(0, Duration::from_mins(1)));
            let listening = scope.spawn(|| async_io::block_on(events.next(0)));
            std::thread::sleep(Duration::from_millis(5));
            events.add(EventKind::Started, None, "");
            assert_eq!(waiting.join().ok().map(|found| numbers(&found)), Some(vec![1]));
            assert_eq!(listening.join().ok().map(|found| numbers(&found)), Some(vec![1]));
        });
    }
}
