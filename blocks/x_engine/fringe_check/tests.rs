//! Checks of visibilities computed from the equation, with deliberate errors.
#![allow(clippy::unwrap_used)]

use super::*;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Band, Clock, Env, Ports, ValidityType};
use fxgraph_dsp::fringe::Expected;
use fxgraph_dsp::random::Random;
use num_complex::Complex64;
use std::f64::consts::TAU;

const CHANNELS: usize = 256;
const PLACES: [[f64; 3]; 3] = [[0.0, 0.0, 0.0], [31.0, 5.0, 0.0], [-12.0, 40.0, 1.0]];
const SKY: Direction = Direction { azimuth_degrees: 40.0, elevation_degrees: 60.0 };

fn input() -> PortType {
    PortType {
        dtype: Dtype::Ci32,
        axes: vec![
            Axis::new("channel", CHANNELS),
            Axis::new("baseline", 6),
            Axis::new("product", 4),
        ],
        clock: Clock::new(1.712e9, 512),
        band: Some(Band::signed(CHANNELS, 0, 428e6, 856e6)),
        validity: ValidityType { axes: vec![Axis::new("baseline", 6)], full: 1 },
    }
}

/// Runs a check on fringes with an extra delay of `extra_seconds` and an extra phase of `extra_degrees` at antenna 2.
fn check(
    parameters: &FringeCheck,
    extra_seconds: f64,
    extra_degrees: f64,
) -> (String, Result<(), String>) {
    check_channels(parameters, CHANNELS, |hz, a1, a2| {
        let extra = |a| if a == 2 { (extra_seconds, extra_degrees) } else { (0.0, 0.0) };
        field(hz, a1, extra(a1)) * field(hz, a2, extra(a2)).conj() * 1e6
    })
}

/// Signal of the source at an antenna, with an extra delay in seconds and an extra phase in degrees.
fn field(hz: f64, antenna: usize, (seconds, degrees): (f64, f64)) -> Complex64 {
    let delay = SKY.delay_seconds(PLACES[antenna]) + seconds;
    Complex64::cis(degrees.to_radians() - TAU * hz * delay)
}

/// Runs a check on a dump of this number of channels, of the visibilities that a function of frequency and antennas
/// gives.
fn check_channels(
    parameters: &FringeCheck,
    channels: usize,
    mut visibility: impl FnMut(f64, usize, usize) -> Complex64,
) -> (String, Result<(), String>) {
    let port = of_channels(channels);
    assert!(parameters.outputs(std::slice::from_ref(&port)).is_ok());
    let ports = Ports { inputs: vec![port], outputs: vec![] };
    let env = Env::detached("check");
    let block = parameters.build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 4).unwrap();
    harness.send(0, |frame| {
        frame.fill_validity(1);
        let cells = frame.as_mut_slice::<[[i32; 2]; 4]>().unwrap();
        for (n, cell) in cells.iter_mut().enumerate() {
            let (channel, baseline) = (n / 6, n % 6);
            let hz = channel as f64 * 856e6 / channels as f64;
            let a2 = [0, 1, 1, 2, 2, 2][baseline];
            let a1 = baseline - a2 * (a2 + 1) / 2;
            let v = visibility(hz, a1, a2);
            *cell = [[v.re as i32, v.im as i32]; 4];
        }
    });
    harness.end(0);
    let result = Harness::block_on(harness.run()).map(|_| ()).map_err(|e| e.to_string());
    (env.summary.get(), result)
}

/// The input with this number of channels.
fn of_channels(channels: usize) -> PortType {
    let mut port = input();
    port.axes[0].len = channels;
    port.band = Some(Band::signed(channels, 0, 428e6, 856e6));
    port
}

/// The same check with only a limit of the phase, with only one of the delay, and with both.
fn limited(degrees: f64, seconds: f64) -> [FringeCheck; 3] {
    [(Some(degrees), None), (None, Some(seconds)), (Some(degrees), Some(seconds))].map(
        |(max_phase_error_degrees, max_delay_error_seconds)| FringeCheck {
            max_phase_error_degrees,
            max_delay_error_seconds,
            ..parameters()
        },
    )
}

/// Complex noise with a variance of 1 in each part.
fn noise(random: &mut Random) -> Complex64 {
    let [re, im] = random.normal_pair();
    Complex64::new(re, im)
}

