//! Places of the samples in the data file, and their times.

use super::datatype::{Datatype, UnknownDatatype};
use super::meta::{Capture, Extension, MISSING, Meta};
use fxgraph_time::Time;

/// Largest number of channels.
const MAX_CHANNELS: u64 = 4096;
/// Largest number of captures, and of annotations that are looked at.
const MAX_ENTRIES: usize = 1 << 20;
/// Largest index of a sample.
const MAX_INDEX: u64 = 1 << 60;
/// Largest sample rate in Hz.
const MAX_RATE_HZ: f64 = 1e15;

/// A stretch of samples without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index of its first sample since the beginning of the stream.
    pub index: u64,
    /// Number of its samples that are in the file.
    pub count: u64,
    /// Offset of its first sample in the data file, in bytes.
    pub offset: u64,
}

/// Samples of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Type of a sample.
    pub datatype: Datatype,
    /// Number of channels.
    pub channels: usize,
    /// Samples per second.
    pub sample_rate_hz: f64,
    /// Frequency of the band's centre in Hz.
    pub frequency_hz: Option<f64>,
    /// Unix time of the sample with index 0, in seconds.
    pub sync_time: Option<Time>,
    /// Stretches without a gap, in the order of their samples.
    pub segments: Vec<Segment>,
    /// First index and number of samples that are marked as missing, in the order of their samples.
    pub missing: Vec<(u64, u64)>,
    /// Bytes after the last sample of all channels: the file was truncated within a sample.
    pub excess_bytes: u64,
    /// Samples that the description announces and the file lacks.
    pub samples_missing: u64,
    /// Times of captures that contradict their indices, as texts.
    pub contradictions: Vec<String>,
}

/// Reason why a recording cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LayoutError {
    /// The type of the samples is unknown.
    #[error(transparent)]
    Datatype(#[from] UnknownDatatype),
    /// A value is missing or out of range.
    #[error("`{name}` must be {rule}, found {found}")]
    Value {
        /// Name in the description.
        name: &'static str,
        /// Values that are supported.
        rule: String,
        /// Value in the description.
        found: String,
    },
    /// There is no data file.
    #[error("it describes samples that are not distributed with it (`core:metadata_only`)")]
    MetadataOnly,
    /// The samples are in a file with another name.
    #[error(
        "its samples are in another file (`core:dataset`); rename that file to end in .sigmf-data, and remove `core:dataset` from the description"
    )]
    Dataset,
    /// A required extension is unknown.
    #[error("it needs the extension `{0}`, which is not supported")]
    Extension(String),
    /// A capture was requested that does not exist.
    #[error("it has {0} captures, counted from 0; there is no capture {1}")]
    NoCapture(usize, usize),
    /// Captures have several frequencies.
    #[error("captures {0} and {1} have different frequencies; set `capture` to play one of them")]
    Frequencies(usize, usize),
    /// A capture begins before the one before it ends.
    #[error(
        "capture {0} begins {1} s before the end of the capture before by its `core:datetime`; add \
         `core:global_index`, or correct the times"
    )]
    Overlap(usize, f64),
    /// Headers and trailers do not fit into the data file.
    #[error("its data file of {0} bytes is shorter than its headers")]
    TooShort(u64),
}

fn value(name: &'static str, rule: impl Into<String>, found: impl ToString) -> LayoutError {
    LayoutError::Value { name, rule: rule.into(), found: found.to_string() }
}

