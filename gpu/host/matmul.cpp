// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>

#include "gpu/host/codes.h"
#include "gpu/host/host_kernels.h"
#include "gpu/host/linear.h"

namespace granary::gpu::host {

// Work: 2 rows cols operations an activation row. Bytes: the weights once per kBlockRows rows.
// A task is a few tiles of one job; all activation rows pass through a tile while it is unpacked.
void HostKernels::matmul(std::span<const Matmul> jobs, const Activations& in) {
    size_t tiles = 0;
    for (const Matmul& job : jobs) tiles += (job.weight.rows + kTileRows - 1) / kTileRows;
    // Four claims a worker even out what threads and row formats differ in; a claim's tiles follow
    // each other in memory, so that each fetches the next ahead.
    const size_t claim = std::max<size_t>(1, tiles / (4 * pool_.threads()));
    const size_t bytes = in.codes ? code_bytes(in.cols) : 0;

    pool_.run([&](unsigned worker) {
        Workspace& work = workspace(worker);
        const auto fill = [&](uint32_t from, uint32_t count) {
            for (uint32_t i = 0; i < count; ++i) {
                work.values[i] = in.values + size_t{from + i} * in.cols;
                if (in.codes) work.codes[i] = in.codes + (from + i) * bytes;
            }
        };
        if (in.rows <= kBlockRows) fill(0, in.rows);
        for (size_t begin; (begin = pool_.next() * claim) < tiles;) {
            const size_t end = std::min(begin + claim, tiles);
            size_t first_tile = 0;
            for (const Matmul& job : jobs) {
                const size_t job_tiles = (job.weight.rows + kTileRows - 1) / kTileRows;
                const size_t from = std::max(begin, first_tile);
                const size_t to = std::min(end, first_tile + job_tiles);
                for (size_t tile = from; tile < to; ++tile) {
                    const auto row = static_cast<uint32_t>(tile - first_tile) * kTileRows;
                    const uint32_t rows = std::min(job.weight.rows - row, kTileRows);
                    for (uint32_t i = 0; i < in.rows; i += kBlockRows) {
                        const uint32_t count = std::min(in.rows - i, kBlockRows);
                        if (in.rows > kBlockRows) fill(i, count);
                        const InputRows block{{work.values, count},
                                              {work.codes, in.codes ? count : 0},
                                              in.cols,
                                              true};
                        multiply(tiles_, job.weight, row, rows, block,
                                 job.out + size_t{i} * job.weight.rows + row, job.weight.rows,
                                 job.add, work);
                    }
                }
                first_tile += job_tiles;
            }
        }
    });
}

}  // namespace granary::gpu::host
