//! Descriptions: known, damaged and hostile.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn meta(value: Value) -> Meta {
    Meta::read(value.to_string().as_bytes()).unwrap()
}

/// Returns a description with these captures.
fn with_captures(captures: Value) -> Meta {
    meta(json!({
        "global": {"core:datatype": "ci16_le", "core:version": "1.2.0", "core:sample_rate": 1e6, "x:y": [1]},
        "captures": captures,
        "annotations": [],
    }))
}

fn segment(index: u64, count: u64, offset: u64) -> Segment {
    Segment { index, count, offset }
}

#[test]
fn datatype_names_round_trip() {
    for (name, bytes) in [
        ("cu8", 2),
        ("ci8", 2),
        ("ri8", 1),
        ("ru8", 1),
        ("ci16_le", 4),
        ("ri16_be", 2),
        ("cf32_le", 8),
        ("rf64_be", 8),
        ("ru32_le", 4),
        ("cu16_be", 4),
    ] {
        let datatype: Datatype = name.parse().unwrap();
        assert_eq!((datatype.to_string().as_str(), datatype.bytes()), (name, bytes));
    }
    assert_eq!("cf32".parse(), Ok(Datatype::new(true, Number::F32)));
    assert_eq!("ci8_be".parse(), Ok(Datatype::new(true, Number::I8)));
    for name in ["", "c", "f32_le", "ci12_le", "cf32_le_le", "CF32_le"] {
        assert!(name.parse::<Datatype>().is_err(), "{name}");
    }
}

#[test]
fn samples_of_other_types_are_converted() {
    let mut bytes = [0, 128, 255, 127];
    "cu8".parse::<Datatype>().unwrap().to_native(&mut bytes);
    assert_eq!(bytes.map(u8::cast_signed), [-128, 0, 127, -1]);
    let mut bytes = [1, 2, 3, 4];
    "ri16_be".parse::<Datatype>().unwrap().to_native(&mut bytes);
    assert_eq!(bytes, [2, 1, 4, 3]);
}

#[test]
fn recording_without_captures_is_one_segment() {
    let layout = with_captures(json!([])).layout(4003, None).unwrap();
    assert_eq!(layout.segments, [segment(0, 1000, 0)]);
    assert_eq!((layout.excess_bytes, layout.channels, layout.sync_time), (3, 1, None));
}

#[test]
fn captures_have_their_indices_times_and_headers() {
    let meta = with_captures(json!([
        {"core:sample_start": 0, "core:global_index": 5000, "core:datetime": "2023-11-14T22:13:20.005Z",
         "core:frequency": 1e8, "core:header_bytes": 16},
        {"core:sample_start": 100, "core:global_index": 5200, "core:frequency": 1e8},
        {"core:sample_start": 150, "core:frequency": 1e8, "core:header_bytes": 8},
    ]));
    let layout = meta.layout(24 + 4 * 170, None).unwrap();
    let expected = [segment(5000, 100, 16), segment(5200, 50, 416), segment(5250, 20, 624)];
    assert_eq!(layout.segments, expected);
    assert_eq!(layout.frequency_hz, Some(1e8));
    // Sample 5000 at 1 MHz is 5 ms after sample 0.
    assert_eq!(layout.sync_time, Some(fxgraph_time::Time::unix(1_700_000_000)));
    let one = meta.layout(24 + 4 * 170, Some(1)).unwrap();
    assert_eq!(one.segments, [segment(5200, 50, 416)]);
    // A truncated file has only the first capture.
    let layout = meta.layout(24 + 4 * 60, None).unwrap();
    assert_eq!(layout.segments.iter().map(|segment| segment.count).collect::<Vec<_>>(), [60, 0, 0]);
}

