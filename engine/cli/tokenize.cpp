// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/tokenize.h"

#include <vector>

#include "engine/cli/common.h"
#include "engine/gguf/file.h"
#include "granary/tokenizer.h"

namespace granary::cli {
namespace {

constexpr uint64_t kMostTextBytes = uint64_t{256} << 20;

Result<std::vector<TokenId>> ids_of(const TokenizeOptions& options) {
    const auto file = gguf::File::open(options.model);
    if (!file) return tl::unexpected(file.error());
    const auto tokenizer = make_tokenizer(**file);
    if (!tokenizer) return tl::unexpected(tokenizer.error());
    if (options.text) return (*tokenizer)->encode(*options.text, options.special);
    const auto text = read_file(*options.file, kMostTextBytes);
    if (!text) return tl::unexpected(text.error());
    return (*tokenizer)->encode(*text, options.special);
}

}  // namespace

int tokenize(const TokenizeOptions& options, std::ostream& out, std::ostream& err) {
    if (options.text.has_value() == options.file.has_value()) {
        err << "granary-cli: name one text, with --text or with --file\n";
        return kUsage;
    }
    const auto ids = ids_of(options);
    if (!ids) return report_error(ids.error(), err);
    if (options.json) out << "{\"ids\":[";
    const char* separator = "";
    for (const TokenId id : *ids) {
        out << separator << id;
        separator = options.json ? "," : " ";
    }
    out << (options.json ? "]}\n" : "\n");
    return kOk;
}

}  // namespace granary::cli
