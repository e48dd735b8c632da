//! The CUDA implementation: one launch per frame.
#![allow(unsafe_code)] // launches on memory that the job and the block own

use super::geometry::{Geometry, THREADS, alignment};
use super::{Channel, Counts, GnssCorrelator, Shape};
use crate::common::gpu::{self, Table};
use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::cuda::{Arg, Defines, Device, DeviceArray, GpuJob, GpuMap, Grid, Kernel};
use fxgraph::{BlockError, Env};
use fxgraph_dsp::gnss::{Nco, Replica, System, phase};
use std::sync::Arc;

/// Number of 64-bit words of a `Channel` of the kernel.
const CHANNEL_WORDS: usize = 10;

/// The running block.
pub(super) struct Cuda {
    kernel: Kernel,
    grid: Grid,
    shape: Shape,
    channels: Timed<Vec<Channel>>,
    changes: Changes<Vec<Channel>>,
    codes: Codes,
    /// All codes of all systems, each extended by the length that a thread block reads.
    replicas: DeviceArray<u8>,
    /// `Channel` of each epoch and satellite.
    words: Vec<u64>,
    /// The same on the device; `None` if they are few enough to be arguments of the launch, without a copy.
    table: Option<Table<u64>>,
    /// Partial sums `[task][value][run]`, and the number of completed runs per task.
    partial: DeviceArray<f32>,
    tickets: DeviceArray<u32>,
    counts: Counts,
}

/// Locations of the codes, and values shared by the satellites of a system.
struct Codes {
    /// For each system in use: offset of its codes, bytes per code, and the value subtracted from its entries.
    systems: Vec<(System, usize, usize, i8)>,
    /// For each system: the latest correlator tap, as a phase of the code.
    last: Vec<u64>,
    /// `[system][tap]`: lead of each correlator tap over the latest one, as a phase of the code.
    ahead: Vec<u64>,
}

/// Returns the systems of the satellites, each once.
fn systems(parameters: &GnssCorrelator) -> Vec<System> {
    let is_used = |system: &System| parameters.satellites.iter().any(|s| s.system == *system);
    System::ALL.into_iter().filter(is_used).collect()
}

fn geometry(parameters: &GnssCorrelator, shape: &Shape, multiprocessors: usize) -> Geometry {
    let last = last_tap(parameters);
    let span_chips = parameters.taps_chips.iter().map(|tap| tap - last).fold(0.0, f64::max);
    let systems = systems(parameters);
    Geometry::new(shape, &systems, span_chips, multiprocessors)
}

