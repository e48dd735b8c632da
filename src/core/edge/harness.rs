//! Harness that drives one block without a runtime.

use super::{Edge, FrameReader, FrameWriter};
use crate::block::{Block, Input, Io, Next, Output};
use crate::changes::Heard;
use crate::error::BlockError;
use crate::frame::{Frame, FrameMut, HostAllocator, OutOfMemory, Pool};
use crate::kind::Ports;
use crate::port::PortType;
use crate::time_base::BasesTaken;
use std::sync::Arc;

/// Drives one block without a runtime, for tests, conformance and benchmarks of blocks: [`send`](Self::send) input
/// frames, [`run`](Self::run), [`receive`](Self::receive) output frames. [`Map`](crate::Map) has an example.
pub struct Harness {
    block: Box<dyn Block>,
    inputs: Vec<Input>,
    outputs: Vec<Output>,
    to_inputs: Vec<(Arc<Edge>, FrameWriter)>,
    from_outputs: Vec<FrameReader>,
    /// Value of [`Io::stopping`] in the next calls of `work`.
    pub stopping: bool,
    finished: bool,
}

impl Harness {
    /// A harness for `block` with these ports. Queues have `depth` frames; pools have `2 * depth + 2`.
    ///
    /// # Errors
    ///
    /// If there is no memory for the frames.
    pub fn new(block: Box<dyn Block>, ports: &Ports, depth: usize) -> Result<Self, OutOfMemory> {
        let pool = |port: &PortType| {
            // In addition to the queue, the block and the test may hold frames.
            Pool::new(&HostAllocator, 2 * depth + 2, port.frame_bytes(), port.validity.units())
        };
        let bases = BasesTaken::default();
        let mut harness = Self {
            block,
            inputs: Vec::new(),
            outputs: Vec::new(),
            to_inputs: Vec::new(),
            from_outputs: Vec::new(),
            stopping: false,
            finished: false,
        };
        for port in &ports.inputs {
            let edge = Edge::new(depth);
            harness
                .inputs
                .push(Input { reader: FrameReader::of_block(Arc::clone(&edge), bases.clone()) });
            let writer = FrameWriter::new(vec![Arc::clone(&edge)], Some(pool(port)?), 0);
            harness.to_inputs.push((edge, writer));
        }
        for port in &ports.outputs {
            let edge = Edge::new(depth);
            harness.from_outputs.push(FrameReader::new(Arc::clone(&edge)));
            let (heard, pool) = (Heard::from_start(0), Some(pool(port)?));
            let writer =
                FrameWriter::of_run(vec![edge], pool, heard, Arc::default(), bases.clone());
            harness.outputs.push(Output { writer });
        }
        Ok(harness)
    }

    /// Pushes a frame, filled by `fill`, to input `input`; `false` if there was no room.
    pub fn send(&mut self, input: usize, fill: impl FnOnce(&mut FrameMut)) -> bool {
        let writer = &mut self.to_inputs[input].1;
        let Some(mut frame) = writer.take() else { return false };
        fill(&mut frame);
        writer.push(frame);
        true
    }

    /// Pushes `frame`, an output of another block, to input `input`; `false` if there was no room.
    pub fn share(&mut self, input: usize, frame: Arc<Frame>) -> bool {
        let writer = &mut self.to_inputs[input].1;
        let has_room = writer.has_room();
        if has_room {
            writer.pass(frame);
        }
        has_room
    }

    /// Ends input `input`.
    pub fn end(&mut self, input: usize) {
        self.to_inputs[input].0.end();
    }

    /// Starts the block.
    pub async fn start(&mut self) -> Result<(), BlockError> {
        self.block.call_start().await
    }

    /// Calls `work` once.
    pub async fn step(&mut self) -> Result<Next, BlockError> {
        let mut io =
            Io { inputs: &mut self.inputs, outputs: &mut self.outputs, stopping: self.stopping };
        let next = self.block.call_work(&mut io).await?;
        self.finished |= next == Next::Finished;
        Ok(next)
    }

    /// Calls `work` until the block waits or has finished.
    pub async fn run(&mut self) -> Result<Next, BlockError> {
        loop {
            match self.step().await? {
                Next::Again => {}
                Next::After(time) => {
                    async_io::Timer::after(time).await;
                }
                next => return Ok(next),
            }
        }
    }

    /// Takes the next frame of output `output`.
    pub fn receive(&mut self, output: usize) -> Option<Arc<Frame>> {
        self.from_outputs[output].pop()
    }

    /// Calls the block's `finish`.
    pub async fn finish(&mut self) -> Result<(), BlockError> {
        self.block.call_finish().await
    }

    /// Blocks the thread until `future` is done; for tests that are not async.
    pub fn block_on<T>(future: impl Future<Output = T>) -> T {
        async_io::block_on(future)
    }
}
