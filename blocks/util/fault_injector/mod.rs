#![doc = include_str!("README.md")]

mod cpu;

use fxgraph::{
    BlockError, Checked, Configured, Implementation, Implementations, Kind, KindSpec, LiveKind,
    PortPool, PortType, Resources,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest stall in seconds.
const MAX_STALL_SECONDS: f64 = 3600.0;

/// Type of a fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// No fault: frames pass.
    #[default]
    None,
    /// The block returns an error, like a block with invalid input data.
    Error,
    /// The block panics, like a block with a bug.
    Panic,
    /// No frame passes for a while, like behind a disk or network that hangs.
    Stall,
}

/// Parameters of `fault_injector`.
#[derive(Clone, Debug, Kind)]
#[kind(
    name = "fault_injector",
    page = "README.md",
    examples("example.yaml"),
    inputs("input"),
    outputs("output")
)]
pub struct FaultInjector {
    /// Type of the fault: `none`, `error`, `panic` or `stall`; live.
    #[param(default, live)]
    pub fault: Fault,
    /// Number of frames with a fault.
    #[param(default = 1)]
    pub faults: u64,
    /// Frames that pass before the first fault, for a `fault` set in the file.
    #[param(default)]
    pub after_frames: u64,
    /// Duration of a `stall`.
    #[param(default = 1.0, range = 0..=MAX_STALL_SECONDS, unit = "s")]
    pub stall_seconds: f64,
}

impl KindSpec for FaultInjector {
    type Shape = ();
    const IMPLEMENTATIONS: Implementations<Self> = &[Implementation::cpu(|block, env| {
        let (parameters, input) = (&block.parameters, &block.ports.inputs[0]);
        Ok(Box::new(cpu::Injector::new(parameters, input, &env.counters)))
    })];

    fn ports(&self, inputs: &[PortType]) -> Checked<()> {
        Ok(((), inputs.to_vec()))
    }

    fn resources(_: &Configured<Self>) -> Resources {
        Resources { pools: vec![PortPool::PassThrough(0)], ..Resources::default() }
    }
}

impl LiveKind for FaultInjector {
    type Value = Fault;

    fn live_value(
        new: &Configured<Self>,
        FaultInjectorLive::Fault: FaultInjectorLive,
        _: &Configured<Self>,
    ) -> Result<Fault, BlockError> {
        Ok(new.parameters.fault)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fxgraph::Ports;
    use fxgraph::edge::Harness;
    use fxgraph::{Axis, Clock, Counters, Dtype, Next, ValidityType};

    fn ports() -> Ports {
        let clock = Clock::new(1e6, 8);
        let port = PortType {
            dtype: Dtype::I8,
            axes: vec![Axis::new("sample", 8)],
            clock,
            band: None,
            validity: ValidityType { axes: vec![Axis::new("heap", 1)], full: 1 },
        };
        Ports { inputs: vec![port.clone()], outputs: vec![port] }
    }

    fn harness(parameters: &FaultInjector, counters: &Counters) -> Harness {
        let block = Box::new(cpu::Injector::new(parameters, &ports().inputs[0], counters));
        let mut harness = Harness::new(block, &ports(), 8).unwrap();
        for number in 0..4 {
            harness.send(0, |frame| frame.header_mut().timestamp = 8 * number);
        }
        harness
    }

    fn counts(counters: &Counters) -> Vec<u64> {
        counters.list().iter().map(|named| named.counter.get()).collect()
    }

    #[test]
    fn fault_injector_fails_at_the_requested_number_of_frames() {
        let parameters =
            FaultInjector { fault: Fault::Error, faults: 2, after_frames: 1, stall_seconds: 0.0 };
        let counters = Counters::default();
        let mut first = harness(&parameters, &counters);
        let failed = Harness::block_on(first.run()).unwrap_err();
        assert_eq!(failed.to_string(), "injected fault at the frame with timestamp 8");
        assert_eq!(counts(&counters), [1, 1]);
        // A block created again continues to count.
        let mut second = harness(&parameters, &counters);
        assert!(Harness::block_on(second.run()).is_err());
        assert_eq!(Harness::block_on(second.run()).unwrap(), Next::Wait);
        assert_eq!(counts(&counters), [4, 2]);
    }

    #[test]
    fn stall_delays_frames_and_then_passes_them() {
        let parameters =
            FaultInjector { fault: Fault::Stall, faults: 1, after_frames: 2, stall_seconds: 0.02 };
        let counters = Counters::default();
        let mut harness = harness(&parameters, &counters);
        let began = std::time::Instant::now();
        let Next::After(pause) = Harness::block_on(harness.step()).unwrap() else {
            panic!("no stall")
        };
        assert!(pause <= std::time::Duration::from_millis(20));
        assert_eq!(counts(&counters), [2, 1]);
        std::thread::sleep(pause);
        while counts(&counters)[0] < 4 {
            Harness::block_on(harness.run()).unwrap();
        }
        assert!(began.elapsed().as_secs_f64() >= 0.02);
        assert_eq!(counts(&counters), [4, 1]);
    }

    #[test]
    fn every_frame_passes_after_its_stall() {
        let parameters =
            FaultInjector { fault: Fault::Stall, faults: 9, after_frames: 0, stall_seconds: 0.001 };
        let counters = Counters::default();
        let mut harness = harness(&parameters, &counters);
        for stalled in 1..=4 {
            assert!(matches!(Harness::block_on(harness.step()).unwrap(), Next::After(_)));
            assert_eq!(counts(&counters), [stalled - 1, stalled]);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert_eq!(Harness::block_on(harness.step()).unwrap(), Next::Wait);
        assert_eq!(counts(&counters), [4, 4]);
    }
}
