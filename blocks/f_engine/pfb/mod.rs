#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
pub(crate) mod cpu;
mod cuda;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod packed_input_tests;
mod rejections;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::delay::{self, MaxRates};
use crate::common::live::Live;
use crate::common::nyquist::MAX_NYQUIST_ZONE;
use crate::common::parallel::MAX_THREADS;
use crate::f_engine::samples::input::{Sizes, rate_hz, ticks};
use crate::f_engine::samples::{device, host, input};
use fxgraph::DeviceName;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::kind::Effect;
use fxgraph::{
    Axis, Band, BlockError, Checked, Clock, Configured, Dtype, Implementation, Implementations,
    Kind, KindSpec, LiveKind, PortType, Ports, Resources, Sideband, ValidityType,
};
use fxgraph_dsp::delay::Piece;
use fxgraph_dsp::polyphase::{Window, weights};
use std::ops::RangeInclusive;

/// Largest number of channels of the band.
pub const MAX_CHANNELS: usize = 1 << 20;
/// Largest number of taps of the filter.
pub const MAX_TAPS: usize = 64;
/// Largest delay of either sign that can be buffered, in samples.
pub const MAX_DELAY_SAMPLES: f64 = (1_u64 << 24) as f64;
/// Largest size of a default frame in bytes, so that it fits in the caches of a core.
const FRAME_BYTES: usize = 1 << 20;
/// Largest size of a default frame on a GPU in bytes. Its kernels take some ten microseconds; for much
/// smaller frames the launches cost too much.
const GPU_FRAME_BYTES: usize = 32 << 20;
/// Smallest and largest number of spectra of a default frame.
const DEFAULT_SPECTRA: RangeInclusive<usize> = 16..=256;
const GPU_DEFAULT_SPECTRA: RangeInclusive<usize> = 16..=8192;

/// Parameters of the block `pfb`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "pfb",
    page = "README.md",
    examples("example.yaml", "narrowband.yaml"),
    inputs("pol0", optional("pol1")),
    outputs("output")
)]
pub struct Pfb {
    /// Channels of the whole band, an even number with the prime factors 2, 3 and 5. A spectrum takes
    /// 2 x `channels` real samples, or `channels` complex ones.
    pub channels: usize,
    /// Taps per channel: the window of a spectrum is `taps` times as long as the spectrum's own samples.
    #[param(default = 16)]
    pub taps: usize,
    /// Window that shapes the filter.
    #[param(default)]
    pub window: Window,
    /// Width of the filter's pass band in channels. 0 together with one tap and the `rect` window
    /// gives a plain Fourier transform.
    #[param(default = 1.0)]
    pub w_cutoff: f64,
    /// Number of interleaved complex series into which the samples of each spectrum are split, a power of
    /// two; 1 for no split. `postproc` combines the transforms of the series.
    #[param(default = 1)]
    pub unzip: usize,
    /// Spectra per output frame. By default a power of two such that frames take about 1 MiB and
    /// fit in the caches of one core, from 16 to 256; on a GPU about 32 MiB, from 16 to 8192.
    pub spectra_per_frame: Option<usize>,
    /// Delay model of each polarisation: a list of linear pieces for each input. Without it
    /// there is no delay.
    #[param(default, live)]
    pub delays: Vec<Vec<Piece>>,
    /// Largest delay of either sign, in seconds; sets the number of buffered samples. Spectra with a
    /// larger delay are invalid. By default 79.53 us with `delays`, and 0 without them: set it if
    /// delays are added by a live update.
    pub max_delay_seconds: Option<f64>,
    /// Largest delay rate of either sign, in seconds per second.
    #[param(default = delay::default_max_rate())]
    pub max_delay_rate: f64,
    /// Largest fringe rate of either sign, in radians per second.
    #[param(default = delay::default_max_phase_rate())]
    pub max_fringe_rate_radians_per_second: f64,
    /// Frequency at the centre of the band, in Hz. By default that of the input's band, which `ddc`
    /// sets; for real samples without a band the centre of the Nyquist zone.
    pub centre_hz: Option<f64>,
    /// Nyquist zone of real samples whose source states no band, counted from 1, the default. Even zones have an
    /// inverted spectrum (lower sideband).
    #[param(range = 1..=MAX_NYQUIST_ZONE)]
    pub nyquist_zone: Option<u32>,
    /// Threads that share the spectra, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores; set more if one antenna is too much for one core.
    #[param(default = 1, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

impl Pfb {
    /// Samples of `input` from one spectrum to the next.
    fn step(&self, input: &PortType) -> usize {
        if input::is_complex(input) { self.channels } else { 2 * self.channels }
    }

