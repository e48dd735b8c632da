//! Timestamps and validity of the output.
//!
//! Frames of the output stand on a grid: their timestamps are multiples of their length. So two blocks that began at
//! different frames of the input make the same frames, which is what a swap needs.

use crate::Timing;
use fxgraph::{PortType, Ports};
use std::ops::Range;

/// Timestamps beyond this are not believed: no telescope runs for so long, and sums cannot overflow.
pub(crate) const LAST_TIMESTAMP: u64 = 1 << 62;

/// What relates the samples of input and output, in ADC samples.
pub(crate) struct Timeline {
    decimation: u64,
    reads: Range<u64>,
    centre: u64,
    /// Of a sample of the input.
    input_step: u64,
    /// Of a frame of the input.
    pub input_frame: u64,
    /// Of a sample of the output.
    output_step: u64,
    /// Of a frame of the output.
    pub output_frame: u64,
    /// Samples of the input that its validity counts together, and the count of a whole unit.
    input_unit: u64,
    input_full: u32,
    /// Timestamp of input sample 0 of the stream, behind what was left out.
    origin: u64,
    /// Timestamp of output sample 0 of the stream.
    first: u64,
    /// Times for which there are no output samples, or such of missing input. As many as validity units of the input
    /// are on their way through the sub-flowgraph, at most.
    missing: Vec<Range<u64>>,
}

impl Timeline {
    pub fn new(timing: &Timing, ports: &Ports) -> Self {
        let len = |port: &PortType| port.elements().max(1) as u64;
        let [input, output] = [&ports.inputs[0], &ports.outputs[0]];
        Self {
            decimation: timing.decimation as u64,
            reads: timing.reads.start as u64..timing.reads.end as u64,
            centre: timing.centre as u64,
            input_step: input.clock.samples_per_frame / len(input),
            input_frame: input.clock.samples_per_frame,
            output_step: output.clock.samples_per_frame / len(output),
            output_frame: output.clock.samples_per_frame,
            input_unit: len(input) / input.validity.units().max(1) as u64,
            input_full: input.validity.full,
            origin: 0,
            first: 0,
            missing: Vec::new(),
        }
    }

    /// Begins a stream whose first input sample has this timestamp. Returns how many input samples are left out, so
    /// that output samples stand on their grid.
    pub fn begin(&mut self, timestamp: u64) -> u64 {
        let centre = timestamp / self.input_step + self.centre;
        let skip = (self.decimation - centre % self.decimation) % self.decimation;
        self.origin = timestamp + skip * self.input_step;
        self.first = self.origin + self.centre * self.input_step;
        skip
    }

    /// ADC samples of an output sample.
    pub fn output_step(&self) -> u64 {
        self.output_step
    }

    /// Timestamp of output sample number `made` of the stream.
    pub fn time(&self, made: u64) -> u64 {
        self.first + made * self.output_step
    }

    /// Timestamp of the output frame in which `time` lies, and the number of its sample there.
    pub fn place(&self, time: u64) -> (u64, usize) {
        let sample = time % self.output_frame / self.output_step;
        (time - sample * self.output_step, sample as usize)
    }

    /// Most output samples that `fed` input samples can make.
    pub fn most(&self, fed: u64) -> u64 {
        fed.checked_sub(self.reads.end).map_or(0, |more| more / self.decimation + 1)
    }

    /// Notes which output samples depend on missing units of the input frame with this timestamp.
    pub fn note_input(&mut self, timestamp: u64, validity: &[u32]) {
        let (unit, full) = (self.input_unit * self.input_step, self.input_full);
        for (number, _) in validity.iter().enumerate().filter(|(_, count)| **count != full) {
            let begins = timestamp + number as u64 * unit;
            // In samples of the stream; what was left out touches nothing.
            let sample = |time: u64| time.saturating_sub(self.origin) / self.input_step;
            let (from, to) = (sample(begins), sample(begins + unit));
            // Output sample k reads k decimation + reads.
            let first = (from + 1).saturating_sub(self.reads.end).div_ceil(self.decimation);
            let end = to.saturating_sub(self.reads.start).div_ceil(self.decimation);
            self.note(self.time(first)..self.time(end));
        }
    }

    /// Notes that there is nothing valid at these times.
    pub fn note(&mut self, times: Range<u64>) {
        if times.is_empty() {
            return;
        }
        match self.missing.last_mut() {
            Some(last) if times.start <= last.end && last.start <= times.end => {
                last.start = last.start.min(times.start);
                last.end = last.end.max(times.end);
            }
            _ => self.missing.push(times),
        }
    }

    /// Sets the flags of the output frame with this timestamp, and forgets what was noted of it. Returns how many are 0.
    pub fn flag(&mut self, timestamp: u64, validity: &mut [u32]) -> u64 {
        let unit = self.output_frame / validity.len().max(1) as u64;
        let mut flagged = 0;
        for (number, flag) in validity.iter_mut().enumerate() {
            let begins = timestamp + number as u64 * unit;
            let is_missing = self.missing.iter().any(|m| m.start < begins + unit && m.end > begins);
            *flag = u32::from(!is_missing);
            flagged += u64::from(is_missing);
        }
        let end = timestamp + self.output_frame;
        self.missing.retain(|missing| missing.end > end);
        flagged
    }
}
