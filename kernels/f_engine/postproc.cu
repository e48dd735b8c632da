// Last step of the F-engine: the last step of an unzipped transform, fine delay and phase, gains, dither,
// quantisation, and transposition to heaps.
//
// Macros:
//   CHANNELS          N, an even number, at least 4
//   PITCH             channels of the input, an even number: N, or a multiple of 4 more, of which the middle ones are kept
//   UNZIP             interleaved series into which each spectrum is split, 1 for none; N is a multiple of 4 UNZIP
//   POLS              polarisations
//   SPECTRA_PER_HEAP  spectra per heap, adjacent for each channel
//   BITS              bits of each part of a value, 8 or 4
//   K_MAJOR           0 for [heap][channel][spectrum][pol], 1 for [heap][channel][pol][spectrum]
//   DITHER            1 for uniform dither
//   GAINS             1 for gains that differ from channel to channel
#include "quantise.cuh"
#include "real_fft.cuh"
#include "short_fft.cuh"
#include "spectrum_row.cuh"
#include "types.cuh"

#if !defined(CHANNELS) || !defined(PITCH) || !defined(UNZIP) || !defined(POLS)
#error "postproc.cu needs CHANNELS, PITCH, UNZIP and POLS"
#endif
#if !defined(SPECTRA_PER_HEAP) || !defined(BITS) || !defined(K_MAJOR) || !defined(DITHER) || \
    !defined(GAINS)
#error "postproc.cu needs SPECTRA_PER_HEAP, BITS, K_MAJOR, DITHER and GAINS"
#endif
#if !defined(THREADS)
#error "postproc.cu needs THREADS per block"
#endif

/// Computes the rows of an input frame: the values that all channels of a spectrum share.
///
///   phase_turns, fine_delay_samples  [pol][spectrum]
///   gains                            [pol][re, im]: common gains of all channels
///   rows                             [pol][spectrum]
///   per_pol                          spectra of each polarisation
///   first, count                     spectra of each polarisation whose rows are computed
///   first_number                     number, since sync time, of the first spectrum of the frame
///
/// Grid: rows / 128, blocks of 128.
extern "C" __global__ void postproc_rows(const double *__restrict__ phase_turns,
                                         const double *__restrict__ fine_delay_samples,
                                         const double *__restrict__ gains, Row *__restrict__ rows,
                                         u32 per_pol, u32 first, u32 count, u64 first_number,
                                         u64 dither_seed) {
    const u32 of_all = blockIdx.x * blockDim.x + threadIdx.x;
    if (of_all >= POLS * count) return;
    const u32 pol = of_all / count, number = first + of_all % count, i = pol * per_pol + number;
    rows[i] = spectrum_row(PITCH, phase_turns[i], fine_delay_samples[i], gains + 2 * pol,
                           dither_seed, first_number + number, pol);
}

// A thread computes some channels of adjacent spectra, such that the values of one channel are 16 bytes of output.
// The two half-warps write adjacent 32 bytes, a whole sector, and each half-warp reads 16 adjacent places of a
// spectrum.
constexpr u32 VALUE_BYTES = BITS == 8 ? 2 : 1;
constexpr u32 VALUES = 16 / VALUE_BYTES;
constexpr u32 VALUES_PER_WORD = 4 / VALUE_BYTES;
/// Number of interleaved polarisations.
constexpr u32 MIXED_POLS = K_MAJOR ? 1 : POLS;
/// Spectra per thread, and per tile, which has those of both parts of a warp.
constexpr u32 THREAD_SPECTRA = VALUES / MIXED_POLS;
constexpr u32 TILE_SPECTRA = 2 * THREAD_SPECTRA;
constexpr u32 TILES_PER_HEAP = (SPECTRA_PER_HEAP + TILE_SPECTRA - 1) / TILE_SPECTRA;
/// Bytes of one channel of a heap, and bytes of its contiguous parts.
constexpr u32 CHANNEL_BYTES = SPECTRA_PER_HEAP * POLS * VALUE_BYTES;
constexpr u32 ADJACENT_BYTES = SPECTRA_PER_HEAP * MIXED_POLS * VALUE_BYTES;

