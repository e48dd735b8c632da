//! Tests of queues that drop frames when they are full.

use super::*;
use crate::BlockStats;
use fxgraph_core::edge::WhenFull;
use fxgraph_core::event::EventKind;
use std::sync::atomic::AtomicBool;

const FRAMES: u64 = 400;

/// A source with two readers: `main`, which takes every frame, and `aside`, whose queue acts as in `when_full`. `aside`
/// takes the first frame, and works on it until `may_go_on` is set. The source waits until `aside` works.
struct Branches {
    net: Net,
    main: Seen,
    aside: Seen,
    may_go_on: Arc<AtomicBool>,
    pool: Arc<Pool>,
}

fn branches(frames: u64, when_full: WhenFull) -> Branches {
    let mut net = Net::default();
    let [main, aside] = [Seen::default(), Seen::default()];
    let [may_go_on, works] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (mut next, is_at_work) = (0, Arc::clone(&works));
    let src = net.add("src", &[], 1, move |io| {
        while next < frames && !io.stopping {
            if next == 1 && !is_at_work.load(Ordering::SeqCst) {
                return Ok(Next::After(Duration::from_millis(1)));
            }
            let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
            frame.header_mut().timestamp = next;
            io.outputs[0].push(frame);
            next += 1;
        }
        Ok(Next::Finished)
    });
    net.add("main", &[src], 0, main.sink());
    let (seen, goes_on) = (aside.clone(), Arc::clone(&may_go_on));
    let mut at_work = None;
    let reader = net.add("aside", &[src], 0, move |io| {
        if at_work.is_none() {
            at_work = io.inputs[0].pop();
            works.fetch_or(at_work.is_some(), Ordering::SeqCst);
        }
        if at_work.is_some() && !goes_on.load(Ordering::SeqCst) {
            return Ok(Next::After(Duration::from_millis(1)));
        }
        match at_work.take() {
            Some(frame) => {
                seen.0.lock().unwrap().push(frame.header().timestamp);
                Ok(Next::Again)
            }
            None if io.inputs[0].ended() => Ok(Next::Finished),
            None => Ok(Next::Wait),
        }
    });
    net.parts[reader].inputs[0].set_when_full(when_full);
    // As in `Plan::pool_frames`: the frame being filled, and for each reader its queue and the frame at work.
    let pool = Pool::new(&HostAllocator, 1 + 2 * (DEPTH + 1), 16, 1).unwrap();
    net.parts[src].outputs[0].pool = Some(Arc::clone(&pool));
    Branches { net, main, aside, may_go_on, pool }
}

/// Waits until `is_so`; a hang becomes a failed test.
fn until(is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_mins(1), "it never comes to pass");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn branch_whose_queue_drops_frames_delays_no_other_branch() {
    for when_full in [WhenFull::DropOldest, WhenFull::DropNewest] {
        let Branches { net, main, aside, may_go_on, pool } = branches(FRAMES, when_full);
        let log = net.log.clone();
        let running = start(net.assembly(), TWO_WORKERS).unwrap();
        until(|| main.get().len() as u64 == FRAMES);
        assert!(aside.get().is_empty(), "the branch works on its first frame");
        // The last frame reaches the queue of this branch after that of the other one.
        let handle = running.handle();
        let dropped = || {
            let stats = handle.stats().into_iter().find(|block| block.name == "aside");
            stats.map_or(0, |stats| stats.queues[0].dropped)
        };
        until(|| dropped() == FRAMES - 1 - DEPTH as u64);
        may_go_on.store(true, Ordering::SeqCst);
        let report = ended(running);
        assert_eq!(report.failures, []);
        assert_eq!(main.get(), (0..FRAMES).collect::<Vec<_>>());
        let seen = aside.get();
        assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
        // The frame at work, and those in the queue.
        assert_eq!(seen.len(), 1 + DEPTH, "{when_full:?}: {seen:?}");
        match when_full {
            WhenFull::DropNewest => assert!(seen[0] + DEPTH as u64 == seen[DEPTH], "{seen:?}"),
            _ => assert_eq!(seen[1..], [FRAMES - 3, FRAMES - 2, FRAMES - 1]),
        }
        let branch = report.stats.iter().find(|block| block.name == "aside").unwrap();
        let [queue] = &branch.queues[..] else { panic!("{:?}", branch.queues) };
        assert_eq!((queue.when_full, queue.dropped), (when_full, FRAMES - seen.len() as u64));
        assert_eq!(branch.losses(), queue.dropped);
        assert!(log.has("finish aside"));
        assert_eq!(pool.available(), pool.size());
    }
}

