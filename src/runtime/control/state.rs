//! Live values that outlive the process: what a file must keep, and how a later run gets it back.

use super::live_update::Changed;
use super::{Control, LiveUpdateError};
use fxgraph_core::error::with_causes;
use fxgraph_core::event::EventKind;
use fxgraph_core::lock::lock;
use fxgraph_core::timelines::Place;
use fxgraph_flowgraph::request::Request;
use fxgraph_flowgraph::{
    Counting, LiveSetting, OTHER_VALUE, Plan, RestoredPlan, State, StreamPlace,
};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Largest difference, in seconds, between a stream and the place where it should be after a restart of the process.
const SAME_STREAM_SECONDS: f64 = 2.0;
/// Time limits for the turn to set restored values, and for the blocks to take them: the thread that saves waits for both.
const TURN: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(5);
/// Time from the first data of streams that count as a restored value does until the value has expired: another stream may
/// be the first one, and the host's clock may be set after the start of the machine.
const PATIENCE: Duration = Duration::from_secs(30);
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
    /// Ways of counting of the values that wait for which a stream has arrived, since when.
    arrived: Vec<(Counting, Instant)>,
    /// Whether restored values were dropped in this run.
    has_dropped: bool,
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

impl Inner {
    /// Notes for which of the values that wait a stream has arrived.
    fn note_arrived(&mut self, streams: &[StreamPlace]) {
        for StreamPlace { counting, .. } in streams {
            if !self.arrived.iter().any(|(known, _)| known == counting) {
                self.arrived.push((counting.clone(), Instant::now()));
            }
        }
    }

    /// Whether one of `streams` is where the stream of `value` should be.
    fn is_due(&self, value: &LiveSetting, streams: &[StreamPlace]) -> bool {
        streams_of(value, &self.streams).any(|before| {
            streams_of(value, streams).any(|now| before.leads_to(now, SAME_STREAM_SECONDS))
        })
    }

    fn has_expired(&self, value: &LiveSetting) -> bool {
        let arrived = self.arrived.iter().find(|(known, _)| value.counting.as_ref() == Some(known));
        arrived.is_some_and(|(_, since)| since.elapsed() >= PATIENCE)
    }

    /// Takes the values that `is_taken` from those that wait.
    fn take(&mut self, is_taken: impl Fn(&Self, &LiveSetting) -> bool) -> Vec<LiveSetting> {
        let waiting = std::mem::take(&mut self.waiting);
        let (taken, left) = waiting.into_iter().partition(|value| is_taken(self, value));
        self.waiting = left;
        taken
    }
}

impl Kept {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
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

