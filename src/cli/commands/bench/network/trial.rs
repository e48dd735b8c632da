//! One trial: a flowgraph between a sender and a receiver, at one rate.

use super::cores::{Snapshot, Usage};
use super::layout::Layout;
use super::receiver::{Collector, Received};
use super::search::Verdict;
use super::sender::{SendTimes, Sent, Task};
use crate::commands::bench::state::State;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::units;
use fxgraph::flowgraph::Plan;
use fxgraph::runtime::{self, BlockStats, Report, Running, with_causes};
use fxgraph::{BlockError, DeviceName};
use fxgraph_blocks::common::net::family::Family;
use fxgraph_blocks::common::net::interface::Interface;
use fxgraph_blocks::common::net::sockets::{self, Listening};
use fxgraph_blocks::io::spead::receive;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, ScopedJoinHandle, scope, sleep};
use std::time::{Duration, Instant};

/// Beginning of the names of the measurement's own threads.
pub const OWN_THREADS: &str = "bench ";
/// Channel blocks of the flowgraph's output, an address for each.
const CHANNEL_BLOCKS: u32 = 4;
/// Receive buffer of each address of the measurement's own receiver, in bytes.
const RECEIVE_BUFFER_BYTES: usize = 256 << 20;
/// Bytes that the receiver reads in one call, of all addresses: 8 coalesced runs of each.
const TURN_BYTES: usize = 2 << 20;
/// Time from the start of the flowgraph to the start of the stream.
const LEAD: Duration = Duration::from_millis(100);
/// Shortest time for which the stream continues after the measured time. The last samples of a stream wait in
/// incomplete frames for its end, which would count as latency.
const LEAST_TAIL_SECONDS: f64 = 0.1;
/// Time for which the sending times of heaps are kept.
const KEPT_SECONDS: f64 = 8.0;
/// Time for the flowgraph to end after the stream, and again after a request to stop.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Time between two checks of the main thread.
const TICK: Duration = Duration::from_millis(5);
/// Largest delay of a sender that keeps the rate: this fraction of the trial, and this time.
const SENDER_TOLERANCE: f64 = 0.01;
const SENDER_DELAY: Duration = Duration::from_millis(200);

/// Addresses of a trial.
pub struct Addresses {
    pub interface: Ipv4Addr,
    pub pols: [SocketAddr; 2],
    /// Where the flowgraph sends heaps of spectra: [`CHANNEL_BLOCKS`] consecutive addresses, as in `239.1.2.3+3:7148`.
    pub out: String,
}

impl Addresses {
    /// Opens the receiver and chooses free ports on the network interface `name`: its own address if it is the
    /// loopback interface, else multicast groups, whose packets leave the host and return to it.
    pub fn open(name: &str) -> Result<(Self, receive::Batch), Failure> {
        let found = Interface::with_address(name, Family::V4);
        let (_, interface) = found.map_err(|error| Failure::failed(error.to_string()))?;
        let IpAddr::V4(interface) = interface else {
            return Err(Failure::failed(format!("network interface `{name}` has no IPv4 address")));
        };
        let is_loopback = interface.is_loopback();
        let group = |last| if is_loopback { interface } else { Ipv4Addr::new(239, 255, 77, last) };
        let failed = |error: io::Error| Failure::because("no free UDP port", &error);
        // Both ports are free at the same time, so they differ.
        let sockets = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)));
        let [first, second] = sockets;
        let port = |socket: io::Result<UdpSocket>| Ok(socket?.local_addr()?.port());
        let (first, second) = (port(first).map_err(failed)?, port(second).map_err(failed)?);
        let pols = [(group(1), first), (group(2), second)].map(SocketAddr::from);
        let block_failed = |error: BlockError| Failure::failed(with_causes(&error));
        let first = if is_loopback { interface } else { group(3) };
        let (out, batch) = receiver(first, interface).map_err(block_failed)?;
        Ok((Self { interface, pols, out }, batch))
    }
}

