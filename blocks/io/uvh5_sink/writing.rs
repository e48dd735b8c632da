//! Thread that writes dumps to files.

use super::Uvh5Sink;
use super::committing::{Committing, Job};
use super::describe::{Times, description, order};
use super::ports::Layout;
use super::queue::{Dump, Queue, Step};
use crate::io::files::output_file::{OutputFile, Report, cannot_write};
use crate::io::files::{Count, Journal};
use fxgraph::{BlockError, Counter, Dtype, Env, Ports};
use fxgraph_formats::uvh5::Writer;
use fxgraph_formats::uvh5::arrange::{Chunk, Flagged, Order, Part, Visibilities};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval at which the thread looks whether a commit is over.
const LOOK: Duration = Duration::from_millis(10);

/// A file that is being written.
struct Open {
    writer: Writer,
    path: PathBuf,
    /// Time of the last commit; the first dump is committed at once, as pyuvdata reads no file without dumps.
    committed: Option<Instant>,
}

impl Open {
    /// Time until the next commit of dumps.
    fn until_commit(&self, interval: Duration) -> Duration {
        self.committed.map_or(Duration::ZERO, |time| interval.saturating_sub(time.elapsed()))
    }
}

/// The thread.
pub struct Writing {
    parameters: Uvh5Sink,
    queue: Arc<Queue>,
    env: Env,
    layout: Layout,
    /// Type and full count of each input.
    inputs: Vec<(Dtype, u32)>,
    ports: Ports,
    order: Order,
    times: Times,
    chunk: Chunk,
    dumps_per_file: Option<u64>,
    open: Option<Open>,
    /// Number of dumps in all files, and timestamp of the last one.
    dumps: u64,
    last: u64,
    journal: Journal,
    missing: Counter,
    not_finite: Counter,
}

impl Writing {
    /// Creates the thread's state.
    pub fn new(
        parameters: Uvh5Sink,
        ports: &Ports,
        layout: &Layout,
        env: &Env,
        queue: Arc<Queue>,
    ) -> Self {
        let description = description(&parameters, ports, layout, env);
        Self {
            queue,
            env: env.clone(),
            layout: layout.clone(),
            inputs: ports.inputs.iter().map(|port| (port.dtype, port.validity.full)).collect(),
            order: order(&parameters, ports, layout, &description),
            times: Times::new(&parameters, ports, &description),
            chunk: Chunk::new(&layout.shape),
            dumps_per_file: parameters.files.frames_of(&ports.inputs[0].clock),
            ports: ports.clone(),
            parameters,
            open: None,
            dumps: 0,
            last: 0,
            journal: Journal { report: Report::new(env), count: Count::new(env) },
            missing: env.counters.count(
                "visibilities_missing",
                "visibilities flagged because nothing contributed to them",
            ),
            not_finite: env.counters.count(
                "visibilities_not_finite",
                "visibilities flagged because they are infinite or NaN",
            ),
        }
    }

    /// Writes dumps until the queue ends or something fails.
    pub fn run(mut self) {
        if let Err(error) = self.write_all() {
            self.queue.fail(error);
        }
        self.env.wake.wake();
    }

    fn write_all(&mut self) -> Result<(), BlockError> {
        let mut committing = Committing::start(Arc::clone(&self.queue), self.env.clone())?;
        let written = self.write_dumps(&committing);
        written.and(committing.end())
    }

