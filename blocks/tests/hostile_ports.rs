//! Whatever stands before a block: it refuses the port, or works on it without a panic.

use crate::f_engine::{
    ddc::Ddc, f_engine::FEngine, fft::Fft, pfb::Pfb, pol_aligner::PolAligner, postproc::Postproc,
};
use crate::frb::frb_beamformer::FrbBeamformer;
use crate::gnss::{
    gnss_acquisition::{self, GnssAcquisition},
    gnss_check::GnssCheck,
    gnss_correlator::GnssCorrelator,
    gnss_tracker::{self, GnssTracker},
};
use crate::io::{file_sink::FileSink, image_sink::ImageSink, spead_sink::SpeadSink};
use crate::util::{convert::Convert, transpose::Transpose};
use crate::x_engine::{
    antenna_stack::AntennaStack, beamformer::Beamformer, correlator::Correlator,
    fringe_check::FringeCheck,
};
use fxgraph::edge::Harness;
use fxgraph::{Axis, Band, Clock, Configured, Dtype, Env, KindSpec, Next, PortType, ValidityType};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// Streams that the chain has, to be changed here and there.
const STREAMS: &[(Dtype, &[&str])] = &[
    (Dtype::Packed(10), &["sample"]),
    (Dtype::I16, &["sample"]),
    (Dtype::Cf32, &["sample"]),
    (Dtype::Cf32, &["pol", "spectrum", "sample"]),
    (Dtype::F32, &["pol", "spectrum", "sample"]),
    (Dtype::Cf32, &["pol", "spectrum", "unzip", "sample"]),
    (Dtype::Cf32, &["pol", "spectrum", "channel"]),
    (Dtype::Cf32, &["pol", "spectrum", "unzip", "channel"]),
    (Dtype::Ci8, &["heap", "channel", "spectrum", "pol"]),
    (Dtype::Ci4, &["heap", "channel", "pol", "spectrum"]),
    (Dtype::Ci8, &["heap", "antenna", "channel", "spectrum", "pol"]),
    (Dtype::Ci4, &["heap", "antenna", "channel", "pol", "spectrum"]),
    (Dtype::Ci32, &["channel", "baseline", "product"]),
    (Dtype::Ci8, &["heap", "beam", "channel", "spectrum"]),
    (Dtype::Cf16, &["heap", "antenna", "channel", "pol", "spectrum"]),
    (Dtype::Cf64, &["pol", "spectrum", "channel"]),
    (Dtype::Ci4, &["spectrum", "channel", "pol", "east_west", "north_south"]),
    (Dtype::Cf16, &["spectrum", "channel", "pol", "east_west", "north_south"]),
    (Dtype::Ci16, &["sample"]),
    (Dtype::Ci8, &["antenna", "sample"]),
    (Dtype::F64, &["satellite", "value"]),
];

