//! Contents of the files, read without the library.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::io::files::output_file::of_another_process;
use crate::io::files::tests::write;
use fxgraph::flowgraph_texts::FlowgraphText;
use fxgraph::recording::array::Header;
use fxgraph::recording::{RecordingWriter, SideFile};
use fxgraph::{Axis, Band, BlockError, Clock, Dtype, Env, ValidityType};
use std::fs::{self, File};
use std::path::Path;

fn port() -> PortType {
    PortType {
        dtype: Dtype::Ci32,
        axes: vec![Axis::new("channel", 3), Axis::new("baseline", 2)],
        clock: Clock { sync_time: fxgraph::Time::unix(50), ..Clock::new(1000.0, 8) },
        band: Some(Band::signed(4, 1, 250.0, 500.0)),
        validity: ValidityType { axes: vec![Axis::new("baseline", 2)], full: 9 },
    }
}

fn sink(path: &str, overwrite: bool) -> FileSink {
    fxgraph::kind::read(&serde_json::json!({"path": path, "overwrite": overwrite})).unwrap()
}

/// Records `frames` frames at `path`; ends the stream, or drops the block without an end.
fn record(path: &str, frames: u64, end: bool) -> Result<(), BlockError> {
    record_in(&Env::detached("out"), sink(path, false), frames, end)
}

fn record_in(env: &Env, sink: FileSink, frames: u64, end: bool) -> Result<(), BlockError> {
    write(&sink, &port(), env, (frames as usize, end), |n, frame| {
        let header = frame.header_mut();
        header.timestamp = 80 + 8 * n as u64;
        header.validity.copy_from_slice(&[9, n as u32]);
        if n > 0 {
            header.annotations.reset("saturated", 1)[0] = n as f64;
        }
        let values = frame.as_mut_slice::<i32>().unwrap();
        (0..).zip(values).for_each(|(i, value)| *value = i + 100 * n as i32);
    })
}

fn load(path: &Path) -> (Header, Vec<u8>) {
    let header = Header::read(&File::open(path).unwrap(), 0).unwrap();
    let data = fs::read(path).unwrap().split_off(header.data_offset as usize);
    (header, data)
}

fn side(path: &str) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(format!("{path}.json")).unwrap()).unwrap()
}

#[test]
fn npy_files_hold_every_frame_and_the_side_file_describes_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/vis.npy").display().to_string();
    record(&path, 3, true).unwrap();
    let (header, data) = load(Path::new(&path));
    assert_eq!((header.descr.as_str(), header.shape), ("<i4", vec![3, 3, 2, 2]));
    let value = |n: usize| i32::from_le_bytes(data[4 * n..][..4].try_into().unwrap());
    assert!((0..36).all(|n| value(n) == (n % 12 + n / 12 * 100) as i32));
    let (header, data) = load(&directory.path().join("new/vis.timestamp.npy"));
    assert_eq!(header.shape, [3]);
    assert_eq!(data.iter().step_by(8).copied().collect::<Vec<_>>(), [80, 88, 96]);
    let (header, data) = load(&directory.path().join("new/vis.validity.npy"));
    assert_eq!(header.shape, [3, 2]);
    assert_eq!(data.iter().step_by(4).copied().collect::<Vec<_>>(), [9, 0, 9, 1, 9, 2]);
    let (_, data) = load(&directory.path().join("new/vis.saturated.npy"));
    let values: Vec<f64> =
        data.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    assert!(values[0].is_nan());
    assert_eq!(values[1..], [1.0, 2.0]);
    let side = side(&path);
    assert_eq!(side["complete"], true);
    assert_eq!(side["frames"], 3);
    assert_eq!(side["start_unix_seconds"], 50.08);
    // Channel 1 of four over 500 Hz with channel 2 at 250 Hz.
    assert_eq!(
        (&side["axes"][0]["first"], &side["axes"][0]["step"]),
        (&125.0.into(), &125.0.into())
    );
    assert_eq!(side["axes"][0]["unit"], "Hz");
}

