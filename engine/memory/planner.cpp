// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/planner.h"

#include <algorithm>

#include "engine/kv/kv_layout.h"
#include "engine/memory/layout.h"
#include "engine/memory/schedule.h"

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

// What a person types to get at least `bytes`: as format_bytes writes it, but never less.
std::string enough(uint64_t bytes) {
    for (uint64_t unit = 1ull << 40; unit >= 1024; unit >>= 10) {
        if (bytes < unit) continue;
        // format_bytes rounds to tenths: the next tenth is written as it is.
        const uint64_t tenths = bytes / unit * 10 + divide_up(bytes % unit * 10, unit);
        return format_bytes(divide_up(tenths * unit, 10));
    }
    return format_bytes(bytes);
}

// The host has two faces and the settings choose: a budget makes it an emulated card. Its granules
// follow from the budget, its kernels' scratch from the threads.
DeviceFacts facts_for(DeviceFacts device, const Settings& settings) {
    if (settings.device != "host") return device;
    device.face = settings.vram_budget ? gpu::Face::card : gpu::Face::unified;
    device.granule_bytes = settings.vram_budget && settings.granule
                               ? settings.granule
                               : gpu::default_granule_bytes(settings.vram_budget);
    if (device.threads) {
        const uint32_t threads = settings.threads ? settings.threads : device.threads_unless_told;
        device.scratch_base = device.scratch_base / device.threads * threads;
        device.threads = threads;
    }
    return device;
}

// The granules that are needed at least, whatever the budget.
struct Least {
    uint64_t fixed = 0, workspace = 0, state = 0, smallest_loan = 0, kv_at_max = 0, floor = 0;
    uint64_t total() const { return fixed + workspace + state + smallest_loan + kv_at_max + floor; }
};

Least least_of(const ModelFacts& model, const DeviceFacts& device, const Settings& settings,
               uint32_t max_context) {
    const bool card = device.face == gpu::Face::card;
    const auto granules_of = [&](uint64_t bytes) { return divide_up(bytes, device.granule_bytes); };
    const uint64_t step_bytes = kv_step_bytes(model, device, settings, max_context);
    Least least;
    least.fixed = card ? granules_of(model.fixed_bytes) : 0;
    least.workspace = granules_of(workspace_layout(model, device, max_context).bytes);
    least.state = granules_of(model.state_bytes);
    least.smallest_loan = granules_of(loan_layout(model, device, kSmallestChunk).bytes);
    least.kv_at_max = granules_of(steps_of(max_context) * step_bytes);
    if (card) least.floor = granules_of(floor_rows(model, settings.cache_floor) * model.row_bytes);
    return least;
}

// What would fit instead: the sum of what is needed, and ways out that are admitted as they stand.
Error refusal(const ModelFacts& model, const DeviceFacts& device, const DeviceFacts& any_budget,
              const Settings& settings, uint32_t max_context, uint64_t free_granules,
              uint64_t limit) {
    const uint64_t granule = device.granule_bytes;
    const bool card = device.face == gpu::Face::card;
    const Least least = least_of(model, device, settings, max_context);
    const std::string sum = sum_text({{"fixed weights", least.fixed},
                                      {"workspace", least.workspace},
                                      {"state", least.state},
                                      {"smallest loan", least.smallest_loan},
                                      {"K/V", least.kv_at_max},
                                      {"floor", least.floor}},
                                     granule);
    const bool by_budget = card && settings.vram_budget / granule <= free_granules;
    const std::string reserve =
        settings.vram_reserve ? " beside the reserve of " + format_bytes(settings.vram_reserve)
                              : std::string();
    const std::string subject = by_budget
                                    ? "budget " + format_bytes(limit * granule)
                                    : "free memory " + format_bytes(limit * granule) + reserve;

    // A budget large enough; a larger one may have larger granules, which round up more.
    uint64_t budget = least.total() * granule;
    if (card) {
        for (;;) {
            Settings raised = settings;
            raised.vram_budget = budget;
            const DeviceFacts larger = facts_for(any_budget, raised);
            const uint64_t needed =
                least_of(model, larger, raised, max_context).total() * larger.granule_bytes;
            if (needed <= budget) break;
            budget = needed;
        }
    }
    // A context short enough for this budget, if there is one.
    const uint64_t without_kv = std::min(least.total() - least.kv_at_max, limit);
    const uint64_t cells =
        kv_cells_within(model, device, settings, max_context, (limit - without_kv) * granule);
    const std::string shorter = cells > 0 ? "lower max-context to " + std::to_string(cells) : "";

    std::string advice;
    if (by_budget && least.total() <= free_granules) {
        advice = "Raise vram-budget to " + enough(budget);
        if (!shorter.empty()) advice += ", or " + shorter;
    } else {
        advice = by_budget ? "vram-budget would have to be " + enough(budget) + " and only " +
                                 format_bytes(free_granules * granule) + " are free" + reserve
                           : enough(budget) + " would have to be free" + reserve +
                                 ": close other programs";
        if (!shorter.empty()) advice += ", or " + shorter;
    }
    return {ErrorKind::refused, subject + " is too small", sum, advice};
}

