//! CUDA programs from this crate's kernels, and tables that belong to jobs.

use bytemuck::Pod;
use fxgraph::BlockError;
use fxgraph::cuda::{
    CudaError, Defines, Device, DeviceArray, IN_FLIGHT, InUse, Pinned, Pipeline, Program,
};
use std::ops::Range;
use std::sync::Arc;

/// Compiles the kernels of the file `name` for `device`, with `defines` as macros.
pub fn program(
    device: &Arc<Device>,
    name: &'static str,
    defines: Defines,
) -> Result<Arc<Program>, CudaError> {
    let program = fxgraph_kernels::program(name).ok_or_else(|| CudaError::Compile {
        name: name.to_owned(),
        log: "unknown source file".to_owned(),
    })?;
    Program::compile(program, device, defines)
}

/// Returns macros with these numbers as values.
#[must_use]
pub fn numbers<const N: usize>(macros: [(&'static str, usize); N]) -> Defines {
    macros.map(|(name, number)| (name, number.to_string())).to_vec()
}

/// Creates one `T` for each slot of a CUDA pipeline.
pub fn for_each_slot<T>(make: impl Fn() -> Result<T, CudaError>) -> Result<Vec<T>, CudaError> {
    (0..IN_FLIGHT).map(|_| make()).collect()
}

/// Table that belongs to each job of a CUDA pipeline: for each slot one on the host and one on the device.
pub struct Table<T> {
    host: Vec<Pinned<T>>,
    device: Vec<DeviceArray<T>>,
}

impl<T: Pod> Table<T> {
    /// Creates tables of `len` elements, all zeros.
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self, CudaError> {
        Ok(Self {
            host: for_each_slot(|| Pinned::new(device, len))?,
            device: for_each_slot(|| DeviceArray::zeros(device, len))?,
        })
    }

    /// Returns the size of tables of `len` elements on the device, in bytes.
    #[must_use]
    pub const fn device_bytes(len: usize) -> usize {
        IN_FLIGHT * len * size_of::<T>()
    }

    /// Returns the slot's elements on the host; an error while a running job copies them.
    pub fn host(&self, slot: usize) -> Result<&[T], InUse> {
        self.host[slot].get()
    }

    /// Returns the slot's elements on the host for writing, before they are sent.
    pub fn host_mut(&mut self, slot: usize) -> Result<&mut [T], InUse> {
        self.host[slot].get_mut()
    }

    /// Returns the number of elements of a slot.
    #[must_use]
    pub fn slot_len(&self) -> usize {
        self.host[0].len()
    }

    /// Returns the device address of the slot's elements.
    #[must_use]
    pub fn address(&self, slot: usize) -> u64 {
        self.device[slot].address()
    }

    /// Queues the copy of some elements to the device.
    pub fn send<J>(
        &mut self,
        pipeline: &mut Pipeline<J>,
        slot: usize,
        which: Range<usize>,
    ) -> Result<(), BlockError> {
        pipeline.send(&mut self.host[slot], &self.device[slot], which)
    }

    /// Queues the copy of all elements to the host.
    pub fn fetch<J>(&mut self, pipeline: &mut Pipeline<J>, slot: usize) -> Result<(), BlockError> {
        pipeline.fetch(&self.device[slot], &mut self.host[slot])
    }

    /// Queues the clearing of all elements on the device.
    pub fn clear<J>(&self, pipeline: &mut Pipeline<J>, slot: usize) -> Result<(), BlockError> {
        pipeline.zero(&self.device[slot])
    }
}
