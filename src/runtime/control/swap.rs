//! Swaps: changes of blocks while frames flow.

use super::Control;
use super::change::{Change, Way};
use super::errors::{SwapError, UpdateError};
use super::update::parameters;
use crate::NotSwapped;
use crate::swap::{Swap, Terms};
use fxgraph_core::changes::{Undecided, When};
use fxgraph_core::device::DeviceName;
use fxgraph_core::event::EventKind;
use fxgraph_core::frame::Pool;
use fxgraph_flowgraph;
use fxgraph_flowgraph::PlannedBlock;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Shortest time limit for a call of a block that is swapped.
const CALL: Duration = Duration::from_secs(2);
/// The same limit in frame intervals; the longer one applies.
const CALL_FRAMES: u32 = 4;

impl Control {
    /// Makes a change by the method in [`Change::way`]. Waits for other changes, and for this one, up to slightly more
    /// than `limit` ([`Change::usual_limit`]). With `may_hold_up` the flowgraph waits for a new block that consumes
    /// frames more slowly than they arrive while it catches up: for files, not for live data.
    pub fn swap(
        &self,
        change: &Change,
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<(), SwapError> {
        let deadline = Instant::now() + limit;
        let Ok(_turn) = self.begin_change(deadline) else { return Err(SwapError::Busy) };
        if let Some(problem) = change.before.unfitting_inputs(&change.after).into_iter().next() {
            return Err(SwapError::Restart(problem.message));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        self.swap_alone(change, left, may_hold_up)
    }

    /// Makes a [`swap`](Self::swap); the caller holds the turn.
    pub(super) fn swap_alone(
        &self,
        change: &Change,
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<(), SwapError> {
        if !Arc::ptr_eq(&self.plan(), &change.before) {
            return Err(SwapError::Outdated);
        }
        self.reject_shadowed(&change.block)?;
        let made = match &change.way {
            Way::Nothing => return Ok(()),
            Way::LiveUpdate => {
                let values = parameters(&change.differences, |difference| &difference.to);
                let request = json!({ &change.block: values }).to_string();
                self.live_update_alone((&request).into(), None, Instant::now() + limit)?;
                return Ok(());
            }
            Way::Restart(why) => return Err(SwapError::Restart(why.clone())),
            Way::Seamless => self.swap_seamlessly(change, limit, may_hold_up),
            // A block without outputs has no frame from which on it counts.
            Way::Held { ends_first } => self.replace(change, *ends_first, limit).map(|()| 0),
        };
        match &made {
            Ok(at) => {
                // The frames of the other blocks, too, and their configurations at scheduled timestamps.
                change.run.say_config(When::at(*at).config(change.after.config_ids(*at)));
                let after = Arc::new(change.after.clone());
                if !self.0.commit(&change.before, after, 0) {
                    // The run in which the change was made has ended.
                    return Err(SwapError::Outdated);
                }
            }
            // The roll-back has an event already.
            Err(SwapError::NotSwapped(NotSwapped::RolledBack(_))) => {}
            Err(error) => {
                let text = fxgraph_core::error::with_causes(error);
                change.run.tell(EventKind::NotSwapped, Some(&change.block), text);
            }
        }
        made.map(drop)
    }

    /// Makes a seamless change and returns its effective timestamp.
    fn swap_seamlessly(
        &self,
        change: &Change,
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<u64, SwapError> {
        let deadline = Instant::now() + limit;
        self.check_memory(change)?;
        let lent = self.lend(change, PlannedBlock::lent_frames, |_| 0)?;
        let try_once = || -> Result<u64, SwapError> {
            let moment = Undecided::new();
            let sent = change.send(moment.when(), deadline, may_hold_up)?;
            sent.swap.wait_ready(deadline)?;
            let at = moment.decide(0);
            // After the decision the swap gets the time that it needs.
            sent.swap.finish(deadline.max(Instant::now() + change.finishing_limit()))?;
            sent.settle();
            Ok(at)
        };
        let mut was_slow = false;
        loop {
            let is_over = || Instant::now() >= deadline;
            match try_once() {
                Ok(at) => {
                    lent.stay();
                    return Ok(at);
                }
                // The delay may have been short, so try again.
                Err(SwapError::NotSwapped(NotSwapped::TooSlow)) if !is_over() => {
                    was_slow = true;
                }
                // The last try had no time.
                Err(_) if was_slow && is_over() => return Err(NotSwapped::TooSlow.into()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes all of `changes`, which are seamless, at one timestamp, and returns the timestamp. `meanwhile` is called
    /// with the shared timestamp when all new blocks have caught up. None of `changes` is made before it returns, and
    /// its error cancels all changes.
    pub(super) fn swap_together<'a>(
        &self,
        changes: &[&'a Change],
        moment: Undecided,
        deadline: Instant,
        may_hold_up: bool,
        meanwhile: impl FnOnce(&When) -> Result<(), UpdateError>,
    ) -> Result<u64, NotTogether<'a>> {
        let before = |block: &str, source: SwapError| {
            NotTogether::Before(UpdateError::Swap {
                block: block.to_owned(),
                source,
                interim: None,
            })
        };
        let mut needed = BTreeMap::new();
        for (device, bytes) in changes.iter().flat_map(|change| &change.memory) {
            let sum: &mut usize = needed.entry(*device).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        if let (Some(first), Err(error)) = (changes.first(), check_memory(&needed)) {
            return Err(before(&first.block, error));
        }
        let mut sent = Vec::new();
        for &change in changes {
            let send = || {
                self.reject_shadowed(&change.block)?;
                let lent = self.lend(change, PlannedBlock::lent_frames, |_| 0)?;
                Ok((change.send(moment.when(), deadline, may_hold_up)?, lent))
            };
            let (one, lent) = send().map_err(|error| before(&change.block, error))?;
            sent.push((change, one, lent));
        }
        let mut ready = Vec::new();
        for (change, mut one, lent) in sent {
            loop {
                match one.swap.wait_ready(deadline) {
                    Ok(()) => break,
                    // The delay may have been short, so try again.
                    Err(NotSwapped::TooSlow) if Instant::now() < deadline => {
                        // Dropped first, because the next candidate needs its memory.
                        drop(one);
                        let again = change.send(moment.when(), deadline, may_hold_up);
                        one = again.map_err(|error| before(&change.block, error))?;
                    }
                    Err(error) => return Err(before(&change.block, error.into())),
                }
            }
            ready.push((change, one, lent));
        }
        meanwhile(moment.when()).map_err(NotTogether::Before)?;
        let at = moment.decide(0);
        // After the decision the swaps get the time that they need.
        let limit = changes.iter().map(|change| change.finishing_limit()).max();
        let deadline = deadline.max(Instant::now() + limit.unwrap_or_default());
        let mut in_place = Vec::new();
        let mut failed = None;
        for (change, one, lent) in ready {
            match one.swap.finish(deadline) {
                Ok(()) => in_place.push((change, one, lent)),
                Err(error) => {
                    failed.get_or_insert((change.block.clone(), error));
                }
            }
        }
        let in_place = in_place.into_iter().map(|(change, one, lent)| {
            one.settle();
            lent.stay();
            change
        });
        let in_place: Vec<&Change> = in_place.collect();
        match failed {
            None => Ok(at),
            Some((block, error)) => {
                let source = error.into();
                Err(NotTogether::After(Box::new(After { at, block, source, in_place })))
            }
        }
    }

    /// Checks that there is memory for a second block.
    pub(super) fn check_memory(&self, change: &Change) -> Result<(), SwapError> {
        check_memory(&change.memory)
    }

    pub(super) fn replace(
        &self,
        change: &Change,
        ends_first: bool,
        limit: Duration,
    ) -> Result<(), SwapError> {
        let wake = change.run.waker(&change.block).unwrap_or_default();
        let lent = self.lend(change, |_, _| 0, |_| 0)?;
        let part = change.after.candidate_part(change.index, wake)?;
        change.run.replace(part, ends_first, limit)?;
        lent.stay();
        Ok(())
    }

    /// Adds buffers to pools: `beside` frames per input for a second block on the same frames, `behind` frames
    /// per output, and the frames that the new block keeps in addition to those of the old one.
    pub(super) fn lend(
        &self,
        change: &Change,
        beside: impl Fn(&PlannedBlock, usize) -> usize,
        behind: impl Fn(usize) -> usize,
    ) -> Result<Lent, SwapError> {
        let (before, after) = (&change.before, &change.after);
        let mut lent = Lent { for_a_while: Vec::new(), to_stay: Vec::new() };
        let pool = |block: usize, port: usize| change.run.pool(&before.blocks[block].name, port);
        let block = &after.blocks[change.index];
        for (input, source) in block.inputs.iter().enumerate() {
            let origin = after.origin(*source);
            if let Some(pool) = pool(origin.0, origin.1) {
                let frames = beside(block, input);
                pool.grow(before.allocator(origin)?.as_ref(), frames)?;
                lent.for_a_while.push((pool, frames));
            }
        }
        for port in 0..block.ports.outputs.len() {
            let origin = before.origin((change.index, port));
            let frames = behind(port);
            if frames > 0
                && let Some(pool) = pool(origin.0, origin.1)
            {
                pool.grow(before.allocator(origin)?.as_ref(), frames)?;
                lent.for_a_while.push((pool, frames));
            }
        }
        let (was, is) = (before.pool_frames(), after.pool_frames());
        for (index, (was, is)) in was.iter().zip(&is).enumerate() {
            for (port, (was, is)) in was.iter().zip(is).enumerate() {
                // The new block has its own pools.
                if index == change.index || is <= was {
                    continue;
                }
                if let Some(pool) = pool(index, port) {
                    pool.grow(before.allocator((index, port))?.as_ref(), is - was)?;
                    lent.to_stay.push((pool, is - was));
                }
            }
        }
        Ok(lent)
    }
}

fn check_memory(needed: &BTreeMap<DeviceName, usize>) -> Result<(), SwapError> {
    for (&device, &needed) in needed {
        if let Some(available) =
            fxgraph_flowgraph::available_on(device).filter(|bytes| *bytes < needed)
        {
            return Err(SwapError::Memory { device, needed, available });
        }
    }
    Ok(())
}

/// Reason why several changes were not made together.
pub(super) enum NotTogether<'a> {
    /// No change was made.
    Before(UpdateError),
    /// Only some of the changes were made.
    After(Box<After<'a>>),
}

/// Result of several changes at one timestamp of which one failed.
pub(super) struct After<'a> {
    pub at: u64,
    /// The first block that was not swapped.
    pub block: String,
    pub source: SwapError,
    /// The changes that were made.
    pub in_place: Vec<&'a Change>,
}

/// A swap in progress.
struct Sent {
    swap: Swap,
    /// Pools of the candidate, with the number of buffers that they need only until the candidate is in the slot.
    kept: Vec<(Arc<Pool>, usize)>,
}

impl Sent {
    /// Removes the additional buffers of the candidate, which is in the slot now.
    fn settle(&self) {
        self.kept.iter().for_each(|(pool, depth)| pool.shrink(*depth));
    }
}

impl Change {
    /// Starts a swap that takes effect at `when`.
    fn send(&self, when: &When, deadline: Instant, may_hold_up: bool) -> Result<Sent, SwapError> {
        let wake = self.run.waker(&self.block).unwrap_or_default();
        let candidate_part = self.after.candidate_part(self.index, wake)?;
        let kept = candidate_part
            .outputs
            .iter()
            .filter_map(|output| Some((output.pool.clone()?, output.edges[0].depth())))
            .collect();
        let terms = Terms {
            ids: self.after.config_ids(0),
            limit: deadline.saturating_duration_since(Instant::now()),
            call: CALL.max(self.frame_period() * CALL_FRAMES),
            may_hold_up,
        };
        Ok(Sent { swap: self.run.begin_swap(candidate_part, terms, when)?, kept })
    }
}

/// Additional buffers in pools; removed on drop.
pub(super) struct Lent {
    for_a_while: Vec<(Arc<Pool>, usize)>,
    to_stay: Vec<(Arc<Pool>, usize)>,
}

impl Lent {
    fn stay(mut self) {
        self.to_stay.clear();
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.for_a_while.iter().chain(&self.to_stay).for_each(|(pool, count)| pool.shrink(*count));
    }
}
