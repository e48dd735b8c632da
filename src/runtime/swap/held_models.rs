//! Swaps of a block without outputs under thousands of orders of its threads: the caller's, the running block's, those of
//! the block before it and of a client that aborts the run. No frame is written twice or left out, every block that has
//! started ends once, and a new block that does not start leaves the old one, or a copy of it, in the slot.

use super::NotSwapped;
use super::models::{drive, port};
use crate::Handle;
use crate::cell::Cell;
use crate::hosted::{Hosted, Mailbox};
use crate::models::edge;
use crate::report::Unanswered;
use crate::run::Run;
use fxgraph_core::block::{Block, Io, Next};
use fxgraph_core::changes::Heard;
use fxgraph_core::counter::Counters;
use fxgraph_core::edge::{Edge, FrameWriter};
use fxgraph_core::error::BlockError;
use fxgraph_core::event::{BlockEvents, Events};
use fxgraph_core::kind::{Ports, Waker};
use fxgraph_core::lock::lock;
use fxgraph_core::summary::Summary;
use fxgraph_flowgraph::{OnFault, Part, Rebuild, Thread};
use shuttle::thread;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const FRAMES: u64 = 6;
/// Numbers of the blocks.
const OLD: u8 = 1;
const NEW: u8 = 2;
const REBUILT: u8 = 3;

/// Action of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Starts,
    /// Writes the frame with this timestamp.
    Writes(u64),
    Ends,
}

/// Acts of all blocks, in order.
type Acts = Arc<Mutex<Vec<(u8, Act)>>>;

/// Writes each frame when the next one comes, or at the end of its input, as a sink of files with whole blocks does.
struct Sink {
    number: u8,
    fails: bool,
    acts: Acts,
    last: Option<u64>,
}

impl Sink {
    fn new(number: u8, fails: bool, acts: &Acts) -> Box<Self> {
        Box::new(Self { number, fails, acts: Arc::clone(acts), last: None })
    }

    fn does(&self, act: Act) {
        lock(&self.acts).push((self.number, act));
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        self.does(Act::Starts);
        if self.fails { Err(BlockError::new("it does not start")) } else { Ok(()) }
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while let Some(frame) = io.inputs[0].pop() {
            if let Some(before) = self.last.replace(frame.header().timestamp) {
                self.does(Act::Writes(before));
            }
        }
        if !io.inputs[0].ended() {
            return Ok(Next::Wait);
        }
        if let Some(last) = self.last.take() {
            self.does(Act::Writes(last));
        }
        Ok(Next::Finished)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.does(Act::Ends);
        Ok(())
    }
}

fn part(block: Box<Sink>, input: Arc<Edge>, rebuild: Option<Rebuild>) -> Part {
    Part {
        name: "sink".to_owned(),
        kind: "sink",
        block,
        counters: Counters::default(),
        summary: Summary::default(),
        events: BlockEvents::default(),
        wake: Waker::default(),
        inputs: vec![input],
        outputs: Vec::new(),
        ports: Ports { inputs: vec![port()], outputs: Vec::new() },
        thread: Thread::Shared,
        on_fault: OnFault::Stop,
        rebuild,
    }
}

/// Conditions of a swap.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// The new block does not start.
    fails: bool,
    /// The old block ends before the new one starts.
    ends_first: bool,
    /// The old block can be built again.
    can_rebuild: bool,
    aborts: bool,
    /// The caller waits for the old block.
    waits: bool,
    /// Another caller swaps the block at the same time.
    has_rival: bool,
}

