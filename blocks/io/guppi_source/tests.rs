//! Files with known blocks: complete, damaged, with gaps.

use super::*;
use crate::io::playback;
use fxgraph::{Env, Frame, Time};
use std::sync::Arc;

/// A block of 2 channels, 32 spectra and 1 polarisation; bytes count up from `first`.
fn block(first_spectrum: u64, first: u8, change: impl Fn(&mut Header)) -> Vec<u8> {
    let mut header = Header {
        antennas: 1,
        channels: 2,
        pols: 1,
        bits: 8,
        block_bytes: 128,
        overlap: 0,
        is_direct: false,
        centre_mhz: 1420.0,
        bandwidth_mhz: 1.0,
        spectrum_seconds: 2e-6,
        start: Time::from_unix(1_800_000_000, 500_000_000_000).unwrap(),
        packet_index: first_spectrum,
        packet_bytes: 4,
        packets_per_block: 32,
        dropped: 0.0,
        dropped_in_total: 0.0,
        telescope: String::new(),
        source: String::new(),
        backend: String::new(),
        contradictions: Vec::new(),
    };
    change(&mut header);
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    bytes.extend((0..128).map(|n| first.wrapping_add(n)));
    bytes
}

/// Port, frames and environment of the source, or the error.
type Played = Result<(PortType, Vec<Arc<Frame>>, Env), String>;

fn play(bytes: &[u8], json: serde_json::Value) -> Played {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.raw");
    std::fs::write(&path, bytes).unwrap();
    let mut all = serde_json::json!({ "path": path });
    all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    let source: GuppiSource = fxgraph::kind::read(&all).unwrap();
    let env = Env::detached("in");
    let (port, frames) = playback::tests::play(&source, &env)?;
    Ok((port, frames, env))
}

fn count(env: &Env, name: &str) -> u64 {
    env.counters.list().iter().find(|named| named.name == name).unwrap().counter.get()
}

#[test]
fn guppi_source_cuts_blocks_into_heaps() {
    let bytes = [block(64, 0, |_| {}), block(96, 128, |_| {})].concat();
    let (port, frames, _) = play(&bytes, serde_json::json!({"spectra_per_heap": 16})).unwrap();
    let expected = "ci8 [heap 1][channel 2][spectrum 16][pol 1] @ 2 MS/s / 64";
    assert_eq!(port.to_string(), expected);
    assert_eq!(port.clock.sync_time.to_unix_f64(), 1_800_000_000.5);
    let band = port.band.unwrap();
    assert_eq!((band.channel_hz(0), band.channel_hz(1)), (1419.75e6, 1420.25e6));
    let times: Vec<u64> = frames.iter().map(|frame| frame.header().timestamp).collect();
    assert_eq!(times, [256, 320, 384, 448]);
    let bytes = frames[1].as_slice::<u8>().unwrap();
    let expected = (32..64).chain(96..128).collect::<Vec<u8>>();
    assert_eq!(bytes, expected);
    assert!(frames.iter().all(|frame| frame.header().validity == [1]));
}

#[test]
fn gaps_drops_and_truncation_are_counted() {
    let bytes = [
        block(0, 0, |_| {}),
        block(96, 0, |header| header.dropped = 1.0),
        block(96, 0, |_| {}),
        block(128, 0, |header| header.centre_mhz = 1.0),
        block(160, 0, |header| header.dropped = 0.5),
        block(192, 0, |_| {}),
    ];
    let bytes = bytes.concat();
    let (_, frames, env) = play(&bytes[..bytes.len() - 1], serde_json::json!({})).unwrap();
    let seen: Vec<_> =
        frames.iter().map(|f| (f.header().timestamp / 4, f.header().validity[0])).collect();
    assert_eq!(seen, [(0, 1), (96, 0), (160, 1)]);
    for (name, expected) in [
        ("spectra_missing", 64 + 32),
        ("blocks_incomplete", 2),
        ("blocks_late", 1),
        ("blocks_foreign", 1),
        ("bytes_truncated", block(0, 0, |_| {}).len() as u64 - 1),
    ] {
        assert_eq!(count(&env, name), expected, "{name}");
    }
    assert!(env.summary.get().contains("is truncated"));
}

#[test]
fn overlap_and_antennas_are_removed_and_shown() {
    let bytes = block(0, 0, |header| {
        (header.antennas, header.channels, header.overlap) = (2, 1, 12);
        header.packets_per_block = 0;
    });
    let (port, frames, _) = play(&bytes, serde_json::json!({})).unwrap();
    assert_eq!(
        port.to_string(),
        "ci8 [heap 1][antenna 2][channel 1][spectrum 20][pol 1] @ 1 MS/s / 40"
    );
    let bytes = frames[0].as_slice::<u8>().unwrap();
    assert_eq!((bytes[39], bytes[40], bytes[79]), (39, 64, 103));
}

#[test]
fn overlap_that_no_block_repeats_is_played_or_counted() {
    let overlapping = |first, byte| {
        block(first, byte, |header| (header.overlap, header.packets_per_block) = (16, 16))
    };
    // Of the second block, before a gap, and of the last one.
    let bytes = [overlapping(0, 0), overlapping(16, 1), overlapping(64, 2)].concat();
    let (_, frames, env) = play(&bytes, serde_json::json!({})).unwrap();
    let seen: Vec<_> =
        frames.iter().map(|f| (f.header().timestamp / 4, f.as_slice::<u8>().unwrap()[0])).collect();
    assert_eq!(seen, [(0, 0), (16, 1), (32, 33), (64, 2), (80, 34)]);
    assert_eq!((count(&env, "spectra_missing"), count(&env, "spectra_of_overlap")), (16, 0));
    let odd =
        |first| block(first, 0, |header| (header.overlap, header.packets_per_block) = (12, 20));
    let bytes = [odd(0), odd(20)].concat();
    let (_, frames, env) = play(&bytes, serde_json::json!({"spectra_per_heap": 10})).unwrap();
    assert_eq!((frames.len(), count(&env, "spectra_of_overlap")), (5, 2));
}