fn parameters() -> FringeCheck {
    FringeCheck {
        antennas_enu_metres: PLACES.to_vec(),
        source: SKY,
        applied_delays_seconds: vec![],
        applied_phases_radians: vec![],
        tracked: false,
        skip_dumps: 0,
        max_phase_error_degrees: Some(1.0),
        max_delay_error_seconds: None,
    }
}

#[test]
fn expected_fringes_pass_and_table_lists_every_baseline() {
    let (summary, result) = check(&parameters(), 0.0, 0.0);
    assert_eq!(result, Ok(()));
    for row in ["0-1 ", "0-2 ", "1-2 ", "100.0 %", "largest deviation 0.0"] {
        assert!(summary.contains(row), "{row} in\n{summary}");
    }
}

#[test]
fn wrong_phase_fails_and_is_measured() {
    let (summary, result) = check(&parameters(), 0.0, 30.0);
    assert!(result.unwrap_err().contains("deviates by 30.00 degrees, the limit is 1"));
    assert!(summary.contains("30.00"), "{summary}");
}

#[test]
fn delay_error_appears_in_measured_delay() {
    let (summary, result) = check(&parameters(), 20e-9, 0.0);
    assert!(result.is_err());
    let line = summary.lines().find(|line| line.starts_with("0-2")).unwrap();
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!((numbers[1] - numbers[0] + 20.0).abs() < 0.01, "{line}");
}

#[test]
fn delay_error_alone_fails_if_limit_is_set() {
    // The phase at the centre of the band is compensated, so that the mean phase is as expected.
    let degrees = 360.0 * (428e6_f64 * 3e-10).fract();
    let mut parameters = parameters();
    assert_eq!(check(&parameters, 3e-10, degrees).1, Ok(()));
    parameters.max_delay_error_seconds = Some(1e-10);
    assert_eq!(check(&parameters, 0.0, 0.0).1, Ok(()));
    let error = check(&parameters, 3e-10, degrees).1.unwrap_err();
    assert!(error.contains("delay of baseline") && error.contains("the limit is 0.100"), "{error}");
}