impl Meta {
    /// Returns the places of the samples in a data file of `data_bytes`: those of all captures, or of one.
    ///
    /// Gaps are known from `core:global_index`, or without it from `core:datetime`: a difference of more than a sample
    /// and than the last digit of the times. Captures with neither follow each other.
    ///
    /// # Errors
    /// If a value is out of range, or captures overlap or have different frequencies.
    pub fn layout(&self, data_bytes: u64, capture: Option<usize>) -> Result<Layout, LayoutError> {
        let global = &self.global;
        let datatype: Datatype = global.datatype.parse()?;
        if global.metadata_only == Some(true) {
            return Err(LayoutError::MetadataOnly);
        }
        if global.dataset.is_some() {
            return Err(LayoutError::Dataset);
        }
        let needed = |one: &&Extension| !one.optional && one.name != "fxgraph";
        if let Some(unknown) = global.extensions.iter().find(needed) {
            let name = unknown.name.chars().filter(|c| !c.is_control()).take(40).collect();
            return Err(LayoutError::Extension(name));
        }
        let channels = global.num_channels.unwrap_or(1);
        if !(1..=MAX_CHANNELS).contains(&channels) {
            let rule = format!("between 1 and {MAX_CHANNELS}");
            return Err(value("core:num_channels", rule, channels));
        }
        let rule = "positive and finite";
        let rate_hz = global.sample_rate.ok_or_else(|| value("core:sample_rate", rule, "none"))?;
        if !(rate_hz > 0.0 && rate_hz <= MAX_RATE_HZ) {
            return Err(value("core:sample_rate", rule, rate_hz));
        }
        let one = [Capture { sample_start: global.offset.unwrap_or(0), ..Capture::default() }];
        let captures = if self.captures.is_empty() { &one } else { &self.captures[..] };
        for text in captures.iter().filter_map(|capture| capture.datetime.as_ref()) {
            if Time::from_iso(text).is_none() {
                let found: String = text.chars().filter(|c| !c.is_control()).take(40).collect();
                let rule = "a time in UTC such as 2026-11-25T14:20:40.5Z";
                return Err(value("core:datetime", rule, format!("`{found}`")));
            }
        }
        let mut grid = Timeline::new(rate_hz);
        let (segments, excess_bytes) =
            self.segments(captures, data_bytes, datatype.bytes() as u64 * channels, &mut grid)?;
        let range = match capture {
            Some(n) if n < captures.len() => n..n + 1,
            Some(n) => return Err(LayoutError::NoCapture(captures.len(), n)),
            None => 0..captures.len(),
        };
        let first = range.start;
        for (n, other) in captures[range.clone()].iter().enumerate() {
            if other.frequency != captures[first].frequency {
                return Err(LayoutError::Frequencies(first, first + n));
            }
        }
        let written: u64 = segments.iter().map(|segment| segment.count).sum();
        let announced = if capture.is_none() { global.samples.unwrap_or(0) } else { 0 };
        let dated = captures[range.clone()].iter().zip(&segments[range.clone()]);
        let mut sync_times = dated.filter_map(|(capture, segment)| {
            let time = Time::from_iso(capture.datetime.as_deref()?)?;
            time.plus_picoseconds(-Time::picoseconds_of(segment.index, rate_hz)?)
        });
        Ok(Layout {
            datatype,
            channels: channels as usize,
            sample_rate_hz: rate_hz,
            frequency_hz: captures[first].frequency.filter(|hz| hz.is_finite()),
            sync_time: sync_times.next(),
            missing: self.missing(&segments, captures),
            segments: segments[range].to_vec(),
            excess_bytes,
            samples_missing: announced.saturating_sub(written),
            contradictions: grid.contradictions,
        })
    }

    /// Returns the places of all captures, and the bytes after the last sample of `sample_bytes`.
    fn segments(
        &self,
        captures: &[Capture],
        data_bytes: u64,
        sample_bytes: u64,
        timeline: &mut Timeline,
    ) -> Result<(Vec<Segment>, u64), LayoutError> {
        if captures.len() > MAX_ENTRIES {
            let rule = format!("at most {MAX_ENTRIES} captures");
            return Err(value("captures", rule, captures.len()));
        }
        let header = |capture: &Capture| capture.header_bytes.unwrap_or(0);
        let headers = captures.iter().try_fold(0_u64, |sum, one| sum.checked_add(header(one)));
        let others =
            headers.and_then(|sum| sum.checked_add(self.global.trailing_bytes.unwrap_or(0)));
        let bytes = others.and_then(|others| data_bytes.checked_sub(others));
        let bytes = bytes.ok_or(LayoutError::TooShort(data_bytes))?;
        let (all, excess_bytes) = ((bytes / sample_bytes).min(MAX_INDEX), bytes % sample_bytes);
        let origin = self.global.offset.unwrap_or(0);
        let mut segments: Vec<Segment> = Vec::with_capacity(captures.len());
        let (mut before, mut headers, mut next) = (0, 0, 0);
        for (n, capture) in captures.iter().enumerate() {
            let start = capture.sample_start;
            let from = start.checked_sub(origin).filter(|from| (before..=MAX_INDEX).contains(from));
            let rule = "in ascending order from `core:offset`";
            let from = from.ok_or_else(|| value("core:sample_start", rule, start))?;
            let end = captures.get(n + 1).map_or(u64::MAX, |next| next.sample_start);
            let end = end.saturating_sub(origin).min(all).max(from.min(all));
            let count = end - from.min(all);
            let index = timeline.index(n, capture, next)?;
            if !(next..=MAX_INDEX).contains(&index) {
                let rule =
                    format!("between {next}, the end of the capture before, and {MAX_INDEX}");
                return Err(value("core:global_index", rule, index));
            }
            headers += header(capture);
            let offset = headers + from.min(all) * sample_bytes;
            segments.push(Segment { index, count, offset });
            (before, next) = (from, index + count);
        }
        Ok((segments, excess_bytes))
    }

