//! Files with known samples: complete, truncated, wrong.

use super::*;
use crate::io::playback;
use fxgraph::{Env, Frame, Time};
use std::sync::Arc;

fn header() -> Header {
    Header {
        header_bytes: 4096,
        bits: 8,
        is_complex: true,
        pols: 2,
        channels: 1,
        sample_us: 0.5,
        centre_mhz: 1420.0,
        bandwidth_mhz: -2.0,
        start: Time::unix(1_800_000_000),
        contradictions: Vec::new(),
        offset_bytes: 4000,
        file_bytes: 40,
        file_number: 0,
        telescope: String::new(),
        source: String::new(),
        instrument: String::new(),
    }
}

type Played = Result<(PortType, Vec<Arc<Frame>>, Env), String>;

fn play(header: &Header, bytes: u8, json: serde_json::Value) -> Played {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.dada");
    std::fs::write(&path, [header.bytes(), (0..bytes).collect()].concat()).unwrap();
    let mut all = serde_json::json!({ "path": path });
    all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    let source: DadaSource = fxgraph::kind::read(&all).unwrap();
    let env = Env::detached("in");
    let (port, frames) = playback::tests::play(&source, &env)?;
    Ok((port, frames, env))
}

#[test]
fn dada_source_plays_frames_from_its_offset_on() {
    let json = serde_json::json!({"samples_per_frame": 4});
    let (port, frames, env) = play(&header(), 39, json).unwrap();
    assert_eq!(port.to_string(), "ci8 [sample 4][pol 2] @ 2 MS/s / 4");
    assert_eq!(port.band.unwrap().channel_hz(0), 1.42e9);
    let seen = |frame: &Arc<Frame>| (frame.header().timestamp, frame.as_slice::<u8>().unwrap()[0]);
    assert_eq!(frames.iter().map(seen).collect::<Vec<_>>(), [(1000, 0), (1004, 16)]);
    assert!(env.summary.get().trim_end().ends_with("is truncated: 1 of 40 bytes are missing"));
    let counts: Vec<u64> = env.counters.list().iter().map(|named| named.counter.get()).collect();
    assert_eq!(counts, [2, 1, 7]);
}

#[test]
fn channels_are_spectra_of_the_whole_band() {
    let header = Header { channels: 4, pols: 1, offset_bytes: 0, ..header() };
    let (port, frames, _) = play(&header, 40, serde_json::json!({})).unwrap();
    // A file of less than the usual frame is one frame.
    assert_eq!(port.to_string(), "ci8 [spectrum 5][channel 4][pol 1] @ 16 MS/s / 40");
    assert_eq!(port.band.unwrap().channel_hz(0), 1.42075e9);
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].as_slice::<u8>().unwrap(), (0..40).collect::<Vec<_>>());
    for (bits, is_complex, dtype) in [(16, false, "i16"), (32, true, "cf32"), (8, false, "i8")] {
        let header = Header { bits, is_complex, ..header.clone() };
        let json = serde_json::json!({"samples_per_frame": 1});
        assert!(play(&header, 40, json).unwrap().0.to_string().starts_with(dtype));
    }
}

#[test]
fn wrong_files_are_rejected() {
    let said = |header: &Header, json| play(header, 40, json).err().unwrap();
    let wrong = said(&Header { bits: 2, ..header() }, serde_json::json!({}));
    assert!(wrong.ends_with("a.dada: NBIT must be 8, 16 or 32, got 2"), "{wrong}");
    let huge = said(&header(), serde_json::json!({"samples_per_frame": 1_u64 << 60}));
    assert!(huge.contains("at most 4 GiB"), "{huge}");
    let far = Header { offset_bytes: u64::MAX, ..header() };
    let far = said(&far, serde_json::json!({"samples_per_frame": 1}));
    assert!(far.contains("OBS_OFFSET"), "{far}");
}

#[test]
fn sideband_replaces_a_wrong_sign_of_the_header() {
    let header = Header { channels: 4, pols: 1, offset_bytes: 0, ..header() };
    for (sideband, first_hz) in [("upper", 1.41925e9), ("lower", 1.42075e9)] {
        let json = serde_json::json!({ "sideband": sideband });
        let band = play(&header, 40, json).unwrap().0.band.unwrap();
        assert_eq!(band.channel_hz(0), first_hz, "{sideband}");
        assert_eq!(band.sideband == Sideband::Lower, sideband == "lower");
    }
    let header = Header { bandwidth_mhz: 0.0, ..header };
    let message = play(&header, 40, serde_json::json!({"sideband": "upper"})).err().unwrap();
    assert_eq!(message, "`sideband` needs the width of the band, and `BW` is 0");
}
