// SPDX-License-Identifier: GPL-3.0-or-later
// Conversations on disk: what was saved goes on as if nothing had happened; what is damaged,
// foreign or forged is refused, with the reason, and never does harm.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "engine/run/atomic_file.h"
#include "tests/engine/saved_conversation.h"
#include "tests/engine/small_hybrid.h"
#include "tests/host_settings.h"
#include "tests/unpacked.h"

namespace granary::test {
namespace {

struct Answer {
    Report report;
    std::string text;
};

class ConversationFile : public ::testing::Test {
  protected:
    void SetUp() override {
        attention_ = SmallModel().save(folder_, "attention.gguf");
        hybrid_ = SmallHybrid().save(folder_, "hybrid.gguf");
        micro_ = folder_.file("micro-qwen35moe.gguf");
        write_file(micro_,
                   unpacked_planes(GRANARY_TEST_DATA "/micro/micro-qwen35moe.gguf.planes.gz"));
        path_ = folder_.file("talk.granary");
    }
    std::unique_ptr<Engine> open(
        const std::string& model,
        std::initializer_list<std::pair<const char*, const char*>> other = {}) {
        Settings settings = host_settings();
        settings.max_context = 2048;
        settings.threads = 1;
        for (const auto& [name, value] : other) EXPECT_TRUE(settings.set(name, value));
        EngineOptions options;
        options.settings = settings;
        auto engine = Engine::open(model, options);
        EXPECT_TRUE(engine) << engine.error().message();
        return engine ? std::move(*engine) : nullptr;
    }
    static Answer ask(Engine& engine, ConversationId id, const std::string& text,
                      uint32_t most = 12, float temperature = 0) {
        Request request;
        request.use_raw = true;
        request.raw = text;
        request.max_tokens = most;
        request.sampling.temperature = temperature;
        Answer answer;
        Listener listener;
        listener.on_text = [&](std::string_view piece) { answer.text += piece; };
        auto report = engine.answer(id, request, listener, {});
        EXPECT_TRUE(report) << report.error().message();
        if (report) answer.report = *report;
        return answer;
    }
    // 1,100 cells: a whole step and a part of one.
    static const std::string& text() {
        static const std::string text = [] {
            std::mt19937 random(4);
            std::string letters;
            for (int i = 0; i < 1090; ++i) letters += static_cast<char>('a' + random() % 26);
            return letters;
        }();
        return text;
    }
    // Saves a conversation that has read and answered text().
    std::string save(const std::string& model) {
        auto engine = open(model);
        const ConversationId id = *engine->create_conversation();
        ask(*engine, id, text());
        EXPECT_TRUE(engine->save_conversation(id, path_, {{"user", text()}}));
        return read_bytes(path_);
    }
    // What restoring `bytes` says; "" where it works. The engine goes on in any case.
    std::string refusal(Engine& engine, const std::string& bytes, ErrorKind* kind = nullptr) {
        const std::string path = folder_.file("hostile.granary");
        write_file(path, bytes);
        const auto reopened = engine.restore_conversation(path);
        uint64_t sum = 0;
        for (uint64_t owned : engine.bytes()) sum += owned;
        EXPECT_EQ(sum, engine.plan().budget_bytes);
        if (reopened) {
            ask(engine, reopened->id, text() + "more", 3);
            ask(engine, reopened->id, text(), 3, 1.0f);
            ask(engine, reopened->id, text().substr(0, 700), 3);
            engine.drop_conversation(reopened->id);
            return "";
        }
        if (kind) *kind = reopened.error().kind;
        EXPECT_NE(reopened.error().kind, ErrorKind::device_lost) << reopened.error().message();
        EXPECT_NE(reopened.error().kind, ErrorKind::internal) << reopened.error().message();
        return reopened.error().message();
    }

