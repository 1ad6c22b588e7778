// SPDX-License-Identifier: GPL-3.0-or-later
// One function per operation. All are asynchronous on the compute stream, take device pointers
// only (page-locked host memory where a comment says so), and hand no value to the host between
// router and combination. Shapes stand beside each pointer, outermost first.
//
// Determinism: each output element is summed in one fixed order that does not depend on how many
// rows a call has, on threads, or on where a weight lies. Prompt tokens always use the prompt
// attention, generated ones the decode attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "gpu/experts.h"
#include "gpu/kv_format.h"
#include "gpu/rope_table.h"
#include "gpu/weight_type.h"

namespace granary::gpu {

// fast: activations are quantised to 8 bits before they meet quantised weights.
// f32: weights are decoded to f32 and no activation is quantised; the arithmetic of the fixtures.
enum class Arithmetic : uint8_t { fast, f32 };

// A weight matrix as it lies in the file: rows x cols, each row a run of blocks along cols.
struct Weight {
    const std::byte* data = nullptr;
    WeightType type = WeightType::f32;
    uint32_t rows = 0;  // outputs
    uint32_t cols = 0;  // inputs
};

// Rows of activations: f32 values and, in fast arithmetic, their 8-bit codes beside them.
struct Activations {
    float* values = nullptr;     // [rows, cols]
    std::byte* codes = nullptr;  // [rows, code_bytes(cols)]; null in f32 arithmetic
    uint32_t rows = 0;
    uint32_t cols = 0;
    // Rows of a decode step or of logits, at most eight. A prompt's are never, however few: what
    // computes a row must not depend on how a prompt is cut.
    bool decode = false;
};

// Scratch for decode attention grows by a constant for each so many cells, which backends may sum
// in one go.
inline constexpr uint32_t kDecodeCut = 512;

struct AttentionShape {
    uint32_t heads = 0, kv_heads = 0, head_dim = 0;
    std::shared_ptr<const RopeTable> rope;  // null: nothing rotates
    float norm_eps = 1e-6f;                 // of the q and k norms
    float scale = 0;  // of q.k; 1 / sqrt(head_dim) unless the family says otherwise
};

// A gated delta net (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464). A row of channels holds q
// of every key head, k of every key head, v of every value head, each head_dim wide. Value head h
// belongs to key head h % key_heads.
struct DeltaShape {
    uint32_t key_heads = 0, value_heads = 0;
    uint32_t head_dim = 0;   // a multiple of 16, at most 256
    uint32_t taps = 0;       // of the convolution over the channels; 2 to 8
    float norm_eps = 1e-6f;  // of q and k
    uint32_t channels() const { return (2 * key_heads + value_heads) * head_dim; }
    uint32_t width() const { return value_heads * head_dim; }
    // f32 values that a layer remembers of a conversation, however long it is.
    size_t tail_values() const { return size_t{taps - 1} * channels(); }
    size_t state_values() const { return size_t{width()} * head_dim; }
};
inline constexpr uint32_t kDeltaCells = 64;  // cells that the prompt form takes in one go

// What becomes of a layer's projections on their way into a delta net of n rows.
struct DeltaInputs {
    const float *dt, *a;  // [value_heads]
    const float* kernel;  // [channels, taps]
    float *alpha, *beta;  // [n, value_heads]
    float* x;             // [n, channels]
    float* tail;          // [taps - 1, channels]
    float* convolved;     // [n, channels]
};

struct Matmul {
    Weight weight;
    float* out = nullptr;  // [in.rows, weight.rows]
    bool add = false;      // out += instead of out =
};

struct RouterShape {
    uint32_t experts = 0, used = 0;
    bool normalise = true;  // divide the chosen weights by their sum (clamped below at 6.1e-5)
    float scale = 1;
};

// What a decode step's attention looks for and what it adds to its cells, as matrices leave it.
struct AttentionInputs {
    const float *q_norm, *k_norm;  // [head_dim]; null: none
    float* q;                      // [n, heads, head_dim], or room; undefined afterwards
    const float* pairs;            // [n, heads, 2, head_dim] queries and gates; null: q has them
    const float *k, *v;            // [n, kv_heads, head_dim]
};

// The experts of a layer of a decode step: how rows are routed, and what becomes of them.
struct DecodeExperts {
    RouterShape routing;
    Weight router;
    Routes routes;
    ExpertCacheView cache;
    const DecodePlace* place = nullptr;
    CpuShare share;
    ExpertShape shape;
    std::span<const int32_t> list;         // all of them
    const SharedExpert* shared = nullptr;  // may be null; of one row
    Activations hidden;
    void* out = nullptr;
};

class Kernels {
  public:
    virtual ~Kernels() = default;

