// Transposition of a matrix tile by tile, as a building block for kernels.
//
// A thread block moves one tile: `tile_rows` x `tile_columns` elements of the source, which become `tile_columns` x
// `tile_rows` elements of the destination. The caller's code loads and stores the elements, so that it can process
// them on the way:
//
//     using Tiles = Transpose<u16, Geometry<16, 8, 8, 16, 256>>;
//     __shared__ alignas(16) u8 shared[Tiles::shared_bytes];
//     Tiles::tile(shared, first_row, first_column, rows, columns,
//         [&](u32 row, u32 column, auto &run) { run.load(source + row * pitch + column); },
//         [&](u32 row, u32 column, const auto &run) { run.store(target + row * pitch2 + column); });
//
// Both functions get the coordinates on their own side (a row of the destination is a column of the source) and a run
// of elements that are contiguous in memory there: the number of elements of a memory access, or a single one where
// the matrix ends within the access.
//
// Each thread loads m rows of m elements, where m elements are one memory access, transposes this square in its
// registers, and writes its rows to shared memory. All accesses to shared memory are whole vectors too, and free of
// bank conflicts.
#pragma once
#include "types.cuh"

/// Configuration of a tile. `block` x `block` work items share a tile, each with `vty` rows and `vtx` columns: the
/// tile has block vty rows and block vtx columns. Copies reach the memory bandwidth with rows of 256 bytes on both
/// sides. `vector_bytes` is the size of a memory access, to which every run must be aligned on both sides. The
/// `thread_count` threads of a block take turns as the work items. All numbers are powers of two.
template <int block, int vtx, int vty, int vector_bytes, int thread_count> struct Geometry {
    static constexpr int tile_rows = block * vty;
    static constexpr int tile_columns = block * vtx;
    static constexpr int vector = vector_bytes;
    static constexpr int threads = thread_count;
};

/// Type of a memory access of this size.
template <int bytes> struct AccessOf;
template <> struct AccessOf<1> { using Type = u8; };
template <> struct AccessOf<2> { using Type = u16; };
template <> struct AccessOf<4> { using Type = u32; };
template <> struct AccessOf<8> { using Type = uint2; };
template <> struct AccessOf<16> { using Type = uint4; };

/// n contiguous elements.
template <typename T, int n> union Run {
    static constexpr int length = n;
    using Access = typename AccessOf<n * sizeof(T)>::Type;
    T elements[n];
    Access bits;
    u32 words[(n * sizeof(T) + 3) / 4];

    __device__ __forceinline__ void load(const T *from) { bits = *reinterpret_cast<const Access *>(from); }
    __device__ __forceinline__ void store(T *to) const { *reinterpret_cast<Access *>(to) = bits; }
};

/// Transposes `square`, m runs of m elements of at least 4 bytes, by renaming registers.
template <typename T, int m> __device__ __forceinline__ void transpose_wide(Run<T, m> (&square)[m]) {
    constexpr int word_count = sizeof(T) / 4;
#pragma unroll
    for (int i = 0; i < m; i++)
#pragma unroll
        for (int j = i + 1; j < m; j++)
#pragma unroll
            for (int k = 0; k < word_count; k++) {
                const u32 word = square[i].words[j * word_count + k];
                square[i].words[j * word_count + k] = square[j].words[i * word_count + k];
                square[j].words[i * word_count + k] = word;
            }
}

/// Transposes the 2 x 2 or 4 x 4 elements in word `word` of the runs from `row` on.
template <typename T, int m>
__device__ __forceinline__ void transpose_within_words(Run<T, m> (&square)[m], int row, int word) {
    if constexpr (sizeof(T) == 2) {
        const u32 a = square[row].words[word], b = square[row + 1].words[word];
        square[row].words[word] = __byte_perm(a, b, 0x5410);
        square[row + 1].words[word] = __byte_perm(a, b, 0x7632);
    } else {
        const u32 a = square[row].words[word], b = square[row + 1].words[word];
        const u32 c = square[row + 2].words[word], d = square[row + 3].words[word];
        const u32 ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
        const u32 cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
        square[row].words[word] = __byte_perm(ab_low, cd_low, 0x5410);
        square[row + 1].words[word] = __byte_perm(ab_low, cd_low, 0x7632);
        square[row + 2].words[word] = __byte_perm(ab_high, cd_high, 0x5410);
        square[row + 3].words[word] = __byte_perm(ab_high, cd_high, 0x7632);
    }
}

/// Transposes `square`, m runs of m elements of 1 or 2 bytes: first within words, then words.
template <typename T, int m> __device__ __forceinline__ void transpose_narrow(Run<T, m> (&square)[m]) {
    constexpr int per_word = 4 / sizeof(T);
    if constexpr (m < per_word) {
        // Two bytes of two rows.
        const u32 a = square[0].bits, b = square[1].bits;
        square[0].bits = (u16)__byte_perm(a, b, 0x0040);
        square[1].bits = (u16)__byte_perm(a, b, 0x0051);
    } else {
        constexpr int word_count = m / per_word;
#pragma unroll
        for (int row = 0; row < m; row += per_word)
#pragma unroll
            for (int word = 0; word < word_count; word++) transpose_within_words(square, row, word);
#pragma unroll
        for (int i = 0; i < word_count; i++)
#pragma unroll
            for (int j = i + 1; j < word_count; j++)
#pragma unroll
                for (int k = 0; k < per_word; k++) {
                    const u32 word = square[i * per_word + k].words[j];
                    square[i * per_word + k].words[j] = square[j * per_word + k].words[i];
                    square[j * per_word + k].words[i] = word;
                }
    }
}

