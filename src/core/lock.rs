//! Locks of data that stay consistent after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, also after a panic in another thread.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