/// A port, each length and each validity axis drawn anew.
fn port() -> impl Strategy<Value = PortType> {
    let lengths = proptest::collection::vec(select(vec![1, 2, 3, 4, 8, 16, 64]), 5);
    let validity = (0..4_usize, proptest::collection::vec(1..3_usize, 2), 1..6_u32);
    let step = select(vec![1, 2, 8, 64, 128, 256, 1024, 4096, 1 << 62, u64::MAX]);
    let rate = select(vec![1e-300, 1e3, 1.712e9, 1e300]);
    (select(STREAMS), lengths, validity, step, rate, 0..4_usize, 0..9_usize)
        .prop_map(
            |(
                (dtype, names),
                mut lengths,
                (units, odd, full),
                samples_per_frame,
                rate,
                band,
                fit,
            )| {
                // Mostly the lengths that are always the same, and a frame without gaps.
                let mut samples_per_frame = samples_per_frame;
                for (name, len) in names.iter().zip(&mut lengths) {
                    match *name {
                        "pol" if fit > 1 => *len = 2,
                        "product" if fit > 1 => *len = 4,
                        "baseline" if fit > 1 => *len = 3,
                        // Two periods of a satellite's code.
                        "sample" if fit > 1 && dtype == Dtype::Ci16 => *len = 8192,
                        "value" if fit > 1 && fit % 2 == 0 => *len = gnss_acquisition::VALUES,
                        "value" if fit > 1 => *len = gnss_tracker::VALUES,
                        _ => {}
                    }
                }
                let axes: Vec<Axis> =
                    names.iter().zip(&lengths).map(|(name, len)| Axis::new(name, *len)).collect();
                let len =
                    |name| axes.iter().find(|axis| axis.name == name).map_or(1, |axis| axis.len);
                if fit > 2 {
                    let times = len("heap") * len("spectrum");
                    let series = if dtype == Dtype::Cf32 { 2 } else { 1 };
                    let of_channels = 2 * len("channel") * len("unzip");
                    let step = match names {
                        ["sample"] if dtype == Dtype::Cf32 => 2 * len("sample"),
                        ["sample"] | ["antenna", "sample"] => len("sample"),
                        ["spectrum", ..] => len("spectrum") * of_channels,
                        ["pol", "spectrum", "sample" | "unzip", ..] => {
                            series * times * len("sample") * len("unzip")
                        }
                        _ => times * of_channels,
                    };
                    samples_per_frame = step as u64;
                }
                let fitting = match *names {
                    ["pol", "spectrum", ..] | ["heap", "antenna", ..] => {
                        vec![axes[0].clone(), axes[1].clone()]
                    }
                    ["heap", ..] | ["spectrum", "channel", ..] => vec![axes[0].clone()],
                    ["channel", ..] => vec![axes[1].clone()],
                    _ => vec![Axis::new("heap", len("sample").div_ceil(8))],
                };
                let validity = match units {
                    0 => vec![],
                    1 => odd.iter().map(|n| Axis::new("heap", *n)).collect(),
                    _ => fitting,
                };
                let channels = len("channel").max(1);
                // Mostly none or all of the band, or the last of as many channels as can be counted.
                let band = match band {
                    0 | 1 => None,
                    2 => Some((channels, 0)),
                    _ => Some((usize::MAX, usize::MAX - channels)),
                };
                let band = band.map(|(channels, first_channel)| Band {
                    channels,
                    first_channel,
                    centre_hz: 1e9,
                    bandwidth_hz: 1e9,
                });
                // A satellite's code is wider than what the rest is made of.
                let is_of_satellites = dtype == Dtype::Ci16 || *names == ["antenna", "sample"];
                let fitting_hz = if is_of_satellites { 4.096e6 } else { 1e6 };
                PortType {
                    dtype,
                    clock: Clock {
                        adc_sample_rate_hz: if fit > 3 { fitting_hz } else { rate },
                        sync_time_seconds: 0.0,
                        samples_per_frame,
                    },
                    axes,
                    band,
                    validity: ValidityType { axes: validity, full },
                }
            },
        )
        .prop_filter("large frames only take time", |port| port.frame_bytes() <= 1 << 18)
}

/// Whether the block took the port. It must not panic, whatever the frames hold.
fn drive<K: KindSpec>(
    parameters: Value,
    inputs: Vec<PortType>,
    timestamps: &[u64],
    noise: u8,
) -> bool {
    let kind: K = fxgraph::kind::read(&parameters).unwrap();
    let Ok(block) = Configured::new(kind.clone(), &inputs) else { return false };
    let _ = K::resources(&block);
    let ports = block.ports;
    if ports.outputs.iter().any(|port| port.frame_bytes() > 1 << 22) {
        return true;
    }
    let Ok(block) = kind.build(&ports.inputs, &Env::detached(K::NAME)) else { return true };
    let mut harness = Harness::new(block, &ports, timestamps.len()).unwrap();
    for (n, timestamp) in timestamps.iter().enumerate() {
        for input in 0..ports.inputs.len() {
            harness.send(input, |frame| {
                frame.header_mut().timestamp = *timestamp;
                let flags = frame.header_mut().validity.iter_mut();
                flags.enumerate().for_each(|(unit, flag)| {
                    *flag = u32::from(noise.wrapping_add((unit * 7 + n) as u8) > 50);
                });
                let bytes = frame.as_mut_slice::<u8>().unwrap().iter_mut();
                bytes.enumerate().for_each(|(i, byte)| *byte = (i as u8).wrapping_mul(noise));
            });
        }
        for _ in 0..8 {
            // An error is an answer too.
            let Ok(next) = Harness::block_on(harness.step()) else { return true };
            for output in 0..ports.outputs.len() {
                while harness.receive(output).is_some() {}
            }
            if next != Next::Again {
                break;
            }
        }
    }
    true
}

