//! A recorder as a block, and its recordings played again.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::io::file_source::FileSource;
use crate::io::playback;
use fxgraph::edge::Harness;
use fxgraph::recording::Recorder as StreamRecorder;
use fxgraph::recording::{RecorderState, Trigger};
use fxgraph::{Axis, BlockError, Clock, Dtype, Env, Frame, Ports, ValidityType};
use std::path::Path;
use std::sync::Arc;

fn port() -> PortType {
    PortType {
        dtype: Dtype::I16,
        axes: vec![Axis::new("heap", 2), Axis::new("sample", 4)],
        clock: Clock::new(1000.0, 8),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", 2)]),
    }
}

fn options(directory: &Path, trigger: Trigger) -> RecorderOptions {
    serde_json::from_value(serde_json::json!({
        "path": directory.join("new/r_{timestamp}.npz").display().to_string(),
        "before_seconds": 0.024,
        "after_seconds": 0.016,
    }))
    .map(|options| RecorderOptions { trigger, ..options })
    .unwrap()
}

/// Sends frames through the block; frame 10 has missing data.
fn run(options: RecorderOptions, frames: u64) -> (Env, Result<(), BlockError>) {
    let recorder = Recorder { options };
    assert!(recorder.outputs(&[port()]).is_ok());
    let ports = Ports { inputs: vec![port()], outputs: vec![] };
    let env = Env::detached("recorder");
    let mut harness =
        Harness::new(recorder.build(&ports.inputs, &env).unwrap(), &ports, 64).unwrap();
    let done = Harness::block_on(async {
        harness.start().await?;
        for n in 0..frames {
            assert!(harness.send(0, |frame| {
                let (header, payload) = frame.parts_mut::<i16>().unwrap();
                header.timestamp = 8 * n;
                header.validity.copy_from_slice(&[1, u32::from(n != 10)]);
                payload.iter_mut().zip(0..).for_each(|(value, i)| *value = n as i16 * 100 + i);
            }));
        }
        harness.end(0);
        harness.run().await?;
        harness.finish().await
    });
    (env, done)
}

#[test]
fn page_lists_every_kind_of_event_that_triggers_a_recording() {
    let schema = schemars::schema_for!(fxgraph::runtime::EventKind).to_value();
    let kinds = schema["oneOf"].as_array().unwrap();
    assert_eq!(kinds.len(), 30);
    for kind in kinds {
        let name = kind["const"].as_str().unwrap();
        assert!(Recorder::PAGE.contains(&format!("`{name}`")), "{name}");
    }
}

fn play(path: &Path) -> Vec<Arc<Frame>> {
    let source: FileSource = serde_json::from_value(serde_json::json!({ "path": path })).unwrap();
    let (played, frames) = playback::tests::play(&source, &Env::detached("in")).unwrap();
    assert_eq!(played, port());
    frames
}

#[test]
fn frames_around_missing_data_are_recorded_bit_for_bit() {
    let directory = tempfile::tempdir().unwrap();
    let (env, done) = run(options(directory.path(), Trigger::Missing), 30);
    done.unwrap();
    let status = env.recorders.get::<StreamRecorder>("recorder").unwrap().status();
    assert_eq!((status.state, status.frames_written), (RecorderState::Ended, 5));
    let frames = play(&directory.path().join("new/r_64.npz"));
    assert_eq!(frames.len(), 5);
    for (n, frame) in (8u64..).zip(&frames) {
        assert_eq!(frame.header().timestamp, 8 * n);
        assert_eq!(frame.header().validity, [1, u32::from(n != 10)]);
        let right: Vec<i16> = (0..8).map(|i| n as i16 * 100 + i).collect();
        assert_eq!(frame.as_slice::<i16>().unwrap(), right);
    }
}

#[test]
fn unwritable_directory_is_named_before_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (_, done) = run(options(&file, Trigger::Start), 0);
    assert!(done.unwrap_err().to_string().contains("/file"));
}

#[test]
fn recorder_at_its_limit_closes_its_files_and_the_flowgraph_continues() {
    let directory = tempfile::tempdir().unwrap();
    let limited =
        RecorderOptions { max_total_bytes: Some(20), ..options(directory.path(), Trigger::Start) };
    let (env, done) = run(limited, 30);
    done.unwrap();
    let status = env.recorders.get::<StreamRecorder>("recorder").unwrap().status();
    assert_eq!(status.state, RecorderState::Failed);
    assert!(status.fault.unwrap().contains("limit of 20 bytes"));
    assert_eq!(play(&status.recordings[0].path).len(), 1, "what was written is readable");
}

#[test]
fn recorder_counts_existing_files_and_keeps_disk_space_free() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("new")).unwrap();
    std::fs::write(directory.path().join("new/r_1.npz"), [0; 100]).unwrap();
    std::fs::write(directory.path().join("new/other"), vec![0; 100_000]).unwrap();
    let with = |max_total_bytes, min_free_bytes| {
        let options = options(directory.path(), Trigger::Start);
        let (env, done) = run(RecorderOptions { max_total_bytes, min_free_bytes, ..options }, 30);
        done.unwrap();
        env.recorders.get::<StreamRecorder>("recorder").unwrap().status().frames_written
    };
    assert_eq!(with(Some(110), None), 0, "100 bytes are there already");
    assert_eq!(with(None, Some(u64::MAX)), 0, "the disk has less");
    assert!(with(Some(100_000), Some(0)) > 0);
}
