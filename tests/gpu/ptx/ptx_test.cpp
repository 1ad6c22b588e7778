// SPDX-License-Identifier: GPL-3.0-or-later
// The interpreter of PTX by itself: what kernels compute, and what it finds wrong with them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <numeric>

#include "tests/gpu/ptx/grid.h"

namespace granary::test::ptx {
namespace {

const std::string kHead = ".version 9.0\n.target sm_80\n.address_size 64\n";

// A kernel of one parameter, the address of its output, with some registers of each kind.
std::string kernel(const std::string& body, const std::string& directives = "",
                   const std::string& before = "") {
    return kHead + before + ".visible .entry test(.param .u64 test_param_0)\n" + directives +
           "{\n.reg .pred %p<8>;\n.reg .b16 %h<8>;\n.reg .b32 %r<40>;\n.reg .f32 %f<40>;\n"
           ".reg .b64 %rd<10>;\nld.param.u64 %rd1, [test_param_0];\nmov.u32 %r1, %tid.x;\n"
           "mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n" +
           body + "ret;\n}\n";
}

// What the kernel leaves in `out`, where it may read and write.
template <class T>
std::vector<T> run_with(const std::string& text, std::vector<T> out, uint32_t threads = 32,
                        uint32_t shared_bytes = 0, std::array<uint32_t, 3> grid = {1, 1, 1}) {
    Module module(text);
    Launch launch;
    launch.function = module.kernel("test");
    if (!launch.function) throw Fault("no kernel");
    launch.block = {threads, 1, 1};
    launch.grid = grid;
    launch.shared_bytes = shared_bytes;
    launch.parameters.resize(8);
    T* const data = out.data();
    std::memcpy(launch.parameters.data(), &data, 8);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const FindMemory memory = [&](uintptr_t) {
        return Span{begin, begin + out.size() * sizeof(T)};
    };
    Runner().run(launch, memory);
    return out;
}
std::vector<uint32_t> words(const std::string& text, uint32_t threads = 32,
                            uint32_t shared_bytes = 0) {
    return run_with(text, std::vector<uint32_t>(threads), threads, shared_bytes);
}
std::string fault_of(const std::string& text, uint32_t threads = 32, uint32_t shared_bytes = 0) {
    try {
        words(text, threads, shared_bytes);
    } catch (const Fault& fault) {
        return fault.what();
    }
    return {};
}

#define EXPECT_FAULT(said, ...) \
    EXPECT_NE(fault_of(__VA_ARGS__).find(said), std::string::npos) << fault_of(__VA_ARGS__)

TEST(Ptx, ComputesWithIntegers) {
    const auto of = [](const std::string& operations) {
        return words(kernel(operations + "st.global.u32 [%rd3], %r2;\n"));
    };
    for (uint32_t i = 0; i < 32; ++i) {
        EXPECT_EQ(of("mad.lo.s32 %r2, %r1, -3, 7;\n")[i], 7 - 3 * i);
        EXPECT_EQ(of("shl.b32 %r2, %r1, 40;\n")[i], 0u) << "shifts do not wrap round";
        EXPECT_EQ(of("mov.u32 %r3, 0x80000000;\nshr.s32 %r2, %r3, %r1;\n")[i],
                  static_cast<uint32_t>(INT32_MIN >> i));
        EXPECT_EQ(of("mul.hi.u32 %r2, %r1, 0x80000001;\n")[i],
                  static_cast<uint32_t>(uint64_t{i} * 0x80000001u >> 32));
        EXPECT_EQ(of("bfe.u32 %r2, 0xabcdef12, %r1, 5;\n")[i], 0xabcdef12u >> i & 31);
        EXPECT_EQ(of("bfi.b32 %r2, 0x2a, 0, %r1, 4;\n")[i], 0xau << i);
        EXPECT_EQ(of("lop3.b32 %r2, %r1, 12, 10, 0xea;\n")[i], (i & 12) | 10);
        EXPECT_EQ(of("prmt.b32 %r2, 0x84838281, %r1, 0x4b8f;\n")[i], i << 24 | 0xffff00u)
            << "signs of bytes 3 and 0 of the first, byte 0 of the second";
        EXPECT_EQ(of("shf.r.wrap.b32 %r2, 0x12345678, 0x9abcdef0, %r1;\n")[i],
                  static_cast<uint32_t>(0x9abcdef012345678u >> i));
        EXPECT_EQ(of("dp4a.u32.s32 %r2, 0xff010203, 0xff010203, %r1;\n")[i],
                  static_cast<uint32_t>(-255 + 1 + 4 + 9 + static_cast<int>(i)));
        EXPECT_EQ(of("popc.b32 %r2, %r1;\n")[i], static_cast<uint32_t>(std::popcount(i)));
    }
}

TEST(Ptx, RoundsAsItIsTold) {
    const auto of = [](const std::string& operations) {
        return std::bit_cast<float>(words(
            kernel("mov.f32 %f1, 0f3F800000;\n" + operations + "st.global.f32 [%rd3], %f2;\n"))[5]);
    };
    const std::string tiny = "0f30000000", minus_tiny = "0fB0000000";  // 2^-31
    EXPECT_EQ(of("add.f32 %f2, %f1, " + minus_tiny + ";\n"), 1.0f);
    EXPECT_EQ(of("add.rz.f32 %f2, %f1, " + minus_tiny + ";\n"), std::nextafter(1.0f, 0.0f));
    EXPECT_EQ(of("fma.rm.f32 %f2, %f1, %f1, " + minus_tiny + ";\n"), std::nextafter(1.0f, 0.0f));
    EXPECT_EQ(of("fma.rp.f32 %f2, %f1, %f1, " + tiny + ";\n"), std::nextafter(1.0f, 2.0f));
    EXPECT_EQ(of("fma.rn.f32 %f2, %f1, %f1, " + tiny + ";\n"), 1.0f);
    EXPECT_EQ(of("mov.f32 %f3, 0f7FC00000;\nmin.f32 %f2, %f3, %f1;\n"), 1.0f) << "of NaN and 1";
    EXPECT_EQ(of("mov.f32 %f3, 0f40200000;\ncvt.rni.f32.f32 %f2, %f3;\n"), 2.0f) << "of 2.5";
    EXPECT_EQ(of("mov.f32 %f3, 0f7FC00000;\ncvt.rni.s32.f32 %r2, %f3;\n"
                 "cvt.rn.f32.s32 %f2, %r2;\n"),
              0.0f)
        << "of NaN";
    EXPECT_EQ(words(kernel("mov.f32 %f3, 0f4F800000;\ncvt.rzi.s32.f32 %r2, %f3;\n"
                           "st.global.u32 [%rd3], %r2;\n"))[0],
              static_cast<uint32_t>(INT32_MAX))
        << "of 2^32";
    // 1 + 2^-11 + 2^-30 lies just above the middle between two halves.
    EXPECT_EQ(of("mov.b16 %h1, 0x3c01;\nmov.b16 %h2, 0x3c00;\nmov.b16 %h3, 0x0001;\n"
                 "{fma.rn.f16 %h4, %h1, %h2, %h3;\n}\ncvt.f32.f16 %f2, %h4;\n"),
              1.0f + 0x1p-10f);
}

TEST(Ptx, LanesThatPartMeetAgain) {
    // Odd lanes count to their number, even ones do not; then all of them add up what they have.
    const auto out =
        words(kernel("mov.u32 %r2, 0;\nand.b32 %r3, %r1, 1;\nsetp.eq.s32 %p1, %r3, 0;\n"
                     "@%p1 bra $even;\n$again:\nadd.s32 %r2, %r2, 1;\n"
                     "setp.lt.s32 %p2, %r2, %r1;\n@%p2 bra $again;\n$even:\n"
                     "shfl.sync.bfly.b32 %r4|%p3, %r2, 1, 31, -1;\n"
                     "st.global.u32 [%rd3], %r4;\n"));
    for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? i + 1 : 0);
}

TEST(Ptx, LanesThatWaitForNobodyAreFound) {
    EXPECT_FAULT("lanes wait for lanes that never come",
                 kernel("setp.lt.u32 %p1, %r1, 16;\n@%p1 bra $other;\n"
                        "bar.warp.sync -1;\nret;\n$other:\nshfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\n"
                        "bra $other;\n"));
    EXPECT_FAULT("a lane that is not there",
                 kernel("setp.lt.u32 %p1, %r1, 16;\n@%p1 bra $end;\n"
                        "shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffff0000;\n$end:\n"));
    EXPECT_FAULT("warps wait for warps that never come",
                 kernel("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $other;\nbar.sync 1, 64;\nret;\n"
                        "$other:\nbar.sync 2, 64;\n"),
                 64);
    // Those that have ended are not waited for.
    EXPECT_EQ(
        fault_of(kernel("setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $end;\nbar.sync 0;\n$end:\n"), 64),
        "");
}

TEST(Ptx, WarpsMeetAtBarriers) {
    // Each thread reads what its mirror image has written.
    const std::string body =
        "shl.b32 %r2, %r1, 2;\nmov.u32 %r3, memory;\nadd.s32 %r4, %r3, %r2;\n"
        "st.shared.u32 [%r4], %r1;\nbar.sync 0;\nmov.u32 %r5, 127;\nsub.s32 %r5, %r5, %r1;\n"
        "shl.b32 %r6, %r5, 2;\nadd.s32 %r7, %r3, %r6;\nld.shared.u32 %r8, [%r7];\n"
        "setp.lt.u32 %p1, %r1, 70;\nbar.red.popc.u32 %r9, 0, %p1;\nadd.s32 %r8, %r8, %r9;\n"
        "st.global.u32 [%rd3], %r8;\n";
    const auto out =
        words(kernel(body, "", ".extern .shared .align 16 .b8 memory[];\n"), 128, 4 * 128);
    for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], 127 - i + 70);
    EXPECT_FAULT("4 bytes at 508 of shared memory",
                 kernel(body, "", ".extern .shared .align 16 .b8 memory[];\n"), 128, 4 * 127);
}

