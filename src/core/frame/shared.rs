//! Host memory that another process can map: an anonymous file (memfd) for each buffer.
#![allow(unsafe_code)]

use super::{Allocator, HostBuffer, OutOfMemory, Storage};
use memmap2::{MmapMut, MmapOptions};
use rustix::fs::{
    FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals,
    fcntl_get_seals, memfd_create, open,
};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Unit of the size of shared memory, in bytes.
const PAGE_BYTES: usize = 4096;

/// Host memory that another process can map, through a descriptor without a name in any file system. Nothing is left
/// when the last process that has it ends.
pub struct SharedMemory {
    map: MmapMut,
    file: OwnedFd,
    identity: Arc<()>,
}

impl SharedMemory {
    /// Memory of at least `bytes` bytes, a multiple of the page size. All pages are allocated now, so that a lack of
    /// memory is an error here; the size is sealed, so that no process can take pages away.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let file = memfd_create("fxgraph", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        // SAFETY: the size is sealed, so every page stays. Another process writes only while the owner of this memory
        // has lent it and keeps no reference to its content (see `file`).
        let map = unsafe { MmapOptions::new().len(bytes).populate().map_mut(&file)? };
        Ok(Self { map, file, identity: Arc::new(()) })
    }

    /// The file, for a process that may write. The caller must not read or write the memory until that process has
    /// returned it.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The file, opened for reading only, and sealed: only the maps for writing that exist now can write. A process that
    /// gets this descriptor cannot write, also not through another descriptor, which it gets if it opens
    /// `/proc/self/fd` again.
    pub fn read_only(&self) -> io::Result<OwnedFd> {
        match fcntl_add_seals(&self.file, SealFlags::FUTURE_WRITE) {
            // Kernels before 5.1 do not have this seal: there the descriptor alone protects the memory.
            Ok(()) | Err(Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        Ok(open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Whether another process can still map the memory for writing: not after [`read_only`](Self::read_only).
    #[must_use]
    pub fn takes_writers(&self) -> bool {
        fcntl_get_seals(&self.file).is_ok_and(|seals| !seals.contains(SealFlags::FUTURE_WRITE))
    }

    /// Size in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.map.len()
    }

    /// Token of this memory: a `Weak` of it tells whether the memory still exists.
    #[must_use]
    pub fn identity(&self) -> &Arc<()> {
        &self.identity
    }

    /// The memory.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The memory, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }
}

impl HostBuffer for SharedMemory {
    fn words(&self) -> &[u128] {
        // A map begins at a page and has whole pages.
        bytemuck::cast_slice(&self.map)
    }

    fn words_mut(&mut self) -> &mut [u128] {
        bytemuck::cast_slice_mut(&mut self.map)
    }

    fn shared(&self) -> Option<&SharedMemory> {
        Some(self)
    }
}

/// Allocator of host memory that other processes can map.
pub struct SharedAllocator;

impl Allocator for SharedAllocator {
    fn allocate(&self, bytes: usize) -> Result<Storage, OutOfMemory> {
        let memory = SharedMemory::new(bytes);
        let memory = memory.map_err(|_| OutOfMemory { bytes, memory: "shared".to_owned() })?;
        Ok(Storage::Host(Box::new(memory)))
    }
}

#[cfg(all(test, not(miri)))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Pool;
    use super::*;

    #[test]
    fn shared_memory_is_seen_through_its_files_and_not_written_through_the_read_only_one() {
        let mut memory = SharedMemory::new(5000).unwrap();
        assert_eq!(memory.len_bytes(), 8192);
        memory.bytes_mut()[4999] = 7;
        let read_only = memory.read_only().unwrap();
        let mut found = [0];
        rustix::io::pread(&read_only, &mut found, 4999).unwrap();
        assert_eq!(found, [7]);
        // A process may open its descriptor again, with the access that the file allows.
        let path = format!("/proc/self/fd/{}", read_only.as_raw_fd());
        let again = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for file in [&read_only, &again] {
            // SAFETY: the map is dropped at once.
            let written = unsafe { MmapOptions::new().len(8192).map_mut(file) };
            assert!(written.is_err());
            assert!(rustix::io::pwrite(file, &[9], 4999).is_err());
        }
        assert!(rustix::fs::ftruncate(memory.file(), 0).is_err());
        memory.bytes_mut()[4999] = 8;
        rustix::io::pread(&read_only, &mut found, 4999).unwrap();
        assert_eq!(found, [8], "the owner writes on");
    }

    #[test]
    fn writer_that_mapped_the_memory_before_it_was_sealed_writes_on() {
        let memory = SharedMemory::new(1).unwrap();
        assert!(memory.takes_writers());
        // SAFETY: no reference to this memory exists.
        let mut writer = unsafe { MmapOptions::new().len(4096).map_mut(&memory.file()) }.unwrap();
        let read_only = memory.read_only().unwrap();
        assert!(!memory.takes_writers());
        writer[0] = 5;
        let mut found = [0];
        rustix::io::pread(&read_only, &mut found, 0).unwrap();
        assert_eq!(found, [5]);
    }

    #[test]
    fn pool_of_shared_memory_has_frames_that_name_their_memory() {
        let pool = Pool::new(&SharedAllocator, 1, 100, 0).unwrap();
        let mut frame = pool.take().unwrap();
        assert_eq!(frame.as_mut_slice::<u8>().unwrap().len(), 100);
        let identity = Arc::downgrade(frame.shared().unwrap().identity());
        drop(frame);
        assert!(identity.upgrade().is_some());
        pool.shrink(1);
        assert!(identity.upgrade().is_none());
    }
}
