//! FutureSDR blocks in a block of fxgraph, called directly.

#![allow(clippy::unwrap_used, missing_docs)]

use futuresdr::blocks::{Apply, FirBuilder, Head};
use futuresdr::runtime::Timer;
use futuresdr::runtime::dev::{
    BlockMeta, BufferReader, BufferWriter, CpuBufferReader, CpuBufferWriter, DefaultCpuReader,
    DefaultCpuWriter, Kernel, MessageOutputs, WorkIo,
};
use fxgraph::edge::Harness;
use fxgraph::{
    Axis, Block, BlockError, Clock, Dtype, Env, Frame, Next, PortType, Ports, ValidityType,
};
use fxgraph_futuresdr::{Graph, Host, Timing};
use num_complex::Complex32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Samples of an input frame, in four units of validity.
const LEN: usize = 96;
/// ADC samples of an input sample.
const STEP: u64 = 4;
const FRAME: u64 = LEN as u64 * STEP;

fn input(dtype: Dtype) -> PortType {
    PortType {
        dtype,
        axes: vec![Axis::new("sample", LEN)],
        clock: Clock::new(1e6, FRAME),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", 4)]),
    }
}

fn ports(dtype: Dtype, timing: &Timing, samples: Option<usize>) -> Ports {
    let inputs = vec![input(dtype)];
    let outputs = vec![timing.output(&inputs[0], dtype, samples).unwrap()];
    Ports { inputs, outputs }
}

/// Returns the input sample at an ADC sample.
fn signal(timestamp: u64) -> f32 {
    let n = timestamp / STEP;
    ((n * n % 1009) as f32 - 504.0) / 504.0
}

/// Sends frames with these timestamps and validities through `block`; returns all output frames.
fn run(block: Box<dyn Block>, ports: &Ports, frames: &[(u64, [u32; 4])]) -> Vec<Arc<Frame>> {
    let mut harness = Harness::new(block, ports, 16).unwrap();
    let mut received = Vec::new();
    for &(timestamp, validity) in frames {
        assert!(send(&mut harness, timestamp, validity));
        drive(&mut harness, &mut received);
    }
    harness.end(0);
    assert_eq!(drive(&mut harness, &mut received), Next::Finished);
    received
}

fn send(harness: &mut Harness, timestamp: u64, validity: [u32; 4]) -> bool {
    harness.send(0, |frame| {
        let header = frame.header_mut();
        header.timestamp = timestamp;
        header.validity.copy_from_slice(&validity);
        for (n, sample) in frame.as_mut_slice::<f32>().unwrap().iter_mut().enumerate() {
            *sample = signal(timestamp + n as u64 * STEP);
        }
    })
}

/// Calls `work` until the block waits, and collects the output.
fn drive(harness: &mut Harness, received: &mut Vec<Arc<Frame>>) -> Next {
    loop {
        let next = Harness::block_on(harness.step()).unwrap();
        let before = received.len();
        received.extend(std::iter::from_fn(|| harness.receive(0)));
        if next == Next::Finished || (next == Next::Wait && received.len() == before) {
            return next;
        }
    }
}

fn taps(count: usize) -> Vec<f32> {
    // Symmetric.
    (0..count).map(|n| 1.0 / (5.0 + n.min(count - 1 - n) as f32)).collect()
}

fn fir(taps: &[f32], decimation: usize, ports: &Ports, env: &Env) -> Box<dyn Block> {
    let (timing, taps) = (Timing::fir(taps.len(), decimation), taps.to_vec());
    let host = Host::<f32, f32>::new(&timing, ports, env, move |graph| {
        let fir = FirBuilder::decimating_with_taps::<f32, f32, _>(decimation, taps.clone());
        let fir = graph.add(fir)?;
        graph.chain(&[fir])
    });
    Box::new(host.unwrap())
}

/// Returns the output of the filter in double precision, centred at this time.
fn filtered(taps: &[f32], timestamp: u64) -> f64 {
    let first = timestamp - (taps.len() / 2) as u64 * STEP;
    let product =
        |(n, tap): (usize, &f32)| f64::from(*tap) * f64::from(signal(first + n as u64 * STEP));
    taps.iter().enumerate().map(product).sum()
}

