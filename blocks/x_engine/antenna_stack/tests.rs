//! Stacks frames whose every byte encodes its place.
#![allow(clippy::unwrap_used)]

use super::cpu::Stack;
use super::*;
use crate::x_engine::correlator::Correlator;
use fxgraph::Block;
use fxgraph::changes::When;
use fxgraph::edge::Harness;
use fxgraph::{Band, Clock, Counters, Next, Ports};

const HEAPS: usize = 2;
const CHANNELS: usize = 4;
const CELL: usize = 3 * 2;

fn port() -> PortType {
    PortType {
        dtype: Dtype::Ci8,
        axes: vec![
            Axis::new("heap", HEAPS),
            Axis::new("channel", CHANNELS),
            Axis::new("spectrum", 3),
            Axis::new("pol", 2),
        ],
        clock: Clock::new(1e6, 48),
        band: Some(Band::signed(4, 0, 2.5e5, 5e5)),
        validity: ValidityType::flags(vec![Axis::new("heap", HEAPS)]),
    }
}

/// Value of a place.
fn value(time: u64, antenna: usize, heap: usize, channel: usize, i: usize) -> u16 {
    ((time / 48) as usize * 1000 + antenna * 300 + heap * 100 + channel * 20 + i + 1) as u16
}

struct Bench {
    harness: Harness,
    counters: Counters,
    channels: std::ops::Range<usize>,
}

impl Bench {
    fn new(antennas: usize, parameters: &AntennaStack) -> Self {
        Self::with_updates(antennas, parameters, &[])
    }

    /// A block with live updates of the flags at these timestamps.
    fn with_updates(
        antennas: usize,
        parameters: &AntennaStack,
        updates: &[(u64, &[bool])],
    ) -> Self {
        let inputs = vec![port(); antennas];
        let outputs = parameters.outputs(&inputs).unwrap();
        let ports = Ports { inputs, outputs };
        let counters = Counters::default();
        let heaps = Heaps::new(parameters, &ports.inputs[0], &ports.outputs[0]);
        let mask = parameters.flagged(antennas);
        let flagging = Flagging::new(mask, HEAPS, 48, &counters);
        let mut stack = Box::new(Stack::new(parameters, heaps, &ports, flagging, &counters));
        for (from, mask) in updates {
            let change = When::at(*from);
            stack
                .update(change.change(vec![("flagged_antennas", Box::new(mask.to_vec()))]))
                .unwrap();
        }
        let harness = Harness::new(stack, &ports, 8).unwrap();
        let first = parameters.first_channel;
        let channels = first..first + parameters.channels_of(CHANNELS);
        Self { harness, counters, channels }
    }

    fn send(&mut self, antenna: usize, time: u64, validity: [u32; HEAPS]) {
        assert!(self.harness.send(antenna, |frame| {
            let (header, payload) = frame.parts_mut::<u16>().unwrap();
            header.timestamp = time;
            header.validity.copy_from_slice(&validity);
            for (n, x) in payload.iter_mut().enumerate() {
                let (heap, channel) = (n / CELL / CHANNELS, n / CELL % CHANNELS);
                *x = value(time, antenna, heap, channel, n % CELL);
            }
        }));
    }

    /// Runs the block until it waits, with or without a time limit.
    fn run(&mut self) -> Next {
        loop {
            match Harness::block_on(self.harness.step()).unwrap() {
                Next::Again => {}
                Next::After(_) => return Next::Wait,
                next => return next,
            }
        }
    }

    /// Checks the payload of the next frame, and returns its time and validity.
    fn receive(&mut self, antennas: usize) -> Option<(u64, Vec<u32>)> {
        let frame = self.harness.receive(0)?;
        let (time, validity) = (frame.header().timestamp, frame.header().validity.clone());
        let mut payload = frame.as_slice::<u16>().unwrap().iter();
        for heap in 0..HEAPS {
            for antenna in 0..antennas {
                for channel in self.channels.clone() {
                    for i in 0..CELL {
                        let there = validity[heap * antennas + antenna] == 1;
                        let expected =
                            if there { value(time, antenna, heap, channel, i) } else { 0 };
                        assert_eq!(*payload.next().unwrap(), expected);
                    }
                }
            }
        }
        assert!(payload.next().is_none());
        Some((time, validity))
    }

