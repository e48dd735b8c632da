//! Live updates that blocks request: a block computes new values of live parameters of other blocks from the stream,
//! for example gains from visibilities.
//!
//! A request never delays the block: a thread of the run makes the update, as for a client, and the block is woken
//! when the answer is there.

use crate::event::BlockEvents;
use crate::kind::{Env, Waker};
use crate::lock::lock;
use serde_json::Value as Json;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};

/// Largest number of requests of a run that are not answered yet.
pub const MAX_REQUESTS: usize = 16;

/// Live parameter of another block that a block changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name of the other block.
    pub block: String,
    /// Its live parameter.
    pub parameter: &'static str,
    /// Parameter of the requesting block that names the other block, as a path with dots.
    pub named_by: String,
}

/// Values of a parameter of several blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InForce {
    /// Value for each block; `None` for the default of its kind.
    pub values: Vec<Option<Json>>,
    /// Timestamp from which all output of the run reflects these values.
    pub from: u64,
}

/// Control of a run, which makes the updates.
pub trait Controller: Send + Sync {
    /// Changes live parameters: a mapping from names of blocks to parameters, all of them or none. Returns the
    /// effective timestamp, or the reason why nothing was changed.
    fn update(&self, parameters: &Json) -> Result<u64, String>;

    /// Values of `parameter` of `blocks`; `None` if one of the blocks does not exist.
    fn in_force(&self, blocks: &[String], parameter: &str) -> Option<InForce>;
}

/// Requests of the blocks of a run, and the control that answers them. Cheap to clone.
#[derive(Clone, Default)]
pub struct LiveUpdates(Arc<Shared>);

#[derive(Default)]
struct Shared {
    controller: Mutex<Option<Arc<dyn Controller>>>,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Whether a thread works on the queue.
    has_thread: bool,
}

struct Waiting {
    parameters: Json,
    answer: Answer,
    wake: Waker,
}

impl LiveUpdates {
    /// Sets the control that answers requests.
    pub fn serve(&self, controller: Arc<dyn Controller>) {
        *lock(&self.0.controller) = Some(controller);
    }

    fn controller(&self) -> Option<Arc<dyn Controller>> {
        lock(&self.0.controller).clone()
    }

    /// Answers the requests in the queue, in order.
    fn answer_all(&self) {
        loop {
            let mut queue = lock(&self.0.queue);
            let Some(Waiting { parameters, answer, wake }) = queue.waiting.pop_front() else {
                queue.has_thread = false;
                return;
            };
            drop(queue);
            let update = || match self.controller() {
                Some(controller) => controller.update(&parameters),
                None => Err(NO_CONTROL.to_owned()),
            };
            let result = catch_unwind(AssertUnwindSafe(update));
            let result = result.unwrap_or_else(|_| Err("the update panicked".to_owned()));
            let _ = answer.0.set(result);
            wake.wake();
        }
    }
}

/// Reason why a request was rejected without an attempt.
const NO_CONTROL: &str = "this run has no control";

/// Answer to a request. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Answer(Arc<OnceLock<Result<u64, String>>>);

impl Answer {
    /// Effective timestamp of the update, or the reason why it was not made; `None` until the update is over.
    #[must_use]
    pub fn get(&self) -> Option<&Result<u64, String>> {
        self.0.get()
    }
}

/// Requests live updates for one block.
#[derive(Clone)]
pub struct Requester {
    updates: LiveUpdates,
    events: BlockEvents,
    wake: Waker,
}

impl Requester {
    /// The requester for the block of `env`.
    #[must_use]
    pub fn new(env: &Env) -> Self {
        let Env { updates, events, wake, .. } = env;
        Self { updates: updates.clone(), events: events.clone(), wake: wake.clone() }
    }

    /// Values of `parameter` of `blocks`; `None` without a control, or if one of the blocks does not exist.
    #[must_use]
    pub fn in_force(&self, blocks: &[String], parameter: &str) -> Option<InForce> {
        self.updates.controller()?.in_force(blocks, parameter)
    }

