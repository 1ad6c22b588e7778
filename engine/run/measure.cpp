// SPDX-License-Identifier: GPL-3.0-or-later
// Numbers instead of answers: logits at positions, and speeds.
#include <algorithm>
#include <random>
#include <thread>

#include "engine/run/clock.h"
#include "engine/run/engine_impl.h"

namespace granary {
namespace {

Error too_long(uint64_t tokens, uint32_t max_context) {
    return {
        ErrorKind::refused, "the tokens do not fit",
        std::to_string(tokens) + " tokens are more than max-context " + std::to_string(max_context),
        tokens <= kLongestContext ? "Raise max-context to " + std::to_string(tokens) + " or more"
                                  : "No context is that long"};
}

}  // namespace

Result<LogitsResult> Engine::Impl::logits(const LogitsRequest& request) {
    const uint32_t vocab = core->model.facts.vocab;
    const uint64_t all = request.tokens.size() + uint64_t{request.greedy};
    if (request.tokens.empty())
        return fail(ErrorKind::invalid_argument, "there are no tokens to compute");
    if (all > core->plan.max_context) return tl::unexpected(too_long(all, core->plan.max_context));
    for (TokenId token : request.tokens)
        if (token < 0 || static_cast<uint32_t>(token) >= vocab)
            return fail(ErrorKind::invalid_argument, "a token is outside the vocabulary",
                        std::to_string(token) + " of " + std::to_string(vocab));
    for (uint32_t position : request.positions)
        if (position >= request.tokens.size())
            return fail(ErrorKind::invalid_argument, "a position lies behind the tokens",
                        std::to_string(position) + " of " + std::to_string(request.tokens.size()));

    LogitsResult result;
    result.argmax.resize(request.tokens.size());
    result.logits.resize(request.positions.size());
    const RunContext run = context();
    const uint32_t hidden = core->model.facts.hidden;
    const auto each = [&](const float* x, uint32_t cell, uint32_t rows) -> Result<void> {
        for (uint32_t first = 0; first < rows; first += kDecodeRows) {
            const uint32_t n = std::min(kDecodeRows, rows - first);
            if (auto r = output_logits(run, x + size_t{first} * hidden, n); !r) return r;
            for (uint32_t i = 0; i < n; ++i) {
                const uint32_t position = cell + first + i;
                result.argmax[position] = run.best()[i];
                const float* row = run.logits() + size_t{i} * vocab;
                for (size_t p = 0; p < request.positions.size(); ++p)
                    if (request.positions[p] == position) result.logits[p].assign(row, row + vocab);
            }
        }
        return {};
    };
    Conversation conversation;
    conversation.passing = true;
    Report report;
    Result<void> outcome = read(conversation, request.tokens, 0, {}, nullptr, report, each);
    TokenId next = result.argmax.back();
    for (uint32_t i = 0; i < request.greedy && outcome; ++i) {
        result.greedy.push_back(next);
        if (i + 1 == request.greedy) break;
        if (auto growth = step(run, conversation, {&next, 1}); !growth)
            outcome = tl::unexpected(growth.error());
        next = run.best()[0];
    }
    leave(conversation);
    if (conversation.kv) run.memory.drop_kv(conversation.kv);
    if (!outcome) return tl::unexpected(outcome.error());
    return result;
}

// Stages of a bench, one after the other in one conversation.
class Engine::Impl::BenchRun {
  public:
    BenchRun(Impl& engine, const Listener& listener, const StopSignal* stop)
        : engine_(engine), listener_(listener), stop_(stop), clock_(*engine.core->device) {
        conversation_.passing = true;
    }
    ~BenchRun() {
        engine_.phases = nullptr;
        engine_.leave(conversation_);
        if (conversation_.kv) memory().drop_kv(conversation_.kv);
    }

    Result<BenchResult> run(const BenchStage& stage) {
        BenchResult result;
        result.depth = conversation_.cells;
        result.experts_before = memory().experts().resident();
        // Answering needs a cell to look at.
        const uint32_t unread = conversation_.cells + stage.prompt_tokens ? 0 : 1;
        auto done = read_on(stage.prompt_tokens + unread, result);
        if (!done) return tl::unexpected(done.error());
        if (stage.prompt_tokens == 0) result.prefill_tok_s = 0;
        result.experts_after = memory().experts().resident();
        if (done = answer_on(stage.decode_tokens, result); !done)
            return tl::unexpected(done.error());
        // Who stops wants to go on from there.
        conversation_.passing = false;
        for (uint32_t i = 0; i < stage.stops; ++i) {
            if (done = go_on(); !done) return tl::unexpected(done.error());
            const double all = stage.prompt_tokens / result.prefill_tok_s;
            if (done = stop_after(all * (i + 0.5) / stage.stops, stage.prompt_tokens, result);
                !done)
                return tl::unexpected(done.error());
        }
        conversation_.passing = true;
        return result;
    }

  private:
    MemoryManager& memory() { return *engine_.core->memory; }
    TokenId any_token() {
        return static_cast<TokenId>(random_() % engine_.core->model.facts.vocab);
    }

    void add_tokens(uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) tokens_.push_back(any_token());
    }
    Result<void> go_on() const {
        if (stop_ && stop_->requested()) return fail(ErrorKind::cancelled, "the bench was stopped");
        return {};
    }

