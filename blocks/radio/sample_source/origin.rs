//! Origins of samples, as the parameter `from` names them.

use crate::datagram::DatagramHeader;
use crate::zmtp;
use fxgraph::Rejection;
use fxgraph::access::ReadPath;
use fxgraph_common::net::address::{self, Address};
use schemars::JsonSchema;
use serde::Deserialize;

/// Largest receive buffer of a socket in bytes.
const MAX_BUFFER: usize = 1 << 30;
/// Longest topic of ZeroMQ in bytes.
const MAX_TOPIC: usize = 200;

/// Place where samples come from.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Standard input of `fxgraph run`.
    Stdin,
    /// Named pipe (`mkfifo`).
    Fifo(ReadPath),
    /// File of samples without a header, which is played as fast as the readers take it.
    File(ReadPath),
    /// TCP server to connect to: `host:port`.
    Tcp(String),
    /// Address of this host where one TCP client at a time connects: `addr:port`.
    Listen(String),
    /// Server with the protocol of `rtl_tcp`.
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
    /// Address of the server: `host:port`.
    pub address: String,
    /// Whether the demodulator controls its digital gain, after the tuner.
    #[serde(default)]
    pub digital_agc: bool,
    /// Whether the receiver supplies a preamplifier through the antenna cable.
    #[serde(default)]
    pub bias_tee: bool,
}

/// Datagrams to an address of this host or to a multicast group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Udp {
    /// Address to receive on: `a.b.c.d:port`, `[ipv6]:port` or `name:port`, an address of this host or a multicast group.
    pub address: String,
    /// Network interface, by name or address, on which a multicast group is joined.
    pub interface: Option<String>,
    /// Addresses of the senders whose packets are received (source-specific multicast); empty receives those of all.
    #[serde(default)]
    pub sources: Vec<String>,
    /// Header before the samples of each datagram; none by default.
    #[serde(default)]
    pub header: DatagramHeader,
    /// Bytes of the kernel's receive buffer.
    #[serde(default = "default_buffer")]
    pub receive_buffer_bytes: usize,
}

fn default_buffer() -> usize {
    32 << 20
}

/// Socket of ZeroMQ.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Zmq {
    /// Address to connect to: `tcp://host:port`.
    pub connect: Option<String>,
    /// Address of this host where the sender connects: `tcp://addr:port`.
    pub bind: Option<String>,
    /// Pattern: `sub` reads from a `pub` socket, which drops messages for a slow reader; `pull` from a `push` socket, which
    /// waits.
    pub socket: ZmqSocket,
    /// With `sub`: beginning of the messages that are received; empty receives all. A message of several parts has its
    /// samples in the last one.
    #[serde(default)]
    pub topic: String,
}

/// Pattern of a socket of ZeroMQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ZmqSocket {
    /// Reads from `pub`.
    Sub,
    /// Reads from `push`.
    Pull,
}

impl Origin {
    /// Whether a sender that has gone may come back.
    #[must_use]
    pub fn comes_back(&self) -> bool {
        !matches!(self, Self::Stdin | Self::File(_) | Self::Udp(_))
    }

