//! Frames of the file, and samples with known codes.

use super::*;
use crate::io::files::tests::write;
use fxgraph::event::Events;
use fxgraph::{Axis, Clock, Dtype, Env, ValidityType};
use fxgraph_formats::vdif::unpack;
use std::path::Path;
use std::sync::Arc;

/// 1.8e9 s is 2027-01-15: half-year 54, which began at Unix time 1798761600.
const SYNC: f64 = 1.8e9;
const EPOCH_UNIX: u32 = 1_798_761_600;

/// A stream of frames of 16 samples at 32000 samples per second, with a flag for each 8 samples.
fn port(dtype: Dtype, pols: usize) -> PortType {
    let pol = Axis::new("pol", pols);
    PortType {
        dtype,
        axes: vec![pol.clone(), Axis::new("sample", 16)],
        clock: Clock { sync_time: Time::from_unix_f64(SYNC).unwrap(), ..Clock::new(64e3, 32) },
        band: None,
        validity: ValidityType::flags(vec![pol, Axis::new("heap", 2)]),
    }
}

fn sink(path: &Path, json: serde_json::Value) -> VdifSink {
    let mut all = serde_json::json!({ "path": path });
    all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    fxgraph::kind::read(&all).unwrap()
}

/// Frame of the input: timestamp, validity and payload.
type Sent = (u64, Vec<u32>, Vec<u8>);

fn run(sink: &VdifSink, port: &PortType, frames: Vec<Sent>, env: &Env) -> Result<(), String> {
    write(sink, port, env, (frames.len(), true), |n, frame| {
        let (timestamp, validity, payload) = &frames[n];
        frame.header_mut().timestamp = *timestamp;
        frame.header_mut().validity.copy_from_slice(validity);
        frame.as_mut_slice::<u8>().unwrap().copy_from_slice(payload);
    })
    .map_err(|error| error.to_string())
}

/// Headers, and the samples of each frame as numbers.
fn frames(path: &Path) -> Vec<(Header, Vec<f32>)> {
    let bytes = std::fs::read(path).unwrap();
    let header = Header::parse(&bytes).unwrap();
    let of_frame = |bytes: &[u8]| {
        let header = Header::parse(bytes).unwrap();
        let payload = &bytes[header.header_bytes() as usize..];
        let mut values = vec![0.0; 8 * payload.len() / usize::from(header.bits)];
        unpack(payload, header.bits, false, &mut values);
        (header, values)
    };
    let length = header.frame_bytes as usize;
    assert_eq!(bytes.len() % length, 0);
    bytes.chunks(length).map(of_frame).collect()
}

fn count(env: &Env, name: &str) -> u64 {
    env.counters.list().iter().find(|named| named.name == name).unwrap().counter.get()
}

/// Samples of 8 bits that count up along `pols` rows.
fn counting(pols: usize, first: usize) -> Vec<u8> {
    (0..pols * 16).map(|n| (first + n % 16 + 100 * (n / 16)) as u8).collect()
}

#[test]
fn vdif_sink_starts_at_a_frame_and_numbers_frames_within_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.vdif");
    let sink = sink(&path, serde_json::json!({"bits": 8, "payload_bytes": 8, "station": "Fx"}));
    // 48 samples, the first one 6 samples before a UTC second.
    let sent = (0..3).map(|n| (63_988 + 32 * n, vec![1; 4], counting(2, 16 * n as usize)));
    let env = Env::detached("out");
    run(&sink, &port(Dtype::I8, 2), sent.collect(), &env).unwrap();
    let frames = frames(&path);
    let times: Vec<_> = frames.iter().map(|(h, _)| (h.thread, h.seconds, h.frame)).collect();
    let second = SYNC as u32 - EPOCH_UNIX + 1;
    let expected = (0..5).flat_map(|n| [(0, second, n), (1, second, n)]);
    assert_eq!(times, expected.collect::<Vec<_>>());
    for (n, (header, values)) in frames.iter().enumerate() {
        assert_eq!((header.epoch, header.station, header.edv()), (54, 0x4678, 1));
        assert_eq!((header.is_complex, header.is_invalid), (false, false));
        assert_eq!(header.sample_rate_hz(), Some(32_000));
        let first = 6 + 8 * (n / 2) + 100 * (n % 2);
        let expected = (first..first + 8).map(|value| f32::from((value as u8).cast_signed()));
        assert!(values.iter().copied().eq(expected), "{n} {values:?}");
    }
    assert_eq!(count(&env, "samples_before_start"), 6);
    assert_eq!(count(&env, "samples_after_end"), 2);
    assert_eq!(count(&env, "steps_written"), 40);
}

