// SPDX-License-Identifier: GPL-3.0-or-later
// Whole engines under random use, on emulated cards of any size: prompts, answers, stops anywhere,
// budgets that fall and rise, other layouts, saving and restoring, two conversations that compete.
// Whatever happens, the answers are those of an engine with everything resident that was told the
// same. Run with --steps N --seed S for other sequences; a failure prints how to see it again.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <numeric>
#include <random>

#include "tests/engine/saved_conversation.h"
#include "tests/engine/small_hybrid.h"
#include "tests/engine/small_model.h"
#include "tests/memory/random_steps.h"
#include "tests/memory/watched_device.h"
#include "tests/unpacked.h"

namespace granary::test {
namespace {

uint64_t steps_wanted = 360;
uint64_t seed_wanted = 1;

constexpr uint64_t kStepsOfAnEngine = 60;
constexpr uint32_t kContext = 2560;

// What somebody asked, and when it was stopped: behind so many cells, or so many pieces of text.
struct Turn {
    std::string prompt;
    uint32_t max_tokens = 0;
    uint32_t stop_behind_cell = UINT32_MAX;
    uint32_t stop_after_pieces = UINT32_MAX;
};

struct Said {
    std::string text;
    Report report;
};

Result<Said> ask(Engine& engine, ConversationId id, const Turn& turn) {
    Request request;
    request.use_raw = true;
    request.raw = turn.prompt;
    request.max_tokens = turn.max_tokens;
    Said said;
    StopSignal stop;
    uint32_t pieces = 0;
    Listener listener;
    listener.on_text = [&](std::string_view piece) {
        said.text += piece;
        if (++pieces >= turn.stop_after_pieces) stop.request();
    };
    listener.on_progress = [&](uint32_t done, uint32_t total, double) {
        // These models read a byte as a token.
        const auto from = static_cast<uint32_t>(turn.prompt.size()) - total;
        if (uint64_t{from} + done > turn.stop_behind_cell) stop.request();
    };
    auto report = engine.answer(id, request, listener, stop);
    if (!report) return tl::unexpected(report.error());
    said.report = *report;
    return said;
}

// A conversation on the card, and what was said in it.
struct Talk {
    ConversationId id = 0, oracle = 0;
    std::string text;
    std::vector<Turn> turns;
};

class Use {
  public:
    Use(Random& random, const std::string& path, const TempDir& folder)
        : random_(random), path_(path), folder_(folder) {
        settings_.max_context = kContext;
        settings_.threads = static_cast<uint32_t>(random.between(1, 2));
        settings_.granule = random.of<uint64_t>({16 << 10, 64 << 10});
        settings_.kv = static_cast<gpu::KvFormat>(random.below(4));
        Settings everything = settings_;
        everything.prefill = {AutoCount::Kind::number, 64};
        everything.granule = 0;
        oracle_ = open(everything);
        settings_.vram_budget = 1ull << 30;
        change_prefill(settings_);
        if (!oracle_) return;
        const Planner planner = oracle_->planner();
        most_ = planner.plan(settings_)->budget_bytes;
        uint64_t refused = 0;
        for (least_ = most_; least_ - refused > 4096;) {
            settings_.vram_budget = (least_ + refused) / 2;
            (planner.plan(settings_) ? least_ : refused) = settings_.vram_budget;
        }
        settings_.vram_budget = random.one_in(2) ? least_ : random.between(least_, most_);
        engine_ = open(settings_, true);
        for (Talk& talk : talks_) begin(talk);
    }
    bool is_open() const { return engine_ && oracle_; }

    void step() {
        Talk& talk = talks_[random_.below(2)];
        switch (random_.below(12)) {
            case 0:
                engine_->drop_conversation(talk.id);
                begin(talk);
                break;
            case 1:
                save_and_restore(talk);
                break;
            case 2:
            case 3:
                apply();
                break;
            case 4:
                compare_bits(talk);
                break;
            default:
                converse(talk);
        }
        if (::testing::Test::HasFailure()) return;
        const auto bytes = engine_->bytes();
        ASSERT_EQ(std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}),
                  engine_->plan().budget_bytes);
        ASSERT_EQ(bytes[static_cast<int>(Owner::loan)], 0u);
        ASSERT_EQ(bytes[static_cast<int>(Owner::quarantined)], 0u);
        ASSERT_EQ(engine_->driver_allocations_after_load(), 0u);
        ASSERT_TRUE(refused_.empty()) << refused_.front();
    }

    struct {
        uint64_t given_up = 0, shrunk = 0, stopped = 0, restored = 0, budgets = 0, layouts = 0,
                 compared = 0, answered = 0;
    } met;

