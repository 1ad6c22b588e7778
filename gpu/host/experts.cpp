// SPDX-License-Identifier: GPL-3.0-or-later
// The routed experts: down(silu(gate x) * up x) for the rows that were sent to each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/experts.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// After foreach_target.h: compiled for each target.
#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>

#include "gpu/host/codes.h"
#include "gpu/host/host_kernels.h"
#include "gpu/host/linear.h"
#include "gpu/host/rows.h"

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// silu(x) = x / (1 + exp(-x)). The limit keeps exp finite; below it silu is 0 to f32.
HWY_ATTR void silu_rows(const float* gate, const float* up, uint32_t rows, uint32_t cols,
                        float* out, size_t stride) {
    const hn::CappedTag<float, 16> d;
    const size_t lanes = hn::Lanes(d), whole = cols / lanes * lanes;
    const auto one = hn::Set(d, 1.0f), limit = hn::Set(d, 88.0f);
    for (uint32_t row = 0; row < rows; ++row) {
        for (size_t i = 0; i < whole; i += lanes) {
            const auto x = hn::LoadU(d, gate + row * kGroup + i);
            const auto below = hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), limit)));
            hn::StoreU(hn::Mul(hn::Div(x, below), hn::LoadU(d, up + row * kGroup + i)), d,
                       out + row * stride + i);
        }
        for (size_t i = whole; i < cols; ++i) {
            const float x = gate[row * kGroup + i];
            out[row * stride + i] = x / (1 + std::exp(-x)) * up[row * kGroup + i];
        }
    }
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(silu_rows);

void silu_multiply(const float* gate, const float* up, uint32_t rows, uint32_t cols, float* out,
                   size_t stride) {
    HWY_DYNAMIC_DISPATCH(silu_rows)(gate, up, rows, cols, out, stride);
}

// Work: 6 hidden ffn operations a route. Bytes: each routed expert once per kBlockRows routes.
//
// Two phases. First a task is 32 columns of one expert's inner width (one group of codes), for all
// of its routes; then, after a barrier, 32 rows of its down matrix.
void HostKernels::expert_ffn(const ExpertShape& shape, const ExpertEntry* entries,
                             std::span<const int32_t> list, const Routes& routes,
                             const Activations& x, const Activations& hidden, void* outputs) {
    auto* const out = static_cast<float*>(outputs);
    const uint32_t inner_tasks = (shape.ffn + kGroup - 1) / kGroup;
    const uint32_t down_tasks = (shape.hidden + kGroup - 1) / kGroup;
    const size_t x_bytes = x.codes ? code_bytes(x.cols) : 0;
    const bool down_reads_codes = hidden.codes && block_format(shape.down);
    const size_t hidden_bytes = hidden.codes ? code_bytes(hidden.cols) : 0;

    // Calls f(expert, task) for each task of each expert that has routes.
    const auto each_task = [&](uint32_t tasks, auto&& f) {
        size_t claimed = pool_.next(), number = 0;
        for (const int32_t expert : list) {
            if (routes.count[expert] == 0) continue;
            for (; claimed < number + tasks; claimed = pool_.next())
                f(expert, static_cast<uint32_t>(claimed - number));
            number += tasks;
        }
    };
    // Calls f(first route in `order`, count) for blocks of an expert's routes.
    const auto each_block = [&](int32_t expert, auto&& f) {
        for (int32_t at = routes.first[expert]; at < routes.first[expert + 1];
             at += static_cast<int32_t>(kBlockRows))
            f(routes.order + at,
              std::min(static_cast<uint32_t>(routes.first[expert + 1] - at), kBlockRows));
    };

    pool_.run([&](unsigned worker) {
        Workspace& work = workspace(worker);
        each_task(inner_tasks, [&](int32_t expert, uint32_t task) {
            const ExpertEntry& entry = entries[expert];
            const Weight gate{entry.gate, shape.gate, shape.ffn, shape.hidden};
            const Weight up{entry.up, shape.up, shape.ffn, shape.hidden};
            const uint32_t col = task * kGroup, cols = std::min(shape.ffn - col, kGroup);
            each_block(expert, [&](const int32_t* order, uint32_t count) {
                for (uint32_t i = 0; i < count; ++i) {
                    const size_t row = static_cast<uint32_t>(order[i]) / shape.used;
                    work.values[i] = x.values + row * x.cols;
                    if (x.codes) work.codes[i] = x.codes + row * x_bytes;
                }
                const InputRows in{{work.values, count}, {work.codes, x.codes ? count : 0}, x.cols};
                for (uint32_t j = 0; j < cols; j += kTileRows) {
                    const uint32_t rows = std::min(cols - j, kTileRows);
                    multiply(tiles_, gate, col + j, rows, in, &work.gate[0][j], kGroup, false,
                             work);
                    multiply(tiles_, up, col + j, rows, in, &work.up[0][j], kGroup, false, work);
                }
                silu_multiply(&work.gate[0][0], &work.up[0][0], count, cols, &work.gate[0][0],
                              kGroup);
                for (uint32_t i = 0; i < count; ++i) {
                    const auto route = static_cast<size_t>(order[i]);
                    if (down_reads_codes)
                        quantise_coarse(
                            work.gate[i], cols,
                            hidden.codes + route * hidden_bytes + task * sizeof(CodeGroup));
                    else
                        std::copy_n(work.gate[i], cols, hidden.values + route * hidden.cols + col);
                }
            });
        });
        pool_.barrier();
        each_task(down_tasks, [&](int32_t expert, uint32_t task) {
            const Weight down{entries[expert].down, shape.down, shape.hidden, shape.ffn};
            const uint32_t first = task * kGroup;
            const uint32_t cols = std::min(shape.hidden - first, kGroup);
            each_block(expert, [&](const int32_t* order, uint32_t count) {
                for (uint32_t i = 0; i < count; ++i) {
                    const auto route = static_cast<size_t>(order[i]);
                    work.values[i] = hidden.values + route * hidden.cols;
                    if (hidden.codes) work.codes[i] = hidden.codes + route * hidden_bytes;
                }
                const InputRows in{
                    {work.values, count}, {work.codes, hidden.codes ? count : 0}, hidden.cols};
                // Routes lie apart in `out`: the results are gathered here first.
                for (uint32_t j = 0; j < cols; j += kTileRows)
                    multiply(tiles_, down, first + j, std::min(cols - j, kTileRows), in,
                             &work.up[0][j], kGroup, false, work);
                for (uint32_t i = 0; i < count; ++i)
                    std::copy_n(work.up[i], cols,
                                out + static_cast<size_t>(order[i]) * shape.hidden + first);
            });
        });
    });
}

}  // namespace granary::gpu::host
#endif
