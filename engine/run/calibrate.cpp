// SPDX-License-Identifier: GPL-3.0-or-later
// Measures the rates of the device with the model that is loaded: a few copies, chunks and tokens,
// each the quickest of several, so that other programs hardly show.
#include <algorithm>
#include <array>
#include <random>

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

// The middle one of calls that take `patience` seconds together: what comes from memory is not the
// same each time. `call` gives its seconds.
template <class F>
Result<double> typical(double patience, F&& call) {
    std::vector<double> all;
    for (double spent = 0; all.size() < 9 || (spent < patience && all.size() < 200);) {
        const Result<double> seconds = call();
        if (!seconds) return seconds;
        all.push_back(*seconds);
        spent += *seconds;
        if (spent > 20 * patience) break;  // a slow machine
    }
    const auto middle = all.begin() + static_cast<ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    return std::max(*middle, 1e-9);
}

constexpr double kPatience = 0.1;
constexpr uint32_t kLeastChunk = 256;
constexpr double kLongEnough = 0.08;   // seconds of a chunk
constexpr uint32_t kDepthChunks = 16;  // depth of the second measurements, where there is room
constexpr uint32_t kFewer = 4;         // a chunk's part that tells unpacking from products

// What is measured at one depth.
struct AtDepth {
    double chunk = 0, attention = 0;  // seconds; attention: a token's, in all layers
};

class Calibration {
  public:
    // `nice`: of threads that must be started.
    Calibration(const Core& core, const RunContext& run, KvId kv, uint32_t& heat_tick, int nice)
        : core_(core),
          run_(run),
          kv_(kv),
          heat_tick_(heat_tick),
          nice_(nice),
          memory_(*core.memory),
          device_(*core.device),
          model_(core.model),
          computing_(core.plan) {
        run_.stand_ins = memory_.experts().rows() > 0;
        run_.phases = nullptr;
        computing_.rows_at_start = 0;
    }

    Result<Rates> run() {
        Rates rates = rates_of(core_.facts);
        if (auto r = take_loan(); !r) return tl::unexpected(r.error());
        const uint32_t chunk = loan_.chunk;
        if (auto r = measure_memory(rates); !r) return tl::unexpected(r.error());
        if (core_.cpu) {
            if (auto r = core_.cpu->begin(core_.plan.settings.threads, nice_); !r)
                return tl::unexpected(r.error());
            rates.cpu = static_cast<double>(model_.facts.row_bytes) / model_.facts.layers /
                        (core_.cpu->measure(run_.arithmetic).each * core_.cpu->slowdown());
        }
        const auto weights = output_rate();
        if (!weights) return tl::unexpected(weights.error());
        rates.weights = *weights;
        const auto first = at_depth(0);
        if (!first) return tl::unexpected(first.error());
        const uint32_t fewer = std::max(chunk / kFewer / 64 * 64, 64u);
        const auto part = quickest(kPatience, [&] { return chunk_at(0, fewer); });
        if (!part) return tl::unexpected(part.error());
        // As deep as the context and its granules allow.
        uint32_t depth = std::min(kDepthChunks * chunk, (core_.plan.max_context - chunk) / 64 * 64);
        while (depth > 64 && memory_.kv_need(kv_, depth + chunk) > memory_.kv_available())
            depth = depth / 2 / 64 * 64;
        const auto second = at_depth(depth, first->chunk);
        if (!second) return tl::unexpected(second.error());
        // As answers are computed: with all memory that experts may have.
        memory_.return_loan();
        const auto token = without_share([&] { return token_alone(rates.link, rates.gather); });
        if (!token) return tl::unexpected(token.error());
        derive(rates, *first, *second, depth, *token, fewer, *part);
        return rates;
    }

  private:
    // The smallest loan from which a chunk takes long enough to be told from launches, or the
    // plan's largest.
    Result<void> take_loan() {
        const uint32_t most =
            std::min(core_.plan.chunk_at_max, core_.plan.max_context / 2 / 64 * 64);
        for (uint32_t chunk = std::min(kLeastChunk, most);; chunk = std::min(chunk * 2, most)) {
            auto loan = memory_.take_loan(chunk);
            if (!loan) return tl::unexpected(loan.error());
            loan_ = *loan;
            if (auto r = memory_.grow_kv(kv_, chunk); !r) return tl::unexpected(r.error());
            (void)chunk_at(0, chunk);  // the first one is slow
            const auto start = Clock::now();
            if (auto r = chunk_at(0, chunk); !r) return r;
            const double seconds = seconds_since(start);
            if (seconds > kLongEnough || chunk == most) return {};
            memory_.return_loan();
        }
    }

