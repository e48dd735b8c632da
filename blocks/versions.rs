//! Tables on a device whose values change at timestamps.
#![allow(unsafe_code)] // copies between arrays of the same length

use bytemuck::Pod;
use fxgraph::BlockError;
use fxgraph::cuda::{CudaError, Device, DeviceArray, Lane, Pinned};
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
    /// Place of the version that was written last.
    newest: usize,
    /// Versions that were written and not sent.
    unsent: usize,
    /// Versions that were written since the lane was idle.
    written: usize,
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
            newest: 0,
            unsent: 0,
            written: 0,
        })
    }

    /// Bytes on the device of a table of `len` elements.
    #[must_use]
    pub const fn device_bytes(len: usize) -> usize {
        PLACES * len * size_of::<T>()
    }

    /// Whether all changes that there may be can come with the next frame; if not, that has to be begun
    /// when the lane is idle.
    pub fn has_room(&mut self, lane_is_idle: bool) -> bool {
        if lane_is_idle && self.unsent == 0 {
            self.written = 0;
        }
        self.unsent > 0 || self.written + MOST_WAITING + 1 < PLACES
    }

    /// From timestamp `from` on the table holds what `write` writes.
    pub fn set(&mut self, from: u64, write: impl FnOnce(&mut [T])) {
        self.newest = (self.newest + 1) % PLACES;
        write(&mut self.host[self.newest]);
        self.places.set(from, self.newest);
        self.unsent += 1;
        self.written += 1;
    }

    /// Queues the copies of what was written, as tables of the lane's job.
    pub fn send<J>(&mut self, lane: &Lane<J>) -> Result<(), BlockError> {
        for back in (0..self.unsent).rev() {
            let place = (self.newest + PLACES - back) % PLACES;
            let (host, device) = (&self.host[place], &self.device[place]);
            // SAFETY: the arrays are of one length, and live as long as the lane's block.
            unsafe { lane.copy(device.address(), host.address(), device.bytes()) }?;
        }
        self.unsent = 0;
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
