//! Which frames get into which file.

use super::array::Header as ArrayHeader;
use super::*;
use fxgraph_core::event::{Event, EventKind};
use fxgraph_core::{Axis, Clock, Counters, Dtype, PortType, ValidityType};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// A thousand samples a second, ten a frame.
fn port() -> PortType {
    PortType {
        dtype: Dtype::U8,
        axes: vec![Axis::new("sample", 10)],
        clock: Clock { adc_sample_rate_hz: 1000.0, sync_time_seconds: 0.0, samples_per_frame: 10 },
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", 2)]),
    }
}

/// Five frames before a trigger, three after it.
fn options(folder: &Path, trigger: Trigger) -> RecorderOptions {
    RecorderOptions {
        path: folder.join("r_{timestamp}.npy").as_path().into(),
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
    let recorder = Recorder::start(names, &port(), blank, options, &counters, &recorders);
    (recorder.unwrap(), recorders, counters)
}

/// Frame number `n`; in number 42 something is missing, in number 50 something is loud.
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

/// The numbers of an array of one column.
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
fn a_request_brings_what_came_before_it_and_what_comes_after() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, ..) = start(options(folder.path(), Trigger::Request));
    (0..=20).for_each(|n| push(&recorder, n));
    assert_eq!(recorder.status().state, RecorderState::Waiting);
    assert_eq!(recorder.status().frames_kept, 5);
    assert!(recorder.trigger(None, "a request"));
    (21..=30).for_each(|n| push(&recorder, n));
    // At a time that has passed, and again while it is being recorded.
    assert!(recorder.trigger(Some(290), "a second"));
    assert!(recorder.trigger(Some(300), "a third"));
    (31..=60).for_each(|n| push(&recorder, n));
    let all = recorded(&recorder);
    assert_eq!(all[0], (16..24).collect::<Vec<_>>());
    // What stands in the first file does not stand in the second one, which is longer for the third trigger.
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
fn a_frame_that_shows_something_is_recorded_with_those_before_and_after() {
    let loud = Loud { annotation: "adc_clipped".to_owned(), above: 3.0 };
    for (trigger, at) in [(Trigger::Missing, 42), (Trigger::Loud(loud), 50)] {
        let folder = tempfile::tempdir().unwrap();
        let (recorder, ..) = start(options(folder.path(), trigger));
        (0..100).for_each(|n| push(&recorder, n));
        assert_eq!(recorded(&recorder), [(at - 4..at + 4).collect::<Vec<_>>()]);
    }
}

#[test]
fn an_event_begins_a_recording_if_it_is_one_that_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let blocks = Some(vec!["x".to_owned()]);
    let kinds = vec![EventKind::Fault];
    let trigger = Trigger::Events(EventTrigger { kinds, blocks });
    let (recorder, recorders, _) = start(options(folder.path(), trigger));
    let watch = recorders.watcher();
    let event = |kind, block: &str| Event {
        sequence: 1,
        time: SystemTime::now(),
        block: Some(block.to_owned()),
        kind,
        text: "it burns".to_owned(),
    };
    (0..10).for_each(|n| push(&recorder, n));
    watch(&event(EventKind::DataLost, "x"));
    watch(&event(EventKind::Fault, "y"));
    (10..20).for_each(|n| push(&recorder, n));
    watch(&event(EventKind::Fault, "x"));
    // The end comes first.
    push(&recorder, 20);
    assert_eq!(recorded(&recorder), [(15..21).collect::<Vec<_>>()]);
    assert_eq!(recorder.status().recordings[0].cause, "fault of `x`: it burns");
}

#[test]
fn every_frame_has_the_checksum_of_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), Trigger::Start);
    options.after_seconds = None;
    let (recorder, ..) = start(options);
    (0..60).for_each(|n| push(&recorder, n));
    assert_eq!(recorded(&recorder), [(0..60).collect::<Vec<_>>()]);
    let path = folder.path().join("r_0.checksum.npy");
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
fn a_full_recording_is_closed_and_nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("r_0.npy"), "precious").unwrap();
    let mut options = options(folder.path(), Trigger::Start);
    (options.after_seconds, options.max_bytes) = (None, Some(45));
    let (recorder, ..) = start(options);
    (0..3).for_each(|n| push(&recorder, n));
    // It ends by itself, so its buffers may be gone.
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
    assert_eq!(fs::read(folder.path().join("r_0.npy")).unwrap(), b"precious");
}

