//! Payloads of frames in device memory and in pinned host memory.
#![allow(unsafe_code)] // memory that these types own

use super::Device;
use super::memory::{Allocation, HostMemory, SLACK_BYTES};
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::{Allocator, DeviceBuffer, Frame, HostBuffer, OutOfMemory, Storage};
use std::any::Any;
use std::sync::Arc;

/// Alignment of the payloads of a pool, that of the driver's own allocations.
const ALIGNMENT: usize = 256;
/// Pages of device memory: the driver rounds large allocations up to them.
const PAGE_BYTES: usize = 2 << 20;
/// Payload of a frame in pinned host memory. The one job or block that owns a frame writes it; others read it only
/// afterwards.
struct PinnedPayload(HostMemory);

impl HostBuffer for PinnedPayload {
    fn words(&self) -> &[u128] {
        let words = self.0.len() / size_of::<u128>();
        // SAFETY: whole words of memory that `self` owns, whose frame is shared for reading.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), words) }
    }
    fn words_mut(&mut self) -> &mut [u128] {
        let words = self.0.len() / size_of::<u128>();
        // SAFETY: whole words of memory that `self` owns; the frame is borrowed exclusively, so no job owns it.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), words) }
    }
}

/// Allocator of frame payloads in device memory.
pub struct DeviceAllocator(pub Arc<Device>);

/// Payload of a frame: a part of device memory that the frames of a pool share.
struct Payload {
    memory: Arc<Allocation>,
    address: u64,
    bytes: usize,
}

/// Divides `memory`, of [`pool_bytes`], among `count` payloads of `bytes` bytes.
fn payloads(memory: Allocation, count: usize, bytes: usize) -> impl Iterator<Item = Payload> {
    let memory = Arc::new(memory);
    (0..count).map(move |index| {
        let address = memory.address + (index * stride(bytes)) as u64;
        Payload { memory: Arc::clone(&memory), address, bytes }
    })
}

/// Bytes from one payload of `bytes` bytes to the next one.
const fn stride(bytes: usize) -> usize {
    bytes.saturating_add(SLACK_BYTES).next_multiple_of(ALIGNMENT)
}

/// Device memory that a pool of `count` frames of `bytes` bytes takes, as the driver rounds it.
#[must_use]
pub const fn pool_bytes(count: usize, bytes: usize) -> usize {
    let whole = count.saturating_mul(stride(bytes));
    match whole.checked_next_multiple_of(PAGE_BYTES) {
        // Small allocations share a page.
        _ if whole <= PAGE_BYTES / 2 => whole,
        Some(whole) => whole,
        None => usize::MAX,
    }
}

impl DeviceBuffer for Payload {
    fn len_bytes(&self) -> usize {
        self.bytes
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Allocator for DeviceAllocator {
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory> {
        let one = self.allocate_pool(1, bytes)?.pop();
        one.ok_or_else(|| OutOfMemory { bytes, memory: format!("cuda:{}", self.0.ordinal()) })
    }

    fn allocate_pool(&self, count: usize, bytes: usize) -> Result<Vec<Storage>, OutOfMemory> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let whole = count.saturating_mul(stride(bytes));
        let failed = || OutOfMemory { bytes: whole, memory: format!("cuda:{}", self.0.ordinal()) };
        let memory = Allocation::new(&self.0, whole - SLACK_BYTES).map_err(|_| failed())?;
        let storage = |payload| Storage::Device(Box::new(payload));
        Ok(payloads(memory, count, bytes).map(storage).collect())
    }
}

/// Allocator of frame payloads in pinned host memory.
pub struct PinnedAllocator(pub Arc<Device>);

impl Allocator for PinnedAllocator {
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory> {
        let memory = HostMemory::new(&self.0, bytes.next_multiple_of(size_of::<u128>()))
            .map_err(|_| OutOfMemory { bytes, memory: "pinned".to_owned() })?;
        Ok(Storage::Host(Box::new(PinnedPayload(memory))))
    }
}

/// Returns the address of the payload of `frame` on `device`.
///
/// # Errors
/// If the payload is not in the memory of `device`.
pub fn frame_address(frame: &Frame, device: &Device) -> Result<u64, BlockError> {
    payload(frame, device).map(|payload| payload.address)
}

/// Returns the allocation of the payload of `frame`, which is on `device`, and the offset of the payload in it.
pub(super) fn placed<'a>(
    frame: &'a Frame,
    device: &Device,
) -> Result<(&'a Allocation, u64), BlockError> {
    let Payload { memory, address, .. } = payload(frame, device)?;
    Ok((memory, address - memory.address))
}

fn payload<'a>(frame: &'a Frame, device: &Device) -> Result<&'a Payload, BlockError> {
    let payload = match frame.storage() {
        Storage::Device(buffer) => buffer.as_any().downcast_ref::<Payload>(),
        Storage::Host(_) => None,
    };
    payload
        .filter(|payload| payload.memory.owner.device().ordinal() == device.ordinal())
        .ok_or_else(|| BlockError::new(format!("the frame is not on cuda:{}", device.ordinal())))
}

#[cfg(test)]
mod tests {
    use super::super::memory::Owner;
    use super::*;
    use std::sync::OnceLock;

    #[test]
    fn payloads_of_a_pool_lie_aligned_apart_with_slack_after_each() {
        for (count, bytes) in [(1, 1), (3, 1000), (5, 1 << 16), (4, 256)] {
            let size = count * stride(bytes);
            let (owner, memory) = Owner::heap(size);
            let start = memory.expose_provenance() as u64;
            let memory = Allocation { owner, address: start, handle: OnceLock::new() };
            let all: Vec<Payload> = payloads(memory, count, bytes).collect();
            assert_eq!(all.len(), count);
            for (payload, next) in all.iter().zip(all.iter().skip(1)) {
                assert!(payload.address + (bytes + SLACK_BYTES) as u64 <= next.address);
                assert_eq!((next.address - start) % ALIGNMENT as u64, 0);
            }
            let end = all[count - 1].address + (bytes + SLACK_BYTES) as u64;
            assert!(end <= start + size as u64, "{count} of {bytes}");
            assert!(size <= pool_bytes(count, bytes));
            // The memory lives as long as one of them.
            let last = all.into_iter().next_back();
            assert_eq!(last.map(|payload| Arc::strong_count(&payload.memory)), Some(1));
        }
    }

    #[test]
    fn pool_takes_one_page_more_than_its_frames_at_most() {
        // Each frame of its own would take 18 MiB.
        assert_eq!(pool_bytes(8, 16 << 20), (8 * 16 + 2) << 20);
        assert_eq!(pool_bytes(0, 1 << 20), 0);
        assert_eq!(pool_bytes(2, 100), 1024);
        assert_eq!(pool_bytes(1, (1 << 20) + 1), PAGE_BYTES);
        assert_eq!(pool_bytes(usize::MAX, 1 << 20), usize::MAX);
    }
}
