// SPDX-License-Identifier: GPL-3.0-or-later
// HTML escaping. The filters `safe` and `escape` make markup, and markup that meets plain text
// escapes it, as MarkupSafe does.
#pragma once

#include <string_view>

#include "engine/text/template/value.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

void append_escaped(TextBuilder& out, std::string_view text);

// text as part of a result that is markup or not.
inline void append_as(TextBuilder& out, const Text& text, bool markup) {
    if (markup && !text.markup) {
        append_escaped(out, text.bytes);
    } else {
        out << text.bytes;
    }
}

}  // namespace granary::jinja
