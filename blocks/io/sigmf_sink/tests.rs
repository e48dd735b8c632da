//! Contents of recordings, read as JSON and bytes.

use super::*;
use crate::io::files::output_file::full_disk;
use crate::io::files::tests;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Band, BlockError, Clock, Dtype, Env, Ports, ValidityType};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const SAMPLES: usize = 8;

/// Two polarisations of `ci8`, with a flag for each half of a frame in each polarisation.
fn port() -> PortType {
    PortType {
        dtype: Dtype::Ci8,
        axes: vec![Axis::new("pol", 2), Axis::new("sample", SAMPLES)],
        clock: Clock {
            sync_time: fxgraph::Time::from_unix_f64(1_700_000_000.25).unwrap(),
            ..Clock::new(2000.0, 2 * SAMPLES as u64)
        },
        band: Some(Band::signed(1, 0, 1e8, -1e3)),
        validity: ValidityType::flags(vec![Axis::new("pol", 2), Axis::new("heap", 2)]),
    }
}

fn sink(path: &Path) -> SigmfSink {
    serde_json::from_value(json!({"path": path, "author": "a test"})).unwrap()
}

/// Writes frames with these timestamps and flags, whose bytes count up; returns the counters.
fn write(
    sink: &SigmfSink,
    port: &PortType,
    frames: &[(u64, &[u32])],
    end: bool,
) -> Result<Vec<u64>, BlockError> {
    let env = Env::detached("out");
    tests::write(sink, port, &env, (frames.len(), end), |n, frame| {
        let (header, payload) = frame.parts_mut::<u8>().unwrap();
        header.timestamp = frames[n].0;
        header.validity.copy_from_slice(frames[n].1);
        let bytes = payload.iter_mut().enumerate();
        bytes.for_each(|(i, byte)| *byte = (n * 40 + i + 1) as u8);
    })?;
    Ok(counts(&env))
}

/// Numbers of samples that are written, missing, left out, repeated, dropped.
fn counts(env: &Env) -> Vec<u64> {
    let names = ["written", "missing", "left_out", "repeated", "dropped"];
    let of = |name| {
        let all = env.counters.list();
        all.iter().find(|named| named.name == format!("steps_{name}")).unwrap().counter.get()
    };
    names.map(of).to_vec()
}

fn meta(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn data(path: &Path) -> Vec<u8> {
    fs::read(path.with_extension("sigmf-data")).unwrap()
}

/// Returns the bytes of frame `n` as they are in the file: the polarisations alternate.
fn interleaved(n: usize) -> Vec<u8> {
    let byte = |i: usize| (n * 40 + i + 1) as u8;
    (0..SAMPLES)
        .flat_map(|s| [byte(2 * s), byte(2 * s + 1), byte(16 + 2 * s), byte(17 + 2 * s)])
        .collect()
}

#[test]
fn recording_has_samples_and_description() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/x.sigmf-meta");
    let all: &[u32] = &[1; 4];
    let counters = write(&sink(&path), &port(), &[(320, all), (336, all)], true).unwrap();
    assert_eq!(counters, [16, 0, 0, 0, 0]);
    assert_eq!(data(&path), [interleaved(0), interleaved(1)].concat());
    let meta = meta(&path);
    let expected = json!({
        "core:datatype": "ci8", "core:version": "1.2.0", "core:sample_rate": 1000.0, "core:num_channels": 2,
        "core:author": "a test", "core:description": "channels: [pol 2]",
        "core:recorder": format!("fxgraph {}", env!("CARGO_PKG_VERSION")),
        "core:extensions": [{"name": "fxgraph", "version": "1.0.0", "optional": true}],
        "fxgraph:adc_sample_rate_hz": 2000.0, "fxgraph:adc_samples_per_sample": 2,
        "fxgraph:sync_time_seconds": 1_700_000_000.25,
        "fxgraph:sync_time": "2023-11-14T22:13:20.25Z", "fxgraph:bandwidth_hz": -1000.0,
        "fxgraph:samples": 16, "fxgraph:complete": true, "fxgraph:block": "out",
    });
    assert_eq!(meta["global"], expected);
    // 320 ADC samples at 2 kHz are 160 ms.
    let capture = json!([{
        "core:sample_start": 0, "core:global_index": 160, "core:frequency": 1e8,
        "core:datetime": "2023-11-14T22:13:20.410000000Z",
    }]);
    assert_eq!((&meta["captures"], &meta["annotations"]), (&capture, &json!([])));
}

