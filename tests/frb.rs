//! The FRB beamformer at the telescope's size, against NumPy in double precision.

use crate::support::repository::root;
use crate::support::{needs, python};
use std::process::Command;

const FLOWGRAPH: &str = "
flowgraph: frb
blocks:
  feeds:
    kind: null_source
    parameters:
      dtype: ci4
      axes: [{name: spectrum, len: 384}, {name: channel, len: 2}, {name: pol, len: 2}, {name: east_west, len: 4}, {name: north_south, len: 256}]
      validity_axes: [{name: spectrum, len: 384}]
      samples_per_frame: 786432
      band: {channels: 1024, first_channel: 300, centre_hz: 600.0e+6, bandwidth_hz: 400.0e+6}
      frames: 2
      pattern: random
  beams:
    kind: frb_beamformer
    input: feeds
    parameters:
      east_west: {angles_degrees: [-0.4, 0, 0.4, 0.8]}
      north_south: {points: 512}
      clamp: {beams: 256}
      upchannelise: 128
      integrate: {channels: 8, spectra: 3}
  voltages: {kind: file_sink, input: feeds, parameters: {path: feeds.npy}}
  intensities: {kind: file_sink, input: beams, parameters: {path: beams.npy}}
";

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn frb_intensities_agree_with_numpy() {
    if !needs::python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("frb.yaml"), FLOWGRAPH).unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    succeeds(run.args(["run", "--quiet", "frb.yaml"]).current_dir(directory.path()));
    let peer = root().join("tests/peers/frb.py");
    let mut compare = Command::new(python::python());
    compare.arg(peer).args(["feeds.npy", "beams.npy"]).current_dir(directory.path());
    assert_eq!(succeeds(&mut compare).lines().count(), 2);
}
