//! Tests of probes of a flowgraph at full speed.

use super::{Control, Tap, TapError, TapFrame, TapOptions, Tapped};
use crate::{Options, Prepared, Running};
use fxgraph_core::block::{Block, Io, Next};
use fxgraph_core::error::BlockError;
use fxgraph_core::port::Axis;
use fxgraph_core::{
    Checked, Clock, Configured, Counter, Dtype, Implementation, Implementations, Kind, KindEntry,
    KindSpec, PortPool, PortType, Registry, Resources, ValidityType,
};
use fxgraph_flowgraph::load_text;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_mins(1);
/// Elements of a payload, all of them the frame's timestamp.
const ELEMENTS: usize = 64;

/// Source of numbered frames, as fast as they are consumed.
#[derive(Clone, Kind)]
#[kind(name = "numbers", page = "../../core/kind/test_page.md", outputs("output"))]
struct Numbers {
    /// Number of frames; endless unless set.
    frames: Option<u64>,
}

struct Numbering {
    next: u64,
    frames: u64,
}

impl Block for Numbering {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while self.next < self.frames && !io.stopping {
            let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
            frame.header_mut().timestamp = self.next;
            frame.as_mut_slice::<u64>().unwrap().fill(self.next);
            io.outputs[0].push(frame);
            self.next += 1;
        }
        Ok(Next::Finished)
    }
}

impl KindSpec for Numbers {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, _| {
        Ok(Box::new(Numbering { next: 0, frames: block.parameters.frames.unwrap_or(u64::MAX) }))
    })];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        let port = PortType {
            dtype: Dtype::U8,
            axes: vec![Axis::new("byte", ELEMENTS * size_of::<u64>())],
            clock: Clock::new(1e6, 1),
            band: None,
            validity: ValidityType::flags(vec![]),
        };
        Ok(((), vec![port]))
    }
}

/// Passes frames on without a copy.
#[derive(Clone, Kind)]
#[kind(name = "pass", page = "../../core/kind/test_page.md", inputs("input"), outputs("output"))]
struct Pass {}

struct Passing;

impl Block for Passing {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while io.outputs[0].has_room() {
            let Some(frame) = io.inputs[0].pop() else { break };
            io.outputs[0].pass(frame);
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

impl KindSpec for Pass {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> =
        &[Implementation::cpu(|_, _| Ok(Box::new(Passing)))];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        Ok(((), inputs.to_vec()))
    }

    fn resources(_: &Configured<Self>) -> Resources {
        Resources { pools: vec![PortPool::PassThrough(0)], ..Resources::default() }
    }
}

/// Sink that counts frames out of sequence.
#[derive(Clone, Kind)]
#[kind(name = "check", page = "../../core/kind/test_page.md", inputs("input"))]
struct Check {}

struct Checking {
    next: u64,
    wrong: Counter,
}

impl Block for Checking {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        while let Some(frame) = io.inputs[0].pop() {
            let header = frame.header();
            let is_next = [header.sequence, header.timestamp] == [self.next; 2]
                && frame.as_slice::<u64>().unwrap().iter().all(|value| *value == self.next);
            self.wrong.add(u64::from(!is_next));
            self.next += 1;
        }
        Ok(if io.inputs[0].ended() { Next::Finished } else { Next::Wait })
    }
}

impl KindSpec for Check {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|_, env| {
        let wrong = env.counters.loss("frames_wrong", "frames out of sequence");
        Ok(Box::new(Checking { next: 0, wrong }))
    })];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        Ok(((), vec![]))
    }
}

fn registry() -> Registry {
    Registry::new(vec![
        KindEntry::of::<Numbers>(),
        KindEntry::of::<Pass>(),
        KindEntry::of::<Check>(),
    ])
}

/// Starts a flowgraph that runs until it is stopped, or for the given number of frames.
fn start(frames: Option<u64>) -> (Control, Running) {
    let frames = frames.map(|frames| format!("frames: {frames}")).unwrap_or_default();
    let text = format!(
        "flowgraph: g\nblocks:\n  a: {{kind: numbers, parameters: {{{frames}}}}}\n  \
         b: {{kind: pass, input: a}}\n  c: {{kind: check, input: b}}\n"
    );
    let plan = load_text("test.yaml", &text, &[], &registry()).result.unwrap();
    let prepared = Prepared::new(plan.build().unwrap()).unwrap();
    let control = Control::new(plan, registry(), prepared.handle());
    let running = prepared.start(Options::default()).unwrap();
    (control, running)
}

/// Stops the run, and checks that every frame arrived once and in order.
fn finish(control: &Control, running: Running) {
    control.request_stop();
    assert!(control.wait_timeout(LIMIT));
    assert_eq!(running.wait().failures, []);
    let stats = control.stats();
    assert_eq!(stats[0].frames_out, stats[2].frames_in);
    assert_eq!(stats[2].counters[0].counter.get(), 0);
}

fn frame(tap: &mut Tap) -> TapFrame {
    match tap.next(LIMIT).unwrap() {
        Tapped::Frame(frame) => {
            let number = frame.header.timestamp.to_ne_bytes();
            assert_eq!(frame.payload.len(), ELEMENTS * number.len());
            assert!(frame.payload.chunks_exact(number.len()).all(|value| value == number));
            frame
        }
        other => panic!("{other:?}"),
    }
}

fn arrived(control: &Control) -> u64 {
    control.stats()[2].frames_in
}

/// Waits until the pool has `size` buffers: those of an earlier probe that are in flight are freed when they return.
fn has_pool(control: &Control, size: usize) {
    let began = Instant::now();
    while pool_size(control) != size {
        assert!(began.elapsed() < LIMIT, "{} buffers, not {size}", pool_size(control));
    }
}

