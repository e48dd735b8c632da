//! A recording that grows: samples, and their description, which is replaced as a whole.

use super::shape::Shape;
use super::{META, SigmfSink};
use crate::io::files::output_file::{OutputFile, cannot_write};
use fxgraph::access::WrittenPath;
use fxgraph::{BlockError, Env, Time};
use fxgraph_formats::sigmf::{Annotation, Capture, Extension, Global, MISSING, Meta, VERSION};
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Interval at which the description is written.
const INTERVAL: Duration = Duration::from_secs(1);
/// Largest number of captures, and of annotations of a recording: each write of the description takes as much time.
const MOST_CAPTURES: usize = 1000;
const MOST_ANNOTATIONS: usize = 10_000;

/// Description of everything but the samples.
pub fn global(parameters: &SigmfSink, shape: &Shape, env: &Env) -> Global {
    let channels = shape.channels.len() as u64;
    let of_text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let axes = shape.channel_axes.iter().map(|(name, len)| format!("[{name} {len}]"));
    let axes = axes.collect::<Vec<_>>().concat();
    // Timestamp 0 in the time of the signal.
    let zero = shape.clock.signal_time(0);
    let of_channels = (channels > 1).then(|| format!("channels: {axes}"));
    let texts = [parameters.description.clone(), of_channels];
    let description = texts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    Global {
        datatype: shape.datatype.to_string(),
        version: VERSION.to_owned(),
        sample_rate: Some(shape.sample_rate_hz()),
        num_channels: (channels > 1).then_some(channels),
        author: parameters.author.clone(),
        description: of_text(&description),
        hardware: parameters.hardware.clone(),
        recorder: Some(format!("fxgraph {}", env!("CARGO_PKG_VERSION"))),
        extensions: vec![Extension {
            name: "fxgraph".to_owned(),
            version: "1.0.0".to_owned(),
            optional: true,
        }],
        adc_sample_rate_hz: Some(shape.clock.adc_sample_rate_hz),
        adc_samples_per_sample: Some(shape.step),
        sync_time_seconds: zero.map(Time::to_unix_f64),
        sync_time: zero.map(|zero| zero.to_string()),
        bandwidth_hz: shape.band.map(|band| band.step_hz()),
        samples: Some(0),
        complete: Some(false),
        block: of_text(&env.name),
        config_hash: of_text(&env.flowgraph.config_hash),
        flowgraph: of_text(&env.flowgraph.yaml()),
        ..Global::default()
    }
}

/// The open files.
pub struct Recording {
    data: OutputFile,
    meta_path: PathBuf,
    meta: Meta,
    /// Number of samples of each channel.
    samples: u64,
    written: Instant,
}

impl Recording {
    /// Creates a recording at `path`.
    pub fn create(
        path: &WrittenPath,
        overwrites: bool,
        global: Global,
    ) -> Result<Self, BlockError> {
        let data = path.with(path.path().with_extension(super::DATA).display().to_string());
        let data = OutputFile::create(&data, overwrites, Some(META))?;
        let meta_path = data.path().with_extension(META);
        let meta = Meta { global, captures: Vec::new(), annotations: Vec::new() };
        let written = Instant::now();
        let recording = Self { data, meta_path, meta, samples: 0, written };
        Ok(recording)
    }

    /// Path of the description.
    pub fn path(&self) -> &std::path::Path {
        &self.meta_path
    }

    /// Whether another capture or annotation belongs in the next recording.
    pub fn is_full(&self) -> bool {
        self.meta.captures.len() >= MOST_CAPTURES || self.meta.annotations.len() >= MOST_ANNOTATIONS
    }

    /// Removes the files.
    pub fn remove(self) {
        let _ = self.data.files().remove_file(&self.meta_path);
        self.data.remove();
    }

    /// Begins a capture with the sample at `timestamp`.
    pub fn begin_capture(&mut self, shape: &Shape, timestamp: u64) -> Result<(), BlockError> {
        let time = shape.clock.signal_time(timestamp);
        // A capture without samples, because these could not be written.
        self.meta.captures.pop_if(|last| last.sample_start == self.samples);
        self.meta.captures.push(Capture {
            sample_start: self.samples,
            global_index: Some(timestamp / shape.step),
            header_bytes: None,
            frequency: shape.band.map(|band| band.channel_hz(0)),
            datetime: time.map(|time| time.iso(9)),
        });
        // Before its samples: a reader must never take them for those behind the capture before.
        self.commit()
    }

    /// Appends samples of a frame, which are `bytes` and whose missing samples are zeros. Returns the number of missing
    /// samples. After an error the recording is as before, so that the next samples are after a gap.
    pub fn append(
        &mut self,
        shape: &Shape,
        validity: &[u32],
        samples: Range<usize>,
        bytes: &[u8],
    ) -> Result<u64, BlockError> {
        self.data.append(bytes)?;
        let missing = self.annotate(shape, validity, samples.clone());
        self.samples += samples.len() as u64;
        Ok(missing)
    }

    /// Writes the description if its interval is over.
    pub fn commit_if_due(&mut self) -> Result<(), BlockError> {
        if self.written.elapsed() > INTERVAL { self.commit() } else { Ok(()) }
    }

    /// Adds annotations for the missing samples among `samples` of a frame; returns their number.
    fn annotate(&mut self, shape: &Shape, validity: &[u32], samples: Range<usize>) -> u64 {
        let (mut sample, mut missing) = (samples.start, 0);
        while sample < samples.end {
            let (is_valid, len) = shape.run(validity, sample);
            let len = len.min(samples.end - sample);
            if !is_valid {
                missing += len as u64;
                self.annotate_run(self.samples + (sample - samples.start) as u64, len as u64);
            }
            sample += len;
        }
        missing
    }

    fn annotate_run(&mut self, start: u64, count: u64) {
        let capture = self.meta.captures.last().map_or(0, |capture| capture.sample_start);
        if let Some(last) = self.meta.annotations.last_mut()
            && let Some(known) = &mut last.sample_count
            && last.sample_start + *known == start
            && last.sample_start >= capture
        {
            *known += count;
            return;
        }
        self.meta.annotations.push(Annotation {
            sample_start: start,
            sample_count: Some(count),
            label: Some(MISSING.to_owned()),
            comment: Some("samples of at least one channel did not arrive; they are 0".to_owned()),
        });
    }

    /// Replaces the description as a whole, so that a reader never sees a part.
    fn commit(&mut self) -> Result<(), BlockError> {
        self.meta.global.samples = Some(self.samples);
        let draft = PathBuf::from(format!("{}.new", self.meta_path.display()));
        let files = self.data.files();
        let mut file = files.create(&draft).map_err(cannot_write(&draft))?;
        file.write_all(self.meta.text().as_bytes()).map_err(|error| {
            let _ = files.remove_file(&draft);
            cannot_write(&draft)(error)
        })?;
        files.rename(&draft, &self.meta_path).map_err(cannot_write(&self.meta_path))?;
        self.written = Instant::now();
        Ok(())
    }

    /// Closes the files; `complete` is whether the stream had ended.
    pub fn close(mut self, complete: bool) -> Result<(), BlockError> {
        self.data.sync()?;
        self.meta.global.complete = Some(complete);
        self.commit()
    }
}