/// Returns the samples of `frames` with their times, and whether their heap is flagged as complete.
fn samples(frames: &[Arc<Frame>], port: &PortType) -> Vec<(u64, f32, bool)> {
    let step = port.clock.samples_per_frame / port.elements() as u64;
    let mut samples = Vec::new();
    for frame in frames {
        let header = frame.header();
        assert!(header.timestamp.is_multiple_of(port.clock.samples_per_frame));
        let heap = port.elements() / header.validity.len();
        for (n, value) in frame.as_slice::<f32>().unwrap().iter().enumerate() {
            let is_whole = header.validity[n / heap] == 1;
            samples.push((header.timestamp + n as u64 * step, *value, is_whole));
        }
    }
    samples
}

const WHOLE: [u32; 4] = [1; 4];

#[test]
fn samples_equal_a_double_precision_filter_at_the_same_times() {
    for (decimation, len, start, frame_samples) in [
        (1, 31, 0, None),
        (3, 31, FRAME * 7, None),
        (5, 12, FRAME * 3, Some(40)),
        (1, 1, FRAME, None),
    ] {
        let taps = taps(len);
        let len = len as u64;
        let ports = ports(Dtype::F32, &Timing::fir(taps.len(), decimation), frame_samples);
        let env = Env::detached("fir");
        let frames: Vec<_> = (0..10).map(|n| (start + n * FRAME, WHOLE)).collect();
        let received = run(fir(&taps, decimation, &ports, &env), &ports, &frames);
        let (begins, ends) = (start, start + 10 * FRAME);
        let mut whole = 0;
        for (time, value, is_whole) in samples(&received, &ports.outputs[0]) {
            let before = (len - 1) / 2;
            let is_inside = time >= begins + before * STEP && time + len / 2 * STEP < ends;
            // The decimating filter skips a sample at the start, which is 0 and flagged as missing.
            if is_inside && (is_whole || value != 0.0) {
                // With an even number of taps, the time is that of the first of the two middle samples.
                let middle = time + (1 - len % 2) * STEP;
                assert!((f64::from(value) - filtered(&taps, middle)).abs() < 1e-5, "{time}");
            }
            assert!(is_inside || !is_whole, "{time} has no whole filter");
            whole += usize::from(is_whole);
        }
        assert!(whole * decimation >= 8 * LEN, "{whole} samples are whole");
    }
}

#[test]
fn number_of_frames_is_kept_and_only_the_ends_are_missing() {
    let taps = taps(31);
    let ports = ports(Dtype::F32, &Timing::fir(31, 1), None);
    let env = Env::detached("fir");
    let received =
        run(fir(&taps, 1, &ports, &env), &ports, &[(0, WHOLE), (FRAME, WHOLE), (2 * FRAME, WHOLE)]);
    let flags: Vec<_> = received
        .iter()
        .map(|frame| (frame.header().timestamp, frame.header().validity.clone()))
        .collect();
    let expected = [(0, [0, 1, 1, 1]), (FRAME, [1; 4]), (2 * FRAME, [1, 1, 1, 0])];
    assert_eq!(flags, expected.map(|(time, flags)| (time, flags.to_vec())));
    assert!(received[0].as_slice::<f32>().unwrap()[..15].iter().all(|value| *value == 0.0));
}

#[test]
fn missing_samples_flag_the_outputs_that_depend_on_them() {
    let taps = taps(31);
    let ports = ports(Dtype::F32, &Timing::fir(31, 1), None);
    let env = Env::detached("fir");
    let frames = [(0, WHOLE), (FRAME, [1, 1, 0, 1]), (2 * FRAME, WHOLE)];
    let received = run(fir(&taps, 1, &ports, &env), &ports, &frames);
    let flags: Vec<u32> =
        received.iter().flat_map(|frame| frame.header().validity.clone()).collect();
    // Unit 6 is missing; 15 samples before and after depend on it.
    assert_eq!(flags, [0, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, 0]);
    assert_eq!(env.counters.list().iter().map(|c| c.counter.get()).collect::<Vec<_>>(), [0, 0, 5]);
}

