//! Runs block code and converts errors, panics and aborts into an [`Outcome`].

use super::cell::Cell;
use super::fault::Fault;
use super::run::Run;
use fxgraph_core::error::BlockError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

/// A method of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Start,
    /// Counts as busy time.
    Work,
    /// Runs to its end even if the run is aborted, so that files stay readable.
    Finish,
}

/// How a call ended.
pub(super) enum Outcome<T> {
    Done(T),
    Failed(Fault),
    /// The run was aborted while the call awaited something.
    Aborted,
}

/// Runs `future` until it completes, panics or the run is aborted.
pub(super) async fn attend<T>(
    run: &Run,
    cell: &Cell,
    call: Call,
    future: impl Future<Output = Result<T, BlockError>>,
) -> Outcome<T> {
    let mut future = pin!(future);
    if call == Call::Finish {
        cell.set_finishing(true);
    }
    let outcome = std::future::poll_fn(|context| {
        let began = Instant::now();
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        if call == Call::Work {
            cell.add_busy(began.elapsed());
        }
        match polled {
            Ok(Poll::Ready(Ok(value))) => Poll::Ready(Outcome::Done(value)),
            Ok(Poll::Ready(Err(error))) => Poll::Ready(Outcome::Failed(Fault::error(&error))),
            Err(panic) => Poll::Ready(Outcome::Failed(Fault::panic(panic.as_ref()))),
            Ok(Poll::Pending) if call == Call::Finish => Poll::Pending,
            Ok(Poll::Pending) => {
                // Registered before the check, so that an abort in between wakes this task.
                cell.waits_as(context.waker());
                if run.is_aborting() { Poll::Ready(Outcome::Aborted) } else { Poll::Pending }
            }
        }
    })
    .await;
    if call == Call::Finish {
        cell.set_finishing(false);
    }
    outcome
}
