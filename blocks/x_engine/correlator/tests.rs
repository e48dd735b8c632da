#![allow(clippy::unwrap_used)]

use super::accumulate::{Accumulator, MISSING};
use super::definition::correlate_integers;
use super::*;
use fxgraph::edge::Harness;
use fxgraph::{Counters, Header, Next, Ports};
use fxgraph_dsp::correlator::Kernel;

const SHAPE: Stacked = Stacked {
    heaps: 2,
    antennas: 3,
    channels: 2,
    pols: 2,
    spectra: 16,
    samples_per_spectrum: 8,
    k_major: false,
    dtype: Dtype::Ci8,
    units: Units::Heap,
};
/// ADC samples per heap of `SHAPE`.
const STEP: u64 = 128;

pub(crate) fn port(shape: &Stacked) -> PortType {
    let heap = || Axis::new("heap", shape.heaps);
    let antenna = || Axis::new("antenna", shape.antennas);
    let (spectrum, pol) = (Axis::new("spectrum", shape.spectra), Axis::new("pol", 2));
    let last = if shape.k_major { [pol, spectrum] } else { [spectrum, pol] };
    let first = [heap(), antenna(), Axis::new("channel", shape.channels)];
    PortType {
        dtype: shape.dtype,
        axes: first.into_iter().chain(last).collect(),
        clock: Clock::new(1e6, shape.heaps as u64 * shape.samples_per_heap()),
        band: None,
        validity: ValidityType::flags(vec![heap(), antenna()]),
    }
}

/// Reproducible bytes, including -128.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Voltages `[heap][antenna][channel][spectrum][pol]`, read byte by byte in the order of the axes.
pub(crate) fn voltages(shape: &Stacked, payload: &[u8]) -> Vec<[i64; 2]> {
    let mut bytes = payload.iter().map(|byte| i64::from(*byte));
    let mut value = || {
        let signed = |bits: i64, width: u32| {
            if bits >> (width - 1) == 1 { bits - (1 << width) } else { bits }
        };
        let first = bytes.next().unwrap();
        if shape.dtype == Dtype::Ci4 {
            [signed(first / 16, 4), signed(first % 16, 4)]
        } else {
            [signed(first, 8), signed(bytes.next().unwrap(), 8)]
        }
    };
    let per_row = 2 * shape.spectra;
    let mut all = Vec::new();
    for _ in 0..shape.heaps * shape.antennas * shape.channels {
        let row: Vec<_> = (0..per_row).map(|_| value()).collect();
        let index =
            |s: usize, p: usize| if shape.k_major { p * shape.spectra + s } else { 2 * s + p };
        all.extend((0..per_row).map(|i| row[index(i / 2, i % 2)]));
    }
    assert!(bytes.next().is_none());
    all
}

#[test]
fn plain_loops_sum_the_voltages_of_every_layout() {
    for shape in shapes().filter(|shape| shape.antennas <= 5) {
        let payload = noise(shape.frame_bytes(), 17);
        let voltages = voltages(&shape, &payload);
        let field = |a: usize, channel: usize, s: usize, p: usize| {
            // Of heap 1.
            let row = (shape.antennas + a) * shape.channels + channel;
            voltages[(row * shape.spectra + s) * 2 + p]
        };
        let baselines = shape.antennas * (shape.antennas + 1) / 2;
        let mut expected = Vec::new();
        for channel in 0..shape.channels {
            for a2 in 0..shape.antennas {
                for a1 in 0..=a2 {
                    for (p1, p2) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                        let products = (0..shape.spectra).map(|s| {
                            let [ar, ai] = field(a1, channel, s, p1);
                            let [br, bi] = field(a2, channel, s, p2);
                            [ar * br + ai * bi, ai * br - ar * bi]
                        });
                        expected
                            .push(products.fold([0, 0], |sum, v| [sum[0] + v[0], sum[1] + v[1]]));
                    }
                }
            }
        }
        let mut sums = vec![[0; 2]; 4 * baselines * shape.channels];
        correlate_integers(&shape, &payload, 1, |_| true, &mut sums);
        assert!(sums == expected, "{shape:?}");
    }
}

fn shapes() -> impl Iterator<Item = Stacked> {
    let antennas = [1, 3, 4, 5, 8, 9, 17];
    antennas.into_iter().flat_map(|antennas| {
        const INTEGERS: [Dtype; 2] = [Dtype::Ci8, Dtype::Ci4];
        let layouts = [false, true].map(|k_major| INTEGERS.map(|dtype| (k_major, dtype)));
        layouts.into_iter().flatten().map(move |(k_major, dtype)| {
            // Spectra of whole blocks, of a partial block, and an odd number.
            let spectra = [37, 256, 300][(antennas + usize::from(k_major)) % 3];
            Stacked { antennas, k_major, dtype, spectra, channels: 3, ..SHAPE }
        })
    })
}

