//! The policy of files, for every format in [`FORMATS`]: frames of four equal steps of 1 ms, read back from the files.

use super::Times::{self, OfFile, OfFrames, OfUnits, Stated};
use super::output_file::{full_disk, of_another_process};
use crate::tests::chain::connected;
use fxgraph::edge::Harness;
use fxgraph::{
    Axis, Band, BlockError, Clock, Dtype, Env, FrameMut, KindSpec, PortType, Ports, Time,
    ValidityType,
};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Writes `count` frames of type `port` by `sink` as the block of `env`; `fill` gets the number of each frame. Without an
/// end, the block is finished as by a stop.
pub fn write(
    sink: &impl KindSpec,
    port: &PortType,
    env: &Env,
    (count, ends): (usize, bool),
    mut fill: impl FnMut(usize, &mut FrameMut),
) -> Result<(), BlockError> {
    let ports = Ports { inputs: vec![port.clone()], outputs: vec![] };
    let block = sink.build(&ports.inputs, env).unwrap();
    let mut harness = Harness::new(block, &ports, count.max(1)).unwrap();
    Harness::block_on(async {
        harness.start().await?;
        for n in 0..count {
            assert!(harness.send(0, |frame| fill(n, frame)));
        }
        if ends {
            harness.end(0);
        }
        harness.run().await?;
        harness.finish().await
    })
}

/// Steps of a frame, and ADC samples.
const STEPS: usize = 4;

/// A format: its kind, times, parameters, the extension of `path` and that of the data, the input, and a reader of the
/// first byte of each step in the data.
struct Tested {
    kind: &'static str,
    times: Times,
    parameters: Value,
    extensions: [&'static str; 2],
    dtype: Dtype,
    axes: &'static [(&'static str, usize)],
    read: fn(&[u8]) -> Vec<u8>,
}

fn formats() -> Vec<Tested> {
    let tested = |kind, times, parameters, extensions, dtype, axes, read| Tested {
        kind,
        times,
        parameters,
        extensions,
        dtype,
        axes,
        read,
    };
    let samples = &[("sample", STEPS)];
    vec![
        tested("dada_sink", OfFile, json!({}), ["dada"; 2], Dtype::Ci8, samples, |bytes| {
            bytes[fxgraph_formats::dada::HEADER_BYTES..].iter().step_by(2).copied().collect()
        }),
        tested(
            "filterbank_sink",
            OfFile,
            json!({"bits": 8}),
            ["fil"; 2],
            Dtype::U8,
            &[("spectrum", STEPS), ("channel", 1)],
            |bytes| {
                let (_, start) = fxgraph_formats::filterbank::Header::read(bytes).unwrap();
                bytes[start as usize..].to_vec()
            },
        ),
        tested(
            "guppi_sink",
            OfUnits,
            json!({}),
            ["raw"; 2],
            Dtype::Ci8,
            &[("heap", STEPS), ("channel", 1), ("spectrum", 1), ("pol", 1)],
            |mut bytes| {
                let mut steps = Vec::new();
                while !bytes.is_empty() {
                    let (_, length) = fxgraph_formats::guppi::Header::parse(bytes).unwrap();
                    steps.extend(bytes[length..][..2 * STEPS].iter().step_by(2));
                    bytes = &bytes[length + 2 * STEPS..];
                }
                steps
            },
        ),
        tested(
            "vdif_sink",
            OfUnits,
            json!({"bits": 8, "payload_bytes": 2 * STEPS}),
            ["vdif"; 2],
            Dtype::Ci8,
            samples,
            |bytes| {
                let of_frame = |bytes: &[u8]| {
                    let is_valid = !fxgraph_formats::vdif::Header::parse(bytes).unwrap().is_invalid;
                    let code = move |byte: u8| if is_valid { byte.wrapping_sub(128) } else { 0 };
                    bytes[32..].iter().step_by(2).copied().map(code).collect::<Vec<_>>()
                };
                bytes.chunks(32 + 2 * STEPS).flat_map(of_frame).collect()
            },
        ),
        tested(
            "sigmf_sink",
            Stated,
            json!({}),
            ["sigmf-meta", "sigmf-data"],
            Dtype::Ci8,
            samples,
            |bytes| bytes.iter().step_by(2).copied().collect(),
        ),
        tested("file_sink", OfFrames, json!({}), ["npy"; 2], Dtype::Ci8, samples, |bytes| {
            bytes[512..].iter().step_by(2).copied().collect()
        }),
    ]
}

