//! Tests of starts and ends of runs.

use super::*;
use crate::{NotSwapped, Prepared};
use std::sync::mpsc::channel;

#[test]
fn abort_drops_queued_frames_and_finishes_every_block() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(u64::MAX));
    let pushed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&pushed);
    // Never consumes a frame, so a draining stop does not end.
    net.add("stuck", &[src], 0, move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(Next::Wait)
    });
    let log = net.log.clone();
    let pool = net.parts[src].outputs[0].pool.clone().unwrap();
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    reach(&pushed, 1);
    running.request_stop();
    assert!(!running.wait_timeout(Duration::from_millis(20)));
    running.abort();
    let report = ended(running);
    assert!(report.failures.is_empty() && report.is_aborted);
    assert_eq!(log.count("finish"), 2);
    assert_eq!(pool.available(), pool.size());
}

#[test]
fn abort_before_the_start_ends_the_run_and_after_the_end_has_no_effect() {
    let endless = || {
        let mut net = Net::default();
        let src = net.add("src", &[], 1, source(u64::MAX));
        net.add("out", &[src], 0, Seen::default().sink());
        Prepared::new(net.assembly()).unwrap()
    };
    let prepared = endless();
    prepared.handle().abort();
    assert!(ended(prepared.start(TWO_WORKERS).unwrap()).is_aborted);

    let running = endless().start(TWO_WORKERS).unwrap();
    running.request_stop();
    assert!(running.wait_timeout(Duration::from_mins(1)));
    running.abort();
    assert!(!running.wait().is_aborted);
}

#[test]
fn dropped_run_is_aborted() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(u64::MAX));
    net.add("out", &[src], 0, Seen::default().sink());
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    drop(running);
    assert!(handle.wait_timeout(Duration::from_mins(1)));
}

#[test]
fn failed_finish_is_reported_and_other_blocks_finish() {
    let mut net = Net::default();
    let full = || Err(BlockError::new("disk is full"));
    net.hooks("file", Box::new(|| Ok(())), Box::new(full));
    let src = net.add("src", &[], 1, source(100));
    net.add("out", &[src], 0, Seen::default().sink());
    let log = net.log.clone();
    let report = net.run(TWO_WORKERS);
    assert_eq!(report.failures[0].to_string(), "`file` failed: disk is full");
    assert_eq!(log.count("finish"), 3);
}

#[test]
fn no_block_works_before_all_have_started() {
    let mut net = Net::default();
    let ready = Arc::new(AtomicU64::new(0));
    for i in 0..8 {
        let ready = Arc::clone(&ready);
        net.add(&format!("src[{i}]"), &[], 0, move |_| match ready.load(Ordering::SeqCst) {
            1 => Ok(Next::Finished),
            _ => Err(BlockError::new("too early")),
        });
    }
    let late = move || {
        std::thread::sleep(Duration::from_millis(50));
        ready.store(1, Ordering::SeqCst);
        Ok(())
    };
    net.hooks("late", Box::new(late), Box::new(|| Ok(())));
    assert_eq!(net.run(TWO_WORKERS).failures, []);
}

/// Sink whose start takes at least 20 ms, or then fails.
struct Slow {
    log: Log,
    started: Result<(), &'static str>,
}

#[fxgraph_core::async_trait]
impl AsyncBlock for Slow {
    async fn start(&mut self) -> Result<(), BlockError> {
        for _ in 0..20 {
            async_io::Timer::after(Duration::from_millis(1)).await;
        }
        self.log.add("slow has started".to_owned());
        self.started.map_err(BlockError::new)
    }
    async fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

#[test]
fn source_starts_after_all_receivers_even_if_one_fails() {
    for started in [Ok(()), Err("no")] {
        let mut net = Net::default();
        let src = net.add("src", &[], 1, source(0));
        let log = net.log.clone();
        net.add_block("slow", &[src], 0, Box::new(Awaits(Slow { log: log.clone(), started })));
        let running = start(net.assembly(), ONE_WORKER);
        assert_eq!(running.is_ok(), started.is_ok());
        let _ = running.map(ended);
        let lines = log.0.lock().unwrap();
        let at = |line: &str| lines.iter().position(|l| l == line).unwrap();
        assert!(at("slow has started") < at("start src"), "{lines:?}");
    }
}

#[test]
fn empty_flowgraph_ends_at_once() {
    let report = Net::default().run(ONE_WORKER);
    assert!(report.failures.is_empty() && report.stats.is_empty());
}

#[test]
fn many_short_runs_leave_no_thread_behind() {
    let threads = || std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let run = || {
        let mut net = Net::default();
        let src = net.add("src", &[], 1, source(5));
        net.add("out", &[src], 0, Seen::default().sink());
        net.parts[src].thread = Thread::Own { core: None };
        assert!(net.run(TWO_WORKERS).failures.is_empty());
    };
    run();
    let before = threads();
    (0..200).for_each(|_| run());
    // Other tests run in parallel; one thread left by each run would exceed the margin.
    let began = std::time::Instant::now();
    while threads() > before + 60 {
        assert!(began.elapsed() < Duration::from_secs(30), "{before} threads became {}", threads());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn block_that_pushes_in_a_loop_still_stops() {
    for readers in 0..2 {
        let mut net = Net::default();
        let pushed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&pushed);
        let src = net.add("src", &[], 1, move |io| {
            while let Some(frame) = io.outputs[0].take() {
                io.outputs[0].push(frame);
                count.fetch_add(1, Ordering::SeqCst);
            }
            Ok(if io.stopping { Next::Finished } else { Next::Wait })
        });
        if readers == 1 {
            // Consumes as fast as frames can be pushed.
            net.add("out", &[src], 0, |io| {
                while io.inputs[0].pop().is_some() {}
                Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
            });
        }
        let running = start(net.assembly(), ONE_WORKER).unwrap();
        reach(&pushed, 1_000);
        running.request_stop();
        assert!(ended(running).failures.is_empty());
    }
}

#[test]
fn sink_that_is_swapped_while_the_run_is_aborted_finishes() {
    let mut net = Net::default();
    let src = net.add("src", &[], 1, source(u64::MAX));
    net.add("out", &[src], 0, Seen::default().sink());
    let log = net.log.clone();
    let mut other = Net { log: log.clone(), ..Net::default() };
    let (started, is_started) = channel();
    let (goes_on, may_go_on) = channel();
    let hook = move || {
        started.send(()).unwrap();
        may_go_on.recv().unwrap();
        Ok(())
    };
    other.hooks("new", Box::new(hook), Box::new(|| Ok(())));
    let part = Part { name: "out".to_owned(), ..other.parts.remove(0) };
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    let handle = running.handle();
    std::thread::scope(|scope| {
        let swap = scope.spawn(|| handle.replace(part, true, Duration::from_mins(1)));
        is_started.recv().unwrap();
        running.abort();
        assert!(running.wait_timeout(Duration::from_mins(1)));
        goes_on.send(()).unwrap();
        assert_eq!(swap.join().unwrap(), Err(NotSwapped::Ended));
    });
    for name in ["out", "new"] {
        assert!(log.has(&format!("finish {name}")), "{name}");
    }
}
