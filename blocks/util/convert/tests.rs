#![allow(clippy::unwrap_used)]

use super::*;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Env, Next, Ports, ValidityType};
use half::f16;
use proptest::prelude::*;

fn port(dtype: Dtype, len: usize) -> PortType {
    PortType {
        dtype,
        axes: vec![Axis::new("pol", 1), Axis::new("sample", len)],
        clock: Clock::new(1e6, 8),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("pol", 1)]),
    }
}

fn kind(dtype: Dtype, scale: f64, threads: usize) -> Convert {
    Convert { dtype: dtype.to_string(), scale, conjugate: false, threads }
}

/// Sends one frame through the block; returns its elements, and the count of saturated elements.
fn run(kind: &Convert, from: Dtype, bytes: &[u8]) -> (Vec<u8>, u64) {
    let input = port(from, 8 * bytes.len() / from.bits());
    let outputs = kind.outputs(std::slice::from_ref(&input)).unwrap();
    let ports = Ports { inputs: vec![input], outputs };
    let counters = Counters::default();
    let env = Env { counters: counters.clone(), ..Env::detached("convert") };
    let block = kind.build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    assert!(harness.send(0, |frame| {
        frame.header_mut().timestamp = 77;
        frame.header_mut().validity[0] = 3;
        frame.as_mut_slice().unwrap().copy_from_slice(bytes);
    }));
    harness.end(0);
    assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
    let frame = harness.receive(0).unwrap();
    assert_eq!((frame.header().timestamp, frame.header().validity[0]), (77, 3));
    (frame.as_slice::<u8>().unwrap().to_vec(), counters.list()[0].counter.get())
}

/// Converts numbers of one type to another with the block.
fn numbers<I: bytemuck::Pod, O: bytemuck::AnyBitPattern>(
    (from, to): (Dtype, Dtype),
    scale: f64,
    values: &[I],
) -> (Vec<O>, u64) {
    let (bytes, saturated) = run(&kind(to, scale, 1), from, bytemuck::cast_slice(values));
    let size = size_of::<O>();
    (bytes.chunks(size).map(bytemuck::pod_read_unaligned).collect(), saturated)
}

#[test]
fn ties_round_to_even_and_overflow_is_clamped_and_counted() {
    let values = [0.5f32, 1.5, 2.5, -0.5, -1.5, 126.5, 127.0, 127.4, -127.6, -500.0];
    let (found, saturated) = numbers::<_, i8>((Dtype::F32, Dtype::I8), 1.0, &values);
    assert_eq!(found, [0, 2, 2, 0, -2, 126, 127, 127, -127, -127]);
    assert_eq!(saturated, 3);
    let values = [-1.0f64, 254.5, 255.5, f64::INFINITY, 3.0];
    let (found, saturated) = numbers::<_, u8>((Dtype::F64, Dtype::U8), 1.0, &values);
    assert_eq!((found, saturated), (vec![0, 254, 255, 255, 3], 3));
    let values = [2_147_483_646.5f64, 1e10, -1e10, 2_147_483_645.5];
    let (found, saturated) = numbers::<_, i32>((Dtype::F64, Dtype::I32), 1.0, &values);
    assert_eq!(found, [2_147_483_646, i32::MAX, -i32::MAX, 2_147_483_646]);
    assert_eq!(saturated, 2);
}

#[test]
fn nan_stays_nan_in_floats_and_becomes_zero_in_integers() {
    let values = [f32::NAN, 1.0];
    let (found, saturated) = numbers::<_, i16>((Dtype::F32, Dtype::I16), 2.0, &values);
    assert_eq!((found, saturated), (vec![0, 2], 1));
    let (found, saturated) = numbers::<_, f16>((Dtype::F32, Dtype::F16), 2.0, &values);
    assert!(found[0].is_nan() && found[1] == f16::from_f32(2.0));
    assert_eq!(saturated, 1);
}

#[test]
fn a_complex_element_counts_once() {
    let values = [[300.0f32, -300.0], [1.0, 200.0], [1.0, 2.0]];
    let (found, saturated) = numbers::<_, [i8; 2]>((Dtype::Cf32, Dtype::Ci8), 1.0, &values);
    assert_eq!((found, saturated), (vec![[127, -127], [1, 127], [1, 2]], 2));
}

