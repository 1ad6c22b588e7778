// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>
#include <vector>

#include "gpu/host/host_kernels.h"
#include "gpu/host/linear.h"

namespace granary::gpu::host {
namespace {

// Softmax of the logits in place. A NaN anywhere makes every expert equally likely, so that a
// broken file still routes somewhere.
void softmax(float* x, uint32_t count) {
    float largest = x[0];
    for (uint32_t i = 1; i < count; ++i) largest = std::max(largest, x[i]);
    float sum = 0;
    for (uint32_t i = 0; i < count; ++i) sum += x[i] = std::exp(x[i] - largest);
    if (!(sum >= 1) || !std::isfinite(sum)) {
        std::fill_n(x, count, 1.0f / static_cast<float>(count));
        return;
    }
    for (uint32_t i = 0; i < count; ++i) x[i] /= sum;
}

// The best `used` probabilities, largest first, lower indices first among equals.
void choose(const RouterShape& shape, float* probability, int32_t* expert, float* weight) {
    float sum = 0;
    for (uint32_t rank = 0; rank < shape.used; ++rank) {
        const float* best = std::max_element(probability, probability + shape.experts);
        const auto index = static_cast<uint32_t>(best - probability);
        expert[rank] = static_cast<int32_t>(index);
        weight[rank] = *best;
        sum += *best;
        probability[index] = -1;
    }
    const float divisor = shape.normalise ? std::max(sum, 6.1e-5f) : 1.0f;
    for (uint32_t rank = 0; rank < shape.used; ++rank)
        weight[rank] = weight[rank] / divisor * shape.scale;
}

// Counting sort of the routes by expert.
void sort_routes(const RouterShape& shape, const Routes& routes) {
    const uint32_t total = routes.rows * shape.used;
    std::fill_n(routes.count, shape.experts, 0);
    for (uint32_t r = 0; r < total; ++r) ++routes.count[routes.expert[r]];
    int32_t first = 0;
    for (uint32_t e = 0; e < shape.experts; ++e) {
        routes.first[e] = first;
        first += routes.count[e];
    }
    routes.first[shape.experts] = first;
    // first[e] serves as the place of e's next route and is put back afterwards.
    for (uint32_t r = 0; r < total; ++r)
        routes.order[routes.first[routes.expert[r]]++] = static_cast<int32_t>(r);
    for (uint32_t e = 0; e < shape.experts; ++e) routes.first[e] -= routes.count[e];
}

}  // namespace

// Work: 2 experts hidden operations a row. Bytes: the router's weights and 4 hidden a row.
// The router is always multiplied in f32: a changed route changes the answer.
void HostKernels::route(const RouterShape& shape, const Weight& router, const float* x,
                        const Routes& routes) {
    const auto rows = [&](Workspace& work, uint32_t begin, uint32_t end) {
        // A few rows at a time: their logits fill the gate buffer, or one of their own.
        constexpr auto kFloats = static_cast<uint32_t>(sizeof work.gate / sizeof(float));
        const uint32_t step = std::clamp(kFloats / shape.experts, 1u, kBlockRows);
        std::vector<float> large(shape.experts > kFloats ? shape.experts : 0);
        float* logits = large.empty() ? &work.gate[0][0] : large.data();
        for (uint32_t row = begin; row < end; row += step) {
            const uint32_t count = std::min(step, end - row);
            for (uint32_t i = 0; i < count; ++i) work.values[i] = x + size_t{row + i} * router.cols;
            for (uint32_t e = 0; e < shape.experts; e += kTileRows)
                multiply(tiles_, router, e, std::min(kTileRows, shape.experts - e),
                         {{work.values, count}, {}, router.cols}, logits + e, shape.experts, false,
                         work);
            for (uint32_t i = 0; i < count; ++i) {
                float* probability = logits + size_t{i} * shape.experts;
                const size_t route = size_t{row + i} * shape.used;
                softmax(probability, shape.experts);
                choose(shape, probability, routes.expert + route, routes.weight + route);
            }
        }
    };
    if (size_t{routes.rows} * shape.experts * router.cols <= 4 * kInline) {
        rows(workspace(0), 0, routes.rows);
    } else {
        pool_.run([&](unsigned worker) {
            const Share part = share(routes.rows, 1, worker, pool_.threads());
            rows(workspace(worker), static_cast<uint32_t>(part.begin),
                 static_cast<uint32_t>(part.end));
        });
    }
    sort_routes(shape, routes);
}

}  // namespace granary::gpu::host
