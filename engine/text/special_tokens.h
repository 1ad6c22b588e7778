// SPDX-License-Identifier: GPL-3.0-or-later
// Finds the names of special tokens in a text.
#pragma once

#include <bitset>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "granary/tokenizer.h"

namespace granary::text {

class SpecialTokens {
  public:
    struct Name {
        std::string text;
        TokenId token;
    };
    struct Match {
        size_t at;  // of its first byte
        size_t bytes;
        TokenId token;
    };

    // Empty names are left out; of equal names the first stays.
    explicit SpecialTokens(std::vector<Name> names);

    // The first name at or after `from`; of several that begin there, the longest.
    std::optional<Match> find(std::string_view text, size_t from) const;

  private:
    std::vector<Name> names_;  // sorted by text
    std::bitset<256> first_bytes_;
};

}  // namespace granary::text