#[test]
fn tracked_source_is_expected_at_zero_phase() {
    let tracked = FringeCheck { tracked: true, ..parameters() };
    assert!(check(&tracked, 0.0, 0.0).1.is_err(), "these fringes are not stopped");
    let zenith = Direction { azimuth_degrees: 0.0, elevation_degrees: 90.0 };
    let expected = |tracked| FringeCheck { tracked, source: zenith, ..parameters() };
    // At the zenith of a flat array the only difference is that of the heights, 1 m.
    let flat = |parameters: &FringeCheck| {
        let (summary, _) = check(parameters, 0.0, 0.0);
        let line = summary.lines().find(|line| line.starts_with("0-2")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap()
    };
    assert!((flat(&expected(false)) - 3.336).abs() < 1e-3);
    assert!(flat(&expected(true)).abs() < 1e-9);
    let both = FringeCheck { applied_delays_seconds: vec![0.0; 3], ..tracked };
    assert_eq!(both.outputs(&[input()]).unwrap_err().len(), 1);
}

#[test]
fn applied_delays_rotate_the_band_about_its_centre() {
    // If an F-engine applied -tau and the phase at the centre, only the applied phase remains.
    let delays: Vec<f64> = PLACES.iter().map(|place| -SKY.delay_seconds(*place)).collect();
    let mut with = parameters();
    with.applied_delays_seconds.clone_from(&delays);
    with.applied_phases_radians = vec![0.0, 0.1, 0.2];
    let expected = Expected {
        delay_seconds: -delays[0] + delays[1],
        applied_seconds: delays[0] - delays[1],
        applied_radians: -0.1,
    };
    let flat = |hz: f64| expected.phase(hz, 428e6);
    let turn = Complex64::cis(flat(1e8) - flat(7e8));
    assert!((turn - 1.0).norm() < 1e-6);
    assert!(check(&with, 0.0, 0.0).1.is_err());
}

#[test]
fn run_without_visibilities_fails_only_with_a_limit() {
    let without = FringeCheck { max_phase_error_degrees: None, ..parameters() };
    let with = limited(1.0, 1e-10).map(|parameters| (parameters, true));
    for (parameters, fails) in with.into_iter().chain([(without, false)]) {
        let ports = Ports { inputs: vec![input()], outputs: vec![] };
        let block = parameters.build(&ports.inputs, &Env::detached("check")).unwrap();
        let mut harness = Harness::new(block, &ports, 4).unwrap();
        harness.end(0);
        let result = Harness::block_on(harness.run()).map(|_| ()).map_err(|e| e.to_string());
        let expected = if fails { Err("no visibilities arrived".to_owned()) } else { Ok(()) };
        assert_eq!(result, expected);
    }
}

#[test]
fn dead_antenna_fails_with_either_limit_and_its_baselines_are_named() {
    let of_antennas = |hz, a1, a2| field(hz, a1, (0.0, 0.0)) * field(hz, a2, (0.0, 0.0)).conj();
    // Antenna 1 gives zeros; later its visibilities are noise.
    for (amplitude, seed) in [(0.0, 1), (3e4, 2)] {
        let mut random = Random::new(seed);
        let mut visibility = |hz, a1: usize, a2: usize| {
            let is_dead = a1 == 1 || a2 == 1;
            if is_dead { noise(&mut random) * amplitude } else { of_antennas(hz, a1, a2) * 1e6 }
        };
        // Limits that no deviation exceeds.
        for parameters in limited(360.0, 1.0) {
            let (summary, result) = check_channels(&parameters, CHANNELS, &mut visibility);
            let error = result.unwrap_err();
            assert_eq!(error, "baselines 0-1, 1-2 have no fringe above the noise");
            assert_eq!(summary.matches("no fringe").count(), 2, "{summary}");
        }
        let without = FringeCheck { max_phase_error_degrees: None, ..parameters() };
        assert_eq!(check_channels(&without, CHANNELS, visibility).1, Ok(()));
    }
}

#[test]
fn noise_alone_fails_with_either_limit() {
    let mut random = Random::new(3);
    for channels in [4, 16, 256] {
        for _ in 0..100 {
            for parameters in limited(360.0, 1.0) {
                let noise = |_, _, _| noise(&mut random) * 1e4;
                let error = check_channels(&parameters, channels, noise).1.unwrap_err();
                assert_eq!(error, "baselines 0-1, 0-2, 1-2 have no fringe above the noise");
            }
        }
    }
}

#[test]
fn lines_that_only_one_channel_has_are_no_fringe() {
    let mut random = Random::new(5);
    for noise_rms in [0.0, 1e3] {
        for parameters in limited(360.0, 1.0) {
            let (_, result) = check_channels(&parameters, CHANNELS, |hz, _, _| {
                let line = if (hz - 428e6).abs() < 1.0 { 1e6 } else { 0.0 };
                line + noise(&mut random) * noise_rms
            });
            let error = result.unwrap_err();
            assert_eq!(error, "baselines 0-1, 0-2, 1-2 have no fringe above the noise");
        }
    }
}

#[test]
fn noise_counts_as_a_fringe_as_seldom_as_stated() {
    let mut random = Random::new(6);
    for channels in [2, 3, 8, 64] {
        let hz: Vec<f64> = (0..channels).map(|channel| 1e9 + 1e6 * f64::from(channel)).collect();
        let count = 10_000;
        let stated = (0..count).filter(|_| {
            let values: Vec<Complex64> = hz.iter().map(|_| noise(&mut random)).collect();
            let found = fxgraph_dsp::fringe::measure(&values, &hz, hz[0], &Expected::default());
            cpu::ln_false_alarm(&values, &hz, found.unwrap().delay_seconds) < 0.01_f64.ln()
        });
        let rate = stated.count() as f64 / f64::from(count);
        // A bound, but not far away.
        assert!((0.001..0.012).contains(&rate), "{channels} channels: {rate}");
    }
}

#[test]
fn fringes_in_noise_and_of_few_channels_are_measured() {
    // The noise of each channel is as strong as the signal; the mean of 256 channels is 16 times stronger.
    for (channels, rms) in [(256, 1e4), (8, 1e3), (4, 10.0)] {
        let mut random = Random::new(4);
        for parameters in limited(20.0, 3e-10) {
            let (summary, result) = check_channels(&parameters, channels, |hz, a1, a2| {
                let signal = field(hz, a1, (0.0, 0.0)) * field(hz, a2, (0.0, 0.0)).conj();
                signal * 1e4 + noise(&mut random) * rms / 2_f64.sqrt()
            });
            assert_eq!(result, Ok(()), "{summary}");
        }
    }
}

#[test]
fn limits_need_three_channels() {
    // The lowest of several channels is left out.
    for channels in [1, 2, 3] {
        for parameters in limited(1.0, 1e-10) {
            let rejections = parameters.outputs(&[of_channels(channels)]).unwrap_err();
            assert_eq!(rejections.len(), 1, "{rejections:?}");
            assert!(rejections[0].message.contains("needs three channels"), "{rejections:?}");
        }
        let without = FringeCheck { max_phase_error_degrees: None, ..parameters() };
        assert!(without.outputs(&[of_channels(channels)]).is_ok());
    }
}

#[test]
fn one_polarisation_has_the_phases_of_two_and_numbers_of_antennas_are_shown() {
    let mut one = input();
    one.axes[2].len = 1;
    let labels = ["5-5", "5-2", "2-2", "5-9", "2-9", "9-9"];
    one.axes[1] = Axis::labelled("baseline", labels);
    let env = Env::detached("check");
    let ports = Ports { inputs: vec![one.clone()], outputs: vec![] };
    let block = parameters().build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 4).unwrap();
    harness.send(0, |frame| {
        frame.fill_validity(1);
        let (_, mut values) = frame.parts_mut::<[i32; 2]>().unwrap();
        for channel in 0..CHANNELS {
            let hz = channel as f64 * 856e6 / CHANNELS as f64;
            for (a1, a2) in [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)] {
                let delay = SKY.delay_seconds(PLACES[a1]) - SKY.delay_seconds(PLACES[a2]);
                let value = Complex64::cis(-TAU * hz * delay) * 1e6;
                values[0] = [value.re as i32, value.im as i32];
                values = &mut values[1..];
            }
        }
    });
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();
    let summary = env.summary.get();
    assert!(summary.contains("largest deviation 0.00 degrees"), "{summary}");
    assert!(["5-2 ", "5-9 ", "2-9 "].iter().all(|pair| summary.contains(pair)), "{summary}");
    one.axes[1] = Axis::labelled("baseline", (0..6).map(|n| format!("{n}-{n}")));
    let rejected = parameters().outputs(&[one]).unwrap_err();
    assert_eq!(rejected[0].message, "the baselines of the input must be all pairs of antennas");
}