    Result<void> chunk_at(uint32_t depth, uint32_t rows) {
        std::vector<TokenId> tokens(rows);
        for (TokenId& token : tokens) token = any_token();
        auto done = read_chunk(run_, loan_, memory_.kv_base(kv_), {depth, rows, heat_tick_, {}},
                               tokens, [](uint32_t) { return true; }, {});
        if (!done) return tl::unexpected(done.error());
        return {};
    }
    TokenId any_token() { return static_cast<TokenId>(random_() % model_.facts.vocab); }

    // Memory against itself, and experts into the ring.
    Result<void> measure_memory(Rates& rates) {
        const uint64_t half = std::min<uint64_t>(loan_.layout.pass.bytes / 2, 256 << 20);
        auto copies = quickest(kPatience / 4, [&] {
            device_.copy(gpu::StreamId::compute, loan_.base, loan_.base + half, half);
            return device_.synchronize(gpu::StreamId::compute);
        });
        if (!copies) return tl::unexpected(copies.error());
        rates.memory = 2.0 * static_cast<double>(half) / *copies;

        if (memory_.experts().rows() == 0) return {};
        // As many at once as a wave of the ring, where they follow one another.
        const size_t wave = std::min<size_t>(loan_.layout.ring_wave, model_.facts.experts);
        uint64_t bytes = 0;
        auto experts = typical(kPatience, [&]() -> Result<double> {
            bytes = 0;
            const auto start = Clock::now();
            for (const Layer& layer : model_.layers) {
                const MoeWeights& moe = layer.moe;
                // Other experts each time: none is in a cache yet.
                next_ += wave;
                const size_t first = next_ % (moe.home.size() - wave + 1);
                gpu::ExpertEntry home = moe.home[first];
                std::byte* const to =
                    loan_.base + loan_.layout.ring +
                    next_ / wave % loan_.layout.ring_waves * wave * loan_.layout.ring_stride;
                if (!moe.home_readable) home = brought(layer, first, wave);
                const std::array<gpu::Copy, 3> copies{
                    {{to, home.gate, wave * moe.gate_bytes},
                     {to + wave * moe.up_offset, home.up, wave * moe.up_bytes},
                     {to + wave * moe.down_offset, home.down, wave * moe.down_bytes}}};
                device_.copy_all(gpu::StreamId::copy, copies);
                for (const gpu::Copy& copy : copies) bytes += copy.bytes;
                if (!moe.home_readable)
                    taken_[brought_ % taken_.size()] = device_.record(gpu::StreamId::copy);
            }
            if (auto r = device_.synchronize(gpu::StreamId::copy); !r)
                return tl::unexpected(r.error());
            return seconds_since(start);
        });
        if (!experts) return tl::unexpected(experts.error());
        rates.link = static_cast<double>(bytes) / *experts;
        return {};
    }

    // Experts that the device cannot read, where the processor has brought them.
    gpu::ExpertEntry brought(const Layer& layer, size_t first, size_t wave) {
        const MoeWeights& moe = layer.moe;
        device_.wait_here(taken_[++brought_ % taken_.size()]);
        std::byte* const at = core_.cpu->ring_place(brought_);
        const gpu::ExpertEntry begin{at, at + wave * moe.up_offset, at + wave * moe.down_offset};
        std::vector<int32_t> experts(wave);
        std::vector<gpu::ExpertEntry> to(wave);
        for (size_t i = 0; i < wave; ++i) {
            experts[i] = static_cast<int32_t>(first + i);
            to[i] = {begin.gate + i * moe.gate_bytes, begin.up + i * moe.up_bytes,
                     begin.down + i * moe.down_bytes};
        }
        core_.cpu->bring(static_cast<uint32_t>(&layer - model_.layers.data()), experts, to);
        return begin;
    }

    // Bytes a second of the largest matrix that meets one row.
    Result<double> output_rate() {
        const PassBuffers at = run_.buffers(memory_.workspace(), run_.workspace.pass, 1);
        auto* const logits = reinterpret_cast<float*>(memory_.workspace() + run_.workspace.logits);
        const gpu::Matmul job{model_.output, logits, false};
        device_.kernels().rms_norm(at.x, model_.output_norm, model_.norm_eps, at.norm);
        const auto seconds = quickest(kPatience / 4, [&] {
            device_.kernels().matmul({&job, 1}, at.norm);
            return device_.synchronize(gpu::StreamId::compute);
        });
        if (!seconds) return seconds;
        return static_cast<double>(model_.facts.output_bytes) / *seconds;
    }

