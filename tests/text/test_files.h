// SPDX-License-Identifier: GPL-3.0-or-later
// Files of tests of text, read.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "engine/gguf/file.h"
#include "granary/tokenizer.h"

namespace granary::test {

inline std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    EXPECT_TRUE(in) << path;
    std::ostringstream bytes;
    bytes << in.rdbuf();
    return bytes.str();
}

// The tokeniser of a file that must have a sound one.
inline std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& path) {
    const auto file = gguf::File::open(path);
    if (!file) {
        ADD_FAILURE() << file.error().message();
        return nullptr;
    }
    const auto tokenizer = make_tokenizer(**file);
    if (!tokenizer) {
        ADD_FAILURE() << tokenizer.error().message();
        return nullptr;
    }
    return *tokenizer;
}

inline std::shared_ptr<const Tokenizer> starter_tokenizer() {
    static const auto tokenizer = tokenizer_of(GRANARY_RESOURCES "/starter/starter-q4_k_m.gguf");
    return tokenizer;
}

// All pieces joined: for byte-level tokens the encoded text again, byte for byte.
inline std::string joined(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens,
                          bool special = false) {
    std::string text;
    for (const TokenId token : tokens) text += tokenizer.piece(token, special);
    return text;
}

}  // namespace granary::test
