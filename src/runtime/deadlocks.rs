//! Detection of deadlocks: blocks that wait for each other in a circle.
//!
//! A block with several inputs waits for frames of one while the queue of another one is full. It waits for ever if
//! the missing frames come from a block that itself waits for room in the full queue. This happens if one of two
//! branches that meet again skips more frames than a queue is long.

use super::cell::Cell;
use super::timing::For;
use std::sync::Arc;

/// A full queue in a circle of waiting blocks.
pub(super) struct Deadlock {
    /// Number of the block that reads the queue, and lacks frames of another input.
    pub reader: usize,
    /// Number of the block that writes the queue, and waits for room.
    pub writer: usize,
    /// Number of the block whose frames the reader lacks.
    pub lacked: usize,
}

/// Finds deadlocks among blocks that no frame has passed for a while, and lets the writers drop the frames without room
/// in the queue, until the readers go on. `idle`: the number of frames that have passed such a block, `None` for others.
pub(super) fn resolve(cells: &[Arc<Cell>], idle: &[Option<u64>]) -> Vec<Deadlock> {
    let waits =
        |block: usize, what| idle[block].is_some() && cells[block].waits.waits() == Some(what);
    // For each block, the blocks that it waits for: all, and those whose frames it lacks.
    let mut awaited: Vec<Vec<usize>> = vec![Vec::new(); cells.len()];
    let mut lacked = awaited.clone();
    let mut full = Vec::new();
    for (reader, cell) in cells.iter().enumerate() {
        for (edge, writer) in cell.inputs() {
            if !edge.has_room() && waits(writer, For::Room) {
                awaited[writer].push(reader);
                full.push((edge, writer, reader));
            } else if edge.waiting() == 0 && !edge.has_ended() && waits(reader, For::Input) {
                awaited[reader].push(writer);
                lacked[reader].push(writer);
            }
        }
    }
    let mut found = Vec::new();
    for (edge, writer, reader) in full {
        let mut lacked = lacked[reader].iter().copied();
        let Some(lacked) = lacked.find(|lacked| leads(&awaited, *lacked, writer)) else { continue };
        // The states above were not read at one time.
        let stands = |block: usize| idle[block] == Some(cells[block].progress().frames);
        if [reader, writer, lacked].into_iter().all(stands) {
            edge.drop_until_read();
            found.push(Deadlock { reader, writer, lacked });
        }
    }
    found
}

/// Whether `from` waits, by way of other blocks, for what `to` waits for.
fn leads(awaited: &[Vec<usize>], from: usize, to: usize) -> bool {
    let mut seen = vec![false; awaited.len()];
    let mut next = vec![from];
    while let Some(block) = next.pop() {
        if block == to {
            return true;
        }
        if !std::mem::replace(&mut seen[block], true) {
            next.extend(&awaited[block]);
        }
    }
    false
}
