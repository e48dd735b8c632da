//! Tests of swaps of blocks with outputs while frames flow.

use super::*;
use crate::swap::{NotSwapped, Terms};
use crate::{Handle, Hosted};
use fxgraph_core::edge::FrameWriter;
use fxgraph_core::event::{BlockEvents, EventKind};
use std::time::Instant;

/// Frames that one output of [`Sum`] depends on.
const WINDOW: usize = 4;

/// Fault of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    None,
    Start,
    /// Error at a frame before the candidate can be in the slot.
    Early,
    /// Error, or panic if `true`, in the slot.
    Late(bool),
    /// Longer processing time than the frame interval.
    Slow,
    /// Data that are never valid.
    Invalid,
    /// Takes and makes no frames in the slot.
    Stalls,
    /// Takes frames in the slot and makes none.
    Swallows,
}

/// Whether the block that this thread calls is not a candidate.
fn is_in_place() -> bool {
    std::thread::current().name().is_none_or(|name| !name.ends_with("candidate"))
}

/// Block that outputs the sum over the last [`WINDOW`] frames, valid once it has consumed that many, and its
/// `factor`, which identifies the block.
struct Sum {
    factor: u64,
    flaw: Flaw,
    window: Vec<u64>,
    /// Number of blocks that have started and not finished.
    place: Arc<AtomicU64>,
}

impl Sum {
    fn new(factor: u64, flaw: Flaw, place: &Arc<AtomicU64>) -> Self {
        Self { factor, flaw, window: Vec::new(), place: Arc::clone(place) }
    }

    fn flawed(&mut self) -> Result<bool, BlockError> {
        let is_in_place = is_in_place();
        match self.flaw {
            Flaw::Early if self.window.len() == 2 => return Err(BlockError::new("early")),
            Flaw::Late(panics) if is_in_place => {
                assert!(!panics, "late");
                return Err(BlockError::new("late"));
            }
            Flaw::Slow => std::thread::sleep(Duration::from_millis(20)),
            _ => {}
        }
        Ok(self.flaw == Flaw::Stalls && is_in_place)
    }
}

