//! Several threads fill the frames of one window.

use super::*;
use std::sync::Mutex;

const FRAMES: u64 = 24;
const ANTENNAS: u64 = 3;
const CHANNELS: [u64; 2] = [8, 12];

/// A packet: frame, antenna, channel, first byte and end.
type Part = (u64, u64, u64, usize, usize);

fn bytes(frame: u64, antenna: u64, channel: u64) -> [u8; HEAP] {
    std::array::from_fn(|i| (i as u64 + frame * 31 + antenna * 7 + channel) as u8 | 1)
}

fn datagram((frame, antenna, channel, from, to): Part) -> Vec<u8> {
    voltages(frame, antenna, channel, from, &bytes(frame, antenna, channel)[from..to])
}

fn whole_frame(frame: u64) -> impl Iterator<Item = Part> {
    (0..ANTENNAS).flat_map(move |antenna| CHANNELS.map(|c| (frame, antenna, c, 0, HEAP)))
}

/// Lets each thread process its datagrams, a few at a time, at the same time as the others.
fn fill(window: &Mutex<(Window, Desk)>, threads: &[Vec<Part>], at_once: usize) {
    std::thread::scope(|scope| {
        for (thread, parts) in threads.iter().enumerate() {
            scope.spawn(move || {
                let mut copies = Copies::new();
                for parts in parts.chunks(at_once) {
                    let datagrams: Vec<Vec<u8>> =
                        parts.iter().map(|part| datagram(*part)).collect();
                    let mut guard = window.lock().unwrap();
                    let (window, desk) = &mut *guard;
                    let batch = datagrams.iter().map(|datagram| (datagram.as_slice(), FROM));
                    let pending = window.batch((thread, copies), batch, desk, |_| ());
                    drop(guard);
                    // Lets other threads have the window before the copies are made.
                    std::thread::yield_now();
                    copies = pending.unwrap().make();
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // Packets of any pieces of heaps, of which many overlap, are missing or come twice, by any thread.
    #[test]
    fn threads_that_share_heaps_make_the_frames_of_one_thread(
        parts in proptest::collection::vec(
            (1..FRAMES - 1, 0..ANTENNAS, 0..CHANNELS.len(), 0..HEAP, 1..=HEAP, any::<usize>()), 1..600,
        ),
        at_once in 1_usize..20,
    ) {
        let parts: Vec<(Part, usize)> = parts
            .into_iter()
            .map(|(frame, antenna, channel, from, len, thread)| {
                // A third of the packets are whole heaps.
                let (from, to) = if thread % 3 == 0 { (0, HEAP) } else { (from, (from + len).min(HEAP)) };
                ((frame, antenna, CHANNELS[channel], from, to), thread / 3)
            })
            .collect();
        let mut arrived = std::collections::BTreeMap::new();
        for ((frame, antenna, channel, from, to), _) in &parts {
            let heap = (*frame, antenna * 2 + (channel - 8) / 4);
            arrived.entry(heap).or_insert([false; HEAP])[*from..*to].fill(true);
        }
        for frame in [0, FRAMES - 1] {
            (0..6).for_each(|slot| _ = arrived.insert((frame, slot), [true; HEAP]));
        }
        for threads in [1, 2, 4] {
            let env = Env::detached("in");
            let options = Options { threads, stride: FRAMES, ..Options::new(64, RATE) };
            let window = Window::new(f_engine(), options, &env);
            let window = Mutex::new((window, Desk::new(&f_engine(), 64)));
            // The first and the last frame are complete.
            fill(&window, &[whole_frame(0).collect()], 6);
            let of = |thread| parts.iter().filter(move |(_, t)| t % threads == thread);
            let of = |thread| of(thread).map(|(part, _)| *part).collect();
            let parts: Vec<Vec<Part>> = (0..threads).map(of).collect();
            fill(&window, &parts, at_once);
            fill(&window, &[whole_frame(FRAMES - 1).collect()], 6);
            let (mut window, mut desk) = window.into_inner().unwrap();
            window.flush(&mut desk);
            let frames: std::collections::BTreeSet<u64> = arrived.keys().map(|heap| heap.0).collect();
            let times: Vec<u64> = desk.out.iter().map(|frame| frame.header().timestamp / STEP).collect();
            prop_assert_eq!(&times, &frames.into_iter().collect::<Vec<_>>());
            for frame in &desk.out {
                let number = frame.header().timestamp / STEP;
                let is_whole = |slot: &usize| {
                    arrived.get(&(number, *slot as u64)).is_some_and(|bytes| !bytes.contains(&false))
                };
                for slot in 0..6 {
                    let channel = CHANNELS[slot % 2];
                    let sent = bytes(number, slot as u64 / 2, channel);
                    let expected = if is_whole(&slot) { sent } else { [0; HEAP] };
                    prop_assert_eq!(heap_bytes(frame, slot), expected);
                }
                let units = (0..3).map(|unit| u32::from((2 * unit..2 * unit + 2).all(|s| is_whole(&s))));
                prop_assert_eq!(&frame.header().validity, &units.collect::<Vec<_>>());
            }
            let whole = arrived.values().filter(|bytes| !bytes.contains(&false)).count() as u64;
            prop_assert_eq!(count(&env.counters, "heaps_received"), whole);
            prop_assert_eq!(count(&env.counters, "heaps_incomplete"), arrived.len() as u64 - whole);
            for name in ["packets_too_far_ahead", "heaps_unexpected"] {
                prop_assert_eq!(count(&env.counters, name), 0, "{}", name);
            }
        }
    }
}

#[test]
fn panic_in_a_batch_makes_the_copies_that_were_decided() {
    let env = Env::detached("in");
    let options = Options { threads: 2, ..Options::new(4, RATE) };
    let window = Window::new(f_engine(), options, &env);
    let mut line = (window, Desk::new(&f_engine(), 8));
    let datagrams: Vec<Vec<u8>> = whole_frame(5).map(datagram).collect();
    let mut packets = 0;
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (window, desk) = &mut line;
        let batch = datagrams.iter().map(|datagram| (datagram.as_slice(), FROM));
        let note = |_| {
            packets += 1;
            assert!(packets < 6, "the last packet of the frame");
        };
        drop(window.batch((1, Copies::new()), batch, desk, note));
    }));
    assert!(caught.is_err());
    drop(datagrams);
    // Another thread has the window now, and closes the frame.
    let (window, desk) = &mut line;
    window.flush(desk);
    assert_eq!(heap_bytes(&desk.out[0], 4), bytes(5, 2, 8));
}
