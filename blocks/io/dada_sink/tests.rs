//! Samples of the files in their order, and headers.

use super::*;
use crate::io::files::output_file::full_disk;
use crate::io::files::tests::write;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Band, Clock, Env, Ports, ValidityType};
use fxgraph_formats::dada::Header;
use std::path::Path;

fn port(axes: &[(&'static str, usize)], units: &[(&'static str, usize)]) -> PortType {
    let of = |all: &[(&'static str, usize)]| {
        all.iter().map(|(name, len)| Axis::new(name, *len)).collect::<Vec<_>>()
    };
    PortType {
        dtype: Dtype::I8,
        axes: of(axes),
        clock: Clock { sync_time: Time::unix(1_800_000_000), ..Clock::new(1e6, 16) },
        band: Some(Band::signed(4, 0, 1e8, 4e5)),
        validity: ValidityType::flags(of(units)),
    }
}

fn sink(path: &Path, json: serde_json::Value) -> DadaSink {
    let mut all = serde_json::json!({ "path": path });
    all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    fxgraph::kind::read(&all).unwrap()
}

/// Sends frames with bytes that count up, with these timestamps and validity flags.
fn run(
    sink: &DadaSink,
    port: &PortType,
    frames: &[(u64, &[u32])],
    env: &Env,
) -> Result<(), String> {
    write(sink, port, env, (frames.len(), true), |n, frame| {
        (frame.header_mut().timestamp, _) = frames[n];
        frame.header_mut().validity.copy_from_slice(frames[n].1);
        let bytes = frame.as_mut_slice::<u8>().unwrap();
        let first = n * bytes.len();
        bytes.iter_mut().enumerate().for_each(|(i, byte)| *byte = (first + i + 1) as u8);
    })
    .map_err(|error| error.to_string())
}

fn read(path: &Path) -> (Header, Vec<u8>) {
    let bytes = std::fs::read(path).unwrap();
    (Header::parse(&bytes).unwrap(), bytes[HEADER_BYTES..].to_vec())
}

#[test]
fn samples_of_every_order_are_written_in_that_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let written = |name: &str, axes: &[(&'static str, usize)]| {
        let path = directory.path().join(name);
        run(
            &sink(&path, serde_json::json!({})),
            &port(axes, &[]),
            &[(0, &[1])],
            &Env::detached("out"),
        )
        .unwrap();
        let (header, bytes) = read(&path);
        (header.channels, header.pols, bytes)
    };
    let plain: Vec<u8> = (1..9).collect();
    assert_eq!(written("a", &[("sample", 8)]), (1, 1, plain.clone()));
    assert_eq!(written("b", &[("sample", 4), ("pol", 2)]), (1, 2, plain));
    let turned = vec![1, 5, 2, 6, 3, 7, 4, 8];
    assert_eq!(written("c", &[("pol", 2), ("sample", 4)]), (1, 2, turned));
    // Time 2 h + s, channel, polarisation from [heap 2][channel 4][spectrum 2][pol 1].
    let heaps = written("d", &[("heap", 2), ("channel", 4), ("spectrum", 2), ("pol", 1)]);
    assert_eq!(heaps, (4, 1, vec![1, 3, 5, 7, 2, 4, 6, 8, 9, 11, 13, 15, 10, 12, 14, 16]));
    let spectra = written("e", &[("pol", 2), ("spectrum", 1), ("channel", 4)]);
    assert_eq!(spectra, (4, 2, vec![1, 5, 2, 6, 3, 7, 4, 8]));
}

#[test]
fn files_roll_over_with_the_offset_in_name_and_header() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.dada");
    let json = serde_json::json!({"file_bytes": 13, "source": "3C 48"});
    // 1 sample is 4 us; from 1.000008 s on.
    let frames = [(1_000_008, &[1_u32][..]), (1_000_024, &[1]), (1_000_072, &[1])];
    let env = Env::detached("out");
    let port = port(&[("sample", 4), ("pol", 2)], &[]);
    run(&sink(&path, json), &port, &frames, &env).unwrap();
    // 3 frames of 8 bytes, and 2 missing frames, in files of 12 bytes.
    let mut all = Vec::new();
    for number in 0..4 {
        let name = format!("x_{:016}.{number:06}.dada", 4 + 12 * number);
        let (header, bytes) = read(&directory.path().join(name));
        assert_eq!(header.utc_start(), "2027-01-15-08:00:01");
        assert_eq!((header.offset_bytes, header.file_number), (4 + 12 * number, number));
        assert_eq!(header.file_bytes, bytes.len() as u64);
        assert_eq!((header.start.to_unix().1, header.sample_us), (0, 4.0));
        assert_eq!((header.source.as_str(), header.instrument.as_str()), ("3C_48", "fxgraph"));
        all.extend(bytes);
    }
    let expected = (1..17).chain([0; 16]).chain(17..25).collect::<Vec<u8>>();
    assert_eq!(all, expected);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 4);
}

