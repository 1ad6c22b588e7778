// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/eta.h"

#include <algorithm>

namespace granary {

void EtaModel::add(uint32_t cell, uint32_t n, double seconds) {
    if (n == 0 || seconds <= 0) return;
    const double tokens = n;
    const double cells = tokens * (cell + tokens / 2);  // sum of p over the chunk
    // Older observations fade, so that a change of settings or load shows soon.
    for (double* sum : {&nn_, &nc_, &cc_, &nt_, &ct_}) *sum *= 0.9;
    nn_ += tokens * tokens;
    nc_ += tokens * cells;
    cc_ += cells * cells;
    nt_ += tokens * seconds;
    ct_ += cells * seconds;
    const double determinant = nn_ * cc_ - nc_ * nc_;
    slope_ = 0;
    if (determinant > 1e-6 * nn_ * cc_) slope_ = (nn_ * ct_ - nc_ * nt_) / determinant;
    slope_ = std::max(slope_, 0.0);
    cost_ = (nt_ - slope_ * nc_) / nn_;
    if (cost_ < 0) {  // attention alone explains it
        cost_ = 0;
        slope_ = ct_ / cc_;
    }
}

double EtaModel::predict(double cell, double end) const {
    if (cost_ < 0) return -1;
    const double tokens = end - cell;
    return tokens * cost_ + slope_ * tokens * (cell + end) / 2;
}

}  // namespace granary
