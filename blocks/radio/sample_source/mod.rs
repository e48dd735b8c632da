#![doc = include_str!("README.md")]

mod assembler;
mod byte_stream;
mod causes;
mod connection;
mod cpu;
mod datagrams;
mod levels;
mod messages;
mod origin;
mod protocol;
mod receiving;
mod rtl_tcp;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)] // values are exact
mod tests;
mod tuning;

use crate::types::SampleType;
use assembler::Layout;
use fxgraph::kind::{slow_digitiser, unlikely_band};
use fxgraph::{
    Axis, Band, BlockError, Checked, Clock, Configured, Dtype, FrameSizes, Implementation,
    Implementations, Kind, KindSpec, LiveKind, PortType, Rejection, Resources, Sideband, Time,
    ValidityType,
};
use fxgraph_common::axes::MAX_FRAME_BYTES;
pub use origin::{Origin, RtlTcp, Udp, Zmq, ZmqSocket};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tuning::Setting;

/// Length of a frame of the default size in seconds, where no plan chooses it.
const FRAME_SECONDS: f64 = 0.02;

/// Action of a source when its sender has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnEnd {
    /// Ends its output.
    Finish,
    /// Connects again, or waits for the next sender.
    Stay,
}

/// Parameters of `sample_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "sample_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct SampleSource {
    /// Place where the samples come from: `stdin`, `{fifo: PATH}`, `{file: PATH}`, `{tcp: host:port}`, `{listen: addr:port}`,
    /// `{rtl_tcp: {address: host:port}}`, `{udp: {address: addr:port}}`, `{zmq: {connect: tcp://host:port, socket: sub}}`.
    pub from: Origin,
    /// Type of the samples: `cu8`, `ci8`, `ci16`, `ci16_be`, `ci12p`, `cf32`, `u8`, `i8`, `i16`, `i16_be`, `f32`, or a name of
    /// GNU Radio or SoapySDR for it.
    pub r#type: SampleType,
    /// Whether the output are floats (`cf32`, `f32`) with the full scale 1; otherwise it has the integers of the samples.
    #[param(default)]
    pub normalise: bool,
    /// Samples per second, real or complex.
    pub adc_sample_rate_hz: f64,
    /// Frequency on the sky at the centre of the band. A server of `rtl_tcp` is tuned to it; for the others it is a
    /// statement.
    #[param(live)]
    pub centre_hz: Option<f64>,
    /// Sideband of the samples. `lower`: the spectrum is inverted, as by a mixer whose oscillator is above the band, or by
    /// swapped I and Q.
    #[param(default)]
    pub sideband: Sideband,
    /// Time of the first sample: Unix seconds, or a time in UTC such as `2026-11-25T14:20:40.25Z`. By default the arrival of
    /// the first samples by the clock of this host, whose uncertainty the time base states.
    #[param(default)]
    pub sync_time_seconds: Time,
    /// Samples of a frame, a multiple of `samples_per_heap`. By default the plan chooses it from `latency_seconds`.
    pub samples_per_frame: Option<usize>,
    /// Samples in a heap: the unit of validity.
    #[param(default = 1024, range = 1..=1_073_741_824)]
    pub samples_per_heap: usize,
    /// Largest number of frames; by default the block runs until its sender ends or the flowgraph stops.
    pub frames: Option<u64>,
    /// Action when the sender has gone: `finish` ends the output, `stay` waits for the next one. By default a pipe and TCP
    /// stay, and the standard input and a file end.
    pub on_end: Option<OnEnd>,
    /// Ends the stream after this long without data.
    #[param(range = 1e-3..=1e9, unit = "s")]
    pub finish_after_seconds: Option<f64>,
    /// Longest gap in the numbers of datagrams that is filled with missing samples. Numbers that jump by more are those of
    /// another run of the sender.
    #[param(default = 1.0, range = 0..=1e6, unit = "s")]
    pub max_gap_seconds: f64,
    /// `rtl_tcp`: gain of the tuner in dB; by default the tuner controls it.
    #[param(range = -100..=200, unit = "dB", live)]
    pub gain_db: Option<f64>,
    /// `rtl_tcp`: error of the oscillator that the server corrects, in parts per million.
    #[param(default, range = -1000..=1000, live)]
    pub frequency_correction_ppm: i32,
    /// `rtl_tcp`: time after a change of `centre_hz` whose samples are flagged as missing: older samples are still in
    /// buffers, and the tuner settles.
    #[param(default = 0.2, range = 0..=60, unit = "s")]
    pub settle_seconds: f64,
}

