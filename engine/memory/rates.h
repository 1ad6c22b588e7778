// SPDX-License-Identifier: GPL-3.0-or-later
// Predicted seconds: pure arithmetic over bytes and operations that follow from a model's shapes,
// and a device's rates. In short, a layer of a chunk of n tokens at depth d takes
//
//   launch + dense + attention(d) + max(experts, copies - ahead)  where all experts stream,
//   launch + dense + attention(d) + experts + copies               where those routed are staged,
//
// with dense and experts = operations / products + bytes / weights, attention(d) = n * (d + n / 2)
// steps of 4 operations for each value of a query head, and copies = bytes / link; ahead is what of
// them the ring takes while the layer's first half computes. Routing is taken as uniform: n tokens
// with k of E experts each reach E (1 - (1 - k / E)^n) of them.
#pragma once

#include <span>

#include "granary/planner.h"

namespace granary {

// The device's rates, or those guessed for a processor of as many threads.
Rates rates_of(const DeviceFacts& device);

// K and V values of a cell in all layers.
double kv_values(const ModelFacts& model);

// What the processor takes for `count` of a layer's experts.
struct ProcessorSeconds {
    double fixed = 0, each = 0;
    double of(uint32_t count) const { return count ? fixed + each * count : 0; }
};
// Until it sees a request, and its answer is seen.
inline constexpr double kProcessorBell = 4e-6;
// How many of a layer's misses are the processor's, so that the slower of the two is done first,
// and when that is; `gather`: seconds of an expert over the link. The device keeps one miss at
// least: what it gathers refills the cache.
struct FastestShare {
    uint32_t experts = 0;
    double seconds = 0;
};
FastestShare fastest_share(uint32_t misses, const ProcessorSeconds& processor, double gather);

class Predictor {
  public:
    // `device` as the plan was made for: see facts_for. All three must outlive this. `rates`:
    // others than the device's.
    Predictor(const ModelFacts& model, const DeviceFacts& device, const Plan& plan);
    Predictor(const ModelFacts& model, const DeviceFacts& device, const Plan& plan,
              const Rates& rates);

    const Rates& rates() const { return rates_; }
    // Seconds of a chunk of `rows` tokens at cells cell.., with the loan of `chunk` laid.
    double chunk(uint32_t chunk, uint32_t cell, uint32_t rows) const;
    // The part of it that is attention to the cells before and in it.
    double attention(uint32_t cell, uint32_t rows) const;
    // A prompt whose tokens up to `total` are read as `schedule` says. Costs a few dozen chunks'
    // arithmetic for each entry of the schedule, however long it is.
    PromptTime prompt(std::span<const ScheduledChunks> schedule, uint32_t total) const;
    // Seconds of a generated token with `depth` cells before it, of whose experts the share `hits`
    // has a slot; the others come over the link.
    double token(uint32_t depth, double hits) const;
    double token(uint32_t depth) const { return token(depth, uniform_hits(depth)); }
    // That share, where every expert is picked as often; a text that keeps to its experts has more.
    double uniform_hits(uint32_t depth) const;
    double token_without_misses(uint32_t depth) const;
    // Of what is missed, where the processor takes the fastest share.
    double missed_with_share(double hits) const;
    // The smallest chunk for which streaming is predicted no slower than staging, with `rows` of
    // each layer's experts resident.
    uint32_t faster_streamed_from(uint32_t rows) const;

    // Of so many rows of experts over the link.
    double copy_seconds(uint32_t rows) const;
    // Rows of experts that have a slot with K/V of `cells` cells and `loan_bytes` lent.
    uint32_t rows_beside(uint64_t cells, uint64_t loan_bytes) const;

  private:
    struct Experts {  // layers whose experts are equally large
        double bytes = 0;
        double layers = 0;
    };
    // `ahead`: seconds of each layer's copies that are over when its experts begin.
    double layers_of_experts(double rows, double resident, bool streamed, double ahead) const;
    double expert_compute(const Experts& group, double tokens, double reached) const;
    double reached(double tokens) const;

    const ModelFacts& model_;
    const DeviceFacts& device_;
    const Plan& plan_;
    const Rates rates_;
    std::vector<Experts> experts_;
    uint64_t step_bytes_ = 0;
    double dense_flops_ = 0;      // of a token, all layers, without experts and attention
    double dense_bytes_ = 0;      // of all layers, without the output matrix
    double expert_flops_ = 0;     // of a token in one layer
    double attention_flops_ = 0;  // of a token for each cell, all layers
};

}  // namespace granary
