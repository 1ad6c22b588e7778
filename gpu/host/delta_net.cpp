// SPDX-License-Identifier: GPL-3.0-or-later
// The gated delta net (Yang, Kautz and Hatamizadeh 2024), token by token and in chunks.
//
// The chunked form unrolls the recurrence over up to 64 tokens. With G_i the sum of the logarithms
// of decay up to token i, S the state before the chunk and d_j what token j writes:
//   d_i   = beta_i (v_i - exp(G_i) S^T k_i - sum over j < i of exp(G_i - G_j) (k_i . k_j) d_j)
//   out_i = exp(G_i) S^T q_i + sum over j <= i of exp(G_i - G_j) (q_i . k_j) d_j
//   S'    = exp(G_n) S + sum over j of exp(G_n - G_j) k_j d_j^T
// Decays are at most 1, so no exponent is positive.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gpu/host/delta_net.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "gpu/host/host_kernels.h"
#include "gpu/host/rows.h"

#ifndef GRANARY_DELTA_SHARED
#define GRANARY_DELTA_SHARED
namespace granary::gpu::host {
// a(r, k) = values[r * row + k * col]
struct Strided {
    const float* values;
    size_t row, col;
};
}  // namespace granary::gpu::host
#endif

HWY_BEFORE_NAMESPACE();
namespace granary::gpu::host::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c[r, j] (+)= sum over k, in order, of a(r, k) b[k, j]; cols is a multiple of 16.
template <size_t kRows>
HWY_ATTR void product_rows(const Strided& a, size_t inner, const float* b, size_t b_row,
                           size_t cols, float* c, size_t c_row, bool add) {
    const hn::CappedTag<float, 16> d;
    for (size_t j = 0; j < cols; j += hn::Lanes(d)) {
        const auto begin = [&](size_t r) {
            return add && r < kRows ? hn::LoadU(d, c + r * c_row + j) : hn::Zero(d);
        };
        auto s0 = begin(0), s1 = begin(1), s2 = begin(2), s3 = begin(3);
        for (size_t k = 0; k < inner; ++k) {
            const auto v = hn::LoadU(d, b + k * b_row + j);
            const float* at = a.values + k * a.col;
            s0 = hn::MulAdd(hn::Set(d, at[0]), v, s0);
            if constexpr (kRows == 4) {
                s1 = hn::MulAdd(hn::Set(d, at[a.row]), v, s1);
                s2 = hn::MulAdd(hn::Set(d, at[2 * a.row]), v, s2);
                s3 = hn::MulAdd(hn::Set(d, at[3 * a.row]), v, s3);
            }
        }
        hn::StoreU(s0, d, c + j);
        if constexpr (kRows == 4) {
            hn::StoreU(s1, d, c + c_row + j);
            hn::StoreU(s2, d, c + 2 * c_row + j);
            hn::StoreU(s3, d, c + 3 * c_row + j);
        }
    }
}

HWY_ATTR void product(const Strided& a, size_t rows, size_t inner, const float* b, size_t b_row,
                      size_t cols, float* c, size_t c_row, bool add) {
    size_t r = 0;
    for (; r + 4 <= rows; r += 4)
        product_rows<4>({a.values + r * a.row, a.row, a.col}, inner, b, b_row, cols, c + r * c_row,
                        c_row, add);
    for (; r < rows; ++r)
        product_rows<1>({a.values + r * a.row, a.row, a.col}, inner, b, b_row, cols, c + r * c_row,
                        c_row, add);
}

HWY_ATTR void scale(float* x, float factor, size_t count) {
    const hn::CappedTag<float, 16> d;
    const auto factors = hn::Set(d, factor);
    for (size_t i = 0; i < count; i += hn::Lanes(d))
        hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factors), d, x + i);
}

