//! Error of the clock of the host, as known to its kernel.
#![allow(unsafe_code)] // One system call.

/// Largest error of the clock of the host in seconds, as estimated by NTP or PTP; `None` if the clock is not
/// synchronised, or if the system does not tell.
#[cfg(target_os = "linux")]
#[must_use]
pub fn error_seconds() -> Option<f64> {
    // SAFETY: all fields are plain numbers; with `modes` 0 the call writes them and changes nothing.
    let (state, reply) = unsafe {
        let mut reply: libc::timex = std::mem::zeroed();
        (libc::adjtimex(&raw mut reply), reply)
    };
    let is_synchronised = state >= 0 && reply.status & libc::STA_UNSYNC == 0;
    let error = f64::from(u32::try_from(reply.maxerror).unwrap_or(u32::MAX)) / 1e6;
    is_synchronised.then_some(error)
}

/// The same: not known.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub const fn error_seconds() -> Option<f64> {
    None
}