#[test]
fn npz_archive_holds_the_same_arrays_and_leaves_no_parts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vis.npz").display().to_string();
    record(&path, 2, true).unwrap();
    let mut zip = zip::ZipArchive::new(File::open(&path).unwrap()).unwrap();
    let mut names: Vec<String> = zip.file_names().map(|name| name.unwrap().into_owned()).collect();
    names.sort();
    let arrays = ["checksum.npy", "config_id.npy", "data.npy"];
    let rest = ["recording.json", "saturated.npy", "sequence.npy", "timestamp.npy", "validity.npy"];
    assert_eq!(names, [&arrays[..], &rest].concat());
    assert_eq!(zip.by_name("data.npy").unwrap().size(), 512 + 2 * 48);
    assert!(!directory.path().join("vis.npz.parts").exists());
}

#[test]
fn incomplete_stream_is_readable_and_marked_incomplete() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vis.npy").display().to_string();
    record(&path, 2, false).unwrap();
    assert_eq!(load(Path::new(&path)).0.shape[0], 2);
    assert_eq!(side(&path)["complete"], false);
}

#[test]
fn side_file_has_flowgraph_of_first_frame() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vis.npy").display().to_string();
    let env = Env { flowgraph: FlowgraphText::plain("built", ""), ..Env::detached("out") };
    let stated = |config_id| {
        let text = FlowgraphText::plain("in force", "a: 1");
        env.texts.add(config_id, text);
        record_in(&env, sink(&path, true), 1, true).unwrap();
        of_another_process(Path::new(&path));
        [side(&path)["config_hash"].clone(), side(&path)["flowgraph"].clone()]
    };
    assert_eq!(stated(7), ["built", ""]);
    // The frames of the test have number 0.
    assert_eq!(stated(0), ["in force", "a: 1"]);
}

#[test]
fn file_sink_path_that_exists_gets_a_number() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["vis.npy", "vis.npz"] {
        let path = directory.path().join(name).display().to_string();
        let numbered = path.replace("vis.", "vis_2.");
        record(&path, 3, true).unwrap();
        let before = (fs::read(&path).unwrap(), side(&path));
        record(&path, 1, true).unwrap();
        assert_eq!((fs::read(&path).unwrap(), side(&path)), before, "{name}");
        assert_eq!(side(&numbered)["frames"], 1);
        // Files left by a killed program are not overwritten either.
        let third = path.replace("vis.", "vis_3.");
        if name.ends_with("npz") {
            fs::create_dir(format!("{third}.parts")).unwrap();
        } else {
            fs::write(&third, "").unwrap();
        }
        record(&path, 2, true).unwrap();
        assert_eq!(side(&path.replace("vis.", "vis_4."))["frames"], 2);
        // Nor are those of this process.
        let overwrite = || record_in(&Env::detached("out"), sink(&path, true), 4, true).unwrap();
        overwrite();
        assert_eq!(side(&path.replace("vis.", "vis_5."))["frames"], 4);
        assert_eq!(fs::read(&path).unwrap(), before.0);
        of_another_process(Path::new(&path));
        overwrite();
        assert_eq!(side(&path)["frames"], 4);
    }
}

#[test]
fn file_sink_simultaneous_sinks_get_a_file_each() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vis.npz").display().to_string();
    std::thread::scope(|scope| {
        for frames in 0..8 {
            let path = path.as_str();
            scope.spawn(move || record(path, frames % 5 + 1, true).unwrap());
        }
    });
    let numbers = (2..=8).map(|n| format!("_{n}"));
    let frames = [String::new()].into_iter().chain(numbers).map(|number| {
        side(&path.replace(".npz", &format!("{number}.npz")))["frames"].as_u64().unwrap()
    });
    assert_eq!(frames.sum::<u64>(), 1 + 2 + 3 + 4 + 5 + 1 + 2 + 3);
}

#[test]
fn file_sink_rejects_a_pipe() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe.npy");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let error = record(&path.display().to_string(), 1, true).unwrap_err().to_string();
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn arrays_that_cannot_be_assembled_stay_and_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vis.npz");
    let side_file = SideFile { block: String::new(), ..SideFile::of(&port()) };
    let recording = RecordingWriter::create(&path.as_path().into(), &port(), side_file).unwrap();
    // A directory takes the name while the stream runs.
    fs::create_dir(&path).unwrap();
    let error = recording.close(true).unwrap_err().to_string();
    assert!(error.contains("vis.npz.parts"), "{error}");
    assert!(directory.path().join("vis.npz.parts/data.npy").exists());
}
