// SPDX-License-Identifier: GPL-3.0-or-later
// The planner's arithmetic: every layout adds up, every refusal names its terms and a way out.
#include "granary/planner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "engine/kv/kv_layout.h"
#include "engine/memory/layout.h"
#include "engine/memory/rates.h"

namespace granary {
namespace {

// The shapes of Qwen3-30B-A3B in Q4_K_M (48 layers, 128 experts of 2.65 and 3.06 MB).
ModelFacts large_model() {
    ModelFacts facts;
    facts.name = "30B-A3B";
    facts.family = "qwen3moe";
    facts.layers = 48;
    facts.trained_context = 262144;
    facts.vocab = 151936;
    facts.hidden = 2048;
    facts.experts = 128;
    facts.experts_used = 8;
    facts.expert_ffn = 768;
    facts.attention = {32, 4, 128, gpu::rope_table(128, 1e7), 1e-6f, 0.0883883f};
    facts.rope_dims = 128;
    facts.rope_base = 1e7;
    facts.fixed_bytes = 900ull << 20;
    for (uint32_t n = 0; n < facts.layers; ++n) {
        facts.expert_bytes.push_back(round_up(n % 2 ? 2654208 : 3058688, kSlotAlignment));
        facts.row_bytes += facts.expert_bytes.back();
    }
    facts.kv_bytes_per_token = 96 << 10;
    return facts;
}

DeviceFacts card_facts(uint64_t bytes) {
    DeviceFacts facts;
    facts.face = gpu::Face::card;
    facts.granule_bytes = 2 << 20;
    facts.free_bytes = bytes;
    facts.code_bytes_hidden = 2048 + 256;
    facts.code_bytes_attention = 4096 + 512;
    facts.code_bytes_ffn = 768 + 128;
    facts.scratch_base = 1 << 20;
    facts.scratch_per_cut = 32 << 10;
    return facts;
}

void expect_adds_up(const Plan& plan) {
    EXPECT_EQ(uint64_t{plan.fixed} + plan.workspace + plan.expert_range,
              plan.budget_bytes / plan.granule_bytes);
    for (const auto& classes : {plan.at_start, plan.at_max})
        EXPECT_EQ(std::accumulate(classes.begin(), classes.end(), uint64_t{0}), plan.budget_bytes);
    EXPECT_LE(plan.floor + plan.kv_at_max + plan.smallest_loan, plan.expert_range);
    EXPECT_GE(plan.chunk, kSmallestChunk);
    EXPECT_LE(plan.smallest_loan, plan.loan);
}

TEST(Planner, EveryAdmittedLayoutAddsUp) {
    size_t admitted = 0, refused = 0;
    for (uint64_t gib : {4, 6, 8, 12, 16, 24, 48, 96}) {
        const Planner planner(large_model(), card_facts(gib << 30));
        for (uint32_t context : {512u, 4096u, 40000u, 131072u, 524288u, 1048576u}) {
            for (uint32_t chunk : {0u, 64u, 1000u, 4096u, 16384u}) {
                Settings settings;
                settings.vram_budget = (gib << 30) - (123 << 20);
                settings.vram_reserve = 300 << 20;
                settings.max_context = context;
                if (chunk) settings.prefill = {AutoCount::Kind::number, chunk};
                const auto plan = planner.plan(settings);
                if (plan) {
                    ++admitted;
                    expect_adds_up(*plan);
                    EXPECT_LE(plan->budget_bytes, (gib << 30) - (300 << 20));
                    EXPECT_EQ(plan->max_context, context);
                    if (chunk) {
                        EXPECT_EQ(plan->chunk, chunk);
                    }
                } else {
                    ++refused;
                    EXPECT_EQ(plan.error().kind, ErrorKind::refused);
                    EXPECT_FALSE(plan.error().advice.empty());
                }
            }
        }
    }
    EXPECT_GT(admitted, 60u);
    EXPECT_GT(refused, 30u);
}

TEST(Planner, ARefusalNamesEachTermAndWhatWouldFit) {
    const Planner planner(large_model(), card_facts(8ull << 30));
    Settings settings;
    settings.vram_budget = 8ull << 30;
    settings.max_context = 262144;
    settings.kv = gpu::KvFormat::f16;
    const auto refused = planner.plan(settings);
    ASSERT_FALSE(refused);
    const std::string message = refused.error().message();
    for (const char* part : {"budget 8 GiB", "fixed weights 900 MiB", "workspace", "smallest loan",
                             "K/V 24 GiB", "floor", " = ", "vram-budget", "max-context"})
        EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
    // The context that it advises is admitted, and one step more is not.
    const size_t at = refused.error().advice.find("max-context to ");
    ASSERT_NE(at, std::string::npos);
    settings.max_context =
        static_cast<uint32_t>(std::stoul(refused.error().advice.substr(at + 15)));
    EXPECT_TRUE(planner.plan(settings));
    settings.max_context += 2 * gpu::kStepCells;
    EXPECT_FALSE(planner.plan(settings));
}

// 96 KiB a token in f16, 49.5 in int8, 38.25 in k8v4, 27 in q4.
TEST(Planner, TheFormatFollowsFromModelAndContext) {
    const auto format = [&](uint32_t context, uint64_t gib, const Settings& more = {}) {
        Settings settings = more;
        settings.max_context = context;
        settings.vram_budget = gib << 30;
        const auto plan = Planner(large_model(), card_facts(gib << 30)).plan(settings);
        EXPECT_TRUE(plan) << plan.error().message();
        if (!plan) return gpu::KvFormat::f32;
        const auto kv = static_cast<size_t>(Owner::kv);
        const uint64_t step = kv_layout(large_model(), plan->kv_format).step_bytes;
        EXPECT_EQ(plan->at_max[kv], round_up(steps_of(context) * step, plan->granule_bytes));
        return plan->kv_format;
    };
    EXPECT_EQ(kv_layout(large_model(), gpu::KvFormat::k8v4).step_bytes, (38u << 20) + (1u << 18));
    for (const uint64_t gib : {16, 48}) {  // the budget has no say
        EXPECT_EQ(format(512, gib), gpu::KvFormat::f16);
        EXPECT_EQ(format(10 * 1024, gib), gpu::KvFormat::f16);   // 960 MiB
        EXPECT_EQ(format(11 * 1024, gib), gpu::KvFormat::int8);  // 1,056 MiB in f16
        EXPECT_EQ(format(20 * 1024, gib), gpu::KvFormat::int8);  // 990 MiB
        EXPECT_EQ(format(21 * 1024, gib), gpu::KvFormat::k8v4);
        EXPECT_EQ(format(100 * 1024, gib), gpu::KvFormat::k8v4);
        Settings asked;
        for (const auto wanted : {gpu::KvFormat::f16, gpu::KvFormat::q4}) {
            asked.kv = wanted;
            EXPECT_EQ(format(40 * 1024, gib, asked), wanted);
        }
    }
}

// The context that a refusal advises stands for another format where `kv` is auto, and fits in it.
TEST(Planner, AdviceHoldsInTheFormatThatItLeadsTo) {
    size_t advised = 0, other_format = 0;
    for (uint64_t mib = 1800; mib < 12000; mib += 111) {
        const Planner planner(large_model(), card_facts(64ull << 30));
        for (uint32_t context = 2000; context <= 1048576; context += context / 2) {
            Settings settings;
            settings.vram_budget = mib << 20;
            settings.max_context = context;
            const auto refused = planner.plan(settings);
            if (refused) continue;
            const size_t at = refused.error().advice.find("max-context to ");
            if (at == std::string::npos) continue;
            const gpu::KvFormat before =
                kv_format_of(planner.model(), planner.device(), settings, settings.max_context);
            settings.max_context =
                static_cast<uint32_t>(std::stoul(refused.error().advice.substr(at + 15)));
            ASSERT_LT(settings.max_context, context);
            const auto plan = planner.plan(settings);
            ASSERT_TRUE(plan) << refused.error().message() << "; " << plan.error().message();
            ++advised;
            other_format += plan->kv_format != before;
        }
    }
    EXPECT_GT(advised, 100u);
    EXPECT_GT(other_format, 10u);
}

TEST(Planner, AStepTooLargeIsRefusedWithOneThatFits) {
    const Planner planner(large_model(), card_facts(4ull << 30));
    Settings settings;
    settings.vram_budget = 4ull << 30;
    settings.max_context = 8192;
    settings.prefill = {AutoCount::Kind::number, 16384};
    const auto refused = planner.plan(settings);
    ASSERT_FALSE(refused);
    const size_t at = refused.error().advice.find("prefill to ");
    ASSERT_NE(at, std::string::npos) << refused.error().message();
    settings.prefill.number =
        static_cast<uint32_t>(std::stoul(refused.error().advice.substr(at + 11)));
    EXPECT_TRUE(planner.plan(settings));
}

TEST(Planner, AnotherBudgetGetsTheGranulesThatALoadWouldChoose) {
    const Planner planner(large_model(), card_facts(16ull << 30));
    Settings settings;
    settings.vram_budget = 16ull << 30;
    settings.max_context = 512;
    settings.cache_floor = {CacheFloor::Kind::bytes, 0, 0};
    ASSERT_TRUE(planner.plan(settings));
    EXPECT_EQ(planner.plan(settings)->granule_bytes, 2u << 20);
    settings.granule = 4 << 20;
    EXPECT_EQ(planner.plan(settings)->granule_bytes, 4u << 20);

    ModelFacts small = large_model();
    small.fixed_bytes = 1 << 20;
    settings.granule = 0;
    settings.vram_budget = 1000ull << 20;
    const auto plan = Planner(small, card_facts(16ull << 30)).plan(settings);
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ(plan->granule_bytes, 64u << 10);
}

TEST(Planner, FloorIsWholeRows) {
    const Planner planner(large_model(), card_facts(16ull << 30));
    Settings settings;
    settings.vram_budget = 16ull << 30;
    settings.max_context = 4096;
    const uint64_t row = planner.model().row_bytes;
    const auto floor_of = [&](CacheFloor floor) {
        settings.cache_floor = floor;
        return planner.plan(settings)->floor;
    };
    const auto rows = [&](uint64_t n) {
        return static_cast<uint32_t>(divide_up(n * row, 2 << 20));
    };
    EXPECT_EQ(floor_of({}), rows(9));  // one more than top-8
    EXPECT_EQ(floor_of({CacheFloor::Kind::bytes, row + 1, 0}), rows(2));
    EXPECT_EQ(floor_of({CacheFloor::Kind::percent, 0, 10}), rows(13));  // 12.8 rows
}

TEST(Planner, UnifiedFaceHoldsNoExpertsAndNoFixedWeights) {
    DeviceFacts facts = card_facts(64ull << 30);
    facts.face = gpu::Face::unified;
    const Planner planner(large_model(), facts);
    Settings settings;
    settings.max_context = 4096;
    const auto plan = planner.plan(settings);
    ASSERT_TRUE(plan) << plan.error().message();
    expect_adds_up(*plan);
    EXPECT_EQ(plan->fixed, 0u);
    EXPECT_EQ(plan->rows_at_start, 0u);
    EXPECT_EQ(plan->at_start[static_cast<int>(Owner::experts)], 0u);
    facts.free_bytes = 100 << 20;
    EXPECT_FALSE(Planner(large_model(), facts).plan(settings));
}

// Seconds of a call in milliseconds, the best of several: what it takes when nobody else runs.
template <class F>
double milliseconds(F&& call) {
    double best = 1e9;
    for (int i = 0; i < 20; ++i) {
        const auto start = std::chrono::steady_clock::now();
        call();
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - start;
        best = std::min(best, took.count());
    }
    return best;
}

TEST(Planner, IsQuickEnoughForASlider) {
    const Planner planner(large_model(), card_facts(40ull << 30));
    for (const uint32_t context : {4096u, 131072u, 1048576u}) {
        for (const uint64_t spare : {0ull, 4ull << 30}) {
            Settings settings;
            settings.max_context = context;
            settings.kv = gpu::KvFormat::q4;
            settings.vram_budget = (4ull << 30) + spare + context * (27ull << 10);
            EXPECT_LT(milliseconds([&] {
                          const auto plan = planner.plan(settings);
                          ASSERT_TRUE(plan) << plan.error().message();
                          ASSERT_GT(plan->speeds.reading, 0);
                      }),
                      1.0)
                << context << " " << spare;
        }
    }
}

// What `prompt` sums by stretches is what its chunks take one by one.
TEST(Planner, APromptTakesAsLongAsItsChunks) {
    const ModelFacts model = large_model();
    const DeviceFacts device = card_facts(40ull << 30);
    const Planner planner(model, device);
    for (const uint64_t budget : {6ull << 30, 8ull << 30, 16ull << 30, 32ull << 30}) {
        for (const uint32_t context : {3000u, 32768u, 70000u}) {
            Settings settings;
            settings.max_context = context;
            settings.kv = gpu::KvFormat::k8v4;
            settings.vram_budget = budget;
            const auto plan = planner.plan(settings);
            ASSERT_TRUE(plan) << plan.error().message();
            const auto schedule = planner.schedule(*plan, {}, 0, context);
            ASSERT_TRUE(schedule);
            const PromptTime time = planner.predict_prompt(*plan, *schedule, context);
            ASSERT_EQ(time.stretches.size(), schedule->size());
            const Predictor predictor(model, device, *plan);
            double seconds = 0;
            for (const ChunksTime& part : time.stretches)
                for (uint32_t cell = part.from; cell < part.to; cell += part.chunk)
                    seconds +=
                        predictor.chunk(part.chunk, cell, std::min(part.chunk, part.to - cell));
            EXPECT_NEAR(time.seconds / seconds, 1, 0.02) << budget << " " << context;
            EXPECT_NEAR(plan->speeds.reading * time.seconds, context, 1e-6 * context);
        }
    }
}

TEST(Planner, AutoTakesTheChunkThatIsPredictedQuickest) {
    Settings settings;
    settings.max_context = 65536;
    for (const uint64_t budget : {9ull << 30, 14ull << 30, 22ull << 30}) {
        settings.vram_budget = budget;
        settings.prefill = {};
        const Planner planner(large_model(), card_facts(40ull << 30));
        const auto chosen = planner.plan(settings);
        ASSERT_TRUE(chosen) << chosen.error().message();
        for (uint32_t chunk = 64; chunk <= 16384; chunk *= 2) {
            settings.prefill = {AutoCount::Kind::number, chunk};
            const auto other = planner.plan(settings);
            if (!other) continue;
            EXPECT_GT(chosen->speeds.reading, other->speeds.reading * 0.93) << chunk;
        }
    }
    // A quicker link makes large chunks worth less.
    settings.vram_budget = 9ull << 30;
    settings.prefill = {};
    DeviceFacts device = card_facts(40ull << 30);
    device.rates = Rates{25e9, 25e9, 30e9, 900e9, 700e9, 700e9, 40e12, 100e12, 400e9, 20e-6};
    const auto slow = Planner(large_model(), device).plan(settings);
    device.rates->link = device.rates->gather = 2500e9;
    const auto quick = Planner(large_model(), device).plan(settings);
    ASSERT_TRUE(slow && quick);
    EXPECT_LT(quick->chunk, slow->chunk);
    EXPECT_GT(quick->speeds.reading, slow->speeds.reading * 0.95);
    EXPECT_GT(quick->speeds.answering_at_max, slow->speeds.answering_at_max);
}

// Only beside a GPU, and only while answers need not be the same whatever memory did.
TEST(Planner, TheProcessorsShareMakesAnswersFaster) {
    DeviceFacts gpu = card_facts(uint64_t{16} << 30);
    gpu.host = false;
    gpu.shares_with_cpu = true;
    gpu.rates = unmeasured_card(100e12, 500e9);
    gpu.rates->cpu = gpu.rates->gather;
    Settings settings;
    settings.vram_budget = uint64_t{10} << 30;
    settings.max_context = 16384;
    const auto answer = [&](const DeviceFacts& device) {
        const Planner planner(large_model(), device);
        const auto plan = planner.plan(settings);
        EXPECT_TRUE(plan) << plan.error().message();
        const double resident = planner.predict_decode(*plan, 0, 1);
        return std::pair(plan->answer_share, planner.predict_decode(*plan, 0) - resident);
    };
    const auto [none, alone] = answer(gpu);
    EXPECT_EQ(none, 0u);
    settings.deterministic = false;
    const auto [fastest, together] = answer(gpu);
    EXPECT_EQ(fastest, kFastestShare);
    // Two that are as fast halve an even number of misses; of one the link keeps all.
    EXPECT_LT(together, 0.85 * alone);
    EXPECT_GT(together, alone / 2);
    DeviceFacts slow = gpu;
    slow.rates->cpu = slow.rates->gather / 100;
    EXPECT_NEAR(answer(slow).second, alone, 0.001 * alone);  // it is left nothing
    settings.cpu_share = 25;
    EXPECT_EQ(answer(gpu).first, 25u);
    EXPECT_NEAR(answer(gpu).second, alone * 3 / 4, 0.01 * alone);
    settings.cpu_share = 100;  // more than is good
    EXPECT_NEAR(answer(gpu).second, alone, 0.01 * alone);
    gpu.shares_with_cpu = false;
    EXPECT_EQ(answer(gpu).first, 0u);
    settings.deterministic = true;
    gpu.shares_with_cpu = true;
    EXPECT_EQ(answer(gpu).first, 0u);
}

TEST(Planner, StreamingBeginsWhereItIsPredictedFaster) {
    const ModelFacts model = large_model();
    DeviceFacts device = card_facts(16ull << 30);
    device.rates = Rates{25e9, 25e9, 30e9, 900e9, 700e9, 700e9, 40e12, 100e12, 400e9, 20e-6};
    Settings settings;
    settings.vram_budget = 9ull << 30;
    settings.max_context = 32768;
    const Planner planner(model, device);
    const auto plan = planner.plan(settings);
    ASSERT_TRUE(plan) << plan.error().message();
    ASSERT_GT(plan->stream_min, 1u);
    ASSERT_LT(plan->stream_min, 512u);
    const auto seconds = [&](AutoCount::Kind kind, uint32_t rows) {
        Settings other = settings;
        other.prefill_stream_min = {kind, 1};
        const auto set = planner.plan(other);
        return Predictor(model, device, *set)
            .chunk(plan->chunk_at_max, plan->max_context - rows, rows);
    };
    for (uint32_t rows : {plan->stream_min, plan->stream_min + 50, 2048u})
        EXPECT_LE(seconds(AutoCount::Kind::number, rows), seconds(AutoCount::Kind::never, rows));
    const uint32_t below = plan->stream_min / 2;
    EXPECT_GT(seconds(AutoCount::Kind::number, below), seconds(AutoCount::Kind::never, below));
    // A layout does not depend on it: it changes while conversations live.
    settings.prefill_stream_min = {AutoCount::Kind::never, 0};
    const auto never = planner.plan(settings);
    EXPECT_EQ(never->chunk, plan->chunk);
    EXPECT_EQ(never->at_max, plan->at_max);
}

}  // namespace
}  // namespace granary