    /// Counters of missing heaps, of antennas that were given up, and of late frames.
    fn counts(&self) -> Vec<u64> {
        self.counters.list().iter().skip(1).map(|c| c.counter.get()).collect()
    }

    fn flagged(&self) -> u64 {
        self.counters.list()[0].counter.get()
    }
}

#[test]
fn stack_copies_each_antenna_and_channel_to_its_place() {
    let parameters =
        AntennaStack { first_channel: 1, channels: Some(2), ..AntennaStack::default() };
    let mut bench = Bench::new(3, &parameters);
    for time in [48, 96] {
        (0..3).for_each(|antenna| bench.send(antenna, time, [1, 1]));
    }
    assert_eq!(bench.run(), Next::Wait);
    assert_eq!(bench.receive(3), Some((48, vec![1; 6])));
    assert_eq!(bench.receive(3), Some((96, vec![1; 6])));
    assert_eq!(bench.counts(), [0, 0, 0]);
    let output = &parameters.outputs(&[port(), port()]).unwrap()[0];
    assert_eq!(output.band.unwrap().first_channel, 1);
    assert_eq!(
        output.to_string(),
        "ci8 [heap 2][antenna 2][channel 2][spectrum 3][pol 2] @ 1 MS/s / 48"
    );
}

#[test]
fn exactly_the_missing_heaps_and_frames_are_invalid() {
    let mut bench = Bench::new(2, &AntennaStack::default());
    bench.send(0, 0, [1, 0]);
    bench.send(1, 0, [1, 1]);
    bench.send(0, 96, [1, 1]);
    bench.send(1, 48, [1, 1]);
    bench.run();
    assert_eq!(bench.receive(2), Some((0, vec![1, 1, 0, 1])));
    assert_eq!(bench.receive(2), Some((48, vec![0, 1, 0, 1])));
    // Antenna 1 may still send 96, so no frame is output before its stream ends.
    assert_eq!(bench.receive(2), None);
    bench.harness.end(0);
    bench.harness.end(1);
    assert_eq!(bench.run(), Next::Finished);
    assert_eq!(bench.receive(2), Some((96, vec![1, 0, 1, 0])));
    assert_eq!(bench.counts(), [4, 0, 0]);
}

#[test]
fn silent_antenna_is_given_up_after_window_and_late_afterwards() {
    let mut bench = Bench::new(2, &AntennaStack { window: Some(2), ..AntennaStack::default() });
    bench.send(0, 0, [1, 1]);
    assert_eq!(bench.run(), Next::Wait);
    assert_eq!(bench.receive(2), None);
    bench.send(0, 48, [1, 1]);
    bench.run();
    assert_eq!(bench.receive(2), Some((0, vec![1, 0, 1, 0])));
    assert_eq!(bench.receive(2), None);
    bench.send(1, 0, [1, 1]);
    bench.send(1, 48, [1, 1]);
    bench.run();
    assert_eq!(bench.receive(2), Some((48, vec![1; 4])));
    assert_eq!(bench.counts(), [2, 0, 1]);
}

/// Timestamp after the next wrap, where a restarted stream continues.
const TURN: u64 = 48 << 44;