    // Asked now and then by what takes long, on the calling thread. Once it says false, attention
    // of a prompt leaves out the rest: its results are wrong then, and nobody may use them.
    void set_wanted(std::function<bool()> wanted) { wanted_ = std::move(wanted); }

    // What of a model these kernels have no room for, with both numbers, for people; empty:
    // nothing. No operation may be asked for anything that is beyond them.
    virtual std::string beyond(const AttentionShape&, const RouterShape&) const { return {}; }

    // Bytes of one row's codes for `cols` activations; a multiple of 64.
    virtual size_t code_bytes(uint32_t cols) const = 0;

    // What an expert puts out, a value, in fast arithmetic: f32, or f16 where a backend keeps it so
    // until `combine`. In f32 arithmetic it is f32.
    virtual size_t expert_out_bytes() const = 0;
    // Whether fast arithmetic uses the f32 values between an expert's matrices (hidden.values)
    // beside their codes.
    virtual bool keeps_hidden_values() const = 0;

    // How many of a prompt's experts should come together, so that a call keeps the device busy.
    virtual uint32_t experts_at_once() const = 0;

    // Bytes that prompt operations need beside a chunk's buffers: lies in the loan, handed over
    // each time the loan is laid. A constant plus a constant for each row. `hidden`: columns of
    // what experts read.
    virtual size_t prompt_scratch_bytes(const AttentionShape& shape, uint32_t experts,
                                        uint32_t used, uint32_t hidden, uint32_t rows) const = 0;
    virtual void set_prompt_scratch(std::byte* scratch, size_t bytes) = 0;

    // Bytes of scratch for all operations with contexts of at most `max_cells`: a constant plus
    // a constant for each kDecodeCut cells or part of them. Handed over once.
    virtual size_t scratch_bytes(const AttentionShape& shape, uint32_t max_cells) const = 0;
    virtual void set_scratch(std::byte* scratch, size_t bytes) = 0;

    // x[i, :] = row tokens[i] of table. The table may lie in page-locked host memory.
    virtual void embed(const Weight& table, const int32_t* tokens /*[n]*/, uint32_t n,
                       float* x /*[n, cols]*/) = 0;

    // out = x / sqrt(mean(x^2) + eps) * weight; fills out.codes too when it is not null.
    virtual void rms_norm(const float* x /*[rows, cols]*/, const float* weight /*[cols]*/,
                          float eps, const Activations& out) = 0;

    // Fills a.codes from a.values.
    virtual void quantise(const Activations& a) = 0;

    // Every job: out[i, r] (+)= dot(weight row r, in row i). Jobs share the input.
    virtual void matmul(std::span<const Matmul> jobs, const Activations& in) = 0;

    // q and k: RMS norm per head (null weight: none), then rotation by shape.rope at position
    // first_cell + i (that of kv.place where it is given); q in place, k and v written to cells
    // first_cell.. of kv. What kv keeps rotated (KvPart::rotated) is rotated last, q with k.
    virtual void rope_store(const AttentionShape& shape, const float* q_norm /*[head_dim]*/,
                            const float* k_norm /*[head_dim]*/, uint32_t first_cell, uint32_t n,
                            float* q /*[n, heads, head_dim]*/,
                            const float* k /*[n, kv_heads, head_dim]*/,
                            const float* v /*[n, kv_heads, head_dim]*/, const KvView& kv) = 0;

    // The same for families whose query rows hold [query | gate] for each head: q becomes what is
    // made of the queries of pairs.
    virtual void rope_store_of_pairs(const AttentionShape& shape, const float* q_norm,
                                     const float* k_norm, uint32_t first_cell, uint32_t n,
                                     const float* pairs /*[n, heads, 2, head_dim]*/, float* q,
                                     const float* k, const float* v, const KvView& kv) = 0;

    // out[i] = softmax(scale q[i] . K[0..first_cell + i]) V: causal, over stored cells only.
    // Tiles lie at absolute multiples of 64 cells. Where kv keeps V rotated, out is rotated back.
    // Fills out.codes too when it is not null.
    virtual void attention_prompt(const AttentionShape& shape, const float* q, uint32_t first_cell,
                                  const KvView& kv, const Activations& out) = 0;
    // The same for 1 to 8 generated tokens at kv.place, cut at fixed absolute cells.
    virtual void attention_decode(const AttentionShape& shape, const float* q, const KvView& kv,
                                  const Activations& out) = 0;

