//! Queues between a source and its receiving thread: empty frames to the thread, filled frames to the block.

use fxgraph::kind::Waker;
use fxgraph::{BlockError, Env, FrameMut, Io, Next};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval at which a receiving thread checks whether it must stop.
pub const TICK: Duration = Duration::from_millis(50);

/// Used fraction of a socket buffer from which a live source does not wait for a frame.
const FULL: f32 = 0.9;
/// Longest time that a live source waits for a frame.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Interval at which a live source that waits looks at its socket buffers.
const LOOK: Duration = Duration::from_millis(1);

/// Returns the used fraction of the fullest buffer of a source, 0 to 1.
pub type Fill = Box<dyn Fn() -> f32 + Send>;

/// Source of empty frames and destination of filled frames.
pub trait Frames {
    /// Returns an unused frame; `None` if the flowgraph does not keep up (or is stopping).
    fn take(&mut self) -> Option<FrameMut>;
    /// Sends a frame to which no more data are added.
    fn push(&mut self, frame: FrameMut);
}

/// Message from the thread to the block.
pub enum Report {
    /// A filled frame.
    Frame(FrameMut),
    /// The stream has ended.
    Ended,
    /// The thread has ended with an error.
    Failed(BlockError),
}

/// The thread's side of the queues to the block.
pub struct Link {
    empty: Receiver<FrameMut>,
    reports: SyncSender<Report>,
    waker: Waker,
    stop: Arc<AtomicBool>,
    /// Used fraction of the fullest buffer of a live source, which waits for a frame only while its buffers have room;
    /// `None` waits without limit.
    pub live: Option<Fill>,
    /// The first frame, for which the thread waited before the stream.
    first: Option<FrameMut>,
}

impl Link {
    /// Whether the thread must stop.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns the flag that is set when the thread must stop, for threads that do not have the link.
    #[must_use]
    pub fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Waits for the first frame, and so for the start of the flowgraph.
    pub fn wait_for_first(&mut self) {
        self.first = self.wait();
    }

    /// Waits without limit for an empty frame; returns `None` if the thread must stop.
    fn wait(&self) -> Option<FrameMut> {
        while !self.stopping() {
            match self.empty.recv_timeout(TICK) {
                Ok(frame) => return Some(frame),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Waits for an empty frame while the buffers have room, at most [`LONGEST_WAIT`]. `fill` is their used fraction.
    fn wait_with_room(&self, fill: &Fill) -> Option<FrameMut> {
        let began = Instant::now();
        while !self.stopping() && began.elapsed() < LONGEST_WAIT && fill() < FULL {
            if let Ok(frame) = self.empty.recv_timeout(LOOK) {
                return Some(frame);
            }
        }
        None
    }

    /// Sends `report` to the block and wakes it.
    pub fn report(&self, report: Report) {
        // The queue has room for all lent frames and the final report; a dropped block needs neither.
        let _ = self.reports.send(report);
        self.waker.wake();
    }
}

impl Frames for Link {
    fn take(&mut self) -> Option<FrameMut> {
        if let Some(frame) = self.first.take() {
            return Some(frame);
        }
        if let Ok(frame) = self.empty.try_recv() {
            return Some(frame);
        }
        match &self.live {
            None => self.wait(),
            Some(fill) => self.wait_with_room(fill),
        }
    }

    fn push(&mut self, frame: FrameMut) {
        self.report(Report::Frame(frame));
    }
}

/// Wakes the block when the thread has ended, also by a panic, so that it sees that the queues have no other side.
struct WokenAtEnd(Waker);

impl Drop for WokenAtEnd {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// The block's side of the queues. When it is dropped, the thread stops and is waited for.
pub struct Lender {
    empty: SyncSender<FrameMut>,
    reports: Receiver<Report>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Frames that the thread has, and may have at most.
    lent: usize,
    most: usize,
    /// A filled frame that waits for room in the output.
    waiting: Option<FrameMut>,
}

impl Lender {
    /// Starts the thread `receive` of the block of `env`, which runs `run` with up to `most` frames.
    pub fn start(
        env: &Env,
        most: usize,
        run: impl FnOnce(Link) + Send + 'static,
    ) -> Result<Self, BlockError> {
        // At most this many frames are lent, so sending one never blocks.
        let (empty, to_thread) = sync_channel(most);
        let (from_thread, reports) = sync_channel(most + 1);
        let stop = Arc::new(AtomicBool::new(false));
        let link = Link {
            empty: to_thread,
            reports: from_thread,
            waker: env.wake.clone(),
            stop: Arc::clone(&stop),
            live: None,
            first: None,
        };
        let woken = WokenAtEnd(env.wake.clone());
        let run = move || {
            let _woken = woken;
            run(link);
        };
        let thread =
            env.counters.threads().spawn("receive", &env.name, run).map_err(|error| {
                BlockError::new("cannot start the receiving thread").because(error)
            })?;
        Ok(Self { empty, reports, stop, thread: Some(thread), lent: 0, most, waiting: None })
    }

    /// Pushes filled frames to output 0, each after a call of `finish`, and lends empty ones: the `work` of the source.
    pub fn work(
        &mut self,
        io: &mut Io<'_>,
        mut finish: impl FnMut(&mut FrameMut),
    ) -> Result<Next, BlockError> {
        let output = &mut io.outputs[0];
        if io.stopping {
            self.stop.store(true, Ordering::Release);
        }
        loop {
            if self.waiting.is_some() && !output.has_room() {
                return Ok(Next::Wait);
            }
            if let Some(frame) = self.waiting.take() {
                output.push(frame);
            }
            match self.reports.try_recv() {
                Ok(Report::Frame(mut frame)) => {
                    self.lent -= 1;
                    finish(&mut frame);
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
        while self.lent < self.most {
            let Some(frame) = output.take() else { break };
            // A thread that has just ended accepts no frames; the next call reads its report.
            if self.empty.try_send(frame).is_err() {
                break;
            }
            self.lent += 1;
        }
        Ok(Next::Wait)
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread checks the flag at least ten times per second.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    #[test]
    fn panic_of_the_thread_wakes_the_block() {
        let env = Env::detached("source");
        let (waking, woken) = channel();
        let waking = Mutex::new(waking);
        assert!(env.wake.set(move || waking.lock().unwrap().send(()).unwrap()));
        let lender = Lender::start(&env, 1, |_link| panic!("deliberate")).unwrap();
        woken.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(matches!(lender.reports.try_recv(), Err(TryRecvError::Disconnected)));
    }
}
