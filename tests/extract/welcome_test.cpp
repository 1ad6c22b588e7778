// SPDX-License-Identifier: GPL-3.0-or-later
// The first minute: the starter model answers the three sample questions about the welcome
// document, greedily and rightly, each alone and one after the other in every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/extract/client.h"
#include "granary/engine.h"

namespace granary {
namespace {

struct Question {
    std::string text, fact;
};

struct Welcome {
    std::string document;
    std::vector<Question> questions;
};

Welcome welcome() {
    const std::string folder = GRANARY_RESOURCES "/welcome/";
    std::ifstream file(folder + "questions.json");
    const auto json = nlohmann::json::parse(file);
    const StopSignal stop;
    const auto document =
        extract_document(GRANARY_EXTRACT, folder + json["document"].get<std::string>(), stop);
    if (!document) throw std::runtime_error(document.error().message());
    Welcome welcome{document->prompt_text(), {}};
    for (const auto& question : json["questions"]) {
        welcome.questions.push_back({question["question"], question["fact"]});
    }
    return welcome;
}

// The answers to `order` of the questions in one conversation.
std::vector<std::string> ask(Engine& engine, const Welcome& welcome,
                             const std::vector<size_t>& order) {
    const auto conversation = engine.create_conversation();
    if (!conversation) throw std::runtime_error(conversation.error().message());
    Request request;
    std::vector<std::string> answers;
    for (const size_t i : order) {
        const std::string& question = welcome.questions[i].text;
        request.messages.push_back(
            {"user", answers.empty() ? welcome.document + "\n\n" + question : question});
        std::string answer;
        Listener listener;
        listener.on_text = [&](std::string_view text) { answer += text; };
        const StopSignal stop;
        const auto report = engine.answer(*conversation, request, listener, stop);
        if (!report) throw std::runtime_error(report.error().message());
        EXPECT_EQ(report->finish, Finish::answer_ended);
        EXPECT_TRUE(answers.empty() || report->kept_tokens > 1000) << report->kept_line();
        request.messages.push_back({"assistant", answer});
        answers.push_back(answer);
    }
    engine.drop_conversation(*conversation);
    return answers;
}

class WelcomeTest : public testing::TestWithParam<const char*> {};

TEST_P(WelcomeTest, EveryAnswerIsRightInEveryOrder) {
    const Welcome welcome = granary::welcome();
    ASSERT_EQ(welcome.questions.size(), 3u);
    EngineOptions options;
    options.settings.device = "host";
    if (*GetParam() != '\0') {
        ASSERT_TRUE(options.settings.set("vram-budget", GetParam()));
        ASSERT_TRUE(options.settings.set("granule", "64KiB"));
    }
    const auto engine = Engine::open(GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf", options);
    ASSERT_TRUE(engine) << engine.error().message();
    const size_t tokens = (*engine)->tokenizer()->encode(welcome.document, false).size();
    EXPECT_GE(tokens, 1200u);
    EXPECT_LE(tokens, 1500u);
    std::vector<size_t> order = {0, 1, 2};
    do {
        const auto answers = ask(**engine, welcome, order);
        for (size_t i = 0; i < order.size(); ++i) {
            EXPECT_NE(answers[i].find(welcome.questions[order[i]].fact), std::string::npos)
                << "asked as number " << i + 1 << ": " << welcome.questions[order[i]].text << " "
                << answers[i];
        }
    } while (std::ranges::next_permutation(order).found);
    EXPECT_EQ((*engine)->driver_allocations_after_load(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Faces, WelcomeTest, testing::Values("", "40MiB"),
                         [](const auto& info) { return *info.param ? "Card" : "Unified"; });

}  // namespace
}  // namespace granary
