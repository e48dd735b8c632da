#![doc = include_str!("README.md")]

mod cpu;
pub mod heaps;
mod means;
pub mod partial;
mod share;
mod threads;

use crate::common::axes;
use crate::common::net::address::{self, Address};
use crate::io::pace::reject_catch_up;
use crate::io::spead::descriptor::Elements;
use crate::io::spead::packet::VALUE_BITS;
use fxgraph::diagnostic::codes;
use fxgraph::kind::Chosen;
use fxgraph::{
    At, BlockError, Checked, Configured, Dtype, Implementation, Implementations, Kind, KindSpec,
    LiveKind, PortType, Rejection, Resources,
};
use heaps::{Heaps, Stream};
use means::Means;
use partial::{Partial, PartialDumps};
use schemars::JsonSchema;
use serde::Deserialize;
use share::{Share, Terms};

/// Type of the stream that a sink sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StreamName {
    /// Packed samples of one polarisation.
    Digitiser,
    /// Channelised voltages of one antenna.
    FEngine,
    /// Visibilities.
    XEngine,
    /// Beams.
    BEngine,
}

/// Parameters of `spead_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "spead_sink",
    page = "README.md",
    examples("example.yaml", "digitiser.yaml", "f_engine.yaml", "b_engine.yaml"),
    inputs("input")
)]
pub struct SpeadSink {
    /// Type of the stream: `digitiser`, `f_engine`, `x_engine` or `b_engine`.
    pub stream: StreamName,
    /// Destinations: `a.b.c.d:port`, `[ipv6]:port`, `name:port` or, for N + 1 consecutive groups, `a.b.c.d+N:port` or
    /// `[ipv6]+N:port`; all IPv4 or all IPv6. Each group gets an equal block of channels. `b_engine`: one entry per beam.
    pub destinations: Vec<String>,
    /// Network interface, by name or address, to send from.
    pub interface: Option<String>,
    /// Time to live (hop limit) of multicast packets: number of routers that they may pass.
    #[param(default = 4, range = 0..=255)]
    pub ttl: u32,
    /// Largest payload of a packet, in bytes.
    #[param(default = 8192)]
    pub packet_payload_bytes: usize,
    /// Rate of sending, as a multiple of the stream's rate; 0 sends as fast as possible.
    #[param(default = 1.1)]
    pub rate: f64,
    /// Rate at which a sink behind schedule catches up, as a multiple of the stream's rate; at least `rate`. By default 1.4,
    /// or less if `interface` has a slower link.
    pub catch_up: Option<f64>,
    /// Whether the sink sends; live. While it is false, frames are consumed at the same pace and dropped.
    #[param(default = true, live)]
    pub enabled: bool,
    /// Sending threads, which send the heaps of each frame in turn; at most the number of heaps of a frame. By default one
    /// for each 2.5 GB/s of the stream, up to half of the cores and so that each destination gets its heaps in order.
    #[param(range = 1..=8)]
    pub threads: Option<usize>,
    /// Time between descriptors.
    #[param(default = 5.0)]
    pub descriptor_seconds: f64,
    /// Whether stop heaps are sent at the end of the stream.
    #[param(default = true)]
    pub stop_heaps: bool,
    /// `digitiser`: identifier of the digitiser, with the polarisation in its least significant bit.
    #[param(default)]
    pub digitiser_id: u64,
    /// `digitiser`: samples in a heap.
    #[param(default = 4096)]
    pub samples_per_heap: usize,
    /// `f_engine`: number of this F-engine.
    #[param(default)]
    pub feng_id: u64,
    /// `f_engine`: number of F-engines that send to the same groups.
    #[param(default = 1)]
    pub n_antennas: u64,
    /// `x_engine` and `b_engine`: treatment of partial dumps. `flag` (default): a baseline with a missing
    /// heap is (-2^31, 1), and a dump without a complete baseline is not sent; `send`: sums unchanged;
    /// `scale`: sums times (heaps of a dump / heaps that contributed), and flagged as with `flag` below
    /// `minimum_fraction`. Beams always carry the number of antennas (`beam_ants`), so `flag` and `send` do
    /// not change their values; `scale` multiplies by (all antennas / antennas that contributed).
    pub partial_dumps: Option<PartialDumps>,
    /// `partial_dumps: scale`: smallest fraction of the heaps (`b_engine`: of the antennas) that is scaled,
    /// above 0 and up to 1. By default 0.5.
    pub minimum_fraction: Option<f64>,
}

