//! Receiving from connections that deliver bytes in a row.

use super::connection::{Connection, Connector, Got};
use super::protocol::Protocol;
use super::receiving::{Receiving, TextOrError};
use fxgraph::BlockError;
use fxgraph::files::reason;
use fxgraph::runtime::EventKind;
use fxgraph_common::link::{Link, TICK};
use std::io;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// Memory of a source without its frames, in bytes.
pub const HOST_BYTES: usize = 4 * READ_BYTES;
/// Waits after attempts to connect that failed: the first one, and the longest one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Connections that end sooner are followed by a pause of `FIRST_WAIT`: each takes a time base, and a run has room for 16,383.
const SHORT: Duration = Duration::from_secs(1);

/// Reads connections of `connector`.
pub struct ByteStream {
    connector: Connector,
    protocol: Protocol,
    /// Whether a sender that has gone is waited for.
    stays: bool,
    /// Whether a failed attempt was reported since the last one that succeeded.
    is_reported: bool,
    wait: Duration,
    buffer: Vec<u8>,
}

impl ByteStream {
    /// Reads connections of `connector` that speak `protocol`.
    pub fn new(connector: Connector, protocol: Protocol, stays: bool) -> Self {
        let (wait, buffer) = (FIRST_WAIT, vec![0; READ_BYTES]);
        Self { connector, protocol, stays, is_reported: false, wait, buffer }
    }

    /// Receives until the stream ends; returns the reason.
    pub fn run(&mut self, receiving: &mut Receiving, link: &mut Link) -> TextOrError {
        loop {
            if let Some(end) = receiving.tick(link) {
                return Ok(end);
            }
            match self.connector.look() {
                Ok(None) => {}
                Ok(Some(connection)) => {
                    if let Some(end) = self.read(connection, receiving, link)? {
                        return Ok(end);
                    }
                }
                Err(error) => {
                    let text = format!(
                        "cannot receive from {}: {}",
                        self.connector.name(),
                        reason(&error)
                    );
                    self.failed(text, receiving, link)?;
                }
            }
        }
    }

    /// Reports an attempt that failed, once until one succeeds, and waits before the next one.
    fn failed(
        &mut self,
        text: String,
        receiving: &Receiving,
        link: &Link,
    ) -> Result<(), BlockError> {
        if !self.stays {
            return Err(BlockError::new(text));
        }
        receiving.causes.failed.add(1);
        if !std::mem::replace(&mut self.is_reported, true) {
            receiving.events.add(EventKind::Warning, text + "; it is tried again");
        }
        pause(self.wait, link);
        self.wait = (2 * self.wait).min(LONGEST_WAIT);
        Ok(())
    }

    /// Reads `connection` until it ends. Returns the reason if the stream ends with it.
    fn read(
        &mut self,
        mut connection: Connection,
        receiving: &mut Receiving,
        link: &mut Link,
    ) -> Result<Option<String>, BlockError> {
        let began = Instant::now();
        let result = match self.protocol.connected(&mut connection) {
            Ok(()) => self.samples(&mut connection, receiving, link),
            Err(error) => Err(reason(&error)),
        };
        receiving.pause(link);
        let text = match result {
            Ok(Some(end)) => return Ok(Some(end)),
            Ok(None) => format!("{} has ended", connection.sender),
            Err(why) => format!("{} fails: {why}", connection.sender),
        };
        if !self.stays {
            return Ok(Some(text));
        }
        self.connector.prepare();
        if receiving.is_begun() {
            (self.is_reported, self.wait) = (false, FIRST_WAIT);
            receiving.events.add(EventKind::Warning, text + "; waiting for the next sender");
            if began.elapsed() < SHORT {
                pause(FIRST_WAIT, link);
            }
        } else {
            self.failed(text, receiving, link)?;
        }
        Ok(None)
    }

    /// Reads samples until the connection or the stream ends; `None` if only the connection does. The error says why the
    /// connection fails.
    fn samples(
        &mut self,
        connection: &mut Connection,
        receiving: &mut Receiving,
        link: &mut Link,
    ) -> Result<Option<String>, String> {
        let say = |error: io::Error| reason(&error);
        // Bytes of a sample that is not complete, at the beginning of the buffer.
        let mut kept = 0;
        receiving.connect();
        loop {
            self.protocol.update(connection, receiving.timestamp()).map_err(say)?;
            let count = match connection.read(&mut self.buffer[kept..]).map_err(say)? {
                Got::End => {
                    receiving.causes.cut.add(kept as u64);
                    return Ok(None);
                }
                Got::Nothing => 0,
                Got::Bytes(count) => count,
            };
            if count > 0 {
                receiving.causes.bytes.add(count as u64);
                let (end, result) = self.protocol.samples(&mut self.buffer, kept, kept + count);
                receiving.causes.cut.add(self.protocol.cut());
                let samples = &self.buffer[..end];
                if receiving.begins(samples) {
                    receiving.begin(samples, link);
                    self.protocol.begins(receiving.timestamp());
                }
                let whole = receiving.append(samples, link);
                self.buffer.copy_within(whole..end, 0);
                kept = end - whole;
                // The samples before a violation are good.
                result?;
            }
            if let Some(end) = receiving.tick(link) {
                return Ok(Some(end));
            }
        }
    }
}

/// Waits for `time`, or until the flowgraph stops.
fn pause(time: Duration, link: &Link) {
    let until = Instant::now() + time;
    while Instant::now() < until && !link.stopping() {
        std::thread::sleep(TICK);
    }
}
