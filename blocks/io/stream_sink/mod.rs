#![doc = include_str!("README.md")]

mod cpu;

use crate::common::net::address;
use crate::common::sending::Pace;
use crate::io::pace::{default_catch_up, reject_catch_up};
use crate::io::stream::Described;
use fxgraph::diagnostic::codes;
use fxgraph::{
    At, BlockError, Checked, Configured, Implementation, Implementations, Kind, KindSpec, LiveKind,
    PortType, Rejection, Resources,
};

/// Parameters of `stream_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "stream_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct StreamSink {
    /// Destination: `a.b.c.d:port`, `[ipv6]:port` or `name:port`, a host or a multicast group.
    pub destination: String,
    /// Network interface, by name or address, to send from.
    pub interface: Option<String>,
    /// Time to live (hop limit) of multicast packets: number of routers that they may pass.
    #[param(default = 4, range = 0..=255)]
    pub ttl: u32,
    /// Largest payload of a packet, in bytes.
    #[param(default = 8192, range = 64..=65000)]
    pub packet_payload_bytes: usize,
    /// Rate of sending, as a multiple of the stream's rate; 0 sends as fast as possible.
    #[param(default = 1.1)]
    pub rate: f64,
    /// Rate at which a sink behind schedule catches up, as a multiple of the stream's rate; at least `rate`.
    #[param(default = default_catch_up())]
    pub catch_up: f64,
    /// Time between descriptors.
    #[param(default = 1.0, range = 0.01..=1e6, unit = "s")]
    pub descriptor_seconds: f64,
    /// Whether stop heaps are sent at the end of the stream.
    #[param(default = true)]
    pub stop_heaps: bool,
    /// Whether the sink sends; live. While it is false, frames are consumed at the same pace and dropped, and the stream
    /// is another sender's: when the sink is enabled again, it takes the stream over.
    #[param(default = true, live)]
    pub enabled: bool,
}

impl StreamSink {
    fn described(&self, input: &PortType) -> Result<Described, Vec<Rejection>> {
        let mut rejections = Vec::new();
        let help = "give one address, such as 239.10.0.0:7148";
        match address::one(&self.destination, "destination", help) {
            Err(rejection) => rejections.push(*rejection),
            Ok(one) if self.interface.is_none() => {
                rejections.extend(address::reject_unscoped(&[one], "destination", "interface"));
            }
            Ok(_) => {}
        }
        if !(self.rate == 0.0 || (0.1..=1000.0).contains(&self.rate)) {
            let message = format!("`rate` must be 0 or between 0.1 and 1000, got {}", self.rate);
            let help = "1.1 is the default; 0 sends as fast as possible";
            rejections.push(Rejection::parameter("rate", message).help(help));
        }
        rejections.extend(reject_catch_up(self.catch_up));
        let described = Described::new(input).map_err(|why| {
            let message = format!("the stream cannot be described: {why}");
            Rejection::new(codes::INPUT_AXIS, At::Input(0), message)
                .help("send the output of another block")
        });
        match described {
            Ok(described) if rejections.is_empty() => Ok(described),
            Ok(_) => Err(rejections),
            Err(rejection) => {
                rejections.push(rejection);
                Err(rejections)
            }
        }
    }
}

impl KindSpec for StreamSink {
    type Shape = Described;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let Configured { parameters, shape: described, ports, .. } = block;
        let input = &ports.inputs[0];
        let (bytes, hz) = (input.bytes_per_second(), input.clock.adc_sample_rate_hz);
        let pace = Pace::new(bytes, hz, parameters.rate, parameters.catch_up, Some(env));
        Ok(Box::new(cpu::Sink::new(parameters.clone(), described.clone(), pace, env)?))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Described> {
        self.described(&inputs[0]).map(|described| (described, Vec::new()))
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters, shape: described, .. } = block;
        Resources {
            host_bytes: (1 << 16) + 2 * described.text.len() + 4 * described.units,
            sockets: vec![format!("to {}", parameters.destination)],
            ..Resources::default()
        }
    }
}

impl LiveKind for StreamSink {
    type Value = bool;

    fn live_value(
        new: &Configured<Self>,
        StreamSinkLive::Enabled: StreamSinkLive,
        _: &Configured<Self>,
    ) -> Result<bool, BlockError> {
        Ok(new.parameters.enabled)
    }
}
