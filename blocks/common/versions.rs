//! Tables on a device whose values change at timestamps.

use bytemuck::Pod;
use fxgraph::BlockError;
use fxgraph::cuda::{CudaError, Device, DeviceArray, InUse, Lane, Pinned};
use fxgraph::retune::{Change, Changes, Timed};
use std::sync::Arc;

/// Versions of a table that there is room for: one that holds, those that jobs in flight may still
/// use, and those that are to come.
pub const PLACES: usize = 9;

/// Changes of a table that may wait for their timestamps: all of them may come within one frame, and one
/// that comes at once besides.
const MOST_WAITING: usize = PLACES - 3;

/// Refuses a change of one of `tables`, parameters that are kept so, if too many changes of it wait.
pub fn refuse_many<V: 'static>(
    tables: &[&'static str],
    changes: &Changes<V>,
    change: &Change,
) -> Result<(), BlockError> {
    let is_full =
        |name: &&'static str| tables.contains(name) && changes.waiting(name) >= MOST_WAITING;
    match change.parameters().find(is_full) {
        Some(name) => {
            let text =
                format!("on a GPU it keeps {MOST_WAITING} changes of `{name}` for later at most");
            Err(BlockError::new(text))
        }
        None => Ok(()),
    }
}

/// A table of which several versions are on the device, each from a timestamp on.
///
/// The block writes a version when it begins the frame in which it first holds, and sends it with
/// that frame's job, ahead of the kernels; nothing is allocated, and nothing waits for the device.
pub struct Versions<T> {
    host: Vec<Pinned<T>>,
    device: Vec<DeviceArray<T>>,
    /// Places by the timestamps from which their versions hold.
    places: Timed<usize>,
    ring: Ring,
    /// Why a version could not be written: the next job fails.
    failed: Option<InUse>,
}

/// Which places versions are written to, one after the other and round.
#[derive(Default)]
struct Ring {
    /// Place of the version that was written last.
    newest: usize,
    /// Versions that were written and not sent.
    unsent: usize,
    /// Versions that were written since the lane was idle.
    written: usize,
}

impl Ring {
    /// See [`Versions::has_room`].
    fn has_room(&mut self, lane_is_idle: bool) -> bool {
        if lane_is_idle {
            self.written = 0;
        }
        self.written + MOST_WAITING + 1 < PLACES
    }

    /// The place of another version.
    fn next(&mut self) -> usize {
        self.newest = (self.newest + 1) % PLACES;
        self.written += 1;
        // Of frames that are never made, versions are never sent: they may be more than there are places.
        self.unsent = (self.unsent + 1).min(PLACES);
        self.newest
    }

    /// The places to be sent, which are from now on.
    fn send(&mut self) -> impl Iterator<Item = usize> + use<> {
        let newest = self.newest;
        let back = 0..std::mem::take(&mut self.unsent);
        back.rev().map(move |back| (newest + PLACES - back) % PLACES)
    }
}

impl<T: Pod> Versions<T> {
    /// A table that holds `first` until it is changed. Waits for the device: for the start.
    pub fn new(device: &Arc<Device>, first: &[T]) -> Result<Self, CudaError> {
        let places = 0..PLACES;
        let mut on_device = places
            .clone()
            .map(|_| DeviceArray::new(device, first.len()))
            .collect::<Result<Vec<_>, _>>()?;
        on_device[0].write(first)?;
        Ok(Self {
            host: places.map(|_| Pinned::new(device, first.len())).collect::<Result<_, _>>()?,
            device: on_device,
            places: Timed::new(0),
            ring: Ring::default(),
            failed: None,
        })
    }

    /// Bytes on the device of a table of `len` elements.
    #[must_use]
    pub const fn device_bytes(len: usize) -> usize {
        PLACES * len * size_of::<T>()
    }

    /// Whether all changes that there may be can come with the next frame, which is not begun yet; if not,
    /// that has to be begun when the lane is idle.
    pub fn has_room(&mut self, lane_is_idle: bool) -> bool {
        self.ring.has_room(lane_is_idle)
    }

    /// From timestamp `from` on the table holds what `write` writes.
    pub fn set(&mut self, from: u64, write: impl FnOnce(&mut [T])) {
        let place = self.ring.next();
        // A place comes round only when no job uses it any more.
        match self.host[place].get_mut() {
            Ok(table) => write(table),
            Err(error) => self.failed = Some(error),
        }
        self.places.set(from, place);
    }

    /// Queues the copies of what was written, as tables of the lane's job.
    pub fn send<J>(&mut self, lane: &mut Lane<J>) -> Result<(), BlockError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        let unsent = self.ring.unsent;
        for place in self.ring.send() {
            let device = &self.device[place];
            let sent = lane.send(&mut self.host[place], device, 0..device.len());
            // The next job sends them again.
            sent.inspect_err(|_| self.ring.unsent = unsent)?;
        }
        Ok(())
    }

    /// Forgets what held before `timestamp` only.
    pub fn advance(&mut self, timestamp: u64) {
        self.places.advance(timestamp);
    }

    /// Where the version that holds at `timestamp` is on the device.
    #[must_use]
    pub fn address(&self, timestamp: u64) -> u64 {
        self.device[*self.places.at(timestamp)].address()
    }

    /// How many timestamps from `start` on, `step` apart and at most `most`, have one version.
    #[must_use]
    pub fn run(&self, start: u64, step: u64, most: usize) -> usize {
        self.places.run(start, step, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_sent_once_however_many_frames_are_never_made() {
        let mut ring = Ring::default();
        let first: Vec<usize> = (0..3).map(|_| ring.next()).collect();
        assert_eq!(ring.send().collect::<Vec<_>>(), first);
        assert_eq!(ring.send().count(), 0);
        for _ in 0..5 * PLACES {
            ring.next();
        }
        let newest = ring.newest;
        let mut sent: Vec<usize> = ring.send().collect();
        assert_eq!(sent.last(), Some(&newest));
        sent.sort_unstable();
        assert_eq!(sent, (0..PLACES).collect::<Vec<_>>());
    }

    #[test]
    fn no_version_is_overwritten_that_jobs_in_flight_may_use() {
        let mut ring = Ring::default();
        for is_sent in [true, false] {
            assert!(ring.has_room(true));
            let held = ring.newest;
            let mut taken = vec![held];
            while ring.has_room(false) {
                taken.push(ring.next());
                if is_sent {
                    assert_eq!(ring.send().count(), 1);
                }
            }
            // All that can come with the last frame that had room.
            taken.extend((0..MOST_WAITING).map(|_| ring.next()));
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), PLACES, "{is_sent}");
        }
    }
}