#[test]
fn gap_ends_the_stream_and_a_new_one_begins_after_it() {
    let taps = taps(31);
    let ports = ports(Dtype::F32, &Timing::fir(31, 1), None);
    let env = Env::detached("fir");
    // A whole frame is missing, then half of one; one frame is late.
    let half = FRAME / 2;
    let frames =
        [0, FRAME, 3 * FRAME, 4 * FRAME + half, 2 * FRAME, 5 * FRAME + half, 6 * FRAME + half];
    let received = run(fir(&taps, 1, &ports, &env), &ports, &frames.map(|time| (time, WHOLE)));
    let times: Vec<_> = received.iter().map(|frame| frame.header().timestamp / FRAME).collect();
    assert_eq!(times, [0, 1, 3, 4, 5, 6, 7]);
    let gaps = [2 * FRAME..3 * FRAME, 4 * FRAME..4 * FRAME + half];
    for (time, value, is_whole) in samples(&received, &ports.outputs[0]) {
        let touches = |gap: &std::ops::Range<u64>| {
            time + 15 * STEP >= gap.start && time < gap.end + 15 * STEP
        };
        assert!(!is_whole || !gaps.iter().any(touches), "{time} depends on a gap");
        if is_whole {
            assert!((f64::from(value) - filtered(&taps, time)).abs() < 1e-5, "{time}");
        }
    }
    assert_eq!(
        env.counters.list()[..2].iter().map(|c| c.counter.get()).collect::<Vec<_>>(),
        [2, 1]
    );
}

#[test]
fn blocks_started_at_different_frames_output_the_same_frames() {
    let taps = taps(13);
    let ports = ports(Dtype::F32, &Timing::fir(13, 5), Some(32));
    let env = Env::detached("fir");
    let frames: Vec<_> = (0..20).map(|n| (n * FRAME, WHOLE)).collect();
    let first = run(fir(&taps, 5, &ports, &env), &ports, &frames);
    let second = run(fir(&taps, 5, &ports, &env), &ports, &frames[7..]);
    let from = second[1].header().timestamp;
    let first: Vec<_> = first.iter().filter(|frame| frame.header().timestamp >= from).collect();
    assert_eq!(first.len(), second.len() - 1);
    for (first, second) in first.iter().zip(&second[1..]) {
        assert_eq!(first.header().timestamp, second.header().timestamp);
        assert_eq!(first.header().validity, second.header().validity);
        assert_eq!(first.as_slice::<f32>().unwrap(), second.as_slice::<f32>().unwrap());
    }
}

#[test]
fn blocks_of_several_types_and_with_timers_are_hosted() {
    let mut ports = ports(Dtype::F32, &Timing::SAMPLE_BY_SAMPLE, None);
    ports.outputs[0].dtype = Dtype::Cf32;
    let env = Env::detached("convert");
    let host = Host::<f32, Complex32>::new(&Timing::SAMPLE_BY_SAMPLE, &ports, &env, |graph| {
        let double = graph.add(Apply::<_, f32, f32>::new(|x: &f32| 2.0 * x))?;
        let slow = graph.add(Tester::new(What::Sleep, &Arc::default()))?;
        let complex =
            graph.add(Apply::<_, f32, Complex32>::new(|x: &f32| Complex32::new(*x, 1.0)))?;
        graph.chain(&[double, slow, complex])
    });
    let mut harness = Harness::new(Box::new(host.unwrap()), &ports, 2).unwrap();
    assert!(send(&mut harness, FRAME, WHOLE));
    harness.end(0);
    let frame = loop {
        Harness::block_on(harness.step()).unwrap();
        if let Some(frame) = harness.receive(0) {
            break frame;
        }
    };
    assert_eq!(frame.header().validity, [1; 4]);
    let expected = |n: usize| Complex32::new(2.0 * signal(FRAME + n as u64 * STEP), 1.0);
    assert_eq!(frame.as_slice::<Complex32>().unwrap(), (0..LEN).map(expected).collect::<Vec<_>>());
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    Copy,
    Fail,
    Panic,
    Sleep,
    Double,
}

/// Block that copies its samples, and performs an action at the first sample of frame 1. Counts its live instances.
#[derive(futuresdr::runtime::macros::Block)]
struct Tester {
    #[input]
    input: DefaultCpuReader<f32>,
    #[output]
    output: DefaultCpuWriter<f32>,
    what: What,
    alive: Arc<AtomicUsize>,
}

