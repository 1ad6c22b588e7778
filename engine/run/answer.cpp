// SPDX-License-Identifier: GPL-3.0-or-later
// Serves a request: renders and counts it, admits or refuses it, reads what is not kept, answers.
#include <algorithm>

#include "engine/run/clock.h"
#include "engine/run/engine_impl.h"
#include "engine/run/forecast.h"
#include "engine/run/sampler.h"

namespace granary {
namespace {

// K/V behind what is used that a conversation may keep: growing again costs more than it is worth.
constexpr uint64_t kSlackCells = 4 * gpu::kStepCells;

// Each bound is written so that a NaN fails too.
Result<void> check(const Sampling& sampling) {
    const auto wrong = [](const char* name, float value, const char* accepted) {
        return fail(ErrorKind::invalid_argument,
                    std::string("this value is not possible for the ") + name,
                    std::to_string(value), std::string("It takes ") + accepted);
    };
    if (!(sampling.temperature >= 0 && sampling.temperature <= 100))
        return wrong("temperature", sampling.temperature, "0 to 100");
    if (!(sampling.top_p >= 0 && sampling.top_p <= 1))
        return wrong("top-p", sampling.top_p, "0 to 1");
    if (!(sampling.min_p >= 0 && sampling.min_p <= 1))
        return wrong("min-p", sampling.min_p, "0 to 1");
    if (!(sampling.repeat_penalty >= 0.1f && sampling.repeat_penalty <= 10))
        return wrong("repeat penalty", sampling.repeat_penalty, "0.1 to 10");
    return {};
}

// The shortest context that takes `tokens` and their answer.
uint64_t context_for(uint64_t tokens, std::optional<uint32_t> max_tokens) {
    if (max_tokens) return tokens + *max_tokens;
    // The room grows with the context, up to a bound: m - m / 4 >= tokens.
    return std::min(tokens + answer_room(kLongestContext), (4 * tokens - 4) / 3 + 1);
}

Error too_long(uint64_t tokens, std::optional<uint32_t> max_tokens, uint32_t max_context) {
    const uint64_t room = max_tokens.value_or(answer_room(max_context));
    const uint64_t needed = std::max<uint64_t>(context_for(tokens, max_tokens), kShortestContext);
    std::string advice = max_tokens ? "Shorten it or ask for a shorter answer" : "Shorten it";
    if (needed <= kLongestContext)
        advice += ", or raise max-context to " + std::to_string(needed) + " or more";
    return {ErrorKind::refused, "the prompt does not fit",
            std::to_string(tokens) + " tokens and room for " + std::to_string(room) +
                " of answer are more than max-context " + std::to_string(max_context),
            advice};
}

}  // namespace

Result<std::vector<TokenId>> Engine::Impl::tokens_of(const Request& request) const {
    std::string text = request.raw;
    if (!request.use_raw) {
        if (!chat_template) return tl::unexpected(template_error);
        nlohmann::ordered_json messages = nlohmann::ordered_json::array();
        std::span<const Message> shown(request.messages);
        const bool resume = request.continue_last;
        if (resume && (shown.empty() || shown.back().role != "assistant"))
            return fail(ErrorKind::invalid_argument, "there is no answer to go on with",
                        shown.empty() ? "no messages" : "the last message is not an assistant's");
        if (resume) shown = shown.first(shown.size() - 1);
        for (const Message& message : shown) {
            messages.push_back({{"role", tokenizer->as_plain_text(message.role)},
                                {"content", message.role == "assistant"
                                                ? tokenizer->as_answer_text(message.content)
                                                : tokenizer->as_plain_text(message.content)}});
        }
        const auto name = [&](TokenId token) {
            return token >= 0 ? tokenizer->piece(token, true) : std::string();
        };
        auto rendered = chat_template->render({{"messages", messages},
                                               {"add_generation_prompt", true},
                                               {"bos_token", name(tokenizer->bos())},
                                               {"eos_token", name(tokenizer->eos())}});
        if (!rendered) return tl::unexpected(rendered.error());
        text = std::move(*rendered);
        if (resume) text += tokenizer->as_answer_text(request.messages.back().content);
    }
    return tokenizer->encode(text, true);
}

bool Engine::Impl::give_up_idle(const Conversation* running_one) {
    Conversation* oldest = nullptr;
    for (auto& [id, other] : conversations)
        if (&other != running_one && other.kv && (!oldest || other.last_use < oldest->last_use))
            oldest = &other;
    if (!oldest) return false;
    log(LogLevel::info, "an idle conversation gives up its K/V (" + std::to_string(oldest->cells) +
                            " tokens); it will be read again when it goes on");
    give_up(*oldest);
    return true;
}

void Engine::Impl::trim(Conversation& conversation, uint32_t total) {
    MemoryManager& memory = *core->memory;
    if (!conversation.kv) return;
    const uint64_t used = steps_of(total) * gpu::kStepCells;
    if (memory.kv_cells(conversation.kv) <= used + std::max<uint64_t>(used / 8, kSlackCells))
        return;
    memory.trim_kv(conversation.kv, used);
    cut(conversation, used);
}

Result<std::vector<ScheduledChunks>> Engine::Impl::admit(Conversation& conversation, uint32_t from,
                                                         uint32_t total) {
    MemoryManager& memory = *core->memory;
    const Planner planner(core->model.facts, core->facts);
    Standing standing = memory.standing(conversation.kv);
    auto schedule = planner.schedule(core->plan, standing, from, total);
    if (schedule) return schedule;
    standing.idle = 0;
    if (auto alone = planner.schedule(core->plan, standing, from, total); !alone) return alone;
    while (!schedule && give_up_idle(&conversation))
        schedule = planner.schedule(core->plan, memory.standing(conversation.kv), from, total);
    return schedule;
}

Result<MemoryManager::Growth> Engine::Impl::grow(Conversation& conversation, uint64_t cells) {
    MemoryManager& memory = *core->memory;
    if (!conversation.kv) {
        auto kv = memory.create_kv();
        if (!kv) return tl::unexpected(kv.error());
        conversation.kv = *kv;
    }
    while (memory.kv_need(conversation.kv, cells) > memory.kv_available() &&
           give_up_idle(&conversation)) {
    }
    return memory.grow_kv(conversation.kv, cells);
}

Result<void> Engine::Impl::read(Conversation& conversation, std::span<const TokenId> tokens,
                                uint32_t from, const Listener& listener, const StopSignal* stop,
                                Report& report, const ChunkFunction& each) {
    MemoryManager& memory = *core->memory;
    Counters& counters = telemetry.counters;
    const auto total = static_cast<uint32_t>(tokens.size());
    auto schedule = admit(conversation, from, total);
    if (!schedule) return tl::unexpected(schedule.error());
    if (schedule->empty()) return {};  // nothing to read
    auto part = schedule->begin();
    auto loan = memory.take_loan(part->chunk);
    if (!loan) return tl::unexpected(loan.error());
    report.loan_granules = loan->granules;
    report.loan_experts = loan->experts_lost;
    counters.prompt_total.store(total - from, std::memory_order_relaxed);
    counters.prompt_done.store(0, std::memory_order_relaxed);

    if (auto r = enter(conversation, from); !r) {
        memory.return_loan();
        return r;
    }
    Forecast forecast(*core, pace, *schedule, from, total);
    const auto start = Clock::now();
    Result<void> result;
    for (uint32_t cell = from; cell < total && result;) {
        const auto change_start = Clock::now();
        if (part + 1 != schedule->end() && cell >= (part + 1)->from) {
            ++part;
            if (report.shrank_from == 0) report.shrank_from = loan->chunk;
            loan = memory.shrink_loan(*loan, part->chunk);
            if (!loan) {
                result = tl::unexpected(loan.error());
                break;
            }
            report.shrank_to = part->chunk;
        }
        const uint32_t end = part + 1 == schedule->end() ? total : (part + 1)->from;
        uint32_t rows = std::min(part->chunk, end - cell);
        // So that the tokens do not depend on the chunk; see Kernels::delta_net_prompt.
        if (keeps_state() && cell + rows < total) rows -= (cell + rows) % gpu::kDeltaCells;
        auto growth = grow(conversation, cell + rows);
        if (!growth) {
            result = tl::unexpected(growth.error());
            break;
        }
        report.kv_granules_added += growth->granules;
        report.memory_seconds += seconds_since(change_start);
        if (result = keep_state(conversation); !result) break;
        std::vector<Checkpoint> inside = checkpoints_inside(conversation, rows, total);
        forecast.begin_chunk(cell, part->chunk, rows);
        if (report.chunks.empty() || report.chunks.back().chunk != part->chunk)
            report.chunks.push_back({cell, part->chunk});
        const uint32_t layers = core->model.facts.layers;
        const auto wanted = [&] { return !(stop && stop->requested()); };
        const auto progress = [&](uint32_t layers_done) {
            memory.publish();
            const uint32_t done =
                cell - from + static_cast<uint32_t>(uint64_t{rows} * layers_done / layers);
            counters.prompt_done.store(done, std::memory_order_relaxed);
            if (listener.on_progress) {
                listener.on_progress(done, total - from,
                                     forecast.remaining(1.0 * layers_done / layers));
            }
            return wanted();
        };
        const uint32_t warm = total - std::min(total, kWarmingTokens);
        const ChunkPlace place{cell, warm > cell ? warm - cell : 0, ++heat_tick, inside};
        report.streamed |= memory.experts().rows() > 0 && rows >= core->plan.stream_min;
        auto done = read_chunk(context(), *loan, memory.kv_base(conversation.kv), place,
                               tokens.subspan(cell, rows), progress, wanted);
        if (!done) {
            result = tl::unexpected(done.error());
            roll_back(conversation);
            break;
        }
        forecast.end_chunk();
        report.bytes_streamed += done->bytes_streamed;
        advance(conversation, tokens.subspan(cell, rows), TokenKind::prompt);
        add_checkpoints(conversation, std::move(inside));
        counters.tokens_read.fetch_add(rows, std::memory_order_relaxed);
        result = each(done->at.x, cell, rows);
        cell += rows;
    }
    report.read_tokens = conversation.cells - std::min(conversation.cells, from);
    report.read_seconds = seconds_since(start);
    memory.return_loan();
    return result;
}

Engine::Impl::ChunkFunction Engine::Impl::last_logits(const RunContext& run, size_t total) {
    return [this, &run, total](const float* x, uint32_t cell, uint32_t rows) -> Result<void> {
        if (cell + rows < total) return {};
        auto done = output_logits(run, x + size_t{rows - 1} * run.model.facts.hidden, 1);
        logits_here = done.has_value();
        return done;
    };
}

Result<Report> Engine::Impl::answer(ConversationId id, const Request& request,
                                    const Listener& listener, const StopSignal& stop) {
    const auto found = conversations.find(id);
    if (found == conversations.end())
        return fail(ErrorKind::invalid_argument, "no such conversation", std::to_string(id));
    Conversation& conversation = found->second;
    MemoryManager& memory = *core->memory;
    const uint32_t max_context = core->plan.max_context;
    const uint64_t allocations = memory.driver_allocations_after_load();

    if (auto r = check(request.sampling); !r) return tl::unexpected(r.error());
    auto rendered = guarded([&] { return tokens_of(request); });  // changes nothing
    if (!rendered) return tl::unexpected(rendered.error());
    const std::vector<TokenId>& tokens = *rendered;
    if (tokens.empty())
        return fail(ErrorKind::refused, "the prompt is empty", "0 tokens", "Write something");
    if (tokens.size() + uint64_t{request.max_tokens.value_or(answer_room(max_context))} >
        max_context)
        return tl::unexpected(too_long(tokens.size(), request.max_tokens, max_context));

    conversation.last_use = ++use_clock;
    Report report;
    report.prompt_tokens = static_cast<uint32_t>(tokens.size());
    const Resume resumed = resume(conversation, tokens);
    report.kept_tokens = resumed.cells;
    report.rewound_tokens = resumed.again;
    if (resumed.cells < conversation.cells)
        log(LogLevel::info,
            "rewound from " + std::to_string(conversation.cells) + " to " +
                std::to_string(resumed.cells) + " cells" +
                (resumed.again ? "; " + std::to_string(resumed.again) + " are read again" : ""));

    const RunContext run = context();
    Result<void> done;
    if (resumed.logits) {
        done = enter(conversation, resumed.cells);
        if (done) bring_logits(conversation);
    } else {
        done = catch_up(conversation, tokens, resumed.cells, listener, stop, report);
    }
    // For those who ask for another answer than the one that follows.
    if (done) done = keep_state(conversation);
    if (done) conversation.history.truncate(conversation.cells);
    if (!done) {
        if (done.error().kind != ErrorKind::cancelled) return tl::unexpected(done.error());
        report.finish = Finish::stopped;
        report.driver_allocations = memory.driver_allocations_after_load() - allocations;
        return report;
    }
    report.driver_allocations = memory.driver_allocations_after_load() - allocations;
    if (listener.on_read) listener.on_read(report);

    if (core->cpu)
        if (auto r = core->cpu->try_again(); !r) return tl::unexpected(r.error());
    Sampler sampler(request.sampling);
    for (TokenId token : tokens) sampler.note(token);
    StreamingDetokenizer detokenizer(tokenizer);
    const auto say = [&](const std::string& text) {
        if (!text.empty() && listener.on_text) listener.on_text(text);
    };
    Counters& counters = telemetry.counters;
    const uint64_t copied_before = counters.bytes_copied.load(std::memory_order_relaxed);
    const auto answer_start = Clock::now();
    const uint64_t limit = request.max_tokens.value_or(UINT64_MAX);
    for (;;) {
        if (report.answer_tokens >= limit) {
            report.finish = Finish::token_limit;
            break;
        }
        if (stop.requested()) {
            report.finish = Finish::stopped;
            break;
        }
        const TokenId next = sampler.wants_argmax()
                                 ? run.best()[0]
                                 : sampler.pick({run.logits(), run.model.facts.vocab});
        if (tokenizer->ends_answer(next)) {
            report.finish = Finish::answer_ended;
            break;
        }
        sampler.note(next);
        ++report.answer_tokens;
        say(detokenizer.push(next));
        const bool full = conversation.cells >= max_context;
        if (full || report.answer_tokens >= limit) {
            // Its K/V would serve nobody now; where the answer goes on, it is read in kind.
            conversation.history.write(conversation.cells, {&next, 1}, TokenKind::generated);
            report.finish = full ? Finish::context_full : Finish::token_limit;
            break;
        }
        auto growth = step(run, conversation, {&next, 1});
        if (!growth) return tl::unexpected(growth.error());
        report.kv_granules_added += growth->granules;
        counters.tokens_answered.fetch_add(1, std::memory_order_relaxed);
        memory.publish(false, MemoryManager::Compute::idle);
    }
    say(detokenizer.finish());
    report.answer_seconds = seconds_since(answer_start);
    report.driver_allocations = memory.driver_allocations_after_load() - allocations;
    memory.note_refill();
    const uint64_t copied = counters.bytes_copied.load(std::memory_order_relaxed) - copied_before;
    const Predictor planned(core->model.facts, core->facts, core->plan);
    pace.add_answer(report.answer_tokens *
                        planned.token_without_misses(conversation.cells - report.answer_tokens / 2),
                    report.answer_seconds - static_cast<double>(copied) / rates().gather);
    return report;
}

}  // namespace granary
