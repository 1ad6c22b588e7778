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
    // A reading step as large as the running one, or the time that is told would not hold.
    const auto running = planner.plan(settings);
    const uint32_t chunk = running ? running->chunk : 0;
    settings.max_context = static_cast<uint32_t>(context);
    auto plan = planner.plan(settings);
    if (settings.vram_budget == 0) return plan;
    const auto enough = [chunk](const Result<Plan>& plan) { return plan && plan->chunk >= chunk; };
    if (enough(plan)) return plan;
    const uint64_t granule = std::max<uint64_t>(1, planner.device().granule_bytes);
    uint64_t low = settings.vram_budget, high = low;
    while (!enough(plan) && high < kMostBudget) {
        high *= 2;
        settings.vram_budget = high;
        plan = planner.plan(settings);
    }
    if (!enough(plan)) return plan;
    while (high - low > granule) {
        const uint64_t middle = low + (high - low) / 2 / granule * granule;
        if (middle == low) break;
        settings.vram_budget = middle;
        auto smaller = planner.plan(settings);
        if (enough(smaller)) {
            plan = std::move(smaller);
            high = middle;
        } else {
            low = middle;
        }
    }
    return plan;
}

}  // namespace granary::gui
