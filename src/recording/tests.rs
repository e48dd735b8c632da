//! Tests of recorders: the frames in each file.

use super::array::Header as ArrayHeader;
use super::*;
use fxgraph_core::event::{Event, EventKind};
use fxgraph_core::flowgraph_texts::FlowgraphTexts;
use fxgraph_core::{Axis, Clock, Counters, Dtype, PortType, ValidityType};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// Stream of 1000 samples per second, 10 per frame.
fn port() -> PortType {
    PortType {
        dtype: Dtype::U8,
        axes: vec![Axis::new("sample", 10)],
        clock: Clock::new(1000.0, 10),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", 2)]),
    }
}

/// Options to record five frames before a trigger and three after it.
fn options(directory: &Path, trigger: Trigger) -> RecorderOptions {
    RecorderOptions {
        path: directory.join("r_{timestamp}.npy").as_path().into(),
        before_seconds: 0.05,
        after_seconds: Some(0.03),
        max_bytes: None,
        max_total_bytes: None,
        min_free_bytes: None,
        trigger,
        budget: None,
    }
}

fn start(options: RecorderOptions) -> (Recorder, Recorders, Counters) {
    let (recorders, counters) = (Recorders::default(), Counters::default());
    let blank = SideFile::of(&port());
    let names = ("r", "");
    let recorder = Recorder::start(
        names,
        &port(),
        blank,
        options,
        &counters,
        (&FlowgraphTexts::default(), &recorders),
    );
    (recorder.unwrap(), recorders, counters)
}

/// Pushes frame number `n`; number 42 has missing data, number 50 a large value in an annotation.
fn push(recorder: &Recorder, n: u64) {
    let mut frame = recorder.take_within(std::time::Duration::from_secs(20)).unwrap();
    frame.header.sequence = n;
    frame.header.timestamp = 10 * n;
    frame.header.config_id = 7;
    frame.header.validity = vec![1, u32::from(n != 42)];
    frame.header.annotations.reset("adc_clipped", 2)[1] = if n == 50 { 9.0 } else { 0.0 };
    frame.payload = vec![n as u8; 10];
    recorder.push(frame);
}

/// Reads the numbers of an array with one axis.
fn numbers<const N: usize>(path: &Path, number: fn([u8; N]) -> u64) -> Vec<u64> {
    let header = ArrayHeader::read(&File::open(path).unwrap(), 0).unwrap();
    let bytes = fs::read(path).unwrap().split_off(header.data_offset as usize);
    assert_eq!(bytes.len() as u64, header.shape[0] * N as u64);
    bytes.chunks(N).map(|chunk| number(chunk.try_into().unwrap())).collect()
}

/// Sequence numbers of each recording of a recorder that has ended.
fn recorded(recorder: &Recorder) -> Vec<Vec<u64>> {
    recorder.end();
    recorder.join();
    let sequence = |recorded: &Recorded| {
        numbers(&recorded.path.with_extension("sequence.npy"), u64::from_le_bytes)
    };
    recorder.status().recordings.iter().map(sequence).collect()
}

#[test]
fn request_records_frames_before_and_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let (recorder, ..) = start(options(directory.path(), Trigger::Request));
    (0..=20).for_each(|n| push(&recorder, n));
    assert_eq!(recorder.status().state, RecorderState::Waiting);
    assert_eq!(recorder.status().frames_kept, 5);
    assert!(recorder.trigger(None, "a request"));
    (21..=30).for_each(|n| push(&recorder, n));
    // At a timestamp that has passed, and again during the recording.
    assert!(recorder.trigger(Some(290), "a second"));
    assert!(recorder.trigger(Some(300), "a third"));
    (31..=60).for_each(|n| push(&recorder, n));
    let all = recorded(&recorder);
    assert_eq!(all[0], (16..24).collect::<Vec<_>>());
    // The second file has no frame of the first one, and is extended by the third trigger.
    assert_eq!(all[1..], [(24..33).collect::<Vec<_>>()]);
    let status = recorder.status();
    assert_eq!((status.state, status.frames_lost), (RecorderState::Ended, 0));
    let first = &status.recordings[0];
    assert_eq!((first.frames, first.bytes, first.timestamps), (8, 80, (160, 230)));
    assert_eq!(first.cause, "a request");
    assert!(first.files.iter().all(|file| file.exists()));
    assert!(!recorder.trigger(None, "too late"));
}

