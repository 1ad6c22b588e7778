// SPDX-License-Identifier: GPL-3.0-or-later
// The engine's state. engine.cpp opens and re-lays it, answer.cpp serves requests, conversation.cpp
// keeps what was read, measure.cpp gives logits and speeds.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "engine/gguf/file.h"
#include "engine/run/conversation.h"
#include "engine/run/conversation_file.h"
#include "engine/run/guard.h"
#include "engine/run/host_weights.h"
#include "engine/run/pace.h"
#include "engine/run/pass.h"
#include "engine/run/phases.h"
#include "granary/chat_template.h"
#include "granary/engine.h"

namespace granary {

// All that a change of settings lays anew.
struct Core {
    HostWeights host_weights;  // destroyed last: the model's pointers lead here
    Plan plan;
    DeviceFacts facts;
    std::unique_ptr<gpu::Device> device;
    Model model;
    // Destroyed before the device. Null: prepared and not laid, or lost for good.
    std::unique_ptr<MemoryManager> memory;
    RecordedSteps recorded;
    std::unique_ptr<CpuWorker> cpu;  // null: of no use to the device
};

struct Engine::Impl {
    EngineOptions options;
    std::shared_ptr<const gguf::File> file;
    std::shared_ptr<const Tokenizer> tokenizer;
    std::optional<ChatTemplate> chat_template;
    Error template_error;  // why there is none
    Telemetry telemetry;
    std::unique_ptr<Core> core;  // never null once open
    std::map<ConversationId, Conversation> conversations;
    ConversationId next_conversation = 1;
    Conversation* running = nullptr;  // whose state lies in the pool; models with delta nets only
    bool logits_here = false;         // its last token's are in run.logits()
    uint64_t use_clock = 0;
    PhaseClock* phases = nullptr;  // while a bench wants to know
    uint32_t heat_tick = 0;
    Pace pace;
    std::optional<Error> lost;  // why nothing but destruction helps: see call()

    // Model, device and plan of `settings`; asks for no memory yet. `freed`: bytes that this
    // process will have given back when the core is laid.
    // Of the devices that the settings leave open, the first that has room.
    Result<std::unique_ptr<Core>> prepare(const Settings& settings, uint64_t freed) const;
    Result<std::unique_ptr<Core>> prepare_on(const std::string& device_name,
                                             const Settings& settings, uint64_t freed) const;
    // Lets a GPU read the experts and the embedding where the file is mapped.
    Result<void> lock_weights(Core& core) const;
    // Creates and fills the memory of a prepared core.
    Result<void> lay(Core& core, const LoadProgress& progress);
    RunContext context() const { return context_of(*core); }
    RunContext context_of(const Core& core) const;
    void log(LogLevel level, const std::string& line) const {
        if (options.log) options.log(level, line);
    }

    // Calls f, which may change what the engine holds. Where it throws, tables and granules may be
    // half changed; where it says that the device is lost, they are of no use: that call and all
    // later ones end with device_lost and the cause.
    template <class F>
    auto call(F&& f) -> decltype(f()) {
        if (lost) return tl::unexpected(stopped());
        // Found here nothing has been read by it.
        if (auto whole = file ? file->still_whole() : Result<void>(); !whole)
            return tl::unexpected(whole.error());
        bool thrown = false;
        auto result = guarded(f, &thrown);
        // A device can be lost where no error tells, or another one follows from it.
        if (core && core->memory) lost = core->memory->lost();
        if (!result && (thrown || result.error().kind == ErrorKind::device_lost))
            lost = result.error();
        if (!lost) return result;
        // A driver that knows what helps has said so: after some losses a reload does not.
        if (thrown || lost->advice.empty()) lost->advice = "Reload the model";
        lost->kind = ErrorKind::device_lost;
        log(LogLevel::error, stopped().what + ": " + stopped().detail);
        if (!result) result.error() = *lost;
        return result;
    }
    // What every call says once the engine is lost.
    Error stopped() const {
        Error cause = *lost;
        cause.advice.clear();
        return {ErrorKind::device_lost, "the engine has stopped working", cause.message(),
                lost->advice};
    }

    // What Engine's functions of these names do.
    Result<void> open(const std::string& path, const EngineOptions& given);
    Result<std::vector<TokenId>> tokens_of(const Request& request) const;
    Result<bool> apply(const Settings& settings);
    // Gives the processor the share of a token's missed experts that the plan says.
    Result<void> share_with_cpu(Core& core) const;
    // Lowers or raises the budget within what was laid.
    Result<void> change_budget(const Plan& plan);
    Result<Report> answer(ConversationId id, const Request& request, const Listener& listener,
                          const StopSignal& stop);
    Result<LogitsResult> logits(const LogitsRequest& request);
    Result<std::vector<BenchResult>> bench(std::span<const BenchStage> stages,
                                           const Listener& listener, const StopSignal* stop);
    class BenchRun;
    Result<Limits> measure_limits();
    Result<Rates> measure_rates();
    Rates rates() const;

