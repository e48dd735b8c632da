//! The block: computes each frame in blocks of samples, first noise, then the signal of each satellite.

use super::sky::{Moment, Orbit, Scene};
use super::{GnssSignalSimulator, Transmission};
use fxgraph::{Block, BlockError, Counter, Dtype, Env, FrameMut, Io, Next, PortType};
use fxgraph_dsp::gnss::correlate::{ROW, Rotors, write_code};
use fxgraph_dsp::gnss::{BLOCK_SAMPLES, Nco, Replica, System};
use fxgraph_dsp::random::Random;
use fxgraph_dsp::simd::InstructionSet;
use num_complex::Complex32;
use std::sync::Arc;

/// Memory of one satellite without its replica, in bytes.
pub(super) const SIGNAL_BYTES: usize = 24 * BLOCK_SAMPLES;

/// The running block.
pub(super) struct Simulator {
    dtype: Dtype,
    antennas: usize,
    samples: usize,
    noise_rms: f64,
    seed: u64,
    signals: Vec<Signal>,
    frame: u64,
    frames: u64,
    code: Vec<i8>,
    /// Samples of one antenna, before rounding.
    mixed: Vec<Complex32>,
    clipped: Counter,
}

/// Signal of one satellite.
struct Signal {
    instructions: InstructionSet,
    replica: Replica,
    course: Course,
    rotors: Rotors,
    /// Frequency of the rotors, in units of 2^-64 turns per sample.
    rotor_step: Option<u64>,
    amplitude: f64,
    /// Phase at each antenna, in turns.
    turns: Vec<f64>,
}

/// Phases and symbols of a signal over time.
enum Course {
    Constant(Constant),
    Orbit(Box<Orbit>),
}

/// A constant Doppler shift, with random data.
struct Constant {
    /// Phases at timestamp 0.
    nco: Nco,
    /// Chips of the secondary code, one for each period of the code.
    secondary: Vec<i8>,
    /// Number of code periods per data symbol; `None` for a pilot.
    periods_per_symbol: Option<u64>,
    /// Seed of its data; `None` without data.
    seed: Option<u64>,
}

impl Constant {
    /// Returns the signal at a sample, with the symbol times the chip of the secondary code.
    fn at(&self, timestamp: u64) -> Moment {
        let phase =
            u128::from(self.nco.code) + u128::from(timestamp) * u128::from(self.nco.code_step);
        let wrap = u128::from(self.nco.code_wrap);
        let period = (phase / wrap) as u64;
        let left = (wrap - phase % wrap).div_ceil(u128::from(self.nco.code_step)) as u64;
        let is_negative = match (self.seed, self.periods_per_symbol) {
            (Some(seed), Some(periods)) => Random::of(seed, period / periods).bits() & 1 == 1,
            _ => false,
        };
        let chip = f64::from(self.secondary[(period % self.secondary.len() as u64) as usize]);
        let mut nco = self.nco;
        nco.advance(timestamp);
        Moment { nco, symbol: if is_negative { -chip } else { chip }, left }
    }
}

/// Largest difference between the frequency of rotors and that of the signal, in units of 2^-64 turns per sample: 2^-32
/// turns over a block.
const ROTOR_STEP: u64 = (1 << 32) / BLOCK_SAMPLES as u64;

impl Signal {
    fn new(
        system: System,
        prn: usize,
        cn0_db_hz: f64,
        course: Course,
        parameters: &GnssSignalSimulator,
    ) -> Result<Self, BlockError> {
        let replica = Replica::new(system, prn).ok_or_else(|| {
            BlockError::new(format!("satellite {} does not exist", system.label(prn)))
        })?;
        let power = 2.0 * 10.0_f64.powf(cn0_db_hz / 10.0) / parameters.adc_sample_rate_hz;
        Ok(Self {
            instructions: InstructionSet::best(),
            amplitude: parameters.noise_rms * power.sqrt() * replica.scale(),
            replica,
            course,
            rotors: Rotors::default(),
            rotor_step: None,
            turns: vec![0.0; parameters.antennas],
        })
    }

