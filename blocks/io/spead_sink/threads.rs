//! Sending threads beside that of the block: each one has a share, and gets every frame.

use super::share::{Job, Share, Step};
use crate::common::link::TICK;
use fxgraph::{BlockError, Env};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

/// Largest number of shares.
pub const MAX_THREADS: usize = 8;
/// Names of the threads, for their busy times. The block's own thread has the first share.
const NAMES: [&str; MAX_THREADS] =
    ["send", "send_1", "send_2", "send_3", "send_4", "send_5", "send_6", "send_7"];
/// Frames that a thread holds beside those of the block: the one it sends, and the next one.
pub const HELD: usize = 2;

/// Sending threads. When it is dropped, the threads stop and are waited for.
pub struct Threads {
    all: Vec<Sending>,
    stop: Arc<AtomicBool>,
    /// The frame that is being given to the threads, and the number of threads that have it.
    given: usize,
}

struct Sending {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<Result<(), BlockError>>>,
}

impl Sending {
    /// Waits for the thread, which has ended or is about to, and returns its error.
    fn join(&mut self) -> Result<(), BlockError> {
        self.jobs = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(BlockError::new("a sending thread panicked")))
    }
}

impl Threads {
    /// Starts a thread of the block of `env` for each of `shares`.
    pub fn start(shares: Vec<Share>, env: &Env) -> Result<Self, BlockError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Self { all: Vec::with_capacity(shares.len()), stop, given: 0 };
        for (name, share) in NAMES[1..].iter().zip(shares) {
            // The thread holds one frame, so another one waits here.
            let (sender, jobs) = sync_channel(HELD - 1);
            let stop = Arc::clone(&threads.stop);
            let thread = env
                .counters
                .threads()
                .spawn(name, &env.name, move || run(share, &jobs, &stop))
                .map_err(|error| BlockError::new("cannot start a sending thread").because(error))?;
            threads.all.push(Sending { jobs: Some(sender), thread: Some(thread) });
        }
        Ok(threads)
    }

    /// Gives `job` to the threads; returns whether all of them have it. Until then, it must be given again.
    pub fn give(&mut self, job: &Job) -> Result<bool, BlockError> {
        while let Some(sending) = self.all.get_mut(self.given) {
            match sending.jobs.as_ref().map(|jobs| jobs.try_send(job.clone())) {
                Some(Ok(())) => self.given += 1,
                Some(Err(TrySendError::Full(_))) => return Ok(false),
                Some(Err(TrySendError::Disconnected(_))) | None => {
                    sending.join()?;
                    return Err(BlockError::new("a sending thread ended early"));
                }
            }
        }
        self.given = 0;
        Ok(true)
    }

    /// Notes that there are no more frames; returns whether the threads have sent theirs and ended.
    pub fn end(&mut self) -> Result<bool, BlockError> {
        for sending in &mut self.all {
            sending.jobs = None;
            if sending.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
                return Ok(false);
            }
            sending.join()?;
        }
        Ok(true)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for sending in &mut self.all {
            // The block has failed or is dropped: it reports one error only.
            let _ = sending.join();
        }
    }
}

/// Sends the heaps of `share` until there are no more `jobs`.
fn run(mut share: Share, jobs: &Receiver<Job>, stop: &AtomicBool) -> Result<(), BlockError> {
    while !stop.load(Ordering::Acquire) {
        if share.is_idle() {
            let job = if let Ok(job) = jobs.try_recv() {
                job
            } else {
                share.pace.wait_for_input();
                match jobs.recv_timeout(TICK) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            };
            share.begin(job, Instant::now());
        }
        match share.send(Instant::now())? {
            Step::Again => {}
            Step::Wait(time) => std::thread::sleep(time.min(TICK)),
            Step::Full => std::thread::sleep(super::cpu::RETRY),
        }
    }
    Ok(())
}
