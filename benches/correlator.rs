//! Benchmark of the correlator in complex multiply-accumulates per second, compared with a plain loop over the same
//! data: `cargo bench --bench correlator`.
#![allow(clippy::print_stdout)] // the table is the result

mod machine;

use fxgraph::Dtype;
use fxgraph_blocks::common::stacked::Stacked;
use fxgraph_blocks::x_engine::correlator::accumulate::Accumulator;
use fxgraph_dsp::correlator::Kernel;
use std::hint::black_box;
use std::time::{Duration, Instant};

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "correlator, ci8 [heap 2][antenna][channel 16][spectrum 256][pol 2], on {}",
        machine::processor()
    );
    println!("in 10^9 complex multiply-accumulates per second (best of several runs)\n");
    println!(
        "{:>8} {:>10} | {:>10} {:>8} | {:>10} {:>8} | other kernels, one core",
        "antennas",
        "plain loop",
        "one core",
        "times",
        format!("{cores} cores"),
        "times"
    );
    for antennas in [4, 16, 64, 80] {
        row(antennas, cores);
    }
}

fn row(antennas: usize, cores: usize) {
    let shape = Stacked {
        heaps: 2,
        antennas,
        channels: 16,
        pols: 2,
        spectra: 256,
        samples_per_spectrum: 2048,
        k_major: false,
        dtype: Dtype::Ci8,
        units: fxgraph_blocks::common::units::Units::Heap,
    };
    let payload: Vec<u8> = (0..shape.frame_bytes() as u64)
        .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8)
        .collect();
    let valid = vec![1; shape.heaps * antennas];
    let products = 4 * shape.baselines() * shape.channels;
    let work = (products * shape.heaps * shape.spectra) as f64;

    let mut expected = vec![[0; 2]; products];
    plain(&shape, &payload, &mut expected);
    let mut sums = vec![[0; 2]; products];
    let loop_rate = rate(work, || plain(&shape, black_box(&payload), &mut sums));

    let fast = |kernel: Kernel, threads: usize| {
        let mut accumulator = Accumulator::new(shape, kernel, threads)
            .unwrap_or_else(|error| panic!("no memory for the benchmark: {error}"));
        let mut output = vec![[0; 2]; products];
        accumulator.add(&payload, 0..shape.heaps, &valid);
        accumulator.dump(&vec![1; shape.baselines()], &mut output);
        assert!(output == expected, "{kernel:?} is wrong");
        rate(work, || accumulator.add(black_box(&payload), 0..shape.heaps, &valid))
    };
    let best = Kernel::best(2 * antennas);
    let (one, all) = (fast(best, 1), fast(best, cores));
    let others: Vec<String> = Kernel::available()
        .into_iter()
        .filter(|kernel| *kernel != best)
        .map(|kernel| format!("{kernel:?} {:.2}", fast(kernel, 1)))
        .collect();
    println!(
        "{antennas:>8} {loop_rate:>10.2} | {one:>10.2} {:>8.1} | {all:>10.2} {:>8.1} | {}",
        one / loop_rate,
        all / loop_rate,
        others.join(", ")
    );
}

/// Correlates with a plain loop: 32-bit sums, spectra innermost.
fn plain(shape: &Stacked, payload: &[u8], sums: &mut [[i32; 2]]) {
    sums.fill([0; 2]);
    let products = 4 * shape.baselines();
    for heap in 0..shape.heaps {
        for (channel, sums) in sums.chunks_exact_mut(products).enumerate() {
            for a2 in 0..shape.antennas {
                let row2 = shape.row(payload, heap, a2, channel).as_chunks::<4>().0;
                for a1 in 0..=a2 {
                    let row1 = shape.row(payload, heap, a1, channel).as_chunks::<4>().0;
                    for (p1, p2) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                        let [re, im] = &mut sums[shape.product(a1, p1, a2, p2)];
                        for (x, y) in row1.iter().zip(row2) {
                            let part = |byte: u8| i32::from(byte.cast_signed());
                            let (xr, xi) = (part(x[2 * p1]), part(x[2 * p1 + 1]));
                            let (yr, yi) = (part(y[2 * p2]), part(y[2 * p2 + 1]));
                            *re += xr * yr + xi * yi;
                            *im += xi * yr - xr * yi;
                        }
                    }
                }
            }
        }
    }
}

/// Returns `work` divided by the shortest time of a run, in 10^9 per second.
fn rate(work: f64, mut run: impl FnMut()) -> f64 {
    let begin = Instant::now();
    let mut shortest = Duration::MAX;
    let mut runs = 0;
    while runs < 3 || (begin.elapsed() < Duration::from_millis(400) && runs < 1000) {
        let start = Instant::now();
        run();
        shortest = shortest.min(start.elapsed());
        runs += 1;
    }
    work / shortest.as_secs_f64() / 1e9
}
