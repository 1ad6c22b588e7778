// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/planner.h"

#include <algorithm>

#include "engine/kv/kv_layout.h"
#include "engine/memory/layout.h"

namespace granary {
namespace {

constexpr uint32_t kDefaultContext = 32768;
constexpr uint32_t kAutoStreamMin = 1024;  // until measured
constexpr uint32_t kAutoChunkUnified = 512;
constexpr uint32_t kAutoChunkCard = 4096;

uint32_t floor_rows(const ModelFacts& model, const CacheFloor& floor) {
    uint64_t rows = model.experts_used + 1;
    if (floor.kind == CacheFloor::Kind::bytes) {
        rows = divide_up(floor.bytes, model.row_bytes);
    } else if (floor.kind == CacheFloor::Kind::percent) {
        const double bytes = floor.percent / 100.0 * static_cast<double>(model.row_bytes) *
                             static_cast<double>(model.experts);
        rows = divide_up(static_cast<uint64_t>(bytes), model.row_bytes);
    }
    return static_cast<uint32_t>(std::min<uint64_t>(rows, model.experts));
}

// Terms of a sum that a person reads.
struct Term {
    const char* name;
    uint64_t granules;
};

std::string sum_text(std::initializer_list<Term> terms, uint64_t granule) {
    std::string text;
    uint64_t total = 0;
    for (const Term& term : terms) {
        if (term.granules == 0) continue;
        text += (text.empty() ? "" : " + ") + std::string(term.name) + " " +
                format_bytes(term.granules * granule);
        total += term.granules;
    }
    return text + " = " + format_bytes(total * granule);
}

// The host has two faces and the settings choose: a budget makes it an emulated card. A unified
// face that runs keeps its granules, one that does not gets those of a small budget.
DeviceFacts facts_for(DeviceFacts device, const Settings& settings) {
    if (settings.device != "host") return device;
    const gpu::Face face = settings.vram_budget ? gpu::Face::card : gpu::Face::unified;
    if (face == gpu::Face::card)
        device.granule_bytes =
            settings.granule ? settings.granule : gpu::default_granule_bytes(settings.vram_budget);
    else if (face != device.face)
        device.granule_bytes = gpu::default_granule_bytes(0);
    device.face = face;
    return device;
}

}  // namespace

Result<Plan> Planner::plan(const Settings& settings) const {
    const DeviceFacts device = facts_for(device_, settings);
    const bool card = device.face == gpu::Face::card;
    const uint64_t granule = device.granule_bytes;
    const auto granules_of = [&](uint64_t bytes) { return divide_up(bytes, granule); };
    Plan plan;
    plan.settings = settings;
    plan.granule_bytes = granule;
    plan.max_context = settings.max_context ? settings.max_context
                                            : std::min(model_.trained_context, kDefaultContext);
    const auto loan_of = [&](uint32_t chunk) {
        return granules_of(loan_layout(model_, device, chunk).bytes);
    };

    const KvLayout kv = kv_layout(model_, device.kv_format);
    const uint64_t fixed = card ? granules_of(model_.fixed_bytes) : 0;
    const uint64_t workspace =
        granules_of(workspace_layout(model_, device, plan.max_context).bytes);
    const uint64_t kv_at_max = granules_of(steps_of(plan.max_context) * kv.step_bytes);
    const uint64_t all_rows = card ? model_.experts : 0;
    const uint64_t floor =
        card ? granules_of(floor_rows(model_, settings.cache_floor) * model_.row_bytes) : 0;
    const uint64_t smallest_loan = loan_of(kSmallestChunk);

    // The budget: what the user allows, what is free, what can be used at all.
    const uint64_t available =
        device.free_bytes > settings.vram_reserve ? device.free_bytes - settings.vram_reserve : 0;
    uint64_t limit = available / granule;
    if (card) limit = std::min(limit, settings.vram_budget / granule);
    const uint64_t least = fixed + workspace + smallest_loan + kv_at_max + floor;
    if (least > limit) {
        const std::string sum = sum_text({{"fixed weights", fixed},
                                          {"workspace", workspace},
                                          {"smallest loan", smallest_loan},
                                          {"K/V", kv_at_max},
                                          {"floor", floor}},
                                         granule);
        // The nearest that would fit: a shorter context within this budget, if there is one.
        const uint64_t without_kv = least - kv_at_max;
        std::string advice = "Raise vram-budget to " + format_bytes(least * granule);
        if (without_kv < limit) {
            const uint64_t steps = (limit - without_kv) * granule / kv.step_bytes;
            if (steps > 0)
                advice += ", or lower max-context to " + std::to_string(steps * gpu::kStepCells);
        }
        if (!card)
            advice = "Lower max-context or close other programs: " + format_bytes(least * granule) +
                     " of memory are needed";
        const std::string subject = card ? "budget " + format_bytes(limit * granule)
                                         : "free memory " + format_bytes(limit * granule);
        return fail(ErrorKind::refused, subject + " is too small", sum, advice);
    }

    // The chunk: as large as is useful without taking more than a quarter of what experts have.
    const uint64_t room = limit - fixed - workspace - kv_at_max - floor;
    if (settings.prefill.kind == AutoCount::Kind::number) {
        plan.chunk = std::clamp(settings.prefill.number, kSmallestChunk, kLargestChunk);
        if (loan_of(plan.chunk) > room) {
            uint32_t fits = kSmallestChunk;
            while (fits * 2 < plan.chunk && loan_of(fits * 2) <= room) fits *= 2;
            return fail(ErrorKind::refused,
                        "a reading step of " + std::to_string(plan.chunk) + " tokens does not fit",
                        "its loan takes " + format_bytes(loan_of(plan.chunk) * granule) + ", " +
                            format_bytes(room * granule) + " can be lent",
                        "Set prefill to " + std::to_string(fits) + " or less");
        }
    } else {
        const uint64_t useful =
            card ? std::max(smallest_loan, std::min(room, (limit - fixed - workspace) / 4)) : room;
        const uint32_t largest = card ? kAutoChunkCard : kAutoChunkUnified;
        plan.chunk = kSmallestChunk;
        while (plan.chunk * 2 <= largest && loan_of(plan.chunk * 2) <= useful) plan.chunk *= 2;
        // No larger than the context can fill.
        while (plan.chunk > kSmallestChunk && plan.chunk / 2 >= plan.max_context) plan.chunk /= 2;
    }
    const uint64_t loan = loan_of(plan.chunk);

    switch (settings.prefill_stream_min.kind) {
        case AutoCount::Kind::automatic:
            plan.stream_min = kAutoStreamMin;
            break;
        case AutoCount::Kind::number:
            plan.stream_min = settings.prefill_stream_min.number;
            break;
        case AutoCount::Kind::never:
            plan.stream_min = UINT32_MAX;
            break;
    }

    const uint64_t experts_bytes = all_rows * model_.row_bytes;
    const uint64_t useful = fixed + workspace + kv_at_max + loan + granules_of(experts_bytes);
    const uint64_t budget = std::min(limit, useful);
    plan.budget_bytes = budget * granule;
    plan.fixed = static_cast<uint32_t>(fixed);
    plan.workspace = static_cast<uint32_t>(workspace);
    plan.expert_range = static_cast<uint32_t>(budget - fixed - workspace);
    plan.kv_at_max = static_cast<uint32_t>(kv_at_max);
    plan.loan = static_cast<uint32_t>(loan);
    plan.smallest_loan = static_cast<uint32_t>(smallest_loan);
    plan.floor = static_cast<uint32_t>(floor);

    // Expert granules with `taken` granules of the range in other hands.
    const auto expert_granules = [&](uint64_t taken) {
        return std::min<uint64_t>(plan.expert_range - taken, granules_of(experts_bytes));
    };
    const auto rows_in = [&](uint64_t granules) {
        return card ? static_cast<uint32_t>(
                          std::min<uint64_t>(granules * granule / model_.row_bytes, all_rows))
                    : 0;
    };
    plan.rows_at_start = rows_in(plan.expert_range);
    plan.rows_at_max = rows_in(plan.expert_range - kv_at_max);
    const auto classes = [&](uint64_t kv_granules) {
        std::array<uint64_t, kOwners> bytes{};
        const uint64_t experts = expert_granules(loan + kv_granules);
        bytes[static_cast<int>(Owner::fixed)] = fixed * granule;
        bytes[static_cast<int>(Owner::workspace)] = workspace * granule;
        bytes[static_cast<int>(Owner::kv)] = kv_granules * granule;
        bytes[static_cast<int>(Owner::loan)] = loan * granule;
        bytes[static_cast<int>(Owner::experts)] = experts * granule;
        bytes[static_cast<int>(Owner::spare)] =
            (plan.expert_range - loan - kv_granules - experts) * granule;
        return bytes;
    };
    plan.at_start = classes(0);
    plan.at_max = classes(kv_at_max);
    return plan;
}

}  // namespace granary
