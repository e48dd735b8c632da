//! Protocols of connections: the samples alone, `rtl_tcp`, ZeroMQ.

use super::connection::Connection;
use super::messages::Messages;
use super::rtl_tcp::Tuner;
use std::io;

/// Protocol of a connection.
pub enum Protocol {
    /// Nothing but samples.
    Raw,
    /// That of `rtl_tcp`.
    RtlTcp(Tuner),
    /// That of ZeroMQ.
    Zmq(Messages),
}

impl Protocol {
    /// Begins a connection.
    pub fn connected(&mut self, connection: &mut Connection) -> io::Result<()> {
        match self {
            Self::Raw => Ok(()),
            Self::RtlTcp(tuner) => tuner.connected(connection),
            Self::Zmq(messages) => {
                messages.connected();
                Ok(())
            }
        }
    }

    /// Sends commands that are due. `timestamp` is that of the newest sample.
    pub fn update(&mut self, connection: &mut Connection, timestamp: u64) -> io::Result<()> {
        match self {
            Self::Raw => Ok(()),
            Self::RtlTcp(tuner) => tuner.update(connection, timestamp),
            Self::Zmq(messages) => connection.write(&std::mem::take(&mut messages.out)),
        }
    }

    /// Takes the bytes `kept..end` of `buffer`, and leaves their samples after the `kept` ones. Returns the end of the
    /// samples. The error says how the sender violates the protocol after them.
    pub fn samples(
        &mut self,
        buffer: &mut [u8],
        kept: usize,
        end: usize,
    ) -> (usize, Result<(), &'static str>) {
        match self {
            Self::RtlTcp(tuner) if tuner.is_in_header() => match tuner.take_header(buffer, end) {
                Ok(end) => (end, Ok(())),
                Err(error) => (0, Err(error)),
            },
            Self::Raw | Self::RtlTcp(_) => (end, Ok(())),
            Self::Zmq(messages) => messages.take(buffer, kept, end),
        }
    }

    /// Bytes of samples that messages did not complete since the last call.
    pub fn cut(&mut self) -> u64 {
        match self {
            Self::Zmq(messages) => std::mem::take(&mut messages.cut),
            Self::Raw | Self::RtlTcp(_) => 0,
        }
    }

    /// Notes that the samples of a connection begin at `timestamp`.
    pub fn begins(&self, timestamp: u64) {
        if let Self::RtlTcp(tuner) = self {
            tuner.begins(timestamp);
        }
    }
}
