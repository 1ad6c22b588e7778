// SPDX-License-Identifier: GPL-3.0-or-later
// How positions are stretched, so that a model reads more tokens than it was trained for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace granary {

enum class RopeKind : uint8_t {
    none,
    linear,  // every pair of a head turns slower by the factor (Chen et al. 2023, arXiv 2306.15595)
    yarn,    // only the slow ones do (Peng et al. 2023, arXiv 2309.00071)
};
std::string_view rope_kind_name(RopeKind kind);  // "none", "linear", "yarn"
std::string factor_text(double factor);          // "2", "1.5"

inline constexpr double kLargestRopeFactor = 4096;

struct RopeScaling {
    RopeKind kind = RopeKind::none;
    double factor = 1;      // above 1; 1 where kind is none
    uint32_t original = 0;  // tokens that the model was trained for before anything was stretched;
                            // 0: its context_length
    // YaRN. Pairs that turn beta_fast times or more within `original` tokens are left as they are,
    // those that turn beta_slow times or less are stretched, between them the two are blended.
    double beta_fast = 32, beta_slow = 1;
    double extrapolation = 1;  // how much of what is left as it is; 0: all is stretched
    double attention = 1;      // q and k are multiplied by attention * (1 + 0.1 ln factor)
    bool operator==(const RopeScaling&) const = default;

    // "stretched by 2 with YaRN", "as trained"
    std::string text() const;
};

// What to know where a context of `max_context` tokens runs with `rope`, one sentence without its
// point; empty: nothing.
std::string context_note(const RopeScaling& rope, uint32_t max_context);

}  // namespace granary
