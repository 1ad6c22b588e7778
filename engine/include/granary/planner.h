// SPDX-License-Identifier: GPL-3.0-or-later
// Layout arithmetic: a pure function of model, device and settings. No clock, no device, no
// chance, under a millisecond: sliders call it while they move.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/device.h"
#include "gpu/error.h"
#include "gpu/kernels.h"
#include "granary/rates.h"
#include "granary/rope.h"
#include "granary/settings.h"
#include "granary/telemetry.h"

namespace granary {

// What the planner needs to know of a model; bytes.
struct ModelFacts {
    std::string name, family;
    uint32_t layers = 0, trained_context = 0, vocab = 0, hidden = 0;
    uint32_t experts = 0, experts_used = 0, expert_ffn = 0;
    gpu::AttentionShape attention;       // its rope is that of short contexts
    uint32_t rope_dims = 0;              // first values of a head that rotate
    double rope_base = 10000;            // theta
    RopeScaling rope;                    // as the file has it
    uint64_t fixed_bytes = 0;            // weights that are always on the device
    uint64_t output_bytes = 0;           // of these the output matrix, not met by prompt tokens
    uint64_t host_bytes = 0;             // weights that stay in host memory (token embedding)
    std::vector<uint64_t> expert_bytes;  // [layers] one expert's slot, rounded to 256
    uint64_t row_bytes = 0;              // one slot of every layer
    uint64_t kv_bytes_per_token = 0;
    // Families with delta nets: as many layers keep a state of fixed size instead of K/V.
    uint32_t delta_layers = 0;
    gpu::DeltaShape delta;
    uint64_t state_bytes = 0;    // of one conversation
    bool gated_queries = false;  // query rows hold [query | gate] for each head
    uint32_t shared_ffn = 0;     // of the shared expert; 0: none
};

struct DeviceFacts {
    bool host = true;  // the processor, whose face and granules follow the settings
    gpu::Face face = gpu::Face::unified;
    uint64_t granule_bytes = 0;  // on the host the settings decide, see Planner::plan
    uint64_t free_bytes = 0;     // of the host: main memory, of which a budget is a part
    // Bytes of one row's activation codes by width (0 in f32 arithmetic), and kernel scratch:
    // base + one part for each gpu::kDecodeCut cells of the longest context.
    uint64_t code_bytes_hidden = 0, code_bytes_attention = 0, code_bytes_ffn = 0;
    uint64_t code_bytes_delta = 0, code_bytes_shared = 0;
    // On the host the base is one part for each of `threads`; 0: it does not depend on them.
    uint64_t scratch_base = 0, scratch_per_cut = 0;
    // Scratch of prompt operations, in the loan: a constant and more for each row.
    uint64_t prompt_scratch_base = 0, prompt_scratch_per_row = 0;
    uint64_t expert_out_bytes = 4;    // of one value that an expert puts out
    uint64_t hidden_value_bytes = 4;  // of one value between an expert's matrices; 0: codes only
    // The ring through which experts come: so many at once, in so many waves.
    uint32_t ring_wave = 1, ring_waves = 4;
    bool shares_with_cpu = false;  // a GPU whose decode steps can leave experts to the processor
    uint32_t threads = 0, threads_unless_told = 0;
    // What `kv` auto stands for, where that is no choice: f32 in f32 arithmetic.
    std::optional<gpu::KvFormat> auto_kv;
    std::optional<Rates> rates;  // measured; none: unmeasured_host(threads)
};

inline constexpr uint32_t kFastestShare = UINT32_MAX;

// Predicted tokens a second.
struct Speeds {
    double reading = 0;         // of a prompt that fills the context
    double reading_at_max = 0;  // of its last chunk
    double answering_at_start = 0, answering_at_max = 0;
};

struct Plan {
    Settings settings;          // as asked for
    bool card = false;          // experts are cached in the device's own memory, not read in place
    uint32_t max_context = 0;   // as resolved
    uint32_t chunk = 0;         // tokens of a prompt chunk while K/V leaves room for it
    uint32_t chunk_at_max = 0;  // of the last chunk of a prompt that fills the context
    uint32_t stream_min = 0;    // chunk from which all experts stream; UINT32_MAX: never
    gpu::KvFormat kv_format = gpu::KvFormat::f16;
    RopeScaling rope;        // as resolved
    uint32_t cpu_share = 0;  // percent of a staged chunk's missed experts
    // Percent of a layer's missed experts that the processor computes for a generated token while a
    // GPU does the rest; kFastestShare: as many as is found fastest at the load.
    uint32_t answer_share = 0;
    uint64_t granule_bytes = 0;
    uint64_t budget_bytes = 0;  // whole granules
    // Granules. fixed + workspace + state + expert_range = budget_bytes / granule_bytes: K/V and
    // loan take theirs out of the expert range.
    uint32_t fixed = 0, workspace = 0, state = 0, expert_range = 0;
    uint32_t kv_at_max = 0;  // K/V granules of max_context cells
    uint32_t loan = 0;       // of `chunk`
    uint32_t smallest_loan = 0;
    uint32_t floor = 0;          // granules that experts keep
    uint32_t rows_at_start = 0;  // expert rows before the first prompt, the last one in part
    uint32_t rows_at_max = 0;    // that are left with max_context cells and no prompt
    // Bytes by class with an empty and with a full context, while a prompt runs.
    std::array<uint64_t, kOwners> at_start{}, at_max{};
    Speeds speeds;
};

// From this cell on a prompt is read in chunks of so many tokens, at most until the next entry.
struct ScheduledChunks {
    uint32_t from = 0;
    uint32_t chunk = 0;
    bool operator==(const ScheduledChunks&) const = default;
};

// How things stand when a prompt comes; granules.
struct Standing {
    uint32_t away = 0;    // out of use
    uint32_t idle = 0;    // K/V of other conversations
    uint32_t mapped = 0;  // K/V of the conversation at hand
    bool operator==(const Standing&) const = default;
};

// Settings near refused ones that would be admitted, each by itself; 0: none of its kind.
struct WaysOut {
    uint64_t memory = 0;       // bytes of budget, or that would have to be free
    uint32_t max_context = 0;  // tokens
    uint32_t prefill = 0;
};

class Planner {
  public:
    // `corrected`: rates that predictions take instead of the device's own. Layouts do not: they
    // stay what they were while an engine learns how fast its machine is.
    Planner(ModelFacts model, DeviceFacts device, std::optional<Rates> corrected = {})
        : model_(std::move(model)), device_(device), corrected_(corrected) {}

