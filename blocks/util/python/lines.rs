//! Lines that a process writes.

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

/// Longest line in bytes.
const LINE_BYTES: usize = 4096;

/// Lines that a process writes to one stream.
pub struct Lines {
    /// The stream, until its end.
    pub stream: Option<File>,
    /// Syslog level of lines that do not begin with one.
    level: u8,
    partial: Vec<u8>,
}

impl Lines {
    /// Reads `stream` without waiting; lines have this syslog `level` unless they begin with one.
    pub fn new(stream: impl Into<OwnedFd>, level: u8) -> Result<Self, Errno> {
        let stream: OwnedFd = stream.into();
        fcntl_setfl(&stream, fcntl_getfl(&stream)? | OFlags::NONBLOCK)?;
        Ok(Self { stream: Some(File::from(stream)), level, partial: Vec::new() })
    }

    /// Calls `line` with the level and text of each line that has arrived.
    pub fn read(&mut self, line: &mut dyn FnMut(u8, &str)) {
        let mut buffer = [0; 4096];
        // Bounded, so that a process that writes without end does not keep the host from its frames.
        for _ in 0..16 {
            let Some(stream) = &mut self.stream else { return };
            match stream.read(&mut buffer) {
                Ok(0) => {
                    self.stream = None;
                    self.end_line(line);
                }
                Ok(read) => {
                    for byte in &buffer[..read] {
                        if *byte == b'\n' || self.partial.len() == LINE_BYTES {
                            self.end_line(line);
                        }
                        if *byte != b'\n' {
                            self.partial.push(*byte);
                        }
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(_) => self.stream = None,
            }
        }
    }

    fn end_line(&mut self, line: &mut dyn FnMut(u8, &str)) {
        let text = String::from_utf8_lossy(&self.partial);
        let (level, text) = match text.as_bytes() {
            [b'<', digit @ b'0'..=b'7', b'>', ..] => (digit - b'0', &text[3..]),
            _ => (self.level, &text[..]),
        };
        if !text.trim().is_empty() {
            line(level, text.trim_end());
        }
        self.partial.clear();
    }
}
