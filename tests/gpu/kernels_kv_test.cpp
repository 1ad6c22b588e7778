// SPDX-License-Identifier: GPL-3.0-or-later
// Codes, scales, rotation and places of K/V cells, on every vector target of this machine.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <limits>

#include "gpu/host/kv_codes.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::test {
namespace {

constexpr uint32_t kDims[] = {8, 24, 40, 64, 80, 96, 128, 192, 256};
constexpr KvCodes kCodes[] = {KvCodes::int8, KvCodes::int4};

// f(name) with each vector target in turn.
template <class F>
void on_every_target(F&& f) {
    for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
        hwy::SetSupportedTargetsForTest(left & -left);
        f(hwy::TargetName(left & -left));
    }
    hwy::SetSupportedTargetsForTest(0);
}

// Heads of many kinds: noise of any size, an outlier, zeros, scales that are subnormal or zero,
// equal values, halfway cases.
std::vector<std::vector<float>> heads_of(uint32_t dim, Random& random) {
    std::vector<std::vector<float>> heads;
    for (const float size : {1.0f, 1e-3f, 1e4f, 1e-5f, 3e-7f, 1e-9f, 1e-38f}) {
        heads.push_back(random.values(dim));
        for (float& x : heads.back()) x *= size;
    }
    heads.push_back(random.values(dim));
    heads.back()[dim / 3] = -300;
    heads.emplace_back(dim, 0.0f);
    heads.emplace_back(dim, -0.5f);
    heads.emplace_back(dim, 7 * 127.0f);  // whole scales in both codes
    for (uint32_t j = 1; j < dim; ++j)
        heads.back()[j] = (static_cast<float>(j % 13) - 6.5f) * (j % 2 ? 7 : 127);
    return heads;
}

struct Encoded {
    std::vector<std::byte> codes, scales;
};

// The definition in gpu/kv_format.h, value by value.
Encoded reference(KvCodes kind, const std::vector<float>& x) {
    const int limit = kind == KvCodes::int8 ? 127 : 7;
    const auto dim = static_cast<uint32_t>(x.size());
    Encoded out;
    for (uint32_t first = 0; first < dim; first += kv_group(kind)) {
        const uint32_t count = std::min(kv_group(kind), dim - first);
        float largest = 0;
        for (uint32_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(x[first + i]));
        const uint16_t half = host::float_to_half(largest / static_cast<float>(limit));
        const float scale = host::half_to_float(half);
        std::vector<int> codes(count);
        for (uint32_t i = 0; i < count; ++i)
            if (scale != 0)
                codes[i] = std::clamp(static_cast<int>(std::nearbyint(x[first + i] / scale)),
                                      -limit, limit);
        out.scales.insert(out.scales.end(), {std::byte(half & 255), std::byte(half >> 8)});
        if (kind == KvCodes::int8)
            for (const int code : codes) out.codes.push_back(static_cast<std::byte>(code));
        else
            for (uint32_t i = 0; i < count / 2; ++i)
                out.codes.push_back(
                    static_cast<std::byte>((codes[i] & 15) | (codes[count / 2 + i] & 15) << 4));
    }
    return out;
}

std::vector<float> decoded(KvCodes kind, const Encoded& in, uint32_t dim) {
    std::vector<float> x(dim);
    for (uint32_t j = 0; j < dim; ++j) {
        const uint32_t group = j / kv_group(kind), first = group * kv_group(kind);
        const uint32_t half = std::min(kv_group(kind), dim - first) / 2, i = j - first;
        const float scale = host::load_half(&in.scales[2 * group]);
        int code = 0;
        if (kind == KvCodes::int8) {
            code = static_cast<int8_t>(in.codes[j]);
        } else {
            const int pair = static_cast<int>(in.codes[first / 2 + i % half]);
            const int nibble = i < half ? pair & 15 : pair >> 4;
            code = nibble < 8 ? nibble : nibble - 16;
        }
        x[j] = static_cast<float>(code) * scale;
    }
    return x;
}

TEST(KvCells, TakeTheBytesOfTheFormat) {
    // Per 512 values of K or of V, as heads of 64, 128 and 256.
    for (const uint32_t dim : {64u, 128u, 256u}) {
        for (const auto& [codes, bytes] :
             {std::pair{KvCodes::f16, 1024u}, {KvCodes::int8, 528u}, {KvCodes::int4, 288u}}) {
            const uint32_t heads = 512 / dim;
            EXPECT_EQ(heads * (kv_code_bytes(codes, dim) + kv_scale_bytes(codes, dim)), bytes);
        }
    }
    // Groups never cross a head.
    EXPECT_EQ(kv_scale_bytes(KvCodes::int8, 80), 4u);
    EXPECT_EQ(kv_scale_bytes(KvCodes::int4, 80), 6u);
    EXPECT_EQ(kv_scale_bytes(KvCodes::int4, 24), 2u);
}

TEST(KvCells, PartsFillAStepInOrder) {
    for (const KvFormat format :
         {KvFormat::f16, KvFormat::int8, KvFormat::k8v4, KvFormat::q4, KvFormat::f32}) {
        for (const uint32_t dim : kDims) {
            const KvParts parts = kv_parts(format, 3, dim);
            size_t at = 0;
            for (const KvPart& part : {parts.k, parts.v}) {
                EXPECT_EQ(part.code_offset, at);
                at += part.code_row * kStepCells;
                EXPECT_EQ(part.scale_offset, at);
                at += part.scale_row * kStepCells;
                EXPECT_EQ(part.code_row, 3 * kv_code_bytes(part.codes, dim));
                EXPECT_EQ(part.scale_row, 3 * kv_scale_bytes(part.codes, dim));
            }
            EXPECT_EQ(parts.bytes, at);
            EXPECT_EQ(parts.bytes % 2048, 0u);
        }
    }
}