#[test]
fn restarted_antenna_does_not_affect_frames_of_others() {
    let mut bench = Bench::new(3, &AntennaStack { window: Some(2), ..AntennaStack::default() });
    (0..3).for_each(|antenna| bench.send(antenna, 0, [1, 1]));
    bench.run();
    assert_eq!(bench.receive(3), Some((0, vec![1; 6])));
    // Antenna 2 restarts, and fills its window and its queue.
    (0..6).for_each(|n| bench.send(2, TURN + 48 * n, [1, 1]));
    // Antenna 1 is behind antenna 0, but by less than the window.
    bench.send(0, 48, [1, 1]);
    for time in (48..48 * 20).step_by(48) {
        assert_eq!(bench.run(), Next::Wait);
        assert_eq!(bench.receive(3), None, "antenna 1 is waited for");
        bench.send(1, time, [1, 1]);
        bench.run();
        assert_eq!(bench.receive(3), Some((time, vec![1, 1, 0, 1, 1, 0])));
        bench.send(0, time + 48, [1, 1]);
    }
    // The others restart some frames later.
    for time in [TURN + 192, TURN + 240] {
        (0..2).for_each(|antenna| bench.send(antenna, time, [1, 1]));
    }
    bench.run();
    let mut frames = std::iter::from_fn(|| bench.receive(3));
    assert_eq!(frames.next(), Some((48 * 20, vec![1, 0, 0, 1, 0, 0])));
    for n in 0..4 {
        assert_eq!(frames.next(), Some((TURN + 48 * n, vec![0, 0, 1, 0, 0, 1])));
    }
    for n in 4..6 {
        assert_eq!(frames.next(), Some((TURN + 48 * n, vec![1; 6])));
    }
    assert_eq!(frames.next(), None);
    assert_eq!(bench.counts()[2], 0, "no frame is late");
}

#[test]
fn full_window_far_ahead_gives_up_dead_antennas() {
    let mut bench = Bench::new(3, &AntennaStack { window: Some(2), ..AntennaStack::default() });
    (0..3).for_each(|antenna| bench.send(antenna, 0, [1, 1]));
    bench.run();
    assert_eq!(bench.receive(3), Some((0, vec![1; 6])));
    // Antennas 0 and 1 stop sending.
    bench.send(2, TURN, [1, 1]);
    bench.send(2, TURN + 48, [1, 1]);
    assert_eq!(bench.run(), Next::Wait);
    assert_eq!(bench.receive(3), None);
    assert_eq!(Harness::block_on(bench.harness.run()).unwrap(), Next::Wait);
    for time in [TURN, TURN + 48] {
        assert_eq!(bench.receive(3), Some((time, vec![0, 0, 1, 0, 0, 1])));
    }
}

#[test]
fn dead_antenna_stalls_others_once_and_rejoins_when_it_sends() {
    let parameters = AntennaStack { wait_seconds: Some(0.05), ..AntennaStack::default() };
    let mut bench = Bench::new(3, &parameters);
    (0..3).for_each(|antenna| bench.send(antenna, 0, [1, 1]));
    bench.run();
    assert_eq!(bench.receive(3), Some((0, vec![1; 6])));
    // Antenna 1 stops sending.
    for time in [48, 96, 144] {
        bench.send(0, time, [1, 1]);
        bench.send(2, time, [1, 1]);
    }
    assert_eq!(bench.run(), Next::Wait);
    assert_eq!(bench.receive(3), None);
    // `Harness::run` sleeps for the times that the block requests, until all received frames are output.
    assert_eq!(Harness::block_on(bench.harness.run()).unwrap(), Next::Wait);
    for time in [48, 96, 144] {
        assert_eq!(bench.receive(3), Some((time, vec![1, 0, 1, 1, 0, 1])));
    }
    // The antenna returns, behind the others at first, and the block waits for it again.
    bench.send(1, 144, [1, 1]);
    bench.run();
    bench.send(0, 192, [1, 1]);
    bench.send(2, 192, [1, 1]);
    assert_eq!(bench.run(), Next::Wait);
    assert_eq!(bench.receive(3), None);
    bench.send(1, 192, [1, 1]);
    bench.run();
    assert_eq!(bench.receive(3), Some((192, vec![1; 6])));
    assert_eq!(bench.counts(), [6, 1, 1]);
    (0..3).for_each(|antenna| bench.harness.end(antenna));
    assert_eq!(bench.run(), Next::Finished);
}

#[test]
fn stack_without_limits_waits_for_every_antenna() {
    let parameters: AntennaStack = serde_json::from_value(serde_json::json!({})).unwrap();
    assert_eq!(parameters.wait_seconds, None);
    let mut bench = Bench::new(2, &parameters);
    bench.send(0, 0, [1, 1]);
    assert_eq!(Harness::block_on(bench.harness.step()).unwrap(), Next::Wait);
}

