// Beams of cylinders of 256 feeds, in half precision on tensor cores, as voltages or intensities.
//
// Macros: `RADIX8`, 1 for the transform of frb_radix8.cuh, 0 for that of frb_fft.cuh; `SPECTRA`, `CHANNELS`, `POLS`,
// `CYLINDERS`, sizes of the input; `BITS` of each part of its values, 4, 8, or 16 for half precision; `ROWS`, rows of
// beams; `EAST_WEST`, 1 if a row is a weighted sum of all cylinders, 0 if it is one cylinder; `WEIGHTED`, 1 if feeds
// are weighted; `CLAMP`, 1 if a map selects the beams of a row; `ROW_BEAMS`, beams per row; `UNITS_IN_TIME`,
// `UNITS_IN_FREQUENCY`, validity units of the frame; `HALF_PRECISION`, 1 for voltages in half precision; `FINE`, spectra per
// transform to narrow channels, 32, 64 or 128, or 1; `SUM_CHANNELS`, `SUM_SPECTRA`, narrow channels and transforms
// per sum of intensities; `WARPS`; `PER_WARP`, consecutive transforms of feeds per warp (voltages only).
#if !defined(RADIX8) || !defined(SPECTRA) || !defined(CHANNELS) || !defined(POLS) || !defined(CYLINDERS) ||  \
    !defined(BITS) || !defined(ROWS) || !defined(EAST_WEST) || !defined(WEIGHTED) || !defined(CLAMP) ||       \
    !defined(ROW_BEAMS) || !defined(UNITS_IN_TIME) || !defined(UNITS_IN_FREQUENCY) || !defined(HALF_PRECISION) ||     \
    !defined(FINE) || !defined(SUM_CHANNELS) || !defined(SUM_SPECTRA) || !defined(WARPS) || !defined(PER_WARP)
#error "frb_beamformer.cu needs its transform, sizes, stages and WARPS, PER_WARP"
#endif

#if FINE > 1
#include "frb_intensities.cuh"
#else
#include "frb_rows.cuh"

static_assert(ROW_BEAMS == POINTS || (CLAMP && ROW_BEAMS % 64 == 0 && ROW_BEAMS <= FEEDS), "beams");

/// Cylinders per row of beams.
constexpr int COMBINED = EAST_WEST ? CYLINDERS : 1;
/// Transforms of feeds per spectrum, and thread blocks for them.
constexpr u32 LINES = CHANNELS * POLS * ROWS, BLOCKS = (LINES + WARPS - 1) / WARPS;

/// Smallest number of blocks per multiprocessor for the compiler's choice of registers; 0 where its default is
/// better.
constexpr int LEAST_BLOCKS = RADIX8 && !CLAMP && !WEIGHTED ? 8 : 0;

/// Input of the transform of a line of one spectrum.
struct Cylinders {
    Feeds feeds[COMBINED];
    /// All bits set if the input is valid, else 0.
    u32 there;

    __device__ __forceinline__ void load(const u8* __restrict__ input, const u32* __restrict__ units, u32 spectrum,
                                         u32 line, u32 lane) {
        const u64 row = (u64)spectrum * LINES + line;
        const u64 cylinder = row / ROWS * CYLINDERS + (EAST_WEST ? 0 : line % ROWS);
#pragma unroll
        for (int k = 0; k < COMBINED; k++)
            feeds[k].load(input + (cylinder + k) * (FEEDS * FEED_BYTES), lane);
        there = is_there(units, spectrum, line / (POLS * ROWS)) ? ~0u : 0;
    }
};

/// Computes voltages of beams.
///
/// input    [spectrum][channel][pol][cylinder][feed 256]
/// output   [spectrum][channel][pol][row][beam], complex, in half or single precision
/// phases   `[register][lane 32]`, see `Phases`
/// weights  [channel][pol][row][cylinder of a row][feed], half precision
/// map      [channel][beam]: point of the transform
/// units    [time][frequency]: 0 where input is missing
/// scale    divisor of the weights
/// from, end  first spectrum, and spectrum after the last one
///
/// Grid: BLOCKS (end - from) / PER_WARP. Each warp has one line; adjacent warps have adjacent lines.
extern "C" __global__ void __launch_bounds__(32 * WARPS, LEAST_BLOCKS)
    frb_voltages(const u8* __restrict__ input, u8* __restrict__ output, const u32* __restrict__ phases,
                 const u32* __restrict__ weights, const u16* __restrict__ map,
                 const u32* __restrict__ units, float scale, u32 from, u32 end) {
    __shared__ __align__(16) u32 rows[WARPS][POINTS];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 line = blockIdx.x % BLOCKS * WARPS + warp, first = from + blockIdx.x / BLOCKS * PER_WARP;
    if (line >= LINES) return;
    u32* row = rows[warp];
    Cylinders next;
    next.load(input, units, first, line, lane);
    Phases phase;
    phase.load(phases, lane);
    u32 weight[COMBINED][8];
    const u32* of_line = weights + (u64)line * (COMBINED * FEEDS);
    if constexpr (WEIGHTED)
#pragma unroll
        for (int k = 0; k < COMBINED; k++) take_weights(weight[k], of_line + k * FEEDS, lane);
    Choice choice;
    choice.load(map + line / (POLS * ROWS) * ROW_BEAMS, lane);
    const u32 last = PER_WARP > 1 ? min(first + PER_WARP, end) - 1 : first;
    // Missing input is transformed as zeros; a separate path would cost the others instructions.
    for (u32 spectrum = first;; spectrum++) {
        const u32 there = next.there;
        u32 x[8], y[16];
        if constexpr (WEIGHTED) combine(next.feeds, weight, x, there);
        else next.feeds[0].unpack(x, there);
        if (spectrum != last) next.load(input, units, spectrum + 1, line, lane);
        feeds_to_beams(x, y, phase, lane);
        put_row(row, y, lane);
        const u64 begin = ((u64)spectrum * LINES + line) * ROW_BEAMS;
#pragma unroll
        for (u32 k = 0; k < Choice::RUNS; k++) {
            if (!Choice::has(k, lane)) break;
            uint4 beams = choice.of(row, k, lane);
            const u64 at = begin + 128 * k + 4 * lane;
            if constexpr (HALF_PRECISION && !WEIGHTED) {
                __stcs((uint4*)((u32*)output + at), beams);
            } else {
                float2 values[4] = {scale * from_halves(beams.x), scale * from_halves(beams.y),
                                    scale * from_halves(beams.z), scale * from_halves(beams.w)};
                const float4* vectors = (const float4*)values;
                if constexpr (HALF_PRECISION) {
                    beams.x = halves(values[0].x, values[0].y), beams.y = halves(values[1].x, values[1].y);
                    beams.z = halves(values[2].x, values[2].y), beams.w = halves(values[3].x, values[3].y);
                    __stcs((uint4*)((u32*)output + at), beams);
                } else {
                    __stcs((float4*)((float2*)output + at), vectors[0]);
                    __stcs((float4*)((float2*)output + at + 2), vectors[1]);
                }
            }
        }
        if (spectrum == last) return;
    }
}
#endif
