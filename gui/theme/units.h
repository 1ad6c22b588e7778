// SPDX-License-Identifier: GPL-3.0-or-later
// The engine's words and numbers as text of the window.
#pragma once

#include <QString>

#include "gpu/error.h"
#include "granary/telemetry.h"

namespace granary::gui {

inline QString bytesText(uint64_t bytes) {
    return QString::fromStdString(format_bytes(bytes));
}

// "experts", "kv", ...: spelled as everywhere.
inline QString ownerText(Owner owner) {
    const std::string_view name = owner_name(owner);
    return QString::fromUtf8(name.data(), static_cast<qsizetype>(name.size()));
}

}  // namespace granary::gui
