// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/memory/admission.h"

#include <algorithm>

#include "engine/kv/kv_layout.h"
#include "engine/memory/layout.h"

namespace granary {
namespace {

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

}  // namespace

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

DeviceFacts facts_for(DeviceFacts device, const Settings& settings) {
    if (!device.host) return device;
    device.face = settings.vram_budget ? gpu::Face::card : gpu::Face::unified;
    device.granule_bytes = settings.vram_budget && settings.granule
                               ? settings.granule
                               : gpu::default_granule_bytes(settings.vram_budget);
    if (device.threads) {
        const uint32_t threads = settings.threads ? settings.threads : device.threads_unless_told;
        if (device.rates) device.rates = device.rates->with_threads(device.threads, threads);
        device.scratch_base = device.scratch_base / device.threads * threads;
        device.threads = threads;
    }
    return device;
}

Least least_of(const ModelFacts& model, const DeviceFacts& device, const Settings& settings,
               uint32_t max_context) {
    const bool card = device.face == gpu::Face::card;
    const auto granules_of = [&](uint64_t bytes) { return divide_up(bytes, device.granule_bytes); };
    const uint64_t step_bytes = kv_step_bytes(model, device, settings, max_context);
    Least least{};
    least.fixed = card ? granules_of(model.fixed_bytes) : 0;
    least.workspace = granules_of(workspace_layout(model, device, max_context).bytes);
    least.state = granules_of(model.state_bytes);
    least.smallest_loan = granules_of(loan_layout(model, device, kSmallestChunk).bytes);
    least.kv_at_max = granules_of(steps_of(max_context) * step_bytes);
    if (card) least.floor = granules_of(floor_rows(model, settings.cache_floor) * model.row_bytes);
    return least;
}

WaysOut ways_out(const ModelFacts& model, const DeviceFacts& device, const DeviceFacts& any_budget,
                 const Settings& settings, uint32_t max_context, uint64_t limit) {
    const uint64_t granule = device.granule_bytes;
    const Least least = least_of(model, device, settings, max_context);
    WaysOut ways;
    // A budget large enough; a larger one may have larger granules, which round up more.
    ways.memory = least.total() * granule;
    while (device.face == gpu::Face::card) {
        Settings raised = settings;
        raised.vram_budget = ways.memory;
        const DeviceFacts larger = facts_for(any_budget, raised);
        const uint64_t needed =
            least_of(model, larger, raised, max_context).total() * larger.granule_bytes;
        if (needed <= ways.memory) break;
        ways.memory = needed;
    }
    // A context short enough for this budget, if there is one.
    const uint64_t without_kv = std::min(least.total() - least.kv_at_max, limit);
    ways.max_context = static_cast<uint32_t>(
        kv_cells_within(model, device, settings, max_context, (limit - without_kv) * granule));
    return ways;
}

Error refusal(const ModelFacts& model, const DeviceFacts& device, const DeviceFacts& any_budget,
              const Settings& settings, uint32_t max_context, uint64_t free_granules,
              uint64_t limit) {
    const uint64_t granule = device.granule_bytes;
    const Least least = least_of(model, device, settings, max_context);
    const std::string sum = sum_text({{"fixed weights", least.fixed},
                                      {"workspace", least.workspace},
                                      {"state", least.state},
                                      {"smallest loan", least.smallest_loan},
                                      {"K/V", least.kv_at_max},
                                      {"floor", least.floor}},
                                     granule);
    const bool by_budget = settings.vram_budget && settings.vram_budget / granule <= free_granules;
    const std::string reserve =
        settings.vram_reserve ? " beside the reserve of " + format_bytes(settings.vram_reserve)
                              : std::string();
    const std::string subject = by_budget
                                    ? "budget " + format_bytes(limit * granule)
                                    : "free memory " + format_bytes(limit * granule) + reserve;
    const WaysOut ways = ways_out(model, device, any_budget, settings, max_context, limit);
    const std::string shorter =
        ways.max_context ? "lower max-context to " + std::to_string(ways.max_context) : "";
    std::string advice;
    if (by_budget && least.total() <= free_granules) {
        advice = "Raise vram-budget to " + enough(ways.memory);
        if (!shorter.empty()) advice += ", or " + shorter;
    } else {
        advice = by_budget ? "vram-budget would have to be " + enough(ways.memory) + " and only " +
                                 format_bytes(free_granules * granule) + " are free" + reserve
                           : enough(ways.memory) + " would have to be free" + reserve +
                                 ": close other programs";
        if (!shorter.empty()) advice += ", or " + shorter;
    }
    return {ErrorKind::refused, subject + " is too small", sum, advice};
}

}  // namespace granary
