//! The block: lends empty frames to the receiving thread and sends filled frames to the flowgraph.

use super::layout::{Layout, Stream};
use super::thread::{Input, Link, Receiving, Report, Terms};
use super::window::{Options, Window};
use super::{OnRestart, SpeadSource};
use crate::io::spead::{address, pcap, receive};
use fxgraph::{Block, BlockError, Counters, Env, FrameMut, Io, Next};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Frames that the thread may have at once: the window, one being opened and one being returned.
pub(super) fn lent_frames(window: usize) -> usize {
    window.saturating_add(2)
}

/// Longest time that a live source waits for frames, in seconds, and as a fraction of the time that the
/// socket buffers last: they also have to hold the data that arrive until the source has caught up.
const MAX_PATIENCE_SECONDS: f64 = 1.0;
const PATIENCE: f64 = 0.5;
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
    running: Option<Running>,
    lent: usize,
    /// A filled frame that waits for room in the output.
    waiting: Option<FrameMut>,
}

struct Running {
    empty: SyncSender<FrameMut>,
    reports: Receiver<Report>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Source {
    pub(super) fn new(
        parameters: SpeadSource,
        layout: Layout,
        window: usize,
        bytes_per_second: f64,
        env: &Env,
    ) -> Self {
        Self {
            parameters,
            layout,
            window,
            bytes_per_second,
            env: env.clone(),
            running: None,
            lent: 0,
            waiting: None,
        }
    }

    fn input(&self, counters: &Counters) -> Result<Input, BlockError> {
        let parameters = &self.parameters;
        let addresses = address::parse_all(&parameters.addresses).map_err(|errors| {
            BlockError::new(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        })?;
        let Some(path) = &parameters.pcap else {
            let bytes = parameters.receive_buffer_bytes;
            let sockets = receive::open(&addresses, &parameters.interfaces, bytes)?;
            return Ok(Input::sockets(sockets, counters));
        };
        let capture = pcap::Capture::open(path).map_err(|error| {
            BlockError::new(format!("cannot read {path}: {error}")).because(error)
        })?;
        Ok(Input::file(capture, addresses, path.clone(), counters))
    }

    fn options(&self) -> Result<Options, BlockError> {
        let parameters = &self.parameters;
        let is_digitiser = matches!(self.layout.stream, Stream::Digitiser { .. });
        // A digitiser sends one heap after the other to its addresses in turn.
        let stride =
            if is_digitiser { address::parse_all(&parameters.addresses) } else { Ok(vec![]) };
        let stride = stride.map_err(|_| BlockError::new("`addresses` are not valid"))?.len();
        let senders = parameters.stop_after_senders.unwrap_or(0);
        Ok(Options {
            stride: stride.max(1) as u64,
            // Each antenna has one sender.
            senders_per_part: if is_digitiser { senders.clamp(1, MAX_SENDERS) } else { 1 },
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
            Input::Sockets { sockets, .. } if parameters.live => {
                let bytes: usize = sockets.iter().map(receive::buffer_bytes).sum();
                let seconds = PATIENCE * bytes as f64 / self.bytes_per_second;
                Some(Duration::from_secs_f64(seconds.clamp(0.0, MAX_PATIENCE_SECONDS)))
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
        // At most this many frames are lent, so sending one never blocks.
        let (empty, to_thread) = sync_channel(lent_frames(self.window));
        let (from_thread, reports) = sync_channel(lent_frames(self.window) + 1);
        let stop = Arc::new(AtomicBool::new(false));
        let link = Link::new(to_thread, from_thread, self.env.wake.clone(), Arc::clone(&stop));
        let window = Window::new(self.layout, self.options()?, &self.env);
        let receiving = Receiving::new(window, link, self.terms(&input), self.env.clone());
        let thread = std::thread::Builder::new()
            .name(format!("{} receive", self.env.name))
            .spawn(move || receiving.run(input))
            .map_err(|error| BlockError::new("cannot start the receiving thread").because(error))?;
        self.running = Some(Running { empty, reports, stop, thread: Some(thread) });
        Ok(())
    }

    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let Some(running) = &mut self.running else {
            return Err(BlockError::new("the source was not started"));
        };
        let output = &mut io.outputs[0];
        if io.stopping {
            running.stop.store(true, Ordering::Release);
        }
        loop {
            if self.waiting.is_some() && !output.has_room() {
                return Ok(Next::Wait);
            }
            if let Some(frame) = self.waiting.take() {
                output.push(frame);
            }
            match running.reports.try_recv() {
                Ok(Report::Frame(frame)) => {
                    self.lent -= 1;
                    self.waiting = Some(frame);
                }
                Ok(Report::Ended) => return Ok(Next::Finished),
                Ok(Report::Failed(error)) => return Err(error),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    return Err(BlockError::new("the receiving thread ended without a report"));
                }
            }
        }
        while self.lent < lent_frames(self.window) {
            let Some(frame) = output.take() else { break };
            // A thread that has just ended accepts no frames; the next call reads its report.
            if running.empty.try_send(frame).is_err() {
                break;
            }
            self.lent += 1;
        }
        Ok(Next::Wait)
    }

    fn finish(&mut self) -> Result<(), BlockError> {
        self.running = None;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread checks the flag at least ten times per second.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