    fn write_dumps(&mut self, committing: &Committing) -> Result<(), BlockError> {
        loop {
            match self.queue.next(self.until_commit(committing)) {
                Step::Write(dump) => self.write(&dump, committing)?,
                Step::Idle => self.commit(committing)?,
                Step::End => break,
            }
            self.env.wake.wake();
        }
        if self.dumps == 0 {
            self.journal.report.note("no file written: no data arrived".to_owned());
        }
        // After a failure the file keeps the dumps of its last commit.
        if self.queue.has_failed() { Ok(()) } else { self.close(committing) }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.parameters.commit_seconds)
    }

    /// Time until dumps must be committed; `None` if there are none.
    fn until_commit(&self, committing: &Committing) -> Option<Duration> {
        let open = self.open.as_ref()?;
        let has_more = open.writer.dumps() > open.writer.committed();
        let limit = open.until_commit(self.interval());
        has_more.then(|| if committing.is_busy() { limit.max(LOOK) } else { limit })
    }

    /// Commits all dumps in the other thread, unless it is still busy with the commit before.
    fn commit(&mut self, committing: &Committing) -> Result<(), BlockError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if committing.is_busy() {
            return Ok(());
        }
        let commit = open.writer.begin_commit().map_err(cannot_write(&open.path))?;
        open.committed = Some(Instant::now());
        committing.run(Job { commit, path: open.path.clone(), is_last: false })
    }

    /// Commits the last dumps of the open file, if there is one.
    fn close(&mut self, committing: &Committing) -> Result<(), BlockError> {
        let Some(Open { mut writer, path, .. }) = self.open.take() else { return Ok(()) };
        let commit = writer.begin_commit().map_err(cannot_write(&path))?;
        committing.run(Job { commit, path, is_last: true })
    }

    /// Opens a file whose first dump is at `timestamp` and was made by the configuration `config_id`.
    fn open(&mut self, timestamp: u64, config_id: u64) -> Result<Open, BlockError> {
        let files = &self.parameters.files;
        let (path, report) = (files.path_at(timestamp), &mut self.journal.report);
        let (file, written) = OutputFile::open(&path, files.overwrite, report)?.into_parts();
        self.journal.count.files.add(1);
        let env = self.env.of_configuration(config_id);
        let description = description(&self.parameters, &self.ports, &self.layout, &env);
        let writer = Writer::create(file, &description).map_err(cannot_write(&written))?;
        Ok(Open { writer, path: written, committed: None })
    }

    fn write(&mut self, dump: &Dump, committing: &Committing) -> Result<(), BlockError> {
        if self.parameters.files.max_frames.is_some_and(|most| self.dumps >= most) {
            self.journal.count.beyond.add(1);
            return Ok(());
        }
        if self.open.is_some() && dump.timestamp < self.last {
            let text = "the stream went back in time; it begins a new file";
            self.journal.report.warn(text.to_owned());
            self.close(committing)?;
        }
        (self.last, self.dumps) = (dump.timestamp, self.dumps + 1);
        let is_full = self.open.as_ref().is_some_and(|open| {
            self.dumps_per_file.is_some_and(|most| open.writer.dumps() >= most)
                || open.writer.is_full()
        });
        if is_full {
            self.close(committing)?;
        }
        let config_id = dump.frames.iter().flatten().map(|frame| frame.header().config_id).max();
        let config_id = config_id.unwrap_or(0);
        if self.open.is_none() {
            self.open = Some(self.open(dump.timestamp, config_id)?);
        }
        let shape = self.layout.shape;
        let flagged = self.missing.get();
        for number in 0..shape.chunks() {
            self.fill(number, dump)?;
            let Some(open) = &mut self.open else { continue };
            open.writer.chunk(number, &self.chunk).map_err(cannot_write(&open.path))?;
        }
        let interval = self.interval();
        let time = self.times.at(dump.timestamp, config_id);
        let Some(open) = &mut self.open else { return Ok(()) };
        open.writer.dump(&time).map_err(cannot_write(&open.path))?;
        self.journal.count.written.add(1);
        self.journal.count.missing.add(u64::from(self.missing.get() > flagged));
        if open.until_commit(interval).is_zero() {
            self.commit(committing)?;
        }
        Ok(())
    }

    /// Fills the chunk with the channels of its number.
    fn fill(&mut self, number: usize, dump: &Dump) -> Result<(), BlockError> {
        let shape = self.layout.shape;
        let first = number * shape.chunk_channels;
        let end = (first + shape.chunk_channels).min(shape.channels);
        self.chunk.begin(end - first);
        let mut flagged = Flagged::default();
        for input in &self.layout.inputs {
            let (from, to) = (first.max(input.at), end.min(input.at + input.channels));
            if from >= to {
                continue;
            }
            let Some(frame) = &dump.frames[input.input] else {
                flagged.missing += self.chunk.miss(from - first, to - from);
                continue;
            };
            let (dtype, full) = self.inputs[input.input];
            let visibilities = match dtype {
                Dtype::Ci32 => Visibilities::Integers(frame.as_slice()?),
                _ => Visibilities::Floats(frame.as_slice()?),
            };
            let counts = &frame.header().validity;
            let is_inverted = self.ports.inputs[input.input].sideband().is_inverted();
            let part = Part { visibilities, counts, places: input.counts, full, is_inverted };
            let channels = from - input.at..to - input.at;
            let more = self.chunk.fill(&part, &self.order, channels, from - first);
            flagged.missing += more.missing;
            flagged.not_finite += more.not_finite;
        }
        self.missing.add(flagged.missing);
        self.not_finite.add(flagged.not_finite);
        Ok(())
    }
}
