// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/weight_type.h"

namespace granary::gpu {
namespace {

using enum WeightType;

// Sizes as the format defines them: a block is its scales and its codes, nothing else.
constexpr WeightTypeInfo table[] = {
    {f32, "F32", 1, 4, true},
    {f16, "F16", 1, 2, true},
    {q4_0, "Q4_0", 32, 18, true},
    {q4_1, "Q4_1", 32, 20, true},
    {q5_0, "Q5_0", 32, 22, true},
    {q5_1, "Q5_1", 32, 24, true},
    {q8_0, "Q8_0", 32, 34, true},
    {q2_k, "Q2_K", 256, 84, true},
    {q3_k, "Q3_K", 256, 110, true},
    {q4_k, "Q4_K", 256, 144, true},
    {q5_k, "Q5_K", 256, 176, true},
    {q6_k, "Q6_K", 256, 210, true},
    {iq2_xxs, "IQ2_XXS", 256, 66, true},
    {iq2_xs, "IQ2_XS", 256, 74, true},
    {iq3_xxs, "IQ3_XXS", 256, 98, true},
    {iq1_s, "IQ1_S", 256, 50, true},
    {iq4_nl, "IQ4_NL", 32, 18, true},
    {iq3_s, "IQ3_S", 256, 110, true},
    {iq2_s, "IQ2_S", 256, 82, true},
    {iq4_xs, "IQ4_XS", 256, 136, true},
    {iq1_m, "IQ1_M", 256, 56, true},
    {bf16, "BF16", 1, 2, true},
    {tq1_0, "TQ1_0", 256, 54, false},
    {tq2_0, "TQ2_0", 256, 66, true},
    {mxfp4, "MXFP4", 32, 17, true},
    {nvfp4, "NVFP4", 64, 36, false},
};

}  // namespace

const WeightTypeInfo* weight_type_info(uint32_t number) {
    for (const WeightTypeInfo& info : table) {
        if (static_cast<uint32_t>(info.type) == number) return &info;
    }
    return nullptr;
}

}  // namespace granary::gpu
