//! One reader: its queue, and the bytes that it has got.

use super::ZmqSocket;
use super::chunks::{Chunk, HEAD};
use super::rtl_tcp::{self, Commands, Requests};
use super::zmtp::Peer;
use fxgraph::stdout::Stdout;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Most bytes that are written to a reader before the others have their turn.
const TURN: usize = 1 << 20;
/// Most bytes of answers that wait for a reader.
const MAX_CONTROL: usize = 4096;
/// Longest time until a reader has spoken its protocol.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Way to a reader. Writes do not wait.
pub enum Stream {
    Stdout(Stdout),
    Pipe(File),
    Tcp(TcpStream),
}

impl Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(stdout) => stdout.write(bytes),
            Self::Pipe(file) => file.write(bytes),
            Self::Tcp(socket) => socket.write(bytes),
        }
    }

    /// Bytes that the reader sends; none at its end, and of a pipe, whose reader may have gone.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => return socket.read(bytes),
            Self::Stdout(stdout) => check_reader(stdout.as_fd())?,
            Self::Pipe(file) => check_reader(file.as_fd())?,
        }
        Ok(0)
    }
}

/// Fails if the pipe `file` has no reader any more: otherwise only a write tells.
fn check_reader(file: BorrowedFd<'_>) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut wanted = [PollFd::new(&file, PollFlags::empty())];
    retry_on_intr(|| poll(&mut wanted, Some(&now)))?;
    let has_gone = wanted[0].revents().contains(PollFlags::ERR);
    if has_gone { Err(ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

/// Protocol of readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Samples only.
    Raw,
    /// `rtl_tcp`
    RtlTcp,
    /// ZeroMQ.
    Zmtp(ZmqSocket),
}

/// State of the protocol with one reader.
enum Conversation {
    Raw,
    RtlTcp(Commands),
    Zmtp(Peer),
}

/// A reader.
pub struct Reader {
    /// Its address.
    pub name: String,
    stream: Stream,
    conversation: Conversation,
    began: Instant,
    queue: VecDeque<Chunk>,
    /// Bytes of the first chunk of the queue that are written.
    written: usize,
    /// Bytes that go before the next chunk.
    control: Vec<u8>,
}

/// Bytes and chunks that a reader has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    pub bytes: usize,
    pub chunks: usize,
}

impl Reader {
    /// A reader at the end of `stream`.
    pub fn new(name: String, stream: Stream, protocol: Protocol) -> Self {
        let mut control = Vec::new();
        let conversation = match protocol {
            Protocol::Raw => Conversation::Raw,
            Protocol::RtlTcp => {
                control.extend(rtl_tcp::HEADER);
                Conversation::RtlTcp(Commands::default())
            }
            Protocol::Zmtp(pattern) => Conversation::Zmtp(Peer::new(pattern, &mut control)),
        };
        let (began, queue) = (Instant::now(), VecDeque::new());
        Self { name, stream, conversation, began, queue, written: 0, control }
    }

    /// Whether the reader wants `chunk`.
    pub fn wants(&self, chunk: &Chunk) -> bool {
        match &self.conversation {
            Conversation::Zmtp(peer) => peer.wants(&chunk[HEAD..]),
            Conversation::Raw | Conversation::RtlTcp(_) => true,
        }
    }

    /// Whether the reader gets samples: also one of ZeroMQ that wants some of them only.
    pub fn is_reading(&self) -> bool {
        match &self.conversation {
            Conversation::Zmtp(peer) => peer.is_reading(),
            Conversation::Raw | Conversation::RtlTcp(_) => true,
        }
    }

    /// Whether the reader has spoken its protocol.
    pub fn is_known(&self) -> bool {
        match &self.conversation {
            Conversation::Zmtp(peer) => peer.is_open(),
            Conversation::Raw | Conversation::RtlTcp(_) => true,
        }
    }

    /// Number of chunks that wait.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Whether all bytes are written.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.control.is_empty()
    }

    /// Queues `chunk`.
    pub fn push(&mut self, chunk: &Chunk) {
        self.queue.push_back(Chunk::clone(chunk));
    }

    /// Drops the oldest chunk of which nothing is written.
    pub fn drop_oldest(&mut self) {
        self.queue.remove(usize::from(self.written > 0));
    }

    /// Reads what the reader says. An error ends the reader.
    pub fn listen(&mut self, requests: &mut Option<Requests>) -> Result<(), String> {
        let mut bytes = [0; 1024];
        match self.stream.read(&mut bytes) {
            // A socket of ZeroMQ closes both directions.
            Ok(0) if matches!(self.conversation, Conversation::Zmtp(_)) => {
                return Err("it has closed the connection".to_owned());
            }
            // Another reader that says nothing more may read on.
            Ok(0) => {}
            Ok(count) => match &mut self.conversation {
                Conversation::Raw => {}
                Conversation::RtlTcp(commands) => {
                    commands.take(&bytes[..count], |number, value| {
                        if let Some(requests) = requests {
                            requests.take(&self.name, number, value);
                        }
                    });
                }
                Conversation::Zmtp(peer) => peer.take(&bytes[..count], &mut self.control)?,
            },
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(error.to_string()),
        }
        if self.control.len() > MAX_CONTROL {
            return Err("it does not read the answers to its commands".to_owned());
        }
        if !self.is_known() && self.began.elapsed() > HANDSHAKE {
            return Err("it has not spoken ZMTP within 10 s".to_owned());
        }
        Ok(())
    }

    /// Writes as much as fits, and at most a turn. An error ends the reader.
    pub fn send(&mut self) -> (Progress, io::Result<()>) {
        let mut progress = Progress::default();
        let result = self.send_into(&mut progress);
        let result = match result {
            Err(error) if is_temporary(&error) => Ok(()),
            other => other,
        };
        (progress, result)
    }

    fn send_into(&mut self, progress: &mut Progress) -> io::Result<()> {
        let head = if matches!(self.conversation, Conversation::Zmtp(_)) { 0 } else { HEAD };
        while progress.bytes < TURN {
            // Between two chunks only.
            if self.written == 0 && !self.control.is_empty() {
                let count = self.stream.write(&self.control)?;
                self.control.drain(..count);
                progress.bytes += count;
                continue;
            }
            let Some(chunk) = self.queue.front() else { break };
            let rest = &chunk[head + self.written..];
            let count = self.stream.write(&rest[..rest.len().min(TURN)])?;
            if count == 0 && !rest.is_empty() {
                return Err(ErrorKind::WriteZero.into());
            }
            self.written += count;
            progress.bytes += count;
            if count == rest.len() {
                self.queue.pop_front();
                self.written = 0;
                progress.chunks += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Reader {
    /// Ends a connection so that the reader gets all bytes: one with unread bytes would be reset.
    fn drop(&mut self) {
        if let Stream::Tcp(socket) = &mut self.stream {
            let _ = socket.shutdown(Shutdown::Write);
            let mut bytes = [0; 1024];
            for _ in 0..16 {
                if !matches!(socket.read(&mut bytes), Ok(1..)) {
                    break;
                }
            }
        }
    }
}

/// Whether a later attempt may succeed.
fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
