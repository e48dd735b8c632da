//! A window that drops intervals of its stream.

use super::*;
use crate::io::spead::receive::HEAD_BYTES;
use fxgraph::overload::Overload;

/// Frames of an interval.
const INTERVAL: u64 = 4;
const FRAME: u64 = HEAPS as u64;
/// Bytes of a heap, of which one part is cut off.
const HEAP: usize = 2 * HEAD_BYTES;

fn layout() -> Layout {
    Layout { heap_bytes: HEAP, ..digitiser() }
}

fn heap(number: u64) -> Vec<u8> {
    let head = Head::new(number, HEAP, 0, HEAP, &sample_items(number));
    [head.as_bytes(), &[number as u8; HEAP]].concat()
}

struct Side {
    window: Window,
    desk: Desk,
    counters: Counters,
}

impl Side {
    fn new(overload: &Overload, buffers: usize) -> Self {
        let env = Env { overload: overload.clone(), ..Env::detached("in") };
        let options = Options { interval_frames: Some(INTERVAL), ..Options::new(2, RATE) };
        let counters = env.counters.clone();
        let window = Window::new(layout(), options, &env);
        Self { window, desk: Desk::new(&layout(), buffers), counters }
    }

    /// Receives all heaps of `frame`.
    fn frame(&mut self, frame: u64) {
        for number in FRAME * frame..FRAME * (frame + 1) {
            self.window.datagram(&heap(number), FROM, &mut self.desk);
        }
    }

    /// Receives the heads of all heaps of `frame`; returns whether the next frame is dropped, too.
    fn skim(&mut self, frame: u64) -> bool {
        let heaps: Vec<_> = (FRAME * frame..FRAME * (frame + 1)).map(heap).collect();
        let heads = heaps.iter().map(|heap| (&heap[..HEAD_BYTES], FROM));
        self.window.skim(heads, &mut self.desk, |_| ())
    }

    /// Numbers of the frames sent, all of which are complete, and of those dropped.
    fn end(mut self) -> (Vec<u64>, u64) {
        self.window.flush(&mut self.desk);
        let frames = self.desk.out.iter();
        let frames = frames.map(|frame| {
            assert!(frame.header().validity.iter().all(|unit| *unit == 1));
            frame.header().timestamp / (FRAME * STEP)
        });
        for none in ["heaps_missing", "heaps_incomplete", "packets_not_spead"] {
            assert_eq!(count(&self.counters, none), 0, "{none}");
        }
        (frames.collect(), count(&self.counters, "frames_dropped"))
    }
}

#[test]
fn sources_that_feed_one_block_drop_the_same_intervals() {
    let overload = Overload::default();
    let fill = overload.join();
    let (mut first, mut second) = (Side::new(&overload, 99), Side::new(&overload, 99));
    for frame in 0..20 {
        // From the middle of interval 1 on, a buffer is full; in interval 3 it is not any more.
        fill.set(if (6..13).contains(&frame) { 0.8 } else { 0.2 });
        first.frame(frame);
        second.frame(frame);
    }
    let expected: Vec<u64> = (0..8).chain(16..20).collect();
    // The third interval begins while the buffer is full.
    assert_eq!(first.end(), (expected.clone(), 8));
    assert_eq!(second.end(), (expected, 8));
}

#[test]
fn source_without_free_frames_makes_the_others_drop_the_rest_of_the_interval() {
    let overload = Overload::default();
    let (mut first, mut second) = (Side::new(&overload, 6), Side::new(&overload, 99));
    for frame in 0..12 {
        first.frame(frame);
        second.frame(frame);
        if frame == 7 {
            // The frames of the interval that is over come back.
            first.desk.out.truncate(2);
        }
    }
    // Frame 6 is the first one without memory.
    let frames = second.end();
    assert_eq!(frames, ([0, 1, 2, 3, 4, 5, 8, 9, 10, 11].to_vec(), 2));
    assert_eq!(first.end().1, 2);
}

#[test]
fn heads_of_dropped_frames_move_the_window_to_the_end_of_the_interval() {
    let overload = Overload::default();
    let fill = overload.join();
    let mut side = Side::new(&overload, 99);
    (0..4).for_each(|frame| side.frame(frame));
    assert!(!side.window.drops_next());
    fill.set(0.9);
    let more: Vec<_> = (4 * FRAME..5 * FRAME).map(heap).collect();
    let more = more.iter().map(|heap| (heap.as_slice(), FROM));
    drop(side.window.batch((0, Copies::new()), more, &mut side.desk, |_| ()));
    assert!(side.window.drops_next(), "frames 5 to 7 are of the same interval");
    fill.set(0.1);
    assert_eq!([5, 6, 7].map(|frame| side.skim(frame)), [true, true, false]);
    assert_eq!(side.window.newest_of_batch(), Some((8 * FRAME - 1) * STEP));
    (8..12).for_each(|frame| side.frame(frame));
    assert_eq!(side.end(), ([0, 1, 2, 3, 8, 9, 10, 11].to_vec(), 4));
}