#[test]
fn what_stands_in_files_when_there_is_no_more_room_stays_readable() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), Trigger::Start);
    options.after_seconds = None;
    options.budget = Some(Arc::new(Budget::new(folder.path(), 1025, 1000, 0)));
    let (recorder, ..) = start(options);
    (0..3).for_each(|n| push(&recorder, n));
    assert_eq!(recorded(&recorder), [[0, 1]]);
    let status = recorder.status();
    assert_eq!(status.state, RecorderState::Failed);
    assert_eq!(status.fault.unwrap(), "the recordings have reached their limit of 1025 bytes");
}

#[test]
fn a_disk_is_not_filled_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), Trigger::Start);
    options.budget = Some(Arc::new(Budget::new(folder.path(), u64::MAX, 0, u64::MAX)));
    let (recorder, ..) = start(options);
    push(&recorder, 0);
    recorder.join();
    let fault = recorder.status().fault.unwrap();
    assert!(fault.contains("is nearly full") && fault.contains("bytes are free"), "{fault}");
}

#[test]
fn frames_that_wait_for_the_disk_are_kept_and_those_without_room_are_left_out() {
    let mut ring = ring::Ring::new(3, 10, 10, 1000);
    let push = |ring: &mut ring::Ring, n: u64| {
        let Some(mut frame) = ring.take() else { return false };
        frame.header.timestamp = 10 * n;
        ring.push(frame);
        true
    };
    assert!((0..9).all(|n| push(&mut ring, n)), "nobody wants the old ones");
    ring.trigger(None, "now");
    assert!(push(&mut ring, 9) && push(&mut ring, 10));
    assert!(!push(&mut ring, 11), "all three are to be written");
    let ring::Step::Write { frame, lost: 0 } = ring.step(false) else { panic!("there is a frame") };
    assert_eq!(frame.header.timestamp, 80);
    assert!(!push(&mut ring, 11), "it is being written");
    ring.give_back(frame);
    assert!(push(&mut ring, 12));
}

#[test]
fn a_recording_counts_the_frames_that_were_lost_in_its_time_only() {
    let folder = tempfile::tempdir().unwrap();
    let (recorder, ..) = start(options(folder.path(), Trigger::Request));
    let lose_and_push = |lost: std::ops::Range<u64>| {
        recorder.lose(lost.end - lost.start);
        push(&recorder, lost.end);
    };
    push(&recorder, 0);
    // Long before the first recording; partly before it; in it; partly after its end.
    lose_and_push(1..5);
    (6..10).for_each(|n| push(&recorder, n));
    lose_and_push(10..18);
    push(&recorder, 19);
    assert!(recorder.trigger(None, "a request"));
    lose_and_push(20..21);
    lose_and_push(22..30);
    // Right before the end of the second one, which is the end of everything.
    (31..40).for_each(|n| push(&recorder, n));
    assert!(recorder.trigger(None, "another"));
    recorder.lose(2);
    assert_eq!(recorded(&recorder), [vec![18, 19, 21], (35..40).collect()]);
    let lost: Vec<u64> = recorder.status().recordings.iter().map(|one| one.lost).collect();
    assert_eq!(lost, [3 + 1 + 1, 0]);
    assert_eq!(recorder.status().frames_lost, 4 + 8 + 1 + 8 + 2);
}

#[test]
fn options_that_cannot_be_are_refused_all_at_once() {
    let refused = |change: fn(&mut RecorderOptions)| {
        let mut options = options(Path::new("x"), Trigger::Start);
        change(&mut options);
        options.refusals(&port()).into_iter().map(|refusal| refusal.message).collect::<Vec<_>>()
    };
    assert_eq!(refused(|_| {}), [""; 0]);
    assert_eq!(refused(|o| o.path = "a.txt".into()), ["`a.txt` is not a NumPy file name"]);
    assert_eq!(refused(|o| o.before_seconds = f64::NAN), ["NaN s are no time"]);
    assert_eq!(refused(|o| o.before_seconds = 1e300).len(), 1);
    assert_eq!(refused(|o| o.max_bytes = Some(9)), ["a frame has 10 bytes already"]);
    let two = refused(|o| (o.before_seconds, o.after_seconds) = (-1.0, Some(-1.0)));
    assert_eq!(two.len(), 2);
}
