// SPDX-License-Identifier: GPL-3.0-or-later
// The printable alphabet in which byte-level vocabularies spell bytes (defined by GPT-2's
// encoder): bytes that print stand for themselves, the other 68 for U+0100 onwards in order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace granary::text {

// The character of a byte, in UTF-8.
std::string byte_to_letter(uint8_t byte);

// Appends the bytes that `spelling` stands for. Characters outside the alphabet are kept as they
// are: some files hold such tokens, and no text can produce them.
void append_spelled_bytes(std::string_view spelling, std::string& bytes);

}  // namespace granary::text
