#![doc = include_str!("README.md")]

pub mod conformance;
mod cpu;
mod cuda;
mod matching;

use crate::common::antenna_numbers::default_numbers;
use crate::common::flagged_antennas::{self, Flagging};
use crate::common::units::Units;
use fxgraph::DeviceName;
use fxgraph::diagnostic::codes;
use fxgraph::examples::Case;
use fxgraph::{
    At, Axis, BlockError, Checked, Configured, Counters, Dtype, Implementation, Implementations,
    Kind, KindSpec, LiveKind, PortType, Rejection, Resources, ValidityType,
};
use matching::Heaps;

/// Largest number of frames held per antenna.
const MAX_WINDOW: usize = 1024;
/// Largest number of an antenna.
const MAX_NUMBER: u32 = 1_000_000;

/// Parameters of `antenna_stack`.
#[derive(Clone, Debug, Default, Kind)]
#[kind(
    name = "antenna_stack",
    page = "README.md",
    examples("example.yaml"),
    inputs(numbered("antenna")),
    outputs("output")
)]
pub struct AntennaStack {
    /// First selected channel, an index in the inputs' channel axis.
    #[param(default)]
    pub first_channel: usize,
    /// Number of selected channels; by default all from `first_channel` on.
    pub channels: Option<usize>,
    /// Frames that an antenna may be ahead before a frame is output without the missing antennas. By
    /// default there is no such limit, and only `wait_seconds` applies.
    #[param(range = 1..=MAX_WINDOW)]
    pub window: Option<usize>,
    /// Time to wait for missing antennas after the last frame of any antenna; then the array continues
    /// without them until they send again. By default the block waits for every antenna; use 2 for a
    /// live array.
    #[param(range = 0..=1e6, unit = "s")]
    pub wait_seconds: Option<f64>,
    /// Number of each antenna, in the order of the inputs. Baselines get them as labels, reports name the antennas by them, and
    /// `uvh5_sink` writes them. By default the antennas have the numbers of their inputs.
    #[param(default)]
    pub antenna_numbers: Vec<u32>,
    /// Numbers of flagged antennas. Their heaps are output as missing ones: zeros with validity 0.
    #[param(default, live)]
    pub flagged_antennas: Vec<u32>,
}

impl AntennaStack {
    /// Number of selected channels of `all`.
    fn channels_of(&self, all: usize) -> usize {
        self.channels.unwrap_or_else(|| all.saturating_sub(self.first_channel))
    }

    /// Number of each antenna of `inputs`.
    fn numbers(&self, inputs: usize) -> Vec<u32> {
        if self.antenna_numbers.is_empty() {
            return default_numbers(inputs);
        }
        self.antenna_numbers.clone()
    }

    /// Whether each antenna is flagged.
    fn flagged(&self, inputs: usize) -> Vec<bool> {
        flagged_antennas::mask(&self.flagged_antennas, &self.numbers(inputs))
    }

    fn check_numbers(&self, inputs: usize, rejections: &mut Vec<Rejection>) {
        let numbers = &self.antenna_numbers;
        let mut reject =
            |message| rejections.push(Rejection::parameter("antenna_numbers", message));
        if !numbers.is_empty() && numbers.len() != inputs {
            let len = numbers.len();
            reject(format!(
                "`antenna_numbers` must have {inputs} numbers, one for each input, got {len}"
            ));
        }
        if let Some(number) = numbers.iter().find(|number| **number > MAX_NUMBER) {
            reject(format!("`antenna_numbers` must be at most {MAX_NUMBER}, got {number}"));
        }
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        if let Some([twice, _]) = sorted.array_windows().find(|[a, b]| a == b) {
            reject(format!("`antenna_numbers` must differ, got {twice} twice"));
        }
    }

    fn check_channels(&self, all: usize, rejections: &mut Vec<Rejection>) {
        let reject = |parameter, message: String| {
            Rejection::parameter(parameter, message)
                .note(At::InputAxis(0, "channel"), format!("the {all} channels are set here"))
        };
        if self.first_channel >= all {
            let last = all.saturating_sub(1);
            let message =
                format!("`first_channel` must be at most {last}, got {}", self.first_channel);
            let help = "omit it to start with channel 0";
            rejections.push(reject("first_channel", message).help(help));
            return;
        }
        let most = all - self.first_channel;
        let channels = self.channels_of(all);
        if channels == 0 || channels > most {
            let message = format!(
                "`channels` must be between 1 and {most} from channel {} on, got {channels}",
                self.first_channel
            );
            rejections.push(reject("channels", message).help("omit it to select all of them"));
        }
    }
}

