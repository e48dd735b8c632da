use super::{Antennas, Detect, Products};
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, Frame, KindSpec, PortType, Ports, ValidityType};
use fxgraph_dsp::random::Random;
use num_complex::{Complex32, Complex64};
use std::sync::Arc;

fn port(pols: usize, spectra: usize, channels: usize) -> PortType {
    let samples_per_frame = (2 * spectra * channels) as u64;
    let (pol, spectrum) = (Axis::new("pol", pols), Axis::new("spectrum", spectra));
    PortType {
        dtype: Dtype::Cf32,
        axes: vec![pol.clone(), spectrum.clone(), Axis::new("channel", channels)],
        clock: Clock::new(1e6, samples_per_frame),
        band: None,
        validity: ValidityType::flags(vec![pol, spectrum]),
    }
}

fn detect(
    detect: &Detect,
    input: PortType,
    values: &[Complex32],
    valid: &[u32],
) -> (Arc<Frame>, u64) {
    let outputs = detect.outputs(std::slice::from_ref(&input)).unwrap();
    let ports = Ports { inputs: vec![input], outputs };
    let env = Env::detached("detect");
    let mut harness = Harness::new(detect.build(&ports.inputs, &env).unwrap(), &ports, 1).unwrap();
    harness.send(0, |frame| {
        frame.header_mut().timestamp = 4096;
        frame.header_mut().validity.copy_from_slice(valid);
        frame.as_mut_slice::<Complex32>().unwrap().copy_from_slice(values);
    });
    Harness::block_on(harness.run()).unwrap();
    (harness.receive(0).unwrap(), env.counters.list()[0].counter.get())
}

#[test]
fn sums_are_those_of_double_precision_without_missing_spectra() {
    let (spectra, channels, of_sum) = (12, 5, 4);
    let mut random = Random::new(3);
    let mut value = || random.normal_pair().map(|part| part as f32);
    let values: Vec<Complex32> = (0..2 * spectra * channels)
        .map(|_| value())
        .map(|[re, im]| Complex32::new(re, im))
        .collect();
    // Spectrum 2 lacks samples of polarisation 1, spectrum 7 of both; of the third sum there is nothing.
    let mut valid = vec![1; 2 * spectra];
    [spectra + 2, 7, spectra + 7, 8, 9, 10, 11].into_iter().for_each(|unit| valid[unit] = 0);
    for (products, of_spectrum) in [
        (
            Products::Power,
            (|x, y| vec![x * x.conj(), y * y.conj()]) as fn(Complex64, Complex64) -> Vec<_>,
        ),
        (Products::Intensity, |x, y| vec![x * x.conj() + y * y.conj()]),
        (Products::Stokes, |x, y| {
            let (xx, yy, xy) = (x * x.conj(), y * y.conj(), 2.0 * x * y.conj());
            vec![xx + yy, xx - yy, xy.re.into(), xy.im.into()]
        }),
    ] {
        let kind = Detect { products, spectra: of_sum, antennas: Antennas::Sum };
        let (frame, missing) = detect(&kind, port(2, spectra, channels), &values, &valid);
        assert_eq!(frame.header().validity, [3, 3, 0]);
        assert_eq!((frame.header().timestamp, missing), (4096, 6));
        let mut found = frame.as_slice::<f32>().unwrap().iter();
        let rows = of_spectrum(Complex64::ONE, Complex64::ONE).len();
        for sum in 0..spectra / of_sum {
            let is_there = |s: &usize| valid[*s] != 0 && valid[spectra + s] != 0;
            for row in 0..rows {
                for channel in 0..channels {
                    let at = |pol: usize, s: usize| {
                        let value = values[(pol * spectra + s) * channels + channel];
                        Complex64::new(value.re.into(), value.im.into())
                    };
                    let of_sum = (sum * of_sum..(sum + 1) * of_sum).filter(is_there);
                    let expected: f64 =
                        of_sum.map(|s| of_spectrum(at(0, s), at(1, s))[row].re).sum();
                    let off = (f64::from(*found.next().unwrap()) - expected).abs();
                    assert!(off < 1e-5 * expected.abs().max(1.0), "{products:?}: {off}");
                }
            }
        }
        assert!(found.next().is_none());
    }
}

#[test]
fn circular_waves_have_stokes_v_and_linear_ones_u() {
    let kind = Detect { products: Products::Stokes, spectra: 1, antennas: Antennas::Sum };
    let stokes = |y: Complex32| {
        let (frame, _) = detect(&kind, port(2, 1, 1), &[Complex32::ONE, y], &[1, 1]);
        frame.as_slice::<f32>().unwrap().to_vec()
    };
    assert_eq!(stokes(Complex32::ONE), [2.0, 0.0, 2.0, 0.0]);
    assert_eq!(stokes(-Complex32::ONE), [2.0, 0.0, -2.0, 0.0]);
    assert_eq!(stokes(-Complex32::I), [2.0, 0.0, 0.0, 2.0]);
    assert_eq!(stokes(Complex32::ZERO), [1.0, 1.0, 0.0, 0.0]);
}

#[test]
fn what_cannot_be_made_is_rejected_with_every_reason() {
    let messages = |detect: Detect, input: PortType| {
        let rejections = detect.outputs(&[input]).unwrap_err();
        rejections.into_iter().map(|rejection| rejection.message).collect::<Vec<_>>()
    };
    let kind = |spectra| Detect { products: Products::Stokes, spectra, antennas: Antennas::Sum };
    assert_eq!(
        messages(kind(3), port(1, 8, 4)),
        [
            "`spectra` must divide the 8 spectra of a frame, got 3",
            "`products` must be `power`, because the input has one polarisation"
        ]
    );
    let samples = PortType { dtype: Dtype::F32, ..port(2, 8, 4) };
    assert_eq!(messages(kind(1), samples.clone()), [format!("`detect` cannot read `{samples}`")]);
}
