//! The block: writes spectra to files, one for each beam.

use super::gaps::{Grid, Place};
use super::level::Level;
use super::shape::Shape;
use super::{Fill, FilterbankSink};
use crate::io::output_file::{OutputFile, Report, try_to_write};
use fxgraph::{Block, BlockError, Counter, Env, Frame, Io, Next};
use fxgraph_formats::filterbank::{Header, Quantiser};

/// Bytes for missing spectra that one call of `work` writes at most, if they are several spectra.
const MOST_FILL_BYTES: usize = 1 << 22;

/// Files that are being written, one for each beam.
struct Recording {
    files: Vec<OutputFile>,
    grid: Grid,
    /// Number of spectra in each file.
    spectra: u64,
    /// Number of frames that were written.
    frames: u64,
    /// Time of the first spectrum.
    tstart_mjd: f64,
}

/// Values for missing data.
struct Filler {
    fill: Fill,
    /// Value of each channel, `[beam][product][channel]`.
    values: Vec<f32>,
    /// Sum and number of the valid values of the frame at work.
    sums: Vec<(f64, u32)>,
}

/// The running block.
pub struct Sink {
    env: Env,
    parameters: FilterbankSink,
    shape: Shape,
    quantiser: Quantiser,
    level: Option<Level>,
    recording: Option<Recording>,
    /// Timestamp in the path of the files before.
    before: Option<u128>,
    filler: Filler,
    /// Spectra of the frame at work, not yet written: number of missing ones before each, and its index.
    pending: Vec<(u64, usize)>,
    /// Least count of a value of the newest spectrum.
    newest_count: u32,
    row: Vec<f32>,
    bytes: Vec<u8>,
    report: Report,
    written: Counter,
    missing: Counter,
    repeated: Counter,
    dropped: Counter,
    clipped: Counter,
}

impl Sink {
    /// Creates the sink.
    pub fn new(mut parameters: FilterbankSink, shape: Shape, env: &Env) -> Self {
        parameters.path = parameters.path.begin_at(&env.output_folder);
        let (values, all) = (shape.values(), shape.values() * shape.beams.len());
        let is_mean = parameters.fill == Fill::Mean;
        let counters = &env.counters;
        Self {
            quantiser: parameters.quantiser(),
            level: Level::new(parameters.quantiser(), &shape, env),
            filler: Filler {
                fill: parameters.fill,
                values: vec![0.0; all],
                sums: vec![(0.0, 0); if is_mean { all } else { 0 }],
            },
            pending: Vec::with_capacity(shape.spectra.len()),
            newest_count: shape.full,
            row: vec![0.0; values],
            bytes: Vec::new(),
            recording: None,
            before: None,
            report: Report::new(env),
            written: counters.count("spectra_written", "spectra on disk, including filled ones"),
            missing: counters.count(
                "spectra_missing",
                "spectra of the files with missing data, which was filled; look for missing data upstream",
            ),
            repeated: counters.loss(
                "spectra_repeated",
                "spectra at times that the files have already, dropped; look for a source that repeats data",
            ),
            dropped: counters.loss(
                "spectra_dropped",
                "spectra dropped because a file could not be written; see the fault for the cause",
            ),
            clipped: counters.count(
                "samples_clipped",
                "values outside the range of the integers; lower `scale` or change `offset`",
            ),
            env: env.clone(),
            parameters,
            shape,
        }
    }

    /// Opens files whose first spectrum is at `timestamp` and was made by the configuration `config_id`.
    fn open(&mut self, timestamp: u128, config_id: u64) -> Result<(), BlockError> {
        let beyond = || {
            BlockError::new(format!(
                "the time of timestamp {timestamp} must be before the year 10000"
            ))
        };
        let samples = u64::try_from(timestamp).map_err(|_| beyond())?;
        let time = self.shape.clock.signal_time(samples);
        let tstart_mjd = time.ok_or_else(beyond)?.to_mjd_f64();
        let env = self.env.of_configuration(config_id);
        let hash = &env.flowgraph.config_hash;
        let hash = hash.get(..16).unwrap_or(hash);
        let version = env!("CARGO_PKG_VERSION");
        let rawdatafile = format!("fxgraph {version} {} {hash}", env.name);
        let mut files = Vec::with_capacity(self.shape.beams.len());
        for beam in 0..self.shape.beams.len() {
            let path = self.parameters.file(&self.shape, timestamp, beam);
            let overwrites = self.parameters.overwrite;
            let ibeam = if self.shape.header.nbeams > 0 { beam as i32 + 1 } else { 0 };
            let rawdatafile = rawdatafile.clone();
            let of_file = self.shape.header.clone();
            let header = Header { tstart_mjd, ibeam, rawdatafile, ..of_file }.to_bytes();
            match OutputFile::begin(&path, overwrites, &mut self.report, &header) {
                Ok(file) => files.push(file),
                Err(error) => {
                    files.into_iter().for_each(OutputFile::remove);
                    return Err(error);
                }
            }
        }
        let step = self.shape.step;
        let max_gap = self.parameters.max_gap_seconds / self.shape.header.tsamp_seconds;
        let grid = Grid { next: timestamp, step, max_gap: max_gap as u64 };
        self.recording = Some(Recording { files, grid, spectra: 0, frames: 0, tstart_mjd });
        self.before = Some(timestamp);
        Ok(())
    }

