//! Simulated satellites are found with the right values, absent satellites are not found.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::gnss::gnss_signal_simulator::GnssSignalSimulator;
use fxgraph::Next;
use fxgraph::edge::Harness;
use fxgraph::{Env, Ports};
use serde_json::{Value, json};

/// Returns the results of a search of simulated frames, `[frame][satellite]`.
fn search(simulator: Value, parameters: Value) -> Vec<Vec<[f64; VALUES]>> {
    let sky: GnssSignalSimulator = serde_json::from_value(simulator).unwrap();
    search_in(&sky, parameters)
}

/// Returns the results of a search of a source's frames, `[frame][satellite]`.
fn search_in(sky: &impl KindSpec, parameters: Value) -> Vec<Vec<[f64; VALUES]>> {
    let sky_ports = Ports { inputs: vec![], outputs: sky.outputs(&[]).unwrap() };
    let block = sky.build(&sky_ports.inputs, &Env::detached("sky")).unwrap();
    let mut source = Harness::new(block, &sky_ports, 8).unwrap();
    Harness::block_on(async {
        source.start().await.unwrap();
        source.run().await.unwrap();
    });
    let kind: GnssAcquisition = serde_json::from_value(parameters).unwrap();
    let inputs = sky_ports.outputs.clone();
    let ports = Ports { outputs: kind.outputs(&inputs).unwrap(), inputs };
    let mut harness =
        Harness::new(kind.build(&ports.inputs, &Env::detached("acquire")).unwrap(), &ports, 8)
            .unwrap();
    while let Some(frame) = source.receive(0) {
        harness.share(0, frame);
    }
    harness.end(0);
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
    let rows =
        |frame: std::sync::Arc<fxgraph::Frame>| frame.as_slice::<[f64; VALUES]>().unwrap().to_vec();
    std::iter::from_fn(|| harness.receive(0).map(rows)).collect()
}

#[test]
fn satellites_are_found_with_their_doppler_shift_and_code_phase() {
    for (rate_hz, intermediate_hz) in [(5e6, 0.0), (5.4321e6, 7e4)] {
        let sky = json!({
            "satellites": [
                {"system": "gps_l1_ca", "prn": 7, "doppler_hz": 1234, "code_phase_chips": 700.3, "cn0_db_hz": 44},
                {"system": "gps_l1_ca", "prn": 22, "doppler_hz": -3987, "code_phase_chips": 12.9, "cn0_db_hz": 42},
                {"system": "galileo_e1b", "prn": 11, "doppler_hz": -2010, "code_phase_chips": 3456.7, "cn0_db_hz": 43},
            ],
            "adc_sample_rate_hz": rate_hz, "intermediate_hz": intermediate_hz,
            "samples_per_frame": 120_000, "frames": 3, "seed": 5,
        });
        let found = search(
            sky,
            json!({
                "satellites": [
                    {"system": "galileo_e1b", "prn": 11}, {"system": "gps_l1_ca", "prn": 7}, {"system": "gps_l1_ca", "prn": 8},
                    {"system": "gps_l1_ca", "prn": 22}, {"system": "galileo_e1b", "prn": 12},
                ],
                "intermediate_hz": intermediate_hz, "every_frames": 2,
            }),
        );
        assert_eq!(found.len(), 3);
        assert!(found[1].iter().all(|row| row[2] == 0.0), "this one is not searched");
        for (place, system, prn, doppler_hz, phase) in [
            (0, System::GalileoE1b, 11, -2010.0, 3456.7),
            (1, System::GpsL1Ca, 7, 1234.0, 700.3),
            (3, System::GpsL1Ca, 22, -3987.0, 12.9),
        ] {
            let rate = system.code_rate_hz(doppler_hz);
            for (frame, rows) in [(0, &found[0]), (2, &found[2])] {
                let acquired = Acquired::found(rows[place]).unwrap();
                assert_eq!((acquired.system, acquired.prn), (system, prn));
                let bin_hz = 0.5 / system.period_seconds();
                assert!((acquired.doppler_hz - doppler_hz).abs() < 0.2 * bin_hz, "{acquired:?}");
                let expected = phase + rate * f64::from(frame * 120_000) / rate_hz;
                let chips = system.chips() as f64;
                let error = (acquired.code_phase_chips - expected + chips / 2.0).rem_euclid(chips)
                    - chips / 2.0;
                assert!(error.abs() < 0.15, "{acquired:?}: {error}");
            }
        }
        for place in [2, 4] {
            assert!(Acquired::found(found[0][place]).is_none() && found[0][place][2] > 0.0);
        }
    }
}