impl SampleSource {
    /// Element type of the output.
    fn dtype(&self) -> Dtype {
        if self.normalise { self.r#type.float_dtype() } else { self.r#type.dtype() }
    }

    /// Samples of a frame.
    fn frame_samples(&self) -> usize {
        self.samples_per_frame.unwrap_or_else(|| {
            let heaps = self.adc_sample_rate_hz * FRAME_SECONDS / self.samples_per_heap as f64;
            self.samples_per_heap.saturating_mul(heaps.ceil().max(1.0) as usize)
        })
    }

    fn layout(&self) -> Layout {
        Layout {
            of: self.r#type,
            normalise: self.normalise,
            samples: self.frame_samples(),
            heap: self.samples_per_heap,
        }
    }

    fn band(&self) -> Option<Band> {
        let half = if self.r#type.is_complex() { 1.0 } else { 0.5 };
        self.centre_hz.map(|centre_hz| Band {
            channels: 1,
            first_channel: 0,
            centre_hz,
            bandwidth_hz: half * self.adc_sample_rate_hz,
            sideband: self.sideband,
        })
    }

    fn stays(&self) -> bool {
        self.on_end.map_or(self.from.comes_back(), |on_end| on_end == OnEnd::Stay)
    }

    fn rejections(&self) -> Vec<Rejection> {
        let mut rejections = self.from.rejections();
        let mut reject = |name, message: String, help: &str| {
            rejections.push(Rejection::parameter(name, message).help(help));
        };
        let rate_hz = self.adc_sample_rate_hz;
        if !(rate_hz > 0.0 && rate_hz <= 1e10) {
            let message =
                format!("`adc_sample_rate_hz` must be positive and at most 1e10, got {rate_hz}");
            reject("adc_sample_rate_hz", message, "give a rate such as 2.4e6");
        }
        if let Some(hz) = self.centre_hz.filter(|hz| !(0.0..=1e12).contains(hz)) {
            let message = format!("`centre_hz` must be between 0 and 1e12, got {hz}");
            reject("centre_hz", message, "give it in Hz, such as 100e6");
        }
        if self.centre_hz.is_none() && self.sideband == Sideband::Lower {
            let message = "`sideband` needs `centre_hz`".to_owned();
            reject("sideband", message, "give the frequency at the centre of the band");
        }
        let (samples, heap) = (self.frame_samples(), self.samples_per_heap);
        let bits = samples.saturating_mul(self.dtype().bits());
        if samples == 0 || !samples.is_multiple_of(heap) || bits / 8 > MAX_FRAME_BYTES {
            let message = format!(
                "`samples_per_frame` must be a multiple of `samples_per_heap` ({heap}) in frames of at most 4 GiB, got \
                 {samples}"
            );
            reject("samples_per_frame", message, "omit it for the plan's choice");
        }
        if self.on_end.is_some() && matches!(self.from, Origin::Udp(_)) {
            let message = "`on_end` needs a sender with an end, and datagrams have none".to_owned();
            reject("on_end", message, "omit it, or set `finish_after_seconds`");
        } else if self.on_end == Some(OnEnd::Stay) && !self.from.comes_back() {
            let message = "`on_end: stay` needs a sender that can come back".to_owned();
            reject(
                "on_end",
                message,
                "omit it, or receive from `fifo`, `tcp`, `listen`, `rtl_tcp` or `zmq`",
            );
        }
        if !matches!(self.from, Origin::RtlTcp(_)) {
            let only = "`rtl_tcp` only: set it at the program that sends the samples";
            if self.gain_db.is_some() {
                reject("gain_db", "`gain_db` needs `from: {rtl_tcp: ..}`".to_owned(), only);
            }
            if self.frequency_correction_ppm != 0 {
                let message = "`frequency_correction_ppm` needs `from: {rtl_tcp: ..}`".to_owned();
                reject("frequency_correction_ppm", message, only);
            }
            return rejections;
        }
        if self.r#type != SampleType::Cu8 {
            let message = format!("`type` must be cu8 with `rtl_tcp`, got {}", self.r#type);
            reject("type", message, "set `type: cu8`");
        }
        let most = f64::from(u32::MAX);
        if self.centre_hz.is_none_or(|hz| hz > most) {
            let message = format!("`rtl_tcp` needs `centre_hz`, at most {most}");
            reject("centre_hz", message, "give the frequency in Hz, such as 100e6");
        }
        if rate_hz.fract() != 0.0 || rate_hz > most {
            let message =
                format!("`adc_sample_rate_hz` must be a whole number of Hz, got {rate_hz}");
            reject("adc_sample_rate_hz", message, "give a rate such as 2.4e6");
        }
        rejections
    }
}

impl KindSpec for SampleSource {
    type Shape = Layout;
    const IMPLEMENTATIONS: Implementations<Self> =
        &[Implementation::cpu(|block, env| Ok(Box::new(cpu::Source::new(block, env))))];

