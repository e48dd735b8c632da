//! The block: brings samples into the order of the file, and writes them.

use super::{DadaSink, Shape};
use crate::io::output_file::{OutputFile, Report, with_suffix};
use fxgraph::recording::try_path;
use fxgraph::{Block, BlockError, Clock, Counter, Env, Frame, Input, Io, Next, Time};
use fxgraph_formats::dada::{FILE_SIZE_OFFSET, HEADER_BYTES, Header, file_size};
use std::sync::Arc;

/// Bytes of zeros that are written at a time.
const MAX_FILL_BYTES: usize = 1 << 22;
/// Largest number of samples of a recording.
const MAX_TIMES: u64 = 1 << 48;

/// The running block.
pub struct Sink {
    parameters: DadaSink,
    shape: Shape,
    clock: Clock,
    report: Report,
    file: Option<OutputFile>,
    header: Header,
    /// Timestamp of the first sample.
    start: Option<u64>,
    /// Number of the next sample since `start`: the samples in the files.
    next: u64,
    /// A frame that waits until the gap before it is filled.
    held: Option<Arc<Frame>>,
    /// Samples in the order of the file.
    out: Vec<u8>,
    written: Counter,
    missing: Counter,
    dropped: Counter,
    misplaced: Counter,
}

impl Sink {
    /// Creates the block.
    pub fn new(mut parameters: DadaSink, shape: &Shape, clock: Clock, env: &Env) -> Self {
        parameters.path = parameters.path.begin_at(&env.output_folder);
        let counters = &env.counters;
        let header = Header {
            header_bytes: HEADER_BYTES,
            bits: shape.bits,
            is_complex: shape.is_complex,
            pols: shape.pols,
            channels: shape.channels,
            sample_us: shape.step as f64 * 1e6 / clock.adc_sample_rate_hz,
            centre_mhz: shape.centre_hz / 1e6,
            bandwidth_mhz: shape.bandwidth_hz / 1e6,
            start: Time::default(),
            contradictions: Vec::new(),
            offset_bytes: 0,
            file_bytes: 0,
            file_number: 0,
            telescope: parameters.telescope.clone(),
            source: parameters.source.clone(),
            instrument: if parameters.instrument.is_empty() {
                "fxgraph".to_owned()
            } else {
                parameters.instrument.clone()
            },
        };
        Self {
            parameters,
            out: Vec::with_capacity(shape.times * shape.time_bytes()),
            shape: shape.clone(),
            clock,
            report: Report::new(env),
            file: None,
            header,
            start: None,
            next: 0,
            held: None,
            written: counters.count("samples_written", "samples of each channel in the files"),
            missing: counters.loss(
                "values_missing",
                "samples of a channel and polarisation that are zeros in the file; look for missing data upstream",
            ),
            dropped: counters.loss(
                "samples_dropped",
                "samples of each channel dropped because the file could not be written; see the fault for the cause",
            ),
            misplaced: counters.loss(
                "frames_misplaced",
                "input frames dropped: earlier than those before, or not at a multiple of a sample",
            ),
        }
    }

    /// Finds the place of `frame`, and appends it or holds it until the gap before it is filled.
    fn take(&mut self, frame: Arc<Frame>) -> Result<(), BlockError> {
        let timestamp = frame.header().timestamp;
        let Some(start) = self.start else {
            if self.begin(timestamp) {
                return self.append(&frame);
            }
            self.misplaced.add(1);
            return Ok(());
        };
        let since = timestamp.checked_sub(start);
        let number = since
            .filter(|since| since.is_multiple_of(self.shape.step))
            .map(|since| since / self.shape.step)
            .filter(|number| (self.next..MAX_TIMES).contains(number));
        let Some(number) = number else {
            self.misplaced.add(1);
            return Ok(());
        };
        let gap = number - self.next;
        if gap == 0 {
            return self.append(&frame);
        }
        self.held = Some(frame);
        let seconds = gap as f64 * self.header.sample_us * 1e-6;
        if seconds > self.parameters.max_gap_seconds {
            self.end();
            return Err(BlockError::new(format!(
                "cannot continue {}: a gap of {seconds} s is longer than `max_gap_seconds`",
                self.parameters.path
            )));
        }
        let most = (MAX_FILL_BYTES / self.shape.time_bytes()).max(1) as u64;
        let times = gap.min(most);
        self.out.clear();
        self.out.resize(times as usize * self.shape.time_bytes(), 0);
        self.write()?;
        self.missing.add(times * (self.shape.channels * self.shape.pols) as u64);
        Ok(())
    }

    /// Ends the recording. If `on_fault` lets the block continue, the next frame begins another one.
    fn end(&mut self) {
        (self.file, self.start, self.next) = (None, None, 0);
        (self.header.offset_bytes, self.header.file_bytes, self.header.file_number) = (0, 0, 0);
    }

