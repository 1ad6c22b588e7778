// SPDX-License-Identifier: GPL-3.0-or-later
// The memory layer of GPUs against a driver double: what the self-check leaves out.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>

#include "gpu/cuda/device.h"
#include "gpu/cuda/device_code.h"
#include "gpu/cuda/kernels.h"
#include "gpu/cuda/module.h"
#include "gpu/cuda/requirements.h"
#include "tests/gpu/device_tree.h"

namespace granary::gpu::cuda {
namespace {

constexpr size_t kGranule = 2 << 20;

class CudaDevice : public testing::Test {
  protected:
    void SetUp() override {
        auto opened = Driver::open(Api::cuda, {GRANARY_FAKE_CUDA});
        ASSERT_TRUE(opened) << opened.error().message();
        driver = *opened;
    }
    std::unique_ptr<GpuMemory> open(const Options& options = {}) {
        auto device = GpuMemory::open(driver, options);
        EXPECT_TRUE(device) << device.error().message();
        return std::move(*device);
    }
    // Calls of these functions fail from now on.
    void refuse(std::vector<std::string_view> names, Status status = 1) {
        driver->interceptor = [names, status](std::string_view name) {
            return std::find(names.begin(), names.end(), name) != names.end() ? status : 0;
        };
    }
    void refuse_nothing() { driver->interceptor = nullptr; }

