//! Benchmark of the F-engine on one thread, as `pfb`, `fft` and `postproc` and as the block `f_engine`, compared with
//! the FFT library alone at the same size in the same run: `cargo bench --bench fengine`.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod machine;

use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, Frame, KindSpec, PortType, Ports, ValidityType};
use fxgraph_blocks::f_engine::{f_engine::FEngine, fft::Fft, pfb::Pfb, postproc::Postproc};
use fxgraph_dsp::simd::Lines;
use machine::processor;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

const POLS: usize = 2;
const FRAME_SAMPLES: usize = 1 << 18;
/// Number of rounds, and duration of each measurement in a round.
const ROUNDS: usize = 25;
const MEASURE: Duration = Duration::from_millis(100);

fn main() {
    println!("F-engine on one core of: {}", processor());
    println!("10-bit samples, 2 polarisations, 16 taps, 8-bit output with dither; Msamples/s\n");
    println!("channels  FFT alone    pfb    fft  postproc  together  share  f_engine  share");
    for channels in [1024, 4096, 8192, 32768] {
        let mut engine = Engine::new(channels);
        let mut fused = Fused::new(channels);
        engine.run(MEASURE);
        fused.run(MEASURE);
        // Interleaved, so that all run at the same clock frequency and load of the machine.
        let runs: Vec<[f64; 6]> = (0..ROUNDS)
            .map(|_| {
                let [pfb, fft, postproc, together] = engine.run(MEASURE);
                [fft_alone(channels, MEASURE), pfb, fft, postproc, together, fused.run(MEASURE)]
            })
            .collect();
        let [alone, pfb, fft, postproc, together, fused] =
            [0, 1, 2, 3, 4, 5].map(|i| median(runs.iter().map(|run| run[i])));
        let share = |rate| 100.0 * rate / alone;
        println!(
            "{channels:>8}  {alone:>9.0}  {pfb:>5.0}  {fft:>5.0}  {postproc:>8.0}  {together:>8.0}  {:>4.0}%  \
             {fused:>8.0}  {:>4.0}%",
            share(together),
            share(fused)
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Rate of the FFT library in millions of real samples per second, over the spectra of one frame.
fn fft_alone(channels: usize, time: Duration) -> f64 {
    let plan = realfft::RealFftPlanner::<f32>::new().plan_fft_forward(2 * channels);
    // Aligned to cache lines, as filtered samples and spectra of the F-engine.
    let mut samples = Lines::<f32>::new(1 << 20);
    let mut out = Lines::new(plan.complex_len());
    let mut scratch = Lines::new(plan.get_scratch_len());
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < time {
        for samples in samples.chunks_exact_mut(2 * channels) {
            plan.process_with_scratch(samples, &mut out, &mut scratch).unwrap();
        }
        // The transform may overwrite its input, so restore it: values must not grow without bound.
        samples.fill(0.5);
        done += samples.len();
    }
    done as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// A block called by the benchmark, without a scheduler.
struct Stage {
    harness: Harness,
    busy: Duration,
}

impl Stage {
    fn new<K: KindSpec>(parameters: Value, inputs: Vec<PortType>) -> (Self, PortType) {
        let kind: K = fxgraph::kind::read(&parameters).unwrap();
        let outputs = kind.outputs(&inputs).unwrap();
        let output = outputs[0].clone();
        let ports = Ports { inputs, outputs };
        let block = kind.build(&ports.inputs, &Env::detached(K::NAME)).unwrap();
        let harness = Harness::new(block, &ports, 1).unwrap();
        (Self { harness, busy: Duration::ZERO }, output)
    }

    /// Sends a shared frame to the block, as a flowgraph does, and returns its output.
    fn pass(&mut self, frame: Arc<Frame>) -> Option<Arc<Frame>> {
        self.harness.share(0, frame);
        self.work()
    }

    fn work(&mut self) -> Option<Arc<Frame>> {
        let start = Instant::now();
        Harness::block_on(self.harness.run()).unwrap();
        self.busy += start.elapsed();
        self.harness.receive(0)
    }
}

/// Stream of one polarisation.
fn input() -> PortType {
    PortType {
        dtype: Dtype::Packed(10),
        axes: vec![Axis::new("sample", FRAME_SAMPLES)],
        clock: Clock::new(1.712e9, FRAME_SAMPLES as u64),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", FRAME_SAMPLES / 4096)]),
    }
}

fn delays() -> Value {
    json!([[{"delay_samples": 33.3}], [{"delay_samples": -7.2}]])
}

/// Random samples of a frame, which both polarisations send again and again.
struct Samples {
    packed: Vec<u8>,
    timestamp: u64,
}

impl Samples {
    fn new() -> Self {
        let mut state = 1_u64;
        let random = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let packed = (0..FRAME_SAMPLES * 10 / 8).map(random).collect();
        Self { packed, timestamp: 0 }
    }

    /// Sends a frame of each polarisation.
    fn send(&mut self, to: &mut Stage) {
        for pol in 0..POLS {
            to.harness.send(pol, |frame| {
                frame.fill_validity(1);
                frame.header_mut().timestamp = self.timestamp;
                frame.as_mut_slice::<u8>().unwrap().copy_from_slice(&self.packed);
            });
        }
        self.timestamp += FRAME_SAMPLES as u64;
    }
}

/// The three stages as the block `f_engine`.
struct Fused {
    f_engine: Stage,
    samples: Samples,
}

impl Fused {
    fn new(channels: usize) -> Self {
        let parameters = json!({"channels": channels, "delays": delays(), "gains": [0.3, 0.4]});
        let (f_engine, _) = Stage::new::<FEngine>(parameters, vec![input(), input()]);
        Self { f_engine, samples: Samples::new() }
    }

    /// Rate in millions of samples per second.
    fn run(&mut self, time: Duration) -> f64 {
        self.f_engine.busy = Duration::ZERO;
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < time {
            self.samples.send(&mut self.f_engine);
            done += POLS * FRAME_SAMPLES;
            while self.f_engine.work().is_some() {}
        }
        done as f64 / self.f_engine.busy.as_secs_f64() / 1e6
    }
}

struct Engine {
    pfb: Stage,
    fft: Stage,
    postproc: Stage,
    samples: Samples,
}

impl Engine {
    fn new(channels: usize) -> Self {
        let parameters = json!({"channels": channels, "delays": delays()});
        let (pfb, filtered) = Stage::new::<Pfb>(parameters, vec![input(), input()]);
        let (fft, spectra) = Stage::new::<Fft>(json!({}), vec![filtered]);
        let (postproc, _) = Stage::new::<Postproc>(json!({"gains": [0.3, 0.4]}), vec![spectra]);
        Self { pfb, fft, postproc, samples: Samples::new() }
    }

    /// Rates of pfb, fft, postproc and all three, in millions of samples per second.
    fn run(&mut self, time: Duration) -> [f64; 4] {
        for stage in [&mut self.pfb, &mut self.fft, &mut self.postproc] {
            stage.busy = Duration::ZERO;
        }
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < time {
            self.samples.send(&mut self.pfb);
            done += POLS * FRAME_SAMPLES;
            while let Some(filtered) = self.pfb.work() {
                if let Some(spectra) = self.fft.pass(filtered) {
                    self.postproc.pass(spectra);
                }
            }
        }
        let rate = |busy: Duration| done as f64 / busy.as_secs_f64() / 1e6;
        let stages = [self.pfb.busy, self.fft.busy, self.postproc.busy];
        [rate(stages[0]), rate(stages[1]), rate(stages[2]), rate(stages.iter().sum())]
    }
}
