//! Samples of all polarisations on a GPU: in the input frames, in seams for windows across frames, and in the
//! history for frames that are no longer held.
#![allow(unsafe_code)] // copies between memory that the block or the job owns

use super::input::Sizes;
use super::packed_input::{Copy, Lending, Located, Memory, seam_samples};
use super::schedule::Schedule;
use crate::common::gpu;
use fxgraph::cuda::{CudaError, Device, DeviceArray, IN_FLIGHT, Pipeline, frame_address};
use fxgraph::diagnostic::codes;
use fxgraph::{At, BlockError, PortType, Ports, Rejection};
use std::sync::Arc;

/// Capacity of the history of a polarisation in samples: twice the samples of an output frame, so that the source
/// and the destination of a move to the front do not overlap.
pub fn capacity(sizes: &Sizes) -> usize {
    2 * sizes.frame_samples().next_multiple_of(8)
}

fn bytes_of(samples: usize, input: &PortType) -> usize {
    samples / 8 * input.dtype.bits()
}

/// Device memory for the samples of all polarisations, in bytes.
pub fn device_bytes(sizes: &Sizes, ports: &Ports) -> usize {
    let samples = capacity(sizes) + IN_FLIGHT * seam_samples(sizes);
    ports.inputs.iter().map(|input| bytes_of(samples, input)).sum()
}

/// Device memory for samples of each polarisation.
pub struct DeviceSamples {
    /// Samples of frames that are no longer held, `[pol]`.
    histories: Vec<DeviceArray<u8>>,
    /// Samples of windows across frames, `[slot][pol]`.
    seams: Vec<Vec<DeviceArray<u8>>>,
}

impl DeviceSamples {
    /// Allocates memory for inputs with the same sample type.
    pub fn new(device: &Arc<Device>, sizes: &Sizes, ports: &Ports) -> Result<Self, CudaError> {
        let memory = |samples: usize| {
            let of_input = |input| DeviceArray::new(device, bytes_of(samples, input));
            ports.inputs.iter().map(of_input).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            histories: memory(capacity(sizes))?,
            seams: gpu::for_each_slot(|| memory(seam_samples(sizes)))?,
        })
    }

    /// Queues the copies to the histories, after the kernels that still read them.
    pub fn copy_histories<J>(
        &self,
        schedule: &mut Schedule<Lending>,
        pipeline: &mut Pipeline<J>,
    ) -> Result<(), BlockError> {
        for (pol, memory) in schedule.pols.iter_mut().zip(&self.histories) {
            copy(&mut pol.store.copies, memory, memory, pipeline)?;
        }
        Ok(())
    }

    /// Queues the copies to the seams of the output frame; only the kernels of this frame read them.
    pub fn copy_seams<J>(
        &self,
        schedule: &mut Schedule<Lending>,
        pipeline: &mut Pipeline<J>,
        slot: usize,
    ) -> Result<(), BlockError> {
        let memories = self.histories.iter().zip(&self.seams[slot]);
        for (pol, (history, seams)) in schedule.pols.iter_mut().zip(memories) {
            copy(&mut pol.store.seams, history, seams, pipeline)?;
        }
        Ok(())
    }

    /// Address of the memory with samples of polarisation `p` for the output frame of a slot.
    pub fn address(
        &self,
        slot: usize,
        p: usize,
        located: &Located,
        device: &Device,
    ) -> Result<u64, BlockError> {
        match &located.memory {
            Memory::Frame(frame) => frame_address(frame, device),
            Memory::History => Ok(self.histories[p].address()),
            Memory::Seams => Ok(self.seams[slot][p].address()),
        }
    }
}

/// Queues `copies` from frames or `history` to `memory`.
fn copy<J>(
    copies: &mut Vec<Copy>,
    history: &DeviceArray<u8>,
    memory: &DeviceArray<u8>,
    pipeline: &mut Pipeline<J>,
) -> Result<(), BlockError> {
    for Copy { frame, from, to, bytes } in copies.drain(..) {
        let source = match &frame {
            Some(frame) => pipeline.read(frame)?,
            None => history.address(),
        };
        // SAFETY: source and destination are within the frame or the memory and do not overlap; the job owns
        // the frame.
        unsafe { pipeline.copy(memory.address() + to as u64, source + from as u64, bytes) }?;
    }
    Ok(())
}

/// Returns whether copies to the histories are due.
pub fn owes_copies(schedule: &Schedule<Lending>) -> bool {
    schedule.pols.iter().any(|pol| !pol.store.copies.is_empty())
}

/// Diagnostic for polarisations with different sample types; kernels read one type.
pub fn reject_mixed(ports: &Ports) -> Option<Rejection> {
    let first = ports.inputs[0].dtype;
    let other = ports.inputs.iter().position(|input| input.dtype != first)?;
    let message = "the polarisations must have the same sample type on a GPU";
    let rejection = Rejection::new(codes::IMPLEMENTATION, At::Input(other), message);
    let rejection = rejection.label(format!("these are {}", ports.inputs[other].dtype));
    Some(rejection.note(At::Input(0), format!("these are {first}")))
}