  private:
    std::unique_ptr<Engine> open(const Settings& settings, bool watched = false) {
        EngineOptions options;
        options.settings = settings;
        if (watched) {
            options.log = [this](LogLevel, std::string_view line) {
                met.given_up += line.find("gives up its K/V") != std::string_view::npos;
                met.shrunk += line.starts_with("loan shrunk");
            };
            options.wrap_device = [this](std::unique_ptr<gpu::Device> device) {
                auto made = std::make_unique<WatchedDevice>(std::move(device));
                made->tell_refused_to(&refused_);
                return made;
            };
        }
        auto engine = Engine::open(path_, options);
        EXPECT_TRUE(engine) << engine.error().message();
        return engine ? std::move(*engine) : nullptr;
    }
    void change_prefill(Settings& settings) {
        settings.prefill = {};
        if (random_.one_in(2))
            settings.prefill = {AutoCount::Kind::number,
                                random_.of<uint32_t>({64, 192, 500, 1000})};
        settings.prefill_stream_min = {};
        if (random_.one_in(2))
            settings.prefill_stream_min = {AutoCount::Kind::number, random_.of<uint32_t>({1, 200})};
    }
    void begin(Talk& talk) {
        if (talk.oracle) oracle_->drop_conversation(talk.oracle);
        talk = {};
        const auto id = engine_->create_conversation(), oracle = oracle_->create_conversation();
        ASSERT_TRUE(id && oracle);
        talk.id = *id;
        talk.oracle = *oracle;
    }
    std::string new_text() {
        std::string text(random_.between(1, random_.one_in(3) ? 2400 : 200), ' ');
        for (char& letter : text) letter = static_cast<char>('a' + random_.below(26));
        return text;
    }

    void converse(Talk& talk) {
        Turn turn;
        // It goes on, goes back some way, or asks for the same again.
        if (random_.one_in(6) && !talk.text.empty())
            talk.text.resize(random_.between(1, talk.text.size()));
        if (!random_.one_in(8) || talk.text.empty()) talk.text += new_text();
        if (talk.text.size() > kContext - 80) talk.text.resize(random_.between(1, kContext / 2));
        turn.prompt = talk.text;
        turn.max_tokens = static_cast<uint32_t>(random_.below(40));
        const bool stop = random_.one_in(4);
        if (stop && random_.one_in(2)) {
            turn.stop_behind_cell = static_cast<uint32_t>(random_.below(turn.prompt.size()));
        } else if (stop) {
            turn.stop_after_pieces = static_cast<uint32_t>(random_.between(1, 8));
        }
        auto said = ask(*engine_, talk.id, turn);
        ASSERT_TRUE(said) << said.error().message();  // what was planned for is never refused
        met.stopped += said->report.finish == Finish::stopped;
        met.answered += !said->text.empty();
        // The other one is stopped where this one was, whatever its chunks are.
        const bool in_prompt = said->report.finish == Finish::stopped && said->text.empty() &&
                               turn.stop_behind_cell != UINT32_MAX;
        turn.stop_behind_cell = in_prompt ? engine_->cells(talk.id) : UINT32_MAX;
        // Stopped in the last layer: the prompt was read to its end.
        const bool at_its_end = turn.stop_behind_cell == turn.prompt.size();
        if (at_its_end) turn.max_tokens = 0;
        talk.turns.push_back(turn);
        if (random_.one_in(10)) retell(talk);
        auto expected = talk.turns.empty() ? said : tell(talk, turn);
        ASSERT_TRUE(expected) << expected.error().message();
        ASSERT_EQ(said->text, expected->text) << turn.prompt.size() << " tokens";
        if (!at_its_end) {
            ASSERT_EQ(said->report.finish, expected->report.finish);
        }
        ASSERT_EQ(said->report.answer_tokens, expected->report.answer_tokens);
        if (said->report.finish != Finish::stopped && random_.one_in(2)) talk.text += said->text;
    }
    Result<Said> tell(Talk& talk, const Turn& turn) { return ask(*oracle_, talk.oracle, turn); }
    // A fresh conversation that hears all but the last turn anew.
    void retell(Talk& talk) {
        oracle_->drop_conversation(talk.oracle);
        talk.oracle = *oracle_->create_conversation();
        for (size_t i = 0; i + 1 < talk.turns.size(); ++i) {
            const auto told = tell(talk, talk.turns[i]);
            ASSERT_TRUE(told) << told.error().message();
        }
    }