/// Opens the receiver of [`CHANNEL_BLOCKS`] consecutive addresses from `first` on, with one free port, and returns them
/// as a flowgraph names them.
fn receiver(first: Ipv4Addr, interface: Ipv4Addr) -> Result<(String, receive::Batch), BlockError> {
    let listening = Listening::on(&[interface.to_string()], RECEIVE_BUFFER_BYTES);
    let open = |addresses: &[SocketAddr]| sockets::open(addresses, &listening);
    let mut opened = open(&[(first, 0).into()])?;
    let address = opened.first().and_then(|socket| socket.local_addr().ok()?.as_socket());
    let port =
        address.ok_or_else(|| BlockError::new("the receiving socket has no address"))?.port();
    let next = |offset| (Ipv4Addr::from_bits(first.to_bits() + offset), port).into();
    opened.extend(open(&(1..CHANNEL_BLOCKS).map(next).collect::<Vec<_>>())?);
    // Pauses would add to the latencies.
    let batch = receive::Batch::new(opened, TURN_BYTES).without_pauses();
    Ok((format!("{first}+{}:{port}", CHANNEL_BLOCKS - 1), batch))
}

/// Durations of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Times {
    /// Duration of the stream.
    fn total(&self, layout: &Layout) -> Duration {
        let frames = 2.0 * layout.longest_frame as f64 / layout.rate_hz;
        self.warm_up + self.measured + Duration::from_secs_f64(LEAST_TAIL_SECONDS + frames)
    }
}

/// Median, 99th percentile, smallest and largest latency, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    pub minimum: f64,
    pub p50: f64,
    pub p99: f64,
    pub maximum: f64,
}

impl Latency {
    /// Returns `None` for no values.
    fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let last = seconds.len().checked_sub(1)?;
        // The value below which this fraction of all values is, rounded up: of few values, p99 is the largest.
        let at = |fraction: f64| seconds[(last as f64 * fraction).ceil() as usize];
        Some(Self { minimum: at(0.0), p50: at(0.5), p99: at(0.99), maximum: at(1.0) })
    }
}

/// Heaps of spectra of a part of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heaps {
    pub expected: u64,
    pub received: u64,
}

impl Heaps {
    pub fn missing(&self) -> u64 {
        self.expected.saturating_sub(self.received)
    }

    /// Missing heaps as a fraction of the expected ones.
    pub fn missing_fraction(&self) -> f64 {
        if self.expected == 0 { 0.0 } else { self.missing() as f64 / self.expected as f64 }
    }
}

/// Count of missing or dropped data of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub block: String,
    pub counter: &'static str,
    pub count: u64,
    /// Whether the block was too slow.
    pub is_overrun: bool,
}

/// Result of a trial.
#[derive(Debug)]
pub struct Trial {
    pub rate_hz: f64,
    /// Rate of the slower sender.
    pub sent_rate_hz: f64,
    /// Digitiser heaps sent, per polarisation.
    pub heaps_sent: [u64; 2],
    /// Longest delay of a sender behind its schedule.
    pub sender_delay: Duration,
    /// Whether both senders kept the rate.
    pub sender_kept_up: bool,
    /// Heaps of the warm-up, and of the measured time after it.
    pub at_start: Heaps,
    pub heaps: Heaps,
    /// Latencies of heaps after the warm-up, to their first and to their last packet.
    pub first_packet: Option<Latency>,
    pub last_packet: Option<Latency>,
    /// Packets dropped by the measurement's own receiver.
    pub receiver_dropped: u64,
    pub losses: Vec<Loss>,
    pub threads: Vec<Usage>,
    /// State of the device near the end of the stream.
    pub state: State,
}

impl Trial {
    pub fn verdict(&self) -> Verdict {
        if !self.sender_kept_up {
            Verdict::SenderLimited(self.sent_rate_hz)
        } else if self.heaps.missing() > 0 {
            Verdict::Lossy
        } else {
            Verdict::Lossless
        }
    }

    /// Returns the cause of missing data: the first place on the way of the data that counts any.
    pub fn limit(&self) -> Option<String> {
        match self.verdict() {
            Verdict::Lossless => return None,
            Verdict::SenderLimited(_) => return Some("sender".to_owned()),
            Verdict::Lossy => {}
        }
        let block = self.losses.first().map(|loss| &loss.block);
        let of_block = self.losses.iter().filter(|loss| Some(&loss.block) == block);
        let cause = of_block.max_by_key(|loss| (loss.is_overrun, loss.count));
        let cause = cause.map(|loss| format!("{} of `{}`", loss.counter, loss.block));
        let is_own = self.receiver_dropped > 0;
        Some(match cause {
            _ if is_own => "receiver of the measurement".to_owned(),
            Some(cause) => cause,
            None => "network after the flowgraph".to_owned(),
        })
    }

