use super::MyBlock;
use fxgraph::edge::Harness;
use fxgraph::{Axis, Clock, Dtype, Env, KindSpec, PortType, Ports, ValidityType};

fn samples(dtype: Dtype) -> PortType {
    PortType {
        dtype,
        axes: vec![Axis::new("sample", 4)],
        clock: Clock::new(1e6, 4),
        band: None,
        validity: ValidityType::flags(vec![Axis::new("sample", 1)]),
    }
}

#[test]
fn samples_are_multiplied_and_measured() {
    let kind = MyBlock { gain: -2.5 };
    let inputs = vec![samples(Dtype::F32)];
    let outputs = kind.outputs(&inputs).unwrap();
    let ports = Ports { inputs, outputs };
    let env = Env::detached("amplify");
    let block = kind.build(&ports.inputs, &env).unwrap();
    let mut harness = Harness::new(block, &ports, 2).unwrap();

    assert!(harness.send(0, |frame| {
        frame.header_mut().timestamp = 8;
        frame.fill_validity(1);
        frame.as_mut_slice::<f32>().unwrap().copy_from_slice(&[0.0, 0.2, -2.0, 4.0]);
    }));
    harness.end(0);
    Harness::block_on(harness.run()).unwrap();

    let output = harness.receive(0).unwrap();
    assert_eq!(output.as_slice::<f32>().unwrap(), [0.0, -0.5, 5.0, -10.0]);
    assert_eq!(output.header().timestamp, 8);
    let power = harness.receive(1).unwrap();
    assert_eq!(power.as_slice::<f32>().unwrap(), [(0.25 + 25.0 + 100.0) / 4.0]);
    assert_eq!(power.header().validity, [1]);
    assert_eq!(env.counters.list()[0].counter.get(), 2);
}

#[test]
fn outputs_reject_other_sample_types() {
    let kind = MyBlock { gain: 1.0 };
    assert_eq!(kind.outputs(&[samples(Dtype::Ci8)]).unwrap_err().len(), 1);
}
