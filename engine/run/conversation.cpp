// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/conversation.h"

#include <algorithm>

#include "engine/run/clock.h"
#include "engine/run/engine_impl.h"

namespace granary {
namespace {

// Of one conversation: more would be closer together than a pass over the weights is worth.
constexpr size_t kMostCheckpoints = 64;
// Generated tokens between two checkpoints. Few answers are gone back into, so they are rare
// enough to cost nothing: one token of so many waits for the copy.
constexpr uint32_t kAnswerCells = 256;

void add(Report& whole, const Report& part) {
    whole.read_tokens += part.read_tokens;
    whole.read_seconds += part.read_seconds;
    whole.loan_granules = std::max(whole.loan_granules, part.loan_granules);
    whole.loan_experts = std::max(whole.loan_experts, part.loan_experts);
    whole.kv_granules_added += part.kv_granules_added;
    whole.chunks.insert(whole.chunks.end(), part.chunks.begin(), part.chunks.end());
    if (part.shrank_to) {
        if (whole.shrank_from == 0) whole.shrank_from = part.shrank_from;
        whole.shrank_to = part.shrank_to;
    }
    whole.memory_seconds += part.memory_seconds;
    whole.streamed |= part.streamed;
    whole.bytes_streamed += part.bytes_streamed;
}

}  // namespace

Result<ConversationId> Engine::Impl::begin_conversation() {
    constexpr size_t kMostConversations = 256;
    if (conversations.size() >= kMostConversations)
        return fail(ErrorKind::refused, "too many conversations are open",
                    std::to_string(kMostConversations) + " at most", "Close some of them");
    const ConversationId id = next_conversation++;
    conversations[id].history = History(history_grid());
    return id;
}

Resume Engine::Impl::resume(const Conversation& conversation,
                            std::span<const TokenId> tokens) const {
    const auto total = static_cast<uint32_t>(tokens.size());
    const uint32_t common = std::min(conversation.history.common(tokens), conversation.cells);
    // The last token is read where its logits are not kept: they begin the answer.
    const uint32_t most = std::min(common, total - 1);
    if (!keeps_state()) return {most, 0, false};
    Resume best;
    const auto consider = [&](uint32_t cells, bool logits) {
        if (cells > most && !(cells == common && cells == total && logits)) return;
        if (cells < best.cells) return;
        best.cells = cells;
        best.logits = cells == total;
    };
    for (const Checkpoint& checkpoint : conversation.checkpoints)
        consider(checkpoint.cells, !checkpoint.logits.empty());
    if (running == &conversation) consider(conversation.cells, logits_here);
    best.again = best.logits ? 0 : most - best.cells;
    return best;
}

// ---- states

Result<void> Engine::Impl::enter(Conversation& conversation, uint32_t cells) {
    if (!keeps_state()) {
        conversation.cells = cells;
        return {};
    }
    if (running == &conversation && conversation.cells == cells) return {};
    if (running && running != &conversation) {
        Conversation& other = *running;
        if (auto r = keep_state(other); !r) return r;
        running = nullptr;
        settle(other);
    }
    running = nullptr;
    logits_here = false;
    conversation.cells = cells;
    std::erase_if(conversation.checkpoints,
                  [&](const Checkpoint& checkpoint) { return checkpoint.cells > cells; });
    MemoryManager& memory = *core->memory;
    const Checkpoint* const from = conversation.checkpoint_at(cells);
    if (auto r = from ? memory.restore_state(from->state.get()) : memory.clear_state(); !r)
        return r;
    running = &conversation;
    return {};
}

Result<void> Engine::Impl::keep_state(Conversation& conversation) {
    if (running != &conversation || conversation.cells == 0 || conversation.passing) return {};
    auto& checkpoints = conversation.checkpoints;
    if (checkpoints.empty() || checkpoints.back().cells != conversation.cells) {
        auto room = room_for_state(conversation, 0, conversation.cells);
        if (!room) return {};  // what runs can go on without
        if (auto r = core->memory->save_state(room.get()); !r) return r;
        checkpoints.push_back({conversation.cells, std::move(room), {}});
    }
    if (!logits_here || !checkpoints.back().logits.empty()) return {};
    const float* const logits = context().logits();
    checkpoints.back().logits.assign(logits, logits + core->model.facts.vocab);
    return {};
}

void Engine::Impl::bring_logits(const Conversation& conversation) {
    if (logits_here) return;
    context().set_logits(conversation.checkpoint_at(conversation.cells)->logits);
    logits_here = true;
}

void Engine::Impl::roll_back(Conversation& conversation) {
    if (!keeps_state()) return;
    leave(conversation);
    settle(conversation);
}

void Engine::Impl::settle(Conversation& conversation) {
    const auto& checkpoints = conversation.checkpoints;
    conversation.cells = checkpoints.empty() ? 0 : checkpoints.back().cells;
}

void Engine::Impl::advance(Conversation& conversation, std::span<const TokenId> tokens,
                           TokenKind kind) {
    conversation.history.write(conversation.cells, tokens, kind);
    conversation.cells += static_cast<uint32_t>(tokens.size());
    logits_here = false;
    telemetry.counters.context_used.store(conversation.cells, std::memory_order_relaxed);
}

void Engine::Impl::cut(Conversation& conversation, uint64_t cells) {
    if (conversation.cells <= cells) return;
    if (!keeps_state()) {
        conversation.cells = static_cast<uint32_t>(cells);
        return;
    }
    std::erase_if(conversation.checkpoints,
                  [&](const Checkpoint& checkpoint) { return checkpoint.cells > cells; });
    roll_back(conversation);
}

void Engine::Impl::give_up(Conversation& conversation) {
    if (conversation.kv && core->memory) core->memory->drop_kv(conversation.kv);
    conversation.kv = 0;
    conversation.cells = 0;
    conversation.checkpoints.clear();
    leave(conversation);
}

// ---- checkpoints

StateBytes Engine::Impl::room_for_state(Conversation& conversation, size_t pending, uint32_t end) {
    const uint64_t bytes = core->model.facts.state_bytes;
    StateBytes room;
    for (;;) {
        uint64_t held = pending;
        for (const auto& [id, other] : conversations) held += other.checkpoints.size();
        const bool crowded = conversation.checkpoints.size() + pending >= kMostCheckpoints;
        if (!crowded && (held + 1) * bytes <= options.checkpoint_bytes) break;

        Conversation* loser = nullptr;
        LeastWorth least;
        for (auto& [id, other] : conversations) {
            const bool own = &other == &conversation;
            if (crowded && !own) continue;
            std::vector<uint32_t> candidates = other.checkpoint_cells();
            // A pass that changes the state may fail, and then comes back from the last one.
            if (own && end != conversation.cells && !candidates.empty()) candidates.pop_back();
            LeastWorth candidate = least_worth(candidates, own ? end : other.cells);
            // The longer nobody has said anything in it, the less somebody will.
            candidate.worth /=
                1.0 + static_cast<double>(std::count_if(
                          conversations.begin(), conversations.end(), [&](const auto& entry) {
                              return entry.second.last_use > other.last_use;
                          }));
            if (candidate.worth >= least.worth) continue;
            least = candidate;
            loser = &other;
        }
        if (!loser && end != conversation.cells) return nullptr;
        if (!loser) break;  // one is kept, whatever the limit is
        room = std::move(loser->checkpoints[least.index].state);
        loser->checkpoints.erase(loser->checkpoints.begin() + static_cast<ptrdiff_t>(least.index));
        if (loser != &conversation && running != loser) settle(*loser);
    }
    return room ? std::move(room) : allocate_state(bytes);
}

std::vector<Checkpoint> Engine::Impl::checkpoints_inside(Conversation& conversation, uint32_t rows,
                                                         uint32_t total) {
    std::vector<Checkpoint> inside;
    if (!keeps_state() || conversation.passing) return inside;
    // The half of what the limit allows: others may want to go back, too.
    const uint64_t most = options.checkpoint_bytes / core->model.facts.state_bytes / 2;
    for (const uint32_t cells : checkpoint_cells(conversation.cells, total)) {
        if (cells >= conversation.cells + rows) continue;
        if (inside.size() >= most) break;
        auto room = room_for_state(conversation, inside.size(), total);
        if (!room) break;
        inside.push_back({cells, std::move(room), {}});
    }
    std::reverse(inside.begin(), inside.end());
    return inside;
}

void Engine::Impl::add_checkpoints(Conversation& conversation, std::vector<Checkpoint> inside) {
    for (Checkpoint& checkpoint : inside) conversation.checkpoints.push_back(std::move(checkpoint));
}

// ---- reading in kind

Result<void> Engine::Impl::catch_up(Conversation& conversation, std::span<const TokenId> tokens,
                                    uint32_t from, const Listener& listener, const StopSignal& stop,
                                    Report& report) {
    const RunContext run = context();
    const auto total = static_cast<uint32_t>(tokens.size());
    trim(conversation, total);  // once for all parts
    const std::vector<Span> plan = conversation.history.plan(tokens);
    auto span = std::upper_bound(plan.begin(), plan.end(), from,
                                 [](uint32_t cell, const Span& s) { return cell < s.end; });
    // Nearly always what is new is one prompt. And who does not ask for the same numbers is served
    // faster by one.
    if (!core->plan.settings.deterministic ||
        (span + 1 == plan.end() && span->kind == TokenKind::prompt))
        return read(conversation, tokens, from, listener, &stop, report,
                    last_logits(run, tokens.size()));

    // Refused as a whole or not at all.
    if (auto admitted = admit(conversation, from, total); !admitted)
        return tl::unexpected(admitted.error());
    const auto start = Clock::now();
    Counters& counters = telemetry.counters;
    const auto progress = [&](uint32_t cell) {
        counters.prompt_total.store(total - from, std::memory_order_relaxed);
        counters.prompt_done.store(cell - from, std::memory_order_relaxed);
        if (listener.on_progress)
            listener.on_progress(cell - from, total - from,
                                 seconds_since(start) * (total - cell) / std::max(cell - from, 1u));
    };
    Result<void> result;
    for (uint32_t cell = from; result && span != plan.end(); ++span) {
        if (span->kind == TokenKind::prompt) {
            Listener part_listener;
            part_listener.on_progress = [&](uint32_t done, uint32_t, double) {
                progress(cell + done);
            };
            Report part;
            result = read(conversation, tokens.first(span->end), cell, part_listener, &stop, part,
                          last_logits(run, tokens.size()));
            add(report, part);
            cell = span->end;
            continue;
        }
        const auto part_start = Clock::now();
        result = enter(conversation, cell);
        if (result) result = keep_state(conversation);
        while (result && cell < span->end) {
            if (stop.requested()) {
                result = fail(ErrorKind::cancelled, "reading was stopped");
                break;
            }
            // The logits of the very last token stand alone.
            uint32_t rows = std::min(run.step_rows(), span->end - cell);
            if (cell + rows == total && rows > 1) --rows;
            auto growth = step(run, conversation, tokens.subspan(cell, rows));
            if (!growth) {
                result = tl::unexpected(growth.error());
                break;
            }
            report.kv_granules_added += growth->granules;
            report.read_tokens += rows;
            counters.tokens_read.fetch_add(rows, std::memory_order_relaxed);
            cell += rows;
            run.memory.publish(false, MemoryManager::Compute::idle);
            progress(cell);
        }
        report.read_seconds += seconds_since(part_start);
    }
    return result;
}

Result<MemoryManager::Growth> Engine::Impl::step(const RunContext& run, Conversation& conversation,
                                                 std::span<const TokenId> tokens) {
    if (conversation.cells % kAnswerCells < tokens.size())
        if (auto r = keep_state(conversation); !r) return tl::unexpected(r.error());
    auto growth = grow(conversation, conversation.cells + tokens.size());
    if (!growth) return growth;
    auto decoded = decode_step(run, run.memory.kv_base(conversation.kv), conversation.cells, tokens,
                               ++heat_tick);
    if (!decoded) {
        roll_back(conversation);
        return tl::unexpected(decoded.error());
    }
    advance(conversation, tokens, TokenKind::generated);
    logits_here = tokens.size() == 1;
    return growth;
}

}  // namespace granary
