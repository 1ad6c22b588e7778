// SPDX-License-Identifier: GPL-3.0-or-later
// How long the rest of a prompt takes, from what this machine has shown. A token at cell p costs
// a + b p seconds (matrices, and attention to the p cells before it); a and b are fitted by least
// squares over chunks already read, of this prompt and of earlier ones.
#pragma once

#include <cstdint>

namespace granary {

class EtaModel {
  public:
    // A chunk of n tokens from `cell` took `seconds`.
    void add(uint32_t cell, uint32_t n, double seconds);
    // Predicted seconds for tokens [cell, end); negative where nothing is known yet.
    double predict(double cell, double end) const;
    double seconds_per_token() const { return cost_; }  // negative: nothing is known yet
    double seconds_per_cell() const { return slope_; }

  private:
    double cost_ = -1;                                   // a
    double slope_ = 0;                                   // b
    double nn_ = 0, nc_ = 0, cc_ = 0, nt_ = 0, ct_ = 0;  // sums of products
};

}  // namespace granary
