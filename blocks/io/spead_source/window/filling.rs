//! Frames that several threads fill at the same time.
//!
//! One thread at a time has the window and decides where the payload of a packet belongs; the copies
//! are made after that, without the window. Two rules make this sound:
//!
//! - Copies that may be made at the same time never overlap: [`Filling::write`] waits for all earlier
//!   copies into a frame before a packet overwrites bytes that had arrived.
//! - A frame is read, sent or dropped only after all copies into it: [`Filling::close`] waits for these
//!   copies, and so does [`Writers`] when the window is dropped.
#![allow(unsafe_code)] // Threads write disjoint parts of one payload.

use super::copy;
use fxgraph::FrameMut;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest number of threads of one source.
pub const MAX_THREADS: usize = 16;
/// Largest number of copies that a thread makes after it has given the window back. Further copies are
/// made at once, so that many small packets take no more memory.
const MOST_COPIES: usize = 2048;
/// Number of checks before a thread that waits for copies lets other threads run.
const SPINS: u32 = 200;

/// Time of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    /// At once.
    Now,
    /// With the other copies of the batch.
    Later,
}

/// A copy of a packet's payload into a frame.
struct Copy {
    from: *const u8,
    to: *mut u8,
    len: usize,
}

impl Copy {
    /// Makes the copy.
    ///
    /// # Safety
    /// `from` and `to` point to `len` bytes, and nothing else accesses those at `to` during the call.
    unsafe fn make(&self) {
        // SAFETY: as the caller promises; a packet is not in a frame.
        unsafe { copy::copy(self.from, self.to, self.len) };
    }
}

/// Memory for the copies of one thread, kept from batch to batch.
#[derive(Default)]
pub struct Copies(Vec<Copy>);

// SAFETY: the list is empty while it is not in a `Writers` or a `Pending`, which see to the rest.
unsafe impl Send for Copies {}

impl Copies {
    /// Allocates the memory.
    #[must_use]
    pub fn new() -> Self {
        Self(Vec::with_capacity(MOST_COPIES))
    }

    fn make(&mut self) {
        for copy in self.0.drain(..) {
            // SAFETY: the payload is alive: `Pending` borrows the datagrams, and `Window::batch` makes the
            // copies itself if it ends by a panic. The frame is alive and not read: its `Filling` waits
            // for this thread. Copies of other threads go to other bytes, as `Filling::write` sees to.
            unsafe { copy.make() };
        }
    }
}

/// Number of the last batch of a thread whose copies are made. Each on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Made(AtomicU64);

/// The threads that fill frames of one window.
pub struct Writers {
    made: Arc<[Made]>,
    /// Number of batches of each thread.
    batches: [u64; MAX_THREADS],
    /// Thread that has the window for a batch.
    current: Option<usize>,
    /// Copies of this batch.
    copies: Copies,
}

impl Writers {
    /// Creates the state for `threads` threads.
    pub fn new(threads: usize) -> Self {
        let threads = threads.clamp(1, MAX_THREADS);
        Self {
            made: (0..threads).map(|_| Made::default()).collect(),
            batches: [0; MAX_THREADS],
            current: None,
            copies: Copies::default(),
        }
    }

    /// Begins a batch of `thread`, whose copies use the memory of `copies`.
    pub fn begin(&mut self, thread: usize, copies: Copies) {
        assert!(thread < self.made.len(), "a thread of the window");
        self.batches[thread] += 1;
        self.current = Some(thread);
        self.copies = copies;
    }

    /// Ends the batch, if one has begun, and returns the copies to make. The datagrams of the batch must
    /// live for `'a`.
    pub fn end<'a>(&mut self) -> Option<Pending<'a>> {
        let thread = self.current.take()?;
        Some(Pending {
            copies: std::mem::take(&mut self.copies),
            made: Arc::clone(&self.made),
            thread,
            batch: self.batches[thread],
            datagrams: PhantomData,
        })
    }

    /// Waits until the copies of the batches `last` of each thread are made.
    fn settle(&mut self, last: &[u64; MAX_THREADS]) {
        self.copies.make();
        copy::publish();
        for (thread, (made, batch)) in self.made.iter().zip(last).enumerate() {
            // All copies of the thread that has the window are made now.
            let is_current = self.current == Some(thread);
            let mut checks = 0_u32;
            while !is_current && made.0.load(Ordering::Acquire) < *batch {
                checks = checks.saturating_add(1);
                if checks < SPINS {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
            }
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        let batches = self.batches;
        self.settle(&batches);
    }
}

/// Copies of a batch, made when this is dropped, at the latest.
///
/// If it is leaked instead, its frames are never sent: the window waits for them.
pub struct Pending<'a> {
    copies: Copies,
    made: Arc<[Made]>,
    thread: usize,
    batch: u64,
    datagrams: PhantomData<&'a [u8]>,
}

impl Pending<'_> {
    /// Makes the copies and returns their memory.
    #[must_use]
    pub fn make(mut self) -> Copies {
        self.make_all();
        std::mem::take(&mut self.copies)
    }

