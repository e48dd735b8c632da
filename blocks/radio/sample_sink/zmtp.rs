//! The side of a sender in ZMTP 3.0, the protocol of ZeroMQ over TCP, with the mechanism NULL.
//!
//! Source: <https://rfc.zeromq.org/spec/23/>. Messages are single frames, whose headers the chunks have. The crate `zeromq`
//! drops messages of slow subscribers without counting them; here they wait in the queue of their reader.

use super::ZmqSocket;
use crate::zmtp::{
    COMMAND, GREETING, LONG, MORE, NO_ZMTP, check_greeting, command, is_greeting, socket_type,
    write_command, write_greeting, write_ready,
};

/// Largest body of a frame from a reader: a command or a subscription.
const MAX_BODY: usize = 1024;
/// Largest number of subscriptions of a reader.
const MAX_TOPICS: usize = 64;

impl ZmqSocket {
    const fn name(self) -> &'static str {
        match self {
            Self::Pub => "PUB",
            Self::Push => "PUSH",
        }
    }

    /// Whether a socket of type `reader` reads from it.
    fn is_read_by(self, reader: &[u8]) -> bool {
        match self {
            Self::Pub => matches!(reader, b"SUB" | b"XSUB"),
            Self::Push => reader == b"PULL",
        }
    }
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The greeting of the reader is expected.
    Greeting,
    /// Its READY command is expected.
    Ready,
    /// Messages flow.
    Open,
}

/// Connection with one reader.
#[derive(Debug)]
pub struct Peer {
    pattern: ZmqSocket,
    state: State,
    /// Bytes that are not interpreted yet.
    inbox: Vec<u8>,
    topics: Vec<Vec<u8>>,
}

impl Peer {
    /// Begins a connection, and writes the greeting to `out`.
    pub fn new(pattern: ZmqSocket, out: &mut Vec<u8>) -> Self {
        write_greeting(out);
        Self { pattern, state: State::Greeting, inbox: Vec::new(), topics: Vec::new() }
    }

    /// Whether the reader wants the message `data`.
    pub fn wants(&self, data: &[u8]) -> bool {
        let is_open = self.state == State::Open;
        is_open
            && match self.pattern {
                ZmqSocket::Push => true,
                ZmqSocket::Pub => self.topics.iter().any(|topic| data.starts_with(topic)),
            }
    }

    /// Whether both sides have introduced themselves.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Whether the reader wants messages of any kind.
    pub fn is_reading(&self) -> bool {
        self.is_open() && (self.pattern == ZmqSocket::Push || !self.topics.is_empty())
    }

    /// Takes bytes of the reader, and writes answers to `out`. The error says how the reader violates the protocol.
    pub fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
        self.inbox.extend_from_slice(bytes);
        if self.state == State::Greeting {
            let Some(greeting) = self.inbox.first_chunk::<GREETING>() else {
                return if is_greeting(&self.inbox) { Ok(()) } else { Err(NO_ZMTP) };
            };
            check_greeting(greeting)?;
            self.inbox.drain(..GREETING);
            self.state = State::Ready;
            write_ready(self.pattern.name(), out);
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[..];
        while let Some((flags, body, after)) = split_frame(rest)? {
            self.frame(flags, body, out)?;
            rest = after;
        }
        let used = inbox.len() - rest.len();
        inbox.drain(..used);
        self.inbox = inbox;
        Ok(())
    }

    fn frame(&mut self, flags: u8, body: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
        if flags & COMMAND == 0 {
            // In version 3.0 subscriptions are messages.
            return match body {
                _ if self.state != State::Open || flags & MORE != 0 => Err("an unexpected message"),
                [1, topic @ ..] if self.pattern == ZmqSocket::Pub => self.subscribe(topic),
                [0, topic @ ..] if self.pattern == ZmqSocket::Pub => {
                    self.cancel(topic);
                    Ok(())
                }
                _ => Err("an unexpected message"),
            };
        }
        let Some((name, data)) = command(body) else {
            return Err("a command without a name");
        };
        match (name, self.state) {
            (b"READY", State::Ready) => {
                if !socket_type(data).is_some_and(|reader| self.pattern.is_read_by(reader)) {
                    return Err(
                        "its socket cannot read from this one: SUB reads from PUB, PULL from PUSH",
                    );
                }
                self.state = State::Open;
                Ok(())
            }
            (b"SUBSCRIBE", State::Open) => self.subscribe(data),
            (b"CANCEL", State::Open) => {
                self.cancel(data);
                Ok(())
            }
            (b"PING", State::Open) => {
                // Its first two bytes are a time.
                write_command(b"PONG", data.get(2..).unwrap_or_default(), out);
                Ok(())
            }
            (b"ERROR", _) => Err("it reports an error"),
            (_, State::Open) => Ok(()),
            _ => Err("an unexpected command"),
        }
    }

