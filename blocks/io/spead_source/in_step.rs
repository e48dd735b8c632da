//! Keeps the receiving threads of a source in step.
//!
//! A thread that reads its sockets ahead of the others moves the window over heaps that still wait in the
//! other sockets. So a thread waits for another one that has data and is behind in time by more than a
//! quarter of the window, or by more than half of it when one of its own socket buffers is half full: threads that
//! have data to make up for wait less. One read advances a thread by at most a quarter. It does not wait
//!
//! - for a thread without data, or with data of other streams only;
//! - for a thread that is behind by more than the window: its heaps are late already;
//! - when one of its own socket buffers is nearly full: waiting must not lose packets. Under overload all of them are
//!   more than half full, and threads that are not in step would drop parts of many frames.

use crate::io::spead::port::{Port, View};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Time between two checks of a thread that waits.
const PAUSE: Duration = Duration::from_micros(50);
/// Used fraction of a socket buffer from which a thread does not wait: as for a frame.
const FULL: f32 = 0.9;
/// Used fraction of a socket buffer from which a thread waits less.
const HALF: f32 = 0.5;
/// Position of a thread that has read nothing yet: behind all others.
const START: u64 = 0;
/// Position of a thread without data of the stream: not behind any other.
const NOWHERE: u64 = u64::MAX;

/// The threads of a source.
pub struct InStep {
    members: Vec<Member>,
    /// Length of the window in samples.
    window: u64,
}

/// A thread.
#[derive(Default)]
struct Member {
    /// Its sockets, to look for data that it has not read.
    sockets: View,
    /// Timestamp of the newest heap that it last gave to the window, plus 1, or [`START`] or [`NOWHERE`].
    position: AtomicU64,
    /// Whether it may have datagrams that are not in the window.
    is_reading: AtomicBool,
}

impl InStep {
    /// Keeps threads with these sockets in step for a window of `window` samples.
    pub fn new(threads: &[Port], window: u64) -> io::Result<Self> {
        let member = |own: &Port| {
            // A single thread waits for no other one.
            let sockets = if threads.len() > 1 { own.watch()? } else { View::default() };
            Ok(Member { sockets, ..Member::default() })
        };
        Ok(Self { members: threads.iter().map(member).collect::<io::Result<_>>()?, window })
    }

