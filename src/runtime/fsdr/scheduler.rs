//! Scheduler of the blocks of one run, with a guard around each block, and separate threads for blocks with
//! `thread: own`.

use super::workers::Workers;
use crate::fault::Fault;
use crate::report::StartError;
use crate::run::Run;
use futuresdr::futures::FutureExt;
use futuresdr::runtime::channel::mpsc::Sender;
use futuresdr::runtime::channel::oneshot;
use futuresdr::runtime::dev::Block;
use futuresdr::runtime::scheduler::{Scheduler, Task};
use futuresdr::runtime::{BlockId, FlowgraphMessage};
use fxgraph_core::lock::lock;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

type Job = Pin<Box<dyn Future<Output = ()> + Send>>;
type Ended = (BlockId, Box<dyn Block>);

/// A thread that waits for its block.
pub(super) struct OwnThread(mpsc::Sender<Job>);

impl OwnThread {
    /// Creates the thread of `block`, bound to `core` if given.
    pub fn spawn(block: &str, core: Option<usize>) -> Result<Self, StartError> {
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        let place = core.map(|id| cores.iter().copied().find(|core| core.id == id).ok_or(id));
        let place = place.transpose().map_err(|core| StartError::NoSuchCore {
            block: block.to_owned(),
            core,
            offered: cores.iter().map(|core| core.id).collect(),
        })?;
        let (sender, jobs) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            // The system's thread names end at a zero byte.
            .name(block.replace('\0', ""))
            .spawn(move || {
                if let Some(core) = place.filter(|core| !core_affinity::set_for_current(*core)) {
                    tracing::warn!("cannot bind the thread to core {}", core.id);
                }
                if let Ok(job) = jobs.recv() {
                    async_io::block_on(job);
                }
            })
            .map_err(|source| StartError::NoThread { block: block.to_owned(), source })?;
        Ok(Self(sender))
    }
}

/// The scheduler of one run.
#[derive(Clone)]
pub(super) struct Guard {
    shared: Workers,
    threads: Arc<Mutex<HashMap<BlockId, OwnThread>>>,
    run: Arc<Run>,
}

impl Guard {
    pub fn new(shared: Workers, threads: HashMap<BlockId, OwnThread>, run: Arc<Run>) -> Self {
        Self { shared, threads: Arc::new(Mutex::new(threads)), run }
    }

    fn spawn_block(&self, block: Box<dyn Block>, main: Sender<FlowgraphMessage>) -> Task<Ended> {
        let id = block.id();
        let thread = lock(&self.threads).remove(&id);
        let job = guarded(block, main, Arc::clone(&self.run));
        let Some(thread) = thread else {
            let usual = Arc::clone(&self.run.cells[id.0].usual_nanoseconds);
            let usual = move || Duration::from_nanos(usual.load(Ordering::Relaxed));
            return self.shared.spawn(job, usual);
        };
        let (done, ended) = oneshot::channel();
        let job = Box::pin(async move {
            let _ = done.send(job.await);
        });
        // The thread waits for this job only.
        let _ = thread.0.send(job);
        self.spawn(async move { ended.await.expect("a guarded block always comes back") })
    }
}

/// Runs a block from its start to its end. The adapter catches faults of the block; any other panic would
/// end a worker thread, and with it the process, and is caught here.
async fn guarded(
    mut block: Box<dyn Block>,
    main: Sender<FlowgraphMessage>,
    run: Arc<Run>,
) -> Ended {
    let id = block.id();
    let panicked = AssertUnwindSafe(block.run(main.clone())).catch_unwind().await.is_err();
    let cell = &run.cells[id.0];
    if panicked {
        let cause = "the runtime panicked outside the block's code".to_owned();
        run.fail(cell, Fault { panic: true, ..Fault::of(cause) });
    }
    run.arrive(cell);
    if panicked {
        let _ = main.send(FlowgraphMessage::BlockError { block_id: id }).await;
    }
    (id, block)
}

impl Scheduler for Guard {
    fn run_flowgraph(
        &self,
        blocks: Vec<Box<dyn Block>>,
        main: &Sender<FlowgraphMessage>,
    ) -> Vec<Task<Ended>> {
        for block in &blocks {
            let notifier = block.inbox().notifier();
            self.run.cells[block.id().0].wake.set(move || notifier.notify());
        }
        blocks.into_iter().map(|block| self.spawn_block(block, main.clone())).collect()
    }

    fn spawn<T: Send + 'static>(&self, f: impl Future<Output = T> + Send + 'static) -> Task<T> {
        self.shared.spawn(f, || Duration::ZERO)
    }

    /// Not used: no block of a run is blocking.
    fn spawn_blocking<T: Send + 'static>(
        &self,
        f: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        self.shared.spawn(f, || Duration::ZERO)
    }
}
