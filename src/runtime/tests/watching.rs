//! Tests of monitoring a run, and of commands to its blocks.

use super::*;
use crate::{Prepared, RunState, State, Unanswered};
use fxgraph_core::event::EventKind;

fn kinds(events: &[fxgraph_core::event::Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

const LIMIT: Duration = Duration::from_mins(1);

#[test]
fn handle_shows_states_and_events_of_a_run() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(u64::MAX));
    net.add("out", &[src], 0, Seen::default().sink());
    let prepared = Prepared::new(net.assembly()).unwrap();
    let handle = prepared.handle();
    assert_eq!(handle.state(), RunState::Prepared);
    let running = prepared.start(TWO_WORKERS).unwrap();
    assert_eq!(handle.state(), RunState::Running);
    running.request_stop();
    running.request_stop();
    let report = ended(running);
    assert_eq!(handle.state(), RunState::Ended);
    assert_eq!(handle.elapsed(), report.elapsed);
    let events = handle.events_since(0);
    assert_eq!(kinds(&events), [EventKind::Started, EventKind::Stopping, EventKind::Ended]);
    assert_eq!(events[2].sequence, 3);
    handle.abort();
    assert_eq!(handle.events_since(3), [], "no events after the end");
}

#[test]
fn fault_is_an_event_with_block_and_cause() {
    let mut net = Net::default();
    net.add("bad", &[], 0, |_| Err(BlockError::new("cable pulled")));
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    ended(running);
    assert_eq!(handle.state(), RunState::Failed);
    let events = handle.events_since(0);
    let fault = events.iter().find(|event| event.kind == EventKind::Fault).unwrap();
    assert_eq!((fault.block.as_deref(), &*fault.text), (Some("bad"), "failed: cable pulled"));
    assert_eq!(events.last().unwrap().text, "a block failed");
    let stats = handle.stats();
    assert_eq!(stats[0].last_fault.as_ref().unwrap().cause, "cable pulled");
    assert_eq!((stats[0].faults, stats[0].restarts), (1, 0));
}

#[test]
fn missing_data_are_reported_before_the_end_event() {
    let mut net = Net::default();
    let counters = Counters::default();
    let lost = counters.loss("late_packets_total", "packets that arrived too late");
    let counts = Box::new(move || {
        lost.add(3);
        Ok(())
    });
    let receiver = net.hooks("receiver", Box::new(|| Ok(())), counts);
    net.parts[receiver].counters = counters;
    let running = start(net.assembly(), ONE_WORKER).unwrap();
    let handle = running.handle();
    ended(running);
    let events = handle.events_since(0);
    assert_eq!(kinds(&events), [EventKind::Started, EventKind::DataLost, EventKind::Ended]);
    let told = (events[1].block.as_deref(), &*events[1].text);
    assert_eq!(told, (Some("receiver"), "3 late_packets_total"));
}

#[test]
fn run_that_could_not_start_has_failed() {
    let mut net = Net::default();
    let cause = || Err(BlockError::new("udp port 7148 is in use"));
    net.hooks("bad", Box::new(cause), Box::new(|| Ok(())));
    let prepared = Prepared::new(net.assembly()).unwrap();
    let handle = prepared.handle();
    assert!(prepared.start(ONE_WORKER).is_err());
    assert_eq!(handle.state(), RunState::Failed);
    assert_eq!(
        kinds(&handle.events_since(0)),
        [EventKind::Fault, EventKind::Stopping, EventKind::Ended]
    );
}

#[test]
fn command_to_a_block_runs_between_two_calls_of_work() {
    let mut net = Net::default();
    let works = Arc::new(AtomicU64::new(0));
    let inside = Arc::clone(&works);
    let src = net.add("src", &[], 1, source(u64::MAX));
    net.add("out", &[src], 0, move |io| {
        inside.fetch_add(1, Ordering::SeqCst);
        while io.inputs[0].pop().is_some() {}
        inside.fetch_add(1, Ordering::SeqCst);
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    });
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    for _ in 0..1000 {
        let works = Arc::clone(&works);
        let seen = handle
            .ask("out", LIMIT, move |hosted| (hosted.inputs.len(), works.load(Ordering::SeqCst)));
        let (inputs, works) = seen.unwrap();
        assert_eq!((inputs, works % 2), (1, 0));
    }
    let nobody = handle.ask("nobody", LIMIT, |_| ());
    assert_eq!(nobody.unwrap_err().to_string(), "there is no block `nobody`");
    running.request_stop();
    ended(running);
    assert_eq!(handle.ask("out", LIMIT, |_| ()), Err(Unanswered::Ended("out".to_owned())));
}

