// SPDX-License-Identifier: GPL-3.0-or-later
// Measures the rates of the device with the model that is loaded: a few copies, chunks and tokens,
// each the quickest of several, so that other programs hardly show.
#include <algorithm>
#include <cmath>

#include "engine/memory/rates.h"
#include "engine/run/clock.h"
#include "engine/run/engine_impl.h"

namespace granary {
namespace {

// The quickest of calls that take `patience` seconds together, but three at least.
template <class F>
Result<double> quickest(double patience, F&& call) {
    double best = 1e30, spent = 0;
    for (int i = 0; i < 3 || (spent < patience && i < 200); ++i) {
        const auto start = Clock::now();
        if (Result<void> r = call(); !r) return tl::unexpected(r.error());
        const double seconds = seconds_since(start);
        best = std::min(best, seconds);
        spent += seconds;
        if (spent > 20 * patience) break;  // a slow machine
    }
    return std::max(best, 1e-9);
}

constexpr double kPatience = 0.1;
constexpr uint32_t kLeastChunk = 256;
constexpr double kLongEnough = 0.03;   // seconds of a chunk
constexpr uint32_t kDepthChunks = 16;  // depth of the second measurements, where there is room
// Kernels that a layer launches, one after the other.
constexpr double kLaunches = 10;

// What is measured at one depth.
struct AtDepth {
    double chunk = 0, token = 0;  // seconds
};

class Calibration {
  public:
    Calibration(const Core& core, const RunContext& run, KvId kv, uint32_t& heat_tick)
        : core_(core),
          run_(run),
          kv_(kv),
          heat_tick_(heat_tick),
          memory_(*core.memory),
          device_(*core.device),
          model_(core.model),
          plan_(core.plan) {
        plan_.stream_min = UINT32_MAX;  // staged copies can be counted out
        plan_.cpu_share = 0;
    }

    Result<Rates> run() {
        Rates rates = core_.facts.rates.value_or(unmeasured_host(core_.facts.threads));
        if (auto r = take_loan(); !r) return tl::unexpected(r.error());
        const uint32_t chunk = loan_.chunk;
        if (auto r = measure_memory(rates); !r) return tl::unexpected(r.error());
        const auto first = at_depth(0);
        if (!first) return tl::unexpected(first.error());
        // As deep as the context and its granules allow.
        uint32_t depth = std::min(kDepthChunks * chunk, (plan_.max_context - chunk) / 64 * 64);
        while (depth > 64 && memory_.kv_need(kv_, depth + chunk) > memory_.kv_available())
            depth = depth / 2 / 64 * 64;
        const auto second = at_depth(depth);
        if (!second) return tl::unexpected(second.error());
        memory_.return_loan();
        derive(rates, *first, *second, depth);
        return rates;
    }

  private:
    RunContext context() const {  // with a plan that stages
        return {
            device_, model_, memory_, plan_, run_.workspace, run_.arithmetic, run_.recorded_steps};
    }

    // The smallest loan from which a chunk takes long enough to be told from launches, or the
    // plan's largest.
    Result<void> take_loan() {
        const uint32_t most = std::min(plan_.chunk_at_max, plan_.max_context / 2 / 64 * 64);
        for (uint32_t chunk = std::min(kLeastChunk, most);; chunk = std::min(chunk * 2, most)) {
            auto loan = memory_.take_loan(chunk);
            if (!loan) return tl::unexpected(loan.error());
            loan_ = *loan;
            if (auto r = memory_.grow_kv(kv_, chunk); !r) return tl::unexpected(r.error());
            (void)chunk_at(0);  // the first one is slow
            const auto start = Clock::now();
            if (auto r = chunk_at(0); !r) return r;
            const double seconds = seconds_since(start);
            if (seconds > kLongEnough || chunk == most) return {};
            memory_.return_loan();
        }
    }

    // Cells before the measured ones are zeros: attention costs the same whatever they hold.
    Result<void> chunk_at(uint32_t depth) {
        std::vector<TokenId> tokens(loan_.chunk);
        for (uint32_t i = 0; i < loan_.chunk; ++i)
            tokens[i] = static_cast<TokenId>(uint64_t{i} * 7919 % model_.facts.vocab);
        auto at =
            read_chunk(context(), loan_, memory_.kv_base(kv_), {depth, loan_.chunk, heat_tick_, {}},
                       tokens, [](uint32_t) { return true; });
        if (!at) return tl::unexpected(at.error());
        return {};
    }