/// Places of a spectrum per thread block.
constexpr u32 BLOCK_PLACES = THREADS / 2;

/// Channels that a thread computes at a time.
///
/// Plain: two adjacent ones, a vector of 16 bytes.
/// Unzipped: for place s of each part, 0 <= s <= m/2 with m = N/UNZIP, the channels p m + s (p = 0 .. UNZIP-1), and
/// their mirrors N - (p m + s), from place m - s. For s = 0 and m/2 the mirrors are the same channels.
constexpr u32 PART = CHANNELS / UNZIP;
constexpr u32 AT_ONCE = UNZIP == 1 ? 2 : 2 * UNZIP;
constexpr u32 PLACES = UNZIP == 1 ? CHANNELS / 2 : PART / 2 + 1;

/// Sums over the parts; index of sum p.
__device__ __forceinline__ void across_parts(c32 (&z)[UNZIP]) {
    if constexpr (UNZIP == 2) {
        const c32 sum = z[0] + z[1];
        z[1] = z[0] - z[1];
        z[0] = sum;
    } else {
        short_fft<UNZIP>(z);
    }
}
__device__ constexpr int of_sum(int p) { return UNZIP == 2 ? p : fft_place<UNZIP>(p); }

struct Place {
    u32 s;
#if UNZIP > 1
    /// e^{-2 pi j rs/N} for part r, and -j e^{-j pi k/N} / 2 for channel k = p m + s.
    c32 part[UNZIP], real[UNZIP];
#endif

    __device__ explicit Place(u32 place) : s(place) {
#if UNZIP > 1
#pragma unroll
        for (int r = 0; r < UNZIP; r++) {
            part[r] = root(r * s, CHANNELS);
            const c32 half = root(r * PART + s, 2 * CHANNELS);
            real[r] = {0.5f * half.y, -0.5f * half.x};
        }
#endif
    }

    /// Channel `i` of this thread.
    __device__ __forceinline__ u32 channel(int i) const {
#if UNZIP == 1
        return 2 * s + i;
#else
        return i < UNZIP ? i * PART + s : (2 * UNZIP - i) * PART - s;
#endif
    }

    /// Whether the channels from place m - s differ from those from place s.
    __device__ __forceinline__ bool is_mirrored() const {
        return UNZIP == 1 || (s != 0 && 2 * s != PART);
    }

    /// Phase factors of these channels.
    __device__ __forceinline__ void slopes(const Turn &turn, c32 (&slopes)[AT_ONCE]) const {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (UNZIP == 1 || i < UNZIP) {
                slopes[i] = slope(turn, static_cast<float>(static_cast<i32>(channel(i)) - CHANNELS / 2));
            } else {
                slopes[i] = conj(slopes[i - UNZIP]);
            }
        }
    }

    /// Values of these channels of a spectrum.
    __device__ __forceinline__ void load(const c32 *spectrum, c32 (&x)[AT_ONCE]) const {
#if UNZIP == 1
        const float4 both = __ldg(reinterpret_cast<const float4 *>(spectrum) + s);
        x[0] = {both.x, both.y};
        x[1] = {both.z, both.w};
#else
        // Z_{pm+s} = sum over r of e^{-2 pi j rp/n} e^{-2 pi j rs/N} Z^r_s. Place m - s has the conjugate twiddle
        // factors except for a factor e^{-2 pi j r/n}, which shifts p by one: its sum q is for channel q m - s.
        c32 low[UNZIP], high[UNZIP];
        const u32 mirror = s == 0 ? 0 : PART - s;
#pragma unroll
        for (int r = 0; r < UNZIP; r++) {
            low[r] = __ldg(spectrum + r * PART + s);
            high[r] = __ldg(spectrum + r * PART + mirror);
        }
#pragma unroll
        for (int r = 1; r < UNZIP; r++) {
            low[r] = low[r] * part[r];
            high[r] = high[r] * conj(part[r]);
        }
        across_parts(low);
        across_parts(high);
#pragma unroll
        for (int p = 0; p < UNZIP; p++) {
            x[p] = low[of_sum(p)];
            x[UNZIP + p] = high[of_sum((UNZIP - p) % UNZIP)];
            real_pair(x[p], x[UNZIP + p], real[p]);
        }
#endif
    }
};

