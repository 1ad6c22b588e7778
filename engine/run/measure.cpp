// SPDX-License-Identifier: GPL-3.0-or-later
// Numbers instead of answers: logits at positions, and speeds.
#include <algorithm>
#include <random>

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

Result<BenchResult> Engine::Impl::bench(uint32_t prompt_tokens, uint32_t decode_tokens) {
    const uint32_t prompt = std::max(prompt_tokens, 1u);  // decode needs a cell to look at
    const uint64_t all = uint64_t{prompt} + decode_tokens;
    if (all > core->plan.max_context) return tl::unexpected(too_long(all, core->plan.max_context));
    const uint32_t vocab = core->model.facts.vocab;
    std::mt19937 random(1);
    std::vector<TokenId> tokens(prompt);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);

    const RunContext run = context();
    Conversation conversation;
    conversation.passing = true;
    Report report;
    const auto start = Clock::now();
    Result<void> outcome =
        read(conversation, tokens, 0, {}, nullptr, report, last_logits(run, tokens.size()));
    BenchResult result;
    result.reading = report;
    if (prompt_tokens) result.prefill_tok_s = prompt / seconds_since(start);
    double answering = 0;
    MemoryManager& memory = *core->memory;
    const auto copied = [&] {
        memory.publish(true, MemoryManager::Compute::idle);
        return telemetry.counters.bytes_copied.load(std::memory_order_relaxed);
    };
    uint64_t before = outcome ? copied() : 0;
    for (uint32_t i = 0; i < decode_tokens && outcome; ++i) {
        const auto next = static_cast<TokenId>(random() % vocab);
        const uint32_t cell = conversation.cells;
        const auto token_start = Clock::now();
        auto growth = step(run, conversation, {&next, 1});
        const double seconds = seconds_since(token_start);
        if (!growth) {
            outcome = tl::unexpected(growth.error());
            break;
        }
        const uint64_t after = copied();
        result.tokens.push_back({seconds, cell, growth->granules, after - before});
        before = after;
        answering += seconds;
    }
    if (decode_tokens && outcome) result.decode_tok_s = decode_tokens / answering;
    leave(conversation);
    if (conversation.kv) run.memory.drop_kv(conversation.kv);
    if (!outcome) return tl::unexpected(outcome.error());
    return result;
}

}  // namespace granary
