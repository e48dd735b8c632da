//! The block: lends empty frames to the receiving threads and sends filled frames to the flowgraph.

use super::layout::{Layout, Stream};
use super::means::Means;
use super::network::Network;
use super::thread::{Input, Receiving, Terms};
use super::window::{Options, Window};
use super::{OnRestart, Receive, SpeadSource};
use crate::common::flagged_antennas::Flagging;
use crate::common::link::Lender;
use crate::common::net::sockets::{self, Listening};
use crate::common::net::{address, interface};
use crate::io::spead::{pcap, receive, xdp};
use fxgraph::changes::Change;
use fxgraph::{Block, BlockError, Counters, Env, Io, Next, Time};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

/// Frames that the threads may have at once: the window, one being opened and one being returned.
pub(super) fn lent_frames(window: usize) -> usize {
    window.saturating_add(2)
}

/// Longest interval that is dropped as a whole when the flowgraph does not keep up. An interval that is much longer than
/// a heap of spectra costs few heaps at its ends.
const LONGEST_DROP_SECONDS: f64 = 0.02;
/// Largest number of senders of one digitiser's stream.
const MAX_SENDERS: usize = 64;

/// A running source.
pub struct Source {
    parameters: SpeadSource,
    layout: Layout,
    means: Means,
    /// Bytes per second of the stream.
    bytes_per_second: f64,
    env: Env,
    /// Flags of the antennas of F-engine heaps.
    flagging: Option<Flagging>,
    running: Option<Lender>,
}

/// Returns an address for AF_XDP, which can be that of a host by its name.
fn of_v4(address: SocketAddr) -> Result<SocketAddrV4, BlockError> {
    match address {
        SocketAddr::V4(v4) => Ok(v4),
        SocketAddr::V6(v6) => Err(BlockError::new(format!(
            "`receive: af_xdp` receives IPv4 only, and {v6} is an IPv6 address; use `receive: socket`"
        ))),
    }
}

impl Source {
    pub(super) fn new(
        parameters: SpeadSource,
        layout: Layout,
        means: Means,
        bytes_per_second: f64,
        env: &Env,
    ) -> Self {
        let flagging = parameters.flagged(&layout).map(|mask| {
            Flagging::new(mask, layout.heaps_per_frame, layout.samples_per_frame(), &env.counters)
        });
        let env = env.clone();
        Self { parameters, layout, means, bytes_per_second, env, flagging, running: None }
    }

    fn input(&self, counters: &Counters) -> Result<Input, BlockError> {
        let parameters = &self.parameters;
        let addresses = match parameters.pcap {
            // A capture does not say on which interface its packets came.
            Some(_) => address::without_scope(&parameters.addresses)?,
            None => address::resolve(&parameters.addresses)?,
        };
        let Some(path) = &parameters.pcap else {
            let Means { threads, receive_buffer_bytes: buffer_bytes, .. } = self.means;
            let interfaces = &parameters.interfaces;
            interface::report_faults(interfaces, &self.env.events);
            if parameters.receive == Receive::AfXdp {
                let addresses = addresses.into_iter().map(of_v4).collect::<Result<Vec<_>, _>>()?;
                let queues = xdp::open(threads, &addresses, interfaces, buffer_bytes)?;
                return Ok(Input::Network(Network::of_queues(queues, addresses, counters)));
            }
            let sources = address::sources(&parameters.sources)?;
            let listening = Listening { interfaces: interfaces.clone(), sources, buffer_bytes };
            let sockets = sockets::open_divided(threads, &addresses, &listening)?;
            return Ok(Input::Network(Network::new(sockets, counters)));
        };
        let file = pcap::open(path).map_err(|error| {
            BlockError::new(format!("cannot read {path}: {error}")).because(error)
        })?;
        Ok(Input::file(file, addresses, path.clone(), counters))
    }

    /// Returns the options of the window for `input`.
    fn options(&self, input: &Input) -> Options {
        let (parameters, threads) = (&self.parameters, self.means.threads);
        let is_digitiser = matches!(self.layout.stream, Stream::Digitiser { .. });
        let addresses = address::count(&parameters.addresses);
        // Each antenna has one sender.
        let senders = match parameters.stop_after_senders {
            Some(senders) if is_digitiser => senders.clamp(1, MAX_SENDERS),
            _ => 1,
        };
        // A digitiser sends one heap after the other to its addresses in turn. Threads that share an address
        // have the heaps of different senders, and so have receive queues.
        let is_xdp = parameters.receive == Receive::AfXdp;
        let shared = if is_xdp || threads > addresses { senders } else { 1 };
        let stride = if is_digitiser { addresses.max(1) * shared } else { 1 };
        let buffered = match input {
            Input::Network(network) if parameters.live => {
                Some(network.buffer_bytes() as f64 / self.bytes_per_second)
            }
            _ => None,
        };
        // Dropping a quarter of what the buffers hold empties them far enough.
        let frame_seconds = self.layout.samples_per_frame() as f64 / parameters.adc_sample_rate_hz;
        let interval = buffered.map(|seconds| LONGEST_DROP_SECONDS.min(seconds / 4.0));
        let frame_bytes = self.layout.slots() * self.layout.heap_bytes;
        let sockets = addresses.max(threads);
        Options {
            // A socket has a part of the stream, so what is skimmed of one spans more frames.
            frames_ahead: 1 + (sockets * receive::MOST_SKIMMED / frame_bytes) as u64,
            interval_frames: interval.map(|seconds| ((seconds / frame_seconds) as u64).max(1)),
            stride: stride as u64,
            senders_per_part: senders,
            threads,
            max_gap_seconds: parameters.max_gap_seconds,
            resyncs: parameters.on_restart == OnRestart::Resync,
            sync_time: Some(parameters.sync_time_seconds).filter(|sync| *sync != Time::default()),
            ..Options::new(self.means.window, parameters.adc_sample_rate_hz)
        }
    }

    fn terms(&self) -> Terms {
        let parameters = &self.parameters;
        Terms {
            idle: parameters.finish_after_seconds.map(Duration::from_secs_f64),
            senders: parameters.stop_after_senders.unwrap_or(0),
            is_live: parameters.live,
            adc_sample_rate_hz: parameters.adc_sample_rate_hz,
        }
    }
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        let counters = &self.env.counters;
        let input = self.input(counters)?;
        let window = Window::new(self.layout, self.options(&input), &self.env);
        let (terms, env) = (self.terms(), self.env.clone());
        let run = move |link| Receiving::new(window, link, terms, env).run(input);
        self.running = Some(Lender::start(&self.env, lent_frames(self.means.window), run)?);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Self { running, flagging, .. } = self;
        match running {
            Some(running) => running.work(io, |frame| {
                if let Some(flagging) = flagging {
                    flagging.clear(frame);
                }
            }),
            None => Err(BlockError::new("the source was not started")),
        }
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        match &mut self.flagging {
            Some(flagging) => flagging.offer(change),
            None => Err(BlockError::new("the stream has no antennas")),
        }
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.running = None;
        Ok(())
    }
}