    // out *= sigmoid(the gates of pairs); fills out.codes anew when it is not null.
    virtual void gate_heads(const AttentionShape& shape,
                            const float* pairs /*[out.rows, heads, 2, head_dim]*/,
                            const Activations& out) = 0;

    // attention_decode, then gate_heads, for backends that do both at once.
    virtual void attention_decode_and_gate(const AttentionShape& shape, const float* q,
                                           const KvView& kv, const float* pairs,
                                           const Activations& out) {
        attention_decode(shape, q, kv, out);
        gate_heads(shape, pairs, out);
    }

    // rope_store at kv.place, which is given, and attention_decode of that; with pairs
    // rope_store_of_pairs and attention_decode_and_gate.
    virtual void rope_store_and_attend(const AttentionShape& shape, const AttentionInputs& in,
                                       const KvView& kv, const Activations& out) {
        if (in.pairs) {
            rope_store_of_pairs(shape, in.q_norm, in.k_norm, 0, out.rows, in.pairs, in.q, in.k,
                                in.v, kv);
            attention_decode_and_gate(shape, in.q, kv, in.pairs, out);
        } else {
            rope_store(shape, in.q_norm, in.k_norm, 0, out.rows, in.q, in.k, in.v, kv);
            attention_decode(shape, in.q, kv, out);
        }
    }

    // out[i, c] = silu(sum over t of kernel[c, t] x[i - taps + 1 + t, c]); rows before the first
    // are those of tail, which is left as the last taps - 1 rows. out is not x.
    virtual void causal_conv(const DeltaShape& shape, const float* kernel /*[channels, taps]*/,
                             const float* x /*[n, channels]*/, uint32_t n,
                             float* tail /*[taps - 1, channels]*/,
                             float* out /*[n, channels]*/) = 0;

    // In place: alpha becomes the logarithm of the decay, softplus(alpha + dt) * a, and beta the
    // rate of writing, sigmoid(beta).
    virtual void delta_gates(const DeltaShape& shape, const float* dt /*[value_heads]*/,
                             const float* a /*[value_heads]*/, uint32_t n,
                             float* alpha /*[n, value_heads]*/,
                             float* beta /*[n, value_heads]*/) = 0;

    // matmul of jobs that put out x, alpha and beta, among others, then delta_gates and causal_conv
    // of those; for backends that do it at once, of one row: they may leave x alone.
    virtual void matmul_gates_and_conv(std::span<const Matmul> jobs, const Activations& in,
                                       const DeltaShape& shape, const DeltaInputs& to) {
        matmul(jobs, in);
        delta_gates(shape, to.dt, to.a, in.rows, to.alpha, to.beta);
        causal_conv(shape, to.kernel, to.x, in.rows, to.tail, to.convolved);
    }

    // For each value head and token: S *= exp(alpha); d = beta (v - S^T k); S += k d^T;
    // out = S^T q, with q and k divided by sqrt(|.|^2 + norm_eps) and q by sqrt(head_dim).
    // The prompt form cuts at absolute multiples of kDeltaCells: chunks that begin there give the
    // same bits however long they are. x, alpha and beta are spent: it may work in their place.
    virtual void delta_net_prompt(const DeltaShape& shape, float* x /*[n, channels]*/,
                                  float* alpha /*[n, value_heads]*/,
                                  float* beta /*[n, value_heads]*/, uint32_t first_cell, uint32_t n,
                                  float* state /*[value_heads, head_dim k, v]*/,
                                  float* out /*[n, value_heads, head_dim]*/) = 0;
    // The same token by token; nothing but the state is changed.
    virtual void delta_net_decode(const DeltaShape& shape, const float* x, const float* alpha,
                                  const float* beta, uint32_t n, float* state, float* out) = 0;

    // out = rms_norm(x) * weight * silu(gate), head by head; fills out.codes when it is not null.
    // The values of a prompt that has codes may not be written.
    virtual void gated_norm(const float* x /*[rows, heads, dim]*/, const float* weight /*[dim]*/,
                            float eps, uint32_t dim, const float* gate /*[rows, heads, dim]*/,
                            const Activations& out) = 0;

    // delta_net_decode into net, then gated_norm of that into out, for backends that do both at
    // once: they may leave net alone.
    virtual void delta_net_decode_and_norm(const DeltaShape& shape, const float* x,
                                           const float* alpha, const float* beta, uint32_t n,
                                           float* state, float* net /*[n, value_heads, head_dim]*/,
                                           const float* weight, float eps, const float* gate,
                                           const Activations& out) {
        delta_net_decode(shape, x, alpha, beta, n, state, net);
        gated_norm(net, weight, eps, shape.head_dim, gate, out);
    }

