//! FutureSDR's scheduler on the thread of the hosting block: tasks run only inside the block's `work`.
//!
//! FutureSDR's own schedulers start threads, end the process when a block panics, and never drop an executor. Here
//! a panic propagates through `work`, and dropping the executor drops every block of the sub-flowgraph.

use async_task::Runnable;
use futuresdr::runtime::channel::mpsc::Sender;
use futuresdr::runtime::dev::{Block, BlockNotifier};
use futuresdr::runtime::scheduler::{Scheduler, Task};
use futuresdr::runtime::{BlockId, FlowgraphMessage};
use fxgraph::kind::Waker;
use fxgraph::lock::lock;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// Number of tasks run in one call, after which the hosting block yields its thread.
const TURN: usize = 256;

/// Owner of all tasks of one sub-flowgraph.
pub(crate) struct Executor(Arc<Shared>);

/// Scheduler interface of the executor for FutureSDR.
#[derive(Clone)]
pub(crate) struct Tasks(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    futures: Mutex<Vec<Arc<dyn Kill>>>,
    /// Notifiers of the blocks of the sub-flowgraph, in the order of their numbers.
    notifiers: Mutex<Vec<BlockNotifier>>,
    /// Waker of the hosting block.
    wake: Waker,
}

struct Queue {
    ready: VecDeque<Runnable>,
    /// Whether the hosting block is running, and finds tasks that become ready without being woken.
    is_running: bool,
}

/// Future of a task, which can be dropped while wakers still reference the task.
struct Held<T>(Mutex<Option<Pin<Box<dyn Future<Output = T> + Send>>>>);

trait Kill: Send + Sync {
    fn kill(&self);
}

impl<T> Kill for Held<T> {
    fn kill(&self) {
        let future = lock(&self.0).take();
        // Dropped outside the lock, because it may cancel other tasks.
        drop(future);
    }
}

impl<T> Held<T> {
    fn poll(&self, context: &mut Context<'_>) -> Poll<T> {
        let mut future = lock(&self.0);
        let Some(running) = future.as_mut() else { return Poll::Pending };
        let polled = running.as_mut().poll(context);
        if polled.is_ready() {
            *future = None;
        }
        polled
    }
}

impl Executor {
    pub fn new(wake: Waker) -> Self {
        Self(Arc::new(Shared {
            queue: Mutex::new(Queue { ready: VecDeque::new(), is_running: false }),
            futures: Mutex::default(),
            notifiers: Mutex::default(),
            wake,
        }))
    }

    pub fn tasks(&self) -> Tasks {
        Tasks(Arc::clone(&self.0))
    }

    /// Wakes the `blocks` that have work, and runs tasks that are ready; returns `false` if more tasks are ready than
    /// one turn allows. A panic of a task is a panic of this call.
    pub fn run(&self, blocks: &[(BlockId, bool)]) -> bool {
        // Set first, so that the blocks woken here do not wake the hosting block for another call.
        lock(&self.0.queue).is_running = true;
        let notifiers = lock(&self.0.notifiers);
        for (id, _) in blocks.iter().filter(|(_, is_woken)| *is_woken) {
            // Before the flowgraph has started there is no notifier, and every block begins with a call of `work`.
            if let Some(notifier) = notifiers.get(id.0) {
                notifier.notify();
            }
        }
        drop(notifiers);
        for _ in 0..TURN {
            let mut queue = lock(&self.0.queue);
            let Some(runnable) = queue.ready.pop_front() else {
                queue.is_running = false;
                return true;
            };
            drop(queue);
            runnable.run();
        }
        lock(&self.0.queue).is_running = false;
        false
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Cancelled tasks must not wake the hosting block.
        lock(&self.0.queue).is_running = true;
        let futures = std::mem::take(&mut *lock(&self.0.futures));
        futures.iter().for_each(|future| future.kill());
        loop {
            let runnable = lock(&self.0.queue).ready.pop_front();
            if runnable.is_none() {
                break;
            }
        }
    }
}

impl Shared {
    fn schedule(&self, runnable: Runnable) {
        let mut queue = lock(&self.queue);
        queue.ready.push_back(runnable);
        let is_running = queue.is_running;
        drop(queue);
        if !is_running {
            self.wake.wake();
        }
    }
}

impl Scheduler for Tasks {
    fn run_flowgraph(
        &self,
        blocks: Vec<Box<dyn Block>>,
        main: &Sender<FlowgraphMessage>,
    ) -> Vec<Task<(BlockId, Box<dyn Block>)>> {
        *lock(&self.0.notifiers) = blocks.iter().map(|block| block.inbox().notifier()).collect();
        let spawn = |mut block: Box<dyn Block>| {
            let main = main.clone();
            self.spawn(async move {
                block.run(main).await;
                (block.id(), block)
            })
        };
        blocks.into_iter().map(spawn).collect()
    }

    fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let held = Arc::new(Held(Mutex::new(Some(Box::pin(future) as _))));
        lock(&self.0.futures).push(Arc::clone(&held) as _);
        let shared = Arc::downgrade(&self.0);
        let (runnable, task) = async_task::spawn(
            std::future::poll_fn(move |context| held.poll(context)),
            move |runnable| {
                // A timer may fire after the sub-flowgraph has been dropped.
                if let Some(shared) = shared.upgrade() {
                    shared.schedule(runnable);
                }
            },
        );
        runnable.schedule();
        task
    }

    /// Not supported: there is no other thread, and [`Graph::add`](crate::Graph::add) rejects blocks that need one.
    fn spawn_blocking<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        self.spawn(future)
    }
}