/// Returns the offset of the latest correlator tap in chips.
fn last_tap(parameters: &GnssCorrelator) -> f64 {
    parameters.taps_chips.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns the bytes per code of `system`, for thread blocks that read `window` bytes from any entry.
fn row_bytes(system: System, window: usize) -> usize {
    (system.entries() + window).next_multiple_of(16)
}

/// Returns the number of words of the channels of a frame.
fn channel_words(shape: &Shape) -> usize {
    shape.epochs * shape.satellites * CHANNEL_WORDS
}

/// Whether this number of words fits in the arguments of the launch: 4 KiB without 40 bytes of addresses.
fn is_argument(words: usize) -> bool {
    words <= (4096 - 40) / 8
}

/// Returns the size of the block's device arrays in bytes.
pub(super) fn device_bytes(parameters: &GnssCorrelator, shape: &Shape) -> usize {
    const MANY_MULTIPROCESSORS: usize = 256;
    let geometry = geometry(parameters, shape, MANY_MULTIPROCESSORS);
    let of_system = |system: System| system.prns().count() * row_bytes(system, geometry.window);
    let codes: usize = systems(parameters).into_iter().map(of_system).sum();
    let [runs, sets, antennas] = geometry.blocks(shape);
    let words = channel_words(shape);
    let table = if is_argument(words) { 0 } else { Table::<u64>::device_bytes(words) };
    codes + table + 4 * sets * antennas * (1 + geometry.values(shape) * runs)
}

impl Codes {
    /// Returns the codes in one array, and their locations.
    fn new(parameters: &GnssCorrelator, taps: usize, window: usize) -> (Vec<u8>, Self) {
        let mut bytes = Vec::new();
        let mut known = Vec::new();
        let mut lasts = Vec::new();
        let mut ahead = Vec::new();
        for system in systems(parameters) {
            let begin = bytes.len();
            let replicas = system.prns().filter_map(|prn| Replica::new(system, prn));
            let replicas: Vec<Replica> = replicas.collect();
            let Some(first) = replicas.first() else { continue };
            let least = replicas.iter().flat_map(Replica::entries).min().copied().unwrap_or(0);
            let row = row_bytes(system, window);
            for replica in &replicas {
                let entries = replica.entries().iter().cycle().take(row);
                bytes.extend(entries.map(|entry| (i16::from(*entry) - i16::from(least)) as u8));
            }
            // Differences of the offsets that the reference adds, so that no tap is rounded twice.
            let wrap = (first.entries().len() as u128) << phase::CODE_FRACTION_BITS;
            let last = phase::tap(last_tap(parameters), first);
            let from_last = |chips: &f64| {
                let tap = u128::from(phase::tap(*chips, first));
                ((tap + wrap - u128::from(last)) % wrap) as u64
            };
            ahead.extend(parameters.taps_chips.iter().map(from_last));
            lasts.push(last);
            known.push((system, begin, row, least));
        }
        debug_assert_eq!(ahead.len(), taps * known.len());
        (bytes, Self { systems: known, last: lasts, ahead })
    }

    /// Returns the kernel's parameters for these codes.
    fn defines(&self) -> Defines {
        let phases = self.ahead.iter().map(|ahead| format!("{ahead:#x}")).collect::<Vec<_>>();
        let offsets = self.systems.iter().map(|(.., least)| (-i16::from(*least)).to_string());
        vec![
            ("SYSTEMS", self.systems.len().to_string()),
            ("TAP_PHASES", phases.join(",")),
            ("OFFSETS", offsets.collect::<Vec<_>>().join(",")),
        ]
    }

    /// Returns the kernel's `Channel` of a satellite with these phases at the start of the epoch, at sample
    /// `start` of the frame.
    fn describe(
        &self,
        channel: &Channel,
        mut nco: Nco,
        (start, len, align): (usize, usize, usize),
    ) -> [u64; CHANNEL_WORDS] {
        let place = self.systems.iter().position(|(system, ..)| *system == channel.system);
        let place = place.unwrap_or_default();
        let (_, begin, row, _) = self.systems[place];
        let skipped = start % align;
        nco.go_back(skipped as u64);
        let words = |low: usize, high: usize| low as u64 | (high as u64) << 32;
        [
            nco.code,
            nco.code_step,
            nco.carrier,
            nco.carrier_step,
            (begin + row * (channel.system.place(channel.prn) - 1)) as u64,
            words(channel.replica.entries().len(), place),
            channel.replica.scale().to_bits(),
            words(start - skipped, skipped),
            words(skipped + len, 0),
            self.last[place],
        ]
    }
}

impl Cuda {
    pub(super) fn new(
        parameters: &GnssCorrelator,
        shape: Shape,
        channels: Vec<Channel>,
        env: &Env,
        device: &Arc<Device>,
    ) -> Result<Self, BlockError> {
        let geometry = geometry(parameters, &shape, device.properties().multiprocessors);
        let (bytes, codes) = Codes::new(parameters, shape.taps, geometry.window);
        let words = channel_words(&shape);
        let mut defines = geometry.defines(&shape);
        defines.push(("CHANNELS_AS_ARGUMENT", u8::from(is_argument(words)).to_string()));
        defines.extend(codes.defines());
        let program = gpu::program(device, "gnss_correlator.cu", defines)?;
        let blocks = geometry.blocks(&shape);
        let [runs, sets, antennas] = blocks;
        let tasks = sets * antennas;
        Ok(Self {
            kernel: program.kernel("gnss_correlate", geometry.shared_bytes(&shape))?,
            grid: Grid::new(blocks, THREADS),
            replicas: DeviceArray::from_slice(device, &bytes)?,
            table: if is_argument(words) { None } else { Some(Table::new(device, words)?) },
            words: vec![0; words],
            partial: DeviceArray::new(device, tasks * geometry.values(&shape) * runs)?,
            tickets: DeviceArray::zeros(device, tasks)?,
            shape,
            channels: Timed::new(channels),
            changes: Changes::default(),
            codes,
            counts: Counts::new(env),
        })
    }

    /// Fills in the channels of a frame.
    fn describe(&mut self, frame_start: u64) {
        let Shape { epochs, satellites, .. } = self.shape;
        let (len, align) = (self.shape.samples_per_epoch(), alignment(&self.shape));
        let mut first = 0;
        while first < epochs {
            let timestamp = self.shape.epoch_timestamp(frame_start, first);
            self.channels.advance(timestamp);
            // Rounded up, so that no change is missed; a shorter run only costs another turn of this loop.
            let step = self.shape.samples.ticks_of(len);
            let same = self.channels.run(timestamp, step, epochs - first);
            for (satellite, channel) in self.channels.at(timestamp).iter().enumerate() {
                let mut nco = channel.at(frame_start, &self.shape.samples);
                nco.advance((first * len) as u64);
                for epoch in first..first + same {
                    let words = self.codes.describe(channel, nco, (epoch * len, len, align));
                    let at = (epoch * satellites + satellite) * CHANNEL_WORDS;
                    self.words[at..at + CHANNEL_WORDS].copy_from_slice(&words);
                    // Advancing from epoch to epoch avoids the division needed from timestamp 0.
                    nco.advance(len as u64);
                }
            }
            first += same;
        }
    }
}

impl GpuMap for Cuda {
    fn queue(&mut self, job: GpuJob<'_>) -> Result<(), BlockError> {
        let GpuJob { pipeline, slot, header, from, to } = job;
        let start = header.timestamp;
        for (from, channels) in self.changes.begin(start, self.shape.samples.frame_ticks) {
            self.channels.set(from, channels);
        }
        self.describe(start);
        let channels = match &mut self.table {
            Some(table) => {
                table.host_mut(slot)?.copy_from_slice(&self.words);
                pipeline.tables();
                table.send(pipeline, slot, 0..self.words.len())?;
                table.address(slot).into()
            }
            None => Arg::Bytes(bytemuck::cast_slice(&self.words)),
        };
        pipeline.work()?;
        let arguments = [
            from.into(),
            self.replicas.address().into(),
            channels,
            self.partial.address().into(),
            self.tickets.address().into(),
            to.into(),
        ];
        // SAFETY: the arrays belong to the block and the job's slot; the frames belong to the job and have
        // the sizes that the kernel was compiled for. Jobs run one after the other, so they may share the
        // partial sums.
        Ok(unsafe { self.kernel.launch(pipeline.stream(), self.grid, &arguments) }?)
    }

    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        self.counts.validity(input, output);
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.changes.offer(change)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::gnss::samples::Samples;
    use fxgraph::{Axis, Clock, Dtype, KindSpec, PortType, Ports, ValidityType};
    use fxgraph_dsp::gnss::phase::{CODE_FRACTION_BITS, ENTRY};
    use fxgraph_dsp::random::Random;
    use num_complex::{Complex32, Complex64};

    const SAMPLES: usize = 6003;
    const EPOCHS: usize = 3;

    fn input() -> PortType {
        PortType {
            dtype: Dtype::Ci16,
            axes: vec![Axis::new("sample", SAMPLES)],
            clock: Clock::new(6e6, SAMPLES as u64),
            band: None,
            validity: ValidityType::flags(vec![]),
        }
    }

    /// Computes the kernel's result for the words of a channel, in double precision.
    fn interpret(words: &[u64], codes: &[u8], all: &Codes, samples: &[[i16; 2]]) -> Vec<Complex64> {
        let taps = 3;
        let (length, system) = (words[5] & 0xffff_ffff, (words[5] >> 32) as usize);
        let (first, begin, end) = (words[7] & 0xffff_ffff, words[7] >> 32, words[8] & 0xffff_ffff);
        let offset = -f64::from(all.systems[system].3);
        let scale = f64::from_bits(words[6]);
        (0..taps)
            .map(|tap| {
                let ahead = i128::from(words[9]) + i128::from(all.ahead[system * taps + tap]);
                let sum = (begin..end).map(|n| {
                    let phase = i128::from(words[0]) + i128::from(words[1]) * i128::from(n) + ahead;
                    let wrap = i128::from(length) << CODE_FRACTION_BITS;
                    let entry = phase.rem_euclid(wrap) as u64 / ENTRY;
                    let value = f64::from(codes[(words[4] + entry) as usize]) - offset;
                    let turns =
                        words[2].wrapping_add(words[3].wrapping_mul(n)) as f64 / 2.0_f64.powi(64);
                    let [re, im] = samples[(first + n) as usize].map(f64::from);
                    let carrier = Complex64::cis(-std::f64::consts::TAU * turns);
                    Complex64::new(re, im) * carrier * value
                });
                sum.sum::<Complex64>() * scale
            })
            .collect()
    }

    #[test]
    fn correlator_taps_equal_the_reference_bit_by_bit() {
        let taps_chips: Vec<f64> = (0..8).map(|tap| 0.5 - 0.37 * f64::from(tap)).collect();
        let satellites: Vec<_> = System::ALL
            .into_iter()
            .map(
                |system| serde_json::json!({"system": system.name(), "prn": system.prns().start()}),
            )
            .collect();
        let kind: GnssCorrelator = serde_json::from_value(serde_json::json!({
            "satellites": satellites,
            "taps_chips": taps_chips,
        }))
        .unwrap();
        let (_, codes) = Codes::new(&kind, taps_chips.len(), 64);
        let mut ahead = codes.ahead.iter();
        let samples = Samples::complex(Dtype::Ci16, 1, 6000, 6e6);
        for channel in kind.channels(&samples).unwrap() {
            let last = codes.describe(&channel, channel.nco, (0, 100, 4))[9];
            for tap in &channel.taps {
                let sum = u128::from(last) + u128::from(*ahead.next().unwrap());
                assert_eq!(sum % u128::from(channel.nco.code_wrap), u128::from(*tap));
            }
        }
    }

    #[test]
    fn kernel_tables_match_the_reference() {
        let kind: GnssCorrelator = serde_json::from_str(
            r#"{"satellites": [
                {"system": "gps_l1_ca", "prn": 9, "doppler_hz": 2100, "code_phase_chips": 1022.9, "carrier_turns": 0.4},
                {"system": "galileo_e1b", "prn": 50, "doppler_hz": -4100, "code_phase_chips": 4091.99},
                {"system": "gps_l1_ca", "prn": 37, "code_phase_chips": 0.1},
                {"system": "qzss_l1c_p", "prn": 202, "doppler_hz": 3000, "code_phase_chips": 10229.99},
                {"system": "beidou_b1c_d", "prn": 63, "code_phase_chips": 7000}],
            "taps_chips": [0.5, 0, -0.75], "epochs_per_frame": 3, "intermediate_hz": 250000}"#,
        )
        .unwrap();
        let outputs = kind.outputs(&[input()]).unwrap();
        let ports = Ports { inputs: vec![input()], outputs };
        let shape = kind.shape(&input()).unwrap();
        let mut random = Random::new(8);
        let samples: Vec<[i16; 2]> =
            (0..SAMPLES).map(|_| random.normal_pair().map(|v| (500.0 * v) as i16)).collect();
        let start = 1_000_000_007;
        let block = kind.build(&ports.inputs, &Env::detached("correlate")).unwrap();
        let mut harness = fxgraph::edge::Harness::new(block, &ports, 1).unwrap();
        harness.send(0, |frame| {
            frame.fill_validity(1);
            frame.header_mut().timestamp = start;
            frame.as_mut_slice::<[i16; 2]>().unwrap().copy_from_slice(&samples);
        });
        fxgraph::edge::Harness::block_on(harness.run()).unwrap();
        let frame = harness.receive(0).unwrap();
        let mut expected = frame.as_slice::<Complex32>().unwrap().chunks(3);
        let geometry = geometry(&kind, &shape, 132);
        let (bytes, codes) = Codes::new(&kind, 3, geometry.window);
        let channels = kind.channels(&shape.samples).unwrap();
        let len = SAMPLES / EPOCHS;
        for epoch in 0..EPOCHS {
            for channel in &channels {
                let timestamp = start + (epoch * len) as u64;
                let place = (epoch * len, len, alignment(&shape));
                let words = codes.describe(channel, channel.at(timestamp, &shape.samples), place);
                let found = interpret(&words, &bytes, &codes, &samples);
                for (found, expected) in found.iter().zip(expected.next().unwrap()) {
                    let expected = Complex64::new(expected.re.into(), expected.im.into());
                    assert!((found - expected).norm() < 0.05, "{epoch}: {found} {expected}");
                }
            }
        }
    }
}
