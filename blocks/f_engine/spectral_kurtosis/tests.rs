use super::*;
use fxgraph::changes::Undecided;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, Frame, Ports, ValidityType};
use fxgraph_dsp::random::Random;
use std::sync::Arc;

/// Sizes and layout of a test's input.
#[derive(Clone, Copy)]
struct Input {
    heaps: usize,
    antennas: Option<usize>,
    channels: usize,
    spectra: usize,
    pols: usize,
    k_major: bool,
    dtype: Dtype,
    by_channel: bool,
}

const INPUT: Input = Input {
    heaps: 1,
    antennas: None,
    channels: 8,
    spectra: 256,
    pols: 2,
    k_major: false,
    dtype: Dtype::Ci8,
    by_channel: false,
};

/// Place of a sample: heap, antenna, channel, spectrum, polarisation.
type Place = [usize; 5];

impl Input {
    fn port(&self) -> PortType {
        let heap = [("heap", Some(self.heaps)), ("antenna", self.antennas)];
        let (pol, spectrum) = (("pol", Some(self.pols)), ("spectrum", Some(self.spectra)));
        let last = if self.k_major { [pol, spectrum] } else { [spectrum, pol] };
        let channel = ("channel", Some(self.channels));
        let axes = |list: Vec<(&'static str, Option<usize>)>| -> Vec<Axis> {
            list.into_iter().filter_map(|(name, len)| Some(Axis::new(name, len?))).collect()
        };
        let mut validity = heap.to_vec();
        if self.by_channel {
            validity.extend([channel, pol]);
        }
        PortType {
            dtype: self.dtype,
            axes: axes([&heap[..], &[channel], &last].concat()),
            clock: Clock::new(1e6, (self.heaps * self.spectra * 2 * self.channels) as u64),
            band: None,
            validity: ValidityType::flags(axes(validity)),
        }
    }

    /// ADC samples of a heap.
    fn step(&self) -> u64 {
        (self.spectra * 2 * self.channels) as u64
    }

    /// Index of a sample in the payload.
    fn index(&self, [heap, antenna, channel, spectrum, pol]: Place) -> usize {
        let row = (heap * self.antennas.unwrap_or(1) + antenna) * self.channels + channel;
        let [spectra, pols] = [self.spectra, self.pols];
        let within = if self.k_major { pol * spectra + spectrum } else { spectrum * pols + pol };
        row * spectra * pols + within
    }

    fn places(self) -> impl Iterator<Item = Place> {
        let lengths =
            [self.heaps, self.antennas.unwrap_or(1), self.channels, self.spectra, self.pols];
        (0..lengths.iter().product()).map(move |mut index| {
            let mut place = [0; 5];
            for (place, len) in place.iter_mut().zip(lengths).rev() {
                *place = index % len;
                index /= len;
            }
            place
        })
    }

    /// Payload of the values of `value`.
    fn payload(&self, mut value: impl FnMut(Place) -> [i8; 2]) -> Vec<u8> {
        let bytes = self.dtype.bytes(1);
        let mut payload = vec![0; self.port().frame_bytes()];
        for place in self.places() {
            let [re, im] = value(place);
            let at = self.index(place) * bytes;
            if bytes == 1 {
                payload[at] = (re.cast_unsigned() << 4) | (im.cast_unsigned() & 15);
            } else {
                payload[at..at + 2].copy_from_slice(&[re, im].map(i8::cast_unsigned));
            }
        }
        payload
    }

    /// Whether the sample at `place` is 0.
    fn is_zero(&self, payload: &[u8], place: Place) -> bool {
        let bytes = self.dtype.bytes(1);
        payload[self.index(place) * bytes..][..bytes].iter().all(|byte| *byte == 0)
    }
}

/// Quantised complex noise; `rms` of each part.
fn noise(random: &mut Random, rms: f64, most: f64) -> [i8; 2] {
    random.normal_pair().map(|part| (part * rms).round_ties_even().clamp(-most, most) as i8)
}

