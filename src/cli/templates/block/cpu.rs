//! The reference implementation.

use fxgraph::{Block, BlockError, Io, Next};

/// Multiplies samples.
pub struct Gain {
    pub gain: f32,
}

impl Block for Gain {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        let input = &mut io.inputs[0];
        let output = &mut io.outputs[0];
        if input.peek().is_none() {
            return Ok(if input.ended() { Next::Finished } else { Next::Wait });
        }
        // Take the output buffer first: a frame taken from the input must have a place to go.
        let Some(mut result) = output.take() else { return Ok(Next::Wait) };
        let Some(frame) = input.pop() else { return Ok(Next::Wait) };

        let (header, samples) = result.parts_mut::<f32>()?;
        // Copies timestamp and annotations. Validity is separate, as its units may differ.
        header.continue_from(frame.header());
        header.validity.copy_from_slice(&frame.header().validity);
        for (y, x) in samples.iter_mut().zip(frame.as_slice::<f32>()?) {
            *y = self.gain * x;
        }
        output.push(result);
        Ok(Next::Again)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::MyBlock;
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
    fn gain_multiplies_every_sample() {
        let kind = MyBlock { gain: -2.5 };
        let inputs = vec![samples(Dtype::F32)];
        let outputs = kind.outputs(&inputs).unwrap();
        let ports = Ports { inputs, outputs };
        let block = kind.build(&ports.inputs, &Env::detached("amplify")).unwrap();
        let mut harness = Harness::new(block, &ports, 2).unwrap();

        assert!(harness.send(0, |frame| {
            frame.header_mut().timestamp = 8;
            frame.fill_validity(1);
            frame.as_mut_slice::<f32>().unwrap().copy_from_slice(&[0.0, 1.0, -2.0, 4.0]);
        }));
        harness.end(0);
        Harness::block_on(harness.run()).unwrap();

        let result = harness.receive(0).unwrap();
        assert_eq!(result.as_slice::<f32>().unwrap(), [0.0, -2.5, 5.0, -10.0]);
        assert_eq!(result.header().timestamp, 8);
        assert_eq!(result.header().validity, [1]);
    }

    #[test]
    fn outputs_reject_other_sample_types() {
        let kind = MyBlock { gain: 1.0 };
        assert_eq!(kind.outputs(&[samples(Dtype::Ci8)]).unwrap_err().len(), 1);
    }
}
