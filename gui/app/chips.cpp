// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/chips.h"

#include <QCoreApplication>

#include "gui/theme/theme.h"

namespace granary::gui {

namespace {
QString tr(const char* text) {
    return QCoreApplication::translate("granary::gui::Chips", text);
}
}  // namespace

QString deviceText(const LoadedModel& model) {
    if (model.device.id != "host") return QString::fromStdString(model.device.name);
    if (model.device.face == gpu::Face::unified) return tr("CPU, full speed");
    return tr("Emulated card, %1 of RAM")
        .arg(QString::fromStdString(format_bytes(model.plan.budget_bytes)));
}

QString stateText(State state) {
    switch (state) {
        case State::no_model:
            return tr("No model");
        case State::loading:
            return tr("Loading");
        case State::idle:
            return tr("Ready");
        case State::reading:
            return tr("Reading");
        case State::answering:
            return tr("Answering");
        case State::refused:
            return tr("Refused");
        case State::failed:
            return tr("Failed");
        case State::lost:
            return tr("Engine lost");
    }
    return {};
}

QColor stateColor(State state, const QPalette& palette) {
    const Tones& tones = Theme::tones(palette);
    switch (state) {
        case State::no_model:
            return tones.muted;
        case State::idle:
            return tones.success;
        case State::loading:
        case State::reading:
        case State::answering:
            return tones.accent;
        case State::refused:
            return tones.warning;
        case State::failed:
        case State::lost:
            return tones.danger;
    }
    return tones.muted;
}

}  // namespace granary::gui
