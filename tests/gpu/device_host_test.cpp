// SPDX-License-Identifier: GPL-3.0-or-later
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "gpu/device.h"
#include "gpu/host/copy_thread.h"
#include "gpu/kernels.h"

namespace granary::gpu {
namespace {

std::unique_ptr<Device> card(uint64_t budget, size_t granule = 0) {
    HostDeviceOptions options;
    options.face = Face::card;
    options.budget_bytes = budget;
    options.granule_bytes = granule;
    options.threads = 2;
    auto device = make_host_device(options);
    EXPECT_TRUE(device) << device.error().message();
    return std::move(*device);
}

TEST(HostDevice, DescribesTheUnifiedFace) {
    auto device = make_host_device({});
    ASSERT_TRUE(device);
    const DeviceInfo& info = (*device)->info();
    EXPECT_EQ(info.id, "host");
    EXPECT_EQ(info.face, Face::unified);
    EXPECT_EQ(info.granule_bytes, 64u << 10);
    EXPECT_GE(info.threads, 1u);
    EXPECT_GT(info.free_bytes, 0u);
    EXPECT_GE(info.total_bytes, info.free_bytes);
    const std::string threads = std::to_string(info.threads) + " thread";
    EXPECT_NE(info.name.find(", " + threads), std::string::npos) << info.name;
    std::printf("%s\n", info.name.c_str());
}

TEST(HostDevice, DescribesTheCardFace) {
    const auto device = card((40 << 20) + 12'345);
    EXPECT_EQ(device->info().name, "Emulated card, 40 MiB of RAM");
    EXPECT_EQ(device->info().face, Face::card);
    EXPECT_EQ(device->info().total_bytes, 40u << 20);
    EXPECT_EQ(device->info().free_bytes, 40u << 20);
    EXPECT_EQ(device->info().granule_bytes, 64u << 10);
    EXPECT_EQ(card(uint64_t{1} << 30)->info().granule_bytes, 2u << 20);
    EXPECT_EQ(card(uint64_t{1} << 30, 64 << 10)->info().granule_bytes, 64u << 10);
}

TEST(HostDevice, HasOneSetOfKernels) {
    const auto device = card(1 << 20);
    EXPECT_GT(device->kernels().code_bytes(256), 0u);
    EXPECT_EQ(&device->kernels(), &device->kernels());
}

TEST(HostDevice, RefusesOptionsThatMakeNoSense) {
    const auto refused = [](const HostDeviceOptions& options) {
        const auto device = make_host_device(options);
        return !device && device.error().kind == ErrorKind::invalid_argument;
    };
    EXPECT_TRUE(refused({Face::card, 0, 0, 1, 0}));
    EXPECT_TRUE(refused({Face::card, 64 << 10, 1000, 1, 0}));
    EXPECT_TRUE(refused({Face::unified, 0, 40 << 20, 1, 0}));
    EXPECT_TRUE(refused({Face::card, 1000, 40 << 20, 1, 0}));
    EXPECT_TRUE(refused({Face::card, size_t{1} << 40, uint64_t{1} << 50, 1, 0}));
    EXPECT_TRUE(refused({Face::card, 0, 40 << 20, 257, 0}));
}

TEST(HostDevice, CountsWhatItAsksTheDriverFor) {
    const auto device = card(1 << 20);  // 16 granules
    const RangeId range = device->reserve(100).value();
    EXPECT_EQ(device->driver_allocations(), 0u);
    ASSERT_TRUE(device->create_granules(10));
    EXPECT_EQ(device->driver_allocations(), 1u);
    EXPECT_EQ(device->driver_bytes(), 10u * (64 << 10));
    EXPECT_EQ(device->info().free_bytes, 6u * (64 << 10));
    const auto buffer = device->page_locked(100'000);
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer->bytes, 100'000u);
    buffer->data[99'999] = std::byte{1};
    EXPECT_EQ(device->driver_allocations(), 2u);
    EXPECT_EQ(device->driver_bytes(), 10u * (64 << 10));  // main memory is not the device's

    const auto more = device->create_granules(7);
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().kind, ErrorKind::out_of_memory);
    EXPECT_EQ(device->granules(), 10u);
    ASSERT_TRUE(device->create_granules(6));
    EXPECT_EQ(device->info().free_bytes, 0u);

    // Mapping, unmapping and reserving ask for nothing.
    const uint64_t asked = device->driver_allocations();
    const std::vector<GranuleId> granules{15, 3, 4, 0};
    for (int round = 0; round < 10; ++round) {
        ASSERT_TRUE(device->map(range, 50, granules));
        ASSERT_TRUE(device->unmap(range, 50, granules.size()));
    }
    EXPECT_EQ(device->driver_allocations(), asked);
    EXPECT_EQ(device->driver_bytes(), 1u << 20);

    // Giving back asks for nothing; taking again does.
    ASSERT_TRUE(device->release_granules(granules));
    EXPECT_EQ(device->driver_allocations(), asked);
    EXPECT_EQ(device->driver_bytes(), 12u * (64 << 10));
    EXPECT_EQ(device->info().free_bytes, 4u * (64 << 10));
    EXPECT_FALSE(device->held(15));
    ASSERT_TRUE(device->create_granules(1));  // a new one takes the room of one that went
    const auto again = device->recreate_granules(granules);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().kind, ErrorKind::out_of_memory);
    EXPECT_FALSE(device->held(15));
    ASSERT_TRUE(device->recreate_granules(std::span(granules).first(3)));
    EXPECT_TRUE(device->held(15));
    EXPECT_FALSE(device->held(0));
    EXPECT_EQ(device->driver_allocations(), asked + 3);
    EXPECT_EQ(device->driver_bytes(), 1u << 20);
    EXPECT_EQ(device->granules(), 17u);
}

TEST(HostDevice, RefusesBuffersLargerThanTheMachine) {
    const auto device = card(1 << 20);
    const auto buffer = device->page_locked(size_t{1} << 50);
    ASSERT_FALSE(buffer);
    EXPECT_EQ(buffer.error().kind, ErrorKind::out_of_memory);
    const auto none = device->page_locked(0);
    ASSERT_TRUE(none);
    EXPECT_EQ(none->bytes, 0u);
}

TEST(HostDevice, TwoCardsInOneProcessKeepApart) {
    const auto a = card(1 << 20), b = card(1 << 20);
    const std::vector<GranuleId> granules{0, 1, 2};
    for (Device* device : {a.get(), b.get()}) {
        ASSERT_EQ(device->reserve(3).value(), 0u);
        ASSERT_TRUE(device->create_granules(3));
        ASSERT_TRUE(device->map(0, 0, granules));
    }
    const size_t bytes = a->info().granule_bytes * 3;
    a->fill(StreamId::compute, a->base(0), 0xaa, bytes);
    b->fill(StreamId::compute, b->base(0), 0xbb, bytes);
    EXPECT_EQ(a->base(0)[bytes - 1], std::byte{0xaa});
    EXPECT_EQ(b->base(0)[bytes - 1], std::byte{0xbb});
    // From card to card, over the link of one.
    b->copy(StreamId::copy, b->base(0), a->base(0), bytes);
    ASSERT_TRUE(b->synchronize(StreamId::copy));
    EXPECT_EQ(std::memcmp(a->base(0), b->base(0), bytes), 0);
    ASSERT_TRUE(a->unmap(0, 0, 3));
    EXPECT_EQ(b->base(0)[0], std::byte{0xaa});
}

class HostDeviceFace : public testing::TestWithParam<Face> {
  protected:
    std::unique_ptr<Device> device() {
        if (GetParam() == Face::card) return card(8 << 20);
        return std::move(make_host_device({}).value());
    }
};

TEST_P(HostDeviceFace, StreamsKeepTheirOrderAndEventsJoinThem) {
    constexpr size_t kBytes = 1 << 20;
    const auto device = this->device();
    const size_t places = kBytes / device->info().granule_bytes;
    const RangeId range = device->reserve(places).value();
    ASSERT_TRUE(device->create_granules(places));
    std::vector<GranuleId> granules(places);
    for (size_t i = 0; i < places; ++i) granules[i] = static_cast<GranuleId>(places - 1 - i);
    ASSERT_TRUE(device->map(range, 0, granules));
    std::byte* const memory = device->base(range);

    std::vector<std::byte> source(kBytes), back(kBytes);
    for (int round = 0; round < 50; ++round) {
        std::fill(source.begin(), source.end(), static_cast<std::byte>(round));
        device->fill(StreamId::copy, memory, 0xff, kBytes);
        device->copy(StreamId::copy, memory, source.data(), kBytes);
        const Event copied = device->record(StreamId::copy);
        device->wait(StreamId::compute, copied);
        device->copy(StreamId::compute, back.data(), memory, kBytes);
        const Event computed = device->record(StreamId::compute);
        device->wait(StreamId::copy, computed);
        device->fill(StreamId::copy, memory, 0, kBytes);
        ASSERT_EQ(back, source) << round;
    }
    ASSERT_TRUE(device->synchronize(StreamId::copy));
    ASSERT_TRUE(device->synchronize(StreamId::compute));
    EXPECT_EQ(memory[kBytes - 1], std::byte{0});
    device->copy(StreamId::copy, nullptr, nullptr, 0);
    device->copy(StreamId::compute, nullptr, nullptr, 0);
    device->wait(StreamId::compute, Event{});
    device->wait(StreamId::copy, device->record(StreamId::copy));
}

INSTANTIATE_TEST_SUITE_P(Faces, HostDeviceFace, testing::Values(Face::unified, Face::card));

TEST(CopyThread, WorksWhileTheCallerDoesSomethingElse) {
    host::CopyThread copies;
    std::vector<std::byte> from(1 << 20, std::byte{1}), to(1 << 20);
    copies.copy(to.data(), from.data(), from.size());
    // Nobody waits for it: only the thread itself can do it.
    for (int i = 0; i < 5000 && copies.done() < copies.ticket(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(copies.done(), copies.ticket());
    EXPECT_EQ(to, from);
}

TEST(CopyThread, SeveralThreadsMayWait) {
    host::CopyThread copies;
    std::vector<uint32_t> cells(1000, 0);
    std::vector<uint32_t> values(1000);
    for (uint32_t i = 0; i < values.size(); ++i) values[i] = i + 1;
    std::vector<std::thread> waiters;
    std::atomic<int> wrong{0};
    std::vector<uint64_t> tickets;
    for (size_t i = 0; i < cells.size(); ++i) {
        copies.copy(&cells[i], &values[i], sizeof(uint32_t));
        tickets.push_back(copies.ticket());
    }
    for (size_t waiter = 0; waiter < 3; ++waiter) {
        waiters.emplace_back([&, waiter] {
            for (size_t i = waiter; i < cells.size(); i += 3) {
                copies.wait(tickets[i]);
                if (cells[i] != values[i]) ++wrong;
            }
        });
    }
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(cells, values);
}

TEST(CopyThread, FinishesItsQueueBeforeItEnds) {
    std::vector<std::byte> to(1 << 16);
    {
        host::CopyThread copies;
        for (int i = 1; i <= 100; ++i) copies.fill(to.data(), i, to.size());
    }
    EXPECT_EQ(to.front(), std::byte{100});
    EXPECT_EQ(to.back(), std::byte{100});
}

}  // namespace
}  // namespace granary::gpu