/// Which of the blocks took the port.
fn kinds(inputs: &PortType, timestamps: &[u64], noise: u8) -> [bool; 24] {
    let one = || vec![inputs.clone()];
    let two = || vec![inputs.clone(); 2];
    let path = std::env::temp_dir().join("fxgraph-never-started.npy");
    let picture = std::env::temp_dir().join("fxgraph-never-painted.png");
    let backwards: Vec<_> = inputs.axes.iter().rev().map(|axis| axis.name).collect();
    let found = PortType {
        dtype: Dtype::F64,
        axes: vec![Axis::new("satellite", 2), Axis::new("value", gnss_acquisition::VALUES)],
        ..inputs.clone()
    };
    let satellites = json!([{"system": "gps_l1_ca", "prn": 7}]);
    let sink = |stream: &str| json!({"stream": stream, "destinations": ["127.0.0.1+1:9"], "samples_per_heap": 8});
    [
        drive::<PolAligner>(json!({}), two(), timestamps, noise),
        drive::<Pfb>(
            json!({"channels": 16, "taps": 2, "spectra_per_frame": 4}),
            two(),
            timestamps,
            noise,
        ),
        drive::<Ddc>(
            json!({"centre_hz": 2e5, "decimation": 2, "taps": 8, "samples_per_frame": 256}),
            one(),
            timestamps,
            noise,
        ),
        drive::<FEngine>(
            json!({"channels": 8, "taps": 2, "spectra_per_heap": 4}),
            two(),
            timestamps,
            noise,
        ),
        drive::<Fft>(json!({}), one(), timestamps, noise),
        drive::<Postproc>(json!({"spectra_per_heap": 4}), one(), timestamps, noise),
        drive::<AntennaStack>(json!({"window": 2}), two(), timestamps, noise),
        drive::<Correlator>(json!({"spectra_per_dump": 16}), one(), timestamps, noise),
        drive::<Beamformer>(json!({"beams": [{"pol": 0}]}), one(), timestamps, noise),
        drive::<FringeCheck>(
            json!({"antennas_enu_metres": [[0, 0, 0], [10, 0, 0]],
                "source": {"azimuth_degrees": 0, "elevation_degrees": 90}}),
            one(),
            timestamps,
            noise,
        ),
        drive::<SpeadSink>(sink("digitiser"), one(), timestamps, noise),
        drive::<SpeadSink>(sink("f_engine"), one(), timestamps, noise),
        drive::<SpeadSink>(sink("x_engine"), one(), timestamps, noise),
        drive::<SpeadSink>(sink("b_engine"), one(), timestamps, noise),
        drive::<FileSink>(json!({"path": path, "max_frames": 0}), one(), timestamps, noise),
        drive::<Transpose>(json!({"axes": backwards}), one(), timestamps, noise),
        drive::<Convert>(json!({"dtype": "cf16", "scale": 0.1}), one(), timestamps, noise),
        drive::<FrbBeamformer>(
            json!({"east_west": {}, "north_south": {"points": 64}, "clamp": {"beams": 1}}),
            one(),
            timestamps,
            noise,
        ),
        drive::<FrbBeamformer>(
            json!({"gains": 0.5, "upchannelise": 2, "integrate": {"channels": 2}}),
            one(),
            timestamps,
            noise,
        ),
        drive::<GnssCorrelator>(json!({"satellites": satellites}), one(), timestamps, noise),
        drive::<GnssAcquisition>(
            json!({"satellites": satellites, "max_doppler_hz": 500, "every_frames": 2, "threads": 1}),
            one(),
            timestamps,
            noise,
        ),
        drive::<GnssTracker>(json!({}), vec![inputs.clone(), found], timestamps, noise),
        drive::<GnssCheck>(
            json!({"satellites": [{"system": "gps_l1_ca", "prn": 7}], "settle_seconds": 0}),
            one(),
            timestamps,
            noise,
        ),
        drive::<ImageSink>(
            json!({"path": picture, "rows": "channel", "columns": "spectrum"}),
            one(),
            timestamps,
            noise,
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_port_makes_a_block_panic(
        port in port(),
        first in select(vec![0, 4096, (1 << 48) - 4096, u64::MAX - 8191, u64::MAX - 5000]),
        noise in any::<u8>(),
    ) {
        let step = port.clock.samples_per_frame;
        let timestamps: Vec<u64> =
            [0, 1, 2, 5, 3, 6].iter().map(|n: &u64| first.wrapping_add(n.wrapping_mul(step))).collect();
        kinds(&port, &timestamps, noise);
    }
}

#[test]
fn every_block_takes_some_of_these_ports() {
    let mut runner = TestRunner::deterministic();
    let mut taken = [0; 24];
    for _ in 0..6000 {
        let port = port().new_tree(&mut runner).unwrap().current();
        for (taken, takes) in taken.iter_mut().zip(kinds(&port, &[0], 0)) {
            *taken += u32::from(takes);
        }
    }
    assert!(taken.iter().all(|taken| *taken > 5), "{taken:?}");
}
