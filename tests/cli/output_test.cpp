// SPDX-License-Identifier: GPL-3.0-or-later
// Where granary-cli's output goes and what it does when it cannot go there, or when it is
// interrupted: never half a file, never silence, never a device or link replaced.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "engine/cli/common.h"
#include "tests/gguf/gguf_builder.h"

namespace granary::test {
namespace {

namespace fs = std::filesystem;
using namespace cli;

const std::string kMicro = GRANARY_TEST_DATA "/micro/micro-qwen3moe";
const std::string kStarter = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";

std::string slurp(const std::string& path) {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
}

class Output : public ::testing::Test {
  protected:
    static std::string quoted(const std::string& text) {
        std::string result = "'";
        for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
        return result + "'";
    }
    // A shell command in which $CLI is the program; standard error is kept in `err_`.
    int shell(const std::string& command) {
        const std::string err = folder_.file("err.txt");
        const int status = std::system(
            ("CLI='" GRANARY_CLI "'; { " + command + "; } 2>'" + err + "' </dev/null").c_str());
        err_ = slurp(err);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    std::string logits(const std::string& out) const {
        return "\"$CLI\" logits --device host " + quoted(kMicro + ".gguf") + " --tokens " +
               quoted(kMicro + ".json") + " --threads 1 --positions 0,95 --out " + quoted(out);
    }
    bool whole(const std::string& path) const {
        const auto json = nlohmann::json::parse(slurp(path), nullptr, false);
        return json.is_object() && json["logits"].size() == 2;
    }
    std::vector<std::string> files(const std::string& name) const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder_.file(name)))
            names.push_back(entry.path().filename());
        return names;
    }
    TempDir folder_;
    std::string err_;
};

TEST_F(Output, AFileIsWrittenWholeOrNotAtAll) {
    fs::create_directory(folder_.file("out"));
    for (const std::string name : {"plain.json", "two\nlines \"and\" 'quotes'.json", "-n"}) {
        const std::string path = folder_.file("out/" + name);
        EXPECT_EQ(shell(logits(path)), kOk) << err_;
        EXPECT_TRUE(whole(path)) << path;
        fs::remove(path);
    }
    EXPECT_EQ(shell("cd " + quoted(folder_.file("out")) + " && " + logits("here.json")), kOk);
    EXPECT_TRUE(whole(folder_.file("out/here.json")));

    EXPECT_EQ(shell(logits(folder_.file("no/such/folder.json"))), kBadInput);
    EXPECT_EQ(shell(logits(folder_.file("out"))), kBadInput);
    EXPECT_EQ(files("out"), std::vector<std::string>{"here.json"});

    // A link is followed.
    fs::create_symlink("here.json", folder_.file("out/link.json"));
    write_file(folder_.file("out/here.json"), "old");
    EXPECT_EQ(shell(logits(folder_.file("out/link.json"))), kOk) << err_;
    EXPECT_TRUE(fs::is_symlink(folder_.file("out/link.json")));
    EXPECT_TRUE(whole(folder_.file("out/here.json")));

    // A pipe is written to and stays one.
    const std::string pipe = folder_.file("pipe");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(shell("cat " + quoted(pipe) + " >" + quoted(folder_.file("copy.json")) + " & " +
                    logits(pipe) + " && wait"),
              kOk)
        << err_;
    ASSERT_TRUE(fs::is_fifo(pipe));
    EXPECT_TRUE(whole(folder_.file("copy.json")));
    // So is a device that takes nothing. (Only reached where the pipe was not replaced.)
    EXPECT_EQ(shell(logits("/dev/full")), kBadInput);
    EXPECT_NE(err_.find("No space left"), std::string::npos) << err_;
    EXPECT_TRUE(fs::is_character_file("/dev/full"));
    if (geteuid() != 0) {
        fs::permissions(folder_.file("out"), fs::perms::owner_read | fs::perms::owner_exec);
        EXPECT_EQ(shell(logits(folder_.file("out/new.json"))), kBadInput);
        EXPECT_NE(err_.find("Permission denied"), std::string::npos) << err_;
        fs::permissions(folder_.file("out"), fs::perms::owner_all);
    }
}

TEST_F(Output, InterruptedAtAnyMomentNoHalfFileStays) {
    fs::create_directory(folder_.file("out"));
    const std::string out = folder_.file("out/logits.json"), tokens = kMicro + ".json",
                      model = kMicro + ".gguf";
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(shell(logits(out)), kOk);
    const auto whole_run = std::chrono::steady_clock::now() - start;
    int interrupted = 0;
    for (int moment = 0; moment < 16; ++moment) {
        fs::remove(out);
        const pid_t child = fork();
        if (child == 0) {
            execl(GRANARY_CLI, "granary-cli", "logits", "--device", "host", model.c_str(),
                  "--tokens", tokens.c_str(), "--threads", "1", "--positions", "0,95", "--out",
                  out.c_str(), nullptr);
            _exit(127);
        }
        ASSERT_GT(child, 0);
        std::this_thread::sleep_for(whole_run * moment / 14);
        kill(child, moment % 2 ? SIGTERM : SIGINT);
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        if (WIFSIGNALED(status))
            ++interrupted;
        else
            EXPECT_EQ(WEXITSTATUS(status), kOk);
        if (fs::exists(out)) {
            EXPECT_TRUE(whole(out));
        }
        EXPECT_EQ(files("out").size(), fs::exists(out) ? 1u : 0u);
    }
    EXPECT_GT(interrupted, 0);
}

