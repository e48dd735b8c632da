//! Types of ports: data type, named axes, sample clock, band and validity, checked before the flowgraph starts.

use crate::time_base::TimeBase;
use crate::{Dtype, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Origin of the length of an axis, for diagnostics that point there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// No place in a file.
    #[default]
    Unknown,
    /// A parameter of the block that declares the port.
    Parameter(&'static str),
    /// A place in a flowgraph file; the framework replaces `Parameter` by it.
    Span(crate::diagnostic::Span),
}

/// One named axis of a payload.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Name, a term of the field: `antenna`, `channel`, `pol`, `spectrum`, `sample`, `baseline`, ...
    pub name: &'static str,
    /// Number of elements.
    pub len: usize,
    /// Origin of the length.
    pub origin: Origin,
    /// Label of each index for an axis without a scale, such as products of polarisations; empty otherwise.
    pub labels: Vec<String>,
}

impl Axis {
    /// An axis of `len` elements.
    #[must_use]
    pub const fn new(name: &'static str, len: usize) -> Self {
        Self { name, len, origin: Origin::Unknown, labels: Vec::new() }
    }

    /// An axis with one element for each of `labels`.
    #[must_use]
    pub fn labelled(
        name: &'static str,
        labels: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let labels: Vec<String> = labels.into_iter().map(Into::into).collect();
        Self { name, len: labels.len(), origin: Origin::Unknown, labels }
    }

    /// Sets the origin of the length to `parameter` of the block that declares the port.
    #[must_use]
    pub fn from_parameter(mut self, parameter: &'static str) -> Self {
        self.origin = Origin::Parameter(parameter);
        self
    }
}

impl PartialEq for Axis {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.len == other.len
    }
}

/// Relation of the frames of a port to ADC samples.
///
/// An ADC sample is one sample of the source, real or complex: one tick of the clock. Samples that were decimated take
/// several, as many as [`PortType::samples_per`] says.
///
/// # Examples
///
/// ```
/// use fxgraph_core::{Clock, Time};
///
/// let clock = Clock { sync_time: Time::unix(1_700_000_000), ..Clock::new(1e6, 4096) };
/// assert_eq!(clock.time(500_000).unwrap().to_unix(), (1_700_000_000, 500_000_000_000));
/// // The signal behind a filter of 4 taps of 2048 samples is that of 3072 samples later.
/// let behind = clock.behind_filter(4.0 * 2048.0, 2048.0);
/// assert_eq!(behind.filter_delay_samples, 3072.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// Samples per second of the ADC.
    pub adc_sample_rate_hz: f64,
    /// Time of timestamp 0; 1970 if it is unknown.
    pub sync_time: Time,
    /// ADC samples from one frame to the next.
    pub samples_per_frame: u64,
    /// ADC samples by which the signal in a frame is later than its timestamp, because filters name a window by its first
    /// sample. A time sample at t is the signal at t + `filter_delay_samples`; a spectrum or sum of S ADC samples is that
    /// from there on for S samples, with the centre of the filters' response in the middle.
    pub filter_delay_samples: f64,
}

impl Clock {
    /// A clock whose sync time is unknown, of samples that no filter has delayed.
    #[must_use]
    pub fn new(adc_sample_rate_hz: f64, samples_per_frame: u64) -> Self {
        let sync_time = Time::default();
        Self { adc_sample_rate_hz, sync_time, samples_per_frame, filter_delay_samples: 0.0 }
    }

    /// The clock behind a filter with windows of `window` ADC samples. `step` is the length of the interval that a window
    /// is for: of a spectrum, or of one input sample if the output are time samples.
    #[must_use]
    pub fn behind_filter(self, window: f64, step: f64) -> Self {
        let filter_delay_samples = self.filter_delay_samples + (window - step) / 2.0;
        Self { filter_delay_samples, ..self }
    }

    /// Frames per second.
    #[must_use]
    pub fn frames_per_second(&self) -> f64 {
        self.adc_sample_rate_hz / self.samples_per_frame as f64
    }

    /// Time of the signal in the element at `timestamp`: that of a time sample, or the begin of the interval of a spectrum.
    /// `None` beyond the year 9999.
    #[must_use]
    pub fn signal_time(&self, timestamp: u64) -> Option<Time> {
        self.time(timestamp)?.plus_seconds(self.filter_delay_samples / self.adc_sample_rate_hz)
    }

    /// Time of `timestamp`; `None` beyond the year 9999.
    #[must_use]
    pub fn time(&self, timestamp: u64) -> Option<Time> {
        self.sync_time.plus_samples(timestamp, self.adc_sample_rate_hz)
    }

