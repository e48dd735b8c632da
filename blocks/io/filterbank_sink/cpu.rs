//! The format: spectra as values of a file, one file for each beam.

use super::level::Level;
use super::shape::Shape;
use super::{Fill, FilterbankSink};
use crate::io::files::output_file::OutputFile;
use crate::io::files::{Format, Journal, Open, Opening, Times};
use fxgraph::access::WrittenPath;
use fxgraph::{BlockError, Counter, Env, Frame, Time};
use fxgraph_formats::filterbank::{Header, Quantiser};
use std::ops::Range;

/// Values for missing data.
struct Filler {
    fill: Fill,
    /// Value of each channel, `[beam][product][channel]`.
    values: Vec<f32>,
    /// Sum and number of the valid values of the frame at work.
    sums: Vec<(f64, u32)>,
}

/// Filterbank files of a stream.
pub struct Filterbank {
    env: Env,
    parameters: FilterbankSink,
    shape: Shape,
    quantiser: Quantiser,
    level: Option<Level>,
    filler: Filler,
    /// Least count of a value of the newest spectrum.
    newest_count: u32,
    row: Vec<f32>,
    bytes: Vec<u8>,
    clipped: Counter,
}

impl Filterbank {
    /// Creates the format of the block of `env`.
    pub fn new(parameters: FilterbankSink, shape: Shape, env: &Env) -> Self {
        let (values, all) = (shape.values(), shape.values() * shape.beams.len());
        let is_mean = parameters.fill == Fill::Mean;
        Self {
            quantiser: parameters.quantiser(),
            level: Level::new(parameters.quantiser(), &shape, env),
            filler: Filler {
                fill: parameters.fill,
                values: vec![0.0; all],
                sums: vec![(0.0, 0); if is_mean { all } else { 0 }],
            },
            newest_count: shape.full,
            row: vec![0.0; values],
            bytes: Vec::new(),
            clipped: env.counters.count(
                "samples_clipped",
                "values outside the range of the integers; lower `scale` or change `offset`",
            ),
            env: env.clone(),
            parameters,
            shape,
        }
    }

    /// Packs `steps` of one beam of `frame`.
    fn pack(&mut self, frame: &Frame, steps: Range<usize>, beam: usize) -> Result<(), BlockError> {
        let Self { shape, quantiser, level, filler, row, bytes, .. } = self;
        let is_sum = self.parameters.normalise && shape.full > 1;
        let first = beam * shape.values();
        bytes.clear();
        for spectrum in steps {
            shape.read(frame, spectrum, beam, row)?;
            let mut is_complete = true;
            let counts = shape.counts(&frame.header().validity, spectrum, beam);
            for ((n, value), count) in row.iter_mut().enumerate().zip(counts) {
                if count == 0 {
                    is_complete = false;
                    *value = filler.values[first + n];
                    continue;
                }
                if is_sum {
                    *value /= count as f32;
                }
                // A value that is not finite is data, but no value for missing data.
                if let Some((sum, valid)) = filler.sums.get_mut(first + n)
                    && value.is_finite()
                {
                    (*sum, *valid) = (*sum + f64::from(*value), *valid + 1);
                }
            }
            match level {
                Some(level) if is_complete => level.measure(beam, row),
                Some(level) => level.interrupt(beam),
                None => {}
            }
            self.clipped.add(quantiser.pack(row, bytes));
        }
        Ok(())
    }

    /// Appends `steps` steps to the files of all beams, or to none of them. `pack` packs those of one beam.
    fn append(
        &mut self,
        open: &mut Open<Vec<OutputFile>>,
        steps: u64,
        mut pack: impl FnMut(&mut Self, usize) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let len = steps * self.shape.header.spectrum_bytes();
        for beam in 0..open.file.len() {
            let appended = pack(self, beam).and_then(|()| open.file[beam].append(&self.bytes));
            if appended.is_err() {
                open.file[..beam].iter_mut().for_each(|file| file.shorten(len));
                return appended;
            }
        }
        open.next += i128::from(steps);
        Ok(())
    }
}

impl Format for Filterbank {
    type File = Vec<OutputFile>;
    const TIMES: Times = Times::OfFile;

    fn paths(&self, path: &WrittenPath) -> Vec<WrittenPath> {
        (0..self.shape.beams.len()).map(|beam| path.with(self.shape.path(path, beam))).collect()
    }

    fn steps(&self) -> usize {
        self.shape.spectra.len()
    }

