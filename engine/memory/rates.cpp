// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/memory/rates.h"

#include <algorithm>
#include <cmath>

#include "engine/kv/kv_layout.h"
#include "engine/memory/layout.h"

namespace granary {
namespace {

// Operations of a token in all layers, without routed experts and attention.
double dense_flops(const ModelFacts& model) {
    const double hidden = model.hidden;
    const double attention_layers = model.layers - model.delta_layers;
    const double q = double{1} * model.attention.heads * model.attention.head_dim;
    const double kv = double{1} * model.attention.kv_heads * model.attention.head_dim;
    const double attention = hidden * (q * (model.gated_queries ? 2 : 1) + 2 * kv) + q * hidden;
    double delta = 0;
    if (model.delta_layers) {
        const gpu::DeltaShape& shape = model.delta;
        // Decay, reading, writing and reading again: four products for each value of the state.
        delta = hidden * (shape.channels() + 2.0 * shape.width() + 2.0 * shape.value_heads) +
                4.0 * static_cast<double>(shape.state_values());
    }
    const double each = hidden * model.experts + 3 * hidden * model.shared_ffn;
    return 2 * (attention_layers * attention + model.delta_layers * delta + model.layers * each);
}

}  // namespace

// Zen 5 with AVX-512 reads 300 GFLOP/s a thread in 8-bit products; processors without it reach a
// third of that, most lie between.
Rates unmeasured_host(uint32_t threads) {
    const double n = std::max(threads, 1u);
    Rates rates;
    rates.link = rates.gather = 6e9 * std::min(n, 4.0);
    rates.cpu = 8e9 * n;
    rates.memory = 12e9 * std::min(n, 6.0);
    rates.weights = 8e9 * n;
    rates.unpack = 8e9 * n;
    rates.products = 200e9 * n;
    rates.attention = 120e9 * n;
    rates.cells = 6e9 * n;
    rates.layer = 10e-6;
    return rates;
}

Rates unmeasured_card(double products, double memory) {
    Rates rates;
    rates.link = rates.gather = 20e9;  // between PCIe 4 and 5; nothing tells before a copy is made
    rates.cpu = 20e9;                  // between a laptop's two channels and a server's many
    rates.memory = 0.8 * memory;
    rates.weights = 0.35 * memory;
    rates.unpack = 0.15 * memory;
    rates.products = 0.4 * products;
    rates.attention = 0.5 * products;
    rates.cells = 0.5 * memory;
    rates.layer = 40e-6;
    return rates;
}

Rates Rates::with_threads(uint32_t from, uint32_t to) const {
    Rates rates = *this;
    const double factor = static_cast<double>(to) / from;
    for (double Rates::*rate : {&Rates::cpu, &Rates::weights, &Rates::unpack, &Rates::products,
                                &Rates::attention, &Rates::cells})
        rates.*rate *= factor;
    return rates;
}

Rates rates_of(const DeviceFacts& device) {
    return device.rates.value_or(unmeasured_host(device.threads));
}

double kv_values(const ModelFacts& model) {
    return 2.0 * model.attention.kv_heads * model.attention.head_dim *
           (model.layers - model.delta_layers);
}

Predictor::Predictor(const ModelFacts& model, const DeviceFacts& device, const Plan& plan)
    : Predictor(model, device, plan, rates_of(device)) {}

Predictor::Predictor(const ModelFacts& model, const DeviceFacts& device, const Plan& plan,
                     const Rates& rates)
    : model_(model),
      device_(device),
      plan_(plan),
      rates_(rates),
      step_bytes_(kv_layout(model, plan.kv_format).step_bytes),
      dense_flops_(dense_flops(model)),
      dense_bytes_(static_cast<double>(model.fixed_bytes - model.output_bytes)),
      expert_flops_(6.0 * model.experts_used * model.hidden * model.expert_ffn),
      attention_flops_(4.0 * model.attention.heads * model.attention.head_dim *
                       (model.layers - model.delta_layers)) {
    for (const uint64_t bytes : model.expert_bytes) {
        const auto same = std::find_if(experts_.begin(), experts_.end(), [&](const Experts& e) {
            return e.bytes == static_cast<double>(bytes);
        });
        if (same == experts_.end())
            experts_.push_back({static_cast<double>(bytes), 1});
        else
            ++same->layers;
    }
}

uint32_t Predictor::rows_beside(uint64_t cells, uint64_t loan_bytes) const {
    if (plan_.rows_at_start == 0) return 0;
    const uint64_t taken = divide_up(steps_of(cells) * step_bytes_, plan_.granule_bytes) +
                           divide_up(loan_bytes, plan_.granule_bytes);
    const uint64_t left = plan_.expert_range - std::min<uint64_t>(plan_.expert_range, taken);
    return static_cast<uint32_t>(
        std::min<uint64_t>(left * plan_.granule_bytes / model_.row_bytes, plan_.rows_at_start));
}

double Predictor::copy_seconds(uint32_t rows) const {
    return static_cast<double>(rows * model_.row_bytes) / rates_.link;
}

double Predictor::reached(double tokens) const {
    const double experts = model_.experts;
    return experts * (1 - std::pow(1 - model_.experts_used / experts, tokens));
}

double Predictor::expert_compute(const Experts& group, double tokens, double reached) const {
    return tokens * expert_flops_ / rates_.products + reached * group.bytes / rates_.unpack;
}

// All layers' experts for a chunk of `tokens`; `resident` of each layer's have a slot.
double Predictor::layers_of_experts(double tokens, double resident, bool streamed,
                                    double ahead) const {
    const double reached_now = reached(tokens);
    const double missing = plan_.rows_at_start == 0 ? 0 : model_.experts - resident;
    double seconds = 0;
    for (const Experts& group : experts_) {
        const double compute = expert_compute(group, tokens, reached_now);
        if (streamed) {
            const double copies = missing * group.bytes / rates_.link;
            seconds += group.layers * std::max(compute, copies - ahead);
        } else {
            // Those that the CPU computes where they lie are not copied.
            const double staged =
                reached_now * missing / model_.experts * (1 - plan_.cpu_share / 100.0);
            seconds += group.layers * (compute + staged * group.bytes / rates_.link);
        }
    }
    return seconds;
}

double Predictor::attention(uint32_t cell, uint32_t rows) const {
    return attention_flops_ * rows * (cell + (rows + 1) / 2.0) / rates_.attention;
}

double Predictor::chunk(uint32_t chunk, uint32_t cell, uint32_t rows) const {
    const LoanLayout loan = loan_layout(model_, device_, chunk);
    const double resident = rows_beside(uint64_t{cell} + rows, loan.bytes);
    const double attending = attention(cell, rows);
    const double others = model_.layers * rates_.layer + rows * dense_flops_ / rates_.products +
                          dense_bytes_ / rates_.unpack;
    const double ring = 1.0 * loan.ring_waves * loan.ring_wave * loan.ring_stride / rates_.link;
    // Of all layers' experts, as if the first half of each took `half` seconds.
    const auto experts = [&](double half) {
        return layers_of_experts(rows, resident, rows >= plan_.stream_min, std::min(half, ring));
    };
    const double delta = 1.0 * model_.delta_layers / model_.layers;
    const double half = others / model_.layers;
    double seconds = others + attending;
    if (delta > 0) seconds += delta * experts(half);
    if (delta < 1)
        seconds += (1 - delta) * experts(half + attending / (model_.layers * (1 - delta)));
    return seconds;
}

PromptTime Predictor::prompt(std::span<const ScheduledChunks> schedule, uint32_t total) const {
    // Chunks of a stretch that are looked at; between them time is taken as a straight line, since
    // attention and the room of experts change by the same step from each to the next.
    constexpr uint32_t kSamples = 6;
    PromptTime time;
    for (size_t i = 0; i < schedule.size(); ++i) {
        ChunksTime part;
        part.from = schedule[i].from;
        part.to = i + 1 < schedule.size() ? schedule[i + 1].from : total;
        part.chunk = schedule[i].chunk;
        part.loan_bytes = loan_layout(model_, device_, part.chunk).bytes;
        part.kv_bytes = steps_of(part.to) * step_bytes_;
        part.streamed = part.chunk >= plan_.stream_min && plan_.rows_at_start > 0;
        const uint32_t whole = (part.to - part.from) / part.chunk;
        const uint32_t rest = (part.to - part.from) % part.chunk;
        const auto begin_of = [&](uint32_t n) { return part.from + n * part.chunk; };
        double before = 0;
        uint32_t last = 0;
        for (uint32_t sample = 0; sample < std::min(kSamples, whole); ++sample) {
            const uint32_t steps = std::min(kSamples, whole) - 1;
            const uint32_t n =
                steps ? static_cast<uint32_t>(uint64_t{whole - 1} * sample / steps) : 0;
            const double now = chunk(part.chunk, begin_of(n), part.chunk);
            // Chunks (last, n], their mean between the two looked at.
            part.seconds +=
                sample == 0 ? now : (n - last) * (before + now) / 2 + (now - before) / 2;
            before = now;
            last = n;
            part.last_tok_s = part.chunk / now;
        }
        if (rest) {
            const double now = chunk(part.chunk, begin_of(whole), rest);
            part.seconds += now;
            if (whole == 0) part.last_tok_s = rest / now;
        }
        part.rows_first = rows_beside(std::min(part.from + part.chunk, part.to), part.loan_bytes);
        part.rows_last = rows_beside(part.to, part.loan_bytes);
        time.seconds += part.seconds;
        time.stretches.push_back(part);
    }
    if (!schedule.empty())
        time.seconds += static_cast<double>(model_.output_bytes) / rates_.weights;
    return time;
}

double Predictor::token_without_misses(uint32_t depth) const {
    const double active = static_cast<double>(model_.fixed_bytes) +
                          static_cast<double>(model_.experts_used * model_.row_bytes);
    const double kv_bytes = static_cast<double>(step_bytes_) / gpu::kStepCells * depth;
    return model_.layers * rates_.layer + active / rates_.weights +
           2 * static_cast<double>(model_.state_bytes) / rates_.memory +
           std::max(kv_bytes / rates_.memory, kv_values(model_) * depth / rates_.cells);
}

double Predictor::uniform_hits(uint32_t depth) const {
    if (plan_.rows_at_start == 0) return 1;
    return rows_beside(uint64_t{depth} + 1, 0) / (1.0 * model_.experts);
}

FastestShare fastest_share(uint32_t misses, const ProcessorSeconds& processor, double gather) {
    FastestShare best{0, gather * misses};
    for (uint32_t share = 1; share < misses; ++share) {
        const double seconds = std::max(processor.of(share), gather * (misses - share));
        if (seconds < best.seconds) best = {share, seconds};
    }
    return best;
}

// Layers miss as many experts as chance has it.
double Predictor::missed_with_share(double hits) const {
    const double bytes = static_cast<double>(model_.row_bytes) / model_.layers;
    const ProcessorSeconds processor{kProcessorBell, bytes / rates_.cpu};
    const uint32_t used = model_.experts_used;
    double seconds = 0;
    for (uint32_t misses = 1; misses <= used; ++misses) {
        double chance = 1;
        for (uint32_t i = 0; i < misses; ++i) chance *= (1 - hits) * (used - i) / (i + 1.0);
        seconds += fastest_share(misses, processor, bytes / rates_.gather).seconds * chance *
                   std::pow(hits, used - misses);
    }
    return seconds * model_.layers;
}

double Predictor::token(uint32_t depth, double hits) const {
    const double missed = (1 - hits) * static_cast<double>(model_.experts_used * model_.row_bytes);
    double seconds = missed / rates_.gather;
    if (plan_.answer_share == kFastestShare) {
        seconds = missed_with_share(hits);
    } else if (plan_.answer_share > 0) {
        const double share = plan_.answer_share / 100.0;
        seconds = std::max(seconds * (1 - share), missed * share / rates_.cpu);
    }
    return token_without_misses(depth) + seconds;
}

uint32_t Predictor::faster_streamed_from(uint32_t rows) const {
    // Of a card that holds every expert nothing streams; a loan still takes some.
    const double resident = std::min<double>(rows, model_.experts - 1.0);
    uint32_t low = 1, high = kLargestChunk;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        const bool faster = layers_of_experts(middle, resident, true, 0) <=
                            layers_of_experts(middle, resident, false, 0);
        (faster ? high : low) = faster ? middle : middle + 1;
    }
    return low;
}

}  // namespace granary