#[test]
fn missing_samples_make_invalid_frames_without_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.vdif");
    let json = serde_json::json!({"bits": 8, "payload_bytes": 8, "max_gap_seconds": 0.003});
    let sink = sink(&path, json);
    let env = Env::detached("out");
    let sent = vec![
        // Heap 1 of polarisation 0 is missing.
        (0, vec![1, 0, 1, 1], counting(2, 0)),
        // 16 samples are missing.
        (64, vec![1; 4], counting(2, 32)),
        // An old frame, and a gap of 120 samples.
        (32, vec![1; 4], counting(2, 16)),
        (64 + 32 + 240, vec![1; 4], counting(2, 168)),
    ];
    run(&sink, &port(Dtype::I8, 2), sent, &env).unwrap();
    let of_pol = |pol| {
        let of_pol = frames(&path).into_iter().filter(move |(header, _)| header.thread == pol);
        of_pol.map(|(h, _)| (h.frame, h.is_invalid)).collect::<Vec<_>>()
    };
    let valid = |frame| (frame, false);
    let invalid = |frame| (frame, true);
    let rest = [invalid(2), invalid(3), valid(4), valid(5), valid(21), valid(22)];
    assert_eq!(of_pol(0), [&[valid(0), invalid(1)], &rest[..]].concat());
    assert_eq!(of_pol(1), [&[valid(0), valid(1)], &rest[..]].concat());
    assert_eq!(count(&env, "steps_missing"), 3 * 8);
    assert_eq!(count(&env, "steps_left_out"), 15 * 8);
    assert_eq!(count(&env, "steps_repeated"), 16);
}

#[test]
fn gap_within_a_frame_keeps_the_frame_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.vdif");
    let json = serde_json::json!({"bits": 8, "payload_bytes": 40, "max_gap_seconds": 0});
    let sent = [(0, 0), (40, 20), (72, 36)].map(|(t, n)| (t, vec![1; 4], counting(2, n)));
    let env = Env::detached("out");
    run(&sink(&path, json), &port(Dtype::I8, 2), sent.to_vec(), &env).unwrap();
    let frames = frames(&path);
    assert!(frames[0].0.is_invalid);
    assert_eq!(frames[0].1[20..36], (20..36).map(|n| n as f32).collect::<Vec<_>>());
}

#[test]
fn level_is_measured_held_tracked_or_given() {
    let directory = tempfile::tempdir().unwrap();
    let port = port(Dtype::F32, 1);
    // Square waves of amplitude 3, then 12: an rms of 3 and 12.
    let wave = |amplitude: f32| {
        let values = (0..16).map(|n| if n % 2 == 0 { amplitude } else { -amplitude });
        values.flat_map(f32::to_ne_bytes).collect::<Vec<u8>>()
    };
    let codes = |name: &str, json: serde_json::Value| {
        let path = directory.path().join(name);
        let sent = vec![(0, vec![1; 2], wave(3.0)), (32, vec![1; 2], wave(12.0))];
        run(&sink(&path, json), &port, sent, &Env::detached("out")).unwrap();
        let frames = frames(&path);
        [frames[0].1[0], frames[1].1[1]]
    };
    let json = |more| {
        let mut json = serde_json::json!({"bits": 8, "payload_bytes": 16});
        json.as_object_mut().unwrap().extend::<serde_json::Map<String, _>>(more);
        json
    };
    let with = |name: &str, value: f64| [(name.to_owned(), value.into())].into_iter().collect();
    // The rms of both frames, as they are few samples: sqrt((9 + 144) / 2).
    assert_eq!(codes("held", json(serde_json::Map::new())), [12.0, -49.0]);
    assert_eq!(codes("tracked", json(with("tracking_seconds", 1e-9))), [36.0, -36.0]);
    assert_eq!(codes("rms", json(with("rms", 35.5))), [3.0, -12.0]);
    assert_eq!(codes("scale", json(with("scale", 0.5))), [2.0, -6.0]);
    // 2 bits: an amplitude equal to the rms is above the threshold, half of it is below.
    let two = |rms: f64| serde_json::json!({"bits": 2, "payload_bytes": 16, "rms": rms});
    let bits = |name: &str, rms| {
        let path = directory.path().join(name);
        let sent = (0..4).map(|n| (32 * n, vec![1; 2], wave(3.0))).collect();
        run(&sink(&path, two(rms)), &port, sent, &Env::detached("out")).unwrap();
        frames(&path)[0].1[..2].to_vec()
    };
    assert_eq!(bits("high", 3.0), [3.3359, -3.3359]);
    assert_eq!(bits("low", 6.0), [1.0, -1.0]);
}

