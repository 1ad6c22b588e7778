// SPDX-License-Identifier: GPL-3.0-or-later
// A draft of settings with its panel, over a planner of which a test can say every figure.
#pragma once

#include <QSignalSpy>

#include "gui/settings/settings_draft.h"
#include "gui/settings/settings_panel.h"

namespace granary::gui::test {

inline constexpr uint64_t kMiB = 1 << 20;

inline AutoCount number(uint32_t n) {
    return {AutoCount::Kind::number, n};
}
inline const AutoCount kAuto{AutoCount::Kind::automatic, 0};
inline const AutoCount kNever{AutoCount::Kind::never, 0};

// A layout of which a test can say every figure: 1 KiB of K/V a token, 8 KiB of loan a token of
// the reading step, 8 MiB of fixed weights, experts the rest.
inline Result<Plan> smallPlan(const Settings& settings) {
    Plan plan;
    plan.settings = settings;
    plan.card = settings.vram_budget > 0;
    plan.max_context = settings.max_context == 0 ? 4096 : settings.max_context;
    plan.rope.original = 4096;
    plan.chunk = settings.prefill.kind == AutoCount::Kind::number ? settings.prefill.number : 512;
    plan.stream_min = settings.prefill_stream_min.kind == AutoCount::Kind::never ? UINT32_MAX
                      : settings.prefill_stream_min.kind == AutoCount::Kind::number
                          ? settings.prefill_stream_min.number
                          : 1024;
    plan.kv_format = settings.kv.value_or(gpu::KvFormat::f16);
    plan.budget_bytes = settings.vram_budget;
    const uint64_t kv = plan.max_context * uint64_t{1024}, loan = plan.chunk * uint64_t{8192};
    if (8 * kMiB + kv + loan > plan.budget_bytes)
        return fail(
            ErrorKind::refused, "budget " + format_bytes(plan.budget_bytes),
            "fixed weights 8 MiB + loan " + format_bytes(loan) + " + K/V " + format_bytes(kv),
            "Lower max-context");
    plan.at_max[static_cast<size_t>(Owner::fixed)] = 8 * kMiB;
    plan.at_max[static_cast<size_t>(Owner::kv)] = kv;
    plan.at_max[static_cast<size_t>(Owner::loan)] = loan;
    plan.at_max[static_cast<size_t>(Owner::experts)] = plan.budget_bytes - 8 * kMiB - kv - loan;
    plan.rows_at_max =
        static_cast<uint32_t>(plan.at_max[static_cast<size_t>(Owner::experts)] / kMiB);
    return plan;
}

inline Settings cardSettings() {
    Settings settings;
    settings.vram_budget = 40 * kMiB;
    return settings;
}

struct Fixture {
    SettingsDraft draft;
    SettingsPanel panel{draft};
    QSignalSpy requests{&draft, &SettingsDraft::applyRequested};
    Fixture() {
        panel.setTrainedContext(4096);
        draft.load(cardSettings(), smallPlan);
    }
    Settings requested(int i) { return requests.at(i).at(0).value<Settings>(); }
};

}  // namespace granary::gui::test
