//! Requirements of tests in addition to Rust: packages from the network, a browser, promtool. A test whose requirement is
//! missing is skipped with a reason on stderr, unless `CI=true`.

#![allow(dead_code, reason = "each test uses a part of it")]

use super::python;
use std::io::Write;
use std::process::{Command, Stdio};

/// NumPy, spead2 and other packages of tests/requirements.txt.
pub fn python() -> bool {
    is_met(python::environment("tests-python", "tests/requirements.txt").map(drop))
}

/// NumPy, pytest and other packages of python/tests/requirements.txt.
pub fn python_client() -> bool {
    is_met(python::environment("python-client", "python/tests/requirements.txt").map(drop))
}

/// Readers and writers of file formats, of tests/formats/requirements.txt.
pub fn formats() -> bool {
    is_met(python::environment("tests-formats", "tests/formats/requirements.txt").map(drop))
}

/// CASA, of tests/formats/casa.txt.
pub const CASA: (&str, &str) = ("tests-casa", "tests/formats/casa.txt");

/// CASA, which imports and images files.
pub fn casa() -> bool {
    is_met(python::environment(CASA.0, CASA.1).map(drop))
}

/// The schemas of Kubernetes, of tests/kubernetes.txt.
pub fn kubernetes() -> bool {
    is_met(python::environment("tests-kubernetes", "tests/kubernetes.txt").map(drop))
}

/// `systemd-analyze` of systemd.
pub fn systemd() -> bool {
    is_met(program("systemd-analyze"))
}

/// NVRTC, from a package.
pub fn nvrtc() -> bool {
    is_met(python::environment("kernels-python", "kernels/requirements.txt").map(drop))
}

/// Chromium and Playwright.
pub fn browser() -> bool {
    is_met(
        program("chromium").and_then(|()| {
            python::environment("tests-playwright", "tests/playwright.txt").map(drop)
        }),
    )
}

/// Schemathesis.
pub fn schemathesis() -> bool {
    is_met(python::environment("tests-schemathesis", "tests/schemathesis.txt").map(drop))
}

/// Debian's package `wsclean`.
pub fn wsclean() -> bool {
    is_met(program("wsclean"))
}

/// Debian's package `gnss-sdr`.
pub fn gnss_sdr() -> bool {
    is_met(program("gnss-sdr"))
}

/// Python of Debian, for which its GNU Radio is made.
pub const DEBIAN_PYTHON: &str = "/usr/bin/python3";

/// Debian's packages `gnuradio` and `gr-osmosdr`.
pub fn gnu_radio() -> bool {
    let mut command = Command::new(DEBIAN_PYTHON);
    command.args(["-c", "import gnuradio.zeromq, osmosdr"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = command.status().is_ok_and(|status| status.success());
    is_met(
        is_there.then_some(()).ok_or_else(|| "there is no `gnuradio` with `gr-osmosdr`".to_owned()),
    )
}

/// Debian's package `prometheus`.
pub fn promtool() -> bool {
    is_met(program("promtool"))
}

/// Debian's packages `slurm-wlm`, `munge` and `nftables`, and the right to make network namespaces. Skipped also with `CI=true`, which
/// does not give that right.
pub fn slurm() -> bool {
    let programs = ["slurmctld", "slurmd", "munged", "nsenter", "ip", "nft"];
    let missing = programs.iter().find(|name| {
        !std::env::split_paths("/usr/sbin:/usr/bin:/sbin:/bin").any(|path| path.join(name).exists())
    });
    let may = || {
        let mut command = Command::new("unshare");
        command.args(["-m", "-n", "true"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    match missing {
        Some(name) => skip(&format!("there is no `{name}`")),
        None if !may() => skip("network namespaces need root"),
        None => return true,
    }
    false
}

fn program(name: &str) -> Result<(), String> {
    let mut command = Command::new(name);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop).map_err(|error| format!("`{name}` cannot be started: {error}"))
}

fn is_met(found: Result<(), String>) -> bool {
    let Err(reason) = found else { return true };
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{reason}");
    skip(&format!("{reason}; CI=true makes this a failure"));
    false
}

fn skip(reason: &str) {
    let thread = std::thread::current();
    // Not `eprintln`, which the test runner keeps to itself.
    let _ =
        writeln!(std::io::stderr(), "test {} skipped: {reason}", thread.name().unwrap_or_default());
}