#[test]
fn stack_rejects_different_inputs_and_missing_channels() {
    let mut other = port();
    other.clock.samples_per_frame = 96;
    let parameters =
        AntennaStack { first_channel: 2, channels: Some(usize::MAX), ..AntennaStack::default() };
    let codes_of =
        |rejections: Vec<Rejection>| rejections.iter().map(|r| r.code).collect::<Vec<_>>();
    let rejected = codes_of(parameters.outputs(&[port(), other]).unwrap_err());
    assert_eq!(rejected, [codes::INPUTS_DIFFER, codes::PARAMETER_OUT_OF_RANGE]);
    let mut digitiser = port();
    digitiser.axes = vec![Axis::new("sample", 8)];
    digitiser.dtype = Dtype::Packed(10);
    let rejected = codes_of(AntennaStack::default().outputs(&[digitiser]).unwrap_err());
    assert_eq!(rejected, [codes::INPUT_AXIS, codes::INPUT_DTYPE]);
}

#[test]
fn numbers_of_antennas_are_labels_of_antennas_and_baselines() {
    let stack = |numbers: &[u32]| {
        let parameters =
            AntennaStack { antenna_numbers: numbers.to_vec(), ..AntennaStack::default() };
        let found = parameters.outputs(&[port(), port(), port()]);
        found.map_err(|rejections| rejections.into_iter().map(|r| r.message).collect::<Vec<_>>())
    };
    let numbered = stack(&[12, 3, 7]).unwrap().remove(0);
    assert_eq!(numbered.axes[1].labels, ["12", "3", "7"]);
    let correlator = Correlator { dump_seconds: Some(1e-6), ..Correlator::default() };
    let labels = |stack: PortType| {
        let mut outputs = correlator.outputs(&[stack]).unwrap();
        outputs.remove(0).axes.remove(1).labels
    };
    assert_eq!(labels(numbered), ["12-12", "12-3", "3-3", "12-7", "3-7", "7-7"]);
    assert!(labels(stack(&[]).unwrap().remove(0)).is_empty());
    let message = |numbers| stack(numbers).unwrap_err().join("; ");
    assert_eq!(
        message(&[4, 4]),
        "`antenna_numbers` must have 3 numbers, one for each input, got 2; `antenna_numbers` must differ, got 4 twice"
    );
    assert_eq!(
        message(&[0, 1, 1_000_001]),
        "`antenna_numbers` must be at most 1000000, got 1000001"
    );
}

#[test]
fn flags_of_channels_are_stacked_with_their_channels() {
    let parameters =
        AntennaStack { first_channel: 1, channels: Some(2), ..AntennaStack::default() };
    let mut input = port();
    input.validity.axes = vec![input.axes[0].clone(), input.axes[1].clone(), input.axes[3].clone()];
    let inputs = vec![input; 2];
    let outputs = parameters.outputs(&inputs).unwrap();
    let units: Vec<_> = outputs[0].validity.axes.iter().map(|axis| (axis.name, axis.len)).collect();
    assert_eq!(units, [("heap", 2), ("antenna", 2), ("channel", 2), ("pol", 2)]);
    let ports = Ports { inputs, outputs };
    let env = fxgraph::Env::detached("stack");
    let block = parameters.build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    for antenna in 0..2 {
        harness.send(antenna, |frame| {
            let (header, payload) = frame.parts_mut::<u8>().unwrap();
            // Unit `[heap][channel][pol]`: channel 2, polarisation 1 of heap 0, and all of heap 1 of antenna 1.
            header.validity.fill(1);
            header.validity[5] = 0;
            header.validity[CHANNELS * 2..].fill(1 - antenna as u32);
            payload.fill(7);
        });
    }
    Harness::block_on(harness.run()).unwrap();
    let frame = harness.receive(0).unwrap();
    // Of each heap and antenna: channels 1 and 2, both polarisations.
    let expected = [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]].concat();
    assert_eq!(frame.header().validity, expected);
    // The samples of an antenna without any flag are zeros; the others are copied.
    let parts: Vec<&[u8]> = frame.as_slice::<u8>().unwrap().chunks(2 * 2 * CELL).collect();
    assert!(parts[..3].iter().all(|part| part.iter().all(|byte| *byte == 7)));
    assert!(parts[3].iter().all(|byte| *byte == 0));
}