#[test]
fn ci4_has_the_real_part_in_the_upper_nibble() {
    let (found, saturated) = numbers::<_, [i8; 2]>((Dtype::Ci4, Dtype::Ci8), 1.0, &[0x7fu8, 0x91]);
    assert_eq!((found, saturated), (vec![[7, -1], [-7, 1]], 0));
    let values = [[3i8, -2], [9, -8]];
    let (found, saturated) = numbers::<_, u8>((Dtype::Ci8, Dtype::Ci4), 1.0, &values);
    assert_eq!((found, saturated), (vec![0x3e, 0x79], 1));
}

/// Returns the half-precision value nearest to a number (ties to even), by search among all values.
fn nearest_half(number: f64) -> f16 {
    let half_values = (0..=u16::MAX).map(f16::from_bits).filter(|half| half.is_finite());
    let off = |half: &f16| (f64::from(*half) - number).abs();
    let odd = |half: &f16| half.to_bits() & 1;
    half_values.min_by(|a, b| off(a).total_cmp(&off(b)).then(odd(a).cmp(&odd(b)))).unwrap()
}

#[test]
fn half_precision_is_rounded_to_nearest_down_to_subnormals() {
    let mut values = vec![65_503.0f32, 65_519.0, 1e6, 1e-7, 5.96e-8, 2.98e-8, 3e-8, 6.1e-5, 2049.0];
    values.extend([2051.0, 0.1, 1.0 / 3.0, -1.0 / 3.0, 1.0 + 1.0 / 2048.0, 1.0 + 3.0 / 2048.0]);
    let (found, saturated) = numbers::<_, f16>((Dtype::F32, Dtype::F16), 1.0, &values);
    for (value, half) in values.iter().zip(&found) {
        assert_eq!(*half, nearest_half(f64::from(*value)), "{value}");
    }
    assert_eq!(saturated, 2);
}

#[test]
fn every_pair_of_types_agrees_with_double_precision() {
    let types = Dtype::WHOLE_BYTES.into_iter().filter(|dtype| parts(*dtype).is_some());
    let types: Vec<Dtype> = types.collect();
    let mut pairs = 0;
    for &from in &types {
        for &to in types.iter().filter(|to| parts(**to) == parts(from)) {
            // Small integers: exact in every type.
            let small: Vec<f64> = (0..2 * 1027).map(|n| f64::from(n * 5 % 15 - 7).abs()).collect();
            let bytes = run(&kind(from, 0.5, 1), of_parts(from), &double(&small)).0;
            let (found, saturated) = run(&kind(to, 2.0, 3), from, &bytes);
            let back = run(&kind(of_parts(to), 1.0, 2), to, &found).0;
            let half_values =
                |n: &f64| if integer(from) { (n / 2.0).round_ties_even() } else { n / 2.0 };
            let expected: Vec<f64> = small.iter().map(|n| 2.0 * half_values(n)).collect();
            let expected: Vec<f64> = match to {
                Dtype::Ci4 => expected.iter().map(|n| n.min(7.0)).collect(),
                _ => expected,
            };
            assert_eq!(double(&expected), back, "{from} to {to}");
            assert_eq!(saturated > 0, to == Dtype::Ci4 && integer(from), "{from} to {to}");
            pairs += 1;
        }
    }
    assert_eq!(pairs, 7 * 7 + 7 * 7);
}

/// Returns the double-precision type with the same number of parts.
fn of_parts(dtype: Dtype) -> Dtype {
    if parts(dtype) == Some(2) { Dtype::Cf64 } else { Dtype::F64 }
}

fn integer(dtype: Dtype) -> bool {
    use Dtype::{Cf16, Cf32, Cf64, F16, F32, F64};
    ![F16, F32, F64, Cf16, Cf32, Cf64].contains(&dtype)
}

fn double(numbers: &[f64]) -> Vec<u8> {
    bytemuck::cast_slice(numbers).to_vec()
}

proptest! {
    #[test]
    fn result_does_not_depend_on_threads(
        bytes in proptest::collection::vec(any::<u8>(), 2..5000),
        threads in 1..5_usize,
        scale in -3.0..3.0_f64,
    ) {
        prop_assume!(scale != 0.0);
        let bytes = &bytes[..bytes.len() / 2 * 2];
        let one = run(&kind(Dtype::Cf16, scale, 1), Dtype::Ci8, bytes);
        prop_assert_eq!(run(&kind(Dtype::Cf16, scale, threads), Dtype::Ci8, bytes), one);
    }
}

