//! All readers of a stream: those that come, those that leave, and those that are slow.

use super::chunks::Chunk;
use super::reader::{Progress, Protocol, Reader, Stream};
use super::rtl_tcp::Requests;
use super::{WhenFull, ZmqSocket};
use crate::connect::{self, Connecting};
use fxgraph::access::WrittenPath;
use fxgraph::event::EventKind;
use fxgraph::files::reason;
use fxgraph::stdout::Stdout;
use fxgraph::{BlockError, Counter, Env, Gauge};
use rustix::pipe::fcntl_setpipe_size;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Largest number of readers.
pub const MAX_READERS: usize = 16;
/// Time between two attempts to open a pipe or to connect.
const RETRY: Duration = Duration::from_millis(100);
/// Wanted capacity of a pipe: the default of 64 KiB is less than a millisecond of a fast stream. 1 MiB is the most that Linux
/// gives to every user.
const PIPE_BYTES: usize = 1 << 20;
/// Longest time in which a slow reader takes nothing at the end of the stream, where frames may be dropped.
const LINGER: Duration = Duration::from_secs(10);

/// Place where readers come from.
pub enum Entrance {
    /// One reader, that of stdout.
    Stdout,
    /// One reader at a time.
    Pipe(WrittenPath),
    /// One server, to which this sink connects.
    Server(Vec<SocketAddr>),
    /// Clients.
    Clients(SocketAddr),
}

/// Counters of readers.
struct Count {
    bytes: Counter,
    frames: Counter,
    slow: Counter,
    left_queued: Counter,
    without: Counter,
    joined: Counter,
    left: Counter,
    rejected: Counter,
    readers: Gauge,
}

impl Count {
    fn new(env: &Env) -> Self {
        let counters = &env.counters;
        Self {
            bytes: counters.count("bytes_sent", "bytes given to readers, with those of protocols"),
            frames: counters.count("frames_sent", "frames given to readers, summed over the readers"),
            slow: counters.loss(
                "frames_dropped_slow_reader",
                "frames that a reader did not get because its queue was full; make the reader faster, or set \
                 `queue_seconds` or `when_full: wait`",
            ),
            left_queued: counters.loss(
                "frames_dropped_reader_left",
                "frames in the queue of a reader that left",
            ),
            without: counters.count(
                "frames_without_reader",
                "frames that nobody got because no reader was there",
            ),
            joined: counters.count("readers_joined", "readers that came"),
            left: counters.count("readers_left", "readers that left"),
            rejected: counters.count("readers_rejected", "readers rejected because 16 are there"),
            readers: counters.state("readers", "readers that are there"),
        }
    }
}

/// Readers of a stream.
pub struct Readers {
    entrance: Entrance,
    protocol: Protocol,
    when_full: WhenFull,
    /// Most frames in the queue of a reader.
    queue_frames: usize,
    listener: Option<TcpListener>,
    connecting: Option<Connecting>,
    next_try: Instant,
    /// Cause of the last failed attempt, which is told once.
    failure: String,
    connected: Vec<Reader>,
    /// Number of the reader that gets the next message of PUSH.
    turn: usize,
    requests: Option<Requests>,
    /// Whether the reader of stdout has gone.
    is_over: bool,
    last_sent: Instant,
    count: Count,
    env: Env,
}

impl Readers {
    /// Readers that come through `entrance`; `requests` judges the commands of `rtl_tcp`.
    pub fn new(
        entrance: Entrance,
        protocol: Protocol,
        (when_full, queue_frames): (WhenFull, usize),
        requests: Option<Requests>,
        env: &Env,
    ) -> Self {
        Self {
            entrance,
            protocol,
            when_full,
            queue_frames,
            listener: None,
            connecting: None,
            next_try: Instant::now(),
            failure: String::new(),
            connected: Vec::new(),
            turn: 0,
            requests,
            is_over: false,
            last_sent: Instant::now(),
            count: Count::new(env),
            env: env.clone(),
        }
    }