    /// Requests new values of live parameters: a mapping from names of blocks to parameters. They change together, at
    /// one effective timestamp, or not at all. The block is woken when the answer is there.
    ///
    /// # Errors
    /// If the block is a candidate of a swap or a shadow, which must not change other blocks; if too many requests
    /// are not answered; or if the run has no control.
    pub fn request(&self, parameters: Json) -> Result<Answer, String> {
        if !self.events.is_in_slot() {
            return Err("a candidate or a shadow must not change other blocks".to_owned());
        }
        if self.updates.controller().is_none() {
            return Err(NO_CONTROL.to_owned());
        }
        let answer = Answer::default();
        let mut queue = lock(&self.updates.0.queue);
        if queue.waiting.len() >= MAX_REQUESTS {
            return Err(format!("{MAX_REQUESTS} requests of live updates are not answered yet"));
        }
        let wake = self.wake.clone();
        queue.waiting.push_back(Waiting { parameters, answer: answer.clone(), wake });
        if !queue.has_thread {
            // The thread ends with the last request, so that nothing remains of it when the run ends.
            let updates = self.updates.clone();
            let thread = std::thread::Builder::new().name("live updates".to_owned());
            if let Err(error) = thread.spawn(move || updates.answer_all()) {
                queue.waiting.pop_back();
                return Err(format!("cannot start a thread: {error}"));
            }
            queue.has_thread = true;
        }
        Ok(answer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::event::Events;
    use serde_json::json;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::{Duration, Instant};

    /// Answers each update with the next of the results that a test sends.
    struct Slow(Mutex<Receiver<Result<u64, String>>>);

    impl Controller for Slow {
        fn update(&self, _: &Json) -> Result<u64, String> {
            lock(&self.0).recv().unwrap()
        }

        fn in_force(&self, _: &[String], _: &str) -> Option<InForce> {
            None
        }
    }

    fn requester() -> (Requester, LiveUpdates, Sender<Result<u64, String>>) {
        let (send, receive) = channel();
        let env = Env::detached("solver");
        env.events.redirect(Some((Arc::new(Events::default()), "solver".to_owned())));
        env.updates.serve(Arc::new(Slow(Mutex::new(receive))));
        (Requester::new(&env), env.updates.clone(), send)
    }

    fn wait(answer: &Answer) -> Result<u64, String> {
        let began = Instant::now();
        loop {
            if let Some(result) = answer.get() {
                return result.clone();
            }
            assert!(began.elapsed() < Duration::from_mins(1));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn requests_are_answered_in_order_and_limited() {
        let (requester, updates, send) = requester();
        let mut answers = vec![requester.request(json!({"a": 0})).unwrap()];
        // The first request leaves the queue when the thread works on it.
        while !lock(&updates.0.queue).waiting.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        answers.extend((0..MAX_REQUESTS).map(|n| requester.request(json!({"a": n})).unwrap()));
        let rejected = requester.request(json!({})).unwrap_err();
        assert_eq!(rejected, "16 requests of live updates are not answered yet");
        assert!(answers[0].get().is_none());
        for n in 0..=MAX_REQUESTS as u64 {
            send.send(if n == 3 { Err("no".to_owned()) } else { Ok(n) }).unwrap();
        }
        for (n, answer) in answers.iter().enumerate() {
            let expected = if n == 3 { Err("no".to_owned()) } else { Ok(n as u64) };
            assert_eq!(wait(answer), expected);
        }
    }

    #[test]
    fn panic_of_an_update_is_an_answer() {
        let (requester, _, send) = requester();
        let first = requester.request(json!({})).unwrap();
        drop(send);
        assert_eq!(wait(&first), Err("the update panicked".to_owned()));
    }

    #[test]
    fn request_without_slot_or_control_is_rejected() {
        let env = Env::detached("solver");
        let rejected = Requester::new(&env).request(json!({})).unwrap_err();
        assert_eq!(rejected, "a candidate or a shadow must not change other blocks");
        env.events.redirect(Some((Arc::new(Events::default()), "solver".to_owned())));
        let rejected = Requester::new(&env).request(json!({})).unwrap_err();
        assert_eq!(rejected, "this run has no control");
    }
}
