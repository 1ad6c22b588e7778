// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/vocabulary.h"

#include <algorithm>
#include <array>

#include "engine/gguf/printable.h"

namespace granary::text {
namespace {

// Texts of tokens that end an answer in the families met so far, whatever ids the file names.
constexpr std::array<std::string_view, 12> answer_end_names = {
    "<|im_end|>",    "<|endoftext|>", "<|return|>", "<|call|>",
    "<|end|>",       "<|eot_id|>",    "<|eom_id|>", "<|end_of_text|>",
    "<end_of_turn>", "<turn|>",       "<EOT>",      "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};

tl::unexpected<Error> broken(const std::string& path, std::string what, const std::string& detail) {
    return fail(ErrorKind::invalid_file, std::move(what), gguf::quoted(path) + ": " + detail);
}

Result<std::vector<std::string_view>> read_texts(const gguf::File& file) {
    constexpr const char* key = "tokenizer.ggml.tokens";
    const auto tokens = file.get_array(key);
    if (!tokens) return tl::unexpected(tokens.error());
    const gguf::Array& array = **tokens;
    if (array.kind() != gguf::Array::Kind::string) {
        return broken(file.path(), "the vocabulary is no list of texts", key);
    }
    if (array.size() == 0 || array.size() > largest_vocabulary) {
        return broken(file.path(), "the vocabulary has an impossible size",
                      std::string(key) + " has " + std::to_string(array.size()) +
                          " entries, not 1 to " + std::to_string(largest_vocabulary));
    }
    std::vector<std::string_view> texts(array.size());
    for (size_t i = 0; i < texts.size(); ++i) {
        texts[i] = array.string_at(i);
        if (texts[i].size() > longest_token) {
            return broken(file.path(), "a token is too long",
                          std::string(key) + "[" + std::to_string(i) + "] has " +
                              std::to_string(texts[i].size()) + " bytes, more than " +
                              std::to_string(longest_token));
        }
    }
    return texts;
}

Result<std::vector<TokenType>> read_types(const gguf::File& file, size_t count) {
    constexpr const char* key = "tokenizer.ggml.token_type";
    std::vector<TokenType> types(count, TokenType::normal);
    if (file.find(key) == nullptr) return types;
    const auto found = file.get_array(key);
    if (!found) return tl::unexpected(found.error());
    const gguf::Array& array = **found;
    if (array.size() != count) {
        return broken(file.path(), "tokens and token types differ in number",
                      std::to_string(count) + " tokens, " + std::to_string(array.size()) +
                          " entries in " + key);
    }
    for (size_t i = 0; i < count; ++i) {
        const uint64_t number = array.unsigned_at(i);
        if (number < 1 || number > 6) {
            return broken(file.path(), "a token has an unknown type",
                          std::string(key) + "[" + std::to_string(i) + "] is " +
                              std::to_string(number) + ", not 1 to 6");
        }
        types[i] = static_cast<TokenType>(number);
    }
    return types;
}

Result<TokenId> read_id(const gguf::File& file, const char* key, size_t count) {
    const auto id = file.find_unsigned(key);
    if (!id) return tl::unexpected(id.error());
    if (!*id) return TokenId{-1};
    if (**id >= count) {
        return broken(file.path(), "a token id is out of range",
                      std::string(key) + " is " + std::to_string(**id) + ", the vocabulary has " +
                          std::to_string(count) + " tokens");
    }
    return static_cast<TokenId>(**id);
}

}  // namespace

Result<VocabularyFile> read_vocabulary(const gguf::File& file, bool adds_bos_unless_told) {
    VocabularyFile result;
    result.path = file.path();
    auto texts = read_texts(file);
    if (!texts) return tl::unexpected(texts.error());
    result.texts = std::move(*texts);
    const size_t count = result.texts.size();

    Vocabulary& vocabulary = result.vocabulary;
    auto types = read_types(file, count);
    if (!types) return tl::unexpected(types.error());
    vocabulary.types = std::move(*types);

    TokenId eot = -1;
    TokenId eom = -1;
    const std::pair<const char*, TokenId*> ids[] = {
        {"tokenizer.ggml.bos_token_id", &vocabulary.bos},
        {"tokenizer.ggml.eos_token_id", &vocabulary.eos},
        {"tokenizer.ggml.unknown_token_id", &vocabulary.unknown},
        {"tokenizer.ggml.eot_token_id", &eot},
        {"tokenizer.ggml.eom_token_id", &eom}};
    for (const auto& [key, id] : ids) {
        const auto read = read_id(file, key, count);
        if (!read) return tl::unexpected(read.error());
        *id = *read;
    }

    const auto told = file.find_bool("tokenizer.ggml.add_bos_token");
    if (!told) return tl::unexpected(told.error());
    if (told->value_or(false) && vocabulary.bos < 0) {
        return broken(
            file.path(), "the file asks for a BOS token and names none",
            "tokenizer.ggml.add_bos_token is true, tokenizer.ggml.bos_token_id is absent");
    }
    vocabulary.adds_bos = told->value_or(adds_bos_unless_told) && vocabulary.bos >= 0;

    std::vector<TokenId>& ends = vocabulary.answer_ends;
    for (const TokenId id : {vocabulary.eos, eot, eom}) {
        if (id >= 0) ends.push_back(id);
    }
    TokenId end_of_message = -1;
    bool returns = false;
    bool calls = false;
    for (size_t i = 0; i < count; ++i) {
        const std::string_view text = result.texts[i];
        if (text.size() < 5 || text.front() != '<' || text.back() != '>') continue;
        if (std::find(answer_end_names.begin(), answer_end_names.end(), text) ==
            answer_end_names.end()) {
            continue;
        }
        const TokenId id = static_cast<TokenId>(i);
        ends.push_back(id);
        // Some converters call these normal, and then no prompt could contain them.
        if (vocabulary.types[i] == TokenType::normal) vocabulary.types[i] = TokenType::control;
        if (text == "<|end|>") end_of_message = id;
        returns = returns || text == "<|return|>";
        calls = calls || text == "<|call|>";
    }
    // Where a model has both, <|end|> ends only one message of several in an answer.
    if (returns && calls) std::erase(ends, end_of_message);
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    return result;
}

}  // namespace granary::text
