//! `on_fault`: what becomes of a block that failed.

use super::*;
use crate::State;
use fxgraph_core::event::EventKind;

/// Passes frames on, and fails at those of these timestamps.
struct Faulty {
    at: &'static [u64],
    fault: fn(u64) -> Result<Next, BlockError>,
    /// Looks before it takes.
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

/// Timestamps and sequence numbers behind a faulty block, the report, the events, and what was
/// called of the block.
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

/// All of 40 frames but these, with sequence numbers without gaps.
fn all_but(lost: &[u64]) -> Vec<(u64, u64)> {
    (0..40).filter(|time| !lost.contains(time)).zip(0..).collect()
}

#[test]
fn a_skipped_frame_is_lost_counted_and_told_of_and_nothing_else_is() {
    let (seen, report, events, calls) = run(OnFault::Skip, true, &[3, 7, 8], false, broken);
    assert_eq!(seen, all_but(&[3, 7, 8]));
    assert!(report.failures.is_empty());
    let stats = &report.stats[1];
    assert_eq!((stats.faults, stats.restarts, stats.state), (3, 0, State::Finished));
    assert_eq!(stats.last_fault.as_ref().unwrap().cause, "frame 8 is odd");
    let skipped = (EventKind::Skipped, "failed: frame 3 is odd".to_owned());
    assert_eq!(events.iter().filter(|event| event.0 == EventKind::Skipped).count(), 1);
    assert!(events.contains(&skipped), "one in a second is told of: {events:?}");
    assert_eq!(calls, ["start", "finish"]);
}

#[test]
fn a_block_that_fails_before_it_takes_its_frame_does_not_fail_at_it_for_ever() {
    let (seen, report, ..) = run(OnFault::Skip, true, &[3, 7], true, broken);
    assert_eq!(seen, all_but(&[3, 7]));
    assert!(report.failures.is_empty());
    assert!(report.stats[1].faults >= 4, "it failed twice at each");
}

#[test]
fn a_block_that_fails_at_its_end_ends() {
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
fn after_a_panic_the_block_is_built_anew_with_either_policy() {
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
fn a_restarted_block_goes_on_with_the_next_frame_and_the_next_number() {
    let (seen, report, ..) = run(OnFault::Restart, true, &[0, 20], false, broken);
    assert_eq!(seen, all_but(&[0, 20]));
    assert!(report.failures.is_empty());
    assert_eq!(report.stats[1].restarts, 2);
}

#[test]
fn a_block_that_fails_again_and_again_stops_the_run_with_its_cause() {
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
fn a_block_that_cannot_be_rebuilt_stops_the_run_with_both_causes() {
    let (_, report, ..) = run(OnFault::Skip, false, &[2], false, |_| panic!("out of range"));
    assert_eq!(
        report.failures[0].to_string(),
        "`mid` panicked: out of range; cannot be restarted: a fresh block cannot continue where \
         this one ended"
    );
}
