// SPDX-License-Identifier: GPL-3.0-or-later
// Template source to tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/text/template/failure.h"

namespace granary::jinja {

struct Token {
    enum class Type {
        data,
        print_begin,
        print_end,
        block_begin,
        block_end,
        name,
        string,
        integer,
        real,
        op,
        end
    };
    Type type = Type::end;
    std::string text;  // data and string: the value; op and name: as written; block_end: empty
    int64_t integer = 0;
    double real = 0;
    Position at;

    bool is_op(std::string_view s) const { return type == Type::op && text == s; }
    bool is_name(std::string_view s) const { return type == Type::name && text == s; }
};

// Always ends with one Token of type end. Throws Failure.
std::vector<Token> tokenize(std::string_view source);

}  // namespace granary::jinja
