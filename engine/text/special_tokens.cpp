// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/special_tokens.h"

#include <algorithm>

namespace granary::text {

SpecialTokens::SpecialTokens(std::vector<Name> names) : names_(std::move(names)) {
    std::erase_if(names_, [](const Name& name) { return name.text.empty(); });
    std::stable_sort(names_.begin(), names_.end(),
                     [](const Name& a, const Name& b) { return a.text < b.text; });
    const auto equal = [](const Name& a, const Name& b) { return a.text == b.text; };
    names_.erase(std::unique(names_.begin(), names_.end(), equal), names_.end());
    for (const Name& name : names_) first_bytes_.set(static_cast<uint8_t>(name.text[0]));
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, size_t from) const {
    for (size_t at = from; at < text.size(); ++at) {
        if (!first_bytes_[static_cast<uint8_t>(text[at])]) continue;
        // Narrow the sorted names, byte by byte, to those that begin as the text does here.
        auto low = names_.begin();
        auto high = names_.end();
        std::optional<Match> longest;
        for (size_t depth = 0; at + depth < text.size(); ++depth) {
            const auto byte = static_cast<uint8_t>(text[at + depth]);
            const auto byte_of = [&](const Name& name) {
                return static_cast<uint8_t>(name.text[depth]);
            };
            low = std::partition_point(low, high, [&](const Name& n) { return byte_of(n) < byte; });
            high =
                std::partition_point(low, high, [&](const Name& n) { return byte_of(n) == byte; });
            if (low == high) break;
            // The one that ends here comes before those that go on.
            if (low->text.size() == depth + 1) {
                longest = Match{at, depth + 1, low->token};
                if (++low == high) break;
            }
        }
        if (longest) return longest;
    }
    return std::nullopt;
}

}  // namespace granary::text