fn swap(case: Case) {
    let acts = Acts::default();
    let (input, [writes, works], source) = edge(2);
    let again = Arc::clone(&acts);
    let rebuild: Rebuild = Arc::new(move |_| Ok(Sink::new(REBUILT, false, &again)));
    let mut old =
        part(Sink::new(OLD, false, &acts), Arc::clone(&input), case.can_rebuild.then_some(rebuild));
    works.wakes_for(&old.wake);
    let cell = Cell::new(&old, Instant::now());
    let run = Run::new(vec![Arc::clone(&cell)], Arc::<Events>::default());
    let mailbox = Arc::new(Mailbox::default());
    let handle = Handle::new(Arc::clone(&run), vec![Arc::clone(&mailbox)].into());
    old.block.start().expect("it starts");
    let heard = || Heard::from_start(0);
    let hosted = Hosted::new(old.block, &old.inputs, &[], heard, &Arc::default());

    let home = Arc::clone(&source);
    let writer = thread::spawn(move || {
        let mut writer = FrameWriter::new(vec![input], Some(source), 0);
        for n in 0..FRAMES {
            let mut frame = loop {
                match writer.take() {
                    Some(frame) => break frame,
                    None => writes.wait(),
                }
            };
            frame.header_mut().timestamp = n;
            writer.push(frame);
        }
    });
    let driven = Arc::clone(&run);
    let running = thread::spawn(move || drive(hosted, (&driven, &cell), &mailbox, &works, false));
    let aborting = case.aborts.then(|| {
        let run = Arc::clone(&run);
        thread::spawn(move || run.abort())
    });
    let limit = if case.waits { Duration::from_hours(1) } else { Duration::ZERO };
    let caller = |number| {
        let (handle, new) =
            (handle.clone(), part(Sink::new(number, case.fails, &acts), Edge::new(2), None));
        thread::spawn(move || handle.replace(new, case.ends_first, limit))
    };
    let rival = case.has_rival.then(|| caller(NEW + 2));
    let outcome = caller(NEW).join().expect("the caller ends");
    let outcomes =
        [Some((NEW, outcome)), rival.map(|rival| (NEW + 2, rival.join().expect("it ends")))];
    if let Some(aborting) = aborting {
        aborting.join().expect("the abort ends");
    }
    writer.join().expect("the writer ends");
    running.join().expect("the running block ends");
    check(case, &lock(&acts), &outcomes, run.failures().is_empty());
    assert_eq!(home.available(), home.size());
}

fn check(
    case: Case,
    acts: &[(u8, Act)],
    outcomes: &[Option<(u8, Result<(), NotSwapped>)>],
    is_well: bool,
) {
    let said = format!("{case:?} {outcomes:?} {acts:?}");
    // Of each block: a start, frames, an end.
    for number in [OLD, NEW, REBUILT, NEW + 2] {
        let own: Vec<Act> =
            acts.iter().filter(|(of, _)| *of == number).map(|(_, act)| *act).collect();
        let [first, between @ .., last] = &own[..] else {
            assert!(own.is_empty() && number != OLD, "{number}: {said}");
            continue;
        };
        assert_eq!((first, last), (&Act::Starts, &Act::Ends), "{number}: {said}");
        assert!(between.iter().all(|act| matches!(act, Act::Writes(_))), "{number}: {said}");
    }
    let written = acts.iter().filter_map(|(number, act)| match act {
        Act::Writes(time) => Some((*number, *time)),
        _ => None,
    });
    let (writers, times): (Vec<u8>, Vec<u64>) = written.unzip();
    assert_eq!(times, (0..times.len() as u64).collect::<Vec<_>>(), "{said}");
    assert!(times.len() as u64 == FRAMES || case.aborts || !is_well, "{said}");
    let mut order = writers;
    order.dedup();
    let mut once = order.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), order.len(), "no block comes back: {said}");
    for (number, outcome) in outcomes.iter().flatten() {
        match outcome {
            Ok(()) => assert!(!case.fails, "{said}"),
            Err(NotSwapped::NotStarted(_)) => assert!(case.fails && !case.ends_first, "{said}"),
            Err(NotSwapped::RolledBack(_)) => {
                assert!(case.fails && case.ends_first, "{said}");
                assert_eq!(is_well || case.aborts, case.can_rebuild || case.aborts, "{said}");
            }
            Err(NotSwapped::Unanswered(Unanswered::Busy { .. })) => assert!(!case.waits, "{said}"),
            Err(NotSwapped::Busy) => assert!(case.has_rival, "{said}"),
            Err(NotSwapped::Ended | NotSwapped::Unanswered(Unanswered::Ended(_))) => {}
            Err(other) => panic!("{other}: {said}"),
        }
        assert!(outcome.is_ok() || !order.contains(number) || case.aborts, "{said}");
    }
}

#[test]
fn swap_of_a_sink_under_any_interleaving_writes_each_frame_once() {
    let works = Case {
        fails: false,
        ends_first: false,
        can_rebuild: true,
        aborts: false,
        waits: true,
        has_rival: false,
    };
    let fails = Case { fails: true, ..works };
    let mut cases = vec![Case { can_rebuild: false, ends_first: true, ..fails }];
    for case in [works, fails, Case { waits: false, ..works }, Case { has_rival: true, ..works }] {
        for ends_first in [false, true] {
            for aborts in [false, true] {
                cases.push(Case { ends_first, aborts, ..case });
            }
        }
    }
    for case in cases {
        shuttle::check_random(move || swap(case), 500);
        shuttle::check_pct(move || swap(case), 500, 3);
    }
}
