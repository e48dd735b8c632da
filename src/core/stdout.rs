//! Stdout of the program as the output of a block.
//!
//! A program that prints its text elsewhere [`offer`]s stdout, and one block at a time takes it.

use crate::error::BlockError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{retry_on_intr, write};
use std::io::{self, ErrorKind, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Path of stdout among [`Resources::writes`](crate::Resources::writes).
pub const PATH: &str = "/dev/stdout";

/// Bytes that a pipe with room takes at once: `PIPE_BUF`.
const PIECE: usize = 4096;

/// Owner of stdout: the program, nobody, or a block.
const PROGRAM: u8 = 0;
const NOBODY: u8 = 1;
const BLOCK: u8 = 2;
static OWNER: AtomicU8 = AtomicU8::new(PROGRAM);

/// Makes `to` the owner instead of `from`; the error is another owner.
fn change(from: u8, to: u8) -> Result<u8, u8> {
    OWNER.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| (now == from).then_some(to))
}

/// Gives stdout to the block that takes it first: from now on the program prints nothing there.
pub fn offer() {
    let _ = change(PROGRAM, NOBODY);
}

/// Stdout, for one block until it is dropped.
pub struct Stdout(());

impl Stdout {
    /// Takes stdout.
    ///
    /// # Errors
    /// If the program prints text to stdout, if another block has it, or if it is a terminal.
    pub fn take() -> Result<Self, BlockError> {
        if io::stdout().is_terminal() {
            return Err(BlockError::new(
                "stdout is a terminal: pipe it to a program, as in `fxgraph run x.yaml | program`, or to a file",
            ));
        }
        match change(NOBODY, BLOCK) {
            Ok(_) => Ok(Self(())),
            Err(BLOCK) => Err(BlockError::new("another block writes to stdout")),
            Err(_) => Err(BlockError::new(
                "this command prints its results to stdout: start the flowgraph with `fxgraph run`",
            )),
        }
    }

    /// Writes as many of `bytes` as fit, and returns their number. It waits for a disk only.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] while there is no room; [`ErrorKind::BrokenPipe`] if the reader has gone.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        // Not `O_NONBLOCK`, which processes that share the pipe would get, too.
        while written < bytes.len() {
            let mut room = [PollFd::new(self, PollFlags::OUT)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            if retry_on_intr(|| poll(&mut room, Some(&now)))? == 0 {
                break;
            }
            let piece = &bytes[written..bytes.len().min(written + PIECE)];
            match retry_on_intr(|| write(self, piece)) {
                Ok(count) => written += count,
                // The caller meets the error again with its next bytes.
                Err(_) if written > 0 => break,
                Err(error) => return Err(error.into()),
            }
        }
        if written == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(written)
    }
}

impl AsFd for Stdout {
    fn as_fd(&self) -> BorrowedFd<'_> {
        static STDOUT: OnceLock<io::Stdout> = OnceLock::new();
        STDOUT.get_or_init(io::stdout).as_fd()
    }
}

impl Drop for Stdout {
    fn drop(&mut self) {
        OWNER.store(NOBODY, Ordering::Release);
    }
}