    /// Notes that values of `parameters` of `block` were set, which values that wait do not replace.
    pub fn note_set(&self, block: &str, parameters: &[&'static str]) {
        let is_set = |value: &LiveSetting| {
            value.block == block && parameters.contains(&value.parameter.as_str())
        };
        self.lock().waiting.retain(|value| !is_set(value));
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
        if inner.authored.is_none() {
            return;
        }
        let replaced = inner.take(|_, value| !authored.has_replaced(value));
        inner.has_dropped |= !replaced.is_empty();
        inner.authored = Some(Arc::new(authored));
        drop(inner);
        for value in replaced {
            self.tell_not_restored(&value, OTHER_VALUE);
        }
        self.0.kept.note_change();
    }

    /// Notes `authored` like [`note_authored`](Self::note_authored), if the flowgraph has its live values; returns whether it
    /// has.
    pub fn note_if_applied(&self, authored: &Plan) -> bool {
        let (plan, scheduled) = self.in_force_and_scheduled();
        let is_applied = authored.name == plan.name
            && plan.live_settings(authored, &scheduled, self.registry()).is_empty();
        if is_applied {
            self.note_authored(authored.clone());
        }
        is_applied
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

    /// Whether restored values were dropped in this run, which the file had before.
    #[must_use]
    pub fn has_dropped_values(&self) -> bool {
        self.0.kept.lock().has_dropped
    }

    /// Sets the restored values whose stream has arrived and still counts as it did; drops those whose stream counts from
    /// another time. Both are events. Values that were set meanwhile stay as they are. While other changes are in
    /// progress, this is for the next call.
    pub fn release_restored(&self) {
        let streams = self.streams();
        let is_ready =
            |inner: &Inner, value: &_| inner.is_due(value, &streams) || inner.has_expired(value);
        {
            let mut inner = self.0.kept.lock();
            inner.note_arrived(&streams);
            if !inner.waiting.iter().any(|value| is_ready(&inner, value)) {
                return;
            }
        }
        let Ok(_turn) = self.begin_change(Instant::now() + TURN) else { return };
        let (due, expired) = {
            let mut inner = self.0.kept.lock();
            let due = inner.take(|inner, value| inner.is_due(value, &streams));
            (due, inner.take(Inner::has_expired))
        };
        for value in expired {
            let why = "its stream counts from another time, so that its timestamps have expired";
            self.drop_restored(&value, why);
        }
        let mut by_time: BTreeMap<Option<u64>, Vec<LiveSetting>> = BTreeMap::new();
        due.into_iter().for_each(|value| by_time.entry(value.at).or_default().push(value));
        let deadline = Instant::now() + LIMIT;
        let set = by_time.into_iter().map(|(at, values)| self.set_restored(at, &values, deadline));
        let again: Vec<_> = set.flatten().collect();
        self.0.kept.lock().waiting.extend(again);
        self.0.kept.note_change();
    }

    /// Notes new values of live parameters, which take effect at timestamp `at`.
    pub(super) fn note_set(&self, plan: &Plan, changed: &[Changed], at: u64) {
        for Changed { block, parameters, .. } in changed {
            self.0.kept.note_set(block, parameters);
        }
        self.lead_shadows(plan, changed, at);
    }

    /// Sets restored values that take effect at one timestamp; the caller holds the turn. Returns those to set again later.
    fn set_restored(
        &self,
        at: Option<u64>,
        values: &[LiveSetting],
        deadline: Instant,
    ) -> Vec<LiveSetting> {
        let mut request = serde_json::Map::new();
        for LiveSetting { block, parameter, value, .. } in values {
            let of_block = request.entry(block).or_insert_with(|| json!({}));
            of_block[parameter] = value.clone();
        }
        let request = Request::from(&Json::Object(request));
        match (self.live_update_alone(request, at, deadline), values) {
            (Ok(_), _) => {
                self.0.run().tell(EventKind::Restored, None, named(values));
                Vec::new()
            }
            (
                Err(error @ (LiveUpdateError::Rejected(_) | LiveUpdateError::Block { .. })),
                [value],
            ) => {
                self.drop_restored(value, &with_causes(&error));
                Vec::new()
            }
            (Err(error), [value]) if self.0.kept.lock().has_expired(value) => {
                self.drop_restored(value, &with_causes(&error));
                Vec::new()
            }
            // It is no fault of the value.
            (Err(_), [value]) => vec![value.clone()],
            // One of them is the reason.
            _ => {
                values.chunks(1).flat_map(|value| self.set_restored(at, value, deadline)).collect()
            }
        }
    }

    fn drop_restored(&self, value: &LiveSetting, why: &str) {
        self.0.kept.lock().has_dropped = true;
        self.tell_not_restored(value, why);
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn counting() -> Counting {
        Counting { adc_sample_rate_hz: 1e6, sync_time: "1970-01-01T00:00:00Z".to_owned() }
    }

    fn place(timestamp: u64, unix_seconds: f64) -> StreamPlace {
        StreamPlace { counting: counting(), timestamp, unix_seconds }
    }

    #[test]
    fn value_waits_for_its_stream_although_another_one_of_the_same_count_arrives_first() {
        let value = LiveSetting {
            block: "f".to_owned(),
            kind: "pfb".to_owned(),
            parameter: "delays".to_owned(),
            replaces: None,
            value: json!([]),
            at: None,
            counting: Some(counting()),
        };
        let mut inner = Inner {
            waiting: vec![value],
            streams: vec![place(5_000_000, 100.0)],
            ..Inner::default()
        };
        let restarted = [place(1_000_000, 110.0)];
        inner.note_arrived(&restarted);
        let due = |inner: &mut Inner, streams: &[StreamPlace]| {
            inner.take(|inner, value| inner.is_due(value, streams)).len()
        };
        assert_eq!(due(&mut inner, &restarted), 0);
        assert!(inner.take(Inner::has_expired).is_empty() && inner.waiting.len() == 1);
        assert_eq!(due(&mut inner, &[place(1_000_000, 110.0), place(15_000_000, 110.0)]), 1);
        assert!(inner.waiting.is_empty());
    }

    #[test]
    fn value_that_is_set_waits_no_longer() {
        let value = |parameter: &str| LiveSetting {
            block: "f".to_owned(),
            kind: "pfb".to_owned(),
            parameter: parameter.to_owned(),
            replaces: None,
            value: json!(1),
            at: Some(7),
            counting: Some(counting()),
        };
        let kept = Kept::default();
        kept.lock().waiting = vec![value("delays"), value("gains")];
        kept.note_set("g", &["delays"]);
        kept.note_set("f", &["delays"]);
        assert_eq!(kept.lock().waiting, [value("gains")]);
    }
}
