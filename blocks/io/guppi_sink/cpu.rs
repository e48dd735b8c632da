//! The block: collects heaps to blocks, and writes them.

use super::{GuppiSink, Shape};
use crate::io::output_file::{OutputFile, Report};
use fxgraph::recording::try_path;
use fxgraph::{Block, BlockError, Clock, Counter, Env, Frame, Input, Io, Next, Time};
use fxgraph_formats::guppi::{DIRECT_BYTES, Header};
use std::sync::Arc;

/// Largest number of heaps of a recording.
const MAX_HEAPS: u64 = 1 << 48;

/// Counters of the block.
struct Count {
    written: Counter,
    missing: Counter,
    left_out: Counter,
    dropped: Counter,
    misplaced: Counter,
}

/// The running block.
pub struct Sink {
    parameters: GuppiSink,
    shape: Shape,
    clock: Clock,
    report: Report,
    file: Option<OutputFile>,
    header: Header,
    /// Timestamp of the first heap of the file.
    start: Option<u64>,
    /// The block at work, `[antenna][channel][spectrum][pol]`, after its header.
    out: Vec<u8>,
    block: Vec<u8>,
    /// Heaps of the block at work.
    filled: usize,
    /// Number of the next heap since `start`.
    next: u64,
    /// A frame that waits until the gap before it is filled.
    held: Option<Arc<Frame>>,
    /// First error of this call of `work`.
    fault: Option<BlockError>,
    /// Missing heaps of the block at work, and of the recording, of all antennas.
    missing: u64,
    all_missing: u64,
    /// Blocks in the file.
    blocks: u64,
    count: Count,
}

impl Sink {
    /// Creates the block.
    pub fn new(mut parameters: GuppiSink, shape: Shape, clock: Clock, env: &Env) -> Self {
        parameters.path = parameters.path.begin_at(&env.output_folder);
        let counters = &env.counters;
        let block_bytes = shape.block_bytes();
        let name =
            |name: &str| if name.is_empty() { "unknown".to_owned() } else { name.to_owned() };
        let header = Header {
            antennas: shape.antennas,
            channels: shape.channels,
            pols: shape.pols,
            bits: 8,
            block_bytes: block_bytes as u64,
            overlap: 0,
            is_direct: block_bytes.is_multiple_of(DIRECT_BYTES),
            centre_mhz: shape.centre_hz / 1e6,
            bandwidth_mhz: shape.bandwidth_hz / 1e6,
            spectrum_seconds: shape.heap_samples as f64
                / shape.spectra as f64
                / clock.adc_sample_rate_hz,
            start: Time::default(),
            packet_index: 0,
            packets_per_block: (shape.block_heaps * shape.spectra) as u64,
            packet_bytes: (2 * shape.antennas * shape.channels * shape.pols) as u64,
            dropped: 0.0,
            dropped_in_total: 0.0,
            telescope: name(&parameters.telescope),
            source: name(&parameters.source),
            backend: "fxgraph".to_owned(),
            contradictions: Vec::new(),
        };
        Self {
            report: Report::new(env),
            file: None,
            header,
            start: None,
            out: Vec::new(),
            block: vec![0; block_bytes],
            filled: 0,
            next: 0,
            held: None,
            fault: None,
            missing: 0,
            all_missing: 0,
            blocks: 0,
            count: Count {
                written: counters.count("blocks_written", "blocks in the file"),
                missing: counters.loss(
                    "heaps_missing",
                    "heaps that are zeros in the file; look for missing data upstream",
                ),
                left_out: counters.loss(
                    "blocks_left_out",
                    "blocks of gaps longer than `max_gap_seconds`, which are not in the file",
                ),
                dropped: counters.loss(
                    "blocks_dropped",
                    "blocks dropped because the file could not be written; see the fault for the cause",
                ),
                misplaced: counters.loss(
                    "frames_misplaced",
                    "input frames dropped: earlier than those before, or not at a multiple of a heap",
                ),
            },
            parameters,
            shape,
            clock,
        }
    }