    // Of all experts that tokens have missed so far.
    Result<uint64_t> bytes_copied() {
        if (memory_.experts().rows() == 0) return uint64_t{0};
        memory_.experts().read_back();
        if (auto r = device_.synchronize(gpu::StreamId::compute); !r)
            return tl::unexpected(r.error());
        return memory_.experts().picks().bytes_copied;
    }

    // A share of the processor is foretold from what it and the link do alone.
    template <class F>
    Result<double> without_share(F&& measure) {
        if (!core_.cpu || !core_.cpu->shares()) return measure();
        if (auto r = core_.cpu->suspend_shares(); !r) return tl::unexpected(r.error());
        auto result = measure();
        if (auto r = core_.cpu->resume_shares(); !r && result) return tl::unexpected(r.error());
        return result;
    }

    // Seconds of a token at cell 0 that misses nothing, by the line through what each of many took
    // and copied. `gather` becomes the bytes a second of that. Each comes twice: the second time
    // its experts are there, where a layer has room for them.
    Result<double> token_alone(double link, double& gather) {
        struct Token {
            double seconds = 0, copied = 0;
        };
        std::vector<Token> tokens;
        auto before = bytes_copied();
        TokenId any = 0;
        for (double spent = 0; tokens.size() < 12 || (spent < kPatience && tokens.size() < 200);) {
            if (!before) return tl::unexpected(before.error());
            if (tokens.size() % 2 == 0) any = any_token();
            const auto start = Clock::now();
            if (auto r = decode_step(run_, memory_.kv_base(kv_), 0, {&any, 1}, ++heat_tick_); !r)
                return tl::unexpected(r.error());
            const double seconds = seconds_since(start);
            const auto after = bytes_copied();
            if (!after) return tl::unexpected(after.error());
            tokens.push_back({seconds, static_cast<double>(*after - *before)});
            before = after;
            spent += seconds;
            if (spent > 20 * kPatience) break;  // a slow machine
        }
        // Without the slowest tenth, so that other programs hardly show.
        const auto cost = [&](const Token& token) { return token.seconds - token.copied / link; };
        std::sort(tokens.begin(), tokens.end(),
                  [&](const Token& a, const Token& b) { return cost(a) < cost(b); });
        tokens.resize(std::max<size_t>(tokens.size() * 9 / 10, 1));
        Token mean;
        for (const Token& token : tokens) {
            mean.seconds += token.seconds / static_cast<double>(tokens.size());
            mean.copied += token.copied / static_cast<double>(tokens.size());
        }
        double together = 0, square = 0;
        for (const Token& token : tokens) {
            together += (token.copied - mean.copied) * (token.seconds - mean.seconds);
            square += (token.copied - mean.copied) * (token.copied - mean.copied);
        }
        // A card that holds every expert misses none; a slope is of use within reason.
        gather = together > 0 ? std::clamp(square / together, link / 4, link) : link;
        return std::max(mean.seconds - mean.copied / gather, 1e-9);
    }

    // Seconds of a token's attention to its own cell and `depth` others, alone: what experts cost a
    // token that misses some differs by more than that from token to token. Few cells come from the
    // second cache; Rates::memory bounds what that foretells.
    Result<double> attention_at(uint32_t depth) {
        gpu::DecodePlace* const place = run_.place();
        const PassBuffers at = run_.buffers(memory_.workspace(), run_.workspace.pass, 1);
        const gpu::DecodePlace now{memory_.kv_base(kv_), depth, heat_tick_};
        device_.copy(gpu::StreamId::compute, place, &now, sizeof now);
        return quickest(kPatience / 4, [&] {
            for (const Layer& layer : model_.layers)
                if (const auto* weights = std::get_if<AttentionWeights>(&layer.mixer))
                    device_.kernels().rope_store_and_attend(
                        model_.attention,
                        {weights->q_norm, weights->k_norm, at.q,
                         model_.facts.gated_queries ? at.pairs : nullptr, at.k, at.v},
                        memory_.kv().view(place, layer.number), at.attention);
            return device_.synchronize(gpu::StreamId::compute);
        });
    }

