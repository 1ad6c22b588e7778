// SPDX-License-Identifier: GPL-3.0-or-later
// A device call fails (DESIGN 4.6): whichever it is, the error says so, every granule still has
// one owner, no table names memory that is not there, and the manager goes on.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <set>

#include "engine/memory/manager.h"

namespace granary::test {
namespace {

const std::string kMicro = GRANARY_TEST_DATA "/micro/micro-qwen3moe.gguf";

// Passes calls on to a host device; calls number `first` to `first + count - 1` from arm() on fail
// and do nothing.
class FaultyDevice final : public gpu::Device {
  public:
    explicit FaultyDevice(std::unique_ptr<gpu::Device> device) : device_(std::move(device)) {}
    void arm(uint64_t first, uint64_t count) {
        calls_ = 0;
        first_ = first;
        count_ = count;
    }
    void disarm() { count_ = 0; }
    uint64_t calls() const { return calls_; }
    // Which places of a range are mapped, whatever the manager believes.
    const std::set<size_t>& mapped(gpu::RangeId range) { return mapped_[range]; }

    const gpu::DeviceInfo& info() const override { return device_->info(); }
    gpu::Kernels& kernels() override { return device_->kernels(); }
    Result<gpu::RangeId> reserve(size_t places) override {
        if (auto r = call("reserve"); !r) return tl::unexpected(r.error());
        return device_->reserve(places);
    }
    void release(gpu::RangeId range) override {
        mapped_.erase(range);
        device_->release(range);
    }
    std::byte* base(gpu::RangeId range) const override { return device_->base(range); }
    size_t places(gpu::RangeId range) const override { return device_->places(range); }
    Result<void> create_granules(size_t count) override {
        if (auto r = call("create"); !r) return r;
        return device_->create_granules(count);
    }
    size_t granules() const override { return device_->granules(); }
    Result<void> release_granules(std::span<const gpu::GranuleId> granules) override {
        if (auto r = call("release granules"); !r) return r;
        return device_->release_granules(granules);
    }
    Result<void> recreate_granules(std::span<const gpu::GranuleId> granules) override {
        if (auto r = call("recreate"); !r) return r;
        return device_->recreate_granules(granules);
    }
    bool held(gpu::GranuleId granule) const override { return device_->held(granule); }
    Result<void> map(gpu::RangeId range, size_t first,
                     std::span<const gpu::GranuleId> granules) override {
        if (auto r = call("map"); !r) return r;
        auto done = device_->map(range, first, granules);
        EXPECT_TRUE(done) << done.error().message();  // the manager asks for nothing impossible
        for (size_t i = 0; i < granules.size(); ++i) mapped_[range].insert(first + i);
        return done;
    }
    Result<void> unmap(gpu::RangeId range, size_t first, size_t count) override {
        if (auto r = call("unmap"); !r) return r;
        auto done = device_->unmap(range, first, count);
        EXPECT_TRUE(done) << done.error().message();
        for (size_t i = 0; i < count; ++i) mapped_[range].erase(first + i);
        return done;
    }
    uint64_t driver_allocations() const override { return device_->driver_allocations(); }
    uint64_t driver_bytes() const override { return device_->driver_bytes(); }
    Result<gpu::HostBuffer> page_locked(size_t bytes) override {
        return device_->page_locked(bytes);
    }
    void copy(gpu::StreamId stream, void* to, const void* from, size_t bytes) override {
        device_->copy(stream, to, from, bytes);
    }
    void fill(gpu::StreamId stream, void* to, int byte, size_t bytes) override {
        device_->fill(stream, to, byte, bytes);
    }
    gpu::Event record(gpu::StreamId stream) override { return device_->record(stream); }
    void wait(gpu::StreamId stream, gpu::Event event) override { device_->wait(stream, event); }
    Result<void> synchronize(gpu::StreamId stream) override {
        if (auto r = call("synchronize"); !r) return r;
        return device_->synchronize(stream);
    }

  private:
    Result<void> call(const char* name) {
        const uint64_t number = calls_++;
        if (number < first_ || number - first_ >= count_) return {};
        return fail(ErrorKind::device, "a device call failed on purpose", name);
    }

    std::unique_ptr<gpu::Device> device_;
    std::map<gpu::RangeId, std::set<size_t>> mapped_;
    uint64_t calls_ = 0, first_ = 0, count_ = 0;
};

struct Card {
    Card() {
        auto file = gguf::File::open(kMicro);
        model = std::move(*load_model(*file));
        gpu::HostDeviceOptions options{gpu::Face::card, 64 << 10, 4 << 20, 1, 0};
        device = std::make_unique<FaultyDevice>(std::move(*gpu::make_host_device(options)));
        Settings settings;
        settings.vram_budget = options.budget_bytes;
        settings.max_context = 2048;
        facts.face = gpu::Face::card;
        facts.free_bytes = 1ull << 30;
        facts.code_bytes_hidden = facts.code_bytes_attention = 1024;
        facts.code_bytes_ffn = 512;
        facts.scratch_base = 4096;
        auto planned = Planner(model.facts, facts).plan(settings);
        EXPECT_TRUE(planned) << planned.error().message();
        plan = *planned;
    }
    Result<void> create() {
        auto made = MemoryManager::create(*device, model, plan, facts, telemetry, {}, {});
        if (!made) return tl::unexpected(made.error());
        memory = std::move(*made);
        return {};
    }
    // Sums, one place a granule, and experts that read as the file has them.
    void check() {
        const auto bytes = memory->bytes();
        ASSERT_EQ(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}), plan.budget_bytes);
        memory->publish(true);
        const MapFrame* frame = telemetry.map.take();
        ASSERT_NE(frame, nullptr);
        std::set<std::pair<int, uint32_t>> places;
        for (size_t i = 0; i < frame->words.size(); ++i) {
            if (frame->places[i].range == Place::kNowhere) continue;
            ASSERT_TRUE(places.insert({frame->places[i].range, frame->places[i].place}).second);
        }
        for (int i = 0; i < kOwners; ++i)
            ASSERT_EQ(frame->granules[i] * plan.granule_bytes, bytes[i]) << i;
        for (uint32_t n = 0; n < model.facts.layers; ++n) {
            const gpu::ExpertCacheView& view = memory->experts().known(n);
            for (uint32_t e = 0; e < view.experts; ++e) {
                const gpu::ExpertEntry& home = model.layers[n].moe.home[e];
                ASSERT_EQ(std::memcmp(view.entries[e].gate, home.gate, view.gate_bytes), 0);
                ASSERT_EQ(std::memcmp(view.entries[e].down, home.down, view.down_bytes), 0);
            }
        }
    }
    uint64_t quarantined() const {
        return memory->bytes()[static_cast<int>(Owner::quarantined)] / plan.granule_bytes;
    }

