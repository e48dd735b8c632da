#![doc = include_str!("README.md")]

mod bench;
pub mod conformance;
mod cpu;
mod cuda;
mod frames;
mod launch;
mod matrix;
mod program;
mod shape;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use crate::common::delay;
use crate::common::dither::Dither;
use crate::common::live::Live;
use crate::common::nyquist::MAX_NYQUIST_ZONE;
use crate::common::parallel::MAX_THREADS;
use crate::common::spectra::Shape;
use crate::f_engine::fft::Fft;
use crate::f_engine::pfb::Pfb;
use crate::f_engine::postproc::{Gains, Layout, Postproc};
use crate::f_engine::samples::device;
use crate::f_engine::samples::input::{digitised_rejections, ticks};
use fxgraph::DeviceName;
use fxgraph::examples::{Benchmark, Case};
use fxgraph::kind::Effect;
use fxgraph::{
    BlockError, Checked, Configured, Implementation, Implementations, Kind, KindSpec, LiveKind,
    PortType, Rejection, Resources,
};
use fxgraph_dsp::delay::Piece;
use fxgraph_dsp::polyphase::Window;

/// Parameters of the block `f_engine`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "f_engine",
    page = "README.md",
    examples("example.yaml", "small.yaml"),
    inputs("pol0", optional("pol1")),
    outputs("output")
)]
pub struct FEngine {
    /// Channels of the whole band, an even number with the prime factors 2, 3 and 5. A spectrum takes twice as many
    /// samples. The kernels of a GPU need a power of two.
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
    /// Frequency at the centre of the band, in Hz. By default that of the input's band, if it has one,
    /// else the centre of the Nyquist zone.
    pub centre_hz: Option<f64>,
    /// Nyquist zone of real samples whose source states no band, counted from 1, the default. Even zones have an
    /// inverted spectrum (lower sideband).
    #[param(range = 1..=MAX_NYQUIST_ZONE)]
    pub nyquist_zone: Option<u32>,
    /// Bits of each real and imaginary part, 8 or 4. The range of values is -127 to 127 with 8 bits and
    /// -7 to 7 with 4 bits.
    #[param(default = 8)]
    pub bits: u8,
    /// Order of the output's axes: `standard` is `[heap][channel][spectrum][pol]`, `k_major` is
    /// `[heap][channel][pol][spectrum]`.
    #[param(default)]
    pub layout: Layout,
    /// Spectra per heap; those of one channel are adjacent.
    #[param(default = 256)]
    pub spectra_per_heap: usize,
    /// Heaps per output frame.
    #[param(default = 1)]
    pub heaps_per_frame: usize,
    /// Factor before quantisation, on the sky: a number or {re, im}; or a list with one entry for each
    /// polarisation, which is a number, {re, im}, or a list of them for each channel.
    #[param(default, live)]
    pub gains: Gains,
    /// Noise added before rounding.
    #[param(default)]
    pub dither: Dither,
    /// Seed of the dither. Set a different one for each antenna.
    #[param(default, live)]
    pub dither_seed: u64,
    /// CPU threads that share the spectra, 0 for all cores. By default 1, because a flowgraph of many
    /// blocks already uses the cores; set more if one antenna is too much for one core.
    #[param(default = 1, range = 0..=MAX_THREADS)]
    pub threads: usize,
}

impl FEngine {
    /// The `pfb` that this block includes, with frames of `spectra_per_frame` spectra.
    fn pfb(&self, spectra_per_frame: usize) -> Pfb {
        Pfb {
            channels: self.channels,
            taps: self.taps,
            window: self.window,
            w_cutoff: self.w_cutoff,
            unzip: 1,
            spectra_per_frame: Some(spectra_per_frame),
            delays: self.delays.clone(),
            max_delay_seconds: self.max_delay_seconds,
            max_delay_rate: self.max_delay_rate,
            max_fringe_rate_radians_per_second: self.max_fringe_rate_radians_per_second,
            centre_hz: self.centre_hz,
            nyquist_zone: self.nyquist_zone,
            threads: self.threads,
        }
    }

    /// The `postproc` that this block includes.
    fn postproc(&self) -> Postproc {
        Postproc {
            bits: self.bits,
            layout: self.layout,
            spectra_per_heap: self.spectra_per_heap,
            heaps_per_frame: self.heaps_per_frame,
            channels: None,
            gains: self.gains.clone(),
            dither: self.dither,
            dither_seed: self.dither_seed,
            threads: self.threads,
        }
    }

