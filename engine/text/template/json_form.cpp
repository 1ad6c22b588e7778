// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>

#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"
#include "engine/text/template/unicode.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

class JsonWriter {
  public:
    JsonWriter(TextBuilder& out, const JsonStyle& style) : out_(out), style_(style) {}

    void write(const Value& value) {
        out_.workspace().step();
        if (const Text* text = value.text()) return write_text(text->bytes);
        if (const Sequence* sequence = value.sequence(); is_list_or_tuple(value)) {
            return write_container('[', ']', sequence->items.size(),
                                   [&](size_t i) { write(sequence->items[i]); });
        }
        if (const Mapping* mapping = value.mapping()) return write_mapping(*mapping);
        if (!write_scalar(value)) {
            refuse_absent_json(value);
            stop("Object of type " + std::string(type_name(value)) + " is not JSON serializable");
        }
    }

  private:
    static void refuse_absent_json(const Value& value) {
        if (const Absence* absence = value.absence()) {
            stop("tojson: " + absence->message());
        }
    }

    // True if the value is None, a truth value or a number.
    bool write_scalar(const Value& value) {
        if (value.is_none()) return out_ << "null", true;
        if (const auto* b = value.as<bool>()) return out_ << (*b ? "true" : "false"), true;
        if (const auto* i = value.as<int64_t>()) return out_ << std::to_string(*i), true;
        if (const auto* u = value.as<uint64_t>()) return out_ << std::to_string(*u), true;
        if (const auto* d = value.as<double>()) {
            if (std::isnan(*d)) return out_ << "NaN", true;
            if (std::isinf(*d)) return out_ << (*d > 0 ? "Infinity" : "-Infinity"), true;
            return out_ << real_text(*d), true;
        }
        return false;
    }

    void new_line() {
        if (style_.indent < 0) return;
        out_ << '\n';
        out_.repeat(style_.indent_text, level_);
    }

    template <class WriteItem>
    void write_container(char open, char close, size_t count, WriteItem write_item) {
        out_ << open;
        if (count > 0) {
            ++level_;
            for (size_t i = 0; i < count; ++i) {
                if (i > 0) out_ << style_.item_separator;
                new_line();
                write_item(i);
            }
            --level_;
            new_line();
        }
        out_ << close;
    }

    void write_mapping(const Mapping& mapping) {
        std::vector<const std::pair<Value, Value>*> entries;
        for (const auto& entry : mapping.entries) entries.push_back(&entry);
        if (style_.sort_keys) {
            std::stable_sort(entries.begin(), entries.end(), [this](const auto* a, const auto* b) {
                return less(out_.workspace(), a->first, b->first);
            });
        }
        write_container('{', '}', entries.size(), [&](size_t i) {
            const auto& [key, value] = *entries[i];
            if (const Text* text = key.text()) {
                write_text(text->bytes);
            } else {
                out_ << '"';
                if (!write_scalar(key)) {
                    stop("keys must be str, int, float, bool or None, not " +
                         std::string(type_name(key)));
                }
                out_ << '"';
            }
            out_ << style_.key_separator;
            write(value);
        });
    }

    void append_escape(std::string& quoted, char32_t c) {
        quoted += "\\u";
        for (int shift = 12; shift >= 0; shift -= 4) {
            quoted += "0123456789abcdef"[(c >> shift) & 15];
        }
    }

    void write_text(std::string_view text) {
        out_.workspace().scan(text.size());
        std::string quoted = "\"";
        quoted.reserve(text.size() + 2);
        for (size_t at = 0; at < text.size();) {
            const size_t begin = at;
            const char32_t c = decode(text, at);
            switch (c) {
                case '"':
                    quoted += "\\\"";
                    continue;
                case '\\':
                    quoted += "\\\\";
                    continue;
                case '\n':
                    quoted += "\\n";
                    continue;
                case '\r':
                    quoted += "\\r";
                    continue;
                case '\t':
                    quoted += "\\t";
                    continue;
                case '\f':
                    quoted += "\\f";
                    continue;
                case '\b':
                    quoted += "\\b";
                    continue;
                default:
                    break;
            }
            if (c < 0x20 || (style_.ensure_ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
                append_escape(quoted, c);
            } else if (style_.ensure_ascii && c >= 0x10000) {
                append_escape(quoted, 0xD800 + ((c - 0x10000) >> 10));
                append_escape(quoted, 0xDC00 + ((c - 0x10000) & 0x3FF));
            } else {
                quoted += text.substr(begin, at - begin);
            }
        }
        quoted += '"';
        out_ << quoted;
    }

    TextBuilder& out_;
    const JsonStyle& style_;
    int level_ = 0;
};

}  // namespace

void append_json(TextBuilder& out, const Value& value, const JsonStyle& style) {
    JsonWriter(out, style).write(value);
}

Value from_json(Workspace& workspace, const nlohmann::ordered_json& json, int depth) {
    if (depth >= workspace.limits().value_depth) {
        stop("the context is nested deeper than " + std::to_string(workspace.limits().value_depth),
             ErrorKind::refused);
    }
    const auto text = [&workspace](const std::string& s) {
        if (invalid_utf8(s) != std::string_view::npos)
            stop("the context holds text that is no UTF-8");
        return workspace.text(s);
    };
    switch (json.type()) {
        case nlohmann::ordered_json::value_t::boolean:
            return json.get<bool>();
        case nlohmann::ordered_json::value_t::number_integer:
            return json.get<int64_t>();
        case nlohmann::ordered_json::value_t::number_unsigned: {
            const auto value = json.get<uint64_t>();
            if (value > INT64_MAX) return value;
            return static_cast<int64_t>(value);
        }
        case nlohmann::ordered_json::value_t::number_float:
            return json.get<double>();
        case nlohmann::ordered_json::value_t::string:
            return text(json.get_ref<const std::string&>());
        case nlohmann::ordered_json::value_t::array: {
            std::vector<Value> items;
            items.reserve(json.size());
            for (const auto& item : json) items.push_back(from_json(workspace, item, depth + 1));
            return workspace.list(std::move(items));
        }
        case nlohmann::ordered_json::value_t::object: {
            std::vector<std::pair<Value, Value>> entries;
            entries.reserve(json.size());
            for (const auto& [key, item] : json.items()) {
                entries.emplace_back(text(key), from_json(workspace, item, depth + 1));
            }
            return workspace.mapping(std::move(entries));
        }
        default:
            return Value();
    }
}

}  // namespace granary::jinja
