#[path = "silent_tests.rs"]
mod silent;
#[path = "weak_tests.rs"]
mod weak;

use super::settings::Settings;
use super::{GainSolver, Mode};
use fxgraph::edge::Harness;
use fxgraph::event::{EventKind, Events};
use fxgraph::live_updates::{Controller, InForce};
use fxgraph::{Axis, Band, Clock, Dtype, Env, KindSpec, Next, PortType, Ports, ValidityType};
use fxgraph_dsp::geometry::Direction;
use fxgraph_dsp::random::Random;
use num_complex::{Complex32, Complex64};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// ADC samples of a dump, which is so long that its noise is below the accuracy that the tests need: 1e-6 of an amplitude.
const STEP: u64 = 1_000_000_000_000;
/// Products of samples in a visibility of one channel, for each count of its validity.
const PRODUCTS_PER_COUNT: f64 = 1e6 * 2.5e6 / 8.0;
const CHANNELS: usize = 4;
const ANTENNAS: usize = 4;

fn input() -> PortType {
    let baseline = Axis::new("baseline", ANTENNAS * (ANTENNAS + 1) / 2);
    PortType {
        dtype: Dtype::Cf32,
        axes: vec![Axis::new("channel", CHANNELS), baseline.clone(), Axis::new("product", 4)],
        clock: Clock::new(1e6, STEP),
        band: Some(Band::signed(CHANNELS, 0, 1e8, 1e7)),
        validity: ValidityType { axes: vec![baseline], full: 8 },
    }
}

fn parameters() -> GainSolver {
    GainSolver {
        targets: vec!["f[*]".to_owned()],
        channels: None,
        dumps: 1,
        reference_antenna: None,
        false_detection_probability: 1e-5,
        silent_solutions: 3,
        flag_antennas_in: None,
        max_amplitude_step: 2.0,
        max_amplitude_change: 10.0,
        loop_gain: 1.0,
        drift_per_hour: 0.0,
        mode: Mode::Complex,
        min_antennas: 3,
        iterations: 200,
        tolerance: 1e-9,
        antennas_enu_metres: vec![],
        source: None,
        max_phase_error_degrees: None,
        max_amplitude_error: None,
    }
}

/// F-engines whose gains are set by updates.
#[derive(Default)]
struct Engines {
    gains: Mutex<BTreeMap<String, Value>>,
    /// Flagged antennas of the block `array`.
    flagged: Mutex<Vec<u32>>,
    from: Mutex<u64>,
    /// Effective timestamp of the next update, or the reason why it is rejected.
    next: Mutex<Option<Result<u64, String>>>,
    /// Number of dumps that have begun; with it updates need no `next`, and take effect with the next dump.
    begun: Mutex<Option<u64>>,
}

