//! Recordings are played with their description, or rejected with the name of the file.

use super::*;
use crate::io::playback;
use crate::io::sigmf_sink::SigmfSink;
use fxgraph::{Env, Frame};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn source(path: &Path, others: Value) -> SigmfSource {
    let mut parameters = json!({"path": path, "samples_per_frame": 8, "heaps_per_frame": 2});
    let others = others.as_object().unwrap().clone();
    parameters.as_object_mut().unwrap().extend(others);
    serde_json::from_value(parameters).unwrap()
}

/// Writes a recording; `global` has the keys other than version and sample rate.
fn recording(
    directory: &Path,
    global: Value,
    captures: Value,
    annotations: Value,
    data: &[u8],
) -> PathBuf {
    let mut all = json!({"core:version": "1.2.0", "core:sample_rate": 1e6});
    all.as_object_mut().unwrap().extend(global.as_object().unwrap().clone());
    let meta = json!({"global": all, "captures": captures, "annotations": annotations});
    let path = directory.join("x.sigmf-meta");
    fs::write(&path, meta.to_string()).unwrap();
    fs::write(directory.join("x.sigmf-data"), data).unwrap();
    path
}

/// Type of the stream, its frames, the text of warnings, and the counters.
type Played = (PortType, Vec<Arc<Frame>>, String, Vec<u64>);

/// Plays all frames, or returns the error; also returns the text of warnings, and the counters.
fn play(source: &SigmfSource) -> Result<Played, String> {
    let env = Env::detached("in");
    let (port, frames) = playback::tests::play(source, &env)?;
    let counters = env.counters.list().iter().map(|named| named.counter.get()).collect();
    Ok((port, frames, env.summary.get(), counters))
}

/// Returns the timestamps and flags of frames.
fn flags(frames: &[Arc<Frame>]) -> Vec<(u64, Vec<u32>)> {
    frames.iter().map(|frame| (frame.header().timestamp, frame.header().validity.clone())).collect()
}

#[test]
fn stream_has_clock_band_and_samples_of_the_recording() {
    let directory = tempfile::tempdir().unwrap();
    let captures = json!([{
        "core:sample_start": 0, "core:frequency": 1.5e9, "core:datetime": "2023-11-14T22:13:20.5Z"
    }]);
    let path = recording(
        directory.path(),
        json!({"core:datatype": "cu8"}),
        captures,
        json!([]),
        &[130; 20],
    );
    let (port, frames, warning, counters) = play(&source(&path, json!({}))).unwrap();
    assert_eq!(port.to_string(), "ci8 [sample 8] @ 1 MS/s / 8");
    assert_eq!(port.clock.sync_time.to_unix_f64(), 1_700_000_000.5);
    let band = port.band.unwrap();
    assert_eq!((band.channels, band.centre_hz, band.bandwidth_hz), (1, 1.5e9, 1e6));
    assert_eq!(band.sideband, Sideband::Upper);
    let swapped = play(&source(&path, json!({"sideband": "lower"}))).unwrap().0.band.unwrap();
    assert_eq!((swapped.centre_hz, swapped.signed_bandwidth_hz()), (1.5e9, -1e6));
    assert_eq!(flags(&frames), [(0, vec![1, 1]), (8, vec![0, 0])]);
    assert_eq!(frames[1].as_slice::<u8>().unwrap(), [[2; 4].as_slice(), &[0; 12]].concat());
    assert_eq!((warning.as_str(), counters), ("", vec![2, 0]));
    let two = play(&source(&path, json!({"adc_samples_per_sample": 2, "frames": 1}))).unwrap();
    assert_eq!((two.0.to_string().as_str(), two.1.len()), ("ci8 [sample 8] @ 2 MS/s / 16", 1));
    let real = recording(
        directory.path(),
        json!({"core:datatype": "ri16_be"}),
        json!([{"core:sample_start": 0, "core:frequency": 1e9}]),
        json!([]),
        &[1, 2, 3, 4],
    );
    let (port, frames, ..) = play(&source(&real, json!({}))).unwrap();
    assert_eq!(port.to_string(), "i16 [sample 8] @ 1 MS/s / 8");
    assert_eq!(port.band.unwrap().bandwidth_hz, 5e5);
    assert_eq!(frames[0].as_slice::<i16>().unwrap()[..3], [0x102, 0x304, 0]);
}

