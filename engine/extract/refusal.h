// SPDX-License-Identifier: GPL-3.0-or-later
// Why a document is refused: the codes that the extractor writes and what they mean to a person.
#pragma once

#include <array>
#include <string_view>

#include "gpu/error.h"

namespace granary::extract {

struct Refusal {
    std::string_view code;  // "error" in the extractor's answer
    ErrorKind kind;
    std::string_view advice;
};

inline constexpr std::array kRefusals = {
    Refusal{"not_found", ErrorKind::io, "Check the name; it may have been moved"},
    Refusal{"denied", ErrorKind::io, "Ask its owner for the right to read it"},
    Refusal{"not_a_file", ErrorKind::io, "Choose a text or PDF file"},
    Refusal{"io", ErrorKind::io, ""},
    Refusal{"empty", ErrorKind::invalid_file, ""},
    Refusal{"binary", ErrorKind::unsupported, "Choose a text, Markdown, source or PDF file"},
    Refusal{"encrypted", ErrorKind::unsupported,
            "Save a copy without the password from a PDF viewer"},
    Refusal{"damaged", ErrorKind::invalid_file, "Download or copy it again"},
    Refusal{"no_text", ErrorKind::unsupported, "Scanned pages need text recognition first"},
    Refusal{"too_large", ErrorKind::refused, "Cut it into parts"},
    Refusal{"no_memory", ErrorKind::refused, "Cut it into parts"},
    Refusal{"unconfined", ErrorKind::internal,
            "Documents are read only under the system's limits; use a Linux kernel with seccomp"},
};

// Bytes of text that one document may give, page marks included.
inline constexpr size_t kTextLimit = size_t{64} << 20;
// Bytes of the header line.
inline constexpr size_t kHeaderLimit = size_t{64} << 10;

}  // namespace granary::extract
