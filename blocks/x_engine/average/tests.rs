use super::selection::Selection;
use super::shape::antennas_of;
use super::smearing::Smearing;
use super::{Average, Values};
use crate::x_engine::correlator::Correlator;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Band, Clock, Dtype, Env, Frame, KindSpec, PortType, Ports, ValidityType};
use fxgraph_dsp::random::Random;
use std::sync::Arc;

const MEAN: Average =
    Average { dumps: 1, channels: 1, values: Values::Mean, smearing: None, baselines: None };
const STEP: u64 = 1000;

fn axes(list: &[(&'static str, usize)]) -> Vec<Axis> {
    list.iter().map(|(name, len)| Axis::new(name, *len)).collect()
}

fn port(
    dtype: Dtype,
    payload: &[(&'static str, usize)],
    validity: &[(&'static str, usize)],
) -> PortType {
    PortType {
        dtype,
        axes: axes(payload),
        clock: Clock::new(1e3, STEP),
        band: None,
        validity: ValidityType { axes: axes(validity), full: 5 },
    }
}

/// A frame of the input: timestamp, validity, real numbers.
struct Input<T>(u64, Vec<u32>, Vec<T>);

/// Output frames, and counters by name.
struct Output {
    frames: Vec<Arc<Frame>>,
    env: Env,
}

impl Output {
    fn counter(&self, name: &str) -> u64 {
        let list = self.env.counters.list();
        list.into_iter().find(|named| named.name == name).unwrap().counter.get()
    }

    fn timestamps(&self) -> Vec<u64> {
        self.frames.iter().map(|frame| frame.header().timestamp).collect()
    }
}

fn run<T: bytemuck::Pod>(kind: &Average, input: &PortType, frames: &[Input<T>]) -> Output {
    let outputs = kind.outputs(std::slice::from_ref(input)).unwrap();
    let ports = Ports { inputs: vec![input.clone()], outputs };
    let env = Env::detached("average");
    let block = kind.build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 1).unwrap();
    let mut output = Vec::new();
    for Input(timestamp, validity, values) in frames {
        assert!(harness.send(0, |frame| {
            frame.header_mut().timestamp = *timestamp;
            frame.header_mut().validity.copy_from_slice(validity);
            frame.as_mut_slice::<T>().unwrap().copy_from_slice(values);
        }));
        // The block waits while the output is full.
        for _ in 0..40 {
            Harness::block_on(harness.step()).unwrap();
            output.extend(harness.receive(0));
        }
    }
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();
    output.extend(harness.receive(0));
    Output { frames: output, env }
}

fn floats(frame: &Frame) -> Vec<f32> {
    frame.as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn mean_of_integers_is_sum_over_count_without_missing_baselines() {
    // 2 channels, 3 baselines, 1 product; the values of dump t are 10 t + number.
    let input =
        port(Dtype::Ci32, &[("channel", 2), ("baseline", 3), ("product", 1)], &[("baseline", 3)]);
    let values = |dump: i32| (0..12).map(|number| 10 * dump + number).collect::<Vec<i32>>();
    let frames = [
        Input(0, vec![5, 2, 0], values(1)),
        Input(STEP, vec![5, 0, 0], values(2)),
        Input(2 * STEP, vec![1, 4, 5], values(3)),
    ];
    let kind = Average { dumps: 2, channels: 2, ..MEAN };
    let output = run(&kind, &input, &frames);
    assert_eq!(output.timestamps(), [0, 2 * STEP]);
    assert_eq!(output.frames[0].header().validity, [10, 2, 0]);
    assert_eq!(output.frames[1].header().validity, [1, 4, 5]);
    // Baseline 0: (10 + 16 + 20 + 26) / (2 x 10), baseline 1: (12 + 18) / (2 x 2).
    assert_eq!(floats(&output.frames[0]), [3.6, 3.8, 7.5, 8.0, 0.0, 0.0]);
    assert_eq!(floats(&output.frames[1]), [33.0, 34.0, 8.75, 9.0, 7.4, 7.6]);
    assert_eq!(output.counter("averages"), 2);
    assert_eq!(output.counter("averages_incomplete"), 2);
    let port = &kind.outputs(&[input]).unwrap()[0];
    assert_eq!((port.validity.full, port.clock.samples_per_frame), (10, 2 * STEP));
}

/// The average of random values by its definition, in double precision.
#[test]
fn averages_are_those_of_the_definition_for_any_axes_of_validity() {
    let payload = [("channel", 6), ("baseline", 3), ("product", 4)];
    let choices: [&[usize]; 6] = [&[], &[1], &[0, 1, 2], &[2, 0], &[0], &[2, 1]];
    let mut random = Random::new(8);
    for (dtype, values) in [(Dtype::Ci32, Values::Mean), (Dtype::Cf32, Values::Sum)] {
        for chosen in choices {
            let axes: Vec<_> = chosen.iter().map(|n| payload[*n]).collect();
            let input = port(dtype, &payload, &axes);
            let units = input.validity.units();
            let kind = Average { dumps: 3, channels: 2, values, ..MEAN };
            let frames: Vec<Input<u32>> = (0..6)
                .map(|dump| {
                    let validity = (0..units).map(|_| (random.bits() % 6) as u32).collect();
                    let number = |_| match dtype {
                        Dtype::Ci32 => random.bits() as i32 as u32,
                        _ => ((random.uniform() - 0.5) as f32).to_bits(),
                    };
                    Input(dump * STEP, validity, (0..6 * 3 * 4 * 2).map(number).collect())
                })
                .collect();
            let output = run(&kind, &input, &frames);
            assert_eq!(output.timestamps(), [0, 3 * STEP]);
            for (n, frame) in output.frames.iter().enumerate() {
                let mut numbers = floats(frame).into_iter();
                for place in 0..3 * 3 * 4 {
                    let (channel, baseline, product) = (place / 12, place / 4 % 3, place % 4);
                    let unit = |channel: usize, of_channel: usize| {
                        let index = [channel, baseline, product];
                        let lengths = [of_channel, 3, 4];
                        chosen.iter().fold(0, |unit, axis| unit * lengths[*axis] + index[*axis])
                    };
                    let (mut sum, mut all, mut counted) = ([0.0; 2], 0_u32, 0_u32);
                    for Input(_, validity, values) in &frames[3 * n..3 * n + 3] {
                        for c in [2 * channel, 2 * channel + 1] {
                            let count = validity[unit(c, 6)];
                            if count == 0 {
                                continue;
                            }
                            all += count;
                            let by_channel = chosen.contains(&0);
                            counted += if by_channel || c % 2 == 0 { count } else { 0 };
                            for (part, sum) in sum.iter_mut().enumerate() {
                                let bits = values[2 * (c * 12 + baseline * 4 + product) + part];
                                *sum += match dtype {
                                    Dtype::Ci32 => f64::from(bits as i32),
                                    _ => f64::from(f32::from_bits(bits)),
                                };
                            }
                        }
                    }
                    let divisor = if values == Values::Mean { f64::from(all) } else { 1.0 };
                    for sum in sum {
                        let expected = if all == 0 { 0.0 } else { sum / divisor };
                        // All sums of these integers and floats are exact.
                        let found = numbers.next().unwrap().to_bits();
                        assert_eq!(found, (expected as f32).to_bits(), "{chosen:?} {place}");
                    }
                    assert_eq!(frame.header().validity[unit(channel, 3)], counted);
                }
                assert!(numbers.next().is_none());
            }
        }
    }
}

#[test]
fn average_of_short_dumps_is_the_long_dump_of_a_correlator() {
    let voltages = PortType {
        dtype: Dtype::Ci8,
        axes: axes(&[("heap", 1), ("antenna", 3), ("channel", 2), ("spectrum", 16), ("pol", 2)]),
        clock: Clock::new(1e6, 64),
        band: None,
        validity: ValidityType::flags(axes(&[("heap", 1), ("antenna", 3)])),
    };
    let dumps = |spectra_per_dump: u64| {
        let kind = Correlator { spectra_per_dump: Some(spectra_per_dump), ..Correlator::default() };
        let outputs = kind.outputs(std::slice::from_ref(&voltages)).unwrap();
        let ports = Ports { inputs: vec![voltages.clone()], outputs };
        let block = kind.build(&ports.inputs, &Env::detached("x")).unwrap();
        let mut harness = Harness::new(block, &ports, 16).unwrap();
        let mut random = Random::new(2);
        for heap in 0..12_u64 {
            harness.send(0, |frame| {
                frame.header_mut().timestamp = 64 * heap;
                let missing = [heap % 5 == 0, heap % 3 == 1, false];
                frame.header_mut().validity = missing.map(|is| u32::from(!is)).to_vec();
                let bytes = frame.as_mut_slice::<i8>().unwrap();
                bytes.fill_with(|| (random.bits() % 255) as i8);
            });
        }
        harness.end(0);
        Harness::block_on(harness.run()).unwrap();
        let frames: Vec<_> = std::iter::from_fn(|| harness.receive(0)).collect();
        (ports.outputs[0].clone(), frames)
    };
    let (short, frames) = dumps(32);
    let frames: Vec<Input<i32>> = frames
        .iter()
        .map(|frame| {
            let header = frame.header();
            Input(header.timestamp, header.validity.clone(), frame.as_slice().unwrap().to_vec())
        })
        .collect();
    let kind = Average { dumps: 3, values: Values::Sum, ..MEAN };
    let output = run(&kind, &short, &frames);
    let (long, expected) = dumps(96);
    assert_eq!(kind.outputs(&[short]).unwrap(), [PortType { dtype: Dtype::Cf32, ..long }]);
    assert_eq!((output.frames.len(), expected.len()), (2, 2));
    for (found, expected) in output.frames.iter().zip(expected) {
        assert_eq!(found.header().timestamp, expected.header().timestamp);
        assert_eq!(found.header().validity, expected.header().validity);
        let integers = expected.as_slice::<i32>().unwrap();
        assert_eq!(floats(found), integers.iter().map(|n| *n as f32).collect::<Vec<_>>());
    }
}

#[test]
fn powers_are_averaged_within_frames_and_across_them() {
    // 4 spectra of 1 product and 2 channels: 8 t + 2 s + c.
    let payload = [("spectrum", 4), ("product", 1), ("channel", 2)];
    let input = port(Dtype::F32, &payload, &[("spectrum", 4)]);
    let frame = |n: u64, validity: [u32; 4]| {
        let values = (0..8).map(|i| (8 * n + i) as f32).collect();
        Input(n * STEP, validity.to_vec(), values)
    };
    let frames = [frame(0, [5, 5, 1, 0]), frame(1, [5; 4]), frame(2, [0, 0, 5, 5])];
    let sum = |dumps| Average { dumps, values: Values::Sum, ..MEAN };
    let output = run(&sum(2), &input, &frames);
    assert_eq!(output.timestamps(), [0, STEP, 2 * STEP]);
    let found: Vec<_> = output.frames.iter().map(|f| (floats(f), &f.header().validity)).collect();
    assert_eq!(found[0], (vec![2.0, 4.0, 4.0, 5.0], &vec![10, 1]));
    assert_eq!(found[1], (vec![18.0, 20.0, 26.0, 28.0], &vec![10, 10]));
    assert_eq!(found[2], (vec![0.0, 0.0, 42.0, 44.0], &vec![0, 10]));
    assert_eq!(output.counter("averages"), 6);
    assert_eq!(output.counter("averages_incomplete"), 2);
    let output = run(&sum(8), &input, &frames);
    assert_eq!(output.timestamps(), [0, 2 * STEP]);
    let found: Vec<_> = output.frames.iter().map(|f| (floats(f), &f.header().validity)).collect();
    assert_eq!(found[0], (vec![6.0 + 44.0, 9.0 + 48.0], &vec![31]));
    assert_eq!(found[1], (vec![42.0, 44.0], &vec![10]));
    let output = run(&Average { dumps: 4, channels: 2, ..MEAN }, &input, &frames[1..2]);
    assert_eq!(floats(&output.frames[0]), [92.0 / 40.0]);
}

#[test]
fn averages_are_aligned_and_late_dumps_are_dropped() {
    let payload = [("channel", 1), ("baseline", 1), ("product", 1)];
    let input = port(Dtype::Ci32, &payload, &[]);
    let dump = |n: u64| Input(n * STEP, vec![5], vec![n as i32, 0]);
    let kind = Average { dumps: 4, values: Values::Sum, ..MEAN };
    // Dumps 6, 7 begin within an average; 10 is missing, 9 comes again; 12 to 19 are missing.
    let frames = [6, 7, 8, 9, 11, 9, 20, 21, 22, 23].map(dump);
    let output = run(&kind, &input, &frames);
    assert_eq!(output.timestamps(), [8 * STEP, 20 * STEP]);
    assert_eq!(floats(&output.frames[0]), [28.0, 0.0]);
    assert_eq!(output.frames[0].header().validity, [15]);
    assert_eq!(output.frames[1].header().validity, [20]);
    assert_eq!(output.counter("dumps_before_first_average"), 2);
    assert_eq!(output.counter("dumps_late"), 1);
    assert_eq!(output.counter("averages_incomplete"), 1);
}

fn smearing(most_dumps: usize) -> Smearing {
    Smearing {
        antennas_enu_metres: vec![[0.0; 3], [1000.0, 0.0, 0.0], [0.0, 0.0, 9000.0]],
        field_of_view_degrees: 1.0,
        max_decorrelation: 0.01,
        most_dumps,
    }
}

#[test]
fn every_baseline_is_in_the_output_of_one_number_of_dumps() {
    let payload = [("channel", 2), ("baseline", 6), ("product", 1)];
    let band = Band::signed(2, 0, 1.4e9, 1e6);
    let input = PortType {
        band: Some(band),
        clock: Clock::new(125.0, STEP),
        ..port(Dtype::Ci32, &payload, &[("baseline", 6)])
    };
    let frames: Vec<Input<i32>> = (0..4)
        .map(|dump| Input(dump * STEP, vec![5; 6], (0..24).map(|n| n + dump as i32).collect()))
        .collect();
    let mut seen = Vec::new();
    // Autocorrelations do not turn; 1000 m allow 2 dumps of 8 s, and 9000 m not even one.
    for (dumps, expected) in
        [(1, vec!["0-2", "1-2"]), (2, vec!["0-1"]), (4, vec!["0-0", "1-1", "2-2"])]
    {
        let kind = Average { dumps, values: Values::Sum, smearing: Some(smearing(4)), ..MEAN };
        let output = run(&kind, &input, &frames);
        let port = &kind.outputs(std::slice::from_ref(&input)).unwrap()[0];
        let labels = &port.axes[1].labels;
        assert_eq!(*labels, expected);
        assert_eq!(output.frames.len(), 4 / dumps);
        assert_eq!(output.frames[0].header().validity, vec![5 * dumps as u32; expected.len()]);
        let baselines = (0..6).filter(|baseline| {
            let (a1, a2) = antennas_of(*baseline);
            labels.contains(&format!("{a1}-{a2}"))
        });
        let baselines: Vec<usize> = baselines.collect();
        let of_dumps: i32 = (0..dumps as i32).sum();
        let values = (0..2).flat_map(|channel| baselines.iter().map(move |b| 12 * channel + 2 * b));
        let expected: Vec<f32> = values
            .flat_map(|number| [number, number + 1])
            .map(|number| (dumps as i32 * number as i32 + of_dumps) as f32)
            .collect();
        assert_eq!(floats(&output.frames[0]), expected);
        seen.extend(baselines);
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
    let kind = Average { dumps: 8, smearing: Some(smearing(16)), ..MEAN };
    let rejections = kind.outputs(&[input]).unwrap_err();
    assert_eq!(rejections[0].message, "`smearing` allows no baseline to average over 8 dumps");
    assert_eq!(rejections[0].help.as_deref(), Some("use one of 1, 2, 16"));
}

#[test]
fn wide_band_of_either_sideband_selects_baselines_by_its_highest_frequency() {
    let payload = [("channel", 4), ("baseline", 3), ("product", 1)];
    let smearing =
        Smearing { antennas_enu_metres: vec![[0.0; 3], [2200.0, 0.0, 0.0]], ..smearing(16) };
    // The same frequencies: 0.75, 0.875, 1 and 1.125 GHz.
    for band in [Band::signed(4, 0, 1e9, 5e8), Band::signed(4, 0, 8.75e8, -5e8)] {
        let mut hz: Vec<f64> = (0..4).map(|channel| band.channel_hz(channel)).collect();
        hz.sort_by(f64::total_cmp);
        assert_eq!(hz, [7.5e8, 8.75e8, 1e9, 1.125e9]);
        let input =
            PortType { band: Some(band), ..port(Dtype::Ci32, &payload, &[("baseline", 3)]) };
        // 0.078 turns decorrelate by 1 %. At 0.5 degrees 2200 m make 0.00525 turns per second at 1.125 GHz, which allow 14.8
        // dumps of a second, and 0.00467 turns at 1 GHz, which would allow 16.7.
        for (dumps, expected) in [(8, vec!["0-1"]), (16, vec!["0-0", "1-1"])] {
            let kind = Average { dumps, smearing: Some(smearing.clone()), ..MEAN };
            let outputs = kind.outputs(std::slice::from_ref(&input)).unwrap();
            assert_eq!(outputs[0].axes[1].labels, expected, "{band:?}");
        }
    }
}

#[test]
fn selected_baselines_have_values_counts_and_times_of_all() {
    let payload = [("channel", 2), ("baseline", 6), ("product", 1)];
    let mut input = port(Dtype::Ci32, &payload, &[("baseline", 6)]);
    // Antennas 4, 9 and 7 in the order of the inputs.
    input.axes[1] = Axis::labelled("baseline", ["4-4", "4-9", "9-9", "4-7", "9-7", "7-7"]);
    let frames: Vec<Input<i32>> = (0..3)
        .map(|dump| {
            let counts = (0..6).map(|baseline| (baseline + dump as u32) % 5).collect();
            Input(dump * STEP, counts, (0..24).map(|n| 100 * n + dump as i32).collect())
        })
        .collect();
    let select = |pairs: &[[u32; 2]], antennas: &[u32], autocorrelations| Selection {
        pairs: pairs.to_vec(),
        antennas: antennas.to_vec(),
        autocorrelations,
    };
    let kind = |selection| Average { values: Values::Sum, baselines: Some(selection), ..MEAN };
    for (selection, labels, baselines) in [
        (select(&[[9, 4], [7, 7]], &[], false), vec!["4-9", "7-7"], vec![1, 5]),
        (select(&[], &[7, 9], false), vec!["9-9", "9-7", "7-7"], vec![2, 4, 5]),
        (select(&[[4, 9]], &[], true), vec!["4-4", "4-9", "9-9", "7-7"], vec![0, 1, 2, 5]),
    ] {
        let kind = kind(selection);
        assert_eq!(kind.outputs(std::slice::from_ref(&input)).unwrap()[0].axes[1].labels, labels);
        let output = run(&kind, &input, &frames);
        assert_eq!(output.timestamps(), [0, STEP, 2 * STEP]);
        for (frame, Input(_, counts, values)) in output.frames.iter().zip(&frames) {
            let counted: Vec<u32> = baselines.iter().map(|b| counts[*b]).collect();
            assert_eq!(frame.header().validity, counted);
            let places = (0..2).flat_map(|channel| baselines.iter().map(move |b| (channel, *b)));
            let expected = places.flat_map(|(channel, b)| {
                let value = |part| values[12 * channel + 2 * b + part] as f32;
                [0, 1].map(|part| if counts[b] == 0 { 0.0 } else { value(part) })
            });
            assert_eq!(floats(frame), expected.collect::<Vec<f32>>());
        }
    }
    let rejected = |selection| kind(selection).outputs(std::slice::from_ref(&input)).unwrap_err();
    let messages =
        |selection| rejected(selection).into_iter().map(|r| r.message).collect::<Vec<_>>();
    assert_eq!(
        messages(select(&[[4, 5]], &[0], true)),
        [
            "`pairs` must be baselines of the input, got [4, 5]",
            "`antennas` must be antennas of the input, got 0"
        ]
    );
    let none = messages(Selection::default());
    assert_eq!(none, ["`baselines` must select a baseline of the input, got none"]);
    // A second block selects among the selected baselines.
    let first = kind(select(&[], &[], true)).outputs(std::slice::from_ref(&input)).unwrap();
    let second = kind(select(&[], &[9], false)).outputs(&first).unwrap();
    assert_eq!(second[0].axes[1].labels, ["9-9"]);
}

#[test]
fn channel_of_average_has_mean_frequency_of_its_channels() {
    for (channels, first_channel, len, factor) in
        [(16, 0, 16, 4), (16, 8, 8, 4), (15, 0, 15, 5), (16, 2, 8, 4), (12, 3, 9, 3), (7, 0, 7, 7)]
    {
        let payload = [("channel", len), ("baseline", 1), ("product", 1)];
        let band = Band::signed(channels, first_channel, 1e9, 16e6);
        let input = PortType { band: Some(band), ..port(Dtype::Ci32, &payload, &[]) };
        let kind = Average { channels: factor, ..MEAN };
        let found = kind.outputs(&[input]).unwrap()[0].band.unwrap();
        assert_eq!(found.impossible(len / factor), None);
        let width_hz = found.bandwidth_hz / found.channels as f64;
        assert!((width_hz - 16e6 / channels as f64 * factor as f64).abs() < 1e-3);
        for average in 0..len / factor {
            let all = factor * average..factor * (average + 1);
            let mean = all.map(|channel| band.channel_hz(channel)).sum::<f64>() / factor as f64;
            assert!((found.channel_hz(average) - mean).abs() < 1e-3, "{channels} {average}");
        }
    }
}

#[test]
fn average_rejects_streams_and_factors_that_do_not_fit() {
    let payload = [("channel", 6), ("baseline", 3), ("product", 4)];
    let messages = |kind: &Average, input: &PortType| {
        let rejections = kind.outputs(std::slice::from_ref(input)).unwrap_err();
        rejections.into_iter().map(|rejection| rejection.message).collect::<Vec<_>>()
    };
    let input = port(Dtype::Ci32, &payload, &[("baseline", 3)]);
    let kind = Average { channels: 4, ..MEAN };
    assert_eq!(
        messages(&kind, &input),
        ["`channels` must divide the 6 channels of the input, got 4"]
    );
    let powers = port(Dtype::F32, &[("spectrum", 4), ("product", 1), ("channel", 2)], &[]);
    let kind = Average { dumps: 6, ..MEAN };
    assert_eq!(
        messages(&kind, &powers),
        ["`dumps` must divide or be a multiple of the 4 spectra of a frame, got 6"]
    );
    let other = port(Dtype::Ci8, &payload, &[]);
    assert_eq!(messages(&MEAN, &other), [format!("`average` cannot read `{other}`")]);
    let heaps = port(Dtype::Ci32, &payload, &[("heap", 2)]);
    assert_eq!(
        messages(&MEAN, &heaps),
        ["the axes of the input's validity must be those of its payload, got [heap 2]"]
    );
    let kind = Average { smearing: Some(smearing(3)), dumps: 3, ..MEAN };
    assert_eq!(
        messages(&kind, &port(Dtype::Ci32, &payload[..], &[])),
        [
            "`most_dumps` must be a power of two from 1 to 1048576, got 3",
            "`dumps` must be a power of two up to `most_dumps`, 3, with `smearing`, got 3",
            "`smearing` needs an input with a band",
        ]
    );
}
