//! Live values that outlive the process: what a file must keep, and how a later run gets it back.

use super::Control;
use fxgraph_core::error::with_causes;
use fxgraph_core::event::EventKind;
use fxgraph_core::timelines::Place;
use fxgraph_flowgraph::request::Request;
use fxgraph_flowgraph::{Counting, LiveSetting, Plan, RestoredPlan, State, StreamPlace};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Largest difference, in seconds, between a stream and the place where it should be after a restart of the process.
const SAME_STREAM_SECONDS: f64 = 2.0;
/// Time limit for a restored value, in which other changes may be in progress.
const LIMIT: Duration = Duration::from_secs(30);
/// Number of values that a text names.
const NAMED: usize = 8;

/// Live values of a process that are kept in a file.
#[derive(Default)]
pub(super) struct Kept {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Number of changes of the flowgraph.
    changes: u64,
    /// The flowgraph as its file has it; `None` if no values are kept.
    authored: Option<Arc<Plan>>,
    /// Restored values that wait for their stream, and the streams as they were.
    waiting: Vec<LiveSetting>,
    streams: Vec<StreamPlace>,
    saving: Saving,
    /// Time of the oldest change that the file does not have.
    unsaved: Option<Instant>,
    /// Whether the last attempt to write the file failed.
    is_failing: bool,
}

/// Statistics of the file with live values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saving {
    /// Number of times that the file was written.
    pub writes: u64,
    /// Number of failed attempts.
    pub failures: u64,
    /// Time since the oldest change that the file does not have.
    pub behind: Duration,
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a change of the flowgraph.
    pub fn note_change(&self) {
        let mut inner = self.lock();
        inner.changes += 1;
        if inner.authored.is_some() {
            inner.unsaved.get_or_insert_with(Instant::now);
        }
        self.changed.notify_all();
    }
}

impl Control {
    /// Keeps the live values in which the flowgraph differs from `authored`, the flowgraph as its file has it: from now on
    /// [`live_state`](Self::live_state) returns them. `restored` has the values of the `before` process.
    pub fn keep_live_values(&self, authored: Plan, restored: Option<(RestoredPlan, State)>) {
        let mut told = Vec::new();
        let mut inner = self.0.kept.lock();
        inner.authored = Some(Arc::new(authored));
        if let Some((restored, State { time, streams, .. })) = restored {
            if !restored.values.is_empty() {
                let text = format!("{} as of {time}", named(&restored.values));
                told.push((EventKind::Restored, None, text));
            }
            if !restored.waiting.is_empty() {
                let waiting = named(&restored.waiting);
                let text =
                    format!("{waiting} as of {time}: wait for the first data of their stream");
                told.push((EventKind::Restored, None, text));
            }
            for (value, why) in restored.dropped {
                told.push((
                    EventKind::Warning,
                    Some(value.block.clone()),
                    not_restored(&value, &why),
                ));
            }
            (inner.waiting, inner.streams) = (restored.waiting, streams);
        }
        drop(inner);
        for (kind, block, text) in told {
            self.0.run().tell(kind, block.as_deref(), text);
        }
        self.0.kept.note_change();
    }

    /// Notes that the file of the flowgraph has become `authored`, which was applied.
    pub fn note_authored(&self, authored: Plan) {
        let mut inner = self.0.kept.lock();
        if inner.authored.is_some() {
            inner.authored = Some(Arc::new(authored));
        }
        drop(inner);
        self.0.kept.note_change();
    }

    /// Waits up to `timeout` for a change after the number `seen`; returns the number of the newest one.
    #[must_use]
    pub fn wait_changed(&self, seen: u64, timeout: Duration) -> u64 {
        let kept = &self.0.kept;
        let is_same = |inner: &mut Inner| inner.changes == seen;
        let waited = kept.changed.wait_timeout_while(kept.lock(), timeout, is_same);
        waited.unwrap_or_else(PoisonError::into_inner).0.changes
    }

    /// Ends a [wait for a change](Self::wait_changed).
    pub fn request_save(&self) {
        self.0.kept.note_change();
    }

    /// Live values to keep for the next process; `None` without
    /// [`keep_live_values`](Self::keep_live_values).
    #[must_use]
    pub fn live_state(&self) -> Option<State> {
        let (mut values, mut streams) = (self.settings(), self.streams());
        let inner = self.0.kept.lock();
        // The values refer to the file, which a flowgraph of another name may have replaced meanwhile.
        let name = inner.authored.as_ref()?.name.clone();
        let is_set = |waiting: &&LiveSetting| values.iter().any(|set| is_same(set, waiting));
        let waiting: Vec<_> =
            inner.waiting.iter().filter(|waiting| !is_set(waiting)).cloned().collect();
        // Values that wait refer to the streams as they were.
        streams.retain(|stream| !waiting.iter().any(|value| counts_as(value, stream)));
        let were = inner.streams.iter();
        streams.extend(were.filter(|were| waiting.iter().any(|v| counts_as(v, were))).cloned());
        values.extend(waiting);
        streams.retain(|stream| values.iter().any(|value| counts_as(value, stream)));
        Some(State::new(&name, values, streams))
    }

    /// Live values of the flowgraph that its file does not have.
    fn settings(&self) -> Vec<LiveSetting> {
        let Some(authored) = self.0.kept.lock().authored.clone() else { return Vec::new() };
        let (plan, scheduled) = self.in_force_and_scheduled();
        plan.live_settings(&authored, &scheduled, self.registry())
    }

