//! Files with known frames: complete, damaged, out of order.

use super::*;
use crate::io::playback;
use fxgraph::{Env, Frame};
use fxgraph_formats::vdif::pack;
use std::path::Path;
use std::sync::Arc;

/// A frame of 8 real samples of 8 bits at 8000 samples per second: `first`, `first + 1`, ...
fn frame(thread: u16, seconds: u32, number: u32, first: i32) -> Vec<u8> {
    let header = Header {
        is_invalid: false,
        is_legacy: false,
        seconds,
        epoch: 52,
        frame: number,
        version: 0,
        log2_channels: 0,
        frame_bytes: 40,
        is_complex: false,
        bits: 8,
        thread,
        station: 0x4678,
        extended: Header::edv1(8000, false, "").unwrap(),
    };
    let mut bytes = vec![0; 40];
    header.write(&mut bytes);
    let values: Vec<f32> = (first..first + 8).map(|value| value as f32).collect();
    pack(&values, 8, 0, &mut bytes[32..]);
    bytes
}

fn source(path: &Path, json: serde_json::Value) -> VdifSource {
    let mut all = serde_json::json!({ "path": path, "vdif_frames": 2 });
    all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    fxgraph::kind::read(&all).unwrap()
}

struct Played {
    port: PortType,
    frames: Vec<Arc<Frame>>,
    env: Env,
}

impl Played {
    fn count(&self, name: &str) -> u64 {
        self.env.counters.list().iter().find(|named| named.name == name).unwrap().counter.get()
    }

    /// For each frame: timestamp, validity, and the first number of each VDIF frame of each row.
    fn seen(&self) -> Vec<(u64, Vec<u32>, Vec<i8>)> {
        let seen = |frame: &Arc<Frame>| {
            let numbers = frame.as_slice::<i8>().unwrap().iter().step_by(8).copied();
            (frame.header().timestamp, frame.header().validity.clone(), numbers.collect())
        };
        self.frames.iter().map(seen).collect()
    }
}

/// Plays the file with these bytes.
fn play(bytes: &[u8], json: serde_json::Value) -> Result<Played, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.vdif");
    std::fs::write(&path, bytes).unwrap();
    let source = source(&path, json);
    let env = Env::detached("in");
    let (port, frames) = playback::tests::play(&source, &env)?;
    Ok(Played { port, frames, env })
}

fn integers() -> serde_json::Value {
    serde_json::json!({"dtype": "i8"})
}

#[test]
fn vdif_source_plays_threads_as_rows_on_the_grid_of_the_epoch() {
    // From frame 999 of second 2 on, so that the first frame of the output is half missing.
    let bytes = [
        frame(3, 2, 999, 10),
        frame(1, 2, 999, 20),
        frame(1, 3, 0, 21),
        frame(3, 3, 0, 11),
        frame(3, 3, 1, 12),
    ];
    let played = play(&bytes.concat(), integers()).unwrap();
    assert_eq!(played.port.to_string(), "i8 [pol 2][sample 16] @ 8 kS/s / 16");
    assert_eq!(played.port.clock.sync_time.to_unix_f64(), 1_767_225_600.0);
    let start = 2 * 8000 + 998 * 8;
    let expected = [
        (start, vec![0, 1, 0, 1], vec![0, 20, 0, 10]),
        (start + 16, vec![1, 0, 1, 1], vec![21, 0, 11, 12]),
    ];
    assert_eq!(played.seen(), expected);
    assert_eq!(played.count("vdif_frames_missing"), 1, "only between the first and the last one");
    let one = play(&bytes.concat(), serde_json::json!({"dtype": "i8", "threads": [3]})).unwrap();
    assert_eq!(one.port.to_string(), "i8 [sample 16] @ 8 kS/s / 16");
    assert_eq!(one.seen()[1], (start + 16, vec![1, 1], vec![11, 12]));
    let floats = play(&bytes.concat(), serde_json::json!({"frames": 1})).unwrap();
    assert_eq!(floats.frames.len(), 1);
    assert_eq!(floats.frames[0].as_slice::<f32>().unwrap()[8..10], [20.0, 21.0]);
}

