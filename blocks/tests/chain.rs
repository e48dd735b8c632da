//! Drives blocks of the F-engine in tests: digitised samples in, frames out.

use fxgraph::diagnostic::Span;
use fxgraph::edge::Harness;
use fxgraph::frame::Annotations;
use fxgraph::tree::{Node, Reader};
use fxgraph::{
    AnyConfigured, Axis, Block, Clock, Counters, Dtype, Env, Frame, FrameMut, KindSpec, Next,
    PortType, Ports, Rejection, ValidityType,
};
use fxgraph_dsp::packed::WIDTHS;
use fxgraph_dsp::random::Random;
use num_complex::{Complex32, Complex64};
use serde_json::Value;
use std::f64::consts::PI;
use std::sync::Arc;

pub const RATE_HZ: f64 = 1.712e9;

/// Content of a frame.
#[derive(Clone, Debug)]
pub struct Plain {
    pub timestamp: u64,
    pub validity: Vec<u32>,
    pub annotations: Annotations,
    pub payload: Vec<u8>,
}

impl Plain {
    pub fn of(frame: &Frame) -> Self {
        let header = frame.header();
        Self {
            timestamp: header.timestamp,
            validity: header.validity.clone(),
            annotations: header.annotations.clone(),
            payload: frame.as_slice::<u8>().unwrap().to_vec(),
        }
    }

    pub fn copy_to(&self, frame: &mut FrameMut) {
        let (header, payload) = frame.parts_mut::<u8>().unwrap();
        header.timestamp = self.timestamp;
        header.validity.clone_from(&self.validity);
        header.annotations.copy_from(&self.annotations);
        payload.copy_from_slice(&self.payload);
    }

    pub fn values<T: bytemuck::AnyBitPattern>(&self) -> Vec<T> {
        let payload = self.payload.chunks_exact(size_of::<T>());
        payload.map(bytemuck::pod_read_unaligned).collect()
    }
}

/// Output of a block.
pub struct Out {
    /// Type of the output; for a sink, of the input.
    pub port: PortType,
    pub frames: Vec<Plain>,
    pub counters: Counters,
    /// Summary of the block at its end.
    pub summary: String,
}

impl Out {
    pub fn count(&self, name: &str) -> u64 {
        let all = self.counters.list();
        all.iter().find(|named| named.name == name).unwrap().counter.get()
    }
}

pub fn kind<K: KindSpec>(parameters: Value) -> K {
    fxgraph::kind::read(&parameters).unwrap()
}

/// Creates a block of this kind and implementation for `inputs`.
pub fn connected(
    kind: &str,
    implementation: &str,
    parameters: &Value,
    inputs: &[PortType],
) -> Result<Arc<dyn AnyConfigured>, Vec<Rejection>> {
    let node = Node::of_json(parameters, Span::default());
    let kinds = crate::kinds();
    let kind = kinds.get(kind).unwrap();
    let read = (kind.read)(Reader::new(&node, Span::default()), implementation);
    read.map_err(|errors| errors[0].message.clone()).unwrap().connect(inputs)
}

/// Runs `kind` over all frames of its inputs.
pub fn drive<K: KindSpec>(kind: &K, inputs: &[PortType], frames: Vec<Vec<Plain>>) -> Out {
    let outputs = kind.outputs(inputs).unwrap();
    let ports = Ports { inputs: inputs.to_vec(), outputs };
    let env = Env::detached("block");
    drive_block(kind.build(inputs, &env).unwrap(), &ports, &env, frames)
}

/// Runs `block` over all frames of its inputs.
pub fn drive_block(
    block: Box<dyn Block>,
    ports: &Ports,
    env: &Env,
    frames: Vec<Vec<Plain>>,
) -> Out {
    let counters = env.counters.clone();
    let mut harness = Harness::new(block, ports, 2).unwrap();
    let mut queues: Vec<_> = frames.into_iter().map(|f| f.into_iter().peekable()).collect();
    let mut out = Vec::new();
    Harness::block_on(harness.start()).unwrap();
    loop {
        for (i, queue) in queues.iter_mut().enumerate() {
            while let Some(plain) = queue.peek() {
                if !harness.send(i, |frame| plain.copy_to(frame)) {
                    break;
                }
                queue.next();
            }
            if queue.peek().is_none() {
                harness.end(i);
            }
        }
        let next = Harness::block_on(harness.run()).unwrap();
        // Only the first output is looked at; a block also waits for the readers of the others.
        for output in 1..ports.outputs.len() {
            while harness.receive(output).is_some() {}
        }
        while !ports.outputs.is_empty()
            && let Some(frame) = harness.receive(0)
        {
            out.push(Plain::of(&frame));
        }
        if next == Next::Finished {
            Harness::block_on(harness.finish()).unwrap();
            let port = ports.outputs.first().unwrap_or_else(|| &ports.inputs[0]).clone();
            return Out { port, frames: out, counters, summary: env.summary.get() };
        }
    }
}

/// Digitised samples of one polarisation, input of the F-engine.
#[derive(Clone)]
pub struct Digitised {
    pub bits: u8,
    pub samples: Vec<i16>,
    /// Timestamp of the first sample.
    pub start: u64,
    pub heap_samples: usize,
    pub frame_samples: usize,
    /// Numbers of missing heaps, counted from `start`.
    pub lost_heaps: Vec<usize>,
    /// Numbers of missing frames, counted from `start`.
    pub lost_frames: Vec<usize>,
}