    /// Waits until thread `index` may give its datagrams to the window, or `is_over`.
    pub fn wait(&self, index: usize, is_over: impl Fn() -> bool) {
        let own = &self.members[index];
        let position = own.position.load(Ordering::SeqCst);
        if matches!(position, START | NOWHERE) {
            return;
        }
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != index);
        for (_, other) in others {
            while self.is_behind(other, position, self.window / 4) && !is_over() {
                let fill = own.sockets.fill();
                let waits_less = fill >= HALF && !self.is_behind(other, position, self.window / 2);
                if fill >= FULL || waits_less {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Whether `member` has data and is behind `position` by more than `allowed` samples. A thread is only waited for
    /// by threads that are ahead of it, so threads do not wait in a circle.
    fn is_behind(&self, member: &Member, position: u64, allowed: u64) -> bool {
        let is_behind = || match member.position.load(Ordering::SeqCst) {
            START => true,
            other => (allowed + 1..=self.window).contains(&position.saturating_sub(other)),
        };
        // A thread that reads a socket notes this first: data that are not in the socket any more show in the
        // second check.
        is_behind()
            && (member.is_reading.load(Ordering::SeqCst)
                || member.sockets.has_data()
                || (member.is_reading.load(Ordering::SeqCst) && is_behind()))
    }

    /// Notes that thread `index` reads its sockets.
    pub fn reading(&self, index: usize) {
        self.members[index].is_reading.store(true, Ordering::SeqCst);
    }

    /// Notes that thread `index` waits for data.
    pub fn waiting(&self, index: usize) {
        self.members[index].is_reading.store(false, Ordering::SeqCst);
    }

    /// Notes that the window has the datagrams of a system call of thread `index`. `newest`: timestamp of
    /// the newest heap to which they added data.
    pub fn gave(&self, index: usize, newest: Option<u64>) {
        let position = newest.map_or(NOWHERE, |timestamp| timestamp.saturating_add(1));
        self.members[index].position.store(position, Ordering::SeqCst);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::common::net::sockets::{Listening, open_divided};
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::mpsc::{Receiver, channel};

    const WINDOW: u64 = 4000;
    const NEWEST: u64 = 100_000;

    /// Two threads with one socket each, and the addresses of the sockets. Thread 0 has read up to `NEWEST`.
    fn two() -> (InStep, Vec<Port>, Vec<SocketAddr>) {
        let free = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let addresses = free.map(|s| s.local_addr().unwrap().to_string().parse().unwrap());
        let sockets = open_divided(2, &addresses, &Listening::on(&[], 1 << 16)).unwrap();
        let sockets: Vec<Port> = sockets.into_iter().map(Port::Sockets).collect();
        let in_step = InStep::new(&sockets, WINDOW).unwrap();
        in_step.reading(0);
        in_step.gave(0, Some(NEWEST));
        (in_step, sockets, addresses.to_vec())
    }

    fn send(to: SocketAddr, len: usize) {
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&vec![0; len], to).unwrap();
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

    fn goes_on_at_once(in_step: &InStep) {
        let checks = std::cell::Cell::new(0);
        in_step.wait(0, || checks.replace(checks.get() + 1) > 0);
        assert!(checks.get() < 2, "the thread waits");
    }

    /// Asserts that thread 0 waits until `then` has run.
    fn waits_until(in_step: &InStep, then: impl FnOnce()) {
        std::thread::scope(|scope| {
            let goes_on = wait(scope, in_step);
            assert!(goes_on.recv_timeout(Duration::from_millis(50)).is_err());
            then();
            goes_on.recv_timeout(Duration::from_secs(20)).unwrap();
        });
    }

    #[test]
    fn thread_without_data_is_not_waited_for() {
        let (in_step, _sockets, _) = two();
        goes_on_at_once(&in_step);
        in_step.reading(1);
        in_step.gave(1, Some(NEWEST - WINDOW / 2));
        in_step.waiting(1);
        goes_on_at_once(&in_step);
    }

    #[test]
    fn thread_that_has_not_read_its_socket_is_waited_for() {
        let (in_step, _sockets, addresses) = two();
        send(addresses[1], 4);
        waits_until(&in_step, || {
            in_step.reading(1);
            std::thread::sleep(Duration::from_millis(20));
            in_step.gave(1, Some(NEWEST));
        });
    }

    #[test]
    fn thread_behind_by_more_than_a_quarter_of_the_window_is_waited_for() {
        let (in_step, _sockets, _) = two();
        in_step.reading(1);
        in_step.gave(1, Some(NEWEST - WINDOW / 4));
        goes_on_at_once(&in_step);
        in_step.gave(1, Some(NEWEST - WINDOW / 4 - 1));
        waits_until(&in_step, || in_step.gave(1, Some(NEWEST - WINDOW / 4)));
        in_step.gave(1, Some(NEWEST - WINDOW));
        waits_until(&in_step, || in_step.waiting(1));
        // Its heaps are late already.
        in_step.reading(1);
        in_step.gave(1, Some(NEWEST - WINDOW - 1));
        goes_on_at_once(&in_step);
    }

    #[test]
    fn thread_with_data_of_other_streams_is_not_waited_for() {
        let (in_step, _sockets, addresses) = two();
        send(addresses[1], 4);
        in_step.reading(1);
        waits_until(&in_step, || in_step.gave(1, None));
        goes_on_at_once(&in_step);
    }

    #[test]
    fn thread_with_a_nearly_full_socket_buffer_does_not_wait() {
        let (in_step, _sockets, addresses) = two();
        in_step.reading(1);
        waits_until(&in_step, || {
            // The kernel may give less or more memory than asked for, and drops what has no room.
            (0..200).for_each(|_| send(addresses[0], 4096));
        });
    }

    #[test]
    fn thread_with_a_half_full_socket_buffer_waits_less() {
        let (in_step, sockets, addresses) = two();
        in_step.reading(1);
        let own = sockets[0].watch().unwrap();
        while own.fill() < HALF {
            send(addresses[0], 1024);
        }
        assert!(own.fill() < FULL);
        in_step.gave(1, Some(NEWEST - WINDOW / 2));
        goes_on_at_once(&in_step);
        in_step.gave(1, Some(NEWEST - WINDOW / 2 - 1));
        waits_until(&in_step, || in_step.gave(1, Some(NEWEST - WINDOW / 2)));
    }

    #[test]
    fn end_of_the_stream_ends_the_wait() {
        let (in_step, _sockets, _) = two();
        in_step.reading(1);
        let checks = std::cell::Cell::new(0);
        in_step.wait(0, || {
            checks.set(checks.get() + 1);
            checks.get() == 4
        });
        assert_eq!(checks.get(), 4);
    }
}