    /// Cores used by the flowgraph.
    pub fn flowgraph_cores(&self) -> f64 {
        let others = self.threads.iter().filter(|usage| !usage.name.starts_with(OWN_THREADS));
        others.map(|usage| usage.cores).sum()
    }
}

/// Flags that the threads of a trial share.
#[derive(Default)]
struct Flags {
    /// Ends the senders.
    stop: AtomicBool,
    /// The senders have sent all data.
    are_done: [AtomicBool; 2],
    /// The flowgraph has ended.
    is_ended: AtomicBool,
    /// Ends the receiver once no packet is left.
    stop_receiver: AtomicBool,
}

/// Runs `plan` between senders and a receiver at `addresses`.
pub fn run(
    plan: &Plan,
    layout: Layout,
    device: DeviceName,
    (addresses, batch): (Addresses, receive::Batch),
    times: Times,
    signals: &Signals,
) -> Result<Trial, Failure> {
    let assembly = plan.build().map_err(|error| Failure::failed(with_causes(&error)))?;
    let running = runtime::start(assembly, runtime::Options::default());
    let running = running.map_err(|error| Failure::failed(with_causes(&error)))?;
    let layout = layout.with_window(window(&running.stats(), layout.rate_hz));
    let least = layout.least_seconds();
    if times.measured.as_secs_f64() < least {
        return Err(Failure::failed(format!(
            "`--seconds` must be at least {least:.2} at {}, because a heap of spectra needs {} samples; give a longer \
             time, fewer channels (`--set channels=1024`) or a higher `--min-rate`",
            units::scaled(layout.rate_hz, "S/s"),
            layout.span
        )));
    }
    let total = times.total(&layout);
    let heaps = (total.as_secs_f64() / layout.heap_seconds()).ceil() as u64;
    let kept = (KEPT_SECONDS / layout.heap_seconds()).ceil() as usize;
    let send_times = [(); 2].map(|()| SendTimes::new(kept.min(heaps as usize)));
    let flags = Flags::default();
    let start = Instant::now() + LEAD;
    // Enough for a sender that reaches half of the rate to be measured, and no more.
    let limit = total + total / 4 + Duration::from_secs(1);
    let interface = addresses.interface.to_string();
    let task = |pol: usize| Task {
        layout: &layout,
        pol: pol as u64,
        to: addresses.pols[pol],
        interface: &interface,
        heaps,
        start,
        limit,
        times: &send_times[pol],
        stop: &flags.stop,
        is_ended: &flags.is_ended,
        is_done: &flags.are_done[pol],
    };
    let tasks = [task(0), task(1)];
    let (results, received, watched) = scope(|scope| {
        let senders: Vec<_> = tasks
            .iter()
            .map(|task| {
                let name = format!("{OWN_THREADS}send {}", task.pol);
                Builder::new().name(name).spawn_scoped(scope, || task.run())
            })
            .collect();
        let collector = Collector::new(&layout, &send_times);
        let name = format!("{OWN_THREADS}receive");
        let receiver = Builder::new()
            .name(name)
            .spawn_scoped(scope, || collector.run(batch, start, &flags.stop_receiver));
        // A thread that was not started must not be waited for.
        let all_started = receiver.is_ok() && senders.iter().all(Result::is_ok);
        flags.stop.store(!all_started, Ordering::Release);
        let watched = watch(&running, &flags, device, start, times, limit, signals);
        let results: Vec<Result<Sent, String>> = senders.into_iter().map(join).collect();
        (results, join(receiver), watched)
    });
    let report = running.wait();
    if signals.look() > 0 {
        return Err(Failure::Interrupted);
    }
    if let Some(failure) = report.failures.first() {
        return Err(Failure::failed(failure.to_string()));
    }
    let sent = results.into_iter().collect::<Result<Vec<Sent>, String>>();
    let (sent, received) = (sent.map_err(Failure::failed)?, received.map_err(Failure::failed)?);
    let [first, second] = sent[..] else { return Err(Failure::failed("a sender is missing")) };
    Ok(evaluate(layout, times, heaps, [first, second], &received, &report, watched))
}

/// Use of cores and state of the device while the stream flowed.
struct Watched {
    threads: Vec<Usage>,
    state: State,
}