impl Digitised {
    pub fn new(samples: Vec<i16>) -> Self {
        Self {
            bits: 10,
            samples,
            start: 0,
            heap_samples: 256,
            frame_samples: 1024,
            lost_heaps: Vec::new(),
            lost_frames: Vec::new(),
        }
    }

    pub fn port(&self) -> PortType {
        let heaps = Axis::new("heap", self.frame_samples / self.heap_samples);
        PortType {
            dtype: Dtype::Packed(self.bits),
            axes: vec![Axis::new("sample", self.frame_samples)],
            clock: Clock {
                sync_time: fxgraph::Time::unix(1_000_000_000),
                ..Clock::new(RATE_HZ, self.frame_samples as u64)
            },
            band: None,
            validity: ValidityType::flags(vec![heaps]),
        }
    }

    pub fn frames(&self) -> Vec<Plain> {
        assert!(WIDTHS.contains(&self.bits));
        let per_frame = self.frame_samples / self.heap_samples;
        let frame = |(f, samples): (usize, &[i16])| Plain {
            timestamp: self.start + (f * self.frame_samples) as u64,
            validity: (0..per_frame)
                .map(|h| u32::from(!self.lost_heaps.contains(&(f * per_frame + h))))
                .collect(),
            annotations: Annotations::default(),
            payload: pack(samples, self.bits),
        };
        let all = self.samples.chunks_exact(self.frame_samples).enumerate();
        all.filter(|(f, _)| !self.lost_frames.contains(f)).map(frame).collect()
    }
}

fn pack(samples: &[i16], bits: u8) -> Vec<u8> {
    let mut packed = Vec::with_capacity(samples.len() * usize::from(bits) / 8);
    let (mut held, mut held_bits) = (0_u32, 0);
    for sample in samples {
        held = held << bits | u32::from(sample.cast_unsigned()) & ((1 << bits) - 1);
        held_bits += bits;
        while held_bits >= 8 {
            held_bits -= 8;
            packed.push((held >> held_bits) as u8);
        }
    }
    packed
}

/// Runs `pfb` on these polarisations.
pub fn pfb(parameters: Value, pols: &[Digitised]) -> Out {
    let ports: Vec<PortType> = pols.iter().map(Digitised::port).collect();
    let frames = pols.iter().map(Digitised::frames).collect();
    drive(&kind::<crate::f_engine::pfb::Pfb>(parameters), &ports, frames)
}

/// Runs a block on the output of another one.
pub fn then<K: KindSpec>(parameters: Value, before: Out) -> Out {
    drive(&kind::<K>(parameters), &[before.port], vec![before.frames])
}

/// Returns the output of `fft`: for each polarisation the timestamps, validities and spectra.
pub fn spectra(out: &Out) -> Vec<Vec<(u64, bool, Vec<Complex32>)>> {
    let pols = out.port.axis_len("pol").unwrap();
    let per_frame = out.port.axis_len("spectrum").unwrap();
    let step = out.port.samples_per("spectrum").unwrap();
    let len = out.port.elements() / pols / per_frame;
    let mut all = vec![Vec::new(); pols];
    for frame in &out.frames {
        let values: Vec<Complex32> = frame.values();
        for (i, spectrum) in values.chunks_exact(len).enumerate() {
            let (pol, n) = (i / per_frame, i % per_frame);
            let t = frame.timestamp + n as u64 * step;
            all[pol].push((t, frame.validity[i] == 1, spectrum.to_vec()));
        }
    }
    all
}

/// Returns normal noise with standard deviation `std`, clamped to the range of `bits` bits.
pub fn noise(seed: u64, len: usize, std: f64, bits: u8) -> Vec<i16> {
    let mut random = Random::new(seed);
    let limit = f64::from((1 << (bits - 1)) - 1);
    (0..len).map(|_| (random.normal_pair()[0] * std).round().clamp(-limit, limit) as i16).collect()
}

/// Returns the weights of the filter, directly from their formula.
pub fn weights(step: usize, taps: usize, hann: bool, w_cutoff: f64) -> Vec<f64> {
    let len = step * taps;
    let mut w: Vec<f64> = (0..len)
        .map(|i| {
            let x = PI * w_cutoff * ((i as f64 + 0.5) / step as f64 - taps as f64 / 2.0);
            let sinc = if x.abs() < 1e-300 { 1.0 } else { x.sin() / x };
            let cos = (2.0 * PI * i as f64 / (len - 1) as f64).cos();
            sinc * if hann { 0.5 - 0.5 * cos } else { 1.0 }
        })
        .collect();
    let norm = w.iter().map(|w| w * w).sum::<f64>().sqrt();
    w.iter_mut().for_each(|w| *w /= norm);
    w
}

/// Returns the filtered samples of the spectrum whose window starts with `window`.
pub fn filtered(window: &[i16], weights: &[f64], step: usize) -> Vec<f64> {
    let taps = weights.len() / step;
    let sum = |s| (0..taps).map(|t| weights[t * step + s] * f64::from(window[t * step + s])).sum();
    (0..step).map(sum).collect()
}

/// Returns sum over i of x_i exp(-2 pi j i k / len) for the first `channels` k, in double precision, directly.
pub fn dft(x: &[f64], channels: usize) -> Vec<Complex64> {
    let len = x.len();
    let roots: Vec<Complex64> = (0..len)
        .map(|i| Complex64::from_polar(1.0, -std::f64::consts::TAU * i as f64 / len as f64))
        .collect();
    let channel = |k: usize| x.iter().enumerate().map(|(i, x)| roots[i * k % len] * x).sum();
    (0..channels).map(channel).collect()
}