/// Signals, satellite, samples per second and per frame: at least two periods, and at least one more for the data.
const OTHER_SIGNALS: [(&str, usize, f64, usize); 12] = [
    ("gps_l1c_d", 23, 4e6, 160_000),
    ("gps_l1c_p", 4, 4e6, 160_000),
    ("gps_l2c_m", 17, 2e6, 160_000),
    ("gps_l5_i", 63, 20e6, 400_000),
    ("gps_l5_q", 3, 20e6, 400_000),
    ("galileo_e1c", 19, 4e6, 120_000),
    ("galileo_e5a_q", 50, 20e6, 400_000),
    ("galileo_e5b_i", 7, 20e6, 400_000),
    ("beidou_b1c_p", 34, 4e6, 160_000),
    ("beidou_b2a_d", 58, 20e6, 400_000),
    ("qzss_l1_ca", 194, 4e6, 80_000),
    ("qzss_l5_q", 202, 20e6, 400_000),
];

#[test]
fn every_kind_of_signal_is_found_with_its_doppler_shift_and_code_phase() {
    for (name, prn, rate_hz, samples) in OTHER_SIGNALS {
        let system: System = serde_json::from_value(json!(name)).unwrap();
        let (doppler_hz, phase) = (4321.0, 1000.3 % system.chips() as f64);
        let other = if prn == *system.prns().end() { prn - 1 } else { prn + 1 };
        let sky = json!({
            "satellites": [{
                "system": name, "prn": prn, "doppler_hz": doppler_hz, "code_phase_chips": phase, "cn0_db_hz": 45,
            }],
            "adc_sample_rate_hz": rate_hz, "samples_per_frame": samples, "frames": 1, "seed": 3,
        });
        let listed = json!([{"system": name, "prn": other}, {"system": name, "prn": prn}]);
        // A few frequencies of the codes of 20 ms are enough.
        let found = search(sky, json!({"satellites": listed, "max_doppler_hz": 4500}));
        assert!(Acquired::found(found[0][0]).is_none(), "{name}: {:?}", found[0][0]);
        let acquired = Acquired::found(found[0][1]).unwrap_or_else(|| panic!("{name}"));
        let bin_hz = 0.5 / system.period_seconds();
        assert!((acquired.doppler_hz - doppler_hz).abs() < 0.3 * bin_hz, "{acquired:?}");
        let chips = system.chips() as f64;
        let apart =
            (acquired.code_phase_chips - phase + chips / 2.0).rem_euclid(chips) - chips / 2.0;
        assert!(apart.abs() < 0.15, "{acquired:?}: {apart}");
    }
}

#[test]
fn code_that_moves_by_several_chips_during_a_frame_is_found() {
    // 4.9 kHz move the code of L5 by 4.3 chips in 100 ms.
    let statistics = [0.0, 4900.0].map(|doppler_hz| {
        let sky = json!({
            "satellites": [{"system": "gps_l5_q", "prn": 9, "doppler_hz": doppler_hz, "cn0_db_hz": 40}],
            "adc_sample_rate_hz": 20e6, "samples_per_frame": 2_000_000, "frames": 1, "seed": 6,
        });
        search(sky, json!({"satellites": [{"system": "gps_l5_q", "prn": 9}], "max_doppler_hz": 5000}))[0][0][2]
    });
    let [still, moving] = statistics;
    // Half of the difference is that between the frequencies of the search and the signal's.
    assert!(moving > 0.8 * still, "{statistics:?}");
}

