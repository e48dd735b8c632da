//! Tables on a device whose values change at timestamps (live updates).

use bytemuck::Pod;
use fxgraph::BlockError;
use fxgraph::changes::{Change, Changes, Timed};
use fxgraph::cuda::{CudaError, Device, DeviceArray, InUse, Pinned, Pipeline};
use std::sync::Arc;

/// Number of versions of a table: the current one, those that jobs in flight may still use, and scheduled
/// ones.
pub const PLACES: usize = 9;

/// Largest number of scheduled changes of a table: all of them, and one immediate change, may fall within
/// one frame.
const MOST_WAITING: usize = PLACES - 3;

/// Returns an error for a change of one of `tables` if too many changes of this parameter are scheduled.
pub fn reject_many<V: 'static>(
    tables: &[&'static str],
    changes: &Changes<V>,
    change: &Change,
) -> Result<(), BlockError> {
    let is_full =
        |name: &&'static str| tables.contains(name) && changes.waiting(name) >= MOST_WAITING;
    match change.parameters().find(is_full) {
        Some(name) => {
            let text =
                format!("on a GPU at most {MOST_WAITING} changes of `{name}` can be scheduled");
            Err(BlockError::new(text))
        }
        None => Ok(()),
    }
}

/// Table with several versions on the device, each valid from a timestamp on.
///
/// The block writes a version when it begins the first frame in which the version is valid, and sends it with
/// the job of that frame, before the kernels; nothing is allocated, and the block does not wait for the device.
pub struct Versions<T> {
    host: Vec<Pinned<T>>,
    device: Vec<DeviceArray<T>>,
    /// Places of the versions by the timestamps from which they are valid.
    places: Timed<usize>,
    ring: Ring,
    /// Error of a version that could not be written; the next job returns it.
    failed: Option<InUse>,
}

/// Ring of the places to which versions are written.
#[derive(Default)]
struct Ring {
    /// Place of the newest version.
    newest: usize,
    /// Number of versions written but not sent.
    unsent: usize,
    /// Number of versions written since the CUDA pipeline was idle.
    written: usize,
}

impl Ring {
    /// See [`Versions::has_room`].
    fn has_room(&mut self, pipeline_is_idle: bool) -> bool {
        if pipeline_is_idle {
            self.written = 0;
        }
        self.written + MOST_WAITING + 1 < PLACES
    }

    /// Returns the place for another version.
    fn next(&mut self) -> usize {
        self.newest = (self.newest + 1) % PLACES;
        self.written += 1;
        // Versions of frames that are never computed are never sent; there may be more than places.
        self.unsent = (self.unsent + 1).min(PLACES);
        self.newest
    }

    /// Returns the places to send, and marks them as sent.
    fn send(&mut self) -> impl Iterator<Item = usize> + use<> {
        let newest = self.newest;
        let back = 0..std::mem::take(&mut self.unsent);
        back.rev().map(move |back| (newest + PLACES - back) % PLACES)
    }
}

impl<T: Pod> Versions<T> {
    /// Creates a table with the values `first`. Waits for the device; called at the start.
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

    /// Returns the size of a table of `len` elements on the device, in bytes.
    #[must_use]
    pub const fn device_bytes(len: usize) -> usize {
        PLACES * len * size_of::<T>()
    }

    /// Whether the next frame can be begun with any number of changes; if not, it must be begun when the
    /// CUDA pipeline is idle.
    pub fn has_room(&mut self, pipeline_is_idle: bool) -> bool {
        self.ring.has_room(pipeline_is_idle)
    }

    /// Schedules the values that `write` writes, valid from timestamp `from`.
    pub fn set(&mut self, from: u64, write: impl FnOnce(&mut [T])) {
        let place = self.ring.next();
        // A place is reused only when no job uses it any more.
        match self.host[place].get_mut() {
            Ok(table) => write(table),
            Err(error) => self.failed = Some(error),
        }
        self.places.set(from, place);
    }

    /// Queues the copies of new versions, as tables of the present job.
    pub fn send<J>(&mut self, pipeline: &mut Pipeline<J>) -> Result<(), BlockError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        let unsent = self.ring.unsent;
        for place in self.ring.send() {
            let device = &self.device[place];
            let sent = pipeline.send(&mut self.host[place], device, 0..device.len());
            // After an error the next job sends the versions again.
            sent.inspect_err(|_| self.ring.unsent = unsent)?;
        }
        Ok(())
    }

    /// Forgets versions that are valid only before `timestamp`.
    pub fn advance(&mut self, timestamp: u64) {
        self.places.advance(timestamp);
    }

    /// Returns the device address of the version valid at `timestamp`.
    #[must_use]
    pub fn address(&self, timestamp: u64) -> u64 {
        self.device[*self.places.at(timestamp)].address()
    }

    /// Returns the number of timestamps from `start` on, `step` apart, with the same version; at most `most`.
    #[must_use]
    pub fn run(&self, start: u64, step: u64, most: usize) -> usize {
        self.places.run(start, step, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_sent_once_despite_skipped_frames() {
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
    fn versions_used_by_jobs_in_flight_are_not_overwritten() {
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
            // All changes that can fall within the last frame for which there was room.
            taken.extend((0..MOST_WAITING).map(|_| ring.next()));
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), PLACES, "{is_sent}");
        }
    }
}
