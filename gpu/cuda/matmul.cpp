// SPDX-License-Identifier: GPL-3.0-or-later
// Dense matrices: which kernel multiplies which rows by which weights.
#include "gpu/cuda/matmul.h"

#include <algorithm>
#include <string>

#include "gpu/cuda/matmul_dense.h"
#include "gpu/cuda/matmul_types.h"

namespace granary::gpu::cuda {

Result<void> CudaKernels::load_matmuls() {
    MatmulFunctions& to = matmuls_;
    if (auto r = find("matmul_plain", {{"matmul_plain", &to.plain},
                                       {"experts_plain_gate_up", &to.plain_gate_up},
                                       {"experts_plain_down", &to.plain_down}});
        !r)
        return r;
    if (auto r = find("expert_tiles", {{"expert_tiles", &to.expert_tiles}}); !r) return r;
    if (auto r = find("matmul_widen", {{"matmul_widen", &to.widen}}); !r) return r;
    if (auto r = find_wgmma("matmul_dense_wgmma", {{"matmul_dense_wgmma", &to.dense_wgmma}}); !r)
        return r;
    if (auto r = find_wgmma("expert_matmul_wgmma",
                            {{"expert_gate_up_wgmma_q4_k", &to.wgmma_q4_k.gate_up},
                             {"expert_down_wgmma_q4_k", &to.wgmma_q4_k.down},
                             {"expert_down_wgmma_q6_k", &to.wgmma_q6_k.down}});
        !r)
        return r;
    if (auto r = find("matvec", {{"matvec", &to.fast.matvec},
                                 {"expert_matvec_gate_up", &to.fast.gate_up},
                                 {"expert_matvec_down", &to.fast.down},
                                 {"matvec_any", &to.any.matvec},
                                 {"expert_matvec_gate_up_any", &to.any.gate_up},
                                 {"expert_matvec_down_any", &to.any.down}});
        !r)
        return r;
    const Driver& driver = device_.context().driver();
    const auto allow = [&](Function function, size_t bytes) -> Result<void> {
        const Status status = function ? driver.allow_shared_memory(function, bytes) : 0;
        if (status == 0) return {};
        return tl::unexpected(driver.error(status, "cuFuncSetAttribute",
                                           "A kernel needs more shared memory than there is",
                                           format_bytes(bytes)));
    };
    const auto attribute = [&](int number) {
        int value = 0;
        const Status status = driver.device_attribute(&value, number, device_.context().device());
        return status == 0 ? static_cast<uint32_t>(value) : 0;
    };
    constexpr uint32_t kOwn = 9 << 10;  // of the kernels beside it
    to.shared_per_processor = attribute(kSharedPerProcessor);
    to.shared_per_block =
        std::min(kMatvecShared, std::max(attribute(kSharedPerBlock), 48u << 10) - kOwn);
    for (const Function function : {to.fast.matvec, to.fast.gate_up, to.fast.down})
        if (auto r = allow(function, to.shared_per_block); !r) return r;
    if (auto r = allow(to.dense_wgmma, kDenseShared); !r) return r;
    for (const auto& [kernels, bytes] : {std::pair{&to.wgmma_q4_k, kExpertWgmma.shared_q4_k},
                                         std::pair{&to.wgmma_q6_k, kExpertWgmma.shared_q6_k}})
        for (const Function function : {kernels->gate_up, kernels->down})
            if (auto r = allow(function, bytes); !r) return r;
    for (uint32_t i = 0; i < kPromptTypes; ++i) {
        const std::string name(kFastTypes[i].name);
        if (auto r = find("matmul_prompt",
                          {{("prompt_matmul_" + name).c_str(), &to.prompt[i]},
                           {("prompt_gate_up_" + name).c_str(), &to.prompt_gate_up[i]}});
            !r)
            return r;
        const size_t bytes = prompt_format(kFastTypes[i].type).shared();
        for (const Function function : {to.prompt[i], to.prompt_gate_up[i]})
            if (auto r = allow(function, bytes); !r) return r;
    }
    return {};
}

// As many as run at once: each walks over tiles.
uint32_t CudaKernels::prompt_blocks() const {
    return static_cast<uint32_t>(device_.facts().processors) * kPromptBlocks;
}

uint32_t CudaKernels::wgmma_blocks() const {
    return static_cast<uint32_t>(device_.facts().processors) * kExpertWgmma.blocks;
}

CudaKernels::WgmmaKernel CudaKernels::wgmma_kernel(WeightType type, Product product, uint32_t cols,
                                                   uint32_t features) const {
    if (cols % 256 != 0 || features % 32 != 0) return {};
    const bool four = type == WeightType::q4_k;
    if (!four && type != WeightType::q6_k) return {};
    const auto& kernels = four ? matmuls_.wgmma_q4_k : matmuls_.wgmma_q6_k;
    return {product == Product::gate_up ? kernels.gate_up : kernels.down,
            four ? kExpertWgmma.shared_q4_k : kExpertWgmma.shared_q6_k};
}

// Their number, and the tiles of max_expert_tiles.
CudaKernels::PromptBytes CudaKernels::prompt_tile_bytes(uint32_t experts, uint32_t used) {
    return {64 + sizeof(ExpertTile) * experts,
            (used * sizeof(ExpertTile) + kTileRows - 1) / kTileRows};
}
CudaKernels::TileScratch CudaKernels::tile_scratch(uint32_t experts, uint32_t used,
                                                   uint32_t rows) const {
    const PromptBytes needed = prompt_tile_bytes(experts, used);
    std::byte* const at = prompt_scratch_.require(needed.constant + rows * needed.per_row);
    return {reinterpret_cast<int32_t*>(at), reinterpret_cast<ExpertTile*>(at + 64)};
}

void CudaKernels::matmul(std::span<const Matmul> jobs, const Activations& in) {
    if (in.codes && in.cols % 32 == 0) {
        if (in.decode) return matmul_decode(jobs, in);
        if (matmuls_.dense_wgmma) return matmul_dense(jobs, in);
        for (const Matmul& job : jobs) matmul_prompt(job, in);
    } else {
        for (const Matmul& job : jobs) matmul_plain(job, in);
    }
}

// Work: 2 rows cols operations an activation row. Bytes: the weights once.
void CudaKernels::matmul_decode(std::span<const Matmul> jobs, const Activations& in) {
    // One launch for all jobs of fast types, one for all others.
    for (const bool fast : {true, false}) {
        Matvec launch{{}, 0, in.cols, in.rows, in.codes, code_bytes(in.cols), {}};
        const MatvecShape shape = matvec_shape(in.cols);
        const auto groups_of = [&](const MatvecJob& job) {
            return divided(job.features, kMatvecTile * shape.tiles);
        };
        const auto queue_jobs = [&] {
            if (launch.jobs == 0) return;
            const std::span<MatvecJob> all(launch.job, launch.jobs);
            uint32_t groups = 0, bytes = 0, blocks = 0;
            for (const MatvecJob& job : all) {
                groups += groups_of(job);
                bytes = std::max(bytes, chunk_format(job.type).tile());
            }
            const MatvecPlan plan = matvec_plan(in.cols, groups, bytes);
            for (MatvecJob& job : all) {
                job.first_block = blocks;
                job.blocks = divided(groups_of(job), plan.groups);
                blocks += job.blocks;
            }
            launch.launch = {shape, plan.stages};
            queue_early(fast ? matmuls_.fast.matvec : matmuls_.any.matvec, {blocks, 1, 1},
                        {shape.threads(), 1, 1}, plan.bytes, launch);
            launch.jobs = 0;
        };
        for (const Matmul& job : jobs) {
            const Weight& weight = job.weight;
            if ((fast_type(weight.type) > 0) != fast) continue;
            launch.job[launch.jobs++] = {weight.data, job.out, row_bytes(weight.type, weight.cols),
                                         weight.rows, 0,       0,
                                         weight.type, job.add};
            if (launch.jobs == kMatvecJobs) queue_jobs();
        }
        queue_jobs();
    }
}

// All blocks run at once. Where that leaves a warp one chunk it needs one stage.
CudaKernels::MatvecPlan CudaKernels::matvec_plan(uint32_t cols, uint32_t groups,
                                                 uint32_t chunk_bytes) const {
    constexpr uint32_t kOwn = 9 << 10;  // what a block has beside its stages
    const MatvecShape shape = matvec_shape(cols);
    const auto processors = static_cast<uint32_t>(device_.facts().processors);
    const uint32_t stage = shape.split * shape.tiles * chunk_bytes;
    const auto at_once = [&](uint32_t stages) {
        const uint32_t fit = matmuls_.shared_per_processor / (stages * stage + kOwn);
        return processors * std::clamp(fit, 1u, kMatvecBlocks * kMatvecThreads / shape.threads());
    };
    const bool single = divided(cols, 256) <= shape.split && groups <= at_once(1);
    if (single) return {1, 1, stage};
    const uint32_t stages = 2 * stage <= matmuls_.shared_per_block ? 2 : 1;
    return {divided(groups, at_once(stages)), stages, stages * stage};
}

// Work: 2 rows cols operations an activation row. Bytes: the weights as they are once, 2 a weight
// written, then from L2 once for 128 rows; the results. As many weights at a time as the scratch
// holds widened, all jobs in one launch if they fit.
void CudaKernels::matmul_dense(std::span<const Matmul> jobs, const Activations& in) {
    DenseMatmul launch{};
    launch.rows = in.rows;
    launch.cols = in.cols;
    const size_t tile_bytes = size_t{launch.steps()} * kDenseStepBytes;
    launch.wide = prompt_scratch_.require(tile_bytes);
    const auto most = static_cast<uint32_t>(prompt_scratch_.bytes / tile_bytes);
    const TensorMap rows = rows_map(in);
    const auto queue_tiles = [&] {
        if (launch.jobs == 0) return;
        queue(matmuls_.widen,
              {divided(in.cols, 256), launch.tiles * (kDenseFeatures / kDenseWidenRows), 1},
              {kDenseWidenThreads, 1, 1}, 0, launch);
        const uint32_t tiles = divided(in.rows, kDenseRows) * launch.tiles;
        queue(matmuls_.dense_wgmma,
              {std::min(tiles, static_cast<uint32_t>(device_.facts().processors)), 1, 1},
              {kDenseThreads, 1, 1}, kDenseShared, launch, rows);
        launch.jobs = launch.tiles = 0;
    };
    for (const Matmul& job : jobs) {
        const Weight& weight = job.weight;
        const size_t bytes = row_bytes(weight.type, weight.cols);
        for (uint32_t feature = 0; feature < weight.rows;) {
            if (launch.jobs == kDenseJobs || launch.tiles == most) queue_tiles();
            const uint32_t left = weight.rows - feature;
            const uint32_t tiles = std::min(divided(left, kDenseFeatures), most - launch.tiles);
            const uint32_t take = std::min(left, tiles * kDenseFeatures);
            launch.job[launch.jobs++] = {weight.data + feature * bytes,
                                         job.out + feature,
                                         bytes,
                                         weight.rows,
                                         take,
                                         launch.tiles,
                                         weight.type,
                                         job.add};
            launch.tiles += tiles;
            feature += take;
        }
    }
    queue_tiles();
}

// The tensor copy engine's description of activations.
TensorMap CudaKernels::rows_map(const Activations& in) {
    TensorMap map{};
    const uint64_t sizes[] = {in.cols, in.rows}, strides[] = {code_bytes(in.cols)};
    const uint32_t box[] = {kDenseCols, kDenseRows}, steps[] = {1, 1};
    constexpr int kFloat16 = 6, kSwizzle128 = 3, kPromote256 = 3;
    const Driver& driver = device_.context().driver();
    device_.note(driver.tensor_map_encode(&map, kFloat16, 2, in.codes, sizes, strides, box, steps,
                                          0, kSwizzle128, kPromote256, 0),
                 driver.tensor_map_encode.name());
    return map;
}

// Work: 2 rows cols operations an activation row. Bytes: the weights once for 128 rows, from L2.
void CudaKernels::matmul_prompt(const Matmul& job, const Activations& in) {
    const Weight& weight = job.weight;
    const uint32_t number = fast_type(weight.type);
    const uint32_t tiles = divided(in.rows, kTileRows) * divided(weight.rows, 128);
    const size_t bytes = row_bytes(weight.type, weight.cols);
    const PromptMatmul launch{nullptr,
                              nullptr,
                              nullptr,
                              nullptr,
                              weight.data,
                              in.rows,
                              1,
                              weight.cols,
                              weight.rows,
                              {weight.type, weight.type},
                              {bytes, bytes},
                              in.codes,
                              code_bytes(in.cols),
                              job.out,
                              sizeof(float) * weight.rows,
                              false,
                              job.add};
    queue(matmuls_.prompt[number], {std::min(tiles, prompt_blocks()), 1, 1}, {kPromptThreads, 1, 1},
          prompt_format(kFastTypes[number].type).shared(), launch);
}

// Bytes: the weights once a row.
void CudaKernels::matmul_plain(const Matmul& job, const Activations& in) {
    const Weight& weight = job.weight;
    const PlainMatmul launch{weight.data,
                             row_bytes(weight.type, weight.cols),
                             {in.values, in.codes, code_bytes(in.cols)},
                             job.out,
                             weight.cols,
                             weight.rows,
                             weight.type,
                             job.add};
    queue(matmuls_.plain, {in.rows, divided(weight.rows, 4), 1}, {128, 1, 1}, 0, launch);
}

}  // namespace granary::gpu::cuda
