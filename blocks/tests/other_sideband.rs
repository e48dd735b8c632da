//! The same sky in the other sideband: each kind makes the same of it.
//!
//! A stream in the lower sideband with the complex conjugates of the values of another stream has the same values on the
//! sky (a real sample is its own conjugate). So complex outputs of a block with the lower sideband are the conjugates of
//! those with the upper one, real ones and those without a band are the same, and so are counters and summary.
//!
//! Each block of an example gets the frames that the blocks before it make. A new kind is tested with its example.

use super::chain::{Plain, connected};
use super::disturbed::{Streams, env, run, run_enough};
use super::examples::{can_run, directory, text};
use fxgraph::elements::value;
use fxgraph::flowgraph::{Plan, load_in};
use fxgraph::{Band, DeviceName, Dtype, PortType, Sideband};
use num_complex::Complex64;
use serde_json::{Value, json};
use std::path::Path;

/// Carrier of GPS L1.
const CARRIER_HZ: f64 = 1575.42e6;

/// Kinds for which another relation holds, each with the reason: the same frames give the same output, without
/// conjugation.
const OF_SAMPLES: &[(&str, &str)] =
    &[("synthesiser", "the real samples of channels are those of the frequencies in the samples")];

/// Kinds whose summary depends on the direction of the frequencies, each with the reason.
const OTHER_SUMMARY: &[(&str, &str)] = &[
    ("fringe_check", "the delay of noise is a slope across the frequencies"),
    ("sample_sink", "raw samples have no header, so the summary states the sideband"),
];

/// Kinds whose values are rounded otherwise in the other sideband: the reason, and the largest difference relative to the
/// rms.
const ROUNDED: &[(&str, &str, f64)] = &[(
    "frb_beamformer",
    "its transforms run in the opposite direction, and half precision follows",
    2e-3,
)];

/// Parameters that show a sign which those of the example do not.
fn parameters(kind: &str) -> Value {
    let gain = json!({"re": 0.08, "im": -0.05});
    match kind {
        "postproc" => json!({"gains": gain}),
        "beamformer" => {
            json!({"beams": [{"pol": 0, "phases_radians": [0.0, 0.3, 0.9, -1.3]}, {"pol": 1, "phases_radians": -0.4}]})
        }
        // Beams have the same order in both sidebands only with `clamp`.
        "frb_beamformer" => json!({"gains": gain, "clamp": {"beams": 256}}),
        _ => json!({}),
    }
}

/// The input `port` in this sideband, about a frequency at which the receivers of satellites have a signal. The band is
/// narrow, so that frequencies are the same in both directions.
fn in_sideband(port: &PortType, sideband: Sideband) -> PortType {
    let of_samples = port.axes.iter().any(|axis| axis.name == "sample");
    let channels = port.axis_len("channel");
    let default = match channels {
        None if !of_samples => return port.clone(),
        None if !port.dtype.is_complex() => Band {
            centre_hz: CARRIER_HZ,
            ..Band::of_nyquist_zone(1, port.clock.adc_sample_rate_hz)
        },
        _ => Band::signed(channels.unwrap_or(1), 0, CARRIER_HZ, 1e3),
    };
    PortType { band: Some(Band { sideband, ..port.band.unwrap_or(default) }), ..port.clone() }
}

/// Conjugates the elements of a payload. The least integer, which has no opposite, becomes the greatest.
fn conjugate(dtype: Dtype, payload: &mut [u8]) {
    if !dtype.is_complex() {
        return;
    }
    if dtype == Dtype::Ci4 {
        payload.iter_mut().for_each(|byte| {
            let im = -((byte.cast_signed() << 4) >> 4);
            *byte = (*byte & 0xf0) | (im.min(7).cast_unsigned() & 0x0f);
        });
        return;
    }
    let len = dtype.bytes(1);
    for part in payload.chunks_exact_mut(len).map(|element| &mut element[len / 2..]) {
        match dtype {
            Dtype::Ci8 => part[0] = part[0].cast_signed().saturating_neg().cast_unsigned(),
            Dtype::Ci16 => negate(part, i16::from_le_bytes, i16::saturating_neg, i16::to_le_bytes),
            Dtype::Ci32 => negate(part, i32::from_le_bytes, i32::saturating_neg, i32::to_le_bytes),
            _ => part[len / 2 - 1] ^= 0x80,
        }
    }
}

fn negate<T, const N: usize>(
    part: &mut [u8],
    read: fn([u8; N]) -> T,
    negative: fn(T) -> T,
    write: fn(T) -> [u8; N],
) {
    let bytes: [u8; N] = (&*part).try_into().unwrap();
    part.copy_from_slice(&write(negative(read(bytes))));
}

fn conjugated(ports: &[PortType], streams: &Streams) -> Streams {
    let mut streams = streams.clone();
    for (port, frames) in ports.iter().zip(&mut streams) {
        if port.band.is_some() {
            frames.iter_mut().for_each(|frame| conjugate(port.dtype, &mut frame.payload));
        }
    }
    streams
}

/// Counters and summary of a run.
type Told = (Vec<(String, u64)>, String);

