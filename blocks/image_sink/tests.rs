use super::picture::Picture;
use super::*;
use crate::chain::{Plain, drive, kind};
use fxgraph::frame::Annotations;
use fxgraph::{Axis, Clock, Configured, Dtype, ValidityType};
use serde_json::json;
use std::path::Path;

fn port() -> PortType {
    PortType {
        dtype: Dtype::F32,
        axes: vec![Axis::new("spectrum", 2), Axis::new("channel", 3), Axis::new("beam", 4)],
        clock: Clock { adc_sample_rate_hz: 1e6, sync_time_seconds: 0.0, samples_per_frame: 200 },
        band: None,
        validity: ValidityType::flags(vec![Axis::new("spectrum", 2)]),
    }
}

/// A frame of ones, but for one spectrum and beam.
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
fn the_brightest_pixel_is_where_the_stream_is_brightest_and_gaps_are_grey() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/picture.png");
    let parameters = json!({"path": path, "rows": "beam", "columns": "spectrum", "row_pixels": 2});
    let mut with_gap = frame(1000, None);
    with_gap.validity = vec![1, 0];
    // The frame after the first did not come.
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
fn a_long_stream_is_merged_and_nothing_of_it_lost() {
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
fn what_is_no_picture_is_refused() {
    let refused = |parameters| {
        let refusals = Configured::ports(&kind::<ImageSink>(parameters), &[port()]).unwrap_err();
        refusals.iter().map(|refusal| refusal.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let text = refused(json!({"path": "a.jpg", "rows": "beam", "columns": "time"}));
    assert_eq!(text, "`a.jpg` names no picture; the input has no axis `time`");
    let text = refused(json!({"path": "a.png", "rows": "beam", "columns": "beam"}));
    assert_eq!(text, "a picture needs two axes");
    let text =
        refused(json!({"path": "a.png", "rows": "beam", "columns": "spectrum", "max_columns": 1}));
    assert_eq!(text, "a frame has more than 1 columns");
}
