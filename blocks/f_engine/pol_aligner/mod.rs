#![doc = include_str!("README.md")]

pub mod conformance;
mod cpu;

use fxgraph::DeviceName;
use fxgraph::diagnostic::codes;
use fxgraph::examples::Case;
use fxgraph::{
    At, Checked, Configured, Implementation, Implementations, Kind, KindSpec, PortPool, PortType,
    Rejection, Resources,
};

/// Parameters of `pol_aligner`.
#[derive(Clone, Debug, Default, Kind)]
#[kind(
    name = "pol_aligner",
    page = "README.md",
    examples("example.yaml"),
    inputs("pol0", "pol1"),
    outputs("pol0", "pol1")
)]
pub struct PolAligner {
    /// Time to wait for a silent polarisation. After it, frames of the other one are discarded as they
    /// arrive, so that its source does not stall. 0 waits until the polarisation returns or ends.
    #[param(default, range = 0..=1e9, unit = "s")]
    pub wait_seconds: f64,
}

impl KindSpec for PolAligner {
    type Shape = ();
    // Both implementations read only the headers, so the payload may be in any memory.
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| Ok(Box::new(cpu::Aligner::of(block, env)))),
        Implementation::cuda(
            "cuda",
            "passes frames on in device memory, without copies",
            |block, env| Ok(Box::new(cpu::Aligner::of(block, env))),
        ),
    ];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        if inputs[0] == inputs[1] {
            return Ok(((), inputs.to_vec()));
        }
        let message = "the two polarisations have different stream types";
        Err(vec![
            Rejection::new(codes::INPUTS_DIFFER, At::Input(1), message)
                .label(format!("this is {}", inputs[1]))
                .note(At::Input(0), format!("this is {}", inputs[0]))
                .help("use sources with the same rate, frame length and sample width"),
        ])
    }

    fn resources(_: &Configured<Self>) -> Resources {
        Resources {
            pools: vec![PortPool::PassThrough(0), PortPool::PassThrough(1)],
            pairs_inputs: true,
            ..Resources::default()
        }
    }

    fn cases(device: DeviceName) -> Vec<Case> {
        conformance::cases(device)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::Ports;
    use fxgraph::edge::Harness;
    use fxgraph::{Axis, Clock, Counters, Dtype, Next, ValidityType};

    fn port(samples: usize) -> PortType {
        PortType {
            dtype: Dtype::Packed(10),
            axes: vec![Axis::new("sample", samples)],
            clock: Clock::new(1e6, samples as u64),
            band: None,
            validity: ValidityType::flags(vec![Axis::new("heap", 1)]),
        }
    }

    /// Timestamps of the frames on both outputs, and the counters.
    fn align(pol0: &[u64], pol1: &[u64]) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
        let ports = Ports { inputs: vec![port(8); 2], outputs: vec![port(8); 2] };
        let counters = Counters::default();
        let mut harness =
            Harness::new(Box::new(cpu::Aligner::new(0.0, &counters)), &ports, 16).unwrap();
        for (input, times) in [pol0, pol1].into_iter().enumerate() {
            for time in times {
                assert!(harness.send(input, |frame| {
                    frame.header_mut().timestamp = *time;
                    frame.as_mut_slice::<u8>().unwrap()[0] = input as u8 + 10 * *time as u8;
                }));
            }
        }
        assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Wait);
        harness.end(0);
        harness.end(1);
        assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
        let mut sides = [vec![], vec![]];
        for (side, times) in sides.iter_mut().enumerate() {
            while let Some(frame) = harness.receive(side) {
                let time = frame.header().timestamp;
                assert_eq!(frame.as_slice::<u8>().unwrap()[0], side as u8 + 10 * time as u8);
                times.push(time);
            }
        }
        let [a, b] = sides;
        (a, b, counters.list().iter().map(|c| c.counter.get()).collect())
    }

    #[test]
    fn unpaired_frames_are_discarded_and_counted_for_their_input() {
        let (a, b, counts) = align(&[0, 1, 3, 4, 6], &[1, 2, 3, 6, 7, 8]);
        assert_eq!(a, [1, 3, 6]);
        assert_eq!(b, a);
        assert_eq!(counts, [3, 2, 3]);
    }

    #[test]
    fn aligner_waits_for_input_without_frames() {
        let (a, b, counts) = align(&[5, 6], &[]);
        assert!(a.is_empty() && b.is_empty());
        assert_eq!(counts, [0, 2, 0]);
    }

    #[test]
    fn returning_input_is_paired_with_newest_frames_of_other_input() {
        let ports = Ports { inputs: vec![port(8); 2], outputs: vec![port(8); 2] };
        let counters = Counters::default();
        let block = Box::new(cpu::Aligner::new(0.01, &counters));
        let mut harness = Harness::new(block, &ports, 16).unwrap();
        let send = |harness: &mut Harness, input, time| {
            assert!(harness.send(input, |frame| frame.header_mut().timestamp = time));
        };
        for time in 0..100 {
            send(&mut harness, 0, time);
            loop {
                let next = Harness::block_on(harness.run()).unwrap();
                let Next::After(time) = next else { break assert_eq!(next, Next::Wait) };
                std::thread::sleep(time);
            }
        }
        // The silent input returns with the time of the other input's newest frame.
        send(&mut harness, 1, 99);
        assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Wait);
        for side in 0..2 {
            assert_eq!(harness.receive(side).map(|frame| frame.header().timestamp), Some(99));
        }
        assert_eq!(counters.list()[1].counter.get(), 99);
    }

    #[test]
    fn sources_of_an_aligner_drop_the_same_intervals() {
        let text = "flowgraph: g
device: cpu
blocks:
  pol:
    kind: spead_source
    replicate: 2
    parameters: {stream: digitiser, pol: \"${index}\", addresses: [\"127.0.0.1:${7100 + index}\"], adc_sample_rate_hz: 1.0e+6}
  other: {kind: spead_source, parameters: {stream: digitiser, addresses: [\"127.0.0.1:7102\"], adc_sample_rate_hz: 1.0e+6}}
  align: {kind: pol_aligner, inputs: [\"pol[0]\", \"pol[1]\"]}
  n: {kind: null_sink, replicate: 3, input: \"${['align.pol0', 'align.pol1', 'other'][index]}\"}
";
        for device in ["cpu", "cuda:0"] {
            let text = text.replace("device: cpu", &format!("device: \"{device}\""));
            let loaded = fxgraph::flowgraph::load_text("g.yaml", &text, &[], &crate::kinds());
            let plan = loaded.result.ok().unwrap();
            let groups = ["pol[0]", "pol[1]", "other"].map(|name| {
                let index = plan.block(name).unwrap();
                plan.overload_group(&plan.blocks[index]).to_owned()
            });
            assert_eq!(groups, ["align", "align", "other"], "{device}");
        }
    }

    #[test]
    fn aligner_rejects_different_stream_types() {
        let rejections = PolAligner::default().outputs(&[port(8), port(16)]).unwrap_err();
        assert_eq!(rejections[0].code, codes::INPUTS_DIFFER);
    }
}
