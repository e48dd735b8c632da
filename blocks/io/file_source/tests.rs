//! Recordings of `file_sink` are played bit for bit; files that contradict themselves are rejected.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::io::file_sink::FileSink;
use crate::io::files::output_file::of_another_process;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Band, Clock, Dtype, Env, Frame, Ports, Sideband, ValidityType};
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn port(dtype: Dtype) -> PortType {
    PortType {
        dtype,
        axes: vec![Axis::new("channel", 24), Axis::new("pol", 2)],
        clock: Clock { sync_time: Time::from_unix_f64(3.5).unwrap(), ..Clock::new(1e6, 8) },
        band: Some(Band::signed(64, 8, 2.5e5, 5e5)),
        validity: ValidityType { axes: vec![Axis::new("pol", 2)], full: 9 },
    }
}

fn byte(n: usize, i: usize) -> u8 {
    (n * 31 + i * 7) as u8
}

pub fn record(path: &str, dtype: Dtype) {
    // A sink does not overwrite what this process has recorded.
    if Path::new(path).exists() {
        of_another_process(Path::new(path));
    }
    let sink: FileSink =
        fxgraph::kind::read(&serde_json::json!({"path": path, "overwrite": true})).unwrap();
    let ports = Ports { inputs: vec![port(dtype)], outputs: vec![] };
    let block = sink.build(&ports.inputs, &Env::detached("out")).unwrap();
    let mut harness = Harness::new(block, &ports, 4).unwrap();
    Harness::block_on(async {
        harness.start().await.unwrap();
        for n in 0..3usize {
            assert!(harness.send(0, |frame| {
                let (header, payload) = frame.parts_mut::<u8>().unwrap();
                header.timestamp = (1 << 40) + 16 * n as u64;
                header.validity.copy_from_slice(&[9, n as u32]);
                if n > 0 {
                    header.annotations.reset("saturated", 2)[1] = n as f64;
                }
                payload.iter_mut().enumerate().for_each(|(i, b)| *b = byte(n, i));
            }));
        }
        harness.end(0);
        harness.run().await.unwrap();
        harness.finish().await.unwrap();
    });
}

pub fn source(path: &str) -> FileSource {
    serde_json::from_value(serde_json::json!({ "path": path })).unwrap()
}

/// Plays all frames, or returns the error.
pub fn play(source: &FileSource) -> Result<(PortType, Vec<Arc<Frame>>), String> {
    playback::tests::play(source, &Env::detached("in"))
}

#[test]
fn every_dtype_is_played_bit_for_bit_from_both_formats() {
    let directory = tempfile::tempdir().unwrap();
    for dtype in [Dtype::Packed(10)].into_iter().chain(Dtype::WHOLE_BYTES) {
        for extension in ["npy", "npz"] {
            let path = directory.path().join(format!("a.{extension}")).display().to_string();
            record(&path, dtype);
            let (played, frames) = play(&source(&path)).unwrap();
            assert_eq!(played, port(dtype));
            assert_eq!(frames.len(), 3);
            for (n, frame) in frames.iter().enumerate() {
                assert_eq!(frame.header().timestamp, (1 << 40) + 16 * n as u64);
                assert_eq!(frame.header().validity, [9, n as u32]);
                let mut bytes = frame.as_slice::<u8>().unwrap().iter().enumerate();
                assert!(bytes.all(|(i, b)| *b == byte(n, i)));
                let saturated = frame.header().annotations.get("saturated");
                assert_eq!(saturated, if n == 0 { vec![] } else { vec![0.0, n as f64] });
            }
        }
    }
}

#[test]
fn plain_data_is_played_as_whole_frames() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plain.bin");
    fs::write(&path, (0..45u8).collect::<Vec<_>>()).unwrap();
    let raw = serde_json::json!({
        "dtype": "i10p", "axes": [{"name": "sample", "len": 8}], "samples_per_frame": 8,
        "first_timestamp": 80, "header_bytes": 3,
    });
    let raw = Some(serde_json::from_value(raw).unwrap());
    let mut source = FileSource { raw, ..source(&path.display().to_string()) };
    source.playback.frames = Some(3);
    let (_, frames) = play(&source).unwrap();
    let seen = |frame: &Arc<Frame>| (frame.header().timestamp, frame.as_slice::<u8>().unwrap()[0]);
    assert_eq!(frames.iter().map(seen).collect::<Vec<_>>(), [(80, 3), (88, 13), (96, 23)]);
    source.playback.frames = None;
    assert_eq!(play(&source).unwrap().1.len(), 4);
}

