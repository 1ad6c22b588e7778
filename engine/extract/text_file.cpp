// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/extract/text_file.h"

#include <algorithm>
#include <array>

#include "engine/extract/document_text.h"
#include "engine/extract/input_file.h"
#include "engine/extract/refusal.h"
#include "engine/text/utf8.h"
#include "gpu/error.h"

namespace granary::extract {
namespace {

using namespace std::string_view_literals;

struct Signature {
    std::string_view bytes;
    std::string_view name;
};

// Formats that people drop by mistake, to be refused by name.
constexpr std::array kForeign = {
    Signature{"PK\x03\x04"sv, "a ZIP archive or an office document"},
    Signature{"\xD0\xCF\x11\xE0"sv, "an old office document"},
    Signature{"{\\rtf"sv, "a rich text document"},
    Signature{"GGUF"sv, "a GGUF model"},
    Signature{"\x7F"
              "ELF"sv,
              "a program"},
    Signature{"\x89PNG"sv, "a PNG picture"},
    Signature{"\xFF\xD8\xFF"sv, "a JPEG picture"},
    Signature{"GIF8"sv, "a GIF picture"},
    Signature{"\x1F\x8B"sv, "a gzip archive"},
    Signature{"SQLite format 3\0"sv, "an SQLite database"},
    Signature{"%!PS"sv, "a PostScript document"},
};

constexpr std::array kMarkdown = {"md"sv, "markdown"sv};
constexpr std::array kSource = {
    "c"sv,    "h"sv,     "cc"sv,   "cpp"sv,  "cxx"sv,   "hpp"sv,   "cu"sv,   "cuh"sv,  "hip"sv,
    "rs"sv,   "go"sv,    "java"sv, "kt"sv,   "cs"sv,    "swift"sv, "py"sv,   "rb"sv,   "pl"sv,
    "lua"sv,  "js"sv,    "mjs"sv,  "ts"sv,   "tsx"sv,   "jsx"sv,   "sh"sv,   "bash"sv, "sql"sv,
    "r"sv,    "jl"sv,    "hs"sv,   "ml"sv,   "scala"sv, "php"sv,   "m"sv,    "f90"sv,  "asm"sv,
    "s"sv,    "cmake"sv, "html"sv, "htm"sv,  "css"sv,   "xml"sv,   "json"sv, "yaml"sv, "yml"sv,
    "toml"sv, "ini"sv,   "tex"sv,  "diff"sv, "patch"sv, "vue"sv,   "zig"sv,  "dart"sv, "el"sv,
};

std::string format_of(const std::string& path) {
    const std::string name = path.substr(path.find_last_of('/') + 1);
    const size_t dot = name.find_last_of('.');
    std::string ending = dot == std::string::npos ? "" : name.substr(dot + 1);
    for (char& c : ending) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    if (std::ranges::find(kMarkdown, ending) != kMarkdown.end()) return "markdown";
    if (std::ranges::find(kSource, ending) != kSource.end()) return "source";
    return "text";
}

// The first "# heading" of a Markdown text.
std::string heading(std::string_view text) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        if (line.starts_with("# ")) return title_line(line.substr(2));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
    }
    return {};
}

void decode_utf16(std::string_view bytes, bool big_endian, DocumentText& out, uint64_t& lost) {
    const auto unit = [&](size_t at) {
        const auto first = static_cast<uint8_t>(bytes[at]);
        const auto second = static_cast<uint8_t>(bytes[at + 1]);
        return static_cast<char32_t>(big_endian ? first << 8 | second : second << 8 | first);
    };
    size_t at = 0;
    bool room = true;
    for (; room && at + 1 < bytes.size(); at += 2) {
        char32_t point = unit(at);
        if (point >= 0xD800 && point < 0xE000) {
            const bool pair = point < 0xDC00 && at + 3 < bytes.size() && unit(at + 2) >= 0xDC00 &&
                              unit(at + 2) < 0xE000;
            if (pair) {
                point = 0x10000 + ((point - 0xD800) << 10) + (unit(at + 2) - 0xDC00);
                at += 2;
            } else {
                point = 0xFFFD;
                ++lost;
            }
        }
        room = out.append(point);
    }
    if (room && at < bytes.size()) {  // half a unit
        ++lost;
        out.append(0xFFFD);
    }
}

