//! A swap under thousands of orders of its threads: the caller's, the running block's, the candidate's, and those of the
//! blocks before and after. With any candidate and any caller, every frame comes once and in order, all buffers return and
//! all threads end. The time limit of a block that makes nothing passes at any time.

use super::beside::{NewCandidate, Tie};
use super::candidate::{Link, Order, launch};
use super::{Swap, wire};
use crate::cell::Cell;
use crate::fault::Fault;
use crate::hosted::{Hosted, Mailbox, Turn};
use crate::models::{Task, edge};
use crate::run::Run;
use fxgraph_core::block::{Block, Io, Next};
use fxgraph_core::changes::{ConfigIds, Heard, Undecided};
use fxgraph_core::counter::Counters;
use fxgraph_core::dtype::Dtype;
use fxgraph_core::edge::{Edge, FrameReader, FrameWriter};
use fxgraph_core::error::BlockError;
use fxgraph_core::event::{BlockEvents, Events};
use fxgraph_core::frame::{HostAllocator, Pool};
use fxgraph_core::kind::{Ports, Waker};
use fxgraph_core::port::{Axis, Clock, PortType, ValidityType};
use fxgraph_core::summary::Summary;
use fxgraph_flowgraph::{OnFault, Part, PartOutput, Thread};
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Frames after which the writer ends, if the swap is not over before.
const MOST: u64 = 40;
/// Frames after the end of the swap.
const AFTER: u64 = 3;

/// Behaviour of a candidate: in the slot, or before it has taken the slot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flaw {
    Works,
    FailsBefore,
    Fails,
    /// Takes frames and makes none.
    Swallows,
    /// Takes no frame.
    Silent,
}

/// Behaviour of the caller.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Caller {
    Waits,
    LeavesBefore,
    LeavesAfterTheDecision,
}

/// Copies frames, and marks them with its number.
struct Copying {
    number: u8,
    flaw: Flaw,
}