/// Compares an output with that of the upper sideband; returns the number of values.
fn compare(
    port: &PortType,
    upper: &[Plain],
    lower: &[Plain],
    conj: bool,
    tolerance: f64,
) -> Result<usize, String> {
    let values = || {
        (0..port.elements()).flat_map(|element| {
            upper.iter().map(move |frame| value(&frame.payload, port.dtype, element).norm_sqr())
        })
    };
    let count = (port.elements() * upper.len()).max(1);
    let most = tolerance * (values().sum::<f64>() / count as f64).sqrt();
    if upper.len() != lower.len() {
        return Err(format!("{} frames instead of {}", lower.len(), upper.len()));
    }
    for (a, b) in upper.iter().zip(lower) {
        if (a.timestamp, &a.validity) != (b.timestamp, &b.validity) {
            return Err(format!("timestamp or validity at {}", a.timestamp));
        }
        for element in 0..port.elements() {
            let [a, b] = [a, b].map(|frame| value(&frame.payload, port.dtype, element));
            let a: Complex64 = if conj { a.conj() } else { a };
            // Bits of the sum with 0, which has no sign if it is 0.
            let bits = |z: Complex64| [z.re + 0.0, z.im + 0.0].map(f64::to_bits);
            // NaN is not close.
            let is_close = (a - b).norm() <= most;
            if bits(a) != bits(b) && !is_close {
                return Err(format!("element {element} is {b} instead of {a}"));
            }
        }
    }
    Ok(upper.len() * port.elements())
}

/// Tests the block; returns the number of values compared.
fn test(plan: &Plan, directory: &Path, schema: &Value) -> Result<usize, String> {
    let block = &plan.blocks[plan.block("block").unwrap()];
    let mut given = Value::clone(&block.parameters);
    if schema["properties"].get("dither").is_some() {
        // Noise has the same sign in both sidebands.
        given["dither"] = json!("none");
    }
    for (key, value) in parameters(block.kind).as_object().unwrap() {
        // The other examples do not have beams.
        if key != "clamp" || given.get("north_south").is_some() {
            given[key] = value.clone();
        }
    }
    let of = |sideband| {
        let inputs: Vec<_> =
            block.ports.inputs.iter().map(|port| in_sideband(port, sideband)).collect();
        let connected = connected(block.kind, block.implementation, &given, &inputs);
        connected.map_err(|rejections| format!("{sideband:?}: {}", rejections[0].message))
    };
    let (upper, lower) = (of(Sideband::Upper)?, of(Sideband::Lower)?);
    let ports = upper.ports();
    if ports.inputs.iter().all(|port| port.band.is_none()) {
        return Ok(1);
    }
    // Files of the two runs do not overwrite each other.
    let directories = [directory.join("upper"), directory.join("lower")];
    directories.iter().for_each(|directory| std::fs::create_dir_all(directory).unwrap());
    let told = |env: &fxgraph::Env| -> Told {
        let counters = env.counters.list();
        let counters = counters.iter().map(|named| (named.name.to_owned(), named.counter.get()));
        let directory = env.output_directory.display().to_string();
        (counters.collect(), env.summary.get().replace(&directory, ""))
    };
    let mut of_upper = Told::default();
    let mut conjugates = Streams::new();
    let (_, expected) = run_enough(plan, directory, |inputs| {
        let env = env(&directories[0]);
        // Twice conjugated, no integer is the least one.
        conjugates = conjugated(&ports.inputs, inputs);
        let made = run(&*upper, &conjugated(&ports.inputs, &conjugates), 0, &env);
        of_upper = told(&env);
        made
    })?;
    let env = env(&directories[1]);
    let is_of_samples = OF_SAMPLES.iter().any(|(kind, _)| *kind == block.kind);
    if is_of_samples {
        conjugates = conjugated(&ports.inputs, &conjugates);
    }
    let got = run(&*lower, &conjugates, 0, &env)?;
    let mut compared = usize::from(expected.is_empty());
    for (output, port) in lower.ports().outputs.iter().enumerate() {
        let has_band = ports.outputs[output].band.is_some();
        if has_band && port.sideband() != Sideband::Lower {
            return Err(format!("output {output} is in the upper sideband"));
        }
        let is_complex = ports.inputs.iter().any(|port| port.dtype.is_complex());
        let conj = is_complex && has_band && !is_of_samples;
        let rounded = ROUNDED.iter().find(|(kind, ..)| *kind == block.kind);
        let tolerance = rounded.map_or(0.0, |(.., tolerance)| *tolerance);
        let (expected, got) = (&expected[output], &got[output]);
        compared += compare(port, expected, got, conj, tolerance)
            .map_err(|why| format!("output {output}: {why}"))?;
    }
    let (mut of_lower, mut of_upper) = (told(&env), of_upper);
    if OTHER_SUMMARY.iter().any(|(kind, _)| *kind == block.kind) {
        (of_lower.1, of_upper.1) = (String::new(), String::new());
    }
    if of_lower != of_upper {
        return Err(format!("{of_lower:?} instead of {of_upper:?}"));
    }
    Ok(compared)
}

#[test]
fn every_kind_makes_the_same_of_the_sky_in_both_sidebands() {
    let registry = crate::kinds();
    let mut found = Vec::new();
    for example in registry.examples(DeviceName::Cpu).into_iter().filter(can_run) {
        let directory = directory();
        let text = text(&example.flowgraph, directory.path());
        let name = Path::new("example.yaml");
        let plan = load_in(directory.path(), name, &text, &[], &registry).result.unwrap();
        if plan.blocks[plan.block("block").unwrap()].ports.inputs.is_empty() {
            continue;
        }
        let schema = (registry.get(example.kind).unwrap().schema)().to_value();
        match test(&plan, directory.path(), &schema) {
            Ok(0) => found.push(format!("{example}: no value was compared")),
            Ok(_) => {}
            Err(why) => found.push(format!("{example}: {why}")),
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
