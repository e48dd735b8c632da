//! Tests of the `on_fault` policies.

use super::*;
use crate::State;
use fxgraph_core::event::EventKind;

/// Block that passes frames on, and fails at the timestamps in `at`.
struct Faulty {
    at: &'static [u64],
    fault: fn(u64) -> Result<Next, BlockError>,
    /// Peeks at a frame before consuming it.
    peeks: bool,
    log: Log,
}

impl Block for Faulty {
    fn start(&mut self) -> Result<(), BlockError> {
        self.log.0.lock().unwrap().push("start".to_owned());
        Ok(())
    }
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.inputs[0].queued() > 0 {
            let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
            let time = io.inputs[0].peek().unwrap().header().timestamp;
            if !self.peeks {
                io.inputs[0].pop();
            }
            if self.at.contains(&time) {
                return (self.fault)(time);
            }
            if self.peeks {
                io.inputs[0].pop();
            }
            output.header_mut().timestamp = time;
            io.outputs[0].push(output);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
    fn finish(&mut self) -> Result<(), BlockError> {
        self.log.0.lock().unwrap().push("finish".to_owned());
        Ok(())
    }
}

/// Timestamps and sequence numbers after a faulty block, the report, the events, and the calls of the
/// block.
type Seen = (Vec<(u64, u64)>, Report, Vec<(EventKind, String)>, Vec<String>);

fn run(
    policy: OnFault,
    can_rebuild: bool,
    at: &'static [u64],
    peeks: bool,
    fault: fn(u64) -> Result<Next, BlockError>,
) -> Seen {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(40));
    let log = Log::default();
    let calls = log.clone();
    let make =
        move || -> Box<dyn Block> { Box::new(Faulty { at, fault, peeks, log: log.clone() }) };
    let mid = net.add_block("mid", &[src], 1, make());
    net.parts[mid].on_fault = policy;
    net.parts[mid].rebuild =
        can_rebuild.then(|| -> crate::Rebuild { Arc::new(move |_| Ok(make())) });
    let seen = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::clone(&seen);
    net.add("out", &[mid], 0, move |io| {
        while let Some(frame) = io.inputs[0].pop() {
            inside.lock().unwrap().push((frame.header().timestamp, frame.header().sequence));
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    });
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    let report = ended(running);
    let events = handle.events_since(0).into_iter().map(|event| (event.kind, event.text));
    let events = events.collect();
    (seen.lock().unwrap().clone(), report, events, calls.0.lock().unwrap().clone())
}

fn broken(time: u64) -> Result<Next, BlockError> {
    Err(BlockError::new(format!("frame {time} is odd")))
}

/// Timestamps of 40 frames without those in `lost`, with sequence numbers without gaps.
fn all_but(lost: &[u64]) -> Vec<(u64, u64)> {
    (0..40).filter(|time| !lost.contains(time)).zip(0..).collect()
}

#[test]
fn skip_drops_counts_and_reports_only_the_failed_frame() {
    let (seen, report, events, calls) = run(OnFault::Skip, true, &[3, 7, 8], false, broken);
    assert_eq!(seen, all_but(&[3, 7, 8]));
    assert!(report.failures.is_empty());
    let stats = &report.stats[1];
    assert_eq!((stats.faults, stats.restarts, stats.state), (3, 0, State::Finished));
    assert_eq!(stats.last_fault.as_ref().unwrap().cause, "frame 8 is odd");
    let skipped = (EventKind::Skipped, "failed: frame 3 is odd".to_owned());
    assert_eq!(events.iter().filter(|event| event.0 == EventKind::Skipped).count(), 1);
    assert!(events.contains(&skipped), "one event a second: {events:?}");
    assert_eq!(calls, ["start", "finish"]);
}

#[test]
fn skip_of_a_block_that_fails_before_it_consumes_drops_the_frame() {
    let (seen, report, ..) = run(OnFault::Skip, true, &[3, 7], true, broken);
    assert_eq!(seen, all_but(&[3, 7]));
    assert!(report.failures.is_empty());
    assert!(report.stats[1].faults >= 4, "two faults at each frame");
}

#[test]
fn skip_of_a_fault_after_the_last_frame_ends_the_block() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(5));
    let mid = net.add("mid", &[src], 0, |io| {
        while io.inputs[0].pop().is_some() {}
        if io.inputs[0].ended() { Err(BlockError::new("cannot flush")) } else { Ok(Next::Wait) }
    });
    net.parts[mid].on_fault = OnFault::Skip;
    let report = net.run(TWO_WORKERS);
    assert!(report.failures.is_empty());
    assert_eq!(report.stats[1].faults, 1);
}

#[test]
fn block_is_recreated_after_a_panic_with_skip_and_restart() {
    for policy in [OnFault::Skip, OnFault::Restart] {
        let (seen, report, events, calls) =
            run(policy, true, &[9], false, |time| panic!("no frame {time}"));
        assert_eq!(seen, all_but(&[9]));
        assert!(report.failures.is_empty());
        assert_eq!((report.stats[1].faults, report.stats[1].restarts), (1, 1));
        assert!(events.contains(&(EventKind::Restarted, "panicked: no frame 9".to_owned())));
        assert_eq!(calls, ["start", "finish", "start", "finish"]);
    }
}

#[test]
fn restarted_block_continues_with_the_next_frame_and_sequence_number() {
    let (seen, report, ..) = run(OnFault::Restart, true, &[0, 20], false, broken);
    assert_eq!(seen, all_but(&[0, 20]));
    assert!(report.failures.is_empty());
    assert_eq!(report.stats[1].restarts, 2);
}

#[test]
fn sixth_fault_within_a_minute_stops_the_run() {
    const ALL: &[u64] = &[1, 2, 3, 4, 5, 6, 7, 8];
    let (seen, report, _, calls) = run(OnFault::Restart, true, ALL, false, broken);
    assert_eq!(seen, [(0, 0)]);
    assert_eq!(
        report.failures[0].to_string(),
        "`mid` failed: frame 6 is odd; gave up after 5 restarts within a minute"
    );
    assert_eq!(calls.iter().filter(|call| *call == "start").count(), 6);
}

#[test]
fn block_that_cannot_be_recreated_stops_the_run_with_both_causes() {
    let (_, report, ..) = run(OnFault::Skip, false, &[2], false, |_| panic!("out of range"));
    assert_eq!(
        report.failures[0].to_string(),
        "`mid` panicked: out of range; cannot be restarted: a fresh block cannot continue where \
         this one ended"
    );
}