    void apply() {
        Settings changed = settings_;
        changed.vram_budget = random_.one_in(3) ? least_ : random_.between(least_, most_);
        if (random_.one_in(4)) change_prefill(changed);
        auto applied = engine_->apply(changed);
        if (!applied) {  // an explicit reading step may not fit any budget
            ASSERT_EQ(applied.error().kind, ErrorKind::refused) << applied.error().message();
            return;
        }
        settings_ = changed;
        ++(*applied ? met.layouts : met.budgets);
    }
    void save_and_restore(Talk& talk) {
        const std::string file = folder_.file("saved.conversation");
        const uint32_t cells = engine_->cells(talk.id);
        if (cells == 0) return;
        const auto bytes = engine_->save_conversation(talk.id, file, {});
        ASSERT_TRUE(bytes) << bytes.error().message();
        if (random_.one_in(2)) engine_->drop_conversation(talk.id);
        const ConversationId old = talk.id;
        auto reopened = engine_->restore_conversation(file);
        ASSERT_TRUE(reopened) << reopened.error().message();
        talk.id = reopened->id;
        ASSERT_EQ(engine_->cells(talk.id), cells);
        engine_->drop_conversation(old);
        ++met.restored;
    }
    // K/V and state are the same, bit by bit, where both hold the same cells.
    void compare_bits(Talk& talk) {
        if (engine_->cells(talk.id) == 0 || engine_->cells(talk.id) != oracle_->cells(talk.oracle))
            return;
        const Saved here = saved(*engine_, talk.id, folder_);
        const Saved there = saved(*oracle_, talk.oracle, folder_);
        ASSERT_TRUE(here.tokens == there.tokens);
        ASSERT_TRUE(here.kv == there.kv);
        ASSERT_TRUE(here.state == there.state);
        ++met.compared;
    }

    Random& random_;
    const std::string& path_;
    const TempDir& folder_;
    Settings settings_;
    uint64_t least_ = 0, most_ = 0;
    std::vector<std::string> refused_;  // calls that a sound manager would not have made
    std::unique_ptr<Engine> engine_, oracle_;
    std::array<Talk, 2> talks_;
};

// Only letters have a chance to be said, so that answers are text that can be asked about.
void say_letters(const std::string& name, std::string& bytes) {
    if (name != "output.weight") return;
    const size_t row = bytes.size() / SmallModel().rows;
    for (size_t token = 0; token * row < bytes.size(); ++token)
        if (token < 'a' || token > 'z') std::fill_n(bytes.begin() + token * row, row, '\0');
}

TEST(EngineProperty, AnswersAreThoseOfAnEngineWithEverythingResident) {
    TempDir folder;
    const std::string hybrid = folder.file("hybrid.gguf");
    write_file(hybrid, unpacked_planes(GRANARY_TEST_DATA "/micro/micro-qwen35moe.gguf.planes.gz"));
    SmallModel attention;
    SmallHybrid delta;
    attention.spoil = delta.spoil = say_letters;
    attention.experts = delta.experts = 16;
    const std::string paths[] = {GRANARY_TEST_DATA "/micro/micro-qwen3moe.gguf", hybrid,
                                 attention.save(folder, "letters.gguf"),
                                 delta.save(folder, "letters-hybrid.gguf")};
    const auto start = std::chrono::steady_clock::now();
    decltype(Use::met) all;
    uint64_t engines = 0;
    for (uint64_t done = 0; done < steps_wanted; done += kStepsOfAnEngine, ++engines) {
        const uint64_t seed = seed_wanted + engines;
        Random random(seed);
        Use use(random, paths[seed % 4], folder);
        ASSERT_TRUE(use.is_open());
        for (uint64_t step = 0; step < std::min(kStepsOfAnEngine, steps_wanted - done); ++step) {
            SCOPED_TRACE("step " + std::to_string(step) + ", again with --seed " +
                         std::to_string(seed) + " --steps " + std::to_string(kStepsOfAnEngine));
            use.step();
            if (HasFailure()) return;
        }
        all.given_up += use.met.given_up;
        all.shrunk += use.met.shrunk;
        all.stopped += use.met.stopped;
        all.restored += use.met.restored;
        all.budgets += use.met.budgets;
        all.layouts += use.met.layouts;
        all.compared += use.met.compared;
        all.answered += use.met.answered;
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::cout << steps_wanted << " steps of " << engines << " engines from seed " << seed_wanted
              << ": " << static_cast<double>(steps_wanted) / seconds << " steps per second; "
              << all.answered << " answers, " << all.stopped << " stopped, " << all.given_up
              << " given up, " << all.shrunk << " loans shrunk, " << all.restored << " restored, "
              << all.budgets << " budgets, " << all.layouts << " layouts, " << all.compared
              << " compared bit by bit\n";
    if (steps_wanted < 4 * kStepsOfAnEngine) return;
    for (const uint64_t times : {all.given_up, all.shrunk, all.stopped, all.restored, all.budgets,
                                 all.layouts, all.compared, all.answered})
        EXPECT_GT(times, 0u);
}

}  // namespace
}  // namespace granary::test

int main(int argc, char** argv) {
    return granary::test::run_steps(argc, argv, granary::test::steps_wanted,
                                    granary::test::seed_wanted);
}
