//! The heap of the C library.

/// Allocations from this size on have pages of their own, which the system gets back when they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const OWN_PAGES_BYTES: i32 = 32 * 1024;

/// Has glibc give freed frames back to the system. By itself it raises the size from which it does so to that of
/// the largest block ever freed, and each thread's heap keeps what it once had: src/adr/014.
#[cfg_attr(all(target_os = "linux", target_env = "gnu"), allow(unsafe_code))]
pub fn configure() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `mallopt` takes plain numbers, and guards the heap's state with a lock of its own.
        let is_taken = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES) };
        debug_assert_eq!(is_taken, 1, "the size lies below the limit of `mallopt`");
    }
}