// windows-1252 above 0x80, after the WHATWG Encoding Standard's index; the five bytes without a
// meaning stay control characters, as there.
void decode_windows_1252(std::string_view bytes, DocumentText& out) {
    static constexpr std::array<char16_t, 32> kHigh = {
        0x20AC, 0x0081, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
        0x2039, 0x0152, 0x008D, 0x017D, 0x008F, 0x0090, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
        0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x009D, 0x017E, 0x0178};
    for (const char c : bytes) {
        const auto byte = static_cast<uint8_t>(c);
        const bool high = byte >= 0x80 && byte < 0xA0;
        if (!out.append(high ? static_cast<char32_t>(kHigh[byte - 0x80]) : byte)) return;
    }
}

struct Census {
    size_t zeros = 0, controls = 0;
    size_t multibyte = 0;  // characters of two bytes and more
    size_t invalid = 0;    // ill-formed parts
};

Census census(std::string_view bytes) {
    Census count;
    for (const char c : bytes) {
        const auto byte = static_cast<uint8_t>(c);
        if (byte == 0) ++count.zeros;
        // Backspace, tab, line ends, form feed and escape occur in honest texts and logs.
        if (byte < 0x20 && !(byte >= 0x08 && byte <= 0x0D) && byte != 0x1B) ++count.controls;
    }
    for (size_t at = 0; at < bytes.size();) {
        at += text::valid_utf8_prefix(bytes.substr(at));
        if (at == bytes.size()) break;
        ++count.invalid;
        at += text::utf8_step(bytes.substr(at)).bytes;
    }
    size_t leads = 0;  // bytes that begin a longer character, well-formed or not
    for (const char c : bytes) leads += static_cast<uint8_t>(c) >= 0xC2;
    count.multibyte = leads > count.invalid ? leads - count.invalid : 0;
    return count;
}

}  // namespace

Outcome<Document> read_text(const std::string& path, std::string_view bytes) {
    for (const Signature& foreign : kForeign) {
        if (bytes.starts_with(foreign.bytes)) {
            return refuse("binary", "this is not a text",
                          "the file is " + std::string(foreign.name));
        }
    }
    if (bytes.size() > kTextLimit) {
        return refuse("too_large", "the document is too large",
                      format_bytes(bytes.size()) + " of text, at most " + format_bytes(kTextLimit));
    }
    Document document;
    DocumentText out;
    uint64_t lost = 0;
    if (bytes.starts_with("\xFF\xFE\0\0"sv) || bytes.starts_with("\0\0\xFE\xFF"sv)) {
        return refuse("binary", "this text is in an encoding that is not read", "UTF-32");
    }
    if (bytes.starts_with("\xFF\xFE"sv) || bytes.starts_with("\xFE\xFF"sv)) {
        const bool big_endian = bytes.starts_with("\xFE\xFF"sv);
        document.encoding = big_endian ? "utf-16be" : "utf-16le";
        decode_utf16(bytes.substr(2), big_endian, out, lost);
    } else {
        const bool marked = bytes.starts_with("\xEF\xBB\xBF"sv);
        if (marked) bytes.remove_prefix(3);
        const Census count = census(bytes);
        // One control character in 200 bytes is more than a text has and less than any binary.
        if (count.zeros > 0 || count.controls > bytes.size() / 200) {
            return refuse("binary", "this is not a text",
                          "of " + std::to_string(bytes.size()) + " bytes " +
                              std::to_string(count.zeros) + " are zero and " +
                              std::to_string(count.controls) + " are control characters");
        }
        // A UTF-8 text with a few broken characters is still one.
        if (marked || count.invalid == 0 || count.multibyte > 8 * count.invalid) {
            document.encoding = "utf-8";
            out.append_utf8(bytes);
        } else {
            document.encoding = "windows-1252";
            decode_windows_1252(bytes, out);
        }
    }
    if (!out.end_page()) {
        return refuse("too_large", "the document is too large",
                      "more than " + format_bytes(kTextLimit) + " of text");
    }
    if (out.blank()) return refuse("no_text", "the document holds only white space");
    document.replaced = out.replaced() + lost;
    document.format = format_of(path);
    document.text = out.take();
    document.pages = 1;
    if (document.format == "markdown") document.title = heading(document.text);
    if (document.title.empty()) document.title = file_name(path);
    return document;
}

}  // namespace granary::extract
