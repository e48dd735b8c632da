//! RTKLIB reads the ephemerides of our subframes and words as we do. They reach it as raw data of a u-blox receiver, which
//! `convbin` converts to RINEX.

use super::*;
use crate::message::{galileo, viterbi};
use std::path::Path;
use std::process::{Command, Stdio};

/// A message of u-blox: class, number and payload, with a checksum.
fn ubx(class: u8, number: u8, payload: &[u8]) -> Vec<u8> {
    let mut checked = vec![class, number];
    checked.extend((payload.len() as u16).to_le_bytes());
    checked.extend_from_slice(payload);
    let (mut a, mut b) = (0_u8, 0_u8);
    for byte in &checked {
        a = a.wrapping_add(*byte);
        b = b.wrapping_add(a);
    }
    [vec![0xB5, 0x62], checked, vec![a, b]].concat()
}

/// RXM-RAWX with one pseudorange, which tells the time.
fn measurement(seconds: i64, (system, prn): (u8, u8)) -> Vec<u8> {
    let week = (seconds / WEEK_SECONDS) as u16;
    let mut payload = ((seconds % WEEK_SECONDS) as f64).to_le_bytes().to_vec();
    payload.extend(week.to_le_bytes());
    // Leap seconds, measurements, status, version, reserved.
    payload.extend([18, 1, 1, 1, 0, 0]);
    payload.extend(2.2e7_f64.to_le_bytes());
    payload.extend(1.1e8_f64.to_le_bytes());
    payload.extend(100.0_f32.to_le_bytes());
    // Satellite and signal, time of lock, C/N0, deviations, status.
    payload.extend([system, prn, 0, 0, 0xFF, 0xFF, 45, 3, 3, 3, 7, 0]);
    ubx(2, 0x15, &payload)
}

/// RXM-SFRBX.
fn subframe((system, prn): (u8, u8), signal: u8, words: &[u32]) -> Vec<u8> {
    let mut payload = vec![system, prn, signal, 0, words.len() as u8, 0, 2, 0];
    payload.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    ubx(2, 0x13, &payload)
}

fn number(bits: &[bool]) -> u32 {
    bits.iter().fold(0, |value, bit| value << 1 | u32::from(*bit))
}

/// The words of a subframe of LNAV, whose data bits do not depend on the word before.
fn lnav_words(symbols: &[bool]) -> Vec<u32> {
    let mut last = false;
    let word = |word: &[bool]| {
        let mut bits = word.to_vec();
        bits[..24].iter_mut().for_each(|bit| *bit ^= last);
        last = word[29];
        number(&bits)
    };
    symbols.chunks(30).map(word).collect()
}

/// The words of a page of I/NAV: both parts with their tails, and 8 bits.
fn inav_words(symbols: &[bool]) -> Vec<u32> {
    let part = galileo::Page { pattern: 0b01_0110_0000, pattern_len: 10, bits: 120 };
    let mut decoder = viterbi::Decoder::of_block(120);
    let mut words = Vec::new();
    for symbols in symbols.chunks(250) {
        let soft: Vec<f32> = symbols.iter().map(|one| if *one { -1.0 } else { 1.0 }).collect();
        let mut bits = [false; 128];
        assert!(part.decode(&soft, &mut decoder, &mut bits[..120]));
        words.extend(bits.chunks(32).map(number));
    }
    // Receivers add a word.
    words.push(0);
    words
}

/// Numbers of the only satellite of a file of RINEX 3, and its header.
fn rinex(path: &Path, name: &str) -> (String, Vec<f64>) {
    let text = std::fs::read_to_string(path).unwrap();
    let (header, body) = text.split_once("END OF HEADER").unwrap();
    let rows: Vec<&str> = body.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(rows[0].starts_with(name) && rows.len() == 8, "{text}");
    let value = |row: &str, at: usize| {
        let field = row.get(4 + 19 * at..23 + 19 * at).unwrap_or("").trim().replace('D', "e");
        if field.is_empty() { 0.0 } else { field.parse().unwrap() }
    };
    let values = rows.iter().enumerate().flat_map(|(n, row)| {
        let first = usize::from(n == 0);
        (first..4).map(move |at| value(row, at))
    });
    (header.to_owned(), values.collect())
}

