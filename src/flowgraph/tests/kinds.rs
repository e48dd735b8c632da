//! Small kinds for the tests of this crate.

use fxgraph_core::block::Block;
use fxgraph_core::diagnostic::codes;
use fxgraph_core::error::BlockError;
use fxgraph_core::kind::{Chosen, Rounded};
use fxgraph_core::{
    At, Axis, Checked, Clock, Configured, Dtype, Env, FrameSizes, Implementation, Implementations,
    Kind, KindEntry, KindSpec, LiveKind, PortPool, PortType, Registry, Rejection, Resources,
    ValidityType,
};
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) fn registry() -> Registry {
    Registry::new(vec![
        KindEntry::of::<Source>(),
        KindEntry::of::<Receiver>(),
        KindEntry::of::<Filter>(),
        KindEntry::of::<Pass>(),
        KindEntry::of::<Join>(),
        KindEntry::of::<Sink>(),
        KindEntry::of::<Turner>(),
        KindEntry::of::<Writer>(),
        KindEntry::of::<Live>(),
        KindEntry::of::<Spectra>(),
    ])
}

fn port(channels: usize) -> PortType {
    PortType {
        dtype: Dtype::Ci8,
        axes: vec![Axis::new("channel", channels).from_parameter("channels"), Axis::new("pol", 2)],
        clock: Clock::new(1e9, channels as u64),
        band: None,
        validity: ValidityType::flags(vec![]),
    }
}

struct Nothing;

impl Block for Nothing {
    fn work(&mut self, _: &mut fxgraph_core::Io<'_>) -> Result<fxgraph_core::Next, BlockError> {
        Ok(fxgraph_core::Next::Finished)
    }
}

#[allow(clippy::unnecessary_wraps, reason = "constructors may fail")]
fn nothing<K: KindSpec>(_: &Configured<K>, _: &Env) -> Result<Box<dyn Block>, BlockError> {
    Ok(Box::new(Nothing))
}

/// Shape of a window.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Window {
    Hann,
    Rectangular,
}

/// Two polarisations.
#[derive(Clone, Kind)]
#[kind(name = "source", page = "../../core/kind/test_page.md", outputs("pol0", "pol1"))]
struct Source {
    /// Channels.
    #[param(default = 16)]
    channels: usize,
    /// Loudness.
    #[param(default, live)]
    level: f64,
    /// Any text.
    #[param(default)]
    #[allow(dead_code, reason = "read by the declaration alone")]
    note: String,
}

impl KindSpec for Source {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(nothing)];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        if self.channels == 0 {
            let rejection =
                Rejection::parameter("channels", "`channels` must be at least 1, got 0");
            return Err(vec![rejection.label("at least 1")]);
        }
        if self.level < 0.0 {
            let message = format!("`level` must be at least 0, got {}", self.level);
            return Err(vec![Rejection::parameter("level", message)]);
        }
        Ok(((), vec![port(self.channels), port(self.channels)]))
    }

    fn resources(_: &Configured<Self>) -> Resources {
        Resources { host_bytes: 1000, ..Resources::default() }
    }
}

impl LiveKind for Source {
    type Value = f64;

    fn live_value(
        new: &Configured<Self>,
        SourceLive::Level: SourceLive,
        _: &Configured<Self>,
    ) -> Result<f64, BlockError> {
        Ok(new.parameters.level)
    }
}

/// Binds a socket.
#[derive(Clone, Kind)]
#[kind(name = "receiver", page = "../../core/kind/test_page.md", outputs(numbered("stream")))]
struct Receiver {
    /// Its port; with 1 the output has another data type.
    port: u16,
    /// Its address.
    address: String,
}

impl KindSpec for Receiver {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(nothing)];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        let dtype = if self.port == 1 { Dtype::F32 } else { Dtype::I16 };
        Ok(((), vec![PortType { dtype, ..port(16) }]))
    }

    fn chosen(_: &Configured<Self>) -> Vec<Chosen> {
        vec![Chosen::new("threads", 2, "two packets at once")]
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let binds = vec![format!("{}:{}", block.parameters.address, block.parameters.port)];
        Resources { binds, ..Resources::default() }
    }
}

/// A source in real time.
#[derive(Clone, Kind)]
#[kind(name = "live", page = "../../core/kind/test_page.md", outputs("output"))]
struct Live {
    /// Sample rate.
    #[param(default = 1e9)]
    rate: f64,
    /// Samples of a heap.
    #[param(default = 4096)]
    heap: u64,
    /// Samples of a frame.
    #[param(default = 4096)]
    samples: u64,
}

impl KindSpec for Live {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(nothing)];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        let mut port = port(1);
        port.axes = vec![Axis::new("sample", self.samples as usize).from_parameter("samples")];
        port.clock.samples_per_frame = self.samples;
        port.clock.adc_sample_rate_hz = self.rate;
        Ok(((), vec![port]))
    }

    fn frame_sizes(&self) -> Option<FrameSizes> {
        FrameSizes::of_heaps("samples", self.rate, self.heap, 8)
    }
}

/// Collects samples to frames of spectra.
#[derive(Clone, Kind)]
#[kind(name = "spectra", page = "../../core/kind/test_page.md", inputs("input"), outputs("output"))]
struct Spectra {
    /// Spectra of a frame.
    spectra: usize,
    /// Wanted length of a frame.
    seconds: Option<f64>,
}

