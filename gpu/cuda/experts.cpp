// SPDX-License-Identifier: GPL-3.0-or-later
// The routed experts: down(silu(gate x) * up x) for the rows that were sent to each.
#include <algorithm>

#include "gpu/cuda/matmul.h"
#include "gpu/cuda/matmul_types.h"

namespace granary::gpu::cuda {
namespace {

// Whether the routed experts of a row and a shared one share their launches.
bool joins(const ExpertShape& shape, const ExpertShape& other) {
    return shape.hidden % 32 == 0 && shape.ffn % 32 == 0 && shape.ffn == other.ffn &&
           shape.gate == shape.up && other.gate == other.up && is_block_type(shape.gate) &&
           is_block_type(other.gate) && is_block_type(shape.down) && is_block_type(other.down);
}

ExpertSet set_of(std::span<const int32_t> list) {
    ExpertSet set{};
    for (const int32_t expert : list) set.word[expert / 32] |= 1u << expert % 32;
    return set;
}

}  // namespace

void CudaKernels::expert_ffn(const ExpertShape& shape, const ExpertEntry* entries,
                             std::span<const int32_t> list, const Routes& routes,
                             const Activations& x, const Activations& hidden, void* out) {
    if (list.empty() || routes.rows == 0) return;
    expert_out_f32_ = !x.codes;
    if (!x.codes || shape.hidden % 32 != 0 || shape.ffn % 32 != 0) {
        // A decode step's codes are for its own kernels only.
        Activations in = x;
        if (x.decode) in.codes = nullptr;
        experts_plain(shape, entries, list, routes, in, hidden, out);
    } else if (x.decode) {
        experts_decode(shape, entries, list, routes, x, hidden, out);
    } else {
        experts_prompt(shape, entries, list, routes, x, hidden, out);
    }
}

void CudaKernels::expert_ffn_and_shared(const ExpertShape& shape, const ExpertEntry* entries,
                                        std::span<const int32_t> list, const Routes& routes,
                                        const SharedExpert& shared, const Activations& x,
                                        const Activations& hidden, void* out) {
    const bool together = x.decode && x.codes && x.values && routes.rows == 1 && !list.empty() &&
                          joins(shape, shared.shape);
    if (!together)
        return Kernels::expert_ffn_and_shared(shape, entries, list, routes, shared, x, hidden, out);
    expert_out_f32_ = false;
    experts_decode(shape, entries, list, routes, x, hidden, out, &shared);
}

void CudaKernels::norm_and_experts(const float* x, const float* weight, float eps,
                                   const Activations& norm, const DecodeExperts& job) {
    const ExpertShape& shape = job.shape;
    const bool late = job.cache.complete && job.cache.picks && job.routes.rows == 1 &&
                      norm.decode && norm.codes && norm.values &&
                      job.list.size() == shape.experts && job.routing.used == shape.used &&
                      shape.used <= shape.experts &&
                      joins(shape, job.shared ? job.shared->shape : shape);
    if (!late) return Kernels::norm_and_experts(x, weight, eps, norm, job);
    RouteRows rows = decode_rows(job.routing, job.router, norm.values, job.routes);
    rows.finished = nullptr;
    route_decode(rows, {}, {x, weight, eps, norm.codes});
    expert_out_f32_ = false;
    const LateRoutes routes{rows, job.cache.picks};
    experts_decode(shape, job.cache.entries, job.list, job.routes, norm, job.hidden, job.out,
                   job.shared, &routes);
}

// Work: 6 hidden ffn operations a route. Bytes: each route's expert once.
void CudaKernels::experts_decode(const ExpertShape& shape, const ExpertEntry* entries,
                                 std::span<const int32_t> list, const Routes& routes,
                                 const Activations& x, const Activations& hidden, void* out,
                                 const SharedExpert* shared, const LateRoutes* late) {
    const bool same = shape.gate == shape.up && is_block_type(shape.gate);
    const auto bytes_of = [](WeightType type, uint32_t cols) {
        return static_cast<uint32_t>(row_bytes(type, cols));
    };
    ExpertMatvec job{};
    job.entries = entries;
    job.expert = routes.expert;
    job.x = x.codes;
    job.values = x.values;
    job.out = hidden.codes;
    job.x_bytes = code_bytes(shape.hidden);
    job.out_bytes = code_bytes(shape.ffn);
    job.used = shape.used;
    job.all = list.size() == shape.experts;
    job.list = set_of(list);
    if (late) {
        job.choice = late->choice;
        job.picks = late->picks;
    }
    if (shared) {
        job.shared = shared->entry;
        job.gate = shared->gate;
        job.weight = routes.weight + shape.used;
    }
    // per_tile: features of a tile. own: bytes of codes that a block makes for itself. any: takes
    // every type. beside: blocks beside those of the routes where there is a shared one.
    const auto queue_job = [&](Function function, uint32_t per_tile, uint32_t own, bool any,
                               uint32_t beside) {
        const MatvecShape warps = matvec_shape(job.cols, kMatvecThreads / 32);
        const uint32_t routed = routes.rows * shape.used;
        uint32_t tile = chunk_format(job.part[0].type[0]).tile();
        if (shared) tile = std::max(tile, chunk_format(job.part[1].type[0]).tile());
        job.groups = divided(job.features, per_tile * warps.tiles);
        const MatvecPlan plan =
            matvec_plan(warps, job.cols, job.groups * (shared ? routed + 1 : routed), tile,
                        (any ? kMatvecRowsOwn : kMatvecOwn) + own,
                        any ? kMatvecWideThreads : kMatvecThreads * kMatvecBlocks);
        job.launch = {warps, 65536 / warps.split + 1, plan.stages, plan.bytes};
        queue_early(
            function,
            {divided(job.groups, plan.groups), shape.used + (shared ? beside : 0), routes.rows},
            {warps.threads(), 1, 1}, plan.bytes + own, job);
    };
    const auto gate_up_of = [&](const ExpertShape& of) {
        return ExpertPart{{bytes_of(of.gate, of.hidden), bytes_of(of.up, of.hidden)},
                          {of.gate, of.up}};
    };
    const auto down_of = [&](const ExpertShape& of) {
        const uint32_t bytes = bytes_of(of.down, of.ffn);
        return ExpertPart{{bytes, bytes}, {of.down, of.down}};
    };
    job.cols = shape.hidden;
    job.features = shape.ffn;
    job.part[0] = gate_up_of(shape);
    if (shared) job.part[1] = gate_up_of(shared->shape);
    queue_job(late   ? matmuls_.gate_up_late
              : same ? matmuls_.gate_up
                     : matmuls_.gate_up_any,
              kMatvecTile / 2, 0, !same, 2);

    job.x = hidden.codes;
    job.out = static_cast<std::byte*>(out);
    job.x_bytes = code_bytes(shape.ffn);
    job.out_bytes = expert_out_bytes() * shape.hidden;
    job.cols = shape.ffn;
    job.features = shape.hidden;
    job.part[0] = down_of(shape);
    if (shared) job.part[1] = down_of(shared->shape);
    if (is_block_type(shape.down))
        queue_job(late ? matmuls_.down_late : matmuls_.down, kMatvecTile,
                  static_cast<uint32_t>(job.x_bytes), false, 1);
    else
        queue_job(matmuls_.down_any, kMatvecTile, 0, true, 1);
}

// Work: 6 hidden ffn operations a route. Bytes: each routed expert once for 128 routes.
void CudaKernels::experts_prompt(const ExpertShape& shape, const ExpertEntry* entries,
                                 std::span<const int32_t> list, const Routes& routes,
                                 const Activations& x, const Activations& hidden, void* out) {
    const uint32_t count = routes.rows * shape.used;
    const TileScratch at = tile_scratch(shape.experts, shape.used, shape.hidden, routes.rows);
    ExpertList listed{static_cast<uint32_t>(list.size()), {}};
    std::copy(list.begin(), list.end(), listed.expert);
    queue(matmuls_.expert_tiles, {1, 1, 1}, {1024, 1, 1}, 0, listed, routes.first, at.tiles,
          at.count);

    const uint32_t most = static_cast<uint32_t>(
        std::min<size_t>(max_expert_tiles(count, static_cast<uint32_t>(list.size())), count));
    const uint32_t number = shape.gate == shape.up ? fast_type(shape.gate) : 0;
    PromptMatmul launch{};
    launch.tiles = at.tiles;
    launch.tile_count = at.count;
    launch.entries = entries;
    launch.order = routes.order;
    launch.used = shape.used;
    launch.cols = shape.hidden;
    launch.features = shape.ffn;
    launch.type[0] = shape.gate;
    launch.type[1] = shape.up;
    launch.row_bytes[0] = row_bytes(shape.gate, shape.hidden);
    launch.row_bytes[1] = row_bytes(shape.up, shape.hidden);
    launch.x = x.codes;
    launch.x_bytes = code_bytes(shape.hidden);
    launch.out = hidden.codes;
    launch.out_bytes = code_bytes(shape.ffn);
    WgmmaKernel kernel;
    const MatmulFunctions::Int8* int8 = nullptr;
    if (shape.gate == shape.up) {
        kernel = wgmma_kernel(shape.gate, Product::gate_up, shape.hidden, shape.ffn);
        int8 = int8_products(shape.gate);
    }
    const uint32_t gate_up_blocks = std::min(most * divided(shape.ffn, 64), prompt_blocks());
    if (int8) {
        make_int8_rows(x, 0, routes.rows, false, at.codes);
        launch.x = at.codes;
        launch.x_bytes = int8_row_bytes(shape.hidden, false);
        launch.int8_out = int8_products(shape.down) != nullptr;
        queue(int8->gate_up, {gate_up_blocks, 1, 1}, {kInt8Threads, 1, 1}, int8->shared, launch);
    } else if (kernel.function) {
        queue(kernel.function, {wgmma_blocks(), 1, 1}, {kExpertWgmma.threads, 1, 1}, kernel.bytes,
              ExpertMatmul{at.tiles, at.count, entries, routes.order, shape.used, shape.hidden,
                           shape.ffn, x.codes, hidden.codes});
    } else {
        queue(matmuls_.prompt_gate_up[number], {gate_up_blocks, 1, 1}, {kPromptThreads, 1, 1},
              matmuls_.prompt_shared[number], launch);
    }

    const uint32_t down = fast_type(shape.down);
    launch.cols = shape.ffn;
    launch.features = shape.hidden;
    launch.type[0] = shape.down;
    launch.row_bytes[0] = row_bytes(shape.down, shape.ffn);
    launch.x = hidden.codes;
    launch.x_bytes = code_bytes(shape.ffn);
    launch.out = out;
    launch.out_bytes = expert_out_bytes() * shape.hidden;
    launch.half_out = true;
    kernel = wgmma_kernel(shape.down, Product::down, shape.ffn, shape.hidden);
    const uint32_t down_blocks =
        std::min(most * divided(shape.hidden, kPromptRows), prompt_blocks());
    if (launch.int8_out) {
        int8 = int8_products(shape.down);
        queue(int8->down, {down_blocks, 1, 1}, {kInt8Threads, 1, 1}, int8->shared, launch);
    } else if (kernel.function) {
        queue(kernel.function, {wgmma_blocks(), 1, 1}, {kExpertWgmma.threads, 1, 1}, kernel.bytes,
              ExpertMatmul{at.tiles, at.count, entries, routes.order, shape.used, shape.ffn,
                           shape.hidden, hidden.codes, out});
    } else {
        queue(matmuls_.prompt[down], {down_blocks, 1, 1}, {kPromptThreads, 1, 1},
              matmuls_.prompt_shared[down], launch);
    }
}

// Bytes: each route's expert once.
void CudaKernels::experts_plain(const ExpertShape& shape, const ExpertEntry* entries,
                                std::span<const int32_t> list, const Routes& routes,
                                const Activations& x, const Activations& hidden, void* out) {
    const uint32_t count = routes.rows * shape.used;
    const PlainExperts launch{entries,
                              routes.decode ? nullptr : routes.order,
                              routes.expert,
                              {x.values, x.codes, code_bytes(shape.hidden)},
                              {hidden.values, hidden.codes, code_bytes(shape.ffn)},
                              out,
                              row_bytes(shape.gate, shape.hidden),
                              row_bytes(shape.up, shape.hidden),
                              row_bytes(shape.down, shape.ffn),
                              shape.used,
                              shape.hidden,
                              shape.ffn,
                              shape.gate,
                              shape.up,
                              shape.down,
                              set_of(list)};
    queue(matmuls_.plain_gate_up, {count, divided(shape.ffn, 4), 1}, {128, 1, 1}, 0, launch);
    queue(matmuls_.plain_down, {count, divided(shape.hidden, 4), 1}, {128, 1, 1}, 0, launch);
}

}  // namespace granary::gpu::cuda