    fn step_bytes(&self) -> usize {
        self.shape.header.spectrum_bytes() as usize * self.shape.beams.len()
    }

    fn max_gap_seconds(&self) -> f64 {
        self.parameters.max_gap_seconds
    }

    fn data(&self, frame: &Frame, from: usize) -> Option<Range<usize>> {
        let is_there =
            |spectrum: &usize| self.shape.presence(&frame.header().validity, *spectrum).0;
        let first = (from..self.steps()).find(is_there)?;
        let end = (first..self.steps()).find(|spectrum| !is_there(spectrum));
        Some(first..end.unwrap_or(self.steps()))
    }

    fn is_possible(&self, timestamp: u64) -> bool {
        self.shape.clock.signal_time(timestamp).is_some()
    }

    fn create(
        &mut self,
        opening: &Opening<'_>,
        journal: &mut Journal,
    ) -> Result<Vec<OutputFile>, BlockError> {
        let tstart_mjd = self.shape.clock.signal_time(opening.origin).map_or(0.0, Time::to_mjd_f64);
        let env = self.env.of_configuration(opening.frame.config_id);
        let hash = &env.flowgraph.config_hash;
        let hash = hash.get(..16).unwrap_or(hash);
        let rawdatafile = format!("fxgraph {} {} {hash}", env!("CARGO_PKG_VERSION"), env.name);
        let mut files = Vec::with_capacity(self.shape.beams.len());
        for (beam, path) in self.paths(&opening.path).iter().enumerate() {
            let ibeam = if self.shape.header.nbeams > 0 { beam as i32 + 1 } else { 0 };
            let rawdatafile = rawdatafile.clone();
            let header = Header { tstart_mjd, ibeam, rawdatafile, ..self.shape.header.clone() };
            match OutputFile::begin(
                path,
                opening.overwrites,
                &mut journal.report,
                &header.to_bytes(),
            ) {
                Ok(file) => files.push(file),
                Err(error) => {
                    files.into_iter().for_each(OutputFile::remove);
                    return Err(error);
                }
            }
        }
        self.newest_count = self.shape.full;
        Ok(files)
    }

    fn write(
        &mut self,
        open: &mut Open<Vec<OutputFile>>,
        frame: &Frame,
        steps: Range<usize>,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let count = steps.len() as u64;
        self.append(open, count, |format, beam| format.pack(frame, steps.clone(), beam))?;
        let validity = &frame.header().validity;
        let is_complete = |spectrum: &usize| self.shape.presence(validity, *spectrum).1;
        journal
            .count
            .missing
            .add(steps.clone().filter(|spectrum| !is_complete(spectrum)).count() as u64);
        journal.count.written.add(count);
        self.newest_count = self.shape.least_count(validity, steps.end - 1);
        Ok(())
    }

    fn fill(
        &mut self,
        open: &mut Open<Vec<OutputFile>>,
        steps: u64,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        self.append(open, steps, |format, beam| {
            let Self { shape, quantiser, level, filler, bytes, .. } = format;
            level.iter_mut().for_each(|level| level.interrupt(beam));
            bytes.clear();
            let values = &filler.values[beam * shape.values()..(beam + 1) * shape.values()];
            (0..steps).for_each(|_| {
                quantiser.pack(values, bytes);
            });
            Ok(())
        })?;
        journal.count.missing.add(steps);
        journal.count.written.add(steps);
        Ok(())
    }

    /// Takes the means of the frame as values for missing data.
    fn end_frame(&mut self) {
        let Filler { fill: Fill::Mean, values, sums } = &mut self.filler else { return };
        for (value, (sum, valid)) in values.iter_mut().zip(sums) {
            if *valid > 0 {
                *value = (*sum / f64::from(*valid)) as f32;
            }
            (*sum, *valid) = (0.0, 0);
        }
    }

    fn name(&self, files: &Vec<OutputFile>) -> String {
        let first = files.first().map(|file| file.path().display().to_string()).unwrap_or_default();
        if files.len() == 1 { first } else { format!("{first} and {} more", files.len() - 1) }
    }

    fn close(
        &mut self,
        open: Open<Vec<OutputFile>>,
        _: bool,
        journal: &mut Journal,
    ) -> Result<(), BlockError> {
        let (count, full) = (self.newest_count, self.shape.full);
        if count < full {
            // A stream that is stopped ends within a sum; the format has no flags.
            let text = format!("the last spectrum has {count} of the {full} values of its sums");
            journal.report.warn(text);
        }
        open.file.iter().try_for_each(OutputFile::sync)
    }
}