TEST(Ptx, EveryAddressIsLookedAt) {
    EXPECT_FAULT("which is no memory that a kernel may use",
                 kernel("st.global.u32 [%rd3+4], %r1;\n"));
    EXPECT_FAULT("not aligned", kernel("st.global.u32 [%rd3+2], %r1;\n"));
    EXPECT_FAULT("beyond the kernel's parameters", kernel("ld.param.u32 %r2, [test_param_0+8];\n"));
    EXPECT_FAULT("the kernel gave up", kernel("trap;\n"));
    EXPECT_FAULT("64 threads, where it takes 32", kernel("", ".maxntid 32, 1, 1\n"), 64);
    EXPECT_FAULT("instruction 4 st.global.u32", kernel("st.global.u32 [%rd3+4], %r1;\n"));
}

// Thread t writes word t and reads word t ^ mask, with `between` between them.
std::string exchange(const std::string& mask, const std::string& between,
                     const std::string& after = "") {
    return kernel(
        ".shared .align 16 .b8 room[256];\nshl.b32 %r2, %r1, 2;\nmov.u32 %r3, room;\n"
        "add.s32 %r4, %r3, %r2;\nst.shared.u32 [%r4], %r1;\n" +
        between + "xor.b32 %r5, %r1, " + mask +
        ";\nshl.b32 %r5, %r5, 2;\nadd.s32 %r6, %r3, %r5;\nld.shared.u32 %r7, [%r6];\n" + after +
        "st.global.u32 [%rd3], %r7;\n");
}

