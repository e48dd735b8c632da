//! Worker threads that run the blocks of one run.
//!
//! To wake a thread costs more than a call of `work` does for most blocks in front of and behind a GPU. Therefore blocks
//! that become ready wake no further worker if the one on whose thread they become ready will run them soon: after a
//! turn that has just ended, or after a call that is usually short.

use super::ready::{self, Ready, SHORT, Taker};
use async_task::{Runnable, ScheduleInfo, WithInfo};
use futuresdr::runtime::config;
use futuresdr::runtime::scheduler::Task;
use std::cell::RefCell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Queue = Arc<Ready<Runnable>>;

thread_local! {
    /// The worker of this thread.
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

struct Worker {
    queue: Queue,
    turn: Turn,
    /// Time since which tasks wait for this worker, if there are any.
    deferred: Option<Instant>,
}

/// State of a worker.
#[derive(Clone, Copy)]
enum Turn {
    /// It takes a task next.
    Over,
    /// It runs a task.
    Runs,
    /// It runs a call of a task that is usually short and began at this time.
    Short(Instant),
}

/// Worker threads. The last clone that is dropped ends them.
#[derive(Clone)]
pub(super) struct Workers(Arc<Threads>);

struct Threads {
    queue: Queue,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `count` threads.
    pub fn start(count: usize) -> io::Result<Self> {
        let mut workers = Threads { queue: Queue::default(), threads: Vec::with_capacity(count) };
        for number in 0..count {
            let queue = Arc::clone(&workers.queue);
            let thread = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .stack_size(config::config().stack_size);
            workers.threads.push(thread.spawn(move || run(queue))?);
        }
        Ok(Self(Arc::new(workers)))
    }

    /// Returns a function that wakes a worker if tasks are ready, which does not keep the workers.
    pub fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let queue = Arc::downgrade(&self.0.queue);
        move || {
            if let Some(queue) = queue.upgrade() {
                queue.wake();
            }
        }
    }

    /// Runs `future` on the workers. A turn takes the time that `usual` returns.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
        usual: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Task<T> {
        let queue = Arc::downgrade(&self.0.queue);
        let schedule = move |runnable: Runnable, info: ScheduleInfo| {
            // A timer may fire after the workers have ended.
            if let Some(queue) = queue.upgrade() {
                schedule(&queue, runnable, info, usual());
            }
        };
        let (runnable, task) = async_task::spawn(future, WithInfo(schedule));
        runnable.schedule();
        task
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue.close();
        let own = std::thread::current().id();
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

/// Runs tasks until the queue is closed.
fn run(queue: Queue) {
    let tasks = Arc::clone(&queue);
    WORKER.set(Some(Worker { queue, turn: Turn::Over, deferred: None }));
    while let Some((runnable, is_left)) = tasks.take() {
        let since = is_left.then(Instant::now);
        with_worker(|worker| (worker.turn, worker.deferred) = (Turn::Runs, since));
        // A task that panics shows it to the code that awaits the task.
        let _ = catch_unwind(AssertUnwindSafe(|| runnable.run()));
        with_worker(|worker| worker.turn = Turn::Over);
    }
}

/// Calls `access` with the worker of this thread, if it is one.
fn with_worker<R>(access: impl FnOnce(&mut Worker) -> R) -> Option<R> {
    // At the end of the thread there is no worker.
    WORKER.try_with(|worker| worker.borrow_mut().as_mut().map(access)).ok().flatten()
}

fn schedule(queue: &Queue, runnable: Runnable, info: ScheduleInfo, usual: Duration) {
    let taker = with_worker(|worker| {
        if !Arc::ptr_eq(&worker.queue, queue) {
            return Taker::Any;
        }
        match worker.turn {
            Turn::Over => Taker::This,
            // Its own turn has just ended.
            Turn::Runs | Turn::Short(_) if info.woken_while_running => Taker::This,
            Turn::Runs => Taker::Any,
            Turn::Short(began) => {
                worker.deferred.get_or_insert(began);
                Taker::This
            }
        }
    });
    queue.add(runnable, usual, taker.unwrap_or(Taker::Any));
}

/// Notes that the turn goes on with work of unknown time: other workers take the tasks that wait for this one.
pub(super) fn goes_on() {
    with_worker(|worker| {
        if worker.deferred.take().is_some() {
            worker.queue.wake();
        }
    });
}

/// Runs `call`, a part of a task that begins at `now` and usually takes the time `usual`.
pub(super) async fn attended<T>(now: Instant, usual: Duration, call: impl Future<Output = T>) -> T {
    let is_short = usual < SHORT;
    with_worker(|worker| {
        // The turn goes on: other workers take the tasks for which it has not ended soon enough.
        let is_late = |since: &mut Instant| !is_short || now - *since > SHORT;
        if worker.deferred.take_if(is_late).is_some() {
            worker.queue.wake();
        }
    });
    let mut call = pin!(call);
    std::future::poll_fn(|context| {
        with_worker(|worker| worker.turn = if is_short { Turn::Short(now) } else { Turn::Runs });
        let polled = call.as_mut().poll(context);
        with_worker(|worker| worker.turn = Turn::Runs);
        polled
    })
    .await
}

/// Waits for `time`.
pub(super) async fn after(time: Duration) {
    let Some(queue) = with_worker(|worker| Arc::downgrade(&worker.queue)) else {
        async_io::Timer::after(time).await;
        return;
    };
    Alarm { at: Instant::now().checked_add(time), queue, timer: None }.await;
}

/// Ends at a time, on a worker.
struct Alarm {
    /// `None`: never.
    at: Option<Instant>,
    queue: Weak<Ready<Runnable>>,
    timer: Option<ready::Timer>,
}

impl Alarm {
    fn remove(&mut self) {
        if let Some((timer, queue)) = self.timer.take().zip(self.queue.upgrade()) {
            queue.remove(timer);
        }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        if Instant::now() >= at {
            return Poll::Ready(());
        }
        self.remove();
        let waker = context.waker().clone();
        self.timer = self.queue.upgrade().map(|queue| queue.set(at, waker));
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn workers_end_with_their_last_owner() {
        let workers = Workers::start(3).unwrap();
        let queue = Arc::downgrade(&workers.0.queue);
        let other = workers.clone();
        drop(workers);
        assert_eq!(async_io::block_on(other.spawn(async { 7 }, || Duration::ZERO)), 7);
        drop(other);
        assert!(queue.upgrade().is_none(), "no thread has the queue");
    }

    #[test]
    fn last_owner_may_be_a_task() {
        let workers = Workers::start(2).unwrap();
        let own = workers.clone();
        let (done, is_done) = channel();
        let end = async move {
            drop(own);
            done.send(()).unwrap();
        };
        workers.spawn(end, || Duration::ZERO).detach();
        let queue = Arc::downgrade(&workers.0.queue);
        drop(workers);
        is_done.recv().unwrap();
        while queue.upgrade().is_some() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn panic_of_a_task_leaves_its_worker() {
        let workers = Workers::start(1).unwrap();
        workers.spawn(async { panic!("deliberate") }, || Duration::ZERO).detach();
        assert_eq!(async_io::block_on(workers.spawn(async { 7 }, || Duration::ZERO)), 7);
    }

    #[test]
    fn timers_end_while_workers_sleep_or_work() {
        let workers = Workers::start(2).unwrap();
        let began = Instant::now();
        let long = || std::thread::sleep(Duration::from_millis(20));
        workers.spawn(async move { long() }, || Duration::MAX / 4).detach();
        let (ended, all) = channel();
        for millis in [30, 10, 20] {
            let ended = ended.clone();
            let task = async move {
                after(Duration::from_millis(millis)).await;
                assert!(began.elapsed() >= Duration::from_millis(millis));
                ended.send(millis).unwrap();
            };
            workers.spawn(task, || Duration::ZERO).detach();
        }
        drop(ended);
        let mut ended: Vec<_> = all.iter().collect();
        ended.sort_unstable();
        assert_eq!(ended, [10, 20, 30]);
        assert!(began.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn timer_that_is_not_awaited_any_more_is_removed() {
        let workers = Workers::start(1).unwrap();
        let queue = Arc::clone(&workers.0.queue);
        let timers = move || queue.timers();
        let task = async move {
            let mut long = Box::pin(after(Duration::from_secs(1000)));
            let mut short = Box::pin(after(Duration::from_millis(10)));
            std::future::poll_fn(|context| {
                assert!(long.as_mut().poll(context).is_pending());
                short.as_mut().poll(context)
            })
            .await;
            assert_eq!(timers(), 1);
            drop(long);
            timers()
        };
        assert_eq!(async_io::block_on(workers.spawn(task, || Duration::ZERO)), 0);
    }

    #[test]
    fn tasks_that_wait_for_a_call_run_after_a_wake_up() {
        let workers = Workers::start(2).unwrap();
        let own = workers.clone();
        let (sender, receiver) = channel();
        let task = async move {
            let call = async move {
                own.spawn(async move { sender.send(()).unwrap() }, || Duration::ZERO).detach();
                receiver.recv().unwrap();
            };
            attended(Instant::now(), Duration::ZERO, call).await;
        };
        let task = workers.spawn(task, || Duration::ZERO);
        let wake = workers.waker();
        while !task.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
            wake();
        }
    }

    #[test]
    fn tasks_that_a_call_makes_ready_run_while_it_goes_on() {
        let workers = Workers::start(2).unwrap();
        let own = workers.clone();
        let (sender, receiver) = channel();
        let task = async move {
            let now = Instant::now();
            let spawn = async {
                own.spawn(async move { sender.send(()).unwrap() }, || Duration::ZERO).detach();
            };
            attended(now, Duration::ZERO, spawn).await;
            // The next call is long.
            let wait = async move { receiver.recv().unwrap() };
            attended(now, Duration::MAX, wait).await;
        };
        async_io::block_on(workers.spawn(task, || Duration::ZERO));
    }
}