#[test]
fn missing_and_loud_triggers_record_frames_before_and_after() {
    let loud = Loud { annotation: "adc_clipped".to_owned(), above: 3.0 };
    for (trigger, at) in [(Trigger::Missing, 42), (Trigger::Loud(loud), 50)] {
        let directory = tempfile::tempdir().unwrap();
        let (recorder, ..) = start(options(directory.path(), trigger));
        (0..100).for_each(|n| push(&recorder, n));
        assert_eq!(recorded(&recorder), [(at - 4..at + 4).collect::<Vec<_>>()]);
    }
}

#[test]
fn event_trigger_selects_by_kind_and_block() {
    let directory = tempfile::tempdir().unwrap();
    let blocks = Some(vec!["x".to_owned()]);
    let kinds = vec![EventKind::Fault];
    let trigger = Trigger::Events(EventTrigger { kinds, blocks });
    let (recorder, recorders, _) = start(options(directory.path(), trigger));
    let watch = recorders.watcher();
    let event = |kind, block: &str| Event {
        sequence: 1,
        time: SystemTime::now(),
        block: Some(block.to_owned()),
        kind,
        text: "overheated".to_owned(),
    };
    (0..10).for_each(|n| push(&recorder, n));
    watch(&event(EventKind::DataLost, "x"));
    watch(&event(EventKind::Fault, "y"));
    (10..20).for_each(|n| push(&recorder, n));
    watch(&event(EventKind::Fault, "x"));
    // The stream ends before `after_seconds` have passed.
    push(&recorder, 20);
    assert_eq!(recorded(&recorder), [(15..21).collect::<Vec<_>>()]);
    assert_eq!(recorder.status().recordings[0].cause, "fault of `x`: overheated");
}

#[test]
fn checksum_covers_all_rows_of_a_frame() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path(), Trigger::Start);
    options.after_seconds = None;
    let (recorder, ..) = start(options);
    (0..60).for_each(|n| push(&recorder, n));
    assert_eq!(recorded(&recorder), [(0..60).collect::<Vec<_>>()]);
    let path = directory.path().join("r_0.checksum.npy");
    let sums = numbers(&path, |bytes| u64::from(u32::from_le_bytes(bytes)));
    for (n, sum) in (0u64..).zip(sums) {
        let mut right = Checksum::default();
        [n, 10 * n, 7].iter().for_each(|number| right.add(&number.to_le_bytes()));
        [1, u32::from(n != 42)].iter().for_each(|count| right.add(&count.to_le_bytes()));
        [0.0, if n == 50 { 9.0 } else { 0.0f64 }].iter().for_each(|v| right.add(&v.to_le_bytes()));
        right.add(&[n as u8; 10]);
        assert_eq!(sum, u64::from(right.value()), "{n}");
    }
}

#[test]
fn full_recording_is_closed_and_existing_files_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("r_0.npy"), "precious").unwrap();
    let mut options = options(directory.path(), Trigger::Start);
    (options.after_seconds, options.max_bytes) = (None, Some(45));
    let (recorder, ..) = start(options);
    (0..3).for_each(|n| push(&recorder, n));
    // The recorder ends by itself, so there may be no buffers.
    (3..9).for_each(|_| {
        let _ = recorder.take().map(|mut frame| {
            frame.header.sequence = 3;
            frame.header.timestamp = 30;
            frame.header.validity = vec![1, 1];
            frame.payload = vec![0; 10];
            recorder.push(frame);
        });
    });
    recorder.join();
    let status = recorder.status();
    let [only] = &status.recordings[..] else { panic!("{status:?}") };
    assert_eq!((only.frames, only.path.file_name()), (4, Some("r_0_2.npy".as_ref())));
    assert_eq!(fs::read(directory.path().join("r_0.npy")).unwrap(), b"precious");
}