    /// Returns the indices of samples that annotations mark as missing.
    fn missing(&self, segments: &[Segment], captures: &[Capture]) -> Vec<(u64, u64)> {
        let is_missing = |label: &Option<String>| label.as_deref() == Some(MISSING);
        let noted = self.annotations.iter().filter(|note| is_missing(&note.label));
        let place = |note: &super::Annotation| {
            let after = captures.partition_point(|one| one.sample_start <= note.sample_start);
            let n = after.checked_sub(1)?;
            let within = note.sample_start - captures[n].sample_start;
            let rest = segments[n].count.checked_sub(within)?;
            let count = note.sample_count.unwrap_or(rest).min(rest);
            (count > 0).then_some((segments[n].index + within, count))
        };
        let mut missing: Vec<_> = noted.take(MAX_ENTRIES).filter_map(place).collect();
        missing.sort_unstable();
        missing
    }
}

/// Indices of captures by their times.
struct Timeline {
    rate_hz: f64,
    /// Latest capture with a time: the time, its resolution in seconds, and its index.
    dated: Option<(Time, f64, u64)>,
    contradictions: Vec<String>,
}

/// Largest number of contradictions that are reported.
const MAX_CONTRADICTIONS: usize = 8;
/// Largest difference in seconds between the time of a capture and that of its index without a report: the clocks of
/// many recorders are no better.
const MAX_CLOCK_ERROR: f64 = 1e-3;

impl Timeline {
    fn new(rate_hz: f64) -> Self {
        Self { rate_hz, dated: None, contradictions: Vec::new() }
    }

    /// Returns the index of capture number `n`, if the samples before it end at `next`.
    fn index(&mut self, n: usize, capture: &Capture, next: u64) -> Result<u64, LayoutError> {
        let text = capture.datetime.as_deref().unwrap_or_default();
        let Some(time) = Time::from_iso(text) else {
            return Ok(capture.global_index.unwrap_or(next));
        };
        let resolution = resolution(text);
        let index = capture.global_index.unwrap_or(next);
        let late = self.dated.map_or(0.0, |(first, _, at)| {
            time.seconds_since(first) - (index as f64 - at as f64) / self.rate_hz
        });
        let coarser = self.dated.map_or(resolution, |(_, other, _)| other.max(resolution));
        let is_off = late.abs() > coarser.max(1.0 / self.rate_hz);
        let index = match capture.global_index {
            Some(index) => {
                let is_wrong = is_off && late.abs() > MAX_CLOCK_ERROR;
                if is_wrong && self.contradictions.len() < MAX_CONTRADICTIONS {
                    self.contradictions.push(format!(
                        "capture {n} is {late} s late by its `core:datetime`; its `core:global_index` is used"
                    ));
                }
                index
            }
            None if !is_off => index,
            None if late < 0.0 => return Err(LayoutError::Overlap(n, -late)),
            // The conversion saturates, and the largest index is rejected.
            None => index.saturating_add((late * self.rate_hz).round() as u64),
        };
        self.dated = Some((time, resolution, index));
        Ok(index)
    }
}

/// Value of the last digit of a time of day in seconds.
fn resolution(text: &str) -> f64 {
    let digits = text.split_once('.').map_or("", |(_, digits)| digits);
    let digits = digits.bytes().take_while(u8::is_ascii_digit).count();
    10_f64.powi(-(digits.min(18) as i32))
}