Result<Plan> plan_on(const ModelFacts& model, const DeviceFacts& device,
                     const DeviceFacts& any_budget, const Settings& settings) {
    const bool card = device.face == gpu::Face::card;
    const uint64_t granule = device.granule_bytes;
    const auto granules_of = [&](uint64_t bytes) { return divide_up(bytes, granule); };
    Plan plan;
    plan.settings = settings;
    plan.granule_bytes = granule;
    plan.max_context = settings.max_context ? settings.max_context
                                            : std::min(model.trained_context, kDefaultContext);
    plan.kv_format = kv_format_of(model, device, settings, plan.max_context);
    const auto loan_of = [&](uint32_t chunk) {
        return granules_of(loan_layout(model, device, chunk).bytes);
    };

    const Least least = least_of(model, device, settings, plan.max_context);
    const uint64_t fixed = least.fixed, workspace = least.workspace, state = least.state,
                   smallest_loan = least.smallest_loan, kv_at_max = least.kv_at_max,
                   floor = least.floor;
    const uint64_t all_rows = card ? model.experts : 0;

    // The budget: what the user allows, what is free, what can be used at all.
    const uint64_t free_granules =
        (device.free_bytes - std::min(device.free_bytes, settings.vram_reserve)) / granule;
    const uint64_t limit =
        card ? std::min(free_granules, settings.vram_budget / granule) : free_granules;
    const uint64_t always = fixed + workspace + state;
    if (least.total() > limit)
        return tl::unexpected(
            refusal(model, device, any_budget, settings, plan.max_context, free_granules, limit));

    // The chunk: K/V of its own cells must fit beside its loan; later the loan shrinks.
    const uint64_t room = limit - always - floor;
    const uint64_t step_bytes = kv_layout(model, plan.kv_format).step_bytes;
    const auto fits = [&](uint32_t chunk) {
        const uint64_t cells = std::min(chunk, plan.max_context);
        return loan_of(chunk) + granules_of(steps_of(cells) * step_bytes) <= room;
    };
    if (settings.prefill.kind == AutoCount::Kind::number) {
        plan.chunk = std::clamp(settings.prefill.number, kSmallestChunk, kLargestChunk);
        if (!fits(plan.chunk)) {
            uint32_t smaller = smaller_chunk(plan.chunk);
            while (!fits(smaller)) smaller = smaller_chunk(smaller);
            return fail(ErrorKind::refused,
                        "a reading step of " + std::to_string(plan.chunk) + " tokens does not fit",
                        "its loan takes " + format_bytes(loan_of(plan.chunk) * granule) +
                            " beside its K/V, " + format_bytes(room * granule) + " can be lent",
                        "Set prefill to " + std::to_string(smaller) + " or less");
        }
    } else {
        // As large as is useful without taking more than a quarter of what experts have.
        const uint64_t useful =
            card ? std::max(smallest_loan, std::min(room, (limit - always) / 4)) : room;
        const uint32_t largest = card ? kAutoChunkCard : kAutoChunkUnified;
        plan.chunk = kSmallestChunk;
        while (plan.chunk * 2 <= largest && loan_of(plan.chunk * 2) <= useful &&
               fits(plan.chunk * 2))
            plan.chunk *= 2;
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

    // On the host the CPU's kernels are the device's own, bit for bit: a share that is asked for is
    // given under `deterministic` too.
    if (card) plan.cpu_share = settings.cpu_share.value_or(settings.deterministic ? 0 : 100);

    const uint64_t experts_bytes = all_rows * model.row_bytes;
    const uint64_t useful = always + kv_at_max + loan + granules_of(experts_bytes);
    const uint64_t budget = std::min(limit, useful);
    plan.budget_bytes = budget * granule;
    plan.fixed = static_cast<uint32_t>(fixed);
    plan.workspace = static_cast<uint32_t>(workspace);
    plan.state = static_cast<uint32_t>(state);
    plan.expert_range = static_cast<uint32_t>(budget - always);
    plan.kv_at_max = static_cast<uint32_t>(kv_at_max);
    plan.loan = static_cast<uint32_t>(loan);
    plan.smallest_loan = static_cast<uint32_t>(smallest_loan);
    plan.floor = static_cast<uint32_t>(floor);

    const auto rows_in = [&](uint64_t granules) {
        return card ? static_cast<uint32_t>(
                          std::min<uint64_t>(granules * granule / model.row_bytes, all_rows))
                    : 0;
    };
    plan.rows_at_start = rows_in(plan.expert_range);
    plan.rows_at_max = rows_in(plan.expert_range - kv_at_max);
    plan.chunk_at_max =
        make_schedule(model, device, {plan.expert_range - floor, granule, step_bytes}, {},
                      plan.chunk, 0, plan.max_context)
            .back()
            .chunk;
    // Expert granules with `taken` granules of the range's end in other hands. What lies behind
    // the last whole row has no slot.
    const auto expert_granules = [&](uint64_t taken) {
        return std::min<uint64_t>(plan.expert_range - taken,
                                  granules_of(plan.rows_at_start * model.row_bytes));
    };
    const auto classes = [&](uint64_t kv_granules, uint64_t loan) {
        std::array<uint64_t, kOwners> bytes{};
        const uint64_t experts = expert_granules(loan + kv_granules);
        bytes[static_cast<int>(Owner::fixed)] = fixed * granule;
        bytes[static_cast<int>(Owner::workspace)] = workspace * granule;
        bytes[static_cast<int>(Owner::state)] = state * granule;
        bytes[static_cast<int>(Owner::kv)] = kv_granules * granule;
        bytes[static_cast<int>(Owner::loan)] = loan * granule;
        bytes[static_cast<int>(Owner::experts)] = experts * granule;
        bytes[static_cast<int>(Owner::spare)] =
            (plan.expert_range - loan - kv_granules - experts) * granule;
        return bytes;
    };
    plan.at_start = classes(0, loan);
    plan.at_max = classes(kv_at_max, loan_of(plan.chunk_at_max));
    return plan;
}

}  // namespace

