//! The samples of all polarisations on a GPU: in the input frames, and in memory for what windows
//! across frames need.
#![allow(unsafe_code)] // copies between memory that the block or the job owns

use super::lending::{Lending, Located};
use super::schedule::{Schedule, Sizes};
use fxgraph::cuda::{CudaError, Device, DeviceArray, Lane, frame_address};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, Frame, PortType, Ports, Refusal};
use std::sync::Arc;

/// Samples of a polarisation to keep room for: twice what an output frame needs, so that what is
/// moved to the front does not overlap with where it was.
pub fn capacity(sizes: &Sizes) -> usize {
    2 * sizes.frame_samples().next_multiple_of(8)
}

fn bytes_of(sizes: &Sizes, input: &PortType) -> usize {
    capacity(sizes) / 8 * input.dtype.bits()
}

/// Bytes of the memory for all polarisations.
pub fn device_bytes(sizes: &Sizes, ports: &Ports) -> usize {
    ports.inputs.iter().map(|input| bytes_of(sizes, input)).sum()
}

/// Memory for the samples of each polarisation that are no longer in their frames.
pub struct DeviceSamples(Vec<DeviceArray<u8>>);

impl DeviceSamples {
    /// Memory for inputs of samples of one type.
    pub fn new(device: &Arc<Device>, sizes: &Sizes, ports: &Ports) -> Result<Self, CudaError> {
        let memory = |input: &PortType| DeviceArray::new(device, bytes_of(sizes, input));
        ports.inputs.iter().map(memory).collect::<Result<_, _>>().map(Self)
    }

    /// Queues the copies that are due; `inputs` gets the frames that they read.
    pub fn copy<J>(
        &self,
        schedule: &mut Schedule<Lending>,
        lane: &Lane<J>,
        inputs: &mut Vec<Arc<Frame>>,
    ) -> Result<(), BlockError> {
        for (pol, memory) in schedule.pols.iter_mut().zip(&self.0) {
            for copy in pol.store.copies.drain(..) {
                let from = match &copy.frame {
                    Some(frame) => frame_address(frame, lane.device())?,
                    None => memory.address(),
                };
                let to = memory.address() + copy.to as u64;
                // SAFETY: both ends are within the frame or the memory, which do not overlap; the
                // job owns the frame.
                unsafe { lane.copy(to, from + copy.from as u64, copy.bytes) }?;
                inputs.extend(copy.frame);
            }
        }
        Ok(())
    }

    /// Address of the memory that samples of polarisation `p` are in.
    pub fn address(&self, p: usize, located: &Located, device: &Device) -> Result<u64, BlockError> {
        match &located.frame {
            Some(frame) => frame_address(frame, device),
            None => Ok(self.0[p].address()),
        }
    }
}

/// Whether copies are due.
pub fn owes_copies(schedule: &Schedule<Lending>) -> bool {
    schedule.pols.iter().any(|pol| !pol.store.copies.is_empty())
}

/// Refuses polarisations whose samples are of different types: kernels read one.
pub fn refuse_mixed(ports: &Ports) -> Option<Refusal> {
    let first = ports.inputs[0].dtype;
    let other = ports.inputs.iter().position(|input| input.dtype != first)?;
    let message = "the polarisations have samples of different types, and a GPU reads one";
    let refusal = Refusal::new(codes::IMPLEMENTATION, At::Input(other), message);
    let refusal = refusal.label(format!("these are {}", ports.inputs[other].dtype));
    Some(refusal.note(At::Input(0), format!("these are {first}")))
}
