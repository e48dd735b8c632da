//! Sample bookkeeping of the GPU implementation, with a slow filter on the host instead of the kernel.

use super::Pfb;
use crate::f_engine::ddc::Ddc;
use crate::f_engine::samples::input::Sizes;
use crate::f_engine::samples::packed_input::{Copy, Lending, Memory, seam_samples};
use crate::f_engine::samples::pol::Count;
use crate::f_engine::samples::power::Measured;
use crate::f_engine::samples::schedule::{Fate, Placed, Run, Schedule};
use crate::tests::chain::{self, Digitised, Out, Plain, kind, noise};
use fxgraph::{Block, BlockError, Counter, Dtype, Env, Io, KindSpec, Next, PortType, Ports};
use fxgraph_dsp::packed::Decoder;
use serde_json::{Value, json};

/// `pfb` with the GPU bookkeeping and the filter on the host.
struct Lent(Pfb);

impl Lent {
    fn drive(&self, inputs: &[PortType], frames: Vec<Vec<Plain>>) -> Out {
        let outputs = self.0.outputs(inputs).unwrap();
        let ports = Ports { inputs: inputs.to_vec(), outputs };
        let env = Env::detached("block");
        chain::drive_block(self.build(&ports, &env), &ports, &env, frames)
    }

    fn build(&self, ports: &Ports, env: &Env) -> Box<dyn Block> {
        let (pfb, sizes) = (&self.0, self.0.sizes(&ports.inputs));
        let room = 2 * sizes.frame_samples().next_multiple_of(8);
        let input = &ports.inputs[0];
        let bits = input.dtype.bits();
        let stores = ports.inputs.iter().map(|_| Lending::new(bits, &sizes));
        // A fill pattern, so that reads of unwritten memory change the result.
        let memory = |samples: usize| vec![vec![0x5a; samples / 8 * bits]; ports.inputs.len()];
        Box::new(OnHost {
            weights: pfb.weights(input),
            dtype: input.dtype,
            histories: memory(room),
            seams: memory(seam_samples(&sizes)),
            schedule: Schedule::new(
                sizes,
                &ports.inputs,
                &pfb.delays_of(ports),
                sizes.spectra,
                room,
                stores,
                Count::new(env, &sizes, ports),
            ),
            runs: Vec::new(),
            copies_to_histories: env.counters.count("copies_to_histories", ""),
            copies_to_seams: env.counters.count("copies_to_seams", ""),
        })
    }
}

struct OnHost {
    weights: Vec<f32>,
    dtype: Dtype,
    histories: Vec<Vec<u8>>,
    seams: Vec<Vec<u8>>,
    schedule: Schedule<Lending>,
    runs: Vec<(usize, Run)>,
    copies_to_histories: Counter,
    copies_to_seams: Counter,
}

impl OnHost {
    fn copy(&mut self) {
        for (pol, seams) in self.schedule.pols.iter_mut().zip(&mut self.seams) {
            for Copy { frame, from, to, bytes } in pol.store.seams.drain(..) {
                let Some(frame) = frame else { panic!("a seam is made of frames") };
                let frame: &[u8] = frame.as_slice().unwrap();
                seams[to..to + bytes].copy_from_slice(&frame[from..from + bytes]);
                self.copies_to_seams.add(1);
            }
        }
        for (pol, memory) in self.schedule.pols.iter_mut().zip(&mut self.histories) {
            for Copy { frame, from, to, bytes } in pol.store.copies.drain(..) {
                self.copies_to_histories.add(1);
                if let Some(frame) = frame {
                    let frame: &[u8] = frame.as_slice().unwrap();
                    memory[to..to + bytes].copy_from_slice(&frame[from..from + bytes]);
                } else {
                    assert!(from >= bytes, "no overlap");
                    memory.copy_within(from..from + bytes, to);
                }
            }
        }
    }

    /// Decodes `count` samples from bit `first_bit` on: one number each, or two for complex samples.
    fn numbers(&self, memory: &[u8], first_bit: u64, count: usize) -> Vec<f32> {
        let first = first_bit as usize / self.dtype.bits();
        let Dtype::Packed(bits) = self.dtype else {
            let bytes = memory[8 * first..][..8 * count].chunks_exact(4);
            return bytes.map(bytemuck::pod_read_unaligned).collect();
        };
        let mut samples = vec![0; first % 8 + count];
        Decoder::new(bits).unwrap().decode(memory, first / 8 * 8, &mut samples);
        samples[first % 8..].iter().map(|x| f32::from(*x)).collect()
    }

