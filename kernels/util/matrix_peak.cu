// Peak rate of the tensor cores with 8-bit integers: products of operands that stay in registers.
//
// sums: one number for each thread, so that the compiler omits no product.
// Grid: as many blocks of 256 threads as are resident on the GPU. A warp does 2 x 64 x 128 x 32 operations per
// repeat: 64 products of 16 x 8 x 32.

extern "C" __global__ void __launch_bounds__(256) matrix_peak(int *sums, unsigned repeats)
{
    const int PRODUCTS = 64, SUMS = 8;
    unsigned a[4], b[2];
    for (int i = 0; i < 4; i++)
        a[i] = (threadIdx.x * 4 + i) * 2654435761u;
    for (int i = 0; i < 2; i++)
        b[i] = (threadIdx.x * 2 + i + 99) * 2246822519u;
    int sum[SUMS][4] = {};
    for (unsigned repeat = 0; repeat < repeats; repeat++) {
#pragma unroll
        for (int product = 0; product < PRODUCTS; product++) {
            int *d = sum[product % SUMS];
            asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                         "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                         : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        }
    }
    int all = 0;
    for (int i = 0; i < SUMS; i++)
        all += sum[i][0] + sum[i][1] + sum[i][2] + sum[i][3];
    sums[blockIdx.x * blockDim.x + threadIdx.x] = all;
}
