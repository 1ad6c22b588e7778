// SPDX-License-Identifier: GPL-3.0-or-later
// The operations of gpu/kernels.h on a GPU. Every module is loaded and every function found when
// the set is made; afterwards an operation only queues launches on the compute stream, with grids
// that depend on nothing but shapes.
//
// Fast arithmetic: an activation's codes are f16 "ordered rows" (ordered_rows.h) of a prompt and
// integers with scales (decode_codes.h) of a decode step. The kernels know the arithmetic by
// whether codes are there.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/cuda/attention_decode.h"
#include "gpu/cuda/attention_kernels.h"
#include "gpu/cuda/attention_prompt.h"
#include "gpu/cuda/device.h"
#include "gpu/cuda/module.h"
#include "gpu/cuda/rope.h"
#include "gpu/cuda/router.h"
#include "gpu/kernels.h"

namespace granary::gpu::cuda {

struct DeltaNet;
struct ExpertTile;
struct FetchExperts;
struct RouteNorm;
struct MatvecShape;

// Whether all of these, which may be null, lie at multiples of 16 bytes.
template <class... Pointer>
bool aligned_16(const Pointer*... pointer) {
    return ((reinterpret_cast<uintptr_t>(pointer) | ...) & 15) == 0;
}

class CudaKernels : public Kernels {
  public:
    // Queues on the device's compute stream; lives no longer than the device.
    explicit CudaKernels(GpuMemory& device, CudaProducts products = CudaProducts::fastest)
        : device_(device), products_(products) {}
    // Loads all modules, with the device's context current. Errors: unsupported where this build
    // has no code for the device, else the driver's.
    Result<void> load();

    std::string beyond(const AttentionShape& attention, const RouterShape& routing) const override;
    size_t code_bytes(uint32_t cols) const override { return (size_t{cols} * 2 + 63) / 64 * 64; }
    size_t expert_out_bytes() const override { return sizeof(uint16_t); }
    bool keeps_hidden_values() const override { return false; }
    // So many experts of a chunk of 8,192 tokens are three rounds of an H200's multiprocessors.
    uint32_t experts_at_once() const override { return 16; }
    size_t scratch_bytes(const AttentionShape& shape, uint32_t max_cells) const override;
    void set_scratch(std::byte* scratch, size_t bytes) override;
    size_t prompt_scratch_bytes(const AttentionShape& shape, uint32_t experts, uint32_t used,
                                uint32_t hidden, uint32_t rows) const override;
    void set_prompt_scratch(std::byte* scratch, size_t bytes) override;

    // Whether experts of this type are multiplied as integers in a prompt.
    bool multiplies_integers(WeightType type) const { return int8_products(type) != nullptr; }

    // ---- rows of values
    void embed(const Weight& table, const int32_t* tokens, uint32_t n, float* x) override;
    void rms_norm(const float* x, const float* weight, float eps, const Activations& out) override;
    void quantise(const Activations& a) override;
    void combine(const Routes& routes, uint32_t used, uint32_t hidden, const void* out,
                 float* x) override;
    float* combine_and_norm(const Routes& routes, uint32_t used, uint32_t hidden, const void* out,
                            float* x, float* other, const float* weight, float eps,
                            const Activations& norm, const CpuShare& share) override;
    void argmax(const float* logits, uint32_t n, uint32_t vocab, int32_t* best) override;

    // ---- matrices
    void matmul(std::span<const Matmul> jobs, const Activations& in) override;
    void expert_ffn(const ExpertShape& shape, const ExpertEntry* entries,
                    std::span<const int32_t> list, const Routes& routes, const Activations& x,
                    const Activations& hidden, void* out) override;
    void expert_ffn_and_shared(const ExpertShape& shape, const ExpertEntry* entries,
                               std::span<const int32_t> list, const Routes& routes,
                               const SharedExpert& shared, const Activations& x,
                               const Activations& hidden, void* out) override;