    // Routes of a shared expert, the only one of its table: every row, weight
    // sigmoid(gate . x).
    virtual void route_shared(const float* gate /*[hidden]*/, const float* x /*[rows, hidden]*/,
                              uint32_t hidden, const Routes& routes) = 0;

    // logits = router x; probabilities = softmax; the best `used` by (probability, lower index).
    virtual void route(const RouterShape& shape, const Weight& router,
                       const float* x /*[rows, hidden]*/, const Routes& routes) = 0;

    // For each listed expert e and each of its routes r = order[first[e]..first[e + 1]):
    // out[r] = down(silu(gate x) * up x) with x the row of route r. Experts without routes cost
    // nothing. hidden is scratch of [rows * used, ffn].
    virtual void expert_ffn(const ExpertShape& shape, const ExpertEntry* entries /*[experts]*/,
                            std::span<const int32_t> list, const Routes& routes,
                            const Activations& x, const Activations& hidden,
                            void* out /*[rows * used, hidden]*/) = 0;

    // expert_ffn of a decode step of one row, and a shared expert as rank `used`: routes, hidden
    // and out have room for one route more. For backends that do both at once.
    virtual void expert_ffn_and_shared(const ExpertShape& shape, const ExpertEntry* entries,
                                       std::span<const int32_t> list, const Routes& routes,
                                       const SharedExpert& shared, const Activations& x,
                                       const Activations& hidden, void* out) {
        expert_ffn(shape, entries, list, routes, x, hidden, out);
        Routes its = routes;
        its.expert += shape.used;
        its.weight += shape.used;
        its.order += shape.used;
        Activations between = hidden;
        between.rows = 1;
        between.cols = shared.shape.ffn;
        const int32_t only = 0;
        const size_t bytes = x.codes ? expert_out_bytes() : sizeof(float);
        route_shared(shared.gate, x.values, shape.hidden, its);
        expert_ffn(shared.shape, shared.entry, {&only, 1}, its, x, between,
                   static_cast<std::byte*>(out) + size_t{shape.used} * shape.hidden * bytes);
    }

    // x[i] += sum over ranks, in rank order, of weight[i, rank] * out[i * used + rank].
    virtual void combine(const Routes& routes, uint32_t used, uint32_t hidden, const void* out,
                         float* x) = 0;

    // Staged chunks: copies the listed experts that have routes from home to their entries (device
    // memory). Experts without routes are not copied.
    virtual void gather_routed(const ExpertCacheView& cache, std::span<const int32_t> list,
                               const Routes& routes, const ExpertEntry* to /*[experts]*/) = 0;

    // Prompts: counts the picks of rows [first_row, routes.rows) as heat, as if they were decode
    // calls, so that what a prompt's end used stays warm.
    virtual void note_routes(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                             uint32_t first_row, uint32_t tick) = 0;

    // Decode: makes every routed expert readable through cache.entries. A miss is copied into the
    // usable slot of the layer's coldest expert that this call does not use; with fewer usable
    // slots than routes it is read in place from home. Updates residency, heat and counters. Once a
    // step for each cache: what it was may be read while kernels ahead of this one still run.
    virtual void fetch_experts(const ExpertCacheView& cache, const Routes& routes, uint32_t used,
                               const DecodePlace* place) = 0;

    // The end of a step that met complete caches only, `layers` of them, each with `routes` picks
    // and its table `stride` bytes behind the one ahead: counts them where route_and_fetch has not.
    virtual void note_picks(const ExpertCacheView& /*first*/, size_t /*stride*/,
                            uint32_t /*layers*/, uint32_t /*routes*/,
                            const DecodePlace* /*place*/) {}