    fn make_all(&mut self) {
        self.copies.make();
        copy::publish();
        self.made[self.thread].0.store(self.batch, Ordering::Release);
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.make_all();
    }
}

/// A frame that is being filled.
pub struct Filling {
    frame: FrameMut,
    /// The payload. The frame itself is not accessed until it is closed.
    payload: *mut u8,
    len: usize,
    /// Last batch of each thread with a copy into this frame.
    last: [u64; MAX_THREADS],
}

// SAFETY: `payload` points into `frame`, which this type owns.
unsafe impl Send for Filling {}

impl Filling {
    /// Begins to fill `frame`. It must be closed, or dropped after the `Writers` of its window.
    pub fn new(mut frame: FrameMut) -> Self {
        let payload = frame.as_mut_slice::<u8>().expect(fxgraph::ON_HOST);
        let (payload, len) = (payload.as_mut_ptr(), payload.len());
        Self { frame, payload, len, last: [0; MAX_THREADS] }
    }

    /// Copies `bytes` to the range `to` of the payload. `overlaps`: bytes of the range may have been written.
    ///
    /// # Safety
    /// With [`Copying::Later`], `bytes` must live until the `Pending` of the batch was dropped.
    pub unsafe fn write(
        &mut self,
        writers: &mut Writers,
        to: Range<usize>,
        bytes: &[u8],
        overlaps: bool,
        when: Copying,
    ) {
        assert!(to.end <= self.len && to.len() == bytes.len(), "packets are inside their heaps");
        if overlaps {
            writers.settle(&self.last);
        }
        // SAFETY: the range is inside the payload.
        let target = unsafe { self.payload.add(to.start) };
        let copy = Copy { from: bytes.as_ptr(), to: target, len: bytes.len() };
        let later = writers.current.filter(|_| when == Copying::Later && writers.made.len() > 1);
        if let Some(thread) = later {
            if writers.copies.0.len() == MOST_COPIES {
                writers.copies.make();
            }
            writers.copies.0.push(copy);
            self.last[thread] = writers.batches[thread];
            return;
        }
        // SAFETY: the ranges are as asserted. All copies that may be made at this time are of bytes that
        // arrived before, and those of this packet did not, or their copies are made.
        unsafe { copy.make() };
        if writers.made.len() > 1 {
            // Another thread may close the frame.
            copy::publish();
        }
    }

    /// Returns the frame once all copies into it are made.
    pub fn close(self, writers: &mut Writers) -> FrameMut {
        writers.settle(&self.last);
        self.frame
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::frame::{HostAllocator, Pool};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    fn filling() -> Filling {
        let pool = Pool::new(&HostAllocator, 1, 64, 1).unwrap();
        Filling::new(pool.take().unwrap())
    }

    /// Writes `bytes` to `to` as part of a batch.
    fn write(filling: &mut Filling, writers: &mut Writers, to: Range<usize>, bytes: &[u8]) {
        // SAFETY: the callers drop the `Pending` before `bytes`.
        unsafe { filling.write(writers, to, bytes, false, Copying::Later) };
    }

    #[test]
    fn frame_is_closed_only_after_the_copies_of_another_thread() {
        let (mut writers, mut frame) = (Writers::new(2), filling());
        let bytes = [7; 8];
        writers.begin(1, Copies::new());
        write(&mut frame, &mut writers, 8..16, &bytes);
        let pending = writers.end().unwrap();
        let (closed, is_closed) = channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                writers.begin(0, Copies::new());
                let frame = frame.close(&mut writers);
                drop(writers.end());
                closed.send(frame.as_slice::<u8>().unwrap().to_vec()).unwrap();
            });
            assert!(is_closed.recv_timeout(Duration::from_millis(50)).is_err());
            drop(pending);
            let payload = is_closed.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(payload[8..16], bytes);
        });
    }

    #[test]
    fn own_copies_of_the_batch_are_made_before_a_frame_is_closed() {
        let (mut writers, mut frame) = (Writers::new(2), filling());
        let bytes = [7; 8];
        writers.begin(1, Copies::new());
        write(&mut frame, &mut writers, 0..8, &bytes);
        assert_eq!(frame.close(&mut writers).as_slice::<u8>().unwrap()[..8], bytes);
        assert_eq!(writers.end().unwrap().make().0.capacity(), MOST_COPIES);
    }

    #[test]
    fn many_small_packets_take_no_more_memory() {
        let (mut writers, mut frame) = (Writers::new(2), filling());
        let bytes = [7; 1];
        writers.begin(0, Copies::new());
        for at in 0..10 * MOST_COPIES {
            write(&mut frame, &mut writers, at % 64..at % 64 + 1, &bytes);
        }
        assert_eq!(writers.end().unwrap().make().0.capacity(), MOST_COPIES);
        assert_eq!(frame.close(&mut writers).as_slice::<u8>().unwrap(), [7; 64]);
    }

    #[test]
    #[should_panic(expected = "inside their heaps")]
    fn write_beyond_the_payload_is_rejected() {
        let (mut writers, mut frame) = (Writers::new(1), filling());
        write(&mut frame, &mut writers, 60..68, &[0; 8]);
    }
}
