// SPDX-License-Identifier: GPL-3.0-or-later
// Vocabulary-only GGUF files for tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/byte_alphabet.h"
#include "tests/gguf/gguf_builder.h"
#include "tests/text/test_files.h"

namespace granary::test {

// What a file says of its tokens, to be changed before it is written.
struct TestVocabulary {
    std::string model = "gpt2";
    std::string pre = "qwen2";
    std::vector<std::string> tokens;
    std::vector<int32_t> types;
    std::vector<std::string> merges;
    std::vector<float> scores;
    GgufBuilder more;  // other keys

    int32_t add(const std::string& token, int32_t type = 1, float score = 0) {
        tokens.push_back(token);
        types.push_back(type);
        scores.push_back(score);
        return static_cast<int32_t>(tokens.size()) - 1;
    }

    // The token of a merge comes behind those that are there.
    int32_t merge(const std::string& left, const std::string& right) {
        merges.push_back(left + " " + right);
        return add(left + right);
    }

    Result<std::shared_ptr<const Tokenizer>> make() const {
        const TempDir folder;
        const std::string path = folder.file("vocabulary.gguf");
        GgufBuilder builder = more;
        builder.put("tokenizer.ggml.model", model);
        if (!pre.empty()) builder.put("tokenizer.ggml.pre", pre);
        builder.put_array("tokenizer.ggml.tokens", tokens);
        builder.put_array("tokenizer.ggml.token_type", types);
        if (model == "gpt2") builder.put_array("tokenizer.ggml.merges", merges);
        if (model == "llama") builder.put_array("tokenizer.ggml.scores", scores);
        builder.save(path);
        const auto file = gguf::File::open(path);
        if (!file) return tl::unexpected(file.error());
        return make_tokenizer(**file);
    }
};

// The 256 bytes in order and no merges: token n is byte n.
inline TestVocabulary byte_vocabulary() {
    TestVocabulary vocabulary;
    for (unsigned byte = 0; byte < 256; ++byte) {
        vocabulary.add(text::byte_to_letter(static_cast<uint8_t>(byte)));
    }
    return vocabulary;
}

// One of tests/data/tokenizer, whose README says the format.
TestVocabulary stored_vocabulary(const std::string& name, const std::string& pre);

}  // namespace granary::test
