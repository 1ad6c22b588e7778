// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/byte_pair_tokenizer.h"

#include <array>

#include "engine/gguf/printable.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/merges.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/text_index.h"
#include "engine/text/vocabulary_tokenizer.h"

namespace granary::text {
namespace {

struct Merging {
    std::array<TokenId, 256> byte_tokens{};
    MergeTable merges;
};

class BytePairTokenizer final : public VocabularyTokenizer {
  public:
    BytePairTokenizer(const VocabularyFile& file, PreTokenizer pre, Merging merging)
        : VocabularyTokenizer(file), pre_(std::move(pre)), merging_(std::move(merging)) {
        std::string bytes;
        for (size_t i = 0; i < file.texts.size(); ++i) {
            const TokenType type = file.vocabulary.types[i];
            if (type == TokenType::normal || type == TokenType::byte) {
                bytes.clear();
                append_spelled_bytes(file.texts[i], bytes);
                append_piece(bytes);
            } else {
                append_piece(file.texts[i]);
            }
        }
        if (!pre_.ignores_merges()) return;
        whole_words_ = TextIndex(file.texts.size());
        for (TokenId id = 0; static_cast<uint32_t>(id) < size(); ++id) {
            if (vocabulary().types[static_cast<size_t>(id)] == TokenType::normal) {
                whole_words_.insert(piece_bytes(id), id);
            }
        }
    }

    std::string slower() const override {
        if (pre_.is_machine_code()) return {};
        return "this system lets programs make no machine code: an interpreter cuts text into "
               "words, at a third of the speed (a long novel in 0.07 s, not 0.02)";
    }

  private:
    void encode_plain(std::string_view text, std::vector<TokenId>& tokens) const override {
        Merger merger(merging_.merges);
        WordCache cache(text.size(), tokens);
        PreTokenizer::Words words(pre_, text);
        while (const auto word = words.next()) {
            cache.append(*word, [&] { encode_word(*word, merger, tokens); });
        }
    }

    void encode_word(std::string_view word, Merger& merger, std::vector<TokenId>& tokens) const {
        if (pre_.ignores_merges() && word.size() <= longest_token) {
            if (const TokenId token = whole_words_.find(word); token >= 0) {
                tokens.push_back(token);
                return;
            }
        }
        for (; !word.empty(); word.remove_prefix(std::min(longest_word, word.size()))) {
            const std::string_view part = word.substr(0, longest_word);
            const size_t first = tokens.size();
            for (const char c : part) {
                tokens.push_back(merging_.byte_tokens[static_cast<uint8_t>(c)]);
            }
            const size_t count = merger.merge(std::span(tokens).subspan(first));
            tokens.resize(first + count);
        }
    }

    PreTokenizer pre_;
    Merging merging_;
    TextIndex whole_words_;  // used where merges are ignored
};

tl::unexpected<Error> broken(const VocabularyFile& file, const char* what,
                             const std::string& detail) {
    return fail(ErrorKind::invalid_file, what, gguf::quoted(file.path) + ": " + detail);
}

// Merge i is "left right"; the token it makes is named by the two texts joined.
Result<Merging> read_merges(const gguf::File& file, const VocabularyFile& tokens) {
    constexpr const char* key = "tokenizer.ggml.merges";
    const auto found = file.get_array(key);
    if (!found) return tl::unexpected(found.error());
    const gguf::Array& array = **found;
    if (array.size() > 0 && array.kind() != gguf::Array::Kind::string) {
        return broken(tokens, "the merges are no list of texts", key);
    }
    if (array.size() > most_merges) {
        return broken(tokens, "there are too many merges",
                      std::string(key) + " has " + std::to_string(array.size()) +
                          " entries, more than " + std::to_string(most_merges));
    }

    TextIndex index(tokens.texts.size());
    for (size_t i = 0; i < tokens.texts.size(); ++i) {
        index.insert(tokens.texts[i], static_cast<TokenId>(i));
    }
    Merging merging;
    for (unsigned byte = 0; byte < 256; ++byte) {
        const std::string letter = byte_to_letter(static_cast<uint8_t>(byte));
        merging.byte_tokens[byte] = index.find(letter);
        if (merging.byte_tokens[byte] < 0) {
            return broken(tokens, "the vocabulary has no token for one of the 256 bytes",
                          "byte " + std::to_string(byte) + ", spelled " + gguf::quoted(letter));
        }
    }

    merging.merges = MergeTable(array.size());
    std::string joined;
    for (size_t i = 0; i < array.size(); ++i) {
        const std::string_view line = array.string_at(i);
        const size_t space = line.find(' ', 1);
        const std::string_view left = line.substr(0, space);
        const std::string_view right =
            space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
        joined.assign(left).append(right);
        const TokenId left_id = index.find(left);
        const TokenId right_id = index.find(right);
        const TokenId result = index.find(joined);
        if (right.empty() || left_id < 0 || right_id < 0 || result < 0) {
            return broken(
                tokens, "a merge does not join two tokens to a third",
                std::string(key) + "[" + std::to_string(i) + "] is " + gguf::quoted(line));
        }
        merging.merges.add(left_id, right_id, {static_cast<uint32_t>(i), result});
    }
    return merging;
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> make_byte_pair_tokenizer(const gguf::File& file) {
    const auto name = file.get_string("tokenizer.ggml.pre");
    if (!name) return tl::unexpected(name.error());
    auto pre = PreTokenizer::make(*name, file.path());
    if (!pre) return tl::unexpected(pre.error());
    const auto tokens = read_vocabulary(file, pre->adds_bos());
    if (!tokens) return tl::unexpected(tokens.error());
    auto merging = read_merges(file, *tokens);
    if (!merging) return tl::unexpected(merging.error());
    return std::make_shared<const BytePairTokenizer>(*tokens, std::move(*pre), std::move(*merging));
}

}  // namespace granary::text
