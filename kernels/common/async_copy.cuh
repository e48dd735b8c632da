// Asynchronous copies between global and shared memory, as PTX. `cp_async` needs compute capability
// 8.0; barriers with transaction counts and tensor copies need 9.0.
#pragma once
#include "types.cuh"

/// Address within shared memory, for PTX instructions.
__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return (u32)__cvta_generic_to_shared(pointer);
}

/// Reads 16 bytes of shared memory.
__device__ __forceinline__ void load_shared(u32 (&words)[4], u32 from) {
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
}

/// Writes 16 bytes of shared memory.
__device__ __forceinline__ void store_shared(u32 to, int4 value) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(value.x), "r"(value.y),
                 "r"(value.z), "r"(value.w)
                 : "memory");
}

/// Copies 4 bytes; without `present` it writes zeros and reads nothing.
__device__ __forceinline__ void cp_async4(u32 to, const void* from, bool present) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(present ? 4 : 0)
                 : "memory");
}

/// Copies 16 bytes and bypasses the L1 cache; without `present` it writes zeros and reads nothing.
__device__ __forceinline__ void cp_async16(u32 to, const void* from, bool present) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(present ? 16 : 0)
                 : "memory");
}

/// Copies 16 bytes and bypasses the L1 cache, with constant offsets that need no instruction.
template <int TO, int FROM>
__device__ __forceinline__ void cp_async16_at(u32 to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0+%2], [%1+%3], 16;" ::"r"(to), "l"(from), "n"(TO),
                 "n"(FROM));
}

/// Ends a group of copies.
__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most `PENDING` groups of this thread's copies are in flight.
template <int PENDING> __device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

#if __CUDA_ARCH__ >= 900

/// A tensor map, as the driver encodes it.
struct __align__(64) TensorMap {
    u64 words[16];
};

/// L2 policies as encoded by `createpolicy`: normal, and evict first.
constexpr u64 L2_NORMAL = 0x1000000000000000;
constexpr u64 L2_EVICT_FIRST = 0x12f0000000000000;

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

/// Makes initialised barriers visible to the tensor memory accelerator.
__device__ __forceinline__ void barrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives, and lets the phase end only after `bytes` bytes were copied.
__device__ __forceinline__ void barrier_arrive_expecting(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/// Waits until the phase of this parity has ended.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile(
        "{\n.reg .pred ended;\n"
        "again%=:\n mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        " @ended bra done%=;\n bra again%=;\n"
        "done%=:\n}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

/// Copies contiguous bytes, a multiple of 16; the barrier counts them.
__device__ __forceinline__ void copy_bulk_in(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

/// Copies the box of a five-dimensional tensor that starts at the coordinates (innermost first);
/// elements outside the tensor become zero. The barrier counts the whole box.
__device__ __forceinline__ void copy_box_in(u32 to, const TensorMap* map, u32 barrier, i32 x0,
                                            i32 x1, i32 x2, i32 x3, i32 x4, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3,%4,%5,%6,%7}], [%2], %8;" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "l"(policy)
        : "memory");
}

/// Adds a box of shared memory to a four-dimensional tensor; elements outside the tensor are ignored.
__device__ __forceinline__ void add_box_out(const TensorMap* map, u32 from, i32 x0, i32 x1, i32 x2,
                                            i32 x3) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group"
        " [%0, {%2,%3,%4,%5}], [%1];" ::"l"(map),
        "r"(from), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
        : "memory");
}

/// Ends a group of box additions.
__device__ __forceinline__ void boxes_out_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until the shared memory of all but `PENDING` groups of this thread has been read.
template <int PENDING> __device__ __forceinline__ void boxes_out_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

/// Waits until all box additions of this thread are complete.
__device__ __forceinline__ void boxes_out_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/// Makes this thread's writes to shared memory visible to the tensor memory accelerator.
__device__ __forceinline__ void shared_to_copy_engine() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
