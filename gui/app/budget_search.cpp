// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/budget_search.h"

#include <algorithm>

#include "granary/engine.h"

namespace granary::gui {

namespace {
constexpr int64_t kStep = 1024;         // a K/V step
constexpr int64_t kQuestionRoom = 512;  // tokens of a question and the template around it
constexpr int64_t kAnswerRoom = 1024;   // answer_room of any context this long
constexpr uint64_t kMostBudget = uint64_t{1} << 42;
}  // namespace

Result<Plan> settingsForContext(const Planner& planner, Settings settings, int64_t tokens) {
    const int64_t context = (tokens + kQuestionRoom + kAnswerRoom + kStep - 1) / kStep * kStep;
    // With room for a reading step as large as the running one, or reading would take longer than
    // it must; auto may still find a smaller one quicker.
    const auto running = planner.plan(settings);
    settings.max_context = static_cast<uint32_t>(context);
    if (settings.vram_budget == 0) return planner.plan(settings);
    const auto holds = [&](uint64_t budget) {
        Settings probe = settings;
        probe.vram_budget = budget;
        if (running) probe.prefill = {AutoCount::Kind::number, running->chunk};
        return planner.plan(probe).has_value();
    };
    const uint64_t granule = std::max<uint64_t>(1, planner.device().granule_bytes);
    uint64_t low = settings.vram_budget, high = low;
    if (!holds(low)) {
        while (!holds(high) && high < kMostBudget) high *= 2;
        while (high - low > granule) {
            const uint64_t middle = low + (high - low) / 2 / granule * granule;
            if (middle == low) break;
            (holds(middle) ? high : low) = middle;
        }
    }
    settings.vram_budget = high;
    return planner.plan(settings);
}

}  // namespace granary::gui
