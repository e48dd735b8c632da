//! Changes made while frames flow.

use super::Control;
use super::change::{Change, Way, lent_frames};
use crate::device::DeviceName;
use crate::flowgraph::{BuildError, PlannedBlock};
use crate::frame::{OutOfMemory, Pool};
use crate::memory;
use crate::runtime::exchange::Terms;
use crate::runtime::{EventKind, NotExchanged, Unanswered};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How long a block may take to come to the end of a frame.
const FRAME: Duration = Duration::from_secs(5);
/// A newcomer may be later with a frame than the block before it by this, and by some frames.
const LATE: Duration = Duration::from_millis(500);
const LATE_FRAMES: u32 = 4;

/// Why a change was not made. Whatever it is, the flowgraph goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum SwapError {
    /// Another change is being made.
    #[error("another change is being made")]
    Busy,
    /// The flowgraph is not the one for which the change was checked.
    #[error("the flowgraph has changed since: check the change again")]
    Outdated,
    /// Only a new start makes it.
    #[error("{0}: stop the flowgraph and start it with the change")]
    Restart(String),
    /// The block has a shadow.
    #[error("`{0}` has a shadow: end that first")]
    Shadowed(String),
    /// The block cannot have a shadow.
    #[error("{0}")]
    NoShadow(String),
    /// There is not enough memory for two blocks beside each other.
    #[error("it needs {needed} bytes more on {device} for a while, {available} are available")]
    Memory {
        /// Where.
        device: DeviceName,
        /// Bytes that it needs.
        needed: usize,
        /// Bytes that there are.
        available: usize,
    },
    /// The new block, or its memory, could not be had.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Frames that it holds could not be had.
    #[error(transparent)]
    Frames(#[from] OutOfMemory),
    /// The new block did not take the old one's place, or gave it back.
    #[error(transparent)]
    NotExchanged(#[from] NotExchanged),
}

impl From<Unanswered> for SwapError {
    fn from(error: Unanswered) -> Self {
        NotExchanged::from(error).into()
    }
}

impl Control {
    /// Makes a change: see [`Way`]. Waits for it up to `limit` ([`Change::usual_limit`]) and a
    /// little. With `may_hold_up` the flowgraph waits for a new block that takes frames more slowly than they
    /// come while it catches up: right for files, wrong for a telescope.
    pub fn swap(
        &self,
        change: &Change,
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<(), SwapError> {
        let Ok(_changing) = self.0.changing.try_lock() else { return Err(SwapError::Busy) };
        self.swap_alone(change, limit, may_hold_up)
    }

    /// [`swap`](Self::swap) while no other change is made.
    pub(super) fn swap_alone(
        &self,
        change: &Change,
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<(), SwapError> {
        if !Arc::ptr_eq(&self.plan(), &change.before) {
            return Err(SwapError::Outdated);
        }
        self.refuse_shadowed(&change.block)?;
        let made = match &change.way {
            Way::Nothing => return Ok(()),
            Way::Restart(why) => return Err(SwapError::Restart(why.clone())),
            Way::Seamless => self.exchange(change, limit, may_hold_up),
            Way::Held { ends_first } => self.replace(change, *ends_first, limit),
        };
        match &made {
            Ok(()) => {
                let after = Arc::new(change.after.clone());
                *self.0.plan.write().unwrap_or_else(PoisonError::into_inner) = after;
            }
            // That was told when it happened.
            Err(SwapError::NotExchanged(NotExchanged::RolledBack(_))) => {}
            Err(error) => {
                let text = crate::runtime::with_causes(error);
                self.0.run().tell(EventKind::NotSwapped, Some(&change.block), text);
            }
        }
        made
    }

    fn exchange(
        &self,
        change: &Change,
        limit: Duration,
        may_hold_up: bool,
    ) -> Result<(), SwapError> {
        let deadline = Instant::now() + limit;
        self.check_memory(change)?;
        let wake = self.0.run().waker(&change.block).unwrap_or_default();
        let lent = self.lend(change, lent_frames, |_| 0)?;
        let terms = Terms {
            config_id: change.after.config_id(),
            limit,
            late: LATE.max(change.frame_period() * LATE_FRAMES),
            may_hold_up,
        };
        loop {
            let newcomer = change.after.newcomer(change.index, wake.clone())?;
            let kept: Vec<(Arc<Pool>, usize)> = newcomer
                .outputs
                .iter()
                .filter_map(|output| Some((output.pool.clone()?, output.edges[0].depth())))
                .collect();
            let left = deadline.saturating_duration_since(Instant::now());
            match self.0.run().exchange(newcomer, Terms { limit: left, ..terms }) {
                Ok(()) => {
                    kept.iter().for_each(|(pool, depth)| pool.shrink(*depth));
                    lent.stay();
                    return Ok(());
                }
                // A moment's delay is no reason to give up.
                Err(NotExchanged::TooSlow) if Instant::now() < deadline => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether there is room for a second block.
    pub(super) fn check_memory(&self, change: &Change) -> Result<(), SwapError> {
        for (&device, &needed) in &change.memory {
            if let Some(available) = memory::available_on(device).filter(|bytes| *bytes < needed) {
                return Err(SwapError::Memory { device, needed, available });
            }
        }
        Ok(())
    }

    fn replace(&self, change: &Change, ends_first: bool, limit: Duration) -> Result<(), SwapError> {
        let wake = self.0.run().waker(&change.block).unwrap_or_default();
        let lent = self.lend(change, |_, _| 0, |_| 0)?;
        let part = change.after.newcomer(change.index, wake)?;
        self.0.run().replace(part, ends_first, limit)?;
        lent.stay();
        Ok(())
    }

    /// Makes the pools larger from which the block's frames come: by what a block beside it keeps of
    /// each input for a while, by what is kept of each output, and by what the new one keeps more
    /// than the old.
    pub(super) fn lend(
        &self,
        change: &Change,
        beside: impl Fn(&PlannedBlock, usize) -> usize,
        behind: impl Fn(usize) -> usize,
    ) -> Result<Lent, SwapError> {
        let (before, after) = (&change.before, &change.after);
        let mut lent = Lent { for_a_while: Vec::new(), to_stay: Vec::new() };
        let pool = |block: usize, port: usize| {
            let name = &before.blocks[block].name;
            self.0.run().ask(name, FRAME, move |hosted| hosted.outputs[port].writer.pool())
        };
        let block = &after.blocks[change.index];
        for (input, source) in block.inputs.iter().enumerate() {
            let origin = after.origin(*source);
            if let Some(pool) = pool(origin.0, origin.1)? {
                let frames = beside(block, input);
                pool.grow(before.allocator(origin)?.as_ref(), frames)?;
                lent.for_a_while.push((pool, frames));
            }
        }
        for port in 0..block.ports.outputs.len() {
            let origin = before.origin((change.index, port));
            let frames = behind(port);
            if frames > 0
                && let Some(pool) = pool(origin.0, origin.1)?
            {
                pool.grow(before.allocator(origin)?.as_ref(), frames)?;
                lent.for_a_while.push((pool, frames));
            }
        }
        let (was, is) = (before.pool_frames(), after.pool_frames());
        for (index, (was, is)) in was.iter().zip(&is).enumerate() {
            for (port, (was, is)) in was.iter().zip(is).enumerate() {
                // The new block brings pools of its own.
                if index == change.index || is <= was {
                    continue;
                }
                if let Some(pool) = pool(index, port)? {
                    pool.grow(before.allocator((index, port))?.as_ref(), is - was)?;
                    lent.to_stay.push((pool, is - was));
                }
            }
        }
        Ok(lent)
    }
}

/// Buffers that pools have more than before; they are freed when this is dropped.
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
