//! Tensor maps: how the copy engine of Hopper GPUs finds a box of a tensor in memory.
#![allow(unsafe_code)] // a call of the driver's raw interface

use fxgraph::cuda::CudaError;
use fxgraph::cuda::driver::sys;
use std::ffi::c_void;

/// What the elements of a tensor are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Element {
    /// Bytes.
    Byte,
    /// 32-bit integers.
    Int,
}

/// A tensor in device memory, innermost dimension first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensor<const DIMENSIONS: usize> {
    pub address: u64,
    pub element: Element,
    /// Elements of each dimension.
    pub lengths: [usize; DIMENSIONS],
    /// Bytes from one to the next of each dimension; the first is not used.
    pub strides: [usize; DIMENSIONS],
}

/// A tensor and a box, as kernels take them.
pub(super) struct TensorMap(sys::CUtensorMap);

impl TensorMap {
    /// Boxes of so many elements of `tensor`, in the 128-byte swizzle: the 16-byte parts of row r
    /// of 128 bytes change places by an exclusive or with r % 8.
    pub(super) fn new<const DIMENSIONS: usize>(
        tensor: &Tensor<DIMENSIONS>,
        of_box: [usize; DIMENSIONS],
    ) -> Result<Self, CudaError> {
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        let lengths = tensor.lengths.map(|n| n as u64);
        let strides = tensor.strides.map(|n| n as u64);
        let of_box = of_box.map(|n| n as u32);
        let every = [1_u32; DIMENSIONS];
        let element = match tensor.element {
            Element::Byte => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            Element::Int => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        };
        // SAFETY: the map is written, the arrays have as many elements as the rank says (the
        // strides one less, the first being left out); the tensor's address is not followed.
        let result = unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                element,
                DIMENSIONS as u32,
                tensor.address as *mut c_void,
                lengths.as_ptr(),
                strides[1..].as_ptr(),
                of_box.as_ptr(),
                every.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        result.result().map_err(|error| CudaError::Library {
            what: "describing memory to the copy engine",
            reason: format!("{:?}", error.0),
        })?;
        Ok(Self(map))
    }

    /// As an argument.
    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0.opaque)
    }
}
