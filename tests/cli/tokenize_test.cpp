// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/tokenize.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/gguf/gguf_builder.h"

namespace granary::test {
namespace {

using namespace cli;

struct Printed {
    int code;
    std::string out;
    std::string err;
};

Printed run(const TokenizeOptions& options) {
    std::ostringstream out;
    std::ostringstream err;
    const int code = tokenize(options, out, err);
    return {code, out.str(), err.str()};
}

TokenizeOptions starter_options() {
    TokenizeOptions options;
    options.model = GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf";
    return options;
}

TEST(Tokenize, PrintsIdsAsALineOrAsJson) {
    TokenizeOptions options = starter_options();
    options.text = "Once upon a time";
    EXPECT_EQ(run(options).out, "615 551 258 454\n");
    options.json = true;
    EXPECT_EQ(run(options).out, "{\"ids\":[615,551,258,454]}\n");
    options.text = "";
    EXPECT_EQ(run(options).out, "{\"ids\":[]}\n");
    options.json = false;
    const Printed empty = run(options);
    EXPECT_EQ(empty.out, "\n");
    EXPECT_EQ(empty.code, 0);
    EXPECT_EQ(empty.err, "");
}

TEST(Tokenize, ReadsSpecialTokensOnlyWhenAsked) {
    TokenizeOptions options = starter_options();
    options.text = "<|im_start|>user\nHi<|im_end|>\n";
    const std::string plain = run(options).out;
    EXPECT_EQ(plain.find("8190"), std::string::npos);
    options.special = true;
    EXPECT_EQ(run(options).out, "8190 584 198 2769 8191 198\n");
}

TEST(Tokenize, TakesTheBytesOfAFileAsTheyAre) {
    const TempDir folder;
    TokenizeOptions options = starter_options();
    options.file = folder.file("text.txt");
    // A byte-order mark, a NUL, line ends of two kinds and a byte that is no UTF-8.
    const std::string text("\xEF\xBB\xBFOnce\0upon\r\na\n\xFF", 17);
    write_file(*options.file, text);
    const Printed from_file = run(options);
    EXPECT_EQ(from_file.code, 0);
    options.file.reset();
    options.text = text;
    EXPECT_EQ(run(options).out, from_file.out);
}

TEST(Tokenize, SaysWhatIsWrong) {
    TokenizeOptions options = starter_options();
    EXPECT_EQ(run(options).code, 1);
    options.text = "a";
    options.file = "b";
    EXPECT_EQ(run(options).code, 1);

    options.text.reset();
    const TempDir folder;
    for (const std::string& path : {folder.file("absent.txt"), folder.file("")}) {
        options.file = path;
        const Printed printed = run(options);
        EXPECT_EQ(printed.code, 2);
        EXPECT_EQ(printed.out, "");
        EXPECT_NE(printed.err.find(path), std::string::npos) << printed.err;
    }
    options.file = "/dev/zero";
    const Printed endless = run(options);
    EXPECT_EQ(endless.code, 2);
    EXPECT_NE(endless.err.find("256 MiB"), std::string::npos) << endless.err;

    options = TokenizeOptions();
    options.text = "a";
    options.model = folder.file("absent.gguf");
    EXPECT_EQ(run(options).code, 2);
    options.model = folder.file("empty.gguf");
    GgufBuilder().save(options.model);
    const Printed printed = run(options);
    EXPECT_EQ(printed.code, 2);
    EXPECT_NE(printed.err.find("tokenizer.ggml.model"), std::string::npos) << printed.err;
}

}  // namespace
}  // namespace granary::test
