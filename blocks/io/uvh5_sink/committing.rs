//! Thread that waits for the disk, so that the next dumps are written meanwhile.

use super::queue::Queue;
use crate::io::files::output_file::cannot_write;
use fxgraph::{BlockError, Env};
use fxgraph_formats::uvh5::Commit;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A commit to run.
pub struct Job {
    /// Dumps of the commit.
    pub commit: Commit,
    /// File, for errors.
    pub path: PathBuf,
    /// Whether it is the last commit of its file.
    pub is_last: bool,
}

/// The thread's handle. The thread runs one commit at a time.
pub struct Committing {
    jobs: Option<SyncSender<Job>>,
    is_busy: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Committing {
    /// Starts the thread; it reports failures to `queue`, and wakes the block.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(queue: Arc<Queue>, env: Env) -> Result<Self, BlockError> {
        // Without room for a waiting commit, `run` returns once the commit before is over.
        let (sender, receiver) = sync_channel(0);
        let is_busy = Arc::new(AtomicBool::new(false));
        let busy = Arc::clone(&is_busy);
        let threads = env.counters.threads().clone();
        let name = env.name.clone();
        let thread =
            threads.spawn("commit", &name, move || run(&receiver, &busy, &queue, &env)).map_err(
                |error| BlockError::new("cannot start the committing thread").because(error),
            )?;
        Ok(Self { jobs: Some(sender), is_busy, thread: Some(thread) })
    }

    /// Whether a commit runs.
    pub fn is_busy(&self) -> bool {
        self.is_busy.load(SeqCst)
    }

    /// Runs a commit in the thread; waits first for the one that runs.
    ///
    /// # Errors
    /// If the thread has ended after a failure, which it has reported.
    pub fn run(&self, job: Job) -> Result<(), BlockError> {
        let ended = || BlockError::new("a commit before this one has failed");
        let Some(jobs) = &self.jobs else { return Err(ended()) };
        jobs.send(job).map_err(|_| ended())
    }

    /// Waits for the commit that runs, and ends the thread.
    ///
    /// # Errors
    /// If the thread has panicked.
    pub fn end(&mut self) -> Result<(), BlockError> {
        self.jobs = None;
        let panicked = || BlockError::new("the committing thread ended without a report");
        self.thread.take().map_or(Ok(()), |thread| thread.join().map_err(|_| panicked()))
    }
}

fn run(jobs: &Receiver<Job>, is_busy: &AtomicBool, queue: &Queue, env: &Env) {
    while let Ok(job) = jobs.recv() {
        is_busy.store(true, SeqCst);
        let done = if job.is_last { job.commit.close() } else { job.commit.run(true) };
        is_busy.store(false, SeqCst);
        if let Err(error) = done {
            queue.fail(cannot_write(&job.path)(error));
            env.wake.wake();
            return;
        }
    }
}
