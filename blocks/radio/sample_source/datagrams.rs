//! Receiving datagrams, with or without numbers.

use super::assembler::Layout;
use super::receiving::{Receiving, TextOrError};
use super::{SampleSource, Udp};
use crate::datagram::{DatagramHeader, HeaderField};
use fxgraph::runtime::EventKind;
use fxgraph::{BlockError, Counter, Env};
use fxgraph_common::link::{Link, TICK};
use fxgraph_common::net::membership::{Keeper, Reports};
use fxgraph_common::net::sockets::{self, Listener, Listening};
use fxgraph_common::net::{address, interface};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Frames that are open at the same time, for datagrams that overtake others.
pub const WINDOW: usize = 4;
/// The largest datagram in bytes.
const MAX_DATAGRAM: usize = 1 << 16;
/// Datagrams that are read before the thread looks at its other duties.
const MOST_DATAGRAMS: usize = 256;
/// Numbers in a row, far from the expected one, that show another run of the sender.
const SURE: u32 = 16;
/// Silence of the sender after which another one may follow it.
const GONE: Duration = Duration::from_secs(1);
/// Interval at which the drops of the kernel are read.
const COUNT_INTERVAL: Duration = Duration::from_millis(500);

/// Counters of datagrams.
struct Counts {
    received: Counter,
    kernel_drops: Counter,
    short: Counter,
    odd: Counter,
    foreign: Counter,
    unexpected: Counter,
}

impl Counts {
    fn new(env: &Env) -> Self {
        let counters = &env.counters;
        Self {
            received: counters.count("datagrams_received", "datagrams received from the network"),
            kernel_drops: counters.overrun(
                "datagrams_dropped_by_kernel",
                "datagrams dropped by the kernel because the socket buffer was full; raise receive_buffer_bytes and net.core.rmem_max, or give the block a core",
            ),
            short: counters
                .loss("datagrams_short", "datagrams shorter than the header; find their sender"),
            odd: counters.loss(
                "datagrams_odd_length",
                "datagrams whose samples are not whole; the rest was dropped: check `type` and `header`",
            ),
            foreign: counters.loss(
                "datagrams_foreign",
                "datagrams dropped because they come from a second sender; stop one of them",
            ),
            unexpected: counters.loss(
                "datagrams_unexpected",
                "datagrams dropped because their number is far from the expected one; look for a restart of the sender",
            ),
        }
    }
}

/// Place of a datagram in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Number, in the time base, of its first sample.
    At(u64),
    /// Its samples are of frames that were sent.
    Late,
    /// Its number is far from the expected one.
    Unexpected,
    /// Many numbers in a row show another run of the sender.
    Restart,
}

/// Numbers of the datagrams of a sender.
#[derive(Debug)]
struct Numbers {
    field: HeaderField,
    /// Whether they count samples; otherwise datagrams.
    counts_samples: bool,
    /// Longest gap in samples.
    longest: i128,
    /// Number that is expected next.
    next: u64,
    /// Number, in the time base, of the first sample of the datagram that is expected next.
    position: u64,
    /// Samples of the last datagram in order: missing ones are taken to have as many.
    samples: u64,
    /// Number after that of the last unexpected datagram, and how many were in a row.
    suspect: (u64, u32),
}

impl Numbers {
    fn new(header: &DatagramHeader, longest: f64) -> Option<Self> {
        let (field, counts_samples) = match (header.sequence, header.sample) {
            (Some(field), _) => (field, false),
            (None, Some(field)) => (field, true),
            (None, None) => return None,
        };
        let longest = longest as i128;
        Some(Self {
            field,
            counts_samples,
            longest,
            next: 0,
            position: 0,
            samples: 0,
            suspect: (0, 0),
        })
    }

    /// Number after `number` of a datagram of `samples` samples.
    fn after(&self, number: u64, samples: u64) -> u64 {
        let step = if self.counts_samples { samples } else { 1 };
        number.wrapping_add(step) & self.field.mask()
    }

    /// Begins a run of the sender with a datagram of this number, at number `position` of the time base.
    fn begin(&mut self, number: u64, position: u64) {
        (self.next, self.position, self.suspect) = (number, position, (0, 0));
    }

    /// Returns the place of a datagram of `samples` samples. `is_late`: whether samples up to this number were sent.
    fn place(&mut self, number: u64, samples: u64, is_late: impl Fn(u64) -> bool) -> Place {
        let unused = self.field.mask().leading_zeros();
        let ahead = (number.wrapping_sub(self.next) << unused).cast_signed() >> unused;
        let step = if self.counts_samples { 1 } else { i128::from(self.samples) };
        let ahead = i128::from(ahead) * step;
        let at = u64::try_from(i128::from(self.position) + ahead).ok();
        let at = at.filter(|_| ahead.abs() <= self.longest);
        let is_late = at.is_some_and(|at| is_late(at.saturating_add(samples)));
        let Some(at) = at.filter(|_| !is_late) else {
            let is_in_row = self.suspect.1 > 0 && number == self.suspect.0;
            let count = if is_in_row { self.suspect.1 + 1 } else { 1 };
            self.suspect = (self.after(number, samples), count);
            return match (count, is_late) {
                (SURE.., _) => Place::Restart,
                (_, true) => Place::Late,
                (_, false) => Place::Unexpected,
            };
        };
        self.suspect = (0, 0);
        if ahead >= 0 {
            (self.next, self.position) = (self.after(number, samples), at + samples);
            self.samples = samples;
        }
        Place::At(at)
    }
}

