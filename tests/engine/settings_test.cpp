// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/settings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace granary {
namespace {

std::string set_and_get(std::string_view name, std::string_view value) {
    Settings settings;
    const Result<void> set = settings.set(name, value);
    return set ? settings.get(name) : "refused";
}

TEST(Settings, ReadsAndWritesEachForm) {
    const std::vector<std::array<std::string_view, 3>> cases{
        {"max-context", "auto", "auto"},
        {"max-context", "0", "auto"},
        {"max-context", "512", "512"},
        {"max-context", " 1048576 ", "1048576"},
        {"rope-scaling", "auto", "auto"},
        {"rope-scaling", "none", "none"},
        {"rope-scaling", "linear", "linear"},
        {"rope-scaling", " yarn", "yarn"},
        {"rope-factor", "auto", "auto"},
        {"rope-factor", "2", "2"},
        {"rope-factor", "1.53125", "1.53125"},
        {"rope-factor", "4096", "4096"},
        {"prefill", "auto", "auto"},
        {"prefill", "64", "64"},
        {"prefill", "16384", "16384"},
        {"prefill-stream-min", "auto", "auto"},
        {"prefill-stream-min", "never", "never"},
        {"prefill-stream-min", "1", "1"},
        {"prefill-stream-min", "16384", "16384"},
        {"kv", "auto", "auto"},
        {"kv", "f16", "f16"},
        {"kv", "int8", "int8"},
        {"kv", " k8v4 ", "k8v4"},
        {"kv", "q4", "q4"},
        {"vram-budget", "0", "0"},
        {"vram-budget", "40MiB", "40MiB"},
        {"vram-budget", "14.5 GiB", "14848MiB"},
        {"vram-budget", "1000", "1000"},
        {"vram-reserve", "512mib", "512MiB"},
        {"cache-floor", "auto", "auto"},
        {"cache-floor", "12MiB", "12MiB"},
        {"cache-floor", "0", "0"},
        {"cache-floor", "12%", "12%"},
        {"cache-floor", "12.5 %", "12.5%"},
        {"cache-floor", "0%", "0%"},
        {"cache-floor", "100%", "100%"},
        {"threads", "auto", "auto"},
        {"threads", "1", "1"},
        {"threads", "256", "256"},
        {"device", "auto", "auto"},
        {"page-lock", "auto", "auto"},
        {"page-lock", "0", "0"},
        {"page-lock", "24GiB", "24GiB"},
        {"device", "host", "host"},
        {"device", "cuda:63", "cuda:63"},
        {"granule", "auto", "auto"},
        {"granule", "64KiB", "64KiB"},
        {"granule", "64MiB", "64MiB"},
        {"granule", "2097152", "2MiB"},
    };
    for (const auto& [name, value, text] : cases)
        EXPECT_EQ(set_and_get(name, value), text) << name << " " << value;
}

TEST(Settings, RefusesEverythingElseAndChangesNothing) {
    const std::vector<std::pair<std::string_view, std::vector<std::string_view>>> cases{
        {"max-context",
         {"", "511", "1048577", "-1", "4k", "1e5", "4096.0", "0x200", "4 096",
          "99999999999999999999", "never"}},
        {"rope-scaling", {"", "YaRN", "longrope", "2", "none x", "off"}},
        {"rope-factor", {"", "0", "0.5", "-2", "4097", "nan", "inf", "1e1", "2x", "+2", "1,5"}},
        {"prefill", {"", "0", "63", "16385", "-64", "never", "512 tokens"}},
        {"prefill-stream-min", {"", "0", "16385", "-1", "Never", "nan"}},
        {"kv", {"", "f32", "F16", "q8", "k8v8", "0", "int4", "f16 int8"}},
        {"vram-budget",
         {"", "auto", "-1", "-40MiB", "40M", "MiB", "1.2.3GiB", "nan", "inf", "40MiBs",
          "99999999999999999999", "999999999TiB", "1.5", "+1", "1e9"}},
        {"vram-reserve", {"", "auto", "ten"}},
        {"cache-floor",
         {"", "-1%", "-0%", "101%", "nan%", "inf%", "%", "12%%", "1e1%", "0x10%", "12 percent"}},
        {"page-lock", {"", "-1", "half", "50%", "never"}},
        {"cpu-share", {"", "-1", "101", "101%", "%", "50%%", "half", "1.5%", "on"}},
        {"deterministic", {"", "true", "On", "1", "auto"}},
        {"threads", {"", "257", "-2", "two", "1.0"}},
        {"device", {"", "cuda", "cuda:", "cuda:-1", "cuda:64", "cuda:0x1", "Host", "cpu"}},
        {"granule", {"", "0", "32KiB", "128MiB", "96KiB", "65537"}},
    };
    for (const auto& [name, values] : cases) {
        for (std::string_view value : values) {
            Settings settings;
            const Result<void> set = settings.set(name, value);
            ASSERT_FALSE(set) << name << " " << value;
            EXPECT_EQ(set.error().kind, ErrorKind::invalid_argument);
            EXPECT_NE(set.error().what.find(name), std::string::npos);
            EXPECT_FALSE(set.error().advice.empty());
            EXPECT_EQ(settings, Settings()) << name << " " << value;
        }
    }
}

TEST(Settings, UnknownNamesAreAnsweredWithTheKnownOnes) {
    Settings settings;
    const Result<void> set = settings.set("max_context", "512");
    ASSERT_FALSE(set);
    EXPECT_NE(set.error().advice.find("max-context, rope-scaling"), std::string::npos);
    EXPECT_EQ(settings.get("max_context"), "");
}

TEST(Settings, EveryEntryHasHelpAndADefaultThatItTakesBack) {
    ASSERT_EQ(Settings::entries().size(), 15u);
    for (const Settings::Entry& entry : Settings::entries()) {
        Settings settings;
        const std::string text = settings.get(entry.name);
        ASSERT_FALSE(text.empty()) << entry.name;
        EXPECT_TRUE(settings.set(entry.name, text)) << entry.name << " " << text;
        EXPECT_EQ(settings, Settings()) << entry.name;
        EXPECT_TRUE(entry.help.ends_with('.')) << entry.name;
    }
}

TEST(Settings, WhatGetSaysSetTakesBackExactly) {
    Settings settings;
    settings.max_context = 40'960;
    settings.rope_scaling = RopeKind::yarn;
    settings.rope_factor = 2.0 / 3 + 1;
    settings.prefill = {AutoCount::Kind::number, 1024};
    settings.prefill_stream_min = {AutoCount::Kind::never, 0};
    settings.vram_budget = 41'943'041;
    settings.vram_reserve = uint64_t{3} << 40;
    settings.cache_floor = {CacheFloor::Kind::percent, 0, 33.333333333333336};
    settings.kv = gpu::KvFormat::k8v4;
    settings.cpu_share = 40;
    settings.deterministic = false;
    settings.threads = 2;
    settings.granule = 65'536;
    Settings copy;
    for (const Settings::Entry& entry : Settings::entries())
        ASSERT_TRUE(copy.set(entry.name, settings.get(entry.name))) << entry.name;
    EXPECT_EQ(copy, settings);
}

TEST(ParseBytes, ReadsUnitsAndDecimals) {
    const std::vector<std::pair<std::string_view, uint64_t>> cases{
        {"0", 0},
        {"1048576", 1048576},
        {"12 B", 12},
        {"1KiB", 1024},
        {"1 kb", 1000},
        {"40MiB", 40ull << 20},
        {"40MB", 40'000'000},
        {"14.5 GiB", 29ull << 29},
        {"1.5GB", 1'500'000'000},
        {"0.1MiB", 104'857},  // rounded down
        {"2TiB", 2ull << 40},
        {"1048576TiB", 1ull << 60},
    };
    for (const auto& [text, bytes] : cases) {
        const Result<uint64_t> parsed = parse_bytes(text);
        ASSERT_TRUE(parsed) << text;
        EXPECT_EQ(*parsed, bytes) << text;
    }
}

TEST(ParseBytes, SaysWhatIsWrong) {
    const std::vector<std::pair<std::string_view, std::string_view>> cases{
        {"MiB", "begin with a number"},
        {"", "begin with a number"},
        {"40M", "unit is unknown"},
        {"40 Mi B", "unit is unknown"},
        {".5GiB", "number cannot be read"},
        {"1.0000001GiB", "one to six decimals"},
        {"1.GiB", "one to six decimals"},
        {"1..5GiB", "one to six decimals"},
        {"1.5", "cannot be divided"},
        {"1048577TiB", "larger than any memory"},
        {"1048576.5TiB", "larger than any"},
        {"18446744073709551616", "number cannot be read"},
        {"18446744073709551615", "larger than any memory"},
    };
    for (const auto& [text, why] : cases) {
        const Result<uint64_t> parsed = parse_bytes(text);
        ASSERT_FALSE(parsed) << text;
        EXPECT_NE(parsed.error().what.find(why), std::string::npos)
            << text << ": " << parsed.error().what;
    }
    const std::string longest(100'000, '9');
    EXPECT_LT(parse_bytes(longest).error().detail.size(), 60u);
}

}  // namespace
}  // namespace granary