    // Whether route_and_fetch and combine_and_norm know of a share; others ignore it.
    virtual bool shares_with_cpu() const { return false; }
    // What follows each other in every layer of a decode step, for backends that do it at once.
    // route, then fetch_experts where the layer has slots. What is left to the processor has no
    // expert and no weight in `routes` afterwards, which expert_ffn and combine leave out.
    virtual void route_and_fetch(const RouterShape& shape, const Weight& router, const float* x,
                                 const Routes& routes, const ExpertCacheView& cache,
                                 const DecodePlace* place, const CpuShare& /*share*/) {
        route(shape, router, x, routes);
        if (cache.slots > 0) fetch_experts(cache, routes, shape.used, place);
    }
    // rms_norm, then route_and_fetch of the norm.
    virtual void norm_route_and_fetch(const float* x, const float* weight, float eps,
                                      const Activations& norm, const RouterShape& shape,
                                      const Weight& router, const Routes& routes,
                                      const ExpertCacheView& cache, const DecodePlace* place,
                                      const CpuShare& share) {
        rms_norm(x, weight, eps, norm);
        route_and_fetch(shape, router, norm.values, routes, cache, place, share);
    }
    // norm_route_and_fetch, then expert_ffn, or expert_ffn_and_shared where there is one.
    virtual void norm_and_experts(const float* x, const float* weight, float eps,
                                  const Activations& norm, const DecodeExperts& job) {
        norm_route_and_fetch(x, weight, eps, norm, job.routing, job.router, job.routes, job.cache,
                             job.place, job.share);
        if (job.shared)
            expert_ffn_and_shared(job.shape, job.cache.entries, job.list, job.routes, *job.shared,
                                  norm, job.hidden, job.out);
        else
            expert_ffn(job.shape, job.cache.entries, job.list, job.routes, norm, job.hidden,
                       job.out);
    }
    // combine, then x += what the processor has put out, then rms_norm of x. Answers where x is
    // afterwards: there, or in `other`, as large.
    virtual float* combine_and_norm(const Routes& routes, uint32_t used, uint32_t hidden,
                                    const void* out, float* x, float* /*other*/,
                                    const float* weight, float eps, const Activations& norm,
                                    const CpuShare& /*share*/) {
        combine(routes, used, hidden, out, x);
        rms_norm(x, weight, eps, norm);
        return x;
    }

    // causal_conv into convolved, then delta_net_prompt of that. After each of `stops` rows, rising
    // and at absolute multiples of kDeltaCells, tail and state are (queued to be) those behind so
    // many rows and stopped(number of the stop) is called. alpha, beta and convolved are spent. out
    // may be where x is, which is spent then.
    struct DeltaPrompt {
        const float* kernel;  // [channels, taps]
        const float* x;       // [n, channels]
        float* tail;          // [taps - 1, channels]
        float* convolved;     // [n, channels]
        float* alpha;         // [n, value_heads]
        float* beta;          // [n, value_heads]
        uint32_t first_cell, n;
        float* state;  // [value_heads, head_dim k, v]
        float* out;    // [n, value_heads, head_dim]

        // Rows [first, end) of it.
        DeltaPrompt rows(const DeltaShape& shape, uint32_t first, uint32_t end) const {
            const size_t channels = size_t{first} * shape.channels();
            const size_t gates = size_t{first} * shape.value_heads;
            return {kernel,
                    x + channels,
                    tail,
                    convolved + channels,
                    alpha + gates,
                    beta + gates,
                    first_cell + first,
                    end - first,
                    state,
                    out + size_t{first} * shape.width()};
        }
    };
    virtual void conv_and_delta_net(const DeltaShape& shape, const DeltaPrompt& prompt,
                                    std::span<const uint32_t> stops,
                                    const std::function<void(size_t)>& stopped) {
        for_slices(prompt.n, stops, stopped, [&](uint32_t first, uint32_t end) {
            const DeltaPrompt at = prompt.rows(shape, first, end);
            causal_conv(shape, at.kernel, at.x, at.n, at.tail, at.convolved);
            delta_net_prompt(shape, at.convolved, at.alpha, at.beta, at.first_cell, at.n, at.state,
                             at.out);
        });
    }

    // best[i] = index of the largest of logits[i, :], the lowest among equals.
    virtual void argmax(const float* logits /*[n, vocab]*/, uint32_t n, uint32_t vocab,
                        int32_t* best /*[n]*/) = 0;

  protected:
    // run(first, end) for the rows up to each stop and up to n, in order.
    template <class Run>
    static void for_slices(uint32_t n, std::span<const uint32_t> stops,
                           const std::function<void(size_t)>& stopped, const Run& run) {
        uint32_t first = 0;
        const auto run_to = [&](uint32_t end) {
            if (end > first) run(first, end);
            first = end;
        };
        for (size_t i = 0; i < stops.size(); ++i) {
            run_to(stops[i]);
            stopped(i);
        }
        run_to(n);
    }
    bool wanted() const { return !wanted_ || wanted_(); }

  private:
    std::function<bool()> wanted_;
};

}  // namespace granary::gpu
