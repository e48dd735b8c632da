//! Calls a block's own code so that nothing it does gets past the caller.

use super::cell::Cell;
use super::run::{Fault, Run};
use fxgraph_core::error::BlockError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

/// What of a block is called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Start,
    /// Counts as busy time.
    Work,
    /// Goes through also when the run is aborted: files are to be left readable.
    Finish,
}

/// How a call ended.
pub(super) enum Outcome<T> {
    Done(T),
    Failed(Fault),
    /// The run was aborted while the call awaited something.
    Aborted,
}

/// Runs `future` to its end, to its panic or to an abort of the run.
pub(super) async fn attend<T>(
    run: &Run,
    cell: &Cell,
    call: Call,
    future: impl Future<Output = Result<T, BlockError>>,
) -> Outcome<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|context| {
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
                // First where to find us, then the question: an abort in between finds us.
                cell.waits_as(context.waker());
                if run.is_aborting() { Poll::Ready(Outcome::Aborted) } else { Poll::Pending }
            }
        }
    })
    .await
}