    // Gives back cells behind the `total` that a prompt of `conversation` will fill, where they are
    // many: it may need their granules.
    void trim(Conversation& conversation, uint32_t total);
    // How [from, total) of a prompt of `conversation` will be read. Where K/V of all live
    // conversations leaves no room, idle ones give theirs up, least recently used first; where
    // that would not help either, it is refused and nothing is changed.
    Result<std::vector<ScheduledChunks>> admit(Conversation& conversation, uint32_t from,
                                               uint32_t total);
    // The idle conversation that has waited longest gives up its K/V; false: there is none.
    bool give_up_idle(const Conversation* running_one);
    // Maps cells of `conversation` up to `cells`; where granules are missing, idle conversations
    // give theirs up, least recently used first, and must be read again.
    Result<MemoryManager::Growth> grow(Conversation& conversation, uint64_t cells);

    // ---- conversations (conversation.cpp)
    bool keeps_state() const { return core->model.facts.state_bytes > 0; }
    uint32_t history_grid() const { return keeps_state() ? gpu::kDeltaCells : 1; }
    Result<ConversationId> begin_conversation();
    Resume resume(const Conversation& conversation, std::span<const TokenId> tokens) const;
    // Makes `conversation` the one that runs, with its first `cells` cells: all, or as many as
    // resume() said. On error it has no more cells than that, and nobody has lost a checkpoint that
    // could still serve.
    Result<void> enter(Conversation& conversation, uint32_t cells);
    // `tokens` have been read into its next cells.
    void advance(Conversation& conversation, std::span<const TokenId> tokens, TokenKind kind);
    // A pass has ended half-way: the state in the pool is nobody's. The conversation is where its
    // last checkpoint was taken.
    void roll_back(Conversation& conversation);
    // Without the pool: its cells reach to its last checkpoint.
    static void settle(Conversation& conversation);
    // Its state is not needed any more: another may have the place.
    void leave(Conversation& conversation) {
        if (running == &conversation) running = nullptr;
    }
    // Cells from `cells` on are not mapped any more.
    void cut(Conversation& conversation, uint64_t cells);
    // Its K/V goes back to experts; what was said is remembered, and must be read again.
    void give_up(Conversation& conversation);

    // A checkpoint of what runs, with the logits where they are at hand; before it is changed.
    Result<void> keep_state(Conversation& conversation);
    // Puts the kept logits of a conversation that runs to where run.logits() and best() look.
    void bring_logits(const Conversation& conversation);
    // Checkpoints to be taken inside the next `rows` of its prompt of `total` tokens, in order;
    // once these are read they are added.
    std::vector<Checkpoint> checkpoints_inside(Conversation& conversation, uint32_t rows,
                                               uint32_t total);
    static void add_checkpoints(Conversation& conversation, std::vector<Checkpoint> inside);
    // Bytes for one more state, `pending` others not being in the list yet. Beyond the limit the
    // checkpoint that is worth least goes; where `end`, towards which `conversation` is read, is
    // not its last cell, its last checkpoint does not. Null: there is no room.
    StateBytes room_for_state(Conversation& conversation, size_t pending, uint32_t end);

    // ---- files (conversation_file.cpp)
    Result<uint64_t> save_conversation(ConversationId id, const std::string& path,
                                       const std::vector<Message>& messages,
                                       const LoadProgress& progress);
    Result<Reopened> restore_conversation(const std::string& path, const LoadProgress& progress);
    // Of this model and engine, without the counts of a conversation.
    FileHeader file_header() const;
    // Cells and states of a new conversation from where `get` reads on.
    Result<void> fill(Conversation& conversation, const std::vector<FileCheckpoint>& list,
                      const std::function<Result<void>(std::span<std::byte>)>& get);

    // Reads tokens[from..] as conversation.history plans it, so that what is read again gives the
    // same numbers as before; leaves the logits of the last one in run.logits(). Fills report's
    // reading and memory figures.
    Result<void> catch_up(Conversation& conversation, std::span<const TokenId> tokens,
                          uint32_t from, const Listener& listener, const StopSignal& stop,
                          Report& report);

    // Reads tokens[from..] of `tokens` as a prompt, chunk by chunk; keeps finished chunks when
    // stopped. Calls `each` with x of every chunk's rows. Fills report's reading and memory
    // figures.
    using ChunkFunction =
        std::function<Result<void>(const float* x, uint32_t first_cell, uint32_t rows)>;
    Result<void> read(Conversation& conversation, std::span<const TokenId> tokens, uint32_t from,
                      const Listener& listener, const StopSignal* stop, Report& report,
                      const ChunkFunction& each);

    // Decodes up to kDecodeRows tokens as the conversation's next cells; the logits of one alone
    // are in run.logits(). Where that fails, the conversation does not hold them. The growth that
    // it took, for the report.
    Result<MemoryManager::Growth> step(const RunContext& run, Conversation& conversation,
                                       std::span<const TokenId> tokens);
    // For `read`: the logits of the last of `total` tokens.
    ChunkFunction last_logits(const RunContext& run, size_t total);
};

}  // namespace granary
