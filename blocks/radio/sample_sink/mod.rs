#![doc = include_str!("README.md")]

mod chunks;
mod cpu;
mod datagrams;
mod encode;
mod reader;
mod readers;
mod rtl_tcp;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod zmtp;

use crate::datagram::DatagramHeader;
use crate::types::SampleType;
use cpu::{Outlet, Sink};
use datagrams::Datagrams;
use encode::{Encoder, Layout};
use fxgraph::access::WrittenPath;
use fxgraph::kind::Chosen;
use fxgraph::{
    At, Band, BlockError, Checked, Configured, Env, Implementation, Implementations, Kind,
    KindSpec, PortType, Rejection, Resources, Sideband, stdout,
};
use fxgraph_common::net::address;
use reader::Protocol;
use readers::{Entrance, MAX_READERS, Readers};
use rtl_tcp::Requests;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Place where the samples go.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// Standard output of `fxgraph run`, whose text then goes to standard error.
    Stdout,
    /// Named pipe; it is made if there is no file.
    Fifo(WrittenPath),
    /// TCP server to connect to: `host:port`.
    Tcp(String),
    /// Address of this host where TCP clients connect: `addr:port`.
    Listen(String),
    /// The same with the protocol of `rtl_tcp`.
    RtlTcp(RtlTcp),
    /// Datagrams.
    Udp(Udp),
    /// Socket of ZeroMQ.
    Zmq(Zmq),
}

/// Server with the protocol of `rtl_tcp`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RtlTcp {
    /// Address of this host where clients connect: `addr:port`.
    pub listen: String,
}

/// Datagrams of one length.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Udp {
    /// Destination: `host:port`, a host or a multicast group.
    pub address: String,
    /// Bytes of samples in a datagram; whole samples of them are sent.
    #[serde(default = "default_payload_bytes")]
    pub payload_bytes: usize,
    /// Header before the samples; none by default.
    #[serde(default)]
    pub header: DatagramHeader,
}

/// With a header of 8 bytes, and those of IP and UDP, the datagram fits into a packet of 1500 bytes.
fn default_payload_bytes() -> usize {
    1440
}

/// Socket of ZeroMQ.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Zmq {
    /// Address of this host where readers connect: `tcp://addr:port`, or `tcp://*:port` for all addresses.
    pub bind: Option<String>,
    /// Address to connect to: `tcp://host:port`.
    pub connect: Option<String>,
    /// Pattern: `pub` gives each frame to all subscribers, `push` to one reader.
    pub socket: ZmqSocket,
}

/// Pattern of a socket of ZeroMQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZmqSocket {
    /// Each frame to all subscribers.
    Pub,
    /// Each frame to one reader.
    Push,
}

/// Action when the queue of a reader is full, or when no reader is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The sink waits, and with it the flowgraph.
    Wait,
    /// The oldest whole frame in the queue is dropped; without a reader every frame is.
    DropOldest,
}

/// Parameters of `sample_sink`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "sample_sink", page = "README.md", examples("example.yaml"), inputs("input"))]
pub struct SampleSink {
    /// Place where the samples go: `stdout`, `{fifo: PATH}`, `{tcp: host:port}`, `{listen: addr:port}`, `{rtl_tcp: {listen:
    /// addr:port}}`, `{udp: {address: host:port}}`, `{zmq: {bind: tcp://addr:port, socket: pub}}`.
    pub to: Destination,
    /// Type of the samples: `cu8`, `ci8`, `ci16`, `ci16_be`, `ci12p`, `cf32`, `u8`, `i8`, `i16`, `i16_be`, `f32`, or a name
    /// of GNU Radio or SoapySDR for it. By default that of the input; `cu8` for `rtl_tcp`.
    pub r#type: Option<SampleType>,
    /// Factor of the samples relative to full scale, which is 1 for floats and 128, 2048 or 32768 for integers. By default 1,
    /// and samples of the type of the input keep their numbers.
    #[param(range = 1e-6..=1e6)]
    pub scale: Option<f32>,
    /// Whether complex conjugates are written. Set it to true to give readers the upper sideband of an input with the
    /// lower one.
    pub conjugate: Option<bool>,
    /// Action when a reader is slow or absent: `wait`, or `drop_oldest`. By default servers and ZeroMQ's `pub` drop, and the
    /// others wait. Datagrams never wait for readers.
    pub when_full: Option<WhenFull>,
    /// Longest time of the stream that waits for a slow reader, rounded up to whole frames, at least 2.
    #[param(default = 0.25, range = 0.0..=60.0, unit = "s")]
    pub queue_seconds: f64,
}

