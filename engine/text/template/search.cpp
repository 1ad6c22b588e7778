// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/search.h"

#include <algorithm>
#include <cstring>

namespace granary::jinja {

size_t find_text(Workspace& workspace, std::string_view text, std::string_view wanted,
                 size_t from) {
    if (from > text.size()) return std::string_view::npos;
    // The C library's search is linear also for texts that repeat themselves; std::string's is not.
    const void* found =
        ::memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
    if (found == nullptr) {
        workspace.scan(text.size() - from);
        return std::string_view::npos;
    }
    const auto at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    workspace.scan(at - from + wanted.size());
    return at;
}

size_t find_last_text(Workspace& workspace, std::string_view text, std::string_view wanted) {
    constexpr size_t kShort = 256;
    if (wanted.size() > kShort) {
        workspace.step((text.size() / 16 + 1) * (wanted.size() / 64));
    }
    const size_t at = text.rfind(wanted);
    workspace.scan((text.size() - (at == std::string_view::npos ? 0 : at)) *
                   (1 + std::min(wanted.size(), kShort) / 64));
    return at;
}

}  // namespace granary::jinja
