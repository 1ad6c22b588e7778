// SPDX-License-Identifier: GPL-3.0-or-later
// The memory manager on the emulated card: after any sequence of changes each granule has one
// owner, the sums match the budget, new cells are zero, and every resident expert reads as the
// file has it.
#include "engine/memory/manager.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "engine/run/pass.h"
#include "tests/host_settings.h"

namespace granary {
namespace {

struct Card {
    explicit Card(const std::string& path, const char* budget, uint32_t context,
                  const char* floor = "auto") {
        auto file = gguf::File::open(path);
        EXPECT_TRUE(file) << file.error().message();
        model = std::move(*load_model(*file));
        Settings settings = test::host_settings();
        EXPECT_TRUE(settings.set("vram-budget", budget));
        EXPECT_TRUE(settings.set("cache-floor", floor));
        settings.max_context = context;
        gpu::HostDeviceOptions options;
        options.face = gpu::Face::card;
        options.granule_bytes = 64 << 10;
        options.budget_bytes = settings.vram_budget;
        options.threads = 1;
        device = std::move(*gpu::make_host_device(options));
        facts.face = gpu::Face::card;
        facts.granule_bytes = options.granule_bytes;
        facts.free_bytes = device->info().free_bytes;
        facts.code_bytes_hidden = facts.code_bytes_attention = 1024;
        facts.code_bytes_ffn = 512;
        facts.scratch_base = 4096;
        auto planned = Planner(model.facts, facts).plan(settings);
        EXPECT_TRUE(planned) << planned.error().message();
        plan = *planned;
        auto made = MemoryManager::create(*device, model, plan, facts, telemetry, {}, {});
        EXPECT_TRUE(made) << made.error().message();
        memory = std::move(*made);
    }

    void check() {
        const auto bytes = memory->bytes();
        uint64_t sum = 0;
        for (uint64_t b : bytes) sum += b;
        ASSERT_EQ(sum, plan.budget_bytes);
        ASSERT_EQ(memory->driver_allocations_after_load(), 0u);
        memory->publish(true);
        const MapFrame* frame = telemetry.map.take();
        ASSERT_NE(frame, nullptr);
        ASSERT_EQ(frame->words.size(), plan.budget_bytes / plan.granule_bytes);
        std::set<std::pair<int, uint32_t>> places;
        for (size_t i = 0; i < frame->words.size(); ++i) {
            if (frame->places[i].range == Place::kNowhere) continue;
            ASSERT_TRUE(places.insert({frame->places[i].range, frame->places[i].place}).second);
            ASSERT_LT(frame->places[i].place, frame->ranges[frame->places[i].range].places);
        }
        for (int i = 0; i < kOwners; ++i)
            ASSERT_EQ(frame->granules[i] * plan.granule_bytes, bytes[i])
                << owner_name(static_cast<Owner>(i));
        uint32_t usable = 0;
        for (uint32_t n = 0; n < model.facts.layers; ++n) {
            const gpu::ExpertCacheView& view = memory->experts().known(n);
            for (uint32_t row = 0; row < view.slots; ++row) {
                usable += view.usable[row];
                const int32_t expert = view.expert_in[row];
                if (expert < 0) continue;
                ASSERT_TRUE(view.usable[row]);
                ASSERT_EQ(view.slot_of[expert], static_cast<int32_t>(row));
            }
            for (uint32_t e = 0; e < view.experts; ++e) {
                const gpu::ExpertEntry& at = view.entries[e];
                const gpu::ExpertEntry& home = model.layers[n].moe.home[e];
                ASSERT_EQ(view.slot_of[e] < 0, at.gate == home.gate);
                ASSERT_EQ(std::memcmp(at.gate, home.gate, view.gate_bytes), 0);
                ASSERT_EQ(std::memcmp(at.up, home.up, view.up_bytes), 0);
                ASSERT_EQ(std::memcmp(at.down, home.down, view.down_bytes), 0);
            }
        }
        ASSERT_EQ(usable, memory->experts().usable_slots());
        ASSERT_EQ(memory->experts().complete(),
                  memory->experts().resident() == model.facts.layers * model.facts.experts);
    }