    /// Unix time of the signal at `timestamp` as a number of seconds.
    #[must_use]
    pub fn unix_seconds(&self, timestamp: u64) -> f64 {
        // Beyond the year 9999 any number serves.
        let late = self.sync_time.to_unix_f64() + timestamp as f64 / self.adc_sample_rate_hz;
        self.signal_time(timestamp).map_or(late, Time::to_unix_f64)
    }

    /// Time of timestamp 0, if it is known.
    #[must_use]
    pub fn known_sync_time(&self) -> Option<Time> {
        Some(self.sync_time).filter(|time| *time != Time::default())
    }

    /// Clock of the frames of `base`.
    #[must_use]
    pub fn in_base(self, base: &TimeBase) -> Self {
        let Some(sync_time) = base.sync_time else { return self };
        // An unknown time stays unknown.
        let zero = Some(sync_time).filter(|sync| *sync != Time::default()).and_then(|sync| {
            let since = Time::picoseconds_of(base.from, self.adc_sample_rate_hz)?;
            sync.plus_picoseconds(-since)
        });
        Self { sync_time: zero.unwrap_or_default(), ..self }
    }

    /// Whether equal timestamps of both clocks are the same time.
    #[must_use]
    pub fn counts_alike(&self, other: &Self) -> bool {
        let timeline = |clock: &Self| (clock.adc_sample_rate_hz.to_bits(), clock.sync_time);
        timeline(self) == timeline(other)
    }
}

/// Direction of a band, and with it the sign of every phase in it.
///
/// A sampler whose band is in an even Nyquist zone, and a mixer whose oscillator is above the band, invert the
/// spectrum: the frequency on the sky falls as the frequency of the samples rises. A wave `cos(2 pi f t + phi)` on the
/// sky is then `cos(2 pi (F - f) t - phi)` in the samples (F: the frequency at 0 Hz), so that each complex value is the
/// complex conjugate of the value that the sky has at the frequency of its channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sideband {
    /// The frequency rises with the channel; values are those of the sky.
    #[default]
    Upper,
    /// The frequency falls with the channel; complex values are the conjugates of those of the sky.
    Lower,
}

impl Sideband {
    /// Factor of phases and of steps in frequency: a phase on the sky times this sign is the phase of the values in a
    /// channel, and a phase of the values times this sign is the phase on the sky. 1 for the upper sideband, -1 for
    /// the lower one.
    #[must_use]
    pub const fn sign(self) -> f64 {
        match self {
            Self::Upper => 1.0,
            Self::Lower => -1.0,
        }
    }

    /// Whether values are the complex conjugates of those of the sky.
    #[must_use]
    pub const fn is_inverted(self) -> bool {
        matches!(self, Self::Lower)
    }

    /// Sideband of samples in the Nyquist zone `zone`, counted from 1: zone z is from (z - 1) / 2 to z / 2 of the sample
    /// rate, and even zones are inverted.
    #[must_use]
    pub const fn of_nyquist_zone(zone: u32) -> Self {
        if zone.is_multiple_of(2) { Self::Lower } else { Self::Upper }
    }

    /// The other sideband.
    #[must_use]
    pub const fn inverted(self) -> Self {
        match self {
            Self::Upper => Self::Lower,
            Self::Lower => Self::Upper,
        }
    }
}

/// Part of the band that a `channel` axis covers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// Number of channels of the whole band.
    pub channels: usize,
    /// Index, in the whole band, of the first channel of the axis.
    pub first_channel: usize,
    /// Frequency at the centre of the whole band (channel `channels / 2`), in Hz.
    pub centre_hz: f64,
    /// Width of the whole band in Hz, positive.
    pub bandwidth_hz: f64,
    /// Direction of the frequencies, and sign of the phases.
    pub sideband: Sideband,
}

impl Band {
    /// Creates a band from a width with a sign, as files and parameters have it: negative for the lower sideband.
    #[must_use]
    pub const fn signed(
        channels: usize,
        first_channel: usize,
        centre_hz: f64,
        bandwidth_hz: f64,
    ) -> Self {
        let sideband = if bandwidth_hz < 0.0 { Sideband::Lower } else { Sideband::Upper };
        Self { channels, first_channel, centre_hz, bandwidth_hz: bandwidth_hz.abs(), sideband }
    }

    /// Creates the band of real samples at `rate_hz` in the Nyquist zone `zone`, counted from 1.
    #[must_use]
    pub fn of_nyquist_zone(zone: u32, rate_hz: f64) -> Self {
        Self {
            channels: 1,
            first_channel: 0,
            centre_hz: (f64::from(zone) - 0.5) * rate_hz / 2.0,
            bandwidth_hz: rate_hz / 2.0,
            sideband: Sideband::of_nyquist_zone(zone),
        }
    }