    /// Whether samples arrive as they are taken, so that their arrival states their time and rate.
    #[must_use]
    pub fn is_live(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// Whether samples are dropped where no frame is free: the sender cannot be held back.
    #[must_use]
    pub fn drops(&self) -> bool {
        match self {
            Self::Udp(_) => true,
            Self::Zmq(zmq) => zmq.socket == ZmqSocket::Sub,
            _ => false,
        }
    }

    /// Sockets and pipes that no other block can have.
    #[must_use]
    pub fn binds(&self) -> Vec<String> {
        match self {
            Self::Stdin => vec!["standard input".to_owned()],
            Self::Fifo(path) => vec![format!("pipe {path}")],
            Self::Listen(address) => vec![format!("tcp {address}")],
            Self::Udp(udp) if !udp.is_multicast() => vec![format!("udp {}", udp.address)],
            Self::Zmq(zmq) if zmq.bind.is_some() => vec![format!("tcp {}", zmq.address())],
            _ => Vec::new(),
        }
    }

    /// Multicast groups, which other blocks may have too.
    #[must_use]
    pub fn groups(&self) -> Vec<String> {
        match self {
            Self::Udp(udp) if udp.is_multicast() => vec![udp.address.clone()],
            _ => Vec::new(),
        }
    }

    /// Diagnostics of the parameter `from`.
    #[must_use]
    pub fn rejections(&self) -> Vec<Rejection> {
        match self {
            Self::Stdin | Self::Fifo(_) | Self::File(_) => Vec::new(),
            Self::Tcp(text) => host(text).err().map(|rejection| *rejection).into_iter().collect(),
            Self::RtlTcp(rtl) => Self::Tcp(rtl.address.clone()).rejections(),
            Self::Listen(text) => match host(text) {
                Ok(found) if found.is_multicast() => {
                    vec![reject(format!("`listen` must be an address of this host, got {text}"))]
                }
                _ => Self::Tcp(text.clone()).rejections(),
            },
            Self::Udp(udp) => udp.rejections(),
            Self::Zmq(zmq) => zmq.rejections(),
        }
    }
}

const HELP: &str = "write `stdin`, {fifo: PATH}, {tcp: host:port}, {listen: addr:port}, {rtl_tcp: {address: host:port}}, \
                    {udp: {address: addr:port}}, or {zmq: {connect: tcp://host:port, socket: sub}}";

fn reject(message: String) -> Rejection {
    Rejection::parameter("from", message).help(HELP)
}

/// The one address `text`.
fn host(text: &str) -> Result<Address, Box<Rejection>> {
    address::one(text, "from", HELP)
}

impl Udp {
    fn is_multicast(&self) -> bool {
        address::parse(&self.address).is_ok_and(|address| address.is_multicast())
    }

    fn rejections(&self) -> Vec<Rejection> {
        let mut rejections = self.header.rejections("from");
        match host(&self.address) {
            Err(rejection) => rejections.push(*rejection),
            Ok(one) => {
                let one = [one];
                rejections.extend(address::reject_sources(&self.sources, ("from", &one)));
                if self.interface.is_none() {
                    rejections.extend(address::reject_unscoped(&one, "from", "interface"));
                }
            }
        }
        let bytes = self.receive_buffer_bytes;
        if !(4096..=MAX_BUFFER).contains(&bytes) {
            rejections.push(reject(format!(
                "`receive_buffer_bytes` must be between 4096 and {MAX_BUFFER}, got {bytes}"
            )));
        }
        if self.header.sequence.is_some() && self.header.sample.is_some() {
            let message = "a header must have `sequence` or `sample`, got both".to_owned();
            rejections.push(reject(message));
        }
        rejections
    }
}

impl Zmq {
    /// Address without the scheme; `*` is all addresses of this host.
    #[must_use]
    pub fn address(&self) -> String {
        zmtp::endpoint(self.bind.as_ref(), self.connect.as_ref()).unwrap_or_default().0
    }

    fn rejections(&self) -> Vec<Rejection> {
        let mut rejections = Vec::new();
        match zmtp::endpoint(self.bind.as_ref(), self.connect.as_ref()) {
            Err(why) => rejections.push(reject(why)),
            Ok((address, _)) => rejections.extend(Origin::Tcp(address).rejections()),
        }
        if self.socket == ZmqSocket::Pull && !self.topic.is_empty() {
            rejections.push(reject("`topic` needs `socket: sub`".to_owned()));
        }
        if self.topic.len() > MAX_TOPIC {
            let len = self.topic.len();
            rejections
                .push(reject(format!("`topic` must have at most {MAX_TOPIC} bytes, got {len}")));
        }
        rejections
    }
}
