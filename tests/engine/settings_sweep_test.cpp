// SPDX-License-Identifier: GPL-3.0-or-later
// Settings from one end to the other: each layout is refused with a sum and a way out that works,
// or runs with bytes that add up; and whatever was applied before, the same tokens come out.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <csignal>
#include <numeric>

#include "engine/memory/manager.h"
#include "granary/engine.h"
#include "tests/engine/small_hybrid.h"
#include "tests/engine/small_model.h"
#include "tests/host_settings.h"

namespace granary::test {
namespace {

const std::string kMicro = GRANARY_TEST_DATA "/micro/micro-qwen3moe.gguf";
const std::string kStarter = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";

Settings settings_of(std::initializer_list<std::pair<const char*, std::string>> values) {
    Settings settings = host_settings();
    for (const auto& [name, value] : values) {
        auto set = settings.set(name, value);
        EXPECT_TRUE(set) << set.error().message();
    }
    return settings;
}

// What an advice names behind `words`: "33.2 MiB", "2048".
std::string after(const std::string& advice, const std::string& words) {
    const size_t at = advice.find(words);
    if (at == std::string::npos) return "";
    const size_t begin = at + words.size();
    return advice.substr(begin, advice.find_first_of(",:", begin) - begin);
}

void expect_adds_up(const Plan& plan) {
    ASSERT_EQ(uint64_t{plan.fixed} + plan.workspace + plan.expert_range,
              plan.budget_bytes / plan.granule_bytes);
    for (const auto& classes : {plan.at_start, plan.at_max})
        ASSERT_EQ(std::accumulate(classes.begin(), classes.end(), uint64_t{0}), plan.budget_bytes);
    ASSERT_LE(uint64_t{plan.floor} + plan.kv_at_max + plan.smallest_loan, plan.expert_range);
}

// A refusal's advice is admitted as it stands, read as a person would type it.
void expect_way_out(const Planner& planner, const Settings& settings, const Error& error) {
    ASSERT_EQ(error.kind, ErrorKind::refused) << error.message();
    ASSERT_NE(error.advice, "") << error.message();
    bool any = false;
    if (const std::string budget = after(error.advice, "Raise vram-budget to "); !budget.empty()) {
        Settings raised = settings;
        ASSERT_TRUE(raised.set("vram-budget", budget)) << error.message();
        auto plan = planner.plan(raised);
        // An explicit reading step may need more, and says so next.
        if (!plan) plan = tl::unexpected(plan.error());
        ASSERT_TRUE(plan || plan.error().advice.starts_with("Set prefill"))
            << error.message() << " / " << plan.error().message();
        any = true;
    }
    if (const std::string context = after(error.advice, "ower max-context to "); !context.empty()) {
        Settings shorter = settings;
        ASSERT_TRUE(shorter.set("max-context", context)) << error.message();
        auto plan = planner.plan(shorter);
        ASSERT_TRUE(plan || plan.error().advice.starts_with("Set prefill"))
            << error.message() << " / " << plan.error().message();
        any = true;
    }
    if (const std::string prefill = after(error.advice, "Set prefill to "); !prefill.empty()) {
        Settings smaller = settings;
        ASSERT_TRUE(smaller.set("prefill", prefill.substr(0, prefill.find(' '))));
        ASSERT_TRUE(planner.plan(smaller)) << error.message();
        any = true;
    }
    ASSERT_TRUE(any || error.message().find(" free") != std::string::npos) << error.message();
}

TEST(SettingsSweep, EveryBudgetIsRefusedWithAWayOutOrAddsUp) {
    for (const std::string& path : {kMicro, kStarter}) {
        auto engine = Engine::open(path, {settings_of({{"threads", "1"}}), {}, {}, 0, {}});
        ASSERT_TRUE(engine) << engine.error().message();
        const Planner planner = (*engine)->planner();
        size_t admitted = 0, refused = 0;
        constexpr const char* formats[] = {"auto", "f16", "int8", "k8v4", "q4"};
        for (const char* granule : {"auto", "64KiB", "128KiB", "2MiB", "64MiB"})
            for (const char* context : {"512", "1500", "4096", "65536", "1048576"})
                for (const char* floor : {"auto", "0", "1", "7%", "100%", "500GiB"})
                    for (const char* prefill : {"auto", "64", "1000", "16384"})
                        for (uint64_t budget = 64 << 10; budget < 6ull << 30;
                             budget += budget / 7 / 4096 * 4096 + 4096) {
                            Settings settings =
                                settings_of({{"granule", granule},
                                             {"max-context", context},
                                             {"cache-floor", floor},
                                             {"prefill", prefill},
                                             {"kv", formats[(admitted + refused) % 5]}});
                            settings.vram_budget = budget;
                            const auto plan = planner.plan(settings);
                            if (plan) {
                                ++admitted;
                                expect_adds_up(*plan);
                                ASSERT_LE(plan->budget_bytes, budget);
                            } else {
                                ++refused;
                                expect_way_out(planner, settings, plan.error());
                            }
                            if (HasFatalFailure()) {
                                FAIL() << path << " granule " << granule << " context " << context
                                       << " floor " << floor << " prefill " << prefill << " budget "
                                       << budget;
                            }
                        }
        EXPECT_GT(admitted, 1000u);
        EXPECT_GT(refused, 1000u);
    }
}

TEST(SettingsSweep, AReserveNearOrAboveEverythingIsRefusedAsSuch) {
    auto engine = Engine::open(kMicro, {settings_of({{"threads", "1"}}), {}, {}, 0, {}});
    ASSERT_TRUE(engine);
    DeviceFacts facts = (*engine)->planner().device();
    facts.free_bytes = 8ull << 30;
    const Planner planner((*engine)->model(), facts);
    for (const char* budget : {"0", "40MiB"}) {
        for (uint64_t reserve : {(8ull << 30) - 1, 8ull << 30, (8ull << 30) + 1, 1ull << 50}) {
            Settings settings = settings_of({{"vram-budget", budget}});
            settings.vram_reserve = reserve;
            const auto plan = planner.plan(settings);
            ASSERT_FALSE(plan);
            EXPECT_EQ(plan.error().kind, ErrorKind::refused);
            // More budget would not help, and is not advised.
            EXPECT_EQ(plan.error().advice.find("Raise vram-budget"), std::string::npos);
            EXPECT_NE(plan.error().message().find("reserve"), std::string::npos)
                << plan.error().message();
        }
        Settings settings = settings_of({{"vram-budget", budget}});
        settings.vram_reserve = 7ull << 30;
        EXPECT_TRUE(planner.plan(settings));
    }
}

// The plan's classes are those of the granules, at both ends of a conversation.
TEST(SettingsSweep, PlanAndExecutionAgreeGranuleByGranule) {
    // Rows of this one are larger than a loan.
    SmallModel deep;
    deep.layers = 12, deep.hidden = 32, deep.ffn = 512;
    TempDir folder;
    for (const std::string& path : {kMicro, kStarter, deep.save(folder, "deep.gguf")}) {
        auto file = gguf::File::open(path);
        ASSERT_TRUE(file);
        for (const char* granule : {"64KiB", "1MiB"}) {
            for (uint64_t budget = 2 << 20; budget < 50 << 20; budget += budget / 3) {
                for (const char* floor : {"0", "auto"}) {
                    const Settings settings =
                        settings_of({{"granule", granule},
                                     {"threads", "1"},
                                     {"max-context", "2048"},
                                     {"vram-budget", std::to_string(budget)},
                                     {"cache-floor", floor},
                                     {"prefill", std::string_view(floor) == "0" ? "64" : "auto"}});
                    auto engine = Engine::open(path, {settings, {}, {}, 0, {}});
                    if (!engine) {
                        ASSERT_EQ(engine.error().kind, ErrorKind::refused);
                        continue;
                    }
                    const DeviceFacts facts = (*engine)->planner().device();
                    const Plan plan = (*engine)->plan();
                    engine->reset();
                    gpu::HostDeviceOptions options{gpu::Face::card, plan.granule_bytes, budget, 1,
                                                   0};
                    auto device = gpu::make_host_device(options);
                    ASSERT_TRUE(device);
                    auto model = load_model(*file);
                    ASSERT_TRUE(model);
                    Telemetry telemetry;
                    auto memory =
                        MemoryManager::create(**device, *model, plan, facts, telemetry, {}, {});
                    ASSERT_TRUE(memory) << memory.error().message();
                    SCOPED_TRACE(path + " " + granule + " " + std::to_string(budget));
                    auto kv = (*memory)->create_kv();
                    auto loan = (*memory)->take_loan(plan.chunk);
                    ASSERT_TRUE(loan);
                    ASSERT_EQ((*memory)->bytes(), plan.at_start);
                    ASSERT_TRUE((*memory)->shrink_loan(*loan, plan.chunk_at_max));
                    ASSERT_TRUE((*memory)->grow_kv(*kv, plan.max_context));
                    ASSERT_EQ((*memory)->bytes(), plan.at_max);
                    (*memory)->return_loan();
                    EXPECT_EQ((*memory)->experts().rows(), plan.rows_at_start);
                }
            }
        }
    }
}

class Applied : public ::testing::Test {
  protected:
    void SetUp() override {
        SmallModel model;
        model.hidden = 128, model.ffn = 96, model.experts = 16, model.used = 3, model.layers = 3;
        path_ = model.save(folder_, "model.gguf");
    }
    std::string answer(Engine& engine, ConversationId id, const std::string& text) {
        Request request;
        request.use_raw = true;
        request.raw = text;
        request.max_tokens = 12;
        std::string said;
        Listener listener;
        listener.on_text = [&](std::string_view piece) { said += piece; };
        auto report = engine.answer(id, request, listener, {});
        EXPECT_TRUE(report) << report.error().message();
        uint64_t sum = 0;
        for (uint64_t bytes : engine.bytes()) sum += bytes;
        EXPECT_EQ(sum, engine.plan().budget_bytes);
        EXPECT_EQ(engine.driver_allocations_after_load(), 0u);
        return said;
    }
    TempDir folder_;
    std::string path_;
};

TEST_F(Applied, AnySequenceOfSettingsLeavesTheSameTokens) {
    const std::string text(700, 'x');
    for (const auto& [path, seed] :
         {std::pair{path_, 1u}, {SmallHybrid().save(folder_, "hybrid.gguf"), 2u}}) {
        path_ = path;
        std::string expected;
        auto opened = Engine::open(path_, {settings_of({{"threads", "1"}}), {}, {}, 0, {}});
        ASSERT_TRUE(opened) << opened.error().message();
        Engine& engine = **opened;
        std::mt19937 random(seed);
        const auto one_of = [&](std::initializer_list<const char*> list) {
            return std::string(list.begin()[random() % list.size()]);
        };
        const ConversationId id = *engine.create_conversation();
        size_t laid = 0;
        for (int step = 0; step < 60; ++step) {
            Settings settings = engine.plan().settings;
            for (int change = 0; change < 2; ++change) {
                const std::string name =
                    one_of({"max-context", "prefill", "prefill-stream-min", "vram-budget",
                            "vram-reserve", "cache-floor", "threads", "granule"});
                const std::string value =
                    name == "max-context"          ? one_of({"auto", "1024", "2000", "8192"})
                    : name == "prefill"            ? one_of({"auto", "64", "100", "512", "16384"})
                    : name == "prefill-stream-min" ? one_of({"auto", "never", "1", "64", "65"})
                    : name == "vram-budget" ? one_of({"0", "1MiB", "6MiB", "9MiB", "30MiB", "2GiB"})
                    : name == "vram-reserve" ? one_of({"0", "1GiB", "1000GiB"})
                    : name == "cache-floor"  ? one_of({"auto", "0", "50%", "100%", "900GiB"})
                    : name == "threads"      ? one_of({"1", "2", "3", "auto"})
                                             : one_of({"auto", "64KiB", "512KiB", "4MiB"});
                ASSERT_TRUE(settings.set(name, value)) << name << " " << value;
            }
            const Settings before = engine.plan().settings;
            const uint32_t cells = engine.cells(id);
            auto applied = engine.apply(settings);
            if (applied) {
                EXPECT_EQ(engine.plan().settings, settings);
                laid += *applied;
                if (*applied) {
                    EXPECT_EQ(engine.cells(id), 0u);
                }
            } else {
                EXPECT_NE(applied.error().kind, ErrorKind::device_lost);
                EXPECT_EQ(engine.plan().settings, before);
                EXPECT_EQ(engine.cells(id), cells) << applied.error().message();
            }
            const std::string said = answer(engine, id, text);
            if (expected.empty()) expected = said;
            ASSERT_EQ(said, expected) << seed << " " << step;
        }
        EXPECT_GT(laid, 5u);
    }
}

// More threads need more scratch: a budget that only just fits cannot take them, and the refusal
// comes before anything is given up. The planner's copy says the same.
TEST_F(Applied, ThreadsThatDoNotFitAreRefusedWhileTheOldLayoutRuns) {
    Settings settings = settings_of({{"threads", "1"}, {"vram-budget", "1MiB"}});
    auto refused = Engine::open(path_, {settings, {}, {}, 0, {}});
    ASSERT_FALSE(refused);
    ASSERT_TRUE(
        settings.set("vram-budget", after(refused.error().advice, "Raise vram-budget to ")));
    auto opened = Engine::open(path_, {settings, {}, {}, 0, {}});
    ASSERT_TRUE(opened) << opened.error().message();
    Engine& engine = **opened;
    const ConversationId id = *engine.create_conversation();
    answer(engine, id, "hello");
    const uint32_t cells = engine.cells(id);
    ASSERT_GT(cells, 0u);
    settings.threads = 8;
    const auto preview = engine.planner().plan(settings);
    const auto applied = engine.apply(settings);
    ASSERT_FALSE(applied);
    EXPECT_EQ(applied.error().kind, ErrorKind::refused);
    EXPECT_EQ(engine.cells(id), cells);
    ASSERT_FALSE(preview);
    EXPECT_EQ(preview.error().message(), applied.error().message());
}

// What a copy of the planner promises is what Apply lays, on any face, granule and thread count.
TEST_F(Applied, PreviewsAreExact) {
    auto opened = Engine::open(path_, {settings_of({{"threads", "1"}}), {}, {}, 0, {}});
    ASSERT_TRUE(opened);
    Engine& engine = **opened;
    for (const auto& values :
         {std::pair{"0", "1"}, {"20MiB", "3"}, {"1500MiB", "2"}, {"0", "4"}, {"9MiB", "1"}}) {
        const Settings settings = settings_of(
            {{"vram-budget", values.first}, {"threads", values.second}, {"max-context", "4096"}});
        const auto preview = engine.planner().plan(settings);
        ASSERT_TRUE(preview) << preview.error().message();
        ASSERT_TRUE(engine.apply(settings));
        EXPECT_EQ(preview->granule_bytes, engine.plan().granule_bytes);
        EXPECT_EQ(preview->budget_bytes, engine.plan().budget_bytes);
        EXPECT_EQ(preview->at_start, engine.plan().at_start);
        EXPECT_EQ(preview->at_max, engine.plan().at_max);
    }
}

// The system refuses memory to the new layout and then to the old one too: every call says so and
// none crashes.
TEST_F(Applied, AnEngineWithoutMemorySaysSo) {
    const Settings settings = settings_of({{"threads", "1"}});
    auto opened = Engine::open(path_, {settings, {}, {}, 0, {}});
    ASSERT_TRUE(opened);
    Engine& engine = **opened;
    const ConversationId id = *engine.create_conversation();
    answer(engine, id, "hello");
    Settings longer = settings;
    longer.max_context = 2048;

    struct rlimit limit {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit none { 65536, limit.rlim_max };
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &none), 0);  // granules are pages of a file in memory
    const auto lost = engine.apply(longer);
    const auto bytes = engine.bytes();
    Request request;
    request.messages = {{"user", "hello"}};
    const auto refused = engine.answer(id, request, {}, {});
    const auto numbers = engine.logits({{1, 2, 3}, {}, 0});
    const auto speed = engine.bench(std::array{BenchStage{4, 4}});
    EXPECT_FALSE(engine.create_conversation());
    engine.drop_conversation(id);
    const auto again = engine.apply(settings);
    setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, old_handler);

    ASSERT_FALSE(lost);
    EXPECT_EQ(lost.error().kind, ErrorKind::device_lost) << lost.error().message();
    EXPECT_EQ(bytes, (std::array<uint64_t, kOwners>{}));
    for (const Error& error : {refused.error(), numbers.error(), speed.error(), again.error()})
        EXPECT_EQ(error.kind, ErrorKind::device_lost) << error.message();
    EXPECT_EQ(engine.cells(id), 0u);
    EXPECT_EQ(engine.driver_allocations_after_load(), 0u);

    EXPECT_EQ(engine.model().layers, 3u);
    EXPECT_EQ(engine.plan().settings, settings);
    EXPECT_EQ(engine.device().id, "host");
    EXPECT_TRUE(engine.planner().plan(longer));
}

}  // namespace
}  // namespace granary::test
