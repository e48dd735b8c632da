//! Timestamps and sizes at their limits.

use super::*;
use crate::io::spead::packet::{HEADER_BYTES, POINTER_BYTES};
use crate::io::stream_source::window::host_bytes;
use fxgraph::changes::MAX_TIMESTAMP;

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
    assert_eq!((bench.counter("heaps_unexpected"), bench.counter("heaps_not_later")), (3, 3));
}

#[test]
fn heaps_of_growing_lengths_take_no_more_memory_than_the_plan_says() {
    let port = voltages();
    let described = Described::new(&port).unwrap();
    let all = packets(&port, &in_a_row(0..20), json!({"packet_payload_bytes": 64}));
    let most = described.max_heap_bytes() as u64;
    let mut bench = Bench::new(&port);
    // A run becomes the stream with a heap of which half has arrived.
    let is_third = |packet: &Vec<u8>| value(packet, item::SEQUENCE) == Some(2);
    let (first, all) = all.split_at(all.iter().position(is_third).unwrap());
    bench.receive(first, SENDER);
    let is_first = |packet: &&Vec<u8>| value(packet, item::PAYLOAD_OFFSET) == Some(0);
    let firsts = all.iter().filter(|packet| is_data(packet)).filter(is_first).cloned();
    for (number, mut packet) in firsts.enumerate() {
        let length = if number < 10 { most - 100 } else { most };
        pointers(&mut packet, item::HEAP_LENGTH)
            .for_each(|word| word[2..].copy_from_slice(&length.to_be_bytes()[2..]));
        bench.receive(&[packet], SENDER);
    }
    assert!(bench.window.heap_bytes() as u64 >= 4 * most);
    assert!(bench.window.heap_bytes() <= host_bytes(4, &described));
}