/// Writes the values, of 16 bytes, whose spectra belong to the piece.
__device__ __forceinline__ void store_some(u8 *to, const u32 (&words)[4], u32 first, u32 count) {
#pragma unroll
    for (u32 v = 0; v < VALUES; v++) {
        const u32 spectrum = v / MIXED_POLS;
        if (spectrum < first || spectrum >= first + count) continue;
        const u32 value = words[v / VALUES_PER_WORD] >> (v % VALUES_PER_WORD * 8 * VALUE_BYTES);
#pragma unroll
        for (u32 b = 0; b < VALUE_BYTES; b++) to[v * VALUE_BYTES + b] = value >> (8 * b);
    }
}

/// Adjacent spectra of an input frame that go to adjacent places of an output frame.
struct Piece {
    /// Index of the first spectrum within the input frame.
    u32 from;
    /// Index of the first spectrum among the spectra of all heaps of the output frame.
    u32 place;
    u32 count;
};

/// Spectra of a half-warp.
struct Spectra {
    u32 heap;
    /// Index of the first spectrum within the heap.
    u32 in_heap;
    /// Index of the piece's first spectrum relative to `in_heap`; may be negative.
    i32 before;
    /// Range of the spectra that belong to the piece.
    i32 begin, end;

    __device__ Spectra(u32 tile, u32 half, const Piece &piece)
        : heap(tile / TILES_PER_HEAP),
          in_heap(tile % TILES_PER_HEAP * TILE_SPECTRA + half * THREAD_SPECTRA) {
        const i32 heap_left = static_cast<i32>(SPECTRA_PER_HEAP) - static_cast<i32>(in_heap);
        before = static_cast<i32>(piece.place) - static_cast<i32>(heap * SPECTRA_PER_HEAP + in_heap);
        begin = max(before, 0);
        end = min(min(before + static_cast<i32>(piece.count), heap_left),
                  static_cast<i32>(THREAD_SPECTRA));
    }
};

/// Input of the values: see `postproc`.
struct Input {
    const c32 *spectra;
    const Row *rows;
    const c32 *gains;
    u32 per_pol;
};