    Model model;
    std::unique_ptr<gpu::Device> device;
    DeviceFacts facts;
    Plan plan;
    Telemetry telemetry;
    std::unique_ptr<MemoryManager> memory;
};

const std::string kMicro = GRANARY_TEST_DATA "/micro/micro-qwen3moe.gguf";
const std::string kStarter = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";

TEST(MemoryManager, StartsAsPlanned) {
    Card card(kStarter, "40MiB", 4096);
    card.check();
    EXPECT_EQ(card.plan.budget_bytes, 640u * 65536);
    EXPECT_GE(card.memory->experts().resident(), (card.plan.rows_at_start - 1) * 8u);
    const auto bytes = card.memory->bytes();
    for (Owner owner : {Owner::fixed, Owner::workspace, Owner::kv})
        EXPECT_EQ(bytes[static_cast<int>(owner)], card.plan.at_start[static_cast<int>(owner)]);
    // With the loan taken it is the plan's "at start" class by class.
    ASSERT_TRUE(card.memory->take_loan(card.plan.chunk));
    EXPECT_EQ(card.memory->bytes(), card.plan.at_start);
    card.memory->return_loan();
    auto kv = card.memory->create_kv();
    ASSERT_TRUE(kv);
    ASSERT_TRUE(card.memory->grow_kv(*kv, 4096));
    ASSERT_TRUE(card.memory->take_loan(card.plan.chunk_at_max));
    EXPECT_EQ(card.memory->bytes(), card.plan.at_max);
    card.memory->return_loan();
    card.check();
}

TEST(MemoryManager, RandomSequencesKeepEveryInvariant) {
    for (const auto& [path, budget, context, floor] :
         {std::tuple{kMicro, "4MiB", 2048u, "auto"}, std::tuple{kMicro, "3MiB", 1024u, "25%"},
          std::tuple{kStarter, "40MiB", 4096u, "auto"},
          std::tuple{kStarter, "100MiB", 8192u, "10MiB"}}) {
        Card card(path, budget, context, floor);
        std::mt19937 random(20261129);
        std::vector<KvId> live;
        bool lent = false;
        Result<MemoryManager::Loan> loan;
        uint32_t tick = 0;
        for (int step = 0; step < 400; ++step) {
            switch (random() % 8) {
                case 0:
                    if (live.size() < 3) live.push_back(*card.memory->create_kv());
                    break;
                case 1:
                case 2: {
                    if (live.empty()) break;
                    const KvId kv = live[random() % live.size()];
                    const uint64_t before = card.memory->kv_cells(kv);
                    const uint64_t cells = random() % context + 1;
                    const uint32_t need = card.memory->kv_need(kv, cells);
                    const bool fits = need <= card.memory->kv_available();
                    const auto growth = card.memory->grow_kv(kv, cells);
                    ASSERT_EQ(growth.has_value(), fits);
                    if (!growth) break;
                    EXPECT_EQ(growth->granules, need);
                    ASSERT_GE(card.memory->kv_cells(kv), std::max(before, cells));
                    // New steps are zero; they are then filled, so that a leak would show.
                    const uint64_t step_bytes = card.memory->kv().step_bytes;
                    std::byte* const base = card.memory->kv_base(kv);
                    const uint64_t first = before / gpu::kStepCells * step_bytes;
                    const uint64_t end = card.memory->kv_cells(kv) / gpu::kStepCells * step_bytes;
                    for (uint64_t at = first; at < end; at += 509)
                        ASSERT_EQ(base[at], std::byte{0});
                    if (end > first) std::memset(base + first, 0xee, end - first);
                    break;
                }
                case 3:
                    if (!live.empty()) {
                        card.memory->drop_kv(live.back());
                        live.pop_back();
                    }
                    break;
                case 4:
                    if (lent) {
                        card.memory->return_loan();
                    } else {
                        const uint32_t chunk = kSmallestChunk + random() % card.plan.chunk;
                        const uint64_t bytes =
                            loan_layout(card.model.facts, card.facts, chunk).bytes;
                        const bool fits =
                            divide_up(bytes, card.plan.granule_bytes) <= card.memory->lendable();
                        loan = card.memory->take_loan(chunk);
                        ASSERT_EQ(loan.has_value(), fits);
                        if (!loan) break;
                        std::memset(loan->base, 0xdd, loan->layout.bytes);
                    }
                    lent = !lent;
                    break;
                case 6:
                    if (!lent) break;
                    if (const uint32_t chunk = smaller_chunk(loan->chunk)) {
                        const std::byte* const ring = loan->base + loan->layout.ring;
                        loan = card.memory->shrink_loan(*loan, chunk);
                        ASSERT_TRUE(loan) << loan.error().message();
                        ASSERT_EQ(loan->base + loan->layout.ring, ring);  // copies may be under way
                        std::memset(loan->base, 0xdd, loan->layout.bytes);
                    }
                    break;
                case 7:
                    if (!live.empty()) {
                        const KvId kv = live[random() % live.size()];
                        const uint64_t cells = random() % context;
                        const uint32_t need = card.memory->kv_need(kv, cells);
                        card.memory->trim_kv(kv, cells);
                        ASSERT_EQ(card.memory->kv_need(kv, cells), need);
                        ASSERT_LE(card.memory->kv_cells(kv), cells + 2 * gpu::kStepCells);
                    }
                    break;
                case 5: {  // decode warms experts at random
                    for (uint32_t n = 0; n < card.model.facts.layers; ++n) {
                        const gpu::ExpertCacheView& view = card.memory->experts().view(n);
                        const uint32_t expert = random() % view.experts;
                        view.heat[expert] += 1;
                        view.last_use[expert] = ++tick;
                    }
                    break;
                }
            }
            if (step % 10 == 0) card.check();
        }
        card.check();
    }
}

TEST(MemoryManager, HotExpertsKeepASlotWhenTheirsIsTaken) {
    Card card(kStarter, "40MiB", 4096);
    // The experts in the rows that K/V takes first are the hot ones.
    std::vector<int32_t> hot(card.model.facts.layers);
    for (uint32_t n = 0; n < card.model.facts.layers; ++n) {
        const gpu::ExpertCacheView& view = card.memory->experts().view(n);
        for (uint32_t row = 0; row < view.slots; ++row)
            if (view.expert_in[row] >= 0) hot[n] = view.expert_in[row];
        view.heat[hot[n]] = 100;
    }
    auto kv = card.memory->create_kv();
    ASSERT_TRUE(card.memory->grow_kv(*kv, 4096));
    ASSERT_TRUE(card.memory->take_loan(card.plan.chunk_at_max));
    for (uint32_t n = 0; n < card.model.facts.layers; ++n)
        EXPECT_GE(card.memory->experts().known(n).slot_of[hot[n]], 0) << "layer " << n;
    card.memory->return_loan();
    card.check();
}

TEST(MemoryManager, KnowsWhetherEveryExpertHasASlot) {
    Card card(kStarter, "100MiB", 4096);
    MemoryManager& memory = *card.memory;
    EXPECT_TRUE(memory.experts().complete());
    // Conversations grow until they take the place of experts.
    std::vector<KvId> all;
    for (uint64_t lost = 0; lost == 0;) {
        const auto kv = memory.create_kv();
        ASSERT_TRUE(kv);
        all.push_back(*kv);
        ASSERT_LE(memory.kv_need(*kv, 4096), memory.kv_available());
        const auto growth = memory.grow_kv(*kv, 4096);
        ASSERT_TRUE(growth);
        lost = growth->experts_lost;
        EXPECT_EQ(memory.experts().complete(), lost == 0);
    }
    for (const KvId kv : all) memory.drop_kv(kv);
    card.check();
    EXPECT_FALSE(memory.experts().complete());  // slots come back empty
    // As misses fill them: the host hears of it when it reads the tables.
    for (uint32_t n = 0; n < card.model.facts.layers; ++n) {
        const gpu::ExpertCacheView& view = memory.experts().view(n);
        gpu::DecodePlace place{nullptr, 0, 1};
        for (int32_t e = 0; e < static_cast<int32_t>(view.experts); ++e, ++place.tick) {
            std::vector<int32_t> count(view.experts);
            count[static_cast<size_t>(e)] = 1;
            gpu::Routes routes{};
            routes.expert = &e;
            routes.count = count.data();
            routes.rows = 1;
            card.device->kernels().fetch_experts(view, routes, 1, &place);
        }
    }
    memory.publish(true, MemoryManager::Compute::idle);
    EXPECT_TRUE(memory.experts().complete());
    card.check();
}

TEST(MemoryManager, TwoCardsInOneProcess) {
    Card a(kStarter, "40MiB", 4096);
    Card b(kMicro, "4MiB", 1024);
    auto kv_a = a.memory->create_kv();
    auto kv_b = b.memory->create_kv();
    ASSERT_TRUE(a.memory->grow_kv(*kv_a, 3000));
    ASSERT_TRUE(b.memory->grow_kv(*kv_b, 1000));
    a.check();
    b.check();
    b.memory->drop_kv(*kv_b);
    a.check();
    b.check();
}

}  // namespace
}  // namespace granary