/// Plays the array of `shape` and NumPy type `descr` with the bytes 0, 1, 2, ...
fn play_array(
    descr: &str,
    shape: &[u64],
    bytes: u8,
    raw: serde_json::Value,
) -> Result<(PortType, Vec<Arc<Frame>>), String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.npy");
    let data: Vec<u8> = (0..bytes).collect();
    fs::write(&path, [npy::header(descr, shape, 0), data].concat()).unwrap();
    let raw = Some(serde_json::from_value(raw).unwrap());
    play(&FileSource { raw, ..source(&path.display().to_string()) })
}

#[test]
fn numpy_array_is_cut_into_frames_along_its_first_axis() {
    let raw = serde_json::json!({
        "axes": [{"name": "sample", "len": 4}, {"name": "pol", "len": 2}],
        "samples_per_frame": 4, "adc_sample_rate_hz": 1000, "first_timestamp": 80,
    });
    // 9 samples of 2 polarisations are 2 frames, 3 x 4 samples are 3.
    for (shape, bytes, frames) in [(&[9, 2][..], 36, 2), (&[3, 4, 2], 48, 3)] {
        let (port, played) = play_array("<i2", shape, bytes, raw.clone()).unwrap();
        assert_eq!((port.dtype, port.clock.adc_sample_rate_hz), (Dtype::I16, 1000.0));
        let seen = played
            .iter()
            .map(|frame| (frame.header().timestamp, frame.as_slice::<u8>().unwrap()[0]));
        let expected = (0..frames).map(|n| (80 + 4 * n, 16 * n as u8));
        assert!(seen.eq(expected), "{shape:?}");
    }
    let rejected =
        |descr: &str, shape: &[u64], raw| play_array(descr, shape, 48, raw).err().unwrap();
    let said = rejected("<i2", &[3, 2, 4], raw.clone());
    assert!(
        said.ends_with("x.npy: its shape is [3, 2, 4], expected [n, 4, 2] or [n, 2]"),
        "{said}"
    );
    let said = rejected(">f8", &[6], raw.clone());
    assert!(said.contains("NumPy type `>f8` is not supported"), "{said}");
    let mut complex = raw.clone();
    complex["dtype"] = "cf32".into();
    let said = rejected("<i2", &[6, 2], complex.clone());
    assert!(said.ends_with("its dtype is <i2, expected <c8 for `cf32`"), "{said}");
    // Real and imaginary parts along the last axis.
    complex["dtype"] = "ci16".into();
    assert_eq!(play_array("<i2", &[4, 2, 2], 32, complex).unwrap().1.len(), 1);
}

#[test]
fn truncated_numpy_array_is_played_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.npy");
    fs::write(&path, [npy::header("|i1", &[40], 0), vec![0; 19]].concat()).unwrap();
    let raw = serde_json::json!({
        "axes": [{"name": "sample", "len": 4}], "samples_per_frame": 4, "adc_sample_rate_hz": 8,
    });
    let raw = Some(serde_json::from_value(raw).unwrap());
    let source = FileSource { raw, ..source(&path.display().to_string()) };
    let env = Env::detached("in");
    assert_eq!(playback::tests::play(&source, &env).unwrap().1.len(), 4);
    let said = env.summary.get();
    assert!(
        said.contains("is truncated: the last 6 of 10 frames (3.000000 s) are missing"),
        "{said}"
    );
}

#[test]
fn raw_needs_a_dtype_unless_the_file_has_one() {
    let raw = serde_json::json!({"axes": [{"name": "sample", "len": 4}], "samples_per_frame": 4});
    let raw: Raw = serde_json::from_value(raw).unwrap();
    let said =
        |path: &str| play(&FileSource { raw: Some(raw.clone()), ..source(path) }).err().unwrap();
    assert!(said("x.bin").contains("`raw` needs `dtype`"));
    assert!(said("x.npz").contains("`raw` describes one array"));
    assert!(said("no/x.npy").ends_with("no/x.npy: there is no such file"));
}