    // ---- attention
    void rope_store(const AttentionShape& shape, const float* q_norm, const float* k_norm,
                    uint32_t first_cell, uint32_t n, float* q, const float* k, const float* v,
                    const KvView& kv) override;
    void attention_prompt(const AttentionShape& shape, const float* q, uint32_t first_cell,
                          const KvView& kv, const Activations& out) override;
    void attention_decode(const AttentionShape& shape, const float* q, const KvView& kv,
                          const Activations& out) override;
    void attention_decode_and_gate(const AttentionShape& shape, const float* q, const KvView& kv,
                                   const float* pairs, const Activations& out) override;
    void rope_store_and_attend(const AttentionShape& shape, const AttentionInputs& in,
                               const KvView& kv, const Activations& out) override;
    void rope_store_of_pairs(const AttentionShape& shape, const float* q_norm, const float* k_norm,
                             uint32_t first_cell, uint32_t n, const float* pairs, float* q,
                             const float* k, const float* v, const KvView& kv) override;
    void gate_heads(const AttentionShape& shape, const float* pairs,
                    const Activations& out) override;

    // ---- delta nets
    void causal_conv(const DeltaShape& shape, const float* kernel, const float* x, uint32_t n,
                     float* tail, float* out) override;
    void delta_gates(const DeltaShape& shape, const float* dt, const float* a, uint32_t n,
                     float* alpha, float* beta) override;
    void matmul_gates_and_conv(std::span<const Matmul> jobs, const Activations& in,
                               const DeltaShape& shape, const DeltaInputs& to) override;
    void delta_net_prompt(const DeltaShape& shape, float* x, float* alpha, float* beta,
                          uint32_t first_cell, uint32_t n, float* state, float* out) override;
    void conv_and_delta_net(const DeltaShape& shape, const DeltaPrompt& prompt,
                            std::span<const uint32_t> stops,
                            const std::function<void(size_t)>& stopped) override;
    void delta_net_decode(const DeltaShape& shape, const float* x, const float* alpha,
                          const float* beta, uint32_t n, float* state, float* out) override;
    void delta_net_decode_and_norm(const DeltaShape& shape, const float* x, const float* alpha,
                                   const float* beta, uint32_t n, float* state, float* net,
                                   const float* weight, float eps, const float* gate,
                                   const Activations& out) override;
    void gated_norm(const float* x, const float* weight, float eps, uint32_t dim, const float* gate,
                    const Activations& out) override;

    // ---- routes and the expert cache
    void route(const RouterShape& shape, const Weight& router, const float* x,
               const Routes& routes) override;
    void route_shared(const float* gate, const float* x, uint32_t hidden,
                      const Routes& routes) override;
    void gather_routed(const ExpertCacheView& cache, std::span<const int32_t> list,
                       const Routes& routes, const ExpertEntry* to) override;
    void note_picks(const ExpertCacheView& first, size_t stride, uint32_t layers, uint32_t routes,
                    const DecodePlace* place) override;
    void note_routes(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                     uint32_t first_row, uint32_t tick) override;
    void fetch_experts(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                       const DecodePlace* place) override;
    void route_and_fetch(const RouterShape& shape, const Weight& router, const float* x,
                         const Routes& routes, const ExpertCacheView& cache,
                         const DecodePlace* place, const CpuShare& share) override;
    void norm_route_and_fetch(const float* x, const float* weight, float eps,
                              const Activations& norm, const RouterShape& shape,
                              const Weight& router, const Routes& routes,
                              const ExpertCacheView& cache, const DecodePlace* place,
                              const CpuShare& share) override;
    bool shares_with_cpu() const override { return true; }
    void norm_and_experts(const float* x, const float* weight, float eps, const Activations& norm,
                          const DecodeExperts& job) override;

