//! Small kinds for the tests of this module.

use crate::block::{Block, BlockError};
use crate::diagnostic::codes;
use crate::retune::LiveValue;
use crate::{
    At, Axis, CPU, Clock, Dtype, Env, ImplementationInfo, KindEntry, LegacyKind, PortNames,
    PortPool, PortType, Ports, Refusal, Registry, Resources, ValidityType,
};
use schemars::JsonSchema;
use serde::Deserialize;

pub(super) fn registry() -> Registry {
    Registry::new(vec![
        KindEntry::of_legacy::<Source>(),
        KindEntry::of_legacy::<Receiver>(),
        KindEntry::of_legacy::<Filter>(),
        KindEntry::of_legacy::<Pass>(),
        KindEntry::of_legacy::<Join>(),
        KindEntry::of_legacy::<Sink>(),
        KindEntry::of_legacy::<Turner>(),
        KindEntry::of_legacy::<Writer>(),
    ])
}

fn port(channels: usize) -> PortType {
    PortType {
        dtype: Dtype::Ci8,
        axes: vec![Axis::new("channel", channels).from_parameter("channels"), Axis::new("pol", 2)],
        clock: Clock {
            adc_sample_rate_hz: 1e9,
            sync_time_seconds: 0.0,
            samples_per_frame: channels as u64,
        },
        band: None,
        validity: ValidityType::flags(vec![]),
    }
}

struct Nothing;

#[crate::async_trait]
impl Block for Nothing {
    async fn work(&mut self, _: &mut crate::Io<'_>) -> Result<crate::Next, BlockError> {
        Ok(crate::Next::Finished)
    }
}

macro_rules! kind {
    ($type:ident $name:literal $inputs:expr, $outputs:expr) => {
        const NAME: &'static str = $name;
        const DOC: &'static str = concat!("# ", $name);
        const INPUTS: PortNames = $inputs;
        const OUTPUTS: PortNames = $outputs;

        fn build(&self, _: &Ports, _: &Env) -> Result<Box<dyn Block>, BlockError> {
            Ok(Box::new(Nothing))
        }
    };
}

/// Shape of a window.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Window {
    Hann,
    Rectangular,
}

fn sixteen() -> usize {
    16
}

/// Two polarisations.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Source {
    /// Channels.
    #[serde(default = "sixteen")]
    channels: usize,
    /// Loudness.
    #[serde(default)]
    level: f64,
}

impl LegacyKind for Source {
    kind!(Source "source" PortNames::Fixed(&[]), PortNames::Fixed(&["pol0", "pol1"]));
    const LIVE: &'static [&'static str] = &["level"];

    fn live_value(&self, _: &str, _: &Self, _: &Ports) -> Result<LiveValue, BlockError> {
        Ok(Box::new(self.level))
    }

    fn ports(&self, _: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        if self.channels == 0 {
            let refusal = Refusal::parameter("channels", "no channels at all");
            return Err(vec![refusal.label("at least 1")]);
        }
        if self.level < 0.0 {
            let message = "there is nothing below silence";
            return Err(vec![Refusal::parameter("level", message)]);
        }
        Ok(vec![port(self.channels), port(self.channels)])
    }

    fn resources(&self, _: &Ports) -> Resources {
        Resources { host_bytes: 1000, ..Resources::default() }
    }
}

/// Binds a socket.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Receiver {
    port: u16,
    address: String,
}

impl LegacyKind for Receiver {
    kind!(Receiver "receiver" PortNames::Fixed(&[]), PortNames::Numbered("stream"));

    fn ports(&self, _: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let dtype = if self.port == 1 { Dtype::F32 } else { Dtype::I16 };
        Ok(vec![PortType { dtype, ..port(16) }])
    }

    fn resources(&self, _: &Ports) -> Resources {
        let binds = vec![format!("{}:{}", self.address, self.port)];
        Resources { binds, ..Resources::default() }
    }
}

/// Has forms for a GPU.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Turner {}

