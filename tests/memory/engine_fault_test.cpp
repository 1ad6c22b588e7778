// SPDX-License-Identifier: GPL-3.0-or-later
// The same failures below a whole engine: prompts, answers, a budget that falls and rises, a stop,
// another layout. A failed call ends its request with an error and the engine goes on; a lost
// device ends that request and all later ones with the cause.
#include <gtest/gtest.h>

#include <numeric>

#include "granary/engine.h"
#include "tests/engine/small_hybrid.h"
#include "tests/engine/small_model.h"
#include "tests/host_settings.h"
#include "tests/memory/watched_device.h"

namespace granary::test {
namespace {

Settings settings_of(uint64_t budget, uint32_t context = 3072) {
    Settings settings = host_settings();
    settings.threads = 1;
    settings.max_context = context;
    settings.granule = 16 << 10;
    settings.vram_budget = budget;
    settings.prefill = {AutoCount::Kind::number, 256};
    return settings;
}

std::string text_of(size_t bytes, unsigned seed) {
    std::string text;
    while (text.size() < bytes) text += static_cast<char>('a' + (text.size() * seed + seed) % 26);
    return text;
}

struct Asked {
    Result<Report> report;
    std::string text;
};

// An engine whose devices fail on demand.
class Faulty {
  public:
    Faulty(const std::string& path, const Settings& settings) {
        EngineOptions options;
        options.settings = settings;
        options.log = [this](LogLevel, std::string_view line) { log.emplace_back(line); };
        options.wrap_device = [this](std::unique_ptr<gpu::Device> device) {
            auto watched = std::make_unique<WatchedDevice>(std::move(device));
            watched->lose_no_copies();
            this->device = watched.get();
            if (arm_new) arm_new(*watched);
            return watched;
        };
        auto opened = Engine::open(path, options);
        EXPECT_TRUE(opened) << opened.error().message();
        if (opened) engine = std::move(*opened);
    }
    Asked ask(ConversationId id, const std::string& text, uint32_t stop_after = UINT32_MAX) {
        Request request;
        request.use_raw = true;
        request.raw = text;
        request.max_tokens = 5;
        StopSignal stop;
        std::string said;
        Listener listener;
        listener.on_text = [&](std::string_view piece) { said += piece; };
        listener.on_progress = [&](uint32_t done, uint32_t, double) {
            if (done >= stop_after) stop.request();
        };
        auto report = engine->answer(id, request, listener, stop);
        return {std::move(report), std::move(said)};
    }
    void expect_sums() const {
        const auto bytes = engine->bytes();
        EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}),
                  engine->plan().budget_bytes);
        EXPECT_EQ(engine->driver_allocations_after_load(), 0u);
        EXPECT_TRUE(device->refused().empty()) << device->refused().front();
    }

    std::vector<std::string> log;
    std::function<void(WatchedDevice&)> arm_new;
    WatchedDevice* device = nullptr;  // the newest
    std::unique_ptr<Engine> engine;
};

// Everything that a person does; the errors that came of it.
std::vector<Error> live(Faulty& faulty, uint64_t low, uint64_t high) {
    Engine& engine = *faulty.engine;
    std::vector<Error> errors;
    const auto note = [&](const auto& result) {
        if (!result) errors.push_back(result.error());
    };
    const auto a = engine.create_conversation();
    const auto b = engine.create_conversation();
    note(a);
    note(b);
    if (!a || !b) return errors;
    note(faulty.ask(*a, text_of(700, 3)).report);
    note(faulty.ask(*b, text_of(1300, 5)).report);
    note(engine.apply(settings_of(low)));
    note(faulty.ask(*a, text_of(700, 3) + text_of(1600, 7)).report);
    note(engine.apply(settings_of(high)));
    note(faulty.ask(*b, text_of(1300, 5) + text_of(900, 11), 300).report);
    engine.drop_conversation(*a);
    note(faulty.ask(*b, text_of(1300, 5)).report);
    return errors;
}

class EngineFaults : public ::testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        if (GetParam()) {
            path_ = SmallHybrid().save(folder_, "hybrid.gguf");
        } else {
            SmallModel model;
            model.experts = 12, model.used = 3, model.hidden = 32, model.ffn = 64;
            path_ = model.save(folder_, "model.gguf");
        }
        // From the refusal itself: what is needed at least.
        auto roomy = Engine::open(path_, {settings_of(1 << 28), {}, {}, 0, {}});
        ASSERT_TRUE(roomy) << roomy.error().message();
        const Plan plan = (*roomy)->plan();
        low_ = (uint64_t{plan.fixed} + plan.workspace + plan.state + plan.floor + plan.kv_at_max +
                plan.smallest_loan) *
               plan.granule_bytes;
        auto least = (*roomy)->planner().plan(settings_of(low_));
        while (!least) {  // the loan that `prefill` asks for needs room for its own K/V
            low_ += plan.granule_bytes;
            least = (*roomy)->planner().plan(settings_of(low_));
        }
        high_ = low_ + 6 * plan.granule_bytes;
        Faulty sound(path_, settings_of(high_));
        expected_ = sound.ask(*sound.engine->create_conversation(), question_).text;
        Faulty whole(path_, settings_of(high_));
        whole.device->arm(UINT64_MAX, 0);
        EXPECT_TRUE(live(whole, low_, high_).empty());
        calls_ = whole.device->calls();
        ASSERT_GT(calls_, 60u);
        size_t shrunk = 0;
        for (const std::string& line : whole.log) shrunk += line.starts_with("loan shrunk");
        EXPECT_GT(shrunk, 0u);
    }
    void expect_goes_on(Faulty& faulty) {
        const auto id = faulty.engine->create_conversation();
        ASSERT_TRUE(id) << id.error().message();
        const Asked asked = faulty.ask(*id, question_);
        if (asked.report) {
            EXPECT_EQ(asked.text, expected_);
        } else {
            // Granules are missing for good.
            EXPECT_EQ(asked.report.error().kind, ErrorKind::refused);
            EXPECT_GT(faulty.engine->bytes()[static_cast<int>(Owner::quarantined)], 0u)
                << asked.report.error().message();
        }
        faulty.expect_sums();
    }

    TempDir folder_;
    std::string path_;
    const std::string question_ = text_of(1500, 13);
    std::string expected_;
    uint64_t low_ = 0, high_ = 0, calls_ = 0;
};

