//! The block: lends empty frames to the receiving thread, which assembles the stream.

use super::window::{Options, Window};
use super::{OnStop, StreamSource};
use crate::common::link::{Fill, Frames, Lender, Link, Report, TICK};
use crate::common::net::membership::Reports;
use crate::common::net::sockets::{self, Listener, Listening};
use crate::common::net::{address, interface};
use crate::io::spead::datagrams::Datagrams;
use crate::io::spead::port::Port;
use crate::io::stream::Described;
use fxgraph::runtime::EventKind;
use fxgraph::{Block, BlockError, Counter, Env, FrameMut, Io, Next};
use std::time::{Duration, Instant};

/// Frames that the thread may have at once.
pub(super) const LENT_FRAMES: usize = 4;
/// Bytes read from the socket before the thread looks at its other duties.
const TURN_BYTES: usize = 4 << 20;
/// Time after the stop heap in which packets that it overtook arrive.
const AFTER_STOP: Duration = Duration::from_millis(100);

/// Longest time between two looks at the clock in which the thread listens.
const MOST_STEP: Duration = TICK.saturating_mul(2);

/// A running source.
pub struct Source {
    parameters: StreamSource,
    described: Described,
    env: Env,
    running: Option<Lender>,
}

impl Source {
    pub(super) fn new(parameters: StreamSource, described: Described, env: &Env) -> Self {
        Self { parameters, described, env: env.clone(), running: None }
    }
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        let parameters = &self.parameters;
        let addresses = address::resolve([&parameters.source])?;
        let interfaces: Vec<String> = parameters.interface.iter().cloned().collect();
        interface::report_faults(&interfaces, &self.env.events);
        let sources = address::sources(&parameters.sources)?;
        let buffer_bytes = parameters.receive_buffer_bytes;
        let sockets = sockets::open(&addresses, &Listening { interfaces, sources, buffer_bytes })?;
        let options = parameters.options(&self.described);
        let receiving = Receiving::new(self, options);
        let run = move |link| receiving.run(sockets, link);
        self.running = Some(Lender::start(&self.env, LENT_FRAMES, run)?);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        match &mut self.running {
            Some(running) => running.work(io, |_| ()),
            None => Err(BlockError::new("the source was not started")),
        }
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.running = None;
        Ok(())
    }
}

/// A link, and the time by which the silence of the sender is judged. Packets that come while the thread waits for a frame,
/// or while the program is stopped, are read later: such a time counts as [`MOST_STEP`].
struct Timed<'a> {
    link: &'a mut Link,
    time: Instant,
    looked: Instant,
}

impl<'a> Timed<'a> {
    fn new(link: &'a mut Link) -> Self {
        let now = Instant::now();
        Self { link, time: now, looked: now }
    }

    fn now(&mut self) -> Instant {
        let now = Instant::now();
        self.time += now.saturating_duration_since(self.looked).min(MOST_STEP);
        self.looked = now;
        self.time
    }
}

impl Frames for Timed<'_> {
    fn take(&mut self) -> Option<FrameMut> {
        self.link.take()
    }

    fn push(&mut self, frame: FrameMut) {
        self.link.push(frame);
    }
}

/// State of the receiving thread.
struct Receiving {
    window: Window,
    env: Env,
    on_stop: OnStop,
    idle: Option<Duration>,
    is_live: bool,
    packets: Counter,
    bytes: Counter,
    kernel_drops: Counter,
}

impl Receiving {
    fn new(source: &Source, options: Options) -> Self {
        let Source { parameters, described, env, .. } = source;
        let counters = &env.counters;
        Self {
            window: Window::new(described.clone(), options, env),
            on_stop: parameters.on_stop,
            idle: parameters.finish_after_seconds.map(Duration::from_secs_f64),
            is_live: parameters.live,
            packets: counters.count("packets_received", "datagrams received from the network"),
            bytes: counters.count("bytes_received", "payload bytes of these datagrams"),
            kernel_drops: counters.overrun(
                "packets_dropped_by_kernel",
                "datagrams dropped by the kernel because the socket buffer was full; raise receive_buffer_bytes and net.core.rmem_max, or give the block a core",
            ),
            env: env.clone(),
        }
    }

    /// Runs until the stream ends.
    fn run(mut self, sockets: Vec<Listener>, mut link: Link) {
        // Datagrams that arrive before the flowgraph runs wait in the socket buffer.
        link.wait_for_first();
        let port = Port::Sockets(sockets);
        let view = self.is_live.then(|| port.watch()).transpose();
        let result = match view {
            Ok(view) => {
                link.live = view.map(|view| -> Fill { Box::new(move || view.fill()) });
                self.listen(port, &mut link)
            }
            Err(error) => Err(BlockError::new("cannot duplicate a socket").because(error)),
        };
        self.window.flush(&mut link);
        let text = match &result {
            Ok(text) => text.clone(),
            Err(error) => error.to_string(),
        };
        self.env.summary.set(format!("the stream ended: {text}\n"));
        self.env.events.add(EventKind::StreamEnded, text);
        link.report(match result {
            Ok(_) => Report::Ended,
            Err(error) => Report::Failed(error),
        });
    }

    /// Receives until the stream ends; returns the reason.
    fn listen(&mut self, port: Port, link: &mut Link) -> Result<String, BlockError> {
        let mut receiver = port.receiver(TURN_BYTES, Reports::new(&self.env.events));
        let mut frames = Timed::new(link);
        while !frames.link.stopping() {
            let Self { window, .. } = self;
            let mut now = None;
            let mut handle = |datagrams: Datagrams<'_>| {
                let now = *now.get_or_insert_with(|| frames.now());
                for (datagram, sender) in datagrams {
                    window.datagram(datagram, sender, now, &mut frames);
                }
            };
            let (received, _) = receiver
                .receive(TICK, &mut handle)
                .map_err(|error| BlockError::new("cannot receive").because(error))?;
            self.packets.add(received.datagrams);
            self.bytes.add(received.bytes);
            self.kernel_drops.add(received.kernel_drops);
            let now = frames.now();
            self.window.tick(now, &mut frames);
            self.window.publish_place(Instant::now());
            if self.window.stopped(now).is_some_and(|time| time >= AFTER_STOP) {
                if self.on_stop == OnStop::Finish {
                    return Ok(format!("stop heap from {}", self.sender()));
                }
                self.window.flush(&mut frames);
            }
            if let Some(idle) = self.idle
                && self.window.silence(now).is_some_and(|silence| silence >= idle)
            {
                let (idle, sender) = (idle.as_secs_f64(), self.sender());
                return Ok(format!("no data for {idle} s (finish_after_seconds) from {sender}"));
            }
        }
        Ok("the flowgraph was stopped".to_owned())
    }

    fn sender(&self) -> String {
        self.window.sender().map_or_else(|| "any sender".to_owned(), |sender| sender.to_string())
    }
}
