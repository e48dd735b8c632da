//! The side of a reader in ZMTP 3.0: messages of samples from a PUB or PUSH socket of ZeroMQ.
//!
//! A message may have any length, so its samples are passed on as they arrive. Of a message of several parts only the
//! last one has samples.

use super::{Zmq, ZmqSocket};
use crate::zmtp::{self, COMMAND, GREETING, LONG, MORE};

/// Largest command.
const MAX_COMMAND: usize = 1024;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The greeting of the sender is expected.
    Greeting,
    /// The flags and the length of a frame.
    Header,
    /// This many bytes of a command.
    Command(u64),
    /// This many bytes of samples, of a part that has had as many before.
    Samples(u64, u64),
    /// This many bytes of another part.
    Other(u64),
}

/// Connection with one sender.
#[derive(Debug)]
pub struct Messages {
    socket: ZmqSocket,
    topic: Vec<u8>,
    sample_bytes: usize,
    state: State,
    is_open: bool,
    /// Bytes of a greeting, header or command that is not complete.
    head: Vec<u8>,
    /// Bytes to write.
    pub out: Vec<u8>,
    /// Bytes of samples that messages did not complete.
    pub cut: u64,
}

impl Messages {
    /// Reads samples of `sample_bytes` bytes.
    pub fn new(zmq: &Zmq, sample_bytes: usize) -> Self {
        Self {
            socket: zmq.socket,
            topic: zmq.topic.clone().into_bytes(),
            sample_bytes,
            state: State::Greeting,
            is_open: false,
            head: Vec::new(),
            out: Vec::new(),
            cut: 0,
        }
    }

    /// Begins a connection.
    pub fn connected(&mut self) {
        (self.state, self.is_open) = (State::Greeting, false);
        self.head.clear();
        self.out.clear();
        zmtp::write_greeting(&mut self.out);
    }

