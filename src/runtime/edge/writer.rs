//! The end of edges that a block pushes frames to.

use super::{Edge, TURN};
use crate::frame::{Frame, FrameMut, Pool};
use crate::retune::{Coming, ConfigChange};
use crate::runtime::tap::TapWriter;
use crate::runtime::tee::Tee;
use std::collections::VecDeque;
use std::sync::Arc;

/// The writing end of all edges of one output port.
pub(crate) struct FrameWriter {
    edges: Vec<Arc<Edge>>,
    /// `None` for a port that passes frames through.
    pool: Option<Arc<Pool>>,
    sequence: u64,
    config_id: u64,
    /// What becomes of `config_id`, in the order in which it was said.
    config_changes: Vec<ConfigChange>,
    /// Readers beside the flowgraph.
    pub(crate) taps: Vec<TapWriter>,
    /// Frames that may still be pushed in this turn.
    turn: u32,
    /// Timestamp of the last frame.
    last: Option<u64>,
    /// Frames up to this time went out before the block came here, and are dropped.
    after: Option<u64>,
    /// Frames that the block made, or began, before it came here; they go out as soon as there is room.
    made_before: VecDeque<Arc<Frame>>,
    /// What was pushed, if somebody compares.
    log: Option<PushLog>,
    /// Gets what is pushed.
    tee: Option<Tee>,
}

/// Timestamps and validity of the frames pushed, the oldest first.
pub(crate) type PushLog = VecDeque<(u64, Vec<u32>)>;

/// Entries of a [`PushLog`] that are kept.
const LOGGED: usize = 1024;

impl FrameWriter {
    pub(crate) fn new(edges: Vec<Arc<Edge>>, pool: Option<Arc<Pool>>, config_id: u64) -> Self {
        Self {
            edges,
            pool,
            sequence: 0,
            config_id,
            config_changes: Vec::new(),
            taps: Vec::new(),
            turn: u32::MAX,
            last: None,
            after: None,
            made_before: VecDeque::new(),
            log: None,
            tee: None,
        }
    }

    /// Begins a turn of limited length; without this call there is no limit.
    pub(crate) fn begin_turn(&mut self) {
        self.turn = TURN;
    }

    /// The turn is over, for no other reason than its length.
    pub(crate) fn wants_another_turn(&self) -> bool {
        self.turn == 0
    }

    pub(crate) fn take(&mut self) -> Option<FrameMut> {
        if !self.has_room() {
            return None;
        }
        self.pool.as_ref()?.take()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.turn > 0 && self.readers_have_room()
    }

    /// Whether every reader has room, whatever may be pushed in this turn.
    pub(crate) fn readers_have_room(&self) -> bool {
        self.edges.iter().all(|edge| edge.has_room())
    }

    /// Whether nothing can be pushed now, for want of room or of a buffer.
    pub(crate) fn is_held_up(&self) -> bool {
        let has_buffer = || self.pool.as_ref().is_none_or(|pool| pool.available() > 0);
        !self.readers_have_room() || !has_buffer()
    }

    /// Whether there were readers and all are gone; `None` if there never was one.
    pub(crate) fn is_abandoned(&self) -> Option<bool> {
        (!self.edges.is_empty()).then(|| self.edges.iter().all(|edge| edge.is_closed()))
    }

    /// Has frames carry another `config_id` from a moment on.
    pub(crate) fn expect(&mut self, change: ConfigChange) {
        self.config_changes.push(change);
    }

    /// Goes over to what frames that start at `timestamp` carry.
    fn change_config(&mut self, timestamp: u64) {
        let mut index = 0;
        while let Some(change) = self.config_changes.get(index) {
            match change.at(timestamp) {
                Coming::Now(config_id) => {
                    self.config_id = config_id;
                    // What was said before is contained in what was said later.
                    self.config_changes.drain(..=index);
                    index = 0;
                }
                Coming::Never => {
                    self.config_changes.remove(index);
                }
                Coming::Later => index += 1,
            }
        }
    }