TEST(KvCodes, AreThoseOfTheDefinition) {
    Random random(1);
    for (const KvCodes kind : kCodes) {
        for (const uint32_t dim : kDims) {
            for (const std::vector<float>& head : heads_of(dim, random)) {
                const Encoded expected = reference(kind, head);
                on_every_target([&](const char* target) {
                    Encoded got{
                        std::vector<std::byte>(expected.codes.size() + 1, std::byte{0xee}),
                        std::vector<std::byte>(expected.scales.size() + 1, std::byte{0xee})};
                    host::encode_head(kind, head.data(), dim, got.codes.data(), got.scales.data());
                    EXPECT_EQ(got.codes.back(), std::byte{0xee}) << "writes past the head";
                    EXPECT_EQ(got.scales.back(), std::byte{0xee}) << "writes past the head";
                    got.codes.pop_back();
                    got.scales.pop_back();
                    ASSERT_EQ(got.codes, expected.codes) << target << " " << dim;
                    ASSERT_EQ(got.scales, expected.scales) << target << " " << dim;
                });
            }
        }
    }
}

TEST(KvCodes, ReadBackAsCodeTimesScale) {
    Random random(2);
    for (const KvCodes kind : kCodes) {
        for (const uint32_t dim : kDims) {
            const auto heads = heads_of(dim, random);
            const size_t code_row = kv_code_bytes(kind, dim) + 12;
            const size_t scale_row = kv_scale_bytes(kind, dim) + 6;
            const auto rows = static_cast<uint32_t>(heads.size());
            std::vector<std::byte> codes(rows * code_row), scales(rows * scale_row);
            std::vector<float> expected;
            const float untouched = 123;
            for (uint32_t row = 0; row < rows; ++row) {
                const Encoded encoded = reference(kind, heads[row]);
                std::copy(encoded.codes.begin(), encoded.codes.end(), &codes[row * code_row]);
                std::copy(encoded.scales.begin(), encoded.scales.end(), &scales[row * scale_row]);
                const std::vector<float> values = decoded(kind, encoded, dim);
                expected.insert(expected.end(), values.begin(), values.end());
                expected.insert(expected.end(), 3, untouched);
            }
            on_every_target([&](const char* target) {
                std::vector<float> got(rows * (dim + 3), untouched);
                host::decode_rows(kind, {codes.data(), scales.data(), code_row, scale_row, rows},
                                  dim, got.data(), dim + 3);
                ASSERT_TRUE(got == expected) << target << " " << dim;
            });
        }
    }
}

// Half a step of the group's scale, and 2^-11 of the largest value for the rounding of the scale
// itself; nothing is finer than half the smallest half float.
TEST(KvCodes, StayWithinHalfAStep) {
    Random random(3);
    for (const KvCodes kind : kCodes) {
        const float limit = kind == KvCodes::int8 ? 127 : 7;
        for (const uint32_t dim : kDims) {
            for (const std::vector<float>& head : heads_of(dim, random)) {
                const std::vector<float> back = decoded(kind, reference(kind, head), dim);
                for (uint32_t j = 0; j < dim; ++j) {
                    const uint32_t first = j / kv_group(kind) * kv_group(kind);
                    float largest = 0;
                    for (uint32_t i = first; i < std::min(dim, first + kv_group(kind)); ++i)
                        largest = std::max(largest, std::abs(head[i]));
                    EXPECT_LE(std::abs(back[j] - head[j]),
                              largest * (0.5f / limit * 1.001f + 0x1p-11f) + limit * 0x1p-25f);
                }
            }
        }
    }
}

TEST(KvCodes, WhatIsNotFiniteStaysSo) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    for (const KvCodes kind : kCodes) {
        for (const float bad : {nan, infinity, -infinity, 3e38f}) {
            on_every_target([&](const char* target) {
                std::vector<float> head(128, 1.0f), back(128);
                head[77] = bad;
                std::vector<std::byte> codes(128), scales(8);
                host::encode_head(kind, head.data(), 128, codes.data(), scales.data());
                host::decode_rows(kind, {codes.data(), scales.data(), 128, 8, 1}, 128, back.data(),
                                  128);
                for (uint32_t j = 0; j < 128; ++j)
                    EXPECT_EQ(std::isfinite(back[j]), j / kv_group(kind) != 77 / kv_group(kind))
                        << target << " " << j;
            });
        }
    }
}

TEST(KvRotation, IsTheHadamardMatrix) {
    Random random(4);
    for (const uint32_t dim : kDims) {
        const std::vector<float> x = random.values(dim);
        const std::vector<double> expected = rotated(x);
        std::vector<float> first;
        on_every_target([&](const char* target) {
            std::vector<float> got = x;
            host::rotate_head(got.data(), dim);
            EXPECT_LT(distance(got, expected), 2e-7) << target << " " << dim;
            if (first.empty()) first = got;
            EXPECT_TRUE(same_bits(got, first)) << target << " " << dim;
            host::rotate_head(got.data(), dim);
            EXPECT_LT(distance(got, x), 3e-7) << target << " " << dim;
        });
    }
}

}  // namespace
}  // namespace granary::gpu::test
