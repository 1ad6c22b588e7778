// SPDX-License-Identifier: GPL-3.0-or-later
// A warpgroup's building blocks on compute capability 9.0a: asynchronous matrix products whose B
// operand (and A, if not in registers) lies in shared memory, barriers that count arrivals and
// bytes, the tensor copy engine. Names follow the instructions (PTX ISA 9.0).
#pragma once

#include "gpu/cuda/mma.cuh"

namespace granary::gpu::cuda {

// A barrier in shared memory: a phase ends when `count` threads have arrived and the bytes that
// they expect have been written. Phases alternate between parity 0 and 1.
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
// After all barrier_init: other threads and the copy engine see them.
__device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expecting(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
// Arrives when all copy_16 of this thread so far have been done.
__device__ __forceinline__ void barrier_arrive_copied(uint32_t barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
// Until the phase of that parity has ended.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
// Some of a block's warps, by number 1 to 15.
__device__ __forceinline__ void named_barrier(uint32_t number, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
// What this thread has written to shared memory becomes visible to wgmma and the copy engine.
__device__ __forceinline__ void fence_for_async() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The copy engine: contiguous bytes, a multiple of 16, and a box of a tensor map of two dimensions.
// The barrier is told of the bytes.
__device__ __forceinline__ void copy_bulk(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}
__device__ __forceinline__ void copy_box(uint32_t to, const void* map, uint32_t x, uint32_t y,
                                         uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// Registers of the calling warpgroup's threads; the block's sum may not grow.
template <uint32_t kRegisters>
__device__ __forceinline__ void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <uint32_t kRegisters>
__device__ __forceinline__ void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Transposed store of four 8 x 8 matrices of f16: register j's row g, columns 2t, 2t + 1 become
// column g of matrix j; lane 8 j + r gives the address of row r of the stored matrix j.
__device__ __forceinline__ void store_matrices_transposed(uint32_t address,
                                                          const uint32_t (&value)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
        "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3])
        : "memory");
}

// Two matrices, addresses from lanes 0 to 15.
__device__ __forceinline__ void store_matrices_transposed(uint32_t address,
                                                          const uint32_t (&value)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
                 "r"(value[0]), "r"(value[1])
                 : "memory");
}

// Where an operand lies in shared memory, in rows of 128 bytes (64 f16) swizzled as swizzled()
// does, groups of 8 rows aligned to 1,024 bytes. Rows run along the operand's outer dimension and
// columns along the summed one (row groups `outer` = 1,024 bytes apart); or, transposed, rows run
// along the summed dimension and each 64 columns of the outer one are `next` bytes apart.
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t next = 16) {
    constexpr uint64_t kOuter = 1024, kSwizzle128 = 1;
    return (address & 0x3ffff) >> 4 | uint64_t{next >> 4} << 16 | kOuter >> 4 << 32 |
           kSwizzle128 << 62;
}

// Before the first product and whenever registers of one were written by other instructions.
__device__ __forceinline__ void products_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void products_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void products_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving other uses of these registers across.
template <int kCount>
__device__ __forceinline__ void hold(float (&values)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// sum[64, kColumns] (+)= A[64, 16] B[16, kColumns], f16 factors and f32 sums. Warp w of the group
// holds rows 16 w .. 16 w + 15; sum[4 j + 0, 1 | 2, 3] are row g | g + 8 of them, columns
// 8 j + 2t, 2t + 1. A in registers is as in mma_16x8x16.
template <int kColumns>
struct Product;

#define GRANARY_R0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define GRANARY_R1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define GRANARY_R2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define GRANARY_R3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define GRANARY_R4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define GRANARY_R5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define GRANARY_R6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define GRANARY_R7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define GRANARY_R8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define GRANARY_R9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define GRANARY_R10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define GRANARY_R11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define GRANARY_R12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define GRANARY_R13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define GRANARY_R14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define GRANARY_R15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define GRANARY_IO(i)                                                                   \
    "+f"(sum[8 * i]), "+f"(sum[8 * i + 1]), "+f"(sum[8 * i + 2]), "+f"(sum[8 * i + 3]), \
        "+f"(sum[8 * i + 4]), "+f"(sum[8 * i + 5]), "+f"(sum[8 * i + 6]), "+f"(sum[8 * i + 7])

template <>
struct Product<16> {
    // A in registers, B in shared memory.
    __device__ __forceinline__ static void registers(float (&sum)[8], const uint32_t (&a)[4],
                                                     uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {" GRANARY_R0
            "}, {%8, %9, %10, %11}, %12, add, 1, 1, 0;\n}\n"
            : GRANARY_IO(0)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
template <>
struct Product<32> {
    // A in registers, B in shared memory.
    __device__ __forceinline__ static void registers(float (&sum)[16], const uint32_t (&a)[4],
                                                     uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            "}, {%16, %17, %18, %19}, %20, add, 1, 1, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
template <>
struct Product<48> {
    // A in registers, B in shared memory.
    __device__ __forceinline__ static void registers(float (&sum)[24], const uint32_t (&a)[4],
                                                     uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 "}, {%24, %25, %26, %27}, %28, add, 1, 1, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
template <>
struct Product<64> {
    // A in registers, B in shared memory.
    __device__ __forceinline__ static void registers(float (&sum)[32], const uint32_t (&a)[4],
                                                     uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 "}, {%32, %33, %34, %35}, %36, add, 1, 1, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
    // Both in shared memory; sums start at zero where `add` is 0.
    __device__ __forceinline__ static void shared(float (&sum)[32], uint64_t a, uint64_t b,
                                                  uint32_t add) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 "}, %32, %33, add, 1, 1, 0, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3)
            : "l"(a), "l"(b), "r"(add));
    }
};
template <>
struct Product<80> {
    // A in registers, B in shared memory.
    __device__ __forceinline__ static void registers(float (&sum)[40], const uint32_t (&a)[4],
                                                     uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 ", " GRANARY_R4
            "}, {%40, %41, %42, %43}, %44, add, 1, 1, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3), GRANARY_IO(4)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
template <>
struct Product<96> {
    // A in registers, B in shared memory.
    __device__ __forceinline__ static void registers(float (&sum)[48], const uint32_t (&a)[4],
                                                     uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 ", " GRANARY_R4 ", " GRANARY_R5
            "}, {%48, %49, %50, %51}, %52, add, 1, 1, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3), GRANARY_IO(4),
              GRANARY_IO(5)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
template <>
struct Product<112> {
    // A in registers, B in shared memory.
    __device__ __forceinline__ static void registers(float (&sum)[56], const uint32_t (&a)[4],
                                                     uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n112k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 ", " GRANARY_R4 ", " GRANARY_R5 ", " GRANARY_R6
            "}, {%56, %57, %58, %59}, %60, add, 1, 1, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3), GRANARY_IO(4),
              GRANARY_IO(5), GRANARY_IO(6)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
template <>
struct Product<128> {
    // A in registers, B in shared memory.
    __device__ __forceinline__ static void registers(float (&sum)[64], const uint32_t (&a)[4],
                                                     uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 ", " GRANARY_R4 ", " GRANARY_R5 ", " GRANARY_R6
            ", " GRANARY_R7 "}, {%64, %65, %66, %67}, %68, add, 1, 1, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3), GRANARY_IO(4),
              GRANARY_IO(5), GRANARY_IO(6), GRANARY_IO(7)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
    // Both in shared memory; sums start at zero where `add` is 0.
    __device__ __forceinline__ static void shared(float (&sum)[64], uint64_t a, uint64_t b,
                                                  uint32_t add) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 ", " GRANARY_R4 ", " GRANARY_R5 ", " GRANARY_R6
            ", " GRANARY_R7 "}, %64, %65, add, 1, 1, 0, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3), GRANARY_IO(4),
              GRANARY_IO(5), GRANARY_IO(6), GRANARY_IO(7)
            : "l"(a), "l"(b), "r"(add));
    }
    // A in registers, B transposed in shared memory.
    __device__ __forceinline__ static void registers_transposed(float (&sum)[64],
                                                                const uint32_t (&a)[4],
                                                                uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 ", " GRANARY_R4 ", " GRANARY_R5 ", " GRANARY_R6
            ", " GRANARY_R7 "}, {%64, %65, %66, %67}, %68, add, 1, 1, 1;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3), GRANARY_IO(4),
              GRANARY_IO(5), GRANARY_IO(6), GRANARY_IO(7)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};
template <>
struct Product<256> {
    // Both in shared memory; sums start at zero where `add` is 0.
    __device__ __forceinline__ static void shared(float (&sum)[128], uint64_t a, uint64_t b,
                                                  uint32_t add) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 ", " GRANARY_R4 ", " GRANARY_R5 ", " GRANARY_R6
            ", " GRANARY_R7 ", " GRANARY_R8 ", " GRANARY_R9 ", " GRANARY_R10 ", " GRANARY_R11
            ", " GRANARY_R12 ", " GRANARY_R13 ", " GRANARY_R14 ", " GRANARY_R15
            "}, %128, %129, add, 1, 1, 0, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3), GRANARY_IO(4),
              GRANARY_IO(5), GRANARY_IO(6), GRANARY_IO(7), GRANARY_IO(8), GRANARY_IO(9),
              GRANARY_IO(10), GRANARY_IO(11), GRANARY_IO(12), GRANARY_IO(13), GRANARY_IO(14),
              GRANARY_IO(15)
            : "l"(a), "l"(b), "r"(add));
    }
    // A in registers, B in shared memory.
    __device__ __forceinline__ static void registers(float (&sum)[128], const uint32_t (&a)[4],
                                                     uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 ", " GRANARY_R4 ", " GRANARY_R5 ", " GRANARY_R6
            ", " GRANARY_R7 ", " GRANARY_R8 ", " GRANARY_R9 ", " GRANARY_R10 ", " GRANARY_R11
            ", " GRANARY_R12 ", " GRANARY_R13 ", " GRANARY_R14 ", " GRANARY_R15
            "}, {%128, %129, %130, %131}, %132, add, 1, 1, 0;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3), GRANARY_IO(4),
              GRANARY_IO(5), GRANARY_IO(6), GRANARY_IO(7), GRANARY_IO(8), GRANARY_IO(9),
              GRANARY_IO(10), GRANARY_IO(11), GRANARY_IO(12), GRANARY_IO(13), GRANARY_IO(14),
              GRANARY_IO(15)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
    // A in registers, B transposed in shared memory.
    __device__ __forceinline__ static void registers_transposed(float (&sum)[128],
                                                                const uint32_t (&a)[4],
                                                                uint64_t b) {
        asm volatile(
            "{\n.reg .pred add;\nsetp.eq.b32 add, 0, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" GRANARY_R0 ", " GRANARY_R1
            ", " GRANARY_R2 ", " GRANARY_R3 ", " GRANARY_R4 ", " GRANARY_R5 ", " GRANARY_R6
            ", " GRANARY_R7 ", " GRANARY_R8 ", " GRANARY_R9 ", " GRANARY_R10 ", " GRANARY_R11
            ", " GRANARY_R12 ", " GRANARY_R13 ", " GRANARY_R14 ", " GRANARY_R15
            "}, {%128, %129, %130, %131}, %132, add, 1, 1, 1;\n}\n"
            : GRANARY_IO(0), GRANARY_IO(1), GRANARY_IO(2), GRANARY_IO(3), GRANARY_IO(4),
              GRANARY_IO(5), GRANARY_IO(6), GRANARY_IO(7), GRANARY_IO(8), GRANARY_IO(9),
              GRANARY_IO(10), GRANARY_IO(11), GRANARY_IO(12), GRANARY_IO(13), GRANARY_IO(14),
              GRANARY_IO(15)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
    }
};

#undef GRANARY_R0
#undef GRANARY_R1
#undef GRANARY_R2
#undef GRANARY_R3
#undef GRANARY_R4
#undef GRANARY_R5
#undef GRANARY_R6
#undef GRANARY_R7
#undef GRANARY_R8
#undef GRANARY_R9
#undef GRANARY_R10
#undef GRANARY_R11
#undef GRANARY_R12
#undef GRANARY_R13
#undef GRANARY_R14
#undef GRANARY_R15
#undef GRANARY_IO

}  // namespace granary::gpu::cuda
