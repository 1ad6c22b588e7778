// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/text_form.h"

#include <charconv>
#include <cmath>

#include "engine/text/template/frame.h"
#include "engine/text/template/unicode.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

std::string real_text(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    char buffer[40];
    const auto r =
        std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
    const std::string_view shortest(buffer, static_cast<size_t>(r.ptr - buffer));
    const size_t e = shortest.find('e');
    int exponent = 0;
    const bool positive = shortest[e + 1] == '+';
    std::from_chars(shortest.data() + e + 2, shortest.data() + shortest.size(), exponent);
    if (!positive) exponent = -exponent;
    if (exponent < -4 || exponent >= 16) return std::string(shortest);

    std::string sign;
    std::string digits;
    for (const char c : shortest.substr(0, e)) {
        if (c == '-') sign = "-";
        if (c >= '0' && c <= '9') digits += c;
    }
    if (exponent < 0) {
        return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
    }
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole)
        return sign + digits + std::string(whole - digits.size(), '0') + ".0";
    return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {

void append_quoted(TextBuilder& out, std::string_view text) {
    out.workspace().scan(text.size());
    const bool single = text.find('\'') != std::string_view::npos;
    const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
    std::string quoted(1, quote);
    const auto hex = [&quoted](char kind, char32_t c, int digits) {
        quoted += '\\';
        quoted += kind;
        for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
            quoted += "0123456789abcdef"[(c >> shift) & 15];
        }
    };
    for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        const char32_t c = decode(text, at);
        if (c == static_cast<unsigned char>(quote) || c == '\\') {
            quoted += '\\';
            quoted += static_cast<char>(c);
        } else if (c == '\n') {
            quoted += "\\n";
        } else if (c == '\r') {
            quoted += "\\r";
        } else if (c == '\t') {
            quoted += "\\t";
        } else if (c < 0x80 ? c >= 0x20 && c < 0x7F : is_printable(c)) {
            quoted += text.substr(begin, at - begin);
        } else if (c < 0x100) {
            hex('x', c, 2);
        } else if (c < 0x10000) {
            hex('u', c, 4);
        } else {
            hex('U', c, 8);
        }
    }
    quoted += quote;
    out << quoted;
}

void append_items(TextBuilder& out, const std::vector<Value>& items) {
    bool first = true;
    for (const Value& item : items) {
        if (!first) out << ", ";
        first = false;
        append_repr(out, item);
    }
}

struct Repr {
    TextBuilder& out;

    void operator()(const Ref<const Absence>&) const { out << "Undefined"; }
    void operator()(None) const { out << "None"; }
    void operator()(bool b) const { out << (b ? "True" : "False"); }
    void operator()(int64_t i) const { out << std::to_string(i); }
    void operator()(uint64_t i) const { out << std::to_string(i); }
    void operator()(double d) const { out << real_text(d); }
    void operator()(const Ref<const Text>& t) const {
        if (t->markup) out << "Markup(";
        append_quoted(out, t->bytes);
        if (t->markup) out << ")";
    }
    void operator()(const Ref<const Sequence>& s) const {
        switch (s->flavor) {
            case Sequence::Flavor::range:
                out << "range(" << std::to_string(s->start) << ", " << std::to_string(s->stop);
                if (s->step != 1) out << ", " << std::to_string(s->step);
                out << ")";
                return;
            case Sequence::Flavor::tuple:
                out << "(";
                append_items(out, s->items);
                out << (s->items.size() == 1 ? ",)" : ")");
                return;
            case Sequence::Flavor::list:
                break;
            case Sequence::Flavor::keys:
                out << "dict_keys(";
                break;
            case Sequence::Flavor::values:
                out << "dict_values(";
                break;
            case Sequence::Flavor::items:
                out << "dict_items(";
                break;
        }
        out << "[";
        append_items(out, s->items);
        out << (s->flavor == Sequence::Flavor::list ? "]" : "])");
    }
    void operator()(const Ref<const Mapping>& m) const {
        out << "{";
        bool first = true;
        for (const auto& [key, value] : m->entries) {
            if (!first) out << ", ";
            first = false;
            append_repr(out, key);
            out << ": ";
            append_repr(out, value);
        }
        out << "}";
    }
    // These have no form that two programs would share: printing them is a template's mistake.
    void operator()(const Ref<Namespace>&) const { refuse("a namespace"); }
    void operator()(const Ref<Iterator>&) const {
        refuse("a lazy sequence; the filter 'list' makes a list of it");
    }
    void operator()(const Ref<const Function>& f) const {
        refuse("the function '" + f->name + "'; it was not called");
    }
    void operator()(const Ref<Loop>&) const { refuse("the variable 'loop'"); }

    [[noreturn]] static void refuse(const std::string& what) {
        stop("the template prints " + what);
    }
};

}  // namespace

void append_repr(TextBuilder& out, const Value& value) {
    out.workspace().step();
    std::visit(Repr{out}, value.data());
}

void append_text(TextBuilder& out, const Value& value) {
    if (const Text* text = value.text()) {
        out << text->bytes;
    } else if (value.absence() == nullptr) {
        append_repr(out, value);
    }
}

std::string to_text(Workspace& workspace, const Value& value) {
    TextBuilder out(workspace);
    append_text(out, value);
    return out.take();
}

std::string repr(Workspace& workspace, const Value& value) {
    TextBuilder out(workspace);
    append_repr(out, value);
    return out.take();
}

}  // namespace granary::jinja
