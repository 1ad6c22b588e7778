// SPDX-License-Identifier: GPL-3.0-or-later
// The 8-bit product with AVX2 and FMA: vpmaddubsw adds pairs in 16 bits, which codes up to 127
// cannot overflow; larger ones are multiplied as signed numbers, |w| <= 128 times +-127.
// Compiled with its own flags; nothing here may be called without them.
#include "gpu/host/tile_256.h"

namespace granary::gpu::host {
namespace {

struct Avx2Products {
    static constexpr bool kSigned = true;
    static __m256i dot4(__m256i sum, __m256i weights, __m256i codes) {
        const __m256i pairs = _mm256_maddubs_epi16(weights, codes);
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
};

}  // namespace

const TileKernels kTileAvx2{"AVX2", unpack_tile<Isa>, dot<Avx2Products>};

}  // namespace granary::gpu::host
