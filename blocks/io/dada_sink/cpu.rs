//! The format: brings samples into the order of the file.

use super::{DadaSink, Shape};
use crate::io::files::output_file::{OutputFile, Report, with_suffix};
use crate::io::files::{Format, Journal, Open, Opening, Times};
use fxgraph::access::WrittenPath;
use fxgraph::{BlockError, Clock, Frame, Time};
use fxgraph_formats::dada::{FILE_SIZE_OFFSET, HEADER_BYTES, Header, file_size};
use std::ops::Range;

/// DADA files of a stream.
pub struct Dada {
    parameters: DadaSink,
    shape: Shape,
    clock: Clock,
    /// Samples in the order of the file.
    out: Vec<u8>,
}

/// The files of one recording: the one that grows.
pub struct Recording {
    file: OutputFile,
    header: Header,
    path: WrittenPath,
}

impl Dada {
    /// Creates the format for a stream of `clock`.
    pub fn new(parameters: DadaSink, shape: Shape, clock: Clock) -> Self {
        let out = Vec::with_capacity(shape.times * shape.time_bytes());
        Self { parameters, shape, clock, out }
    }

    /// Header of a recording that begins at `start`. `UTC_START` is the whole second before it, so that the offset is the
    /// fraction of a second in bytes if that is a whole number of samples; otherwise `PICOSECONDS` has the fraction.
    fn header(&self, start: Time) -> Header {
        let DadaSink { telescope, source, instrument, .. } = &self.parameters;
        let shape = &self.shape;
        let header = Header {
            header_bytes: HEADER_BYTES,
            bits: shape.bits,
            is_complex: shape.is_complex,
            pols: shape.pols,
            channels: shape.channels,
            sample_us: shape.step as f64 * 1e6 / self.clock.adc_sample_rate_hz,
            centre_mhz: shape.centre_hz / 1e6,
            bandwidth_mhz: shape.bandwidth_hz / 1e6,
            start,
            contradictions: Vec::new(),
            offset_bytes: 0,
            file_bytes: 0,
            file_number: 0,
            telescope: telescope.clone(),
            source: source.clone(),
            instrument: if instrument.is_empty() { "fxgraph" } else { instrument }.to_owned(),
        };
        let (_, _, picoseconds) = start.to_mjd();
        let samples = picoseconds as f64 * 1e-6 / header.sample_us;
        let whole = samples.round();
        // A picosecond, the resolution of the time.
        if (samples - whole).abs() * header.sample_us < 2e-6 && whole < 1e15 {
            let offset_bytes = whole as u64 * header.sample_bytes();
            return Header { start: start.with_picoseconds(0), offset_bytes, ..header };
        }
        header
    }

    /// Creates the file with this header.
    fn file(
        &self,
        path: &WrittenPath,
        header: &Header,
        report: &mut Report,
    ) -> Result<OutputFile, BlockError> {
        let path = if self.parameters.file_bytes.is_some() {
            let suffix = format!("_{:016}.{:06}", header.offset_bytes, header.file_number);
            path.with(with_suffix(path.path(), &suffix).display().to_string())
        } else {
            path.clone()
        };
        OutputFile::begin(&path, self.parameters.files.overwrite, report, &header.bytes())
    }

    /// Writes all of `out`, to as many files as necessary.
    fn write_out(
        &mut self,
        open: &mut Open<Recording>,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let Recording { file, header, path } = &mut open.file;
        let sample_bytes = header.sample_bytes();
        let most =
            self.parameters.file_bytes.map_or(u64::MAX, |most| most / sample_bytes * sample_bytes);
        let mut rest = &self.out[..];
        while !rest.is_empty() {
            if header.file_bytes >= most {
                file.sync()?;
                let offset_bytes = header.offset_bytes + header.file_bytes;
                let file_number = header.file_number + 1;
                let next = Header { offset_bytes, file_number, file_bytes: 0, ..header.clone() };
                *file = self.file(path, &next, &mut journal.report)?;
                *header = next;
                journal.count.files.add(1);
            }
            let left = usize::try_from(most - header.file_bytes).unwrap_or(usize::MAX);
            let (now, after) = rest.split_at(left.min(rest.len()));
            file.append(now)?;
            let times = now.len() as u64 / sample_bytes;
            open.next += i128::from(times);
            journal.count.written.add(times);
            // The size of the samples that are written.
            header.file_bytes += now.len() as u64;
            file.replace(FILE_SIZE_OFFSET, &file_size(header.file_bytes))?;
            rest = after;
        }
        Ok(())
    }
}

impl Format for Dada {
    type File = Recording;
    const TIMES: Times = Times::OfFile;

    fn steps(&self) -> usize {
        self.shape.times
    }

    fn step_bytes(&self) -> usize {
        self.shape.time_bytes()
    }

    fn max_gap_seconds(&self) -> f64 {
        self.parameters.max_gap_seconds
    }

    fn is_possible(&self, timestamp: u64) -> bool {
        self.clock.signal_time(timestamp).is_some_and(|time| time >= Time::default())
    }

    fn create(
        &mut self,
        opening: &Opening<'_>,
        journal: &mut Journal,
    ) -> Result<Recording, BlockError> {
        let header = self.header(self.clock.signal_time(opening.origin).unwrap_or_default());
        let path = opening.path.clone();
        Ok(Recording { file: self.file(&path, &header, &mut journal.report)?, header, path })
    }

    fn write(
        &mut self,
        open: &mut Open<Recording>,
        frame: &Frame,
        steps: Range<usize>,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let payload = frame.as_slice::<u8>()?;
        let validity = &frame.header().validity;
        let shape = &self.shape;
        let width = shape.element_bytes;
        let mut missing = 0;
        self.out.clear();
        for time in steps {
            let (at_time, of_time) = shape.place(0, time);
            let mut is_complete = true;
            for channel in 0..shape.channels {
                let (at_channel, of_channel) = shape.place(1, channel);
                for pol in 0..shape.pols {
                    let (at_pol, of_pol) = shape.place(2, pol);
                    let unit = of_time + of_channel + of_pol;
                    if validity.get(unit).is_none_or(|count| *count == 0) {
                        is_complete = false;
                        self.out.resize(self.out.len() + width, 0);
                        continue;
                    }
                    let at = (at_time + at_channel + at_pol) * width;
                    self.out.extend_from_slice(&payload[at..at + width]);
                }
            }
            missing += u64::from(!is_complete);
        }
        self.write_out(open, journal)?;
        journal.count.missing.add(missing);
        Ok(())
    }

    fn fill(
        &mut self,
        open: &mut Open<Recording>,
        steps: u64,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        self.out.clear();
        self.out.resize(steps as usize * self.shape.time_bytes(), 0);
        let before = open.next;
        let written = self.write_out(open, journal);
        journal.count.missing.add((open.next - before) as u64);
        written
    }

    fn name(&self, file: &Recording) -> String {
        file.file.path().display().to_string()
    }

    fn close(&mut self, open: Open<Recording>, _: bool, _: &mut Journal) -> Result<(), BlockError> {
        open.file.file.sync()
    }
}