/// Follows a trial to its end; sets the flags that end its threads.
fn watch(
    running: &Running,
    flags: &Flags,
    device: DeviceName,
    start: Instant,
    times: Times,
    limit: Duration,
    signals: &Signals,
) -> Watched {
    let is_over = || signals.look() > 0 || running.is_ended() || flags.stop.load(Ordering::Acquire);
    wait(start + times.warm_up, is_over);
    let before = Snapshot::take();
    // The senders end by themselves; the margin is for threads that get no core.
    let are_done = || flags.are_done.iter().all(|done| done.load(Ordering::Acquire));
    wait(start + limit + END_LIMIT, || is_over() || are_done());
    let threads = Snapshot::take().since(&before);
    let state = State::read(device);
    flags.stop.store(true, Ordering::Release);
    let is_cut_short = || signals.look() > 0 || running.is_ended();
    wait(Instant::now() + END_LIMIT, is_cut_short);
    if !running.is_ended() {
        running.request_stop();
        wait(Instant::now() + END_LIMIT, is_cut_short);
    }
    if !running.is_ended() {
        running.abort();
    }
    flags.is_ended.store(true, Ordering::Release);
    flags.stop_receiver.store(true, Ordering::Release);
    Watched { threads, state }
}

/// Waits until `end`, or until `is_over`.
fn wait(end: Instant, is_over: impl Fn() -> bool) {
    while !is_over() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        sleep(left.min(TICK));
    }
}

fn join<T>(thread: io::Result<ScopedJoinHandle<'_, Result<T, String>>>) -> Result<T, String> {
    let thread = thread.map_err(|error| format!("cannot create a thread: {error}"))?;
    thread.join().unwrap_or_else(|_| Err("a thread of the measurement panicked".to_owned()))
}

/// Returns the length of the filter's window in samples, from the group delays of all blocks.
fn window(stats: &[BlockStats], rate_hz: f64) -> u64 {
    let gauges = stats.iter().flat_map(|block| &block.gauges);
    let delays = gauges.filter(|named| named.name == "filter_group_delay_seconds");
    // Both polarisations have the same filter.
    let seconds = delays.filter_map(|named| named.gauge.get()).fold(0.0, f64::max);
    (2.0 * seconds * rate_hz).round() as u64 + 1
}

fn evaluate(
    layout: Layout,
    times: Times,
    heaps: u64,
    sent: [Sent; 2],
    received: &Received,
    report: &Report,
    watched: Watched,
) -> Trial {
    let complete = sent[0].heaps.min(sent[1].heaps);
    let elapsed = sent[0].elapsed.max(sent[1].elapsed);
    // Outputs that begin after the warm-up, and need no sample after the measured time.
    let begin = (times.warm_up.as_secs_f64() * layout.rate_hz) as u64;
    let begin = begin.div_ceil(layout.samples_per_output);
    let end = (times.warm_up + times.measured).as_secs_f64() / layout.heap_seconds();
    let end = layout.outputs((end as u64).min(complete));
    let outputs = |from: u64, to: u64| {
        let arrivals = received.arrivals.iter();
        arrivals.filter(move |arrival| {
            (from..to).contains(&(arrival.timestamp / layout.samples_per_output))
        })
    };
    let heaps_of = |from: u64, to: u64| Heaps {
        expected: to.saturating_sub(from),
        received: outputs(from, to).count() as u64,
    };
    let total = times.total(&layout);
    let allowed = total.mul_f64(1.0 + SENDER_TOLERANCE) + SENDER_DELAY;
    Trial {
        rate_hz: layout.rate_hz,
        sent_rate_hz: complete as f64 * layout.samples_per_heap as f64
            / elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
        heaps_sent: sent.map(|sent| sent.heaps),
        sender_delay: sent[0].longest_delay.max(sent[1].longest_delay),
        sender_kept_up: complete == heaps && elapsed <= allowed,
        at_start: heaps_of(0, begin.min(end)),
        heaps: heaps_of(begin, end),
        first_packet: Latency::of(outputs(begin, end).filter_map(|a| a.first).collect()),
        last_packet: Latency::of(outputs(begin, end).filter_map(|a| a.last).collect()),
        receiver_dropped: received.dropped,
        losses: losses(&report.stats),
        threads: watched.threads,
        state: watched.state,
    }
}

