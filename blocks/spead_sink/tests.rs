#![allow(clippy::unwrap_used)]

use super::*;
use fxgraph::{Axis, Clock, ValidityType};
use serde_json::json;

fn f_engine_input(channels: usize) -> PortType {
    PortType {
        dtype: Dtype::Ci8,
        axes: [("heap", 2), ("channel", channels), ("spectrum", 16), ("pol", 2)]
            .map(|(name, len)| Axis::new(name, len))
            .to_vec(),
        clock: Clock {
            adc_sample_rate_hz: 1e6,
            sync_time_seconds: 0.0,
            samples_per_frame: 64 * channels as u64,
        },
        band: None,
        validity: ValidityType::flags(vec![Axis::new("heap", 2)]),
    }
}

fn refusals(parameters: &serde_json::Value, input: &PortType) -> Vec<Refusal> {
    let parameters: SpeadSink = serde_json::from_value(parameters.clone()).unwrap();
    Kind::ports(&parameters, std::slice::from_ref(input)).unwrap_err()
}

#[test]
fn channels_that_cannot_be_cut_are_refused_with_the_nearest_number_of_groups() {
    let parameters = json!({"stream": "f_engine", "destinations": ["239.1.1.0+6:7148"]});
    let all = refusals(&parameters, &f_engine_input(64));
    assert_eq!(all[0].code, codes::INPUT_AXIS);
    assert_eq!(all[0].message, "64 channels cannot be cut into 7 equal blocks");
    assert_eq!(all[0].help.as_deref(), Some("4 is the nearest number of groups"));
}

#[test]
fn another_stream_s_frames_are_refused() {
    let parameters = json!({"stream": "x_engine", "destinations": ["239.1.1.0:7148"]});
    let codes: Vec<_> = refusals(&parameters, &f_engine_input(64)).iter().map(|r| r.code).collect();
    assert_eq!(codes, [codes::INPUT_DTYPE, codes::INPUT_AXIS]);
}

#[test]
fn bad_parameters_are_all_refused_at_once() {
    let parameters = json!({
        "stream": "f_engine", "destinations": ["nowhere"], "ttl": 256, "packet_payload_bytes": 0,
        "rate": -1.0, "descriptor_seconds": 0.0, "feng_id": 4, "n_antennas": 4,
    });
    let all = refusals(&parameters, &f_engine_input(64));
    let at: Vec<_> = all.iter().map(|r| r.at.clone()).collect();
    let expected =
        ["destinations", "ttl", "packet_payload_bytes", "rate", "descriptor_seconds", "feng_id"];
    assert_eq!(at, expected.map(At::Parameter));
}