    std::shared_ptr<Driver> driver;
};

// A model that is beyond the kernels' tables is refused with both numbers, not started.
TEST_F(CudaDevice, KernelsSayWhatIsBeyondThem) {
    const auto device = open();
    const CudaKernels kernels(*device);
    AttentionShape attention;
    attention.head_dim = 128;
    attention.rope = rope_table(128, 1e6);
    EXPECT_EQ(kernels.beyond(attention, {512, 64}), "");
    EXPECT_EQ(kernels.beyond(attention, {513, 8}), "513 experts in a layer, 512 are the most");
    EXPECT_EQ(kernels.beyond(attention, {128, 65}), "65 experts for a token, 64 are the most");
    attention.head_dim = 584;
    EXPECT_EQ(kernels.beyond(attention, {128, 8}), "584 values in a head, 576 are the most");
    attention.head_dim = 576;
    attention.rope = rope_table(576, 1e6);
    EXPECT_EQ(kernels.beyond(attention, {128, 8}),
              "576 rotating values in a head, 512 are the most");
}

TEST_F(CudaDevice, SaysWhichGpusABuildCanUse) {
    const auto facts = list_devices(*driver);
    ASSERT_TRUE(facts);
    std::vector<DeviceFacts> gpus(4, facts->front());
    gpus[0].capability = 61;
    gpus[1].ordinal = 1, gpus[1].capability = 90;
    gpus[2].ordinal = 2, gpus[2].capability = 86;
    gpus[3].maps_memory = false;
    const auto judged = judge(gpus, "", 80);
    ASSERT_EQ(judged.size(), 4u);
    EXPECT_EQ(judged[0].device.id, "");
    EXPECT_EQ(judged[0].device.note, "compute capability 6.1; this build needs 8.0 or newer");
    EXPECT_EQ(judged[1].device.id, "cuda:1");
    EXPECT_EQ(judged[1].device.note, "");
    EXPECT_EQ(judged[1].device.total_bytes, 512u << 20);
    EXPECT_EQ(judged[1].bus_id, facts->front().bus_id);
    EXPECT_EQ(judged[2].device.id, "cuda:2");
    EXPECT_EQ(judged[2].device.note,
              "whole models have been run on compute capability 9.0, not on its 8.6");
    EXPECT_EQ(judged[3].device.note, "its driver cannot map memory piece by piece");
    const std::string old = too_old(12020, 13000, "535.183.01");
    for (const CudaGpu& gpu : judge(gpus, old, 80)) {
        EXPECT_FALSE(gpu.device.usable());
        EXPECT_EQ(gpu.device.note, old);
    }
}

TEST_F(CudaDevice, SaysWhatItIs) {
    const auto device = open();
    EXPECT_EQ(device->info().id, "cuda:0");
    EXPECT_EQ(device->info().name, "Card of the tests");
    EXPECT_EQ(device->info().face, Face::card);
    EXPECT_EQ(device->info().granule_bytes, kGranule);
    EXPECT_EQ(device->info().total_bytes, 512u << 20);
    EXPECT_EQ(device->info().free_bytes, 492u << 20);  // without what the context takes
    ASSERT_TRUE(device->create_granules(3));
    EXPECT_EQ(device->info().free_bytes, (492u << 20) - 3 * kGranule);
    const auto devices = list_devices(*driver);
    ASSERT_TRUE(devices);
    ASSERT_EQ(devices->size(), 1u);
    EXPECT_EQ(devices->front().capability, 86);
    EXPECT_EQ(devices->front().processors, 80);
    EXPECT_TRUE(devices->front().watched);
}

TEST_F(CudaDevice, RefusesOptionsThatMakeNoSense) {
    const auto kind = [&](const Options& options) {
        const auto device = GpuMemory::open(driver, options);
        return device ? ErrorKind::internal : device.error().kind;
    };
    EXPECT_EQ(kind({1, 0}), ErrorKind::invalid_argument);
    EXPECT_EQ(kind({0, 3 << 20}), ErrorKind::invalid_argument);
    EXPECT_EQ(kind({0, 1 << 20}), ErrorKind::invalid_argument);
    EXPECT_EQ(open({0, 4 << 20})->info().granule_bytes, 4u << 20);
}

TEST_F(CudaDevice, AsksForMoreThanThereIsAndKeepsNothing) {
    const auto device = open();
    const auto created = device->create_granules(1000);
    ASSERT_FALSE(created);
    EXPECT_EQ(created.error().kind, ErrorKind::out_of_memory);
    EXPECT_EQ(
        created.error().message(),
        "There is no device memory for granules: 246 of 1000 granules of 2 MiB could be had, "
        "CUDA_ERROR_OUT_OF_MEMORY (2) from cuMemCreate. Close other programs that use the GPU "
        "or choose smaller settings");
    EXPECT_EQ(device->granules(), 0u);
    EXPECT_EQ(device->driver_bytes(), 0u);
    EXPECT_EQ(device->driver_allocations(), 1u);
    EXPECT_TRUE(device->create_granules(246));
}

TEST_F(CudaDevice, ATableAgreesWithADriverThatRefusesEvenToUndo) {
    const auto device = open();
    ASSERT_TRUE(device->create_granules(4));
    const RangeId a = device->reserve(4).value(), b = device->reserve(4).value();
    const std::vector<GranuleId> granules{2, 0, 1};
    refuse({"cuMemSetAccess", "cuMemUnmap"});
    const auto mapped = device->map(a, 0, granules);
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().kind, ErrorKind::device);
    EXPECT_NE(mapped.error().detail.find("3 of them stay mapped and out of use"), std::string::npos)
        << mapped.error().detail;
    refuse_nothing();
    EXPECT_FALSE(device->map(b, 0, granules));  // they are where they are
    EXPECT_TRUE(device->map(b, 0, std::vector<GranuleId>{3}));
    ASSERT_TRUE(device->unmap(a, 0, 3));  // until the driver lets go
    EXPECT_TRUE(device->map(b, 1, granules));

