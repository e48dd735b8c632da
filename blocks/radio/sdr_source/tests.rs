//! Tests with a device whose clock is that of the test, and with the driver `dummy`.

mod device;

use super::device::{Arguments, Gain, Setting, find};
use super::{SdrSource, cpu};
use device::{Simulated, State};
use fxgraph::changes::When;
use fxgraph::edge::Harness;
use fxgraph::{Block, Env, Frame, KindSpec, Next, Ports, Sideband, Time};
use fxgraph_common::samples::ChannelAxis;
use num_complex::Complex32;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const RATE_HZ: f64 = 1e6;
const FRAME: usize = 4096;
const HEAP: usize = 512;
const CENTRE_HZ: f64 = 100e6;
/// Longest wait for frames.
const PATIENCE: Duration = Duration::from_mins(1);

fn parameters() -> SdrSource {
    SdrSource {
        device: "driver=rtlsdr, serial=7".to_owned(),
        channels: vec![0],
        channel_axis: ChannelAxis::Pol,
        adc_sample_rate_hz: RATE_HZ,
        centre_hz: CENTRE_HZ,
        sideband: Sideband::Upper,
        bandwidth_hz: None,
        gain_db: None,
        agc: None,
        antenna: None,
        samples_per_frame: Some(FRAME),
        samples_per_heap: HEAP,
        settle_seconds: 0.0,
        frames: None,
    }
}

fn source(parameters: &SdrSource, device: &Simulated, env: &Env) -> cpu::Source {
    let (sizes, _) = parameters.ports(&[]).unwrap();
    let (opened, clock) = (device.clone(), device.clone());
    cpu::Source::new(parameters.clone(), sizes, env)
        .with_device(Arc::new(move |_| opened.open()), Arc::new(move || clock.now()))
}

fn harness(parameters: &SdrSource, source: impl Block + 'static) -> Harness {
    let (_, outputs) = parameters.ports(&[]).unwrap();
    Harness::new(Box::new(source), &Ports { inputs: Vec::new(), outputs }, 256).unwrap()
}

/// A running block, its device and its environment.
struct Running {
    harness: Harness,
    device: Simulated,
    env: Env,
    /// Result of the last call of `work`.
    last: Result<Next, String>,
}

impl Running {
    fn start(parameters: &SdrSource, device: Simulated) -> Self {
        let env = Env::detached("radio");
        Self::start_in(parameters, device, env)
    }

    fn start_in(parameters: &SdrSource, device: Simulated, env: Env) -> Self {
        let mut source = source(parameters, &device, &env);
        source.start().unwrap();
        Self::of(parameters, source, device, env)
    }

    fn of(parameters: &SdrSource, source: cpu::Source, device: Simulated, env: Env) -> Self {
        Self { harness: harness(parameters, source), device, env, last: Ok(Next::Wait) }
    }

    fn step(&mut self) {
        if self.last == Ok(Next::Wait) {
            let next = Harness::block_on(self.harness.step());
            self.last = next.map_err(|error| error.to_string());
        }
    }

    /// Lets the device deliver `samples` more samples, once the thread has its frames.
    fn allow(&mut self, samples: usize) {
        self.step();
        self.device.allow(samples);
    }