    fn ports(&self, _inputs: &[PortType]) -> Checked<Layout> {
        let rejections = self.rejections();
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let layout = self.layout();
        let clock = Clock {
            sync_time: self.sync_time_seconds,
            ..Clock::new(self.adc_sample_rate_hz, layout.samples as u64)
        };
        let heap =
            Axis::new("heap", layout.samples / layout.heap).from_parameter("samples_per_heap");
        let port = PortType {
            dtype: self.dtype(),
            axes: vec![Axis::new("sample", layout.samples).from_parameter("samples_per_frame")],
            clock,
            band: self.band(),
            validity: ValidityType::flags(vec![heap]),
        };
        Ok((layout, vec![port]))
    }

    fn frame_sizes(&self) -> Option<FrameSizes> {
        let (heap, bits) = (self.samples_per_heap as u64, self.dtype().bits() as u64);
        let sizes = FrameSizes::of_heaps("samples_per_frame", self.adc_sample_rate_hz, heap, bits);
        sizes.filter(|_| self.from.is_live())
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let rate_hz = block.parameters.adc_sample_rate_hz;
        let band = unlikely_band("adc_sample_rate_hz", &block.ports.outputs[0]);
        slow_digitiser("adc_sample_rate_hz", rate_hz).into_iter().chain(band).collect()
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let from = &block.parameters.from;
        Resources {
            host_bytes: byte_stream::HOST_BYTES,
            fills: vec![cpu::LENT_FRAMES],
            binds: from.binds(),
            sockets: from.groups(),
            ..Resources::default()
        }
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        match self.from {
            Origin::File(_) => Some("it would play its file again from the start"),
            // The samples of a pipe or a socket go on in another time base.
            _ => None,
        }
    }
}

impl LiveKind for SampleSource {
    type Value = Setting;

    fn live_value(
        new: &Configured<Self>,
        parameter: SampleSourceLive,
        _: &Configured<Self>,
    ) -> Result<Setting, BlockError> {
        let new = &new.parameters;
        Ok(match parameter {
            SampleSourceLive::CentreHz => {
                let missing = || BlockError::new("`centre_hz` must have a value while it runs");
                Setting::CentreHz(new.centre_hz.ok_or_else(missing)?)
            }
            SampleSourceLive::GainDb => Setting::GainDb(new.gain_db),
            SampleSourceLive::FrequencyCorrectionPpm => {
                Setting::Correction(new.frequency_correction_ppm)
            }
        })
    }
}
