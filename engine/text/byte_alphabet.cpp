// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/byte_alphabet.h"

#include <array>

#include "engine/text/utf8.h"

namespace granary::text {
namespace {

constexpr bool prints(unsigned byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr unsigned alphabet_end = 0x100 + 68;

struct Alphabet {
    std::array<uint16_t, 256> letter{};        // byte -> code point
    std::array<int16_t, alphabet_end> byte{};  // code point -> byte, -1: none

    constexpr Alphabet() {
        byte.fill(-1);
        uint16_t next = 0x100;
        for (unsigned b = 0; b < 256; ++b) {
            letter[b] = prints(b) ? static_cast<uint16_t>(b) : next++;
            byte[letter[b]] = static_cast<int16_t>(b);
        }
    }
};

constexpr Alphabet alphabet;

}  // namespace

std::string byte_to_letter(uint8_t byte) {
    std::string letter;
    append_utf8(alphabet.letter[byte], letter);
    return letter;
}

void append_spelled_bytes(std::string_view spelling, std::string& bytes) {
    while (!spelling.empty()) {
        const Utf8Step step = utf8_step(spelling);
        const std::string_view letter = spelling.substr(0, step.bytes);
        const char32_t point =
            step.kind == Utf8Step::Kind::character ? code_point(letter) : alphabet_end;
        if (point < alphabet_end && alphabet.byte[point] >= 0) {
            bytes.push_back(static_cast<char>(alphabet.byte[point]));
        } else {
            bytes.append(letter);
        }
        spelling.remove_prefix(step.bytes);
    }
}

}  // namespace granary::text
