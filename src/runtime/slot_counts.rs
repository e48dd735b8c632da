//! Counters of a slot, which continue across swaps.

use fxgraph_core::counter::{Counter, Counters, Named};
use fxgraph_core::event::BlockEvents;
use fxgraph_core::frame::Pool;
use fxgraph_core::summary::Summary;
use fxgraph_flowgraph::{OnFault, Rebuild};
use std::collections::HashMap;
use std::sync::Weak;

/// The block in a slot: everything that moves with it in a swap.
pub(super) struct SlotBlock {
    pub kind: &'static str,
    pub counters: Counters,
    pub summary: Summary,
    pub events: BlockEvents,
    pub on_fault: OnFault,
    pub rebuild: Option<Rebuild>,
    /// Pool of each output, which ends with its block; `None` for an output that passes frames through.
    pub pools: Vec<Option<Weak<Pool>>>,
}

/// Counters of a slot. They never decrease, and do not include the counts of a candidate outside the
/// slot.
pub(super) struct SlotCounts {
    pub slot_block: SlotBlock,
    /// Counts of the earlier blocks in the slot.
    carried: Vec<Named>,
    /// Counts of the current block before it entered the slot.
    brought: HashMap<&'static str, u64>,
    device_nanoseconds_carried: u64,
    device_nanoseconds_brought: u64,
}

impl SlotCounts {
    pub fn new(slot_block: SlotBlock) -> Self {
        Self {
            slot_block,
            carried: Vec::new(),
            brought: HashMap::new(),
            device_nanoseconds_carried: 0,
            device_nanoseconds_brought: 0,
        }
    }

    /// Swaps the block in the slot with `slot_block`.
    pub fn swap(&mut self, slot_block: &mut SlotBlock) {
        self.carried = self.list();
        self.device_nanoseconds_carried = self.device_nanoseconds();
        let counters = &slot_block.counters;
        self.brought = counters.list().iter().map(|new| (new.name, new.counter.get())).collect();
        self.device_nanoseconds_brought = counters.device_nanoseconds().get();
        // Only the block in the slot reports events.
        let target = self.slot_block.events.redirect(None);
        slot_block.events.redirect(target);
        std::mem::swap(&mut self.slot_block, slot_block);
    }

    /// Returns the counters of the slot.
    pub fn list(&self) -> Vec<Named> {
        let mut all = self.carried.clone();
        for new in self.slot_block.counters.list() {
            let brought = self.brought.get(new.name).copied().unwrap_or_default();
            let here = new.counter.get() - brought;
            let position = all.iter().position(|known| known.name == new.name);
            let carried = position.map_or(0, |position| all[position].counter.get());
            let counter = Counter::default();
            counter.add(carried + here);
            let named = Named { counter, ..new };
            match position {
                Some(position) => all[position] = named,
                None => all.push(named),
            }
        }
        all
    }

    pub fn device_nanoseconds(&self) -> u64 {
        let now = self.slot_block.counters.device_nanoseconds().get();
        self.device_nanoseconds_carried + now - self.device_nanoseconds_brought
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot_block(counters: &Counters) -> SlotBlock {
        SlotBlock {
            kind: "any",
            counters: counters.clone(),
            summary: Summary::default(),
            events: BlockEvents::default(),
            on_fault: OnFault::Stop,
            rebuild: None,
            pools: Vec::new(),
        }
    }

    #[test]
    fn counts_outside_the_slot_are_excluded() {
        let (old, new) = (Counters::default(), Counters::default());
        old.count("both", "").add(10);
        old.count("old", "").add(1);
        new.count("both", "").add(3);
        old.device_nanoseconds().add(100);
        new.device_nanoseconds().add(30);
        let mut counts = SlotCounts::new(slot_block(&old));
        let count = |counts: &SlotCounts| {
            let all = counts.list();
            let get = |name| all.iter().find(|n| n.name == name).map_or(0, |n| n.counter.get());
            (get("both"), get("old"), counts.device_nanoseconds())
        };
        assert_eq!(count(&counts), (10, 1, 100));
        let mut side = slot_block(&new);
        counts.swap(&mut side);
        assert_eq!(count(&counts), (10, 1, 100));
        new.count("both", "").add(4);
        // Outside the slot now.
        old.count("both", "").add(50);
        new.device_nanoseconds().add(5);
        assert_eq!(count(&counts), (14, 1, 105));
        counts.swap(&mut side);
        old.count("old", "").add(1);
        assert_eq!(count(&counts), (14, 2, 105));
    }
}