#[test]
fn band_of_plain_data_is_that_of_raw() {
    let raw = |band: serde_json::Value| -> FileSource {
        serde_json::from_value(serde_json::json!({"path": "x.bin", "raw": {
            "dtype": "i10p", "axes": [{"name": "sample", "len": 4096}], "samples_per_frame": 4096, "band": band,
        }}))
        .unwrap()
    };
    let stated = serde_json::json!({"channels": 1, "centre_hz": 1.284e9, "bandwidth_hz": 856e6});
    let port = raw(stated).outputs(&[]).unwrap().remove(0);
    assert_eq!(port.band.map(|band| (band.centre_hz, band.bandwidth_hz)), Some((1.284e9, 856e6)));
    let empty = serde_json::json!({"channels": 0, "centre_hz": 1.284e9, "bandwidth_hz": 856e6});
    let rejections = raw(empty).outputs(&[]).unwrap_err();
    assert_eq!(rejections[0].at, At::Parameter("raw.band"));
    let sideband = |width: f64, sideband: &str| {
        let band = serde_json::json!({
            "channels": 1, "centre_hz": 1.284e9, "bandwidth_hz": width, "sideband": sideband,
        });
        raw(band).outputs(&[]).map(|ports| ports[0].band.unwrap())
    };
    for width in [856e6, -856e6] {
        let band = sideband(width, "lower").unwrap();
        assert_eq!((band.bandwidth_hz, band.sideband), (856e6, Sideband::Lower));
    }
    assert!(sideband(-856e6, "upper").unwrap_err()[0].message.contains("must be positive"));
}

#[test]
fn nyquist_zone_of_plain_data_gives_its_band() {
    let raw = |zone: u32, dtype: &str| -> FileSource {
        serde_json::from_value(serde_json::json!({"path": "x.bin", "raw": {
            "dtype": dtype, "axes": [{"name": "sample", "len": 4096}], "samples_per_frame": 4096,
            "adc_sample_rate_hz": 8e8, "nyquist_zone": zone,
        }}))
        .unwrap()
    };
    let band = |zone| raw(zone, "i10p").outputs(&[]).unwrap()[0].band;
    // CHIME: 400 to 800 MHz at 800 MS/s, the highest frequency at 0 Hz of the samples.
    assert_eq!(band(2), Some(Band::signed(1, 0, 6e8, -4e8)));
    assert_eq!((band(1), band(3)), (None, Some(Band::signed(1, 0, 1e9, 4e8))));
    for source in [raw(0, "i10p"), raw(2, "ci8")] {
        let rejections = source.outputs(&[]).unwrap_err();
        assert_eq!(rejections[0].at, At::Parameter("raw.nyquist_zone"));
    }
}

#[test]
fn inconsistent_files_are_rejected_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.npy");
    let name = path.display().to_string();
    assert!(play(&source(&name)).err().unwrap().contains("a.npy: there is no such file"));
    fs::write(&path, "").unwrap();
    let alone = play(&source(&name)).err().unwrap();
    assert!(alone.contains("is not a recording") && alone.contains("a.npy.json"), "{alone}");
    record(&name, Dtype::Ci8);
    let rejected = |change: &dyn Fn()| {
        change();
        let error = play(&source(&name)).err().unwrap();
        assert!(error.contains("a.npy"), "{error}");
        record(&name, Dtype::Ci8);
        error
    };
    let cut = || fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(70).unwrap();
    assert!(rejected(&cut).contains("within its header"));
    assert!(rejected(&|| fs::write(&path, "hello").unwrap()).contains("within its header"));
    let side = directory.path().join("a.npy.json");
    let edit = |from: &str, to: &str| {
        let text = fs::read_to_string(&side).unwrap();
        assert!(text.contains(from));
        fs::write(&side, text.replace(from, to)).unwrap();
    };
    assert!(rejected(&|| edit("\"len\": 24", "\"len\": 25")).contains("shape"));
    assert!(
        rejected(&|| edit("\"len\": 24", "\"len\": 18446744073709551615"))
            .contains("must have 1 to")
    );
    assert!(rejected(&|| edit("\"ci8\"", "\"ci32\"")).contains("its dtype is |i1, expected <i4"));
    assert!(rejected(&|| edit("\"channel\"", "\"hat\"")).contains("no axis `hat`"));
    assert!(
        rejected(&|| edit("{", "[")).contains("a.npy.json is wrong: expected `,` or `]` (line")
    );
    assert!(play(&source("no/such.bin")).err().unwrap().contains("is not a recording"));
}