#[test]
fn real_numbers_become_complex_with_imaginary_part_zero() {
    let values = [0.5f32, -1.5, 200.0, 3.0];
    let (found, saturated) = numbers::<_, [i8; 2]>((Dtype::F32, Dtype::Ci8), 1.0, &values);
    assert_eq!((found, saturated), (vec![[0, 0], [-2, 0], [127, 0], [3, 0]], 1));
    let types = Dtype::WHOLE_BYTES.into_iter();
    let types: Vec<Dtype> = types.filter(|dtype| parts(*dtype).is_some()).collect();
    let small: Vec<f64> = (0..1027).map(|n| f64::from(n % 8)).collect();
    let expected: Vec<f64> = small.iter().flat_map(|x| [*x, 0.0]).collect();
    for from in types.iter().filter(|dtype| parts(**dtype) == Some(1)) {
        let bytes = run(&kind(*from, 1.0, 1), Dtype::F64, &double(&small)).0;
        for to in types.iter().filter(|dtype| parts(**dtype) == Some(2)) {
            let found = run(&kind(*to, 1.0, 3), *from, &bytes);
            let back = run(&kind(Dtype::Cf64, 1.0, 1), *to, &found.0).0;
            assert_eq!((double(&expected), 0), (back, found.1), "{from} to {to}");
        }
    }
}

#[test]
fn conjugate_negates_imaginary_parts_and_clamps_the_most_negative_one() {
    let values = [[3i8, -128], [-128, 5], [0, -7], [127, 127]];
    let kind = Convert { conjugate: true, ..kind(Dtype::Ci8, 1.0, 1) };
    let (found, saturated) = run(&kind, Dtype::Ci8, bytemuck::cast_slice(&values));
    let found: Vec<[i8; 2]> =
        found.chunks(2).map(|z| [z[0].cast_signed(), z[1].cast_signed()]).collect();
    assert_eq!((found, saturated), (vec![[3, 127], [-127, -5], [0, 7], [127, -127]], 2));
}

/// A wave on the sky in samples of both kinds is where the band of the output has it.
#[test]
fn wave_on_the_sky_keeps_its_frequency_in_complex_and_conjugated_samples() {
    let (rate_hz, len, centre_hz, offset_hz) = (1e6, 1000, 1.5e9, 31_000.0);
    for sign in [1.0, -1.0] {
        for from in [Dtype::F64, Dtype::Cf64] {
            let is_complex = from == Dtype::Cf64;
            let width_hz = if is_complex { rate_hz } else { rate_hz / 2.0 };
            let mut input = port(from, len);
            input.axes.remove(0);
            input.validity = ValidityType::flags(vec![]);
            input.clock = Clock::new(rate_hz, len as u64);
            input.band = Some(Band::signed(1, 0, centre_hz, sign * width_hz));
            // Of the samples: real ones have the centre of their band at a quarter of the rate.
            let middle_hz = if is_complex { 0.0 } else { rate_hz / 4.0 };
            let turns = |n: usize| (middle_hz + sign * offset_hz) * n as f64 / rate_hz;
            let wave =
                (0..len).map(|n| num_complex::Complex64::cis(std::f64::consts::TAU * turns(n)));
            let values: Vec<f64> =
                wave.flat_map(|z| if is_complex { vec![z.re, z.im] } else { vec![z.re] }).collect();
            let kind = Convert { conjugate: is_complex, ..kind(Dtype::Cf64, 1.0, 1) };
            let outputs = kind.outputs(std::slice::from_ref(&input)).unwrap();
            let band = outputs[0].band.unwrap();
            let ports = Ports { inputs: vec![input], outputs };
            let block = kind.build(&ports.inputs, &Env::detached("convert")).unwrap();
            let mut harness = Harness::new(block, &ports, 1).unwrap();
            harness.send(0, |frame| {
                frame.fill_validity(1);
                frame.as_mut_slice::<f64>().unwrap().copy_from_slice(&values);
            });
            Harness::block_on(harness.run()).unwrap();
            let frame = harness.receive(0).unwrap();
            let found = frame.as_slice::<[f64; 2]>().unwrap();
            // Frequency of the samples that the band of the output has for the wave.
            let hz = band.sideband.sign() * (centre_hz + offset_hz - band.centre_hz);
            let term = |(n, [re, im]): (usize, &[f64; 2])| {
                let turns = -hz * n as f64 / rate_hz;
                num_complex::Complex64::new(*re, *im)
                    * num_complex::Complex64::cis(std::f64::consts::TAU * turns)
            };
            let sum: num_complex::Complex64 = found.iter().enumerate().map(term).sum();
            let expected = len as f64 / if is_complex { 1.0 } else { 2.0 };
            assert!((sum.norm() / expected - 1.0).abs() < 1e-6, "{sign} {from}: {sum}");
            let is_inverted = (sign < 0.0) != is_complex;
            assert_eq!(band.sideband.is_inverted(), is_inverted);
            assert!((band.bandwidth_hz - rate_hz).abs() < 1e-6);
        }
    }
}

