use super::FEngine;
use crate::f_engine::fft::Fft;
use crate::f_engine::postproc::Postproc;
use crate::tests::chain::{Digitised, Out, drive, drive_block, kind, noise, pfb, then};
use fxgraph::event::Events;
use fxgraph::gauge::NamedGauge;
use fxgraph::{Env, KindSpec, Ports};
use serde_json::{Value, json};
use std::sync::Arc;

fn f_engine(parameters: Value, pols: &[Digitised]) -> Out {
    let ports: Vec<_> = pols.iter().map(Digitised::port).collect();
    let frames = pols.iter().map(Digitised::frames).collect();
    drive(&kind::<FEngine>(parameters), &ports, frames)
}

/// Entries of `parameters` whose names are in `names`.
fn chosen(parameters: &Value, names: &[&str]) -> Value {
    let all = parameters.as_object().unwrap().iter();
    all.filter(|(name, _)| names.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Output of `pfb`, `fft` and `postproc` for the same parameters.
fn three_blocks(parameters: &Value, pols: &[Digitised]) -> Out {
    let mut filter = chosen(
        parameters,
        &["channels", "taps", "window", "w_cutoff", "delays", "max_delay_seconds"],
    );
    let spectra = parameters["spectra_per_heap"].as_u64().unwrap()
        * parameters["heaps_per_frame"].as_u64().unwrap_or(1);
    filter["spectra_per_frame"] = json!(spectra);
    let finish = chosen(
        parameters,
        &[
            "bits",
            "layout",
            "spectra_per_heap",
            "heaps_per_frame",
            "gains",
            "dither",
            "dither_seed",
        ],
    );
    then::<Postproc>(finish, then::<Fft>(json!({}), pfb(filter, pols)))
}

/// Compares the block with `pfb`, `fft` and `postproc`, and returns its output.
fn compare(parameters: &Value, pols: &[Digitised]) -> Out {
    let (got, expected) = (f_engine(parameters.clone(), pols), three_blocks(parameters, pols));
    assert_eq!(got.port, expected.port);
    assert_eq!(got.frames.len(), expected.frames.len(), "{parameters}");
    for (got, expected) in got.frames.iter().zip(&expected.frames) {
        assert_eq!(got.timestamp, expected.timestamp);
        assert_eq!(got.validity, expected.validity);
        assert!(got.payload == expected.payload, "{parameters} at {}", got.timestamp);
        for name in ["saturated", "output_power", "adc_power", "adc_clipped"] {
            assert_eq!(got.annotations.get(name), expected.annotations.get(name), "{name}");
        }
    }
    for name in ["heaps_missing", "values_saturated"] {
        assert_eq!(got.count(name), expected.count(name), "{name}");
    }
    got
}

fn two_pols(bits: u8, len: usize) -> [Digitised; 2] {
    let std = f64::from(1 << (bits - 1)) / 3.0;
    [1, 2].map(|seed| Digitised { bits, ..Digitised::new(noise(seed, len, std, bits)) })
}

#[test]
fn gain_that_makes_every_value_0_warns_and_a_silent_digitiser_is_named() {
    let rms = 60.0;
    let noise = Digitised::new(noise(3, 1 << 16, rms, 10));
    let silent = Digitised::new(vec![0; 1 << 16]);
    let pols = [noise.clone(), noise, silent];
    let run = |pols: [&Digitised; 2], gains: Value| {
        let parameters =
            json!({"channels": 64, "spectra_per_heap": 16, "gains": gains, "dither": "none"});
        let kind = kind::<FEngine>(parameters);
        let inputs: Vec<_> = pols.iter().map(|pol| pol.port()).collect();
        let ports = Ports { outputs: kind.outputs(&inputs).unwrap(), inputs };
        let (env, events) = (Env::detached("f"), Arc::new(Events::default()));
        env.events.redirect(Some((Arc::clone(&events), "f".to_owned())));
        let frames = pols.iter().map(|pol| pol.frames()).collect();
        let out = drive_block(kind.build(&ports.inputs, &env).unwrap(), &ports, &env, frames);
        assert!(out.frames.len() > 1 && out.frames.iter().all(|frame| frame.validity == [1]));
        let gauges = env.counters.gauges();
        let rms_of = |named: &&NamedGauge| named.name == "output_rms";
        let rms: Vec<f64> = gauges.iter().filter(rms_of).map(|g| g.gauge.get().unwrap()).collect();
        (rms, events.since(0).iter().map(|event| event.text.clone()).collect::<Vec<_>>())
    };
    let (levels, events) = run([&pols[0], &pols[1]], json!([1e-4, 0.3]));
    let expected = [
        "level low: every measured value of pol0 is 0; raise `gains`, or check the level of the input",
    ];
    assert_eq!(events, expected);
    // The filter keeps the rms of noise; a part of a complex value has half of its power.
    let expected = 0.3 * rms / 2_f64.sqrt();
    assert!(levels[0] == 0.0 && (levels[1] / expected - 1.0).abs() < 0.1, "{levels:?} {expected}");
    let (_, events) = run([&pols[0], &pols[2]], json!(0.3));
    assert_eq!(events.len(), 1);
    assert!(
        events[0].contains("every measured value of pol1 is 0; its input has no signal"),
        "{events:?}"
    );
}

#[test]
fn output_is_bit_identical_to_three_blocks() {
    let delays = json!([
        [{"start_samples": 0, "delay_samples": 3.3, "rate": 1e-9, "phase_radians": 0.4}],
        [{"start_samples": 0, "delay_samples": -2.6},
         {"start_samples": 4096, "delay_samples": 5.2, "phase_rate_radians_per_second": 20.0}],
    ]);
    let per_channel: Vec<f64> = (0..64).map(|k| 0.5 + 0.01 * f64::from(k)).collect();
    for (bits, parameters) in [
        (10, json!({"channels": 64, "spectra_per_heap": 16, "dither_seed": 5, "delays": delays})),
        (
            10,
            json!({"channels": 64, "spectra_per_heap": 8, "heaps_per_frame": 3, "layout": "k_major",
                    "gains": [per_channel, {"re": 0.2, "im": 0.9}]}),
        ),
        (
            12,
            json!({"channels": 32, "spectra_per_heap": 37, "taps": 4, "bits": 4, "gains": 0.01,
                    "dither": "none", "delays": delays}),
        ),
        (
            8,
            json!({"channels": 16, "spectra_per_heap": 256, "taps": 1, "w_cutoff": 0,
                   "window": "rect", "bits": 4, "layout": "k_major", "gains": 0.1, "delays": delays}),
        ),
    ] {
        let out = compare(&parameters, &two_pols(bits, 1 << 15));
        assert!(out.frames.len() > 1 && out.count("values_saturated") > 0, "{parameters}");
        assert!(out.summary.contains("pol1: rms"), "{}", out.summary);
        compare(
            &parameters
                .as_object()
                .unwrap()
                .iter()
                .filter(|(name, _)| !["delays", "gains"].contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            &two_pols(bits, 1 << 14)[..1],
        );
    }
}

#[test]
fn missing_heaps_give_the_validity_of_three_blocks() {
    let mut pols = two_pols(10, 1 << 16);
    pols[0].lost_heaps = vec![20, 21, 100];
    pols[1].lost_frames = vec![30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42];
    pols[1].start = 1 << 12;
    for threads in [1, 3] {
        let parameters = json!({"channels": 32, "spectra_per_heap": 16, "heaps_per_frame": 4,
                                "max_delay_seconds": 1e-7, "threads": threads});
        let out = compare(&parameters, &pols);
        let validity: Vec<u32> = out.frames.iter().flat_map(|f| f.validity.clone()).collect();
        assert!(validity.contains(&0) && validity.contains(&1));
        assert!(out.count("spectra_missing") > 0);
    }
}

#[test]
fn f_engine_parameters_equal_those_of_pfb_and_postproc() {
    let properties = |name: &str| {
        let kinds = crate::kinds();
        let kind = kinds.get(name).unwrap();
        (kind.schema)().to_value()["properties"].as_object().unwrap().clone()
    };
    let mut others = properties("postproc");
    others.extend(properties("pfb"));
    let mut own = properties("f_engine");
    // These descriptions differ: `f_engine` reads no complex samples and has no intermediate streams.
    let own_descriptions = ["channels", "centre_hz", "threads"];
    own.retain(|name, _| !own_descriptions.contains(&name.as_str()));
    others.retain(|name, _| own.contains_key(name) || !own_descriptions.contains(&name.as_str()));
    for between in ["unzip", "spectra_per_frame"] {
        assert!(others.remove(between).is_some());
    }
    assert_eq!(Value::Object(own), Value::Object(others));
}

#[test]
fn f_engine_diagnostics_name_its_parameters() {
    use fxgraph::KindSpec;
    let port = Digitised::new(vec![0; 1024]).port();
    for (parameters, words) in [
        (
            json!({"channels": 98}),
            "`channels` must be an even number from 4 to 1048576 with the prime factors 2, 3 and 5, got 98",
        ),
        (json!({"channels": 64, "bits": 5}), "`bits` must be 8 or 4, got 5"),
        (
            json!({"channels": 64, "gains": [1, 2, 3]}),
            "`gains` must have one entry for each of 1 polarisations, got 3",
        ),
    ] {
        let rejections =
            kind::<FEngine>(parameters).outputs(std::slice::from_ref(&port)).unwrap_err();
        assert!(rejections[0].message.contains(words), "{}", rejections[0].message);
    }
}