#[test]
fn every_kernel_equals_plain_loops_for_all_shapes_and_layouts() {
    for shape in shapes() {
        let payload = noise(shape.frame_bytes(), 7);
        // Some antennas lack some heaps; antenna 1 lacks both.
        let valid: Vec<u32> = (0..shape.heaps * shape.antennas)
            .map(|i| u32::from(i % 5 != 3 && i % shape.antennas != 1))
            .collect();
        let products = 4 * shape.baselines() * shape.channels;
        let mut expected = vec![[0i64; 2]; products];
        for heap in 0..shape.heaps {
            let valid = &valid[heap * shape.antennas..][..shape.antennas];
            correlate_integers(&shape, &payload, heap, |a| valid[a] != 0, &mut expected);
        }
        for kernel in Kernel::available() {
            for threads in [1, 2] {
                let mut fast = Accumulator::new(shape, kernel, threads).unwrap();
                let mut output = vec![[0x5a5a_5a5a; 2]; products];
                // Twice, to check that a dump resets the sums.
                for _ in 0..2 {
                    output.fill([0x5a5a_5a5a; 2]);
                    fast.add(&payload, 0..2, &valid);
                    fast.dump(&vec![1; shape.baselines()], &mut output);
                }
                let output: Vec<_> = output.iter().map(|v| v.map(i64::from)).collect();
                assert!(output == expected, "{kernel:?} {shape:?}");
            }
        }
    }
}

#[test]
fn sums_are_exact_beyond_32_bits_and_clamped_on_output() {
    // All samples are -128: each spectrum adds 2 x 128 x 128 to every real part.
    let shape = Stacked { heaps: 1, antennas: 5, channels: 1, spectra: 40_000, ..SHAPE };
    let payload = vec![0x80; shape.frame_bytes()];
    let products = 4 * shape.baselines();
    for kernel in Kernel::available() {
        let mut fast = Accumulator::new(shape, kernel, 1).unwrap();
        let mut output = vec![[7; 2]; products];
        fast.add(&payload, 0..1, &[1; 5]);
        assert_eq!(fast.dump(&[1; 15], &mut output), 0);
        assert!(output.iter().all(|&v| v == [40_000 * 32_768, 0]), "{kernel:?}");
        fast.add(&payload, 0..1, &[1; 5]);
        fast.add(&payload, 0..1, &[1; 5]);
        assert_eq!(fast.dump(&[1; 15], &mut output), products as u64);
        assert!(output.iter().all(|&v| v == [i32::MAX, 0]), "{kernel:?}");
        // The sums return into the range: e(0) and e(1) have opposite signs.
        let mut opposite = payload.clone();
        for (index, byte) in opposite.iter_mut().enumerate() {
            // -128 has no opposite; 127 in antenna 0.
            if index < shape.row_bytes() {
                *byte = 127;
            }
        }
        for payload in [&payload, &payload, &opposite, &opposite] {
            fast.add(payload, 0..1, &[1; 5]);
        }
        fast.dump(&[1; 15], &mut output);
        let cross = 2 * 40_000 * (32_768 - 2 * 128 * 127);
        assert_eq!(output[shape.product(0, 0, 1, 0)], [cross, 0], "{kernel:?}");
    }
}

#[test]
fn one_heap_longer_than_the_32_bit_sums_is_exact() {
    let shape = Stacked { heaps: 1, antennas: 1, channels: 1, spectra: 70_001, ..SHAPE };
    let mut payload = vec![0x80; shape.frame_bytes()];
    // Reduces the total below 2^31: the last spectra do not contribute to polarisation 0.
    for spectrum in payload.chunks_exact_mut(4).skip(65_535) {
        spectrum[..2].fill(0);
    }
    for kernel in Kernel::available() {
        let mut fast = Accumulator::new(shape, kernel, 1).unwrap();
        let mut output = [[0; 2]; 4];
        fast.add(&payload, 0..1, &[1]);
        assert_eq!(fast.dump(&[1], &mut output), 1);
        let full = 65_535 * 32_768;
        assert_eq!(output, [[full, 0], [full, 0], [full, 0], [i32::MAX, 0]], "{kernel:?}");
    }
}