    /// Bytes of a filtered spectrum: 2 N real numbers or N complex ones.
    fn spectrum_bytes(&self) -> usize {
        self.channels.saturating_mul(size_of::<[f32; 2]>())
    }

    /// Weights for the samples of `input`: `[sample]`, or `[sample][re, im]` for complex samples.
    ///
    /// Weights of complex samples alternate in sign, which shifts the transform by half of the band:
    /// frequency 0 is then in channel N/2, and channels are in order of frequency.
    fn weights(&self, input: &PortType) -> Vec<f32> {
        let weights = weights(self.step(input), self.taps, self.window, self.w_cutoff);
        if !input::is_complex(input) {
            return weights;
        }
        let alternating = |(i, w): (usize, f32)| if i.is_multiple_of(2) { [w; 2] } else { [-w; 2] };
        weights.into_iter().enumerate().flat_map(alternating).collect()
    }

    fn spectra(&self, pols: usize) -> usize {
        let fitting = || self.fitting(FRAME_BYTES, pols, DEFAULT_SPECTRA);
        self.spectra_per_frame.unwrap_or_else(fitting)
    }

    /// Number of spectra of `pols` polarisations that take about `bytes`, clamped to the `sensible` range.
    fn fitting(&self, bytes: usize, pols: usize, sensible: RangeInclusive<usize>) -> usize {
        let spectrum_bytes = self.spectrum_bytes().saturating_mul(pols).max(1);
        (bytes / spectrum_bytes).next_power_of_two().clamp(*sensible.start(), *sensible.end())
    }

    /// Sizes of a block with these inputs.
    pub(crate) fn sizes(&self, inputs: &[PortType]) -> Sizes {
        let input = &inputs[0];
        let step = self.step(input);
        Sizes {
            ticks: ticks(input),
            step,
            window: step * self.taps,
            spectra: self.spectra(inputs.len()),
            max_delay: self.max_delay_samples(input),
            sideband: self.sideband(input),
        }
    }

    /// The delay model of each input.
    pub(crate) fn delays_of(&self, ports: &Ports) -> Vec<Vec<Piece>> {
        let pieces = |input: usize| self.delays.get(input).cloned().unwrap_or_default();
        (0..ports.inputs.len()).map(pieces).collect()
    }

    /// Live delays for a block that was built with the parameters `running`.
    ///
    /// # Errors
    /// If the new `max_delay_seconds` is larger than that of `running`.
    pub(crate) fn live_delays(&self, running: &Self, ports: &Ports) -> Result<Live, BlockError> {
        let room_seconds = running.max_delay_seconds();
        if self.max_delay_seconds() > room_seconds {
            let text = format!(
                "`max_delay_seconds` cannot grow while the block runs; it buffers delays up to {room_seconds} s"
            );
            return Err(BlockError::new(text));
        }
        Ok(Live::Delays(self.delays_of(ports)))
    }

    /// Sideband of the samples of `input`.
    pub(crate) fn sideband(&self, input: &PortType) -> Sideband {
        self.nyquist_zone.map_or(input.sideband(), Sideband::of_nyquist_zone)
    }

    /// Frequency at the centre of the band, if it is known.
    fn centre_hz(&self, input: &PortType) -> Option<f64> {
        self.centre_hz.or(input.band.map(|band| band.centre_hz))
    }

    /// Limits of the rates of the delay models.
    fn rates(&self) -> MaxRates {
        MaxRates {
            delay: self.max_delay_rate,
            phase_radians_per_second: self.max_fringe_rate_radians_per_second,
        }
    }

    fn max_delay_seconds(&self) -> f64 {
        let undelayed = self.delays.iter().all(Vec::is_empty);
        self.max_delay_seconds.unwrap_or(if undelayed { 0.0 } else { delay::MAX_DELAY_SECONDS })
    }

