//! Tests of recordings of a running flowgraph.

use super::kinds::{Row, events, rows};
use super::{Control, LIMIT, assert_whole, flow, start, stop, swap};
use crate::control::RecordError;
use fxgraph_core::event::EventKind;
use fxgraph_recording::array::Header;
use fxgraph_recording::{EventTrigger, Recorded, RecorderOptions, RecorderState, Trigger};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

/// Options to record five frames before the trigger and three after it; a frame is 1 us of the signal.
fn around(trigger: Trigger) -> RecorderOptions {
    RecorderOptions {
        path: "r_{timestamp}.npy".into(),
        before_seconds: 5e-6,
        after_seconds: Some(3e-6),
        max_bytes: None,
        max_total_bytes: None,
        min_free_bytes: None,
        trigger,
        budget: None,
    }
}

/// Reads an array of 64-bit integers.
fn numbers(path: &Path) -> Vec<i64> {
    let header = Header::read(&File::open(path).unwrap(), 0).unwrap();
    let bytes = fs::read(path).unwrap().split_off(header.data_offset as usize);
    bytes.chunks(8).map(|chunk| i64::from_le_bytes(chunk.try_into().unwrap())).collect()
}

/// Waits for the first recording of a recorder.
fn first(control: &Control, name: &str) -> Recorded {
    let began = Instant::now();
    loop {
        let status = control.recorder(name).unwrap();
        if let Some(recorded) = status.recordings.first() {
            return recorded.clone();
        }
        assert!(began.elapsed() < LIMIT, "{status:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a recorder has all frames that it keeps from before a trigger.
fn has_before(control: &Control, name: &str) {
    let began = Instant::now();
    while control.recorder(name).unwrap().frames_kept < 5 {
        assert!(began.elapsed() < LIMIT, "{:?}", control.recorder(name));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Checks that the recorded frames are those that the sink collected in `rows`.
fn assert_same(recorded: &Recorded, rows: &[Row]) {
    let timestamps = numbers(&recorded.path.with_extension("timestamp.npy"));
    let (values, first) = (numbers(&recorded.path), timestamps[0] as usize);
    let sequence = numbers(&recorded.path.with_extension("sequence.npy"));
    assert_eq!(sequence.len() as u64, recorded.frames);
    for (n, row) in rows[first..][..sequence.len()].iter().enumerate() {
        let right = (row.0 as i64, row.1 as i64, row.3);
        assert_eq!((sequence[n], timestamps[n], values[n]), right);
    }
}

#[test]
fn recording_around_a_request_does_not_affect_the_flowgraph() {
    let directory = tempfile::tempdir().unwrap();
    let (control, running) = start("recorded", 4);
    let options = || around(Trigger::Request);
    let rejected = control.record("f", options(), LIMIT).unwrap_err();
    assert!(matches!(rejected, RecordError::NoDirectory));
    control.allow_recordings(&directory.path().join("new"), 1 << 20, 0).unwrap();
    let status = control.record("f", options(), LIMIT).unwrap();
    assert_eq!((status.name.as_str(), status.output.as_str()), ("1", "f.output"));
    has_before(&control, "1");
    assert_eq!(control.recorder("1").unwrap().state, RecorderState::Waiting);
    control.trigger_recorder("1", None).unwrap();
    flow(&control);
    let recorded = first(&control, "1");
    assert_eq!((recorded.frames, recorded.lost), (8, 0));
    assert!(recorded.path.starts_with(directory.path().join("new")));
    // A second recorder, until the end of the run.
    let long = control.recorder_options("s.output", "{}").unwrap();
    assert_eq!(control.record("s.output", long, LIMIT).unwrap().name, "2");
    flow(&control);
    let report = stop(&control, running);
    control.finish_recordings();
    let rows = rows("recorded");
    assert_whole(&rows, &report, 4, |_| 1);
    assert_same(&recorded, &rows);
    let long = control.recorder("2").unwrap();
    assert_eq!((long.state, long.recordings.len()), (RecorderState::Ended, 1));
    assert!(
        long.recordings[0]
            .path
            .ends_with(format!("new/s_output_{}.npz", long.recordings[0].timestamps.0))
    );
    assert_eq!(long.recordings[0].timestamps.1 + 1, rows.len() as u64);
    assert_eq!(events(&control, EventKind::Recorded).len(), 2);
    assert!(matches!(control.trigger_recorder("1", None), Err(RecordError::Ended(_))));
    control.delete_recorder("1").unwrap();
    assert!(recorded.files.iter().all(|file| !file.exists()));
    assert!(matches!(control.recorder("1"), Err(RecordError::NoSuchRecorder(_))));
}

#[test]
fn recording_of_an_event_includes_frames_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let (control, running) = start("eventful", 4);
    control.allow_recordings(directory.path(), 1 << 20, 0).unwrap();
    let kinds = vec![EventKind::Swapped];
    let trigger = Trigger::Events(EventTrigger { kinds, blocks: None });
    control.record("s", around(trigger), LIMIT).unwrap();
    has_before(&control, "1");
    assert_eq!(control.recorder("1").unwrap().recordings, []);
    swap(&control, "f", "implementation: running").unwrap();
    flow(&control);
    let recorded = first(&control, "1");
    assert_eq!(recorded.frames, 8);
    assert!(recorded.cause.starts_with("swapped of `f`: "), "{}", recorded.cause);
    stop(&control, running);
}

#[test]
fn record_rejects_invalid_requests() {
    let directory = tempfile::tempdir().unwrap();
    let (control, running) = start("unrecorded", 4);
    control.allow_recordings(directory.path(), 1 << 20, 0).unwrap();
    let rejected = |output: &str, change: fn(&mut RecorderOptions)| {
        let mut options = around(Trigger::Request);
        change(&mut options);
        control.record(output, options, LIMIT).unwrap_err().to_string()
    };
    assert_eq!(rejected("x", |_| {}), "there is no block `x`");
    assert!(rejected("f", |o| o.path = "../x.npz".into()).contains("is not a valid file name"));
    assert!(rejected("f", |o| o.path = "x.txt".into()).contains("not a NumPy file name"));
    assert!(rejected("f", |o| o.before_seconds = 1e6).contains("bytes of memory for frames"));
    assert!(rejected("f", |o| o.before_seconds = 1e300).contains("do not fit"));
    for (request, code) in [
        ("[]", "E0108"),
        ("{", "E0101"),
        ("before_second: 1", "E0106"),
        ("trigger: {events: {kinds: [flood]}}", "E0108"),
        ("trigger: {events: {kinds: [recorded]}}", "E0108"),
        ("{path: x.txt, after_seconds: -1}", "E0201"),
    ] {
        let Err(RecordError::Request(rejected)) = control.recorder_options("f", request) else {
            panic!("{request} is accepted")
        };
        assert_eq!(rejected.problems[0].code, code, "{:?}", rejected.problems);
    }
    for _ in 0..16 {
        control.record("f", around(Trigger::Request), LIMIT).unwrap();
    }
    assert!(rejected("f", |_| {}).contains("16 recorders are running"));
    control.delete_recorder("3").unwrap();
    control.record("f", around(Trigger::Request), LIMIT).unwrap();
    stop(&control, running);
    control.finish_recordings();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was triggered");
}