#[test]
fn autocorrelations_are_hermitian() {
    let payload = noise(SHAPE.frame_bytes(), 3);
    let mut sums = vec![[0; 2]; 4 * SHAPE.baselines() * SHAPE.channels];
    correlate_integers(&SHAPE, &payload, 0, |_| true, &mut sums);
    for a in 0..SHAPE.antennas {
        let [re, im] = sums[SHAPE.product(a, 1, a, 0)];
        assert_eq!(sums[SHAPE.product(a, 0, a, 1)], [re, -im]);
        assert_eq!(sums[SHAPE.product(a, 0, a, 0)][1], 0);
        assert!(sums[SHAPE.product(a, 1, a, 1)][0] > 0);
    }
}

/// A correlator in a harness, its dumps as (timestamp, validity, products).
struct Run {
    shape: Stacked,
    harness: Harness,
    counters: Counters,
}

type DumpSeen = (u64, Vec<u32>, Vec<[i32; 2]>);

impl Run {
    fn new(shape: Stacked, spectra_per_dump: u64) -> Self {
        let kind = Correlator { spectra_per_dump: Some(spectra_per_dump), ..Default::default() };
        let input = port(&shape);
        let output = kind.outputs(std::slice::from_ref(&input)).unwrap();
        let ports = Ports { inputs: vec![input], outputs: output };
        let counters = Counters::default();
        let block = kind.build(&ports.inputs, &env(&counters)).unwrap();
        Self { shape, harness: Harness::new(block, &ports, 1).unwrap(), counters }
    }

    /// Sends a frame and collects the dumps.
    fn send(&mut self, timestamp: u64, valid: &[u32], payload: &[u8], dumps: &mut Vec<DumpSeen>) {
        let sent = self.harness.send(0, |frame| {
            frame.header_mut().timestamp = timestamp;
            frame.header_mut().validity.copy_from_slice(valid);
            frame.as_mut_slice().unwrap().copy_from_slice(payload);
        });
        assert!(sent);
        self.drain(dumps);
    }

    fn drain(&mut self, dumps: &mut Vec<DumpSeen>) -> Next {
        loop {
            let next = Harness::block_on(self.harness.run()).unwrap();
            let Some(frame) = self.harness.receive(0) else { return next };
            let header = frame.header();
            dumps.push((
                header.timestamp,
                header.validity.clone(),
                frame.as_slice().unwrap().to_vec(),
            ));
        }
    }

    fn end(mut self, dumps: &mut Vec<DumpSeen>) -> Counters {
        self.harness.end(0);
        assert_eq!(self.drain(dumps), Next::Finished);
        self.counters
    }
}

pub(crate) fn env(counters: &Counters) -> Env {
    Env { counters: counters.clone(), ..Env::detached("block") }
}

pub(crate) fn count(counters: &Counters, name: &str) -> u64 {
    counters.list().iter().find(|c| c.name == name).unwrap().counter.get()
}

/// Runs frames `(timestamp, validity, seed)` and compares every dump with the plain loops.
fn check(
    shape: Stacked,
    heaps_per_dump: u64,
    frames: &[(u64, Vec<u32>, u64)],
) -> (Vec<u64>, Counters) {
    let mut run = Run::new(shape, heaps_per_dump * shape.spectra as u64);
    let mut dumps = Vec::new();
    for (timestamp, valid, seed) in frames {
        run.send(*timestamp, valid, &noise(shape.frame_bytes(), *seed), &mut dumps);
    }
    let shape_of_run = run.shape;
    let counters = run.end(&mut dumps);
    for (start, counts, products) in &dumps {
        let mut sums = vec![[0i64; 2]; products.len()];
        let mut expected_counts = vec![0; shape_of_run.baselines()];
        for (timestamp, valid, seed) in frames {
            let payload = noise(shape.frame_bytes(), *seed);
            for heap in 0..shape.heaps {
                let at = timestamp + heap as u64 * STEP;
                if !(*start..start + heaps_per_dump * STEP).contains(&at) {
                    continue;
                }
                let valid = &valid[heap * shape.antennas..][..shape.antennas];
                correlate_integers(&shape, &payload, heap, |a| valid[a] != 0, &mut sums);
                for a2 in 0..shape.antennas {
                    for a1 in 0..=a2 {
                        expected_counts[shape.product(a1, 0, a2, 0) / 4] += valid[a1] * valid[a2];
                    }
                }
            }
        }
        assert_eq!(*counts, expected_counts);
        for (index, (value, sum)) in products.iter().zip(&sums).enumerate() {
            let baseline = index / 4 % shape.baselines();
            let expected = match counts[baseline] {
                0 => MISSING,
                _ => sum.map(|s| s as i32),
            };
            assert_eq!(*value, expected, "dump {start} product {index}");
        }
    }
    (dumps.iter().map(|dump| dump.0).collect(), counters)
}

