// Rearranges frames that the correlator cannot read directly to rows: separate polarisations, 4-bit numbers as bytes,
// consecutive heaps, and zeros where an antenna lacks a heap.
#include "voltages.cuh"

#ifndef ANTENNAS
#error "ANTENNAS is missing"
#endif
#ifndef CHANNELS
#error "CHANNELS is missing"
#endif
#ifndef SPECTRA
#error "SPECTRA is missing: spectra per heap"
#endif
#ifndef POLS
#error "POLS is missing: polarisations, 1 or 2"
#endif
#ifndef K_MAJOR
#error "K_MAJOR is missing: 1 if polarisation is slower than spectrum in the frame, or with one polarisation"
#endif
#ifndef SAMPLE_BITS
#error "SAMPLE_BITS is missing: bits of real and imaginary part in the frame, 4, 8 or 16"
#endif

static_assert(POLS == 2 || K_MAJOR == 1, "one polarisation is in memory as the K-major layout");

/// Bytes of a complex sample in the frame, and in a row.
constexpr i64 SAMPLE_BYTES = SAMPLE_BITS / 4;
constexpr int ROW_SAMPLE_BYTES = SAMPLE_BITS == 4 ? 2 : SAMPLE_BYTES;
constexpr int STAGE_SAMPLES = STAGE_BYTES / ROW_SAMPLE_BYTES;
/// Words that one thread writes to each of two rows, samples per word, and samples per thread.
constexpr int WORDS = 4;
constexpr int SAMPLES_OF_WORD = 4 / ROW_SAMPLE_BYTES;
constexpr int MOVED = WORDS * SAMPLES_OF_WORD;
/// Pairs of rows: antennas with two polarisations, or two antennas with one.
constexpr int PAIRS = (POLS * ANTENNAS + 1) / 2;
// A thread block moves some stages of some pairs of rows of one channel, with long reads and long writes.
constexpr int PAIRS_OF_BLOCK = 8;
constexpr int THREADS_OF_PAIR = 32;
constexpr int STAGES_OF_BLOCK = MOVED * THREADS_OF_PAIR / STAGE_SAMPLES;
constexpr int BLOCKS_OF_CHANNEL = (PAIRS + PAIRS_OF_BLOCK - 1) / PAIRS_OF_BLOCK;
/// Bytes of one heap, antenna and channel in the frame.
constexpr i64 HEAP_BYTES = POLS * SPECTRA * SAMPLE_BYTES;

/// Samples (re, im) of both rows of a pair.
struct Moved {
    u32 pol[2][WORDS] = {};
};

/// Sign-extends the low nibbles of four bytes.
__device__ __forceinline__ u32 nibbles(u32 bytes) {
    const u32 low = bytes & 0x0f0f0f0f;
    // 8 x 0x1e is the high nibble of a negative number's byte.
    return low | (low & 0x08080808) * 0x1e;
}

/// Samples of one row from `at` on that are contiguous in one heap of a K-major frame.
__device__ __forceinline__ void load_row(u32 (&row)[WORDS], const u8* at) {
    if constexpr (SAMPLE_BITS == 4) {
        const uint2 v = *(const uint2*)at;
        for (int half = 0; half < 2; half++) {
            const u32 bytes = half ? v.y : v.x;
            const u32 re = nibbles(bytes >> 4), im = nibbles(bytes);
            row[2 * half] = __byte_perm(re, im, 0x5140);
            row[2 * half + 1] = __byte_perm(re, im, 0x7362);
        }
    } else {
        *(uint4*)row = *(const uint4*)at;
    }
}

/// Samples of both polarisations from `at` on that are contiguous in one heap.
__device__ __forceinline__ Moved load(const u8* at) {
    Moved m;
    if constexpr (K_MAJOR) {
        for (int pol = 0; pol < 2; pol++) load_row(m.pol[pol], at + pol * SPECTRA * SAMPLE_BYTES);
    } else if constexpr (SAMPLE_BITS == 4) {
        u32 v[4];
        *(uint4*)v = *(const uint4*)at;
        for (int i = 0; i < WORDS; i++) {
            // A spectrum has polarisation 0, then polarisation 1.
            const u32 re = nibbles(v[i] >> 4), im = nibbles(v[i]);
            m.pol[0][i] = __byte_perm(re, im, 0x6240);
            m.pol[1][i] = __byte_perm(re, im, 0x7351);
        }
    } else {
        u32 v[8];
        *(uint4*)v = *(const uint4*)at;
        *(uint4*)(v + 4) = *(const uint4*)(at + 16);
        for (int i = 0; i < WORDS; i++) {
            const u32 first = v[2 * i], second = v[2 * i + 1];
            m.pol[0][i] = SAMPLE_BITS == 16 ? first : __byte_perm(first, second, 0x5410);
            m.pol[1][i] = SAMPLE_BITS == 16 ? second : __byte_perm(first, second, 0x7632);
        }
    }
    return m;
}