TEST_F(Output, AnAnswerEndsWithItsReader) {
    const std::string run = "\"$CLI\" run --device host " + quoted(kStarter) +
                            " --threads 1 --raw --prompt 'Once upon a time' -n ";
    // Nowhere to write: closed, full. Nothing that is opened later takes the place of a stream.
    for (const char* where : {">&-", ">/dev/full"}) {
        for (const std::string& command :
             {run + "60", "\"$CLI\" tokenize " + quoted(kStarter) + " --text hello",
              "\"$CLI\" inspect " + quoted(kStarter),
              "\"$CLI\" bench --device host " + quoted(kMicro + ".gguf") +
                  " -p 8 -n 2 --threads 1"}) {
            EXPECT_EQ(shell(command + " " + where), kFailed) << command << where;
            EXPECT_NE(err_.find("cannot be written"), std::string::npos) << err_;
        }
    }
    EXPECT_EQ(shell(run + "60 >/dev/null <&- 2>&-"), kOk);
    // A reader that has seen enough.
    const std::string code = folder_.file("code");
    EXPECT_EQ(shell("{ " + run + "2000 --temp 2 --max-context 4096; echo $? >" + quoted(code) +
                    "; } | head -c 1 >/dev/null"),
              0);
    EXPECT_EQ(slurp(code), "141\n");  // 128 + SIGPIPE
}

TEST_F(Output, ErrorsAreOneLineAndNoControlCharacter) {
    const std::string strange = folder_.file("a\nb\x1b[2J\"'.gguf");
    for (const std::string& command :
         {"run --device host " + quoted(strange) + " --prompt a", "inspect " + quoted(strange),
          "run --device host " + quoted(kStarter) + " --prompt a --file " + quoted(strange),
          "tokenize " + quoted(kStarter) + " --file " + quoted(strange),
          "template --template " + quoted(strange) + " --context " + quoted(strange)}) {
        EXPECT_EQ(shell("\"$CLI\" " + command), kBadInput) << command << err_;
        EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
        EXPECT_EQ(err_.find('\x1b'), std::string::npos);
    }
    EXPECT_EQ(for_terminal("a\x1b[2J\tb\r\n\x7f\xc3\xa9"), "a\uFFFD[2J\tb\uFFFD\n\uFFFD\xc3\xa9");
    // The control characters of two bytes: U+009B is ESC [ in one. U+00A0 is a space.
    EXPECT_EQ(for_terminal("a\xc2\x9b\x32J\xc2\x85\xc2\xa0\xc2"), "a\uFFFD2J\uFFFD\xc2\xa0\xc2");
    std::ostringstream line;
    report_error({ErrorKind::io, "a\xc2\x9b\x32J\n", {}, {}}, line);
    EXPECT_EQ(line.str(), "granary-cli: a\\x9b2J\\x0a\n");
}

TEST_F(Output, NoValueIsPassedOverInSilence) {
    const std::string run = "\"$CLI\" run --device host " + quoted(kStarter) + " --prompt a ";
    for (const char* wrong :
         {"--max-context ''", "--vram-budget ''", "--prefill ''", "--threads ''", "--temp nan",
          "--top-p nan", "--min-p nan", "--repeat-penalty nan", "--temp inf", "--temp ''",
          "-n 99999999999", "-n -1", "-n 1.5", "-n ''", "--seed -1", "--max-context 1e3",
          "--vram-budget -1", "--cache-floor nan%", "--threads 0x2"})
        EXPECT_EQ(shell(run + wrong), kUsage) << wrong << ": " << err_;
    EXPECT_EQ(shell(run + "--file ''"), kBadInput) << err_;
    EXPECT_EQ(shell(run + "-n 4294967295"), kRefused) << err_;
    EXPECT_EQ(shell(run + "-n 0"), kOk) << err_;
    // Nor an option that another one leaves without effect.
    for (const char* wrong :
         {"--suite longctx -p 8", "--suite longctx --repeat 2", "--rows 1",
          "--suite longctx --rows 99", "--sweep 8,16 --depth 8", "--suite longctx --kv q4",
          "--suite longctx --vram-budget 8GiB", "--sweep 8,16 --stops 2"})
        EXPECT_EQ(shell("\"$CLI\" bench --device host " + quoted(kMicro + ".gguf") + " " + wrong),
                  kUsage)
            << wrong << ": " << err_;
    EXPECT_EQ(shell(logits(folder_.file("a.json")) + " --greedy -1"), kUsage) << err_;
    EXPECT_EQ(shell("\"$CLI\" bench --device host " + quoted(kMicro + ".gguf") + " -p ''"), kUsage)
        << err_;
}

}  // namespace
}  // namespace granary::test