    // A kernel that does next to nothing, memory against itself, and experts into the ring.
    Result<void> measure_memory(Rates& rates) {
        const PassBuffers at = context().buffers(loan_.base, loan_.layout.pass, 1);
        auto launches = quickest(kPatience / 4, [&] {
            for (int i = 0; i < 100; ++i)
                device_.kernels().rms_norm(at.x, model_.output_norm, model_.norm_eps, at.norm);
            return device_.synchronize(gpu::StreamId::compute);
        });
        if (!launches) return tl::unexpected(launches.error());
        rates.layer = kLaunches * *launches / 100;

        const uint64_t half = std::min<uint64_t>(loan_.layout.pass.bytes / 2, 256 << 20);
        auto copies = quickest(kPatience / 4, [&] {
            device_.copy(gpu::StreamId::compute, loan_.base, loan_.base + half, half);
            return device_.synchronize(gpu::StreamId::compute);
        });
        if (!copies) return tl::unexpected(copies.error());
        rates.memory = 2.0 * static_cast<double>(half) / *copies;

        if (memory_.experts().rows() == 0) return {};
        const size_t ring = size_t{loan_.layout.ring_wave} * loan_.layout.ring_waves;
        uint64_t bytes = 0;
        auto experts = quickest(kPatience, [&] {
            bytes = 0;
            for (const Layer& layer : model_.layers) {
                const MoeWeights& moe = layer.moe;
                // Another expert each time: none is in a cache yet.
                const gpu::ExpertEntry& home = moe.home[++next_ % moe.home.size()];
                std::byte* const to =
                    loan_.base + loan_.layout.ring + next_ % ring * loan_.layout.ring_stride;
                const auto copy = [&](uint64_t offset, const std::byte* from, uint64_t size) {
                    device_.copy(gpu::StreamId::copy, to + offset, from, size);
                    bytes += size;
                };
                copy(0, home.gate, moe.gate_bytes);
                copy(moe.up_offset, home.up, moe.up_bytes);
                copy(moe.down_offset, home.down, moe.down_bytes);
            }
            return device_.synchronize(gpu::StreamId::copy);
        });
        if (!experts) return tl::unexpected(experts.error());
        rates.link = static_cast<double>(bytes) / *experts;
        return {};
    }

    Result<AtDepth> at_depth(uint32_t depth) {
        if (auto r = memory_.grow_kv(kv_, depth + loan_.chunk); !r)
            return tl::unexpected(r.error());
        AtDepth found;
        auto chunk = quickest(kPatience, [&] { return chunk_at(depth); });
        if (!chunk) return tl::unexpected(chunk.error());
        found.chunk = *chunk;
        // One token again and again: after the first time its experts are there.
        const TokenId any = 1;
        auto token = quickest(kPatience, [&] {
            return decode_step(context(), memory_.kv_base(kv_), depth, {&any, 1}, ++heat_tick_);
        });
        if (!token) return tl::unexpected(token.error());
        found.token = *token;
        return found;
    }

    // From seconds to rates: each is what is left when the others are taken off.
    void derive(Rates& rates, const AtDepth& first, const AtDepth& second, uint32_t depth) const {
        DeviceFacts facts = core_.facts;
        const ModelFacts& model = model_.facts;
        const auto predictor = [&] {
            facts.rates = rates;
            return Predictor(model, facts, plan_);
        };
        const auto rate = [](double& figure, double work, double seconds, double all) {
            // What is lost in the noise of the rest stays as it was guessed.
            if (seconds > 0.02 * all) figure = work / seconds;
        };
        constexpr double kAtOnce = 1e30;  // takes no time
        const uint32_t chunk = loan_.chunk;

        const Rates guessed = rates;
        rates.weights = kAtOnce;
        rates.cells = kAtOnce;
        const double launches = predictor().token_without_misses(0);
        rates.weights = guessed.weights;
        rate(rates.weights, (predictor().token_without_misses(0) - launches) * guessed.weights,
             first.token - launches, first.token);
        rates.cells = guessed.cells;
        rate(rates.cells, kv_values(model) * depth, second.token - first.token, second.token);

        rates.attention = guessed.attention;
        rate(rates.attention,
             (predictor().attention(depth, chunk) - predictor().attention(0, chunk)) *
                 guessed.attention,
             second.chunk - first.chunk, second.chunk);
        rates.products = kAtOnce;
        const double others = predictor().chunk(chunk, 0, chunk);
        rates.products = guessed.products;
        rate(rates.products, (predictor().chunk(chunk, 0, chunk) - others) * guessed.products,
             first.chunk - others, first.chunk);
    }

    const Core& core_;
    const RunContext& run_;
    const KvId kv_;
    uint32_t& heat_tick_;
    MemoryManager& memory_;
    gpu::Device& device_;
    const Model& model_;
    Plan plan_;
    MemoryManager::Loan loan_;
    size_t next_ = 0;
};

}  // namespace

Result<Rates> Engine::Impl::measure_rates() {
    Conversation conversation;  // its state is the one that changes
    conversation.passing = true;
    if (auto r = enter(conversation, 0); !r) return tl::unexpected(r.error());
    MemoryManager& memory = *core->memory;
    auto kv = memory.create_kv();
    if (!kv) {
        leave(conversation);
        return tl::unexpected(kv.error());
    }
    const RunContext run = context();
    auto rates = Calibration(*core, run, *kv, heat_tick).run();
    memory.return_loan();
    leave(conversation);
    memory.drop_kv(*kv);
    return rates;
}

}  // namespace granary
