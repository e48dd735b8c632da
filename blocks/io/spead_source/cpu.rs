//! The block: lends empty frames to the receiving threads and sends filled frames to the flowgraph.

use super::layout::{Layout, Stream};
use super::network::Network;
use super::thread::{Input, Receiving, Terms};
use super::window::{Options, Window};
use super::{OnRestart, Receive, SpeadSource};
use crate::io::spead::link::Lender;
use crate::io::spead::{address, pcap, receive, xdp};
use fxgraph::{Block, BlockError, Counters, Env, Io, Next};
use std::time::Duration;

/// Frames that the threads may have at once: the window, one being opened and one being returned.
pub(super) fn lent_frames(window: usize) -> usize {
    window.saturating_add(2)
}

/// Largest number of senders of one digitiser's stream.
const MAX_SENDERS: usize = 64;

/// A running source.
pub struct Source {
    parameters: SpeadSource,
    layout: Layout,
    /// Frames in the window, and bytes per second of the stream.
    window: usize,
    bytes_per_second: f64,
    env: Env,
    running: Option<Lender>,
}

impl Source {
    pub(super) fn new(
        parameters: SpeadSource,
        layout: Layout,
        window: usize,
        bytes_per_second: f64,
        env: &Env,
    ) -> Self {
        Self { parameters, layout, window, bytes_per_second, env: env.clone(), running: None }
    }

    fn input(&self, counters: &Counters) -> Result<Input, BlockError> {
        let parameters = &self.parameters;
        let addresses = address::parse_all(&parameters.addresses).map_err(|errors| {
            BlockError::new(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        let Some(path) = &parameters.pcap else {
            let bytes = parameters.receive_buffer_bytes;
            let (threads, interfaces) = (parameters.threads, &parameters.interfaces);
            if parameters.receive == Receive::AfXdp {
                let queues = xdp::open(threads, &addresses, interfaces, bytes)?;
                return Ok(Input::Network(Network::of_queues(queues, addresses, counters)));
            }
            let sockets = receive::open_divided(threads, &addresses, interfaces, bytes)?;
            return Ok(Input::Network(Network::new(sockets, counters)));
        };
        let capture = pcap::Capture::open(path).map_err(|error| {
            BlockError::new(format!("cannot read {path}: {error}")).because(error)
        })?;
        Ok(Input::file(capture, addresses, path.clone(), counters))
    }

    fn options(&self) -> Result<Options, BlockError> {
        let parameters = &self.parameters;
        let is_digitiser = matches!(self.layout.stream, Stream::Digitiser { .. });
        let addresses = address::parse_all(&parameters.addresses);
        let addresses = addresses.map_err(|_| BlockError::new("`addresses` are not valid"))?.len();
        // Each antenna has one sender.
        let senders = match parameters.stop_after_senders {
            Some(senders) if is_digitiser => senders.clamp(1, MAX_SENDERS),
            _ => 1,
        };
        // A digitiser sends one heap after the other to its addresses in turn. Threads that share an address
        // have the heaps of different senders, and so have receive queues.
        let is_xdp = parameters.receive == Receive::AfXdp;
        let shared = if is_xdp || parameters.threads > addresses { senders } else { 1 };
        let stride = if is_digitiser { addresses.max(1) * shared } else { 1 };
        Ok(Options {
            stride: stride as u64,
            senders_per_part: senders,
            threads: parameters.threads,
            max_gap_seconds: parameters.max_gap_seconds,
            resyncs: parameters.on_restart == OnRestart::Resync,
            sync_time_seconds: Some(parameters.sync_time_seconds).filter(|sync| *sync > 0.0),
            ..Options::new(self.window, parameters.adc_sample_rate_hz)
        })
    }

    /// Returns the end conditions of the stream, and the time to wait for frames, for `input`.
    fn terms(&self, input: &Input) -> Terms {
        let parameters = &self.parameters;
        let patience = match input {
            Input::Network(network) if parameters.live => {
                Some(receive::patience_of(network.buffer_bytes(), self.bytes_per_second))
            }
            _ => None,
        };
        Terms {
            idle: parameters.finish_after_seconds.map(Duration::from_secs_f64),
            senders: parameters.stop_after_senders.unwrap_or(0),
            patience,
            adc_sample_rate_hz: parameters.adc_sample_rate_hz,
        }
    }
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        let counters = &self.env.counters;
        let input = self.input(counters)?;
        let window = Window::new(self.layout, self.options()?, &self.env);
        let (terms, env) = (self.terms(&input), self.env.clone());
        let run = move |link| Receiving::new(window, link, terms, env).run(input);
        self.running = Some(Lender::start(&self.env, lent_frames(self.window), run)?);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        match &mut self.running {
            Some(running) => running.work(io),
            None => Err(BlockError::new("the source was not started")),
        }
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.running = None;
        Ok(())
    }
}