    // What the driver does not take back is counted, and freed with the device.
    const uint64_t before = device->memory_now().value().first;
    int created = 0;
    driver->interceptor = [&](std::string_view name) -> Status {
        if (name == "cuMemCreate") return ++created > 2 ? 2 : 0;
        return name == "cuMemRelease" ? 1 : 0;
    };
    EXPECT_FALSE(device->create_granules(5));
    refuse_nothing();
    EXPECT_EQ(device->granules(), 4u);
    EXPECT_EQ(device->driver_bytes(), 6 * kGranule);
    EXPECT_EQ(device->memory_now().value().first, before - 2 * kGranule);
}

TEST_F(CudaDevice, FreesEverythingWithItself) {
    const auto keeper = open();  // and with it the context
    const uint64_t before = keeper->memory_now().value().first;
    {
        const auto device = open();
        ASSERT_TRUE(device->create_granules(8));
        const RangeId range = device->reserve(8).value();
        ASSERT_TRUE(device->map(range, 2, std::vector<GranuleId>{7, 1}));
        ASSERT_TRUE(device->release_granules(std::vector<GranuleId>{0, 3}));
        EXPECT_EQ(keeper->memory_now().value().first, before - 6 * kGranule);
    }
    EXPECT_EQ(keeper->memory_now().value().first, before);
}

TEST_F(CudaDevice, ABufferOutlivesItsDevice) {
    auto device = open();
    HostBuffer buffer = device->page_locked(100'000).value();
    device.reset();
    std::memset(buffer.data.get(), 1, buffer.bytes);
    EXPECT_EQ(buffer.data[99'999], std::byte{1});
}

TEST_F(CudaDevice, TellsOfFailedCopiesAtTheNextSynchronize) {
    const auto device = open();
    ASSERT_TRUE(device->create_granules(1));
    const RangeId range = device->reserve(2).value();
    ASSERT_TRUE(device->map(range, 0, std::vector<GranuleId>{0}));
    device->fill(StreamId::copy, device->base(range) + kGranule, 1, 8);  // nothing is mapped there
    device->fill(StreamId::copy, device->base(range), 1, 8);
    const auto told = device->synchronize(StreamId::compute);
    ASSERT_FALSE(told);
    EXPECT_EQ(told.error().kind, ErrorKind::device);
    EXPECT_NE(told.error().detail.find("8 bytes"), std::string::npos) << told.error().detail;
    EXPECT_TRUE(device->synchronize(StreamId::copy));  // told once
}

// In whatever order the driver does them; what lies across the end of what is locked in two pieces.
TEST_F(CudaDevice, CopiesThatAreGivenAtOnceArrive) {
    constexpr size_t kPage = 4096;
    const std::unique_ptr<std::byte[], void (*)(std::byte*)> host(
        static_cast<std::byte*>(std::aligned_alloc(kPage, 2 * kPage)),
        [](std::byte* memory) { std::free(memory); });
    const auto device = open();
    for (size_t i = 0; i < 2 * kPage; ++i) host[i] = static_cast<std::byte>(i % 251);
    ASSERT_TRUE(device->lock_pages({host.get(), kPage}));
    ASSERT_TRUE(device->lock_pages({host.get() + kPage, kPage}));
    ASSERT_TRUE(device->create_granules(1));
    const RangeId range = device->reserve(1).value();
    ASSERT_TRUE(device->map(range, 0, std::vector<GranuleId>{0}));
    std::byte* const at = device->base(range);
    device->fill(StreamId::copy, at, 0xee, 64);
    const std::vector<Copy> copies{{at, host.get() + kPage - 8, 16},
                                   {at + 16, host.get() + 3, 0},
                                   {at + 16, host.get() + kPage + 100, 32},
                                   {at + 50, host.get(), 1}};
    device->copy_all(StreamId::copy, copies);
    device->copy_all(StreamId::copy, {});
    device->copy_all(StreamId::copy, std::vector<Copy>{{at + 51, host.get() + 9, 1}});
    std::array<std::byte, 64> all{}, expected{};
    device->copy(StreamId::copy, all.data(), at, all.size());
    ASSERT_TRUE(device->synchronize(StreamId::copy));
    expected.fill(std::byte{0xee});
    for (const Copy& copy : copies)
        std::memcpy(expected.data() + (static_cast<std::byte*>(copy.to) - at), copy.from,
                    copy.bytes);
    expected[51] = host[9];
    EXPECT_EQ(all, expected);

    refuse({"cuMemcpyBatchAsync_v2"});
    device->copy_all(StreamId::copy, copies);
    refuse_nothing();
    const auto told = device->synchronize(StreamId::copy);
    ASSERT_FALSE(told);
    EXPECT_NE(told.error().message().find("49 bytes"), std::string::npos) << told.error().message();
}

// What follows might read what never came: an address, or which token is at hand.
TEST_F(CudaDevice, QueuesNothingAfterAFailureUntilItIsTold) {
    const auto device = open();
    ASSERT_TRUE(device->create_granules(1));
    const RangeId range = device->reserve(1).value();
    ASSERT_TRUE(device->map(range, 0, std::vector<GranuleId>{0}));
    std::byte* const at = device->base(range);
    ASSERT_TRUE(device->begin_recording());
    device->fill(StreamId::compute, at + 1, 3, 1);
    const RecordingId recording = device->end_recording().value();
    const auto bytes = [&] {
        std::array<std::byte, 3> all{};
        device->copy(StreamId::compute, all.data(), at, all.size());
        EXPECT_TRUE(device->synchronize(StreamId::compute));
        return all;
    };
    device->fill(StreamId::compute, at, 1, 3);
    using Bytes = std::array<std::byte, 3>;
    EXPECT_EQ(bytes(), (Bytes{std::byte{1}, std::byte{1}, std::byte{1}}));

    const std::byte new_byte{2};
    refuse({"cuMemcpyAsync"});
    device->copy(StreamId::copy, at, &new_byte, 1);
    refuse_nothing();
    device->copy(StreamId::compute, at, &new_byte, 1);
    device->fill(StreamId::compute, at + 2, 2, 1);
    EXPECT_FALSE(device->replay(recording));
    EXPECT_FALSE(device->takes_work());
    EXPECT_FALSE(device->synchronize(StreamId::compute));
    EXPECT_EQ(bytes(), (Bytes{std::byte{1}, std::byte{1}, std::byte{1}}));
    device->fill(StreamId::compute, at + 2, 2, 1);
    EXPECT_TRUE(device->replay(recording));
    EXPECT_EQ(bytes(), (Bytes{std::byte{1}, std::byte{3}, std::byte{2}}));

    refuse({"cuGraphLaunch"});
    EXPECT_FALSE(device->replay(recording));
    EXPECT_FALSE(device->synchronize(StreamId::compute));
    refuse_nothing();

    // A recording without a part of the work would lack it in every replay.
    ASSERT_TRUE(device->begin_recording());
    refuse({"cuMemsetD8Async"});
    device->fill(StreamId::compute, at, 4, 1);
    refuse_nothing();
    device->fill(StreamId::compute, at + 1, 4, 1);
    const auto recorded = device->end_recording();
    ASSERT_FALSE(recorded);
    EXPECT_NE(recorded.error().detail.find("cuMemsetD8Async"), std::string::npos)
        << recorded.error().detail;
    EXPECT_TRUE(device->synchronize(StreamId::compute));  // told once
    EXPECT_TRUE(device->begin_recording());
    EXPECT_TRUE(device->end_recording());
}

// Who serves a kernel that waits for the processor must not leave it alone.
TEST_F(CudaDevice, OnlyALostDevicePassesAnEventThatItWasNotAskedFor) {
    for (const char* name : {"cuEventRecord", "cuCtxSetCurrent"}) {
        const auto device = open();
        refuse({name});
        const gpu::Event event = device->record(StreamId::compute);
        refuse_nothing();
        EXPECT_FALSE(device->passed(event)) << name;
        EXPECT_FALSE(device->synchronize(StreamId::compute)) << name;
        EXPECT_FALSE(device->passed(event)) << name;
        EXPECT_TRUE(device->synchronize(StreamId::compute)) << name;

        const gpu::Event recorded = device->record(StreamId::compute);
        ASSERT_TRUE(device->synchronize(StreamId::compute));
        EXPECT_TRUE(device->passed(recorded)) << name;
        for (const char* ask : {"cuEventQuery", "cuCtxSetCurrent"}) {
            refuse({ask});
            EXPECT_FALSE(device->passed(recorded)) << name << ", " << ask;
            refuse_nothing();
            EXPECT_FALSE(device->synchronize(StreamId::compute)) << name << ", " << ask;
        }
        refuse({"cuEventQuery"}, kIllegalAddress);
        EXPECT_TRUE(device->passed(event)) << name;
        EXPECT_TRUE(device->passed(recorded)) << name;
        refuse_nothing();
    }
}

TEST_F(CudaDevice, RecordsMoreEventsThanItHas) {
    const auto device = open();
    gpu::Event first = device->record(StreamId::copy);
    for (int i = 0; i < 1000; ++i) (void)device->record(StreamId::copy);
    device->wait(StreamId::compute, first);
    device->wait(StreamId::compute, {});
    EXPECT_TRUE(device->synchronize(StreamId::compute));
}

TEST_F(CudaDevice, SaysWhenNoCodeFits) {
    const auto device = open();
    refuse({"cuModuleLoadData"}, kNoBinary);
    const std::array<std::byte, 1> code{};
    const auto module = Module::load(driver, code);
    ASSERT_FALSE(module);
    EXPECT_EQ(module.error().kind, ErrorKind::unsupported);
    EXPECT_NE(module.error().message().find("no code for this GPU"), std::string::npos);
    refuse_nothing();
    const auto missing = Module::load(driver, code).value()->function("no_such_kernel");
    ASSERT_FALSE(missing);
    EXPECT_NE(missing.error().message().find("no_such_kernel"), std::string::npos);
}

// Random calls, right and wrong, of which the driver refuses some, against a table of what each
// place must hold. A refused call changes nothing, and undoing works unless that is refused too.
TEST_F(CudaDevice, AgreesWithASimpleModelWhateverFails) {
    constexpr size_t kPlaces = 12, kGranules = 10;
    const auto device = open();
    ASSERT_TRUE(device->create_granules(kGranules));
    const std::array ranges{device->reserve(kPlaces).value(), device->reserve(kPlaces).value()};
    std::mt19937 random(7);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    std::array<std::map<size_t, GranuleId>, 2> places;
    std::vector<uint64_t> content(kGranules, 0);
    std::vector<bool> held(kGranules, true);
    const auto mapped = [&](GranuleId granule) {
        return std::any_of(places.begin(), places.end(), [&](const auto& range) {
            return std::any_of(range.begin(), range.end(),
                               [&](const auto& place) { return place.second == granule; });
        });
    };
    size_t done = 0, refused = 0, wrong = 0;
    for (int step = 0; step < 20'000; ++step) {
        const size_t r = below(2), first = below(kPlaces + 1), count = 1 + below(4);
        std::vector<GranuleId> granules;
        const bool wants_mapped = below(12) == 0, wants_held = below(3) != 0;
        for (GranuleId g = 0; g < kGranules && granules.size() < count; ++g)
            if (mapped(g) == wants_mapped && (mapped(g) || held[g] == wants_held))
                granules.push_back(g);
        std::shuffle(granules.begin(), granules.end(), random);
        bool valid = true;
        Result<void> result;
        const size_t what = below(4);
        if (what != 1 && granules.empty()) continue;
        size_t countdown = below(2) == 0 ? below(4) : SIZE_MAX;
        bool fired = false;
        driver->interceptor = [&](std::string_view name) -> Status {
            const bool fallible = name == "cuMemMap" || name == "cuMemSetAccess" ||
                                  name == "cuMemUnmap" || name == "cuMemCreate" ||
                                  name == "cuMemRelease";
            if (!fallible || fired || countdown-- > 0) return 0;
            fired = true;
            return 1;
        };
        switch (what) {
            case 0:
                valid = first + granules.size() <= kPlaces;
                for (size_t i = 0; valid && i < granules.size(); ++i)
                    valid =
                        !mapped(granules[i]) && held[granules[i]] && !places[r].contains(first + i);
                result = device->map(ranges[r], first, granules);
                if (result && valid)
                    for (size_t i = 0; i < granules.size(); ++i) places[r][first + i] = granules[i];
                break;
            case 1:
                for (size_t i = 0; i < count; ++i) valid = valid && places[r].contains(first + i);
                result = device->unmap(ranges[r], first, count);
                if (result && valid)
                    for (size_t i = 0; i < count; ++i) places[r].erase(first + i);
                break;
            case 2:
                for (GranuleId g : granules) valid = valid && !mapped(g) && held[g];
                result = device->release_granules(granules);
                // Of a call that failed some may be gone: held() tells.
                for (GranuleId g : granules)
                    if (valid) held[g] = device->held(g), content[g] = held[g] ? content[g] : 0;
                break;
            default:
                for (GranuleId g : granules) valid = valid && !held[g];
                result = device->recreate_granules(granules);
                if (result && valid)
                    for (GranuleId g : granules) held[g] = true, content[g] = 0;
        }
        driver->interceptor = nullptr;
        ASSERT_EQ(result.has_value(), valid && !fired) << step;
        ASSERT_EQ(!result && result.error().kind == ErrorKind::internal, !valid) << step;
        ++(!valid ? wrong : fired ? refused : done);

        uint64_t bytes = 0;
        for (GranuleId g = 0; g < kGranules; ++g) {
            ASSERT_EQ(device->held(g), held[g]) << step;
            bytes += held[g] ? kGranule : 0;
        }
        ASSERT_EQ(device->driver_bytes(), bytes) << step;
        for (size_t range = 0; range < 2; ++range)
            for (const auto& [place, granule] : places[range]) {
                std::byte* const at = device->base(ranges[range]) + place * kGranule;
                uint64_t word = 0;
                std::memcpy(&word, at, sizeof word);
                ASSERT_TRUE(content[granule] == 0 || content[granule] == word) << step;
                content[granule] = random() | 1u;
                std::memcpy(at, &content[granule], sizeof word);
            }
    }
    EXPECT_GT(done, 1000u);
    EXPECT_GT(refused, 500u);
    EXPECT_GT(wrong, 500u);
}

TEST(CudaDriver, SaysWhyThereIsNone) {
    const auto absent = Driver::open(Api::cuda, {"libno-such-driver.so.1"});
    ASSERT_FALSE(absent);
    EXPECT_EQ(absent.error().kind, ErrorKind::unsupported);
    EXPECT_NE(absent.error().message().find("libno-such-driver.so.1"), std::string::npos);
    // A library that is none of a driver's.
    const auto other = Driver::open(Api::cuda, {"libm.so.6"});
    ASSERT_FALSE(other);
    EXPECT_NE(other.error().message().find("it has no function cuInit"), std::string::npos)
        << other.error().message();
}

TEST(CudaDriver, TellsAFailedCallFromALostContext) {
    for (const Status status : {4, 700, 719, 999}) EXPECT_TRUE(Driver::is_lost(status)) << status;
    for (const Status status : {0, 1, 2, 100, 209, 600, 801})
        EXPECT_FALSE(Driver::is_lost(status)) << status;
}

TEST(CudaRequirements, SayWhatAnOldDriverLacks) {
    EXPECT_EQ(too_old(12020, 13000, "535.183.01"),
              "driver 535.183.01 supports CUDA 12.2; this build needs 13.0, driver 580 or newer");
    EXPECT_EQ(too_old(11080, 12050, ""),
              "driver supports CUDA 11.8; this build needs 12.0, driver 525 or newer");
    EXPECT_EQ(too_old(13000, 13020, "580.65.06"), "");
    EXPECT_EQ(too_old(13010, 12040, "590.1"), "");
    EXPECT_EQ(too_old(12000, 0, "525.1"), "");  // no device code, so nothing is needed
}

TEST(CudaRequirements, FindTheInstalledDriver) {
    EXPECT_EQ(installed_driver(DeviceTree().root()), "");
    const DeviceTree list;
    list.write("/proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 "
               "UTC 2024\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
    EXPECT_EQ(installed_driver(list.root()), "535.183.01");
    list.write("/sys/module/nvidia/version", "580.159.04\n");
    EXPECT_EQ(installed_driver(list.root()), "580.159.04");
    const DeviceTree nonsense;
    nonsense.write("/proc/driver/nvidia/version", "no numbers at all");
    EXPECT_EQ(installed_driver(nonsense.root()), "");
}

TEST(DeviceCode, IsThereWhereItsCompilerWas) {
    EXPECT_TRUE(device_code("no_such_file").empty());
    EXPECT_EQ(device_code("memory_check").empty(), device_code_version() == 0);
}

}  // namespace
}  // namespace granary::gpu::cuda
