//! Conformance cases of the GPU implementation against the CPU reference.

use fxgraph::DeviceName;
use fxgraph::examples::{Case, Tolerance};
use fxgraph_dsp::gnss::System;
use serde_json::{Value, json};

/// Type, antennas, samples per epoch, epochs per frame, samples per second, satellites of GPS and of
/// Galileo, correlator taps.
type Setup = (&'static str, usize, usize, usize, f64, [usize; 2], usize);

const CASES: &[Setup] = &[
    ("ci16", 1, 5000, 1, 5e6, [4, 0], 3),
    ("ci16", 1, 5000, 3, 5e6, [16, 0], 3),
    ("ci16", 1, 25_000, 4, 25e6, [16, 0], 3),
    ("ci8", 1, 33_331, 3, 100e6, [5, 0], 1),
    ("cf32", 1, 4093, 5, 25e6, [3, 0], 2),
    ("ci16", 1, 25_000, 1, 25e6, [0, 4], 3),
    ("ci16", 1, 100_000, 1, 25e6, [0, 16], 3),
    ("ci8", 1, 100_001, 1, 100e6, [0, 7], 3),
    ("cf32", 1, 2501, 4, 6.5e6, [0, 2], 5),
    ("ci16", 1, 25_000, 2, 25e6, [8, 8], 3),
    ("ci8", 1, 7919, 3, 4.1e6, [2, 1], 8),
    ("ci16", 4, 10_000, 2, 25e6, [5, 0], 3),
    ("cf32", 3, 5000, 2, 40e6, [2, 0], 4),
    ("ci8", 6, 4000, 2, 25e6, [3, 2], 3),
];

/// Type, antennas, samples per epoch, epochs per frame, samples per second, signals with one carrier, correlator taps.
type SignalSetup = (&'static str, usize, usize, usize, f64, &'static [&'static str], usize);

const OTHER_SIGNALS: &[SignalSetup] = &[
    ("ci16", 1, 40_000, 1, 4e6, &["gps_l1c_d", "gps_l1c_p", "beidou_b1c_d"], 3),
    ("ci16", 1, 100_000, 2, 200e6, &["gps_l1c_p", "galileo_e1c"], 3),
    ("ci8", 2, 20_000, 3, 4.1e6, &["galileo_e1b", "galileo_e1c", "gps_l1_ca", "qzss_l1c_p"], 8),
    ("cf32", 1, 4093, 5, 25e6, &["qzss_l1_ca", "beidou_b1c_p"], 2),
    ("ci16", 1, 40_000, 3, 2e6, &["gps_l2c_m", "gps_l2c_l", "qzss_l2c_l"], 3),
    ("ci8", 1, 25_003, 2, 25e6, &["gps_l2c_l", "gps_l2c_m"], 5),
    ("ci16", 1, 25_000, 2, 25e6, &["gps_l5_i", "gps_l5_q", "galileo_e5a_i", "beidou_b2a_p"], 3),
    ("cf32", 3, 10_000, 2, 40e6, &["galileo_e5a_q", "beidou_b2a_d", "qzss_l5_q"], 4),
    ("ci8", 1, 100_001, 1, 200e6, &["galileo_e5b_i", "galileo_e5b_q"], 3),
];

/// Returns satellites whose Doppler shifts and phases depend on the number of the list.
fn satellites([gps, galileo]: [usize; 2], list: usize) -> Vec<Value> {
    let satellite = |(n, system)| satellite(system, 1 + 3 * n, n, list);
    let gps = (0..gps).map(|n| (n % 12, "gps_l1_ca"));
    let galileo = (0..galileo).map(|n| (n, "galileo_e1b"));
    gps.chain(galileo).map(satellite).collect()
}

fn satellite(system: &str, prn: usize, n: usize, list: usize) -> Value {
    let (number, list) = (n as f64, list as f64);
    json!({
        "system": system, "prn": prn, "doppler_hz": 4000.0 - 517.3 * number - 377.7 * list,
        "code_phase_chips": 255.3 * number + 0.7 + 31.9 * list,
        "carrier_turns": 0.19 * number + 0.31 * list,
    })
}

/// Returns a case with two satellites of each signal, near both ends of their codes.
fn other_signals(
    (dtype, antennas, samples, epochs, rate_hz, names, taps): SignalSetup,
    device: DeviceName,
) -> Case {
    let mut axes = vec![json!({"name": "sample", "len": samples * epochs})];
    if antennas > 1 {
        axes.insert(0, json!({"name": "antenna", "len": antennas}));
    }
    let source = json!({
        "dtype": dtype, "axes": axes, "samples_per_frame": samples * epochs,
        "adc_sample_rate_hz": rate_hz, "frames": 4, "pattern": "random",
    });
    let taps: Vec<f64> = (0..taps).map(|tap| 0.5 - 0.37 * tap as f64).collect();
    let known = System::ALL.into_iter().filter(|system| names.contains(&system.name()));
    let both = |(n, system): (usize, System)| {
        let mut last = satellite(system.name(), *system.prns().end(), n + 5, 0);
        last["code_phase_chips"] = json!(system.chips() as f64 - 0.4);
        [satellite(system.name(), *system.prns().start(), n, 0), last]
    };
    let satellites: Vec<Value> = known.enumerate().flat_map(both).collect();
    let parameters = json!({
        "satellites": satellites, "taps_chips": taps, "epochs_per_frame": epochs, "intermediate_hz": 1e4,
    });
    let name = format!(
        "{dtype}, {antennas} antennas, {epochs} x {samples} samples at {:.1} MS/s, {}, {} taps",
        rate_hz / 1e6,
        names.join(" "),
        taps.len()
    );
    Case::new(
        ("gnss_correlator", "cuda"),
        name,
        &parameters,
        (&format!("source: {{kind: null_source, parameters: {source}}}"), &["source"]),
        Tolerance::floating(2e-6),
        device,
    )
}

fn case(
    (dtype, antennas, samples, epochs, rate_hz, count, taps): Setup,
    what: &str,
    device: DeviceName,
) -> Case {
    let mut axes = vec![json!({"name": "sample", "len": samples * epochs})];
    if antennas > 1 {
        axes.insert(0, json!({"name": "antenna", "len": antennas}));
    }
    let ticks = if what.starts_with("3 ticks") { 3 } else { 1 };
    let mut source = json!({
        "dtype": dtype, "axes": axes, "samples_per_frame": ticks * samples * epochs,
        "adc_sample_rate_hz": rate_hz * ticks as f64, "frames": 4, "pattern": "random",
    });
    if what.starts_with("inverted") {
        source["band"] = json!({"channels": 1, "centre_hz": 1575.42e6, "bandwidth_hz": -rate_hz});
    }
    let taps: Vec<f64> = (0..taps).map(|tap| 0.5 - 0.37 * tap as f64).collect();
    let parameters = json!({
        "satellites": satellites(count, 0), "taps_chips": taps, "epochs_per_frame": epochs,
        "intermediate_hz": if what.starts_with("real") { rate_hz / 4.0 + 1e4 } else { 1e4 },
    });
    let [gps, galileo] = count;
    let name = format!(
        "{what}{dtype}, {antennas} antennas, {epochs} x {samples} samples at {:.1} MS/s, {gps} GPS and {galileo} Galileo, {} taps",
        rate_hz / 1e6,
        taps.len()
    );
    let upstream = format!("source: {{kind: null_source, parameters: {source}}}");
    Case::new(
        ("gnss_correlator", "cuda"),
        name,
        &parameters,
        (&upstream, &["source"]),
        Tolerance::floating(2e-6),
        device,
    )
}

/// Returns a case with satellites that change within an epoch, at the start of an epoch, twice within an
/// epoch, and at the start of a frame.
fn changed(setup: Setup, device: DeviceName) -> Case {
    let (_, _, samples, epochs, _, count, _) = setup;
    let epoch = |number: usize| (number * samples) as u64;
    let list = |list: usize| json!({"satellites": satellites(count, list)});
    case(setup, "satellites that change, ", device)
        .change(epoch(0) + 1, list(1))
        .change(epoch(2), list(2))
        .change(epoch(epochs + 1) + 1, list(3))
        .change(epoch(epochs + 2) - 1, list(4))
        .change(epoch(3 * epochs), list(5))
}

/// Returns the cases, with the candidate implementation on `device`.
#[must_use]
pub fn cases(device: DeviceName) -> Vec<Case> {
    let changed = [
        // Few channels, which are arguments of the launch, and many, which are read from memory.
        changed(("ci16", 1, 5000, 4, 5e6, [3, 2], 3), device),
        changed(("ci8", 2, 10_000, 8, 25e6, [8, 6], 3), device),
    ];
    let inverted = [
        ("ci8", 1, 7919, 3, 4.1e6, [2, 1], 8),
        ("ci16", 4, 10_000, 2, 25e6, [5, 0], 3),
        ("cf32", 1, 2501, 4, 6.5e6, [0, 2], 5),
    ];
    let inverted = inverted.map(|setup| case(setup, "inverted spectrum, ", device));
    let ticks = [
        case(("ci16", 1, 5000, 4, 5e6, [3, 2], 3), "3 ticks per sample, ", device),
        case(("cf32", 2, 4000, 3, 25e6, [2, 2], 3), "3 ticks per sample, ", device),
    ];
    let real = [
        ("i16", 1, 25_000, 2, 25e6, [5, 2], 3),
        ("i8", 1, 33_331, 3, 100e6, [5, 0], 1),
        ("f32", 1, 4093, 5, 25e6, [3, 0], 8),
        ("i8", 4, 10_000, 2, 100e6, [3, 0], 3),
        ("i16", 3, 4000, 2, 25e6, [3, 2], 3),
        ("f32", 2, 5000, 2, 40e6, [2, 0], 4),
    ];
    let real = real.map(|setup| case(setup, "real, ", device));
    let plain = CASES.iter().map(|setup| case(*setup, "", device));
    let others = OTHER_SIGNALS.iter().map(|setup| other_signals(*setup, device));
    plain.chain(changed).chain(inverted).chain(ticks).chain(real).chain(others).collect()
}