    TempDir folder_;
    std::string attention_, hybrid_, micro_, path_;
};

// The hashes of a file whose content was changed on purpose.
std::string forged(std::string bytes) {
    FileHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    header.hash = header.computed_hash();
    std::memcpy(bytes.data(), &header, sizeof header);
    ContentHash hash;
    const size_t end = bytes.size() - sizeof(ContentHash::Digest);
    hash.add(std::string_view(bytes).substr(0, end));
    const ContentHash::Digest digest = hash.digest();
    std::memcpy(bytes.data() + end, digest.data(), sizeof digest);
    return bytes;
}

TEST_F(ConversationFile, GoesOnAsIfNothingHadHappened) {
    const std::vector<Message> messages{{"system", ""}, {"user", text()}, {"", "\n\"\xff"}};
    for (const std::string& model : {attention_, hybrid_, micro_})
        for (const auto& [budget, kv] :
             {std::pair{"0", "f16"}, {"9MiB", "f16"}, {"0", "int8"}, {"0", "k8v4"}, {"0", "q4"}}) {
            SCOPED_TRACE(model + " " + budget + " " + kv);
            auto engine = open(model, {{"vram-budget", budget}, {"kv", kv}});
            const ConversationId id = *engine->create_conversation();
            ask(*engine, id, text().substr(0, 300));
            const Answer said = ask(*engine, id, text());
            const auto bytes = engine->save_conversation(id, path_, messages);
            ASSERT_TRUE(bytes) << bytes.error().message();
            EXPECT_EQ(*bytes, std::filesystem::file_size(path_));
            // Another engine, with another budget where there is one; and this one once more.
            auto fresh = open(model, {{"vram-budget", *budget == '0' ? "0" : "10MiB"}, {"kv", kv}});
            for (Engine* other : {fresh.get(), engine.get()}) {
                auto reopened = other->restore_conversation(path_);
                ASSERT_TRUE(reopened) << reopened.error().message();
                EXPECT_EQ(reopened->cells, 1101u);
                EXPECT_EQ(other->cells(reopened->id), 1101u);
                EXPECT_EQ(reopened->messages.size(), messages.size());
                for (size_t i = 0; i < messages.size(); ++i) {
                    EXPECT_EQ(reopened->messages[i].role, messages[i].role);
                    EXPECT_EQ(reopened->messages[i].content, messages[i].content);
                }
                expect_same(saved(*other, reopened->id, folder_), Saved::parse(read_bytes(path_)));
                const Answer again = ask(*other, reopened->id, text());
                EXPECT_EQ(again.text, said.text);
                EXPECT_EQ(again.report.read_tokens, model == attention_ ? 1u : 0u);
                EXPECT_EQ(other->driver_allocations_after_load(), 0u);
            }
            const Answer next = ask(*engine, id, text() + "next");
            auto reopened = fresh->restore_conversation(path_);
            ASSERT_TRUE(reopened);
            EXPECT_EQ(ask(*fresh, reopened->id, text() + "next").text, next.text);
        }
}

TEST_F(ConversationFile, WithoutCellsWhatWasSaidIsKept) {
    auto engine = open(hybrid_);
    const ConversationId id = *engine->create_conversation();
    ASSERT_TRUE(engine->save_conversation(id, path_, {}));
    auto empty = engine->restore_conversation(path_);
    ASSERT_TRUE(empty) << empty.error().message();
    EXPECT_EQ(empty->cells, 0u);
    const std::string said = ask(*engine, id, text()).text;
    Settings settings = engine->plan().settings;
    settings.max_context = 1536;
    ASSERT_TRUE(engine->apply(settings));
    ASSERT_TRUE(engine->save_conversation(id, path_, {}));
    auto reopened = engine->restore_conversation(path_);
    ASSERT_TRUE(reopened) << reopened.error().message();
    EXPECT_EQ(reopened->cells, 0u);
    EXPECT_EQ(ask(*engine, reopened->id, text()).text, said);
    EXPECT_FALSE(engine->save_conversation(999, path_, {}));
}

TEST_F(ConversationFile, ForeignFilesAreRefusedWithTheReason) {
    const std::string bytes = save(hybrid_);
    ErrorKind kind{};
    const auto expect_refused = [&](Engine& engine, const std::string& content, ErrorKind expected,
                                    const std::string& reason) {
        const std::string message = refusal(engine, content, &kind);
        EXPECT_EQ(kind, expected) << message;
        EXPECT_NE(message.find(reason), std::string::npos) << message;
    };
    auto engine = open(hybrid_);
    EXPECT_EQ(refusal(*engine, bytes), "");
    expect_refused(*engine, read_bytes(hybrid_), ErrorKind::unsupported, "not a conversation");
    std::string other = bytes;
    other[8] = 2;
    expect_refused(*engine, other, ErrorKind::unsupported, "version 2, this program reads 1");
    auto small = open(hybrid_, {{"max-context", "1024"}});
    expect_refused(*small, bytes, ErrorKind::refused, "1102 tokens are more than max-context 1024");
    auto quantised = open(hybrid_, {{"kv", "q4"}});
    expect_refused(*quantised, bytes, ErrorKind::unsupported, "its K/V is f16");
    auto stretched = open(hybrid_, {{"rope-scaling", "yarn"}, {"rope-factor", "1.5"}});
    expect_refused(*stretched, bytes, ErrorKind::unsupported,
                   "its positions are as trained, those of this engine stretched by 1.5 with YaRN");
    auto attention = open(attention_);
    expect_refused(*attention, bytes, ErrorKind::unsupported, "another");
    // One weight is another, all the rest is the same.
    SmallHybrid tuned;
    tuned.spoil = [](const std::string& name, std::string& data) {
        if (name == "blk.2.ffn_down_exps.weight")
            for (size_t i = 0; i < data.size(); i += 4) data[i] ^= 1;
    };
    auto engine_of_tuned = open(tuned.save(folder_, "tuned.gguf"));
    expect_refused(*engine_of_tuned, bytes, ErrorKind::unsupported, "another file of the model");
}

TEST_F(ConversationFile, StretchedPositionsMustBeStretchedAgain) {
    auto engine = open(attention_, {{"rope-scaling", "yarn"}, {"rope-factor", "2"}});
    const ConversationId id = *engine->create_conversation();
    const Answer said = ask(*engine, id, text());
    ASSERT_TRUE(engine->save_conversation(id, path_, {}));
    const std::string bytes = read_bytes(path_);
    auto plain = open(attention_);
    const std::string message = refusal(*plain, bytes);
    EXPECT_NE(message.find("stretched by 2 with YaRN, those of this engine as trained"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("Set rope-scaling to yarn and rope-factor to 2"), std::string::npos);
    for (const char* const factor : {"3", "1.9999"}) {
        auto other = open(attention_, {{"rope-scaling", "yarn"}, {"rope-factor", factor}});
        EXPECT_NE(refusal(*other, bytes), "");
    }
    auto linear = open(attention_, {{"rope-scaling", "linear"}, {"rope-factor", "2"}});
    EXPECT_NE(refusal(*linear, bytes), "");
    auto again = open(attention_, {{"rope-scaling", "yarn"}, {"rope-factor", "2"}});
    auto reopened = again->restore_conversation(path_);
    ASSERT_TRUE(reopened) << reopened.error().message();
    EXPECT_EQ(ask(*again, reopened->id, text()).text, said.text);
}

TEST_F(ConversationFile, CutOffAnywhereItIsRefused) {
    for (const std::string& model : {attention_, hybrid_}) {
        const std::string bytes = save(model);
        const Saved parts = Saved::parse(bytes);
        auto engine = open(model);
        std::set<size_t> places{0, 1, 7, 8, 12, 16, 24, sizeof(FileHeader) - 1, sizeof(FileHeader)};
        size_t at = sizeof(FileHeader);
        for (const size_t part : {parts.spans.size(), parts.tokens.size(), parts.messages.size(),
                                  parts.list.size(), parts.state.size()}) {
            at += part;
            places.insert({at - 1, at, at + 1});
        }
        places.insert({parts.kv_at - 1, parts.kv_at, parts.kv_at + 1, bytes.size() - 17,
                       bytes.size() - 16, bytes.size() - 15, bytes.size() - 1});
        std::mt19937 random(1);
        for (int i = 0; i < 40; ++i) places.insert(random() % bytes.size());
        for (const size_t place : places) {
            ErrorKind kind{};
            EXPECT_NE(refusal(*engine, bytes.substr(0, place), &kind), "") << place;
            EXPECT_EQ(kind, ErrorKind::invalid_file) << place;
        }
        EXPECT_NE(refusal(*engine, bytes + "x"), "");
        EXPECT_EQ(refusal(*engine, bytes), "");
    }
}

TEST_F(ConversationFile, AnyChangedByteIsFound) {
    for (const std::string& model : {attention_, hybrid_}) {
        const std::string bytes = save(model);
        auto engine = open(model);
        std::mt19937 random(2);
        for (size_t i = 0; i < sizeof(FileHeader) + 300; ++i) {
            const size_t place = i < sizeof(FileHeader) ? i : random() % bytes.size();
            std::string changed = bytes;
            changed[place] ^= static_cast<char>(1 << random() % 8);
            EXPECT_NE(refusal(*engine, changed), "") << place;
        }
        EXPECT_EQ(refusal(*engine, bytes), "");
    }
}

// Nobody can be kept from making a file whose hashes are right.
TEST_F(ConversationFile, ForgedFilesDoNoHarm) {
    for (const std::string& model : {attention_, hybrid_}) {
        const std::string bytes = save(model);
        const Saved parts = Saved::parse(bytes);
        auto engine = open(model);
        const auto with = [&](size_t place, uint64_t value, size_t size) {
            std::string changed = bytes;
            std::memcpy(changed.data() + place, &value, size);
            return forged(changed);
        };
        // Every number of the header at its limits.
        for (size_t place = 16; place < sizeof(FileHeader) - 16; place += 4)
            for (const uint64_t value :
                 {0ull, 1ull, 63ull, 0x7fffffffull, 0x80000000ull, 0xffffffffull})
                (void)refusal(*engine, with(place, value, 4));
        for (size_t place = 16; place < sizeof(FileHeader) - 16; place += 8)
            for (const uint64_t value :
                 {uint64_t{bytes.size()}, uint64_t{1} << 40, UINT64_MAX, uint64_t{1} << 63})
                (void)refusal(*engine, with(place, value, 8));
        // Spans, tokens, messages and the list of states, number by number.
        std::mt19937 random(3);
        for (size_t place = sizeof(FileHeader); place + 4 <= parts.states_at;
             place += place < sizeof(FileHeader) + 64 ? 4 : 4 * (1 + random() % 60))
            for (const uint64_t value : {0ull, 1ull, 258ull, 259ull, 0x7fffffffull, 0xffffffffull})
                (void)refusal(*engine, with(place, value, 4));
        // Cells and states of any content: what they give is nonsense, and no more.
        for (int i = 0; i < 60; ++i) {
            std::string changed = bytes;
            const size_t first = i % 2 ? parts.states_at : parts.kv_at;
            const size_t last = i % 2 ? parts.kv_at : bytes.size() - 16;
            for (size_t at = first; at < last; ++at)
                if (i < 10 || random() % 50 == 0)
                    changed[at] = i % 3 == 0 ? '\xff' : static_cast<char>(random());
            EXPECT_EQ(refusal(*engine, forged(changed)), "");
        }
        EXPECT_EQ(refusal(*engine, bytes), "");
    }
}

TEST_F(ConversationFile, WhatIsNoFileIsRefusedAtOnce) {
    auto engine = open(attention_);
    const auto kind_of = [&](const std::string& path) {
        const auto reopened = engine->restore_conversation(path);
        EXPECT_FALSE(reopened);
        return reopened ? ErrorKind::internal : reopened.error().kind;
    };
    EXPECT_EQ(kind_of(folder_.file("none")), ErrorKind::io);
    EXPECT_EQ(kind_of(folder_.file("")), ErrorKind::io);
    const std::string pipe = folder_.file("pipe");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(kind_of(pipe), ErrorKind::io);
    EXPECT_EQ(kind_of("/dev/zero"), ErrorKind::io);
    // A file that takes no place and claims to be very long.
    const std::string hollow = folder_.file("hollow");
    write_file(hollow, save(attention_).substr(0, sizeof(FileHeader)));
    std::filesystem::resize_file(hollow, uint64_t{1} << 42);
    EXPECT_EQ(kind_of(hollow), ErrorKind::invalid_file);

    const ConversationId id = *engine->create_conversation();
    ask(*engine, id, "hello");
    for (const std::string& path :
         {folder_.file(""), pipe, folder_.file("no/such/folder"), std::string("/dev/null")}) {
        const auto written = engine->save_conversation(id, path, {});
        ASSERT_FALSE(written) << path;
        EXPECT_EQ(written.error().kind, ErrorKind::io);
    }
}

TEST_F(ConversationFile, ASaveThatEndsEarlyLeavesTheOldFile) {
    auto engine = open(hybrid_);
    const ConversationId id = *engine->create_conversation();
    ask(*engine, id, text());
    ASSERT_TRUE(engine->save_conversation(id, path_, {}));
    const std::string before = read_bytes(path_);
    ask(*engine, id, text() + "more");
    const auto expect_old = [&] {
        EXPECT_EQ(read_bytes(path_) == before, true);
        EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
    };
    for (int piece = 0;; ++piece) {
        StopSignal stop;
        int passed = 0;
        LoadProgress progress;
        progress.stop = &stop;
        progress.on_bytes = [&](uint64_t done, uint64_t total) {
            EXPECT_LE(done, total);
            if (passed++ == piece) stop.request();
        };
        if (piece == 10'000) break;
        const auto written = engine->save_conversation(id, path_, {}, progress);
        if (written) {
            EXPECT_GT(piece, 8);
            break;
        }
        EXPECT_EQ(written.error().kind, ErrorKind::cancelled);
        expect_old();
    }
    write_file(path_, before);
    // The disk takes no more in the middle of it.
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    getrlimit(RLIMIT_FSIZE, &old);
    for (const rlim_t most : {1000u, 20'000u, 100'000u}) {
        const rlimit low{most, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &low);
        const auto written = engine->save_conversation(id, path_, {});
        setrlimit(RLIMIT_FSIZE, &old);
        ASSERT_FALSE(written);
        EXPECT_EQ(written.error().kind, ErrorKind::io);
        expect_old();
    }
    std::signal(SIGXFSZ, SIG_DFL);
    ASSERT_TRUE(engine->save_conversation(id, path_, {}));
    EXPECT_NE(read_bytes(path_), before);
}

TEST_F(ConversationFile, StoppedReopeningLeavesNothing) {
    save(hybrid_);
    auto engine = open(hybrid_);
    for (int piece = 0; piece < 10'000; ++piece) {
        StopSignal stop;
        int passed = 0;
        LoadProgress progress;
        progress.stop = &stop;
        progress.on_bytes = [&](uint64_t, uint64_t) {
            if (passed++ == piece) stop.request();
        };
        const auto reopened = engine->restore_conversation(path_, progress);
        if (reopened) {
            EXPECT_GT(piece, 8);
            return;
        }
        EXPECT_EQ(reopened.error().kind, ErrorKind::cancelled);
    }
    ADD_FAILURE();
}

TEST(AtomicFile, ManyWritersAndLeftovers) {
    TempDir folder;
    const std::string path = folder.file("file");
    const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
    {
        auto first = AtomicFile::create(path, 10);
        ASSERT_TRUE(first) << first.error().message();
        auto second = AtomicFile::create(path, 10);
        ASSERT_FALSE(second);
        EXPECT_NE(second.error().message().find("another program"), std::string::npos);
        ASSERT_TRUE(first->write(bytes("first")));
        EXPECT_FALSE(std::filesystem::exists(path));
    }
    EXPECT_FALSE(std::filesystem::exists(path + ".part"));
    // What a killed program left is used again, and not a byte of it stays, nor who could read it.
    write_file(path + ".part", std::string(1000, 'x'));
    std::filesystem::permissions(path + ".part", std::filesystem::perms(0666));
    auto file = AtomicFile::create(path, 10);
    ASSERT_TRUE(file) << file.error().message();
    ASSERT_TRUE(file->write(bytes("second")));
    ASSERT_TRUE(file->commit());
    EXPECT_EQ(read_bytes(path), "second");
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
    EXPECT_FALSE(std::filesystem::exists(path + ".part"));
    // A second name of another file is not written to.
    write_file(folder.file("kept"), "kept");
    std::filesystem::create_hard_link(folder.file("kept"), path + ".part");
    auto taken = AtomicFile::create(path, 10);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().kind, ErrorKind::io);
    EXPECT_EQ(read_bytes(folder.file("kept")), "kept");
    std::filesystem::remove(path + ".part");
    // A link stays one, and what it names is replaced.
    std::filesystem::create_symlink(path, folder.file("link"));
    auto linked = AtomicFile::create(folder.file("link"), 10);
    ASSERT_TRUE(linked);
    ASSERT_TRUE(linked->write(bytes("third")));
    ASSERT_TRUE(linked->commit());
    EXPECT_EQ(read_bytes(path), "third");
    EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
    // A link in the place of the part is not followed.
    std::filesystem::create_symlink(folder.file("precious"), path + ".part");
    EXPECT_FALSE(AtomicFile::create(path, 10));
    auto too_large = AtomicFile::create(folder.file("huge"), uint64_t{1} << 60);
    ASSERT_FALSE(too_large);
    EXPECT_EQ(too_large.error().kind, ErrorKind::refused);
    EXPECT_FALSE(std::filesystem::exists(folder.file("huge.part")));
}

}  // namespace
}  // namespace granary::test
