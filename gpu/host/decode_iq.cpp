// SPDX-License-Identifier: GPL-3.0-or-later
// The IQ formats: codes that index tables.
#include "gpu/host/decode.h"
#include "gpu/host/half.h"

namespace granary::gpu::host {
namespace {

// The sixteen values of IQ4_NL and IQ4_XS, plus 128.
constexpr uint8_t kNonlinear[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                    129, 141, 153, 166, 181, 197, 217, 241};

void unpack_iq4_nl(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index * 18;
    for (size_t i = 0; i < 16; ++i) {
        const auto byte = static_cast<uint8_t>(block[2 + i]);
        out->code[i] = kNonlinear[byte & 15];
        out->code[16 + i] = kNonlinear[byte >> 4];
    }
    out->scale[0] = out->scale[1] = load_half(block);
}

// A group's 6-bit scale: four low bits in bytes 4-7, two high ones in the 16 bits before them.
void unpack_iq4_xs(const std::byte* row, size_t index, Group* out) {
    const std::byte* block = row + index / 8 * 136;
    const size_t group = index % 8;
    for (size_t i = 0; i < 16; ++i) {
        const auto byte = static_cast<uint8_t>(block[8 + group * 16 + i]);
        out->code[i] = kNonlinear[byte & 15];
        out->code[16 + i] = kNonlinear[byte >> 4];
    }
    const int low = static_cast<int>(block[4 + group / 2]) >> (group % 2 * 4) & 15;
    const int high = load<uint16_t>(block + 2) >> (2 * group) & 3;
    out->scale[0] = out->scale[1] = load_half(block) * static_cast<float>((low | high << 4) - 32);
}

constexpr BlockFormat kIq4Nl{unpack_iq4_nl, 7, false, false, 255};
constexpr BlockFormat kIq4Xs{unpack_iq4_xs, 7, false, false, 255};

}  // namespace

const BlockFormat* iq_format(WeightType type) {
    switch (type) {
        case WeightType::iq4_nl:
            return &kIq4Nl;
        case WeightType::iq4_xs:
            return &kIq4Xs;
        default:
            return nullptr;
    }
}

}  // namespace granary::gpu::host