    /// Creates a signal with a constant Doppler shift.
    fn constant(
        transmission: &Transmission,
        parameters: &GnssSignalSimulator,
    ) -> Result<Self, BlockError> {
        let satellite = transmission.satellite();
        let system = satellite.system;
        let constant = Constant {
            nco: Nco::default(),
            secondary: system.secondary(satellite.prn).unwrap_or_else(|| vec![1]),
            periods_per_symbol: system.signal().periods_per_symbol,
            seed: transmission.data.then(|| {
                let number = system.number() * 100 + satellite.prn;
                Random::of(parameters.seed, 0x6e73 + number as u64).bits()
            }),
        };
        let course = Course::Constant(constant);
        let mut signal =
            Self::new(system, satellite.prn, transmission.cn0_db_hz, course, parameters)?;
        if let Course::Constant(constant) = &mut signal.course {
            let rate_hz = parameters.adc_sample_rate_hz;
            constant.nco =
                Nco::new(&satellite, &signal.replica, parameters.intermediate_hz, rate_hz, 0);
        }
        signal
            .turns
            .iter_mut()
            .zip(&transmission.antenna_turns)
            .for_each(|(to, turns)| *to = *turns);
        Ok(signal)
    }

    fn at(&mut self, timestamp: u64) -> Result<Moment, BlockError> {
        match &mut self.course {
            Course::Constant(constant) => Ok(constant.at(timestamp)),
            Course::Orbit(orbit) => orbit.at(timestamp, &self.replica),
        }
    }

    /// Adds the signal at `antenna` from `timestamp` on to the samples in `mixed`, at most a block.
    fn add(
        &mut self,
        antenna: usize,
        timestamp: u64,
        mixed: &mut [Complex32],
        code: &mut [i8],
    ) -> Result<(), BlockError> {
        let mut done = 0;
        while done < mixed.len() {
            let Moment { nco, symbol, left } = self.at(timestamp.saturating_add(done as u64))?;
            let len = (mixed.len() - done).min(left as usize);
            if symbol == 0.0 {
                done += len;
                continue;
            }
            write_code(self.instructions, &self.replica, &nco, nco.code, len, code);
            // Rotors remove carriers; a negative step adds the carrier.
            let step = nco.carrier_step.wrapping_neg();
            let apart = |old: u64| old.wrapping_sub(step).cast_signed().unsigned_abs();
            if self.rotor_step.is_none_or(|old| apart(old) > ROTOR_STEP) {
                self.rotors.set(step);
                self.rotor_step = Some(step);
            }
            let angle = std::f64::consts::TAU * (nco.carrier_turns() + self.turns[antenna]).fract();
            let (sin, cos) = angle.sin_cos();
            let first = Complex32::new(cos as f32, sin as f32) * (self.amplitude * symbol) as f32;
            let samples = mixed[done..done + len].iter_mut().zip(self.rotors.iter());
            for ((sample, rotor), code) in samples.zip(&*code) {
                *sample += first * rotor * f32::from(*code);
            }
            done += len;
        }
        Ok(())
    }
}

/// Returns the signals of all satellites.
fn signals(
    parameters: &GnssSignalSimulator,
    scene: Option<&Arc<Scene>>,
) -> Result<Vec<Signal>, BlockError> {
    let mut signals = Vec::new();
    for transmission in parameters.satellites() {
        signals.push(Signal::constant(transmission, parameters)?);
    }
    let Some((scene, sky)) = scene.zip(parameters.sky.as_ref()) else { return Ok(signals) };
    for (system, prn) in scene.satellites(sky) {
        let course = Course::Orbit(Box::new(Orbit::new(scene, system, prn)?));
        signals.push(Signal::new(system, prn, sky.cn0_db_hz, course, parameters)?);
    }
    Ok(signals)
}

