// SPDX-License-Identifier: GPL-3.0-or-later
// Pools of tables to try a memory manager on: small ones of any shape, and real cards.
#pragma once

#include <functional>
#include <memory>

#include "tests/host_settings.h"
#include "tests/memory/book_device.h"
#include "tests/memory/book_model.h"
#include "tests/memory/pool.h"
#include "tests/memory/random_steps.h"

namespace granary::test {

// A pool, and the budgets that it can have.
struct Case {
    std::vector<std::byte> content;
    std::unique_ptr<Pool> pool;
    BookDevice* book = nullptr;
    uint64_t least = 0, most = 0;  // the smallest that is admitted; the one at load

    // `budget`: of the bytes that are needed at least and can be used at most.
    using Budget = std::function<uint64_t(uint64_t least, uint64_t useful)>;
    void open(const BookModelShape& shape, const Settings& settings, const Budget& budget) {
        prepare(shape, settings, budget);
        if (::testing::Test::HasFatalFailure()) return;
        const auto created = pool->create();
        ASSERT_TRUE(created) << created.error().message();
    }
    void prepare(const BookModelShape& shape, Settings settings, const Budget& budget) {
        Model model = book_model(shape, content);
        DeviceFacts facts;
        facts.face = gpu::Face::card;
        facts.granule_bytes = settings.granule;
        facts.free_bytes = 1ull << 40;
        facts.scratch_base = 1000;
        settings.vram_budget = facts.free_bytes;
        auto roomy = Planner(model.facts, facts).plan(settings);
        ASSERT_TRUE(roomy) << roomy.error().message();
        least = (uint64_t{roomy->fixed} + roomy->workspace + roomy->state + roomy->floor +
                 roomy->kv_at_max + roomy->smallest_loan) *
                settings.granule;
        settings.vram_budget = budget(least, roomy->budget_bytes);
        auto device =
            std::make_unique<BookDevice>(settings.granule, settings.vram_budget / settings.granule);
        book = device.get();
        pool = std::make_unique<Pool>(std::move(model), facts, settings, std::move(device));
        pool->has_content = !content.empty();
        most = pool->plan.budget_bytes;
    }
};

// The same for the same seed.
inline void open_any(Case& it, Random& random) {
    BookModelShape shape;
    shape.experts = static_cast<uint32_t>(random.between(4, 24));
    shape.used = static_cast<uint32_t>(random.between(1, shape.experts / 2));
    shape.hidden = static_cast<uint32_t>(32 * random.between(1, 4));
    shape.kv_heads = static_cast<uint32_t>(random.between(1, 2));
    shape.head_dim = static_cast<uint32_t>(8 * random.between(1, 3));
    shape.state_bytes = random.one_in(3) ? random.between(1, 20'000) : 0;
    shape.layers.resize(random.between(1, 5));
    // In one pool K/V is the larger part, in the next experts are.
    const uint64_t size = random.between(1, 8);
    for (auto& layer : shape.layers)
        layer = {size * random.between(1, 1000), size * random.between(1, 1000),
                 size * random.between(1, 2000)};
    it.content.resize(1);
    Settings settings = host_settings();
    const uint64_t granules[] = {4 << 10, 4 << 10, 12 << 10, 64 << 10};
    settings.granule = granules[random.below(4)];
    settings.max_context =
        static_cast<uint32_t>(random.one_in(2) ? 512 : random.between(512, 6500));
    settings.kv = static_cast<gpu::KvFormat>(random.below(4));
    if (random.one_in(3))
        settings.cache_floor = {CacheFloor::Kind::percent, 0,
                                static_cast<double>(random.between(1, 60))};
    it.open(shape, settings, [&](uint64_t least, uint64_t useful) {
        return random.one_in(4) ? least : random.between(least, useful);
    });
}

// A Q4_K_M file of Qwen3-30B-A3B: half of the layers have larger down matrices. And a mixture as
// wild as files come: from 2 to 8 bits.
inline void open_real(Case& it, bool wild, uint64_t budget, uint64_t granule) {
    BookModelShape shape{128, 8, 2048, 768, 4, 128, 900'000'000, 0, {}};
    const auto bytes = [](double bits) { return static_cast<uint64_t>(768 * 2048 * bits / 8); };
    for (uint32_t n = 0; n < 48; ++n) {
        const double gate = wild ? std::array{2.0625, 4.5, 8.5}[n % 3] : 4.5;
        const double down = wild ? std::array{3.4375, 8.5}[n % 2] : std::array{4.5, 6.5625}[n % 2];
        shape.layers.push_back({bytes(gate), bytes(gate), bytes(down)});
    }
    Settings settings = host_settings();
    settings.granule = granule;
    settings.max_context = 65'536;
    settings.kv = gpu::KvFormat::k8v4;
    it.open(shape, settings, [&](uint64_t, uint64_t) { return budget; });
}

}  // namespace granary::test
