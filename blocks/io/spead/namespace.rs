//! Hosts of tests: network namespaces with virtual interfaces.
//!
//! They need root and `ip`; without them a test is skipped with a reason on stderr. With `CI=true` a missing `ip` is a failure;
//! a user without root may run `.ci/run`.
#![allow(unsafe_code)] // unshare has no safe interface.
#![allow(clippy::unwrap_used)]

use crate::common::net::interface::Interface;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

/// Says why the test of this thread does nothing.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    // Not `eprintln`, which the test runner keeps to itself.
    let name = thread.name().unwrap_or_default();
    let _ = writeln!(std::io::stderr(), "test {name} skipped: {reason}");
}

/// Gives this thread, and its threads, a new network namespace.
pub fn unshare() -> bool {
    // SAFETY: no pointers; only this thread is affected.
    unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 }
}

/// Runs `ip` and returns its output.
pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Makes the interface `rx0`, which has 10.77.0.1 and `queues` receive queues; its peer is `tx0`.
pub fn interface(queues: usize) {
    let of = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!(
        "link add rx0 address 02:00:00:00:00:01 mtu 9000 {of} type veth peer name tx0 mtu 9000 {of}"
    ));
    ip("address add 10.77.0.1/24 dev rx0");
    ["lo", "rx0", "tx0"].iter().for_each(|name| _ = ip(&format!("link set {name} up")));
    carrier();
}

/// Waits until the interface `rx0` passes packets, which is a moment after it is up.
pub fn carrier() {
    let deadline = Instant::now() + Duration::from_mins(1);
    while let Some(fault) = Interface::find("rx0").unwrap().fault() {
        assert!(Instant::now() < deadline, "rx0 {fault}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `test` on a thread in a namespace with an [`interface`].
pub fn on_host(queues: usize, test: impl FnOnce() + Send) {
    if !std::env::split_paths("/usr/sbin:/usr/bin:/sbin:/bin").any(|p| p.join("ip").exists()) {
        let reason = "there is no `ip`: install Debian's package `iproute2`";
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{reason}");
        return skip(&format!("{reason}; CI=true makes this a failure"));
    }
    let run = || {
        if !unshare() {
            return false;
        }
        interface(queues);
        test();
        true
    };
    let ran = std::thread::scope(|scope| scope.spawn(run).join());
    match ran {
        Ok(true) => {}
        Ok(false) => skip("network namespaces need root"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