impl Tested {
    fn port(&self) -> PortType {
        let axes: Vec<Axis> = self.axes.iter().map(|(name, len)| Axis::new(name, *len)).collect();
        PortType {
            dtype: self.dtype,
            clock: Clock {
                sync_time: Time::unix(1_800_000_000),
                ..Clock::new(1000.0, STEPS as u64)
            },
            band: Some(Band::signed(1, 0, 1e8, 1e3)),
            validity: ValidityType::flags(axes[..1].to_vec()),
            axes,
        }
    }

    /// Steps of a frame that the file tells apart.
    fn steps(&self) -> u64 {
        if self.times == OfFrames { 1 } else { STEPS as u64 }
    }

    fn harness(&self, path: &Path, parameters: &Value, env: &Env) -> Harness {
        let mut all = self.parameters.clone();
        let fields = all.as_object_mut().unwrap();
        fields.insert("path".to_owned(), json!(path));
        fields.extend(parameters.as_object().unwrap().clone());
        let block = connected(self.kind, "cpu", &all, &[self.port()]).ok().unwrap();
        Harness::new(block.build(env).unwrap(), block.ports(), 1).unwrap()
    }

    /// Writes frames to the file `x`: the time of frame n in frames, and the room on the disk in bytes. All bytes of
    /// frame n are n + 1. Returns whether each of them could be written.
    fn write(
        &self,
        directory: &Path,
        parameters: &Value,
        frames: &[(u64, Option<usize>)],
        env: &Env,
    ) -> Vec<bool> {
        let mut harness = self.harness(&self.path(directory, "x"), parameters, env);
        Harness::block_on(harness.start()).unwrap();
        let mut results = Vec::new();
        for (n, (time, room)) in frames.iter().enumerate() {
            assert!(harness.send(0, |frame| {
                frame.header_mut().timestamp = time * STEPS as u64;
                frame.header_mut().validity.fill(1);
                frame.as_mut_slice::<u8>().unwrap().fill(n as u8 + 1);
            }));
            full_disk::leave(*room);
            results.push(Harness::block_on(harness.run()).is_ok());
        }
        full_disk::leave(None);
        harness.end(0);
        Harness::block_on(harness.run()).unwrap();
        Harness::block_on(harness.finish()).unwrap();
        results
    }

    /// The file `name` to write.
    fn path(&self, directory: &Path, name: &str) -> std::path::PathBuf {
        directory.join(format!("{name}.{}", self.extensions[0]))
    }

    /// The data of the file `name`.
    fn data(&self, directory: &Path, name: &str) -> std::path::PathBuf {
        directory.join(format!("{name}.{}", self.extensions[1]))
    }

    /// Values of the frames in the file `name`, each of which has four equal steps.
    fn frames(&self, directory: &Path, name: &str) -> Vec<u8> {
        let bytes = fs::read(self.data(directory, name)).unwrap();
        let steps = (self.read)(&bytes);
        let (frames, rest) = steps.as_chunks::<STEPS>();
        assert!(rest.is_empty(), "{} {name}", self.kind);
        frames.iter().for_each(|frame| assert_eq!(*frame, [frame[0]; STEPS], "{}", self.kind));
        frames.iter().map(|frame| frame[0]).collect()
    }

    /// Number of files with data.
    fn files(&self, directory: &Path) -> usize {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let is_data = |path: &std::path::PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.ends_with(self.extensions[1]) && name.matches('.').count() == 1
        };
        names.filter(is_data).count()
    }
}

fn count(env: &Env, name: &str) -> u64 {
    env.counters.list().iter().find(|named| named.name == name).unwrap().counter.get()
}

/// Frames at these times, with any room.
fn at(times: &[u64]) -> Vec<(u64, Option<usize>)> {
    times.iter().map(|time| (*time, None)).collect()
}