impl Simulator {
    pub(super) fn new(
        parameters: &GnssSignalSimulator,
        scene: Option<&Arc<Scene>>,
        output: &PortType,
        env: &Env,
    ) -> Result<Self, BlockError> {
        Ok(Self {
            dtype: output.dtype,
            antennas: parameters.antennas,
            samples: parameters.samples_per_frame,
            noise_rms: parameters.noise_rms,
            seed: parameters.seed,
            signals: signals(parameters, scene)?,
            frame: 0,
            frames: parameters.frames.unwrap_or(u64::MAX),
            code: vec![0; ROW],
            mixed: vec![Complex32::ZERO; BLOCK_SAMPLES],
            clipped: env.counters.count(
                "samples_clipped",
                "samples with a part clipped to the range of the dtype; lower `noise_rms`",
            ),
        })
    }

    fn fill(&mut self, frame: &mut FrameMut) -> Result<(), BlockError> {
        let start = self.frame.wrapping_mul(self.samples as u64);
        frame.fill_validity(1);
        frame.header_mut().timestamp = start;
        let payload = frame.as_mut_slice::<u8>().expect(fxgraph::ON_HOST);
        for antenna in 0..self.antennas {
            for done in (0..self.samples).step_by(BLOCK_SAMPLES) {
                let len = BLOCK_SAMPLES.min(self.samples - done);
                let timestamp = start.wrapping_add(done as u64);
                self.mix(antenna, timestamp, len)?;
                let at = self.dtype.bytes(antenna * self.samples + done);
                let bytes = &mut payload[at..at + self.dtype.bytes(len)];
                self.write(len, bytes);
            }
        }
        Ok(())
    }

    /// Computes the samples of one antenna from `timestamp` on.
    fn mix(&mut self, antenna: usize, timestamp: u64, len: usize) -> Result<(), BlockError> {
        // The noise of a sample uses two numbers of the sequence.
        let sequence = Random::of(self.seed, antenna as u64);
        let mut random = sequence.after(timestamp.wrapping_mul(2));
        let mixed = &mut self.mixed[..len];
        for sample in &mut *mixed {
            let [re, im] = random.normal_pair().map(|value| (value * self.noise_rms) as f32);
            *sample = Complex32::new(re, im);
        }
        for signal in &mut self.signals {
            signal.add(antenna, timestamp, mixed, &mut self.code)?;
        }
        Ok(())
    }

    fn write(&self, len: usize, bytes: &mut [u8]) {
        let mixed = &self.mixed[..len];
        let mut clipped = 0;
        let mut whole = |sample: &Complex32, most: f32| {
            let parts = [sample.re, sample.im];
            clipped += u64::from(parts.iter().any(|part| part.abs() > most + 0.5));
            parts.map(|part| part.round_ties_even().clamp(-most, most))
        };
        match self.dtype {
            Dtype::Ci8 => {
                let to = bytemuck::cast_slice_mut::<u8, [i8; 2]>(bytes).iter_mut();
                to.zip(mixed).for_each(|(to, s)| *to = whole(s, 127.0).map(|part| part as i8));
            }
            Dtype::Ci16 => {
                let to = bytemuck::cast_slice_mut::<u8, [i16; 2]>(bytes).iter_mut();
                to.zip(mixed).for_each(|(to, s)| *to = whole(s, 32767.0).map(|part| part as i16));
            }
            _ => bytes.copy_from_slice(bytemuck::cast_slice(mixed)),
        }
        self.clipped.add(clipped);
    }
}

impl Block for Simulator {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        if io.stopping || self.frame == self.frames {
            return Ok(Next::Finished);
        }
        let Some(mut frame) = io.outputs[0].take() else { return Ok(Next::Wait) };
        self.fill(&mut frame)?;
        io.outputs[0].push(frame);
        self.frame += 1;
        Ok(Next::Again)
    }
}
