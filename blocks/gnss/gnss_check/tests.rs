//! Rows computed from the true values, with deliberate errors.
#![allow(clippy::unwrap_used)]

use super::*;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Env, Ports, ValidityType};

fn input() -> PortType {
    PortType {
        dtype: Dtype::F64,
        axes: vec![Axis::new("satellite", 2), Axis::new("value", VALUES)],
        clock: Clock::new(1e6, 100_000),
        band: None,
        validity: ValidityType::flags(vec![]),
    }
}

/// Returns the table and the result for two satellites, whose rows are given for each of ten frames.
fn check(rows: impl Fn(f64) -> [[f64; VALUES]; 2]) -> (String, Result<(), String>) {
    let kind: GnssCheck = serde_json::from_str(
        r#"{"satellites": [
            {"system": "gps_l1_ca", "prn": 7, "doppler_hz": 1540, "code_phase_chips": 1001, "at_timestamp": 1000000, "cn0_db_hz": 44},
            {"system": "galileo_e1b", "prn": 11, "doppler_hz": -3080, "code_phase_chips": 2, "cn0_db_hz": 41}],
            "settle_seconds": 0.25, "max_code_error_chips": 0.05, "max_doppler_error_hz": 1, "max_cn0_error_db": 1}"#,
    )
    .unwrap();
    let ports = Ports { outputs: kind.outputs(&[input()]).unwrap(), inputs: vec![input()] };
    let env = Env::detached("check");
    let mut harness = Harness::new(kind.build(&ports.inputs, &env).unwrap(), &ports, 10).unwrap();
    for n in 0..10 {
        harness.send(0, |frame| {
            frame.fill_validity(1);
            frame.header_mut().timestamp = n * 100_000;
            frame
                .as_mut_slice::<[f64; VALUES]>()
                .unwrap()
                .copy_from_slice(&rows((n + 1) as f64 * 0.1));
        });
    }
    harness.end(0);
    let result = Harness::block_on(harness.run()).map(|_| ()).map_err(|error| error.to_string());
    (env.summary.get(), result)
}

/// Returns the rows of an ideal receiver at this time; 1540 Hz of Doppler shift are one chip per second.
fn truth(seconds: f64) -> [[f64; VALUES]; 2] {
    let row = |system, prn, cn0, doppler, phase: f64, rate: f64, length| {
        let code = (phase + rate * seconds) % length;
        let mut row = [0.0; VALUES];
        row[..6].copy_from_slice(&[system, prn, 1.0, cn0, doppler, code]);
        row
    };
    [
        row(1.0, 11.0, 41.0, -3080.0, 2.0, 1_022_998.0, 4092.0),
        row(0.0, 7.0, 44.0, 1540.0, 1000.0, 1_023_001.0, 1023.0),
    ]
}

fn changed(place: usize, value: usize, by: f64) -> String {
    let rows = |seconds| {
        let mut rows = truth(seconds);
        rows[place][value] += by;
        rows
    };
    check(rows).1.unwrap_err()
}

#[test]
fn true_values_pass_and_are_in_the_table() {
    let (table, result) = check(truth);
    assert_eq!(result, Ok(()));
    for text in ["G07", "E11", "44.0", "-3080.00", "1000.000", "0.80 s"] {
        assert!(table.contains(text), "{text} in\n{table}");
    }
}

#[test]
fn deviation_fails_with_the_name_of_the_satellite() {
    assert!(changed(1, 5, 0.1).contains("code of G07 deviates by 0.1000 chips"));
    assert!(changed(0, 4, -2.0).contains("Doppler shift of E11 deviates by -2.0000 Hz"));
    assert!(changed(1, 3, 1.5).contains("C/N0 of G07 deviates by 1.5000 dB, the limit is 1 dB"));
    assert!(changed(0, 2, -1.0).contains("E11 was never locked"));
    assert!(changed(0, 1, 1.0).contains("E12 is locked, but is not in `satellites`"));
}

#[test]
fn error_names_the_first_false_satellite() {
    let rows = |seconds| {
        let mut rows = truth(seconds);
        // At the end a satellite number that no system has.
        rows[0][1] = if seconds < 0.95 { 12.0 } else { 77.0 };
        rows
    };
    assert_eq!(check(rows).1.unwrap_err(), "E12 is locked, but is not in `satellites`");
}

#[test]
fn frames_before_settle_seconds_do_not_count() {
    let early = |seconds| {
        let mut rows = truth(seconds);
        rows[0][5] += if seconds < 0.25 { 100.0 } else { 0.0 };
        rows
    };
    assert_eq!(check(early).1, Ok(()));
}

#[test]
fn gnss_check_rejects_other_streams() {
    let kind: GnssCheck =
        serde_json::from_str(r#"{"satellites": [{"system": "gps_l1_ca", "prn": 99}]}"#).unwrap();
    let other = PortType { dtype: Dtype::F32, axes: vec![Axis::new("value", 3)], ..input() };
    assert_eq!(kind.outputs(&[other]).unwrap_err().len(), 3);
}