    /// Power and clipping of the last step of a window.
    fn measured(&self, step: &[f32]) -> Measured {
        let Dtype::Packed(bits) = self.dtype else { return Measured::default() };
        let limit = f32::from(i16::MAX >> (16 - bits));
        Measured {
            power: step.iter().map(|x| (x * x) as u64).sum(),
            samples: step.len() as u64,
            clipped: step.iter().filter(|x| x.abs() >= limit).count() as u64,
        }
    }
}

impl Block for OnHost {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        match self.schedule.place(io.inputs, |_, _| {}) {
            None => return Ok(Next::Wait),
            Some(Placed::Nowhere) => return Ok(Next::Finished),
            Some(Placed::Here) => self.schedule.reserve_frame(),
        }
        for (p, input) in io.inputs.iter_mut().enumerate() {
            while let Some(run) = self.schedule.next_run(p, input) {
                self.runs.push((p, run));
            }
        }
        if !self.schedule.is_done() {
            self.copy();
            return Ok(Next::Wait);
        }
        if self.runs.iter().any(|(_, run)| run.fate == Fate::Whole) {
            let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
            let Sizes { step, window, spectra, .. } = self.schedule.sizes;
            let per_spectrum = self.weights.len() * step / window;
            let mut measured = vec![Measured::default(); self.histories.len()];
            self.schedule.pols.iter_mut().for_each(|pol| pol.store.begin_frame());
            for (p, run) in std::mem::take(&mut self.runs) {
                let mut done = 0;
                while done < run.count {
                    let located = self.schedule.locate(p, &run, done);
                    self.copy();
                    let memory = match &located.memory {
                        Memory::Frame(frame) => frame.as_slice().unwrap(),
                        Memory::History => &self.histories[p][..],
                        Memory::Seams => &self.seams[p][..],
                    };
                    for n in 0..located.count {
                        let row = p * spectra + run.first + done + n;
                        let (header, payload) = frame.parts_mut::<f32>().unwrap();
                        let out = &mut payload[row * per_spectrum..][..per_spectrum];
                        out.fill(0.0);
                        header.validity[row] = u32::from(run.fate == Fate::Whole);
                        let bit = located.first_bit + n as u64 * located.step_bits;
                        let of_last = match run.fate {
                            Fate::Whole => {
                                let mut numbers = self.numbers(memory, bit, window);
                                for (i, (w, x)) in self.weights.iter().zip(&numbers).enumerate() {
                                    let y = &mut out[i % per_spectrum];
                                    *y = w.mul_add(*x, *y);
                                }
                                numbers.split_off(numbers.len() - per_spectrum)
                            }
                            Fate::Ending => self.numbers(memory, bit, step),
                            Fate::Lost => continue,
                        };
                        measured[p].add(self.measured(&of_last));
                    }
                    done += located.count;
                }
            }
            self.schedule.annotate(frame.header_mut());
            if matches!(self.dtype, Dtype::Packed(_)) {
                self.schedule.annotate_measured(frame.header_mut(), &measured);
            }
            io.outputs[0].push(frame);
        }
        self.runs.clear();
        self.schedule.next_frame();
        Ok(Next::Again)
    }
}

/// One polarisation.
type Stream = (PortType, Vec<Plain>);

fn digitised(pol: &Digitised) -> Stream {
    (pol.port(), pol.frames())
}

/// Compares all frames with those of the reference.
fn compare(name: &str, parameters: Value, pols: &[Stream]) {
    let (ports, frames): (Vec<PortType>, Vec<Vec<Plain>>) = pols.iter().cloned().unzip();
    let expected = chain::drive(&kind::<Pfb>(parameters.clone()), &ports, frames.clone());
    let got = Lent(kind(parameters)).drive(&ports, frames);
    assert!(!expected.frames.is_empty(), "{name}");
    assert_eq!(got.frames.len(), expected.frames.len(), "{name}");
    for (got, expected) in got.frames.iter().zip(&expected.frames) {
        let time = expected.timestamp;
        assert_eq!(got.timestamp, time, "{name}");
        assert_eq!(got.validity, expected.validity, "{name} {time}");
        for table in ["fine_delay_samples", "phase_turns", "adc_power", "adc_clipped"] {
            let tables = [got, expected].map(|frame| frame.annotations.get(table));
            assert_eq!(tables[0], tables[1], "{name} {time} {table}");
        }
        let values = [got, expected].map(Plain::values::<f32>);
        let close = values[0].iter().zip(&values[1]).all(|(a, b)| (a - b).abs() < 1e-2);
        assert!(close, "{name} {time}");
    }
    let count = |out: &Out| {
        ["spectra_missing", "spectra_delay_out_of_range", "samples_clipped"].map(|n| out.count(n))
    };
    assert_eq!(count(&got), count(&expected), "{name}");
}