impl Tester {
    fn new(what: What, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self {
            input: DefaultCpuReader::default(),
            output: DefaultCpuWriter::default(),
            what,
            alive: Arc::clone(alive),
        }
    }
}

impl Drop for Tester {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Kernel for Tester {
    async fn work(
        &mut self,
        io: &mut WorkIo,
        _: &mut MessageOutputs,
        _: &mut BlockMeta,
    ) -> futuresdr::runtime::Result<()> {
        let from = self.input.slice();
        let has_come = from.contains(&signal(FRAME));
        match self.what {
            What::Fail if has_come => return Err(std::io::Error::other("the filter broke").into()),
            What::Panic if has_come => panic!("the filter fell over"),
            What::Sleep => Timer::after(Duration::from_millis(1)).await,
            _ => {}
        }
        let to = self.output.slice();
        let count = from.len().min(to.len() / 2);
        to[..count].copy_from_slice(&from[..count]);
        let is_all = count == from.len();
        self.input.consume(count);
        self.output.produce(if self.what == What::Double { 2 * count } else { count });
        io.finished = is_all && self.input.finished();
        Ok(())
    }
}

fn tester(what: What, ports: &Ports, alive: &Arc<AtomicUsize>) -> Harness {
    let env = Env::detached("tester");
    let alive = Arc::clone(alive);
    let host = Host::<f32, f32>::new(&Timing::SAMPLE_BY_SAMPLE, ports, &env, move |graph| {
        let tester = graph.add(Tester::new(what, &alive))?;
        graph.chain(&[tester])
    });
    Harness::new(Box::new(host.unwrap()), ports, 2).unwrap()
}

fn with_causes(error: &BlockError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Calls `work` until it fails.
fn failure(harness: &mut Harness) -> String {
    let failed = std::iter::from_fn(|| Some(Harness::block_on(harness.step())));
    with_causes(&failed.take(100).find_map(Result::err).unwrap())
}

#[test]
fn error_names_the_block_and_the_next_frame_begins_a_new_stream() {
    let ports = ports(Dtype::F32, &Timing::SAMPLE_BY_SAMPLE, None);
    let alive = Arc::default();
    let mut harness = tester(What::Fail, &ports, &alive);
    let mut received = Vec::new();
    send(&mut harness, 0, WHOLE);
    drive(&mut harness, &mut received);
    send(&mut harness, FRAME, WHOLE);
    assert_eq!(
        failure(&mut harness),
        "the FutureSDR flowgraph failed: its block `Tester` failed: the filter broke"
    );
    send(&mut harness, 2 * FRAME, WHOLE);
    harness.end(0);
    assert_eq!(drive(&mut harness, &mut received), Next::Finished);
    let times: Vec<_> = received.iter().map(|frame| frame.header().timestamp / FRAME).collect();
    assert_eq!(times, [0, 2]);
    drop(harness);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn panic_of_a_block_propagates_through_the_host_and_leaks_nothing() {
    let ports = ports(Dtype::F32, &Timing::SAMPLE_BY_SAMPLE, None);
    let alive = Arc::default();
    let mut harness = tester(What::Panic, &ports, &alive);
    send(&mut harness, FRAME, WHOLE);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        failure(&mut harness);
    }));
    assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "the filter fell over");
    drop(harness);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

#[test]
fn host_dropped_at_any_time_leaks_nothing() {
    let ports = ports(Dtype::F32, &Timing::SAMPLE_BY_SAMPLE, None);
    for steps in 0..8 {
        for what in [What::Copy, What::Sleep] {
            let alive = Arc::default();
            let mut harness = tester(what, &ports, &alive);
            send(&mut harness, 0, WHOLE);
            send(&mut harness, FRAME, WHOLE);
            for _ in 0..steps {
                Harness::block_on(harness.step()).unwrap();
            }
            assert_eq!(alive.load(Ordering::Relaxed), 1);
            drop(harness);
            assert_eq!(alive.load(Ordering::Relaxed), 0, "after {steps} steps");
        }
    }
}