/// A socket, and the state of its sender.
pub struct Datagrams {
    socket: Listener,
    /// The same, for reading one datagram at a time.
    reader: UdpSocket,
    header: DatagramHeader,
    layout: Layout,
    numbers: Option<Numbers>,
    max_gap: Duration,
    sender: Option<SocketAddr>,
    counts: Counts,
    drops: u32,
    next_count: Instant,
    keeper: Keeper,
    buffer: Vec<u8>,
}

impl Datagrams {
    /// Opens the socket.
    pub fn open(
        udp: &Udp,
        source: &SampleSource,
        layout: Layout,
        env: &Env,
    ) -> Result<Self, BlockError> {
        let interfaces: Vec<String> = udp.interface.iter().cloned().collect();
        interface::report_faults(&interfaces, &env.events);
        let addresses = address::resolve([&udp.address])?;
        let sources = address::sources(&udp.sources)?;
        let buffer_bytes = udp.receive_buffer_bytes;
        let listening = Listening { interfaces, sources, buffer_bytes };
        let socket = sockets::open(&addresses, &listening)?.pop();
        let socket = socket.ok_or_else(|| BlockError::new("`from` names no address"))?;
        let cannot = |error: io::Error| BlockError::new(format!("cannot receive: {error}"));
        let reader = sockets::take_singly(&socket).map_err(cannot)?;
        let mut keeper = Keeper::new();
        keeper.report(Reports::new(&env.events));
        Ok(Self {
            socket,
            reader,
            header: udp.header,
            layout,
            numbers: Numbers::new(&udp.header, source.max_gap_seconds * source.adc_sample_rate_hz),
            max_gap: Duration::from_secs_f64(source.max_gap_seconds),
            sender: None,
            counts: Counts::new(env),
            drops: 0,
            next_count: Instant::now(),
            keeper,
            buffer: vec![0; MAX_DATAGRAM],
        })
    }

    /// Receives until the stream ends; returns the reason.
    pub fn run(&mut self, receiving: &mut Receiving, link: &mut Link) -> TextOrError {
        let cannot = |error: io::Error| BlockError::new("cannot receive").because(error);
        let watched = self.socket.try_clone().map_err(cannot)?;
        link.live = Some(Box::new(move || sockets::fill(&watched)));
        loop {
            if let Some(end) = receiving.tick(link) {
                return Ok(end);
            }
            self.keeper.look(Instant::now(), self.socket.group().into_iter());
            self.count_drops();
            self.receive(receiving, link).map_err(cannot)?;
        }
    }

    fn count_drops(&mut self) {
        let now = Instant::now();
        if now < self.next_count {
            return;
        }
        self.next_count = now + COUNT_INTERVAL;
        let drops = sockets::drops(&self.socket).unwrap_or(self.drops);
        self.counts.kernel_drops.add(u64::from(drops.wrapping_sub(self.drops)));
        self.drops = drops;
    }

    /// Waits up to [`TICK`] for datagrams and takes some.
    fn receive(&mut self, receiving: &mut Receiving, link: &mut Link) -> io::Result<()> {
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        let mut wanted = [PollFd::new(&*self.socket, PollFlags::IN)];
        if retry_on_intr(|| poll(&mut wanted, Some(&tick)))? == 0 {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let result: io::Result<()> = (0..MOST_DATAGRAMS).try_for_each(|_| {
            let (count, sender) = self.reader.recv_from(&mut buffer)?;
            self.datagram(&buffer[..count], sender, receiving, link);
            if link.stopping() { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        self.buffer = buffer;
        match result {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    /// Takes one datagram.
    fn datagram(
        &mut self,
        datagram: &[u8],
        sender: SocketAddr,
        receiving: &mut Receiving,
        link: &mut Link,
    ) {
        self.counts.received.add(1);
        receiving.causes.bytes.add(datagram.len() as u64);
        let Some((header, samples)) = datagram.split_at_checked(self.header.bytes) else {
            self.counts.short.add(1);
            return;
        };
        let rest = samples.len() % self.layout.of.bytes();
        self.counts.odd.add(u64::from(rest > 0));
        receiving.causes.cut.add(rest as u64);
        if samples.len() == rest {
            return;
        }
        if self.sender != Some(sender) {
            if self.sender.is_some() && receiving.silence() < GONE {
                self.counts.foreign.add(1);
                return;
            }
            self.sender = Some(sender);
            receiving.connect();
        }
        let count = (samples.len() / self.layout.of.bytes()) as u64;
        let Some(numbers) = &mut self.numbers else {
            // Only the clock shows the length of a silence.
            if receiving.silence() > self.max_gap.max(GONE) {
                receiving.connect();
            }
            if receiving.begins(samples) {
                receiving.begin(samples, link);
            }
            receiving.append(samples, link);
            return;
        };
        let number = numbers.field.read(header);
        if receiving.begins(samples) {
            receiving.begin(samples, link);
            numbers.begin(number, receiving.newest());
        }
        let mut place = numbers.place(number, count, |end| receiving.is_late(end));
        if place == Place::Restart {
            let text = "the numbers of the datagrams begin again: the sender was restarted";
            receiving.events.add(EventKind::Warning, text);
            receiving.begin(samples, link);
            numbers.begin(number, receiving.newest());
            place = numbers.place(number, count, |end| receiving.is_late(end));
        }
        match place {
            Place::At(at) => {
                receiving.place(at, samples, link);
            }
            Place::Late => receiving.causes.late.add(count),
            Place::Unexpected | Place::Restart => self.counts.unexpected.add(1),
        }
    }
}
