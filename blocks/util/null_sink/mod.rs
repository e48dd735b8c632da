#![doc = include_str!("README.md")]

pub mod conformance;
mod cpu;

use fxgraph::DeviceName;
use fxgraph::examples::Case;
use fxgraph::{Checked, Implementation, Implementations, Kind, KindSpec, PortType};

/// Parameters of `null_sink`: none.
#[derive(Clone, Debug, Default, Kind)]
#[kind(name = "null_sink", page = "README.md", examples("example.yaml"), inputs(numbered("input")))]
pub struct NullSink {}

impl KindSpec for NullSink {
    type Shape = ();
    // Both implementations read headers only, wherever the payload is.
    const IMPLEMENTATIONS: Implementations<Self> = &[
        Implementation::cpu(|block, env| Ok(Box::new(cpu::Sink::of(block, env)))),
        Implementation::cuda("cuda", "discards frames in device memory", |block, env| {
            Ok(Box::new(cpu::Sink::of(block, env)))
        }),
    ];

    fn ports(&self, _inputs: &[PortType]) -> Checked<()> {
        Ok(((), vec![]))
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

    #[test]
    fn null_sink_counts_missing_units_and_ends_with_its_inputs() {
        let clock = Clock::new(1e6, 8);
        let port = PortType {
            dtype: Dtype::I8,
            axes: vec![Axis::new("sample", 8)],
            clock,
            band: None,
            validity: ValidityType { axes: vec![Axis::new("heap", 2)], full: 3 },
        };
        let ports = Ports { inputs: vec![port.clone(), port], outputs: vec![] };
        let counters = Counters::default();
        let block = Box::new(cpu::Sink::new(&ports.inputs, &counters));
        let mut harness = Harness::new(block, &ports, 4).unwrap();
        harness.send(0, |frame| frame.fill_validity(3));
        harness.send(1, |frame| frame.header_mut().validity.copy_from_slice(&[3, 2]));
        assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Wait);
        harness.end(0);
        assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Wait);
        harness.end(1);
        assert_eq!(Harness::block_on(harness.run()).unwrap(), Next::Finished);
        let counts: Vec<u64> = counters.list().iter().map(|c| c.counter.get()).collect();
        assert_eq!(counts, [2, 1]);
    }
}
