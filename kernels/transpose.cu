// Any permutation of axes in which the fastest one changes, as transpositions of many matrices.
//
// Parameters: `ELEMENT_BYTES` (1, 2, 4, 8, 16); the tiles' geometry (transpose.cuh) `BLOCK`, `VTX`,
// `VTY`, `VECTOR`, `THREADS`; and lists, in elements, of all axes, each with the fastest axis first:
//
//   ROW_LENGTHS, ROW_STRIDES            axes that are together contiguous in the output; the strides
//                                       are those of the input
//   COLUMN_LENGTHS, COLUMN_STRIDES      axes that are together contiguous in the input; the strides
//                                       are those of the output
//   BATCH_LENGTHS, BATCH_INPUT_STRIDES, BATCH_OUTPUT_STRIDES     the others (1, 0, 0 if there are none)
#if !defined(ELEMENT_BYTES) || !defined(BLOCK) || !defined(VTX) || !defined(VTY) || !defined(VECTOR) || \
    !defined(THREADS)
#error "transpose.cu needs ELEMENT_BYTES, BLOCK, VTX, VTY, VECTOR and THREADS"
#endif
#if !defined(ROW_LENGTHS) || !defined(ROW_STRIDES) || !defined(COLUMN_LENGTHS) || !defined(COLUMN_STRIDES)
#error "transpose.cu needs ROW_LENGTHS, ROW_STRIDES, COLUMN_LENGTHS and COLUMN_STRIDES"
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

constexpr Axes<count(ROW_LENGTHS)> row_axes = {{ROW_LENGTHS}, {ROW_STRIDES}};
constexpr Axes<count(COLUMN_LENGTHS)> column_axes = {{COLUMN_LENGTHS}, {COLUMN_STRIDES}};
constexpr Axes<count(BATCH_LENGTHS)> batch_input = {{BATCH_LENGTHS}, {BATCH_INPUT_STRIDES}};
constexpr Axes<count(BATCH_LENGTHS)> batch_output = {{BATCH_LENGTHS}, {BATCH_OUTPUT_STRIDES}};

constexpr u32 rows = elements(row_axes);
constexpr u32 columns = elements(column_axes);
constexpr u32 row_tiles = (rows + Tiling::tile_rows - 1) / Tiling::tile_rows;
constexpr u32 column_tiles = (columns + Tiling::tile_columns - 1) / Tiling::tile_columns;

/// `input` and `output`: all axes, each in its order; neither is longer than 2^32 elements.
/// Grid: row tiles x column tiles x batch, in one dimension; the row tiles, which follow each other
/// in the output, are the fastest. Block: THREADS. Dynamic shared memory: one tile.
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
        [&](u32 row, u32 column, auto &run) { run.load(input + offset(row_axes, row) + column); },
        [&](u32 row, u32 column, const auto &run) { run.store(output + offset(column_axes, row) + column); });
}
