// SPDX-License-Identifier: GPL-3.0-or-later
// A device that reads host memory only where it is locked: however much of the model is, in place
// or in copies, answers stay the same, and nothing is streamed to it from elsewhere.
#include "engine/run/host_weights.h"

#include <gtest/gtest.h>

#include "engine/gguf/file.h"
#include "granary/engine.h"
#include "tests/engine/small_hybrid.h"
#include "tests/engine/small_model.h"
#include "tests/host_settings.h"
#include "tests/memory/watched_device.h"

namespace granary::test {
namespace {

struct Locking {
    bool wants = false, refuses = false;
    const char* page_lock = "auto";
};

// What the model says after a prompt of a few chunks, on an emulated card that holds few experts.
std::string answer(const std::string& path, const Locking& locking, const char* stream_min,
                   std::vector<std::string>* log = nullptr) {
    EngineOptions options;
    options.settings = host_settings();
    options.settings.max_context = 1024;
    EXPECT_TRUE(options.settings.set("vram-budget", "9MiB"));
    EXPECT_TRUE(options.settings.set("prefill", "64"));
    EXPECT_TRUE(options.settings.set("prefill-stream-min", stream_min));
    EXPECT_TRUE(options.settings.set("page-lock", locking.page_lock));
    WatchedDevice* device = nullptr;
    options.wrap_device = [&](std::unique_ptr<gpu::Device> plain) {
        auto made = std::make_unique<WatchedDevice>(std::move(plain));
        device = made.get();
        device->lose_no_copies();
        if (locking.wants) device->want_locked_memory(locking.refuses);
        return made;
    };
    options.log = [&](LogLevel, std::string_view line) {
        if (log) log->emplace_back(line);
    };
    auto engine = Engine::open(path, options);
    EXPECT_TRUE(engine) << engine.error().message();
    if (!engine) return {};
    EXPECT_EQ((*engine)->driver_allocations_after_load(), 0u);
    Request request;
    request.use_raw = true;
    request.raw = std::string(200, 'a') + "and on";
    request.max_tokens = 8;
    std::string said;
    Listener listener;
    listener.on_text = [&](std::string_view piece) { said += piece; };
    auto report = (*engine)->answer(*(*engine)->create_conversation(), request, listener, {});
    EXPECT_TRUE(report) << report.error().message();
    EXPECT_EQ((*engine)->driver_allocations_after_load(), 0u);
    EXPECT_EQ(device->unlocked_copies(), 0u);
    return said;
}

TEST(HostWeights, AnswersDoNotDependOnWhatIsLocked) {
    TempDir folder;
    SmallHybrid hybrid;
    SmallModel attention;
    hybrid.experts = attention.experts = 64;
    attention.gate_up = attention.down = gpu::WeightType::q8_0;
    for (const std::string& path :
         {attention.save(folder, "attention.gguf"), hybrid.save(folder, "hybrid.gguf")}) {
        for (const char* stream_min : {"1", "never"}) {
            const std::string expected = answer(path, {}, stream_min);
            EXPECT_FALSE(expected.empty());
            for (const bool refuses : {false, true})
                for (const char* page_lock : {"0", "200KiB", "1MiB", "2MiB", "1GiB", "auto"})
                    EXPECT_EQ(answer(path, {true, refuses, page_lock}, stream_min), expected)
                        << path << " " << stream_min << " " << refuses << " " << page_lock;
        }
    }
}

TEST(HostWeights, WhatIsLockedIsSaidOnce) {
    TempDir folder;
    SmallModel model;
    model.experts = 64;
    const std::string path = model.save(folder, "model.gguf");
    const auto lines = [&](const Locking& locking) {
        std::vector<std::string> log, found;
        answer(path, locking, "1", &log);
        for (const std::string& line : log)
            if (line.find("locked") != std::string::npos) found.push_back(line);
        return found;
    };
    EXPECT_TRUE(lines({}).empty());
    const auto none = lines({true, false, "0"});
    ASSERT_EQ(none.size(), 1u);
    EXPECT_NE(none[0].find("2 of 2 layers"), std::string::npos) << none[0];
    const auto copies = lines({true, true, "1GiB"});
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_NE(copies[0].find("on purpose"), std::string::npos) << copies[0];
    EXPECT_EQ(copies[0].find("layers"), std::string::npos) << copies[0];
}

TEST(HostWeights, MovedExpertsAreTheSameBytes) {
    TempDir folder;
    SmallModel small;
    small.gate_up = gpu::WeightType::q4_0;
    auto file = gguf::File::open(small.save(folder, "model.gguf"));
    ASSERT_TRUE(file);
    Model model = std::move(*load_model(*file));
    const Model before = model;
    WatchedDevice device(std::move(*gpu::make_host_device({})));
    device.want_locked_memory(true);
    const auto weights = lock_weights(device, model, uint64_t{1} << 30);
    ASSERT_TRUE(weights);
    EXPECT_EQ(weights->unreadable_layers, 0u);
    EXPECT_EQ(weights->in_place, 0u);
    EXPECT_NE(model.embedding.data, before.embedding.data);
    for (size_t n = 0; n < model.layers.size(); ++n) {
        const MoeWeights &moe = model.layers[n].moe, &old = before.layers[n].moe;
        for (size_t e = 0; e < moe.home.size(); ++e) {
            EXPECT_NE(moe.home[e].gate, old.home[e].gate);
            EXPECT_EQ(std::memcmp(moe.home[e].gate, old.home[e].gate, moe.gate_bytes), 0);
            EXPECT_EQ(std::memcmp(moe.home[e].up, old.home[e].up, moe.up_bytes), 0);
            EXPECT_EQ(std::memcmp(moe.home[e].down, old.home[e].down, moe.down_bytes), 0);
        }
    }
}

}  // namespace
}  // namespace granary::test
