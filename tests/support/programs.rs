//! Scripts that a test lets others run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program to `path`. A process of its own writes it: one that another test starts meanwhile has copies of this
/// process's open files until it runs its own program, and a file that is open for writing cannot be run.
pub fn write(path: &Path, text: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "{} cannot be written", path.display());
}
