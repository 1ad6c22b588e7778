// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/host_kernels.h"

namespace granary::gpu::host {

// Bytes: one encoded row read, 4 written a value; the decoding takes longer than either.
void HostKernels::embed(const Weight& table, const int32_t* tokens, uint32_t n, float* x) {
    const size_t bytes = row_bytes(table.type, table.cols);
    for_rows(n, table.cols, [&](uint32_t i) {
        decode_row(table.type, table.data + static_cast<size_t>(tokens[i]) * bytes,
                   x + size_t{i} * table.cols, table.cols);
    });
}

}  // namespace granary::gpu::host