/// Converts raw data to RINEX.
fn convbin(raw: &[u8], name: &str) -> (String, Vec<f64>) {
    let directory = std::env::temp_dir().join(format!("fxgraph-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("raw.ubx"), raw).unwrap();
    let mut command = Command::new("convbin");
    command.args([
        "-r", "ubx", "-v", "3.03", "-oi", "-ot", "-n", "nav.rnx", "-o", "obs.rnx", "raw.ubx",
    ]);
    let output = command.current_dir(&directory).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = rinex(&directory.join("nav.rnx"), name);
    std::fs::remove_dir_all(&directory).unwrap();
    read
}

/// Whether Debian's `rtklib` is there; with `CI=true` it must be.
fn is_there() -> bool {
    let mut command = Command::new("convbin");
    let found = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let is_found = found.and_then(|mut child| child.wait()).is_ok();
    let must = std::env::var("CI").as_deref() == Ok("true");
    assert!(is_found || !must, "Debian's package rtklib is not installed");
    is_found
}

/// Orbit and clock in the order of RINEX.
fn values(of: &Ephemeris) -> [f64; 22] {
    [
        of.af0,
        of.af1,
        of.af2,
        f64::from(of.iode),
        of.crs,
        of.mean_motion_difference,
        of.mean_anomaly,
        of.cuc,
        of.eccentricity,
        of.cus,
        of.sqrt_a,
        of.toe_seconds,
        of.cic,
        of.node,
        of.cis,
        of.inclination,
        of.crc,
        of.perigee,
        of.node_rate,
        of.inclination_rate,
        f64::from(of.codes_on_l2),
        f64::from(of.week),
    ]
}

fn assert_close(found: &[f64], expected: &[f64]) {
    for (n, (found, expected)) in found.iter().zip(expected).enumerate() {
        // RINEX has 12 digits here.
        let error = (found - expected).abs();
        assert!(error <= 6e-12 * expected.abs(), "value {n}: {found:e} instead of {expected:e}");
    }
}

/// Ephemeris of a channel for a minute of `signal`.
fn own(signal: Signal, sent: Ephemeris) -> Ephemeris {
    let mut transmitter = Transmitter::new(signal, sent, start(2190, 518_000));
    let mut channel = Channel::new(signal, sent.satellite, 2190);
    ephemerides(&receive(&mut channel, &mut transmitter, 0, 60, 1.0))[0]
}

#[test]
fn rtklib_reads_lnav_as_the_channel_does() {
    if !is_there() {
        return;
    }
    for satellite in files() {
        let sent = broadcast(satellite);
        let first = 2190 * WEEK_SECONDS + 517_740;
        let mut raw = measurement(first, (0, 1));
        // Subframe 4 with ionosphere and UTC is on page 18.
        for start in (0..780).step_by(6).map(|seconds| first + seconds) {
            let symbols = encode(Signal::GpsL1Ca, &sent, start).unwrap();
            raw.extend(measurement(start, (0, 1)));
            raw.extend(subframe((0, 1), 0, &lnav_words(&symbols)));
        }
        let (header, found) = convbin(&raw, "G01");
        let own = own(Signal::GpsL1Ca, satellite);
        assert_close(&found, &values(&own));
        // Accuracy, health, T_GD, IODC.
        let metres = own.accuracy_metres().unwrap_or(6144.0);
        let health = f64::from(own.health);
        let rest = [metres, health, own.group_delays[0], f64::from(own.iodc)];
        let metres_apart = (found[23] - metres).abs();
        assert!(metres_apart < 0.5, "{metres} {}", found[23]);
        assert_close(&found[24..27], &rest[1..]);
        assert!(header.contains("GPSA") && header.contains("GPUT"), "{header}");
    }
}

#[test]
fn rtklib_reads_inav_as_the_channel_does() {
    if !is_there() {
        return;
    }
    let sent = broadcast(Ephemeris { health: 0b1_1101_1011, ..galileo_11() });
    let first = 2190 * WEEK_SECONDS + 518_001;
    let mut raw = measurement(first, (2, 11));
    for start in (0..60).step_by(2).map(|seconds| first + seconds) {
        let symbols = encode(Signal::GalileoE1b, &sent, start).unwrap();
        raw.extend(measurement(start, (2, 11)));
        raw.extend(subframe((2, 11), 1, &inav_words(&symbols)));
    }
    let (header, found) = convbin(&raw, "E11");
    let own = own(Signal::GalileoE1b, sent.ephemeris);
    assert_close(&found[..20], &values(&own)[..20]);
    // SISA in metres, health, group delays.
    assert_close(&found[23..24], &[own.accuracy_metres().unwrap()]);
    assert_close(
        &found[24..27],
        &[f64::from(own.health), own.group_delays[0], own.group_delays[1]],
    );
    assert!(header.contains("GAL "), "{header}");
}