  private:
    // Kernels of matrices. By number of a type, see matmul.cpp; those of 0 take any type.
    static constexpr uint32_t kPromptTypes = 13, kInt8Types = 3, kWgmmaTypes = 4;
    struct MatmulFunctions {
        Function plain, plain_gate_up, plain_down, expert_tiles;
        // Of a decode step: for block types, and for any.
        Function matvec, matvec_wide, matvec_rows, gate_up, down, gate_up_late, down_late;
        Function matvec_any, gate_up_any, down_any;
        uint32_t shared_per_processor, shared_per_block;  // bytes that those may use
        uint32_t split;                                   // warps of a dense tile, at most
        Function prompt[kPromptTypes], prompt_gate_up[kPromptTypes];
        uint32_t prompt_shared[kPromptTypes];  // bytes of a block
        Function widen;
        // Compute capability 9.0a, else null.
        Function dense_wgmma;
        struct {
            Function gate_up, down;
        } wgmma[kWgmmaTypes];
        // 8-bit products of prompts; null where f16 is as fast. By number of a type, see
        // matmul.cpp.
        struct Int8 {
            Function dense, gate_up, down;
            uint32_t shared;  // bytes of a block
        } int8[kInt8Types];
        Function int8_rows;
    };
    static constexpr uint32_t kDecodeRows = 8;  // at most, of a decode step
    // Words that are 0 between launches; those of attention begin behind one for all others.
    static constexpr size_t kCounterBytes = 8192;
    static constexpr uint32_t kAttentionCounters = 1;

    struct Wanted {
        const char* name;  // of a kernel
        Function* function;
    };
    // Finds kernels of FILE.cu; its module is loaded once.
    Result<void> find(std::string_view file, std::initializer_list<Wanted> wanted);
    // The same of those that code for 9.0a has, and not every build: what is missing stays null.
    Result<void> find_wgmma(std::string_view file, std::initializer_list<Wanted> wanted);

    // Lets a kernel have so many bytes of shared memory beside what it declares itself; null: there
    // is no such kernel. Errors: the driver's.
    Result<void> allow_shared(Function function, size_t bytes) const;
    // Of the device; 0 where the driver does not say.
    uint32_t attribute(int number) const;

    // Queues a launch; an error is the next synchronize's. The arguments' types must be the
    // kernel's own.
    template <class... Args>
    void queue(Function function, Size3 grid, Size3 block, unsigned shared_bytes, Args... args) {
        if (!device_.takes_work()) return;
        const SharedContext& context = device_.context();
        Status status = context.make_current();
        if (status == 0)
            status = launch(context.driver(), function, grid, block, shared_bytes,
                            device_.stream(StreamId::compute), args...);
        device_.note(status, context.driver().launch.name());
    }

    // The same for kernels of decode steps, which wait themselves for those ahead (early.cuh).
    template <class... Args>
    void queue_early(Function function, Size3 grid, Size3 block, unsigned shared_bytes,
                     Args... args) {
        if (!early_) return queue(function, grid, block, shared_bytes, args...);
        if (!device_.takes_work()) return;
        const SharedContext& context = device_.context();
        Status status = context.make_current();
        if (status == 0)
            status = launch_early(context.driver(), function, grid, block, shared_bytes,
                                  device_.stream(StreamId::compute), args...);
        device_.note(status, context.driver().launch_with.name());
    }

    // As the rows of a decode step, or of any other call with as few.
    template <class... Args>
    void queue_few(uint32_t rows, Function function, Size3 grid, Size3 block, unsigned shared_bytes,
                   Args... args) {
        if (rows <= kDecodeRows)
            queue_early(function, grid, block, shared_bytes, args...);
        else
            queue(function, grid, block, shared_bytes, args...);
    }

    // See CombineNorm; `used` 0: nothing is added.
    void combine_norm(const Routes& routes, uint32_t used, const void* out, const float* x,
                      float* sum, const float* weight, float eps, const Activations& norm,
                      const CpuShare& share = {});

