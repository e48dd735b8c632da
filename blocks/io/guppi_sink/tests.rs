//! Blocks of the file, with known voltages.

use super::*;
use crate::io::files::output_file::full_disk;
use crate::io::files::tests::write;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Band, Clock, Env, Ports, ValidityType};
use fxgraph_formats::guppi::Header;
use std::path::Path;

const SYNC: f64 = 1.8e9;

/// Frames of 2 heaps of `antennas` antennas, 3 channels, 4 spectra and 2 polarisations: 24 ADC samples a heap.
fn port(antennas: usize) -> PortType {
    let heap = Axis::new("heap", 2);
    let antenna = (antennas > 1).then(|| Axis::new("antenna", antennas));
    let units: Vec<Axis> = [heap].into_iter().chain(antenna).collect();
    let rest = [Axis::new("channel", 3), Axis::new("spectrum", 4), Axis::new("pol", 2)];
    PortType {
        dtype: Dtype::Ci8,
        axes: units.iter().cloned().chain(rest).collect(),
        clock: Clock { sync_time: Time::from_unix_f64(SYNC).unwrap(), ..Clock::new(1.2e6, 48) },
        // Channels 2, 3, 4 of 8 over 0.8 MHz, channel 4 at 100 MHz.
        band: Some(Band::signed(8, 2, 1e8, 8e5)),
        validity: ValidityType::flags(units),
    }
}

fn sink(path: &Path, json: serde_json::Value) -> GuppiSink {
    let mut all = serde_json::json!({ "path": path, "source": "3C 48" });
    all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    fxgraph::kind::read(&all).unwrap()
}

fn run(
    sink: &GuppiSink,
    port: &PortType,
    frames: &[(u64, &[u32], u8)],
    env: &Env,
) -> Result<(), String> {
    write(sink, port, env, (frames.len(), true), |n, frame| {
        let (timestamp, validity, first) = frames[n];
        frame.header_mut().timestamp = timestamp;
        frame.header_mut().validity.copy_from_slice(validity);
        let bytes = frame.as_mut_slice::<u8>().unwrap().iter_mut();
        (0_u8..).cycle().zip(bytes).for_each(|(n, byte)| *byte = n.wrapping_add(first));
    })
    .map_err(|error| error.to_string())
}

/// Headers, and the blocks.
fn blocks(path: &Path) -> Vec<(Header, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut blocks) = (&bytes[..], Vec::new());
    while !rest.is_empty() {
        let (header, length) = Header::parse(rest).unwrap();
        let (block, after) = rest[length..].split_at(header.block_bytes as usize);
        blocks.push((header, block.to_vec()));
        rest = after;
    }
    blocks
}

fn count(env: &Env, name: &str) -> u64 {
    env.counters.list().iter().find(|named| named.name == name).unwrap().counter.get()
}

#[test]
fn guppi_sink_puts_channels_first_and_states_band_and_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.raw");
    // 1.00002 s after the sync time.
    let frames = [(1_200_024, &[1, 1][..], 0), (1_200_072, &[1, 1], 100)];
    let env = Env::detached("out");
    run(&sink(&path, serde_json::json!({})), &port(1), &frames, &env).unwrap();
    let blocks = blocks(&path);
    assert_eq!(blocks.len(), 2);
    let (header, block) = &blocks[1];
    assert_eq!((header.channels, header.pols, header.spectra()), (3, 2, 8));
    assert_eq!((header.centre_mhz, header.bandwidth_mhz), (99.9, 0.3));
    assert_eq!(header.spectrum_seconds, 5e-6);
    assert_eq!(header.start.to_unix(), (1_800_000_001, 20_000_000));
    assert_eq!((header.packet_index, header.first_spectrum()), (8, Some(8)));
    assert_eq!((header.source.as_str(), header.telescope.as_str()), ("3C 48", "unknown"));
    assert!(!header.is_direct, "192 bytes are no multiple of 512");
    // Channel 1: 16 bytes from heap 0, then 16 bytes from heap 1.
    let expected = (116..132).chain(164..180).map(|n| n as u8).collect::<Vec<_>>();
    assert_eq!(block[32..64], expected);
    assert_eq!(count(&env, "steps_written"), 4);
}

