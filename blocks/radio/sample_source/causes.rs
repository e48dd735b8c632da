//! Counters of a source, by cause.

use fxgraph::{Counter, Counters, Gauge};

/// The counters.
#[derive(Clone)]
pub struct Causes {
    pub samples: Counter,
    pub bytes: Counter,
    pub missing: Counter,
    pub frames_dropped: Counter,
    pub late: Counter,
    pub duplicate: Counter,
    pub fragmented: Counter,
    pub cut: Counter,
    pub connections: Counter,
    pub failed: Counter,
    pub restarts: Counter,
    pub unsettled: Counter,
    pub sync_time: Gauge,
    pub uncertainty: Gauge,
}

impl Causes {
    /// The counters of a source.
    pub fn new(counters: &Counters) -> Self {
        let count = |name, help| counters.count(name, help);
        let loss = |name, help| counters.loss(name, help);
        Self {
            samples: count("samples_received", "samples in frames sent to the flowgraph"),
            bytes: count("bytes_received", "bytes received"),
            missing: loss(
                "samples_missing",
                "samples that did not arrive, by the numbers of datagrams or by the clock; check the sender and the network",
            ),
            frames_dropped: counters.held_up(
                "frames_dropped",
                "frames dropped because the flowgraph did not keep up; find the slowest block",
            ),
            late: loss(
                "samples_too_late",
                "samples dropped because their frame was already sent to the flowgraph; check the network",
            ),
            duplicate: count("samples_duplicate", "samples that had arrived before"),
            fragmented: loss(
                "samples_too_fragmented",
                "samples dropped because their frame is already in too many separate pieces",
            ),
            cut: count(
                "bytes_cut",
                "bytes of samples that a connection, datagram or file did not complete; check `type`",
            ),
            connections: count("connections", "connections to senders, or senders of a pipe"),
            failed: count(
                "connections_failed",
                "attempts to connect that failed; check the sender and its address",
            ),
            restarts: count("resyncs", "times that the stream began again; see the events"),
            unsettled: loss(
                "samples_unsettled",
                "samples flagged because the receiver was being tuned; see settle_seconds",
            ),
            sync_time: counters
                .state("sync_time_seconds", "time of the first sample of the time base, Unix time"),
            uncertainty: counters.state(
                "sync_time_uncertainty_seconds",
                "largest error of the time of the first sample, 0 of a time that was given",
            ),
        }
    }
}
