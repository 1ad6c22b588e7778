// SPDX-License-Identifier: GPL-3.0-or-later
// Attention of prompts and of generated tokens: which kernel, in which launches.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "gpu/cuda/attention_decode.h"
#include "gpu/cuda/attention_prompt.h"
#include "gpu/cuda/attention_widen.h"
#include "gpu/cuda/kernels.h"

namespace granary::gpu::cuda {
namespace {

constexpr uint32_t kHeadSizes[] = {64, 128, 256};
static_assert(sizeof(AttentionDecode) + sizeof(RopeTurns) <= 4096);  // arguments of a launch

constexpr const char* kFormats[] = {"f16", "int8", "k8v4", "q4"};

// Index of a head size with kernels of its own, or -1.
int head_index(uint32_t dim) {
    const auto found = std::find(std::begin(kHeadSizes), std::end(kHeadSizes), dim);
    return found == std::end(kHeadSizes) ? -1 : static_cast<int>(found - kHeadSizes);
}
// Index in kFormats, or -1.
int format_index(const KvView& kv) {
    for (const KvFormat format : {KvFormat::f16, KvFormat::int8, KvFormat::k8v4, KvFormat::q4})
        if (kv.k.codes == k_codes(format) && kv.v.codes == v_codes(format))
            return static_cast<int>(format);
    return -1;
}

// Whether its codes have scales.
bool is_scaled(int format) {
    return kv_group(k_codes(static_cast<KvFormat>(format))) != 0;
}

AttentionLaunch launch_of(int head, bool wgmma) {
    constexpr AttentionLaunch kMma[] = {kAttentionMma64, kAttentionMma128, kAttentionMma256};
    constexpr AttentionLaunch kWgmma[] = {{}, kAttentionWgmma128, kAttentionWgmma256};
    return wgmma ? kWgmma[head] : kMma[head];
}

float score_scale(const AttentionShape& shape) {
    return shape.scale * 1.44269504f;  // scores in units of ln 2
}

// A launch is to take this long at most, where a processor does so many operations a second: half
// of what was measured (H200), or of what the slowest cards of a kind are said to reach.
constexpr double kLaunchSeconds = 0.025;
constexpr double kWgmmaRate = 2e12, kMmaRate = 0.25e12, kPlainRate = 0.01e12;

size_t widened_bytes(const AttentionShape& shape) {
    return size_t{kAttentionCut / kStepCells} *
           kv_parts(KvFormat::f16, shape.kv_heads, shape.head_dim).bytes;
}

}  // namespace

Result<void> CudaKernels::load_attention() {
    AttentionKernels& at = attention_;
    at.processors = static_cast<uint32_t>(std::max(1, device_.facts().processors));
    const bool before_80 = device_.facts().capability < 80;
    at.fast_decode = !before_80;

    if (auto r = find("attention_decode", {{"attention_decode_plain", &at.decode_plain},
                                           {"attention_decode_combine", &at.combine}});
        !r)
        return r;
    if (auto r = find("attention_fold", {{"attention_fold", &at.fold}}); !r) return r;
    if (auto r = find("attention_prompt_plain", {{"attention_prompt_plain", &at.prompt_plain}}); !r)
        return r;
    if (auto r = allow_shared(at.prompt_plain, plain_shared_bytes(kPlainMaxDim)); !r) return r;
    if (auto r = find("attention_widen",
                      {{"attention_widen", &at.widen}, {"attention_finish", &at.finish}});
        !r)
        return r;
    for (int head = 0; head < 3; ++head) {
        const std::string dim = std::to_string(kHeadSizes[head]);
        for (int format = 0; format < 4 && at.fast_decode; ++format) {
            for (uint32_t tiles = 1; tiles <= 2; ++tiles) {
                const std::string name = std::string("attention_decode_") + kFormats[format] + "_" +
                                         dim + "_" + std::to_string(tiles);
                Function& function = at.decode[format][head][tiles - 1];
                if (auto r = find("attention_decode_" + dim, {{name.c_str(), &function}}); !r)
                    return r;
                if (auto r = allow_shared(
                        function, decode_shared_bytes(kHeadSizes[head], tiles, is_scaled(format)));
                    !r)
                    return r;
            }
        }
        // 7.5 has 64 KB for a block.
        if (before_80 && launch_of(head, false).shared > 64 << 10) continue;
        const std::string mma = "attention_prompt_" + dim, wgmma = "attention_prompt_wgmma_" + dim;
        if (auto r = find("attention_prompt", {{mma.c_str(), &at.prompt[head]}}); !r) return r;
        if (kHeadSizes[head] > 64)  // smaller ones have none
            if (auto r =
                    find_wgmma("attention_prompt_wgmma", {{wgmma.c_str(), &at.prompt_wgmma[head]}});
                !r)
                return r;
        if (auto r = allow_shared(at.prompt[head], launch_of(head, false).shared); !r) return r;
        if (auto r = allow_shared(at.prompt_wgmma[head], launch_of(head, true).shared); !r)
            return r;
    }
    return {};
}

// One of both at a time needs it, but see scratch_bytes.
size_t CudaKernels::attention_decode_scratch(const AttentionShape& shape,
                                             uint32_t max_cells) const {
    const size_t cuts = (max_cells + kDecodeCut - 1) / kDecodeCut;
    return decode_block_bytes(shape.head_dim, attention_.processors) +
           cuts * decode_partial_floats(shape) * sizeof(float);
}
CudaKernels::PromptBytes CudaKernels::attention_prompt_scratch(const AttentionShape& shape) {
    // Delta nets use the same place, of any family: 80 heads of 128 and a chunk at the least.
    constexpr size_t kLeast = size_t{16} << 20;
    return {std::max(widened_bytes(shape), kLeast), shape.heads * sizeof(SoftmaxRow)};
}

void CudaKernels::attention_decode(const AttentionShape& shape, const float* q, const KvView& kv,
                                   const Activations& out) {
    attention_decode_of(shape, q, kv, nullptr, out);
}

void CudaKernels::attention_decode_and_gate(const AttentionShape& shape, const float* q,
                                            const KvView& kv, const float* pairs,
                                            const Activations& out) {
    if (!has_fast_decode(shape, kv, out) || !aligned_16(pairs))
        return Kernels::attention_decode_and_gate(shape, q, kv, pairs, out);
    attention_decode_of(shape, q, kv, pairs, out);
}

void CudaKernels::rope_store_and_attend(const AttentionShape& shape, const AttentionInputs& in,
                                        const KvView& kv, const Activations& out) {
    if (out.rows > 1 || !turns_itself(shape, kv, out) || !aligned_16(in.pairs))
        return Kernels::rope_store_and_attend(shape, in, kv, out);
    const DecodeTurns turns{in.pairs ? in.pairs : in.q,
                            in.k,
                            in.v,
                            in.q_norm,
                            in.k_norm,
                            in.pairs ? 2 * shape.head_dim : shape.head_dim,
                            shape.rope->pairs(),
                            shape.norm_eps};
    attention_decode_of(shape, in.q, kv, in.pairs, out, turns);
}

bool CudaKernels::turns_itself(const AttentionShape& shape, const KvView& kv,
                               const Activations& out) const {
    const uint32_t pairs = shape.rope ? shape.rope->pairs() : 0;
    return has_fast_decode(shape, kv, out) && shape.heads / shape.kv_heads <= 8 &&
           (pairs == 32 || pairs == shape.head_dim / 2);
}

bool CudaKernels::has_fast_decode(const AttentionShape& shape, const KvView& kv,
                                  const Activations& out) const {
    return attention_.fast_decode && out.codes && head_index(shape.head_dim) >= 0 &&
           format_index(kv) >= 0;
}

// Work: 4 heads head_dim operations a token and cell. Bytes: K and V once for each 16 rows of a
// K/V head; partial results of a row twice, head_dim + 2 values for each block.
void CudaKernels::attention_decode_of(const AttentionShape& shape, const float* q, const KvView& kv,
                                      const float* pairs, const Activations& out,
                                      const DecodeTurns& turns) {
    const AttentionKernels& at = attention_;
    const uint32_t group = shape.heads / shape.kv_heads, dim = shape.head_dim;
    const uint32_t together = decode_tokens(shape);
    const int head = head_index(dim), format = format_index(kv);
    const bool fast = has_fast_decode(shape, kv, out);
    // Groups of codes may cross heads: they come afterwards then.
    const bool later = out.codes && dim % 32 != 0;
    for (uint32_t first = 0; first < out.rows; first += together) {
        AttentionDecode job{};
        job.n = std::min(together, out.rows - first);
        job.first_token = first;
        job.q = q + size_t{first} * shape.heads * dim;
        job.pairs = pairs ? pairs + size_t{first} * 2 * shape.heads * dim : nullptr;
        job.values = out.values + size_t{first} * shape.heads * dim;
        job.code_row = code_bytes(shape.heads * dim);
        job.codes = out.codes && !later ? out.codes + first * job.code_row : nullptr;
        job.partials = reinterpret_cast<float*>(scratch_.data);
        job.partial_floats = decode_partial_floats(shape);
        job.kv = kv;
        job.heads = shape.heads;
        job.kv_heads = shape.kv_heads;
        job.dim = dim;
        job.scale = score_scale(shape);
        job.turns = turns;
        const uint32_t rows = job.n * group;
        if (fast) {
            const uint32_t tiles = rows > 8 ? 2 : 1;
            const uint32_t across = shape.kv_heads * ((rows + 8 * tiles - 1) / (8 * tiles));
            static_assert((kAttentionCounters + kDecodeCounters) * sizeof(uint32_t) <=
                          kCounterBytes);
            job.finished = counters_ + kAttentionCounters;
            const uint32_t blocks = decode_blocks(shape, at.processors);
            scratch_.require(blocks * job.partial_floats * sizeof(float));
            const Function function = at.decode[format][head][tiles - 1];
            const uint32_t shared = decode_shared_bytes(dim, tiles, is_scaled(format));
            if (tiles == 1)
                queue_early(function, {blocks, across, 1}, {kDecodeThreads, 1, 1}, shared, job,
                            turns.q ? rope_turns(shape) : RopeTurns{});
            else
                queue_early(function, {blocks, across, 1}, {kDecodeThreads, 1, 1}, shared, job);
        } else {
            const uint32_t across = job.n * shape.heads;
            queue(at.decode_plain, {std::max(1u, 8 * at.processors / across), across, 1},
                  {kPlainDecodeThreads, 1, 1}, 0, job);
            queue_early(at.combine, {job.n * shape.heads, 1, 1}, {kCombineThreads, 1, 1},
                        combine_shared_bytes(dim), job);
        }
    }
    if (later) quantise(out);
}

// Work: 4 heads head_dim operations a token and cell that it sees. Bytes: K and V once for each
// tile of query rows, running results twice a cut. Quantised cells are widened cut by cut. Long
// chunks are cut by tokens so that no launch takes long; short ones take several cuts of f16 cells
// side by side.
void CudaKernels::attention_prompt(const AttentionShape& shape, const float* q, uint32_t first_cell,
                                   const KvView& kv, const Activations& out) {
    const AttentionKernels& at = attention_;
    const uint32_t dim = shape.head_dim, end = first_cell + out.rows;
    const size_t row_values = size_t{shape.heads} * dim;
    const int head = head_index(dim);
    const bool f16 = kv.k.codes == KvCodes::f16 && kv.v.codes == KvCodes::f16;
    const bool f32 = kv.k.codes == KvCodes::f32 || kv.v.codes == KvCodes::f32;
    const bool fast = out.codes && head >= 0 && at.prompt[head] && !f32;
    const bool wgmma = fast && at.prompt_wgmma[head], widen = fast && !f16;
    const AttentionLaunch launch =
        fast ? launch_of(head, wgmma)
             : AttentionLaunch{kPlainRows, kPlainThreads, plain_shared_bytes(dim), kPlainCells};
    const Function function = !fast   ? at.prompt_plain
                              : wgmma ? at.prompt_wgmma[head]
                                      : at.prompt[head];

    AttentionPrompt job{};
    std::byte* const scratch = prompt_scratch_.require(
        widened_bytes(shape) + size_t{out.rows} * shape.heads * sizeof(SoftmaxRow));
    auto* const running = reinterpret_cast<SoftmaxRow*>(scratch + widened_bytes(shape));
    job.kv = kv;
    job.heads = shape.heads;
    job.kv_heads = shape.kv_heads;
    job.dim = dim;
    job.scale = score_scale(shape);

    const double rate = wgmma ? kWgmmaRate : fast ? kMmaRate : kPlainRate;
    const double most = kLaunchSeconds * rate * at.processors / (4.0 * kAttentionCut) /
                        static_cast<double>(row_values);
    const auto tokens = static_cast<uint32_t>(std::clamp(most, 16.0, 1e6));
    const uint32_t cuts = (end + kAttentionCut - 1) / kAttentionCut;
    const uint32_t blocks =
        query_tiles(out.rows, shape.heads / shape.kv_heads, launch.rows) * shape.kv_heads;
    // Side by side while there are fewer blocks than processors, in the place of widened cells.
    uint32_t at_once = 1;
    if (fast && f16 && out.rows <= tokens) {
        const size_t bytes =
            out.rows * (row_values * sizeof(float) + shape.heads * sizeof(SoftmaxRow));
        at_once = std::clamp(static_cast<uint32_t>(std::min<size_t>(at.processors / blocks + 1,
                                                                    widened_bytes(shape) / bytes)),
                             1u, cuts);
    }
    // The kernel leaves codes itself where nothing is left to be done to its values.
    const bool finished = fast && at_once == 1 && !kv.v.rotated();
    for (uint32_t cut = 0; cut < cuts; cut += at_once) {
        const uint32_t begin = cut * kAttentionCut;
        job.first_cut = cut;
        job.cuts = std::min(at_once, cuts - cut);
        if (widen) {
            const KvParts parts = kv_parts(KvFormat::f16, shape.kv_heads, dim);
            // Absolute cells find their place: the cut's first step lies at `scratch`.
            job.kv = {scratch - size_t{begin / kStepCells} * parts.bytes,
                      parts.bytes,
                      parts.k,
                      parts.v,
                      nullptr,
                      0};
            const uint32_t cut_end = std::min(end, begin + kAttentionCut);
            const uint32_t padded = (cut_end + kTileCells - 1) / kTileCells * kTileCells;
            const uint32_t runs = 2 * shape.kv_heads * dim / kWidenRun;
            queue(at.widen, {(runs + kWidenThreads - 1) / kWidenThreads, padded - begin, 1},
                  {kWidenThreads, 1, 1}, 0,
                  AttentionWiden{kv, job.kv, begin, cut_end, shape.kv_heads, dim});
        }
        if (at_once > 1) {
            const size_t rows = size_t{out.rows} * shape.heads;
            job.cut.values = reinterpret_cast<float*>(scratch);
            job.cut.rows = reinterpret_cast<SoftmaxRow*>(job.cut.values + at_once * rows * dim);
        }
        for (uint32_t first = 0; first < out.rows; first += tokens) {
            job.n = std::min(tokens, out.rows - first);
            job.first_cell = first_cell + first;
            if (begin >= job.first_cell + job.n) continue;  // behind all that these tokens see
            if (cut + first > 0 && !keep_pace()) return;
            job.q = q + first * row_values;
            job.running = {running + size_t{first} * shape.heads, out.values + first * row_values};
            job.code_row = code_bytes(shape.heads * dim);
            job.codes = finished ? out.codes + first * job.code_row : nullptr;
            const Size3 grid{query_tiles(job.n, shape.heads / shape.kv_heads, launch.rows),
                             shape.kv_heads, job.cuts};
            if (wgmma)
                queue(function, grid, {launch.threads, 1, 1}, launch.shared, job,
                      cells_map(shape, job.kv, job.kv.k, launch.cells, end),
                      cells_map(shape, job.kv, job.kv.v, launch.cells, end));
            else
                queue(function, grid, {launch.threads, 1, 1}, launch.shared, job);
        }
        if (at_once > 1)
            queue(at.fold, {(out.rows * shape.heads + 7) / 8, 1, 1}, {256, 1, 1}, 0, job);
    }
    if (kv.v.rotated() || (out.codes && !finished))
        queue(at.finish, {out.rows * shape.heads, 1, 1}, {kFinishThreads, 1, 1}, 0,
              AttentionFinish{out.values, out.codes, code_bytes(shape.heads * dim), shape.heads,
                              dim, kv.v.rotated()});
}

// Between launches of a long operation: the stream is two of them ahead at most, so that Stop is
// noticed soon. False: nobody wants the rest.
bool CudaKernels::keep_pace() {
    device_.wait_here(pace_[0]);
    pace_[0] = std::exchange(pace_[1], device_.record(StreamId::compute));
    return wanted();
}

// The tensor copy engine's description of K or V up to cell `end`.
TensorMap CudaKernels::cells_map(const AttentionShape& shape, const KvView& kv, const KvPart& part,
                                 uint32_t box_cells, uint32_t end) {
    TensorMap map{};
    const uint32_t dim = shape.head_dim;
    const uint64_t sizes[] = {dim, shape.kv_heads, kStepCells, (end + kStepCells - 1) / kStepCells};
    const uint64_t strides[] = {dim * sizeof(uint16_t), part.code_row, kv.step_bytes};
    const uint32_t box[] = {64, 1, box_cells, 1}, steps[] = {1, 1, 1, 1};
    constexpr int kFloat16 = 6, kSwizzle128 = 3, kPromote256 = 3;
    const Driver& driver = device_.context().driver();
    device_.note(driver.tensor_map_encode(&map, kFloat16, 4, kv.base + part.code_offset, sizes,
                                          strides, box, steps, 0, kSwizzle128, kPromote256, 0),
                 driver.tensor_map_encode.name());
    return map;
}

}  // namespace granary::gpu::cuda