#[test]
fn queue_that_drops_frames_is_set_and_unset_while_frames_flow() {
    let Branches { net, main, aside, may_go_on, .. } = branches(FRAMES, WhenFull::Wait);
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    let branch = || handle.stats().into_iter().find(|block| block.name == "aside").unwrap();
    until(|| branch().queues[0].queued == DEPTH);
    assert!((main.get().len() as u64) < FRAMES, "the source waits for the branch");
    handle.set_when_full("aside", &[WhenFull::DropOldest]);
    until(|| main.get().len() as u64 == FRAMES);
    handle.set_when_full("aside", &[WhenFull::Wait]);
    may_go_on.store(true, Ordering::SeqCst);
    let report = ended(running);
    let branch = report.stats.iter().find(|block| block.name == "aside").unwrap();
    assert_eq!(aside.get().len() as u64 + branch.queues[0].dropped, FRAMES);
    let counted = branch.counters.iter().find(|one| one.name == "frames_dropped_at_full_queue");
    assert_eq!(counted.unwrap().counter.get(), branch.queues[0].dropped, "they stay counted");
}

#[test]
fn writer_waits_again_after_a_queue_stopped_dropping_frames() {
    let Branches { net, main, may_go_on, aside, .. } = branches(u64::MAX, WhenFull::DropNewest);
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    until(|| main.get().len() as u64 > FRAMES);
    handle.set_when_full("aside", &[WhenFull::Wait]);
    may_go_on.store(true, Ordering::SeqCst);
    let dropped = || handle.stats().iter().map(BlockStats::losses).sum::<u64>();
    until(|| aside.get().len() > 10 * DEPTH);
    let (before, taken) = (dropped(), aside.get().len());
    until(|| aside.get().len() > taken + 100);
    assert_eq!(dropped(), before);
    running.request_stop();
    ended(running);
    let times = aside.get();
    assert!(times[taken..].windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[test]
fn drops_of_a_queue_are_one_event_a_minute() {
    let Branches { net, main, may_go_on, .. } = branches(u64::MAX, WhenFull::DropOldest);
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    handle.watch_losses();
    let events = || {
        let all = handle.events_since(0).into_iter();
        all.filter(|event| event.kind == EventKind::DataLost).collect::<Vec<_>>()
    };
    until(|| !events().is_empty());
    let seen = main.get().len();
    until(|| main.get().len() > seen + 10_000);
    may_go_on.store(true, Ordering::SeqCst);
    running.request_stop();
    ended(running);
    let told = events();
    assert!(told[0].text.ends_with(" frames_dropped_at_full_queue"), "{told:?}");
    assert_eq!(told[0].block.as_deref(), Some("aside"));
    let minutes = handle.elapsed().as_secs() / 60;
    // At the first drop, once a minute, and the rest at the end.
    assert!(told.len() as u64 <= 2 + minutes, "{told:?}");
    let counts = told.iter().map(|event| event.text.split(' ').next().unwrap().parse::<u64>());
    let all: u64 = counts.map(Result::unwrap).sum();
    let stats = handle.stats().into_iter().find(|block| block.name == "aside").unwrap();
    assert_eq!(all, stats.queues[0].dropped);
}

#[test]
fn abort_ends_a_branch_that_drops_frames() {
    let Branches { net, main, .. } = branches(u64::MAX, WhenFull::DropOldest);
    let log = net.log.clone();
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    until(|| main.get().len() as u64 > FRAMES);
    running.abort();
    assert!(ended(running).is_aborted);
    assert_eq!(log.count("finish"), 3);
}
