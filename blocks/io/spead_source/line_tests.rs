//! Blocks downstream of two sources continue with any packets on the wire.
#![allow(clippy::unwrap_used)]

use super::layout::{Layout, Stream};
use super::window::{Frames, Options, Outcome, Window};
use crate::f_engine::pfb::Pfb;
use crate::f_engine::pol_aligner::PolAligner;
use crate::io::spead::endpoint::Endpoint;
use crate::io::spead::item;
use crate::io::spead::packet::{Head, Pointer};
use fxgraph::edge::Harness;
use fxgraph::frame::{HostAllocator, Pool};
use fxgraph::{Axis, Clock, Dtype, Env, Frame, FrameMut, KindSpec, PortType, Ports, ValidityType};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FROM: Endpoint = Endpoint::v4(Ipv4Addr::LOCALHOST, 7148);
const HEAP: u64 = 64;
const HEAPS: u64 = 4;
/// A heap each millisecond.
const RATE: f64 = HEAP as f64 * 1e3;
/// Frames of a pool and of a queue.
const FRAMES: usize = 256;
const STEP: u64 = 32;
const WINDOW: u64 = 4 * STEP;
/// Heaps from sync time to the wrap.
const WRAP: u64 = (1 << 48) / HEAP;

struct Desk {
    pool: Arc<Pool>,
    out: Vec<FrameMut>,
}

impl Frames for Desk {
    fn take(&mut self) -> Option<FrameMut> {
        self.pool.take()
    }

    fn push(&mut self, frame: FrameMut) {
        self.out.push(frame);
    }
}

/// Two windows, an aligner and a filter bank.
struct Line {
    windows: [(Window, Desk); 2],
    aligner: Harness,
    pfb: Harness,
    aligner_env: Env,
    pfb_env: Env,
    start: Instant,
    millis: u64,
    /// Start times of the valid spectra, in the order of the output.
    spectra: Vec<u64>,
}

fn port() -> PortType {
    let samples = (HEAP * HEAPS) as usize;
    PortType {
        dtype: Dtype::Packed(8),
        axes: vec![Axis::new("sample", samples)],
        clock: Clock::new(RATE, samples as u64),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", HEAPS as usize)]),
    }
}

impl Line {
    /// Creates a line whose queues and pools hold the frames that a restart brings at once; the aligner
    /// waits `wait_seconds` for a silent polarisation, 0 for ever.
    fn new(wait_seconds: f64) -> Self {
        let layout = Layout {
            stream: Stream::Digitiser { pol: None },
            heap_bytes: HEAP as usize,
            samples_per_heap: HEAP,
            heaps_per_frame: HEAPS as usize,
        };
        let windows = [(); 2].map(|()| {
            let pool = Pool::new(&HostAllocator, FRAMES, layout.slots() * layout.heap_bytes, 4);
            let desk = Desk { pool: pool.unwrap(), out: Vec::new() };
            (Window::new(layout, Options::new(4, RATE), &Env::detached("in")), desk)
        });
        let (aligner_env, pfb_env) = (Env::detached("aligner"), Env::detached("pfb"));
        let ports = Ports { inputs: vec![port(); 2], outputs: vec![port(); 2] };
        let aligner = PolAligner { wait_seconds }.build(&ports.inputs, &aligner_env).unwrap();
        let aligner = Harness::new(aligner, &ports, FRAMES).unwrap();
        let parameters = serde_json::json!({"channels": 16, "taps": 4, "spectra_per_frame": 8});
        let pfb: Pfb = serde_json::from_value(parameters).unwrap();
        let outputs = KindSpec::outputs(&pfb, &ports.inputs).unwrap();
        let ports = Ports { inputs: ports.inputs, outputs };
        let pfb = Harness::new(pfb.build(&ports.inputs, &pfb_env).unwrap(), &ports, 16).unwrap();
        Self {
            windows,
            aligner,
            pfb,
            aligner_env,
            pfb_env,
            start: Instant::now(),
            millis: 0,
            spectra: Vec::new(),
        }
    }

    /// Sends heap `number` of polarisation `pol`.
    fn heap(&mut self, pol: usize, number: u64) -> Outcome {
        let items = [
            Pointer::immediate(item::TIMESTAMP, number * HEAP),
            Pointer::addressed(item::RAW_SAMPLES, 0),
        ];
        let head = Head::new(number, HEAP as usize, 0, HEAP as usize, &items);
        let packet = [head.as_bytes(), &[1; HEAP as usize]].concat();
        let (window, desk) = &mut self.windows[pol];
        window.tick(self.start + Duration::from_millis(self.millis));
        let outcome = window.datagram(&packet, FROM, desk);
        self.pass_on(pol);
        outcome
    }

    /// Sends heaps of both polarisations, one each millisecond.
    fn stream(&mut self, numbers: Range<u64>) {
        for number in numbers {
            self.millis += 1;
            for pol in 0..2 {
                assert_ne!(self.heap(pol, number), Outcome::Stop);
            }
        }
    }

