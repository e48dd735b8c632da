//! Work list of the GPU kernels: the parts of tiles that each thread block sums.
//!
//! The visibilities of a channel are a lower triangle of square tiles. A task is one tile, summed over all stages of
//! samples. The unit of work is a stage and not a sample, because a kernel processes whole stages.
//!
//! Tasks are assigned in order to the thread block that is free first. So the tiles of one channel run at the same
//! time and share their samples in the cache. The last tasks are split along the stages, so that all blocks end
//! together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Smallest number of stages of a segment.
const SHORTEST: u64 = 8;
/// Cost of a stage of a tile off the diagonal, in integer units.
const FULL_COST: u64 = 100;

/// Total work, and number of thread blocks.
#[derive(Clone, Debug)]
pub(super) struct Load {
    /// Channels.
    pub channels: usize,
    /// Rows of tiles; row i has i + 1 tiles.
    pub rows: Range<usize>,
    /// Stages per tile.
    pub stages: usize,
    /// Resident thread blocks.
    pub blocks: usize,
    /// Time of a tile on the diagonal, in percent of one off it.
    pub diagonal_percent: u64,
    /// Whether thread blocks start with parts of tasks of different length, so that later tasks start one by one.
    pub staggered: bool,
}

/// Stages of one tile; `Segment` of `kernels/x_engine/voltages.cuh`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub channel: usize,
    pub row: usize,
    pub column: usize,
    pub first: usize,
    pub end: usize,
    /// Whether other segments have stages of the same tile.
    pub shared: bool,
}

impl Segment {
    /// Words of the kernels' structure.
    fn words(self) -> [i32; 6] {
        let Self { channel, row, column, first, end, shared } = self;
        [channel, row, column, first, end, usize::from(shared)].map(|n| n as i32)
    }
}

/// Segments of each thread block.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    blocks: Vec<Vec<Segment>>,
}

/// A tile with its unassigned stages.
#[derive(Clone, Copy)]
struct Task {
    tile: Segment,
    /// Cost per stage.
    cost: u64,
}

impl Task {
    /// Takes the next stages of the task: about `wanted`, such that neither the segment nor the rest is shorter than
    /// [`SHORTEST`].
    fn take(&mut self, wanted: u64) -> Segment {
        let left = (self.tile.end - self.tile.first) as u64;
        let mut taken = if left > wanted + SHORTEST { wanted.max(SHORTEST) } else { left };
        if left - taken < SHORTEST {
            taken = left;
        }
        let first = self.tile.first;
        self.tile.first += taken as usize;
        Segment { first, end: self.tile.first, ..self.tile }
    }

    fn is_done(&self) -> bool {
        self.tile.first == self.tile.end
    }
}

impl Load {
    fn tasks(&self) -> Vec<Task> {
        let tiles = |channel| {
            let rows = self.rows.clone();
            rows.flat_map(move |row| (0..=row).map(move |column| (channel, row, column)))
        };
        let task = |(channel, row, column)| Task {
            tile: Segment { channel, row, column, first: 0, end: self.stages, shared: false },
            cost: if row == column { self.diagonal_percent } else { FULL_COST },
        };
        (0..self.channels).flat_map(tiles).map(task).collect()
    }
}

impl Schedule {
    /// Distributes the work such that all thread blocks have about the same cost.
    pub(super) fn new(load: &Load) -> Self {
        let mut tasks = load.tasks();
        let stages = load.stages as u64;
        let total: u64 = tasks.iter().map(|task| task.cost * stages).sum();
        let useful = (tasks.len() as u64 * stages / SHORTEST).max(1);
        let count = (load.blocks as u64).min(useful);
        let mut schedule = Self { blocks: vec![Vec::new(); count as usize] };
        let share = total.div_ceil(count);
        // Times when the blocks are free, earliest first.
        let mut free: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let staggered = load.staggered && tasks.len() as u64 > 2 * count;
        let longest = if staggered { total / tasks.len() as u64 } else { 0 };
        for block in 0..count as usize {
            let delay = longest * block as u64 / count;
            free.push(Reverse((schedule.begin(block, delay, &mut tasks), block)));
        }
        for mut task in tasks {
            while !task.is_done() {
                let Some(Reverse((time, block))) = free.pop() else { break };
                let room = share.saturating_sub(time).div_ceil(task.cost);
                let time = time + schedule.give(block, &mut task, room);
                free.push(Reverse((time, block)));
            }
        }
        schedule.mark_shared(load.stages);
        schedule
    }

