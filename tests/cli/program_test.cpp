// SPDX-License-Identifier: GPL-3.0-or-later
// granary-cli as a person runs it: arguments in, exit code and two streams out.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/cli/common.h"
#include "tests/gguf/gguf_builder.h"

namespace granary::test {
namespace {

using namespace cli;

const std::string kStarter = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";
const std::string kDocument = GRANARY_RESOURCES "/welcome/tales-from-mill-hill.txt";

std::string slurp(const std::string& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
}

struct Ran {
    int code = -1;
    std::string out, err;
};

class Program : public ::testing::Test {
  protected:
    // Arguments in shell quoting.
    Ran run(const std::string& arguments) {
        const std::string out = folder_.file("out.txt"), err = folder_.file("err.txt");
        const int status = std::system(
            ("'" GRANARY_CLI "' " + arguments + " >'" + out + "' 2>'" + err + "' </dev/null")
                .c_str());
        return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, slurp(out), slurp(err)};
    }
    std::string quoted(const std::string& text) const { return "'" + text + "'"; }
    TempDir folder_;
};

TEST_F(Program, ExplainsItself) {
    EXPECT_EQ(run("--help").code, kOk);
    for (const char* command :
         {"run", "tokenize", "template", "logits", "inspect", "plan", "bench"}) {
        const Ran help = run(std::string(command) + " --help");
        EXPECT_EQ(help.code, kOk) << command;
        EXPECT_NE(help.out.find("GGUF file"), std::string::npos) << help.out;
    }
    EXPECT_EQ(run("").code, kUsage);
    EXPECT_EQ(run("fly").code, kUsage);
    EXPECT_EQ(run("run --device host " + quoted(kStarter) + " --prompt a --prefill 7").code, kUsage);
    EXPECT_EQ(run("run --device host " + quoted(kStarter) + " --prompt a -n -4").code, kUsage);
}

TEST_F(Program, AnswersAboutADocumentOnBothFaces) {
    const auto json = nlohmann::json::parse(slurp(GRANARY_RESOURCES "/welcome/questions.json"));
    const std::string question = json["questions"][0]["question"];
    const std::string fact = json["questions"][0]["fact"];
    for (const char* face : {"", " --vram-budget 40MiB --granule 64KiB"}) {
        const Ran ran = run("run --device host " + quoted(kStarter) + " --file " + quoted(kDocument) +
                            " --prompt " + quoted(question) + face);
        EXPECT_EQ(ran.code, kOk);
        EXPECT_NE(ran.out.find(fact), std::string::npos) << ran.out;
        EXPECT_EQ(ran.err, "");  // no terminal, no progress
    }
    const Ran verbose = run("run --device host " + quoted(kStarter) + " -n 3 -v --prompt Hello");
    EXPECT_NE(verbose.err.find("new driver memory: none"), std::string::npos) << verbose.err;
}

TEST_F(Program, ReopensAConversation) {
    const auto json = nlohmann::json::parse(slurp(GRANARY_RESOURCES "/welcome/questions.json"));
    const std::string file = " --conversation " + quoted(folder_.file("tales.granary"));
    const std::string run_starter = "run --device host " + quoted(kStarter) + file;
    const auto question = [&](int i) {
        return " --prompt " + quoted(json["questions"][i]["question"]);
    };
    const auto fact = [&](int i) { return std::string(json["questions"][i]["fact"]); };
    const Ran first = run(run_starter + " --file " + quoted(kDocument) + question(0));
    EXPECT_EQ(first.code, kOk) << first.err;
    EXPECT_NE(first.out.find(fact(0)), std::string::npos) << first.out;
    EXPECT_EQ(first.err, "");
    // Without the document: it is in the conversation, and not read again.
    for (const int i : {1, 2}) {
        const Ran next = run(run_starter + question(i) + " -v");
        EXPECT_EQ(next.code, kOk) << next.err;
        EXPECT_NE(next.out.find(fact(i)), std::string::npos) << next.out;
        EXPECT_NE(next.err.find("reopened 1"), std::string::npos) << next.err;
        EXPECT_NE(next.err.find("kept 1,"), std::string::npos) << next.err;
    }
    const Ran raw = run(run_starter + " --raw --prompt a");
    EXPECT_EQ(raw.code, kUsage);
    EXPECT_NE(raw.err.find("chat template"), std::string::npos) << raw.err;
    const Ran small = run(run_starter + " --prompt a --max-context 1024");
    EXPECT_EQ(small.code, kRefused);
    EXPECT_NE(small.err.find("max-context 1024"), std::string::npos) << small.err;
    std::ofstream(folder_.file("tales.granary"), std::ios::app) << "x";
    const Ran damaged = run(run_starter + " --prompt a");
    EXPECT_EQ(damaged.code, kBadInput);
    EXPECT_NE(damaged.err.find("damaged"), std::string::npos) << damaged.err;
    EXPECT_EQ(run("run --device host " + quoted(kStarter) + " --prompt a --conversation /no/such/folder/x").code,
              kBadInput);
}

TEST_F(Program, RefusesWithNumbersBeforeReading) {
    const Ran empty = run("run --device host " + quoted(kStarter) + " --prompt ' '");
    EXPECT_EQ(empty.code, kRefused);
    EXPECT_NE(empty.err.find("empty"), std::string::npos);

    const Ran small = run("run --device host " + quoted(kStarter) + " --prompt a --vram-budget 8MiB");
    EXPECT_EQ(small.code, kRefused);
    for (const char* part :
         {"budget 8 MiB", "fixed weights 6.6 MiB", "smallest loan", "K/V 16 MiB", "floor", " = "})
        EXPECT_NE(small.err.find(part), std::string::npos) << part << ": " << small.err;

    std::ofstream(folder_.file("long.txt")) << [] {
        std::ostringstream text;
        for (int i = 0; i < 5000; ++i) text << "word ";
        return text.str();
    }();
    const Ran large =
        run("run --device host " + quoted(kStarter) + " --file " + quoted(folder_.file("long.txt")));
    EXPECT_EQ(large.code, kRefused);
    EXPECT_NE(large.err.find("max-context 4096"), std::string::npos) << large.err;
    // Saying a longer context is the consent.
    EXPECT_EQ(run("run --device host " + quoted(kStarter) + " --file " + quoted(folder_.file("long.txt")) +
                  " -n 1 --max-context 8192")
                  .code,
              kOk);
}

TEST_F(Program, NamesWhatItCannotRead) {
    std::ofstream(folder_.file("binary.txt")) << std::string("\0\1\2\xff\0\0", 6);
    EXPECT_EQ(run("run --device host " + quoted(kStarter) + " --file " + quoted(folder_.file("binary.txt"))).code,
              kBadInput);
    EXPECT_EQ(run("run --device host " + quoted(kStarter) + " --file /nowhere/at/all.txt").code, kBadInput);
    EXPECT_EQ(run("run /nowhere/at/all.gguf --prompt a").code, kBadInput);
    EXPECT_EQ(run("run --device host " + quoted(kDocument) + " --prompt a").code, kBadInput);

    GgufBuilder other;
    other.put("general.architecture", std::string_view("mamba"));
    other.put("tokenizer.ggml.model", std::string_view("gpt2"));
    other.save(folder_.file("other.gguf"));
    const Ran family = run("run --device host " + quoted(folder_.file("other.gguf")) + " --prompt a");
    EXPECT_EQ(family.code, kBadInput);
    EXPECT_NE(family.err.find("mamba"), std::string::npos) << family.err;
    EXPECT_NE(family.err.find("qwen3moe"), std::string::npos) << family.err;
}

TEST_F(Program, WritesLogitsAsTheFixturesAre) {
    const std::string micro = GRANARY_TEST_DATA "/micro/micro-qwen3moe";
    const Ran ran =
        run("logits --device host " + quoted(micro + ".gguf") + " --tokens " + quoted(micro + ".json") +
            " --positions 0,95 --greedy 24 --arithmetic f32 --out " +
            quoted(folder_.file("logits.json")));
    ASSERT_EQ(ran.code, kOk) << ran.err;
    const auto got = nlohmann::json::parse(slurp(folder_.file("logits.json")));
    const auto want = nlohmann::json::parse(slurp(micro + ".json"));
    EXPECT_EQ(got["vocab"], want["vocab"]);
    EXPECT_EQ(got["tokens"], want["tokens"]);
    EXPECT_EQ(got["argmax"], want["argmax"]);
    EXPECT_EQ(got["greedy"], want["greedy"]);
    EXPECT_EQ(got["logits"].size(), 2u);
    EXPECT_EQ(got["logits"]["95"].size(), 320u);
}

TEST_F(Program, BenchAddsUp) {
    const Ran ran = run("bench --device host " + quoted(kStarter) +
                        " -p 100 -n 8 --json --vram-budget 40MiB --granule 64KiB");
    ASSERT_EQ(ran.code, kOk) << ran.err;
    const auto json = nlohmann::json::parse(ran.out);
    EXPECT_GT(json["stages"][0]["prefill_tok_s"], 0.0);
    EXPECT_GT(json["stages"][0]["decode_tok_s"], 0.0);
    EXPECT_EQ(json["granule_bytes"], 65536);
    EXPECT_EQ(json["driver_allocations_after_load"], 0);
    uint64_t sum = 0;
    for (const auto& bytes : json["bytes"]) sum += bytes.get<uint64_t>();
    EXPECT_EQ(json["bytes"].size(), 8u);
    EXPECT_EQ(json["budget_bytes"], sum);
}

}  // namespace
}  // namespace granary::test