// One token of one head. Two passes over the state: decay and recall, then write and read.
HWY_ATTR void step(float* state, size_t dim, float decay, float rate, const float* q,
                   const float* k, const float* v, float* delta, float* out) {
    const hn::CappedTag<float, 16> d;
    const size_t lanes = hn::Lanes(d);
    const auto decays = hn::Set(d, decay), rates = hn::Set(d, rate);
    std::fill_n(delta, dim, 0.0f);
    std::fill_n(out, dim, 0.0f);
    for (size_t i = 0; i < dim; ++i) {
        const auto key = hn::Set(d, k[i]);
        for (size_t j = 0; j < dim; j += lanes) {
            const auto s = hn::Mul(hn::LoadU(d, state + i * dim + j), decays);
            hn::StoreU(s, d, state + i * dim + j);
            hn::StoreU(hn::MulAdd(key, s, hn::LoadU(d, delta + j)), d, delta + j);
        }
    }
    for (size_t j = 0; j < dim; j += lanes)
        hn::StoreU(hn::Mul(rates, hn::Sub(hn::LoadU(d, v + j), hn::LoadU(d, delta + j))), d,
                   delta + j);
    for (size_t i = 0; i < dim; ++i) {
        const auto key = hn::Set(d, k[i]), query = hn::Set(d, q[i]);
        for (size_t j = 0; j < dim; j += lanes) {
            const auto s =
                hn::MulAdd(key, hn::LoadU(d, delta + j), hn::LoadU(d, state + i * dim + j));
            hn::StoreU(s, d, state + i * dim + j);
            hn::StoreU(hn::MulAdd(query, s, hn::LoadU(d, out + j)), d, out + j);
        }
    }
}

}  // namespace granary::gpu::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace granary::gpu::host {

HWY_EXPORT(product);
HWY_EXPORT(scale);
HWY_EXPORT(step);

namespace {

// One worker's buffers.
struct Block {
    float* q;       // [kDeltaCells][dim]
    float* k;       // [kDeltaCells][dim]
    float* across;  // [dim][kDeltaCells] k, transposed
    float* delta;   // [kDeltaCells][dim]
    float* kk;      // [kDeltaCells][kDeltaCells] k_i . k_j
    float* qk;      // [kDeltaCells][kDeltaCells] q_i . k_j
    float* sums;    // [kDeltaCells] G
};
size_t block_floats(size_t dim) {
    return 4 * kDeltaCells * dim + 2 * kDeltaCells * kDeltaCells + kDeltaCells;
}
Block block_at(float* at, size_t dim) {
    const size_t rows = kDeltaCells * dim, square = kDeltaCells * kDeltaCells;
    Block block{};
    block.q = at;
    block.k = at + rows;
    block.across = at + 2 * rows;
    block.delta = at + 3 * rows;
    block.kk = at + 4 * rows;
    block.qk = block.kk + square;
    block.sums = block.qk + square;
    return block;
}

// to = x / sqrt(|x|^2 + eps) * factor. The RMS norm divides by sqrt(|x|^2 / dim + eps / dim).
void unit(const float* x, size_t dim, float eps, float factor, float* to) {
    const auto size = static_cast<float>(dim);
    rms_norm_row(x, nullptr, eps / size, static_cast<uint32_t>(dim), to);
    HWY_DYNAMIC_DISPATCH(scale)(to, factor / std::sqrt(size), dim);
}

// One value head's view of the rows.
struct Head {
    const DeltaShape& shape;
    const float* x;
    const float* alpha;
    const float* beta;
    size_t number;
    float* state;
    float* out;