    Result<void> read_on(uint32_t count, BenchResult& result) {
        if (count == 0) return {};
        add_tokens(count);
        const PhaseSeconds before = clock_.seconds();
        engine_.phases = &clock_;
        const RunContext run = engine_.context();
        const auto start = Clock::now();
        auto done = engine_.read(conversation_, tokens_, conversation_.cells, listener_, stop_,
                                 result.reading, engine_.last_logits(run, tokens_.size()));
        result.prefill_tok_s = count / seconds_since(start);
        engine_.phases = nullptr;
        for (size_t i = 0; i < before.size(); ++i)
            result.phases[i] = clock_.seconds()[i] - before[i];
        return done;
    }

    // Reads `count` tokens more, and stops after so many seconds. What was read until then stays.
    Result<void> stop_after(double seconds, uint32_t count, BenchResult& result) {
        add_tokens(count);
        const uint32_t depth = conversation_.cells;
        // Nobody goes further back than to here.
        std::erase_if(conversation_.checkpoints,
                      [&](const Checkpoint& checkpoint) { return checkpoint.cells != depth; });
        StopSignal stop;
        Clock::time_point asked;
        std::thread someone([&] {
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
            asked = Clock::now();
            stop.request();
        });
        Report report;
        const auto done =
            engine_.read(conversation_, tokens_, conversation_.cells, listener_, &stop, report,
                         [](const float*, uint32_t, uint32_t) { return Result<void>(); });
        const auto ended = Clock::now();
        someone.join();
        tokens_.resize(conversation_.cells);
        if (done) return {};
        if (done.error().kind != ErrorKind::cancelled) return done;
        result.stops.push_back({std::chrono::duration<double>(ended - asked).count(), depth});
        return {};
    }

    Result<void> answer_on(uint32_t count, BenchResult& result) {
        // What the tables of the expert cache say, as of now.
        const auto know = [&] { memory().publish(true, MemoryManager::Compute::idle); };
        const Counters& counters = engine_.telemetry.counters;
        know();
        const uint64_t hits = counters.expert_hits, misses = counters.expert_misses;
        const CpuWorker* const cpu = engine_.core->cpu.get();
        const uint64_t computed = cpu ? cpu->experts_computed() : 0;
        uint64_t copied = counters.bytes_copied;
        double answering = 0;
        for (uint32_t i = 0; i < count; ++i) {
            if (auto r = go_on(); !r) return r;
            const TokenId next = any_token();
            const uint32_t cell = conversation_.cells;
            const auto start = Clock::now();
            auto growth = engine_.step(engine_.context(), conversation_, {&next, 1});
            const double seconds = seconds_since(start);
            if (!growth) return tl::unexpected(growth.error());
            tokens_.push_back(next);
            know();
            const uint64_t now = counters.bytes_copied;
            result.tokens.push_back({seconds, cell, growth->granules, now - copied});
            copied = now;
            answering += seconds;
        }
        result.hits = counters.expert_hits - hits;
        result.misses = counters.expert_misses - misses;
        result.left_to_cpu = cpu ? cpu->experts_computed() - computed : 0;
        if (answering > 0) result.decode_tok_s = count / answering;
        return {};
    }

    Impl& engine_;
    const Listener& listener_;
    const StopSignal* const stop_;
    PhaseClock clock_;
    Conversation conversation_;
    std::vector<TokenId> tokens_;
    std::mt19937 random_{1};
};

Result<std::vector<BenchResult>> Engine::Impl::bench(std::span<const BenchStage> stages,
                                                     const Listener& listener,
                                                     const StopSignal* stop) {
    uint64_t all = 0;
    for (const BenchStage& stage : stages) {
        all += stage.cells();
        if (stage.stops > 0 && stage.prompt_tokens == 0)
            return fail(ErrorKind::invalid_argument, "there is nothing to stop", "0 tokens to read",
                        "Read some with each Stop");
    }
    if (!stages.empty() && stages.front().prompt_tokens == 0) ++all;
    if (all > core->plan.max_context) return tl::unexpected(too_long(all, core->plan.max_context));
    BenchRun run(*this, listener, stop);
    std::vector<BenchResult> results;
    for (const BenchStage& stage : stages) {
        auto result = run.run(stage);
        if (!result) return tl::unexpected(result.error());
        results.push_back(std::move(*result));
    }
    return results;
}

Result<Limits> Engine::Impl::measure_limits() {
    MemoryManager& memory = *core->memory;
    auto loan = memory.take_loan(core->plan.chunk_at_max);
    if (!loan) return tl::unexpected(loan.error());
    gpu::Device& device = *core->device;
    const std::span<std::byte> room(loan->base, loan->layout.bytes);
    Limits limits;
    const auto measured = [&]() -> Result<void> {
        auto most = device.measure_limits(room);
        if (!most) return tl::unexpected(most.error());
        limits.device = *most;
        if (memory.experts().rows() == 0) return {};
        // The gates of all experts of a layer lie side by side in the file.
        double seconds = 0;
        uint64_t bytes = 0;
        for (const Layer& layer : core->model.layers) {
            const MoeWeights& moe = layer.moe;
            const uint64_t all = std::min<uint64_t>(moe.home.size() * moe.gate_bytes, room.size());
            const auto start = Clock::now();
            device.copy(gpu::StreamId::copy, room.data(), moe.home[0].gate, all);
            if (auto r = device.synchronize(gpu::StreamId::copy); !r) return r;
            seconds += seconds_since(start);
            bytes += all;
        }
        limits.link = static_cast<double>(bytes) / seconds;
        return {};
    }();
    memory.return_loan();
    if (!measured) return tl::unexpected(measured.error());
    return limits;
}

}  // namespace granary