#[test]
fn file_ends_with_zeros_after_its_last_block() {
    for zeros in [8, 100, 100_000] {
        let bytes = [block(0, 0, |_| {}), block(32, 0, |_| {}), vec![0; zeros]].concat();
        let (_, frames, env) = play(&bytes, serde_json::json!({})).unwrap();
        assert_eq!((frames.len(), count(&env, "bytes_after_end")), (2, zeros as u64));
        assert_eq!(count(&env, "bytes_truncated"), 0);
    }
}

#[test]
fn numbers_of_two_four_and_sixteen_bits_are_played() {
    let of_bits = |bits| block(0, 0x1b, |header| header.bits = bits);
    let (port, frames, _) = play(&of_bits(16), serde_json::json!({})).unwrap();
    assert_eq!(port.to_string(), "ci16 [heap 1][channel 2][spectrum 16][pol 1] @ 2 MS/s / 64");
    assert_eq!(frames[0].as_slice::<i16>().unwrap()[..2], [0x1c1b, 0x1e1d]);
    let (port, frames, _) = play(&of_bits(4), serde_json::json!({})).unwrap();
    assert_eq!(port.to_string(), "ci4 [heap 1][channel 2][spectrum 64][pol 1] @ 2 MS/s / 256");
    // Rows of the channels are in the file one after the other.
    let bytes = frames[0].as_slice::<u8>().unwrap();
    assert_eq!((bytes[0], bytes[63], bytes[64]), (0x1b, 0x1b + 63, 0x1b + 64));
    let two = |convention: &str| {
        let json = serde_json::json!({"two_bit": convention});
        let (port, frames, _) = play(&of_bits(2), json).unwrap();
        assert_eq!(port.to_string(), "ci8 [heap 1][channel 2][spectrum 128][pol 1] @ 2 MS/s / 512");
        frames[0].as_slice::<u8>().unwrap()[4..8]
            .iter()
            .map(|b| b.cast_signed())
            .collect::<Vec<_>>()
    };
    // The second byte, 0x1c, is 00 01 11 00 from the highest bits down.
    assert_eq!(two("breakthrough"), [3, 1, -3, 3]);
    assert_eq!(two("puppi"), [-3, 3, -1, -3]);
    let said = |json| play(&of_bits(2), json).err().unwrap();
    assert!(said(serde_json::json!({})).contains("two conventions"));
    let eight = play(&of_bits(8), serde_json::json!({"two_bit": "puppi"})).err().unwrap();
    assert_eq!(eight, "`two_bit` is for numbers of 2 bits");
}

#[test]
fn header_that_contradicts_itself_is_a_warning() {
    let bytes = block(0, 0, |header| header.spectrum_seconds = 2e-3);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.raw");
    std::fs::write(&path, bytes).unwrap();
    let source: GuppiSource = fxgraph::kind::read(&serde_json::json!({ "path": path })).unwrap();
    let block = Configured::new(source, &[]).unwrap();
    let warnings = GuppiSource::warnings(&block);
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].message.contains("TBIN of 0.002 s does not fit"),
        "{}",
        warnings[0].message
    );
}

#[test]
fn wrong_files_are_rejected_with_the_position() {
    let said = |bytes: &[u8], json| play(bytes, json).err().unwrap();
    let none = serde_json::json!({});
    assert!(said(b"", none.clone()).contains("there is no complete block in"));
    assert!(said(b"SIMPLE", none.clone()).contains("block at byte 0: the header has no card END"));
    let good = block(0, 0, |_| {});
    assert!(said(&good[..good.len() - 1], none.clone()).contains("no complete block"));
    let damaged = [good.clone(), vec![b'x'; 200]].concat();
    let at = format!("block at byte {}: card 1 of the header", good.len());
    assert!(said(&damaged, none).contains(&at));
    let uneven = said(&good, serde_json::json!({"spectra_per_heap": 5}));
    assert_eq!(uneven, "`spectra_per_heap` must divide the 32 spectra of a block, got 5");
}

#[test]
fn block_beyond_the_range_of_timestamps_is_an_error() {
    let bytes = [block(64, 0, |_| {}), block(1 << 61, 128, |_| {})].concat();
    let said = play(&bytes, serde_json::json!({})).err().unwrap();
    assert!(said.contains("a.raw: PKTIDX 2305843009213693952 is beyond the range"), "{said}");
}

#[test]
fn sideband_replaces_a_wrong_sign_of_the_header() {
    let json = serde_json::json!({"spectra_per_heap": 16, "sideband": "lower"});
    let (port, ..) = play(&block(64, 0, |_| {}), json.clone()).unwrap();
    let band = port.band.unwrap();
    assert_eq!((band.channel_hz(0), band.channel_hz(1)), (1420.25e6, 1419.75e6));
    assert_eq!(band.sideband, Sideband::Lower);
    let message = play(&block(64, 0, |header| header.bandwidth_mhz = 0.0), json).err().unwrap();
    assert_eq!(message, "`sideband` needs the width of the band, and `OBSBW` is 0");
}
