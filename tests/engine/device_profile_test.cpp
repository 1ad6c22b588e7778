// SPDX-License-Identifier: GPL-3.0-or-later
// Device profiles: what this machine's own would say is what its kernels say; no file can harm.
#include "granary/device_profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "granary/engine.h"
#include "tests/host_settings.h"

namespace granary {
namespace {

DeviceProfile measured() {
    auto device = gpu::make_host_device({.threads = 3});
    EXPECT_TRUE(device);
    return DeviceProfile::of(**device, unmeasured_host(3));
}

std::string slurp(const std::filesystem::path& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(DeviceProfile, IsReadAsItWasWritten) {
    const DeviceProfile profile = measured();
    const auto read = DeviceProfile::parse(profile.json());
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, profile);
    EXPECT_FALSE(read->estimate);
    EXPECT_EQ(read->json(), profile.json());
}

// Buffers by rule are those that the kernels ask for, for every model that is at hand.
TEST(DeviceProfile, PlansAsTheDeviceItself) {
    const DeviceProfile profile = measured();
    for (const char* path : {GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf",
                             GRANARY_TEST_DATA "/micro/micro-qwen3moe.gguf"}) {
        Settings settings = test::host_settings();
        settings.threads = 3;
        settings.prefill = {AutoCount::Kind::number, 256};  // auto follows the rates
        const auto here = make_planner(path, settings);
        const auto there = make_planner(path, settings, &profile);
        ASSERT_TRUE(here) << here.error().message();
        ASSERT_TRUE(there) << there.error().message();
        for (const uint64_t budget : {0ull, 40ull << 20, 2ull << 30}) {
            for (const uint32_t threads : {1u, 3u, 8u}) {
                settings.vram_budget = budget;
                settings.threads = threads;
                settings.max_context = 2048;
                const auto a = here->plan(settings), b = there->plan(settings);
                ASSERT_EQ(a.has_value(), b.has_value());
                if (!a) continue;
                EXPECT_EQ(a->budget_bytes, b->budget_bytes) << path;
                EXPECT_EQ(a->workspace, b->workspace) << path;
                EXPECT_EQ(a->at_start, b->at_start);
                EXPECT_EQ(a->at_max, b->at_max);
            }
        }
    }
}

TEST(DeviceProfile, ThoseThatComeAlongCanBeUsed) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(GRANARY_RESOURCES "/devices")) {
        const auto profile = DeviceProfile::parse(slurp(entry.path()));
        ASSERT_TRUE(profile) << entry.path() << ": " << profile.error().message();
        EXPECT_FALSE(profile->origin.empty()) << entry.path();
        Settings settings = test::host_settings();
        settings.max_context = 2048;
        const auto planner =
            make_planner(GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf", settings, &*profile);
        ASSERT_TRUE(planner);
        const auto plan = planner->plan(settings);  // no budget: what is free
        ASSERT_TRUE(plan) << entry.path() << ": " << plan.error().message();
        EXPECT_GT(plan->speeds.reading, 1);
        ++count;
    }
    EXPECT_GE(count, 3u);
}

TEST(DeviceProfile, EveryFigureIsChecked) {
    const auto good = nlohmann::ordered_json::parse(measured().json());
    const auto refused = [&](const nlohmann::ordered_json& json, const std::string& key) {
        const auto profile = DeviceProfile::parse(json.dump());
        ASSERT_FALSE(profile) << json.dump();
        EXPECT_EQ(profile.error().kind, ErrorKind::invalid_file);
        EXPECT_NE(profile.error().message().find(key), std::string::npos)
            << profile.error().message();
    };
    for (const char* part : {"", "buffers", "rates"}) {
        const auto& object = *part ? good[part] : good;
        for (const auto& [key, value] : object.items()) {
            SCOPED_TRACE(std::string(part) + "." + key);
            auto without = good;
            (*part ? without[part] : without).erase(key);
            refused(without, key);
            std::vector<nlohmann::ordered_json> wrong{nullptr, -1, 1e300,
                                                      nlohmann::ordered_json::array()};
            if (!value.is_string()) wrong.emplace_back("7");
            if (value.is_number()) wrong.emplace_back(true);
            for (const auto& other : wrong) {
                auto bad = good;
                (*part ? bad[part] : bad)[key] = other;
                refused(bad, key);
            }
        }
    }
    auto more = good;
    more["rates"]["wishes"] = 1;
    refused(more, "wishes");
    auto later = good;
    later["granary_device_profile"] = 4;
    refused(later, "granary_device_profile");
    auto backend = good;
    backend["device"] = "abacus";
    refused(backend, "abacus");
    auto granule = good;
    granule["granule_bytes"] = 100000;
    refused(granule, "granule_bytes");
}

TEST(DeviceProfile, DamagedTextIsRefusedOrHarmless) {
    const std::string good = measured().json();
    for (size_t n = 0; n + 3 < good.size(); ++n)
        EXPECT_FALSE(DeviceProfile::parse(good.substr(0, n)));
    std::mt19937 random(5);
    Settings settings = test::host_settings();
    settings.max_context = 4096;
    const std::string starter = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";
    size_t read = 0;
    for (int i = 0; i < 3000; ++i) {
        std::string text = good;
        for (uint32_t n = 1 + random() % 3; n-- > 0;)
            text[random() % text.size()] =
                static_cast<char>(random() % 4 ? '0' + random() % 10 : random());
        const auto profile = DeviceProfile::parse(text);
        if (!profile) continue;
        ++read;
        if (read % 20) continue;
        const auto planner = make_planner(starter, settings, &*profile);
        ASSERT_TRUE(planner);
        (void)planner->plan(settings);
    }
    EXPECT_GT(read, 100u);
    EXPECT_FALSE(DeviceProfile::parse(std::string(60000, '[')));
    EXPECT_FALSE(DeviceProfile::parse("{}"));
    EXPECT_FALSE(DeviceProfile::parse("[]"));
    EXPECT_FALSE(DeviceProfile::parse("12"));
}

}  // namespace
}  // namespace granary