#[test]
fn polarisations_are_channels_of_one_thread_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.vdif");
    let json = serde_json::json!({
        "bits": 8, "payload_bytes": 16, "channels": true, "first_thread": 5, "header": "legacy",
    });
    let sent = vec![(0, vec![1, 1, 0, 1], counting(2, 0))];
    run(&sink(&path, json), &port(Dtype::I8, 2), sent, &Env::detached("out")).unwrap();
    let frames = frames(&path);
    let [(first, _), (second, values)] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((first.is_legacy, first.channels(), first.thread), (true, 2, 5));
    // Both channels are invalid together.
    assert_eq!((first.is_invalid, second.is_invalid), (true, false));
    assert_eq!(values[..4], [8.0, 108.0, 9.0, 109.0]);
}

#[test]
fn sample_between_the_grid_points_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let sink = sink(
        &directory.path().join("a.vdif"),
        serde_json::json!({"payload_bytes": 8, "overwrite": true}),
    );
    let env = Env::detached("out");
    // ADC samples are half a sample.
    run(&sink, &port(Dtype::I8, 1), vec![(1, vec![1; 2], vec![1; 16])], &env).unwrap();
    assert!(
        env.summary.get().contains("no file"),
        "the first VDIF frame begins in the next input frame"
    );
    let sent = (0..4).map(|n| (1 + 32 * n, vec![1; 2], vec![1; 16])).collect();
    run(&sink, &port(Dtype::I8, 1), sent, &env).unwrap();
    assert!(env.summary.get().contains("samples) after the times in"), "{}", env.summary.get());
}

#[test]
fn vdif_sink_rejects_impossible_files() {
    let rejected = |json: serde_json::Value, change: fn(&mut PortType)| {
        let mut port = port(Dtype::F32, 3);
        change(&mut port);
        let rejections = sink(Path::new("a.vdif"), json).outputs(&[port]).unwrap_err();
        format!("{} ({})", rejections[0].message, rejections[0].help.clone().unwrap_or_default())
    };
    let said = |json| rejected(json, |_| {});
    assert!(
        said(serde_json::json!({"bits": 3})).contains("`bits` must be 1, 2, 4, 8 or 16, got 3")
    );
    assert!(said(serde_json::json!({"station": "Meerkat"})).contains("`station`"));
    assert!(said(serde_json::json!({"scale": 2.0})).contains("`scale` needs"));
    assert!(said(serde_json::json!({"rms": -1.0})).contains("`rms` must be positive"));
    assert!(said(serde_json::json!({"rms": 1.0, "tracking_seconds": 1.0})).contains("at most one"));
    assert!(said(serde_json::json!({"channels": true})).contains("power of two"));
    assert!(said(serde_json::json!({"first_thread": 1022})).contains("threads must be below 1024"));
    let payload = said(serde_json::json!({"payload_bytes": 24}));
    assert!(payload.contains("got 24 (use one of 8, 16, 32, 40, 64, 80)"), "{payload}");
    let rate = rejected(serde_json::json!({}), |port| port.clock.adc_sample_rate_hz = 1999.0);
    assert!(rate.contains("got 999.5 samples per second"), "{rate}");
    let header = rejected(serde_json::json!({"header": "edv1", "bits": 8}), |port| {
        port.clock.adc_sample_rate_hz = 16_016.0;
    });
    assert!(
        header.contains("`edv1` needs a sample rate that is a multiple of 2000 Hz"),
        "{header}"
    );
    let sync = rejected(serde_json::json!({}), |port| port.clock.sync_time = Time::default());
    assert!(sync.contains("times from 2000 to 2031"), "{sync}");
    assert!(rejected(serde_json::json!({}), |port| port.dtype = Dtype::F64).contains("f64"));
    let nowhere = sink(Path::new("out/"), serde_json::json!({}));
    assert!(nowhere.outputs(&[port(Dtype::F32, 1)]).unwrap_err()[0].message.contains("`path`"));
}