#[test]
fn command_past_its_time_limit_does_not_run_later() {
    let (go, wait) = std::sync::mpsc::channel();
    let mut net = Net::default();
    let at = Arc::new(AtomicU64::new(0));
    let inside = Arc::clone(&at);
    net.add("slow", &[], 0, move |io| {
        if inside.fetch_add(1, Ordering::SeqCst) == 0 {
            wait.recv().unwrap();
        }
        Ok(if io.stopping { Next::Finished } else { Next::Wait })
    });
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    reach(&at, 1);
    let done = Arc::new(AtomicU64::new(0));
    let count = |done: &Arc<AtomicU64>| {
        let done = Arc::clone(done);
        move |_: &mut crate::Hosted| done.fetch_add(1, Ordering::SeqCst)
    };
    let limit = Duration::from_millis(10);
    let error = handle.ask("slow", limit, count(&done)).unwrap_err();
    assert_eq!(error.to_string(), "`slow` did not finish its frame within 0.01 s");
    go.send(()).unwrap();
    assert_eq!(handle.ask("slow", LIMIT, count(&done)), Ok(0), "only this command ran");
    running.request_stop();
    ended(running);
}

#[test]
fn panic_in_a_command_is_a_fault_of_the_block() {
    let mut net = Net::default();
    net.add("src", &[], 0, |io| Ok(if io.stopping { Next::Finished } else { Next::Wait }));
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    let answer = handle.ask("src", LIMIT, |_| panic!("no such gain"));
    assert_eq!(answer, Err(Unanswered::Ended("src".to_owned())));
    assert_eq!(ended(running).failures[0].to_string(), "`src` panicked: no such gain");
}