    /// Spectra of an output frame.
    fn spectra(&self) -> usize {
        self.heaps_per_frame * self.spectra_per_heap
    }

    /// Shape of the spectra of an output frame.
    fn shape(&self, inputs: &[PortType]) -> Shape {
        let pols = inputs.len();
        Shape {
            pols,
            spectra: self.spectra(),
            unzip: 1,
            channels: self.channels,
            pitch: self.channels,
            step: 2 * self.channels * ticks(&inputs[0]),
            adc_sample_rate_hz: inputs[0].clock.adc_sample_rate_hz,
            sideband: self.pfb(1).sideband(&inputs[0]),
        }
    }
}

/// Diagnostics of `pfb` or `postproc` with the name replaced by `f_engine`.
fn in_own_name(rejections: Vec<Rejection>) -> Vec<Rejection> {
    let rename =
        |text: String| text.replace("`pfb`", "`f_engine`").replace("`postproc`", "`f_engine`");
    let rejections = rejections.into_iter();
    rejections
        .map(|rejection| Rejection {
            message: rename(rejection.message),
            help: rejection.help.map(rename),
            ..rejection
        })
        .collect()
}

impl KindSpec for FEngine {
    /// Shape of the spectra of an output frame.
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            Ok(Box::new(cpu::Cpu::new(&block.parameters, &block.ports, env)?))
        }),
        Implementation::<Self>::cuda(
            "two_pass",
            "two kernels, with intermediate values of 24 bits",
            |block, env| Ok(Box::new(cuda::TwoPass::block(&block.parameters, &block.ports, env)?)),
        )
        .check(|block, gpu| {
            let mut rejections = Vec::from_iter(device::reject_mixed(&block.ports));
            let shape = shape::KernelShape::new(&block.parameters, &block.ports);
            rejections.extend(shape.rejections(gpu));
            rejections
        })
        .device_bytes(|block| cuda::device_bytes(&block.parameters, &block.ports)),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        let inputs_of_adc = inputs.iter().enumerate();
        let rejections: Vec<_> = inputs_of_adc
            .flat_map(|(i, input)| digitised_rejections(Self::NAME, i, input))
            .collect();
        if !rejections.is_empty() {
            return Err(rejections);
        }
        // The number of spectra per frame between the three blocks does not matter to the checks.
        let (_, filtered) = self.pfb(1).ports(inputs).map_err(in_own_name)?;
        let fft = Fft { threads: self.threads };
        let (_, spectra) = fft.ports(&filtered).map_err(in_own_name)?;
        let (_, outputs) = self.postproc().ports(&spectra).map_err(in_own_name)?;
        Ok((self.shape(inputs), outputs))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Shape { pols, spectra, channels, .. } = block.shape;
        let rows = (pols * spectra) as f64;
        let points = channels as f64;
        let each = points * (4.0 * block.parameters.taps as f64 + 5.0 * points.log2() + 24.0);
        Resources {
            host_bytes: cpu::host_bytes(&block.parameters, &block.ports),
            holds: vec![1; pols],
            operations_per_frame: rows * each,
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

impl LiveKind for FEngine {
    type Value = Live;

    fn live_value(
        new: &Configured<Self>,
        parameter: FEngineLive,
        running: &Configured<Self>,
    ) -> Result<Live, BlockError> {
        let (parameters, ports) = (&new.parameters, &new.ports);
        Ok(match parameter {
            FEngineLive::Delays => {
                parameters.pfb(1).live_delays(&running.parameters.pfb(1), ports)?
            }
            FEngineLive::Gains => Live::Gains(parameters.gains.of_shape(&new.shape)),
            FEngineLive::DitherSeed => Live::DitherSeed(parameters.dither_seed),
        })
    }

    fn live_statement(
        new: &Configured<Self>,
        parameter: FEngineLive,
        effect: &Effect,
    ) -> Option<serde_json::Value> {
        if parameter != FEngineLive::Delays {
            return None;
        }
        let models = new.parameters.pfb(1).delays_of(&new.ports);
        Some(delay::statement(&models, new.ports.inputs[0].clock, effect))
    }

    fn has_timestamps(new: &Configured<Self>, parameter: FEngineLive) -> bool {
        let models = new.parameters.pfb(1).delays_of(&new.ports);
        parameter == FEngineLive::Delays && delay::have_timestamps(&models)
    }
}
