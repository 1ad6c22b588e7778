// SPDX-License-Identifier: GPL-3.0-or-later
// Routes of the parity tests, in host memory and on the card.
#pragma once

#include <algorithm>
#include <numeric>

#include "tests/gpu/cuda/support.h"

namespace granary::gpu::cuda::test {

struct HostRoutes {
    std::vector<int32_t> expert, count, first, order;
    std::vector<float> weight;
    Routes view;
    HostRoutes(uint32_t rows, uint32_t experts, uint32_t used)
        : expert(size_t{rows} * used),
          count(experts),
          first(experts + 1),
          order(expert.size()),
          weight(expert.size()),
          view{expert.data(), weight.data(), count.data(), first.data(), order.data(), rows} {}
    // The others from `expert`.
    void sort() {
        std::fill(count.begin(), count.end(), 0);
        for (const int32_t e : expert) ++count[static_cast<size_t>(e)];
        first[0] = 0;
        for (size_t e = 0; e < count.size(); ++e) first[e + 1] = first[e] + count[e];
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
            return expert[static_cast<size_t>(a)] < expert[static_cast<size_t>(b)];
        });
    }
};

struct CardRoutes {
    Array<int32_t> expert, count, first, order;
    Array<float> weight;
    Routes view;
    CardRoutes(Gpu& gpu, uint32_t rows, uint32_t experts, uint32_t used)
        : expert(gpu, size_t{rows} * used),
          count(gpu, experts),
          first(gpu, experts + 1),
          order(gpu, expert.size()),
          weight(gpu, expert.size()),
          view{expert, weight, count, first, order, rows} {}
    explicit CardRoutes(Gpu& gpu, const HostRoutes& from)
        : expert(gpu, from.expert),
          count(gpu, from.count),
          first(gpu, from.first),
          order(gpu, from.order),
          weight(gpu, from.weight),
          view{expert, weight, count, first, order, from.view.rows} {}
};

}  // namespace granary::gpu::cuda::test