    /// Sets the time of the first sample. `UTC_START` is the whole second before it, so that the offset is the fraction
    /// of a second in bytes if that is a whole number of samples; otherwise `PICOSECONDS` has the fraction.
    fn begin(&mut self, timestamp: u64) -> bool {
        let time = self.clock.signal_time(timestamp);
        let Some(time) = time.filter(|time| *time >= Time::default()) else { return false };
        self.header.start = time;
        let (_, _, picoseconds) = time.to_mjd();
        let samples = picoseconds as f64 * 1e-6 / self.header.sample_us;
        let whole = samples.round();
        // A picosecond, the resolution of the time.
        let is_whole = (samples - whole).abs() * self.header.sample_us < 2e-6 && whole < 1e15;
        if is_whole {
            self.header.start = time.with_picoseconds(0);
            self.header.offset_bytes = whole as u64 * self.header.sample_bytes();
        }
        self.start = Some(timestamp);
        true
    }

    fn append(&mut self, frame: &Frame) -> Result<(), BlockError> {
        let payload = frame.as_slice::<u8>()?;
        let validity = &frame.header().validity;
        let shape = &self.shape;
        let width = shape.element_bytes;
        let mut missing = 0;
        self.out.clear();
        // Place of an element along one axis of the file: offset in the payload, and in the validity counts.
        let place = |axis: usize, mut index: usize| {
            let (mut element, mut unit) = (0, 0);
            let all = shape.strides[axis].iter().zip(&shape.units[axis]).rev();
            for ((len, stride), (shared, count)) in all {
                let here = index % len;
                index /= len;
                element += here * stride;
                unit += here / shared * count;
            }
            (element, unit)
        };
        for time in 0..shape.times {
            let (at_time, of_time) = place(0, time);
            for channel in 0..shape.channels {
                let (at_channel, of_channel) = place(1, channel);
                for pol in 0..shape.pols {
                    let (at_pol, of_pol) = place(2, pol);
                    let unit = of_time + of_channel + of_pol;
                    if validity.get(unit).is_none_or(|count| *count == 0) {
                        missing += 1;
                        self.out.resize(self.out.len() + width, 0);
                        continue;
                    }
                    let at = (at_time + at_channel + at_pol) * width;
                    self.out.extend_from_slice(&payload[at..at + width]);
                }
            }
        }
        let end = self.next + shape.times as u64;
        let written = self.write();
        // Their place is a gap, which is filled before the next frame.
        self.dropped.add(end - self.next);
        self.missing.add(if written.is_ok() { missing } else { 0 });
        written
    }

    /// Writes all of `out`, to as many files as necessary.
    fn write(&mut self) -> Result<(), BlockError> {
        let out = std::mem::take(&mut self.out);
        let written = self.write_samples(&out);
        self.out = out;
        written
    }

    fn write_samples(&mut self, samples: &[u8]) -> Result<(), BlockError> {
        let sample_bytes = self.header.sample_bytes();
        let most =
            self.parameters.file_bytes.map_or(u64::MAX, |most| most / sample_bytes * sample_bytes);
        let mut rest = samples;
        while !rest.is_empty() {
            if self.header.file_bytes >= most {
                if let Some(file) = &self.file {
                    file.sync()?;
                }
                // The next file.
                self.header.offset_bytes += self.header.file_bytes;
                self.header.file_number += 1;
                (self.header.file_bytes, self.file) = (0, None);
            }
            let left = usize::try_from(most - self.header.file_bytes).unwrap_or(usize::MAX);
            let (now, after) = rest.split_at(left.min(rest.len()));
            self.put(now)?;
            rest = after;
        }
        Ok(())
    }

    /// Appends to the open file; the header is updated after the samples are written. After an error the samples are
    /// either counted in `next` or not in the file.
    fn put(&mut self, bytes: &[u8]) -> Result<(), BlockError> {
        if self.file.is_none() {
            self.open()?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.append(bytes)?;
        let times = bytes.len() as u64 / self.header.sample_bytes();
        self.header.file_bytes += bytes.len() as u64;
        self.next += times;
        self.written.add(times);
        file.replace(FILE_SIZE_OFFSET, &file_size(self.header.file_bytes))
    }

    fn open(&mut self) -> Result<(), BlockError> {
        let DadaSink { path, overwrite, file_bytes, .. } = &self.parameters;
        let path = if file_bytes.is_some() {
            let (offset, number) = (self.header.offset_bytes, self.header.file_number);
            let name = with_suffix(path.path(), &format!("_{offset:016}.{number:06}"));
            path.with(name.display().to_string())
        } else {
            path.clone()
        };
        let header = self.header.bytes();
        self.file = Some(OutputFile::begin(&path, *overwrite, &mut self.report, &header)?);
        Ok(())
    }

    /// Moves one step forward; `None` if there is nothing to do yet.
    fn step(&mut self, input: &mut Input) -> Result<Option<Next>, BlockError> {
        if let Some(frame) = self.held.take().or_else(|| input.pop()) {
            self.take(frame)?;
            return Ok(Some(Next::Again));
        }
        Ok(input.ended().then_some(Next::Finished))
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        // Nothing is written yet: if another block fails to start, an earlier recording must survive.
        try_path(&self.parameters.path, self.parameters.overwrite)
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Some(next) = self.step(&mut io.inputs[0])? else { return Ok(Next::Wait) };
        // A stream without frames is a file, too.
        if next == Next::Finished && self.start.is_none() && self.file.is_none() {
            self.open()?;
        }
        Ok(next)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.file.take().map_or(Ok(()), |file| file.sync())
    }
}