fn check_first(input: &PortType, rejections: &mut Vec<Rejection>) {
    let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
    let known = [["heap", "channel", "spectrum", "pol"], ["heap", "channel", "pol", "spectrum"]];
    if known.iter().any(|known| names == known) {
        rejections.extend(
            Units::of_port(0, input, &[("heap", input.axes[0].len)])
                .err()
                .map(|rejection| *rejection),
        );
    } else {
        rejections.push(
            Rejection::new(codes::INPUT_AXIS, At::Input(0), "the input must be F-engine heaps")
                .label(format!("this is {input}"))
                .help("connect a `postproc`: [heap][channel][spectrum][pol] or [heap][channel][pol][spectrum]"),
        );
    }
    if !matches!(input.dtype, Dtype::Ci8 | Dtype::Ci4 | Dtype::Cf16) {
        rejections.push(
            Rejection::new(
                codes::INPUT_DTYPE,
                At::Input(0),
                format!("the input must be ci8, ci4 or cf16, got {}", input.dtype),
            )
            .help(
                "connect a `postproc` (ci8 or ci4), or convert its output to cf16 with `convert`",
            ),
        );
    }
}

/// Flags of the antennas of a checked block.
fn flagging(block: &Configured<AntennaStack>, counters: &Counters) -> Flagging {
    let Configured { parameters, ports, shape, .. } = block;
    let mask = parameters.flagged(ports.inputs.len());
    Flagging::new(mask, shape.count, ports.outputs[0].clock.samples_per_frame, counters)
}

impl KindSpec for AntennaStack {
    type Shape = Heaps;
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| {
            let Configured { parameters, ports, shape, .. } = block;
            let flagging = flagging(block, &env.counters);
            Ok(Box::new(cpu::Stack::new(parameters, *shape, ports, flagging, &env.counters)))
        }),
        Implementation::<Self>::cuda(
            "cuda",
            "copies frames in device memory, at its bandwidth",
            |block, env| {
                let Configured { parameters, ports, shape, .. } = block;
                let flagging = flagging(block, &env.counters);
                Ok(Box::new(cuda::Cuda::new(parameters, *shape, ports, flagging, env)?))
            },
        )
        .tunable(|block| Some(cuda::tunable(&block.shape)))
        .device_bytes(|block| cuda::device_bytes(&block.ports)),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<Heaps> {
        let mut rejections = Vec::new();
        let first = &inputs[0];
        check_first(first, &mut rejections);
        for (n, input) in inputs.iter().enumerate().skip(1) {
            // The filters of one antenna may be swapped before those of the others.
            let mut like = input.clone();
            like.clock.filter_delay_samples = first.clock.filter_delay_samples;
            if like != *first {
                let message = format!("antenna {n} has a different stream type from antenna 0");
                rejections.push(
                    Rejection::new(codes::INPUTS_DIFFER, At::Input(n), message)
                        .label(format!("this is {input}"))
                        .note(At::Input(0), format!("this is {first}"))
                        .help("use the same channels, rate, layout and band for all antennas"),
                );
            }
        }
        self.check_numbers(inputs.len(), &mut rejections);
        rejections.extend(flagged_antennas::rejection(
            &self.flagged_antennas,
            &self.numbers(inputs.len()),
        ));
        if let Some(all) = first.axis_len("channel") {
            self.check_channels(all, &mut rejections);
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let heap = first.axes[0].clone();
        let labels = self.antenna_numbers.iter().map(u32::to_string).collect();
        let antenna = Axis { labels, ..Axis::new("antenna", inputs.len()) };
        let mut channel = first.axes[1].clone();
        channel.len = self.channels_of(channel.len);
        if self.channels.is_some() {
            channel = channel.from_parameter("channels");
        }
        let mut output = first.clone();
        output.axes[1] = channel;
        output.axes.insert(1, antenna.clone());
        let units = match first.validity.axes.len() {
            1 => Units::Heap,
            _ => Units::Channel,
        };
        output.validity = ValidityType::flags(units.axes(&output, vec![heap, antenna]));
        if let Some(band) = &mut output.band {
            band.first_channel += self.first_channel;
        }
        Ok((Heaps::new(self, first, &output), vec![output]))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let window = block.parameters.window.unwrap_or(1);
        Resources { holds: vec![window; block.ports.inputs.len()], ..Resources::default() }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }
}

impl LiveKind for AntennaStack {
    type Value = Vec<bool>;

    fn live_value(
        new: &Configured<Self>,
        AntennaStackLive::FlaggedAntennas: AntennaStackLive,
        _: &Configured<Self>,
    ) -> Result<Vec<bool>, BlockError> {
        Ok(new.parameters.flagged(new.ports.inputs.len()))
    }
}

#[cfg(test)]
mod tests;
