use super::KurtosisFlagger;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, Frame, KindSpec, PortType, Ports, ValidityType};
use num_complex::Complex32;
use std::f32::consts::TAU;
use std::sync::Arc;

const SPECTRA: usize = 512;
const CHANNELS: usize = 8;

fn spectra() -> PortType {
    let axes =
        vec![Axis::new("pol", 1), Axis::new("spectrum", SPECTRA), Axis::new("channel", CHANNELS)];
    let samples_per_frame = (2 * CHANNELS * SPECTRA) as u64;
    PortType {
        dtype: Dtype::Cf32,
        validity: ValidityType::flags(vec![Axis::new("spectrum", SPECTRA)]),
        axes,
        clock: Clock::new(1e6, samples_per_frame),
        band: None,
    }
}

/// Returns a uniform random number in (0, 1), by xorshift64*.
fn uniform(state: &mut u64) -> f32 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    ((state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 41) as f32 + 0.5) / (1 << 23) as f32
}

/// Returns spectra of Gaussian noise with a constant carrier in channel 2 and pulses in channel 5.
fn observation() -> Vec<Complex32> {
    let mut state = 1;
    let mut values = Vec::new();
    for spectrum in 0..SPECTRA {
        for channel in 0..CHANNELS {
            let amplitude = (-2.0 * uniform(&mut state).ln()).sqrt();
            let noise = Complex32::from_polar(amplitude, TAU * uniform(&mut state));
            values.push(match channel {
                2 => noise + 10.0,
                5 if spectrum % 64 == 0 => noise + 10.0,
                _ => noise,
            });
        }
    }
    values
}

fn run(sigmas: f64, is_complete: bool) -> (Arc<Frame>, Arc<Frame>, Vec<u64>) {
    let kind = KurtosisFlagger { sigmas };
    let inputs = vec![spectra()];
    let outputs = kind.outputs(&inputs).unwrap();
    let ports = Ports { inputs, outputs };
    let env = Env::detached("rfi");
    let block = kind.build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 2).unwrap();
    assert!(harness.send(0, |frame| {
        frame.header_mut().timestamp = 8192;
        frame.fill_validity(1);
        frame.header_mut().validity[7] = u32::from(is_complete);
        frame.as_mut_slice().unwrap().copy_from_slice(&observation());
    }));
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();
    let counts = env.counters.list().iter().map(|named| named.counter.get()).collect();
    (harness.receive(0).unwrap(), harness.receive(1).unwrap(), counts)
}

#[test]
fn carrier_and_pulses_are_flagged_and_noise_is_not() {
    let (output, kurtosis, counts) = run(5.0, true);
    let expected: Vec<Complex32> = observation()
        .iter()
        .enumerate()
        .map(|(n, value)| if [2, 5].contains(&(n % CHANNELS)) { Complex32::ZERO } else { *value })
        .collect();
    assert_eq!(output.as_slice::<Complex32>().unwrap(), expected);
    let kurtosis = kurtosis.as_slice::<f32>().unwrap();
    assert!(kurtosis[2] < 0.5 && kurtosis[5] > 2.0, "{kurtosis:?}");
    assert!((kurtosis[0] - 1.0).abs() < 0.5, "{kurtosis:?}");
    assert_eq!(output.header().timestamp, 8192);
    assert_eq!(counts, [2, 0]);
}

#[test]
fn frame_with_missing_data_is_passed_on() {
    let (output, kurtosis, counts) = run(5.0, false);
    assert_eq!(output.as_slice::<Complex32>().unwrap(), observation());
    assert_eq!(output.header().validity[7], 0);
    assert_eq!(kurtosis.header().validity, [0]);
    assert_eq!(counts, [0, 1]);
}

#[test]
fn ports_report_all_errors_of_parameters_and_input() {
    let mut input = spectra();
    input.dtype = Dtype::Ci8;
    assert_eq!(KurtosisFlagger { sigmas: f64::NAN }.outputs(&[input]).unwrap_err().len(), 2);
}
