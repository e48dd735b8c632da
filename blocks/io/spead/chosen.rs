//! Threads and buffers that streams get where the flowgraph does not give them.

use fxgraph::kind::cores;

/// Time for which a machine may delay a thread, a GPU or a sender, in seconds: buffers hold the stream for this long.
pub const HELD_SECONDS: f64 = 0.125;
/// Smallest and largest receive buffer of a socket that is chosen, in bytes.
pub const RECEIVE_BUFFER_BYTES: (usize, usize) = (32 << 20, 512 << 20);
/// Bytes per second that are given to one receiving thread: two thirds of those at which it is busy all the time, with
/// packets that arrive singly.
const RECEIVED_PER_THREAD: f64 = 1.5e9;
/// Bytes per second that are given to one sending thread: two thirds of those at which it is busy all the time.
const SENT_PER_THREAD: f64 = 2.5e9;

/// Work of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Receives packets.
    Receive,
    /// Sends packets.
    Send,
}

/// Number of threads of a stream, with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Threads {
    /// Number of threads.
    pub count: usize,
    /// Reason for the number.
    pub why: String,
}

impl Threads {
    /// Chooses the threads of a stream of `bytes_per_second` out of `possible` numbers, ascending from 1: the fewest that
    /// are enough for the rate, up to half of the cores.
    #[must_use]
    pub fn choose(
        work: Work,
        bytes_per_second: f64,
        possible: impl Iterator<Item = usize>,
    ) -> Self {
        Self::of_cores(work, bytes_per_second, possible, cores())
    }

    fn of_cores(
        work: Work,
        bytes_per_second: f64,
        possible: impl Iterator<Item = usize>,
        cores: usize,
    ) -> Self {
        let each = match work {
            Work::Receive => RECEIVED_PER_THREAD,
            Work::Send => SENT_PER_THREAD,
        };
        let wanted = ((bytes_per_second / each).ceil() as usize).max(1);
        let (mut count, mut limit) =
            (1, "the stream cannot be divided among more threads".to_owned());
        for next in possible {
            if count >= wanted {
                break;
            }
            if next > (cores / 2).max(1) {
                limit = format!("half of {cores} cores at most");
                break;
            }
            count = next;
        }
        let rate = gigabytes(bytes_per_second);
        let why = if count >= wanted {
            format!("{rate}, up to {} for a thread", gigabytes(each))
        } else {
            format!("{rate}; {limit}")
        };
        Self { count, why }
    }
}

/// Receive buffer of each of `sockets` sockets for a stream of `bytes_per_second`, in bytes, with the reason.
#[must_use]
pub fn receive_buffer(bytes_per_second: f64, sockets: usize) -> (usize, String) {
    let sockets = sockets.max(1);
    let held = (bytes_per_second * HELD_SECONDS / sockets as f64).ceil() as usize;
    let (least, most) = RECEIVE_BUFFER_BYTES;
    let bytes = held.min(most).next_multiple_of(1 << 20).max(least);
    let why = match bytes {
        bytes if bytes == least => "the smallest that is chosen".to_owned(),
        bytes if bytes == most => "the largest".to_owned(),
        _ if sockets == 1 => format!("{HELD_SECONDS} s of {}", gigabytes(bytes_per_second)),
        _ => format!("{HELD_SECONDS} s of {} in {sockets} sockets", gigabytes(bytes_per_second)),
    };
    (bytes, why)
}

/// `2.14 GB/s`
#[must_use]
pub fn gigabytes(bytes_per_second: f64) -> String {
    let digits = if bytes_per_second < 1e8 { 4 } else { 2 };
    format!("{:.digits$} GB/s", bytes_per_second / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(work: Work, rate: f64, most: usize, cores: usize) -> usize {
        Threads::of_cores(work, rate, 1..=most, cores).count
    }

    #[test]
    fn threads_follow_the_rate_up_to_the_cores_and_to_what_can_be_divided() {
        use Work::{Receive, Send};
        // A polarisation of 1712 MS/s, to one group or to 8, and its half of the spectra of one antenna.
        let [digitiser, spectra] = [2.14e9, 3.424e9];
        assert_eq!(count(Receive, digitiser, 1, 16), 1);
        assert_eq!(count(Receive, digitiser, 8, 16), 2);
        assert_eq!(count(Receive, digitiser, 8, 2), 1);
        assert_eq!(count(Send, digitiser, 1024, 16), 1);
        assert_eq!(count(Send, spectra, 4, 16), 2);
        assert_eq!(count(Receive, 12.5e9, 64, 32), 9);
        // Threads of a stream of four groups: 1, 2 or 4.
        let of_groups = Threads::of_cores(Send, 5.2e9, [1, 2, 4].into_iter(), 16);
        assert_eq!(
            (of_groups.count, of_groups.why.as_str()),
            (4, "5.20 GB/s, up to 2.50 GB/s for a thread")
        );
        let few_cores = Threads::of_cores(Send, 5.2e9, [1, 2, 4].into_iter(), 6);
        assert_eq!(
            (few_cores.count, few_cores.why.as_str()),
            (2, "5.20 GB/s; half of 6 cores at most")
        );
        for (rate, most, cores) in [(0.0, 0, 0), (f64::NAN, 1, 1), (1e300, 16, 1024)] {
            assert!((1..=16).contains(&count(Receive, rate, most, cores)), "{rate}");
        }
    }

    #[test]
    fn receive_buffers_hold_the_stream_for_an_eighth_of_a_second() {
        assert_eq!(receive_buffer(2.14e9, 1).0, 256 << 20);
        // Eight groups share the stream.
        assert_eq!(receive_buffer(2.14e9, 8).0, 32 << 20);
        assert_eq!(receive_buffer(1e6, 1).0, 32 << 20);
        assert_eq!(receive_buffer(1e12, 1).0, 512 << 20);
        assert_eq!(receive_buffer(f64::NAN, 0).0, 32 << 20);
    }
}