    /// Finds the place of `frame`, and appends it or holds it until the gap before it is filled.
    fn take(&mut self, frame: Arc<Frame>) -> Result<(), BlockError> {
        let timestamp = frame.header().timestamp;
        let Some(start) = self.start else {
            let time = self.clock.signal_time(timestamp);
            let Some(time) = time.filter(|time| *time >= Time::default()) else {
                self.count.misplaced.add(1);
                return Ok(());
            };
            self.header.start = time;
            self.start = Some(timestamp);
            return self.append(&frame);
        };
        let since = timestamp.checked_sub(start);
        let number = since
            .filter(|since| since.is_multiple_of(self.shape.heap_samples))
            .map(|since| since / self.shape.heap_samples)
            .filter(|number| (self.next..MAX_HEAPS).contains(number));
        let Some(number) = number else {
            self.count.misplaced.add(1);
            return Ok(());
        };
        if number == self.next {
            return self.append(&frame);
        }
        let heap_seconds = self.shape.heap_samples as f64 / self.clock.adc_sample_rate_hz;
        let block_heaps = self.shape.block_heaps as u64;
        if (number - self.next) as f64 * heap_seconds > self.parameters.max_gap_seconds
            && number / block_heaps > self.next / block_heaps
        {
            // The block at work is completed, the ones between are left out.
            if self.filled > 0 {
                self.skip(block_heaps - self.filled as u64);
            }
            let begin = number / block_heaps * block_heaps;
            self.count.left_out.add(begin.saturating_sub(self.next) / block_heaps);
            self.next = begin.max(self.next);
        }
        // At most one block in each call.
        self.skip((number - self.next).min(block_heaps - self.filled as u64));
        self.held = Some(frame);
        Ok(())
    }

    fn append(&mut self, frame: &Frame) -> Result<(), BlockError> {
        let payload = frame.as_slice::<u8>()?;
        let validity = &frame.header().validity;
        let Shape { antennas, channels, block_heaps, strides, .. } = self.shape;
        let (heap_bytes, row_bytes) = (self.shape.heap_bytes(), self.shape.row_bytes());
        for (h, heap) in payload.chunks_exact(antennas * heap_bytes).enumerate() {
            for (a, heap) in heap.chunks_exact(heap_bytes).enumerate() {
                let count = validity.get(h * strides[0] + a * strides[1]);
                if count.is_none_or(|count| *count == 0) {
                    self.missing += 1;
                    continue;
                }
                for (c, row) in heap.chunks_exact(row_bytes).enumerate() {
                    let at = ((a * channels + c) * block_heaps + self.filled) * row_bytes;
                    self.block[at..at + row_bytes].copy_from_slice(row);
                }
            }
            self.advance(1);
        }
        Ok(())
    }

    /// Advances over `heaps` heaps, and writes the block if it is complete.
    fn advance(&mut self, heaps: usize) {
        self.filled += heaps;
        self.next += heaps as u64;
        if self.filled == self.shape.block_heaps {
            self.write();
        }
    }

    /// Advances over missing heaps.
    fn skip(&mut self, mut heaps: u64) {
        while heaps > 0 {
            let step = heaps.min((self.shape.block_heaps - self.filled) as u64);
            self.missing += step * self.shape.antennas as u64;
            heaps -= step;
            self.advance(step as usize);
        }
    }

    /// Writes the block at work, which is complete. A block that cannot be written is dropped: each of the others states
    /// its time.
    fn write(&mut self) {
        let all = (self.all_missing, self.blocks);
        self.all_missing += self.missing;
        self.blocks += 1;
        match self.write_block() {
            Ok(()) => {
                self.count.missing.add(self.missing);
                self.count.written.add(1);
            }
            Err(error) => {
                (self.all_missing, self.blocks) = all;
                self.count.dropped.add(1);
                self.fault.get_or_insert(error);
            }
        }
        self.block.fill(0);
        (self.filled, self.missing) = (0, 0);
    }

    fn write_block(&mut self) -> Result<(), BlockError> {
        let Shape { antennas, block_heaps, spectra, .. } = self.shape;
        let first = self.next - self.filled as u64;
        let heaps = (block_heaps * antennas) as f64;
        self.header.packet_index = first.saturating_mul(spectra as u64);
        self.header.dropped = self.missing as f64 / heaps;
        self.header.dropped_in_total = self.all_missing as f64 / (heaps * self.blocks as f64);
        self.out.clear();
        self.header.write(&mut self.out);
        self.out.extend_from_slice(&self.block);
        let out = std::mem::take(&mut self.out);
        let written = self.file().and_then(|file| file.append(&out));
        self.out = out;
        written
    }

    fn file(&mut self) -> Result<&mut OutputFile, BlockError> {
        if self.file.is_none() {
            let GuppiSink { path, overwrite, .. } = &self.parameters;
            self.file = Some(OutputFile::open(path, *overwrite, &mut self.report)?);
        }
        self.file.as_mut().ok_or_else(|| BlockError::new("the file is not open"))
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
        if next == Next::Finished && self.filled > 0 {
            self.skip((self.shape.block_heaps - self.filled) as u64);
        }
        if let Some(error) = self.fault.take() {
            return Err(error);
        }
        if next == Next::Finished {
            // A stream without frames is a file, too.
            self.file()?;
        }
        Ok(next)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.file.take().map_or(Ok(()), |file| file.sync())
    }
}