    size_t dim() const { return shape.head_dim; }
    const float* row(size_t i) const { return x + i * shape.channels(); }
    size_t key() const { return number % shape.key_heads; }
    void query_to(size_t i, float* to) const {
        unit(row(i) + key() * dim(), dim(), shape.norm_eps,
             1 / std::sqrt(static_cast<float>(dim())), to);
    }
    void key_to(size_t i, float* to) const {
        unit(row(i) + (shape.key_heads + key()) * dim(), dim(), shape.norm_eps, 1, to);
    }
    const float* value(size_t i) const {
        return row(i) + (2 * size_t{shape.key_heads} + number) * dim();
    }
    float log_decay(size_t i) const { return alpha[i * shape.value_heads + number]; }
    float rate(size_t i) const { return beta[i * shape.value_heads + number]; }
    float* result(size_t i) const { return out + (i * shape.value_heads + number) * dim(); }
};

void multiply(const Strided& a, size_t rows, size_t inner, const float* b, size_t b_row,
              size_t cols, float* c, size_t c_row, bool add) {
    HWY_DYNAMIC_DISPATCH(product)(a, rows, inner, b, b_row, cols, c, c_row, add);
}

// Rows [first, first + n), n <= kDeltaCells.
void run_chunk(const Head& head, size_t first, size_t n, const Block& at) {
    const size_t dim = head.dim(), out_row = head.shape.width();
    float sum = 0;
    std::fill_n(at.across, dim * kDeltaCells, 0.0f);
    for (size_t i = 0; i < n; ++i) {
        head.query_to(first + i, at.q + i * dim);
        head.key_to(first + i, at.k + i * dim);
        for (size_t c = 0; c < dim; ++c) at.across[c * kDeltaCells + i] = at.k[i * dim + c];
        at.sums[i] = sum += head.log_decay(first + i);
    }
    const Strided q{at.q, dim, 1}, k{at.k, dim, 1};
    float* const out = head.result(first);
    multiply(k, n, dim, at.across, kDeltaCells, kDeltaCells, at.kk, kDeltaCells, false);
    multiply(q, n, dim, at.across, kDeltaCells, kDeltaCells, at.qk, kDeltaCells, false);
    multiply(k, n, dim, head.state, dim, dim, at.delta, dim, false);
    multiply(q, n, dim, head.state, dim, dim, out, out_row, false);

    for (size_t i = 0; i < n; ++i) {
        const float decay = std::exp(at.sums[i]);
        float* const kk = at.kk + i * kDeltaCells;
        float* const qk = at.qk + i * kDeltaCells;
        for (size_t j = 0; j < n; ++j) {
            const float between = j <= i ? std::exp(at.sums[i] - at.sums[j]) : 0.0f;
            kk[j] *= -between;
            qk[j] = j <= i ? qk[j] * between : 0.0f;
        }
        float* const delta = at.delta + i * dim;
        const float* const value = head.value(first + i);
        for (size_t c = 0; c < dim; ++c) delta[c] = value[c] - decay * delta[c];
        multiply({kk, 0, 1}, 1, i, at.delta, dim, dim, delta, dim, true);
        HWY_DYNAMIC_DISPATCH(scale)(delta, head.rate(first + i), dim);
        HWY_DYNAMIC_DISPATCH(scale)(out + i * out_row, decay, dim);
    }
    multiply({at.qk, kDeltaCells, 1}, n, n, at.delta, dim, dim, out, out_row, true);

    const float last = at.sums[n - 1];
    HWY_DYNAMIC_DISPATCH(scale)(head.state, std::exp(last), dim * dim);
    for (size_t i = 0; i < n; ++i)
        HWY_DYNAMIC_DISPATCH(scale)(at.k + i * dim, std::exp(last - at.sums[i]), dim);
    multiply({at.k, 1, dim}, dim, n, at.delta, dim, dim, head.state, dim, true);
}

}  // namespace

// Work: about 8 dim^2 + 300 dim operations a token and value head. Bytes: the rows once, the state
// once for each kDeltaCells tokens.
void HostKernels::delta_net_prompt(const DeltaShape& shape, float* x, float* alpha, float* beta,
                                   uint32_t first_cell, uint32_t n, float* state, float* out) {
    const size_t dim = shape.head_dim;
    delta_work_.resize(std::max(delta_work_.size(), pool_.threads() * block_floats(dim)));
    pool_.run([&](unsigned worker) {
        const Block at = block_at(delta_work_.data() + worker * block_floats(dim), dim);
        for (size_t h = pool_.next(); h < shape.value_heads; h = pool_.next()) {
            const Head head{shape, x, alpha, beta, h, state + h * dim * dim, out};
            for (uint32_t first = 0; first < n;) {
                const uint32_t to_edge = kDeltaCells - (first_cell + first) % kDeltaCells;
                const uint32_t count = std::min(n - first, to_edge);
                run_chunk(head, first, count, at);
                first += count;
            }
        }
    });
}

// Work: 7 dim^2 operations a token and value head. Bytes: the state, read and written twice.
void HostKernels::delta_net_decode(const DeltaShape& shape, const float* x, const float* alpha,
                                   const float* beta, uint32_t n, float* state, float* out) {
    const size_t dim = shape.head_dim;
    delta_work_.resize(std::max(delta_work_.size(), pool_.threads() * block_floats(dim)));
    pool_.run([&](unsigned worker) {
        const Block at = block_at(delta_work_.data() + worker * block_floats(dim), dim);
        for (size_t h = pool_.next(); h < shape.value_heads; h = pool_.next()) {
            const Head head{shape, x, alpha, beta, h, state + h * dim * dim, out};
            for (size_t i = 0; i < n; ++i) {
                head.query_to(i, at.q);
                head.key_to(i, at.k);
                HWY_DYNAMIC_DISPATCH(step)
                (head.state, dim, std::exp(head.log_decay(i)), head.rate(i), at.q, at.k,
                 head.value(i), at.delta, head.result(i));
            }
        }
    });
}

}  // namespace granary::gpu::host
#endif
