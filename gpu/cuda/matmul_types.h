// SPDX-License-Identifier: GPL-3.0-or-later
// The weight types with code of their own in the matrix kernels; number 0 is the code for any type.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpu/cuda/kernels.h"

namespace granary::gpu::cuda {

struct FastType {
    WeightType type;
    std::string_view name;  // of its prompt kernels
};
inline constexpr FastType kFastTypes[] = {
    {WeightType::f32, "any"},       {WeightType::q4_k, "q4_k"},   {WeightType::q5_k, "q5_k"},
    {WeightType::q6_k, "q6_k"},     {WeightType::q8_0, "q8_0"},   {WeightType::q5_0, "q5_0"},
    {WeightType::q5_1, "q5_1"},     {WeightType::q4_0, "q4_0"},   {WeightType::iq4_xs, "iq4_xs"},
    {WeightType::iq4_nl, "iq4_nl"}, {WeightType::mxfp4, "mxfp4"}, {WeightType::f16, "f16"},
    {WeightType::bf16, "bf16"}};
constexpr uint32_t fast_type(WeightType type) {
    for (uint32_t i = 1; i < std::size(kFastTypes); ++i)
        if (kFastTypes[i].type == type) return i;
    return 0;
}

// Those with 8-bit products for prompts.
inline constexpr FastType kInt8ProductTypes[] = {
    {WeightType::q4_k, "q4_k"}, {WeightType::q6_k, "q6_k"}, {WeightType::q8_0, "q8_0"}};

constexpr uint32_t divided(size_t count, size_t by) {  // upwards
    return static_cast<uint32_t>((count + by - 1) / by);
}

}  // namespace granary::gpu::cuda
