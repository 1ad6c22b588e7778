// SPDX-License-Identifier: GPL-3.0-or-later
// What settings need at least, whether that is there, and what would fit instead.
#pragma once

#include <initializer_list>
#include <string>

#include "granary/planner.h"

namespace granary {

// The host has two faces and the settings choose: a budget makes it an emulated card. Its granules
// follow from the budget, its kernels' scratch and its rates from the threads.
DeviceFacts facts_for(DeviceFacts device, const Settings& settings);

// The granules that are needed at least, whatever the budget.
struct Least {
    uint64_t fixed = 0, workspace = 0, state = 0, smallest_loan = 0, kv_at_max = 0, floor = 0;
    uint64_t total() const { return fixed + workspace + state + smallest_loan + kv_at_max + floor; }
};

Least least_of(const ModelFacts& model, const DeviceFacts& device, const Settings& settings,
               uint32_t max_context);

// For a device that can give `limit` granules: settings that are admitted as they stand.
WaysOut ways_out(const ModelFacts& model, const DeviceFacts& device, const DeviceFacts& any_budget,
                 const Settings& settings, uint32_t max_context, uint64_t limit);

// The sum of what is needed, and the ways out. `any_budget`: the device before facts_for.
Error refusal(const ModelFacts& model, const DeviceFacts& device, const DeviceFacts& any_budget,
              const Settings& settings, uint32_t max_context, uint64_t free_granules,
              uint64_t limit);

// Terms of a sum that a person reads.
struct Term {
    const char* name;
    uint64_t granules;
};

std::string sum_text(std::initializer_list<Term> terms, uint64_t granule);

}  // namespace granary