/// Returns the counts of missing and dropped data of all blocks, in the order of the blocks.
fn losses(stats: &[BlockStats]) -> Vec<Loss> {
    let of_block = |block: &BlockStats| {
        let counted = block.counters.iter().filter(|named| named.is_loss);
        let losses = counted.map(|named| Loss {
            block: block.name.clone(),
            counter: named.name,
            count: named.counter.get(),
            is_overrun: named.is_overrun,
        });
        losses.filter(|loss| loss.count > 0).collect::<Vec<_>>()
    };
    stats.iter().flat_map(of_block).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::receiver::Arrival;
    use super::*;

    const LAYOUT: Layout = Layout {
        rate_hz: 1e4,
        bits: 8,
        samples_per_heap: 100,
        samples_per_output: 1000,
        output_bytes: 64,
        spectra: 10,
        longest_frame: 1000,
        span: 1200,
    };

    /// Evaluates a second of warm-up, two seconds after it, and 0.3 s of tail: 330 heaps.
    fn trial(timestamps: impl Iterator<Item = u64>, sent: u64, seconds: f64) -> Trial {
        let arrival = |timestamp| Arrival {
            timestamp,
            first: Some(timestamp as f64 * 1e-6),
            last: Some(timestamp as f64 * 1e-6 + 1.0),
        };
        let received =
            Received { arrivals: timestamps.map(arrival).collect(), packets: 0, dropped: 0 };
        let sent = Sent {
            heaps: sent,
            elapsed: Duration::from_secs_f64(seconds),
            longest_delay: Duration::ZERO,
        };
        let times = Times { warm_up: Duration::from_secs(1), measured: Duration::from_secs(2) };
        let report = Report {
            failures: Vec::new(),
            stats: Vec::new(),
            elapsed: Duration::ZERO,
            is_aborted: false,
        };
        let watched = Watched { threads: Vec::new(), state: State::Gpu(None) };
        evaluate(LAYOUT, times, 330, [sent; 2], &received, &report, watched)
    }

    #[test]
    fn heaps_of_the_warm_up_and_after_it_are_counted_apart() {
        // The 300 heaps before the tail are 29 outputs, of the 32 of the stream.
        let all = trial((0..32).map(|output| 1000 * output), 330, 3.3);
        assert_eq!(all.at_start, Heaps { expected: 10, received: 10 });
        assert_eq!(all.heaps, Heaps { expected: 19, received: 19 });
        assert_eq!(all.verdict(), Verdict::Lossless);
        assert_eq!(all.limit(), None);
        let latency = all.first_packet.unwrap();
        assert!((latency.minimum - 0.010).abs() < 1e-9, "{latency:?}");
        assert!((latency.p50 - 0.019).abs() < 1e-9, "{latency:?}");
        assert!((latency.maximum - 0.028).abs() < 1e-9, "{latency:?}");

        let late = trial((3..32).map(|output| 1000 * output), 330, 3.3);
        assert_eq!(late.at_start.missing(), 3);
        assert_eq!(late.verdict(), Verdict::Lossless);
        let lossy =
            trial((0..32).filter(|output| *output != 20).map(|output| 1000 * output), 330, 3.3);
        assert_eq!(lossy.heaps.missing(), 1);
        assert_eq!(lossy.verdict(), Verdict::Lossy);
        assert_eq!(lossy.limit().as_deref(), Some("network after the flowgraph"));
    }

    #[test]
    fn sender_that_ends_late_or_early_limits_the_trial() {
        for (sent, seconds) in [(330, 4.0), (150, 3.3)] {
            let slow = trial((0..29).map(|output| 1000 * output), sent, seconds);
            assert!(matches!(slow.verdict(), Verdict::SenderLimited(rate) if rate < 1e4));
            assert_eq!(slow.limit().as_deref(), Some("sender"));
        }
    }

    #[test]
    fn cause_of_missing_data_is_the_first_block_that_dropped_any() {
        let mut lossy = trial((0..28).map(|output| 1000 * output), 330, 3.3);
        let loss = |block: &str, counter, count, is_overrun| Loss {
            block: block.to_owned(),
            counter,
            count,
            is_overrun,
        };
        lossy.losses = vec![
            loss("pol[0]", "heaps_missing", 100, false),
            loss("pol[0]", "frames_dropped", 3, true),
            loss("f", "spectra_missing", 1000, false),
        ];
        assert_eq!(lossy.limit().as_deref(), Some("frames_dropped of `pol[0]`"));
        lossy.receiver_dropped = 1;
        assert_eq!(lossy.limit().as_deref(), Some("receiver of the measurement"));
    }
}