    /// Largest shift of a window in samples of `input`, of either sign; a multiple of 8.
    fn max_delay_samples(&self, input: &PortType) -> usize {
        let max_delay_seconds = self.max_delay_seconds();
        if max_delay_seconds == 0.0 {
            return 0;
        }
        let samples = (max_delay_seconds * rate_hz(input)).ceil();
        (samples as usize + 1).next_multiple_of(8)
    }
}

impl Pfb {
    /// Output type for checked inputs.
    fn output(&self, inputs: &[PortType]) -> PortType {
        let (input, clock) = (&inputs[0], inputs[0].clock);
        let (spectra, step) = (self.spectra(inputs.len()), self.step(input));
        let step_ticks = step * ticks(input);
        let samples_per_frame = (spectra * step_ticks) as u64;
        let window = (step_ticks * self.taps) as f64;
        let zone = Band::of_nyquist_zone(self.nyquist_zone.unwrap_or(1), rate_hz(input));
        let bandwidth_hz =
            if input::is_complex(input) { rate_hz(input) } else { zone.bandwidth_hz };
        let pol = Axis::new("pol", inputs.len());
        let spectrum = Axis::new("spectrum", spectra).from_parameter("spectra_per_frame");
        let mut axes = vec![pol.clone(), spectrum.clone()];
        let dtype = if self.unzip == 1 {
            axes.push(Axis::new("sample", step).from_parameter("channels"));
            if input::is_complex(input) { Dtype::Cf32 } else { Dtype::F32 }
        } else {
            axes.push(Axis::new("unzip", self.unzip).from_parameter("unzip"));
            let part = self.channels / self.unzip;
            axes.push(Axis::new("sample", part).from_parameter("channels"));
            Dtype::Cf32
        };
        PortType {
            dtype,
            axes,
            clock: Clock { samples_per_frame, ..clock.behind_filter(window, step_ticks as f64) },
            band: Some(Band {
                channels: self.channels,
                first_channel: 0,
                centre_hz: self.centre_hz(input).unwrap_or(zone.centre_hz),
                bandwidth_hz,
                sideband: self.sideband(input),
            }),
            validity: ValidityType::flags(vec![pol, spectrum]),
        }
    }
}

impl KindSpec for Pfb {
    type Shape = Sizes;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            let Configured { parameters: pfb, ports, shape, .. } = block;
            if input::is_complex(&ports.inputs[0]) {
                Ok(Box::new(cpu::Cpu::<host::Baseband>::new(pfb, *shape, ports, env)?))
            } else {
                Ok(Box::new(cpu::Cpu::<host::Decoded>::new(pfb, *shape, ports, env)?))
            }
        }),
        Implementation::<Self>::cuda(
            "cuda",
            "reads windows directly from the input frames where possible",
            |block, env| {
                let Configured { parameters, ports, shape, .. } = block;
                Ok(Box::new(cuda::Filter::block(parameters, *shape, ports, env)?))
            },
        )
        .suited(|pfb| {
            let fitting = pfb.fitting(GPU_FRAME_BYTES, 2, GPU_DEFAULT_SPECTRA);
            Self { spectra_per_frame: pfb.spectra_per_frame.or(Some(fitting)), ..pfb }
        })
        .check(|block, _| Vec::from_iter(device::reject_mixed(&block.ports)))
        .tunable(|block| Some(cuda::tunable(&block.parameters, &block.ports)))
        .device_bytes(|block| cuda::device_bytes(&block.parameters, &block.shape, &block.ports)),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Sizes> {
        let mut rejections = self.parameter_rejections();
        rejections.extend(input::rejections(inputs));
        rejections.extend(self.baseband_rejections(&inputs[0]));
        rejections.extend(self.band_rejections(inputs));
        if rejections.is_empty() {
            rejections.extend(self.frame_rejections(inputs));
            rejections.extend(self.delay_rejections(inputs));
        }
        if rejections.is_empty() {
            Ok((self.sizes(inputs), vec![self.output(inputs)]))
        } else {
            Err(rejections)
        }
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters: pfb, ports, shape: sizes, .. } = block;
        let pols = ports.inputs.len();
        let batch = cpu::batch(sizes.step, sizes.spectra, pfb.threads);
        let history = host::capacity(sizes, batch);
        let (is_complex, spectra) = (input::is_complex(&ports.inputs[0]), sizes.spectra);
        let sample_bytes = if is_complex { size_of::<[f32; 2]>() } else { size_of::<i16>() };
        let weights = 2 * pfb.channels * pfb.taps;
        Resources {
            host_bytes: pols * (sample_bytes * history + 32 * spectra) + 4 * weights,
            holds: vec![1; pols],
            operations_per_frame: 2.0 * (pols * spectra * weights) as f64,
            ..Resources::default()
        }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }

    fn benchmarks(device: DeviceName) -> Vec<Benchmark> {
        bench::benchmarks(device)
    }
}

impl LiveKind for Pfb {
    type Value = Live;

    fn live_value(
        new: &Configured<Self>,
        PfbLive::Delays: PfbLive,
        running: &Configured<Self>,
    ) -> Result<Live, BlockError> {
        new.parameters.live_delays(&running.parameters, &new.ports)
    }

    fn live_statement(
        new: &Configured<Self>,
        PfbLive::Delays: PfbLive,
        effect: &Effect,
    ) -> Option<serde_json::Value> {
        let models = new.parameters.delays_of(&new.ports);
        Some(delay::statement(&models, new.ports.inputs[0].clock, effect))
    }

    fn has_timestamps(new: &Configured<Self>, PfbLive::Delays: PfbLive) -> bool {
        delay::have_timestamps(&new.parameters.delays_of(&new.ports))
    }
}
