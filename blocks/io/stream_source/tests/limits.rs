//! Timestamps at their limits.

use super::*;
use crate::io::spead::packet::{HEADER_BYTES, POINTER_BYTES};
use fxgraph::retune::MAX_TIMESTAMP;

/// Item pointers of `packet` with the identifier `id`.
fn pointers(packet: &mut [u8], id: u16) -> impl Iterator<Item = &mut [u8]> {
    let count = usize::from(u16::from_be_bytes([packet[6], packet[7]]));
    let pointers = packet[HEADER_BYTES..].chunks_exact_mut(POINTER_BYTES).take(count);
    pointers.filter(move |word| u16::from_be_bytes([word[0], word[1]]) & 0x7fff == id)
}

#[test]
fn timestamps_of_48_bits_continue_after_their_wrap() {
    let port = voltages();
    let first = (1 << 48) - 2 * SAMPLES - 3;
    let frames: Vec<Sent> =
        (0..6).map(|number| Sent { number, timestamp: first + number * SAMPLES }).collect();
    let all = packets(&port, &frames, json!({"stop_heaps": false}));
    let high = item::TIMESTAMP_HIGH;
    for missing in [vec![high], vec![high, item::SEQUENCE], vec![high, item::SEQUENCE, item::RUN]] {
        let mut all = all.clone();
        for packet in &mut all {
            for id in &missing {
                // An identifier that no item has.
                pointers(packet, *id).for_each(|word| word[1] = 0x7f);
            }
        }
        let mut bench = Bench::new(&port);
        bench.receive(&all, SENDER);
        bench.end();
        assert_eq!(
            bench.timestamps(),
            frames.iter().map(|sent| sent.timestamp).collect::<Vec<_>>()
        );
        frames.iter().enumerate().for_each(|(index, sent)| bench.assert_whole(index, *sent));
        assert_eq!((bench.counter("heaps_received"), bench.counter("time_jumps")), (6, 0));
    }
}

#[test]
fn no_frame_has_a_timestamp_that_blocks_do_not_accept() {
    let port = voltages();
    let mut bench = Bench::new(&port);
    for number in 0..7 {
        let timestamp = if number % 2 == 0 { MAX_TIMESTAMP - 1 } else { 0 };
        bench.receive(&packets(&port, &[Sent { number: 0, timestamp }], json!({})), SENDER);
    }
    bench.end();
    assert_eq!(bench.timestamps(), [MAX_TIMESTAMP - 1]);
    assert_eq!((bench.counter("heaps_stray"), bench.counter("heaps_not_later")), (3, 3));
}