#[test]
fn samples_read_from_frames_give_frames_of_reference() {
    let delays = json!([
        [{"delay_samples": 3.2, "rate": 2.5e-9}, {"start_samples": 7000, "delay_samples": -60}],
        [{"delay_samples": -9.7}, {"start_samples": 9000, "delay_samples": 40.0}]
    ]);
    for (frame_samples, spectra, taps) in [
        (1024, 16, 16),
        (256, 3, 4),
        (4096, 200, 16),
        (32768, 7, 16),
        (2048, 64, 1),
        (16384, 64, 5),
    ] {
        for start in [0, 5 * 32768] {
            let samples = noise(4, 65536, 300.0, 10);
            let whole = Digitised { start, frame_samples, ..Digitised::new(samples) };
            let lossy = Digitised {
                lost_heaps: vec![1, 2, 9, 60, 61, 200],
                lost_frames: if frame_samples < 8192 { vec![3, 7, 8] } else { vec![] },
                ..whole.clone()
            };
            let parameters = json!({"channels": 64, "spectra_per_frame": spectra, "taps": taps,
                "delays": delays});
            let name = format!("{frame_samples} {spectra} {taps} {start}");
            compare(&name, parameters, &[digitised(&whole), digitised(&lossy)]);
        }
    }
}

#[test]
fn spectra_of_four_complex_samples_start_at_any_sample() {
    let mut input = Digitised::new(noise(6, 1 << 15, 150.0, 10));
    input.lost_heaps = vec![30];
    let ddc = kind::<Ddc>(json!({"centre_hz": 4e8, "decimation": 2, "samples_per_frame": 256}));
    let narrow = chain::drive(&ddc, &[input.port()], vec![input.frames()]);
    for spectra in [1, 3, 8, 33] {
        let parameters =
            json!({"channels": 4, "taps": 4, "spectra_per_frame": spectra, "centre_hz": 4e8});
        let pol = (narrow.port.clone(), narrow.frames.clone());
        compare(&format!("{spectra} spectra"), parameters, &[pol]);
    }
}

#[test]
fn long_frames_are_copied_only_around_their_ends() {
    let frames = 8;
    let samples = noise(4, frames * 8192, 300.0, 10);
    let pol = Digitised { frame_samples: 8192, ..Digitised::new(samples) };
    let parameters = json!({"channels": 64, "spectra_per_frame": 64, "taps": 4});
    let out = Lent(kind(parameters)).drive(&[pol.port()], vec![pol.frames()]);
    assert_eq!(out.count("copies_to_histories"), 0);
    // The end of one frame and the start of the next.
    assert_eq!(out.count("copies_to_seams"), 2 * (frames as u64 - 1));
}

#[test]
fn samples_before_a_gap_are_not_used_after_it() {
    let early = Digitised { bits: 5, ..Digitised::new(noise(3, 8192, 5.0, 5)) };
    let ports = [early.port()];
    let late = Digitised { start: 1 << 40, ..early.clone() };
    let frames = || vec![early.frames().into_iter().chain(late.frames()).collect::<Vec<_>>()];
    let parameters = json!({"channels": 16, "taps": 4, "spectra_per_frame": 16,
        "delays": [[{"delay_samples": 100}]]});
    let expected = chain::drive(&kind::<Pfb>(parameters.clone()), &ports, frames());
    let got = Lent(kind(parameters)).drive(&ports, frames());
    assert_eq!(got.frames.len(), expected.frames.len());
    for (got, expected) in got.frames.iter().zip(&expected.frames) {
        assert_eq!((got.timestamp, &got.validity), (expected.timestamp, &expected.validity));
        let values = [got, expected].map(Plain::values::<f32>);
        assert!(values[0].iter().zip(&values[1]).all(|(a, b)| (a - b).abs() < 1e-3));
    }
}
