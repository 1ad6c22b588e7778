// SPDX-License-Identifier: GPL-3.0-or-later
// What the kernel tests share: random weights of every type, and comparisons.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/host/half.h"
#include "gpu/kernels.h"

namespace granary::gpu::test {

struct Random {
    std::mt19937 engine;
    explicit Random(unsigned seed) : engine(seed) {}
    // Spelled out, since the distributions of the standard library differ between libraries.
    float uniform() { return static_cast<float>(engine() >> 8) * 0x1p-24f; }
    float value() { return 2 * uniform() - 1; }
    std::vector<float> values(size_t count) {
        std::vector<float> all(count);
        for (float& x : all) x = value();
        return all;
    }
};

// Types whose rows this program runs.
inline const WeightType kTypes[] = {
    WeightType::f32,     WeightType::f16,     WeightType::bf16,   WeightType::q4_0,
    WeightType::q4_1,    WeightType::q5_0,    WeightType::q5_1,   WeightType::q8_0,
    WeightType::q2_k,    WeightType::q3_k,    WeightType::q4_k,   WeightType::q5_k,
    WeightType::q6_k,    WeightType::iq4_nl,  WeightType::iq4_xs, WeightType::mxfp4,
    WeightType::tq2_0,   WeightType::iq2_xxs, WeightType::iq2_xs, WeightType::iq2_s,
    WeightType::iq3_xxs, WeightType::iq3_s,   WeightType::iq1_s,  WeightType::iq1_m};

// Where a type's block keeps its 16-bit scales; other bytes may be anything.
inline std::vector<size_t> scale_offsets(WeightType type) {
    switch (type) {
        case WeightType::q2_k:
            return {80, 82};
        case WeightType::q3_k:
            return {108};
        case WeightType::q6_k:
            return {208};
        case WeightType::tq2_0:
            return {64};
        case WeightType::q4_1:
        case WeightType::q5_1:
        case WeightType::q4_k:
        case WeightType::q5_k:
            return {0, 2};
        default:
            return {0};
    }
}

// Blocks of random bits with scales near `scale`.
inline std::vector<std::byte> random_blocks(WeightType type, size_t blocks, float scale,
                                            Random& random) {
    const WeightTypeInfo& info = weight_type_info(type);
    std::vector<std::byte> data(blocks * info.block_bytes);
    for (std::byte& byte : data) byte = static_cast<std::byte>(random.engine());
    for (size_t b = 0; b < blocks; ++b) {
        std::byte* block = data.data() + b * info.block_bytes;
        if (type == WeightType::f32) {
            const float value = random.value();
            std::memcpy(block, &value, sizeof value);
        } else if (type == WeightType::bf16) {
            const float value = random.value();
            std::memcpy(block, reinterpret_cast<const char*>(&value) + 2, 2);
        } else if (type == WeightType::mxfp4) {
            block[0] = static_cast<std::byte>(116 + random.engine() % 6);
        } else if (type == WeightType::iq1_m) {  // the scale's four nibbles lie apart
            const uint16_t half = host::float_to_half(scale * random.value());
            for (int i = 0; i < 4; ++i) {
                auto& byte = block[49 + 2 * i];
                byte = (byte & std::byte{15}) | static_cast<std::byte>((half >> (4 * i) & 15) << 4);
            }
        } else {
            for (const size_t offset : scale_offsets(type)) {
                const uint16_t half = host::float_to_half(scale * random.value());
                std::memcpy(block + offset, &half, sizeof half);
            }
        }
    }
    return data;
}

struct RandomWeight {
    std::vector<std::byte> data;
    Weight weight;
    std::vector<float> decoded;  // [rows, cols]
    RandomWeight(WeightType type, uint32_t rows, uint32_t cols, Random& random) {
        const size_t blocks = size_t{rows} * cols / weight_type_info(type).block_elements;
        data = random_blocks(type, blocks, type == WeightType::f16 ? 1.0f : 0.01f, random);
        weight = {data.data(), type, rows, cols};
        decoded.resize(size_t{rows} * cols);
        for (uint32_t r = 0; r < rows; ++r)
            decode_row(type, data.data() + r * row_bytes(type, cols),
                       decoded.data() + size_t{r} * cols, cols);
    }
};

// Activations with room for codes.
struct Rows {
    std::vector<float> values;
    std::vector<std::byte> codes;
    Activations view;
    Rows(Kernels& kernels, uint32_t rows, uint32_t cols, Arithmetic arithmetic)
        : values(size_t{rows} * cols), codes(rows * kernels.code_bytes(cols) + 64) {
        void* aligned = codes.data();
        size_t space = codes.size();
        std::align(64, space - 64, aligned, space);
        view = {values.data(),
                arithmetic == Arithmetic::fast ? static_cast<std::byte*>(aligned) : nullptr, rows,
                cols};
    }
    Rows(const Rows&) = delete;
};

// A head times Sylvester's matrices, H(i, j) = (-1)^(bits that i and j share) / sqrt(run), in runs
// of the largest power of two that divides it.
template <class T>
std::vector<double> rotated(const std::vector<T>& head) {
    const auto dim = static_cast<uint32_t>(head.size());
    const uint32_t run = dim & (~dim + 1);
    std::vector<double> out(dim);
    for (uint32_t i = 0; i < dim; ++i)
        for (uint32_t j = 0; j < run; ++j)
            out[i] += (std::popcount(i % run & j) % 2 ? -1.0 : 1.0) *
                      static_cast<double>(head[i / run * run + j]) / std::sqrt(run);
    return out;
}

// Relative L2 distance of `got` from `exact`.
template <class Exact>
double distance(const std::vector<float>& got, const std::vector<Exact>& exact) {
    double difference = 0, norm = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
        const double d = static_cast<double>(got[i]) - static_cast<double>(exact[i]);
        difference += d * d;
        norm += static_cast<double>(exact[i]) * static_cast<double>(exact[i]);
    }
    return std::sqrt(difference / norm);
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Calls the decode attention for tokens at first_cell.. of `kv`.
inline void attend_decode(Kernels& kernels, const AttentionShape& shape, const float* q,
                          uint32_t first_cell, KvView kv, const Activations& out) {
    const DecodePlace place{kv.base, first_cell, 0};
    kv.place = &place;
    kernels.attention_decode(shape, q, kv, out);
}

}  // namespace granary::gpu::test