TEST(Ptx, AccessesThatNothingPutsInOrderAreFound) {
    EXPECT_FAULT("warp 1 writes at 128 of shared memory, and warp 0 has read it",
                 exchange("32", ""), 64);
    EXPECT_FAULT("nothing puts the two in order", exchange("32", "bar.warp.sync -1;\n"), 64);
    EXPECT_EQ(fault_of(exchange("32", "bar.sync 0;\n"), 64), "");
    EXPECT_FAULT("lane 0 reads what lane 1 has written at 4", exchange("1", ""));
    EXPECT_EQ(fault_of(exchange("1", "bar.warp.sync -1;\n")), "");
    EXPECT_EQ(fault_of(exchange("0", "")), "") << "its own";
    // What was read must not be written yet.
    const std::string write_back = "st.shared.u32 [%r4], %r7;\n";
    EXPECT_FAULT("warp 0 reads what lies at 128 of shared memory, and warp 1 has written it",
                 exchange("32", "bar.sync 0;\n", write_back), 64);
    EXPECT_EQ(fault_of(exchange("32", "bar.sync 0;\n", "bar.sync 0;\n" + write_back), 64), "");
    // One warp signals, the other waits: that way round only.
    const auto one_way = [](const std::string& writer, const std::string& reader) {
        return kernel(
            ".shared .align 16 .b8 room[256];\nmov.u32 %r3, room;\n"
            "setp.lt.u32 %p1, %r1, 32;\n@%p1 bra $writer;\n" +
            reader +
            "ld.shared.u32 %r7, [%r3];\nst.global.u32 [%rd3], %r7;\nret;\n"
            "$writer:\nst.shared.u32 [%r3], 7;\n" +
            writer);
    };
    EXPECT_EQ(fault_of(one_way("bar.arrive 1, 64;\n", "bar.sync 1, 64;\n"), 64), "");
    EXPECT_FAULT("reads what lies at", one_way("bar.sync 1, 64;\n", "bar.arrive 1, 64;\n"), 64);
}

