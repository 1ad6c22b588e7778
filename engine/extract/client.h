// SPDX-License-Identifier: GPL-3.0-or-later
// The text of a document, read by granary-extract in a child process: whatever a document does to
// its reader ends there.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "gpu/error.h"
#include "granary/engine.h"

namespace granary {

struct ExtractedDocument {
    std::string format;    // "text", "markdown", "source", "pdf"
    std::string encoding;  // of a text file, as found: "utf-8", "windows-1252", ...
    std::string title;
    std::string text;  // UTF-8, U+000C after each page; at most 64 MiB
    uint32_t pages = 0;
    uint64_t replaced = 0;  // characters that could not be read and became U+FFFD

    // The text as it stands in a prompt: an empty line between pages, none at the end.
    std::string prompt_text() const;
};

// Starts `extractor_path` (granary-extract) on `file` and waits for its answer. A refusal, a death
// of the child with its reason, more output than allowed and passing `patience` are errors; stop
// ends it within 50 ms (kind cancelled). The child dies with the calling *thread*: call from one
// that lives until this returns.
Result<ExtractedDocument> extract_document(
    const std::string& extractor_path, const std::string& file, const StopSignal& stop,
    std::chrono::milliseconds patience = std::chrono::seconds(180));

// granary-extract beside the running program.
std::string default_extractor_path();

}  // namespace granary
