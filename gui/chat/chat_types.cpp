// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/chat/chat_types.h"

#include <array>
#include <utility>

namespace granary::gui {

namespace {

constexpr std::array<std::pair<Ending, const char*>, 7> kEndings{{
    {Ending::none, "none"},
    {Ending::answered, "answered"},
    {Ending::tokenLimit, "token-limit"},
    {Ending::contextFull, "context-full"},
    {Ending::stopped, "stopped"},
    {Ending::failed, "failed"},
    {Ending::interrupted, "interrupted"},
}};

}  // namespace

QString Document::label() const {
    return part.isEmpty() ? name : QStringLiteral("%1 (%2)").arg(name, part);
}

QString roleName(Role role) {
    switch (role) {
        case Role::system:
            return QStringLiteral("system");
        case Role::assistant:
            return QStringLiteral("assistant");
        case Role::user:
            break;
    }
    return QStringLiteral("user");
}

Role roleFromName(const QString& name) {
    if (name == QLatin1String("system")) return Role::system;
    return name == QLatin1String("assistant") ? Role::assistant : Role::user;
}

QString endingName(Ending ending) {
    for (const auto& [value, name] : kEndings) {
        if (value == ending) return QLatin1String(name);
    }
    return QStringLiteral("none");
}

Ending endingFromName(const QString& name) {
    for (const auto& [value, known] : kEndings) {
        if (name == QLatin1String(known)) return value;
    }
    return Ending::none;
}

}  // namespace granary::gui
