use super::*;
use crate::tests::chain::{Out, Plain, drive, kind};
use num_complex::Complex64;
use serde_json::{Value, json};

fn run(parameters: Value) -> Out {
    drive(&kind::<FrbSimulator>(parameters), &[], vec![])
}

/// Values of all frames.
fn values(out: &Out) -> Vec<Complex64> {
    let part = |part: i8| f64::from(part);
    let frames = out.frames.iter().flat_map(Plain::values::<[i8; 2]>);
    frames.map(|[re, im]| Complex64::new(part(re), part(im))).collect()
}

fn small() -> Value {
    json!({
        "spectra_per_frame": 8, "frames": 4, "channels": 2, "cylinders": 3, "feeds": 16, "dtype": "ci8",
        "noise": 0, "seed": 3,
    })
}

#[test]
fn noise_has_configured_power_and_is_independent_of_threads() {
    let mut parameters = small();
    parameters["noise"] = json!(20);
    parameters["threads"] = json!(1);
    let alone = run(parameters.clone());
    parameters["threads"] = json!(3);
    let shared = run(parameters);
    assert_eq!(values(&alone), values(&shared));
    let powers: Vec<f64> = values(&alone).iter().map(Complex64::norm_sqr).collect();
    let mean = powers.iter().sum::<f64>() / powers.len() as f64;
    assert!((mean / 800.0 - 1.0).abs() < 0.05, "{mean}");
    assert_eq!(
        alone.frames.iter().map(|f| f.timestamp).collect::<Vec<_>>(),
        [0, 16384, 32768, 49152]
    );
}

#[test]
fn source_phase_from_feed_to_feed_matches_its_direction() {
    let mut parameters = small();
    // 10 degrees per spectrum of 2.56 us, from -20 degrees on.
    parameters["source"] = json!({
        "east_degrees": -20, "east_degrees_per_second": 10.0 / 2.56e-6, "north_degrees": 35, "amplitude": 25,
    });
    parameters["frames"] = json!(1);
    let out = run(parameters);
    let values = values(&out);
    for t in 0..5 {
        for c in 0..2 {
            let hz = 400e6 + c as f64 * 400e6 / 1024.0;
            let east = f64::to_radians(-20.0 + 10.0 * t as f64).sin();
            let north = f64::to_radians(35.0).sin();
            let row = &values[(t * 2 + c) * 2 * 48..][..48];
            // Rounding to integers changes a value by up to 0.71.
            for (n, value) in row.iter().enumerate().filter(|_| row[0].norm() > 15.0) {
                let (x, feed) = ((n / 16) as f64, (n % 16) as f64);
                let seconds = (0.3048 * feed * north - 22.0 * x * east) / 299_792_458.0;
                let expected = row[0] * Complex64::cis(-std::f64::consts::TAU * hz * seconds);
                assert!((value - expected).norm() < 2.0, "{t} {c} {n}: {value} {expected}");
            }
        }
    }
}

#[test]
fn pulse_arrives_with_dispersion_delay() {
    let parameters = json!({
        "spectra_per_frame": 64, "frames": 64, "channels": 2, "cylinders": 1, "feeds": 1, "dtype": "ci8", "noise": 0,
        "band": {"channels": 16, "first_channel": 3},
        "source": {"east_degrees": 0, "amplitude": 0},
        "pulse": {"at_seconds": 2e-3, "width_seconds": 5e-4, "dispersion_measure": 2, "amplitude": 30},
    });
    let out = run(parameters);
    let values = values(&out);
    // Channels 3 and 4 of 16, 25 MHz each, of 400 to 800 MHz.
    let delay = 4.148_808e-3 * 2.0 * (0.475_f64.powi(-2) - 0.5_f64.powi(-2));
    for (c, expected) in [(0, 2e-3 + delay), (1, 2e-3)] {
        let power = |t: usize| (0..2).map(|p| values[(t * 2 + c) * 2 + p].norm_sqr()).sum::<f64>();
        let all: f64 = (0..4096).map(power).sum();
        let mean = (0..4096).map(|t| t as f64 * power(t)).sum::<f64>() / all * 2.56e-6;
        assert!((mean - expected).abs() < 5e-5, "{mean} {expected}");
        let spread =
            (0..4096).map(|t| (t as f64 * 2.56e-6 - mean).powi(2) * power(t)).sum::<f64>() / all;
        // The width of a Gaussian is 2.355 standard deviations.
        assert!((2.355 * spread.sqrt() / 5e-4 - 1.0).abs() < 0.15, "{spread}");
    }
}

#[test]
fn frb_simulator_rejects_invalid_parameters() {
    let rejected = |change: Value| {
        let mut parameters = small();
        let changes = change.as_object().unwrap().clone();
        parameters.as_object_mut().unwrap().extend(changes);
        let rejections = KindSpec::outputs(&kind::<FrbSimulator>(parameters), &[]).unwrap_err();
        rejections.iter().map(|rejection| rejection.message.clone()).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        rejected(json!({"channels": 2000})),
        "`band.first_channel` + `channels` must be at most the 1024 channels of the band, got 2000"
    );
    let pulse = json!({"at_seconds": 0, "width_seconds": 1, "amplitude": 1});
    assert_eq!(rejected(json!({"pulse": pulse})), "`pulse` needs a `source`");
    assert_eq!(rejected(json!({"feeds": 0})), "`feeds` must be between 1 and 1048576, got 0");
    assert_eq!(rejected(json!({"noise": -1})), "`noise` must be at least 0 and below 1e6, got -1");
}
