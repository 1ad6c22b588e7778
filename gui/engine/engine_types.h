// SPDX-License-Identifier: GPL-3.0-or-later
// Values that travel between the engine's thread and the window.
#pragma once

#include <QMetaType>
#include <QString>
#include <array>
#include <memory>
#include <optional>

#include "granary/engine.h"
#include "granary/state.h"

namespace granary::gui {

// A model that is ready. `telemetry` lives until EngineController::closing.
struct LoadedModel {
    QString path;
    ModelFacts facts;
    gpu::DeviceInfo device;
    Plan plan;
    std::optional<Planner> planner;
    std::shared_ptr<const Tokenizer> tokenizer;
    Telemetry* telemetry = nullptr;
    bool hasChatTemplate = false;
    double loadSeconds = 0;
};

// What memory holds and how fast the machine is, measured by the engine between requests.
struct MemoryFigures {
    std::array<uint64_t, kOwners> bytes{};
    uint64_t driverAllocationsAfterLoad = 0;
    std::optional<Rates> rates;  // none before something was read
};

// "0.7 s", "12 s", "3 min", "2 h 5 min": as many digits as a person can use.
QString durationText(double seconds);

}  // namespace granary::gui

Q_DECLARE_METATYPE(granary::State)
Q_DECLARE_METATYPE(granary::Error)
Q_DECLARE_METATYPE(granary::Report)
Q_DECLARE_METATYPE(granary::Request)
Q_DECLARE_METATYPE(granary::Settings)
Q_DECLARE_METATYPE(granary::Plan)
Q_DECLARE_METATYPE(granary::gui::LoadedModel)
Q_DECLARE_METATYPE(granary::gui::MemoryFigures)