#[test]
fn fringe_check_rejects_mismatched_inputs_and_parameters() {
    let mut bad = parameters();
    bad.antennas_enu_metres.pop();
    bad.applied_delays_seconds = vec![0.0];
    bad.max_phase_error_degrees = Some(-1.0);
    assert_eq!(bad.outputs(&[input()]).unwrap_err().len(), 3);
    let mut other = input();
    other.axes.pop();
    other.dtype = Dtype::Ci8;
    other.band = None;
    assert_eq!(parameters().outputs(&[other]).unwrap_err().len(), 3);
}

#[test]
fn visibilities_without_data_are_left_out_one_by_one() {
    let port = PortType { validity: ValidityType { axes: input().axes, full: 4 }, ..input() };
    let ports = Ports { inputs: vec![port], outputs: vec![] };
    let env = Env::detached("check");
    let block = FringeCheck { tracked: true, ..parameters() }.build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 4).unwrap();
    harness.send(0, |frame| {
        let (header, cells) = frame.parts_mut::<[[i32; 2]; 4]>().unwrap();
        header.validity.fill(4);
        cells.fill([[1_000_000, 0]; 4]);
        // Product 0 of half of the channels of each baseline has the value of missing data, which would turn the phase.
        for n in (0..cells.len()).filter(|n| n / 6 % 2 == 0) {
            header.validity[4 * n] = 0;
            cells[n][0] = [i32::MIN, 1 << 30];
        }
    });
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();
    assert!(env.summary.get().contains("largest deviation 0.00 degrees"), "{}", env.summary.get());
    let counters = env.counters.list();
    let count = |name: &str| counters.iter().find(|c| c.name == name).unwrap().counter.get();
    assert_eq!((count("baselines_missing"), count("visibilities_missing")), (0, 6 * 128));
}

#[test]
fn skipped_dumps_are_not_checked() {
    let skipping = |skip_dumps| FringeCheck { skip_dumps, ..parameters() };
    assert!(check(&skipping(0), 0.0, 30.0).1.is_err());
    let (summary, result) = check(&skipping(1), 0.0, 30.0);
    assert_eq!(result.unwrap_err(), "no visibilities arrived");
    assert_eq!(summary, "no visibilities arrived\n");
}

#[test]
fn fringe_check_rejects_one_antenna() {
    let mut one = input();
    one.axes[1] = Axis::new("baseline", 1);
    one.validity.axes[0].len = 1;
    let rejections = parameters().outputs(&[one]).unwrap_err();
    let messages: Vec<&str> = rejections.iter().map(|one| one.message.as_str()).collect();
    assert_eq!(messages, ["the input must have a baseline between two antennas, got one antenna"]);
}