    Model model;
    std::unique_ptr<FaultyDevice> device;
    DeviceFacts facts;
    Plan plan;
    Telemetry telemetry;
    std::unique_ptr<MemoryManager> memory;
};

// A conversation grows, reads with a loan, grows again; another begins; both end.
Result<void> live(Card& card) {
    MemoryManager& memory = *card.memory;
    Result<void> outcome;
    const auto note = [&](const auto& result) {
        if (!result && outcome) outcome = tl::unexpected(result.error());
        return result.has_value();
    };
    std::vector<KvId> open;
    for (uint64_t cells : {uint64_t{1024}, uint64_t{1000}}) {
        auto kv = memory.create_kv();
        if (!note(kv)) continue;
        open.push_back(*kv);
        if (note(memory.grow_kv(*kv, cells)))
            std::memset(memory.kv_base(*kv), 0xee, memory.kv().step_bytes);
        if (auto loan = memory.take_loan(card.plan.chunk); note(loan)) {
            std::memset(loan->base, 0xdd, loan->layout.bytes);
            memory.return_loan();
        }
    }
    if (!open.empty() && memory.kv_need(open[0], 2048) <= memory.kv_available()) {
        const uint64_t before = memory.kv_cells(open[0]) / gpu::kStepCells;
        if (note(memory.grow_kv(open[0], 2048))) {
            const std::byte* at = memory.kv_base(open[0]) + before * memory.kv().step_bytes;
            for (uint64_t i = 0; i < memory.kv().step_bytes; i += 509)
                EXPECT_EQ(at[i], std::byte{0});
        }
    }
    for (KvId kv : open) memory.drop_kv(kv);
    return outcome;
}

TEST(FaultyDevice, ALoadThatFailsAnywhereSaysSoAndCanBeTriedAgain) {
    uint64_t calls = 0;
    {
        Card card;
        card.device->arm(UINT64_MAX, 0);
        ASSERT_TRUE(card.create());
        calls = card.device->calls();
    }
    ASSERT_GT(calls, 5u);
    for (uint64_t n = 0; n < calls; ++n) {
        Card card;
        card.device->arm(n, 1);
        const auto created = card.create();
        ASSERT_FALSE(created) << n;
        EXPECT_EQ(created.error().kind, ErrorKind::device);
    }
}

TEST(FaultyDevice, TheManagerOutlivesAnyFailedCalls) {
    uint64_t calls = 0;
    {
        Card card;
        ASSERT_TRUE(card.create());
        card.device->arm(UINT64_MAX, 0);
        ASSERT_TRUE(live(card));
        calls = card.device->calls();
        EXPECT_EQ(card.quarantined(), 0u);
    }
    ASSERT_GT(calls, 20u);
    for (uint64_t count : {1, 2, 3, 1000}) {
        for (uint64_t n = 0; n < calls; ++n) {
            SCOPED_TRACE("call " + std::to_string(n) + ", " + std::to_string(count) + " failing");
            Card card;
            ASSERT_TRUE(card.create());
            card.device->arm(n, count);
            const auto outcome = live(card);
            if (!outcome) {
                EXPECT_TRUE(outcome.error().kind == ErrorKind::device ||
                            outcome.error().kind == ErrorKind::refused)
                    << outcome.error().message();
            }
            card.device->disarm();
            card.check();
            if (HasFatalFailure()) return;
            // K/V belongs to nobody now: what is not with experts is out of use, and shown.
            EXPECT_EQ(card.memory->bytes()[static_cast<int>(Owner::kv)], 0u);
            EXPECT_EQ(card.memory->bytes()[static_cast<int>(Owner::loan)], 0u);
            // It goes on with what is left.
            auto kv = card.memory->create_kv();
            ASSERT_TRUE(kv);
            if (card.memory->kv_need(*kv, 1024) <= card.memory->kv_available()) {
                ASSERT_TRUE(card.memory->grow_kv(*kv, 1024));
            }
            ASSERT_TRUE(card.memory->take_loan(kSmallestChunk));  // which nothing can take away
            card.memory->return_loan();
            card.memory->drop_kv(*kv);
            card.check();
            if (HasFatalFailure()) return;
            if (count == 1) {
                // A single failed call costs no granule unless it kept K/V from coming back.
                EXPECT_LE(card.quarantined(), card.plan.kv_at_max);
                EXPECT_GE(card.memory->kv_available() + card.quarantined(), card.plan.kv_at_max);
            }
        }
    }
}

}  // namespace
}  // namespace granary::test