/// Writes frames at `times` with the format; returns the directory and the environment.
fn written(format: &Tested, parameters: &Value, times: &[u64]) -> (tempfile::TempDir, Env) {
    let (directory, env) = (tempfile::tempdir().unwrap(), Env::detached("out"));
    let results = format.write(directory.path(), parameters, &at(times), &env);
    assert!(results.iter().all(|written| *written), "{}", format.kind);
    (directory, env)
}

/// `parameters` of a format that fills gaps, with this limit.
fn limited(format: &Tested, seconds: f64) -> Value {
    let fills = matches!(format.times, OfFile | OfUnits);
    if fills { json!({"max_gap_seconds": seconds}) } else { json!({}) }
}

#[test]
fn short_gap_is_filled_or_stated() {
    for format in formats() {
        let (directory, env) = written(&format, &json!({}), &[2, 3, 5, 6]);
        let fills = matches!(format.times, OfFile | OfUnits);
        let expected: &[u8] = if fills { &[1, 2, 0, 3, 4] } else { &[1, 2, 3, 4] };
        assert_eq!(format.frames(directory.path(), "x"), expected, "{}", format.kind);
        let counts =
            ["steps_written", "steps_missing", "steps_left_out"].map(|name| count(&env, name));
        let expected = match format.times {
            OfFile | OfUnits => [20, 4, 0],
            Stated => [16, 0, 4],
            OfFrames => [4, 0, 0],
        };
        assert_eq!(counts, expected, "{}", format.kind);
    }
}

#[test]
fn long_gap_begins_a_file_or_is_left_out() {
    for format in formats() {
        // A gap of 2 frames, 8 ms.
        let (directory, env) = written(&format, &limited(&format, 0.007), &[0, 1, 4, 5]);
        let is_new = format.times == OfFile;
        assert_eq!(count(&env, "files_written"), 1 + u64::from(is_new), "{}", format.kind);
        if is_new {
            assert_eq!(format.frames(directory.path(), "x"), [1, 2]);
            assert_eq!(format.frames(directory.path(), "x_2"), [3, 4]);
            assert!(
                env.summary.get().contains("continues after 0.008000 s"),
                "{}",
                env.summary.get()
            );
        } else {
            assert_eq!(format.frames(directory.path(), "x"), [1, 2, 3, 4], "{}", format.kind);
        }
        let left_out = if format.times == OfFrames { 0 } else { 8 };
        assert_eq!(count(&env, "steps_left_out"), left_out, "{}", format.kind);
        // One that equals the limit is filled.
        let (_directory, env) = written(&format, &limited(&format, 0.008), &[0, 1, 4, 5]);
        let fills = matches!(format.times, OfFile | OfUnits);
        assert_eq!(count(&env, "steps_missing"), if fills { 8 } else { 0 }, "{}", format.kind);
    }
}

#[test]
fn frames_without_data_are_a_gap() {
    for format in formats() {
        let (directory, env) = (tempfile::tempdir().unwrap(), Env::detached("out"));
        let mut harness = format.harness(&format.path(directory.path(), "x"), &json!({}), &env);
        for (n, is_valid) in [0, 1, 0, 1, 0].into_iter().enumerate() {
            assert!(harness.send(0, |frame| {
                frame.header_mut().timestamp = (n * STEPS) as u64;
                frame.header_mut().validity.fill(is_valid);
                frame.as_mut_slice::<u8>().unwrap().fill(n as u8 + 1);
            }));
            Harness::block_on(harness.run()).unwrap();
        }
        Harness::block_on(harness.finish()).unwrap();
        let expected: &[u8] = match format.times {
            OfFile | OfUnits => &[2, 0, 4],
            Stated => &[2, 4],
            OfFrames => &[1, 2, 3, 4, 5],
        };
        assert_eq!(format.frames(directory.path(), "x"), expected, "{}", format.kind);
    }
}

