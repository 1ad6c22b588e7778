// SPDX-License-Identifier: GPL-3.0-or-later
// The engine's words and numbers as text of the window.
#pragma once

#include <QLocale>
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

// "1 granule", "8,192 granules": the program's own words are English, so both forms are given.
inline QString counted(qulonglong count, const QString& one, const QString& many) {
    return QLocale().toString(count) + QLatin1Char(' ') + (count == 1 ? one : many);
}

}  // namespace granary::gui
