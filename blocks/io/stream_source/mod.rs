#![doc = include_str!("README.md")]

mod causes;
mod cpu;
mod heap;
pub mod window;

use crate::common::axes::{self, MAX_FRAME_BYTES};
use crate::common::net::address;
use crate::io::stream::Described;
use fxgraph::recording::StreamType;
use fxgraph::{
    Checked, Configured, Implementation, Implementations, Kind, KindSpec, PortType, Rejection,
    Resources,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use window::Options;

/// Default window: its duration, and its largest size in bytes.
const WINDOW_SECONDS: f64 = 0.05;
const WINDOW_BYTES: usize = 256 << 20;
const MIN_WINDOW: usize = 4;
const MAX_WINDOW: usize = 64;

/// Action of a source at the end of its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnStop {
    /// Ends its output.
    #[default]
    Finish,
    /// Waits for another run of the sender.
    Stay,
}

/// Parameters of `stream_source`.
#[derive(Clone, Debug, Kind)]
#[kind(name = "stream_source", page = "README.md", examples("example.yaml"), outputs("output"))]
pub struct StreamSource {
    /// Address to receive on: `a.b.c.d:port`, `[ipv6]:port` or `name:port`, an address of this host or a multicast group.
    pub source: String,
    /// Network interface, by name or address, on which a multicast group is joined.
    pub interface: Option<String>,
    /// Addresses of the senders whose packets are received (source-specific multicast); empty receives those of all.
    /// `source` must then be a multicast group.
    #[param(default)]
    pub sources: Vec<String>,
    /// Type of the stream, as in the side file of a recording and in the item `type` of the stream.
    pub r#type: StreamType,
    /// Heaps that are assembled at the same time, for packets that overtake others; by default 50 ms of frames,
    /// but at least 4 heaps and at most 64 heaps and 256 MiB.
    #[param(range = 2..=64)]
    pub window: Option<usize>,
    /// Whether the source drops (and counts) whole frames when the flowgraph does not keep up; if false,
    /// the socket buffer overflows.
    #[param(default = true)]
    pub live: bool,
    /// Bytes of the kernel's receive buffer.
    #[param(default = 32 << 20)]
    pub receive_buffer_bytes: usize,
    /// Action at the stop heap of the sender: `finish` ends the output, `stay` waits for the next run of the sender.
    #[param(default)]
    pub on_stop: OnStop,
    /// Ends the stream after this long without data.
    pub finish_after_seconds: Option<f64>,
    /// Longest gap in the stream that is filled with frames of validity 0; a longer gap is a jump of the timestamps,
    /// reported as the event `time_jumped`.
    #[param(default = 1.0, range = 0..=1e9, unit = "s")]
    pub max_gap_seconds: f64,
}

impl StreamSource {
    fn described(&self) -> Result<Described, Vec<Rejection>> {
        let mut rejections = Vec::new();
        let help = "give one address, such as 239.10.0.0:7148";
        match address::one(&self.source, "source", help) {
            Err(rejection) => rejections.push(*rejection),
            Ok(one) => {
                let one = [one];
                rejections.extend(address::reject_sources(&self.sources, ("source", &one)));
                if self.interface.is_none() {
                    rejections.extend(address::reject_unscoped(&one, "source", "interface"));
                }
            }
        }
        if let Some(idle) = self.finish_after_seconds
            && !(idle > 0.0 && idle <= 1e9)
        {
            let message =
                format!("`finish_after_seconds` must be above 0 and at most 1e9, got {idle}");
            rejections.push(
                Rejection::parameter("finish_after_seconds", message)
                    .help("give seconds, such as 10"),
            );
        }
        let bytes = self.receive_buffer_bytes;
        if !(4096..=1 << 30).contains(&bytes) {
            let message =
                format!("`receive_buffer_bytes` must be between 4096 and {}, got {bytes}", 1 << 30);
            let help = format!("the nearest valid value is {}", bytes.clamp(4096, 1 << 30));
            rejections.push(Rejection::parameter("receive_buffer_bytes", message).help(help));
        }
        let port = self.r#type.port(axes::known);
        let port = port.and_then(|port| match port.impossible() {
            Some(why) => Err(why),
            None if port.frame_bytes() > MAX_FRAME_BYTES => {
                Err(format!("a frame must have at most {MAX_FRAME_BYTES} bytes"))
            }
            None => Ok(port),
        });
        match port.and_then(|port| Described::new(&port)) {
            Ok(described) if rejections.is_empty() => return Ok(described),
            Ok(_) => {}
            Err(why) => rejections.push(
                Rejection::parameter("type", why)
                    .help("give the type of the sender's input, which `fxgraph plan` shows"),
            ),
        }
        Err(rejections)
    }

    /// Returns the number of heaps in the window.
    fn window(&self, described: &Described) -> usize {
        self.window.unwrap_or_else(|| {
            let by_time = (WINDOW_SECONDS * described.port.clock.frames_per_second()).ceil();
            let by_memory = WINDOW_BYTES / described.data_bytes.max(1);
            (by_time as usize).clamp(MIN_WINDOW, MAX_WINDOW).min(by_memory).max(2)
        })
    }

    fn options(&self, described: &Described) -> Options {
        let samples = self.max_gap_seconds * described.port.clock.adc_sample_rate_hz;
        Options { window: self.window(described), max_gap_samples: samples as u64 }
    }
}

impl KindSpec for StreamSource {
    type Shape = Described;
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let Configured { parameters, shape: described, .. } = block;
        if let Some(sync_time) = described.port.clock.known_sync_time() {
            env.counters.real_time().set_sync_time(sync_time);
        }
        Ok(Box::new(cpu::Source::new(parameters.clone(), described.clone(), env)))
    })];

    fn ports(&self, _inputs: &[PortType]) -> Checked<Described> {
        self.described().map(|described| {
            let port = described.port.clone();
            (described, vec![port])
        })
    }

    fn resources(block: &Configured<Self>) -> Resources {
        let Configured { parameters, shape: described, .. } = block;
        let is_group =
            address::parse(&parameters.source).is_ok_and(|address| address.is_multicast());
        let name = parameters.source.clone();
        Resources {
            host_bytes: (4 << 20) + window::host_bytes(parameters.window(described), described),
            fills: vec![cpu::LENT_FRAMES],
            // Several receivers, and several blocks, may share a group.
            binds: if is_group { Vec::new() } else { vec![format!("udp {name}")] },
            sockets: if is_group { vec![name] } else { Vec::new() },
            ..Resources::default()
        }
    }
}

#[cfg(test)]
mod tests;