#[test]
fn truncated_recording_plays_complete_frames_and_counts_the_others() {
    let directory = tempfile::tempdir().unwrap();
    for (extension, bytes_per_frame) in [("npy", 96), ("npz", 96)] {
        let path = directory.path().join(format!("a.{extension}"));
        let name = path.display().to_string();
        let mut seen = Vec::new();
        record(&name, Dtype::Ci8);
        let whole = fs::read(&path).unwrap();
        // The payloads come last; in an archive the directory follows them.
        let end = whole
            .windows(4)
            .rposition(|bytes| bytes == [byte(2, 44), byte(2, 45), byte(2, 46), byte(2, 47)]);
        let end = end.unwrap() + 4 + bytes_per_frame - 48;
        if extension == "npz" {
            // Without the side file: the archive contains its description.
            fs::remove_file(directory.path().join("a.npz.json")).unwrap();
        }
        for cut in [0, 1, 96, 97, 3 * 96] {
            fs::write(&path, &whole[..end - cut]).unwrap();
            let env = Env::detached("in");
            let (_, frames) = playback::tests::play(&source(&name), &env).unwrap();
            assert!(
                frames.iter().zip(0..).all(|(f, n)| f.as_slice::<u8>().unwrap()[1] == byte(n, 1))
            );
            let missing = env.counters.list()[1].counter.get();
            assert_eq!(missing > 0, env.summary.get().contains("is truncated: the last"));
            seen.push((frames.len(), missing));
        }
        assert_eq!(seen, [(3, 0), (2, 1), (2, 1), (1, 2), (0, 3)], "{extension}");
        // Truncated at any other byte, it is played or rejected without a panic.
        for cut in (0..whole.len()).step_by(13) {
            fs::write(&path, &whole[..cut]).unwrap();
            let _ = play(&source(&name));
        }
    }
}

#[test]
fn damage_in_any_array_of_a_frame_is_detected() {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().join("a.npy").display().to_string();
    for array in
        ["", "sequence.", "timestamp.", "config_id.", "validity.", "saturated.", "checksum."]
    {
        record(&name, Dtype::Ci8);
        let path = directory.path().join(format!("a.{array}npy"));
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = play(&source(&name)).err().unwrap();
        assert!(error.contains("frame 2") && error.contains("is damaged"), "{array} {error}");
    }
}

#[test]
fn archive_that_was_never_assembled_is_played_from_its_parts() {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().join("a.npz").display().to_string();
    record(&directory.path().join("b.npy").display().to_string(), Dtype::Ci8);
    record(&name, Dtype::Ci8);
    fs::remove_file(&name).unwrap();
    fs::create_dir(format!("{name}.parts")).unwrap();
    for array in ["sequence", "timestamp", "config_id", "validity", "saturated", "checksum"] {
        let from = directory.path().join(format!("b.{array}.npy"));
        fs::rename(from, format!("{name}.parts/{array}.npy")).unwrap();
    }
    fs::rename(directory.path().join("b.npy"), format!("{name}.parts/data.npy")).unwrap();
    assert_eq!(play(&source(&name)).unwrap().1.len(), 3);
}

#[test]
fn recordings_without_checksums_are_played() {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().join("a.npy").display().to_string();
    record(&name, Dtype::Ci8);
    let side = format!("{name}.json");
    let mut text: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&side).unwrap()).unwrap();
    for array in ["sequence", "config_id", "checksum"] {
        assert!(text["arrays"].as_object_mut().unwrap().remove(array).is_some());
    }
    fs::write(&side, text.to_string()).unwrap();
    assert_eq!(play(&source(&name)).unwrap().1.len(), 3);
}

