//! Connections that deliver bytes in a row: the standard input, pipes, files, TCP.

use super::origin::Origin;
use crate::connect::{self, Connecting};
use fxgraph::BlockError;
use fxgraph::access::ReadPath;
use fxgraph::files::reason;
use fxgraph_common::link::TICK;
use fxgraph_common::net::address;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};

/// Most bytes that wait for a peer which does not read them.
const MAX_OUT: usize = 64 << 10;

/// Result of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// This many bytes.
    Bytes(usize),
    /// Nothing within [`TICK`].
    Nothing,
    /// The sender has gone.
    End,
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    file: File,
    /// Bytes that the buffer of the socket has had no room for.
    out: Vec<u8>,
    /// Name of the sender, for messages.
    pub sender: String,
}

impl Connection {
    fn of_file(file: File, sender: impl Into<String>) -> Self {
        Self { file, out: Vec::new(), sender: sender.into() }
    }

    fn of_tcp(stream: TcpStream) -> io::Result<Self> {
        // An accepted socket waits, even if its listener does not.
        stream.set_nonblocking(true)?;
        connect::keep_alive(&stream);
        let sender = connect::name(&stream);
        Ok(Self::of_file(File::from(OwnedFd::from(stream)), sender))
    }

    /// Reads into `bytes`, which is not empty, waiting up to [`TICK`].
    pub fn read(&mut self, bytes: &mut [u8]) -> io::Result<Got> {
        self.send()?;
        if !is_ready(&self.file, PollFlags::IN)? {
            return Ok(Got::Nothing);
        }
        match self.file.read(bytes) {
            Ok(0) => Ok(Got::End),
            Ok(count) => Ok(Got::Bytes(count)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(Got::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes `bytes`, without waiting: what a socket has no room for is written before the next bytes are read. The error
    /// says that the peer does not read.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(bytes);
        self.send()?;
        if self.out.len() > MAX_OUT {
            return Err(io::Error::other("it does not read what it is sent"));
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.file.write(&self.out) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Waits up to [`TICK`] until `file` is ready.
fn is_ready(file: impl AsFd, flags: PollFlags) -> io::Result<bool> {
    let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    // Without a writer so far, a pipe is not ready; after its last writer, its end is read.
    let mut wanted = [PollFd::new(&file, flags)];
    Ok(retry_on_intr(|| poll(&mut wanted, Some(&tick)))? > 0)
}

/// Opens connections.
pub enum Connector {
    /// The standard input, or a file, once.
    Once(Option<Connection>),
    /// A pipe, for one sender after the other, and its open end for the next one: the bytes of a writer that has begun are gone
    /// once no end is open.
    Fifo(ReadPath, Option<File>),
    /// A server, and a connection that it has not accepted yet.
    Client(String, Option<Connecting>),
    /// Clients, one after the other.
    Server(TcpListener),
}

impl Connector {
    /// Opens the files and sockets of `origin`, which does not deliver datagrams.
    pub fn open(origin: &Origin) -> Result<Self, BlockError> {
        Ok(match origin {
            Origin::Stdin => Self::Once(Some(stdin()?)),
            Origin::File(path) => {
                let file = path.open().map_err(cannot_read(path))?;
                Self::Once(Some(Connection::of_file(file, path.to_string())))
            }
            Origin::Fifo(path) => {
                // Now, so that a mistake is told before the flowgraph runs.
                Self::Fifo(path.clone(), Some(opened(path)?))
            }
            Origin::Tcp(text) => Self::Client(text.clone(), None),
            Origin::RtlTcp(rtl) => Self::Client(rtl.address.clone(), None),
            Origin::Listen(text) => Self::Server(listener(text)?),
            Origin::Zmq(zmq) if zmq.bind.is_some() => Self::Server(listener(&zmq.address())?),
            Origin::Zmq(zmq) => Self::Client(zmq.address(), None),
            Origin::Udp(_) => return Err(BlockError::new("datagrams have no connections")),
        })
    }

    /// Waits up to [`TICK`] for the next connection.
    pub fn look(&mut self) -> io::Result<Option<Connection>> {
        match self {
            Self::Once(connection) => Ok(connection.take()),
            Self::Fifo(path, next) => {
                let file = next.take().map_or_else(|| path.open_once(), Ok)?;
                Ok(Some(Connection::of_file(file, path.to_string())))
            }
            Self::Client(text, connecting) => {
                let begun = match connecting.take() {
                    Some(begun) => begun,
                    // A name is looked up each time: the server may have moved. A stop waits for the resolver's answer,
                    // by default up to some seconds.
                    None => {
                        Connecting::begin(&address::resolve([&*text]).map_err(io::Error::other)?)?
                    }
                };
                match begun.look()? {
                    Ok(stream) => Ok(Some(Connection::of_tcp(stream)?)),
                    Err(begun) => {
                        *connecting = Some(begun);
                        std::thread::sleep(TICK / 5);
                        Ok(None)
                    }
                }
            }
            Self::Server(listener) => {
                if !is_ready(&*listener, PollFlags::IN)? {
                    return Ok(None);
                }
                match listener.accept() {
                    Ok((stream, _)) => Ok(Some(Connection::of_tcp(stream)?)),
                    // The client has gone already.
                    Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Prepares for the next sender while the connection of the last one, which has ended, is still open.
    pub fn prepare(&mut self) {
        if let Self::Fifo(path, next) = self {
            // An error is told at the next look.
            *next = path.open_once().ok();
        }
    }

    /// Name of the origin, for messages.
    pub fn name(&self) -> String {
        match self {
            Self::Once(_) => "the input".to_owned(),
            Self::Fifo(path, _) => path.to_string(),
            Self::Client(text, _) => text.clone(),
            Self::Server(listener) => {
                let address = listener.local_addr().map(|address| address.to_string());
                address.unwrap_or_else(|_| "the socket".to_owned())
            }
        }
    }
}

fn cannot_read(path: &ReadPath) -> impl Fn(io::Error) -> BlockError {
    move |error| BlockError::new(format!("cannot read {path}: {}", reason(&error)))
}

fn stdin() -> Result<Connection, BlockError> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        let text = "the standard input is a terminal: run `rtl_sdr -f 100e6 -s 2.4e6 - | fxgraph run ...`, or set `from`";
        return Err(BlockError::new(text));
    }
    let fd = stdin
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| BlockError::new(format!("cannot read the standard input: {error}")))?;
    Ok(Connection::of_file(File::from(fd), "the standard input"))
}

/// Opens the pipe `path`, without waiting for its writer.
fn opened(path: &ReadPath) -> Result<File, BlockError> {
    let file = path.open_once().map_err(cannot_read(path))?;
    let kind = file.metadata().map_err(cannot_read(path))?;
    if kind.is_file() {
        let text = format!("{path} is a file, not a pipe: write `from: {{file: {path}}}`");
        return Err(BlockError::new(text));
    }
    Ok(file)
}

fn listener(text: &str) -> Result<TcpListener, BlockError> {
    let cannot =
        |error: io::Error| BlockError::new(format!("cannot listen on {text}: {}", reason(&error)));
    let addresses = address::resolve([&text.to_owned()])?;
    let listener = TcpListener::bind(&*addresses).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    Ok(listener)
}