    // Each subject's modules and its needs of scratch, beside its operations.
    Result<void> load_rows();
    Result<void> load_gates();
    Result<void> load_rope();
    Result<void> load_router();
    Result<void> load_expert_cache();
    size_t decode_route_bytes() const;
    size_t decode_fetch_bytes() const;
    // Of a decode step's rows: what route_decode is given. With `finished` null it leaves the
    // logits.
    RouteRows decode_rows(const RouterShape& shape, const Weight& router, const float* x,
                          const Routes& routes) const;
    void route_decode(const RouteRows& rows, const FetchExperts& fetch, const RouteNorm& norm);
    // Of `rows` rows, `used` routes each; the processor has a share in one alone. And what copies
    // the experts that it found missing.
    FetchExperts fetch_job(const ExpertCacheView& cache, uint32_t rows, uint32_t used,
                           const DecodePlace* place, const CpuShare& share = {}) const;
    void gather(const FetchExperts& job);
    struct PromptBytes {
        size_t constant = 0, per_row = 0;
    };
    PromptBytes prompt_route_bytes(uint32_t experts) const;

    // A place for what passes between the launches of one operation; the next one reuses it.
    struct Scratch {
        std::byte* data = nullptr;
        size_t bytes = 0;
        // Ends the program where there is too little: a fault of this program.
        std::byte* require(size_t wanted) const;
    };

    Result<void> load_attention();
    Result<void> load_delta_net();
    bool delta_net_by_mma(const DeltaShape& shape) const;
    void delta_net_pieces(DeltaNet job, uint32_t first_cell);
    void delta_net_chunks(const DeltaNet& job);
    // What they need of the scratch places.
    size_t attention_decode_scratch(const AttentionShape& shape, uint32_t max_cells) const;
    static PromptBytes attention_prompt_scratch(const AttentionShape& shape);
    bool keep_pace();
    // Whether decode attention is one launch, by tensor cores.
    bool has_fast_decode(const AttentionShape& shape, const KvView& kv,
                         const Activations& out) const;
    // Whether attention of one token turns its queries and stores its cell.
    bool turns_itself(const AttentionShape& shape, const KvView& kv, const Activations& out) const;
    void attention_decode_of(const AttentionShape& shape, const float* q, const KvView& kv,
                             const float* pairs, const Activations& out,
                             const DecodeTurns& turns = {});
    // Queries from rows `stride` values apart.
    void rope_store_from(const float* from, uint32_t stride, const AttentionShape& shape,
                         const float* q_norm, const float* k_norm, uint32_t first_cell, uint32_t n,
                         float* q, const float* k, const float* v, const KvView& kv);
    TensorMap cells_map(const AttentionShape& shape, const KvView& kv, const KvPart& part,
                        uint32_t box_cells, uint32_t end);
    // matmul.cpp, experts.cpp
    Result<void> load_matmuls();
    // inputs: of a delta net, of one row; may be null.
    void matmul_decode(std::span<const Matmul> jobs, const Activations& in,
                       const DeltaInputs* inputs = nullptr);
    // Groups of tiles a block, stages, bytes of shared memory.
    struct MatvecPlan {
        uint32_t groups, stages, bytes;
    };
    // groups: of all; chunk_bytes: of a tile; own_bytes: of shared memory beside those; threads: of
    // a multiprocessor, as registers allow; leaves_room: blocks of the next kernel are to stand
    // beside these.
    MatvecPlan matvec_plan(const MatvecShape& shape, uint32_t cols, uint32_t groups,
                           uint32_t chunk_bytes, uint32_t own_bytes, uint32_t threads,
                           bool leaves_room = false) const;
    void matmul_prompt(const Matmul& job, const Activations& in);
    void matmul_dense(std::span<const Matmul> jobs, const Activations& in);
    TensorMap rows_map(const Activations& in);
    void matmul_int8(std::span<const Matmul> jobs, const Activations& in);
    void matmul_plain(const Matmul& job, const Activations& in);
    void experts_decode(const ExpertShape& shape, const ExpertEntry* entries,
                        std::span<const int32_t> list, const Routes& routes, const Activations& x,
                        const Activations& hidden, void* out, const SharedExpert* shared = nullptr,
                        const LateRoutes* late = nullptr);
    void experts_prompt(const ExpertShape& shape, const ExpertEntry* entries,
                        std::span<const int32_t> list, const Routes& routes, const Activations& x,
                        const Activations& hidden, void* out);
    void experts_plain(const ExpertShape& shape, const ExpertEntry* entries,
                       std::span<const int32_t> list, const Routes& routes, const Activations& x,
                       const Activations& hidden, void* out);
    // Null where the type has none, or the matrix is not what they take. Bytes: of shared memory.
    struct WgmmaKernel {
        Function function = nullptr;
        uint32_t bytes = 0;
    };
    enum class Product : uint8_t { gate_up, down };
    WgmmaKernel wgmma_kernel(WeightType type, Product product, uint32_t cols,
                             uint32_t features) const;
    // What of the scratch the kernels of a prompt's experts use.
    struct TileScratch {
        int32_t* count;
        ExpertTile* tiles;
        std::byte* codes;  // 8-bit codes of the tokens
    };
    // Null where the products of the type's experts are of f16.
    const MatmulFunctions::Int8* int8_products(WeightType type) const;
    bool int8_dense(WeightType type) const {
        const MatmulFunctions::Int8* const kernels = int8_products(type);
        return kernels && kernels->dense;
    }
    // 8-bit codes of f16 ones.
    void make_int8_rows(const Activations& in, uint32_t first, uint32_t rows, bool fine,
                        std::byte* to);
    TileScratch tile_scratch(uint32_t experts, uint32_t used, uint32_t hidden, uint32_t rows) const;
    PromptBytes prompt_tile_bytes(uint32_t experts, uint32_t used, uint32_t hidden) const;
    uint32_t prompt_blocks() const;
    uint32_t wgmma_blocks() const;

