// Peak rate of Hopper's tensor cores with 8-bit integers: 64 rows in registers times 128 columns that stay in shared
// memory.
//
// sums: one number for each thread, so that the compiler omits no product.
// Grid: as many blocks of two warpgroups as are resident on the GPU. A warp's share of a repeat is 2 x 64 x 128 x 32
// operations: a quarter of four products of 64 x 128 x 32.
#include "int8_warpgroup.cuh"

constexpr int COLUMNS = 128, COLUMN_BYTES = 128, PRODUCTS = 4, STEP_BYTES = 32;

extern "C" __global__ void __launch_bounds__(2 * WARPGROUP) matrix_peak(i32 *result, u32 repeats) {
    __shared__ alignas(1024) u32 columns[COLUMNS * COLUMN_BYTES / 4];
    for (u32 i = threadIdx.x; i < COLUMNS * COLUMN_BYTES / 4; i += blockDim.x)
        columns[i] = i * 2654435761u;
    u32 a[4];
    for (u32 i = 0; i < 4; i++)
        a[i] = (threadIdx.x * 4 + i) * 2246822519u;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    u32 address = static_cast<u32>(__cvta_generic_to_shared(columns));
    i32 even[COLUMNS / 2] = {}, odd[COLUMNS / 2] = {};
    for (u32 repeat = 0; repeat < repeats; repeat++) {
        warpgroup_fence();
#pragma unroll
        for (int product = 0; product < PRODUCTS; product++)
            multiply<COLUMNS>(product % 2 ? odd : even, a[0], a[1], a[2], a[3],
                              columns_at(address + product * STEP_BYTES));
        warpgroup_commit();
        warpgroup_wait<1>();
    }
    warpgroup_wait<0>();
    i32 all = 0;
    for (int i = 0; i < COLUMNS / 2; i++)
        all += even[i] + odd[i];
    result[blockIdx.x * blockDim.x + threadIdx.x] = all;
}