    fn close(&mut self) -> Result<(), BlockError> {
        let Some(recording) = self.recording.take() else { return Ok(()) };
        recording.files.iter().try_for_each(OutputFile::sync)?;
        let Recording { files, spectra, tstart_mjd, .. } = recording;
        let names = match &files[..] {
            [one] => one.path().display().to_string(),
            _ => format!("{} and {} more", files[0].path().display(), files.len() - 1),
        };
        let seconds = spectra as f64 * self.shape.header.tsamp_seconds;
        self.report
            .note(format!("{names}: {spectra} spectra, {seconds:.6} s from MJD {tstart_mjd:.9}"));
        Ok(())
    }

    /// Ends the files after an error, so that spectra that were not written shift none. The next frame begins files.
    fn give_up(&mut self) {
        self.dropped.add(self.pending.len() as u64);
        self.pending.clear();
        // The error that ended the files is reported.
        let _ = self.close();
    }

    /// Whether the files have `frames_per_file` frames.
    fn is_full(&self) -> bool {
        let frames = self.recording.as_ref().map(|recording| recording.frames);
        frames.zip(self.parameters.frames_per_file).is_some_and(|(frames, most)| frames >= most)
    }

    /// Timestamp of a spectrum of a frame.
    fn timestamp(&self, frame: &Frame, spectrum: usize) -> u128 {
        u128::from(frame.header().timestamp) + u128::from(self.shape.step) * spectrum as u128
    }