Result<Plan> Planner::plan(const Settings& settings) const {
    DeviceFacts device = facts_for(device_, settings);
    auto plan = plan_on(model_, device, device_, settings);
    // The unified face has no budget until it is planned; a large one gets large granules.
    const bool on_host = settings.device == "host" && device.face == gpu::Face::unified;
    if (!plan || !on_host) return plan;
    device.granule_bytes = gpu::default_granule_bytes(plan->budget_bytes);
    if (device.granule_bytes == plan->granule_bytes) return plan;
    return plan_on(model_, device, device_, settings);
}

Result<std::vector<ScheduledChunks>> Planner::schedule(const Plan& plan, const Standing& standing,
                                                       uint32_t from, uint32_t total) const {
    DeviceFacts device = facts_for(device_, plan.settings);
    device.granule_bytes = plan.granule_bytes;
    const uint64_t step_bytes = kv_layout(model_, plan.kv_format).step_bytes;
    auto schedule = make_schedule(model_, device,
                                  {plan.expert_range - plan.floor, plan.granule_bytes, step_bytes},
                                  standing, plan.chunk, from, total);
    if (!schedule.empty() || from >= total) return schedule;
    const uint64_t kv = divide_up(steps_of(total) * step_bytes, plan.granule_bytes);
    return fail(ErrorKind::refused, "K/V of " + std::to_string(total) + " tokens does not fit",
                sum_text({{"K/V", std::max<uint64_t>(kv, standing.mapped)},
                          {"smallest loan", plan.smallest_loan},
                          {"other conversations", standing.idle},
                          {"granules out of use", standing.away}},
                         plan.granule_bytes) +
                    ", " + format_bytes((plan.expert_range - plan.floor) * plan.granule_bytes) +
                    " can be given",
                "Close other chats or raise vram-budget");
}

}  // namespace granary