fn parameter(name: &'static str, message: impl Into<String>, help: impl Into<String>) -> Rejection {
    Rejection::parameter(name, message).help(help)
}

impl SpeadSink {
    fn check(&self) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        if self.destinations.is_empty() {
            let help = "give addresses such as [239.10.0.0+7:7148]";
            rejections.push(parameter("destinations", "`destinations` must not be empty", help));
        }
        let addresses = self.destinations.iter().map(|text| address::parse(text));
        let addresses: Vec<_> = addresses.collect();
        for error in addresses.iter().filter_map(|a| a.as_ref().err()) {
            let help = "give addresses such as 239.10.0.0+7:7148, which is 8 groups";
            rejections.push(parameter("destinations", error.to_string(), help));
        }
        let valid: Vec<Address> = addresses.iter().filter_map(|a| a.clone().ok()).collect();
        rejections.extend(address::reject_mixed(&valid, "destinations"));
        if self.interface.is_none() {
            rejections.extend(address::reject_unscoped(&valid, "destinations", "interface"));
        }
        let mut groups = addresses.iter().filter_map(|a| a.as_ref().ok().map(Address::count));
        let first = groups.next();
        if self.stream == StreamName::BEngine && groups.any(|n| Some(n) != first) {
            rejections.push(parameter(
                "destinations",
                "all beams must have the same number of groups",
                "give one entry per beam with equal numbers of groups, such as [239.1.0.0+3:7148, \
                 239.1.0.4+3:7148]",
            ));
        }
        let bytes = self.packet_payload_bytes;
        if !(64..=65_000).contains(&bytes) {
            let message =
                format!("`packet_payload_bytes` must be between 64 and 65000, got {bytes}");
            let help = format!("the nearest valid value is {}", bytes.clamp(64, 65_000));
            rejections.push(parameter("packet_payload_bytes", message, help));
        }
        if !(self.rate == 0.0 || (0.1..=1000.0).contains(&self.rate)) {
            let message = format!("`rate` must be 0 or between 0.1 and 1000, got {}", self.rate);
            let help = "1.1 is the default; 0 sends as fast as possible";
            rejections.push(parameter("rate", message, help));
        }
        rejections.extend(self.catch_up.and_then(reject_catch_up));
        if !(0.01..=1e6).contains(&self.descriptor_seconds) {
            let message = format!(
                "`descriptor_seconds` must be between 0.01 and 1e6, got {}",
                self.descriptor_seconds
            );
            rejections.push(parameter("descriptor_seconds", message, "5 is the default"));
        }
        if self.digitiser_id >= 1 << 48 {
            let message = format!("`digitiser_id` must be below 2^48, got {}", self.digitiser_id);
            rejections.push(parameter("digitiser_id", message, "give an identifier such as 4"));
        }
        if self.n_antennas == 0 || self.n_antennas > 1 << 20 {
            let message =
                format!("`n_antennas` must be between 1 and {}, got {}", 1 << 20, self.n_antennas);
            rejections.push(parameter("n_antennas", message, "give the number of F-engines"));
        } else if self.stream == StreamName::FEngine && self.feng_id >= self.n_antennas {
            let message = format!(
                "`feng_id` must be less than `n_antennas` ({}), got {}",
                self.n_antennas, self.feng_id
            );
            let help = format!(
                "give at most {}, or raise `n_antennas` to the number of F-engines",
                self.n_antennas - 1
            );
            rejections.push(parameter("feng_id", message, help));
        }
        if self.partial_dumps.is_some()
            && !matches!(self.stream, StreamName::XEngine | StreamName::BEngine)
        {
            let message = "only `x_engine` and `b_engine` streams have partial dumps";
            rejections.push(parameter("partial_dumps", message, "leave `partial_dumps` out"));
        }
        if let Some(fraction) = self.minimum_fraction {
            if self.partial_dumps != Some(PartialDumps::Scale) {
                let message = "`minimum_fraction` requires `partial_dumps: scale`";
                let help = "leave `minimum_fraction` out, or set `partial_dumps: scale`";
                rejections.push(parameter("minimum_fraction", message, help));
            } else if !(fraction > 0.0 && fraction <= 1.0) {
                let message =
                    format!("`minimum_fraction` must be above 0 and at most 1, got {fraction}");
                rejections.push(parameter("minimum_fraction", message, "0.5 is the default"));
            }
        }
        rejections
    }

    fn heaps(&self, input: &PortType) -> Result<Heaps, Vec<Rejection>> {
        let mut rejections = self.check();
        let wanted: (&[&str], &[Dtype]) = match self.stream {
            StreamName::Digitiser => (&["sample"], &[]),
            StreamName::FEngine => {
                (&["heap", "channel", "spectrum", "pol"], &[Dtype::Ci8, Dtype::Ci4])
            }
            StreamName::XEngine => (&["channel", "baseline", "product"], &[Dtype::Ci32]),
            StreamName::BEngine => (&["heap", "beam", "channel", "spectrum"], &[Dtype::Ci8]),
        };
        rejections.extend(self.reject_dtype(input, wanted.1));
        rejections.extend(self.reject_axes(input, wanted.0));
        if !rejections.is_empty() {
            return Err(rejections);
        }
        if let Some(rejection) = self.reject_units(input) {
            return Err(vec![rejection]);
        }
        if let Some(band) = input.band.filter(|band| band.channels as u64 >> VALUE_BITS != 0) {
            let message = format!(
                "the band must have fewer than 2^{VALUE_BITS} channels, got {}",
                band.channels
            );
            return Err(vec![
                Rejection::new(codes::INPUT_AXIS, At::InputAxis(0, "channel"), message)
                    .help("check the band of the block upstream"),
            ]);
        }
        let beams = input.axis_len("beam").unwrap_or(1);
        let addresses = address::count(&self.destinations);
        if self.stream == StreamName::BEngine && beams != self.destinations.len() {
            let message = format!(
                "`destinations` must have one entry per beam ({beams}), got {}",
                self.destinations.len()
            );
            return Err(vec![
                Rejection::parameter("destinations", message)
                    .note(At::InputAxis(0, "beam"), "the beam axis comes from here")
                    .help("give one destination per beam"),
            ]);
        }
        let groups = addresses / beams;
        if self.stream == StreamName::Digitiser {
            return self.digitiser_heaps(input, groups);
        }
        let channels = input.axis_len("channel").unwrap_or(0);
        if channels == 0 || !channels.is_multiple_of(groups) {
            let message =
                format!("{channels} channels cannot be divided equally among {groups} groups");
            let nearest = (1..=groups).rev().find(|n| channels.is_multiple_of(*n)).unwrap_or(1);
            return Err(vec![
                Rejection::new(codes::INPUT_AXIS, At::Parameter("destinations"), message)
                    .note(At::InputAxis(0, "channel"), "the channel axis comes from here")
                    .help(format!("use {nearest} groups, the largest number below that fits")),
            ]);
        }
        let times = input.axis_len("heap").unwrap_or(1).max(1);
        let channels_per_substream = channels / groups;
        let stream = match self.stream {
            StreamName::FEngine => Stream::FEngine { feng_id: self.feng_id },
            StreamName::XEngine => Stream::XEngine,
            _ => Stream::BEngine { beams },
        };
        let after_channel = input.axes.iter().skip_while(|axis| axis.name != "channel").skip(1);
        let mut shape = vec![channels_per_substream];
        match self.stream {
            // Baselines and products are one axis on the wire.
            StreamName::XEngine => shape.push(after_channel.map(|axis| axis.len).product()),
            _ => shape.extend(after_channel.map(|axis| axis.len)),
        }
        shape.push(2);
        Ok(Heaps {
            stream,
            times,
            groups,
            heap_bytes: input.frame_bytes() / (times * beams * groups),
            samples_per_heap: input.clock.samples_per_frame / times as u64,
            first_channel: input.band.map_or(0, |band| band.first_channel),
            channels_per_substream,
            shape,
            counts_per_channel: self.counts_per_channel(input),
            elements: match input.dtype {
                Dtype::Ci4 => Elements::Packed(4),
                Dtype::Ci32 => Elements::Numpy("<i4"),
                _ => Elements::Numpy("|i1"),
            },
            partial: self.partial(input),
        })
    }

    /// Diagnostic for units of validity that the stream cannot carry.
    fn reject_units(&self, input: &PortType) -> Option<Rejection> {
        if self.counts_per_channel(input) > 0 {
            let message = "`partial_dumps` must be set, because the input counts the heaps of each visibility";
            let help = "set `partial_dumps: scale`; `flag` flags every visibility that lacks a single heap, also one \
                        flagged as interference";
            let is_chosen = self.stream == StreamName::BEngine || self.partial_dumps.is_some();
            return (!is_chosen).then(|| parameter("partial_dumps", message, help));
        }
        let unit = match self.stream {
            // Validity of samples may have units of any length.
            StreamName::Digitiser => return None,
            StreamName::XEngine => "baseline",
            StreamName::FEngine | StreamName::BEngine => "heap",
        };
        let wanted = (unit, input.axis_len(unit).unwrap_or(0));
        let rejection = axes::reject_validity(0, input, &[wanted])?;
        let has_channels = input.validity.axes.iter().any(|axis| axis.name == "channel");
        Some(match self.stream {
            StreamName::FEngine if has_channels => rejection.help(
                "packets have no flags of channels: send the output of the F-engine, and insert \
                 `spectral_kurtosis` after the `spead_source` of the X-engine",
            ),
            _ => rejection,
        })
    }

    /// Counts of the validity for each channel of a heap: of its visibilities, 1 for beams; 0 if the validity has no
    /// channels.
    fn counts_per_channel(&self, input: &PortType) -> usize {
        let axes = &input.axes;
        match self.stream {
            StreamName::XEngine if input.validity.axes == axes[..] => axes[1].len * axes[2].len,
            StreamName::BEngine if input.validity.axes == axes[..3] => 1,
            _ => 0,
        }
    }

    fn digitiser_heaps(&self, input: &PortType, groups: usize) -> Result<Heaps, Vec<Rejection>> {
        let samples = input.elements();
        let per_heap = self.samples_per_heap;
        let whole = per_heap > 0 && per_heap.is_multiple_of(8);
        if !whole || samples == 0 || !samples.is_multiple_of(per_heap) {
            let message = format!(
                "`samples_per_heap` must be a multiple of 8 that divides the frame of {samples} samples, \
                 got {per_heap}"
            );
            return Err(vec![
                parameter(
                    "samples_per_heap",
                    message,
                    "give a divisor of the frame's length such as 4096",
                )
                .note(At::InputAxis(0, "sample"), "the sample axis comes from here"),
            ]);
        }
        let Dtype::Packed(bits) = input.dtype else { return Err(Vec::new()) };
        Ok(Heaps {
            stream: Stream::Digitiser { digitiser_id: self.digitiser_id, bits },
            times: samples / per_heap,
            groups,
            heap_bytes: input.dtype.bytes(per_heap),
            samples_per_heap: per_heap as u64,
            first_channel: 0,
            channels_per_substream: 1,
            shape: vec![per_heap],
            counts_per_channel: 0,
            elements: Elements::Packed(bits),
            partial: self.partial(input),
        })
    }

    fn partial(&self, input: &PortType) -> Partial {
        let flags = self.stream == StreamName::XEngine;
        let policy = self.partial_dumps.unwrap_or_default();
        Partial::new(policy, self.minimum_fraction, flags, input.validity.full)
    }

    fn reject_dtype(&self, input: &PortType, wanted: &[Dtype]) -> Option<Rejection> {
        let fits = match (self.stream, input.dtype) {
            (StreamName::Digitiser, Dtype::Packed(2..=16)) => true,
            (_, dtype) => wanted.contains(&dtype),
        };
        let names: Vec<String> = wanted.iter().map(|dtype| format!("`{dtype}`")).collect();
        let names = if names.is_empty() { "packed samples".to_owned() } else { names.join(" or ") };
        (!fits).then(|| {
            let message = format!("the input must carry {names}, got `{}`", input.dtype);
            Rejection::new(codes::INPUT_DTYPE, At::Input(0), message)
                .help("check `stream` and the block upstream")
        })
    }

    fn reject_axes(&self, input: &PortType, wanted: &[&str]) -> Option<Rejection> {
        let names: Vec<&str> = input.axes.iter().map(|axis| axis.name).collect();
        // The K-major layout has the last two the other way round.
        let swapped = ["heap", "channel", "pol", "spectrum"];
        let k_major = self.stream == StreamName::FEngine && names == swapped;
        let empty = input.axes.iter().any(|axis| axis.len == 0);
        ((names != wanted && !k_major) || empty).then(|| {
            let message = format!(
                "the input must have the axes [{}], got [{}]",
                wanted.join("]["),
                names.join("][")
            );
            Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
                .help("check `stream` and the block upstream")
        })
    }

    /// Returns the first heap counter and its step, so that counters of all senders to one group differ.
    fn counters(&self, input: &PortType, heaps: &Heaps) -> (u64, u64) {
        let channels = input.band.map(|band| band.channels).or(input.axis_len("channel"));
        let per_substream = heaps.channels_per_substream.max(1);
        match self.stream {
            StreamName::Digitiser => (self.digitiser_id & 1, 2),
            StreamName::FEngine => (self.feng_id, self.n_antennas),
            StreamName::XEngine | StreamName::BEngine => (
                (heaps.first_channel / per_substream) as u64,
                (channels.unwrap_or(1) / per_substream).max(1) as u64,
            ),
        }
    }
}