#[test]
fn dumps_start_at_absolute_multiples_for_any_frames() {
    let all = vec![1; 6];
    // Frames of 2 heaps, dumps of 1, 2, 3 and 5.
    for heaps in [1u64, 2, 3, 5] {
        let frames: Vec<_> = (0..9).map(|i| (i * 2 * STEP, all.clone(), i)).collect();
        let (dumps, counters) = check(SHAPE, heaps, &frames);
        let expected: Vec<u64> = (0..18u64.div_ceil(heaps)).map(|i| i * heaps * STEP).collect();
        assert_eq!(dumps, expected);
        let incomplete = u64::from(18 % heaps != 0);
        assert_eq!(count(&counters, "dumps_incomplete"), incomplete, "{heaps}");
    }
}

#[test]
fn dump_that_began_before_the_stream_is_not_output() {
    let all = vec![1; 6];
    let frames: Vec<_> = (4..10).map(|i| (i * 2 * STEP, all.clone(), i)).collect();
    let (dumps, counters) = check(SHAPE, 3, &frames);
    assert_eq!(dumps, [9, 12, 15, 18].map(|heap| heap * STEP));
    assert_eq!(count(&counters, "heaps_before_first_dump"), 1);
}

#[test]
fn missing_antennas_and_gaps_lower_only_counts_of_their_baselines() {
    let frames = vec![
        (0, vec![1, 1, 1, 1, 0, 1], 1),
        (2 * STEP, vec![0, 1, 1, 0, 1, 1], 2),
        // Heaps 4..6 are missing.
        (6 * STEP, vec![0, 0, 1, 0, 0, 0], 3),
        // A whole dump of 4 heaps, 8..12, is missing.
        (12 * STEP, vec![1; 6], 4),
        (14 * STEP, vec![1; 6], 5),
    ];
    let (dumps, counters) = check(SHAPE, 4, &frames);
    assert_eq!(dumps, [0, 4 * STEP, 12 * STEP]);
    assert_eq!(count(&counters, "dumps_incomplete"), 2);
    assert_eq!(count(&counters, "dumps"), 3);
}

#[test]
fn dumps_of_restarted_stream_are_aligned_to_new_timestamps() {
    // A restarted source continues after the next wrap of the 48-bit timestamps.
    let again = 1 << 48;
    let frame = |timestamp: u64| (timestamp, vec![1; 6], timestamp / STEP);
    let before = [0, 2 * STEP, 4 * STEP, 6 * STEP];
    let after = [again, again + 2 * STEP, again + 4 * STEP];
    let frames: Vec<_> = before.into_iter().chain(after).map(frame).collect();
    let (dumps, counters) = check(SHAPE, 3, &frames);
    assert_eq!(dumps, [0, 3 * STEP, 6 * STEP, again, again + 3 * STEP]);
    assert_eq!(count(&counters, "dumps_incomplete"), 1);
}

#[test]
fn frames_with_earlier_timestamps_are_dropped_and_counted() {
    let all = vec![1; 6];
    let mut run = Run::new(SHAPE, 2 * 16);
    let mut dumps = Vec::new();
    let payload = noise(SHAPE.frame_bytes(), 1);
    for timestamp in [2 * STEP, 2 * STEP, 0, 4 * STEP, u64::MAX - 5] {
        run.send(timestamp, &all, &payload, &mut dumps);
    }
    let counters = run.end(&mut dumps);
    assert_eq!(dumps[0].0, 2 * STEP);
    assert_eq!(dumps[0].1, [2; 6]);
    assert_eq!(dumps[1].0, 4 * STEP);
    assert_eq!(count(&counters, "heaps_late"), 4);
}

#[test]
fn stream_without_valid_data_outputs_no_partial_dump() {
    let (dumps, _) = check(SHAPE, 3, &[(0, vec![0; 6], 1)]);
    assert!(dumps.is_empty());
    let (dumps, _) = check(SHAPE, 2, &[(0, vec![0; 6], 1)]);
    assert_eq!(dumps, [0]);
}

