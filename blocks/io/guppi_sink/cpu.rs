//! The format: collects heaps to blocks.

use super::{GuppiSink, Shape};
use crate::io::files::output_file::OutputFile;
use crate::io::files::{Format, Journal, Open, Opening, Times};
use fxgraph::{BlockError, Clock, Frame, Time};
use fxgraph_formats::guppi::{DIRECT_BYTES, Header};
use std::ops::Range;

/// Bytes of the header of a block, at least.
const USUAL_HEADER_BYTES: usize = 1 << 13;

/// GUPPI raw files of a stream.
pub struct Guppi {
    parameters: GuppiSink,
    shape: Shape,
    clock: Clock,
    /// The block at work, `[antenna][channel][spectrum][pol]`, and after its header.
    block: Vec<u8>,
    out: Vec<u8>,
}

/// The file that grows.
pub struct Blocks {
    file: OutputFile,
    header: Header,
    /// Heaps of the block at work.
    filled: usize,
    /// Missing heaps of the block at work, of any antenna.
    missing: u64,
    /// Missing heaps of the block at work, and of the file, of all antennas.
    of_antennas: u64,
    all_missing: u64,
    /// Blocks in the file.
    written: u64,
}

impl Guppi {
    /// Creates the format for a stream of `clock`.
    pub fn new(parameters: GuppiSink, shape: Shape, clock: Clock) -> Self {
        let block = vec![0; shape.block_bytes()];
        Self { parameters, shape, clock, block, out: Vec::new() }
    }

    fn header(&self, start: Time) -> Header {
        let shape = &self.shape;
        let block_bytes = shape.block_bytes();
        let name =
            |name: &str| if name.is_empty() { "unknown".to_owned() } else { name.to_owned() };
        Header {
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
                / self.clock.adc_sample_rate_hz,
            start,
            packet_index: 0,
            packets_per_block: (shape.block_heaps * shape.spectra) as u64,
            packet_bytes: (2 * shape.antennas * shape.channels * shape.pols) as u64,
            dropped: 0.0,
            dropped_in_total: 0.0,
            telescope: name(&self.parameters.telescope),
            source: name(&self.parameters.source),
            backend: "fxgraph".to_owned(),
            contradictions: Vec::new(),
        }
    }

    /// Advances over `heaps` heaps, and writes the block if it is complete. A block that cannot be written is dropped:
    /// each of the others states its time.
    fn advance(
        &mut self,
        open: &mut Open<Blocks>,
        heaps: usize,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        open.next += heaps as i128;
        let next = open.next;
        let blocks = &mut open.file;
        blocks.filled += heaps;
        if blocks.filled < self.shape.block_heaps {
            return Ok(());
        }
        let written = self.write_block(blocks, next - blocks.filled as i128);
        let (heaps, count) = (std::mem::take(&mut blocks.filled) as u64, &journal.count);
        let (missing, of_antennas) =
            (std::mem::take(&mut blocks.missing), std::mem::take(&mut blocks.of_antennas));
        if written.is_ok() {
            (blocks.all_missing, blocks.written) =
                (blocks.all_missing + of_antennas, blocks.written + 1);
            count.missing.add(missing);
            count.written.add(heaps);
        } else {
            count.dropped.add(heaps);
        }
        self.block.fill(0);
        written
    }

    fn write_block(&mut self, blocks: &mut Blocks, first: i128) -> Result<(), BlockError> {
        let Shape { antennas, block_heaps, spectra, .. } = self.shape;
        let heaps = (block_heaps * antennas) as f64;
        let header = &mut blocks.header;
        header.packet_index = (first as u64).saturating_mul(spectra as u64);
        header.dropped = blocks.of_antennas as f64 / heaps;
        let all_missing = (blocks.all_missing + blocks.of_antennas) as f64;
        header.dropped_in_total = all_missing / (heaps * (blocks.written + 1) as f64);
        self.out.clear();
        header.write(&mut self.out);
        self.out.extend_from_slice(&self.block);
        blocks.file.append(&self.out)
    }

    /// Adds heap `heap` of a frame to the block at work.
    fn add(&mut self, blocks: &mut Blocks, (heap, payload): (usize, &[u8]), validity: &[u32]) {
        let Shape { antennas, channels, block_heaps, strides, .. } = self.shape;
        let (heap_bytes, row_bytes) = (self.shape.heap_bytes(), self.shape.row_bytes());
        let before = blocks.of_antennas;
        let payload = &payload[heap * antennas * heap_bytes..];
        for (a, payload) in payload.chunks_exact(heap_bytes).take(antennas).enumerate() {
            let count = validity.get(heap * strides[0] + a * strides[1]);
            if count.is_none_or(|count| *count == 0) {
                blocks.of_antennas += 1;
                continue;
            }
            for (c, row) in payload.chunks_exact(row_bytes).enumerate() {
                let at = ((a * channels + c) * block_heaps + blocks.filled) * row_bytes;
                self.block[at..at + row_bytes].copy_from_slice(row);
            }
        }
        blocks.missing += u64::from(blocks.of_antennas > before);
    }
}

impl Format for Guppi {
    type File = Blocks;
    const TIMES: Times = Times::OfUnits;

    fn steps(&self) -> usize {
        self.shape.heaps
    }

    fn unit(&self) -> u64 {
        self.shape.block_heaps as u64
    }

    fn step_bytes(&self) -> usize {
        (self.shape.block_bytes() + USUAL_HEADER_BYTES) / self.shape.block_heaps
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
    ) -> Result<Blocks, BlockError> {
        let file = OutputFile::open(&opening.path, opening.overwrites, &mut journal.report)?;
        let header = self.header(self.clock.signal_time(opening.origin).unwrap_or_default());
        Ok(Blocks {
            file,
            header,
            filled: 0,
            missing: 0,
            of_antennas: 0,
            all_missing: 0,
            written: 0,
        })
    }

    fn write(
        &mut self,
        open: &mut Open<Blocks>,
        frame: &Frame,
        steps: Range<usize>,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let payload = frame.as_slice::<u8>()?;
        let mut written = Ok(());
        for heap in steps {
            self.add(&mut open.file, (heap, payload), &frame.header().validity);
            written = written.and(self.advance(open, 1, journal));
        }
        written
    }

    fn fill(
        &mut self,
        open: &mut Open<Blocks>,
        mut steps: u64,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let mut written = Ok(());
        while steps > 0 {
            let heaps = steps.min((self.shape.block_heaps - open.file.filled) as u64);
            open.file.missing += heaps;
            open.file.of_antennas += heaps * self.shape.antennas as u64;
            written = written.and(self.advance(open, heaps as usize, journal));
            steps -= heaps;
        }
        written
    }

    fn name(&self, file: &Blocks) -> String {
        file.file.path().display().to_string()
    }

    fn close(
        &mut self,
        mut open: Open<Blocks>,
        _: bool,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let filled = open.file.filled;
        if filled > 0 {
            self.fill(&mut open, (self.shape.block_heaps - filled) as u64, journal)?;
        }
        open.file.file.sync()
    }
}