    pub(crate) fn push(&mut self, frame: FrameMut) {
        if self.must_wait() {
            self.made_before.push_back(frame.freeze());
        } else {
            self.send(frame);
        }
    }

    pub(crate) fn pass(&mut self, frame: Arc<Frame>) {
        if self.must_wait() {
            self.made_before.push_back(frame);
        } else {
            self.send_on(frame);
        }
    }

    /// A block that came here may hold a frame that it took where there was room.
    fn must_wait(&self) -> bool {
        self.after.is_some() && !self.readers_have_room()
    }

    fn send(&mut self, mut frame: FrameMut) {
        if !self.config_changes.is_empty() {
            self.change_config(frame.header().timestamp);
        }
        let header = frame.header_mut();
        header.sequence = self.sequence;
        header.config_id = self.config_id;
        self.send_on(frame.freeze());
    }

    fn send_on(&mut self, frame: Arc<Frame>) {
        let header = frame.header();
        if self.after.is_some_and(|after| header.timestamp <= after) {
            return;
        }
        if let Some(log) = &mut self.log {
            if log.len() == LOGGED {
                log.pop_front();
            }
            log.push_back((header.timestamp, header.validity.clone()));
        }
        if let Some(tee) = &mut self.tee {
            tee.push(&frame);
        }
        self.last = Some(header.timestamp);
        self.sequence += 1;
        self.turn = self.turn.saturating_sub(1);
        self.taps.iter_mut().for_each(|tap| tap.offer(&frame));
        let Some((last, others)) = self.edges.split_last() else { return };
        for edge in others {
            edge.push(Arc::clone(&frame));
        }
        last.push(frame);
    }

    pub(crate) fn pushed(&self) -> u64 {
        self.sequence
    }

    /// Frames pushed, and those that a newcomer has brought.
    pub(crate) fn to_be_pushed(&self) -> u64 {
        self.sequence + self.made_before.len() as u64
    }

    /// Where the frames come from.
    pub(crate) fn pool(&self) -> Option<Arc<Pool>> {
        self.pool.clone()
    }

    /// Timestamp of the last frame.
    pub(crate) fn last(&self) -> Option<u64> {
        self.last
    }

    /// Hands every frame that is pushed to `tee` too; the one before it ends.
    pub(crate) fn set_tee(&mut self, tee: Option<Tee>) {
        self.tee = tee;
    }

    /// Begins to log what is pushed, or ends it.
    pub(crate) fn set_log(&mut self, is_logged: bool) {
        self.log = is_logged.then(VecDeque::new);
    }

    /// What was pushed; empty if nobody compares.
    pub(crate) fn log(&mut self) -> &mut PushLog {
        self.log.get_or_insert_default()
    }

    /// Pushes what the block made before it came here, as far as there is room; `true` if nothing
    /// of it is left.
    pub(crate) fn push_made_before(&mut self) -> bool {
        while self.readers_have_room()
            && let Some(frame) = self.made_before.pop_front()
        {
            // A frame that the block passed through is shared, and keeps its number as always.
            match FrameMut::try_from(frame) {
                Ok(frame) => self.send(frame),
                Err(frame) => self.send_on(frame),
            }
        }
        self.made_before.is_empty()
    }

    /// Exchanges the blocks of this port and of `companion`, which has made the frames `made` on the
    /// side: numbers go on, and after the last frame comes the next one of the block that is new here.
    pub(crate) fn exchange(&mut self, companion: &mut Self, made: VecDeque<Arc<Frame>>) {
        std::mem::swap(&mut self.pool, &mut companion.pool);
        std::mem::swap(&mut self.config_id, &mut companion.config_id);
        // They concern the block that is here no more, or again.
        std::mem::swap(&mut self.config_changes, &mut companion.config_changes);
        self.after = self.last;
        companion.after = None;
        self.made_before = made;
        self.log = self.log.take().map(|_| VecDeque::new());
    }
}

impl Drop for FrameWriter {
    /// On whatever path the writer goes, its readers see the end of the stream.
    fn drop(&mut self) {
        self.edges.iter().for_each(|edge| edge.end());
    }
}
