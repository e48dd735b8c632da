//! Counters and gauges of a source, by cause.

use super::layout::Foreign;
use crate::io::spead::packet::Malformed;
use fxgraph::{Counter, Counters, Gauge};

/// The counters.
pub struct Causes {
    pub heaps: Counter,
    pub missing: Counter,
    pub incomplete: Counter,
    pub frames_dropped: Counter,
    pub descriptors: Counter,
    pub jumps: Counter,
    pub time_jumps: Counter,
    pub resyncs: Counter,
    pub last_jump: Gauge,
    pub last_timestamp: Gauge,
    pub sync_time: Gauge,
    pub sync_time_uncertainty: Gauge,
    pub clock_difference: Gauge,
    pub unexpected: Counter,
    pub saturated: Counter,
    pub not_spead: Counter,
    pub flavour: Counter,
    pub truncated: Counter,
    pub length: Counter,
    pub offset: Counter,
    pub foreign: Counter,
    pub misaligned: Counter,
    pub late: Counter,
    pub future: Counter,
    pub duplicate: Counter,
    pub conflicting: Counter,
    pub replaced: Counter,
    pub pieces: Counter,
}

impl Causes {
    /// The counters of a source.
    #[must_use]
    pub fn new(counters: &Counters) -> Self {
        let count = |name, help| counters.count(name, help);
        Self {
            heaps: count("heaps_received", "complete heaps in frames sent to the flowgraph"),
            missing: counters.loss(
                "heaps_missing",
                "heaps of which no packet arrived; check the sender, the switch and packets_dropped_by_kernel",
            ),
            incomplete: counters.loss(
                "heaps_incomplete",
                "heaps of which some packets never arrived; the whole heap is flagged as missing",
            ),
            frames_dropped: counters.held_up(
                "frames_dropped",
                "frames dropped because the flowgraph did not keep up; find the slowest block",
            ),
            descriptors: count("heaps_descriptor", "packets with descriptors, which are ignored"),
            jumps: count(
                "window_jumps",
                "times the stream continued after a gap longer than the window; look for an interruption",
            ),
            time_jumps: count(
                "time_jumps",
                "gaps longer than max_gap_seconds, whose heaps are not counted as missing; see the events for their length",
            ),
            resyncs: count(
                "resyncs",
                "restarts of the stream with another sync time; look for a restart of its sender",
            ),
            last_jump: counters
                .state("last_time_jump_seconds", "length of the last gap longer than max_gap_seconds"),
            last_timestamp: counters.state(
                "last_received_timestamp_samples",
                "timestamp of the newest heap received, on the sender's timeline",
            ),
            sync_time: counters.state(
                "sync_time_seconds",
                "Unix time of the sender's timestamp 0, since the last restart of the sender",
            ),
            sync_time_uncertainty: counters.state(
                "sync_time_uncertainty_seconds",
                "largest error of sync_time_seconds, with delays of up to 0.25 s, since the last restart of the sender: 0 \
                 if the sync time that was given holds; set `sync_time_seconds` if times must be better",
            ),
            clock_difference: counters.measurement(
                "clock_difference_seconds",
                "time by which the stream is ahead of the clock of the host, if its sync time is known; negative if it is \
                 behind",
            ),
            unexpected: counters.loss(
                "heaps_unexpected",
                "heaps at the start with timestamps of another time than the stream; find their sender",
            ),
            saturated: count("samples_saturated", "samples that the digitiser reported as clipped"),
            not_spead: count("packets_not_spead", "datagrams that are not SPEAD; find their sender"),
            flavour: count(
                "packets_wrong_flavour",
                "SPEAD packets of a version or flavour other than SPEAD-64-48 version 4",
            ),
            truncated: count(
                "packets_truncated",
                "packets shorter than their lengths state; check the MTU",
            ),
            length: count(
                "packets_wrong_length",
                "packets whose lengths contradict each other or the heap size of this stream",
            ),
            offset: count("packets_outside_heap", "packets whose payload is outside their heap"),
            foreign: count(
                "packets_foreign",
                "packets of another stream, polarisation, antenna or channel range",
            ),
            misaligned: count(
                "packets_misaligned",
                "packets whose timestamp is not a multiple of the heap's length",
            ),
            late: counters.loss(
                "packets_too_late",
                "packets for frames that had already left the source; a larger window may help",
            ),
            future: counters.loss(
                "packets_too_far_ahead",
                "packets with a timestamp far ahead of the stream; look for a sender with another sync time",
            ),
            duplicate: count("packets_duplicate", "packets with data that had already arrived"),
            conflicting: count(
                "packets_conflicting",
                "packets rejected because another heap has their position; look for a second sender",
            ),
            replaced: count(
                "heaps_replaced",
                "heaps of other senders, replaced by the heap of a sender of the stream; find the other sender",
            ),
            pieces: counters.loss(
                "packets_too_fragmented",
                "packets dropped because their heap was in too many separate pieces",
            ),
        }
    }

    /// Returns the counter of packets that are malformed in this way.
    pub fn malformed(&self, why: Malformed) -> &Counter {
        match why {
            Malformed::NotSpead => &self.not_spead,
            Malformed::Flavour => &self.flavour,
            Malformed::Truncated => &self.truncated,
            Malformed::Length => &self.length,
            Malformed::Offset => &self.offset,
        }
    }

    /// Returns the counter of well-formed packets that are rejected for this reason.
    pub fn foreign(&self, why: Foreign) -> &Counter {
        match why {
            Foreign::Stream => &self.foreign,
            Foreign::HeapLength => &self.length,
            Foreign::Misaligned => &self.misaligned,
        }
    }
}