#[test]
fn recording_at_the_budget_limit_stays_readable() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path(), Trigger::Start);
    options.after_seconds = None;
    options.budget = Some(Arc::new(Budget::new(directory.path(), 1025, 1000, 0)));
    let (recorder, ..) = start(options);
    (0..3).for_each(|n| push(&recorder, n));
    assert_eq!(recorded(&recorder), [[0, 1]]);
    let status = recorder.status();
    assert_eq!(status.state, RecorderState::Failed);
    assert_eq!(status.fault.unwrap(), "the recordings have reached their limit of 1025 bytes");
}

#[test]
fn recorder_fails_when_the_disk_is_nearly_full() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path(), Trigger::Start);
    options.budget = Some(Arc::new(Budget::new(directory.path(), u64::MAX, 0, u64::MAX)));
    let (recorder, ..) = start(options);
    push(&recorder, 0);
    recorder.join();
    let fault = recorder.status().fault.unwrap();
    assert!(fault.contains("is nearly full") && fault.contains("bytes are free"), "{fault}");
}

#[test]
fn ring_keeps_frames_to_be_written_and_rejects_further_ones() {
    let mut ring = ring::Ring::new(3, 10, 10, 1000);
    let push = |ring: &mut ring::Ring, n: u64| {
        let Some(mut frame) = ring.take() else { return false };
        frame.header.timestamp = 10 * n;
        ring.push(frame);
        true
    };
    assert!((0..9).all(|n| push(&mut ring, n)), "old frames are removed");
    ring.trigger(None, "now");
    assert!(push(&mut ring, 9) && push(&mut ring, 10));
    assert!(!push(&mut ring, 11), "all three frames wait for the disk");
    let ring::Step::Write { frame, lost: 0 } = ring.step(false) else { panic!("there is a frame") };
    assert_eq!(frame.header.timestamp, 80);
    assert!(!push(&mut ring, 11), "the buffer is being written");
    ring.give_back(frame);
    assert!(push(&mut ring, 12));
}

#[test]
fn recording_counts_dropped_frames_within_its_time_only() {
    let directory = tempfile::tempdir().unwrap();
    let (recorder, ..) = start(options(directory.path(), Trigger::Request));
    let lose_and_push = |lost: std::ops::Range<u64>| {
        recorder.lose(lost.end - lost.start);
        push(&recorder, lost.end);
    };
    push(&recorder, 0);
    // Dropped frames long before the first recording, partly before it, in it, and partly after its end.
    lose_and_push(1..5);
    (6..10).for_each(|n| push(&recorder, n));
    lose_and_push(10..18);
    push(&recorder, 19);
    assert!(recorder.trigger(None, "a request"));
    lose_and_push(20..21);
    lose_and_push(22..30);
    // Dropped frames at the end of the stream, after the frames of the second recording.
    (31..40).for_each(|n| push(&recorder, n));
    assert!(recorder.trigger(None, "another"));
    recorder.lose(2);
    assert_eq!(recorded(&recorder), [vec![18, 19, 21], (35..40).collect()]);
    let lost: Vec<u64> = recorder.status().recordings.iter().map(|one| one.lost).collect();
    assert_eq!(lost, [3 + 1 + 1, 0]);
    assert_eq!(recorder.status().frames_lost, 4 + 8 + 1 + 8 + 2);
}

#[test]
fn options_report_all_errors() {
    let rejected = |change: fn(&mut RecorderOptions)| {
        let mut options = options(Path::new("x"), Trigger::Start);
        change(&mut options);
        options
            .rejections(&port())
            .into_iter()
            .map(|rejection| rejection.message)
            .collect::<Vec<_>>()
    };
    assert_eq!(rejected(|_| {}), [""; 0]);
    assert_eq!(rejected(|o| o.path = "a.txt".into()), ["`a.txt` is not a NumPy file name"]);
    let not_finite = "`before_seconds` must be finite and at least 0, got NaN";
    assert_eq!(rejected(|o| o.before_seconds = f64::NAN), [not_finite]);
    assert_eq!(rejected(|o| o.before_seconds = 1e300).len(), 1);
    let too_small = "`max_bytes` must be at least 10, the size of a frame";
    assert_eq!(rejected(|o| o.max_bytes = Some(9)), [too_small]);
    let two = rejected(|o| (o.before_seconds, o.after_seconds) = (-1.0, Some(-1.0)));
    assert_eq!(two.len(), 2);
}