#[test]
fn stop_heap_among_heads_is_seen() {
    let overload = Overload::default();
    let mut side = Side::new(&overload, 99);
    (0..4).for_each(|frame| side.frame(frame));
    overload.drop_rest(side.window.interval(4).unwrap());
    side.frame(4);
    let stop = packet(99, 0, &[], &[Pointer::immediate(item::STREAM_CONTROL, item::STREAM_STOP)]);
    let next = heap(5 * FRAME);
    // Foreign bytes do not end the skimming.
    let heads = [(&next[..HEAD_BYTES], FROM), (&[7; 100][..], FOREIGN), (&stop[..], FROM)];
    let mut outcomes = vec![];
    let goes_on =
        side.window.skim(heads.into_iter(), &mut side.desk, |outcome| outcomes.push(outcome));
    assert!(goes_on);
    assert_eq!(outcomes, [Outcome::Accepted, Outcome::Rejected, Outcome::Stop]);
    assert_eq!(count(&side.counters, "packets_not_spead"), 1);
}

#[test]
fn malformed_and_long_heads_are_counted_by_cause_while_frames_are_dropped() {
    let overload = Overload::default();
    let mut side = Side::new(&overload, 99);
    (0..4).for_each(|frame| side.frame(frame));
    overload.drop_rest(side.window.interval(4).unwrap());
    side.frame(4);
    let data = heap(5 * FRAME);
    // 40 items instead of 8.
    let unknown = (0x9000..0x9020).flat_map(|id: u64| (id << 48).to_be_bytes()).collect::<Vec<_>>();
    let mut long = [&data[..72], &unknown, &data[72..]].concat();
    long[7] = 40;
    let whole = [&data[..200], &data[..data.len() - 1], &[&data[..], &[0]].concat(), &long[..]];
    let mut outcomes = vec![];
    let heads = whole.into_iter().map(|datagram| (datagram, FROM));
    assert!(side.window.skim(heads, &mut side.desk, |outcome| outcomes.push(outcome)));
    let [truncated, length] = ["packets_truncated", "packets_wrong_length"];
    assert_eq!((count(&side.counters, truncated), count(&side.counters, length)), (2, 1));
    let rejected = Outcome::Rejected;
    assert_eq!(outcomes, [rejected, rejected, rejected, Outcome::Accepted]);
}

#[test]
fn heads_that_are_not_of_dropped_frames_end_the_skimming() {
    let overload = Overload::default();
    let mut side = Side::new(&overload, 99);
    (0..2).for_each(|frame| side.frame(frame));
    assert!(!side.skim(2), "this frame is not dropped");
    let garbage: [&[u8]; 3] = [&[], &[0x53, 4, 2, 6, 0, 0, 0xff, 0xff], &[7; 100]];
    for head in garbage {
        assert!(!side.window.skim([(head, FROM)].into_iter(), &mut side.desk, |_| ()));
    }
}

#[test]
fn gap_before_dropped_frames_is_counted() {
    // The only buffer is that of the first frame.
    let mut side = Side::new(&Overload::default(), 1);
    [0, 2, 3, 4].into_iter().for_each(|frame| side.frame(frame));
    let count = |name| count(&side.counters, name);
    assert_eq!((count("frames_dropped"), count("heaps_missing")), (3, FRAME));
}

/// Takes a frame after a wait.
struct Waits(Desk, Duration);

impl Frames for Waits {
    fn take(&mut self) -> Option<FrameMut> {
        std::thread::sleep(self.1);
        self.0.take()
    }

    fn push(&mut self, frame: FrameMut) {
        self.0.push(frame);
    }
}

#[test]
fn wait_for_a_frame_is_no_silence() {
    let wait = Duration::from_millis(20);
    let mut frames = Waits(Desk::new(&layout(), 8), wait);
    let mut window = Window::new(layout(), Options::new(2, RATE), &Env::detached("in"));
    let began = Instant::now();
    // At the rate of the stream.
    for number in 0..FRAME {
        window.tick(began + Duration::from_millis(number));
        window.datagram(&heap(number), FROM, &mut frames);
    }
    let now = window.timeline.now().unwrap();
    assert!(now >= began + wait);
    assert_eq!(window.silence(), Some(Duration::ZERO));
    window.tick(now + wait);
    assert_eq!(window.silence(), Some(wait));
}
