// SPDX-License-Identifier: GPL-3.0-or-later
// How the machine at hand differs from the rates that its plans were made with, from what it has
// done so far. Predictions take the corrected rates; layouts do not, so that they stay what was
// previewed.
#pragma once

#include "granary/rates.h"

namespace granary {

class Pace {
  public:
    // A chunk took `seconds`; by the uncorrected rates `attention` and `rest` were predicted.
    void add_chunk(double rest, double attention, double seconds);
    // So did answered tokens, without the copies of missed experts.
    void add_answer(double predicted, double seconds);
    bool knows_reading() const { return rest_ > 0; }

    Rates corrected(const Rates& rates) const;

  private:
    // Real seconds for each predicted one; 0: nothing is known yet.
    double rest_ = 0, attention_ = 0, answer_ = 0;
    // Sums of products, of which older ones fade.
    double rr_ = 0, ra_ = 0, aa_ = 0, rt_ = 0, at_ = 0;
    double pp_ = 0, pt_ = 0;
};

}  // namespace granary