impl Block for Sum {
    fn start(&mut self) -> Result<(), BlockError> {
        self.place.fetch_add(1, Ordering::SeqCst);
        if self.flaw == Flaw::Start { Err(BlockError::new("no such core")) } else { Ok(()) }
    }
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        // A block may peek at a frame without consuming it.
        while io.inputs[0].peek().is_some() {
            let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
            if self.flawed()? {
                return Ok(Next::Wait);
            }
            let input = io.inputs[0].pop().unwrap();
            if self.flaw == Flaw::Swallows && is_in_place() {
                continue;
            }
            let time = input.header().timestamp;
            self.window.push(input.as_slice::<u64>().unwrap()[0]);
            if self.window.len() > WINDOW {
                self.window.remove(0);
            }
            let is_whole = self.window.len() == WINDOW;
            output.header_mut().timestamp = time;
            output.fill_validity(u32::from(is_whole && self.flaw != Flaw::Invalid));
            let sum: u64 = self.window.iter().sum();
            output.as_mut_slice::<u64>().unwrap().copy_from_slice(&[sum, self.factor]);
            io.outputs[0].push(output);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
    fn finish(&mut self) -> Result<(), BlockError> {
        self.place.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// An output frame: timestamp, sequence number, validity, sum, factor, configuration number.
type Row = (u64, u64, u32, u64, u64, u64);

struct Bench {
    running: Running,
    handle: Handle,
    rows: Arc<Mutex<Vec<Row>>>,
    /// Number of blocks that have started and not finished.
    blocks: Arc<AtomicU64>,
    pools: [Arc<Pool>; 1],
}

/// Starts a flowgraph whose source pushes a frame every `period`, or as fast as they are consumed.
fn bench(period: Option<Duration>) -> Bench {
    let mut net = Net::default();
    let mut next = 0_u64;
    let mut due = Instant::now();
    let src = net.add("src", &[], 1, move |io| {
        if io.stopping {
            return Ok(Next::Finished);
        }
        if let Some(left) = period.and_then(|_| due.checked_duration_since(Instant::now())) {
            return Ok(Next::After(left));
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        frame.header_mut().timestamp = next;
        frame.fill_validity(1);
        frame.as_mut_slice::<u64>().unwrap()[0] = next * next;
        io.outputs[0].push(frame);
        next += 1;
        due += period.unwrap_or_default();
        Ok(Next::Again)
    });
    // Large enough for the frames that the tee holds.
    let pool = Pool::new(&HostAllocator, 3 * DEPTH + 100, 16, 1).unwrap();
    net.parts[src].outputs[0].pool = Some(Arc::clone(&pool));
    let blocks = Arc::new(AtomicU64::new(0));
    let mid = net.add_block("mid", &[src], 1, Box::new(Sum::new(1, Flaw::None, &blocks)));
    let rows = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::clone(&rows);
    net.add("out", &[mid], 0, move |io| {
        while let Some(frame) = io.inputs[0].pop() {
            let (header, values) = (frame.header(), frame.as_slice::<u64>().unwrap());
            inside.lock().unwrap().push((
                header.timestamp,
                header.sequence,
                header.validity[0],
                values[0],
                values[1],
                header.config_id,
            ));
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    });
    let running = start(net.assembly(), TWO_WORKERS).unwrap();
    Bench { handle: running.handle(), running, rows, blocks, pools: [pool] }
}

impl Bench {
    /// Swaps `mid`; tries again if a busy machine delayed the candidate.
    fn swap(&self, factor: u64, flaw: Flaw, terms: &Terms) -> Result<(), NotSwapped> {
        loop {
            match self.try_swap(factor, flaw, terms) {
                Err(NotSwapped::TooSlow) if !matches!(flaw, Flaw::Slow) => {}
                outcome => return outcome,
            }
        }
    }

    fn try_swap(&self, factor: u64, flaw: Flaw, terms: &Terms) -> Result<(), NotSwapped> {
        self.handle.swap(self.part(factor, flaw), terms.clone())
    }

    /// A candidate for `mid`, with its edges.
    fn part(&self, factor: u64, flaw: Flaw) -> Part {
        let depth = 48;
        let (tee, kept) = (Edge::new(depth), Edge::new(depth));
        let pool = Pool::new(&HostAllocator, 2 * depth, 16, 1).unwrap();
        Part {
            name: "mid".to_owned(),
            kind: "sum",
            block: Box::new(Sum::new(factor, flaw, &self.blocks)),
            counters: Counters::default(),
            summary: Summary::default(),
            events: BlockEvents::default(),
            wake: self.handle.waker("mid").unwrap(),
            inputs: vec![tee],
            outputs: vec![PartOutput { edges: vec![kept], pool: Some(pool) }],
            ports: Ports { inputs: vec![port()], outputs: vec![port()] },
            thread: Thread::Shared,
            on_fault: OnFault::Stop,
            rebuild: None,
        }
    }

    /// Ends the run, checks that every frame arrived once, in order and with the right values, and returns the
    /// factors in the order of their first frames.
    fn end(self) -> Vec<u64> {
        self.running.request_stop();
        let report = ended(self.running);
        assert_eq!(report.failures, []);
        assert_eq!(self.blocks.load(Ordering::SeqCst), 0, "every block that started has finished");
        let rows = self.rows.lock().unwrap();
        assert_eq!(rows.len() as u64, report.stats[0].frames_out, "frames made and frames seen");
        let mut factors = Vec::new();
        for (n, (time, number, validity, sum, factor, config)) in rows.iter().enumerate() {
            let n = n as u64;
            assert_eq!((*time, *number), (n, n));
            assert_eq!(*validity, u32::from(n >= 3), "at {n}");
            let right: u64 = (n.saturating_sub(3)..=n).map(|t| t * t).sum();
            assert_eq!(*sum, right, "at {n} by {factor}");
            assert_eq!(*config, if *factor == 1 { 7 } else { *factor });
            if factors.last() != Some(factor) {
                factors.push(*factor);
            }
        }
        for pool in self.pools {
            assert_eq!(pool.available(), pool.size(), "all frames are back in their pool");
        }
        factors
    }

    fn terms(factor: u64) -> Terms {
        Terms {
            ids: factor.into(),
            limit: Duration::from_mins(1),
            call: Duration::from_secs(2),
            may_hold_up: false,
        }
    }
}

const PERIOD: Duration = Duration::from_micros(500);

#[test]
fn swap_drops_and_duplicates_no_frame() {
    for period in [Some(PERIOD), None] {
        let bench = bench(period);
        let terms = Terms { may_hold_up: period.is_none(), ..Bench::terms(2) };
        bench.swap(2, Flaw::None, &terms).unwrap();
        assert_eq!(bench.handle.stats()[1].kind, "sum");
        let events = bench.handle.events_since(0);
        assert!(events.iter().any(|event| event.kind == EventKind::Swapped));
        assert_eq!(bench.end(), [1, 2]);
    }
}

#[test]
fn candidate_that_fails_before_the_swap_changes_nothing() {
    let bench = bench(Some(PERIOD));
    let terms = Bench::terms(2);
    let not_started = Err(NotSwapped::NotStarted("no such core".to_owned()));
    assert_eq!(bench.swap(2, Flaw::Start, &terms), not_started);
    assert_eq!(bench.swap(2, Flaw::Early, &terms), Err(NotSwapped::Failed("early".to_owned())));
    assert_eq!(bench.swap(2, Flaw::Slow, &terms), Err(NotSwapped::TooSlow));
    let short = Terms { limit: Duration::from_millis(200), ..terms };
    assert_eq!(bench.swap(2, Flaw::Invalid, &short), Err(NotSwapped::NeverCaughtUp(short.limit)));
    assert_eq!(bench.end(), [1]);
}

#[test]
fn roll_back_drops_and_duplicates_no_frame() {
    let bench = bench(Some(PERIOD));
    for (flaw, cause) in [(Flaw::Late(false), "late"), (Flaw::Late(true), "late")] {
        let error = bench.swap(2, flaw, &Bench::terms(2)).unwrap_err();
        assert_eq!(error, NotSwapped::RolledBack(cause.to_owned()));
    }
    let error = bench.swap(2, Flaw::Stalls, &Bench::terms(2)).unwrap_err();
    let NotSwapped::RolledBack(cause) = error else { panic!("{error}") };
    assert!(cause.contains("makes nothing of frames that wait"), "{cause}");
    bench.end();
}

#[test]
fn check_of_a_new_block_counts_frames_and_no_time() {
    let bench = bench(Some(PERIOD));
    // As for frames of hours.
    let terms = Terms { call: Duration::from_hours(8), ..Bench::terms(2) };
    let began = Instant::now();
    let error = bench.swap(2, Flaw::Swallows, &terms).unwrap_err();
    let NotSwapped::RolledBack(cause) = error else { panic!("{error}") };
    assert!(cause.contains("the old block is ahead of it on the same data"), "{cause}");
    assert!(began.elapsed() < terms.limit, "it was not the time limit");
    bench.swap(3, Flaw::None, &Terms { ids: 3.into(), ..terms }).unwrap();
    bench.end();
}

#[test]
fn caller_that_leaves_gets_no_swap_and_the_flowgraph_goes_on() {
    // Limits that a call of hours would keep.
    let call = Duration::from_hours(8);
    let flaws = [Flaw::None, Flaw::Stalls, Flaw::Swallows];
    // Before the new block is in the slot, and while it is checked.
    for (flaw, pause) in flaws.into_iter().flat_map(|flaw| [0, 5].map(|pause| (flaw, pause))) {
        let bench = bench(Some(PERIOD));
        let short = Terms { call, ..Bench::terms(2) };
        let moment = fxgraph_core::changes::Undecided::new();
        let swap = loop {
            let deadline = Instant::now() + short.limit;
            let part = bench.part(2, flaw);
            let swap = bench.handle.begin_swap(part, short.clone(), moment.when()).unwrap();
            match swap.wait_ready(deadline) {
                Ok(()) => break swap,
                Err(NotSwapped::TooSlow) => {}
                Err(error) => panic!("{error}"),
            }
        };
        moment.decide(0);
        std::thread::sleep(Duration::from_millis(pause));
        drop(swap);
        let made = || bench.handle.stats()[1].frames_out;
        let before = made();
        while made() < before + 100 {
            std::thread::sleep(Duration::from_millis(1));
        }
        bench.swap(3, Flaw::None, &Terms { ids: 3.into(), call, ..Bench::terms(3) }).unwrap();
        bench.end();
    }
}

#[test]
fn hundred_swaps_under_load_drop_and_duplicate_no_frame() {
    let bench = bench(Some(PERIOD));
    let mut in_place = Vec::new();
    let mut rolled_back = 0;
    for n in 0..100 {
        let factor = n + 2;
        let flaw = match n % 10 {
            3 => Flaw::Start,
            5 => Flaw::Early,
            6 => Flaw::Late(false),
            8 => Flaw::Late(true),
            9 if n % 20 == 9 => Flaw::Slow,
            _ => Flaw::None,
        };
        match bench.swap(factor, flaw, &Bench::terms(factor)) {
            Ok(()) => in_place.push(factor),
            Err(NotSwapped::RolledBack(_)) => rolled_back += 1,
            Err(NotSwapped::TooSlow) => {}
            Err(error) => assert!(matches!(flaw, Flaw::Start | Flaw::Early), "{flaw:?}: {error}"),
        }
    }
    assert!(rolled_back >= 15, "{rolled_back} were rolled back");
    assert!(in_place.len() >= 55, "{} were swapped", in_place.len());
    let seen = bench.end();
    assert!(in_place.iter().all(|factor| seen.contains(factor)));
}

#[test]
fn swap_ends_with_the_flowgraph() {
    let bench = bench(Some(PERIOD));
    std::thread::scope(|scope| {
        let swap = scope.spawn(|| bench.swap(2, Flaw::Invalid, &Bench::terms(2)));
        let has_tee = |hosted: &mut Hosted| hosted.inputs[0].reader.has_tee();
        while !bench.handle.ask("mid", Duration::from_mins(1), has_tee).unwrap() {
            assert!(!swap.is_finished(), "the swap was not tried");
        }
        bench.running.request_stop();
        assert_eq!(swap.join().unwrap(), Err(NotSwapped::Ended));
    });
    assert_eq!(bench.end(), [1]);
}

#[test]
fn frames_that_wait_for_room_are_pushed_before_their_block_ends() {
    let [is_swapped, is_open] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let mut net = Net::default();
    let (swapped, open) = (Arc::clone(&is_swapped), Arc::clone(&is_open));
    let mut kept = Vec::new();
    let source = net.add("s", &[], 1, move |io| {
        if kept.is_empty() {
            kept.extend((0..5).filter_map(|_| io.outputs[0].take()));
            io.outputs[0].push(kept.remove(0));
        }
        if swapped.load(Ordering::SeqCst) == 0 {
            return Ok(Next::Wait);
        }
        for (time, mut frame) in (1..).zip(kept.drain(..)) {
            frame.header_mut().timestamp = time;
            io.outputs[0].push(frame);
        }
        Ok(Next::Finished)
    });
    let seen = Seen::default();
    let mut sink = seen.sink();
    net.add("o", &[source], 0, move |io| {
        if open.load(Ordering::SeqCst) == 0 { Ok(Next::Wait) } else { sink(io) }
    });
    let running = start(net.assembly(), ONE_WORKER).unwrap();
    let handle = running.handle();
    let limit = Duration::from_mins(1);
    let pushed = |frames: u64| {
        while handle.stats()[0].frames_out < frames {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    pushed(1);
    // As after a swap in which the new block kept frames from before.
    let swap = |hosted: &mut Hosted| {
        let writer = &mut hosted.outputs[0].writer;
        let mut other = FrameWriter::new(Vec::new(), writer.pool(), 7);
        writer.swap(&mut other, std::collections::VecDeque::new());
    };
    handle.ask("s", limit, swap).unwrap();
    is_swapped.store(1, Ordering::SeqCst);
    handle.run().cells[0].wake.wake();
    pushed(DEPTH as u64);
    is_open.store(1, Ordering::SeqCst);
    handle.run().cells[1].wake.wake();
    assert_eq!(ended(running).failures, []);
    assert_eq!(*seen.0.lock().unwrap(), [0, 1, 2, 3, 4]);
}