#[test]
fn dump_after_failed_work_has_zero_counts_and_next_dump_is_complete() {
    let counters = Counters::default();
    let mut dumps = Dumps::new(SHAPE, &Clock::new(1e9, 2 * STEP), &counters);
    let mut counts = Vec::new();
    for number in 0..3 {
        let header =
            Header { timestamp: number * 2 * STEP, validity: vec![1; 6], ..Header::default() };
        assert_eq!(dumps.take(&header, 0, 2), 0..2);
        if number == 1 {
            dumps.spoil();
        }
        let mut dump = Header { validity: vec![7; 6], ..Header::default() };
        dumps.put_out(&mut dump);
        counts.push((dump.timestamp, dump.validity[0]));
    }
    assert_eq!(counts, [(0, 2), (2 * STEP, 0), (4 * STEP, 2)]);
    assert_eq!(count(&counters, "dumps_incomplete"), 1);
}

#[test]
fn dumps_without_any_heap_are_counted_and_a_jump_of_the_time_is_not() {
    let counters = Counters::default();
    let mut dumps = Dumps::new(SHAPE, &Clock::new(1e9, 2 * STEP), &counters);
    let hour = 3_600_000_000_000 / (2 * STEP);
    for (number, missing) in [(0, 0), (1, 0), (5, 3), (6, 3), (hour, 3), (hour + 2, 4)] {
        let header =
            Header { timestamp: number * 2 * STEP, validity: vec![1; 6], ..Header::default() };
        assert_eq!(dumps.take(&header, 0, 2), 0..2);
        dumps.put_out(&mut Header { validity: vec![7; 6], ..Header::default() });
        assert_eq!(count(&counters, "dumps_missing"), missing, "dump {number}");
    }
    assert_eq!(count(&counters, "dumps_incomplete"), 0);
}

fn rejected(kind: &Correlator, input: &PortType) -> Vec<Rejection> {
    kind.outputs(std::slice::from_ref(input)).unwrap_err()
}

#[test]
fn correlator_rejects_dump_of_partial_heaps_with_nearest_lengths() {
    let kind = Correlator { spectra_per_dump: Some(40), ..Default::default() };
    let rejections = rejected(&kind, &port(&SHAPE));
    assert_eq!(rejections.len(), 1);
    assert_eq!(rejections[0].help.as_deref(), Some("use 32 or 48, the nearest multiples"));
    let kind = Correlator { spectra_per_dump: Some(5), ..Default::default() };
    let rejections = rejected(&kind, &port(&SHAPE));
    assert_eq!(rejections[0].help.as_deref(), Some("use 16, the shortest dump"));
}

#[test]
fn correlator_rejects_invalid_dump_lengths() {
    let input = port(&SHAPE);
    let none = Correlator::default();
    for kind in [
        none.clone(),
        Correlator { spectra_per_dump: Some(0), ..none.clone() },
        Correlator { spectra_per_dump: Some(u64::MAX - 15), ..none.clone() },
        Correlator { spectra_per_dump: Some(16), dump_seconds: Some(1.0), ..none.clone() },
        Correlator { dump_seconds: Some(-1.0), ..none.clone() },
        Correlator { dump_seconds: Some(f64::NAN), ..none.clone() },
        Correlator { dump_seconds: Some(1e300), ..none.clone() },
    ] {
        assert_eq!(rejected(&kind, &input).len(), 1, "{kind:?}");
    }
}

#[test]
fn correlator_reports_all_diagnostics_of_an_input_at_once() {
    let kind = Correlator { spectra_per_dump: Some(16), ..Default::default() };
    let mut input = port(&SHAPE);
    input.dtype = Dtype::Cf32;
    input.axes[4].len = 3;
    input.clock.samples_per_frame = 31;
    assert_eq!(rejected(&kind, &input).len(), 3);
    input.axes.swap(1, 2);
    assert!(rejected(&kind, &input).iter().any(|r| r.message.contains("[heap][channel]")));
}

#[test]
fn dump_seconds_are_rounded_to_whole_heaps() {
    // A heap lasts 128 us.
    for (seconds, heaps) in [(1e-9, 1), (500e-6, 4), (1.0, 7813)] {
        let kind = Correlator { dump_seconds: Some(seconds), ..Default::default() };
        let output = &kind.outputs(&[port(&SHAPE)]).unwrap()[0];
        assert_eq!(output.clock.samples_per_frame, heaps * STEP);
        assert_eq!(u64::from(output.validity.full), heaps);
        assert_eq!(output.axes.iter().map(|axis| axis.len).collect::<Vec<_>>(), [2, 6, 4]);
    }
}