#[test]
fn level_below_half_a_step_warns_and_the_right_one_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = fxgraph_dsp::random::Random::new(3);
    // Two polarisations with a standard deviation of 10 and of 2000.
    let frame = |n: u64, random: &mut fxgraph_dsp::random::Random| {
        let values = (0..32).map(|n| {
            let std = if n < 16 { 10.0 } else { 2000.0 };
            (std * random.normal_pair()[0]) as f32
        });
        (32 * n, vec![1; 4], values.flat_map(f32::to_ne_bytes).collect())
    };
    let sent: Vec<Sent> = (0..2100).map(|n| frame(n, &mut random)).collect();
    for (number, (parameters, rms, warned)) in [
        (serde_json::json!({"bits": 8, "scale": 0.02}), [0.2, 40.0], "raise `scale`"),
        (serde_json::json!({"bits": 8, "scale": 0.1}), [1.0, 200.0], ""),
        (serde_json::json!({"bits": 2, "rms": 100}), [0.1 / 0.9816, 20.0 / 0.9816], "lower `rms`"),
        (serde_json::json!({"bits": 2}), [1.0 / 0.9816; 2], ""),
        (serde_json::json!({"bits": 4, "tracking_seconds": 1.0}), [2.95; 2], ""),
    ]
    .into_iter()
    .enumerate()
    {
        let mut json = serde_json::json!({"payload_bytes": 8, "station": "Fx"});
        json.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
        let (env, events) = (Env::detached("vdif"), Arc::new(Events::default()));
        env.events.redirect(Some((Arc::clone(&events), "vdif".to_owned())));
        let sink = sink(&directory.path().join(format!("{number}.vdif")), json);
        run(&sink, &port(Dtype::F32, 2), sent.clone(), &env).unwrap();
        let texts = events.since(0).iter().map(|event| event.text.clone()).collect::<Vec<_>>();
        let texts: Vec<_> = texts.iter().filter(|text| text.starts_with("level low")).collect();
        let is_expected = match warned {
            "" => texts.is_empty(),
            action => {
                texts.len() == 1 && texts[0].contains(" pol0 is ") && texts[0].contains(action)
            }
        };
        assert!(is_expected, "{parameters}: {texts:?}");
        let gauges = env.counters.gauges();
        let levels = gauges.iter().filter(|named| named.name == "output_rms");
        for (level, rms) in levels.map(|named| named.gauge.get().unwrap()).zip(rms) {
            // Rounding adds 1/12 where the noise exceeds a step.
            let expected = if rms < 0.8 { 0.0 } else { (rms * rms + 1.0 / 12.0_f64).sqrt() };
            let tolerance = if expected == 0.0 { 0.3 } else { 0.1 * expected };
            assert!((level - expected).abs() < tolerance, "{parameters}: {level}");
        }
    }
}

