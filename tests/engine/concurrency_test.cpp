// SPDX-License-Identifier: GPL-3.0-or-later
// One thread works the engine; others read telemetry, plan, tokenise and ask it to stop. Run under
// ThreadSanitizer this shows that what may be shared is.
#include <gtest/gtest.h>

#include <thread>

#include "granary/engine.h"
#include "tests/engine/small_model.h"
#include "tests/host_settings.h"

namespace granary::test {
namespace {

TEST(Concurrency, OthersReadPlanAndStopWhileItWorks) {
    TempDir folder;
    const std::string path = SmallModel().save(folder, "model.gguf");
    Settings settings = host_settings();
    ASSERT_TRUE(settings.set("vram-budget", "4MiB"));
    ASSERT_TRUE(settings.set("max-context", "1024"));
    ASSERT_TRUE(settings.set("prefill", "64"));
    ASSERT_TRUE(settings.set("prefill-stream-min", "1"));
    ASSERT_TRUE(settings.set("threads", "2"));
    auto opened = Engine::open(path, {settings, {}, {}, 5, {}});
    ASSERT_TRUE(opened) << opened.error().message();
    Engine& engine = **opened;

    std::atomic<bool> done{false};
    std::atomic<uint64_t> frames{0}, events{0};
    Telemetry& telemetry = engine.telemetry();
    std::thread map([&] {
        MemoryEvent event;
        while (!done) {
            if (const MapFrame* frame = telemetry.map.take()) {
                ++frames;
                uint64_t sum = 0;
                for (uint32_t count : frame->granules) sum += count;
                EXPECT_EQ(sum, frame->words.size());
                std::array<uint32_t, kOwners> counted{};
                for (const GranuleWord& word : frame->words)
                    ++counted[static_cast<int>(word.owner())];
                EXPECT_EQ(counted, frame->granules);
            }
            while (telemetry.events.pop(event)) ++events;
            const Counters& counters = telemetry.counters;
            EXPECT_LE(counters.prompt_done.load(), 1024u);
            EXPECT_EQ(counters.driver_allocations_after_load.load(), 0u);
            std::this_thread::yield();
        }
    });
    std::thread plans([planner = engine.planner(), settings, &done]() mutable {
        for (uint32_t i = 0; !done; ++i) {
            settings.max_context = 512 + i % 4096;
            (void)planner.plan(settings);
            std::this_thread::yield();
        }
    });
    std::thread tokens([tokenizer = engine.tokenizer(), &done] {
        while (!done) {
            EXPECT_EQ(tokenizer->encode("hello", true).size(), 5u);
            EXPECT_EQ(tokenizer->piece(65), "A");
            std::this_thread::yield();
        }
    });
    StopSignal stop;
    std::thread stopper([&] {
        while (!done) {
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
            stop.request();
        }
    });

    const ConversationId id = *engine.create_conversation();
    Request request;
    request.use_raw = true;
    request.max_tokens = 20;
    for (int round = 0; round < 12; ++round) {
        request.raw = std::string(200 + 50 * round, static_cast<char>('a' + round));
        stop.reset();
        auto report = engine.answer(id, request, {}, stop);
        EXPECT_TRUE(report) << report.error().message();
        if (round % 4 != 3) continue;
        settings.threads = 1 + round % 3;
        settings.vram_budget = round % 8 == 3 ? 0 : 4 << 20;
        EXPECT_TRUE(engine.apply(settings));
    }
    done = true;
    map.join();
    plans.join();
    tokens.join();
    stopper.join();
    EXPECT_GT(frames, 0u);
    EXPECT_GT(events, 0u);
}

}  // namespace
}  // namespace granary::test
