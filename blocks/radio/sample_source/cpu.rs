//! The block: lends empty frames to the receiving thread.

use super::byte_stream::ByteStream;
use super::causes::Causes;
use super::connection::Connector;
use super::datagrams::Datagrams;
use super::messages::Messages;
use super::protocol::Protocol;
use super::receiving::{Receiving, TextOrError};
use super::rtl_tcp::Tuner;
use super::tuning::{Settings, Tuning};
use super::{Origin, SampleSource};
use fxgraph::changes::Change;
use fxgraph::runtime::EventKind;
use fxgraph::{Block, BlockError, Configured, Env, Io, Next};
use fxgraph_common::link::{Lender, Link, Report};

/// Frames that the thread may have at once.
pub const LENT_FRAMES: usize = 6;

/// A running source.
pub struct Source {
    parameters: SampleSource,
    layout: super::Layout,
    env: Env,
    causes: Causes,
    tuning: Tuning,
    settings: Settings,
    running: Option<Lender>,
}

/// Transport of the samples.
enum Transport {
    Bytes(ByteStream),
    Datagrams(Datagrams),
}

impl Source {
    /// Creates the source.
    pub fn new(block: &Configured<SampleSource>, env: &Env) -> Self {
        let (parameters, layout) = (block.parameters.clone(), block.shape);
        let (causes, tuning) = (Causes::new(&env.counters), Tuning::default());
        let has_tuner = matches!(parameters.from, Origin::RtlTcp(_));
        let settings = Settings::new(tuning.clone(), has_tuner, layout, causes.unsettled.clone());
        let env = env.clone();
        Self { parameters, layout, env, causes, tuning, settings, running: None }
    }

    /// Opens files and sockets.
    fn transport(&self) -> Result<Transport, BlockError> {
        let Self { parameters, tuning, .. } = self;
        if let Origin::Udp(udp) = &parameters.from {
            let datagrams = Datagrams::open(udp, parameters, self.layout, &self.env)?;
            return Ok(Transport::Datagrams(datagrams));
        }
        let protocol = match &parameters.from {
            Origin::RtlTcp(rtl) => Protocol::RtlTcp(Tuner::new(parameters, rtl, tuning.clone())),
            Origin::Zmq(zmq) => Protocol::Zmq(Messages::new(zmq, self.layout.of.bytes())),
            _ => Protocol::Raw,
        };
        let connector = Connector::open(&parameters.from)?;
        Ok(Transport::Bytes(ByteStream::new(connector, protocol, parameters.stays())))
    }
}

/// Runs the receiving thread until the stream ends.
fn run(mut transport: Transport, mut receiving: Receiving, drops: bool, mut link: Link, env: &Env) {
    // Samples that arrive before the flowgraph runs wait in buffers.
    link.wait_for_first();
    receiving.begin_reading();
    if drops {
        // No sender can be held back, and its buffers are not ours to see.
        link.live = Some(Box::new(|| 1.0));
    }
    let result: TextOrError = match &mut transport {
        Transport::Bytes(stream) => stream.run(&mut receiving, &mut link),
        Transport::Datagrams(datagrams) => datagrams.run(&mut receiving, &mut link),
    };
    receiving.pause(&mut link);
    let text = result.as_ref().map_or_else(ToString::to_string, Clone::clone);
    env.summary.set(format!("the stream ended: {text}\n"));
    env.events.add(EventKind::StreamEnded, text);
    link.report(match result {
        Ok(_) => Report::Ended,
        Err(error) => Report::Failed(error),
    });
}

impl Block for Source {
    fn start(&mut self) -> Result<(), BlockError> {
        let transport = self.transport()?;
        let drops = self.parameters.from.drops();
        let window = match transport {
            Transport::Datagrams(_) => (super::datagrams::WINDOW, drops),
            Transport::Bytes(_) => (1, drops),
        };
        let receiving =
            Receiving::new(&self.parameters, self.layout, window, self.causes.clone(), &self.env);
        let env = self.env.clone();
        let run = move |link| run(transport, receiving, drops, link, &env);
        self.running = Some(Lender::start(&self.env, LENT_FRAMES, run)?);
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Self { running, settings, .. } = self;
        match running {
            Some(running) => running.work(io, |frame| settings.begin(frame)),
            None => Err(BlockError::new("the source was not started")),
        }
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.settings.offer(change)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.running = None;
        Ok(())
    }
}
