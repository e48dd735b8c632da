//! Tests that the faults of FutureSDR 0.0.40 do not affect fxgraph; numbers as in `src/adr/001`.

use super::*;
use crate::{StartError, State};
use fxgraph_core::error::SharedFault;

fn broken(text: &'static str) -> Result<Next, BlockError> {
    Err(BlockError::new(text)
        .because(BlockError::new("no such device").because(std::io::Error::other("cable pulled"))))
}

/// Runs an endless source, a block that calls `fault` at frame 5, and a sink.
fn failing(fault: impl Fn() -> Result<Next, BlockError> + Send + 'static) -> (Report, Log, Seen) {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(u64::MAX));
    let mut taken = 0;
    let mid = net.add("mid", &[src], 1, move |io| {
        while io.outputs[0].has_room() && io.inputs[0].queued() > 0 {
            if taken == 5 {
                return fault();
            }
            taken += 1;
            let frame = io.inputs[0].pop().unwrap();
            io.outputs[0].pass(frame);
        }
        Ok(Next::Wait)
    });
    let seen = Seen::default();
    net.add("out", &[mid], 0, seen.sink());
    let log = net.log.clone();
    (net.run(TWO_WORKERS), log, seen)
}

#[test]
fn fault_01_panic_in_work_ends_the_run_and_is_reported() {
    let (report, log, seen) = failing(|| panic!("index {} is no use", 5));
    assert_eq!(report.failures.len(), 1);
    assert_eq!(report.failures[0].block, "mid");
    assert_eq!(report.failures[0].cause, "index 5 is no use");
    assert!(report.failures[0].panic);
    assert_eq!(log.count("finish"), 3);
    assert_eq!(seen.get(), [0, 1, 2, 3, 4], "frames pushed before the panic still arrive");
}

#[test]
fn fault_01_panics_in_start_and_finish_are_failures() {
    let mut net = Net::default();
    net.hooks("late", Box::new(|| Ok(())), Box::new(|| panic!("in finish")));
    net.add("other", &[], 0, |_| Ok(Next::Finished));
    let report = net.run(ONE_WORKER);
    assert_eq!(report.failures[0].to_string(), "`late` panicked: in finish");

    let mut net = Net::default();
    net.hooks("first", Box::new(|| panic!("in start")), Box::new(|| Ok(())));
    let error = start(net.assembly(), ONE_WORKER).err().unwrap();
    assert_eq!(error.to_string(), "`first` panicked: in start");
}

#[test]
fn shared_fault_of_several_blocks_is_one_failure_of_the_block_that_caused_it() {
    let mut net = Net::default();
    for name in ["first", "second", "third"] {
        net.add(name, &[], 0, |_| {
            let fault = SharedFault { of: "cuda:0".to_owned(), block: Some("second".to_owned()) };
            let cause = BlockError::new("cuda:0 failed").shared(fault);
            Err(BlockError::new("cannot copy").because(cause))
        });
    }
    let report = net.run(TWO_WORKERS);
    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert_eq!(failures, ["`second` failed: cannot copy: cuda:0 failed"]);
    assert!(report.stats.iter().all(|block| block.state == State::Failed), "{:?}", report.stats);
}

#[test]
fn fault_02_ended_block_still_has_statistics() {
    let mut net = Net::default();
    net.add("brief", &[], 0, |_| Ok(Next::Finished));
    net.add("long", &[], 0, |io| Ok(if io.stopping { Next::Finished } else { Next::Wait }));
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let began = std::time::Instant::now();
    while running.stats()[0].state != State::Finished {
        assert!(began.elapsed() < Duration::from_mins(1));
        std::thread::yield_now();
    }
    assert_eq!(running.stats()[1].state, State::Running);
    running.request_stop();
    let handle = running.handle();
    assert!(ended(running).failures.is_empty());
    // Also after the end of the run.
    handle.request_stop();
    handle.abort();
    assert!(handle.is_ended());
    assert_eq!(handle.stats()[0].works, 1);
}

