// Digital down-conversion of complex samples: mixing, low-pass filter and decimation.
//
// Macros:
//   SUBSAMPLING  input samples S for each output sample, 2 .. 64
//   TAPS         weights of the filter, S .. 20 S
//   ROW          output samples of a row, a divisor of 256
//   THREADS      threads per block, at least S
//
// The samples are rotated by the oscillator, so that the weights stay real:
//
//   y_j = sum over p < S and m < M of h_{Sm+p} u_p[j+m],   u_p[g] = x_{Sg+p} e^{-2 pi i f (Sg+p)},   M = ceil(TAPS / S)
//
// Each thread has one phase p of one row of output samples, with its M weights in registers, and proceeds along the
// row. It reads each of its samples once, and adds it to the M output samples in progress. The sums of the S phases of
// an output sample are added in shared memory.
#include "ddc.cuh"

#if !defined(SUBSAMPLING) || !defined(TAPS) || !defined(ROW) || !defined(THREADS)
#error "ddc_complex.cu needs SUBSAMPLING, TAPS, ROW and THREADS"
#endif

static_assert(HEAP % ROW == 0, "heaps consist of rows");
/// Weights of a phase, M; also the output samples of a row that are completed at a time.
constexpr u32 MOMENTS = (TAPS + SUBSAMPLING - 1) / SUBSAMPLING;
/// Rows at a time, one of each heap of a run.
constexpr u32 ROWS = THREADS / SUBSAMPLING;
static_assert(ROWS > 0, "a block needs a thread for each phase");
/// Input samples of a heap.
constexpr u32 WINDOW = SUBSAMPLING * (HEAP - 1) + TAPS;

__shared__ struct {
    /// Rotation from the first sample of a step to each other sample of the same phase.
    c32 rotations[MOMENTS];
    /// Sums of each thread for the output samples of a step. With an odd pitch, output samples are in different banks.
    c32 sums[MOMENTS][THREADS | 1];
} shared;

/// Computes output samples.
///
///   runs     [run], each of at most `ROWS` heaps
///   filter   [tap]: the low-pass filter, divided by `scale`
///   out      [sample][re, im]
///   scale    factor of the sums
///
/// Grid: (runs, 256 / ROW), blocks of THREADS; each block computes the same row of every heap of a run.
extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
ddc(const Run *__restrict__ runs, const float *__restrict__ filter, c32 *__restrict__ out, float scale) {
    const Run run = runs[blockIdx.x];
    const u32 first = blockIdx.y * ROW;
    c32 *heaps = out + static_cast<u64>(run.heap) * HEAP;
    if (run.what != 0) {
        for (u32 i = threadIdx.x; i < run.count * ROW; i += THREADS) {
            heaps[i / ROW * HEAP + first + i % ROW] = {0.0f, 0.0f};
        }
        return;
    }
    const u32 row = threadIdx.x / SUBSAMPLING, p = threadIdx.x % SUBSAMPLING;
    const u32 place = SUBSAMPLING * HEAP * row + p;
    const c32 *samples = reinterpret_cast<const c32 *>(run.samples + run.first_bit / 8) + place;
    const u32 available = row < run.count ? (WINDOW - p + SUBSAMPLING - 1) / SUBSAMPLING : 0;
    const u64 phase = run.phase + (static_cast<u64>(run.heap) * HEAP * SUBSAMPLING + place) * run.turn;
    const u64 further = SUBSAMPLING * run.turn;
    if (threadIdx.x < MOMENTS) shared.rotations[threadIdx.x] = phasor(threadIdx.x * further);
    float weights[MOMENTS];
#pragma unroll
    for (u32 m = 0; m < MOMENTS; m++) {
        const u32 tap = SUBSAMPLING * m + p;
        weights[m] = tap < TAPS ? scale * filter[tap] : 0.0f;
    }
    __syncthreads();

    c32 pending[MOMENTS] = {};
    // Steps start at multiples of M samples of a heap, so that the result is the same for rows of any length.
#pragma unroll 1
    for (u32 before = first / MOMENTS * MOMENTS; before < first + ROW + MOMENTS - 1; before += MOMENTS) {
        c32 x[MOMENTS];
#pragma unroll
        for (u32 i = 0; i < MOMENTS; i++) {
            const u32 group = before + i;
            x[i] = group < available ? __ldg(samples + SUBSAMPLING * group) : c32{0.0f, 0.0f};
        }
        const c32 start = phasor(phase + before * further);
#pragma unroll
        for (u32 i = 0; i < MOMENTS; i++) {
            const c32 u = x[i] * (start * shared.rotations[i]);
#pragma unroll
            for (u32 m = 0; m < MOMENTS; m++) {
                // The output sample that began m samples ago.
                c32 &sum = pending[(i + MOMENTS - m) % MOMENTS];
                if (m == 0) {
                    sum = weights[0] * u;
                } else {
                    sum = {fmaf(weights[m], u.x, sum.x), fmaf(weights[m], u.y, sum.y)};
                }
            }
            shared.sums[i][threadIdx.x] = pending[(i + 1) % MOMENTS];
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < run.count * MOMENTS; i += THREADS) {
            const u32 of_row = i / MOMENTS, completed = i % MOMENTS;
            const u32 sample = before + completed - (MOMENTS - 1);
            // Samples of other rows; the difference is large if it would be negative.
            if (sample - first >= ROW) continue;
            const c32 *sums = &shared.sums[completed][of_row * SUBSAMPLING];
            c32 sum = sums[0];
#pragma unroll 8
            for (u32 q = 1; q < SUBSAMPLING; q++) sum = sum + sums[q];
            heaps[of_row * HEAP + sample] = sum;
        }
        __syncthreads();
    }
}
