//! Configuration of the C library's heap.

/// Smallest allocation in bytes with pages of its own, which return to the system when freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const OWN_PAGES_BYTES: i32 = 32 * 1024;

/// Makes glibc return freed frames to the system. Without this, glibc raises the threshold to the size of the
/// largest block ever freed, and the heap of each thread keeps its memory: src/adr/014.
#[cfg_attr(all(target_os = "linux", target_env = "gnu"), allow(unsafe_code))]
pub fn configure() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `mallopt` takes plain numbers and locks the heap's state.
        let is_taken = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES_BYTES) };
        debug_assert_eq!(is_taken, 1, "the threshold is below the limit of `mallopt`");
    }
}