// Every how many calls one fails; --every 1 lets each.
uint64_t every = 11;

TEST_P(EngineFaults, AFailedCallEndsItsRequestAndTheEngineGoesOn) {
    size_t failed = 0;
    for (const uint64_t count : {1, 2, 40}) {
        for (uint64_t n = 0; n < calls_; n += every) {
            SCOPED_TRACE("call " + std::to_string(n) + " of " + std::to_string(calls_) +
                         ", failing " + std::to_string(count));
            Faulty faulty(path_, settings_of(high_));
            faulty.device->arm(n, count);
            const std::vector<Error> errors = live(faulty, low_, high_);
            failed += !errors.empty();
            for (const Error& error : errors)
                EXPECT_TRUE(error.kind == ErrorKind::device || error.kind == ErrorKind::refused)
                    << error.message();
            faulty.device->disarm();
            faulty.expect_sums();
            expect_goes_on(faulty);
            if (HasFailure()) return;
        }
    }
    EXPECT_GT(failed, calls_ / every);
}

TEST_P(EngineFaults, ALostDeviceEndsAllRequestsWithTheCause) {
    for (uint64_t n = 0; n < calls_; n += every) {
        SCOPED_TRACE("lost at call " + std::to_string(n) + " of " + std::to_string(calls_));
        Faulty faulty(path_, settings_of(high_));
        faulty.device->arm(n, 1, ErrorKind::device_lost);
        const std::vector<Error> errors = live(faulty, low_, high_);
        const auto last = faulty.ask(1, question_);
        ASSERT_FALSE(last.report);
        for (const Error& error : {errors.empty() ? last.report.error() : errors.front(),
                                   last.report.error(), faulty.engine->apply({}).error()}) {
            EXPECT_EQ(error.kind, ErrorKind::device_lost) << error.message();
            EXPECT_NE(error.message().find("failed on purpose"), std::string::npos)
                << error.message();
            EXPECT_EQ(error.advice, "Reload the model");
        }
        for (const Error& error : errors)
            EXPECT_EQ(error.kind, ErrorKind::device_lost) << error.message();
        EXPECT_LT(faulty.device->failed().size(), 40u);
        if (HasFailure()) return;
    }
}

// Some drivers give a process no device again that it has lost.
TEST_P(EngineFaults, ALostDeviceAdvisesWhatItsDriverDoes) {
    Faulty faulty(path_, settings_of(high_));
    faulty.device->advise("Restart the program");
    faulty.device->arm(calls_ / 2, 1, ErrorKind::device_lost);
    (void)live(faulty, low_, high_);
    const auto last = faulty.ask(1, question_);
    ASSERT_FALSE(last.report);
    EXPECT_EQ(last.report.error().kind, ErrorKind::device_lost);
    EXPECT_EQ(last.report.error().advice, "Restart the program");
    EXPECT_EQ(last.report.error().detail.find("Restart"), std::string::npos);
}

TEST_P(EngineFaults, ALayoutThatCannotBeLaidLeavesTheOldOne) {
    uint64_t calls = 0;
    for (const ErrorKind kind : {ErrorKind::device, ErrorKind::device_lost})
        for (uint64_t n = 0; n == 0 || n <= calls; ++n) {
            SCOPED_TRACE("call " + std::to_string(n) + " of " + std::to_string(calls));
            Faulty faulty(path_, settings_of(high_));
            const auto id = faulty.engine->create_conversation();
            ASSERT_TRUE(faulty.ask(*id, text_of(700, 3)).report);
            bool first = true;
            faulty.arm_new = [&](WatchedDevice& device) {
                device.arm(first ? n : UINT64_MAX, 1, kind);
                first = false;
            };
            const auto applied = faulty.engine->apply(settings_of(high_ << 1, 4096));
            faulty.arm_new = {};
            if (applied) {
                calls = n == calls ? calls : n;
                ASSERT_GT(n, 5u);
                break;
            }
            ++calls;
            EXPECT_EQ(applied.error().kind, ErrorKind::device) << applied.error().message();
            EXPECT_EQ(faulty.engine->plan().settings, settings_of(high_));
            faulty.device->disarm();
            expect_goes_on(faulty);
            if (HasFailure()) return;
        }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineFaults, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Hybrid" : "Attention"; });

}  // namespace
}  // namespace granary::test

int main(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    if (argc == 3 && std::string_view(argv[1]) == "--every")
        granary::test::every = std::stoull(argv[2]);
    else if (argc != 1)
        return 1;
    return RUN_ALL_TESTS();
}