/// Runs a sink over noise of one polarisation, of which `std` gives the standard deviation in each of `seconds` s.
/// Returns its events about a level that is off.
fn run_noise(
    parameters: serde_json::Value,
    seconds: u64,
    std: impl Fn(u64) -> f64,
) -> (Env, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let mut random = fxgraph_dsp::random::Random::new(5);
    let frame = |n: u64| {
        let values = (0..16).map(|_| (std(n / 2000) * random.normal_pair()[0]) as f32);
        (32 * n, vec![1; 2], values.flat_map(f32::to_ne_bytes).collect())
    };
    let sent: Vec<Sent> = (0..2000 * seconds).map(frame).collect();
    let mut json = serde_json::json!({"payload_bytes": 8, "station": "Fx"});
    json.as_object_mut().unwrap().extend(parameters.as_object().unwrap().clone());
    let (env, events) = (Env::detached("vdif"), Arc::new(Events::default()));
    env.events.redirect(Some((Arc::clone(&events), "vdif".to_owned())));
    let path = directory.path().join("a.vdif");
    run(&sink(&path, json), &port(Dtype::F32, 1), sent, &env).unwrap();
    let texts = events.since(0).iter().map(|event| event.text.clone()).collect::<Vec<_>>();
    (env, texts.into_iter().filter(|text| text.starts_with("level off")).collect())
}

fn gauge(env: &Env, name: &str) -> Option<f64> {
    env.counters.gauges().iter().find(|named| named.name == name)?.gauge.get()
}

#[test]
fn level_is_measured_from_enough_samples_and_not_from_the_first_frame_alone() {
    // Frames of 16 samples know the rms of noise to 18 % only, one standard deviation.
    for bits in [2, 8] {
        let (env, texts) = run_noise(serde_json::json!({"bits": bits}), 2, |_| 100.0);
        let rms = gauge(&env, "input_rms").unwrap();
        assert!((rms - 100.0).abs() < 5.0, "{bits} bits: {rms}");
        assert!(
            env.summary.get().contains("thresholds for an rms of pol0 "),
            "{}",
            env.summary.get()
        );
        assert_eq!((texts, count(&env, "samples_off_level")), (vec![], 0));
    }
}

#[test]
fn level_that_leaves_the_range_of_the_quantiser_is_an_event_and_is_counted() {
    // 6 dB more from second 2 to 4, then 1.9 dB less, and 10 dB less in the last two seconds.
    let std = |second| match second {
        2..=4 => 200.0,
        5 => 80.0,
        6.. => 31.6,
        _ => 100.0,
    };
    let (env, texts) = run_noise(serde_json::json!({"bits": 2}), 8, std);
    let [above, below] = &texts[..] else { panic!("{texts:?}") };
    assert!(above.contains("level off: pol0 is ") && above.contains(" dB above"), "{above}");
    assert!(below.contains(" dB below"), "{below}");
    let off = count(&env, "samples_off_level");
    assert!((off.cast_signed() - 5 * 32_000).abs() <= 2 * 32_000, "{off}");
    let difference = gauge(&env, "level_difference_db").unwrap();
    assert!((difference + 10.0).abs() < 0.5, "{difference}");
    let (env, texts) = run_noise(serde_json::json!({"bits": 2, "tracking_seconds": 0.05}), 8, std);
    assert_eq!((texts, count(&env, "samples_off_level")), (vec![], 0));
}

#[test]
fn clipped_numbers_are_as_many_as_noise_of_the_level_has_beyond_the_range() {
    // Fractions of normal numbers beyond 3.926, about 8 / 2.95 and 128 / 35.5 standard deviations.
    for (bits, right, double) in [(2, 8.62e-5, 0.0496), (4, 0.00748, 0.1767), (8, 3.12e-4, 0.0714)]
    {
        for (factor, expected) in [(1.0, right), (2.0, double)] {
            let parameters = serde_json::json!({"bits": bits, "rms": 100.0});
            let (env, _) = run_noise(parameters, 4, |_| 100.0 * factor);
            let share =
                count(&env, "values_saturated") as f64 / count(&env, "steps_written") as f64;
            let error = 5.0 * (expected / 128e3_f64).sqrt() + 0.03 * expected;
            assert!((share - expected).abs() < error, "{bits} bits, {factor}: {share}");
        }
    }
    let (env, _) = run_noise(serde_json::json!({"bits": 1, "rms": 1.0}), 1, |_| 100.0);
    assert_eq!(count(&env, "values_saturated"), 0);
}
