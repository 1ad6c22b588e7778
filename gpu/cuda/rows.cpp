// SPDX-License-Identifier: GPL-3.0-or-later
// Operations on rows of values: norm.cu, embed.cu, argmax.cu.
#include <algorithm>

#include "gpu/cuda/kernels.h"
#include "gpu/cuda/norm_decode.h"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kArgmaxParts = 128;  // blocks a row
constexpr uint32_t kOctetThreads = 128;

// Blocks of kOctetThreads for the octets of a row, those that fill up codes included.
unsigned octet_blocks(uint32_t cols) {
    return ((cols + 31) / 32 * 4 + kOctetThreads - 1) / kOctetThreads;
}

// A grid has at most so many rows: longer calls are cut.
constexpr uint32_t kMostRows = 65535;

}  // namespace

Result<void> CudaKernels::load_rows() {
    if (auto r = find("embed", {{"embed", &rows_.embed}}); !r) return r;
    if (auto r = find("argmax", {{"argmax", &rows_.argmax}}); !r) return r;
    if (auto r = find("norm_decode", {{"combine_norm_f16", &rows_.combine_norm_f16},
                                      {"combine_norm_f32", &rows_.combine_norm_f32}});
        !r)
        return r;
    return find("norm", {{"rms_norm", &rows_.rms_norm},
                         {"quantise", &rows_.quantise},
                         {"combine_f16", &rows_.combine_f16},
                         {"combine_f32", &rows_.combine_f32}});
}

// The first of a decode step, and no early one (early.cuh).
void CudaKernels::embed(const Weight& table, const int32_t* tokens, uint32_t n, float* x) {
    for (uint32_t first = 0; first < n; first += kMostRows)
        queue(rows_.embed, {octet_blocks(table.cols), std::min(n - first, kMostRows)},
              {kOctetThreads}, 0, table.data, static_cast<uint32_t>(table.type),
              row_bytes(table.type, table.cols), table.cols, tokens + first,
              x + size_t{first} * table.cols);
}

void CudaKernels::rms_norm(const float* x, const float* weight, float eps, const Activations& out) {
    if (out.rows == 0) return;
    if (out.decode) return combine_norm({}, 0, nullptr, x, nullptr, weight, eps, out);
    queue(rows_.rms_norm, {out.rows}, {256}, 0, x, weight, eps, out.cols, out.values, out.codes);
}

void CudaKernels::quantise(const Activations& a) {
    if (!a.codes) return;
    for (uint32_t first = 0; first < a.rows; first += kMostRows)
        queue(rows_.quantise, {octet_blocks(a.cols), std::min(a.rows - first, kMostRows)},
              {kOctetThreads}, 0, static_cast<const float*>(a.values + size_t{first} * a.cols),
              a.cols, a.codes + first * code_bytes(a.cols), a.decode);
}

void CudaKernels::combine(const Routes& routes, uint32_t used, uint32_t hidden, const void* out,
                          float* x) {
    if (routes.decode)
        return combine_norm(routes, used, out, x, x, nullptr, 0,
                            {nullptr, nullptr, routes.rows, hidden});
    const size_t value_bytes = expert_out_f32_ ? sizeof(float) : sizeof(uint16_t);
    for (uint32_t first = 0; first < routes.rows; first += kMostRows)
        queue(expert_out_f32_ ? rows_.combine_f32 : rows_.combine_f16,
              {octet_blocks(hidden), std::min(routes.rows - first, kMostRows)}, {kOctetThreads}, 0,
              static_cast<const float*>(routes.weight + size_t{first} * used), used, hidden,
              static_cast<const std::byte*>(out) + size_t{first} * used * hidden * value_bytes,
              x + size_t{first} * hidden);
}

float* CudaKernels::combine_and_norm(const Routes& routes, uint32_t used, uint32_t hidden,
                                     const void* out, float* x, float* other, const float* weight,
                                     float eps, const Activations& norm, const CpuShare& share) {
    // Its kernel is one of decode steps, also in the order in which it leaves codes.
    if (!routes.decode)
        return Kernels::combine_and_norm(routes, used, hidden, out, x, other, weight, eps, norm,
                                         share);
    combine_norm(routes, used, out, x, other, weight, eps, norm,
                 routes.rows == 1 ? share : CpuShare{});
    return other;
}

void CudaKernels::combine_norm(const Routes& routes, uint32_t used, const void* out, const float* x,
                               float* sum, const float* weight, float eps, const Activations& norm,
                               const CpuShare& share) {
    queue_early(expert_out_f32_ ? rows_.combine_norm_f32 : rows_.combine_norm_f16,
                {norm.rows * kRowBlocks}, {kNormThreads}, 0,
                CombineNorm{routes.weight, used, norm.cols, out, x, sum, weight, eps, norm.values,
                            norm.codes},
                share);
}

void CudaKernels::argmax(const float* logits, uint32_t n, uint32_t vocab, int32_t* best) {
    for (uint32_t first = 0; first < n; first += kDecodeRows) {
        const uint32_t rows = std::min(n - first, kDecodeRows);
        std::byte* const found = scratch_.require(rows * kArgmaxParts * sizeof(uint64_t));
        queue_early(rows_.argmax, {kArgmaxParts, rows}, {256}, 0, logits + size_t{first} * vocab,
                    vocab, found, counters_, best + first);
    }
}

}  // namespace granary::gpu::cuda
