// Gathers pieces of memory into one array, for `antenna_stack`.
//
// Macros: `PIECE_BYTES`; `VECTOR` (1, 2, 4, 8 or 16): bytes of an access, to which pieces and their sources are
// aligned; `VECTORS` per thread; `THREADS`.
#if !defined(PIECE_BYTES) || !defined(VECTOR) || !defined(VECTORS) || !defined(THREADS)
#error "gather.cu needs PIECE_BYTES, VECTOR, VECTORS and THREADS"
#endif

#include "transpose.cuh"
#include "types.cuh"

using Access = typename AccessOf<VECTOR>::Type;

constexpr u64 piece_vectors = PIECE_BYTES / VECTOR;
constexpr u64 block_vectors = (u64)THREADS * VECTORS;
constexpr u32 piece_blocks = (piece_vectors + block_vectors - 1) / block_vectors;

/// sources: [piece], addresses, 0 for a piece of zeros. output: [piece][PIECE_BYTES].
/// Grid: piece_blocks x pieces blocks in one dimension. Block: THREADS.
extern "C" __global__ void __launch_bounds__(THREADS)
    gather(const u64* __restrict__ sources, Access* __restrict__ output) {
    const u32 piece = blockIdx.x / piece_blocks;
    const u64 first = blockIdx.x % piece_blocks * block_vectors + threadIdx.x;
    const Access* from = reinterpret_cast<const Access*>(sources[piece]);
    Access* to = output + piece * piece_vectors;
    Access values[VECTORS];
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const u64 place = first + (u64)i * THREADS;
        values[i] = {};
        if (from && place < piece_vectors) values[i] = from[place];
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        const u64 place = first + (u64)i * THREADS;
        if (place < piece_vectors) to[place] = values[i];
    }
}
