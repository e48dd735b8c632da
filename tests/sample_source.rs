//! Raw samples of a program that replaces a receiver, piped into an example.

use std::f64::consts::TAU;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const RATE_HZ: f64 = 2.4e6;
/// Carrier, from the centre of the band.
const OFFSET_HZ: f64 = 300e3;
const AMPLITUDE: f64 = 0.25;

/// Samples as `rtl_sdr` writes them: a carrier.
fn cu8(samples: u64) -> Vec<u8> {
    let code = |value: f64| (127.5 + 128.0 * AMPLITUDE * value).round() as u8;
    let sample = |n: u64| {
        let phase = TAU * OFFSET_HZ / RATE_HZ * n as f64;
        [code(phase.cos()), code(phase.sin())]
    };
    (0..samples).flat_map(sample).collect()
}

/// Complex floats of a NumPy file.
fn complex(path: &Path) -> Vec<[f64; 2]> {
    let file = fs::read(path).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    let float = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
    let values = file[header..].chunks_exact(8);
    values.map(|value| [float(&value[..4]), float(&value[4..])]).collect()
}

#[test]
fn program_that_writes_cu8_shows_its_carrier_in_the_example() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fxgraph"));
    command.args(["run", "example:21_radio", "--set", "offset_hz=300000"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.current_dir(directory.path()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // Half a second, and half a sample that is cut.
    let sent = std::thread::spawn(move || stdin.write_all(&[&cu8(1_200_000)[..], &[7]].concat()));
    let output = child.wait_with_output().unwrap();
    sent.join().unwrap().unwrap();
    let said =
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("the standard input has ended"), "{said}");
    // 300 kHz of 2.4 MHz are 128 of the 1024 channels.
    assert!(said.contains("brightest: channel 640"), "{said}");
    assert!(directory.path().join("out/waterfall.png").exists());
    // The filter keeps the rms of noise, so a carrier grows by the root of the 12 samples that become one. The last frame
    // is not complete.
    let channel = complex(&directory.path().join("out/channel.npy"));
    let expected = AMPLITUDE * 12_f64.sqrt();
    let inner = &channel[..channel.len() - 8192];
    assert!(inner.len() >= 8 * 8192, "{}", channel.len());
    for [re, im] in inner {
        assert!((re.hypot(*im) - expected).abs() < 0.02, "{re} {im}");
    }
}
