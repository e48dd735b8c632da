// Copies an array to another order of axes, where the fastest axis stays the same.
//
// Macros: `UNIT_BYTES` (1, 2, 4, 8, 16), bytes per thread, to which all rows are aligned; and lists, in units, the
// fastest axis first: `LENGTHS`, `INPUT_STRIDES`, `OUTPUT_STRIDES`.
#if !defined(UNIT_BYTES) || !defined(LENGTHS) || !defined(INPUT_STRIDES) || !defined(OUTPUT_STRIDES)
#error "strided_copy.cu needs UNIT_BYTES, LENGTHS, INPUT_STRIDES and OUTPUT_STRIDES"
#endif

#include "axes.cuh"
#include "transpose.cuh"

using Unit = typename AccessOf<UNIT_BYTES>::Type;

template <typename... Numbers> constexpr int count(Numbers...) { return sizeof...(Numbers); }

constexpr Axes<count(LENGTHS)> input_axes = {{LENGTHS}, {INPUT_STRIDES}};
constexpr Axes<count(LENGTHS)> output_axes = {{LENGTHS}, {OUTPUT_STRIDES}};
constexpr u32 units = elements(input_axes);

/// `input` and `output` of up to 2^32 units. Grid: one thread for each unit. Block: any.
extern "C" __global__ void strided_copy(const Unit *__restrict__ input, Unit *__restrict__ output) {
    const u64 unit = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (unit < units) output[offset(output_axes, unit)] = input[offset(input_axes, unit)];
}