/// One sample of one heap in the format of a row, real part in the low bits.
__device__ __forceinline__ u32 load_one(const u8* heap, int pol, int spectrum) {
    const int index = K_MAJOR ? pol * SPECTRA + spectrum : 2 * spectrum + pol;
    if constexpr (SAMPLE_BITS == 4) {
        const u32 byte = heap[index];
        return __byte_perm(nibbles(byte >> 4), nibbles(byte), 0x7740) & 0xffff;
    } else if constexpr (SAMPLE_BITS == 8) {
        return heap[2 * index] | heap[2 * index + 1] << 8;
    } else {
        return *(const u32*)(heap + 4 * index);
    }
}

/// Writes rows for some samples of a frame.
///
/// frame    [heap][antenna][channel][spectrum][pol], or K-major, from the heap of the first sample on
/// valid    [heap][antenna], from the same heap on: 0 where an antenna lacks a heap; may be null
/// rows     [channel][stage][row POLS x antenna + pol][STAGE_SAMPLES][re, im]; zeros follow the last sample, and the last row
///          if their number is odd
/// first    first sample within its heap, at the start of a stage
/// samples  number of samples, across heaps
/// stages   stages per channel of `rows`
///
/// Grid (blocks of pairs of rows x channels, samples / (32 x MOVED)), blocks of 256 threads.
extern "C" __global__ void __launch_bounds__(PAIRS_OF_BLOCK * THREADS_OF_PAIR)
    rows(const u8* __restrict__ frame, const u32* __restrict__ valid, u8* __restrict__ rows,
         i32 first, i32 samples, i32 stages) {
    const i32 channel = blockIdx.x / BLOCKS_OF_CHANNEL;
    const i32 pair =
        blockIdx.x % BLOCKS_OF_CHANNEL * PAIRS_OF_BLOCK + threadIdx.x / THREADS_OF_PAIR;
    const i32 sample =
        blockIdx.y * STAGES_OF_BLOCK * STAGE_SAMPLES + threadIdx.x % THREADS_OF_PAIR * MOVED;
    const i32 stage = sample / STAGE_SAMPLES;
    if (pair >= PAIRS || stage * STAGE_SAMPLES >= samples) return;
    // Antenna of a row of the pair; with one polarisation the last pair may have one antenna.
    auto antenna_of = [&](i32 row) { return POLS == 1 ? 2 * pair + row : pair; };
    auto present = [&](i32 heap, i32 antenna) {
        return antenna < ANTENNAS && (!valid || valid[heap * ANTENNAS + antenna] != 0);
    };
    auto heap_at = [&](i32 heap, i32 antenna) {
        return frame + (((i64)heap * ANTENNAS + antenna) * CHANNELS + channel) * HEAP_BYTES;
    };
    Moved m;
    if constexpr (SPECTRA % MOVED == 0) {
        const i32 heap = (first + sample) / SPECTRA, spectrum = (first + sample) % SPECTRA;
        constexpr int bytes = (K_MAJOR ? 1 : 2) * SAMPLE_BYTES;
        if (sample >= samples) {
            // Zeros.
        } else if constexpr (POLS == 1) {
            for (int row = 0; row < 2; row++) {
                const i32 antenna = antenna_of(row);
                if (present(heap, antenna)) load_row(m.pol[row], heap_at(heap, antenna) + spectrum * bytes);
            }
        } else if (present(heap, pair)) {
            m = load(heap_at(heap, pair) + spectrum * bytes);
        }
    } else {
        for (int i = 0; i < MOVED; i++) {
            const i32 heap = (first + sample + i) / SPECTRA;
            const i32 spectrum = (first + sample + i) % SPECTRA;
            if (sample + i >= samples) continue;
            for (int row = 0; row < 2; row++) {
                const i32 antenna = antenna_of(row);
                if (!present(heap, antenna)) continue;
                const int pol = POLS == 1 ? 0 : row;
                m.pol[row][i / SAMPLES_OF_WORD] |= load_one(heap_at(heap, antenna), pol, spectrum)
                                                   << i % SAMPLES_OF_WORD * 16;
            }
        }
    }
    const i64 row = ((i64)channel * stages + stage) * (2 * PAIRS) + 2 * pair;
    u8* to = rows + row * STAGE_BYTES + sample % STAGE_SAMPLES * ROW_SAMPLE_BYTES;
    for (int pol = 0; pol < 2; pol++) *(uint4*)(to + pol * STAGE_BYTES) = *(uint4*)m.pol[pol];
}
