// SPDX-License-Identifier: GPL-3.0-or-later
// Cuts the sorted routes of a prompt's chunk into tiles for the expert matmuls. One block; a few
// kilobytes in and out, about 3 us.
#include "gpu/cuda/expert_matmul.h"

namespace granary::gpu::cuda {

// first[experts + 1]: where each expert's routes begin.
extern "C" __global__ void __launch_bounds__(1024)
    expert_tiles(const __grid_constant__ ExpertList list, const int32_t* first, ExpertTile* tiles,
                 int32_t* tile_count) {
    __shared__ uint32_t warp_sum[32];
    __shared__ uint32_t before;
    if (threadIdx.x == 0) before = 0;
    for (uint32_t start = 0; start < list.count; start += blockDim.x) {
        const uint32_t i = start + threadIdx.x;
        const int32_t expert = i < list.count ? list.expert[i] : 0;
        const int32_t begin = i < list.count ? first[expert] : 0;
        const uint32_t routes = i < list.count ? first[expert + 1] - begin : 0;
        const uint32_t count = (routes + kTileRows - 1) / kTileRows;

        // Inclusive sum of `count` over the block.
        const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        uint32_t sum = count;
        for (uint32_t by = 1; by < 32; by *= 2) {
            const uint32_t other = __shfl_up_sync(~0u, sum, by);
            if (lane >= by) sum += other;
        }
        if (lane == 31) warp_sum[warp] = sum;
        __syncthreads();
        if (warp == 0) {
            uint32_t total = warp_sum[lane];
            for (uint32_t by = 1; by < 32; by *= 2) {
                const uint32_t other = __shfl_up_sync(~0u, total, by);
                if (lane >= by) total += other;
            }
            warp_sum[lane] = total;
        }
        __syncthreads();
        const uint32_t place = before + sum - count + (warp ? warp_sum[warp - 1] : 0);
        const uint32_t rows = count ? ((routes + count - 1) / count + 15) / 16 * 16 : 0;
        for (uint32_t j = 0; j < count; ++j)
            tiles[place + j] = {expert, begin + static_cast<int32_t>(j * rows),
                                static_cast<int32_t>(min(rows, routes - j * rows)), 0};
        __syncthreads();
        if (threadIdx.x == 0) before += warp_sum[31];
        __syncthreads();
    }
    if (threadIdx.x == 0) *tile_count = static_cast<int32_t>(before);
}

}  // namespace granary::gpu::cuda