    /// Opens what can be opened without a reader.
    pub fn open(&mut self) -> Result<(), BlockError> {
        match &self.entrance {
            Entrance::Stdout => {
                let stdout = Stdout::take()?;
                self.join("the reader of stdout".to_owned(), Stream::Stdout(stdout));
            }
            Entrance::Pipe(_) => self.open_pipe()?,
            Entrance::Server(_) => {}
            Entrance::Clients(address) => {
                let listen = || {
                    let listener = TcpListener::bind(address)?;
                    listener.set_nonblocking(true)?;
                    Ok(listener)
                };
                let cannot = |error: std::io::Error| {
                    BlockError::new(format!("cannot listen at {address}: {}", reason(&error)))
                };
                self.listener = Some(listen().map_err(cannot)?);
            }
        }
        Ok(())
    }

    fn open_pipe(&mut self) -> Result<(), BlockError> {
        let Entrance::Pipe(path) = &self.entrance else { return Ok(()) };
        let opened = path.files().open_pipe(path.path()).map_err(|error| {
            BlockError::new(format!("cannot write to the pipe {path}: {}", reason(&error)))
        })?;
        if let Some(file) = opened {
            self.join("the reader of the pipe".to_owned(), Stream::Pipe(file));
        }
        Ok(())
    }

    fn join(&mut self, name: String, stream: Stream) {
        match &stream {
            // A smaller pipe works, too.
            Stream::Stdout(stdout) => drop(fcntl_setpipe_size(stdout.as_fd(), PIPE_BYTES)),
            Stream::Pipe(file) => drop(fcntl_setpipe_size(file, PIPE_BYTES)),
            Stream::Tcp(socket) => connect::keep_alive(socket),
        }
        tracing::info!("{}: {name} is there", self.env.name);
        self.connected.push(Reader::new(name, stream, self.protocol));
        self.count.joined.add(1);
        self.count.readers.set(self.connected.len() as f64);
    }

    /// Lets readers come in.
    fn admit(&mut self, now: Instant) -> Result<(), BlockError> {
        if let Some(listener) = self.listener.take() {
            self.accept(&listener);
            self.listener = Some(listener);
        }
        if !self.connected.is_empty() || now < self.next_try {
            return Ok(());
        }
        self.next_try = now + RETRY;
        self.open_pipe()?;
        let Entrance::Server(addresses) = &self.entrance else { return Ok(()) };
        let connecting = self.connecting.take();
        let connecting = connecting.map_or_else(|| Connecting::begin(addresses), Ok);
        let attempt = connecting.and_then(Connecting::look);
        match attempt {
            Ok(Ok(socket)) => {
                self.failure.clear();
                let name = connect::name(&socket);
                self.join(name, Stream::Tcp(socket));
            }
            Ok(Err(connecting)) => self.connecting = Some(connecting),
            Err(error) => self.tell_failure(&reason(&error)),
        }
        Ok(())
    }

    fn tell_failure(&mut self, why: &str) {
        if self.failure != why {
            why.clone_into(&mut self.failure);
            let text = format!("cannot connect, and tries again: {why}");
            self.env.events.add(EventKind::Warning, text);
        }
    }

    /// Accepts the clients that wait.
    fn accept(&mut self, listener: &TcpListener) {
        for _ in 0..MAX_READERS {
            match listener.accept() {
                Ok((socket, _)) if self.connected.len() >= MAX_READERS => {
                    drop(socket);
                    self.count.rejected.add(1);
                }
                Ok((socket, address)) => {
                    if socket.set_nonblocking(true).is_ok() {
                        self.join(address.to_string(), Stream::Tcp(socket));
                    }
                }
                // The others, such as too many open files, may be over at the next look.
                Err(_) => return,
            }
        }
    }