    fn subscribe(&mut self, topic: &[u8]) -> Result<(), &'static str> {
        if self.topics.len() == MAX_TOPICS {
            return Err("too many subscriptions");
        }
        self.topics.push(topic.to_owned());
        Ok(())
    }

    fn cancel(&mut self, topic: &[u8]) {
        if let Some(n) = self.topics.iter().position(|known| known == topic) {
            self.topics.swap_remove(n);
        }
    }
}

/// Flags and body of the first frame of `bytes`, and the bytes after it.
#[allow(clippy::type_complexity, reason = "named in the doc comment")]
fn split_frame(bytes: &[u8]) -> Result<Option<(u8, &[u8], &[u8])>, &'static str> {
    let Some((flags, rest)) = bytes.split_first() else { return Ok(None) };
    let (len, rest) = if flags & LONG == 0 {
        let Some((len, rest)) = rest.split_first() else { return Ok(None) };
        (u64::from(*len), rest)
    } else {
        let Some((len, rest)) = rest.split_first_chunk() else { return Ok(None) };
        (u64::from_be_bytes(*len), rest)
    };
    match usize::try_from(len) {
        Ok(len) if len <= MAX_BODY => {
            Ok(rest.split_at_checked(len).map(|(body, after)| (*flags, body, after)))
        }
        _ => Err("a message of a size that no reader sends"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Greeting, and READY of a socket of this type.
    fn hello(socket: &str) -> Vec<u8> {
        let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1];
        bytes.extend(b"NULL");
        bytes.resize(GREETING, 0);
        bytes.extend([4, (22 + socket.len()) as u8, 5]);
        bytes.extend(b"READY\x0bSocket-Type");
        bytes.extend([0, 0, 0, socket.len() as u8]);
        bytes.extend(socket.bytes());
        bytes
    }

    #[test]
    fn subscriber_gets_the_messages_of_its_topics() {
        let mut out = Vec::new();
        let mut peer = Peer::new(ZmqSocket::Pub, &mut out);
        assert_eq!((out.len(), &out[10..16]), (64, &b"\x03\x00NULL"[..]));
        out.clear();
        // In pieces of any length.
        for byte in hello("SUB") {
            assert!(!peer.wants(b"abc"));
            peer.take(&[byte], &mut out).unwrap();
        }
        assert_eq!(out, b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03PUB");
        assert!(peer.is_open() && !peer.wants(b"abc"), "nothing is subscribed yet");
        peer.take(b"\0\x03\x01ab", &mut out).unwrap();
        assert!(peer.wants(b"abc") && !peer.wants(b"xbc"));
        peer.take(b"\x04\x0a\x09SUBSCRIBE", &mut out).unwrap();
        assert!(peer.wants(b"xbc"));
        peer.take(b"\0\x01\0\0\x03\0ab", &mut out).unwrap();
        assert!(!peer.wants(b"abc"));
        out.clear();
        peer.take(b"\x04\x09\x04PING\0\x01xy", &mut out).unwrap();
        assert_eq!(out, b"\x04\x07\x04PONGxy");
    }

    #[test]
    fn other_protocols_and_sockets_are_errors() {
        let error = |pattern, bytes: &[u8]| {
            Peer::new(pattern, &mut Vec::new()).take(bytes, &mut Vec::new()).unwrap_err()
        };
        assert_eq!(error(ZmqSocket::Pub, b"GET / HTTP/1.1\r\n"), NO_ZMTP);
        assert!(error(ZmqSocket::Push, &hello("SUB")).contains("PULL from PUSH"));
        let mut secure = hello("PULL");
        secure[12..17].copy_from_slice(b"CURVE");
        assert!(error(ZmqSocket::Push, &secure).contains("security"));
        let mut large = hello("PULL");
        large.extend([2, 0, 0, 0, 1, 0, 0, 0, 0]);
        assert!(error(ZmqSocket::Push, &large).contains("size"));
        let mut early = hello("PULL");
        early.truncate(GREETING);
        early.extend(b"\0\x01\x01");
        assert!(error(ZmqSocket::Push, &early).contains("message"));
    }

    proptest! {
        #[test]
        fn bytes_of_a_hostile_reader_are_an_error_or_bounded(
            bytes in proptest::collection::vec(any::<u8>(), 0..3000),
            is_greeted in any::<bool>(),
        ) {
            let mut out = Vec::new();
            let mut peer = Peer::new(ZmqSocket::Pub, &mut out);
            if is_greeted {
                peer.take(&hello("SUB"), &mut out).unwrap();
            }
            for piece in bytes.chunks(100) {
                if peer.take(piece, &mut out).is_err() {
                    break;
                }
                prop_assert!(peer.inbox.len() <= MAX_BODY + 9);
                prop_assert!(peer.topics.len() <= MAX_TOPICS);
            }
        }
    }
}