    GpuMemory& device_;
    const CudaProducts products_;
    AttentionKernels attention_;
    DeltaNetKernels delta_net_;
    std::map<std::string, std::unique_ptr<Module>, std::less<>> modules_;
    MatmulFunctions matmuls_{};
    gpu::Event pace_[2];            // behind the last launches of a long operation
    uint32_t* counters_ = nullptr;  // kCounterBytes in front of scratch_
    Scratch scratch_;               // decode and whatever has at most kDecodeRows rows
    Scratch prompt_scratch_;        // more rows
    bool early_ = false;  // whether kernels may begin before those ahead of them have ended
    // Whether the last expert_ffn put out f32 values (codes null) or f16, for combine.
    bool expert_out_f32_ = false;

    struct {
        Function embed, rms_norm, quantise, combine_f16, combine_f32, combine_norm_f16,
            combine_norm_f32, argmax;
    } rows_{};
    struct {
        Function gate_heads, delta_gates, causal_conv;
        Function gated_norm, route_shared, route_shared_decode;
    } gates_{};
    Function rope_store_ = nullptr;
    struct {
        Function decode_f32, decode_any, logits_f32, logits_any, choose, count, sort;
    } router_{};
    struct {
        Function note, note_picks, fetch, gather_pieces, gather_routed, wait_for_staged;
    } cache_{};
};

// Makes and loads a set K of kernels, CudaKernels or what a test makes of it.
template <class K, class... Args>
Result<std::unique_ptr<K>> load_kernels(GpuMemory& device, Args... args) {
    auto kernels = std::make_unique<K>(device, args...);
    if (auto loaded = kernels->load(); !loaded) return tl::unexpected(loaded.error());
    return kernels;
}

}  // namespace granary::gpu::cuda
