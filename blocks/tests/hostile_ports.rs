//! Arbitrary input ports: a block rejects the port, or processes its frames without a panic.

use super::examples::{can_run, directory, text};
use crate::gnss::{gnss_acquisition, gnss_tracker};
use fxgraph::edge::Harness;
use fxgraph::flowgraph::load_in;
use fxgraph::{
    AnyConfigured, Axis, Band, Clock, DeviceName, Dtype, Env, Next, PortType, ValidityType,
};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::path::Path;
use std::sync::Arc;

/// Streams of the signal chain, which the test modifies.
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
    (Dtype::F32, &["spectrum", "product", "channel"]),
];

/// Returns a port with random lengths of axes and random validity axes.
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
                // Mostly the usual lengths, and frames without gaps.
                let mut samples_per_frame = samples_per_frame;
                for (name, len) in names.iter().zip(&mut lengths) {
                    match *name {
                        "pol" if fit > 1 => *len = 2,
                        "product" if fit > 1 => *len = 4,
                        // The pairs of two or of three antennas.
                        "baseline" if fit > 1 => *len = if fit % 2 == 0 { 3 } else { 6 },
                        // At least two periods of a satellite's code.
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
                    ["heap", ..] | ["spectrum", "channel" | "product", ..] => {
                        vec![axes[0].clone()]
                    }
                    ["channel", ..] => vec![axes[1].clone()],
                    _ => vec![Axis::new("heap", len("sample").div_ceil(8))],
                };
                let validity = match units {
                    0 => vec![],
                    1 => odd.iter().map(|n| Axis::new("heap", *n)).collect(),
                    _ => fitting,
                };
                let channels = len("channel").max(1);
                // Mostly no band or the whole band, or the last channels of the largest possible number.
                let band = match band {
                    0 | 1 => None,
                    2 => Some((channels, 0)),
                    _ => Some((usize::MAX, usize::MAX - channels)),
                };
                let band = band.map(|(channels, first_channel)| {
                    Band::signed(channels, first_channel, 1e9, 1e9)
                });
                // A satellite's code needs a higher sample rate than the other streams.
                let is_of_satellites = dtype == Dtype::Ci16 || *names == ["antenna", "sample"];
                let fitting_hz = if is_of_satellites { 4.096e6 } else { 1e6 };
                PortType {
                    dtype,
                    clock: Clock::new(if fit > 3 { fitting_hz } else { rate }, samples_per_frame),
                    axes,
                    band,
                    validity: ValidityType { axes: validity, full },
                }
            },
        )
        .prop_filter("large frames only take time", |port| port.frame_bytes() <= 1 << 18)
}

/// A block of an example, and the input that gets the hostile port.
struct Victim {
    kind: &'static str,
    block: Arc<dyn AnyConfigured>,
    /// Index of the input; `None` for all inputs.
    input: Option<usize>,
}

/// Returns the blocks of all examples.
fn victims(directory: &Path) -> Vec<Victim> {
    let registry = crate::kinds();
    let mut victims = Vec::new();
    for example in registry.examples(DeviceName::Cpu).into_iter().filter(can_run) {
        let name = Path::new("example.yaml");
        let text = text(&example.flowgraph, directory);
        let loaded = load_in(directory, name, &text, &[], &registry);
        let plan = loaded.result.unwrap();
        let block = Arc::clone(&plan.blocks[plan.block("block").unwrap()].configured);
        let inputs = block.ports().inputs.len();
        let all = (inputs > 0).then_some(None);
        let each = (0..inputs).filter(|_| inputs > 1).map(Some);
        let victim = |input| Victim { kind: example.kind, block: Arc::clone(&block), input };
        victims.extend(all.into_iter().chain(each).map(victim));
    }
    victims
}

impl Victim {
    /// Returns the inputs with the hostile port; all have the same clock.
    fn inputs(&self, port: &PortType) -> Vec<PortType> {
        let mut inputs = self.block.ports().inputs.clone();
        match self.input {
            Some(input) => {
                inputs.iter_mut().for_each(|other| other.clock = port.clock);
                inputs[input] = port.clone();
            }
            None => inputs.fill(port.clone()),
        }
        inputs
    }
}

/// Runs the block; returns whether it accepted the port. It must not panic for any content of the frames.
fn drive(
    victim: &Victim,
    port: &PortType,
    timestamps: &[u64],
    noise: u8,
    directory: &Path,
) -> bool {
    let Ok(block) = victim.block.connect(&victim.inputs(port)) else { return false };
    let (_, _) = (block.resources(), block.check(None));
    let ports = block.ports();
    let large = |port: &PortType| port.frame_bytes() > 1 << 22;
    if ports.inputs.iter().chain(&ports.outputs).any(large) {
        return true;
    }
    let env = Env { output_directory: directory.to_owned(), ..Env::detached("block") };
    let Ok(block_at_work) = block.build(&env) else { return true };
    let mut harness = Harness::new(block_at_work, ports, timestamps.len()).unwrap();
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
            // An error is a valid result, too.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_ports_do_not_panic(
        port in port(),
        first in select(vec![0, 4096, (1 << 48) - 4096, u64::MAX - 8191, u64::MAX - 5000]),
        noise in any::<u8>(),
    ) {
        let step = port.clock.samples_per_frame;
        let timestamps: Vec<u64> =
            [0, 1, 2, 5, 3, 6].iter().map(|n: &u64| first.wrapping_add(n.wrapping_mul(step))).collect();
        let directory = directory();
        for victim in victims(directory.path()) {
            // Starts two processes for every port.
            if ["kernel", "python"].contains(&victim.kind) && noise % 16 > 0 {
                continue;
            }
            drive(&victim, &port, &timestamps, noise, directory.path());
        }
    }
}

#[test]
fn every_block_accepts_some_of_these_ports() {
    let mut runner = TestRunner::deterministic();
    let directory = directory();
    let victims = victims(directory.path());
    let mut taken = vec![0; victims.len()];
    for _ in 0..6000 {
        let port = port().new_tree(&mut runner).unwrap().current();
        for (taken, victim) in taken.iter_mut().zip(&victims).filter(|(taken, _)| **taken <= 5) {
            *taken += u32::from(victim.block.connect(&victim.inputs(&port)).is_ok());
        }
    }
    // Each kind must accept ports in one of its examples: other examples may need other streams.
    for kind in crate::kinds().iter() {
        let of_kind = victims.iter().zip(&taken).filter(|(victim, _)| victim.kind == kind.name);
        let most = of_kind.map(|(_, taken)| *taken).max();
        assert!(most.is_none_or(|most| most > 5), "{}: {most:?}", kind.name);
    }
}
