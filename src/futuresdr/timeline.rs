//! Timestamps and validity of the output.
//!
//! The timestamps of output frames are multiples of their length. Two blocks that began at different frames of the
//! input therefore output the same frames, as needed for a swap.

use crate::Timing;
use fxgraph::{PortType, Ports};
use std::ops::Range;

/// Largest valid timestamp: no telescope runs that long, and sums of timestamps cannot overflow.
pub(crate) const LAST_TIMESTAMP: u64 = 1 << 62;

/// Relation between the samples of input and output, in ADC samples.
pub(crate) struct Timeline {
    decimation: u64,
    reads: Range<u64>,
    centre: u64,
    /// Length of an input sample.
    input_step: u64,
    /// Length of an input frame.
    pub input_frame: u64,
    /// Length of an output sample.
    output_step: u64,
    /// Length of an output frame.
    pub output_frame: u64,
    /// Input samples per unit of validity, and the count of a complete unit.
    input_unit: u64,
    input_full: u32,
    /// Timestamp of input sample 0 of the stream, after the skipped samples.
    origin: u64,
    /// Timestamp of output sample 0 of the stream.
    first: u64,
    /// Time ranges without output samples, or with output samples that depend on missing input. At most as many as
    /// validity units of the input are inside the sub-flowgraph.
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

    /// Begins a stream whose first input sample has this timestamp. Returns the number of input samples to skip, so
    /// that output samples have multiples of their length as timestamps.
    pub fn begin(&mut self, timestamp: u64) -> u64 {
        let centre = timestamp / self.input_step + self.centre;
        let skip = (self.decimation - centre % self.decimation) % self.decimation;
        self.origin = timestamp + skip * self.input_step;
        self.first = self.origin + self.centre * self.input_step;
        skip
    }

    /// Returns the length of an output sample in ADC samples.
    pub fn output_step(&self) -> u64 {
        self.output_step
    }

    /// Returns the timestamp of output sample number `made` of the stream.
    pub fn time(&self, made: u64) -> u64 {
        self.first + made * self.output_step
    }

    /// Returns the timestamp of the output frame that contains `time`, and the number of the sample in the frame.
    pub fn place(&self, time: u64) -> (u64, usize) {
        let sample = time % self.output_frame / self.output_step;
        (time - sample * self.output_step, sample as usize)
    }

    /// Returns the largest number of output samples from `fed` input samples.
    pub fn most(&self, fed: u64) -> u64 {
        fed.checked_sub(self.reads.end).map_or(0, |more| more / self.decimation + 1)
    }

    /// Notes the output samples that depend on missing units of the input frame with this timestamp.
    pub fn note_input(&mut self, timestamp: u64, validity: &[u32]) {
        let (unit, full) = (self.input_unit * self.input_step, self.input_full);
        for (number, _) in validity.iter().enumerate().filter(|(_, count)| **count != full) {
            let begins = timestamp + number as u64 * unit;
            // In samples of the stream; skipped samples affect no output.
            let sample = |time: u64| time.saturating_sub(self.origin) / self.input_step;
            let (from, to) = (sample(begins), sample(begins + unit));
            // Output sample k reads k decimation + reads.
            let first = (from + 1).saturating_sub(self.reads.end).div_ceil(self.decimation);
            let end = to.saturating_sub(self.reads.start).div_ceil(self.decimation);
            self.note(self.time(first)..self.time(end));
        }
    }

    /// Notes that output samples at these times are missing.
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

    /// Sets the flags of the output frame with this timestamp, and forgets its notes. Returns the number of flags
    /// that are 0.
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