impl Block for Copying {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let is_in_slot = thread::current().name().is_none_or(|name| !name.ends_with("candidate"));
        if self.flaw == Flaw::Silent && is_in_slot {
            return Ok(Next::Wait);
        }
        while io.inputs[0].queued() > 0 {
            let Some(mut output) = io.outputs[0].take() else { return Ok(Next::Wait) };
            let fails_in_slot = self.flaw == Flaw::Fails;
            if (fails_in_slot || self.flaw == Flaw::FailsBefore) && fails_in_slot == is_in_slot {
                return Err(BlockError::new("it fails"));
            }
            let Some(input) = io.inputs[0].pop() else { break };
            if self.flaw == Flaw::Swallows && is_in_slot {
                continue;
            }
            output.header_mut().timestamp = input.header().timestamp;
            output.fill_validity(1);
            output.as_mut_slice::<u8>().map_err(BlockError::from)?[0] = self.number;
            io.outputs[0].push(output);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

pub(super) fn port() -> PortType {
    PortType {
        dtype: Dtype::U8,
        axes: vec![Axis::new("sample", 16)],
        clock: Clock::new(1e6, 1),
        band: None,
        validity: ValidityType::flags(vec![]),
    }
}

fn part(flaw: Flaw, number: u8, depth: usize) -> Part {
    let pool = Pool::new(&HostAllocator, 4 * depth, 16, 1).expect("there is memory");
    Part {
        name: "block".to_owned(),
        kind: "copying",
        block: Box::new(Copying { number, flaw }),
        counters: Counters::default(),
        summary: Summary::default(),
        events: BlockEvents::default(),
        wake: Waker::default(),
        inputs: vec![Edge::new(depth)],
        outputs: vec![PartOutput { edges: vec![Edge::new(depth)], pool: Some(pool) }],
        ports: Ports { inputs: vec![port()], outputs: vec![port()] },
        thread: Thread::Shared,
        on_fault: OnFault::Stop,
        rebuild: None,
    }
}

/// The running block's thread, which works as the scheduler and the adapter do. With `has_timer` a block that is swapped
/// also wakes up by itself.
pub(super) fn drive(
    mut hosted: Hosted,
    (run, cell): (&Run, &Cell),
    mailbox: &Mailbox,
    task: &Task,
    has_timer: bool,
) {
    loop {
        for command in mailbox.take() {
            command(&mut hosted);
        }
        if run.is_aborting() {
            break;
        }
        match hosted.settle(run, cell) {
            Turn::Lost(fault) => panic!("{}", fault.cause),
            Turn::Work if hosted.has_ended => break,
            Turn::Work if !hosted.is_held => {}
            Turn::Work | Turn::Hold => {
                task.wait();
                continue;
            }
        }
        hosted.begin_turn();
        let Hosted { block, inputs, outputs, .. } = &mut hosted;
        let mut io = Io { inputs, outputs, stopping: false };
        match block.work(&mut io) {
            Ok(Next::Finished) if hosted.may_end() => break,
            Ok(Next::Finished) => task.wait(),
            Ok(_) if hosted.wants_another_turn() => {}
            Ok(_) if has_timer && hosted.swap.is_some() => thread::yield_now(),
            Ok(_) => task.wait(),
            Err(error) => {
                let fault = Fault::error(&error);
                if !hosted.roll_back(&fault) {
                    run.fail(cell, fault);
                    break;
                }
            }
        }
    }
    let Hosted { mut block, inputs, outputs, swap, .. } = hosted;
    drop((swap, outputs, inputs));
    mailbox.close();
    block.finish().expect("it ends");
}

/// `call` is the time limit of a call: zero has passed whenever it is looked at, hours never pass, and others pass at any
/// time.
fn swap(candidate: Flaw, caller: Caller, may_hold_up: bool, call: Duration) {
    let (input, [writes, works], source) = edge(2);
    let (output, [_, reads], _) = edge(2);
    // The running block is also woken by readers of its output.
    let waker = Waker::default();
    works.wakes_for(&waker);
    let mut old = part(Flaw::Works, 1, 4);
    (old.inputs, old.outputs[0].edges) = (vec![Arc::clone(&input)], vec![Arc::clone(&output)]);
    old.wake = waker.clone();
    let cell = Cell::new(&old, Instant::now());
    let run = Run::new(vec![Arc::clone(&cell)], Arc::<Events>::default());
    let fed = Arc::clone(&input);
    let configurations = Arc::default();
    let heard = || Heard::from_start(0);
    let pools = [source.clone(), old.outputs[0].pool.clone().expect("it has a pool")];
    let back = waker.clone();
    pools[1].on_return(move || back.wake());
    let mut hosted = Hosted::new(old.block, &old.inputs, &old.outputs, heard, &configurations);

    // A queue of one frame, so that the block behind it misses some.
    let new = part(candidate, 2, if may_hold_up { 4 } else { 1 });
    let link = Link::new(waker);
    let kept = wire(&new, &link, true);
    let tees = new.inputs.clone();
    let hours = Duration::from_hours(1);
    launch(new, &ConfigIds::from(0), &run, &link).expect("a thread starts");
    link.wait_started(Instant::now() + hours).expect("it starts");
    let moment = Undecided::new();
    let (tie, when) = (Tie(Arc::clone(&link)), moment.when().clone());
    let candidate_part =
        NewCandidate { link: tie, tees, kept, when, samples: vec![1], call, may_hold_up };
    assert!(hosted.put_beside(candidate_part));

    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let writer = thread::spawn(move || {
        let mut writer = FrameWriter::new(vec![input], Some(source), 0);
        let mut left = AFTER;
        for n in 0..MOST {
            let mut frame = loop {
                match writer.take() {
                    Some(frame) => break frame,
                    None => writes.wait(),
                }
            };
            frame.header_mut().timestamp = n;
            frame.fill_validity(1);
            writer.push(frame);
            left -= u64::from(over.load(Ordering::SeqCst));
            if left == 0 {
                return n + 1;
            }
        }
        MOST
    });
    let reader = thread::spawn(move || {
        let mut reader = FrameReader::new(output);
        let mut seen = Vec::new();
        while !reader.ended() {
            match reader.pop() {
                Some(frame) => seen.push((
                    frame.header().timestamp,
                    frame.as_slice::<u8>().expect("it is on the host")[0],
                )),
                None if reader.ended() => {}
                None => reads.wait(),
            }
        }
        seen
    });
    let driven = Arc::clone(&run);
    let has_timer = call < hours;
    let running = thread::spawn(move || {
        drive(hosted, (&driven, &cell), &Mailbox::default(), &works, has_timer);
    });
    // As in a swap, the running block may have ended before.
    link.order(Order::Work);
    let (limit, parting) = (hours, hours);
    let name = "block".to_owned();
    let swap = Swap { link: Arc::clone(&link), name, limit, parting, is_beside: true };
    let deadline = Instant::now() + hours;
    let is_swapped = match caller {
        Caller::LeavesBefore => false,
        caller => {
            swap.wait_ready(deadline).is_ok() && {
                moment.decide(0);
                caller == Caller::Waits && swap.finish(deadline).is_ok()
            }
        }
    };
    drop(swap);
    is_over.store(true, Ordering::SeqCst);
    let written = writer.join().expect("the writer ends");
    running.join().expect("the running block ends");
    let seen = reader.join().expect("the reader ends");
    assert!(link.wait_gone(deadline), "the candidate's thread ends");
    let times: Vec<u64> = seen.iter().map(|(time, _)| *time).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    let missed = fed.dropped();
    let failures = run.failures();
    let said =
        format!("{candidate:?} {caller:?} {may_hold_up} {call:?} {missed} {seen:?} {failures:?}");
    if may_hold_up || [Flaw::Works, Flaw::FailsBefore].contains(&candidate) {
        assert_eq!((times.len() as u64, missed), (written, 0), "{said}");
    } else if written < MOST {
        // The old block may have missed frames, and the new one has made nothing of those before the roll-back.
        assert_eq!(times.len() as u64 + missed, written, "{said}");
    }
    assert!(failures.is_empty(), "{said}");
    let last = seen.last().map(|(_, number)| *number);
    match caller {
        // Without frames after the end of the swap, the last ones are those of the block that was checked.
        Caller::Waits if written == MOST => {}
        Caller::Waits => assert_eq!(last, Some(if is_swapped { 2 } else { 1 })),
        Caller::LeavesBefore => assert!(seen.iter().all(|(_, number)| *number == 1)),
        Caller::LeavesAfterTheDecision => {}
    }
    assert!(!is_swapped || candidate == Flaw::Works, "{candidate:?} {seen:?}");
    for pool in pools {
        assert_eq!(pool.available(), pool.size());
    }
}

#[test]
fn swap_of_any_candidate_under_any_interleaving() {
    let (never, always) = (Duration::from_hours(1), Duration::ZERO);
    let any_time = Duration::from_millis(1);
    let cases = [
        (Flaw::Works, &[(true, never), (true, always), (true, any_time), (false, never)][..]),
        (Flaw::FailsBefore, &[(true, never), (false, never)]),
        (Flaw::Fails, &[(true, never), (true, always), (false, never)]),
        (Flaw::Swallows, &[(true, never), (true, always), (false, never)]),
        // Only time ends the wait for its first frame.
        (Flaw::Silent, &[(true, any_time), (true, always), (false, any_time)]),
    ];
    for (candidate, terms) in cases {
        for caller in [Caller::Waits, Caller::LeavesBefore, Caller::LeavesAfterTheDecision] {
            for (may_hold_up, call) in terms.iter().copied() {
                let model = move || swap(candidate, caller, may_hold_up, call);
                shuttle::check_random(model, 500);
                shuttle::check_pct(model, 500, 3);
            }
        }
    }
}