/// Computes the values of some channels, 16 bytes of each, and counts the clamped ones of each polarisation.
__device__ __forceinline__ void make_values(const Input &input, const Piece &piece, const Place &at,
                                            const Spectra &spectra, u32 first_pol,
                                            u32 (&words)[AT_ONCE][4], u32 (&clamped)[MIXED_POLS]) {
    const float infinity = __uint_as_float(0x7f800000);
#pragma unroll 1
    for (u32 word = 0; word < 4; word++) {
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            words[i][0] = words[i][1];
            words[i][1] = words[i][2];
            words[i][2] = words[i][3];
            words[i][3] = 0;
        }
#pragma unroll
        for (u32 v = 0; v < VALUES_PER_WORD; v++) {
            const u32 mixed_pol = v % MIXED_POLS, pol = first_pol + mixed_pol;
            const i32 spectrum = (word * VALUES_PER_WORD + v) / MIXED_POLS;
            const bool is_inside = spectra.begin <= spectrum && spectrum < spectra.end;
            // Values outside are not stored; they are computed from the nearest existing spectrum.
            const i32 known = min(max(spectrum, spectra.begin), spectra.end - 1);
            const u64 row_index =
                static_cast<u64>(pol) * input.per_pol + piece.from + (known - spectra.before);
            const Row row = input.rows[row_index];
            c32 x[AT_ONCE], slopes[AT_ONCE];
            at.load(input.spectra + row_index * PITCH + (PITCH - CHANNELS) / 2, x);
            at.slopes(row.turn, slopes);
            // Values that are not stored are not counted.
            const float limit = is_inside ? largest(BITS) : infinity;
            const float mirrored_limit = at.is_mirrored() ? limit : infinity;
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                const u32 k = at.channel(i);
                c32 factor = row.turn.centre * slopes[i];
                // The mirror of channel 0 would be channel N, which is not stored and has no gain.
                const u32 gain = pol * CHANNELS + min(k, CHANNELS - 1u);
                if (GAINS) factor = factor * __ldg(input.gains + gain);
                c32 z = x[i] * factor;
                if (DITHER) z = fma(x[i], factor, uniform_pair(row.dither_key, k));
                clamped[mixed_pol] += is_clamped(z, UNZIP == 1 || i < UNZIP ? limit : mirrored_limit);
                // Keeps the bytes so far; the bytes of the value follow.
                if (BITS == 8) {
                    const u32 order[2] = {0x3254, 0x5410};
                    words[i][3] = __byte_perm(words[i][3], quantise8(z), order[v % 2]);
                } else {
                    const u32 order[4] = {0x3214, 0x3240, 0x3410, 0x4210};
                    words[i][3] = __byte_perm(words[i][3], quantise4(z), order[v]);
                }
            }
        }
    }
}

/// Writes 16 bytes of each channel, except values whose spectra do not belong to the piece.
__device__ __forceinline__ void store(u8 *out, const Place &at, const Spectra &spectra,
                                      u32 first_pol, const u32 (&words)[AT_ONCE][4]) {
    const bool is_whole =
        spectra.begin == 0 && spectra.end == THREAD_SPECTRA && ADJACENT_BYTES % 16 == 0;
    u8 *to = out + static_cast<u64>(spectra.heap) * CHANNELS * CHANNEL_BYTES +
             first_pol * ADJACENT_BYTES + spectra.in_heap * MIXED_POLS * VALUE_BYTES;
#pragma unroll
    for (u32 i = 0; i < AT_ONCE; i++) {
        if (UNZIP > 1 && i >= UNZIP && !at.is_mirrored()) continue;
        u8 *of_channel = to + static_cast<u64>(at.channel(i)) * CHANNEL_BYTES;
        if (is_whole) {
            *reinterpret_cast<uint4 *>(of_channel) = {words[i][0], words[i][1], words[i][2],
                                                      words[i][3]};
        } else {
            store_some(of_channel, words[i], spectra.begin, spectra.end - spectra.begin);
        }
    }
}

/// Bits of word `word` of each channel whose values are measured: those of the heap's first spectra, in the piece.
__device__ __forceinline__ u32 measured_bits(const Spectra &spectra, u32 word) {
    constexpr u32 VALUE_BITS = 8 * VALUE_BYTES;
    u32 bits = 0;
#pragma unroll
    for (u32 v = 0; v < VALUES_PER_WORD; v++) {
        const i32 spectrum = (word * VALUES_PER_WORD + v) / MIXED_POLS;
        const bool is_measured = spectra.begin <= spectrum && spectrum < spectra.end &&
                                 static_cast<i32>(spectra.in_heap) + spectrum < MEASURED_SPECTRA;
        bits |= is_measured ? ((1u << VALUE_BITS) - 1) << (v * VALUE_BITS) : 0;
    }
    return bits;
}

