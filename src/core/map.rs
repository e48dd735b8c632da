//! Blocks that make one output frame from each input frame.

use crate::block::{Block, Io, Next};
use crate::changes::Change;
use crate::error::BlockError;
use crate::frame::{Frame, FrameMut};

/// Computes one output frame from each input frame, on the CPU. [`Mapped`] makes a block of it;
/// `fxgraph::cuda::GpuMap` is the same for GPUs.
///
/// # Shapes
///
/// A payload is row-major in the axes of its port, the slowest first: in a frame `[pol][sample]`, all samples of
/// polarisation 0 come first.
///
/// # Examples
///
/// The sum of two polarisations, `f32` `[pol][sample]` in and `f32` `[sample]` out, without a runtime:
///
/// ```
/// use fxgraph_core::edge::Harness;
/// use fxgraph_core::{
///     Axis, BlockError, Clock, Dtype, Frame, FrameMut, Map, Mapped, PortType, Ports, ValidityType,
/// };
///
/// struct Sum;
///
/// impl Map for Sum {
///     fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError> {
///         let (x, y) = input.as_slice::<f32>()?.split_at(4);
///         for (sum, (x, y)) in output.as_mut_slice::<f32>()?.iter_mut().zip(x.iter().zip(y)) {
///             *sum = x + y;
///         }
///         Ok(())
///     }
/// }
///
/// let port = |axes| PortType {
///     dtype: Dtype::F32,
///     axes,
///     clock: Clock::new(1e6, 4),
///     band: None,
///     validity: ValidityType::flags(vec![]),
/// };
/// let ports = Ports {
///     inputs: vec![port(vec![Axis::new("pol", 2), Axis::new("sample", 4)])],
///     outputs: vec![port(vec![Axis::new("sample", 4)])],
/// };
/// let mut harness = Harness::new(Box::new(Mapped(Sum)), &ports, 2)?;
/// harness.send(0, |frame| {
///     frame.header_mut().timestamp = 8;
///     frame.fill_validity(1);
///     let samples = frame.as_mut_slice().expect("on the host");
///     samples.copy_from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 10.0, 20.0, 30.0, 40.0]);
/// });
/// Harness::block_on(harness.run())?;
/// let sum = harness.receive(0).expect("a frame");
/// assert_eq!(sum.as_slice::<f32>()?, [11.0, 22.0, 33.0, 44.0]);
/// assert_eq!((sum.header().timestamp, sum.header().validity[0]), (8, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Map: Send {
    /// Computes the payload of `output` from `input`, and changes its header if needed: timestamp, configuration,
    /// annotations and validity are already set.
    ///
    /// # Errors
    ///
    /// An error ends the block; what happens then is `on_fault` of the flowgraph. Data that are bad are no error: their
    /// units get the validity 0.
    fn map(&mut self, input: &Frame, output: &mut FrameMut) -> Result<(), BlockError>;

    /// Computes the validity counts of the output from those of the input. By default they are copied.
    fn validity(&mut self, input: &[u32], output: &mut [u32]) {
        output.copy_from_slice(input);
    }

    /// See [`Block::update`].
    fn update(&mut self, _change: Change) -> Result<(), BlockError> {
        Err(BlockError::new("its parameters cannot change while it runs"))
    }
}

/// Wraps a [`Map`] as a [`Block`].
pub struct Mapped<M>(pub M);

impl<M: Map> Block for Mapped<M> {
    fn work(&mut self, io: &mut Io<'_>) -> Result<Next, BlockError> {
        debug_assert!(
            io.inputs.len() == 1 && io.outputs.len() == 1,
            "a map has one input and one output"
        );
        let (input, output) = (&mut io.inputs[0], &mut io.outputs[0]);
        if input.peek().is_none() {
            return Ok(if input.ended() { Next::Finished } else { Next::Wait });
        }
        let Some(mut to) = output.take() else { return Ok(Next::Wait) };
        let Some(from) = input.pop() else { return Ok(Next::Wait) };
        let header = to.header_mut();
        header.continue_from(from.header());
        self.0.validity(&from.header().validity, &mut header.validity);
        self.0.map(&from, &mut to)?;
        output.push(to);
        Ok(Next::Again)
    }

    fn update(&mut self, change: Change) -> Result<(), BlockError> {
        self.0.update(change)
    }
}
