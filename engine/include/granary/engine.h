// SPDX-License-Identifier: GPL-3.0-or-later
// The engine: one loaded model on one device. One thread at a time calls it; telemetry, tokenizer,
// planner copies and stop requests may be used from any thread.
//
// An error of kind device_lost says that this engine cannot go on: every later request gives it
// too, and bytes() may be zeros.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/found_devices.h"
#include "granary/device_profile.h"
#include "granary/planner.h"
#include "granary/settings.h"
#include "granary/telemetry.h"
#include "granary/tokenizer.h"

namespace granary {

// Asked for by one thread, noticed by another within 250 ms.
class StopSignal {
  public:
    void request() { stopped_.store(true, std::memory_order_relaxed); }
    void reset() { stopped_.store(false, std::memory_order_relaxed); }
    bool requested() const { return stopped_.load(std::memory_order_relaxed); }

  private:
    std::atomic<bool> stopped_{false};
};

struct Message {
    std::string role;  // "system", "user", "assistant"
    std::string content;
};

struct Sampling {
    float temperature = 0;  // 0: greedy
    uint32_t top_k = 0;     // 0: off
    float top_p = 1;        // 1: off
    float min_p = 0;        // 0: off
    float repeat_penalty = 1;
    uint32_t repeat_window = 64;
    uint64_t seed = 0;
};

struct Request {
    std::vector<Message> messages;
    std::string raw;  // used instead of messages when use_raw: no template
    bool use_raw = false;
    bool continue_last = false;          // the last message is an assistant's, to be continued
    std::optional<uint32_t> max_tokens;  // -n; else until the answer ends or the context is full
    Sampling sampling;
};

// answer_ended: the model said so; token_limit: -n; context_full: no cell left; stopped: by you.
enum class Finish : uint8_t { answer_ended, token_limit, context_full, stopped };

// What one request did, with what memory did.
struct Report {
    Finish finish = Finish::answer_ended;
    uint32_t prompt_tokens = 0;  // of the whole prompt
    uint32_t kept_tokens = 0;    // already in K/V, not read again
    uint32_t read_tokens = 0;
    // Of those read: tokens whose cells were there, behind the last checkpoint that could serve.
    // None where a model has no recurrent state.
    uint32_t rewound_tokens = 0;
    double read_seconds = 0;
    uint32_t answer_tokens = 0;
    double answer_seconds = 0;
    uint32_t loan_granules = 0;
    uint32_t loan_experts = 0;            // slots that the loan took
    std::vector<ScheduledChunks> chunks;  // as they were read
    // Where the loan had to shrink inside a prompt: its chunk before and after; 0: it did not.
    uint32_t shrank_from = 0, shrank_to = 0;
    double memory_seconds = 0;  // spent on growing K/V and shrinking the loan
    uint32_t kv_granules_added = 0;
    uint64_t driver_allocations = 0;  // during the request
    bool streamed = false;            // all experts streamed in at least one chunk
    uint64_t bytes_streamed = 0;      // of experts, over the link

    // "kept 1,412 of 1,430 tokens, read 18"
    std::string kept_line() const;
    // "Read 1,412 tokens in 0.7 s; the loan took 64 granules from 17 cold experts and gave them
    // back; K/V +128; new driver memory: none"
    std::string memory_line() const;
};

// Called on the engine's thread; must return soon.
struct Listener {
    std::function<void(const Report&)> on_read;     // the prompt is read
    std::function<void(std::string_view)> on_text;  // whole UTF-8 characters
    std::function<void(uint32_t done, uint32_t total, double eta_seconds)> on_progress;
};

struct LoadProgress {
    std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_bytes;
    const StopSignal* stop = nullptr;
};

// One conversation's cells. Several may live; one runs.
using ConversationId = uint32_t;

// What a file gave back.
struct Reopened {
    ConversationId id = 0;
    uint32_t cells = 0;             // tokens held in K/V
    std::vector<Message> messages;  // as they were given to save_conversation
};

// Numbers of a forward pass, for `logits`: positions asked for and the argmax of all.
struct LogitsRequest {
    std::vector<TokenId> tokens;
    std::vector<uint32_t> positions;
    uint32_t greedy = 0;
};
struct LogitsResult {
    std::vector<TokenId> argmax;             // [tokens]
    std::vector<std::vector<float>> logits;  // [positions][vocab]
    std::vector<TokenId> greedy;
};

// One answered token: what it took, and what memory did for it.
struct TokenTime {
    double seconds = 0;
    uint32_t cell = 0;
    uint32_t kv_granules = 0;   // that K/V grew by
    uint64_t bytes_copied = 0;  // of experts that it missed
};
// Of a prompt's time: norms, projections, router and combination; attention and delta nets, with
// their rotations; experts; and waiting for experts that are still being copied.
enum class Phase : uint8_t { dense, attention, experts, waiting };
inline constexpr int kPhases = 4;
std::string_view phase_name(Phase phase);
using PhaseSeconds = std::array<double, kPhases>;

// A bench goes through its stages in one conversation: each reads, then answers. Tokens are random,
// so that nobody's greedy loop is measured.
struct BenchStage {
    uint32_t prompt_tokens = 0, decode_tokens = 0;  // 0 leaves one out
    // So many times prompt_tokens more are begun and stopped in the midst, sooner or later.
    uint32_t stops = 0;
    // Cells that the stage may take.
    uint64_t cells() const { return (uint64_t{stops} + 1) * prompt_tokens + decode_tokens; }
};
struct StopTime {
    double seconds = 0;  // from the Stop to its end
    uint32_t depth = 0;  // cells before what was being read
};
struct BenchResult {
    uint32_t depth = 0;  // cells before the stage
    double prefill_tok_s = 0, decode_tok_s = 0;
    Report reading;
    PhaseSeconds phases{};                           // of the reading
    uint32_t experts_before = 0, experts_after = 0;  // with a slot, before and after the reading
    uint64_t hits = 0, misses = 0;                   // of experts, while answering
    uint64_t left_to_cpu = 0;                        // of the misses
    std::vector<TokenTime> tokens;
    std::vector<StopTime> stops;  // none where reading was quicker
};
// What the device does at most, measured now.
struct Limits {
    gpu::DeviceLimits device;
    double link = 0;  // bytes a second of a long copy of weights to it; 0: not known
};

enum class LogLevel : uint8_t { info, warning, error };
using LogFunction = std::function<void(LogLevel, std::string_view line)>;

struct EngineOptions {
    Settings settings;
    LogFunction log;  // called on the engine's thread; may be empty
    gpu::Arithmetic arithmetic = gpu::Arithmetic::fast;
    int nice = 0;  // of the engine's threads
    LoadProgress progress;
    // Main memory for states of conversations to go back to, over all of them; the one that runs
    // keeps at least one. Models without recurrent state need none.
    uint64_t checkpoint_bytes = uint64_t{1} << 30;
    // What the setting `device` chooses from; asked where it is not host.
    std::function<std::vector<gpu::FoundDevice>()> find_devices = gpu::found_devices;
    // Puts something between the engine and each device that it opens: a recorder of its calls, or
    // one that lets them fail. Empty: nothing.
    std::function<std::unique_ptr<gpu::Device>(std::unique_ptr<gpu::Device>)> wrap_device = {};
};

class Engine {
  public:
    static Result<std::unique_ptr<Engine>> open(const std::string& path,
                                                const EngineOptions& options);
    ~Engine();