#[test]
fn frames_out_of_order_doubled_and_damaged_are_sorted_or_counted() {
    let mut invalid = frame(0, 0, 5, 5);
    invalid[3] |= 0x80;
    // A bit error in the seconds, and one in the frame number.
    let far = frame(0, 1 << 20, 6, 6);
    let impossible = frame(0, 0, 1000, 6);
    let mut foreign = frame(0, 0, 6, 60);
    foreign[12] = 0;
    let bytes = [
        frame(0, 0, 1, 1),
        frame(0, 0, 0, 100),
        frame(0, 0, 3, 3),
        frame(0, 0, 2, 2),
        frame(0, 0, 2, 90),
        vec![0xff; 24],
        invalid,
        far,
        impossible,
        foreign,
        frame(0, 0, 8, 8),
        frame(0, 0, 4, 4),
        frame(0, 0, 20, 20),
        vec![1; 39],
    ];
    let played = play(&bytes.concat(), integers()).unwrap();
    let expected = [
        (0, vec![1, 1], vec![100, 1]),
        (16, vec![1, 1], vec![2, 3]),
        (32, vec![0, 0], vec![0, 0]),
        (64, vec![1, 0], vec![8, 0]),
        (160, vec![1, 0], vec![20, 0]),
    ];
    assert_eq!(played.seen(), expected);
    for (name, expected) in [
        ("vdif_frames_invalid", 1),
        ("vdif_frames_duplicate", 1),
        ("vdif_frames_late", 1),
        ("vdif_frames_foreign", 3),
        ("bytes_skipped", 24 + 39),
        ("frames_read", 5),
        // 4, 6, 7, and 9 to 19.
        ("vdif_frames_missing", 14),
    ] {
        assert_eq!(played.count(name), expected, "{name}");
    }
}

#[test]
fn long_gap_confirmed_by_the_next_frame_is_followed() {
    let bytes = [frame(0, 0, 0, 1), frame(0, 60, 0, 2), frame(0, 60, 1, 3)].concat();
    let played = play(&bytes, integers()).unwrap();
    assert_eq!(played.seen()[1], (60 * 8000, vec![1, 1], vec![2, 3]));
    assert_eq!(played.count("vdif_frames_missing"), 60 * 1000 - 1);
}

#[test]
fn file_that_begins_within_a_frame_is_searched() {
    let whole = [frame(0, 0, 0, 0), frame(0, 0, 1, 8), frame(0, 0, 2, 16)].concat();
    let played = play(&whole[13..], integers()).unwrap();
    assert_eq!(played.seen(), [(0, vec![0, 1], vec![0, 8]), (16, vec![1, 0], vec![16, 0])]);
    assert_eq!(played.count("bytes_skipped"), 27);
}

#[test]
fn channels_of_a_filter_bank_are_spectra_of_small_frames() {
    // As CHIME writes them: 1024 channels, one spectrum in a VDIF frame, two threads.
    let vdif = |thread: u16, number: u32| {
        let header = Header {
            log2_channels: 10,
            frame_bytes: 1056,
            is_complex: true,
            bits: 4,
            extended: [0; 4],
            ..Header::parse(&frame(thread, 0, number, 0)).unwrap()
        };
        let mut bytes = vec![0x88; 1056];
        header.write(&mut bytes);
        bytes[32] = 0x79 + number as u8;
        bytes
    };
    let bytes = [vdif(0, 0), vdif(1, 0), vdif(0, 1), vdif(0, 2)].concat();
    let json = serde_json::json!({"sample_rate_hz": 390_625.0});
    let played = play(&bytes, json.clone()).unwrap();
    let expected = "cf32 [pol 2][spectrum 2][channel 1024] @ 800 MS/s / 4096";
    assert_eq!(played.port.to_string(), expected);
    assert_eq!(played.port.validity.axes.len(), 2);
    let seen = |n: usize| {
        let frame = &played.frames[n];
        let values: Vec<f32> =
            frame.as_slice::<f32>().unwrap().iter().step_by(2048).copied().collect();
        (frame.header().timestamp, frame.header().validity.clone(), values)
    };
    // Low half of the byte: the real part, 9 - 8 and so on.
    assert_eq!(seen(0), (0, vec![1, 1, 1, 0], vec![1.0, 2.0, 1.0, 0.0]));
    assert_eq!(seen(1), (4096, vec![1, 0, 0, 0], vec![3.0, 0.0, 0.0, 0.0]));
    // The default frame has 2^20 samples of all channels, not 2^16 VDIF frames of them.
    let mut all = json;
    all["vdif_frames"] = serde_json::Value::Null;
    let played = play(&bytes, all).unwrap();
    assert_eq!(played.port.frame_bytes(), 8 << 20);
}