#[test]
fn gaps_begin_captures_and_missing_samples_are_annotated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sigmf-meta");
    let all: &[u32] = &[1; 4];
    let frames: [(u64, &[u32]); 7] = [
        (0, &[0; 4]),
        (16, &[1, 0, 1, 1]),
        (32, &[1, 1, 0, 1]),
        (48, &[0; 4]),
        (64, all),
        (64, all),
        (80, all),
    ];
    let counters = write(&sink(&path), &port(), &frames, true).unwrap();
    assert_eq!(counters, [32, 8, 8, 8, 0]);
    let meta = meta(&path);
    let captures = meta["captures"].as_array().unwrap().iter();
    let starts: Vec<_> =
        captures.map(|one| (&one["core:sample_start"], &one["core:global_index"])).collect();
    assert_eq!(starts, [(&json!(0), &json!(8)), (&json!(16), &json!(32))]);
    let note = &meta["annotations"].as_array().unwrap()[..];
    assert_eq!((note.len(), &note[0]["core:label"]), (1, &json!("missing")));
    assert_eq!(
        (&note[0]["core:sample_start"], &note[0]["core:sample_count"]),
        (&json!(4), &json!(8))
    );
    let mut expected = [interleaved(1), interleaved(2), interleaved(4), interleaved(6)].concat();
    for sample in 4..12 {
        let pol = usize::from(sample >= 8);
        expected[4 * sample + 2 * pol..][..2].fill(0);
    }
    assert_eq!(data(&path), expected);
}

#[test]
fn every_type_of_samples_keeps_its_bytes() {
    let directory = tempfile::tempdir().unwrap();
    for (dtype, name) in [
        (Dtype::Ci8, "ci8"),
        (Dtype::Ci16, "ci16_le"),
        (Dtype::Ci32, "ci32_le"),
        (Dtype::Cf32, "cf32_le"),
        (Dtype::Cf64, "cf64_le"),
        (Dtype::I8, "ri8"),
        (Dtype::U8, "ru8"),
        (Dtype::I16, "ri16_le"),
        (Dtype::I32, "ri32_le"),
        (Dtype::F32, "rf32_le"),
        (Dtype::F64, "rf64_le"),
    ] {
        let path = directory.path().join(format!("{name}.sigmf-meta"));
        let validity = ValidityType::flags(vec![]);
        let port = PortType {
            dtype,
            axes: vec![Axis::new("sample", SAMPLES)],
            validity,
            band: None,
            ..port()
        };
        write(&sink(&path), &port, &[(0, &[1])], true).unwrap();
        assert_eq!(meta(&path)["global"]["core:datatype"], name);
        assert_eq!(meta(&path)["captures"][0].get("core:frequency"), None);
        let expected: Vec<u8> = (1..=port.frame_bytes()).map(|n| n as u8).collect();
        assert_eq!(data(&path), expected);
    }
}

#[test]
fn samples_after_a_failed_write_are_a_capture_with_their_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sigmf-meta");
    let ports = Ports { inputs: vec![port()], outputs: vec![] };
    let env = Env::detached("out");
    let block = sink(&path).build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    // Frames 1 and 2, which cannot be written, lack samples.
    for (n, room) in [None, Some(5), Some(0), None].into_iter().enumerate() {
        assert!(harness.send(0, |frame| {
            let (header, payload) = frame.parts_mut::<u8>().unwrap();
            header.timestamp = 16 * n as u64;
            header.validity.copy_from_slice(&[1, u32::from(room.is_none()), 1, 1]);
            payload.fill(n as u8 + 1);
        }));
        full_disk::leave(room);
        assert_eq!(Harness::block_on(harness.run()).is_ok(), room.is_none());
    }
    Harness::block_on(harness.finish()).unwrap();
    assert_eq!(data(&path), [[1; 32], [4; 32]].concat());
    let meta = meta(&path);
    let captures = meta["captures"].as_array().unwrap().iter();
    let starts: Vec<_> =
        captures.map(|one| (&one["core:sample_start"], &one["core:global_index"])).collect();
    assert_eq!(starts, [(&json!(0), &json!(0)), (&json!(8), &json!(24))]);
    assert_eq!(meta["annotations"], json!([]));
    assert_eq!(counts(&env), [16, 0, 16, 0, 16]);
}

#[test]
fn many_gaps_begin_another_recording() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.sigmf-meta");
    let all: &[u32] = &[1; 4];
    let frames: Vec<(u64, &[u32])> = (0..1001).map(|n| (32 * n, all)).collect();
    write(&sink(&path), &port(), &frames, true).unwrap();
    assert_eq!(meta(&path)["captures"].as_array().unwrap().len(), 1000);
    assert_eq!(data(&directory.path().join("x_2.sigmf-meta")).len(), 32);
}

#[test]
fn streams_that_are_no_samples_are_rejected() {
    let sink = sink(Path::new("x.sigmf-meta"));
    let message = |port: PortType| sink.outputs(&[port]).unwrap_err()[0].message.clone();
    assert!(message(PortType { dtype: Dtype::Ci4, ..port() }).contains("no samples of type `ci4`"));
    let axes = vec![Axis::new("spectrum", 2), Axis::new("sample", 8)];
    assert!(message(PortType { axes, ..port() }).contains("cannot read the axes"));
    let validity = ValidityType::flags(vec![Axis::new("heap", 3)]);
    assert!(message(PortType { validity, ..port() }).contains("[heap 3]"));
    let named = self::sink(Path::new("x.dat"));
    assert!(named.outputs(&[port()]).unwrap_err()[0].message.contains("ending in .sigmf-meta"));
}