#[test]
fn repeated_frames_are_dropped_and_a_restarted_sender_begins_a_file() {
    for format in formats() {
        let (directory, env) =
            written(&format, &json!({}), &[100_000, 100_001, 100_001, 100_000, 100_002, 0, 1]);
        if format.times == OfFrames {
            assert_eq!(format.frames(directory.path(), "x"), [1, 2, 3, 4, 5, 6, 7]);
            continue;
        }
        assert_eq!(format.frames(directory.path(), "x"), [1, 2, 5], "{}", format.kind);
        assert_eq!(format.frames(directory.path(), "x_2"), [6, 7], "{}", format.kind);
        assert_eq!(count(&env, "steps_repeated"), 8, "{}", format.kind);
        assert!(
            env.summary.get().contains("the stream went back by 400.012"),
            "{}",
            env.summary.get()
        );
    }
}

#[test]
fn frame_that_overlaps_the_file_continues_it() {
    for format in formats().iter().filter(|format| format.times != OfFrames) {
        let (directory, env) = (tempfile::tempdir().unwrap(), Env::detached("out"));
        let mut harness = format.harness(&format.path(directory.path(), "x"), &json!({}), &env);
        for (n, timestamp) in [0, 2, 6].into_iter().enumerate() {
            assert!(harness.send(0, |frame| {
                frame.header_mut().timestamp = timestamp;
                frame.header_mut().validity.fill(1);
                frame.as_mut_slice::<u8>().unwrap().fill(n as u8 + 1);
            }));
            Harness::block_on(harness.run()).unwrap();
        }
        harness.end(0);
        Harness::block_on(harness.run()).unwrap();
        Harness::block_on(harness.finish()).unwrap();
        let steps = (format.read)(&fs::read(format.data(directory.path(), "x")).unwrap());
        assert_eq!(steps[..8], [1, 1, 1, 1, 2, 2, 3, 3], "{}", format.kind);
        assert_eq!(count(&env, "steps_repeated"), 2, "{}", format.kind);
    }
}

#[test]
fn what_cannot_be_written_is_missing() {
    // Files of `file_sink` are written by another crate.
    for format in formats().iter().filter(|format| format.times != OfFrames) {
        let (directory, env) = (tempfile::tempdir().unwrap(), Env::detached("out"));
        let frames = [(0, None), (1, Some(3)), (2, Some(0)), (3, None)];
        let results = format.write(directory.path(), &json!({}), &frames, &env);
        assert_eq!(results, [true, false, false, true], "{}", format.kind);
        // Units and captures state their times.
        let expected: &[u8] = if format.times == OfFile { &[1, 0, 0, 4] } else { &[1, 4] };
        assert_eq!(format.frames(directory.path(), "x"), expected, "{}", format.kind);
        assert_eq!(count(&env, "steps_dropped"), 8, "{}", format.kind);
        assert_eq!(format.files(directory.path()), 1, "{}", format.kind);
    }
}

#[test]
fn full_disk_and_impossible_directory_are_named_in_the_error() {
    for format in formats() {
        let directory = tempfile::tempdir().unwrap();
        let (env, data) = (Env::detached("out"), format.data(directory.path(), "full"));
        symlink("/dev/full", &data).unwrap();
        let mut harness = format.harness(&format.path(directory.path(), "full"), &json!({}), &env);
        assert!(harness.send(0, |frame| frame.header_mut().validity.fill(1)));
        let said = Harness::block_on(harness.run()).unwrap_err().to_string();
        assert!(said.ends_with(&format!("{}: No space left on device", data.display())), "{said}");
        fs::write(directory.path().join("file"), "").unwrap();
        let mut harness =
            format.harness(&format.path(&directory.path().join("file"), "x"), &json!({}), &env);
        let said = Harness::block_on(harness.start()).unwrap_err().to_string();
        assert!(said.contains("/file"), "{said}");
    }
}

