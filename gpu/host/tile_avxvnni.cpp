// SPDX-License-Identifier: GPL-3.0-or-later
// The 8-bit product with AVX-VNNI, which desktop processors have that lack AVX-512: one instruction
// for the three of AVX2, with 32-bit sums.
// Compiled with its own flags; nothing here may be called without them.
#include "gpu/host/tile_256.h"

namespace granary::gpu::host {
namespace {

struct VnniProducts {
    static constexpr bool kSigned = false;
    static __m256i dot4(__m256i sum, __m256i weights, __m256i codes) {
        return _mm256_dpbusd_avx_epi32(sum, weights, codes);
    }
};

}  // namespace

const TileKernels kTileAvxVnni{"AVX-VNNI", unpack_tile<Isa>, dot<VnniProducts>};

}  // namespace granary::gpu::host
