//! The block: pairs frames of samples with frames of the acquisition, and tracks the satellites.

use super::channel::{Channel, Loops, Slots};
use super::report::Report;
use super::{GnssTracker, PROMPT_VALUES, VALUES};
use crate::gnss::gnss_acquisition::{self, Acquired};
use crate::gnss::samples::Samples;
use crate::gnss::weights::Array;
use fxgraph::changes::Change;
use fxgraph::{Block, BlockError, Counter, Env, Frame, FrameMut, Io, Next, TimeBase};
use fxgraph_dsp::gnss::{Correlator, Planes, System};
use fxgraph_dsp::simd::InstructionSet;

/// Correlator taps: early, prompt and late.
const TAPS: usize = 3;

/// The running block.
pub(super) struct Tracker {
    samples: Samples,
    array: Array,
    loops: Loops,
    planes: Planes,
    correlator: Correlator,
    channels: Vec<Option<Channel>>,
    /// Number of channels that each satellite has had.
    tracks: Vec<u64>,
    /// Prompt sums that a satellite may have in a frame.
    slots: usize,
    /// Timestamp of the frame that follows the last one.
    next: Option<u64>,
    /// Time base of the last frame.
    base: TimeBase,
    report: Report,
    begun: Counter,
    lost: Counter,
}

impl Tracker {
    pub(super) fn new(
        parameters: &GnssTracker,
        samples: Samples,
        labels: Vec<String>,
        env: &Env,
    ) -> Self {
        Self {
            loops: Loops::new(parameters, &samples),
            planes: Planes::new(1, samples.samples),
            array: Array::new(&samples, &parameters.weights),
            samples: Samples { antennas: 1, ..samples },
            correlator: Correlator::new(InstructionSet::best(), TAPS),
            channels: labels.iter().map(|_| None).collect(),
            tracks: vec![0; labels.len()],
            slots: slots(&samples),
            report: Report::new(labels, samples.samples as f64 / samples.rate_hz, env),
            next: None,
            base: TimeBase::default(),
            begun: env.counters.count(
                "satellites_begun",
                "satellites taken from the acquisition",
            ),
            lost: env.counters.count(
                "satellites_lost",
                "satellites dropped because of a weak signal, a long gap, NaN samples, a timestamp that goes back, or a new time base",
            ),
        }
    }

    /// Tracks the satellites through the frame `input`, and starts those found in it.
    fn track(
        &mut self,
        input: &Frame,
        acquired: Option<&Frame>,
        output: &mut FrameMut,
        prompts: Option<&mut FrameMut>,
    ) {
        let start = input.header().timestamp;
        let samples = self.samples.samples as u64;
        // Missing samples; after a timestamp that goes back and in a new time base, the phases are unknown.
        let base = std::mem::replace(&mut self.base, input.header().base);
        let gap = start.checked_sub(self.next.unwrap_or(start)).filter(|_| base.is(&self.base));
        self.next = Some(start.saturating_add(self.samples.frame_ticks));
        let is_whole = input.header().validity.iter().all(|count| *count != 0);
        self.array.begin(start);
        if is_whole {
            let payload = input.as_slice().expect(fxgraph::ON_HOST);
            self.array.read(payload, start, &mut self.planes);
        }
        let Self { channels, tracks, planes, correlator, loops, .. } = self;
        let rows = acquired.filter(|acquired| is_whole && acquired.header().timestamp == start);
        let rows = rows.map_or(Ok(&[][..]), Frame::as_slice::<[f64; gnss_acquisition::VALUES]>);
        let rows = rows.expect(fxgraph::ON_HOST);
        let prompts = prompts.map(|frame| {
            let (header, payload) =
                frame.parts_mut::<[f64; PROMPT_VALUES]>().expect(fxgraph::ON_HOST);
            header.continue_from(input.header());
            header.validity.fill(u32::from(is_whole));
            payload
        });
        let mut prompts = prompts.unwrap_or_default().chunks_exact_mut(self.slots);
        for (n, channel) in channels.iter_mut().enumerate() {
            // Without the output there are no slots.
            let mut slots = Slots::new(prompts.next().unwrap_or_default());
            let is_tracked = match (gap, channel.as_mut()) {
                (Some(0), _) | (_, None) => true,
                (Some(gap), Some(channel)) => channel.coast(self.samples.samples_in(gap), loops),
                (None, Some(_)) => false,
            };
            if !is_tracked {
                *channel = None;
                self.lost.add(1);
            }
            if let (Some(row), None) = (rows.get(n), &channel) {
                // Code and sums are allocated when a satellite is found, which is rare.
                let track = tracks[n] + 1;
                *channel =
                    Acquired::found(*row).and_then(|found| Channel::new(&found, loops, track));
                tracks[n] += u64::from(channel.is_some());
                self.begun.add(u64::from(channel.is_some()));
            }
            if let Some(tracked) = channel {
                let is_tracked = if is_whole {
                    tracked.follow(planes, correlator, loops, &mut slots)
                } else {
                    tracked.coast(samples, loops)
                };
                if !is_tracked {
                    *channel = None;
                    self.lost.add(1);
                }
            }
        }
        let (header, payload) = output.parts_mut::<[f64; VALUES]>().expect(fxgraph::ON_HOST);
        header.continue_from(input.header());
        header.validity.fill(u32::from(is_whole));
        for (row, channel) in payload.iter_mut().zip(channels) {
            *row = channel.as_ref().map_or([0.0; VALUES], |channel| channel.values(&self.loops));
        }
        self.report.add(payload, is_whole);
    }
}

/// Largest number of periods of a code that end in a frame, and one. Doppler shifts change the period by less than 1 %.
pub(super) fn slots(samples: &Samples) -> usize {
    let shortest = System::ALL.iter().map(|system| system.period_seconds()).fold(1.0, f64::min);
    let frame_seconds = samples.samples as f64 / samples.rate_hz;
    ((1.01 * frame_seconds / shortest) as usize).saturating_add(2)
}

impl Block for Tracker {
    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.array.update(change)
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let [input, acquired] = io.inputs else {
            return Err(BlockError::new("the tracker has two inputs"));
        };
        let (Some(samples), Some(found)) = (input.peek(), acquired.peek()) else {
            let is_over = input.ended() || acquired.ended();
            if is_over {
                self.report.finish();
            }
            return Ok(if is_over { Next::Finished } else { Next::Wait });
        };
        // The acquisition skipped the frame of these samples.
        let is_ahead = found.header().timestamp > samples.header().timestamp;
        let [output, rest @ ..] = &mut *io.outputs else {
            return Err(BlockError::new("the tracker has an output"));
        };
        let Some(mut rows) = output.take() else { return Ok(Next::Wait) };
        let mut prompts = None;
        if let Some(port) = rest.first_mut() {
            let Some(frame) = port.take() else { return Ok(Next::Wait) };
            prompts = Some(frame);
        }
        let Some(input) = input.pop() else { return Ok(Next::Wait) };
        let acquired = if is_ahead { None } else { acquired.pop() };
        self.track(&input, acquired.as_deref(), &mut rows, prompts.as_mut());
        output.push(rows);
        if let (Some(port), Some(frame)) = (rest.first_mut(), prompts) {
            port.push(frame);
        }
        Ok(Next::Again)
    }
}