    const ModelFacts& model() const;
    const gpu::DeviceInfo& device() const;
    const Plan& plan() const;  // the one that runs
    Planner planner() const;   // a copy, for previews on any thread
    std::shared_ptr<const Tokenizer> tokenizer() const;
    Telemetry& telemetry();
    bool has_chat_template() const;

    // Bytes by class now; they sum to plan().budget_bytes.
    std::array<uint64_t, kOwners> bytes() const;
    uint64_t driver_allocations_after_load() const;
    // Rates of the plan, corrected by what has been read and answered so far; none before that.
    std::optional<Rates> learned_rates() const;
    // As measured now, in about a second. No conversation changes.
    Result<Rates> measure_rates();
    DeviceProfile profile(const Rates& rates) const;

    // New settings between requests: all or nothing. True: conversations must be read again.
    Result<bool> apply(const Settings& settings);

    Result<ConversationId> create_conversation();
    void drop_conversation(ConversationId id);
    uint32_t cells(ConversationId id) const;  // tokens held in K/V

    // Writes a conversation to a file, in the place of what stood there once all of it is on disk:
    // its tokens, K/V and newest states, and `messages` for who opens it. The bytes written.
    // Errors: `refused` where the disk has no room, `io`, `cancelled`; an old file then stays as it
    // is.
    Result<uint64_t> save_conversation(ConversationId id, const std::string& path,
                                       const std::vector<Message>& messages,
                                       const LoadProgress& progress = {});
    // A new conversation from such a file, which goes on as the saved one would have. Other
    // conversations may give up their K/V for it. Errors, after which there is none: `unsupported`
    // for a file of another model, K/V format or version, `invalid_file` where it is damaged,
    // `refused` with numbers where it does not fit, `io`, `cancelled`.
    Result<Reopened> restore_conversation(const std::string& path,
                                          const LoadProgress& progress = {});

    // Tokens of a request as `answer` would read it.
    Result<std::vector<TokenId>> tokens_of(const Request& request) const;

    // Admission: prompt + answer room <= max-context, else `refused` with both numbers and nothing
    // read or changed. Then reads what is not kept, and answers. Stop at any token keeps what was
    // read and said.
    Result<Report> answer(ConversationId id, const Request& request, const Listener& listener,
                          const StopSignal& stop);

    Result<LogitsResult> logits(const LogitsRequest& request);
    // One result a stage. No conversation of others changes. Where the first stage reads nothing,
    // one token is read before it: answering needs a cell to look at. Errors: those of a prompt
    // that does not fit; `cancelled`.
    Result<std::vector<BenchResult>> bench(std::span<const BenchStage> stages,
                                           const Listener& listener = {},
                                           const StopSignal* stop = nullptr);
    // In a fraction of a second. A GPU loads kernels for it and lets them go.
    Result<Limits> measure_limits();
    // Of the device's memory, for everybody, as its driver says now.
    uint64_t free_bytes_now();

  private:
    struct Impl;
    explicit Engine(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// A planner for a model that is not loaded: reads the file's header. For the device that an engine
// would take, or for that of `profile`.
Result<Planner> make_planner(const std::string& path, const Settings& settings,
                             const DeviceProfile* profile = nullptr);

// Answer room when -n is absent: min(1,024, max_context / 4).
uint32_t answer_room(uint32_t max_context);

}  // namespace granary