    // The layout, or a refusal with each term of the sum ("budget 8 MiB: fixed weights 6.5 MiB +
    // ... = ... MiB") and the nearest settings that would fit.
    Result<Plan> plan(const Settings& settings) const;

    // How tokens [from, total) of a prompt are read under `plan`: in chunks as large as K/V leaves
    // room for at each cell. Errors: `refused` where K/V of `total` cells leaves none, with both
    // numbers.
    Result<std::vector<ScheduledChunks>> schedule(const Plan& plan, const Standing& standing,
                                                  uint32_t from, uint32_t total) const;

    // For settings that `plan` refuses.
    WaysOut ways_out(const Settings& settings) const;

    // Bytes by class with `cells` cells mapped, while a prompt's chunk of `chunk` tokens runs that
    // its schedule allows there.
    std::array<uint64_t, kOwners> bytes_at(const Plan& plan, uint32_t cells, uint32_t chunk) const;

    // What a prompt read as `schedule` says, up to `total` tokens, takes under `plan`.
    PromptTime predict_prompt(const Plan& plan, const std::vector<ScheduledChunks>& schedule,
                              uint32_t total) const;
    // Seconds of a generated token with `depth` cells before it, of whose experts the share `hits`
    // has a slot: the second one takes that of a text that picks every expert as often.
    double predict_decode(const Plan& plan, uint32_t depth, double hits) const;
    double predict_decode(const Plan& plan, uint32_t depth) const;
    double uniform_hits(const Plan& plan, uint32_t depth) const;

    // The same layouts with other predictions.
    Planner corrected(const Rates& rates) const { return Planner(model_, device_, rates); }

    const ModelFacts& model() const { return model_; }
    const DeviceFacts& device() const { return device_; }

  private:
    DeviceFacts device_of(const Plan& plan) const;
    Rates rates_of(const DeviceFacts& device) const;

    ModelFacts model_;
    DeviceFacts device_;
    std::optional<Rates> corrected_;
};

}  // namespace granary