#[test]
fn twos_complement_is_read_if_given_and_suspected_if_not() {
    let noise = |n: u32| (n.wrapping_mul(2_654_435_761) >> 16) % 41;
    let header = Header::parse(&frame(0, 0, 0, 0)).unwrap();
    let header = Header { extended: Header::edv1(1_024_000, false, "").unwrap(), ..header };
    let mut bytes = Vec::new();
    for number in 0..2_u32 {
        let header = Header { frame: number, frame_bytes: 1056, ..header };
        let mut one = vec![0; 1056];
        header.write(&mut one);
        for (n, byte) in one[32..].iter_mut().enumerate() {
            *byte = (noise(n as u32) as i8 - 20).cast_unsigned();
        }
        bytes.extend(one);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.vdif");
    std::fs::write(&path, &bytes).unwrap();
    let warnings = |encoding: &str| {
        let json = serde_json::json!({"sample_rate_hz": 1024e3, "encoding": encoding});
        let block = Configured::new(source(&path, json), &[]).unwrap();
        VdifSource::warnings(&block)
    };
    let found = warnings("offset_binary");
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].help.as_deref(),
        Some("set `encoding: twos_complement` if the recorder writes that")
    );
    assert!(warnings("twos_complement").is_empty());
    let json =
        serde_json::json!({"sample_rate_hz": 1024e3, "encoding": "twos_complement", "dtype": "i8"});
    let played = play(&bytes, json).unwrap();
    let values = played.frames[0].as_slice::<i8>().unwrap();
    assert!(
        values.iter().enumerate().all(|(n, value)| *value == noise(n as u32 % 1024) as i8 - 20)
    );
}

#[test]
fn vdif_source_rejects_unknown_rates_and_other_files() {
    let said = |bytes: &[u8], json| play(bytes, json).err().unwrap();
    let good = frame(0, 0, 0, 0);
    let mut without_rate = good.clone();
    without_rate[16..20].fill(0);
    let unknown = said(&without_rate, serde_json::json!({}));
    assert!(unknown.ends_with("a.vdif do not give the sample rate"), "{unknown}");
    assert!(play(&without_rate, serde_json::json!({"sample_rate_hz": 16e3})).is_ok());
    let odd = said(&good, serde_json::json!({"sample_rate_hz": 8001.0}));
    assert!(odd.contains("must be a multiple of the 8 samples"), "{odd}");
    let text = said(b"This is no recording at all, but text.", serde_json::json!({}));
    assert!(text.contains("a.vdif: "), "{text}");
    assert!(said(&good[..20], serde_json::json!({})).contains("got 20"));
    assert!(said(&good[..39], serde_json::json!({})).contains("no complete VDIF frame"));
    assert!(said(&good, serde_json::json!({"threads": [1, 1]})).contains("`threads` must be"));
    let source = source(Path::new("no/such.vdif"), serde_json::json!({}));
    let rejections = source.outputs(&[]).unwrap_err();
    assert_eq!(rejections[0].message, "cannot read no/such.vdif: there is no such file");
}

#[test]
fn arbitrary_damage_never_panics() {
    let good: Vec<u8> = (0..40).flat_map(|n| frame(n as u16 % 2, n / 2, 0, n as i32)).collect();
    let mut random = fxgraph_dsp::random::Random::new(1);
    for _ in 0..200 {
        let mut bytes = good.clone();
        for _ in 0..random.bits() % 20 {
            let at = random.bits() as usize % bytes.len();
            bytes[at] = random.bits() as u8;
        }
        bytes.truncate(random.bits() as usize % good.len() + 1);
        let _ = play(&bytes, integers());
    }
}
