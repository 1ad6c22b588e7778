// SPDX-License-Identifier: GPL-3.0-or-later
// The operations of kernels.h on the cores of this machine. A call computes at once: the calling
// thread is worker 0 and the pool's threads are the others.
//
// One subject per file. Vector code is Highway's portable SIMD, compiled for several targets and
// chosen at run time; the 8-bit products (tile*.cpp) use intrinsics and choose likewise.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "gpu/host/thread_pool.h"
#include "gpu/kernels.h"

namespace granary::gpu::host {

struct Workspace;  // one worker's buffers, see linear.h
struct TileKernels;

class HostKernels : public Kernels {
  public:
    // `tiles` null: the best 8-bit kernels of this machine.
    explicit HostKernels(ThreadPool& pool, const TileKernels* tiles = nullptr);
    ~HostKernels() override;

    size_t code_bytes(uint32_t cols) const override;
    size_t expert_out_bytes() const override { return sizeof(float); }
    bool keeps_hidden_values() const override { return true; }
    uint32_t experts_at_once() const override { return 1; }
    size_t prompt_scratch_bytes(const AttentionShape&, uint32_t, uint32_t, uint32_t,
                                uint32_t) const override {
        return 0;  // workers have buffers of their own
    }
    void set_prompt_scratch(std::byte*, size_t) override {}
    size_t scratch_bytes(const AttentionShape& shape, uint32_t max_cells) const override;
    void set_scratch(std::byte* scratch, size_t bytes) override;

    void embed(const Weight& table, const int32_t* tokens, uint32_t n, float* x) override;
    void rms_norm(const float* x, const float* weight, float eps, const Activations& out) override;
    void quantise(const Activations& a) override;
    void matmul(std::span<const Matmul> jobs, const Activations& in) override;
    void rope_store(const AttentionShape& shape, const float* q_norm, const float* k_norm,
                    uint32_t first_cell, uint32_t n, float* q, const float* k, const float* v,
                    const KvView& kv) override;
    void attention_prompt(const AttentionShape& shape, const float* q, uint32_t first_cell,
                          const KvView& kv, const Activations& out) override;
    void attention_decode(const AttentionShape& shape, const float* q, const KvView& kv,
                          const Activations& out) override;
    void rope_store_of_pairs(const AttentionShape& shape, const float* q_norm, const float* k_norm,
                             uint32_t first_cell, uint32_t n, const float* pairs, float* q,
                             const float* k, const float* v, const KvView& kv) override;
    void gate_heads(const AttentionShape& shape, const float* pairs,
                    const Activations& out) override;
    void causal_conv(const DeltaShape& shape, const float* kernel, const float* x, uint32_t n,
                     float* tail, float* out) override;
    void delta_gates(const DeltaShape& shape, const float* dt, const float* a, uint32_t n,
                     float* alpha, float* beta) override;
    void delta_net_prompt(const DeltaShape& shape, float* x, float* alpha, float* beta,
                          uint32_t first_cell, uint32_t n, float* state, float* out) override;
    void delta_net_decode(const DeltaShape& shape, const float* x, const float* alpha,
                          const float* beta, uint32_t n, float* state, float* out) override;
    void gated_norm(const float* x, const float* weight, float eps, uint32_t dim, const float* gate,
                    const Activations& out) override;
    void route_shared(const float* gate, const float* x, uint32_t hidden,
                      const Routes& routes) override;
    void route(const RouterShape& shape, const Weight& router, const float* x,
               const Routes& routes) override;
    void expert_ffn(const ExpertShape& shape, const ExpertEntry* entries,
                    std::span<const int32_t> list, const Routes& routes, const Activations& x,
                    const Activations& hidden, void* out) override;
    void combine(const Routes& routes, uint32_t used, uint32_t hidden, const void* out,
                 float* x) override;
    void gather_routed(const ExpertCacheView& cache, std::span<const int32_t> list,
                       const Routes& routes, const ExpertEntry* to) override;
    void note_routes(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                     uint32_t first_row, uint32_t tick) override;
    void fetch_experts(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                       const DecodePlace* place) override;
    void argmax(const float* logits, uint32_t n, uint32_t vocab, int32_t* best) override;

  private:
    // Calls f(row) for each row: inline when all rows are fewer than kInline values (a fork costs
    // as much as that), else shared out in order.
    static constexpr size_t kInline = 8192;
    template <class F>
    void for_rows(uint32_t rows, size_t values_per_row, F&& f) {
        if (rows < 2 || rows * values_per_row <= kInline) {
            for (uint32_t row = 0; row < rows; ++row) f(row);
            return;
        }
        pool_.run([&](unsigned worker) {
            const Share part = share(rows, 1, worker, pool_.threads());
            for (size_t row = part.begin; row < part.end; ++row) f(static_cast<uint32_t>(row));
        });
    }

    Workspace& workspace(unsigned worker);
    float* scratch_of(unsigned worker, uint32_t head_dim) const;
    // The scratch behind the workers' parts; it must have room for `floats`.
    float* require_scratch(uint32_t head_dim, size_t floats) const;

    ThreadPool& pool_;
    const TileKernels& tiles_;
    std::unique_ptr<Workspace[]> workspaces_;
    std::vector<float> delta_work_;  // every worker's, made when a delta net first runs
    std::byte* scratch_ = nullptr;
    size_t scratch_size_ = 0;
};

std::unique_ptr<Kernels> make_host_kernels(ThreadPool& pool);

}  // namespace granary::gpu::host
