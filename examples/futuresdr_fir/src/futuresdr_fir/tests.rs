use super::FuturesdrFir;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, KindSpec, PortType, Ports, ValidityType};
use num_complex::{Complex32, Complex64};
use std::f64::consts::{PI, TAU};

const LEN: usize = 256;

fn samples(dtype: Dtype) -> PortType {
    let samples_per_frame = LEN as u64;
    PortType {
        dtype,
        axes: vec![Axis::new("sample", LEN)],
        clock: Clock::new(1000.0, samples_per_frame),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", 4)]),
    }
}

/// Returns sample `n` of a tone in the pass band and one in the stop band.
fn signal(n: i64) -> Complex64 {
    let tone = |hz: f64| Complex64::cis(TAU * hz / 1000.0 * n as f64);
    tone(20.0) + tone(-310.0)
}

/// Returns the output of the filter as in README.md, in double precision, centred at sample `n`.
fn filtered(kind: &FuturesdrFir, n: i64) -> Complex64 {
    let last = (kind.taps - 1) as f64;
    let tap = |at: usize| {
        let window = 0.54 - 0.46 * (TAU * at as f64 / last).cos();
        let m = at as f64 - last / 2.0;
        let cycles = 2.0 * kind.cutoff_hz / 1000.0;
        window * if m == 0.0 { cycles } else { (PI * cycles * m).sin() / (PI * m) }
    };
    let first = n - kind.taps as i64 / 2;
    (0..kind.taps).map(|at| tap(at) * signal(first + at as i64)).sum()
}

fn run(kind: &FuturesdrFir) {
    let inputs = vec![samples(Dtype::Cf32)];
    let outputs = kind.outputs(&inputs).unwrap();
    let ports = Ports { inputs, outputs };
    let block = kind.build(&ports.inputs, &Env::detached("low")).unwrap();
    let mut harness = Harness::new(block, &ports, 16).unwrap();
    for frame in 4..10 {
        assert!(harness.send(0, |buffer| {
            buffer.header_mut().timestamp = frame * LEN as u64;
            buffer.fill_validity(1);
            for (n, sample) in buffer.as_mut_slice::<Complex32>().unwrap().iter_mut().enumerate() {
                let value = signal((frame * LEN as u64) as i64 + n as i64);
                *sample = Complex32::new(value.re as f32, value.im as f32);
            }
        }));
    }
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();
    let output = &ports.outputs[0];
    let heap = output.elements() / output.validity.units();
    let (mut compared, mut missing) = (0, 0);
    while let Some(frame) = harness.receive(0) {
        let header = frame.header();
        for (n, value) in frame.as_slice::<Complex32>().unwrap().iter().enumerate() {
            if header.validity[n / heap] == 0 {
                missing += 1;
                continue;
            }
            let expected = filtered(kind, (header.timestamp as usize + n * kind.decimation) as i64);
            let value = Complex64::new(value.re.into(), value.im.into());
            assert!((value - expected).norm() < 1e-5, "{n}: {value} is not {expected}");
            compared += 1;
        }
    }
    // The filter is incomplete in the first and the last heap.
    assert_eq!(missing, 2 * heap);
    assert_eq!(compared + missing, 6 * LEN / kind.decimation);
}

#[test]
fn output_equals_a_double_precision_filter_at_its_timestamps() {
    run(&FuturesdrFir { cutoff_hz: 60.0, taps: 63, decimation: 1, samples_per_frame: None });
    run(&FuturesdrFir { cutoff_hz: 60.0, taps: 63, decimation: 4, samples_per_frame: None });
    run(&FuturesdrFir { cutoff_hz: 60.0, taps: 5, decimation: 2, samples_per_frame: Some(64) });
}

#[test]
fn ports_report_all_errors_of_parameters_and_input() {
    let kind =
        FuturesdrFir { cutoff_hz: 500.0, taps: 62, decimation: 1, samples_per_frame: None };
    assert_eq!(kind.outputs(&[samples(Dtype::Ci8)]).unwrap_err().len(), 3);
    let kind = FuturesdrFir { cutoff_hz: 1.0, taps: 63, decimation: 1, samples_per_frame: None };
    let mut input = samples(Dtype::F32);
    input.axes.insert(0, Axis::new("pol", 1));
    assert_eq!(kind.outputs(&[input]).unwrap_err().len(), 1);
}