    // Cells in front of what is measured at a depth. Products with zeros take less power than
    // others, and a card that is short of power is faster by them (H200: 771 TFLOP/s of attention,
    // and 600 to 690 otherwise). So cells are read up to a whole step of K/V, unless that takes a
    // second, and copied from there on.
    Result<void> fill_cells(uint32_t end, double chunk_seconds) {
        uint32_t read = loan_.chunk;
        for (; read < gpu::kStepCells && read + loan_.chunk <= end; read += loan_.chunk) {
            if (chunk_seconds * gpu::kStepCells > loan_.chunk) return {};
            if (auto r = chunk_at(read, loan_.chunk); !r) return r;
        }
        const uint64_t known = read / gpu::kStepCells;
        const uint64_t step = memory_.kv().step_bytes;
        const uint64_t steps = (end + gpu::kStepCells - 1) / gpu::kStepCells;
        std::byte* const base = memory_.kv_base(kv_);
        for (uint64_t at = known; known > 0 && at < steps; at += known)
            device_.copy(gpu::StreamId::compute, base + at * step, base,
                         std::min(known, steps - at) * step);
        return {};
    }

    // chunk_seconds: of a chunk at 0, which is measured first.
    Result<AtDepth> at_depth(uint32_t depth, double chunk_seconds = 0) {
        if (auto r = memory_.grow_kv(kv_, depth + loan_.chunk); !r)
            return tl::unexpected(r.error());
        if (depth > 0)
            if (auto r = fill_cells(depth + loan_.chunk, chunk_seconds); !r)
                return tl::unexpected(r.error());
        AtDepth found;
        auto chunk = quickest(kPatience, [&] { return chunk_at(depth, loan_.chunk); });
        if (!chunk) return tl::unexpected(chunk.error());
        found.chunk = *chunk;
        const auto attention = attention_at(depth);
        if (!attention) return tl::unexpected(attention.error());
        found.attention = *attention;
        return found;
    }

    // From seconds to rates: each is what is left when the others are taken off.
    void derive(Rates& rates, const AtDepth& first, const AtDepth& second, uint32_t depth,
                double token, uint32_t fewer, double part) const {
        DeviceFacts facts = core_.facts;
        const ModelFacts& model = model_.facts;
        const auto predictor = [&] {
            facts.rates = rates;
            return Predictor(model, facts, computing_);
        };
        const auto rate = [](double& figure, double work, double seconds, double all) {
            // What is lost in the noise of the rest stays as it was guessed.
            if (work > 0 && seconds > 0.02 * all) figure = work / seconds;
        };
        constexpr double kAtOnce = 1e30;  // takes no time
        const uint32_t chunk = loan_.chunk;

        const Rates guessed = rates;
        rates.layer = 0;
        rates.layer = std::max(0.0, token - predictor().token_without_misses(0)) / model.layers;
        rate(rates.cells, kv_values(model) * depth, second.attention - first.attention,
             second.attention);
        rate(rates.attention,
             (predictor().attention(depth, chunk) - predictor().attention(0, chunk)) *
                 guessed.attention,
             second.chunk - first.chunk, second.chunk);

        // chunk = others + products + unpacking, and the same of the part: two equations.
        const auto seconds_with = [&](double products, double unpack, uint32_t rows) {
            rates.products = products;
            rates.unpack = unpack;
            return predictor().chunk(chunk, 0, rows);
        };
        const auto terms = [&](uint32_t rows, double seconds) {
            const double others = seconds_with(kAtOnce, kAtOnce, rows);
            return std::array{seconds_with(1, kAtOnce, rows) - others,
                              seconds_with(kAtOnce, 1, rows) - others, seconds - others};
        };
        const auto all = terms(chunk, first.chunk), few = terms(fewer, part);
        const double determinant = all[0] * few[1] - few[0] * all[1];
        const double per_flop = (all[2] * few[1] - few[2] * all[1]) / determinant;
        const double per_byte = (all[0] * few[2] - few[0] * all[2]) / determinant;
        if (fewer < chunk && per_flop > 0 && per_byte > 0) {
            rates.products = 1 / per_flop;
            rates.unpack = 1 / per_byte;
            return;
        }
        // Noise, or one of them takes no time: the other stays as it was.
        rates.unpack = guessed.unpack;
        rates.products = kAtOnce;
        const double others = predictor().chunk(chunk, 0, chunk);
        rates.products = guessed.products;
        rate(rates.products, all[0], first.chunk - others, first.chunk);
    }

    const Core& core_;
    RunContext run_;
    const KvId kv_;
    uint32_t& heat_tick_;
    const int nice_;
    MemoryManager& memory_;
    gpu::Device& device_;
    const Model& model_;
    Plan computing_;  // the plan of a device that copies nothing
    MemoryManager::Loan loan_;
    std::array<gpu::Event, CpuWorker::kRingWaves> taken_{};
    size_t brought_ = 0;
    std::mt19937 random_{1};
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
    auto rates = Calibration(*core, run, *kv, heat_tick, options.nice).run();
    memory.return_loan();
    leave(conversation);
    memory.drop_kv(*kv);
    return rates;
}

}  // namespace granary