// Thread 0 makes a barrier, the first warp arrives there, the second waits.
TEST(Ptx, BarriersInMemoryCountArrivals) {
    const auto both = [](const std::string& count, const std::string& arrival,
                         const std::string& parity) {
        return kernel(
            ".shared .align 16 .b8 room[16];\nmov.u32 %r3, room;\n"
            "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra $made;\n"
            "mbarrier.init.shared.b64 [%r3], " +
            count +
            ";\n$made:\nbar.sync 0;\nadd.s32 %r4, %r3, 8;\n"
            "setp.gt.u32 %p2, %r1, 31;\n@%p2 bra $waits;\nst.shared.u32 [%r4], 5;\n" +
            arrival +
            "ret;\n$waits:\n{\n.reg .pred done;\nagain:\n"
            "mbarrier.try_wait.parity.shared.b64 done, [%r3], " +
            parity +
            ";\n@!done bra again;\n}\nld.shared.u32 %r5, [%r4];\n"
            "st.global.u32 [%rd3], %r5;\n");
    };
    const std::string arrive = "mbarrier.arrive.shared.b64 _, [%r3];\n";
    EXPECT_EQ(words(both("32", arrive, "0"), 64)[40], 5u);
    EXPECT_FAULT("writes at 8 of shared memory, and warp 1 has read it", both("32", arrive, "1"),
                 64);  // the phase before
    EXPECT_FAULT("that nobody completes", both("33", arrive, "0"), 64);
    // The next phase ends too, so that the first one's parity has come again.
    EXPECT_FAULT("that nobody completes", both("32", arrive + arrive, "0"), 64);
}

// Kernels of one queue, all but the first of which begin early. What the last one ends in.
std::string fault_of_chain(const std::vector<std::string>& bodies) {
    std::vector<uint32_t> out(32);
    uint32_t* const data = out.data();
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const FindMemory memory = [&](uintptr_t) { return Span{begin, begin + 4 * out.size()}; };
    std::vector<std::unique_ptr<Module>> modules;
    Runner runner;
    for (size_t i = 0; i < bodies.size(); ++i) {
        modules.push_back(std::make_unique<Module>(kernel(bodies[i])));
        Launch launch;
        launch.function = modules.back()->kernel("test");
        launch.block = {32, 1, 1};
        launch.early = i > 0;
        launch.parameters.resize(8);
        std::memcpy(launch.parameters.data(), &data, 8);
        try {
            runner.run(launch, memory);
        } catch (const Fault& fault) {
            return std::to_string(i) + ": " + fault.what();
        }
    }
    return {};
}

TEST(Ptx, KernelsThatBeginEarlyWaitForWhatTheyTouch) {
    const std::string wait = "griddepcontrol.wait;\n", next = "griddepcontrol.launch_dependents;\n",
                      write = "st.global.u32 [%rd3], 1;\n", read = "ld.global.u32 %r2, [%rd3];\n";
    const auto says = [](const std::vector<std::string>& bodies, const std::string& said) {
        const std::string fault = fault_of_chain(bodies);
        EXPECT_NE(fault.find(said), std::string::npos) << fault;
    };
    EXPECT_EQ(fault_of_chain({write, wait + read}), "");
    EXPECT_EQ(fault_of_chain({write, "bar.sync 0;\n" + wait + "bar.sync 0;\n" + read}), "");
    says({write, read + wait}, "1: test");
    says({write, read + wait}, "reads before it waits for the kernels ahead what test writes");
    says({"", write + wait}, "writes before it waits");
    says({"", read}, "it ends without having waited");
    // The first has ended where the second let the third begin behind its wait, and only there.
    EXPECT_EQ(fault_of_chain({write, wait + next, read + wait}), "");
    says({write, next + wait, read + wait}, "2: test");
}