    fn name(&self) -> &'static str {
        match self.socket {
            ZmqSocket::Sub => "SUB",
            ZmqSocket::Pull => "PULL",
        }
    }

    /// Takes the bytes `kept..end` of `buffer`, and leaves their samples after the `kept` ones. Returns the end of the
    /// samples. The error says how the sender violates the protocol after them.
    pub fn take(
        &mut self,
        buffer: &mut [u8],
        kept: usize,
        end: usize,
    ) -> (usize, Result<(), &'static str>) {
        let mut to = kept;
        let result = self.take_to(&mut to, buffer, kept, end);
        (to, result)
    }

    fn take_to(
        &mut self,
        to: &mut usize,
        buffer: &mut [u8],
        mut from: usize,
        end: usize,
    ) -> Result<(), &'static str> {
        while from < end {
            let left = end - from;
            match self.state {
                State::Greeting => {
                    from += self.fill(&buffer[from..end], GREETING);
                    if !zmtp::is_greeting(&self.head) {
                        return Err(zmtp::NO_ZMTP);
                    }
                    if let Some(greeting) = self.head.first_chunk() {
                        zmtp::check_greeting(greeting)?;
                        self.begin(State::Header);
                        zmtp::write_ready(self.name(), &mut self.out);
                    }
                }
                State::Header => {
                    let flags = self.head.first().copied().unwrap_or(buffer[from]);
                    from += self.fill(&buffer[from..end], if flags & LONG == 0 { 2 } else { 9 });
                    if let Some(len) = self.len() {
                        self.header(flags, len)?;
                    }
                }
                State::Command(len) => {
                    from += self.fill(&buffer[from..end], len as usize);
                    if self.head.len() as u64 == len {
                        let body = std::mem::take(&mut self.head);
                        self.command(&body)?;
                        self.begin(State::Header);
                    }
                }
                State::Other(len) => {
                    let count = len.min(left as u64);
                    from += count as usize;
                    self.begin(if count == len {
                        State::Header
                    } else {
                        State::Other(len - count)
                    });
                }
                State::Samples(len, before) => {
                    let count = len.min(left as u64) as usize;
                    buffer.copy_within(from..from + count, *to);
                    (from, *to) = (from + count, *to + count);
                    let (len, before) = (len - count as u64, before + count as u64);
                    self.begin(State::Samples(len, before));
                    if len == 0 {
                        let rest = before % self.sample_bytes as u64;
                        self.cut += rest;
                        *to -= rest as usize;
                        self.begin(State::Header);
                    }
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.head.clear();
    }

    /// Adds bytes until the head has `len`; returns how many.
    fn fill(&mut self, bytes: &[u8], len: usize) -> usize {
        let count = len.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..count]);
        count
    }

    /// Length of the frame whose header is complete.
    fn len(&self) -> Option<u64> {
        match self.head.split_first()? {
            (flags, rest) if flags & LONG == 0 => rest.first().map(|len| u64::from(*len)),
            (_, rest) => rest.first_chunk().map(|len| u64::from_be_bytes(*len)),
        }
    }

    fn header(&mut self, flags: u8, len: u64) -> Result<(), &'static str> {
        let state = match flags {
            _ if flags & COMMAND != 0 && len <= MAX_COMMAND as u64 => State::Command(len),
            _ if flags & COMMAND != 0 => return Err("it sends a command that is too long"),
            _ if !self.is_open => return Err("it sends a message before it is ready"),
            _ if flags & MORE != 0 => State::Other(len),
            _ => State::Samples(len, 0),
        };
        let is_empty = matches!(state, State::Other(0) | State::Samples(0, _) | State::Command(0));
        self.begin(if is_empty { State::Header } else { state });
        Ok(())
    }

    fn command(&mut self, body: &[u8]) -> Result<(), &'static str> {
        let Some((name, data)) = zmtp::command(body) else {
            return Err("a command without a name");
        };
        match name {
            b"READY" if !self.is_open => {
                let is_right = match (self.socket, zmtp::socket_type(data)) {
                    (ZmqSocket::Sub, Some(other)) => matches!(other, b"PUB" | b"XPUB"),
                    (ZmqSocket::Pull, Some(other)) => other == b"PUSH",
                    (_, None) => false,
                };
                if !is_right {
                    return Err(
                        "its socket cannot be read: `sub` reads from PUB, `pull` from PUSH",
                    );
                }
                self.is_open = true;
                if self.socket == ZmqSocket::Sub {
                    // In version 3.0 a subscription is a message.
                    let topic = &self.topic[..self.topic.len().min(200)];
                    self.out.extend([0, (1 + topic.len()) as u8, 1]);
                    self.out.extend(topic);
                }
            }
            // Its first two bytes are a time.
            b"PING" => {
                zmtp::write_command(b"PONG", data.get(2..).unwrap_or_default(), &mut self.out);
            }
            b"ERROR" => return Err("it reports an error"),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn zmq(socket: ZmqSocket, topic: &str) -> Zmq {
        Zmq { connect: None, bind: None, socket, topic: topic.to_owned() }
    }

    fn hello(socket: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        zmtp::write_greeting(&mut bytes);
        zmtp::write_ready(socket, &mut bytes);
        bytes
    }

    /// Samples of 4 bytes in `bytes`, which arrive in pieces of `piece` bytes.
    fn samples(
        messages: &mut Messages,
        bytes: &[u8],
        piece: usize,
    ) -> Result<Vec<u8>, &'static str> {
        let (mut all, mut kept) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut buffer = [&kept[..], piece].concat();
            let end = buffer.len();
            let (end, result) = messages.take(&mut buffer, kept.len(), end);
            result?;
            let whole = end - end % 4;
            all.extend_from_slice(&buffer[..whole]);
            kept = buffer[whole..end].to_vec();
        }
        Ok(all)
    }

    #[test]
    fn samples_of_the_last_parts_arrive_in_any_pieces() {
        let mut bytes = hello("PUB");
        // A topic, a message with a cut sample, an empty one, a long one, a PING between.
        bytes.extend([MORE, 2, b't', b'x', 0, 10]);
        bytes.extend(1..=10);
        bytes.extend([0, 0]);
        bytes.extend(b"\x04\x09\x04PING\0\x01xy");
        bytes.push(LONG);
        bytes.extend(300_u64.to_be_bytes());
        bytes.extend([7; 300]);
        let expected = [&[1, 2, 3, 4, 5, 6, 7, 8][..], &[7; 300]].concat();
        for piece in [1, 2, 3, 7, 64, 1000] {
            let mut messages = Messages::new(&zmq(ZmqSocket::Sub, "t"), 4);
            messages.connected();
            assert_eq!(samples(&mut messages, &bytes, piece).unwrap(), expected, "{piece}");
            assert_eq!(messages.cut, 2);
            let out = &messages.out[GREETING..];
            assert!(out.ends_with(b"\0\x02\x01t\x04\x07\x04PONGxy"), "{out:?}");
        }
    }

    #[test]
    fn other_peers_are_errors() {
        let error = |socket, bytes: &[u8]| {
            let mut messages = Messages::new(&zmq(socket, ""), 4);
            samples(&mut messages, bytes, 9).unwrap_err()
        };
        assert_eq!(error(ZmqSocket::Sub, b"RTL0\0\0\0"), zmtp::NO_ZMTP);
        assert!(error(ZmqSocket::Pull, &hello("PUB")).contains("`pull` from PUSH"));
        let early = [&hello("PUB")[..GREETING], &[0, 1, 1]].concat();
        assert!(error(ZmqSocket::Sub, &early).contains("before it is ready"));
        let long = [&hello("PUB")[..GREETING], &[6, 0, 0, 0, 0, 0, 1, 0, 0]].concat();
        assert!(error(ZmqSocket::Sub, &long).contains("too long"));
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_an_error_or_bounded(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000),
            is_greeted in any::<bool>(),
        ) {
            let mut messages = Messages::new(&zmq(ZmqSocket::Sub, ""), 4);
            if is_greeted {
                samples(&mut messages, &hello("PUB"), 64).unwrap();
            }
            let _ = samples(&mut messages, &bytes, 100);
            prop_assert!(messages.head.len() <= MAX_COMMAND);
        }
    }
}
