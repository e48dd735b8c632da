//! Events as the terminal shows them.

use fxgraph_api::events::EventInfo;

/// Events that report a fault, missing or dropped data, or a failed change.
const BAD: [&str; 17] = [
    "aborted",
    "fault",
    "skipped",
    "restarted",
    "rolled_back",
    "not_swapped",
    "not_started",
    "shadow_differs",
    "data_lost",
    "stalled",
    "fell_behind",
    "resynchronised",
    "time_jumped",
    "not_saved",
    "rejected",
    "not_updated",
    "kernels_rejected",
];

/// Returns the UTC time of day of `event` as `HH:MM:SS.mmm`.
pub fn time_of_day(event: &EventInfo) -> String {
    let milliseconds = (event.unix_time_seconds * 1e3) as u64;
    let seconds = milliseconds / 1000;
    format!(
        "{:02}:{:02}:{:02}.{:03}",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60,
        milliseconds % 1000
    )
}

/// Whether `event` reports a fault, missing or dropped data, or a failed change.
pub fn is_bad(event: &EventInfo) -> bool {
    BAD.contains(&event.kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_day_has_milliseconds() {
        let event = |unix_time_seconds| EventInfo {
            sequence: 1,
            part_sequence: None,
            unix_time_seconds,
            block: None,
            kind: "started".to_owned(),
            text: String::new(),
        };
        assert_eq!(time_of_day(&event(0.0)), "00:00:00.000");
        assert_eq!(time_of_day(&event(1_700_000_000.25)), "22:13:20.250");
    }
}
