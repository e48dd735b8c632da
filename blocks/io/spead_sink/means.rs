//! Threads and pace of a sink, given or chosen.

use super::heaps::{Heaps, Stream};
use super::{SpeadSink, threads};
use crate::common::net::interface::Interface;
use crate::io::spead::chosen::{Threads, Work, gigabytes};
use fxgraph::kind::Chosen;

/// Rate at which a sink makes up for a delay, as a multiple of the stream's rate: below the 1.5 times for which receivers
/// have threads ([`Threads::choose`]).
const CATCH_UP: f64 = 1.4;
/// Lowest rate that is chosen, and the share of the rate of a link that a stream may take to get it.
const LEAST_CATCH_UP: f64 = 1.05;
const SHARE_OF_LINK: f64 = 0.95;

/// Means of a sink to send its stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Means {
    /// Sending threads.
    pub threads: usize,
    /// Rate at which the sink makes up for a delay, as a multiple of the stream's rate.
    pub catch_up: f64,
    /// Those of them that the flowgraph does not give.
    pub chosen: Vec<Chosen>,
}

impl Means {
    /// Means of a sink for a stream of `bytes_per_second`: as given, and chosen otherwise.
    pub fn of(parameters: &SpeadSink, heaps: &Heaps, bytes_per_second: f64) -> Self {
        let mut chosen = Vec::new();
        let threads = parameters.threads.unwrap_or_else(|| {
            let Threads { count, why } =
                Threads::choose(Work::Send, bytes_per_second, in_order(heaps));
            chosen.push(Chosen::new("threads", count, why));
            count
        });
        let catch_up = parameters.catch_up.unwrap_or_else(|| {
            let interface =
                parameters.interface.as_deref().and_then(|name| Interface::find(name).ok());
            let link = interface.and_then(|interface| interface.bytes_per_second());
            let (rate, why) = catch_up(bytes_per_second, link, parameters.rate);
            // Without a pace there is no delay.
            if parameters.rate > 0.0 {
                chosen.push(Chosen::new("catch_up", rate, why));
            }
            rate
        });
        Self { threads, catch_up, chosen }
    }
}

/// Numbers of threads with which every destination gets its heaps in order.
fn in_order(heaps: &Heaps) -> impl Iterator<Item = usize> {
    let (groups, per_frame) = (heaps.groups, heaps.per_frame());
    let is_digitiser = matches!(heaps.stream, Stream::Digitiser { .. });
    let divides = move |n: &usize| {
        groups.is_multiple_of(*n) && (!is_digitiser || per_frame.is_multiple_of(*n))
    };
    (1..=threads::MAX_THREADS.min(per_frame.max(1))).filter(divides)
}

/// Rate at which a sink with the parameter `rate` makes up for a delay, over a link of `link` bytes per second, with the
/// reason.
fn catch_up(bytes_per_second: f64, link: Option<f64>, rate: f64) -> (f64, String) {
    let free = link.map(|link| SHARE_OF_LINK * link / bytes_per_second.max(1.0));
    let (chosen, why) = match free.zip(link).filter(|(free, _)| *free < CATCH_UP) {
        None => (CATCH_UP, "receivers have threads for 1.5 times the stream".to_owned()),
        Some((free, link)) => {
            let rate = ((free * 100.0).floor() / 100.0).max(LEAST_CATCH_UP);
            (rate, format!("{} on a link of {}", gigabytes(bytes_per_second), gigabytes(link)))
        }
    };
    if chosen < rate { (rate, "`rate`".to_owned()) } else { (chosen, why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rate in per cent of the stream's.
    fn percent(bytes_per_second: f64, link: Option<f64>, rate: f64) -> u32 {
        (catch_up(bytes_per_second, link, rate).0 * 100.0).round() as u32
    }

    #[test]
    fn catch_up_leaves_the_link_some_room() {
        assert_eq!(percent(3.424e9, None, 1.1), 140);
        // 100 Gbit/s.
        assert_eq!(percent(3.424e9, Some(12.5e9), 1.1), 140);
        // 40 Gbit/s.
        assert_eq!(percent(3.424e9, Some(5e9), 1.1), 138);
        assert_eq!(catch_up(3.424e9, Some(5e9), 1.1).1, "3.42 GB/s on a link of 5.00 GB/s");
        assert_eq!(percent(3.424e9, Some(1.25e9), 1.0), 105);
        assert_eq!(percent(0.0, Some(0.0), 1.0), 105);
    }

    #[test]
    fn catch_up_is_at_least_the_rate() {
        assert_eq!(percent(1.15e9, Some(1.25e9), 1.1), 110);
        assert_eq!(catch_up(1e6, None, 3.0), (3.0, "`rate`".to_owned()));
    }
}
