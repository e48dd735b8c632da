//! Atomics, locks, threads, queues, channels and the clock for data shared between threads: those of the standard library
//! or, with the feature `shuttle`, those of a model checker that tries orders of threads (`runtime/models.rs`).

#[cfg(feature = "shuttle")]
use std::sync::OnceLock;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(feature = "shuttle")]
pub use shuttle::thread;
#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub use std::thread;

#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(feature = "shuttle")]
pub use shuttle::sync::mpsc;
#[cfg(not(feature = "shuttle"))]
pub use std::sync::mpsc;

/// The time now.
#[cfg(not(feature = "shuttle"))]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}

/// The time now, for limits of a model: between two looks a second has passed, or nothing.
#[cfg(feature = "shuttle")]
#[must_use]
pub fn now() -> Instant {
    use shuttle::rand::{Rng, thread_rng};
    static START: OnceLock<Instant> = OnceLock::new();
    static SECONDS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let passed = u64::from(thread_rng().gen_bool(0.25));
    let seconds = SECONDS.fetch_add(passed, Ordering::Relaxed) + passed;
    *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
}

/// Waits up to `limit` for a message.
#[cfg(not(feature = "shuttle"))]
pub fn receive<T>(from: &mpsc::Receiver<T>, limit: Duration) -> Result<T, RecvTimeoutError> {
    from.recv_timeout(limit)
}

/// Waits for a message. A limit of zero has passed whenever a model looks, others never pass.
#[cfg(feature = "shuttle")]
pub fn receive<T>(from: &mpsc::Receiver<T>, limit: Duration) -> Result<T, RecvTimeoutError> {
    if !limit.is_zero() {
        return from.recv_timeout(limit);
    }
    from.try_recv().map_err(|error| match error {
        mpsc::TryRecvError::Empty => RecvTimeoutError::Timeout,
        mpsc::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
    })
}

#[cfg(not(feature = "shuttle"))]
pub use concurrent_queue::ConcurrentQueue;
#[cfg(feature = "shuttle")]
pub use queue::ConcurrentQueue;

/// The part of the crate `concurrent_queue` that is used here, with points where threads may switch.
#[cfg(feature = "shuttle")]
mod queue {
    use concurrent_queue::{ForcePushError, PopError, PushError};
    use shuttle::sync::{Mutex, MutexGuard};
    use std::collections::VecDeque;
    use std::sync::PoisonError;

    pub struct ConcurrentQueue<T> {
        items: Mutex<VecDeque<T>>,
        capacity: usize,
    }

    impl<T> ConcurrentQueue<T> {
        pub fn bounded(capacity: usize) -> Self {
            Self { items: Mutex::new(VecDeque::new()), capacity }
        }

        fn items(&self) -> MutexGuard<'_, VecDeque<T>> {
            self.items.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn push(&self, item: T) -> Result<(), PushError<T>> {
            let mut items = self.items();
            if items.len() == self.capacity {
                return Err(PushError::Full(item));
            }
            items.push_back(item);
            Ok(())
        }

        #[allow(clippy::unnecessary_wraps, reason = "the crate's signature")]
        pub fn force_push(&self, item: T) -> Result<Option<T>, ForcePushError<T>> {
            let mut items = self.items();
            let oldest = if items.len() == self.capacity { items.pop_front() } else { None };
            items.push_back(item);
            Ok(oldest)
        }

        pub fn pop(&self) -> Result<T, PopError> {
            self.items().pop_front().ok_or(PopError::Empty)
        }

        pub fn len(&self) -> usize {
            self.items().len()
        }

        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        pub fn is_full(&self) -> bool {
            self.len() == self.capacity
        }

        #[allow(clippy::unnecessary_wraps, reason = "the crate's signature")]
        pub fn capacity(&self) -> Option<usize> {
            Some(self.capacity)
        }
    }
}