impl LegacyKind for Turner {
    kind!(Turner "turner" PortNames::Fixed(&["input"]), PortNames::Fixed(&["output"]));
    const IMPLEMENTATIONS: &'static [ImplementationInfo] = &[
        CPU,
        ImplementationInfo::cuda("quick", "quick"),
        ImplementationInfo::cuda("quicker", "quicker"),
    ];

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Ok(inputs.to_vec())
    }

    fn resources(&self, _: &Ports) -> Resources {
        Resources { host_bytes: 500, ..Resources::default() }
    }

    fn check(
        &self,
        ports: &Ports,
        implementation: &str,
        gpu: Option<&crate::cuda::Properties>,
    ) -> Vec<Refusal> {
        let old = gpu.is_some_and(|gpu| gpu.capability < (8, 0));
        if implementation != "quicker" || (ports.inputs[0].axes[0].len <= 16 && !old) {
            return Vec::new();
        }
        let at = At::InputAxis(0, "channel");
        let message = "`quicker` turns up to 16 channels";
        vec![Refusal::new(codes::IMPLEMENTATION, at, message)]
    }

    fn device_bytes(&self, _: &Ports, implementation: &str) -> usize {
        if implementation == "quicker" { 70 } else { 7 }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Filter {
    taps: u32,
    #[allow(dead_code)]
    window: Option<Window>,
}

impl LegacyKind for Filter {
    kind!(Filter "filter"
        PortNames::Optional { names: &["pol0", "pol1"], required: 1 },
        PortNames::Fixed(&["output"]));

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let mut refusals = Vec::new();
        if !self.taps.is_power_of_two() {
            let message = format!("`filter` needs a power of two of taps, not {}", self.taps);
            let near = self.taps.next_power_of_two();
            refusals.push(
                Refusal::parameter("taps", message)
                    .help(format!("{} and {near} are the nearest", near / 2)),
            );
        }
        let channels = inputs[0].axis_len("channel").unwrap_or(0);
        if !channels.is_multiple_of(8) {
            refusals.push(
                Refusal::new(
                    codes::INPUT_AXIS,
                    At::Input(0),
                    "`filter` needs a channel count divisible by 8",
                )
                .note(At::InputAxis(0, "channel"), "the channel axis comes from here")
                .help("992 and 1000 are the nearest"),
            );
        }
        if refusals.is_empty() { Ok(vec![inputs[0].clone()]) } else { Err(refusals) }
    }

    fn resources(&self, _: &Ports) -> Resources {
        Resources { holds: vec![2], ..Resources::default() }
    }
}

/// Hands frames on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Pass {}

impl LegacyKind for Pass {
    kind!(Pass "pass" PortNames::Fixed(&["input"]), PortNames::Fixed(&["output"]));

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Ok(inputs.to_vec())
    }

    fn resources(&self, _: &Ports) -> Resources {
        Resources { pools: vec![PortPool::PassThrough(0)], ..Resources::default() }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Join {}

impl LegacyKind for Join {
    kind!(Join "join" PortNames::Numbered("input"), PortNames::Fixed(&["output"]));

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        if inputs.len() == 3 {
            let message = "three streams do not join to whole frames";
            return Err(vec![Refusal::new(codes::RATE, At::Block, message)]);
        }
        match inputs.iter().position(|port| *port != inputs[0]) {
            None => Ok(vec![inputs[0].clone()]),
            Some(other) => Err(vec![
                Refusal::new(codes::INPUTS_DIFFER, At::Input(other), "inputs of `join` differ")
                    .label("other than the first")
                    .note(At::Input(0), "the first"),
            ]),
        }
    }

    fn resources(&self, _: &Ports) -> Resources {
        Resources { fills: vec![3], ..Resources::default() }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sink {}

impl LegacyKind for Sink {
    kind!(Sink "sink" PortNames::Fixed(&["input"]), PortNames::Fixed(&[]));

    fn ports(&self, inputs: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        let bits = inputs[0].dtype.bits();
        if bits == 16 {
            return Ok(vec![]);
        }
        Err(vec![Refusal::new(codes::INPUT_DTYPE, At::Input(0), "`sink` takes ci8 only")])
    }

    fn resources(&self, _: &Ports) -> Resources {
        Resources::default()
    }
}

/// Writes a file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Writer {
    path: String,
}

impl LegacyKind for Writer {
    kind!(Writer "writer" PortNames::Fixed(&["input"]), PortNames::Fixed(&[]));

    fn ports(&self, _: &[PortType]) -> Result<Vec<PortType>, Vec<Refusal>> {
        Ok(vec![])
    }

    fn resources(&self, _: &Ports) -> Resources {
        Resources { writes: vec![self.path.clone().into()], ..Resources::default() }
    }
}