impl KindSpec for Spectra {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(nothing)];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let mut port = inputs[0].clone();
        port.axes = vec![Axis::new("spectrum", self.spectra), Axis::new("channel", 1024)];
        port.clock.samples_per_frame = 2048 * self.spectra as u64;
        Ok(((), vec![port]))
    }

    fn rounded(block: &Configured<Self>) -> Vec<Rounded> {
        let used = block.ports.outputs[0].clock.frames_per_second().recip();
        let rounded = |given| Rounded { parameter: "seconds", unit: "s", given, used, step: used };
        block.parameters.seconds.map(rounded).into_iter().collect()
    }
}

/// Has implementations for a GPU.
#[derive(Clone, Kind)]
#[kind(name = "turner", page = "../../core/kind/test_page.md", inputs("input"), outputs("output"))]
struct Turner {}

impl KindSpec for Turner {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(nothing),
        Implementation::<Self>::cuda("quick", "quick", nothing).device_bytes(|_| 7),
        Implementation::<Self>::cuda("quicker", "quicker", nothing)
            .check(|block, gpu| {
                let old = gpu.is_some_and(|gpu| gpu.capability < (8, 0));
                if block.ports.inputs[0].axes[0].len <= 16 && !old {
                    return Vec::new();
                }
                let at = At::InputAxis(0, "channel");
                let message = "`quicker` turns up to 16 channels";
                vec![Rejection::new(codes::IMPLEMENTATION, at, message)]
            })
            .device_bytes(|_| 70),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        Ok(((), inputs.to_vec()))
    }

    fn resources(_: &Configured<Self>) -> Resources {
        Resources { host_bytes: 500, ..Resources::default() }
    }
}

/// Takes one polarisation or two.
#[derive(Clone, Kind)]
#[kind(
    name = "filter",
    page = "../../core/kind/test_page.md",
    inputs("pol0", optional("pol1")),
    outputs("output")
)]
struct Filter {
    /// Taps.
    taps: u32,
    /// Shape of its window.
    #[allow(dead_code)]
    window: Option<Window>,
}

impl KindSpec for Filter {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(nothing)];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let mut rejections = Vec::new();
        if !self.taps.is_power_of_two() {
            let message = format!("`filter` needs a power of two of taps, not {}", self.taps);
            let near = self.taps.next_power_of_two();
            rejections.push(
                Rejection::parameter("taps", message)
                    .help(format!("{} and {near} are the nearest", near / 2)),
            );
        }
        let channels = inputs[0].axis_len("channel").unwrap_or(0);
        if !channels.is_multiple_of(8) {
            rejections.push(
                Rejection::new(
                    codes::INPUT_AXIS,
                    At::Input(0),
                    "`filter` needs a channel count divisible by 8",
                )
                .note(At::InputAxis(0, "channel"), "the channel axis comes from here")
                .help("992 and 1000 are the nearest"),
            );
        }
        if rejections.is_empty() { Ok(((), vec![inputs[0].clone()])) } else { Err(rejections) }
    }

    fn resources(_: &Configured<Self>) -> Resources {
        Resources { holds: vec![2], ..Resources::default() }
    }
}

/// Hands frames on.
#[derive(Clone, Kind)]
#[kind(name = "pass", page = "../../core/kind/test_page.md", inputs("input"), outputs("output"))]
struct Pass {}

impl KindSpec for Pass {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(nothing)];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        Ok(((), inputs.to_vec()))
    }

    fn resources(_: &Configured<Self>) -> Resources {
        Resources { pools: vec![PortPool::PassThrough(0)], ..Resources::default() }
    }
}

/// Joins streams.
#[derive(Clone, Kind)]
#[kind(
    name = "join",
    page = "../../core/kind/test_page.md",
    inputs(numbered("input")),
    outputs("output")
)]
struct Join {}

impl KindSpec for Join {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(nothing)];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        if inputs.len() == 3 {
            let message = "three streams do not join to whole frames";
            return Err(vec![Rejection::new(codes::RATE, At::Block, message)]);
        }
        match inputs.iter().position(|port| *port != inputs[0]) {
            None => Ok(((), vec![inputs[0].clone()])),
            Some(other) => Err(vec![
                Rejection::new(codes::INPUTS_DIFFER, At::Input(other), "inputs of `join` differ")
                    .label("other than the first")
                    .note(At::Input(0), "the first"),
            ]),
        }
    }

    fn resources(_: &Configured<Self>) -> Resources {
        Resources { fills: vec![3], ..Resources::default() }
    }
}

/// Ends a stream.
#[derive(Clone, Kind)]
#[kind(name = "sink", page = "../../core/kind/test_page.md", inputs("input"))]
struct Sink {}

impl KindSpec for Sink {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(nothing)];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        let bits = inputs[0].dtype.bits();
        if bits == 16 {
            return Ok(((), vec![]));
        }
        Err(vec![Rejection::new(codes::INPUT_DTYPE, At::Input(0), "`sink` takes ci8 only")])
    }
}

/// Writes a file.
#[derive(Clone, Kind)]
#[kind(name = "writer", page = "../../core/kind/test_page.md", inputs("input"))]
struct Writer {
    /// Its file.
    path: String,
}

impl KindSpec for Writer {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(nothing)];

    fn ports(&self, _: &[PortType]) -> Checked<()> {
        Ok(((), vec![]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let writes = vec![block.parameters.path.clone().into()];
        Resources { writes, ..Resources::default() }
    }
}