fn pool_size(control: &Control) -> usize {
    let pool = control.0.run().ask("a", LIMIT, |hosted| hosted.outputs[0].writer.pool());
    pool.unwrap().unwrap().size()
}

#[test]
fn probes_added_and_removed_under_load_drop_and_duplicate_no_frame() {
    let (control, running) = start(None);
    let size = pool_size(&control);
    for round in 0..100 {
        // `b` passes on the frames of `a`.
        let output = ["a", "b.output"][round % 2];
        let options = TapOptions { queue: 1 + round % 5, ..TapOptions::default() };
        let mut tap = control.tap(output, options, LIMIT).unwrap();
        has_pool(&control, size + options.queue + 2);
        let first = frame(&mut tap).header.sequence;
        let second = frame(&mut tap).header.sequence;
        assert!(second > first);
        // Frames missing in between are counted, possibly a little later.
        let began = Instant::now();
        while tap.dropped() < second - first - 1 {
            assert!(began.elapsed() < LIMIT, "{} of {}", tap.dropped(), second - first - 1);
        }
    }
    let mut two = [(); 2].map(|()| control.tap("a", TapOptions::default(), LIMIT).unwrap());
    two.iter_mut().for_each(|tap| assert_eq!(tap.output(), "a.output"));
    two.iter_mut().for_each(|tap| drop(frame(tap)));
    drop(two);
    has_pool(&control, size);
    finish(&control, running);
}

#[test]
fn probe_that_is_never_read_drops_frames_and_does_not_block_the_flowgraph() {
    let (control, running) = start(None);
    let tap = control.tap("a", TapOptions { queue: 3, ..TapOptions::default() }, LIMIT).unwrap();
    let before = arrived(&control);
    let began = Instant::now();
    while arrived(&control) < before + 10_000 {
        assert!(began.elapsed() < LIMIT, "no frames arrive");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(tap.dropped() > 9_000);
    finish(&control, running);
    // The probe holds the newest frames.
    let mut tap = tap;
    let last = control.stats()[0].frames_out - 1;
    let found = [frame(&mut tap), frame(&mut tap), frame(&mut tap)].map(|f| f.header.sequence);
    assert_eq!(found, [last - 2, last - 1, last]);
    assert!(matches!(tap.next(LIMIT).unwrap(), Tapped::Ended));
}

#[test]
fn end_of_a_run_ends_its_probes() {
    let (control, running) = start(None);
    let mut tap = control.tap("b", TapOptions::default(), LIMIT).unwrap();
    let waiting = std::thread::spawn(move || {
        loop {
            match tap.next(LIMIT).unwrap() {
                Tapped::Frame(_) => {}
                Tapped::Ended => return true,
                Tapped::Nothing => return false,
            }
        }
    });
    control.abort();
    assert!(waiting.join().unwrap());
    assert!(control.wait_timeout(LIMIT));
    drop(running);
    let late = control.tap("a", TapOptions::default(), LIMIT).err().unwrap();
    assert_eq!(late.to_string(), "`a` has ended");
}

#[test]
fn probe_is_ready_when_it_has_a_frame() {
    let (control, running) = start(None);
    let mut tap = control.tap("b", TapOptions::default(), LIMIT).unwrap();
    let mut taken = 0;
    loop {
        async_io::block_on(tap.ready());
        match tap.next(Duration::ZERO).unwrap() {
            Tapped::Frame(_) => taken += 1,
            Tapped::Nothing => panic!("the probe is ready without a frame"),
            Tapped::Ended => break,
        }
        if taken == 100 {
            control.request_stop();
        }
    }
    assert!(taken >= 100);
    finish(&control, running);
}

#[test]
fn probe_decimates_frames() {
    let (control, running) = start(None);
    let options = TapOptions { every: 10, queue: 8, most_per_second: None };
    let mut tap = control.tap("a", options, LIMIT).unwrap();
    let first = frame(&mut tap).header.sequence;
    assert!((0..20).all(|_| (frame(&mut tap).header.sequence - first).is_multiple_of(10)));
    let options = TapOptions { every: 0, queue: 1000, most_per_second: Some(50.0) };
    let began = Instant::now();
    let mut tap = control.tap("a", options, LIMIT).unwrap();
    (0..11).for_each(|_| drop(frame(&mut tap)));
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    let options = TapOptions { most_per_second: Some(1e-9), ..TapOptions::default() };
    let mut tap = control.tap("a", options, LIMIT).unwrap();
    drop(frame(&mut tap));
    assert!(matches!(tap.next(Duration::ZERO).unwrap(), Tapped::Nothing));
    assert_eq!(tap.port().axes[0].name, "byte");
    let mut tap = control.tap("a", TapOptions::default(), LIMIT).unwrap();
    let frame = frame(&mut tap);
    let array = frame.to_npy(tap.port());
    let (header, data) = array.split_at(array.len() - frame.payload.len());
    assert_eq!((header.len() % 64, data), (0, &*frame.payload));
    let words = "{'descr': '|u1', 'fortran_order': False, 'shape': (512, ), }";
    assert!(header[10..].starts_with(words.as_bytes()));
    finish(&control, running);
}

#[test]
fn probe_rejects_unknown_outputs() {
    let (control, running) = start(None);
    let rejected = |output| {
        let error = control.tap(output, TapOptions::default(), LIMIT).err().unwrap();
        let TapError::Rejected(rejected) = &error else { panic!("{error}") };
        (error.to_string(), rejected.problems[0].help.join("; "))
    };
    assert_eq!(rejected("d").0, "there is no block `d`");
    let (text, help) = rejected("a.outptu");
    assert_eq!(text, "`a` has no output `outptu`");
    assert_eq!(help, "did you mean `output`?");
    assert_eq!(rejected("c").0, "`c` has no outputs");
    finish(&control, running);
}
