//! Action when the queue of an input is full.

/// Action when the queue of an input is full and the writer has another frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The writer waits for room.
    #[default]
    Wait,
    /// The oldest frame in the queue is dropped: the reader gets the newest data.
    DropOldest,
    /// The new frame is dropped: the reader gets runs of consecutive frames.
    DropNewest,
}

impl WhenFull {
    /// Every action.
    pub const ALL: [Self; 3] = [Self::Wait, Self::DropOldest, Self::DropNewest];

    /// Name in flowgraph files and REST.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::DropOldest => "drop_oldest",
            Self::DropNewest => "drop_newest",
        }
    }

    /// Whether a frame is dropped, so that the writer never waits.
    #[must_use]
    pub fn drops(self) -> bool {
        self != Self::Wait
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{Edge, FrameReader, FrameWriter};
    use super::*;
    use crate::frame::{HostAllocator, Pool};
    use std::sync::Arc;

    #[test]
    fn full_queue_drops_the_oldest_or_the_newest_frame_and_no_peeked_one() {
        for (when_full, left) in
            [(WhenFull::DropOldest, [0, 4, 5]), (WhenFull::DropNewest, [0, 1, 2])]
        {
            let edge = Edge::new(2);
            edge.set_when_full(when_full);
            let pool = Pool::new(&HostAllocator, 4, 16, 0).unwrap();
            let mut reader = FrameReader::new(Arc::clone(&edge));
            let mut writer = FrameWriter::new(vec![Arc::clone(&edge)], Some(Arc::clone(&pool)), 0);
            for timestamp in 0..6 {
                assert!(writer.has_room() && !writer.is_held_up());
                let mut frame = writer.take().unwrap();
                frame.header_mut().timestamp = timestamp;
                writer.push(frame);
                if timestamp == 0 {
                    assert!(reader.peek().is_some());
                }
            }
            assert_eq!((edge.queued(), edge.dropped(), writer.pushed()), (2, 3, 6));
            writer.has_room();
            drop(writer);
            let frames = std::iter::from_fn(|| reader.pop());
            let seen: Vec<u64> = frames.map(|frame| frame.header().timestamp).collect();
            assert_eq!(seen, left, "{when_full:?}");
            assert!(reader.ended());
            assert_eq!(pool.available(), pool.size());
        }
    }
}
