//! Antennas without a signal, no source, and limits of the corrections.

use super::*;
use crate::common::visibilities;

/// Sends dumps until an update was made, `number` times.
fn updates(bench: &mut Bench, number: usize) {
    for _ in 0..number {
        bench.dump().unwrap();
        bench.answer(Ok(bench.dump * STEP));
    }
}

/// Sends dumps that change nothing.
fn quiet(bench: &mut Bench, number: usize) {
    let before = bench.counter("dumps_ignored");
    // The block would ignore dumps before the answer to an update.
    for _ in 0..=number {
        bench.dump().unwrap();
    }
    assert_eq!(bench.counter("dumps_ignored"), before);
}

/// Geometric mean of the amplitudes of some antennas' gains.
fn level(bench: &Bench, antennas: &[usize]) -> f64 {
    let logarithms = antennas.iter().map(|a| bench.engines.gain(*a, 0, 0).norm().ln());
    (logarithms.sum::<f64>() / antennas.len() as f64).exp()
}

fn dead_3(antenna: usize, pol: usize, channel: usize) -> Complex64 {
    if antenna == 3 { Complex64::ZERO } else { of_antenna(antenna, pol, channel) }
}

#[test]
fn dead_antenna_keeps_its_gains_and_leaves_those_of_the_others() {
    let mut bench = Bench::new(&parameters(), dead_3);
    let (gains, validity) = bench.dump().unwrap();
    assert_eq!(validity, [1, 1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(gains[6], Complex32::ZERO);
    bench.answer(Ok(STEP));
    quiet(&mut bench, 3);
    assert!(!bench.engines.gains.lock().unwrap().contains_key("f[3]"), "its gains are not updated");
    assert!((level(&bench, &[0, 1, 2]) - 1.0).abs() < 1e-6);
    for antenna in 1..3 {
        let total = |a| of_antenna(a, 0, 0) * bench.engines.gain(a, 0, 0);
        let ratio: Complex64 = total(antenna) / total(0);
        assert!((ratio - 1.0).norm() < 1e-5, "{ratio}");
    }
    let expected =
        [0, 1].map(|pol| format!("antenna 3 has no signal in polarisation {pol}: its gains stay"));
    assert_eq!(bench.texts(), expected);
    bench.truth = of_antenna;
    updates(&mut bench, 1);
    quiet(&mut bench, 2);
    let expected = [0, 1].map(|pol| format!("antenna 3 has a signal again in polarisation {pol}"));
    assert_eq!(bench.texts()[2..], expected);
    assert!(bench.error() < 1e-4, "{}", bench.error());
}

#[test]
fn dead_reference_antenna_is_replaced_for_good() {
    let mut bench = Bench::new(&parameters(), |antenna, pol, channel| {
        if antenna == 0 { Complex64::ZERO } else { of_antenna(antenna, pol, channel) }
    });
    updates(&mut bench, 1);
    let new = bench.replaced(0);
    let reference = bench.engines.gain(new, 0, 0);
    assert!(new != 0 && reference.arg().abs() < 1e-6, "{reference}");
    // The array does not turn when antenna 0 returns, which gets the phase of the others.
    bench.truth = of_antenna;
    updates(&mut bench, 1);
    quiet(&mut bench, 1);
    let found = bench.engines.gain(new, 0, 0);
    assert!(found.arg().abs() < 1e-6, "{found}");
    let total = |a| of_antenna(a, 0, 0) * bench.engines.gain(a, 0, 0);
    let other = new % 3 + 1;
    let ratio: Complex64 = total(0) / total(other);
    assert!((ratio - 1.0).norm() < 1e-4, "{ratio}");
}

#[test]
fn without_a_source_nothing_is_updated() {
    let mut bench = Bench::new(&parameters(), |_, _, _| Complex64::ZERO);
    for _ in 0..3 {
        assert!(bench.dump().is_none());
    }
    let counted = ["updates", "updates_rejected", "solutions_without_signal", "dumps_ignored"];
    assert_eq!(counted.map(|name| bench.counter(name)), [0, 0, 6, 0]);
    assert!(bench.engines.gains.lock().unwrap().is_empty());
    // With weak visibilities, as of noise.
    let mut bench = Bench::new(&parameters(), |antenna, _, _| {
        Complex64::from_polar(1e-3 / 2.0, (antenna * antenna) as f64)
    });
    for _ in 0..3 {
        assert!(bench.dump().is_none());
    }
    assert_eq!(bench.counter("solutions_without_signal"), 6);
    let expected =
        [0, 1].map(|pol| format!("no correlated signal in polarisation {pol}: its gains stay"));
    assert_eq!(bench.texts(), expected);
    bench.truth = of_antenna;
    updates(&mut bench, 1);
    quiet(&mut bench, 2);
    let expected = [0, 1].map(|pol| format!("polarisation {pol} has a correlated signal again"));
    assert_eq!(bench.texts()[2..], expected);
}

#[test]
fn corrections_are_limited_and_limited_antennas_leave_the_mean() {
    let kind = GainSolver { max_amplitude_change: 5.0, ..parameters() };
    let mut bench = Bench::new(&kind, |antenna, _, _| [1.0, 1.1, 0.1, 0.9][antenna].into());
    for expected in [2.0, 4.0, 5.0] {
        updates(&mut bench, 1);
        let found = bench.engines.gain(2, 0, 0).norm();
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        assert!((level(&bench, &[0, 1, 3]) - 1.0).abs() < 1e-5);
    }
    assert_eq!(bench.counter("corrections_limited"), 6);
    quiet(&mut bench, 1);
    assert_eq!(bench.counter("corrections_limited"), 10);
}

#[test]
fn antenna_without_signal_is_flagged_once_in_the_block_that_is_named() {
    let flag_antennas_in = Some("array".to_owned());
    let mut bench = Bench::new(&GainSolver { flag_antennas_in, ..parameters() }, dead_3);
    *bench.engines.flagged.lock().unwrap() = vec![1];
    updates(&mut bench, 1);
    bench.dump().unwrap();
    assert_eq!(*bench.engines.flagged.lock().unwrap(), [1]);
    updates(&mut bench, 1);
    assert_eq!(*bench.engines.flagged.lock().unwrap(), [1, 3]);
    assert_eq!(bench.texts().last().unwrap(), "antenna 3 is flagged in `array`");
    // A client takes the flag back, and it stays so.
    bench.engines.flagged.lock().unwrap().clear();
    quiet(&mut bench, 3);
    assert!(bench.engines.flagged.lock().unwrap().is_empty());
}

#[test]
fn zeros_of_all_antennas_flag_none_and_solutions_go_on_afterwards() {
    let flag_antennas_in = Some("array".to_owned());
    let kind = GainSolver { flag_antennas_in, ..parameters() };
    let mut bench = Bench::new(&kind, |_, _, _| Complex64::ZERO);
    for _ in 0..5 {
        assert!(bench.dump().is_none());
    }
    assert!(bench.engines.flagged.lock().unwrap().is_empty());
    let counted = ["updates", "updates_rejected", "solutions_without_signal"];
    assert_eq!(counted.map(|name| bench.counter(name)), [0, 0, 10]);
    let mut expected: Vec<String> = [0, 1]
        .map(|pol| format!("no correlated signal in polarisation {pol}: its gains stay"))
        .to_vec();
    assert_eq!(bench.texts(), expected);
    bench.truth = of_antenna;
    updates(&mut bench, 1);
    quiet(&mut bench, 2);
    expected.extend([0, 1].map(|pol| format!("polarisation {pol} has a correlated signal again")));
    assert_eq!(bench.texts(), expected);
    assert!(bench.error() < 1e-4, "{}", bench.error());
}

#[test]
fn failed_solutions_do_not_count_as_a_source() {
    let kind = GainSolver { min_antennas: 4, ..parameters() };
    let mut bench = Bench::new(&kind, |_, _, _| Complex64::ZERO);
    assert!(bench.dump().is_none());
    (bench.truth, bench.missing) = (of_antenna, Some(3));
    for _ in 0..4 {
        assert!(bench.dump().is_none());
    }
    assert_eq!(bench.counter("solutions_failed"), 8);
    assert_eq!(bench.texts().len(), 2, "{:?}", bench.texts());
    bench.missing = None;
    updates(&mut bench, 1);
    quiet(&mut bench, 2);
    assert_eq!(bench.texts()[3], "polarisation 1 has a correlated signal again");
}

#[test]
fn most_of_the_array_is_not_flagged() {
    let mut input = input();
    input.axes[1].len = 7 * 8 / 2;
    input.validity.axes = vec![input.axes[1].clone()];
    let kind = GainSolver { flag_antennas_in: Some("array".to_owned()), ..parameters() };
    let mut bench = Bench::of(input, 2, &kind, |antenna, _, _| {
        Complex64::from(if antenna < 3 { 1.0 + 0.1 * antenna as f64 } else { 0.0 })
    });
    updates(&mut bench, 1);
    quiet(&mut bench, 5);
    let said = "4 antennas have no signal, and only 3 have a gain: none is flagged in `array`";
    assert_eq!(bench.texts().iter().filter(|text| *text == said).count(), 1, "{:?}", bench.texts());
    assert!(bench.engines.flagged.lock().unwrap().is_empty());
    // The others are flagged when one of them has a signal again.
    bench.truth =
        |antenna, _, _| Complex64::from(if antenna < 4 { 1.0 + 0.1 * antenna as f64 } else { 0.0 });
    updates(&mut bench, 1);
    bench.dump().unwrap();
    updates(&mut bench, 1);
    assert_eq!(*bench.engines.flagged.lock().unwrap(), [4, 5, 6]);
}

#[test]
fn antennas_are_named_by_their_numbers() {
    let numbers = [12_u32, 3, 5, 8];
    let pairs = (0..4).flat_map(|two| (0..=two).map(move |one| (numbers[one], numbers[two])));
    let mut input = input();
    let labels = pairs.map(|(one, two)| visibilities::label(one, two));
    input.axes[1] = Axis::labelled("baseline", labels);
    input.validity.axes = vec![input.axes[1].clone()];
    let kind = GainSolver {
        reference_antenna: Some(3),
        flag_antennas_in: Some("array".to_owned()),
        ..parameters()
    };
    let solver = GainSolver { reference_antenna: Some(1), ..kind.clone() };
    let rejections = solver.outputs(std::slice::from_ref(&input)).unwrap_err();
    assert_eq!(rejections[0].help.as_deref(), Some("use the numbers 12, 3, 5, 8"));
    let outputs = kind.outputs(std::slice::from_ref(&input)).unwrap();
    assert_eq!(outputs[0].axes[0].labels, ["12", "3", "5", "8"]);
    let mut bench = Bench::of(input, 2, &kind, dead_3);
    *bench.engines.flagged.lock().unwrap() = vec![5];
    updates(&mut bench, 1);
    bench.dump().unwrap();
    updates(&mut bench, 1);
    assert_eq!(*bench.engines.flagged.lock().unwrap(), [5, 8]);
    assert!(bench.engines.gain(1, 0, 0).arg().abs() < 1e-6, "the reference antenna has number 3");
    assert!(bench.engines.gain(0, 0, 0).arg().abs() > 0.1);
    let expected = [
        "antenna 8 has no signal in polarisation 0: its gains stay",
        "antenna 8 has no signal in polarisation 1: its gains stay",
        "antenna 8 is flagged in `array`",
    ];
    assert_eq!(bench.texts(), expected);
}