#[test]
fn real_time_pace_follows_the_timestamps() {
    let directory = tempfile::tempdir().unwrap();
    let name = directory.path().join("a.npy").display().to_string();
    record(&name, Dtype::Ci8);
    // 16 samples at 200 Hz.
    let side = format!("{name}.json");
    let text = fs::read_to_string(&side).unwrap().replace("1000000.0", "200.0");
    fs::write(&side, text).unwrap();
    let began = std::time::Instant::now();
    let mut source = source(&name);
    source.playback.pace = playback::Pace::RealTime;
    assert_eq!(play(&source).unwrap().1.len(), 3);
    let took = began.elapsed();
    assert!(took >= std::time::Duration::from_millis(160), "{took:?}");
}

#[test]
fn rest_of_plain_data_is_counted_and_a_file_shorter_than_a_frame_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.bin");
    let raw = serde_json::json!({
        "dtype": "i16", "axes": [{"name": "sample", "len": 16}], "samples_per_frame": 16, "header_bytes": 4,
    });
    for (bytes, frames, rest, text) in [
        (4 + 64, 2, 0, ""),
        (4 + 70, 2, 6, "x.bin: the rest of 6 bytes after the last whole frame is not played"),
        (4 + 31, 0, 31, "x.bin is shorter than a frame, and nothing is played: 31 of 32 bytes"),
    ] {
        fs::write(&path, vec![0; bytes]).unwrap();
        let raw = Some(serde_json::from_value(raw.clone()).unwrap());
        let source = FileSource { raw, ..source(&path.display().to_string()) };
        let env = Env::detached("in");
        assert_eq!(playback::tests::play(&source, &env).unwrap().1.len(), frames);
        let counters = env.counters.list();
        let counter = counters.iter().find(|named| named.name == "bytes_after_end").unwrap();
        assert_eq!(counter.counter.get(), rest);
        assert!(env.summary.get().trim_end().ends_with(text), "{}", env.summary.get());
    }
}

#[test]
fn packed_numbers_become_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.bin").display().to_string();
    fs::write(&path, [0b11_10_01_00, 0b00_01_10_11, 0, 0xff]).unwrap();
    let play_packed = |dtype: &str, packed: serde_json::Value| {
        let raw = serde_json::json!({
            "dtype": dtype, "axes": [{"name": "sample", "len": 4}], "samples_per_frame": 4,
            "adc_sample_rate_hz": 4e6, "packed": packed,
        });
        let raw = Some(serde_json::from_value(raw).unwrap());
        play(&FileSource { raw, ..source(&path) }).map(|(port, frames)| {
            let frames = frames.iter().map(|frame| {
                let bytes = frame.as_slice::<u8>().unwrap().iter();
                (frame.header().timestamp, bytes.map(|byte| byte.cast_signed()).collect::<Vec<_>>())
            });
            (port.to_string(), frames.collect::<Vec<_>>())
        })
    };
    let (port, frames) =
        play_packed("ci8", serde_json::json!({"bits": 2, "encoding": "sign_magnitude"})).unwrap();
    assert_eq!(port, "ci8 [sample 4] @ 4 MS/s / 4");
    let first = vec![1, 3, -1, -3, -3, -1, 3, 1];
    assert_eq!(frames, [(0, first), (4, vec![1, 1, 1, 1, -3, -3, -3, -3])]);
    let high = serde_json::json!({"bits": 2, "encoding": "offset_binary", "first": "high"});
    let (_, frames) = play_packed("ci8", high).unwrap();
    assert_eq!(frames[0].1, [3, 1, -1, -3, -3, -1, 1, 3]);
    let said = |dtype: &str, packed| play_packed(dtype, packed).unwrap_err();
    let packed = serde_json::json!({"bits": 2, "encoding": "sign_magnitude"});
    assert!(said("i16", packed.clone()).contains("become `i8` or `ci8`"));
    assert!(said("i8", packed).contains("multiple of 8 packed numbers, got 4"));
    let three = serde_json::json!({"bits": 3, "encoding": "sign_magnitude"});
    assert!(said("ci8", three).contains("must be 1, 2 or 4, got 3"));
}
