//! Keeps the receiving threads of a source in step.
//!
//! A thread that reads its sockets ahead of the others moves the window over heaps that still wait in the
//! other sockets. So, as one thread would read its sockets in turn, a thread waits for another one that
//! has data and is behind by more than a turn. Threads without data are not waited for.

use crate::io::spead::receive::{self, Received};
use socket2::Socket;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Time between two checks of a thread that waits.
const PAUSE: Duration = Duration::from_micros(50);

/// The threads of a source.
pub struct InStep {
    members: Vec<Member>,
    /// Bytes of each socket by which a thread may be ahead.
    turn_bytes: u64,
}

/// A thread.
#[derive(Default)]
struct Member {
    /// Its sockets, to look for data that it has not read.
    sockets: Vec<Socket>,
    /// Bytes that it read from each of its sockets, on average; at least those of the other threads when it
    /// began to read after a pause.
    read_bytes: AtomicU64,
    /// Whether it may have datagrams that are not in the window.
    is_reading: AtomicBool,
}

impl InStep {
    /// Keeps threads with these sockets in step within `bytes` in total.
    pub fn new(threads: &[Vec<Socket>], bytes: usize) -> io::Result<Self> {
        let sockets: usize = threads.iter().map(Vec::len).sum();
        let member = |own: &Vec<Socket>| {
            // A single thread waits for no other one.
            let watched = if threads.len() > 1 { own.as_slice() } else { &[] };
            let sockets = watched.iter().map(Socket::try_clone).collect::<io::Result<_>>()?;
            Ok(Member { sockets, ..Member::default() })
        };
        Ok(Self {
            members: threads.iter().map(member).collect::<io::Result<_>>()?,
            turn_bytes: (bytes / sockets.max(1)) as u64,
        })
    }

    /// Waits until no thread with data is behind thread `index` by more than a turn, or `is_over`.
    pub fn wait(&self, index: usize, is_over: impl Fn() -> bool) {
        let read_bytes = self.members[index].read_bytes.load(Ordering::SeqCst);
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != index);
        for (_, other) in others {
            while self.is_behind(other, read_bytes) && !is_over() {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Whether `member` has data and is behind `read_bytes` by more than a turn. A thread is only waited for
    /// by threads that have read more, so threads do not wait in a circle.
    fn is_behind(&self, member: &Member, read_bytes: u64) -> bool {
        let is_behind = || {
            member.read_bytes.load(Ordering::SeqCst).saturating_add(self.turn_bytes) <= read_bytes
        };
        // A thread that reads a socket notes this first: data that are not in the socket any more show in the
        // second check.
        is_behind()
            && (member.is_reading.load(Ordering::SeqCst)
                || receive::has_data(&member.sockets)
                || (member.is_reading.load(Ordering::SeqCst) && is_behind()))
    }

    /// Notes that thread `index` reads its sockets.
    pub fn reading(&self, index: usize) {
        let member = &self.members[index];
        if !member.is_reading.load(Ordering::SeqCst) {
            // The others did not wait for the thread, and it need not catch up.
            let most =
                self.members.iter().map(|other| other.read_bytes.load(Ordering::SeqCst)).max();
            member.read_bytes.store(most.unwrap_or(0), Ordering::SeqCst);
            member.is_reading.store(true, Ordering::SeqCst);
        }
    }

    /// Notes that thread `index` waits for data.
    pub fn waiting(&self, index: usize) {
        self.members[index].is_reading.store(false, Ordering::SeqCst);
    }

    /// Notes that the window has what thread `index` read from its `sockets`.
    pub fn read(&self, index: usize, sockets: usize, received: &Received) {
        let bytes = received.charge() / sockets.max(1) as u64;
        self.members[index].read_bytes.fetch_add(bytes, Ordering::SeqCst);
        if received.emptied {
            self.waiting(index);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::io::spead::receive::open_divided;
    use std::net::{SocketAddrV4, UdpSocket};
    use std::sync::mpsc::{Receiver, channel};

    const TURN: u64 = 100_000;

    fn received(bytes: u64, emptied: bool) -> Received {
        Received { datagrams: 1, bytes, kernel_drops: 0, emptied }
    }

    /// Two threads with one socket each, and the addresses of the sockets.
    fn two() -> (InStep, Vec<Vec<Socket>>, Vec<SocketAddrV4>) {
        let free = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let addresses = free.map(|s| s.local_addr().unwrap().to_string().parse().unwrap());
        let sockets = open_divided(2, &addresses, &[], 1 << 16).unwrap();
        let in_step = InStep::new(&sockets, 2 * TURN as usize).unwrap();
        (in_step, sockets, addresses.to_vec())
    }

    /// Lets thread 0 wait, and tells when it goes on.
    fn wait<'a>(scope: &'a std::thread::Scope<'a, '_>, in_step: &'a InStep) -> Receiver<()> {
        let (goes_on, told) = channel();
        scope.spawn(move || {
            in_step.wait(0, || false);
            goes_on.send(()).unwrap();
        });
        told
    }

    #[test]
    fn thread_without_data_is_not_waited_for() {
        let (in_step, _sockets, _) = two();
        in_step.reading(0);
        in_step.read(0, 1, &received(10 * TURN, false));
        in_step.wait(0, || panic!("the thread waits"));
    }

    #[test]
    fn thread_that_has_not_read_its_socket_is_waited_for() {
        let (in_step, _sockets, addresses) = two();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.send_to(b"data", addresses[1]).unwrap();
        in_step.reading(0);
        // Within a turn nobody waits.
        in_step.read(0, 1, &received(TURN - 1, false));
        in_step.wait(0, || panic!("the thread waits"));
        in_step.read(0, 1, &received(1, false));
        std::thread::scope(|scope| {
            let goes_on = wait(scope, &in_step);
            assert!(goes_on.recv_timeout(Duration::from_millis(50)).is_err());
            // The second thread has read, and need not catch up.
            in_step.reading(1);
            goes_on.recv_timeout(Duration::from_secs(20)).unwrap();
        });
    }

    #[test]
    fn thread_with_datagrams_that_are_not_in_the_window_is_waited_for() {
        let (in_step, _sockets, _) = two();
        in_step.reading(1);
        in_step.reading(0);
        in_step.read(0, 1, &received(TURN, false));
        std::thread::scope(|scope| {
            let goes_on = wait(scope, &in_step);
            assert!(goes_on.recv_timeout(Duration::from_millis(50)).is_err());
            in_step.read(1, 1, &received(1, true));
            goes_on.recv_timeout(Duration::from_secs(20)).unwrap();
        });
    }

    #[test]
    fn end_of_the_stream_ends_the_wait() {
        let (in_step, _sockets, _) = two();
        in_step.reading(1);
        in_step.reading(0);
        in_step.read(0, 1, &received(TURN, false));
        let checks = std::cell::Cell::new(0);
        in_step.wait(0, || {
            checks.set(checks.get() + 1);
            checks.get() == 4
        });
        assert_eq!(checks.get(), 4);
    }
}
