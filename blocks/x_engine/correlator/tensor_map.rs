//! Tensor maps: descriptors of tensors for the tensor memory accelerator (TMA) of Hopper GPUs.
#![allow(unsafe_code)] // a call of the driver's raw interface

use fxgraph::cuda::CudaError;
use fxgraph::cuda::driver::sys;
use std::ffi::c_void;

/// Element type of a tensor.
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
    /// Number of elements of each dimension.
    pub lengths: [usize; DIMENSIONS],
    /// Distance between elements of each dimension in bytes; the first is not used.
    pub strides: [usize; DIMENSIONS],
}

/// Tensor map of a tensor and a box, as kernels take it.
pub(super) struct TensorMap(sys::CUtensorMap);

impl TensorMap {
    /// Creates a map for boxes of `of_box` elements of `tensor`, in the 128-byte swizzle: the index of each 16-byte
    /// part of a 128-byte row r is combined with r % 8 by exclusive or. Reads fetch `l2_bytes`, 128 or 256, into the L2
    /// cache at a time.
    ///
    /// # Errors
    /// If the driver rejects the tensor or the box.
    pub(super) fn new<const DIMENSIONS: usize>(
        tensor: &Tensor<DIMENSIONS>,
        of_box: [usize; DIMENSIONS],
        l2_bytes: usize,
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
        let promotion = match l2_bytes {
            256 => sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            _ => sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        };
        // SAFETY: the call writes the map. The arrays have as many elements as the rank (the strides one less,
        // without the first). The address of the tensor is not dereferenced.
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
                promotion,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        result.result().map_err(|error| CudaError::Library {
            what: "encoding a tensor map",
            reason: format!("{:?}", error.0),
        })?;
        Ok(Self(map))
    }

    /// Bytes of the map, as a kernel argument.
    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0.opaque)
    }
}
