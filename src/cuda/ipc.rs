//! Device memory that another process opens by CUDA IPC.
#![allow(unsafe_code)] // a call of the driver

use super::memory::{Allocation, Owner};
use super::payload::placed;
use super::{CudaError, Device};
use cudarc::driver::sys;
use fxgraph_core::error::BlockError;
use fxgraph_core::frame::Frame;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Size of a handle in bytes.
pub const HANDLE_BYTES: usize = 64;

/// Handle of an allocation, made once.
pub(super) struct Handle {
    bytes: [u8; HANDLE_BYTES],
    identity: Arc<()>,
}

/// Payload of a frame as another process opens it: with `cuIpcOpenMemHandle`.
#[derive(Clone, Copy, Debug)]
pub struct Exported<'a> {
    /// Handle of the memory that the frames of the pool share.
    pub handle: &'a [u8; HANDLE_BYTES],
    /// Offset of the payload in this memory, in bytes.
    pub offset: u64,
    /// Token of this memory: a `Weak` of it tells whether the memory still exists.
    pub identity: &'a Arc<()>,
}

/// Exports the payload of `frame`, which is on `device`. Each allocation is exported once.
///
/// # Errors
/// If the payload is not in the memory of `device`, or if the driver has no CUDA IPC.
pub fn exported<'a>(frame: &'a Frame, device: &Device) -> Result<Exported<'a>, BlockError> {
    let (memory, offset) = placed(frame, device)?;
    let Handle { bytes, identity } = memory.exported()?;
    Ok(Exported { handle: bytes, offset, identity })
}

impl Allocation {
    /// Returns the handle for other processes.
    pub(super) fn exported(&self) -> Result<&Handle, CudaError> {
        if let Some(handle) = self.handle.get() {
            return Ok(handle);
        }
        let handle = Handle { bytes: handle(self)?, identity: Arc::default() };
        Ok(self.handle.get_or_init(|| handle))
    }
}

impl Handle {
    pub(super) fn bytes(&self) -> &[u8; HANDLE_BYTES] {
        &self.bytes
    }
}

fn handle(memory: &Allocation) -> Result<[u8; HANDLE_BYTES], CudaError> {
    match &memory.owner {
        Owner::Device(device) => device.bind()?,
        // The memory is its own handle.
        #[cfg(test)]
        Owner::Heap(_) => {
            let mut bytes = [0; HANDLE_BYTES];
            bytes[..8].copy_from_slice(&memory.address.to_le_bytes());
            return Ok(bytes);
        }
    }
    let mut handle = MaybeUninit::<sys::CUipcMemHandle>::zeroed();
    // SAFETY: the address is that of an allocation, and `handle` lives during the call.
    let made = unsafe { sys::cuIpcGetMemHandle(handle.as_mut_ptr(), memory.address) };
    CudaError::check(
        "exporting GPU memory for another process (CUDA IPC; some containers and virtual machines have none)",
        made,
    )?;
    // SAFETY: plain bytes, all of which are initialised.
    let handle = unsafe { handle.assume_init() };
    Ok(handle.reserved.map(|byte| byte as u8))
}

/// Value of `CUDA_VISIBLE_DEVICES` with which another process finds GPU number `ordinal` of this process as its GPU 0.
#[must_use]
pub fn visible(ordinal: usize) -> String {
    let named = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    nth(named.as_deref(), ordinal)
}

/// Entry of the list of visible GPUs; without a list, the number.
fn nth(list: Option<&str>, ordinal: usize) -> String {
    let named = list.and_then(|list| list.split(',').nth(ordinal));
    named.map_or_else(|| ordinal.to_string(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::OnceLock;

    #[test]
    fn allocation_is_exported_once() {
        let (owner, memory) = Owner::heap(64);
        let address = memory.expose_provenance() as u64;
        let memory = Allocation { owner, address, handle: OnceLock::new() };
        let first = memory.exported().unwrap();
        assert_eq!(first.bytes()[..8], address.to_le_bytes());
        assert!(std::ptr::eq(first, memory.exported().unwrap()));
        let weak = Arc::downgrade(&first.identity);
        drop(memory);
        assert_eq!(weak.strong_count(), 0);
    }

    #[test]
    fn gpu_of_another_process_is_that_of_the_list() {
        assert_eq!(nth(None, 2), "2");
        assert_eq!(nth(Some("3, GPU-1234"), 0), "3");
        assert_eq!(nth(Some("3, GPU-1234"), 1), "GPU-1234");
    }
}