impl KindSpec for SpeadSink {
    type Shape = Heaps;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let Configured { parameters, shape: heaps, ports, .. } = block;
        let input = &ports.inputs[0];
        let counters = parameters.counters(input, heaps);
        let means = Means::of(parameters, heaps, input.bytes_per_second());
        let pace = (parameters.rate, means.catch_up);
        let terms = Terms::new(parameters, heaps.clone(), means.threads, &env.counters)?;
        let share = |index| Share::new(index, terms.clone(), pace, counters, input, env);
        let shares = (1..means.threads).map(share).collect();
        Ok(Box::new(cpu::Sink::new(parameters, terms.clone(), (share(0), shares), env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Heaps> {
        let heaps = self.heaps(&inputs[0])?;
        if let Some(threads) = self.threads.filter(|threads| *threads > heaps.per_frame()) {
            let message = format!(
                "`threads` must be at most the number of heaps of a frame ({}), got {threads}",
                heaps.per_frame()
            );
            let help = "lower `threads`, or give longer frames";
            return Err(vec![parameter("threads", message, help)]);
        }
        Ok((heaps, Vec::new()))
    }

    fn chosen(block: &Configured<Self>) -> Vec<Chosen> {
        let rate = block.ports.inputs[0].bytes_per_second();
        Means::of(&block.parameters, &block.shape, rate).chosen
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let heaps = &block.shape;
        let sockets = block.parameters.destinations.iter().map(|to| format!("to {to}")).collect();
        let rewritten = if heaps.rewrites() { heaps.heap_bytes } else { 0 };
        let rate = block.ports.inputs[0].bytes_per_second();
        let Means { threads, .. } = Means::of(&block.parameters, heaps, rate);
        Resources {
            host_bytes: threads * ((1 << 16) + rewritten),
            sockets,
            holds: vec![if threads > 1 { threads::HELD } else { 0 }],
            ..Resources::default()
        }
    }
}

impl LiveKind for SpeadSink {
    type Value = bool;

    fn live_value(
        new: &Configured<Self>,
        SpeadSinkLive::Enabled: SpeadSinkLive,
        _: &Configured<Self>,
    ) -> Result<bool, BlockError> {
        Ok(new.parameters.enabled)
    }
}

#[cfg(test)]
mod partial_tests;
#[cfg(test)]
mod tests;
