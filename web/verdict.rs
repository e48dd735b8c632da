//! Bottleneck and headroom of a flowgraph.

use crate::live::BlockRates;
use crate::metrics::expected_rate_hertz;
use fxgraph::flowgraph::{Plan, PlannedBlock};
use fxgraph_api::flowgraph::Limit;
use std::collections::HashMap;

/// Fraction of the time above which a working block is the bottleneck.
const BUSY: f64 = 0.9;
/// Fraction of the time above which waiting for output queues means that later blocks are slower.
const HELD_UP: f64 = 0.1;

/// Measurements of a block.
pub(crate) struct Known<'a> {
    name: &'a str,
    /// Capacity of each of its input queues in frames.
    queue: usize,
    /// Rate as a fraction of real time: 1 keeps up with the telescope.
    real_time: f64,
    rates: &'a BlockRates,
}

/// Returns the measurements of all blocks; empty until there are rates.
pub(crate) fn known<'a>(plan: &'a Plan, rates: &'a HashMap<String, BlockRates>) -> Vec<Known<'a>> {
    let known = |block: &'a PlannedBlock| {
        let rates = rates.get(&block.name)?;
        let total = &rates.total;
        let is_source = block.ports.inputs.is_empty();
        let frames =
            if is_source { total.frames_out_per_second } else { total.frames_in_per_second };
        let real_time = frames / expected_rate_hertz(block);
        Some(Known { name: &block.name, queue: block.queue, real_time, rates })
    };
    plan.blocks.iter().filter_map(known).collect()
}

impl Known<'_> {
    /// Fraction of the time that the block or its device works.
    fn busy(&self) -> f64 {
        self.rates.total.busy_fraction.max(self.rates.total.device_busy_fraction)
    }

    /// Whether its input queues are full and its output queues are not. A block with one input queue that is not full
    /// waits for that input, even if the others are full.
    fn holds_up(&self) -> bool {
        let peaks = &self.rates.input_peaks;
        let is_full = !peaks.is_empty() && peaks.iter().all(|peak| *peak >= self.queue);
        is_full && self.rates.total.room_wait_fraction < HELD_UP
    }
}

/// Returns the bottleneck: the block that works nearly all of the time, or the one with full input queues and free
/// output queues. `None` until there are rates.
pub(crate) fn limit(blocks: &[Known]) -> Option<Limit> {
    let by_work = |one: &&Known, other: &&Known| one.busy().total_cmp(&other.busy());
    let busiest = blocks.iter().max_by(by_work)?;
    let of = |block: &Known, why: String| Limit {
        block: Some(block.name.to_owned()),
        text: format!("limited by {}{why}", block.name),
    };
    if busiest.busy() >= BUSY {
        let percent = (busiest.busy() * 100.0).round().min(100.0);
        return Some(of(busiest, format!(", which works {percent} % of the time")));
    }
    // A queue that a burst of frames filled for a moment delays nobody.
    let is_delayed = blocks.iter().any(|block| block.rates.total.room_wait_fraction >= HELD_UP);
    let held = blocks.iter().filter(|block| is_delayed && block.holds_up()).max_by(by_work);
    Some(match held {
        Some(block) => {
            of(block, ": its input queues are full, its output queues are not".to_owned())
        }
        None => Limit { block: None, text: "limited by the sources".to_owned() },
    })
}

/// Headroom of the slowest block as a fraction of signal time; negative if it cannot keep up with the
/// telescope. `None` until there are rates.
pub(crate) fn deadline_margin(blocks: &[Known]) -> Option<f64> {
    let moving = blocks.iter().filter(|block| block.real_time > 0.0);
    let loads = moving.map(|block| block.busy() / block.real_time);
    loads.max_by(f64::total_cmp).map(|most| 1.0 - most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fxgraph_api::blocks::Rates;

    fn rates(busy_fraction: f64, room_wait_fraction: f64, peak: usize) -> BlockRates {
        let total = Rates { busy_fraction, room_wait_fraction, ..Rates::default() };
        BlockRates { total, input_peaks: vec![peak], ..BlockRates::default() }
    }

    fn at_half_rate(rates: &[BlockRates; 3]) -> Vec<Known<'_>> {
        let known = |(name, rates)| Known { name, queue: 4, real_time: 0.5, rates };
        ["s", "f", "o"].into_iter().zip(rates).map(known).collect()
    }

    #[test]
    fn limit_is_the_busiest_block_or_the_one_with_full_inputs_only() {
        let limited =
            |rates: [BlockRates; 3]| limit(&at_half_rate(&rates)).and_then(|limit| limit.block);
        let idle = || rates(0.1, 0.0, 1);
        assert_eq!(limited([idle(), idle(), idle()]), None);
        assert_eq!(limited([idle(), rates(0.95, 0.0, 4), idle()]).as_deref(), Some("f"));
        // The input queue of `f` is full because that of `o` is.
        let held_up = rates(0.5, 0.7, 4);
        assert_eq!(limited([idle(), held_up, rates(0.4, 0.0, 4)]).as_deref(), Some("o"));
        // A burst filled the queue for a moment, and no block waited for room.
        assert_eq!(limited([idle(), idle(), rates(0.005, 0.0, 4)]), None);
        // One of its inputs is full because no frames arrive at the other.
        let waits = BlockRates { input_peaks: vec![4, 1], ..idle() };
        assert_eq!(limited([idle(), idle(), waits]), None);
        assert_eq!(limit(&[]), None);
    }

    #[test]
    fn deadline_margin_is_that_of_the_slowest_block() {
        let rates = [0.1, 0.4, 0.2].map(|busy| rates(busy, 0.0, 0));
        // At half of real time the block works 0.4 of the time, so 0.8 at full rate.
        let margin = deadline_margin(&at_half_rate(&rates)).unwrap_or_default();
        assert!((margin - 0.2).abs() < 1e-9, "{margin}");
        assert_eq!(deadline_margin(&[]), None);
    }
}