#[test]
fn full_output_stops_the_input() {
    let ports = ports(Dtype::F32, &Timing::SAMPLE_BY_SAMPLE, None);
    let mut harness = tester(What::Copy, &ports, &Arc::default());
    let mut sent = 0;
    // FutureSDR's buffers hold some frames, then no input is accepted any more.
    for _ in 0..10_000 {
        sent += u64::from(send(&mut harness, sent * FRAME, WHOLE));
        Harness::block_on(harness.step()).unwrap();
    }
    let buffers = 2 * (1 << 16) / (4 * LEN as u64);
    assert!(sent <= buffers + 8, "{sent} frames were taken");
    harness.end(0);
    let mut received = 0;
    while Harness::block_on(harness.step()).unwrap() != Next::Finished {
        received += std::iter::from_fn(|| harness.receive(0)).count() as u64;
    }
    received += std::iter::from_fn(|| harness.receive(0)).count() as u64;
    assert_eq!(received, sent);
}

#[test]
fn blocks_that_finish_early_end_the_host() {
    let ports = ports(Dtype::F32, &Timing::SAMPLE_BY_SAMPLE, None);
    let env = Env::detached("head");
    let host = Host::<f32, f32>::new(&Timing::SAMPLE_BY_SAMPLE, &ports, &env, |graph| {
        let head: Head<f32> = Head::new(LEN as u64 + 10);
        let head = graph.add(head)?;
        graph.chain(&[head])
    });
    let mut harness = Harness::new(Box::new(host.unwrap()), &ports, 2).unwrap();
    let mut received = Vec::new();
    assert!(send(&mut harness, 0, WHOLE));
    drive(&mut harness, &mut received);
    assert!(send(&mut harness, FRAME, WHOLE));
    assert_eq!(drive(&mut harness, &mut received), Next::Finished);
    assert_eq!(received[1].header().validity, [0; 4]);
    let from_frame_1: Vec<f32> = (0..10).map(|n| signal(FRAME + n * STEP)).collect();
    assert_eq!(received[1].as_slice::<f32>().unwrap()[..10], from_frame_1);
}

#[test]
fn wrong_timing_and_wrong_connections_are_errors() {
    let ports = ports(Dtype::F32, &Timing::SAMPLE_BY_SAMPLE, None);
    let mut harness = tester(What::Double, &ports, &Arc::default());
    send(&mut harness, 0, WHOLE);
    assert!(failure(&mut harness).contains("more samples than its `Timing` allows"));

    let env = Env::detached("wrong");
    let rejected = |timing: Timing, chain: fn(&mut Graph) -> Result<(), BlockError>| {
        with_causes(&Host::<f32, f32>::new(&timing, &ports, &env, chain).err().unwrap())
    };
    let none = Timing { decimation: 0, reads: 0..1, centre: 0 };
    assert!(rejected(none, |_| Ok(())).contains("`decimation` must be at least 1"));
    let text = rejected(Timing::SAMPLE_BY_SAMPLE, |graph| {
        let complex = graph.add(Apply::<_, Complex32, f32>::new(|x: &Complex32| x.re))?;
        graph.chain(&[complex])
    });
    assert!(text.starts_with("FutureSDR cannot connect `output` of block 0"), "{text}");
    let text = rejected(Timing::SAMPLE_BY_SAMPLE, |_| panic!("no taps"));
    assert_eq!(text, "panic while building the FutureSDR flowgraph: no taps");
}

#[test]
fn timing_rejects_inputs_that_are_not_samples() {
    let timing = Timing::fir(3, 2);
    let mut two = input(Dtype::F32);
    two.axes.insert(0, Axis::new("pol", 2));
    assert!(timing.output(&two, Dtype::F32, None).unwrap_err()[0].message.contains("[sample]"));
    let mut odd = input(Dtype::F32);
    odd.clock.samples_per_frame += 1;
    assert!(timing.output(&odd, Dtype::F32, None).is_err());
    let mut units = input(Dtype::F32);
    units.validity.axes[0].len = 5;
    assert!(timing.output(&units, Dtype::F32, None).is_err());
    assert!(Timing::fir(3, 97).output(&input(Dtype::F32), Dtype::F32, None).is_err());
    let port = timing.output(&input(Dtype::F32), Dtype::F32, None).unwrap();
    assert_eq!((port.elements(), port.validity.units()), (LEN / 2, 4));
    assert_eq!(port.clock.samples_per_frame, FRAME);
}