/// Block that awaits a timer without end.
struct Deaf(Arc<AtomicU64>);

#[fxgraph_core::async_trait]
impl AsyncBlock for Deaf {
    async fn work(&mut self, _: &mut Io<'_>) -> Result<Next, BlockError> {
        self.0.store(1, Ordering::SeqCst);
        loop {
            async_io::Timer::after(Duration::from_hours(1)).await;
        }
    }
    async fn finish(&mut self) -> Result<(), BlockError> {
        self.0.store(2, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn fault_03_abort_ends_a_block_that_awaits_forever() {
    let at = Arc::new(AtomicU64::new(0));
    let mut net = Net::default();
    net.add_block("deaf", &[], 0, Box::new(Awaits(Deaf(Arc::clone(&at)))));
    let running = start(net.assembly(), ONE_WORKER).unwrap();
    reach(&at, 1);
    running.abort();
    assert!(ended(running).failures.is_empty());
    assert_eq!(at.load(Ordering::SeqCst), 2, "`finish` was called");
}

#[test]
fn fault_03_stop_wakes_a_block_that_waits_for_a_time() {
    let works = Arc::new(AtomicU64::new(0));
    let mut net = Net::default();
    let count = Arc::clone(&works);
    net.add("patient", &[], 0, move |io| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(if io.stopping { Next::Finished } else { Next::After(Duration::from_hours(1)) })
    });
    let running = start(net.assembly(), ONE_WORKER).unwrap();
    reach(&works, 1);
    running.request_stop();
    assert!(ended(running).failures.is_empty());
}

#[test]
fn fault_04_error_is_reported_with_all_causes_and_its_block_finishes() {
    let (report, log, _) = failing(|| broken("gpu 3 went away"));
    assert_eq!(report.failures.len(), 1);
    let text = report.failures[0].to_string();
    assert_eq!(text, "`mid` failed: gpu 3 went away: no such device: cable pulled");
    assert!(log.has("finish mid"));
    let state = |name| report.stats.iter().find(|s| s.name == name).unwrap().state;
    assert_eq!(state("mid"), State::Failed);
    assert_eq!(state("out"), State::Finished);
}

#[test]
fn fault_04_failed_start_lets_no_block_work_and_all_finish() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(u64::MAX));
    net.add("out", &[src], 0, Seen::default().sink());
    let cause = || Err(BlockError::new("udp port 7148 is in use"));
    net.hooks("bad", Box::new(cause), Box::new(|| Ok(())));
    let log = net.log.clone();
    let Err(StartError::Blocks(failures)) = start(net.assembly(), TWO_WORKERS) else {
        panic!("the run started")
    };
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].to_string(), "`bad` failed: udp port 7148 is in use");
    assert_eq!((log.count("start"), log.count("work"), log.count("finish")), (3, 0, 3));
}

#[test]
fn fault_05_wake_ups_and_statistics_do_not_end_a_block() {
    let mut net = Net::default();
    let at = net.add("src", &[], 1, source(20_000));
    let seen = Seen::default();
    net.add("out", &[at], 0, seen.sink());
    let wakers: Vec<Waker> = net.parts.iter().map(|part| part.wake.clone()).collect();
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    while !running.is_ended() {
        wakers.iter().for_each(Waker::wake);
        assert_eq!(running.stats().len(), 2);
    }
    assert!(ended(running).failures.is_empty());
    assert_eq!(seen.get(), (0..20_000).collect::<Vec<_>>());
}