/// Samples that the block writes.
#[derive(Clone, Debug)]
pub struct Shape {
    layout: Layout,
    r#type: SampleType,
    band: Option<Band>,
    queue_frames: usize,
}

impl Destination {
    /// Its address, if it is one of the network, and whether readers connect to it.
    fn endpoint(&self) -> Result<Option<(String, bool)>, String> {
        Ok(Some(match self {
            Self::Stdout | Self::Fifo(_) => return Ok(None),
            Self::Tcp(address) => (address.clone(), false),
            Self::Listen(address) => (address.clone(), true),
            Self::RtlTcp(server) => (server.listen.clone(), true),
            Self::Udp(udp) => (udp.address.clone(), false),
            Self::Zmq(zmq) => crate::zmtp::endpoint(zmq.bind.as_ref(), zmq.connect.as_ref())?,
        }))
    }

    fn rejections(&self) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        match self.endpoint() {
            Err(why) => {
                let help = "write {zmq: {bind: tcp://127.0.0.1:5555, socket: pub}}";
                rejections.push(Rejection::parameter("to", why).help(help));
            }
            Ok(Some((text, _))) => {
                let one = address::one(&text, "to", "write an address such as 127.0.0.1:5555");
                rejections.extend(one.err().map(|rejection| *rejection));
            }
            Ok(None) => {}
        }
        if let Self::Udp(udp) = self {
            rejections.extend(udp.header.rejections("to.udp.header"));
            let whole = udp.header.bytes.saturating_add(udp.payload_bytes);
            if udp.payload_bytes < 16 || whole > 65_000 {
                let message = format!(
                    "a datagram must have at least 16 bytes of samples and at most 65000 bytes with its header, got {} \
                     and {whole}",
                    udp.payload_bytes
                );
                let rejection = Rejection::parameter("to.udp.payload_bytes", message);
                rejections
                    .push(rejection.help("write a size such as 1440, or 8192 for jumbo frames"));
            }
        }
        rejections
    }

    fn protocol(&self) -> Protocol {
        match self {
            Self::RtlTcp(_) => Protocol::RtlTcp,
            Self::Zmq(zmq) => Protocol::Zmtp(zmq.socket),
            _ => Protocol::Raw,
        }
    }

    /// Action where `when_full` is not given.
    fn when_full(&self) -> WhenFull {
        let drops = match self {
            Self::Listen(_) | Self::RtlTcp(_) => true,
            Self::Zmq(zmq) => zmq.socket == ZmqSocket::Pub,
            Self::Stdout | Self::Fifo(_) | Self::Tcp(_) | Self::Udp(_) => false,
        };
        if drops { WhenFull::DropOldest } else { WhenFull::Wait }
    }
}