    /// Width of the whole band in Hz with a sign, as files and parameters have it: negative for the lower sideband.
    #[must_use]
    pub const fn signed_bandwidth_hz(&self) -> f64 {
        self.sideband.sign() * self.bandwidth_hz
    }

    /// Frequency from one channel to the next, in Hz; negative for the lower sideband.
    #[must_use]
    pub fn step_hz(&self) -> f64 {
        self.signed_bandwidth_hz() / self.channels as f64
    }

    /// Frequency of the channel with index `channel` on the axis, in Hz.
    #[must_use]
    pub fn channel_hz(&self, channel: usize) -> f64 {
        self.centre_hz + self.from_centre_hz(channel)
    }

    /// Frequency of the channel with index `channel` on the axis, relative to the centre of the whole band, in Hz.
    #[must_use]
    pub fn from_centre_hz(&self, channel: usize) -> f64 {
        let from_centre = self.first_channel as f64 + channel as f64 - (self.channels / 2) as f64;
        from_centre * self.signed_bandwidth_hz() / self.channels as f64
    }

    /// Reason why the band is invalid for an axis of `channels` channels, if it is.
    #[must_use]
    pub fn impossible(&self, channels: usize) -> Option<String> {
        let last = self.first_channel.checked_add(channels);
        if last.is_none_or(|last| last > self.channels) {
            Some(format!("the channel axis must be within the band of {} channels", self.channels))
        } else if !(self.centre_hz.is_finite() && self.bandwidth_hz.is_finite()) {
            Some("centre and width of the band must be finite".to_owned())
        } else if self.bandwidth_hz <= 0.0 {
            Some(format!("the width of the band must not be 0, got {} Hz", self.bandwidth_hz))
        } else {
            None
        }
    }
}

/// Units of a frame that can be missing one by one.
///
/// The header of a frame has one count per element of `axes` (row-major): 0 is missing, `full` is complete, and a
/// number between is a part.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidityType {
    /// Axes of the counts; an axis with the name of a payload axis divides that axis into equal parts.
    pub axes: Vec<Axis>,
    /// Count of a complete unit.
    pub full: u32,
}

impl ValidityType {
    /// One flag (0 or 1) per unit.
    #[must_use]
    pub fn flags(axes: Vec<Axis>) -> Self {
        Self { axes, full: 1 }
    }

    /// Number of units.
    #[must_use]
    pub fn units(&self) -> usize {
        self.axes.iter().map(|axis| axis.len).product()
    }
}

/// Type of the frames of a port.
///
/// # Examples
///
/// Spectra of MeerKAT's L band, `cf32` `[pol][spectrum][channel]`: each of the 16 spectra of a frame has 1024 channels of
/// 836 kHz, is made of 2048 ADC samples, and can be missing alone.
///
/// ```
/// use fxgraph_core::{Axis, Clock, Dtype, PortType, Sideband, ValidityType, port::Band};
///
/// let port = PortType {
///     dtype: Dtype::Cf32,
///     axes: vec![Axis::new("pol", 2), Axis::new("spectrum", 16), Axis::new("channel", 1024)],
///     clock: Clock::new(1.712e9, 16 * 2048),
///     band: Some(Band { channels: 1024, ..Band::of_nyquist_zone(2, 1.712e9) }),
///     validity: ValidityType::flags(vec![Axis::new("pol", 2), Axis::new("spectrum", 16)]),
/// };
/// assert_eq!(port.elements(), 2 * 16 * 1024);
/// assert_eq!(port.frame_bytes(), 8 * port.elements());
/// assert_eq!(port.validity.units(), 32);
/// assert_eq!(port.samples_per("spectrum"), Some(2048));
/// // The second Nyquist zone is inverted: the frequency falls with the channel.
/// let band = port.band.unwrap();
/// assert_eq!((band.sideband, band.channel_hz(0), band.step_hz()), (Sideband::Lower, 1.712e9, -836e3 + 62.5));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PortType {
    /// Element type.
    pub dtype: Dtype,
    /// Axes, slowest first; their order is the memory layout.
    pub axes: Vec<Axis>,
    /// Sample clock and frame step.
    pub clock: Clock,
    /// Frequencies of the `channel` axis, or of complex samples.
    pub band: Option<Band>,
    /// Units that can be missing one by one.
    pub validity: ValidityType,
}