// A copy that is not waited for has not been made.
TEST(Ptx, CopiesAreAsLateAsTheyMayBe) {
    const auto copy = [](const std::string& wait) {
        return kernel(
            ".shared .align 16 .b8 room[512];\nshl.b32 %r2, %r1, 4;\nmov.u32 %r3, room;\n"
            "add.s32 %r4, %r3, %r2;\n"
            "mul.wide.u32 %rd4, %r1, 16;\nadd.s64 %rd5, %rd1, %rd4;\n"
            "cp.async.cg.shared.global [%r4], [%rd5], 16;\ncp.async.commit_group;\n" +
            wait + "ld.shared.u32 %r5, [%r4+4];\nst.global.u32 [%rd5], %r5;\n");
    };
    std::vector<uint32_t> given(32 * 4);
    std::iota(given.begin(), given.end(), 1000u);
    const auto waited = run_with(copy("cp.async.wait_group 0;\n"), given);
    const auto hasty = run_with(copy("cp.async.wait_group 1;\n"), given);
    for (uint32_t i = 0; i < 32; ++i) {
        EXPECT_EQ(waited[4 * i], 1001 + 4 * i);
        EXPECT_EQ(hasty[4 * i], ~0u);
    }
}

TEST(Ptx, FunctionsAreCalled) {
    const std::string twice =
        ".func (.param .b32 func_retval0) twice(.param .b32 twice_param_0)\n{\n.reg .b32 %r<4>;\n"
        ".reg .pred %p<2>;\nld.param.u32 %r1, [twice_param_0];\nsetp.gt.u32 %p1, %r1, 9;\n"
        "@%p1 bra $L1;\nadd.s32 %r2, %r1, %r1;\nst.param.b32 [func_retval0+0], %r2;\nret;\n$L1:\n"
        "st.param.b32 [func_retval0+0], 99;\nret;\n}\n";
    const std::string call =
        "{\n.param .b32 param0;\nst.param.b32 [param0+0], %r1;\n.param .b32 retval0;\n"
        "call.uni (retval0), twice, (param0);\nld.param.b32 %r1, [retval0+0];\n}\n";
    const auto out = words(kernel(call + call + "st.global.u32 [%rd3], %r1;\n", "", twice));
    for (uint32_t i = 0; i < 32; ++i)
        EXPECT_EQ(out[i], i > 9 ? 99u : 2 * i > 9 ? 99u : 4 * i) << "lanes part inside";
}

TEST(Ptx, MultipliesMatrices) {
    // A[16, 16] is 1 in column 3, so that each row of the sums gets row 3 of B[16, 8].
    const std::string body =
        "and.b32 %r2, %r1, 3;\nshr.u32 %r3, %r1, 2;\nsetp.eq.u32 %p1, %r2, 1;\n"
        "selp.b32 %r10, 0x3c000000, 0, %p1;\nmov.u32 %r11, %r10;\nmov.u32 %r12, 0;\n"
        "mov.u32 %r13, 0;\n"
        // B[k, n] = 16 k + n, of which a lane holds k = 2 t, 2 t + 1 (+ 8), n = g.
        "shl.b32 %r4, %r2, 5;\nadd.s32 %r4, %r4, %r3;\n"
        "cvt.rn.f32.u32 %f10, %r4;\nadd.s32 %r5, %r4, 16;\ncvt.rn.f32.u32 %f11, %r5;\n"
        "{ cvt.rn.f16x2.f32 %r14, %f11, %f10; }\n"
        "add.s32 %r6, %r4, 128;\ncvt.rn.f32.u32 %f12, %r6;\nadd.s32 %r7, %r4, 144;\n"
        "cvt.rn.f32.u32 %f13, %r7;\n{ cvt.rn.f16x2.f32 %r15, %f13, %f12; }\n"
        "mov.f32 %f1, 0f3F000000;\nmov.f32 %f2, %f1;\nmov.f32 %f3, %f1;\nmov.f32 %f4, %f1;\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, "
        "{%r10, %r11, %r12, %r13}, {%r14, %r15}, {%f1, %f2, %f3, %f4};\n"
        "st.global.f32 [%rd3], %f2;\n";
    const auto out = words(kernel(body));
    for (uint32_t lane = 0; lane < 32; ++lane)
        EXPECT_EQ(std::bit_cast<float>(out[lane]),
                  0.5f + 16 * 3 + static_cast<float>(lane % 4 * 2 + 1));
}

TEST(Ptx, WhatIsNotKnownIsSaid) {
    EXPECT_FAULT("mul.wide.s8: ", kernel("mul.wide.s8 %r2, %r1, 3;\n"));
    EXPECT_FAULT("frobnicate.u32: not known", kernel("frobnicate.u32 %r2, %r1;\n"));
    EXPECT_FAULT("no such name: %x5", kernel("mov.u32 %r2, %x5;\n"));
    EXPECT_FAULT("no register: %r40", kernel("mov.u32 %r40, 1;\n"));
    EXPECT_FAULT("no label: $nowhere", kernel("bra $nowhere;\n"));
}

}  // namespace
}  // namespace granary::test::ptx