#[test]
fn channels_are_separated_and_gaps_are_flagged() {
    let directory = tempfile::tempdir().unwrap();
    let captures = json!([
        {"core:sample_start": 0, "core:global_index": 100}, {"core:sample_start": 8, "core:global_index": 110},
        {"core:sample_start": 12, "core:global_index": 200},
    ]);
    let annotations =
        json!([{"core:sample_start": 1, "core:sample_count": 1, "core:label": "missing"}]);
    let bytes: Vec<u8> = (0..64).collect();
    let global = json!({"core:datatype": "ri8", "core:num_channels": 4});
    let path = recording(directory.path(), global, captures, annotations, &bytes);
    let (port, frames, ..) = play(&source(&path, json!({"channel_axis": "antenna"}))).unwrap();
    assert_eq!(port.to_string(), "i8 [antenna 4][sample 8] @ 1 MS/s / 8");
    // Samples 101, 108 and 109, 114 to 115 and 204 on are missing.
    let expected = [(100, vec![0, 1]), (108, vec![0, 0]), (196, vec![0, 1])];
    assert_eq!(flags(&frames), expected);
    let antenna =
        |frame: usize, n: usize| frames[frame].as_slice::<i8>().unwrap()[8 * n..][..8].to_vec();
    assert_eq!(antenna(0, 1), [1, 5, 9, 13, 17, 21, 25, 29]);
    assert_eq!(antenna(1, 3), [0, 0, 35, 39, 43, 47, 0, 0]);
    assert_eq!(antenna(2, 0), [0, 0, 0, 0, 48, 52, 56, 60]);
    let (_, frames, ..) = play(&source(&path, json!({"capture": 1}))).unwrap();
    assert_eq!(flags(&frames), [(110, vec![1, 0])]);
}

#[test]
fn truncated_recording_is_played_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let global = json!({"core:datatype": "ci16_le", "fxgraph:samples": 8});
    let path = recording(directory.path(), global, json!([]), json!([]), &[1; 18]);
    let (_, frames, warning, counters) = play(&source(&path, json!({}))).unwrap();
    assert_eq!(flags(&frames), [(0, vec![1, 0])]);
    assert!(warning.contains("x.sigmf-data is truncated: the last 4 samples"), "{warning}");
    assert_eq!(counters, [1, 4]);
    let path = recording(
        directory.path(),
        json!({"core:datatype": "ci16_le"}),
        json!([]),
        json!([]),
        &[1; 18],
    );
    let (_, _, warning, _) = play(&source(&path, json!({}))).unwrap();
    assert!(warning.contains("ends within a sample: the last 2 bytes"), "{warning}");
}

#[test]
fn recording_that_cannot_be_played_is_named_in_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = |path: &Path| play(&source(path, json!({}))).map(|_| ()).unwrap_err();
    assert!(error(&directory.path().join("none.sigmf-meta")).contains("cannot read"));
    assert!(error(&directory.path().join("none.sigmf")).contains("cannot read"));
    let path = directory.path().join("x.sigmf-meta");
    fs::write(&path, "{}").unwrap();
    assert!(error(&path).contains("it is not SigMF metadata"), "{}", error(&path));
    fs::write(
        &path,
        json!({"global": {"core:datatype": "ci8", "core:version": "1.2.0"}}).to_string(),
    )
    .unwrap();
    assert!(error(&path).contains("x.sigmf-data"), "{}", error(&path));
    let path =
        recording(directory.path(), json!({"core:datatype": "cu16_le"}), json!([]), json!([]), &[]);
    assert!(error(&path).contains("cu16_le are not supported"));
    let far = json!([{"core:sample_start": 0, "core:global_index": 1_u64 << 60}]);
    let twice = json!({"core:datatype": "ci8", "fxgraph:adc_samples_per_sample": 1 << 20});
    let path = recording(directory.path(), twice, far, json!([]), &[]);
    assert!(error(&path).contains("which no timestamp has"), "{}", error(&path));
    let path =
        recording(directory.path(), json!({"core:datatype": "ci8"}), json!([]), json!([]), &[]);
    let rejections = source(&path, json!({"heaps_per_frame": 3})).outputs(&[]).unwrap_err();
    assert!(rejections[0].message.contains("`heaps_per_frame` must divide"));
}

