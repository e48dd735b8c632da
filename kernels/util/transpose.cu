// Any permutation of axes in which the fastest one changes, as a batch of matrix transpositions.
//
// Macros: `ELEMENT_BYTES` (1, 2, 4, 8, 16); the configuration of the tiles (transpose.cuh) `BLOCK`, `VTX`, `VTY`,
// `VECTOR`, `THREADS`; and lists of axes, in elements, each with the fastest axis first:
//
//   ROW_INPUT_LENGTHS, ROW_INPUT_STRIDES          the rows of the matrices in the input
//   ROW_OUTPUT_LENGTHS, ROW_OUTPUT_STRIDES        and in the output, where they are contiguous, or in runs that
//                                                 are multiples of a vector
//   COLUMN_INPUT_LENGTHS, COLUMN_INPUT_STRIDES    the columns in the input, where they are contiguous, or in such
//   runs,
//   COLUMN_OUTPUT_LENGTHS, COLUMN_OUTPUT_STRIDES  and in the output
//   BATCH_LENGTHS, BATCH_INPUT_STRIDES, BATCH_OUTPUT_STRIDES    the other axes (1, 0, 0 if there are none)
#if !defined(ELEMENT_BYTES) || !defined(BLOCK) || !defined(VTX) || !defined(VTY) || !defined(VECTOR) || \
    !defined(THREADS)
#error "transpose.cu needs ELEMENT_BYTES, BLOCK, VTX, VTY, VECTOR and THREADS"
#endif
#if !defined(ROW_INPUT_LENGTHS) || !defined(ROW_INPUT_STRIDES) || !defined(ROW_OUTPUT_LENGTHS) || \
    !defined(ROW_OUTPUT_STRIDES)
#error "transpose.cu needs ROW_INPUT_LENGTHS, ROW_INPUT_STRIDES, ROW_OUTPUT_LENGTHS and ROW_OUTPUT_STRIDES"
#endif
#if !defined(COLUMN_INPUT_LENGTHS) || !defined(COLUMN_INPUT_STRIDES) || \
    !defined(COLUMN_OUTPUT_LENGTHS) || !defined(COLUMN_OUTPUT_STRIDES)
#error "transpose.cu needs COLUMN_INPUT_... and COLUMN_OUTPUT_LENGTHS and _STRIDES"
#endif
#if !defined(BATCH_LENGTHS) || !defined(BATCH_INPUT_STRIDES) || !defined(BATCH_OUTPUT_STRIDES)
#error "transpose.cu needs BATCH_LENGTHS, BATCH_INPUT_STRIDES and BATCH_OUTPUT_STRIDES"
#endif

#include "axes.cuh"
#include "transpose.cuh"

using Element = typename AccessOf<ELEMENT_BYTES>::Type;
using Tiling = Geometry<BLOCK, VTX, VTY, VECTOR, THREADS>;
using Tiles = Transpose<Element, Tiling>;

template <typename... Numbers> constexpr int count(Numbers...) { return sizeof...(Numbers); }

constexpr Axes<count(ROW_INPUT_LENGTHS)> row_input = {{ROW_INPUT_LENGTHS}, {ROW_INPUT_STRIDES}};
constexpr Axes<count(ROW_OUTPUT_LENGTHS)> row_output = {{ROW_OUTPUT_LENGTHS}, {ROW_OUTPUT_STRIDES}};
constexpr Axes<count(COLUMN_INPUT_LENGTHS)> column_input = {{COLUMN_INPUT_LENGTHS}, {COLUMN_INPUT_STRIDES}};
constexpr Axes<count(COLUMN_OUTPUT_LENGTHS)> column_output = {{COLUMN_OUTPUT_LENGTHS},
                                                              {COLUMN_OUTPUT_STRIDES}};
constexpr Axes<count(BATCH_LENGTHS)> batch_input = {{BATCH_LENGTHS}, {BATCH_INPUT_STRIDES}};
constexpr Axes<count(BATCH_LENGTHS)> batch_output = {{BATCH_LENGTHS}, {BATCH_OUTPUT_STRIDES}};

constexpr u32 rows = elements(row_input);
constexpr u32 columns = elements(column_input);
constexpr u32 row_tiles = (rows + Tiling::tile_rows - 1) / Tiling::tile_rows;
constexpr u32 column_tiles = (columns + Tiling::tile_columns - 1) / Tiling::tile_columns;

/// `input` and `output`: all axes, each in its own order; neither is longer than 2^32 elements.
/// Grid: row tiles x column tiles x batch, in one dimension; the row tiles, which are adjacent in the output, are the
/// fastest. Block: THREADS. Dynamic shared memory: one tile.
extern "C" __global__ void __launch_bounds__(THREADS)
    transpose(const Element *__restrict__ input, Element *__restrict__ output) {
    extern __shared__ uint4 shared[];
    const u32 row_tile = blockIdx.x % row_tiles;
    const u32 column_tile = blockIdx.x / row_tiles % column_tiles;
    const u32 batch = blockIdx.x / row_tiles / column_tiles;
    input += offset(batch_input, batch);
    output += offset(batch_output, batch);
    Tiles::tile(
        shared, row_tile * Tiling::tile_rows, column_tile * Tiling::tile_columns, rows, columns,
        [&](u32 row, u32 column, auto &run) {
            run.load(input + offset(row_input, row) + offset(column_input, column));
        },
        [&](u32 row, u32 column, const auto &run) {
            run.store(output + offset(column_output, row) + offset(row_output, column));
        });
}