/// Adds the squares of the measured values to `squares` [pol] of the heap. All threads of the warp call it, for the
/// heap's first tile.
__device__ __forceinline__ void measure(const Place &at, const Spectra &spectra, const u32 (&words)[AT_ONCE][4],
                                        u64 *squares) {
    static_assert(MEASURED_SPECTRA <= THREAD_SPECTRA, "measured by the threads with the first spectra");
    constexpr u32 MEASURED_WORDS = (MEASURED_SPECTRA * MIXED_POLS + VALUES_PER_WORD - 1) / VALUES_PER_WORD;
    // Values of the first polarisation.
    constexpr u32 FIRST = MIXED_POLS == 1 ? ~0u : VALUE_BYTES == 2 ? 0x0000ffff : 0x00ff00ff;
    u32 sums[MIXED_POLS] = {};
#pragma unroll
    for (u32 word = 0; word < MEASURED_WORDS; word++) {
        const u32 bits = measured_bits(spectra, word);
#pragma unroll
        for (u32 i = 0; i < AT_ONCE; i++) {
            if (UNZIP > 1 && i >= UNZIP && !at.is_mirrored()) continue;
            const u32 values = words[i][word] & bits;
            sums[0] += sum_of_squares<BITS>(values & FIRST);
            if (MIXED_POLS == 2) sums[MIXED_POLS - 1] += sum_of_squares<BITS>(values & ~FIRST);
        }
    }
#pragma unroll
    for (u32 p = 0; p < MIXED_POLS; p++) {
        const u32 sum = __reduce_add_sync(0xffffffff, sums[p]);
        if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(squares + p, static_cast<u64>(sum));
    }
}

/// Computes the values of a piece of an input frame.
///
///   input       [pol][spectrum][channel PITCH], or [pol][spectrum][unzip][channel N/unzip]
///   rows        [pol][spectrum] of the input
///   gains       [pol][channel N], if they differ from channel to channel
///   out         [heap][channel][spectrum][pol] or [heap][channel][pol][spectrum], each value 2 bytes
///               (re, im) or one (re in the high nibble)
///   saturated   [heap][pol]: number of complex values with a clamped part; the kernel adds to it
///   squares     [heap][pol]: sum of squares of the measured values; the kernel adds to it
///   per_pol     spectra of each polarisation of the input
///   from, place, count  the piece
///   first_tile  tile of the piece's first spectrum
///   tiles       consecutive tiles per block
///
/// Grid: (tiles of the piece / `tiles`, PLACES / BLOCK_PLACES, separate polarisations), blocks of THREADS. Blocks
/// that write adjacent memory are adjacent.
extern "C" __global__ void __launch_bounds__(THREADS, (UNZIP <= 2 ? 768 : UNZIP <= 4 ? 512 : 256) / THREADS)
postproc(const c32 *__restrict__ input, const Row *__restrict__ rows,
         const c32 *__restrict__ gains, u8 *__restrict__ out, u64 *__restrict__ saturated,
         u64 *__restrict__ squares, u32 per_pol, u32 from, u32 place, u32 count, u32 first_tile,
         u32 tiles) {
    const u32 lane = threadIdx.x % 32;
    const Place at(blockIdx.y * BLOCK_PLACES + threadIdx.x / 32 * 16 + lane % 16);
    const u32 first_pol = K_MAJOR ? blockIdx.z : 0;
    const Input what = {input, rows, gains, per_pol};
    const Piece piece = {from, place, count};
    for (u32 t = 0; t < tiles; t++) {
        // Tiles beyond the piece have no spectra.
        const u32 tile = first_tile + blockIdx.x * tiles + t;
        const Spectra spectra(tile, lane / 16, piece);
        u32 clamped[MIXED_POLS] = {}, words[AT_ONCE][4] = {};
        if (at.s < PLACES && spectra.begin < spectra.end) {
            make_values(what, piece, at, spectra, first_pol, words, clamped);
            store(out, at, spectra, first_pol, words);
        }
#pragma unroll
        for (u32 p = 0; p < MIXED_POLS; p++) {
            const u32 of_warp = __reduce_add_sync(0xffffffff, clamped[p]);
            if (lane == 0 && of_warp > 0) {
                atomicAdd(saturated + spectra.heap * POLS + first_pol + p,
                          static_cast<u64>(of_warp));
            }
        }
        if (tile % TILES_PER_HEAP == 0) measure(at, spectra, words, squares + spectra.heap * POLS + first_pol);
    }
}