#[test]
fn flagged_antenna_is_missing_from_the_start() {
    let parameters = AntennaStack { flagged_antennas: vec![1], ..AntennaStack::default() };
    let mut bench = Bench::new(3, &parameters);
    (0..3).for_each(|antenna| bench.send(antenna, 0, [1, 1]));
    bench.run();
    assert_eq!(bench.receive(3), Some((0, vec![1, 0, 1, 1, 0, 1])));
    assert_eq!((bench.flagged(), bench.counts()), (2, vec![0, 0, 0]));
    // A flagged antenna that does not send is not counted as missing.
    for antenna in [0, 2] {
        bench.send(antenna, 48, [1, 1]);
        bench.harness.end(antenna);
    }
    bench.harness.end(1);
    bench.run();
    assert_eq!(bench.receive(3), Some((48, vec![1, 0, 1, 1, 0, 1])));
    assert_eq!((bench.flagged(), bench.counts()), (4, vec![0, 0, 0]));
}

#[test]
fn live_update_flags_and_unflags_from_the_heap_at_its_timestamp() {
    // Heaps have 24 samples: the second heap of the frame at 48 begins at 72. An update applies from the first heap that
    // begins at its timestamp or later.
    let updates: [(u64, &[bool]); 3] =
        [(72, &[true, false]), (145, &[false, true]), (192, &[false, false])];
    let mut bench = Bench::with_updates(2, &AntennaStack::default(), &updates);
    let mut frames = Vec::new();
    for time in (0..240).step_by(48) {
        (0..2).for_each(|antenna| bench.send(antenna, time, [1, 1]));
        bench.run();
        frames.extend(bench.receive(2));
    }
    let expected = [[1, 1, 1, 1], [1, 1, 0, 1], [0, 1, 0, 1], [0, 1, 1, 0], [1, 1, 1, 1]];
    let expected = expected.iter().zip((0..).step_by(48)).map(|(v, time)| (time, v.to_vec()));
    assert_eq!(frames, expected.collect::<Vec<_>>());
    assert_eq!((bench.flagged(), bench.counts()), (5, vec![0, 0, 0]));
}

#[test]
fn flagged_antennas_are_those_with_the_numbers() {
    let of = |flagged_antennas: Vec<u32>| AntennaStack {
        antenna_numbers: vec![12, 3, 7],
        flagged_antennas,
        ..AntennaStack::default()
    };
    assert_eq!(of(vec![]).flagged(3), [false, false, false]);
    assert_eq!(of(vec![7, 12]).flagged(3), [true, false, true]);
    let inputs = [port(), port(), port()];
    of(vec![3]).outputs(&inputs).unwrap();
    let rejections = of(vec![7, 1]).outputs(&inputs).unwrap_err();
    assert_eq!(
        rejections[0].message,
        "`flagged_antennas` must name antennas of the array by their numbers, got 1"
    );
    assert_eq!(rejections[0].help.as_deref(), Some("use the numbers 12, 3, 7"));
    // A live update.
    let [new, old] = [of(vec![3]), of(vec![])].map(|kind| Configured::new(kind, &inputs).unwrap());
    let mask = LiveKind::live_value(&new, AntennaStackLive::FlaggedAntennas, &old).unwrap();
    assert_eq!(mask, [false, true, false]);
}

#[test]
fn stack_rejects_flags_of_antennas_that_do_not_exist() {
    let parameters = AntennaStack { flagged_antennas: vec![0, 2], ..AntennaStack::default() };
    let rejections = parameters.outputs(&[port(), port()]).unwrap_err();
    assert_eq!(
        rejections[0].message,
        "`flagged_antennas` must name antennas of the array by their numbers, got 2"
    );
}
