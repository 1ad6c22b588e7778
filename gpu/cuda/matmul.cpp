// SPDX-License-Identifier: GPL-3.0-or-later
// Dense matrices: which kernel multiplies which rows by which weights.
#include "gpu/cuda/matmul.h"

#include <algorithm>
#include <string>

#include "gpu/cuda/matmul_dense.h"
#include "gpu/cuda/matmul_types.h"

namespace granary::gpu::cuda {
namespace {

// Whether a card of this compute capability multiplies f16 with f32 sums at half the rate that its
// tensor cores have with f16 sums, as GeForce cards do (NVIDIA's papers on Turing, GA102, Ada and
// GB202). 8-bit products have four times that rate then.
constexpr bool halves_f32_sums(int capability) {
    return capability == 75 || capability == 86 || capability == 89 || capability == 120;
}

PromptMatmul dense_job(const Matmul& job, uint32_t rows, const std::byte* x, size_t x_bytes) {
    const Weight& weight = job.weight;
    const size_t bytes = row_bytes(weight.type, weight.cols);
    PromptMatmul launch{};
    launch.weight = weight.data;
    launch.rows = rows;
    launch.used = 1;
    launch.cols = weight.cols;
    launch.features = weight.rows;
    launch.type[0] = launch.type[1] = weight.type;
    launch.row_bytes[0] = launch.row_bytes[1] = bytes;
    launch.x = x;
    launch.x_bytes = x_bytes;
    launch.out = job.out;
    launch.out_bytes = sizeof(float) * weight.rows;
    launch.add = job.add;
    return launch;
}

// What becomes of the product, where it is one of those that a delta net takes in.
void lead_to_delta_net(const DeltaInputs& inputs, MatvecJob& job) {
    if (job.out == inputs.x) {
        job.after = MatvecAfter::convolve;
        job.out = inputs.convolved;
        job.by[0] = inputs.kernel;
        job.tail = inputs.tail;
    } else if (job.out == inputs.alpha) {
        job.after = MatvecAfter::decay;
        job.by[0] = inputs.dt;
        job.by[1] = inputs.a;
    } else if (job.out == inputs.beta) {
        job.after = MatvecAfter::rate;
    }
}

// Types of experts with wgmma kernels of their own.
struct WgmmaType {
    WeightType type;
    const char* name;  // of its kernels
    uint32_t shared;   // bytes
};
constexpr WgmmaType kWgmma[] = {{WeightType::q4_k, "q4_k", kExpertWgmma.shared_q4_k},
                                {WeightType::q5_k, "q5_k", kExpertWgmma.shared_q5_k},
                                {WeightType::q6_k, "q6_k", kExpertWgmma.shared_q6_k},
                                {WeightType::q8_0, "q8_0", kExpertWgmma.shared_q8_0}};

}  // namespace

Result<void> CudaKernels::load_matmuls() {
    MatmulFunctions& to = matmuls_;
    const int capability = device_.facts().capability;
    const bool before_80 = capability < 80;
    if (auto r = find("matmul_plain", {{"matmul_plain", &to.plain},
                                       {"experts_plain_gate_up", &to.plain_gate_up},
                                       {"experts_plain_down", &to.plain_down}});
        !r)
        return r;
    if (auto r = find("expert_tiles", {{"expert_tiles", &to.expert_tiles}}); !r) return r;
    if (auto r = find("matmul_widen", {{"matmul_widen", &to.widen}}); !r) return r;
    if (products_ == CudaProducts::fastest) {
        if (auto r = find_wgmma("matmul_dense_wgmma", {{"matmul_dense_wgmma", &to.dense_wgmma}});
            !r)
            return r;
        for (uint32_t i = 0; i < kWgmmaTypes; ++i) {
            const std::string name = kWgmma[i].name;
            if (auto r =
                    find_wgmma("expert_matmul_wgmma",
                               {{("expert_gate_up_wgmma_" + name).c_str(), &to.wgmma[i].gate_up},
                                {("expert_down_wgmma_" + name).c_str(), &to.wgmma[i].down}});
                !r)
                return r;
        }
    }
    if (auto r = find("matvec", {{"matvec", &to.matvec},
                                 {"matvec_wide", &to.matvec_wide},
                                 {"matvec_rows", &to.matvec_rows},
                                 {"matvec_any", &to.matvec_any}});
        !r)
        return r;
    if (auto r = find("expert_matvec", {{"expert_matvec_gate_up", &to.gate_up},
                                        {"expert_matvec_gate_up_late", &to.gate_up_late},
                                        {"expert_matvec_gate_up_any", &to.gate_up_any},
                                        {"expert_matvec_down", &to.down},
                                        {"expert_matvec_down_late", &to.down_late},
                                        {"expert_matvec_down_any", &to.down_any}});
        !r)
        return r;
    to.shared_per_processor = attribute(kSharedPerProcessor);
    const uint32_t shared_per_block = before_80 ? 64u << 10 : attribute(kSharedPerBlock);
    to.shared_per_block =
        std::min(kMatvecShared, std::max(shared_per_block, 48u << 10) - kMatvecRowsOwn);
    uint32_t tile = 0;
    for (const FastType& type : kFastTypes) tile = std::max(tile, chunk_format(type.type).tile());
    to.split = kMatvecSplit * tile <= to.shared_per_block ? kMatvecSplit : kMatvecThreads / 32;
    for (const Function function : {to.matvec, to.matvec_wide, to.matvec_rows, to.gate_up, to.down,
                                    to.gate_up_late, to.down_late})
        if (auto r = allow_shared(function, to.shared_per_block); !r) return r;
    if (auto r = allow_shared(to.dense_wgmma, kDenseShared); !r) return r;
    for (uint32_t i = 0; i < kWgmmaTypes; ++i)
        for (const Function function : {to.wgmma[i].gate_up, to.wgmma[i].down})
            if (auto r = allow_shared(function, kWgmma[i].shared); !r) return r;
    for (uint32_t i = 0; i < kPromptTypes; ++i) {
        const std::string name(kFastTypes[i].name);
        if (auto r = find("matmul_prompt",
                          {{("prompt_matmul_" + name).c_str(), &to.prompt[i]},
                           {("prompt_gate_up_" + name).c_str(), &to.prompt_gate_up[i]}});
            !r)
            return r;
        to.prompt_shared[i] = prompt_format(kFastTypes[i].type).shared(before_80);
        for (const Function function : {to.prompt[i], to.prompt_gate_up[i]})
            if (auto r = allow_shared(function, to.prompt_shared[i]); !r) return r;
    }
    if (products_ == CudaProducts::f16 ||
        (products_ == CudaProducts::fastest && !halves_f32_sums(capability)))
        return {};
    if (auto r = find("matmul_prompt_int8", {{"prompt_int8_rows", &to.int8_rows}}); !r) return r;
    static_assert(std::size(kInt8ProductTypes) == kInt8Types);
    for (uint32_t i = 0; i < kInt8Types; ++i) {
        MatmulFunctions::Int8& kernels = to.int8[i];
        const std::string name(kInt8ProductTypes[i].name);
        if (auto r =
                find("matmul_prompt_int8", {{("int8_gate_up_" + name).c_str(), &kernels.gate_up},
                                            {("int8_down_" + name).c_str(), &kernels.down}});
            !r)
            return r;
        if (products_ == CudaProducts::int8)
            if (auto r =
                    find("matmul_prompt_int8", {{("int8_dense_" + name).c_str(), &kernels.dense}});
                !r)
                return r;
        kernels.shared = int8_format(kInt8ProductTypes[i].type).shared(before_80);
        for (const Function function : {kernels.dense, kernels.gate_up, kernels.down})
            if (auto r = allow_shared(function, kernels.shared); !r) return r;
    }
    return {};
}

const CudaKernels::MatmulFunctions::Int8* CudaKernels::int8_products(WeightType type) const {
    if (!matmuls_.int8_rows) return nullptr;
    for (uint32_t i = 0; i < kInt8Types; ++i)
        if (kInt8ProductTypes[i].type == type) return &matmuls_.int8[i];
    return nullptr;
}

// Bytes: 2 read, 1.25 (fine 2.25) written a value.
void CudaKernels::make_int8_rows(const Activations& in, uint32_t first, uint32_t rows, bool fine,
                                 std::byte* to) {
    const size_t bytes = code_bytes(in.cols);
    queue(matmuls_.int8_rows, {divided(size_t{rows} * (in.cols / 32), kInt8Threads), 1, 1},
          {kInt8Threads, 1, 1}, 0,
          Int8Rows{in.codes + first * bytes, to, bytes, int8_row_bytes(in.cols, fine), rows,
                   in.cols, fine});
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
    if (cols % 256 != 0 || cols < 512 || features % 32 != 0) return {};
    for (uint32_t i = 0; i < kWgmmaTypes; ++i) {
        if (kWgmma[i].type != type) continue;
        const auto& kernels = matmuls_.wgmma[i];
        return {product == Product::gate_up ? kernels.gate_up : kernels.down, kWgmma[i].shared};
    }
    return {};
}

// Their number, the tiles of max_expert_tiles, and the tokens' 8-bit codes.
CudaKernels::PromptBytes CudaKernels::prompt_tile_bytes(uint32_t experts, uint32_t used,
                                                        uint32_t hidden) const {
    return {64 + sizeof(ExpertTile) * experts,
            (used * sizeof(ExpertTile) + kTileRows - 1) / kTileRows +
                (matmuls_.int8_rows ? int8_row_bytes(hidden, false) : 0)};
}
CudaKernels::TileScratch CudaKernels::tile_scratch(uint32_t experts, uint32_t used, uint32_t hidden,
                                                   uint32_t rows) const {
    const PromptBytes needed = prompt_tile_bytes(experts, used, hidden);
    const size_t codes = matmuls_.int8_rows ? size_t{rows} * int8_row_bytes(hidden, false) : 0;
    const size_t bytes = needed.constant + rows * needed.per_row;
    std::byte* const at = prompt_scratch_.require(bytes);
    // A row's codes are whole multiples of 16 bytes.
    return {reinterpret_cast<int32_t*>(at + codes), reinterpret_cast<ExpertTile*>(at + codes + 64),
            at};
}

void CudaKernels::matmul(std::span<const Matmul> jobs, const Activations& in) {
    if (in.codes && in.cols % 32 == 0) {
        if (in.decode) return matmul_decode(jobs, in);
        if (matmuls_.dense_wgmma) return matmul_dense(jobs, in);
        matmul_int8(jobs, in);
        for (const Matmul& job : jobs)
            if (!int8_dense(job.weight.type)) matmul_prompt(job, in);
    } else {
        // A decode step's codes are for the kernels above only.
        Activations values = in;
        if (in.decode) values.codes = nullptr;
        for (const Matmul& job : jobs) matmul_plain(job, values);
    }
}

// One row's are done by the threads that end the products.
void CudaKernels::matmul_gates_and_conv(std::span<const Matmul> jobs, const Activations& in,
                                        const DeltaShape& shape, const DeltaInputs& to) {
    const auto is_fast = [&](const Matmul& job) {
        const bool is_input = job.out == to.x || job.out == to.alpha || job.out == to.beta;
        return !is_input || is_block_type(job.weight.type);
    };
    if (in.decode && in.codes && in.cols % 32 == 0 && in.rows == 1 && shape.taps == kDeltaTaps &&
        aligned_16(to.kernel) && std::all_of(jobs.begin(), jobs.end(), is_fast))
        matmul_decode(jobs, in, &to);
    else
        Kernels::matmul_gates_and_conv(jobs, in, shape, to);
}

// Work: 2 rows cols operations an activation row. Bytes: the weights once.
void CudaKernels::matmul_decode(std::span<const Matmul> jobs, const Activations& in,
                                const DeltaInputs* inputs) {
    // One launch for all jobs of block types, one for all others.
    const MatvecShape shape = matvec_shape(in.cols, matmuls_.split);
    const bool small = shape.threads() <= kMatvecThreads && in.rows == 1;
    for (const bool blocks_of_weights : {true, false}) {
        Matvec launch{};
        launch.cols = in.cols;
        launch.rows = in.rows;
        launch.x = in.codes;
        launch.x_bytes = static_cast<uint32_t>(code_bytes(in.cols));
        launch.values = in.values;
        const Function function = !blocks_of_weights ? matmuls_.matvec_any
                                  : in.rows > 1      ? matmuls_.matvec_rows
                                  : small            ? matmuls_.matvec
                                                     : matmuls_.matvec_wide;
        const auto queue_jobs = [&] {
            if (launch.jobs == 0) return;
            const std::span<MatvecJob> all(launch.job, launch.jobs);
            uint32_t groups = 0, bytes = 0, blocks = 0;
            for (const MatvecJob& job : all) {
                groups += job.groups;
                bytes = std::max(bytes, chunk_format(job.type).tile());
            }
            const MatvecPlan plan = matvec_plan(
                shape, in.cols, groups, bytes,
                in.rows == 1 && blocks_of_weights ? kMatvecOwn : kMatvecRowsOwn,
                small && blocks_of_weights ? kMatvecThreads * kMatvecBlocks : kMatvecWideThreads,
                small && blocks_of_weights);
            for (MatvecJob& job : all) {
                job.first_block = blocks;
                job.blocks = divided(job.groups, plan.groups);
                blocks += job.blocks;
            }
            launch.launch = {shape, 65536 / shape.split + 1, plan.stages, 0};
            queue_early(function, {blocks, 1, 1}, {shape.threads(), 1, 1}, plan.bytes, launch);
            launch.jobs = 0;
        };
        for (const Matmul& job : jobs) {
            const Weight& weight = job.weight;
            if (is_block_type(weight.type) != blocks_of_weights) continue;
            MatvecJob& to = launch.job[launch.jobs++];
            to = {};
            to.weight = weight.data;
            to.out = job.out;
            to.row_bytes = static_cast<uint32_t>(row_bytes(weight.type, weight.cols));
            to.features = weight.rows;
            to.groups = divided(weight.rows, kMatvecTile * shape.tiles);
            to.type = weight.type;
            to.after = job.add ? MatvecAfter::add : MatvecAfter::store;
            if (inputs) lead_to_delta_net(*inputs, to);
            if (launch.jobs == kMatvecJobs) queue_jobs();
        }
        queue_jobs();
    }
}

// All blocks run at once. Where that leaves a warp one chunk it needs one stage.
CudaKernels::MatvecPlan CudaKernels::matvec_plan(const MatvecShape& shape, uint32_t cols,
                                                 uint32_t groups, uint32_t chunk_bytes,
                                                 uint32_t own_bytes, uint32_t threads,
                                                 bool leaves_room) const {
    const auto processors = static_cast<uint32_t>(device_.facts().processors);
    const uint32_t stage = shape.split * shape.tiles * chunk_bytes;
    const auto at_once = [&](uint32_t stages) {
        const uint32_t fit = matmuls_.shared_per_processor / (stages * stage + own_bytes);
        return processors * std::clamp(fit, 1u, threads / shape.threads());
    };
    const bool single = divided(cols, 256) <= shape.split && groups <= at_once(1);
    const uint32_t stages = 2 * stage + own_bytes <= matmuls_.shared_per_block ? 2 : 1;
    // Of two blocks a processor and more one for two groups is made, beside which the next kernel's
    // stand ready: with 320 groups in front of attention qwen3-30b-a3b answers 519 tokens a second
    // on an H200, 507 without. The blocks of experts are better off alone.
    if (single && leaves_room && stages == 2 && groups >= 2 * processors &&
        divided(groups, 2) <= at_once(2))
        return {2, 2, 2 * stage};
    if (single) return {1, 1, stage};
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
    const uint32_t number = fast_type(job.weight.type);
    const uint32_t tiles = divided(in.rows, kTileRows) * divided(job.weight.rows, kPromptRows);
    queue(matmuls_.prompt[number], {std::min(tiles, prompt_blocks()), 1, 1}, {kPromptThreads, 1, 1},
          matmuls_.prompt_shared[number], dense_job(job, in.rows, in.codes, code_bytes(in.cols)));
}

// Those jobs that have 8-bit products, for as many rows at a time as the scratch holds codes of.
// Work: 4 rows cols operations an activation row, as there are two codes a value. Bytes: the same.
void CudaKernels::matmul_int8(std::span<const Matmul> jobs, const Activations& in) {
    const auto fits = [&](const Matmul& job) { return int8_dense(job.weight.type); };
    if (std::none_of(jobs.begin(), jobs.end(), fits)) return;
    const size_t bytes = int8_row_bytes(in.cols, true);
    std::byte* const codes = prompt_scratch_.require(bytes);
    const auto most =
        static_cast<uint32_t>(std::min<size_t>(in.rows, prompt_scratch_.bytes / bytes));
    for (uint32_t first = 0; first < in.rows; first += most) {
        const uint32_t rows = std::min(most, in.rows - first);
        make_int8_rows(in, first, rows, true, codes);
        for (Matmul job : jobs) {
            if (!fits(job)) continue;
            const MatmulFunctions::Int8* const kernels = int8_products(job.weight.type);
            job.out += size_t{first} * job.weight.rows;
            const uint32_t tiles = divided(rows, kTileRows) * divided(job.weight.rows, kPromptRows);
            queue(kernels->dense, {std::min(tiles, prompt_blocks()), 1, 1}, {kInt8Threads, 1, 1},
                  kernels->shared, dense_job(job, rows, codes, bytes));
        }
    }
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