    /// Assigns parts of the last tasks to the start of `block`, with a cost of about `delay`. Returns their cost.
    fn begin(&mut self, block: usize, delay: u64, tasks: &mut Vec<Task>) -> u64 {
        let mut time = 0;
        while let Some(task) = tasks.last_mut()
            && time + SHORTEST * task.cost < delay
        {
            time += self.give(block, task, (delay - time) / task.cost);
            if task.is_done() {
                tasks.pop();
            }
        }
        time
    }

    fn give(&mut self, block: usize, task: &mut Task, stages: u64) -> u64 {
        let segment = task.take(stages);
        self.blocks[block].push(segment);
        (segment.end - segment.first) as u64 * task.cost
    }

    fn mark_shared(&mut self, stages: usize) {
        for segment in self.blocks.iter_mut().flatten() {
            segment.shared = segment.end - segment.first < stages;
        }
    }

    /// Number of thread blocks with work.
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// All segments in the layout of the kernels.
    pub(super) fn segments(&self) -> Vec<i32> {
        self.blocks.iter().flatten().flat_map(|segment| segment.words()).collect()
    }

    /// Index of the first segment of each block, followed by the total number of segments.
    pub(super) fn starts(&self) -> Vec<i32> {
        let ends = self.blocks.iter().scan(0, |end, segments| {
            *end += segments.len() as i32;
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const LOAD: Load = Load {
        channels: 64,
        rows: 0..8,
        stages: 128,
        blocks: 132,
        diagonal_percent: 72,
        staggered: true,
    };

    fn cost(load: &Load, segments: &[Segment]) -> u64 {
        let cost = |s: &Segment| {
            let stage = if s.row == s.column { load.diagonal_percent } else { FULL_COST };
            stage * (s.end - s.first) as u64
        };
        segments.iter().map(cost).sum()
    }

    proptest! {
        #[test]
        fn every_stage_of_every_tile_is_summed_once(
            channels in 1..40_usize,
            first_row in 0..3_usize,
            rows in 1..7_usize,
            stages in 1..200_usize,
            blocks in 1..150_usize,
            diagonal_percent in 50..101_u64,
            staggered in any::<bool>(),
        ) {
            let rows = first_row..first_row + rows;
            let tiles = rows.clone().map(|row| row + 1).sum::<usize>();
            let load = Load {
                channels, rows: rows.clone(), stages, blocks, diagonal_percent, staggered,
            };
            let schedule = Schedule::new(&load);
            prop_assert!(schedule.blocks() <= blocks);
            let mut stages_of: HashMap<_, Vec<_>> = HashMap::new();
            for s in schedule.blocks.iter().flatten() {
                prop_assert!(s.column <= s.row && rows.contains(&s.row) && s.channel < channels);
                let range = (s.first, s.end, s.shared);
                stages_of.entry((s.channel, s.row, s.column)).or_default().push(range);
            }
            prop_assert_eq!(stages_of.len(), channels * tiles);
            for mut ranges in stages_of.into_values() {
                ranges.sort_unstable();
                let mut next = 0;
                let parts = ranges.len();
                for (first, end, shared) in ranges {
                    prop_assert!(first == next && first < end);
                    prop_assert_eq!(shared, parts > 1);
                    next = end;
                }
                prop_assert_eq!(next, stages);
            }
        }
    }

    #[test]
    fn work_is_balanced_among_blocks() {
        for (channels, tiles, staggered) in
            [(64, 8, true), (128, 4, false), (256, 1, false), (4, 1, false), (1, 8, true)]
        {
            let load = Load { channels, rows: 0..tiles, staggered, ..LOAD };
            let schedule = Schedule::new(&load);
            let costs: Vec<u64> = schedule.blocks.iter().map(|s| cost(&load, s)).collect();
            let mean = costs.iter().sum::<u64>() / costs.len() as u64;
            let most = costs.iter().max().copied().unwrap_or(0);
            // Both parts of a split may be too long by the shortest segment.
            let slack = 2 * SHORTEST * FULL_COST;
            assert!(most <= mean + slack, "{load:?}: {most} and {mean}");
        }
    }

    #[test]
    fn tasks_are_split_only_at_the_ends() {
        let tasks = 64 * 36;
        for staggered in [false, true] {
            let load = Load { staggered, ..LOAD };
            let segments = Schedule::new(&load).blocks.iter().map(Vec::len).sum::<usize>();
            assert!(segments <= tasks + 2 * LOAD.blocks, "{segments}");
        }
    }

    #[test]
    fn starts_match_the_segments() {
        let schedule = Schedule::new(&LOAD);
        let starts = schedule.starts();
        assert_eq!(starts.len(), schedule.blocks() + 1);
        assert_eq!(starts.last().map(|n| *n as usize * 6), Some(schedule.segments().len()));
        assert!(starts.is_sorted());
    }
}
