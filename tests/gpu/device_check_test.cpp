// SPDX-License-Identifier: GPL-3.0-or-later
// The self-check of devices, on the host and on a GPU whose driver is a double of the tests.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>

#include "gpu/check/checks.h"
#include "gpu/cuda/device.h"

namespace granary::gpu {
namespace {

using check::Outcome;

size_t count(const std::vector<Outcome>& outcomes, Outcome::Verdict verdict) {
    size_t found = 0;
    for (const Outcome& outcome : outcomes) found += outcome.verdict == verdict;
    return found;
}
std::string failures(const std::vector<Outcome>& outcomes) {
    std::string text;
    for (const Outcome& outcome : outcomes)
        if (outcome.verdict == Outcome::Verdict::failed)
            text += outcome.name + ": " + outcome.detail + "\n";
    return text;
}

TEST(DeviceCheck, HoldsOnTheHost) {
    for (const size_t granule : {size_t{4096}, size_t{64} << 10, size_t{2} << 20}) {
        const auto host = check::host_subject(32 * granule, granule);
        const auto outcomes = check::run_checks(*host, {32, 4});
        EXPECT_EQ(failures(outcomes), "");
        EXPECT_EQ(count(outcomes, Outcome::Verdict::held), 8u);
        // The host has no graphs, and no driver that could fail.
        EXPECT_EQ(count(outcomes, Outcome::Verdict::not_applicable), 4u);
    }
}

std::shared_ptr<cuda::Driver> driver() {
    void* const library = dlopen(GRANARY_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr);
    reinterpret_cast<void (*)()>(dlsym(library, "fake_cuda_restart"))();
    auto opened = cuda::Driver::open(cuda::Api::cuda, {GRANARY_FAKE_CUDA});
    EXPECT_TRUE(opened) << opened.error().message();
    dlclose(library);
    return *opened;
}
// The double knows its kernels by name and reads no code.
constexpr std::array<std::byte, 1> kNoCode{};

TEST(DeviceCheck, HoldsOnAGpu) {
    const auto gpu = check::gpu_subject(driver(), 0, 0, kNoCode);
    const auto outcomes = check::run_checks(*gpu, {16, 16});
    EXPECT_EQ(failures(outcomes), "");
    EXPECT_EQ(count(outcomes, Outcome::Verdict::held), outcomes.size());
    EXPECT_EQ(outcomes.size(), 12u);
    for (const Outcome& outcome : outcomes)
        std::printf("%-14s %s\n", outcome.name.c_str(), outcome.detail.c_str());
}

TEST(DeviceCheck, FindsTheFaultsOfADriver) {
    void* const library = dlopen(GRANARY_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr);
    auto* const fault = static_cast<int*>(dlsym(library, "fake_cuda_fault"));
    ASSERT_NE(fault, nullptr);
    const auto first_failure = [&](int number) {
        *fault = number;
        const auto gpu = check::gpu_subject(driver(), 0, 0, kNoCode);
        const std::string found = failures(check::run_checks(*gpu, {16, 1}));
        *fault = 0;
        return found.substr(0, found.find(':'));
    };
    EXPECT_EQ(first_failure(1), "give back");  // memory that was given back stays away
    EXPECT_EQ(first_failure(2), "map");        // a granule appears at its neighbour's place
    EXPECT_EQ(first_failure(3), "map");        // access to the first place of a run only
    EXPECT_EQ(first_failure(4), "no growth");  // launches take memory
    EXPECT_EQ(first_failure(0), "");
    dlclose(library);
}

}  // namespace
}  // namespace granary::gpu