impl PortType {
    /// Number of elements of one frame.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.axes.iter().map(|axis| axis.len).product()
    }

    /// Payload of one frame in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.dtype.bytes(self.elements())
    }

    /// Payload data rate in bytes per second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.frame_bytes() as f64 * self.clock.frames_per_second()
    }

    /// Reason why the type is invalid, if it is: an empty axis, an invalid clock, or channels outside the band. The
    /// framework rejects such outputs, so that inputs of blocks always have a valid type.
    #[must_use]
    pub fn impossible(&self) -> Option<String> {
        let axes = self.axes.iter().chain(&self.validity.axes);
        let rate_hz = self.clock.adc_sample_rate_hz;
        if let Some(empty) = axes.into_iter().find(|axis| axis.len == 0) {
            Some(format!("the axis `{}` is empty", empty.name))
        } else if !(rate_hz > 0.0 && rate_hz.is_finite()) {
            let message = "the ADC sample rate must be positive and finite, got";
            Some(format!("{message} {rate_hz} Hz"))
        } else if !self.clock.filter_delay_samples.is_finite() {
            Some("the delay of the filters must be finite".to_owned())
        } else if self.clock.samples_per_frame == 0 {
            Some("a frame must have at least 1 ADC sample, got 0 ADC samples".to_owned())
        } else {
            let channels = self.axis_len("channel").unwrap_or(1);
            self.band.and_then(|band| band.impossible(channels))
        }
    }

    /// Whether a block that was built for this type can read `other`: all properties are equal except the centre
    /// frequency of the band, which a live parameter may change, and the delay of the filters, which a swap may change.
    #[must_use]
    pub fn is_read_like(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.clock.filter_delay_samples = self.clock.filter_delay_samples;
        if let (Some(band), Some(other)) = (self.band, &mut other.band) {
            other.centre_hz = band.centre_hz;
        }
        *self == other
    }

    /// Sideband of the values: that of the band, and the upper one without a band.
    #[must_use]
    pub fn sideband(&self) -> Sideband {
        self.band.map_or(Sideband::Upper, |band| band.sideband)
    }

    /// Length of the axis `name`, if the payload has it.
    #[must_use]
    pub fn axis_len(&self, name: &str) -> Option<usize> {
        self.axes.iter().find(|axis| axis.name == name).map(|axis| axis.len)
    }

    /// ADC samples from one element of the axis `name` to the next.
    #[must_use]
    pub fn samples_per(&self, name: &str) -> Option<u64> {
        self.axis_len(name).map(|len| self.clock.samples_per_frame / len as u64)
    }
}

impl fmt::Display for PortType {
    /// Writes `ci8 [antenna 80][channel 64][pol 2][spectrum 256] @ 1.712 GS/s / 131072`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.dtype)?;
        for axis in &self.axes {
            write!(f, "[{} {}]", axis.name, axis.len)?;
        }
        let rate = self.clock.adc_sample_rate_hz;
        let (scaled, unit) = match rate {
            r if r >= 1e9 => (r / 1e9, "GS/s"),
            r if r >= 1e6 => (r / 1e6, "MS/s"),
            r if r >= 1e3 => (r / 1e3, "kS/s"),
            r => (r, "S/s"),
        };
        let scaled = (scaled * 1e6).round() / 1e6;
        write!(f, " @ {scaled} {unit} / {}", self.clock.samples_per_frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_names_invalid_property() {
        let port = PortType {
            dtype: Dtype::I8,
            axes: vec![Axis::new("sample", 4)],
            clock: Clock::new(1.0, 4),
            band: None,
            validity: ValidityType::flags(vec![]),
        };
        let with = |change: fn(&mut PortType)| {
            let mut port = port.clone();
            change(&mut port);
            port.impossible().unwrap_or_default()
        };
        assert_eq!(with(|_| {}), "");
        assert_eq!(with(|port| port.axes[0].len = 0), "the axis `sample` is empty");
        assert!(with(|p| p.validity.axes.push(Axis::new("heap", 0))).contains("`heap`"));
        assert!(with(|port| port.clock.adc_sample_rate_hz = f64::NAN).contains("NaN Hz"));
        assert!(with(|port| port.clock.samples_per_frame = 0).contains("0 ADC samples"));
        let band = |channels, first_channel, centre_hz| {
            let band = Band::signed(channels, first_channel, centre_hz, 1.0);
            let axes = vec![Axis::new("channel", 4)];
            PortType { axes, band: Some(band), ..port.clone() }.impossible().unwrap_or_default()
        };
        assert_eq!(band(8, 4, 0.0), "");
        for (channels, first_channel) in [(8, 5), (usize::MAX, usize::MAX - 3), (0, 0)] {
            let expected =
                format!("the channel axis must be within the band of {channels} channels");
            assert_eq!(band(channels, first_channel, 0.0), expected);
        }
        assert_eq!(band(8, 4, f64::NAN), "centre and width of the band must be finite");
    }
}