#[test]
fn convert_rejects_conjugates_of_channels_and_of_real_numbers() {
    let conjugate = |input: &PortType| {
        let kind = Convert { conjugate: true, ..kind(Dtype::Cf32, 1.0, 1) };
        let rejections = kind.outputs(std::slice::from_ref(input)).unwrap_err();
        assert_eq!(rejections.len(), 1);
        rejections[0].message.clone()
    };
    assert_eq!(conjugate(&port(Dtype::F32, 8)), "`conjugate` needs complex elements, got f32");
    let mut channels = port(Dtype::Cf32, 8);
    channels.axes[1].name = "channel";
    channels.band = Some(Band::signed(8, 0, 1e9, 1e6));
    assert!(conjugate(&channels).contains("`conjugate` needs samples"));
    let mut filtered = port(Dtype::F32, 8);
    filtered.axes.insert(1, Axis::new("spectrum", 2));
    let rejections = kind(Dtype::Cf32, 1.0, 1).outputs(&[filtered]).unwrap_err();
    assert_eq!(rejections[0].message, "filtered samples of real spectra cannot become complex");
}

#[test]
fn convert_rejects_invalid_types_and_lists_valid_ones() {
    let rejected = |from, to: &str, scale| {
        let kind = Convert { dtype: to.to_owned(), scale, conjugate: false, threads: 1 };
        kind.outputs(&[port(from, 8)]).unwrap_err()
    };
    let complex = "use one of ci4, ci8, ci16, ci32, cf16, cf32, cf64";
    for to in ["f32", "i64", "i10p", "nothing"] {
        let rejections = rejected(Dtype::Ci8, to, 1.0);
        assert_eq!(rejections.len(), 1);
        assert_eq!(rejections[0].message, format!("`ci8` cannot be converted to `{to}`"));
        assert_eq!(rejections[0].help.as_deref(), Some(complex));
    }
    for from in [Dtype::Packed(10), Dtype::I64] {
        assert_eq!(rejected(from, "f32", 1.0)[0].code, codes::INPUT_DTYPE);
    }
    for scale in [0.0, f64::NAN, 1e-60, 1e60] {
        assert_eq!(rejected(Dtype::Ci8, "cf16", scale).len(), 1);
    }
    assert!(kind(Dtype::F64, 1e60, 1).outputs(&[port(Dtype::I32, 8)]).is_ok());
}

#[test]
fn level_of_integers_is_that_of_the_first_numbers_of_each_stretch() {
    // Two stretches and a half; numbers that are not measured are large.
    let value = |n: usize| if n % 16384 < 256 { 3.0 - (n % 2) as f32 } else { 100.0 };
    let values: Vec<f32> = (0..40_000).map(value).collect();
    let power = |to: Dtype, scale: f64| {
        let input = port(Dtype::F32, values.len());
        let kind = kind(to, scale, 2);
        let outputs = kind.outputs(std::slice::from_ref(&input)).unwrap();
        let ports = Ports { inputs: vec![input], outputs };
        let env = Env::detached("convert");
        let mut harness =
            Harness::new(kind.build(&ports.inputs, &env).unwrap(), &ports, 1).unwrap();
        assert!(harness.send(0, |frame| {
            frame.header_mut().validity[0] = 1;
            frame.as_mut_slice().unwrap().copy_from_slice(&values);
        }));
        harness.end(0);
        Harness::block_on(harness.run()).unwrap();
        let power = harness.receive(0).unwrap().header().annotations.get("output_power").to_vec();
        let rms = env.counters.gauges().first().and_then(|named| named.gauge.get());
        assert_eq!(rms, power.first().map(|power| power.sqrt()));
        power
    };
    assert_eq!(power(Dtype::I8, 1.0), [6.5]);
    assert_eq!(power(Dtype::U8, 2.0), [26.0]);
    assert_eq!(power(Dtype::I16, 100.0), [65_000.0]);
    assert_eq!(power(Dtype::I8, 0.1), [0.0]);
    assert!(power(Dtype::F16, 1.0).is_empty());
}
