//! Files are played with their header, or rejected with the name of the file.

use super::*;
use crate::io::filterbank_sink::FilterbankSink;
use crate::io::playback;
use fxgraph::edge::Harness;
use fxgraph::{Env, Frame, Ports};
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::Arc;

fn source(path: &Path, spectra_per_frame: usize) -> FilterbankSource {
    let parameters = serde_json::json!({"path": path, "spectra_per_frame": spectra_per_frame});
    serde_json::from_value(parameters).unwrap()
}

fn header() -> Header {
    Header {
        nchans: 4,
        nifs: 2,
        nbits: 8,
        fch1_mhz: 1500.0,
        foff_mhz: -1.0,
        tsamp_seconds: 0.001,
        tstart_mjd: 60000.5,
        ..Header::default()
    }
}

/// Type of the stream, its frames, the text of warnings, and the counters.
type Played = (PortType, Vec<Arc<Frame>>, String, Vec<u64>);

/// Plays all frames, or returns the error; also returns the text of warnings, and the counters.
fn play(source: &FilterbankSource) -> Result<Played, String> {
    let env = Env::detached("in");
    let (port, frames) = playback::tests::play(source, &env)?;
    let counters = env.counters.list().iter().map(|named| named.counter.get()).collect();
    Ok((port, frames, env.summary.get(), counters))
}

fn file(directory: &Path, header: &Header, spectra: &[u8]) -> std::path::PathBuf {
    let path = directory.join("x.fil");
    fs::write(&path, [&header.to_bytes(), spectra].concat()).unwrap();
    path
}

#[test]
fn stream_has_the_times_frequencies_and_values_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..48).collect();
    let path = file(directory.path(), &header(), &bytes);
    let (port, frames, warning, counters) = play(&source(&path, 4)).unwrap();
    assert_eq!(port.to_string(), "f32 [spectrum 4][product 2][channel 4] @ 1 kS/s / 4");
    // Noon of MJD 60000 is 2023-02-25T12:00:00Z.
    assert_eq!(port.clock.sync_time.to_unix_f64(), 1_677_326_400.0);
    let band = port.band.unwrap();
    let frequencies = [0, 1, 2, 3].map(|channel| band.channel_hz(channel));
    assert_eq!(frequencies, [1.5e9, 1.499e9, 1.498e9, 1.497e9]);
    assert_eq!((frames.len(), warning.as_str()), (2, ""));
    let values: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte)).collect();
    assert_eq!(frames[0].as_slice::<f32>().unwrap(), &values[..32]);
    assert_eq!(
        (frames[1].header().timestamp, &frames[1].header().validity[..]),
        (4, &[1, 1, 0, 0][..])
    );
    assert_eq!(frames[1].as_slice::<f32>().unwrap(), [&values[32..], &[0.0; 16]].concat());
    assert_eq!(counters, [2, 0]);
    let mut one = source(&path, 4);
    one.playback.frames = Some(1);
    assert_eq!(play(&one).unwrap().1.len(), 1);
}

#[test]
fn truncated_file_is_played_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), &header(), &[7; 21]);
    let (_, frames, warning, counters) = play(&source(&path, 1)).unwrap();
    assert_eq!(frames.len(), 2);
    assert!(warning.contains("5 bytes after the 2 complete spectra"), "{warning}");
    assert_eq!(counters, [2, 0]);
    let path = file(directory.path(), &Header { nsamples: Some(10), ..header() }, &[7; 21]);
    let (_, _, warning, counters) = play(&source(&path, 1)).unwrap();
    assert!(warning.contains("the last 8 of 10 spectra are missing"), "{warning}");
    assert_eq!(counters, [2, 8]);
}

#[test]
fn file_that_cannot_be_played_is_named_in_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = |path: &Path| play(&source(path, 1 << 20)).map(|_| ()).unwrap_err();
    let none = directory.path().join("none.fil");
    assert!(error(&none).contains("cannot read") && error(&none).contains("none.fil"));
    assert!(error(directory.path()).contains("not a regular file"));
    let path = directory.path().join("x.fil");
    fs::write(&path, "text").unwrap();
    assert!(error(&path).ends_with("x.fil: it does not begin with HEADER_START"));
    let path = file(directory.path(), &Header { nchans: 1 << 20, ..header() }, &[]);
    assert!(error(&path).contains("lower `spectra_per_frame`"), "{}", error(&path));
    let path = file(directory.path(), &Header { tstart_mjd: 1e300, ..header() }, &[]);
    assert!(error(&path).contains("`tstart` must be a modified Julian date"));
    let path = file(directory.path(), &Header { tsamp_seconds: 1e-310, ..header() }, &[]);
    let small = play(&source(&path, 1)).map(|_| ()).unwrap_err();
    assert!(small.contains("ADC sample rate must be positive and finite"), "{small}");
}

#[test]
fn file_that_changes_after_the_check_is_rejected_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), &header(), &[7; 16]);
    let source = source(&path, 1);
    let ports = Ports { inputs: vec![], outputs: source.outputs(&[]).unwrap() };
    let block = source.build(&[], &Env::detached("in")).unwrap();
    file(directory.path(), &Header { nchans: 8, ..header() }, &[7; 16]);
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    let error = Harness::block_on(harness.start()).unwrap_err().to_string();
    assert!(error.ends_with("x.fil has changed since it was checked"), "{error}");
}

#[test]
fn file_of_the_sink_is_played_and_written_again_unchanged() {
    let directory = tempfile::tempdir().unwrap();
    for bits in [8, 16, 32] {
        let first = Header { nbits: bits, nifs: 1, src_raj: 0.0, ..header() };
        let bytes: Vec<u8> = (0..4 * bits / 8 * 10).map(|n| (n % 64) as u8).collect();
        let path = file(directory.path(), &first, &bytes);
        let (port, frames, ..) = play(&source(&path, 5)).unwrap();
        let again = directory.path().join(format!("again{bits}.fil"));
        let parameters = serde_json::json!({"path": again, "bits": bits});
        let sink: FilterbankSink = serde_json::from_value(parameters).unwrap();
        playback::tests::record(&sink, &port, &frames);
        let written = fs::read(again).unwrap();
        let (header, start) = Header::read(&written[..]).unwrap();
        assert_eq!(&written[start as usize..], bytes);
        let same = (header.fch1_mhz, header.foff_mhz, header.tsamp_seconds, header.tstart_mjd);
        assert_eq!(same, (1500.0, -1.0, 0.001, 60000.5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_played_or_rejected(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(), spectra in 1..20_usize,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = [header().to_bytes(), vec![9; 100]].concat();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        let path = directory.path().join("x.fil");
        fs::write(&path, bytes).unwrap();
        let source = source(&path, spectra);
        // Large frames only take time.
        if source.outputs(&[]).is_ok_and(|ports| ports[0].frame_bytes() > 1 << 20) {
            return Ok(());
        }
        if let Err(error) = play(&source) {
            prop_assert!(error.contains("x.fil"), "{error}");
        }
    }
}