#[test]
fn recorded_samples_are_searched_as_well() {
    for dtype in ["ci8", "ci16"] {
        let sky: GnssSignalSimulator = serde_json::from_value(json!({
            "satellites": [{"system": "gps_l1_ca", "prn": 19, "doppler_hz": 2100, "code_phase_chips": 77.7}],
            "dtype": dtype, "samples_per_frame": 50_000, "frames": 2,
        }))
        .unwrap();
        let ports = Ports { inputs: vec![], outputs: sky.outputs(&[]).unwrap() };
        let mut source =
            Harness::new(sky.build(&ports.inputs, &Env::detached("sky")).unwrap(), &ports, 2)
                .unwrap();
        Harness::block_on(source.run()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("samples.bin");
        let frames = std::iter::from_fn(|| source.receive(0));
        let bytes: Vec<u8> =
            frames.flat_map(|frame| frame.as_slice::<u8>().unwrap().to_vec()).collect();
        std::fs::write(&path, bytes).unwrap();
        let file: crate::io::file_source::FileSource = serde_json::from_value(json!({
            "path": path, "raw": {
                "dtype": dtype, "axes": [{"name": "sample", "len": 100_000}],
                "samples_per_frame": 100_000, "adc_sample_rate_hz": 5e6,
            },
        }))
        .unwrap();
        let found = search_in(&file, json!({"satellites": [{"system": "gps_l1_ca", "prn": 19}]}));
        let acquired = Acquired::found(found[0][0]).unwrap();
        assert!((acquired.doppler_hz - 2100.0).abs() < 100.0, "{acquired:?}");
        assert!((acquired.code_phase_chips - 77.7).abs() < 0.15, "{acquired:?}");
    }
}

#[test]
fn invalid_rows_are_not_satellites() {
    let row = [0.0, 7.0, 30.0, 20.0, 100.0, 5.0];
    assert_eq!(Acquired::found(row).unwrap().prn, 7);
    for (place, value) in
        [(0, 24.0), (1, 38.0), (1, 0.5), (2, 19.0), (4, f64::NAN), (5, f64::INFINITY)]
    {
        let mut bad = row;
        bad[place] = value;
        assert!(Acquired::found(bad).is_none());
    }
}

#[test]
fn gnss_acquisition_rejects_invalid_parameters() {
    let port = |samples: usize| {
        let sky = json!({"satellites": [{"system": "gps_l1_ca", "prn": 1}], "samples_per_frame": samples});
        serde_json::from_value::<GnssSignalSimulator>(sky).unwrap().outputs(&[]).unwrap()
    };
    let rejected = |samples: usize, parameters: Value| {
        let kind: GnssAcquisition = serde_json::from_value(parameters).unwrap();
        let rejections = kind.outputs(&port(samples)).unwrap_err();
        rejections.iter().map(|r| r.message.clone()).collect::<Vec<_>>().join("; ")
    };
    let one = json!([{"system": "galileo_e1b", "prn": 1}]);
    assert!(
        rejected(30_000, json!({"satellites": one}))
            .contains("frames for galileo_e1b must have at least two periods")
    );
    let many = rejected(
        100_000,
        json!({
            "satellites": [{"system": "gps_l1_ca", "prn": 99}], "max_doppler_hz": -1, "false_alarm_probability": 0, "every_frames": 0,
        }),
    );
    for text in ["got 99", "100000, got -1", "below 1, got 0", "`every_frames`"] {
        assert!(many.contains(text), "{text} in {many}");
    }
    let one = json!([{"system": "gps_l1_ca", "prn": 1}]);
    // With a single period, no threshold is exceeded with this probability.
    let never = json!({"satellites": one, "false_alarm_probability": -1});
    let message = "`false_alarm_probability` must be above 0 and below 1, got -1";
    assert_eq!(rejected(10_000, never), message);
    let endless = json!({"satellites": one, "max_doppler_hz": 1e300});
    assert!(
        rejected(100_000, endless).starts_with("`max_doppler_hz` must be between 0 and 100000")
    );
}