    /// Moves bytes; returns how many.
    pub fn serve(&mut self, now: Instant) -> Result<usize, BlockError> {
        self.admit(now)?;
        let mut all = 0;
        let mut n = 0;
        while n < self.connected.len() {
            let reader = &mut self.connected[n];
            let heard = reader.listen(&mut self.requests);
            let (Progress { bytes, chunks }, sent) = reader.send();
            self.count.bytes.add(bytes as u64);
            self.count.frames.add(chunks as u64);
            all += bytes;
            let why = heard.err().or_else(|| Some(reason(&sent.err()?)));
            match why {
                Some(why) => self.leave(n, &why),
                None => n += 1,
            }
        }
        if all > 0 {
            self.last_sent = now;
        }
        Ok(all)
    }

    fn leave(&mut self, n: usize, why: &str) {
        let reader = self.connected.remove(n);
        self.count.left.add(1);
        self.count.left_queued.add(reader.queued() as u64);
        self.count.readers.set(self.connected.len() as f64);
        self.is_over |= matches!(self.entrance, Entrance::Stdout);
        tracing::info!("{}: {} has left: {why}", self.env.name, reader.name);
        if !reader.is_known() {
            let text = format!("{} was sent away: {why}", reader.name);
            self.env.events.add(EventKind::Warning, text);
        }
    }

    fn reading(&self) -> impl Iterator<Item = &Reader> {
        self.connected.iter().filter(|reader| reader.is_reading())
    }

    /// Whether a chunk can be taken: always where frames may be dropped.
    pub fn has_room(&self) -> bool {
        let has_room = |reader: &Reader| reader.queued() < self.queue_frames;
        match (self.when_full, self.protocol) {
            (WhenFull::DropOldest, _) => true,
            (WhenFull::Wait, Protocol::Zmtp(ZmqSocket::Push)) => self.reading().any(has_room),
            (WhenFull::Wait, _) => self.has_reader() && self.reading().all(has_room),
        }
    }

    /// Whether a reader may get samples.
    pub fn has_reader(&self) -> bool {
        self.reading().next().is_some()
    }

    /// Gives `chunk` to the readers that want it.
    pub fn push(&mut self, chunk: &Chunk) {
        let is_push = matches!(self.protocol, Protocol::Zmtp(ZmqSocket::Push));
        let of_push = if is_push { self.next_of_push() } else { None };
        let Self { connected: readers, count, queue_frames, .. } = self;
        let mut has_got = false;
        for (n, reader) in readers.iter_mut().enumerate() {
            if of_push.is_some_and(|only| only != n) || !reader.wants(chunk) {
                continue;
            }
            has_got = true;
            if reader.queued() >= *queue_frames {
                reader.drop_oldest();
                count.slow.add(1);
            }
            reader.push(chunk);
        }
        count.without.add(u64::from(!has_got));
    }

    /// Reader of the next message of PUSH: in turn, and one with room before one without.
    fn next_of_push(&mut self) -> Option<usize> {
        let all = self.connected.len();
        let from = self.turn;
        let in_turn = (0..all).map(|n| (from + n) % all);
        let reading = in_turn.filter(|n| self.connected[*n].is_reading());
        let next = reading.min_by_key(|n| self.connected[*n].queued() >= self.queue_frames);
        self.turn = next.map_or(0, |n| n + 1);
        next
    }

    /// Whether all readers have all bytes, or will not get them.
    pub fn is_idle(&self, now: Instant) -> bool {
        let gives_up = self.when_full == WhenFull::DropOldest
            && now.saturating_duration_since(self.last_sent) > LINGER;
        gives_up || self.reading().all(Reader::is_idle)
    }

    /// Whether no reader can come any more.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Ends all readers.
    pub fn close(&mut self) {
        let left: usize = self.connected.iter().map(Reader::queued).sum();
        self.count.left_queued.add(left as u64);
        self.connected.clear();
        self.listener = None;
        self.connecting = None;
    }
}