    /// Places of the live streams of the flowgraph.
    fn streams(&self) -> Vec<StreamPlace> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let stream = |place: Place| StreamPlace {
            counting: Counting {
                adc_sample_rate_hz: place.adc_sample_rate_hz,
                sync_time: place.sync_time.unwrap_or_default().to_string(),
            },
            timestamp: place.timestamp,
            unix_seconds: now - place.at.elapsed().as_secs_f64(),
        };
        self.plan().overloads.timelines().places().into_iter().map(stream).collect()
    }

    /// Whether restored values wait for their stream.
    #[must_use]
    pub fn has_waiting_values(&self) -> bool {
        !self.0.kept.lock().waiting.is_empty()
    }

    /// Sets the restored values whose stream has arrived and still counts as it did; drops those whose stream counts from
    /// another time. Both are events. Values that were set meanwhile stay as they are.
    pub fn release_restored(&self) {
        let deadline = Instant::now() + LIMIT;
        let Ok(_turn) = self.begin_change(deadline) else { return };
        let streams = self.streams();
        let set = self.settings();
        let (mut due, known) = {
            let mut inner = self.0.kept.lock();
            inner.waiting.retain(|value| !set.iter().any(|set| is_same(set, value)));
            let has_arrived =
                |value: &mut LiveSetting| streams_of(value, &streams).next().is_some();
            let due: Vec<_> = inner.waiting.extract_if(.., has_arrived).collect();
            (due, inner.streams.clone())
        };
        if due.is_empty() {
            return;
        }
        let is_same_stream = |value: &LiveSetting| {
            streams_of(value, &known).any(|before| {
                streams_of(value, &streams).any(|now| before.leads_to(now, SAME_STREAM_SECONDS))
            })
        };
        for value in due.extract_if(.., |value| !is_same_stream(value)) {
            let why = "its stream counts from another time, so that its timestamps have expired";
            self.tell_not_restored(&value, why);
        }
        let mut by_time: BTreeMap<Option<u64>, Vec<LiveSetting>> = BTreeMap::new();
        due.into_iter().for_each(|value| by_time.entry(value.at).or_default().push(value));
        for (at, values) in by_time {
            self.set_restored(at, &values, deadline);
        }
        self.0.kept.note_change();
    }

    /// Sets restored values that take effect at one timestamp; the caller holds the turn.
    fn set_restored(&self, at: Option<u64>, values: &[LiveSetting], deadline: Instant) {
        let mut request = serde_json::Map::new();
        for LiveSetting { block, parameter, value, .. } in values {
            let of_block = request.entry(block).or_insert_with(|| json!({}));
            of_block[parameter] = value.clone();
        }
        let request = Request::from(&Json::Object(request));
        match (self.retune_alone(request, at, deadline), values) {
            (Ok(_), _) => self.0.run().tell(EventKind::Restored, None, named(values)),
            (Err(error), [value]) => self.tell_not_restored(value, &with_causes(&error)),
            // One of them is the reason.
            _ => values.chunks(1).for_each(|value| self.set_restored(at, value, deadline)),
        }
    }

    fn tell_not_restored(&self, value: &LiveSetting, why: &str) {
        self.0.run().tell(EventKind::Warning, Some(&value.block), not_restored(value, why));
    }

    /// Notes that the file has the values of change number `seen`, or the reason why it was not written. The first one of
    /// several failures is an event.
    pub fn note_saved(&self, seen: u64, saved: Result<(), &str>) {
        let mut inner = self.0.kept.lock();
        let was_failing = std::mem::replace(&mut inner.is_failing, saved.is_err());
        match saved {
            Ok(()) => {
                inner.saving.writes += 1;
                inner.unsaved = (inner.changes != seen).then(Instant::now);
            }
            Err(_) => inner.saving.failures += 1,
        }
        drop(inner);
        if let Some(why) = saved.err().filter(|_| !was_failing) {
            self.0.run().tell(EventKind::NotSaved, None, why.to_owned());
        }
    }

    /// Statistics of the file with live values; `None` without one.
    #[must_use]
    pub fn saving(&self) -> Option<Saving> {
        let inner = self.0.kept.lock();
        inner.authored.as_ref()?;
        let behind = inner.unsaved.map_or(Duration::ZERO, |since| since.elapsed());
        Some(Saving { behind, ..inner.saving.clone() })
    }
}

/// Whether both are values of the same parameter.
fn is_same(one: &LiveSetting, other: &LiveSetting) -> bool {
    (&one.block, &one.parameter) == (&other.block, &other.parameter)
}

/// Whether the timestamps of `value` may be those of `stream`.
fn counts_as(value: &LiveSetting, stream: &StreamPlace) -> bool {
    value.counting.as_ref() == Some(&stream.counting)
}

fn streams_of<'a>(
    value: &LiveSetting,
    streams: &'a [StreamPlace],
) -> impl Iterator<Item = &'a StreamPlace> {
    streams.iter().filter(|stream| counts_as(value, stream))
}

fn not_restored(value: &LiveSetting, why: &str) -> String {
    let at = value.at.map_or(String::new(), |at| format!(" scheduled for timestamp {at}"));
    format!("the live value of `{}`{at} was not restored: {why}", value.parameter)
}

/// Names of values, the first ones of many.
fn named(values: &[LiveSetting]) -> String {
    let names = values.iter().take(NAMED).map(|value| match value.at {
        Some(at) => format!("`{}` (from timestamp {at} on)", value.name()),
        None => format!("`{}`", value.name()),
    });
    let mut text = names.collect::<Vec<_>>().join(", ");
    if values.len() > NAMED {
        text.push_str(&format!(" and {} more", values.len() - NAMED));
    }
    text
}