#[test]
fn files_end_after_frames_or_seconds_and_are_named_by_their_first_timestamp() {
    for format in formats() {
        // 7 ms are rounded up to 2 frames of 4 ms.
        for limit in [json!({"frames_per_file": 2}), json!({"seconds_per_file": 0.007})] {
            let (directory, env) = (tempfile::tempdir().unwrap(), Env::detached("out"));
            let path = format.path(directory.path(), "{timestamp}");
            let mut harness = format.harness(&path, &limit, &env);
            for n in 0..5 {
                // The last frame of each file arrives twice.
                for _ in 0..=(n % 2) {
                    assert!(harness.send(0, |frame| {
                        frame.header_mut().timestamp = n * STEPS as u64;
                        frame.header_mut().validity.fill(1);
                        frame.as_mut_slice::<u8>().unwrap().fill(n as u8 + 1);
                    }));
                    Harness::block_on(harness.run()).unwrap();
                    if format.times == OfFrames {
                        break;
                    }
                }
            }
            harness.end(0);
            Harness::block_on(harness.run()).unwrap();
            Harness::block_on(harness.finish()).unwrap();
            let frames = ["0", "8", "16"].map(|name| format.frames(directory.path(), name));
            assert_eq!(frames, [vec![1, 2], vec![3, 4], vec![5]], "{}", format.kind);
            assert_eq!(format.files(directory.path()), 3, "{}", format.kind);
        }
        let rejected = |parameters: Value| {
            let mut all = format.parameters.clone();
            all.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
            let rejections = connected(format.kind, "cpu", &all, &[format.port()]).err().unwrap();
            rejections[0].message.clone()
        };
        let path = format.path(Path::new(""), "x");
        for limit in ["frames_per_file", "seconds_per_file"] {
            let said = rejected(json!({"path": path, limit: 1}));
            assert_eq!(said, format!("`path` must contain {{timestamp}} with `{limit}`"));
        }
        let said = rejected(json!({"path": "out/"}));
        assert!(said.starts_with("`path` must be a file name"), "{said}");
    }
}

#[test]
fn frames_after_the_last_one_are_not_written() {
    for format in formats() {
        let (directory, env) = written(&format, &json!({"max_frames": 2}), &[0, 1, 2, 3]);
        assert_eq!(format.frames(directory.path(), "x"), [1, 2], "{}", format.kind);
        let counts = ["steps_written", "frames_beyond_limit"].map(|name| count(&env, name));
        assert_eq!(counts, [2 * format.steps(), 2], "{}", format.kind);
    }
}

#[test]
fn existing_file_stays_unless_it_is_overwritten_and_of_another_process() {
    for format in formats() {
        let (directory, env) = written(&format, &json!({}), &[0]);
        let write = |parameters: Value, times: &[u64]| {
            format.write(directory.path(), &parameters, &at(times), &env);
        };
        write(json!({}), &[0, 1]);
        write(json!({"overwrite": true}), &[0, 1, 2]);
        let frames = |name: &str| format.frames(directory.path(), name).len();
        assert_eq!(["x", "x_2", "x_3"].map(frames), [1, 2, 3], "{}", format.kind);
        assert!(env.summary.get().contains("recorded by this process"), "{}", env.summary.get());
        // A run that fails to start, or gets no data, changes nothing.
        of_another_process(&format.data(directory.path(), "x"));
        write(json!({"overwrite": true}), &[]);
        assert_eq!(frames("x"), 1, "{}", format.kind);
        write(json!({"overwrite": true}), &[0, 1, 2, 3]);
        assert_eq!(["x", "x_2", "x_3"].map(frames), [4, 2, 3], "{}", format.kind);
        assert_eq!(format.files(directory.path()), 3, "{}", format.kind);
    }
}

#[test]
fn stream_without_frames_leaves_no_file() {
    for format in formats() {
        let (directory, env) = written(&format, &json!({}), &[]);
        assert_eq!(format.files(directory.path()), 0, "{}", format.kind);
        assert_eq!(env.summary.get(), "no file written: no data arrived\n", "{}", format.kind);
    }
}

#[test]
fn gap_larger_than_one_call_may_write_is_filled_completely() {
    for format in formats().iter().filter(|format| format.times == OfFile) {
        let most = 2_000_000;
        let (directory, _) = written(format, &json!({"max_gap_seconds": 86400}), &[0, most]);
        let frames = format.frames(directory.path(), "x");
        assert_eq!((frames.len() as u64, frames[most as usize]), (most + 1, 2), "{}", format.kind);
        assert!(frames[1..most as usize].iter().all(|value| *value == 0), "{}", format.kind);
    }
}