#[test]
fn recording_of_the_sink_is_played_with_its_clock_and_flags() {
    let directory = tempfile::tempdir().unwrap();
    let captures = json!([
        {"core:sample_start": 0, "core:global_index": 40, "core:frequency": 1e8},
        {"core:sample_start": 16, "core:global_index": 64, "core:frequency": 1e8},
    ]);
    let annotations =
        json!([{"core:sample_start": 4, "core:sample_count": 4, "core:label": "missing"}]);
    let bytes: Vec<u8> = (0..96).map(|n| if (16..32).contains(&n) { 0 } else { n }).collect();
    let global = json!({
        "core:datatype": "ci8", "core:num_channels": 2, "fxgraph:sync_time_seconds": 1_700_000_000.125,
        "fxgraph:adc_sample_rate_hz": 3e6, "fxgraph:adc_samples_per_sample": 3, "fxgraph:bandwidth_hz": -5e5,
    });
    let path = recording(directory.path(), global, captures, annotations, &bytes);
    let (port, frames, ..) = play(&source(&path, json!({}))).unwrap();
    assert_eq!(
        (port.clock.adc_sample_rate_hz, port.clock.sync_time.to_unix_f64()),
        (3e6, 1_700_000_000.125)
    );
    assert_eq!(flags(&frames), [(120, vec![1, 0]), (144, vec![1, 1]), (192, vec![1, 1])]);
    let again = directory.path().join("again.sigmf-meta");
    let sink: SigmfSink = serde_json::from_value(json!({"path": again})).unwrap();
    playback::tests::record(&sink, &port, &frames);
    assert_eq!(fs::read(again.with_extension("sigmf-data")).unwrap(), bytes);
    let (port_again, frames_again, ..) = play(&source(&again, json!({}))).unwrap();
    assert_eq!((port_again, flags(&frames_again)), (port, flags(&frames)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_layouts_are_played_or_rejected(
        captures in proptest::collection::vec((0..40_u64, proptest::option::of(0..200_u64), 0..5_u64), 0..4),
        notes in proptest::collection::vec((0..50_u64, 0..50_u64), 0..4),
        channels in 1..4_u64, bytes in 0..300_usize, heaps in prop_oneof![Just(1), Just(4), Just(8)],
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut captures = captures;
        captures.sort_unstable();
        let captures: Vec<Value> = captures.iter().map(|(start, index, header)| {
            let mut one = json!({"core:sample_start": start, "core:header_bytes": header});
            if let Some(index) = index {
                one["core:global_index"] = json!(index);
            }
            one
        }).collect();
        let notes: Vec<Value> = notes.iter().map(|(start, count)| json!({
            "core:sample_start": start, "core:sample_count": count, "core:label": "missing",
        })).collect();
        let global = json!({"core:datatype": "ri16_le", "core:num_channels": channels});
        let path = recording(directory.path(), global, json!(captures), json!(notes), &vec![1; bytes]);
        match play(&source(&path, json!({"heaps_per_frame": heaps}))) {
            Ok((_, frames, ..)) => {
                let of_heap = 8 / heaps as usize;
                for frame in frames {
                    // A flagged part is complete: no sample is 0.
                    let samples = frame.as_slice::<i16>().unwrap();
                    for (heap, flag) in frame.header().validity.iter().enumerate() {
                        let of_channel = &samples[heap * of_heap..][..of_heap];
                        prop_assert!(*flag == 0 || of_channel.iter().all(|sample| *sample == 0x101));
                    }
                }
            }
            Err(error) => prop_assert!(error.contains("x.sigmf-"), "{}", error),
        }
    }
}

#[test]
fn archive_is_played_like_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..40).collect();
    let captures = json!([{"core:sample_start": 0, "core:header_bytes": 4}]);
    let path =
        recording(directory.path(), json!({"core:datatype": "ri8"}), captures, json!([]), &bytes);
    let archive = directory.path().join("x.sigmf");
    let names = ["x.sigmf-meta", "x.sigmf-data"];
    let mut tar = std::process::Command::new("tar");
    let tar = tar.arg("-C").arg(directory.path()).arg("-cf").arg(&archive).args(names).status();
    assert!(tar.unwrap().success());
    let (expected, frames, ..) = play(&source(&path, json!({}))).unwrap();
    let (port, others, ..) = play(&source(&archive, json!({}))).unwrap();
    assert_eq!((port, flags(&frames)), (expected, flags(&others)));
    for (one, other) in frames.iter().zip(&others) {
        assert_eq!(one.as_slice::<u8>().unwrap(), other.as_slice::<u8>().unwrap());
    }
    assert_eq!(others[0].as_slice::<u8>().unwrap(), (4..12).collect::<Vec<_>>());
    // An archive that was cut off has fewer samples.
    let whole = fs::read(&archive).unwrap();
    let at = whole.windows(40).position(|window| window == bytes).unwrap();
    fs::write(&archive, &whole[..at + 20]).unwrap();
    let (_, others, ..) = play(&source(&archive, json!({}))).unwrap();
    assert_eq!(flags(&others), [(0, vec![1, 1]), (8, vec![1, 1])]);
    fs::write(&archive, "no archive at all").unwrap();
    let said = play(&source(&archive, json!({}))).err().unwrap();
    assert!(said.contains("x.sigmf: it has no recording") || said.contains("tar"), "{said}");
}

