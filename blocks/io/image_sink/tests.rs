use super::picture::Picture;
use super::*;
use crate::tests::chain::{Plain, drive, kind};
use fxgraph::frame::Annotations;
use fxgraph::{Axis, Clock, Dtype, ValidityType};
use serde_json::json;
use std::path::Path;

fn port() -> PortType {
    PortType {
        dtype: Dtype::F32,
        axes: vec![Axis::new("spectrum", 2), Axis::new("channel", 3), Axis::new("beam", 4)],
        clock: Clock::new(1e6, 200),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("spectrum", 2)]),
    }
}

/// Returns a frame of ones, except for one spectrum and beam.
fn frame(timestamp: u64, bright: Option<(usize, usize)>) -> Plain {
    let value = |n: usize| if bright == Some((n / 12, n % 4)) { 100.0_f32 } else { 1.0 };
    Plain {
        timestamp,
        validity: vec![1, 1],
        annotations: Annotations::default(),
        payload: (0..24).flat_map(|n| value(n).to_le_bytes()).collect(),
    }
}

/// Width, height and pixels of a picture.
fn read(path: &Path) -> (usize, usize, Vec<[u8; 3]>) {
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let pixels = bytes.as_chunks::<3>().0.to_vec();
    (info.width as usize, info.height as usize, pixels)
}

#[test]
fn brightest_pixel_has_its_position_and_gaps_are_grey() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/picture.png");
    let parameters = json!({"path": path, "rows": "beam", "columns": "spectrum", "row_pixels": 2});
    let mut with_gap = frame(1000, None);
    with_gap.validity = vec![1, 0];
    // The frame after the first one is missing.
    let frames = vec![with_gap, frame(1400, Some((1, 3))), frame(900, None)];
    let out = drive(&kind::<ImageSink>(parameters), &[port()], vec![frames]);
    assert!(
        out.summary.contains("4 beam x 6 columns, colours from 0.0000 dB to 20.0000 dB"),
        "{}",
        out.summary
    );
    assert!(
        out.summary.contains("brightest: beam 3, column 5, 0.000550 s from the start"),
        "{}",
        out.summary
    );
    assert_eq!(out.count("frames_early"), 1);
    let (width, height, pixels) = read(&path);
    assert_eq!((width, height), (6, 8));
    for (n, pixel) in pixels.iter().enumerate() {
        let (row, column) = (3 - n / 6 / 2, n % 6);
        let expected = match (row, column) {
            (_, 1..=3) => [96, 96, 96],
            (3, 5) => [255, 255, 200],
            _ => [0, 0, 0],
        };
        assert_eq!(*pixel, expected, "{row} {column}");
    }
}

#[test]
fn long_stream_is_merged_without_dropping_data() {
    let mut picture = Picture::new(2, 4);
    for column in 0..11 {
        picture.reach(column);
        picture.add(1, column, column as f64);
    }
    assert_eq!(picture.columns(), (3, 4));
    let averages: Vec<_> = (0..3).map(|column| picture.average(1, column)).collect();
    assert_eq!(averages, [Some(1.5), Some(5.5), Some(9.0)]);
    assert_eq!(picture.average(0, 0), None);
    picture.reach(u64::MAX);
    assert_eq!(picture.average(1, 0), Some(5.0));
}

#[test]
fn picture_of_one_column_accepts_the_largest_timestamp() {
    let mut picture = Picture::new(1, 1);
    for column in [0, 1, u64::MAX] {
        picture.reach(column);
        picture.add(0, column, 3.0);
    }
    assert_eq!((picture.columns(), picture.average(0, 0)), ((1, 1 << 64), Some(3.0)));
}

#[test]
fn values_without_decibels_are_dark() {
    for (value, expected) in [
        (
            0.0_f32,
            "all dark: no value is above 0\nbrightest: beam 3, column 1, 0.000150 s from the start, 0.0",
        ),
        (f32::NAN, "all dark: no value is above 0\n"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dark.png");
        let parameters = json!({"path": path, "rows": "beam", "columns": "spectrum"});
        let mut dark = frame(0, None);
        dark.payload = value.to_le_bytes().repeat(24);
        let out = drive(&kind::<ImageSink>(parameters), &[port()], vec![vec![dark]]);
        assert!(out.summary.contains(expected), "{}", out.summary);
        assert!(read(&path).2.iter().all(|pixel| *pixel == [0, 0, 0]));
    }
    let mut picture = Picture::new(1, 3);
    for (column, value) in [f64::NAN, 5.0, 2.0].into_iter().enumerate() {
        picture.reach(column as u64);
        picture.add(0, column as u64, value);
    }
    assert_eq!(picture.brightest(), Some((0, 1, 5.0)));
}

#[test]
fn spectra_of_heaps_follow_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heaps.png");
    let parameters = json!({"path": path, "rows": "pol", "columns": "spectrum"});
    let port = PortType {
        axes: vec![Axis::new("heap", 3), Axis::new("pol", 2), Axis::new("spectrum", 4)],
        validity: ValidityType::flags(vec![]),
        ..port()
    };
    // Polarisation 1 of spectrum 2 in heap 1 of the second frame.
    let bright = |n: usize| n == 8 + 4 + 2;
    let frame = |timestamp: u64| Plain {
        timestamp,
        validity: vec![1],
        annotations: Annotations::default(),
        payload: (0..24)
            .flat_map(|n| if timestamp > 0 && bright(n) { 9.0_f32 } else { 1.0 }.to_le_bytes())
            .collect(),
    };
    let out = drive(&kind::<ImageSink>(parameters), &[port], vec![vec![frame(0), frame(200)]]);
    assert!(out.summary.contains("2 pol x 24 columns"), "{}", out.summary);
    // Frames of 200 us with 12 spectra.
    assert!(out.summary.contains("brightest: pol 1, column 18, 0.000308 s"), "{}", out.summary);
}

#[test]
fn image_sink_rejects_invalid_parameters() {
    let rejected = |parameters| {
        let rejections = KindSpec::outputs(&kind::<ImageSink>(parameters), &[port()]).unwrap_err();
        rejections.iter().map(|rejection| rejection.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let text = rejected(json!({"path": "a.jpg", "rows": "beam", "columns": "time"}));
    assert_eq!(
        text,
        "`path` must be a file name ending in .png, got `a.jpg`; the input has no axis `time`"
    );
    let text = rejected(json!({"path": "a.png", "rows": "beam", "columns": "beam"}));
    assert_eq!(text, "`rows` and `columns` must be different axes");
    let text =
        rejected(json!({"path": "a.png", "rows": "beam", "columns": "spectrum", "max_columns": 1}));
    assert_eq!(text, "`max_columns` must be at least the columns of a frame (2), got 1");
}
