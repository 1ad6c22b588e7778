// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/tile.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "gpu/host/codes.h"

namespace granary::gpu::host {

void unpack_any(const TileWeights& weights, uint32_t first_group, uint32_t groups, Tile* tile) {
    const uint32_t per_group = weights.format->halves ? 2 : 1;
    Group group{};
    for (uint32_t r = 0; r < kTileRows; ++r) {
        const std::byte* row = weights.row + std::min(r, weights.rows - 1) * weights.row_bytes;
        for (uint32_t g = 0; g < groups; ++g) {
            weights.format->unpack(row, first_group + g, &group);
            for (uint32_t quad = 0; quad < kGroup / 4; ++quad)
                std::memcpy(tile->codes[g * 8 + quad][r], group.code + 4 * quad, 4);
            for (uint32_t half = 0; half < per_group; ++half) {
                tile->scale[g * per_group + half][r] = group.scale[half];
                tile->minimum[g * per_group + half][r] = group.minimum[half];
            }
        }
    }
}

namespace {

void dot_portable(const BlockFormat& format, const Tile& tile, uint32_t first_group,
                  uint32_t groups, std::span<const std::byte* const> activations, float* out,
                  size_t stride, uint32_t rows, bool add) {
    const uint32_t parts = format.halves ? 2 : 1, quads = 8 / parts;
    for (size_t i = 0; i < activations.size(); ++i) {
        const auto* in = reinterpret_cast<const CodeGroup*>(activations[i]) + first_group;
        float acc[kTileRows] = {};
        if (add) std::copy_n(out + i * stride, rows, acc);
        for (uint32_t g = 0; g < groups; ++g) {
            for (uint32_t part = 0; part < parts; ++part) {
                int32_t sum[kTileRows] = {};
                const int8_t* code = in[g].code + part * 16;
                const auto* weight = &tile.codes[g * 8 + part * quads];
                for (uint32_t quad = 0; quad < quads; ++quad)
                    for (uint32_t r = 0; r < kTileRows; ++r)
                        for (uint32_t k = 0; k < 4; ++k)
                            sum[r] += weight[quad][r][k] * code[quad * 4 + k];
                int32_t negative = in[g].negative[part];
                if (parts == 1) negative += in[g].negative[1];
                const float* scale = tile.scale[g * parts + part];
                const float* minimum = tile.minimum[g * parts + part];
                if (format.has_minimum) {
                    const float total =
                        parts == 1 ? in[g].sum : in[g].scale * static_cast<float>(-negative);
                    for (uint32_t r = 0; r < kTileRows; ++r) {
                        acc[r] += scale[r] * in[g].scale * static_cast<float>(sum[r]);
                        acc[r] -= minimum[r] * total;
                    }
                } else {
                    const int32_t correction = negative * (1 << format.offset_bits);
                    for (uint32_t r = 0; r < kTileRows; ++r)
                        acc[r] += scale[r] * in[g].scale * static_cast<float>(sum[r] + correction);
                }
            }
        }
        std::copy_n(acc, rows, out + i * stride);
    }
}

std::vector<const TileKernels*> supported() {
    std::vector<const TileKernels*> list;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        list.push_back(&kTileAvx512);
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("f16c");
    if (avx2 && __builtin_cpu_supports("avxvnni")) list.push_back(&kTileAvxVnni);
    if (avx2) list.push_back(&kTileAvx2);
#endif
    list.push_back(&kTilePortable);
    return list;
}

}  // namespace

const TileKernels kTilePortable{"portable", unpack_any, dot_portable};

std::span<const TileKernels* const> tile_kernels() {
    static const std::vector<const TileKernels*> list = supported();
    return list;
}

}  // namespace granary::gpu::host