#[test]
fn samples_are_compared_with_their_checksum() {
    let directory = tempfile::tempdir().unwrap();
    // From sha512sum: the eight bytes `abcdefgh`.
    let sum = "a3a8c81bc97c2560010d7389bc88aac974a104e0e2381220c6e084c4dccd1d2d17d4f86db31c2a851dc80e6681d74733c55dcd03dd96f6062cdda12a291ae6ce";
    let global = |sum: &str| json!({"core:datatype": "ri8", "core:sha512": sum});
    let of = |sum: &str, json| {
        let path = recording(directory.path(), global(sum), json!([]), json!([]), b"abcdefgh");
        play(&source(&path, json)).map(|played| played.1.len())
    };
    assert_eq!(of(sum, json!({})), Ok(1));
    assert_eq!(of(&sum.to_uppercase(), json!({})), Ok(1));
    for wrong in [sum.replacen('a', "b", 1), "ab".to_owned(), "\u{e9}".repeat(64)] {
        let said = of(&wrong, json!({})).unwrap_err();
        assert!(said.contains("x.sigmf-data is damaged"), "{said}");
        assert_eq!(of(&wrong, json!({"check_sha512": false})), Ok(1));
    }
}

#[test]
fn gap_by_the_times_alone_is_a_gap_of_the_stream() {
    let directory = tempfile::tempdir().unwrap();
    let captures = json!([
        {"core:sample_start": 0, "core:datetime": "2023-11-14T22:13:20.000000Z"},
        {"core:sample_start": 8, "core:datetime": "2023-11-14T22:13:20.000032Z"},
    ]);
    let global = json!({"core:datatype": "ri8"});
    let path = recording(directory.path(), global, captures, json!([]), &[1; 16]);
    let (_, frames, ..) = play(&source(&path, json!({}))).unwrap();
    assert_eq!(flags(&frames), [(0, vec![1, 1]), (32, vec![1, 1])]);
}
