// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/tokenize.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/gguf/file.h"
#include "engine/gguf/printable.h"
#include "granary/tokenizer.h"

namespace granary {
namespace {

constexpr size_t most_bytes = size_t{256} << 20;

struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
};

// Reads to the end instead of asking for the size, which pipes and devices do not have.
Result<std::string> read_text(const std::string& path) {
    const auto failed = [&] {
        return fail(ErrorKind::io, "the text file cannot be read",
                    gguf::quoted(path) + ": " + std::strerror(errno));
    };
    const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
    if (file == nullptr) return failed();
    std::string text;
    std::vector<char> buffer(size_t{1} << 16);
    while (const size_t bytes = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
        text.append(buffer.data(), bytes);
        if (text.size() > most_bytes) {
            return fail(ErrorKind::refused, "the text file is too large",
                        gguf::quoted(path) + ": more than " + format_bytes(most_bytes));
        }
    }
    if (std::ferror(file.get())) return failed();
    return text;
}

Result<std::vector<TokenId>> ids_of(const TokenizeOptions& options) {
    const auto file = gguf::File::open(options.model);
    if (!file) return tl::unexpected(file.error());
    const auto tokenizer = make_tokenizer(**file);
    if (!tokenizer) return tl::unexpected(tokenizer.error());
    if (options.text) return (*tokenizer)->encode(*options.text, options.special);
    const auto text = read_text(*options.file);
    if (!text) return tl::unexpected(text.error());
    return (*tokenizer)->encode(*text, options.special);
}

}  // namespace

int tokenize(const TokenizeOptions& options, std::ostream& out, std::ostream& err) {
    if (options.text.has_value() == options.file.has_value()) {
        err << "granary-cli tokenize: name one text, with --text or with --file\n";
        return 2;
    }
    const auto ids = ids_of(options);
    if (!ids) {
        err << "granary-cli tokenize: " << ids.error().message() << '\n';
        return 1;
    }
    if (options.json) out << "{\"ids\":[";
    const char* separator = "";
    for (const TokenId id : *ids) {
        out << separator << id;
        separator = options.json ? "," : " ";
    }
    out << (options.json ? "]}\n" : "\n");
    return 0;
}

}  // namespace granary