#[test]
fn gaps_without_an_index_follow_from_the_times() {
    let capture =
        |start: u64, time: &str| json!({"core:sample_start": start, "core:datetime": time});
    let indices = |captures: &[Value]| {
        let layout = with_captures(json!(captures)).layout(4 * 3_000_000, None);
        layout.map(|layout| layout.segments.iter().map(|one| one.index).collect::<Vec<_>>())
    };
    let first = capture(0, "2023-11-14T22:13:20.000000Z");
    // 10^6 samples are 1 s; the second capture follows, the third is 0.25 s late.
    let second = capture(1_000_000, "2023-11-14T22:13:21.000000Z");
    let third = capture(2_000_000, "2023-11-14T22:13:22.250000Z");
    let all = [first.clone(), second.clone(), third];
    assert_eq!(indices(&all), Ok(vec![0, 1_000_000, 2_250_000]));
    // Times without a fraction cannot show a gap of less than a second.
    let coarse = [first.clone(), capture(1_000_000, "2023-11-14T22:13:22Z")];
    assert_eq!(indices(&coarse), Ok(vec![0, 1_000_000]));
    let coarse = [first.clone(), capture(1_000_000, "2023-11-14T22:13:26Z")];
    assert_eq!(indices(&coarse), Ok(vec![0, 6_000_000]));
    let early = [first.clone(), capture(1_000_000, "2023-11-14T22:13:20.500000Z")];
    let error = indices(&early).unwrap_err().to_string();
    assert!(error.starts_with("capture 1 begins 0.5 s before the end"), "{error}");
    assert!(error.contains("add `core:global_index`"), "{error}");
    // An index wins over a time that contradicts it.
    let mut both = second;
    both["core:global_index"] = json!(5_000_000);
    let layout = with_captures(json!([first, both])).layout(4 * 3_000_000, None).unwrap();
    assert_eq!(layout.segments[1].index, 5_000_000);
    let expected = "capture 1 is -4 s late by its `core:datetime`; its `core:global_index` is used";
    assert_eq!(layout.contradictions, [expected]);
}

#[test]
fn missing_samples_are_those_of_annotations_with_this_label() {
    let mut meta = with_captures(json!([
        {"core:sample_start": 0, "core:global_index": 10}, {"core:sample_start": 100, "core:global_index": 500}
    ]));
    let note = |sample_start, sample_count, label: &str| Annotation {
        sample_start,
        sample_count,
        label: Some(label.to_owned()),
        comment: None,
    };
    meta.annotations = vec![
        note(120, Some(1000), MISSING),
        note(5, Some(3), MISSING),
        note(7, Some(1), "interference"),
        note(90, None, MISSING),
        note(100_000, Some(1), MISSING),
        note(1, Some(0), MISSING),
    ];
    let layout = meta.layout(4 * 150, None).unwrap();
    assert_eq!(layout.missing, [(15, 3), (100, 10), (520, 30)]);
}

