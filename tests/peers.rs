//! Whole engines against real peers: spead2 sends to and receives from the program, and NumPy
//! says what has to come out.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "support/python.rs"]
mod python;

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

fn free_ports<const N: usize>() -> [u16; N] {
    // All held at once, so that they differ.
    let sockets = [(); N].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
    sockets.map(|socket| socket.local_addr().expect("bound").port())
}

/// Runs `peer` with its own arguments, and the flowgraph with these settings as its opposite.
fn run(peer: &str, arguments: &[String], flowgraph: &str, settings: &[(&str, String)]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(python::python());
    command.arg(root.join("tests/peers").join(peer)).args(arguments);
    command.args(["--command", env!("CARGO_BIN_EXE_fxgraph"), "run", "--quiet"]);
    command.arg(root.join("flowgraphs").join(flowgraph));
    for (name, value) in settings {
        command.args(["--set".to_owned(), format!("{name}={value}")]);
    }
    let output = command.output().expect("the peer starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
}

fn f_engine(arguments: &[&str]) {
    let ports: [u16; 3] = free_ports();
    let mut all: Vec<String> = ports.iter().map(u16::to_string).collect();
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let settings = [
        ("channels", "256".to_owned()),
        ("taps", "8".to_owned()),
        ("spectra_per_heap", "64".to_owned()),
        ("dither", "none".to_owned()),
        ("pol0", format!("127.0.0.1:{}", ports[0])),
        ("pol1", format!("127.0.0.1:{}", ports[1])),
        ("out", format!("127.0.0.1+1:{}", ports[2])),
        ("stop_after_senders", "1".to_owned()),
    ];
    run("f_engine_peer.py", &all, "02_f_engine.yaml", &settings);
}

#[test]
fn an_f_engine_between_spead2_agrees_with_numpy() {
    f_engine(&[]);
}

#[test]
fn with_one_percent_of_the_heaps_lost_exactly_the_affected_output_is_missing() {
    f_engine(&["--lose", "0.01", "--heaps", "1600"]);
}

#[test]
fn whole_and_broken_delays_that_change_agree_with_numpy() {
    f_engine(&["--delays", "tracking"]);
}

#[test]
fn the_longest_delays_agree_with_numpy_in_unzipped_transforms() {
    f_engine(&["--delays", "far", "--unzip", "4"]);
}

#[test]
fn four_bits_in_the_k_major_layout_agree_with_numpy() {
    f_engine(&["--delays", "tracking", "--bits", "4", "--layout", "k_major", "--unzip", "2"]);
}

fn x_engine(arguments: &[&str]) {
    let ports: [u16; 4] = free_ports();
    let [input, visibilities, beam_x, beam_y] = ports.map(|port| format!("127.0.0.1:{port}"));
    let settings = [
        ("antennas", "3".to_owned()),
        ("channels", "256".to_owned()),
        ("substreams", "4".to_owned()),
        ("substream", "1".to_owned()),
        ("spectra_per_heap", "32".to_owned()),
        // Frames are short here: room for all of them, should this machine be busy.
        ("window", "32".to_owned()),
        ("in", input),
        ("visibilities", visibilities),
        ("beam_x", beam_x),
        ("beam_y", beam_y),
        ("stop_after_senders", "3".to_owned()),
    ];
    let mut all: Vec<String> = ports.iter().map(u16::to_string).collect();
    all.extend(arguments.iter().map(|&argument| argument.to_owned()));
    run("x_engine_peer.py", &all, "03_x_engine.yaml", &settings);
}

#[test]
fn visibilities_and_beams_between_spead2_agree_with_numpy() {
    x_engine(&[]);
}

#[test]
fn dumps_of_one_heap_and_k_major_voltages_do_as_well() {
    x_engine(&["--heaps-per-dump", "1", "--layout", "k_major"]);
}

#[test]
fn longer_dumps_of_four_bit_voltages_do_as_well() {
    x_engine(&["--heaps-per-dump", "6", "--four-bit"]);
}

#[test]
fn four_bit_voltages_in_the_k_major_layout_do_as_well() {
    x_engine(&["--heaps-per-dump", "12", "--four-bit", "--layout", "k_major"]);
}

#[test]
fn x_engine_of_narrowband_streams_agrees_with_numpy() {
    x_engine(&["--decimation", "8"]);
}

#[test]
fn x_engine_that_scales_partial_dumps_agrees_with_numpy() {
    x_engine(&["--heaps-per-dump", "6", "--partial-dumps", "scale"]);
}

#[test]
fn x_engine_that_sends_partial_dumps_agrees_with_numpy() {
    x_engine(&["--partial-dumps", "send"]);
}
