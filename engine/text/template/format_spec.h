// SPDX-License-Identifier: GPL-3.0-or-later
// One placeholder of a format: fill, sign, width, precision and type.
#pragma once

#include <string>
#include <string_view>

#include "engine/text/template/value.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

struct FormatSpec {
    std::string fill = " ";
    char align = '\0';  // < > ^ =
    char sign = '-';
    bool alternate = false;
    bool zero = false;
    bool comma = false;
    int64_t width = 0;
    int64_t precision = -1;
    char type = '\0';
};

FormatSpec read_spec(std::string_view text);  // "*^+08,.3f", as behind the colon in "{:...}"

// Decimal digits at `at`, which moves behind them; -1 if there are none.
int64_t read_number(std::string_view text, size_t& at);

void append_formatted(TextBuilder& out, const Value& value, FormatSpec spec);

// sign and body with the fill that the width asks for, at the spec's side or else the fallback's.
void append_padded(TextBuilder& out, std::string_view sign, std::string_view body,
                   const FormatSpec& spec, char fallback_align);

}  // namespace granary::jinja