#[test]
fn description_that_cannot_be_used_is_rejected_with_its_reason() {
    let error = |meta: &Meta| meta.layout(1000, None).unwrap_err().to_string();
    let with = |change: fn(&mut Global)| {
        let mut meta = with_captures(json!([]));
        change(&mut meta.global);
        error(&meta)
    };
    assert_eq!(
        with(|g| g.sample_rate = None),
        "`core:sample_rate` must be positive and finite, found none"
    );
    assert!(with(|g| g.sample_rate = Some(-1.0)).ends_with("found -1"));
    assert!(with(|g| g.num_channels = Some(0)).contains("between 1 and 4096, found 0"));
    assert!(with(|g| g.datatype = "cf31\n_le".to_owned()).ends_with("found `cf31_le`"));
    assert!(with(|g| g.metadata_only = Some(true)).contains("metadata_only"));
    assert!(with(|g| g.dataset = Some("x.wav".to_owned())).contains("core:dataset"));
    let unknown = |g: &mut Global| {
        let (name, version) = ("capture_details".to_owned(), "1.0.0".to_owned());
        g.extensions = vec![Extension { name, version, optional: false }];
    };
    assert!(with(unknown).contains("needs the extension `capture_details`"));
    assert!(with(|g| g.trailing_bytes = Some(u64::MAX)).contains("shorter than its headers"));
    let captures = |captures| error(&with_captures(captures));
    assert!(
        captures(json!([{"core:sample_start": 5}, {"core:sample_start": 4}])).contains("ascending")
    );
    assert!(
        captures(json!([
            {"core:sample_start": 0, "core:global_index": 7}, {"core:sample_start": 9, "core:global_index": 15}
        ]))
        .contains("between 16, the end of the capture before, and")
    );
    assert!(
        captures(json!([{"core:sample_start": 0, "core:frequency": 1}, {"core:sample_start": 9}]))
            .contains("captures 0 and 1 have different frequencies")
    );
    assert_eq!(
        captures(json!([{"core:sample_start": 0, "core:datetime": "2026-02-30T00:00:00Z\n"}])),
        "`core:datetime` must be a time in UTC such as 2026-11-25T14:20:40.5Z, found `2026-02-30T00:00:00Z`"
    );
    let none = with_captures(json!([])).layout(1000, Some(1)).unwrap_err().to_string();
    assert_eq!(none, "it has 1 captures, counted from 0; there is no capture 1");
    for text in [
        "",
        "[]",
        "{}",
        r#"{"global": {"core:datatype": 1}}"#,
        r#"{"global": {"core:\u0007x": -1}}"#,
    ] {
        let error = Meta::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("it is not SigMF metadata"), "{error}");
    }
}

proptest! {
    #[test]
    fn written_description_is_read_back(
        starts in proptest::collection::vec((0..1_u64 << 62, proptest::option::of(any::<u64>())), 0..5),
        rate in 1..1_u32 << 30, text in ".{0,20}", frequency in proptest::option::of(any::<i32>().prop_map(f64::from)),
    ) {
        let capture = |(sample_start, global_index)| Capture {
            sample_start, global_index, frequency, datetime: Some(text.clone()), header_bytes: None,
        };
        let mut written = with_captures(json!([]));
        // The last digit of other numbers may differ.
        written.global.sample_rate = Some(f64::from(rate));
        written.global.description = Some(text.clone());
        written.captures = starts.into_iter().map(capture).collect();
        prop_assert_eq!(Meta::read(written.text().as_bytes()).unwrap(), written);
    }

    #[test]
    fn arbitrary_values_are_placed_within_the_file_or_rejected(
        captures in proptest::collection::vec(
            (prop_oneof![0..100_u64, any::<u64>()], proptest::option::of(prop_oneof![0..500_u64, any::<u64>()]),
             proptest::option::of(prop_oneof![0..9_u64, any::<u64>()])), 0..5),
        notes in proptest::collection::vec((any::<u64>(), proptest::option::of(any::<u64>())), 0..3),
        offset in proptest::option::of(prop_oneof![Just(0_u64), any::<u64>()]),
        channels in proptest::option::of(0..5_u64), bytes in prop_oneof![0..5000_u64, any::<u64>()],
    ) {
        let mut meta = with_captures(json!([]));
        (meta.global.offset, meta.global.num_channels) = (offset, channels);
        let capture = |(sample_start, global_index, header_bytes)| Capture {
            sample_start, global_index, header_bytes, ..Capture::default()
        };
        meta.captures = captures.into_iter().map(capture).collect();
        meta.captures.sort_by_key(|capture| capture.sample_start);
        meta.annotations = notes.into_iter().map(|(sample_start, sample_count)| Annotation {
            sample_start, sample_count, label: Some(MISSING.to_owned()), comment: None,
        }).collect();
        if let Ok(layout) = meta.layout(bytes, None) {
            let sample = 4 * layout.channels as u128;
            let mut end = 0;
            for one in &layout.segments {
                prop_assert!(one.index >= end);
                end = one.index + one.count;
                prop_assert!(u128::from(one.offset) + u128::from(one.count) * sample <= u128::from(bytes));
            }
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Meta::read(&bytes);
    }
}