#[test]
fn missing_heaps_are_zeros_and_counted_in_the_headers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.raw");
    let json = serde_json::json!({"heaps_per_block": 4, "max_gap_seconds": 0.0002});
    let whole = &[1, 1, 1, 1][..];
    let frames = [
        (0, &[1, 0, 1, 1][..], 1),
        (48, whole, 1),
        // 4 heaps are missing, an old frame, a gap of 14 heaps (0.28 ms), and a frame off the grid.
        (48 * 4, whole, 1),
        (48, whole, 1),
        (48 * 12, whole, 1),
        (48 * 13 + 1, whole, 1),
    ];
    let env = Env::detached("out");
    run(&sink(&path, json), &port(2), &frames, &env).unwrap();
    let blocks = blocks(&path);
    let seen: Vec<_> = blocks.iter().map(|(h, _)| (h.packet_index, h.dropped)).collect();
    // Blocks 0, 1 (empty), 2, and 6.
    assert_eq!(seen, [(0, 0.125), (16, 1.0), (32, 0.5), (96, 0.5)]);
    assert_eq!(blocks[3].0.dropped_in_total, (1.0 + 8.0 + 4.0 + 4.0) / 32.0);
    // Antenna 1, heap 0, is missing: the first quarter of each of its channels.
    let block = &blocks[0].1;
    assert!(block[3 * 64..][..16].iter().all(|byte| *byte == 0));
    assert!(block[3 * 64..][16..64].iter().chain(&block[..64]).all(|byte| *byte != 0));
    assert_eq!(self::blocks(&directory.path().join("a_2.raw")).len(), 1);
    // With 2 heaps at the end of each file.
    assert_eq!(count(&env, "steps_missing"), 1 + 4 + 2 + 2 + 2);
    assert_eq!(count(&env, "steps_left_out"), 12);
    assert_eq!(count(&env, "steps_repeated"), 2);
}

#[test]
fn blocks_after_a_failed_write_keep_their_times() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.raw");
    // Blocks of 3 heaps from frames of 2.
    let sink = sink(&path, serde_json::json!({"heaps_per_block": 3}));
    let (port, env) = (port(1), Env::detached("out"));
    let ports = Ports { inputs: vec![port.clone()], outputs: vec![] };
    let mut harness = Harness::new(sink.build(&ports.inputs, &env).unwrap(), &ports, 1).unwrap();
    for n in 0..6_u8 {
        assert!(harness.send(0, |frame| {
            frame.header_mut().timestamp = 48 * u64::from(n);
            frame.header_mut().validity.fill(1);
            frame.as_mut_slice::<u8>().unwrap().fill(n + 1);
        }));
        // Frames 1, 2, 4 and 5 complete blocks.
        full_disk::leave((n == 1).then_some(10));
        assert_eq!(Harness::block_on(harness.run()).is_ok(), n != 1);
    }
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();
    Harness::block_on(harness.finish()).unwrap();
    let blocks = blocks(&path);
    let seen: Vec<_> = blocks.iter().map(|(h, _)| (h.packet_index, h.dropped_in_total)).collect();
    assert_eq!(seen, [(12, 0.0), (24, 0.0), (36, 0.0)]);
    // Heaps 3, 4 and 5 are of frames 1, 2 and 2.
    assert_eq!(blocks[0].1[..48], [[2; 16], [3; 16], [3; 16]].concat());
    let counts = ["steps_written", "steps_dropped", "steps_missing"].map(|name| count(&env, name));
    assert_eq!(counts, [9, 3, 0]);
}

#[test]
fn guppi_sink_rejects_other_streams() {
    let said = |change: fn(&mut PortType)| {
        let mut port = port(2);
        change(&mut port);
        let sink = sink(Path::new("a.raw"), serde_json::json!({}));
        sink.outputs(&[port]).unwrap_err()[0].message.clone()
    };
    assert!(said(|port| port.dtype = Dtype::Ci4).contains("cannot read ci4 voltages"));
    assert!(said(|port| port.axes.swap(3, 4)).contains("cannot read `ci8 [heap 2][antenna 2]"));
    assert!(said(|port| port.band = None).contains("no frequencies"));
    assert!(said(|port| port.axes[4].len = 4).contains("1 or 2 polarisations"));
    assert!(said(|port| port.validity.axes.push(Axis::new("pol", 2))).contains("along `pol`"));
    assert!(said(|port| port.clock.samples_per_frame = 47).contains("multiple of 2 ADC samples"));
    let huge = sink(Path::new("a.raw"), serde_json::json!({"heaps_per_block": 1_u64 << 40}));
    assert!(huge.outputs(&[port(1)]).unwrap_err()[0].message.contains("at most 4 GiB"));
}