template <typename T, int m> __device__ __forceinline__ void transpose_square(Run<T, m> (&square)[m]) {
    if constexpr (m == 1) {
    } else if constexpr (sizeof(T) >= 4) {
        transpose_wide(square);
    } else {
        transpose_narrow(square);
    }
}

/// Transposition of elements `T` (1, 2, 4, 8 or 16 bytes) in tiles of configuration `G`.
template <typename T, typename G> struct Transpose {
    /// Elements per whole run, which is also the edge of the squares.
    static constexpr int m = G::vector / (int)sizeof(T);
    static_assert(m >= 1, "a vector must hold an element");
    /// Squares across the tile, and down.
    static constexpr int wide = G::tile_columns / m;
    static constexpr int tall = G::tile_rows / m;
    static_assert(wide >= 1 && tall >= 1, "a vector is wider than the tile");
    /// Squares per thread.
    static constexpr int squares_per_thread = wide * tall / G::threads;
    static_assert(squares_per_thread * G::threads == wide * tall,
                  "the threads must divide the tile's squares");
    /// Element of shared memory: a run with exactly its own size.
    using Stored = typename Run<T, m>::Access;
    /// Size of the shared memory, which must be aligned like the vectors.
    static constexpr int shared_bytes = G::tile_rows * G::tile_columns * sizeof(T);

    /// Moves the tile from (`first_row`, `first_column`) on, which are multiples of the tile's size, of a matrix of
    /// `rows` x `columns`. All threads must call it. Before the next use of `shared`, the caller must synchronise
    /// the threads.
    template <typename Load, typename Store>
    static __device__ __forceinline__ void tile(void *shared, u32 first_row, u32 first_column,
                                                u32 rows, u32 columns, Load load, Store store) {
        auto *runs = static_cast<Stored *>(shared);
        // The first line compiles to nothing if the sizes are known to the compiler.
        const bool all_whole = rows % G::tile_rows == 0 && columns % G::tile_columns == 0;
        const bool is_whole = all_whole || (first_row + G::tile_rows <= rows &&
                                            first_column + G::tile_columns <= columns);
        if (is_whole) {
            gather<true>(runs, first_row, first_column, rows, columns, load);
            __syncthreads();
            scatter<true>(runs, first_row, first_column, rows, columns, store);
        } else {
            gather<false>(runs, first_row, first_column, rows, columns, load);
            __syncthreads();
            scatter<false>(runs, first_row, first_column, rows, columns, store);
        }
    }

  private:
    /// Place in shared memory of run `down` of column `column` of the tile. The runs of a column are adjacent. Their
    /// order rotates with the squares across, so that both threads that write adjacent columns and threads that read
    /// one column use different banks.
    static __device__ __forceinline__ int place(int column, int down) {
        return column * tall + (down ^ (column / m & (tall - 1)));
    }

    template <bool whole, typename Load>
    static __device__ __forceinline__ void gather(Stored *runs, u32 first_row, u32 first_column,
                                                  u32 rows, u32 columns, Load load) {
        Run<T, m> squares[squares_per_thread][m];
#pragma unroll
        for (int k = 0; k < squares_per_thread; k++) {
            const int square = threadIdx.x + k * G::threads;
            const u32 column = first_column + square % wide * m;
#pragma unroll
            for (int i = 0; i < m; i++) {
                const u32 row = first_row + square / wide * m + i;
                if (whole || (row < rows && column + m <= columns)) {
                    load(row, column, squares[k][i]);
                } else {
#pragma unroll
                    for (int j = 0; j < m; j++) {
                        Run<T, 1> one = {};
                        if (row < rows && column + j < columns) load(row, column + j, one);
                        squares[k][i].elements[j] = one.elements[0];
                    }
                }
            }
        }
#pragma unroll
        for (int k = 0; k < squares_per_thread; k++) {
            const int square = threadIdx.x + k * G::threads;
            transpose_square(squares[k]);
#pragma unroll
            for (int j = 0; j < m; j++)
                runs[place(square % wide * m + j, square / wide)] = squares[k][j].bits;
        }
    }

    template <bool whole, typename Store>
    static __device__ __forceinline__ void scatter(const Stored *runs, u32 first_row, u32 first_column,
                                                   u32 rows, u32 columns, Store store) {
#pragma unroll
        for (int k = 0; k < squares_per_thread * m; k++) {
            const int index = threadIdx.x + k * G::threads;
            const u32 column = first_column + index / tall;
            const u32 row = first_row + index % tall * m;
            Run<T, m> run;
            run.bits = runs[place(index / tall, index % tall)];
            if (whole || (column < columns && row + m <= rows)) {
                store(column, row, run);
            } else if (column < columns) {
#pragma unroll
                for (int i = 0; i < m; i++) {
                    Run<T, 1> one;
                    one.elements[0] = run.elements[i];
                    if (row + i < rows) store(column, row + i, one);
                }
            }
        }
    }
};
