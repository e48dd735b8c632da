//! Complete engines against real peers: spead2 sends to and receives from the program, and NumPy
//! computes the expected output.

use crate::support::repository::root;
use crate::support::{needs, python};
use std::net::UdpSocket;
use std::process::Command;

fn free_ports<const N: usize>() -> [u16; N] {
    // All bound at once, so that the ports differ.
    let sockets = [(); N].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free port"));
    sockets.map(|socket| socket.local_addr().expect("bound").port())
}

/// Runs `peer` with its arguments, connected to the flowgraph with these settings.
fn run(peer: &str, arguments: &[String], flowgraph: &str, settings: &[(&str, String)]) {
    let root = root();
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
fn f_engine_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    f_engine(&[]);
}

#[test]
fn f_engine_with_missing_heaps_flags_exactly_the_affected_output() {
    if !needs::python() {
        return;
    }
    f_engine(&["--lose", "0.01", "--heaps", "1600"]);
}

#[test]
fn f_engine_with_changing_delays_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    f_engine(&["--delays", "tracking"]);
}

#[test]
fn f_engine_with_longest_delays_and_unzip_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    f_engine(&["--delays", "far", "--unzip", "4"]);
}

#[test]
fn f_engine_with_four_bits_in_k_major_layout_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
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
        // The frames are short; the window covers all of them in case the machine is busy.
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
fn x_engine_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    x_engine(&[]);
}

#[test]
fn x_engine_with_one_heap_per_dump_in_k_major_layout_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    x_engine(&["--heaps-per-dump", "1", "--layout", "k_major"]);
}

#[test]
fn x_engine_with_four_bit_voltages_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    x_engine(&["--heaps-per-dump", "6", "--four-bit"]);
}

#[test]
fn x_engine_with_four_bits_in_k_major_layout_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    x_engine(&["--heaps-per-dump", "12", "--four-bit", "--layout", "k_major"]);
}

#[test]
fn x_engine_with_narrowband_streams_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    x_engine(&["--decimation", "8"]);
}

#[test]
fn x_engine_that_scales_partial_dumps_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    x_engine(&["--heaps-per-dump", "6", "--partial-dumps", "scale"]);
}

#[test]
fn x_engine_that_sends_partial_dumps_agrees_with_numpy() {
    if !needs::python() {
        return;
    }
    x_engine(&["--partial-dumps", "send"]);
}