impl Controller for Engines {
    fn update(&self, parameters: &Value) -> Result<u64, String> {
        let begun = self.begun.lock().unwrap();
        if let Some(begun) = *begun {
            return Ok(self.set(parameters, begun * STEP));
        }
        drop(begun);
        loop {
            if let Some(next) = self.next.lock().unwrap().take() {
                return next.map(|from| self.set(parameters, from));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn in_force(&self, blocks: &[String], parameter: &str) -> Option<InForce> {
        let gains = self.gains.lock().unwrap();
        let value = |name: &String| match (name.as_str(), parameter) {
            ("array", "flagged_antennas") => Some(json!(*self.flagged.lock().unwrap())),
            (_, "gains") => gains.get(name).cloned(),
            _ => panic!("{name}.{parameter}"),
        };
        let values = blocks.iter().map(value).collect();
        Some(InForce { values, from: *self.from.lock().unwrap() })
    }
}

impl Engines {
    /// Sets parameters from a timestamp on, and returns it.
    fn set(&self, parameters: &Value, from: u64) -> u64 {
        let mut gains = self.gains.lock().unwrap();
        for (name, given) in parameters.as_object().unwrap() {
            if name == "array" {
                let flagged = given["flagged_antennas"].clone();
                *self.flagged.lock().unwrap() = serde_json::from_value(flagged).unwrap();
                continue;
            }
            gains.insert(name.clone(), given["gains"].clone());
        }
        *self.from.lock().unwrap() = from;
        from
    }

    /// Gain of an antenna, polarisation and channel.
    fn gain(&self, antenna: usize, pol: usize, channel: usize) -> Complex64 {
        gain_in(&self.gains.lock().unwrap(), antenna, pol, channel)
    }
}

fn gain_in(
    gains: &BTreeMap<String, Value>,
    antenna: usize,
    pol: usize,
    channel: usize,
) -> Complex64 {
    let Some(gains) = gains.get(&format!("f[{antenna}]")) else { return Complex64::ONE };
    let gain = match &gains[pol] {
        Value::Array(channels) => &channels[channel],
        gain => gain,
    };
    Complex64::new(gain["re"].as_f64().unwrap(), gain["im"].as_f64().unwrap())
}

struct Bench {
    harness: Harness,
    engines: Arc<Engines>,
    env: Env,
    events: Arc<Events>,
    dump: u64,
    /// Gain of each antenna, polarisation and channel before the F-engine.
    truth: fn(usize, usize, usize) -> Complex64,
    missing: Option<usize>,
    /// Noise of the visibilities, which all have the same number of products.
    noise: Option<Random>,
    antennas: usize,
    pols: usize,
    stops: Box<dyn Fn(usize, usize) -> Complex64>,
}

impl Bench {
    fn new(kind: &GainSolver, truth: fn(usize, usize, usize) -> Complex64) -> Self {
        Self::of_pols(2, kind, truth)
    }

    fn of_pols(
        pols: usize,
        kind: &GainSolver,
        truth: fn(usize, usize, usize) -> Complex64,
    ) -> Self {
        let mut input = input();
        input.axes[2].len = pols * pols;
        Self::of(input, pols, kind, truth)
    }

    fn of(
        input: PortType,
        pols: usize,
        kind: &GainSolver,
        truth: fn(usize, usize, usize) -> Complex64,
    ) -> Self {
        let outputs = kind.outputs(std::slice::from_ref(&input)).unwrap();
        let antennas = outputs[0].axes[0].len;
        let ports = Ports { inputs: vec![input], outputs };
        let (env, engines) = (Env::detached("solver"), Arc::<Engines>::default());
        let events = Arc::new(Events::default());
        env.events.redirect(Some((Arc::clone(&events), "solver".to_owned())));
        env.updates.serve(Arc::clone(&engines) as Arc<dyn Controller>);
        let harness = Harness::new(kind.build(&ports.inputs, &env).unwrap(), &ports, 4).unwrap();
        let stops = Box::new(|_, _| Complex64::ONE);
        Self {
            harness,
            engines,
            env,
            events,
            dump: 0,
            truth,
            missing: None,
            noise: None,
            antennas,
            pols,
            stops,
        }
    }

    /// Texts of all events.
    fn texts(&self) -> Vec<String> {
        self.events.since(0).into_iter().map(|event| event.text).collect()
    }

    /// Antenna that replaces reference antenna 0 in a polarisation, by its event.
    fn replaced(&self, pol: usize) -> usize {
        let says = |new: &usize| {
            let text = format!(
                "the reference antenna 0 has no signal in polarisation {pol}: antenna {new} replaces it"
            );
            self.texts().contains(&text)
        };
        (0..ANTENNAS).find(says).unwrap()
    }

    fn counter(&self, name: &str) -> u64 {
        let list = self.env.counters.list();
        list.into_iter().find(|named| named.name == name).unwrap().counter.get()
    }

    /// Sends a dump with the gains in force, and returns the solution.
    fn dump(&mut self) -> Option<(Vec<Complex32>, Vec<u32>)> {
        let in_force = {
            let mut begun = self.engines.begun.lock().unwrap();
            begun.iter_mut().for_each(|begun| *begun = self.dump + 1);
            self.engines.gains.lock().unwrap().clone()
        };
        let gain = |antenna: usize, pol: usize, channel: usize| {
            let own =
                (self.truth)(antenna, pol, channel) * gain_in(&in_force, antenna, pol, channel);
            own * (self.stops)(antenna, channel)
        };
        let mut values = Vec::new();
        let mut validity = Vec::new();
        for channel in 0..CHANNELS {
            for a2 in 0..self.antennas {
                for a1 in 0..=a2 {
                    let is_missing = self.missing.is_some_and(|a| a == a1 || a == a2);
                    let count = match self.noise {
                        _ if is_missing => 0,
                        Some(_) => 2,
                        None => 1 + (a1 + a2) % 3,
                    };
                    if channel == 0 {
                        validity.push(count as u32);
                    }
                    for n in 0..self.pols * self.pols {
                        let (p1, p2) = (n % self.pols, n / self.pols);
                        let mut value =
                            100.0 * gain(a1, p1, channel) * gain(a2, p2, channel).conj();
                        if a1 == a2 {
                            value += 100.0;
                        } else if let Some(random) = &mut self.noise {
                            // The source is weak: the visibilities have the noise of the receivers, 100.
                            let [re, im] = random.normal_pair();
                            let variance = 100.0_f64.powi(2) / (PRODUCTS_PER_COUNT * count as f64);
                            value += Complex64::new(re, im) * (variance / 2.0).sqrt();
                        }
                        value *= count as f64;
                        values.push(Complex32::new(value.re as f32, value.im as f32));
                    }
                }
            }
        }
        let timestamp = self.dump * STEP;
        self.dump += 1;
        self.harness.send(0, |frame| {
            frame.header_mut().timestamp = timestamp;
            frame.header_mut().validity.copy_from_slice(&validity);
            frame.as_mut_slice::<Complex32>().unwrap().copy_from_slice(&values);
        });
        assert_eq!(Harness::block_on(self.harness.run()).unwrap(), Next::Wait);
        let frame = self.harness.receive(0)?;
        let values = frame.as_slice::<Complex32>().unwrap().to_vec();
        Some((values, frame.header().validity.clone()))
    }

    /// Lets the next update have this result, and waits for it.
    fn answer(&mut self, result: Result<u64, String>) {
        let counted = |bench: &Self| bench.counter("updates") + bench.counter("updates_rejected");
        let (before, began) = (counted(self), Instant::now());
        *self.engines.next.lock().unwrap() = Some(result);
        while counted(self) == before {
            assert!(began.elapsed() < Duration::from_mins(1));
            std::thread::sleep(Duration::from_millis(1));
            Harness::block_on(self.harness.run()).unwrap();
        }
    }

    /// Differences of all gains in force from gains that leave no error, relative to antenna 0.
    fn error(&self) -> f64 {
        let mut worst: f64 = 0.0;
        for pol in 0..self.pols {
            for channel in 1..CHANNELS {
                let total = |antenna| {
                    (self.truth)(antenna, pol, channel) * self.engines.gain(antenna, pol, channel)
                };
                for antenna in 1..ANTENNAS {
                    let ratio: Complex64 = total(antenna) / total(0);
                    // The phase of antenna 0 is part of the truth that stays.
                    let phase = (self.truth)(0, pol, channel).arg();
                    let reference = Complex64::cis(phase) / Complex64::cis(total(0).arg());
                    worst = worst.max((ratio - 1.0).norm()).max((reference - 1.0).norm());
                }
            }
        }
        worst
    }
}

fn of_antenna(antenna: usize, pol: usize, _: usize) -> Complex64 {
    Complex64::from_polar([1.0, 0.7, 1.4, 1.1][antenna], 1.9 * (antenna + 2 * pol) as f64)
}

fn of_channel(antenna: usize, pol: usize, channel: usize) -> Complex64 {
    of_antenna(antenna, pol, channel) * Complex64::from_polar(1.0, (antenna * channel) as f64)
}

#[test]
fn one_polarisation_has_the_solutions_and_updates_of_the_first_of_two() {
    let mut two = Bench::of_pols(2, &parameters(), of_antenna);
    let mut one = Bench::of_pols(1, &parameters(), of_antenna);
    for is_first in [true, false] {
        let (of_two, of_one) = (two.dump().unwrap(), one.dump().unwrap());
        let firsts: Vec<Complex32> = of_two.0.iter().step_by(2).copied().collect();
        assert_eq!((of_one.0, of_one.1), (firsts, vec![1; ANTENNAS]));
        if is_first {
            two.answer(Ok(STEP));
            one.answer(Ok(STEP));
        }
    }
    assert!(one.error() < 1e-5, "{}", one.error());
    let gains = one.engines.gains.lock().unwrap();
    assert!(gains.values().all(|gains| gains.as_array().unwrap().len() == 1), "{gains:?}");
}

#[test]
fn selected_baselines_are_rejected() {
    let mut selected = input();
    // As many as all pairs of 4 antennas.
    selected.axes[1] = Axis::labelled("baseline", (0..10).map(|n| format!("{n}-{n}")));
    let rejected = parameters().outputs(&[selected]).unwrap_err();
    assert!(rejected[0].message.contains("not those of all pairs"), "{}", rejected[0].message);
}

#[test]
fn phase_mode_corrects_phases_and_leaves_amplitudes() {
    let mut bench = Bench::new(&GainSolver { mode: Mode::Phase, ..parameters() }, of_antenna);
    bench.dump().unwrap();
    bench.answer(Ok(STEP));
    let wrapped = |angle: f64| Complex64::cis(angle).arg();
    for (antenna, pol) in (0..4).flat_map(|antenna| [(antenna, 0), (antenna, 1)]) {
        let gain = bench.engines.gain(antenna, pol, 0);
        assert!((gain.norm() - 1.0).abs() < 1e-6, "{gain}");
        // The phase of antenna 0 stays.
        let expected = of_antenna(0, pol, 0).arg() - of_antenna(antenna, pol, 0).arg();
        assert!(wrapped(gain.arg() - expected).abs() < 1e-5, "{antenna} {pol} {gain}");
    }
    // The solution has the amplitudes still, relative to their geometric mean.
    let mean = (0.7_f64 * 1.4 * 1.1).powf(0.25);
    let (gains, _) = bench.dump().unwrap();
    for (gain, amplitude) in gains.chunks_exact(2).zip([1.0, 0.7, 1.4, 1.1]) {
        assert!(gain.iter().all(|g| (g - (amplitude / mean) as f32).norm() < 1e-4), "{gains:?}");
    }
}

#[test]
fn one_update_removes_the_errors_with_a_loop_gain_of_1() {
    for (channels, truth) in [(None, of_antenna as fn(_, _, _) -> _), (Some(1), of_channel)] {
        let mut bench = Bench::new(&GainSolver { channels, ..parameters() }, truth);
        let (gains, validity) = bench.dump().unwrap();
        assert!(validity.iter().all(|valid| *valid == 1));
        let mean = (0.7_f64 * 1.4 * 1.1).powf(0.25);
        let expected = of_antenna(1, 1, 0) / Complex64::cis(of_antenna(0, 1, 0).arg()) / mean;
        let groups = channels.map_or(1, |_| CHANNELS);
        let found = gains[3 * groups];
        assert!((found.re - expected.re as f32).hypot(found.im - expected.im as f32) < 1e-4);
        bench.answer(Ok(STEP));
        assert!(bench.error() < 1e-5, "{channels:?} {}", bench.error());
        let (gains, _) = bench.dump().unwrap();
        assert!(gains.iter().all(|gain| (gain - 1.0).norm() < 1e-4), "{gains:?}");
    }
}

#[test]
fn each_update_removes_the_fraction_loop_gain_of_the_errors() {
    let mut bench = Bench::new(&GainSolver { loop_gain: 0.5, ..parameters() }, |antenna, _, _| {
        Complex64::cis(0.4 * antenna as f64)
    });
    for n in 1..=3 {
        bench.dump().unwrap();
        bench.answer(Ok(bench.dump * STEP));
        let phase = (bench.engines.gain(2, 0, 0) / bench.engines.gain(0, 0, 0)).arg();
        assert!((phase + 0.8 * (1.0 - 0.5_f64.powi(n))).abs() < 1e-5, "{n}: {phase}");
    }
}

#[test]
fn dumps_before_the_effective_timestamp_are_ignored() {
    let mut bench = Bench::new(&parameters(), of_antenna);
    assert!(bench.dump().is_some());
    // The update is not made yet.
    assert!(bench.dump().is_none());
    bench.answer(Ok(4 * STEP));
    assert!(bench.dump().is_none());
    assert!(bench.dump().is_none());
    assert!(bench.dump().is_some());
    assert_eq!(["dumps_ignored", "updates"].map(|name| bench.counter(name)), [3, 1]);
    assert_eq!(bench.counter("solutions"), 4);
}

#[test]
fn sums_of_several_dumps_begin_again_after_a_change_by_a_client() {
    let mut bench = Bench::new(&GainSolver { dumps: 3, ..parameters() }, of_antenna);
    assert!(bench.dump().is_none());
    assert!(bench.dump().is_none());
    *bench.engines.from.lock().unwrap() = 2 * STEP;
    assert!(bench.dump().is_none());
    assert!(bench.dump().is_none());
    assert!(bench.dump().is_some());
    assert_eq!(bench.counter("dumps_ignored"), 2);
}

#[test]
fn rejected_update_is_counted_and_reported_once() {
    let mut bench = Bench::new(&parameters(), of_antenna);
    for _ in 0..3 {
        bench.dump().unwrap();
        bench.answer(Err("`f[2]` did not answer".to_owned()));
    }
    assert_eq!(["updates_rejected", "updates"].map(|name| bench.counter(name)), [3, 0]);
    let events = bench.events.since(0);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].kind, EventKind::Warning);
    assert_eq!(events[0].text, "the gains were not updated: `f[2]` did not answer");
}

#[test]
fn antenna_without_data_keeps_its_gains() {
    let mut bench = Bench::new(&parameters(), of_antenna);
    bench.missing = Some(3);
    let (_, validity) = bench.dump().unwrap();
    assert_eq!(validity, [1, 1, 1, 1, 1, 1, 0, 0]);
    bench.answer(Ok(STEP));
    assert!((bench.engines.gain(3, 0, 0) - 1.0).norm() < 1e-9);
    let mut bench = Bench::new(&parameters(), of_antenna);
    // Another antenna replaces the reference antenna: the one with the most significant gains.
    bench.missing = Some(0);
    let (_, validity) = bench.dump().unwrap();
    assert_eq!(validity, [0, 0, 1, 1, 1, 1, 1, 1]);
    bench.answer(Ok(STEP));
    assert!((bench.engines.gain(0, 0, 0) - 1.0).norm() < 1e-9);
    let new = bench.replaced(0);
    assert!(new != 0 && bench.engines.gain(new, 0, 0).arg().abs() < 1e-6);
    assert_eq!(bench.texts().len(), 2);
}

#[test]
fn fringes_of_a_source_that_is_not_tracked_are_stopped() {
    let places = vec![[0.0; 3], [10.0, 3.0, 0.0], [-7.0, 20.0, 1.0], [30.0, -5.0, 0.0]];
    let source = Direction { azimuth_degrees: 40.0, elevation_degrees: 60.0 };
    let kind =
        GainSolver { antennas_enu_metres: places.clone(), source: Some(source), ..parameters() };
    let mut bench = Bench::new(&kind, of_antenna);
    bench.stops = Box::new(move |antenna, channel| {
        let hz = input().band.unwrap().channel_hz(channel);
        let turns = hz * source.delay_seconds(places[antenna]);
        Complex64::cis(-std::f64::consts::TAU * turns)
    });
    bench.dump().unwrap();
    bench.answer(Ok(STEP));
    assert!(bench.error() < 1e-5, "{}", bench.error());
}

#[test]
fn run_fails_at_its_end_if_the_last_errors_are_too_large() {
    let kind = GainSolver { max_phase_error_degrees: Some(0.5), ..parameters() };
    let mut bench = Bench::new(&kind, of_antenna);
    bench.dump().unwrap();
    bench.harness.end(0);
    let error = Harness::block_on(bench.harness.run()).unwrap_err().to_string();
    assert!(error.starts_with("the largest error of a phase is"), "{error}");
    let mut bench = Bench::new(&kind, of_antenna);
    bench.harness.end(0);
    let error = Harness::block_on(bench.harness.run()).unwrap_err().to_string();
    assert_eq!(error, "there is no solution");
}

#[test]
fn settings_keep_their_spelling_where_they_can() {
    let twice = [Complex64::new(2.0, 0.0), Complex64::I];
    let corrected = |value: Option<Value>, of_group| {
        Settings::read(value).and_then(|settings| settings.corrected(&twice, 2, of_group))
    };
    let gain = |re: f32, im: f32| json!({"re": re, "im": im});
    assert_eq!(corrected(None, 4).unwrap(), json!([gain(2.0, 0.0), gain(0.0, 1.0)]));
    assert_eq!(
        corrected(Some(json!([1, [1, {"re": 0, "im": 1}]])), 2).unwrap(),
        json!([gain(2.0, 0.0), [gain(0.0, 1.0), gain(-1.0, 0.0)]])
    );
    assert_eq!(corrected(Some(json!([1])), 1).unwrap_err(), "`gains` has no polarisation 1");
    assert_eq!(corrected(Some(json!(3e38)), 1).unwrap_err(), "the corrected gain is not finite");
    let twice = [twice, twice].concat();
    let settings = Settings::read(Some(json!([[1, 1, 1], 1]))).unwrap();
    assert_eq!(settings.corrected(&twice, 2, 2).unwrap_err(), "`gains` has 3 channels, not 4");
}

#[test]
fn logarithm_of_settings_is_that_of_the_group() {
    let gains = json!([[1, 1, {"re": 0, "im": 2}, {"re": 0, "im": 2}], 3, 0]);
    let settings = Settings::read(Some(gains)).unwrap();
    let [ln_2, quarter] = [2_f64.ln(), std::f64::consts::FRAC_PI_2];
    for (pol, group, expected) in [
        (0, 0, Some(Complex64::ZERO)),
        (0, 1, Some(Complex64::new(ln_2, quarter))),
        (1, 1, Some(Complex64::new(3_f64.ln(), 0.0))),
        (2, 0, None),
        (3, 0, None),
    ] {
        let found = settings.logarithm(pol, group, 2);
        let distance = found.zip(expected).map_or(0.0, |(one, two)| (one - two).norm());
        assert!(found.is_some() == expected.is_some() && distance < 1e-12, "{pol} {found:?}");
    }
}

#[test]
fn gain_solver_rejects_targets_and_antennas_that_do_not_fit() {
    let messages = |kind: GainSolver| {
        let rejections = kind.outputs(&[input()]).unwrap_err();
        rejections.into_iter().map(|rejection| rejection.message).collect::<Vec<_>>()
    };
    let targets = ["a", "b", "a"].map(str::to_owned).to_vec();
    assert_eq!(
        messages(GainSolver {
            targets: targets.clone(),
            reference_antenna: Some(4),
            ..parameters()
        }),
        [
            "`targets` must have 4 blocks, one for each antenna, got 3",
            "`reference_antenna` must name antennas of the array by their numbers, got 4"
        ]
    );
    let targets = [targets, vec!["c".to_owned()]].concat();
    assert_eq!(
        messages(GainSolver { targets, channels: Some(3), ..parameters() }),
        [
            "`targets` must be different blocks, got `a` again as number 2",
            "`channels` must divide the 4 channels of the input, got 3"
        ]
    );
}