    /// Takes `enough` frames.
    fn frames(&mut self, enough: usize) -> Vec<Arc<Frame>> {
        let (began, mut frames) = (Instant::now(), Vec::new());
        while frames.len() < enough {
            assert!(began.elapsed() < PATIENCE, "{} of {enough} frames", frames.len());
            if let Some(frame) = self.harness.receive(0) {
                frames.push(frame);
            } else {
                self.step();
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        frames
    }

    /// Calls `work` until it returns something else than `Wait`.
    fn end(&mut self) -> Result<Next, String> {
        let began = Instant::now();
        while self.last == Ok(Next::Wait) {
            assert!(began.elapsed() < PATIENCE);
            self.step();
            std::thread::sleep(Duration::from_micros(100));
        }
        self.last.clone()
    }

    fn counter(&self, name: &str) -> u64 {
        let all = self.env.counters.list();
        all.iter().find(|counter| counter.name == name).unwrap().counter.get()
    }

    fn gauge(&self, name: &str) -> f64 {
        let all = self.env.counters.gauges();
        all.iter().find(|gauge| gauge.name == name).unwrap().gauge.get().unwrap()
    }
}

/// Timestamps of the samples that `frames` lack, from the first frame on. Checks that each of the others has its place.
fn missing(frames: &[Arc<Frame>]) -> Vec<u64> {
    missing_after(0, frames)
}

/// The same after `discarded` samples of the device. The real part of a sample is its number.
fn missing_after(discarded: u64, frames: &[Arc<Frame>]) -> Vec<u64> {
    let mut missing = Vec::new();
    let mut next = frames[0].header().timestamp;
    for frame in frames {
        let start = frame.header().timestamp;
        missing.extend(next..start);
        next = start + FRAME as u64;
        let samples = frame.as_slice::<Complex32>().unwrap().chunks_exact(HEAP);
        for (heap, (samples, valid)) in samples.zip(&frame.header().validity).enumerate() {
            let first = start + (heap * HEAP) as u64;
            let numbers = first..first + HEAP as u64;
            if *valid == 0 {
                missing.extend(numbers);
                assert!(samples.iter().all(|sample| *sample == Complex32::default()));
            } else {
                for (number, sample) in numbers.zip(samples) {
                    assert_eq!(sample.re, (discarded + number) as f32);
                }
            }
        }
    }
    missing
}

#[test]
fn samples_have_their_place_and_the_time_of_the_first_is_known() {
    let device = Simulated::new(RATE_HZ);
    let mut running = Running::start(&parameters(), device);
    running.allow(10 * FRAME);
    let before = Time::now();
    let frames = running.frames(10);
    assert!(missing(&frames).is_empty());
    assert_eq!(frames[9].header().timestamp, 9 * FRAME as u64);
    let base = frames[0].header().base;
    let since = base.sync_time.unwrap().seconds_since(before).abs();
    assert!(since < PATIENCE.as_secs_f64() && base.uncertainty_seconds >= 0.0, "{since}");
    assert!(frames.iter().all(|frame| frame.header().base == base));
    assert_eq!((running.counter("samples_missing"), running.counter("device_opened")), (0, 1));
    assert_eq!(running.gauge("centre_hz"), CENTRE_HZ);
}

#[test]
fn channels_are_rows_of_a_frame() {
    let parameters = SdrSource {
        channels: vec![1, 0],
        channel_axis: ChannelAxis::Antenna,
        frames: Some(2),
        ..parameters()
    };
    let port = &parameters.ports(&[]).unwrap().1[0];
    let axes: Vec<_> = port.axes.iter().map(|axis| (axis.name, axis.len)).collect();
    assert_eq!(axes, [("antenna", 2), ("sample", FRAME)]);
    let mut running = Running::start(&parameters, Simulated::new(RATE_HZ));
    running.allow(3 * FRAME);
    let frames = running.frames(2);
    let samples = frames[1].as_slice::<Complex32>().unwrap();
    // The imaginary part has the number of the channel in thousands.
    assert_eq!((samples[5].re, samples[5].im), (FRAME as f32 + 5.0, 1100.0));
    assert_eq!((samples[FRAME].re, samples[FRAME].im), (FRAME as f32, 100.0));
    assert_eq!(running.end(), Ok(Next::Finished));
}

#[test]
fn overrun_is_missing_data_of_its_length() {
    let device = Simulated::new(RATE_HZ);
    device.set(|state| state.overruns = vec![(30_000, 70_123)]);
    let mut running = Running::start(&parameters(), device);
    running.allow(60 * FRAME);
    let frames = running.frames(30);
    let missing = missing(&frames);
    // The missing samples, and those of a transfer and 50 ms that show how many these are; both ends are within a heap.
    let gap = 70_123 + 256 + 50_000;
    // The overrun is reported in place of the next transfer of 256 samples.
    assert_eq!(missing[0], 30_208);
    assert!((gap..gap + 2 * HEAP + 256).contains(&missing.len()), "{}", missing.len());
    assert!(missing.windows(2).all(|pair| pair[1] == pair[0] + 1));
    let counted = running.counter("samples_missing") as usize;
    assert!((gap..gap + 256).contains(&counted), "{counted}");
    assert_eq!(running.counter("overruns"), 1);
}

#[test]
fn setting_within_an_overrun_takes_effect_after_it() {
    let device = Simulated::new(RATE_HZ);
    device.set(|state| state.overruns = vec![(30_000, 70_123)]);
    let env = Env::detached("radio");
    let parameters = parameters();
    let mut source = source(&parameters, &device, &env);
    source.start().unwrap();
    // In the frame in which the overrun begins.
    let value = Box::new(Setting::CentreHz(101e6));
    source.update(When::at(32_000).change(vec![("centre_hz", value)])).unwrap();
    let mut running = Running::of(&parameters, source, device, env);
    running.allow(60 * FRAME);
    running.frames(30);
    assert_eq!(running.gauge("centre_hz"), 101e6);
}

#[test]
fn gap_that_the_device_does_not_report_is_made_up_for() {
    let device = Simulated::new(RATE_HZ);
    device.set(|state| state.unreported = vec![(100_000, 40_000)]);
    let mut running = Running::start(&parameters(), device);
    let mut frames = Vec::new();
    for _ in 0..4 {
        running.allow(50 * FRAME);
        frames.extend(running.frames(40));
    }
    assert_eq!(running.counter("samples_missing").abs_diff(40_000), 0);
    // Timestamps are early by the gap until it is noticed, at most two windows of 250 ms later.
    let late = frames.partition_point(|frame| frame.header().timestamp < 100_000 + 540_000);
    assert!(missing(&frames[late..]).is_empty());
}

#[test]
fn setting_takes_effect_at_its_timestamp_and_settles() {
    let parameters = SdrSource { settle_seconds: 0.004, ..parameters() };
    let device = Simulated::new(RATE_HZ);
    let env = Env::detached("radio");
    let mut source = source(&parameters, &device, &env);
    source.start().unwrap();
    let at = 3 * FRAME as u64 + 700;
    let value = Box::new(Setting::CentreHz(101e6));
    source.update(When::at(at).change(vec![("centre_hz", value)])).unwrap();
    let mut running = Running::of(&parameters, source, device, env);
    running.allow(11 * FRAME);
    let frames = running.frames(10);
    let heap = HEAP as u64;
    let flagged = |from: u64| from / heap * heap..(from + 4000).div_ceil(heap) * heap;
    // The samples of the first 4 ms are discarded, in transfers of 256.
    let discarded = 4096;
    assert_eq!(missing_after(discarded, &frames), flagged(at).collect::<Vec<_>>());
    // The imaginary part is the centre frequency in MHz.
    let centre = |timestamp: u64| {
        let frame = &frames[(timestamp / FRAME as u64) as usize];
        frame.as_slice::<Complex32>().unwrap()[timestamp as usize % FRAME].im
    };
    assert_eq!(centre(at / heap * heap - 1), 100.0);
    assert_eq!(centre(flagged(at).end), 101.0);
    assert_eq!(
        running.device.get(|state| state.tuned_at.clone()),
        [(0, 100e6), (discarded + at, 101e6)]
    );
    assert_eq!(running.gauge("centre_hz"), 101e6);
    assert_eq!(running.counter("samples_settling"), 4000);
}

#[test]
fn setting_that_the_device_does_not_support_is_rejected_before_it_takes_effect() {
    let (device, env) = (Simulated::new(RATE_HZ), Env::detached("radio"));
    let mut source = source(&parameters(), &device, &env);
    source.start().unwrap();
    let mut offer = |name, setting: Setting| {
        let change = When::at(100).change(vec![(name, Box::new(setting))]);
        source.update(change).map_err(|error| error.to_string())
    };
    let stages = |name: &str| Gain::Stages(BTreeMap::from([(name.to_owned(), 10.0)]));
    let cases = [
        (
            "centre_hz",
            Setting::CentreHz(3e9),
            "`centre_hz` of the device `driver=rtlsdr, serial=7` must be between",
        ),
        ("gain_db", Setting::GainDb(Gain::Overall(80.0)), "must be between 0 and 50, got 80"),
        ("gain_db", Setting::GainDb(stages("VGA")), "must be one of LNA, got `VGA`"),
        ("antenna", Setting::Antenna("RX2".to_owned()), "must be one of RX, got `RX2`"),
        ("bandwidth_hz", Setting::BandwidthHz(1e6), "has no setting for `bandwidth_hz`"),
    ];
    for (name, setting, message) in cases {
        let rejected = offer(name, setting).unwrap_err();
        assert!(rejected.contains(message), "{rejected}");
    }
    offer("gain_db", Setting::GainDb(stages("LNA"))).unwrap();
    assert_eq!(device.get(|state| state.tuned_at.len()), 1);
}

#[test]
fn disconnected_device_is_a_fault_with_its_name_and_opens_again_in_another_time_base() {
    let device = Simulated::new(RATE_HZ);
    device.set(|state| state.disconnects_at = Some(2 * FRAME as u64 + 100));
    let mut running = Running::start(&parameters(), device.clone());
    running.allow(4 * FRAME);
    let frames = running.frames(2);
    assert!(missing(&frames).is_empty());
    let fault = "the device `driver=rtlsdr, serial=7` was disconnected".to_owned();
    assert_eq!(running.end(), Err(fault));
    // As `on_fault: restart` does: the same counters, another block.
    let env = running.env.clone();
    drop(running);
    device.set(|state| *state = State::new(RATE_HZ));
    let mut running = Running::start_in(&parameters(), device, env);
    running.allow(2 * FRAME);
    let header = running.frames(1)[0].header().clone();
    assert_eq!((header.timestamp, header.base.from), (1 << 48, 1 << 48));
    assert_eq!(running.counter("device_opened"), 2);
}

#[test]
fn device_that_cannot_be_used_fails_the_start_with_the_cause() {
    let start = |parameters: &SdrSource, device: &Simulated| {
        let mut source = source(parameters, device, &Env::detached("radio"));
        let error = source.start().unwrap_err();
        fxgraph::error::with_causes(&error)
    };
    let device = Simulated::new(RATE_HZ);
    device.set(|state| state.rate_error = 0.02);
    let rejected = start(&parameters(), &device);
    assert!(rejected.contains("samples at 1020000 Hz and not at 1000000 Hz"), "{rejected}");
    assert!(rejected.contains("set `adc_sample_rate_hz: 1020000`"), "{rejected}");
    let device = Simulated::new(RATE_HZ);
    let rejected = start(&SdrSource { channels: vec![2], ..parameters() }, &device);
    assert!(rejected.contains("`channels` must be less than 2"), "{rejected}");
    let rejected = start(&SdrSource { adc_sample_rate_hz: 5e6, ..parameters() }, &device);
    assert!(rejected.contains("its rates are between 250000 and 3200000 Hz"), "{rejected}");
    device.set(|state| state.is_absent = true);
    let rejected = start(&parameters(), &device);
    assert!(rejected.contains("no device is `driver=rtlsdr, serial=7`"), "{rejected}");
}

#[test]
fn rate_within_the_error_of_an_oscillator_is_accepted_and_shown() {
    let device = Simulated::new(RATE_HZ);
    device.set(|state| state.rate_error = 5e-7);
    let running = Running::start(&parameters(), device);
    assert_eq!(running.gauge("sample_rate_hz"), RATE_HZ * (1.0 + 5e-7));
}

#[test]
fn slow_reader_drops_whole_frames_and_timestamps_go_on() {
    let mut running = Running::start(&parameters(), Simulated::new(RATE_HZ));
    running.allow(400 * FRAME);
    let began = Instant::now();
    while running.device.get(|state| state.allowed) > 0 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    running.allow(2 * FRAME);
    let frames = running.frames(62);
    assert!(running.counter("frames_dropped") > 0);
    assert!(missing(&frames).len().is_multiple_of(FRAME));
    assert_eq!(running.counter("samples_missing"), 0);
}

#[test]
fn dummy_delivers_zeros_and_waits_for_its_readers() {
    let parameters = SdrSource {
        device: "driver=dummy".to_owned(),
        frames: Some(20),
        gain_db: Some(Gain::Overall(20.0)),
        antenna: Some("A".to_owned()),
        ..parameters()
    };
    let env = Env::detached("radio");
    let mut source = cpu::Source::new(parameters.clone(), parameters.ports(&[]).unwrap().0, &env);
    source.start().unwrap();
    let mut running = Running::of(&parameters, source, Simulated::new(RATE_HZ), env);
    let frames = running.frames(20);
    for (number, frame) in frames.iter().enumerate() {
        assert_eq!(frame.header().timestamp, (number * FRAME) as u64);
        assert!(frame.header().validity.iter().all(|valid| *valid == 1));
    }
    assert_eq!(running.counter("frames_dropped"), 0);
    assert_eq!(running.end(), Ok(Next::Finished));
}

#[test]
fn arguments_without_a_driver_of_this_program_are_rejected() {
    for (text, message) in [
        ("", "`device` must be `driver=NAME, key=value, ...`, got ``"),
        ("serial=7", "must be `driver=NAME"),
        ("driver=rtlsdr, serial", "must be `driver=NAME"),
        ("driver=radio", "must be one of bladerf, hackrf"),
        ("driver=usrp", "whose devices `driver=soapy, soapy_driver=uhd` has"),
        #[cfg(not(feature = "soapysdr"))]
        ("driver=soapy", "needs a program built with `--features soapysdr`"),
    ] {
        let rejected = Arguments::read(text).unwrap_err();
        assert!(rejected.contains(message), "{rejected}");
        let rejections = SdrSource { device: text.to_owned(), ..parameters() }.ports(&[]).err();
        assert_eq!(rejections.unwrap()[0].message, rejected);
    }
    assert!(Arguments::read("driver=hackrfone, serial='a b'").is_ok());
}

#[test]
fn parameters_out_of_range_are_rejected_by_name() {
    let wrong = SdrSource {
        channels: vec![0, 0],
        adc_sample_rate_hz: f64::NAN,
        centre_hz: -1.0,
        gain_db: Some(Gain::Overall(f64::INFINITY)),
        samples_per_frame: Some(HEAP + 1),
        ..parameters()
    };
    let rejections = wrong.ports(&[]).err().unwrap();
    let messages: Vec<_> = rejections.iter().map(|rejection| rejection.message.as_str()).collect();
    for name in ["channels", "adc_sample_rate_hz", "centre_hz", "gain_db", "samples_per_frame"] {
        assert!(messages.iter().any(|text| text.starts_with(&format!("`{name}`"))), "{messages:?}");
    }
}

#[test]
fn every_driver_looks_for_devices() {
    let found = find();
    assert!(found.iter().any(|found| found.driver == "rtlsdr"));
    assert!(found.iter().all(|found| found.driver != "dummy"));
}
