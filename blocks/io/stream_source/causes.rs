//! Counters of a source, by cause.

use crate::io::spead::packet::Malformed;
use fxgraph::{Counter, Counters, Gauge};

/// The counters.
pub struct Causes {
    pub heaps: Counter,
    pub incomplete: Counter,
    pub missing: Counter,
    pub frames_dropped: Counter,
    pub descriptors: Counter,
    pub unexpected: Counter,
    pub back: Counter,
    pub invalid: Counter,
    pub annotations_unknown: Counter,
    pub annotations_malformed: Counter,
    pub time_jumps: Counter,
    pub resyncs: Counter,
    pub stops: Counter,
    pub stops_rejected: Counter,
    pub not_spead: Counter,
    pub flavour: Counter,
    pub truncated: Counter,
    pub length: Counter,
    pub outside: Counter,
    pub foreign: Counter,
    pub other_type: Counter,
    pub other_run: Counter,
    pub late: Counter,
    pub duplicate: Counter,
    pub pieces: Counter,
    pub last_timestamp: Gauge,
}

impl Causes {
    /// The counters of a source.
    #[must_use]
    pub fn new(counters: &Counters) -> Self {
        let count = |name, help| counters.count(name, help);
        let loss = |name, help| counters.loss(name, help);
        Self {
            heaps: count("heaps_received", "complete heaps in frames sent to the flowgraph"),
            incomplete: loss(
                "heaps_incomplete",
                "heaps of which some packets never arrived; the units that they touch are flagged as missing",
            ),
            missing: loss(
                "heaps_missing",
                "heaps of which no packet arrived; check the sender, the switch and packets_dropped_by_kernel",
            ),
            frames_dropped: counters.held_up(
                "frames_dropped",
                "frames dropped because the flowgraph did not keep up; find the slowest block",
            ),
            descriptors: count("heaps_descriptor", "heaps with descriptors and the type"),
            unexpected: loss(
                "heaps_unexpected",
                "heaps dropped because they proved not to belong to the stream, or lack the packet with their timestamp; find their sender",
            ),
            back: loss(
                "heaps_not_later",
                "heaps dropped because their timestamp is not after that of the frame before; a sender that restarted repeats data",
            ),
            invalid: loss(
                "heaps_wrong_validity",
                "heaps whose validity counts have another number than the type says; the whole frame is flagged as missing",
            ),
            annotations_unknown: count(
                "annotations_unknown",
                "tables dropped because their name is not accepted",
            ),
            annotations_malformed: count(
                "annotations_malformed",
                "heaps whose annotations are not readable; the frame has none",
            ),
            time_jumps: count(
                "time_jumps",
                "gaps longer than max_gap_seconds, which are not filled; see the events for their length",
            ),
            resyncs: count("resyncs", "other runs of the sender; look for a restart of it"),
            stops: count("heaps_stop", "stop heaps of the sender"),
            stops_rejected: count(
                "heaps_stop_refused",
                "stop heaps ignored because their address does not send the stream",
            ),
            not_spead: count(
                "packets_not_spead",
                "datagrams that are not SPEAD; find their sender",
            ),
            flavour: count(
                "packets_wrong_flavour",
                "packets of SPEAD that are not SPEAD-64-48 version 4; find their sender",
            ),
            truncated: count("packets_truncated", "packets shorter than their lengths say"),
            length: count(
                "packets_wrong_length",
                "packets with lengths that contradict each other",
            ),
            outside: count("packets_outside_heap", "packets with a payload outside their heap"),
            foreign: count(
                "packets_foreign",
                "packets of heaps whose size or items are not those of the type; find their sender",
            ),
            other_type: loss(
                "packets_of_other_type",
                "packets dropped because the type of their stream is not `type`; see the warning for the difference",
            ),
            other_run: loss(
                "packets_of_other_run",
                "packets dropped because they come from an earlier run of the sender, or from a second sender; stop one of them",
            ),
            late: loss(
                "packets_too_late",
                "packets dropped because their frame was already sent to the flowgraph; raise window",
            ),
            duplicate: count("packets_duplicate", "packets whose bytes had all arrived before"),
            pieces: loss(
                "packets_too_fragmented",
                "packets dropped because their heap is already in too many separate pieces",
            ),
            last_timestamp: counters.state(
                "last_received_timestamp_samples",
                "timestamp, in ADC samples, of the newest frame",
            ),
        }
    }

    /// Counts a malformed packet.
    pub fn malformed(&self, why: Malformed) {
        match why {
            Malformed::NotSpead => &self.not_spead,
            Malformed::Flavour => &self.flavour,
            Malformed::Truncated => &self.truncated,
            Malformed::Length => &self.length,
            Malformed::Offset => &self.outside,
        }
        .add(1);
    }
}