#[test]
fn block_without_frames_is_stalled_until_frames_pass_again() {
    let mut net = Net::default();
    let released = Arc::new(AtomicU64::new(0));
    let is_released = Arc::clone(&released);
    let mut next = 0;
    let src = net.add("src", &[], 1, move |io| {
        if io.stopping {
            return Ok(Next::Finished);
        }
        if next == 5 && is_released.load(Ordering::SeqCst) == 0 {
            return Ok(Next::After(Duration::from_millis(5)));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        frame.header_mut().timestamp = 16 * next;
        io.outputs[0].push(frame);
        next += 1;
        Ok(Next::After(Duration::from_millis(1)))
    });
    net.add("out", &[src], 0, Seen::default().sink());
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    handle.watch_losses();
    let until = |done: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !done() {
            assert!(began.elapsed() < LIMIT, "{:?}", handle.events_since(0));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let told = |kind| {
        let events = handle.events_since(0).into_iter();
        events.filter(|event| event.kind == kind).find_map(|event| event.block)
    };
    until(&|| handle.stats().iter().all(|stats| stats.state == State::Stalled));
    assert_eq!(told(EventKind::Stalled).as_deref(), Some("src"), "the sink waits for the source");
    let lags: Vec<_> = handle.stats().iter().map(|stats| stats.lag_seconds).collect();
    assert!(lags.iter().all(|lag| lag.is_some_and(|lag| lag > 0.9)), "{lags:?}");
    released.store(1, Ordering::SeqCst);
    until(&|| told(EventKind::Resumed).is_some());
    assert_eq!(told(EventKind::Resumed).as_deref(), Some("src"));
    until(&|| handle.stats().iter().all(|stats| stats.state == State::Running));
    running.request_stop();
    ended(running);
    assert_eq!(handle.stats()[0].lag_seconds, None, "a block that has ended does not lag");
}

#[test]
fn block_that_consumes_but_does_not_push_is_stalled_until_it_pushes() {
    let mut net = Net::default();
    let released = Arc::new(AtomicU64::new(0));
    let is_released = Arc::clone(&released);
    let mut next = 0;
    let src = net.add("src", &[], 1, move |io| {
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        frame.header_mut().timestamp = 16 * next;
        io.outputs[0].push(frame);
        next += 1;
        Ok(if io.stopping { Next::Finished } else { Next::After(Duration::from_millis(1)) })
    });
    let swallow = net.add("swallow", &[src], 1, move |io| {
        while io.outputs[0].has_room()
            && let Some(frame) = io.inputs[0].pop()
        {
            // Two frames pass at first.
            if frame.header().timestamp < 32 || is_released.load(Ordering::SeqCst) > 0 {
                io.outputs[0].pass(frame);
            }
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    });
    net.add("out", &[swallow], 0, Seen::default().sink());
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    handle.watch_losses();
    let told = |kind| {
        let events = handle.events_since(0).into_iter();
        events.filter(|event| event.kind == kind).collect::<Vec<_>>()
    };
    let until = |done: &dyn Fn() -> bool| {
        let began = std::time::Instant::now();
        while !done() {
            assert!(began.elapsed() < LIMIT, "{:?}", handle.events_since(0));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let states = || handle.stats().into_iter().map(|stats| stats.state).collect::<Vec<_>>();
    until(&|| states() == [State::Running, State::Stalled, State::Stalled]);
    let [stalled] = &told(EventKind::Stalled)[..] else { panic!("{:?}", handle.events_since(0)) };
    assert_eq!(stalled.block.as_deref(), Some("swallow"));
    let is_said = |text: &str| {
        text.starts_with("no frame for ")
            && text.ends_with(" s: the block consumes frames and pushes none")
    };
    assert!(is_said(&stalled.text), "{}", stalled.text);
    let [cause] = &handle.stalls()[..] else { panic!("{:?}", handle.stalls()) };
    assert_eq!((&*cause.block, cause.reason), ("swallow", crate::Reason::PushesNothing));
    released.store(1, Ordering::SeqCst);
    until(&|| states() == [State::Running; 3]);
    let resumed: Vec<_> = told(EventKind::Resumed).into_iter().map(|event| event.block).collect();
    assert_eq!(resumed, [Some("swallow".to_owned())]);
    assert_eq!(handle.stalls(), []);
    running.request_stop();
    ended(running);
}

#[test]
fn lag_uses_the_real_time_known_to_the_source() {
    let mut net = Net::default();
    let counters = Counters::default();
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // The frame that ends with sample 16 was complete 40 s ago.
    counters.real_time().set_zero(unix.as_secs_f64() - 40.0 - 16e-6);
    let mut is_sent = false;
    let src = net.add("src", &[], 1, move |io| {
        if !std::mem::replace(&mut is_sent, true) {
            let frame = io.outputs[0].take().unwrap();
            io.outputs[0].push(frame);
        }
        Ok(if io.stopping { Next::Finished } else { Next::Wait })
    });
    net.parts[src].counters = counters;
    net.add("out", &[src], 0, Seen::default().sink());
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let began = std::time::Instant::now();
    let lags = loop {
        let lags: Vec<_> = running.stats().iter().filter_map(|stats| stats.lag_seconds).collect();
        if lags.len() == 2 {
            break lags;
        }
        assert!(began.elapsed() < LIMIT, "{:?}", running.stats());
    };
    let late = began.elapsed().as_secs_f64() + 1.0;
    assert!(lags.iter().all(|lag| (39.9..40.0 + late).contains(lag)), "{lags:?}");
    ended({
        running.request_stop();
        running
    });
}

/// A flowgraph of two branches that meet again: `branch` skips the frames with timestamps in `skipped`, and `join` needs
/// each frame of both. Returns the timestamps of the frames that met.
fn branches(net: &mut Net, limit: u64, skipped: std::ops::Range<u64>) -> Arc<Mutex<Vec<u64>>> {
    let src = net.add("src", &[], 1, source(limit));
    let split = net.add("split", &[src], 1, copy());
    let branch = net.add("branch", &[split], 1, move |io| {
        while io.outputs[0].has_room()
            && let Some(frame) = io.inputs[0].pop()
        {
            if !skipped.contains(&frame.header().timestamp) {
                io.outputs[0].pass(frame);
            }
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    });
    join(net, branch, split)
}

#[test]
fn branch_that_skips_more_frames_than_a_queue_holds_does_not_stop_the_flowgraph() {
    let mut net = Net::default();
    let met = branches(&mut net, u64::MAX, 5..25);
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    handle.watch_losses();
    let began = std::time::Instant::now();
    let told = |kind| handle.events_since(0).into_iter().find(|event| event.kind == kind);
    while told(EventKind::Resumed).is_none() {
        assert!(began.elapsed() < LIMIT, "{:?}", handle.events_since(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    running.request_stop();
    let report = ended(running);
    assert!(report.failures.is_empty(), "{:?}", report.failures);
    let met = met.lock().unwrap().clone();
    assert!(met.is_sorted_by(|a, b| a < b) && met.iter().all(|time| !(5..25).contains(time)));
    let block = |name| handle.stats().into_iter().find(|stats| stats.name == name).unwrap();
    let (sent, join) = (block("src").frames_out, block("join"));
    let named = |name| join.counters.iter().find(|counter| counter.name == name).unwrap();
    let dropped = named("frames_dropped_in_deadlock");
    assert!(dropped.is_loss && dropped.counter.get() > 0);
    let lost = sent - met.len() as u64;
    assert!((20..=20 + dropped.counter.get()).contains(&lost), "{lost} of {sent} did not meet");
    let stalled = told(EventKind::Stalled).unwrap();
    assert_eq!(stalled.block.as_deref(), Some("join"));
    let names = "frames of `branch`, which gets none because `split` waits for room";
    assert!(stalled.text.contains(names), "{}", stalled.text);
    assert_eq!(told(EventKind::Resumed).unwrap().block.as_deref(), Some("join"));
}

#[test]
fn flowgraph_in_a_deadlock_stops() {
    let mut net = Net::default();
    let met = branches(&mut net, u64::MAX, 5..u64::MAX);
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    handle.watch_losses();
    let block = |name| handle.stats().into_iter().find(|stats| stats.name == name).unwrap();
    let began = std::time::Instant::now();
    while block("join").queues[1].queued < DEPTH {
        assert!(began.elapsed() < LIMIT, "{:?}", handle.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
    running.request_stop();
    ended(running);
    assert!(met.lock().unwrap().iter().all(|time| *time < 5));
    let join = block("join");
    let dropped = join.counters.iter().find(|one| one.name == "frames_dropped_in_deadlock");
    assert!(dropped.unwrap().counter.get() > 0);
}

#[test]
fn block_that_holds_frames_is_waited_for() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(12));
    // It takes the frames at once, and passes them on late.
    let (mut held, began) = (std::collections::VecDeque::new(), std::time::Instant::now());
    let holds = net.add("holds", &[src], 1, move |io| {
        while let Some(frame) = io.inputs[0].pop() {
            held.push_back(frame);
        }
        if began.elapsed() < Duration::from_secs(3) {
            return Ok(Next::After(Duration::from_millis(10)));
        }
        while io.outputs[0].has_room()
            && let Some(frame) = held.pop_front()
        {
            io.outputs[0].pass(frame);
        }
        let is_over = io.inputs[0].ended() && held.is_empty();
        Ok(if is_over { Next::Finished } else { Next::Wait })
    });
    let met = join(&mut net, holds, src);
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    running.handle().watch_losses();
    ended(running);
    assert_eq!(*met.lock().unwrap(), (0..12).collect::<Vec<_>>());
}

/// Adds a block that needs each frame of both inputs. Returns the timestamps of the frames that met.
fn join(net: &mut Net, first: usize, second: usize) -> Arc<Mutex<Vec<u64>>> {
    let met = Arc::new(Mutex::new(Vec::new()));
    let meet = Arc::clone(&met);
    net.add("join", &[first, second], 0, move |io| {
        let [first, second] = &mut *io.inputs else { unreachable!() };
        while let (Some(a), Some(b)) = (first.peek(), second.peek()) {
            let [a, b] = [a, b].map(|frame| frame.header().timestamp);
            if a <= b {
                first.pop();
            }
            if b <= a {
                second.pop();
            }
            if a == b {
                meet.lock().unwrap().push(a);
            }
        }
        let is_over = [first, second].iter().any(|input| input.ended());
        Ok(if is_over { Next::Finished } else { Next::Wait })
    });
    met
}

#[test]
fn branch_that_is_slow_is_no_deadlock() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(12));
    let began = std::time::Instant::now();
    let slow = net.add("slow", &[src], 1, move |io| {
        if began.elapsed() < Duration::from_millis(1500) {
            return Ok(Next::After(Duration::from_millis(10)));
        }
        while io.outputs[0].has_room()
            && let Some(frame) = io.inputs[0].pop()
        {
            io.outputs[0].pass(frame);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    });
    let met = join(&mut net, slow, src);
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    handle.watch_losses();
    ended(running);
    assert_eq!(*met.lock().unwrap(), (0..12).collect::<Vec<_>>());
    let join = handle.stats().into_iter().find(|stats| stats.name == "join").unwrap();
    assert!(join.counters.iter().all(|counter| counter.counter.get() == 0));
}
