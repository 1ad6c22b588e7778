// SPDX-License-Identifier: GPL-3.0-or-later
// What a plan says of a prompt is what happens: the same chunks, and at each of them every granule
// in the hands that the plan names.
#include "engine/memory/schedule.h"
#include "tests/engine/fixture.h"
#include "tests/host_settings.h"

namespace granary::test {
namespace {

const std::string kMicro = GRANARY_TEST_DATA "/micro/micro-qwen3moe.gguf";

struct Case {
    std::string path;
    uint32_t context;
    const char* kv;
    uint32_t prefill;  // 0: auto
};

// Opens at `share` of what is needed at least, of prefill 64.
std::unique_ptr<Engine> open_at(const Case& test, double share) {
    Settings settings = host_settings();
    settings.max_context = test.context;
    settings.threads = 2;
    EXPECT_TRUE(settings.set("kv", test.kv));
    settings.vram_budget = 1 << 20;
    const auto planner = make_planner(test.path, settings);
    EXPECT_TRUE(planner);
    const uint64_t least = planner->ways_out(settings).memory;
    settings.vram_budget = static_cast<uint64_t>(static_cast<double>(least) * share);
    if (test.prefill) settings.prefill = {AutoCount::Kind::number, test.prefill};
    EngineOptions options;
    options.settings = settings;
    auto engine = Engine::open(test.path, options);
    return engine ? std::move(*engine) : nullptr;
}

TEST(PlanAndExecution, AgreeGranuleByGranuleAtEachChunk) {
    size_t shrunk = 0, looked_at = 0, ran = 0;
    for (const Case& test : {Case{kMicro, 8192, "f16", 0}, Case{kMicro, 8192, "f16", 1024},
                             Case{kMicro, 8192, "int8", 2048}, Case{kMicro, 8192, "q4", 512},
                             Case{kMicro, 3000, "k8v4", 777}, Case{kStarter, 4096, "f16", 1024}}) {
        for (const double share : {1.0, 1.05, 1.2, 1.5, 3.0}) {
            auto engine = open_at(test, share);
            if (!engine) continue;  // no room for a step as large as asked for
            ++ran;
            SCOPED_TRACE(test.path + " " + test.kv + " prefill " + std::to_string(test.prefill) +
                         " share " + std::to_string(share));
            const Plan plan = engine->plan();
            const Planner planner = engine->planner();
            Request request;
            request.use_raw = true;
            request.max_tokens = 1;
            while (engine->tokens_of(request)->size() < test.context * 9 / 10)
                request.raw += request.raw.empty() ? "The lamp of room 7 is green. " : request.raw;
            auto total = static_cast<uint32_t>(engine->tokens_of(request)->size());
            while (total > test.context - 1) {
                request.raw.resize(request.raw.size() * (test.context - 1) / total - 1);
                total = static_cast<uint32_t>(engine->tokens_of(request)->size());
            }
            const auto schedule = planner.schedule(plan, {}, 0, total);
            ASSERT_TRUE(schedule) << schedule.error().message();
            if (total + 2 * gpu::kStepCells > test.context) {
                EXPECT_GE(schedule->back().chunk, plan.chunk_at_max);
            }
            const auto before = engine->bytes();
            Listener listener;
            listener.on_progress = [&](uint32_t done, uint32_t, double eta) {
                EXPECT_GE(eta, 0);
                const uint32_t token = std::max(done, 1u) - 1;  // the last one that is under way
                const auto rest = rest_of(*schedule, token);
                const uint32_t part = rest.front().chunk;
                // Its chunk begins a whole number of chunks behind the entry of the schedule.
                uint32_t from = 0;
                for (const ScheduledChunks& entry : *schedule)
                    if (entry.from <= token) from = entry.from;
                const uint32_t end = rest.size() > 1 ? rest[1].from : total;
                const uint32_t cell = from + (token - from) / part * part;
                EXPECT_EQ(engine->bytes(), planner.bytes_at(plan, std::min(cell + part, end), part))
                    << "at token " << token;
                ++looked_at;
            };
            const ConversationId id = *engine->create_conversation();
            const auto report = engine->answer(id, request, listener, {});
            ASSERT_TRUE(report) << report.error().message();
            EXPECT_EQ(report->read_tokens, total);
            EXPECT_EQ(report->chunks, *schedule);
            EXPECT_EQ(report->driver_allocations, 0u);
            shrunk += report->chunks.size() > 1;
            const auto time = planner.predict_prompt(plan, *schedule, total);
            ASSERT_EQ(time.stretches.size(), schedule->size());
            engine->drop_conversation(id);
            EXPECT_EQ(engine->bytes(), before);
            if (HasFailure()) return;
        }
    }
    EXPECT_GE(ran, 15u);
    EXPECT_GT(shrunk, 5u);
    EXPECT_GT(looked_at, 200u);
}

}  // namespace
}  // namespace granary::test