impl SampleSink {
    fn shape(&self, input: &PortType) -> Result<Shape, Vec<Rejection>> {
        let mut rejections = self.to.rejections();
        let layout = Layout::new(input).map_err(|rejection| rejections.push(rejection)).ok();
        let own =
            if matches!(self.to, Destination::RtlTcp(_)) { Some(SampleType::Cu8) } else { None };
        if let (Some(given), Some(own)) = (self.r#type, own)
            && given != own
        {
            let message = format!("`type` must be {own} for `rtl_tcp`, got {given}");
            rejections.push(Rejection::parameter("type", message).help("leave `type` out"));
        }
        let Some(layout) = layout else { return Err(rejections) };
        let r#type = self.r#type.or(own).unwrap_or(layout.input);
        if r#type.is_complex() != layout.input.is_complex() {
            let word = |is_complex| if is_complex { "complex" } else { "real" };
            let message = format!(
                "`type` {type} is {}, and the samples of the input are {}",
                word(r#type.is_complex()),
                word(layout.input.is_complex())
            );
            let rejection = Rejection::parameter("type", message);
            let help =
                "insert a `ddc`, which makes complex samples of real ones, or give another type";
            rejections.push(rejection.help(help).note(At::Input(0), "these samples"));
        }
        if self.conjugate == Some(true) && !layout.input.is_complex() {
            let message = "`conjugate` must be false for real samples";
            rejections.push(
                Rejection::parameter("conjugate", message)
                    .help("insert a `ddc`: the spectrum of real samples has no side"),
            );
        }
        if !rejections.is_empty() {
            return Err(rejections);
        }
        let frames = (self.queue_seconds * layout.clock.frames_per_second()).ceil();
        Ok(Shape { layout, r#type, band: input.band, queue_frames: (frames as usize).max(2) })
    }

    fn when_full(&self) -> WhenFull {
        self.when_full.unwrap_or_else(|| self.to.when_full())
    }
}

impl Shape {
    /// Statement about the largest numbers of the input.
    fn scale_statement(&self, scale: Option<f32>) -> String {
        let (from, to) = (self.layout.input, self.r#type);
        match scale {
            None if from.dtype() == to.dtype() => "numbers as they are".to_owned(),
            scale => {
                let (full, becomes) = (from.full_scale(), to.full_scale() * scale.unwrap_or(1.0));
                format!("{full} in the input becomes {becomes}")
            }
        }
    }

    /// Whether frequencies fall where they rise on the sky.
    fn is_lower(&self) -> bool {
        self.layout.input.is_complex()
            && self.band.is_some_and(|band| band.sideband == Sideband::Lower)
    }

    /// Statement about the samples, which they do not contain themselves.
    fn statement(&self, sink: &SampleSink) -> String {
        let band = match self.band {
            None => "a band that is not known".to_owned(),
            Some(band) => {
                let is_lower = (band.sideband == Sideband::Lower) != (sink.conjugate == Some(true));
                let side = if is_lower { "lower" } else { "upper" };
                format!(
                    "centre {} Hz, bandwidth {} Hz, {side} sideband",
                    band.centre_hz, band.bandwidth_hz
                )
            }
        };
        format!(
            "{} at {} samples/s, {band}; {}",
            self.r#type,
            self.layout.rate_hz(),
            self.scale_statement(sink.scale)
        )
    }

    fn frame_bytes(&self) -> usize {
        self.layout.samples.saturating_mul(self.r#type.bytes())
    }
}

/// Addresses of `text`, which was checked.
fn resolve(text: &str) -> Result<Vec<SocketAddr>, BlockError> {
    address::parse(text).map_err(|error| BlockError::new(error.to_string()))?.resolve()
}

fn outlet(sink: &SampleSink, shape: &Shape, env: &Env) -> Result<Outlet, BlockError> {
    let endpoint = sink.to.endpoint().map_err(BlockError::new)?;
    let addresses =
        endpoint.map(|(text, is_bound)| Ok::<_, BlockError>((resolve(&text)?, is_bound)));
    let first = |addresses: Vec<SocketAddr>| {
        addresses.first().copied().ok_or_else(|| BlockError::new("the host has no address"))
    };
    let entrance = match (&sink.to, addresses.transpose()?) {
        (Destination::Udp(udp), Some((addresses, _))) => {
            let sizes = (udp.header, udp.payload_bytes);
            let of = (&shape.layout, shape.r#type);
            return Ok(Outlet::Datagrams(Datagrams::new(first(addresses)?, sizes, of, env)));
        }
        (Destination::Fifo(path), _) => Entrance::Pipe(path.begin_at(&env.output_directory)),
        (_, None) => Entrance::Stdout,
        (_, Some((addresses, true))) => Entrance::Clients(first(addresses)?),
        (_, Some((addresses, false))) => Entrance::Server(addresses),
    };
    let protocol = sink.to.protocol();
    let requests = (protocol == Protocol::RtlTcp)
        .then(|| Requests::new(shape.layout.rate_hz(), shape.band.map(|band| band.centre_hz), env));
    let limits = (sink.when_full(), shape.queue_frames);
    Ok(Outlet::Readers(Readers::new(entrance, protocol, limits, requests, env)))
}

impl KindSpec for SampleSink {
    type Shape = Shape;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let Configured { parameters, shape, .. } = block;
        let conjugates = parameters.conjugate == Some(true);
        let encoder = Encoder::new(shape.layout, shape.r#type, parameters.scale, conjugates);
        let outlet = outlet(parameters, shape, env)?;
        let statement = shape.statement(parameters);
        Ok(Box::new(Sink::new(shape.layout, encoder, outlet, statement, env)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<Shape> {
        self.shape(&inputs[0]).map(|shape| (shape, Vec::new()))
    }

    fn chosen(block: &Configured<Self>) -> Vec<Chosen> {
        let Configured { parameters, shape, .. } = block;
        let mut chosen = Vec::new();
        if parameters.r#type.is_none() {
            chosen.push(Chosen::new("type", shape.r#type.to_string(), shape.statement(parameters)));
        }
        if parameters.scale.is_none() && shape.layout.input.dtype() != shape.r#type.dtype() {
            chosen.push(Chosen::new("scale", 1.0, shape.scale_statement(None)));
        }
        chosen
    }

    fn warnings(block: &Configured<Self>) -> Vec<Rejection> {
        let Configured { parameters, shape, .. } = block;
        if parameters.conjugate.is_some() || !shape.is_lower() {
            return Vec::new();
        }
        let message = "the input has the lower sideband, which raw samples do not say";
        vec![
            Rejection::new(fxgraph::diagnostic::codes::IMPLAUSIBLE, At::Input(0), message).help(
                "set `conjugate: true` to write the upper sideband, or `conjugate: false` if readers expect the lower one",
            ),
        ]
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters, shape, .. } = block;
        let (readers, queue) = match parameters.to {
            Destination::Listen(_) | Destination::RtlTcp(_) => (MAX_READERS, shape.queue_frames),
            // Readers share the frames that they all get; those of PUSH, and of topics, get different ones.
            Destination::Zmq(_) => (MAX_READERS, shape.queue_frames.saturating_mul(MAX_READERS)),
            Destination::Udp(_) => (1, 2),
            _ => (1, shape.queue_frames),
        };
        // Readers that have each begun another frame hold one more each.
        let frames = queue.saturating_add(readers + 1);
        // Numbers as floats.
        let encoder = shape.layout.samples.saturating_mul(8);
        let mut resources = Resources {
            host_bytes: frames.saturating_mul(shape.frame_bytes()).saturating_add(encoder),
            ..Resources::default()
        };
        match (&parameters.to, parameters.to.endpoint()) {
            (Destination::Stdout, _) => resources.writes.push(PathBuf::from(stdout::PATH)),
            (Destination::Fifo(path), _) => resources.writes.push(path.path().to_owned()),
            (_, Ok(Some((address, true)))) => resources.binds.push(format!("tcp {address}")),
            (_, Ok(Some((address, false)))) => resources.sockets.push(format!("to {address}")),
            _ => {}
        }
        resources
    }
}