fn kind(false_alarm_probability: f64) -> SpectralKurtosis {
    SpectralKurtosis { false_alarm_probability, channels_always_flagged: Vec::new(), enabled: true }
}

/// A block in a harness.
struct Run {
    harness: Harness,
    env: Env,
    timestamp: u64,
    step: u64,
}

impl Run {
    fn new(kind: &SpectralKurtosis, input: Input) -> Self {
        Self::with_updates(kind, input, Vec::new())
    }

    /// A block with live updates at these timestamps.
    fn with_updates(
        kind: &SpectralKurtosis,
        input: Input,
        updates: Vec<(u64, &'static str, Live)>,
    ) -> Self {
        let port = input.port();
        let outputs = kind.outputs(std::slice::from_ref(&port)).unwrap();
        let step = port.clock.samples_per_frame;
        let ports = Ports { inputs: vec![port], outputs };
        let env = Env::detached("flag");
        let mut block = kind.build(&ports.inputs, &env).unwrap();
        for (at, name, value) in updates {
            let moment = Undecided::new();
            block.update(moment.when().change(vec![(name, Box::new(value))])).unwrap();
            moment.decide(at);
        }
        let harness = Harness::new(block, &ports, 1).unwrap();
        Self { harness, env, timestamp: 0, step }
    }

    fn frame(&mut self, payload: &[u8], valid: &[u32]) -> Arc<Frame> {
        let timestamp = self.timestamp;
        self.timestamp += self.step;
        self.harness.send(0, |frame| {
            frame.header_mut().timestamp = timestamp;
            frame.header_mut().validity.copy_from_slice(valid);
            frame.as_mut_slice::<u8>().unwrap().copy_from_slice(payload);
        });
        Harness::block_on(self.harness.run()).unwrap();
        self.harness.receive(0).unwrap()
    }

    fn count(&self, name: &str) -> u64 {
        let all = self.env.counters.list();
        all.iter().find(|named| named.name == name).unwrap().counter.get()
    }
}

#[test]
fn noise_is_flagged_with_the_requested_probability() {
    const PROBABILITY: f64 = 0.01;
    let input = Input { heaps: 4, channels: 1024, spectra: 128, ..INPUT };
    let mut run = Run::new(&kind(PROBABILITY), input);
    let mut random = Random::new(5);
    for _ in 0..4 {
        let payload = input.payload(|_| noise(&mut random, 20.0, 127.0));
        run.frame(&payload, &[1; 4]);
    }
    let units = f64::from(4 * 4 * 1024 * 2);
    let sigma = (units * PROBABILITY * (1.0 - PROBABILITY)).sqrt();
    for tail in ["units_flagged_low", "units_flagged_high"] {
        let off = run.count(tail) as f64 - units * PROBABILITY;
        assert!(off.abs() < 5.0 * sigma, "{tail}: {off}, sigma {sigma}");
    }
    let fraction = run.env.counters.gauges()[0].gauge.get().unwrap();
    assert!((0.01..0.03).contains(&fraction), "{fraction}");
}

/// Noise; a carrier in channel 2, polarisation 1; pulses in channel 5, polarisation 0.
fn interference(random: &mut Random, [_, antenna, channel, spectrum, pol]: Place) -> [i8; 2] {
    let [re, im] = noise(random, 2.0, 7.0);
    if antenna > 0 {
        return [re, im];
    }
    match (channel, pol) {
        (2, 1) => {
            let angle = 0.3 * spectrum as f64;
            [angle.cos(), angle.sin()].map(|part| (6.0 * part).round() as i8)
        }
        (5, 0) if spectrum % 16 == 3 => [7, -7],
        (5, 0) => [re.clamp(-1, 1), im.clamp(-1, 1)],
        _ => [re, im],
    }
}

#[test]
fn carriers_and_pulses_are_flagged_in_every_layout() {
    for dtype in [Dtype::Ci8, Dtype::Ci4] {
        for (k_major, antennas, pols) in [
            (false, None, 2),
            (true, None, 2),
            (false, Some(2), 2),
            (true, Some(2), 2),
            (true, None, 1),
        ] {
            let input = Input { antennas, pols, k_major, dtype, ..INPUT };
            let mut run = Run::new(&kind(1e-6), input);
            let mut random = Random::new(2);
            let payload = input.payload(|place| interference(&mut random, place));
            let heaps = antennas.unwrap_or(1);
            let frame = run.frame(&payload, &vec![1; heaps]);
            let is_flagged = |antenna: usize, channel: usize, pol: usize| {
                antenna == 0 && [(2, 1), (5, 0)].contains(&(channel, pol))
            };
            let header = frame.header();
            let mut units = header.validity.iter();
            for antenna in 0..heaps {
                for channel in 0..input.channels {
                    for pol in 0..pols {
                        let expected = u32::from(!is_flagged(antenna, channel, pol));
                        assert_eq!(units.next(), Some(&expected), "{channel} {pol}");
                    }
                }
            }
            assert_eq!(units.next(), None);
            let found = frame.as_slice::<u8>().unwrap();
            for place @ [_, antenna, channel, _, pol] in input.places() {
                if is_flagged(antenna, channel, pol) {
                    assert!(input.is_zero(found, place), "{place:?}");
                } else {
                    let bytes = dtype.bytes(1);
                    let at = input.index(place) * bytes..(input.index(place) + 1) * bytes;
                    assert_eq!(found[at.clone()], payload[at], "{place:?}");
                }
            }
            let low = u64::from(pols == 2);
            assert_eq!(run.count("units_flagged_low"), low);
            assert_eq!(run.count("units_flagged_high"), 1);
            assert_eq!(run.count("samples_flagged"), (1 + low) * input.spectra as u64);
            let mut fractions = [0.0; 8];
            let share = 1.0 / (heaps * pols) as f64;
            (fractions[2], fractions[5]) = (share * low as f64, share);
            assert_eq!(header.annotations.get("flagged"), fractions);
        }
    }
}

#[test]
fn missing_heaps_stay_missing_and_are_not_counted_as_flagged() {
    let input = Input { heaps: 2, antennas: Some(2), ..INPUT };
    let mut run = Run::new(&kind(1e-6), input);
    let mut random = Random::new(2);
    let payload = input.payload(|place| interference(&mut random, place));
    // Heap 0 of antenna 0 and heap 1 of antenna 1 are missing.
    let frame = run.frame(&payload, &[0, 1, 1, 0]);
    let of_heap = 8 * 2;
    let validity = &frame.header().validity;
    assert!(validity[..of_heap].iter().all(|count| *count == 0));
    assert!(validity[of_heap..2 * of_heap].iter().all(|count| *count == 1));
    assert!(validity[3 * of_heap..].iter().all(|count| *count == 0));
    let found = frame.as_slice::<u8>().unwrap();
    assert!(input.places().all(|place| place[0] != place[1] || input.is_zero(found, place)));
    assert_eq!(run.count("units_missing"), 2 * of_heap as u64);
    assert_eq!(run.count("units_flagged_low") + run.count("units_flagged_high"), 2);
    // One of two units that are not missing in either channel.
    assert!((frame.header().annotations.get("flagged")[2] - 0.25).abs() < 1e-12);
}

#[test]
fn units_that_an_earlier_flagger_removed_stay_missing() {
    let input = Input { by_channel: true, ..INPUT };
    let mut run = Run::new(&kind(1e-6), input);
    let mut random = Random::new(2);
    let payload = input.payload(|place| interference(&mut random, place));
    let mut valid = vec![1; 16];
    valid[2 * 7] = 0;
    let frame = run.frame(&payload, &valid);
    valid[2 * 2 + 1] = 0;
    valid[2 * 5] = 0;
    assert_eq!(frame.header().validity, valid);
    assert_eq!((run.count("units_missing"), run.count("units_flagged_always")), (1, 0));
}

#[test]
fn channels_that_are_always_flagged_need_no_interference() {
    let input = INPUT;
    let flagger = SpectralKurtosis {
        channels_always_flagged: vec![ChannelRange::One(0), ChannelRange::Range([6, 7])],
        ..kind(1e-6)
    };
    let mut run = Run::new(&flagger, input);
    let mut random = Random::new(2);
    let payload = input.payload(|_| noise(&mut random, 20.0, 127.0));
    let frame = run.frame(&payload, &[1]);
    let expected = [0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0];
    assert_eq!(frame.header().validity, expected);
    assert_eq!(frame.header().annotations.get("flagged"), [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0]);
    let found = frame.as_slice::<u8>().unwrap();
    assert!(input.places().all(|place| expected[2 * place[2]] == 1 || input.is_zero(found, place)));
    assert_eq!((run.count("units_flagged_always"), run.count("samples_flagged")), (6, 6 * 256));
}

#[test]
fn live_updates_apply_from_the_first_heap_at_their_timestamp() {
    let input = Input { heaps: 4, ..INPUT };
    let mut always = vec![false; 8];
    always[3] = true;
    let updates = vec![
        // Within the second heap: from the third heap on.
        (input.step() + 1, "channels_always_flagged", Live::Always(always)),
        (5 * input.step(), "enabled", Live::Enabled(false)),
    ];
    let mut run = Run::with_updates(&kind(1e-6), input, updates);
    let mut random = Random::new(2);
    let payload = input.payload(|place| interference(&mut random, place));
    let flagged = |frame: &Frame| {
        let heaps = frame.header().validity.chunks_exact(16);
        heaps.map(|heap| heap.iter().filter(|count| **count == 0).count()).collect::<Vec<_>>()
    };
    assert_eq!(flagged(&run.frame(&payload, &[1; 4])), [2, 2, 4, 4]);
    assert_eq!(flagged(&run.frame(&payload, &[1; 4])), [4, 0, 0, 0]);
}

#[test]
fn output_has_the_units_of_channels_and_polarisations() {
    for antennas in [None, Some(3)] {
        let input = Input { antennas, heaps: 2, ..INPUT };
        let output = &kind(0.01).outputs(&[input.port()]).unwrap()[0];
        assert_eq!(output.axes, input.port().axes);
        assert_eq!(output.validity, Input { by_channel: true, ..input }.port().validity);
    }
}

#[test]
fn spectral_kurtosis_rejects_ports_and_parameters_with_the_reason() {
    let messages = |kind: &SpectralKurtosis, port: PortType| -> Vec<String> {
        let rejections = kind.outputs(&[port]).unwrap_err();
        rejections.into_iter().map(|rejection| rejection.message).collect()
    };
    let with = |change: fn(&mut PortType)| {
        let mut port = Input { antennas: Some(2), heaps: 2, ..INPUT }.port();
        change(&mut port);
        messages(&kind(0.01), port)
    };
    let wrong_len = with(|port| port.axes[3].len = 31);
    assert_eq!(wrong_len, ["a heap must have 32 to 65536 spectra, got 31"]);
    assert!(with(|port| port.axes[4].len = 3)[0].contains("1 or 2 polarisations, got 3"));
    assert!(with(|port| port.dtype = Dtype::Cf16)[0].contains("`ci8` or `ci4`, got `cf16`"));
    assert!(with(|port| port.axes.swap(1, 2))[0].contains("F-engine heaps"));
    assert!(with(|port| port.validity.axes.truncate(1))[0].contains("validity must be"));
    assert!(with(|port| port.clock.samples_per_frame = 3)[0].contains("multiple of its 2 heaps"));
    let port = INPUT.port();
    for wrong in [0.0, 0.2, f64::NAN, f64::INFINITY, -1.0] {
        assert!(messages(&kind(wrong), port.clone())[0].contains("false_alarm_probability"));
    }
    let always = SpectralKurtosis {
        channels_always_flagged: vec![ChannelRange::Range([3, 8])],
        ..kind(0.01)
    };
    assert!(messages(&always, port)[0].contains("must be at most 7"));
}