#[test]
fn fault_06_draining_stop_drops_no_queued_frame() {
    let mut net = Net::default();
    let pushed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&pushed);
    let mut work = source(u64::MAX);
    let src = net.add("src", &[], 1, move |io| {
        let next = work(io);
        count.fetch_add(1, Ordering::SeqCst);
        next
    });
    let mid = net.add("mid", &[src], 1, copy());
    let seen = Seen::default();
    let mut sink = seen.sink();
    // Slow, so that both queues are full at the stop.
    net.add("out", &[mid], 0, move |io| {
        std::thread::sleep(Duration::from_millis(2));
        sink(io)
    });
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    reach(&pushed, 20);
    running.request_stop();
    let report = ended(running);
    assert!(report.failures.is_empty());
    let sent = report.stats[0].frames_out;
    assert_eq!(seen.get(), (0..sent).collect::<Vec<_>>());
    assert_eq!(report.stats[2].frames_in, sent);
    assert_eq!(report.stats[2].bytes_in, 16 * sent);
}

#[test]
fn fault_07_several_flowgraphs_run_at_once_and_each_only_once() {
    let build = || {
        let mut net = Net::default();
        let src = net.add("src", &[], 1, source(500));
        let seen = Seen::default();
        net.add("out", &[src], 0, seen.sink());
        (net, seen)
    };
    let runs: Vec<_> = (0..4).map(|_| build()).collect();
    let runs: Vec<_> = runs
        .into_iter()
        .map(|(net, seen)| (start(net.assembly(), TWO_WORKERS).unwrap(), seen))
        .collect();
    for (running, seen) in runs {
        assert!(ended(running).failures.is_empty());
        assert_eq!(seen.get().len(), 500);
    }

    let (net, _) = build();
    let edge = Arc::clone(&net.parts[1].inputs[0]);
    net.run(ONE_WORKER);
    let (mut net, _) = build();
    net.parts[0].outputs[0].edges = vec![Arc::clone(&edge)];
    net.parts[1].inputs = vec![edge];
    let error = start(net.assembly(), ONE_WORKER).err().unwrap();
    assert_eq!(error.to_string(), "`out` cannot be connected: input 0 was part of another run");
}

// Fault 8, blocks that move between threads, is avoided by `thread: own`; see `threads`.

#[test]
fn fault_09_reader_that_ends_early_stops_neither_writer_nor_other_readers() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(5_000));
    net.add("early", &[src], 0, early(2));
    let seen = Seen::default();
    net.add("out", &[src], 0, seen.sink());
    let report = net.run(TWO_WORKERS);
    assert!(report.failures.is_empty());
    assert_eq!(seen.get(), (0..5_000).collect::<Vec<_>>());
}

#[test]
fn fault_09_writer_ends_after_all_its_readers() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(u64::MAX));
    let mid = net.add("mid", &[src], 1, copy());
    net.add("a", &[mid], 0, early(2));
    net.add("b", &[mid], 0, early(9));
    let log = net.log.clone();
    assert!(net.run(TWO_WORKERS).failures.is_empty());
    assert_eq!(log.count("finish"), 4);
}

#[test]
fn fault_11_start_rejects_an_edge_without_exactly_one_writer_and_reader() {
    let build = || {
        let mut net = Net::default();
        let a = net.add("a", &[], 1, source(1));
        let b = net.add("b", &[], 1, source(1));
        net.add("out", &[a, b], 0, Seen::default().sink());
        net
    };
    let rejected = |net: Net| start(net.assembly(), ONE_WORKER).err().unwrap().to_string();

    let mut net = build();
    net.parts[2].inputs[1] = Arc::clone(&net.parts[2].inputs[0]);
    let shared = "`out` cannot be connected: input 1 shares its edge with another input";
    assert_eq!(rejected(net), shared);
    let mut net = build();
    let edge = Arc::clone(&net.parts[2].inputs[0]);
    net.parts[1].outputs[0].edges.push(edge);
    let unread = "`b` cannot be connected: output 0 writes an edge without another reader";
    assert_eq!(rejected(net), unread);
    let mut net = build();
    net.parts[1].outputs[0].edges.clear();
    assert_eq!(rejected(net), "`out` cannot be connected: no block writes input 1");
    let mut net = build();
    net.parts[1].name = "a".to_owned();
    assert_eq!(rejected(net), "`a` cannot be connected: another block has the same name");
}
