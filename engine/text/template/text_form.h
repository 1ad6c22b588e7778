// SPDX-License-Identifier: GPL-3.0-or-later
// Values as text: str(), repr() and JSON, as Python writes them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/text/template/value.h"

namespace granary::jinja {

class TextBuilder;
class Workspace;

void append_text(TextBuilder& out, const Value& value);  // str()
void append_repr(TextBuilder& out, const Value& value);  // repr()
std::string to_text(Workspace& workspace, const Value& value);
std::string repr(Workspace& workspace, const Value& value);

std::string real_text(double value);  // the shortest digits that give this number back

struct JsonStyle {
    int indent = -1;          // -1: one line
    std::string indent_text;  // of one level, if indent >= 0
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool ensure_ascii = false;
    bool sort_keys = false;
};

void append_json(TextBuilder& out, const Value& value, const JsonStyle& style);  // json.dumps()

// A value of the context. Throws if it is nested too deep or holds text that is no UTF-8.
Value from_json(Workspace& workspace, const nlohmann::ordered_json& json, int depth = 0);

}  // namespace granary::jinja
