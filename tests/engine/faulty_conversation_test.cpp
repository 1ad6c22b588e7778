// SPDX-License-Identifier: GPL-3.0-or-later
// A device call fails while conversations are read, left, gone back in and saved: that request
// ends with the error, and the next one gives what it would have given, bit by bit.
#include "tests/engine/saved_conversation.h"
#include "tests/engine/small_hybrid.h"
#include "tests/memory/watched_device.h"

namespace granary::test {
namespace {

class FaultyConversations : public ::testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        // Experts enough that granules may go out of use.
        SmallHybrid hybrid;
        SmallModel attention;
        hybrid.experts = attention.experts = 64;
        path_ = std::string(GetParam()) == "hybrid" ? hybrid.save(folder_, "model.gguf")
                                                    : attention.save(folder_, "model.gguf");
    }
    void open() {
        EngineOptions options;
        options.settings.max_context = 1024;
        options.settings.threads = 1;
        EXPECT_TRUE(options.settings.set("vram-budget", "9MiB"));
        EXPECT_TRUE(options.settings.set("prefill", "64"));
        options.wrap_device = [this](std::unique_ptr<gpu::Device> device) {
            auto made = std::make_unique<WatchedDevice>(std::move(device));
            device_ = made.get();
            device_->lose_no_copies();
            return made;
        };
        auto engine = Engine::open(path_, options);
        ASSERT_TRUE(engine) << engine.error().message();
        engine_ = std::move(*engine);
        for (ConversationId& id : ids_) id = *engine_->create_conversation();
    }
    // f, once more if a call failed in it.
    template <class F>
    auto twice(F&& f) {
        auto done = f();
        if (done) return done;
        ++failures_;
        EXPECT_EQ(done.error().kind, ErrorKind::device) << done.error().message();
        device_->disarm();
        done = f();
        EXPECT_TRUE(done) << done.error().message();
        return done;
    }
    std::string ask(int who, const std::string& text) {
        std::string said;
        (void)twice([&] {
            said.clear();
            Request request;
            request.use_raw = true;
            request.raw = text;
            request.max_tokens = 6;
            Listener listener;
            listener.on_text = [&](std::string_view piece) { said += piece; };
            return engine_->answer(ids_[who], request, listener, {});
        });
        return said;
    }
    // Two conversations in turns; back in one, on in the other; one to disk and back.
    std::vector<std::string> live() {
        const std::string a(130, 'a'), b(70, 'b');
        std::vector<std::string> said{ask(0, a),          ask(1, b),
                                      ask(0, a + "next"), ask(0, a),
                                      ask(1, b + "more"), ask(0, a.substr(0, 100) + "other")};
        const std::string file = folder_.file("talk.granary");
        (void)twice([&] { return engine_->save_conversation(ids_[1], file, {}); });
        const auto reopened = twice([&] { return engine_->restore_conversation(file); });
        if (reopened) {
            ids_[2] = reopened->id;
            said.push_back(ask(2, b + "more and more"));
        }
        return said;
    }
    std::vector<Saved> hold() {
        std::vector<Saved> held;
        for (const ConversationId id : ids_) held.push_back(saved(*engine_, id, folder_));
        return held;
    }

    TempDir folder_;
    std::string path_;
    WatchedDevice* device_ = nullptr;
    std::unique_ptr<Engine> engine_;
    std::array<ConversationId, 3> ids_{};
    int failures_ = 0;
};

TEST_P(FaultyConversations, GoOnAfterAnyFailedCall) {
    open();
    device_->arm(UINT64_MAX, 0);
    const std::vector<std::string> said = live();
    const uint64_t calls = device_->calls();
    const std::vector<Saved> held = hold();
    ASSERT_GT(calls, 60u);
    for (const uint64_t count : {1, 4}) {
        for (uint64_t n = 0; n < calls; n += count) {
            SCOPED_TRACE("call " + std::to_string(n) + ", " + std::to_string(count) + " failing");
            open();
            device_->arm(n, count);
            EXPECT_EQ(live(), said);
            device_->disarm();
            const std::vector<Saved> now = hold();
            for (size_t i = 0; i < held.size(); ++i) expect_same(now[i], held[i]);
            uint64_t sum = 0;
            for (uint64_t bytes : engine_->bytes()) sum += bytes;
            EXPECT_EQ(sum, engine_->plan().budget_bytes);
            EXPECT_TRUE(device_->refused().empty());
            if (HasFailure()) return;
        }
    }
    // None of the single ones is got over in silence.
    EXPECT_GE(failures_, static_cast<int>(calls));
}

INSTANTIATE_TEST_SUITE_P(Models, FaultyConversations, ::testing::Values("attention", "hybrid"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace granary::test
