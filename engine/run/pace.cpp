// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/pace.h"

namespace granary {
namespace {

// A change of settings or load shows soon.
constexpr double kFade = 0.9;
// A fit of two unknowns must tell them apart; beyond these factors it does not.
constexpr double kLeast = 0.02, kMost = 50;

bool plausible(double factor) {
    return factor >= kLeast && factor <= kMost;
}

}  // namespace

// Least squares of seconds over both predicted parts. While prompts are short the parts rise and
// fall together: then one factor serves both.
void Pace::add_chunk(double rest, double attention, double seconds) {
    if (!(rest > 0) || !(seconds > 0)) return;
    for (double* sum : {&rr_, &ra_, &aa_, &rt_, &at_}) *sum *= kFade;
    rr_ += rest * rest;
    ra_ += rest * attention;
    aa_ += attention * attention;
    rt_ += rest * seconds;
    at_ += attention * seconds;
    const double determinant = rr_ * aa_ - ra_ * ra_;
    if (determinant > 0.01 * rr_ * aa_) {
        const double for_rest = (rt_ * aa_ - at_ * ra_) / determinant;
        const double for_attention = (at_ * rr_ - rt_ * ra_) / determinant;
        if (plausible(for_rest) && plausible(for_attention)) {
            rest_ = for_rest;
            attention_ = for_attention;
            return;
        }
    }
    rest_ = attention_ = (rt_ + at_) / (rr_ + 2 * ra_ + aa_);
}

void Pace::add_answer(double predicted, double seconds) {
    if (!(predicted > 0) || !(seconds > 0)) return;
    pp_ = pp_ * kFade + predicted * predicted;
    pt_ = pt_ * kFade + predicted * seconds;
    answer_ = pt_ / pp_;
}

Rates Pace::corrected(const Rates& rates) const {
    Rates here = rates;
    if (rest_ > 0) {
        here.products /= rest_;
        here.unpack /= rest_;
        here.link /= rest_;
        here.gather /= rest_;
        here.attention /= attention_;
    }
    // What is known of one half of the work is the best guess of the other.
    if (const double factor = answer_ > 0 ? answer_ : rest_; factor > 0) {
        here.weights /= factor;
        here.cells /= factor;
        here.memory /= factor;
        here.layer *= factor;
    }
    return here;
}

}  // namespace granary
