//! Events of all parts, in the order in which they were seen.

use fxgraph::lock::lock;
use fxgraph::runtime::EventKind;
use fxgraph_api::events::{EventInfo, EventList};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// Number of events that are kept.
const KEPT: usize = 4096;
/// Length at which texts of events are cut, in characters.
const TEXT: usize = 2000;

/// Newest events, numbered from 1 since the start of the fleet.
pub(super) struct Log {
    events: Mutex<Events>,
    last: watch::Sender<u64>,
}

#[derive(Default)]
struct Events {
    kept: VecDeque<EventInfo>,
    last: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self { events: Mutex::default(), last: watch::Sender::new(0) }
    }
}

impl Log {
    fn events(&self) -> MutexGuard<'_, Events> {
        lock(&self.events)
    }

    /// Adds events of `part`, which keep their numbers as `part_sequence`.
    pub fn add(&self, part: &str, mut new: Vec<EventInfo>) {
        for event in &mut new {
            event.part_sequence = Some(event.sequence);
        }
        self.push(part, new);
    }

    /// Numbers events, and adds them with `from` in front of their texts.
    fn push(&self, from: &str, new: Vec<EventInfo>) {
        if new.is_empty() {
            return;
        }
        let mut events = self.events();
        for mut event in new {
            events.last += 1;
            event.sequence = events.last;
            event.text = format!("{from}: {}", event.text).chars().take(TEXT).collect();
            event.block = event.block.map(|block| block.chars().take(TEXT).collect());
            event.kind = event.kind.chars().take(TEXT).collect();
            if events.kept.len() == KEPT {
                events.kept.pop_front();
            }
            events.kept.push_back(event);
        }
        self.last.send_replace(events.last);
    }

    /// Adds a warning of the fleet itself.
    pub fn warn(&self, text: &str) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let event = EventInfo {
            sequence: 0,
            part_sequence: None,
            unix_time_seconds: unix.as_secs_f64(),
            block: None,
            kind: EventKind::Warning.name().to_owned(),
            text: text.to_owned(),
        };
        self.push("fleet", vec![event]);
    }

    /// Events after number `since`. A number that has not been given is one of an earlier fleet: all events follow it.
    pub fn since(&self, since: u64) -> EventList {
        let events = self.events();
        let since = if since > events.last { 0 } else { since };
        let later = events.kept.iter().filter(|event| event.sequence > since);
        let later: Vec<EventInfo> = later.cloned().collect();
        EventList {
            last: events.last,
            forgotten: later.first().map_or(0, |event| event.sequence - since - 1),
            events: later,
        }
    }

    /// Waits for events after number `since`, and returns them.
    pub async fn next(&self, since: u64) -> EventList {
        let mut last = self.last.subscribe();
        // The sender lives as long as the log.
        let _ = last.wait_for(|last| *last != since).await;
        self.since(since)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn event(sequence: u64) -> EventInfo {
        let (kind, text) = ("started".to_owned(), "x".repeat(10_000));
        let (unix_time_seconds, part_sequence, block) = (1.0, None, None);
        EventInfo { sequence, part_sequence, unix_time_seconds, block, kind, text }
    }

    #[test]
    fn log_numbers_events_of_all_parts_and_forgets_the_oldest() {
        let log = Log::default();
        log.add("a", vec![event(7)]);
        log.add("b", vec![event(1)]);
        let list = log.since(1);
        assert_eq!((list.last, list.forgotten, list.events.len()), (2, 0, 1));
        assert!(list.events[0].text.starts_with("b: x"));
        assert_eq!(list.events[0].text.len(), TEXT);
        let numbers = |list: EventList| -> Vec<(u64, Option<u64>)> {
            list.events.iter().map(|event| (event.sequence, event.part_sequence)).collect()
        };
        log.warn("the parts do not agree");
        assert_eq!(numbers(log.since(0)), [(1, Some(7)), (2, Some(1)), (3, None)]);
        assert_eq!(log.since(99).events.len(), 3, "a number of an earlier fleet");
        log.add("a", (0..KEPT as u64).map(event).collect());
        let list = log.since(0);
        assert_eq!((list.events.len(), list.forgotten), (KEPT, 3));
    }
}