    /// Sends the frames of the window of `pol` to the aligner one by one: its queue holds fewer frames than
    /// a restart brings at once.
    fn pass_on(&mut self, pol: usize) {
        for frame in std::mem::take(&mut self.windows[pol].1.out) {
            let frame = frame.freeze();
            assert!(self.aligner.send(pol, |to| copy(&frame, to)), "the aligner has room");
            self.run();
        }
        self.run();
    }

    fn run(&mut self) {
        Harness::block_on(self.aligner.run()).unwrap();
        for pol in 0..2 {
            while let Some(frame) = self.aligner.receive(pol) {
                assert!(self.pfb.send(pol, |to| copy(&frame, to)), "the filter bank has room");
            }
        }
        Harness::block_on(self.pfb.run()).unwrap();
        while let Some(frame) = self.pfb.receive(0) {
            let validity = &frame.header().validity;
            let spectra = validity.len() / 2;
            assert_eq!(validity[..spectra], validity[spectra..]);
            let valid = (0..spectra).filter(|n| validity[*n] > 0);
            let time = |n| frame.header().timestamp + n as u64 * STEP;
            self.spectra.extend(valid.map(time));
        }
    }

    /// Ends the streams, and asserts that exactly the spectra of these heaps came out and no frame was
    /// dropped.
    fn assert_spectra_of(mut self, heaps: &[Range<u64>]) {
        for pol in 0..2 {
            let (window, desk) = &mut self.windows[pol];
            window.flush(desk);
            self.pass_on(pol);
        }
        (0..2).for_each(|pol| self.aligner.end(pol));
        (0..2).for_each(|pol| self.pfb.end(pol));
        self.pass_on(0);
        let spectra = |heaps: &Range<u64>| {
            let samples = heaps.start * HEAP..heaps.end * HEAP;
            let first = samples.start.next_multiple_of(STEP);
            (first..).step_by(STEP as usize).take_while(move |t| t + WINDOW <= samples.end)
        };
        assert_eq!(self.spectra, heaps.iter().flat_map(spectra).collect::<Vec<_>>());
        for name in ["pol0_frames_unpaired", "pol1_frames_unpaired"] {
            assert_eq!(count(&self.aligner_env, name), 0, "{name}");
        }
        assert_eq!(count(&self.pfb_env, "frames_misplaced"), 0);
    }
}

fn copy(from: &Frame, to: &mut FrameMut) {
    to.header_mut().timestamp = from.header().timestamp;
    to.header_mut().validity.copy_from_slice(&from.header().validity);
    to.as_mut_slice::<u8>().unwrap().copy_from_slice(from.as_slice().unwrap());
}

fn count(env: &Env, name: &str) -> u64 {
    env.counters.list().iter().find(|c| c.name == name).unwrap().counter.get()
}

#[test]
fn spoofed_packets_between_good_ones_drop_no_spectrum() {
    let mut line = Line::new(0.0);
    line.stream(1000..1100);
    // Four packets of one polarisation only.
    for unexpected in 0..4 {
        line.heap(0, (1 << 35) + unexpected);
    }
    line.stream(1100..1200);
    (0..300).for_each(|unexpected| assert_ne!(line.heap(1, unexpected), Outcome::Accepted));
    line.stream(1200..3000);
    line.assert_spectra_of(std::slice::from_ref(&(1000..3000)));
}

#[test]
fn timestamp_wrap_drops_no_spectrum() {
    let mut line = Line::new(0.0);
    line.stream(WRAP - 500..WRAP + 500);
    line.assert_spectra_of(std::slice::from_ref(&(WRAP - 500..WRAP + 500)));
}

#[test]
fn stream_continues_after_a_gap_of_minutes() {
    let mut line = Line::new(0.0);
    line.stream(1000..1100);
    line.millis += 240_000;
    line.stream(241_100..241_300);
    line.assert_spectra_of(&[1000..1100, 241_100..241_300]);
}

#[test]
fn digitiser_restart_drops_no_spectrum_before_or_after() {
    let mut line = Line::new(0.0);
    line.stream(5000..8000);
    line.stream(0..1100);
    // In the next turn of the 48 bits.
    line.assert_spectra_of(&[5000..8000, WRAP..WRAP + 1100]);
}

#[test]
fn polarisation_that_returns_after_silence_drops_no_spectrum() {
    let mut line = Line::new(1e-9);
    line.stream(1000..1100);
    for number in 1100..1500 {
        line.millis += 1;
        line.heap(0, number);
    }
    line.stream(1500..1800);
    // Frames of one polarisation without the other one are unpaired.
    for pol in 0..2 {
        let (window, desk) = &mut line.windows[pol];
        window.flush(desk);
        line.pass_on(pol);
    }
    (0..2).for_each(|pol| line.aligner.end(pol));
    (0..2).for_each(|pol| line.pfb.end(pol));
    line.pass_on(0);
    let of = |heaps: Range<u64>| {
        let samples = heaps.start * HEAP..heaps.end * HEAP;
        (samples.start..).step_by(STEP as usize).take_while(move |t| t + WINDOW <= samples.end)
    };
    assert_eq!(line.spectra, of(1000..1100).chain(of(1500..1800)).collect::<Vec<_>>());
}
