// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "engine/text/template/string_literal.h"
#include "engine/text/template/unicode.h"

namespace granary::jinja {

namespace {

bool digit(char c) {
    return c >= '0' && c <= '9';
}

// Line ends become \n, and one at the very end is dropped (keep_trailing_newline is off).
std::string normalise(std::string_view source) {
    std::string text;
    text.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] == '\r') {
            text += '\n';
            if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
        } else {
            text += source[i];
        }
    }
    if (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

class Lexer {
  public:
    explicit Lexer(std::string_view source) : text_(normalise(source)) {}

    std::vector<Token> run() {
        while (at_ < text_.size()) lex_root();
        add(Token::Type::end, text_.size());
        return std::move(tokens_);
    }

  private:
    char peek(size_t ahead = 0) const {
        return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
    }
    std::string_view rest() const { return std::string_view(text_).substr(at_); }
    bool starts(std::string_view s) const { return rest().starts_with(s); }

    Position position(size_t offset) {
        // Offsets only grow, so the walk from the last one is linear over the whole template.
        for (; walked_ < offset; ++walked_) {
            if (text_[walked_] == '\n') {
                ++here_.line;
                here_.column = 1;
            } else if ((static_cast<unsigned char>(text_[walked_]) & 0xC0) != 0x80) {
                ++here_.column;
            }
        }
        return here_;
    }

    Token& add(Token::Type type, size_t offset, std::string text = {}) {
        Token token;
        token.type = type;
        token.text = std::move(text);
        token.at = position(offset);
        tokens_.push_back(std::move(token));
        return tokens_.back();
    }

    void skip_space() { at_ = text_.size() - strip_left(rest()).size(); }

    // Text up to the next tag, then the tag.
    void lex_root() {
        const size_t begin = at_;
        size_t tag = at_;
        while (true) {
            tag = text_.find('{', tag);
            if (tag == std::string::npos || tag + 1 >= text_.size()) {
                add(Token::Type::data, begin, text_.substr(begin));
                at_ = text_.size();
                return;
            }
            const char kind = text_[tag + 1];
            if (kind == '{' || kind == '%' || kind == '#') break;
            ++tag;
        }
        const char kind = text_[tag + 1];
        char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
        if (sign != '-' && sign != '+') sign = '\0';
        add_data(begin, tag, kind, sign);
        at_ = tag + 2 + (sign != '\0' ? 1 : 0);
        if (kind == '#') {
            lex_comment(tag);
        } else if (kind == '{') {
            add(Token::Type::print_begin, tag);
            lex_code("}}", Token::Type::print_end);
        } else if (!lex_raw(tag)) {
            add(Token::Type::block_begin, tag);
            lex_code("%}", Token::Type::block_end);
        }
    }

    void add_data(size_t begin, size_t end, char kind, char sign) {
        std::string_view data = std::string_view(text_).substr(begin, end - begin);
        if (sign == '-') {
            data = strip_right(data);
        } else if (sign != '+' && kind != '{') {
            const size_t newline = data.rfind('\n');
            const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
            const bool at_line_start = line > 0 || begin == 0 || text_[begin - 1] == '\n';
            if (at_line_start && strip_left(data.substr(line)).empty()) data = data.substr(0, line);
        }
        if (!data.empty()) add(Token::Type::data, begin, std::string(data));
    }

    // Moves behind the end of a tag, whose closing bracket is at at_. The newline behind a block
    // or comment belongs to it (trim_blocks).
    void finish_tag(size_t closing, bool trim, char sign) {
        at_ += closing;
        if (sign == '-') {
            skip_space();
        } else if (trim && sign != '+' && peek() == '\n') {
            ++at_;
        }
    }

    void lex_comment(size_t begin) {
        const size_t close = text_.find("#}", at_);
        if (close == std::string::npos) stop_at(position(begin), "comment without its end #}");
        const char sign = close > at_ ? text_[close - 1] : '\0';
        at_ = close;
        finish_tag(2, true, sign == '-' || sign == '+' ? sign : '\0');
    }

    // "{% raw %}": true if this was one; then its text is added and at_ is behind endraw.
    bool lex_raw(size_t begin) {
        const size_t start = at_;
        skip_space();
        if (!starts("raw")) return at_ = start, false;
        at_ += 3;
        skip_space();
        const char open_sign = peek() == '-' ? '-' : '\0';
        if (open_sign != '\0') ++at_;
        if (!starts("%}")) return at_ = start, false;
        finish_tag(2, false, open_sign);
        const size_t content = at_;
        for (size_t tag = text_.find("{%", at_); tag != std::string::npos;
             tag = text_.find("{%", tag + 2)) {
            at_ = tag + 2;
            const char sign = peek() == '-' || peek() == '+' ? peek() : '\0';
            if (sign != '\0') ++at_;
            skip_space();
            if (!starts("endraw")) continue;
            at_ += 6;
            skip_space();
            const char close_sign = peek() == '-' || peek() == '+' ? peek() : '\0';
            if (close_sign != '\0') ++at_;
            if (!starts("%}")) continue;
            add_data(content, tag, '%', sign);
            finish_tag(2, true, close_sign);
            return true;
        }
        stop_at(position(begin), "raw block without its end {% endraw %}");
    }

    void lex_code(std::string_view closing, Token::Type closing_type) {
        std::string open;  // brackets still open: the closing mark inside them is plain code
        while (true) {
            skip_space();
            if (at_ >= text_.size()) {
                stop_at(position(at_), "tag without its end " + std::string(closing));
            }
            const bool block = closing == "%}";
            if (open.empty()) {
                const char sign = peek() == '-' || (block && peek() == '+') ? peek() : '\0';
                if (rest().substr(sign != '\0' ? 1 : 0).starts_with(closing)) {
                    add(closing_type, at_);
                    if (sign != '\0') ++at_;
                    finish_tag(2, block, sign);
                    return;
                }
            }
            lex_token(open);
        }
    }

    void lex_token(std::string& open) {
        const char c = peek();
        if (digit(c)) return lex_number();
        if (c == '\'' || c == '"') return lex_string(c);
        size_t next = at_;
        const char32_t first = decode(text_, next);
        if (starts_name(first)) return lex_name();
        static constexpr std::array<std::string_view, 26> operators = {
            "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
            "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
        const auto found = std::find_if(operators.begin(), operators.end(),
                                        [this](std::string_view op) { return starts(op); });
        if (found == operators.end()) {
            stop_at(position(at_), "unexpected character '" + text_.substr(at_, next - at_) + "'");
        }
        const std::string_view op = *found;
        if (op == "(" || op == "[" || op == "{") {
            open += op == "(" ? ')' : op == "[" ? ']' : '}';
        } else if (op == ")" || op == "]" || op == "}") {
            if (open.empty() || open.back() != op[0]) {
                stop_at(position(at_),
                        "unexpected '" + std::string(op) + "'" +
                            (open.empty() ? "" : std::string(", expected '") + open.back() + "'"));
            }
            open.pop_back();
        }
        add(Token::Type::op, at_, std::string(op));
        at_ += op.size();
    }

    void lex_name() {
        const size_t begin = at_;
        while (at_ < text_.size()) {
            size_t next = at_;
            const char32_t c = decode(text_, next);
            if (!continues_name(c)) {
                if (is_word(c)) stop_at(position(at_), "character not allowed in a name");
                break;
            }
            at_ = next;
        }
        add(Token::Type::name, begin, text_.substr(begin, at_ - begin));
    }

    void lex_string(char quote) {
        const size_t begin = at_;
        ++at_;
        while (at_ < text_.size() && text_[at_] != quote) at_ += text_[at_] == '\\' ? 2 : 1;
        if (at_ >= text_.size()) stop_at(position(begin), "string without its closing quote");
        const auto body = std::string_view(text_).substr(begin + 1, at_ - begin - 1);
        ++at_;
        auto value = unescape(body);
        if (!value) stop_at(position(begin), value.error());
        add(Token::Type::string, begin, std::move(*value));
    }

    // Digits with single underscores between them, appended to `out` without these.
    bool take_digits(std::string& out) {
        if (!digit(peek())) return false;
        while (digit(peek()) || (peek() == '_' && digit(peek(1)))) {
            if (peek() != '_') out += peek();
            ++at_;
        }
        return true;
    }

    void lex_number() {
        const size_t begin = at_;
        if (peek() == '0' && take_prefixed(begin)) return;
        std::string digits;
        const bool may_be_real = begin == 0 || text_[begin - 1] != '.';
        take_digits(digits);
        bool real = false;
        if (may_be_real && peek() == '.' && digit(peek(1))) {
            digits += '.';
            ++at_;
            take_digits(digits);
            real = true;
        }
        const size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
        if (may_be_real && (peek() == 'e' || peek() == 'E') && digit(peek(1 + sign))) {
            digits += text_.substr(at_, 1 + sign);
            at_ += 1 + sign;
            take_digits(digits);
            real = true;
        }
        if (real) {
            double value = 0;
            std::erase(digits, '+');
            const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), value);
            if (r.ec != std::errc{}) stop_at(position(begin), "number " + digits + " out of range");
            add(Token::Type::real, begin).real = value;
            return;
        }
        if (digits.size() > 1 && digits[0] == '0' && digits.find_first_not_of('0') != digits.npos) {
            stop_at(position(begin), "number " + digits + " with leading zeros");
        }
        add_integer(begin, digits, 10);
    }

    bool take_prefixed(size_t begin) {
        const char kind = static_cast<char>(peek(1) | 0x20);
        const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        if (base == 0) return false;
        const auto fits = [base](char c) {
            const int value = digit(c)                                 ? c - '0'
                              : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                       : 99;
            return value < base;
        };
        size_t end = at_ + 2;
        std::string digits;
        while (end < text_.size() &&
               (fits(text_[end]) ||
                (text_[end] == '_' && end + 1 < text_.size() && fits(text_[end + 1])))) {
            if (text_[end] != '_') digits += text_[end];
            ++end;
        }
        if (digits.empty()) return false;
        at_ = end;
        add_integer(begin, digits, base);
        return true;
    }

    void add_integer(size_t begin, const std::string& digits, int base) {
        int64_t value = 0;
        const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
        if (r.ec != std::errc{}) {
            stop_at(position(begin), "integer " + digits + " does not fit 64 bits",
                    ErrorKind::unsupported);
        }
        add(Token::Type::integer, begin).integer = value;
    }

    std::string text_;
    size_t at_ = 0;
    size_t walked_ = 0;
    Position here_{1, 1};
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
    return Lexer(source).run();
}

}  // namespace granary::jinja