#[test]
fn missing_samples_are_zeros_and_another_grid_begins_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.dada");
    let port = port(&[("pol", 2), ("sample", 4)], &[("pol", 2), ("heap", 2)]);
    let env = Env::detached("out");
    let frames = [(0, &[1_u32, 1, 1, 0][..]), (17, &[1; 4])];
    run(&sink(&path, serde_json::json!({})), &port, &frames, &env).unwrap();
    assert_eq!(read(&path).1, [1, 5, 2, 6, 3, 0, 4, 0]);
    assert_eq!(read(&directory.path().join("x_2.dada")).0.start.to_unix().1, 17_000_000);
    let all = env.counters.list();
    let missing = all.iter().find(|named| named.name == "steps_missing").unwrap();
    assert_eq!(missing.counter.get(), 2);
}

/// Sends frames of 8 samples with these timestamps, each with that room on the disk; returns whether `work` succeeded.
fn run_on_full_disk(sink: &DadaSink, frames: &[(u64, Option<usize>)], env: &Env) -> Vec<bool> {
    let ports = Ports { inputs: vec![port(&[("sample", 8)], &[])], outputs: vec![] };
    let mut harness = Harness::new(sink.build(&ports.inputs, env).unwrap(), &ports, 1).unwrap();
    let mut results = Vec::new();
    for (n, (timestamp, room)) in frames.iter().enumerate() {
        assert!(harness.send(0, |frame| {
            frame.header_mut().timestamp = *timestamp;
            frame.header_mut().validity.fill(1);
            frame.as_mut_slice::<u8>().unwrap().fill(n as u8 + 1);
        }));
        full_disk::leave(*room);
        results.push(Harness::block_on(harness.run()).is_ok());
    }
    full_disk::leave(None);
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();
    results
}

#[test]
fn failed_write_to_the_second_file_keeps_the_samples_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.dada");
    let sink = sink(&path, serde_json::json!({"file_bytes": 12}));
    // Half of frame 1 is in the first file.
    let frames = [(0, None), (16, Some(100)), (32, None)];
    let results = run_on_full_disk(&sink, &frames, &Env::detached("out"));
    assert_eq!(results, [true, false, true]);
    let of_file = |n: u64| {
        let (header, bytes) = read(&directory.path().join(format!("x_{:016}.{n:06}.dada", 12 * n)));
        assert_eq!((header.offset_bytes, header.file_bytes), (12 * n, 12));
        bytes
    };
    assert_eq!(of_file(0), [&[1; 8][..], &[2; 4]].concat());
    assert_eq!(of_file(1), [&[0; 4][..], &[3; 8]].concat());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn fraction_of_a_sample_is_in_picoseconds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.dada");
    let port = port(&[("sample", 8)], &[]);
    run(&sink(&path, serde_json::json!({})), &port, &[(3, &[1])], &Env::detached("out")).unwrap();
    let (header, _) = read(&path);
    assert_eq!((header.offset_bytes, header.start.to_unix().1), (0, 3_000_000));
}

#[test]
fn dada_sink_rejects_other_streams() {
    let said = |axes: &[(&'static str, usize)], change: fn(&mut PortType)| {
        let mut port = port(axes, &[]);
        change(&mut port);
        let sink = sink(Path::new("a.dada"), serde_json::json!({"file_bytes": 1}));
        sink.outputs(&[port]).unwrap_err()[0].message.clone()
    };
    let samples = &[("sample", 8), ("pol", 2)];
    assert!(said(samples, |port| port.dtype = Dtype::F64).contains("cannot read f64 samples"));
    assert!(said(samples, |port| port.band = None).contains("no frequencies"));
    assert!(said(&[("pol", 2)], |_| {}).contains("cannot read `i8 [pol 2]"));
    assert!(said(&[("antenna", 2), ("sample", 2)], |_| {}).contains("cannot read"));
    assert!(said(samples, |_| {}).contains("`file_bytes` must be at least the 2 bytes"));
    let units = |port: &mut PortType| port.validity.axes.push(Axis::new("channel", 2));
    assert!(said(samples, units).contains("validity axes"));
    assert!(said(samples, |port| port.clock.samples_per_frame = 17).contains("multiple of 8"));
}