    /// Writes spectra that are missing before the first valid one of `frame`; returns whether more remain than one call
    /// of `work` may write.
    fn fill_before(&mut self, frame: &Frame) -> Result<bool, BlockError> {
        let validity = &frame.header().validity;
        let mut spectra = 0..self.shape.spectra.len();
        let first = spectra.find(|spectrum| self.shape.presence(validity, *spectrum).0);
        let (Some(first), Some(recording)) = (first, &self.recording) else { return Ok(false) };
        if self.is_full() {
            return Ok(false);
        }
        let Place::After(gap) = recording.grid.place(self.timestamp(frame, first)) else {
            return Ok(false);
        };
        let of_spectrum = self.shape.header.spectrum_bytes() as usize * self.shape.beams.len();
        let most = (MOST_FILL_BYTES / of_spectrum.max(1)).max(1) as u64;
        if gap > most {
            self.pending.clear();
            self.write_files(None, most)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Writes the spectra in `pending`, and then `missing` spectra that are missing.
    fn write_files(&mut self, frame: Option<&Frame>, missing: u64) -> Result<(), BlockError> {
        let Some(recording) = &mut self.recording else { return Ok(()) };
        let Self { shape, quantiser, level, filler, pending, row, bytes, .. } = self;
        let values = shape.values();
        let is_sum = self.parameters.normalise && shape.full > 1;
        for (beam, file) in recording.files.iter_mut().enumerate() {
            let of_beam = beam * values..(beam + 1) * values;
            bytes.clear();
            let fill = |bytes: &mut Vec<u8>, spectra: u64| {
                (0..spectra).for_each(|_| {
                    quantiser.pack(&filler.values[of_beam.clone()], bytes);
                });
            };
            for (gap, spectrum) in pending.iter() {
                fill(bytes, *gap);
                let mut is_complete = true;
                let Some(frame) = frame else { continue };
                shape.read(frame, *spectrum, beam, row)?;
                let counts = shape.counts(&frame.header().validity, *spectrum, beam);
                for ((n, value), count) in row.iter_mut().enumerate().zip(counts) {
                    if count == 0 {
                        is_complete = false;
                        *value = filler.values[of_beam.start + n];
                        continue;
                    }
                    if is_sum {
                        *value /= count as f32;
                    }
                    if let Some((sum, valid)) = filler.sums.get_mut(of_beam.start + n) {
                        // A value that is not finite is data, but no value for missing data.
                        if value.is_finite() {
                            (*sum, *valid) = (*sum + f64::from(*value), *valid + 1);
                        }
                    }
                }
                if let Some(level) = level {
                    if *gap > 0 || !is_complete {
                        level.interrupt(beam);
                    }
                    if is_complete {
                        level.measure(beam, row);
                    }
                }
                self.clipped.add(quantiser.pack(row, bytes));
            }
            if let Some(level) = level.as_mut().filter(|_| missing > 0) {
                level.interrupt(beam);
            }
            fill(bytes, missing);
            file.append(bytes)?;
        }
        let filled = pending.iter().map(|(gap, _)| gap).sum::<u64>() + missing;
        let spectra = filled + pending.len() as u64;
        recording.grid.next += u128::from(shape.step) * u128::from(missing);
        recording.spectra += spectra;
        self.written.add(spectra);
        self.missing.add(filled);
        pending.clear();
        Ok(())
    }

    /// Takes the means of the frame as values for missing data.
    fn update_filler(&mut self) {
        let Filler { fill: Fill::Mean, values, sums } = &mut self.filler else { return };
        for (value, (sum, valid)) in values.iter_mut().zip(sums) {
            if *valid > 0 {
                *value = (*sum / f64::from(*valid)) as f32;
            }
            (*sum, *valid) = (0.0, 0);
        }
    }

    fn write(&mut self, frame: &Frame) -> Result<(), BlockError> {
        let mut placed = 0;
        let written = self.write_spectra(frame, &mut placed);
        if written.is_err() {
            let validity = &frame.header().validity;
            let rest = placed..self.shape.spectra.len();
            let rest = rest.filter(|spectrum| self.shape.presence(validity, *spectrum).0).count();
            self.dropped.add(rest as u64);
        }
        written
    }

    /// Writes the spectra of `frame`; `placed` is the number of those that are handled.
    fn write_spectra(&mut self, frame: &Frame, placed: &mut usize) -> Result<(), BlockError> {
        let validity = &frame.header().validity;
        self.pending.clear();
        for spectrum in 0..self.shape.spectra.len() {
            *placed = spectrum;
            let (is_there, is_complete) = self.shape.presence(validity, spectrum);
            // A missing spectrum is filled when a later one arrives.
            if !is_there {
                continue;
            }
            let timestamp = self.timestamp(frame, spectrum);
            let mut place = self.recording.as_ref().map(|known| known.grid.place(timestamp));
            if place == Some(Place::Repeated) {
                self.repeated.add(1);
                continue;
            }
            if self.is_full() {
                self.close()?;
                place = None;
            }
            if place == Some(Place::NewFile) {
                self.write_files(Some(frame), 0)?;
                let seconds = self.recording.as_ref().map_or(0.0, |recording| {
                    let samples = timestamp as f64 - recording.grid.next as f64;
                    samples / self.shape.clock.adc_sample_rate_hz
                });
                let text =
                    format!("the stream continues after {seconds:.6} s; it begins a new file");
                self.report.warn(text);
                self.close()?;
                place = None;
            }
            if place.is_none() {
                self.open(timestamp, frame.header().config_id)?;
            }
            let gap = if let Some(Place::After(gap)) = place { gap } else { 0 };
            if let Some(recording) = &mut self.recording {
                recording.grid.next = timestamp + u128::from(self.shape.step);
            }
            self.missing.add(u64::from(!is_complete));
            self.pending.push((gap, spectrum));
        }
        *placed = self.shape.spectra.len();
        if let Some((_, newest)) = self.pending.last() {
            self.newest_count = self.shape.least_count(validity, *newest);
        }
        self.write_files(Some(frame), 0)?;
        self.update_filler();
        if let Some(recording) = &mut self.recording {
            recording.frames += 1;
        }
        Ok(())
    }
}

impl Block for Sink {
    fn start(&mut self) -> Result<(), BlockError> {
        // Reports a path that cannot be written before the flowgraph runs. Nothing is written yet: if another block
        // fails to start, an earlier file must survive.
        for beam in 0..self.shape.beams.len() {
            let path = self.shape.path(&self.parameters.path, beam);
            try_to_write(&self.parameters.path.with(path), self.parameters.overwrite)?;
        }
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let input = &mut io.inputs[0];
        if let Some(frame) = input.peek().cloned() {
            let written = self.fill_before(&frame).and_then(|is_filling| {
                if is_filling {
                    return Ok(());
                }
                let _ = input.pop();
                self.write(&frame)
            });
            if written.is_err() {
                self.give_up();
            }
            return written.map(|()| Next::Again);
        }
        Ok(if input.ended() { Next::Finished } else { Next::Wait })
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        if self.before.is_none() {
            self.report.note("no file written: no data arrived".to_owned());
        }
        let (count, full) = (self.newest_count, self.shape.full);
        if count < full {
            // A stream that is stopped ends within a sum; the format has no flags.
            self.report
                .warn(format!("the last spectrum has {count} of the {full} values of its sums"));
        }
        self.close()
    }
}
