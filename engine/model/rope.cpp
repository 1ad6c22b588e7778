// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

namespace granary {
namespace {

// The pair, as a real number, that turns `turns` times within `tokens`.
double pair_of(double turns, uint32_t tokens, uint32_t dims, double base) {
    return dims * std::log(tokens / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
}

}  // namespace

std::string_view rope_kind_name(RopeKind kind) {
    constexpr std::string_view names[] = {"none", "linear", "yarn"};
    return names[static_cast<size_t>(kind)];
}

std::string factor_text(double factor) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", factor);
    return text;
}

std::string RopeScaling::text() const {
    if (kind == RopeKind::none) return "as trained";
    return "stretched by " + factor_text(factor) +
           (kind == RopeKind::yarn ? " with YaRN" : " linearly");
}

std::string context_note(const RopeScaling& rope, uint32_t max_context) {
    const double reach = rope.original * rope.factor;
    const std::string length = grouped(rope.original) + " tokens that the model was trained for";
    std::string note;
    if (rope.kind != RopeKind::none)
        note = "positions are " + rope.text() + ": the " + length + " reach to " +
               grouped(static_cast<uint64_t>(reach));
    if (max_context <= reach) return note;
    if (!note.empty()) return note + ", max-context is " + grouped(max_context);
    return "max-context " + grouped(max_context) + " is past the " + length +
           ": answers there may be poor; rope-scaling yarn may help";
}

RopeScaling read_rope_scaling(TensorReader& read, uint32_t trained) {
    RopeScaling rope;
    // Files from before the type was written have a factor alone.
    double factor = read.real_or("rope.scaling.factor", 1, 1, kLargestRopeFactor);
    const std::string type = read.text_or("rope.scaling.type", factor > 1 ? "linear" : "none");
    if (type == "linear" || type == "yarn") {
        rope.kind = type == "yarn" ? RopeKind::yarn : RopeKind::linear;
        factor = read.real("rope.scaling.factor", 1, kLargestRopeFactor);
    } else if (type != "none") {
        read.set_error({ErrorKind::unsupported, "this rotation scaling is not supported",
                        "rope.scaling.type is " + gguf::quoted(type, 64),
                        "Supported: none, linear, yarn"});
    }
    rope.original = read.count_or("rope.scaling.original_context_length", trained, 1, 1u << 30);
    rope.beta_fast = read.real_or("rope.scaling.yarn_beta_fast", 32, 1e-3, 1e6);
    rope.beta_slow = read.real_or("rope.scaling.yarn_beta_slow", 1, 1e-3, 1e6);
    rope.extrapolation = read.real_or("rope.scaling.yarn_ext_factor", 1, 0, 1);
    rope.attention = read.real_or("rope.scaling.attn_factor", 1, 1e-3, 1e3) *
                     read.real_or("rope.scaling.yarn_attn_factor", 1, 1e-3, 1e3);
    // Families differ in what it means; of those that this program runs none has it.
    if (rope.kind == RopeKind::yarn &&
        read.real_or("rope.scaling.yarn_log_multiplier", 0, 0, 1e3) > 0)
        read.set_error({ErrorKind::unsupported, "this rotation scaling is not supported",
                        "rope.scaling.yarn_log_multiplier is set", "Use another conversion"});
    if (factor == 1) rope.kind = RopeKind::none;
    if (rope.kind != RopeKind::none) rope.factor = factor;
    return rope;
}

Result<RopeScaling> resolve_rope(const ModelFacts& model, const Settings& settings,
                                 uint32_t max_context) {
    RopeScaling rope = model.rope;
    rope.kind = settings.rope_scaling.value_or(rope.kind);
    if (rope.original == 0) rope.original = model.trained_context;
    if (rope.kind == RopeKind::none) {
        if (settings.rope_factor > 0)
            return fail(ErrorKind::invalid_argument, "rope-factor stretches nothing",
                        settings.rope_scaling ? "rope-scaling is none"
                                              : "the model file does not stretch positions",
                        "Set rope-scaling to yarn or linear, or rope-factor to auto");
        rope.factor = 1;
        return rope;
    }
    if (settings.rope_factor > 0)
        rope.factor = settings.rope_factor;
    else if (model.rope.kind == RopeKind::none)
        rope.factor = std::ceil(static_cast<double>(max_context) / rope.original);
    if (rope.factor <= 1) {
        rope.kind = RopeKind::none;
        rope.factor = 1;
    }
    if (rope.kind == RopeKind::yarn && model.rope_base <= 1)
        return fail(
            ErrorKind::unsupported, "YaRN is not defined for this model",
            "its rope.freq_base is " + factor_text(model.rope_base) + ", more than 1 is needed",
            "Set rope-scaling to linear or none");
    return rope;
}

std::shared_ptr<const gpu::RopeTable> rope_table(uint32_t dims, double base,
                                                 const RopeScaling& scaling) {
    if (scaling.kind == RopeKind::none) return gpu::rope_table(dims, base);
    auto table = std::make_shared<gpu::RopeTable>(*gpu::rope_table(dims, base));
    if (scaling.kind == RopeKind::linear) {
        for (double& turns : table->turns) turns /= scaling.factor;
        return table;
    }
    const double last = dims - 1;
    const double low =
        std::clamp(std::floor(pair_of(scaling.beta_fast, scaling.original, dims, base)), 0.0, last);
    const double high =
        std::clamp(std::ceil(pair_of(scaling.beta_slow, scaling.original, dims, base)), 0.0, last);
    for (uint32_t i = 0; i < table->pairs(); ++i) {
        const double ramp = std::clamp((i - low) / std::max(high - low, 0.001), 0.0, 1.0);
        const double kept = (1 - ramp) * scaling.extrapolation;
        table->turns[i] *= kept + (1 - kept) / scaling.factor;
    }
    table->magnitude = static_cast<float>(scaling.attention * (1 + 0.1 * std::log(scaling.factor)));
    return table;
}

}  // namespace granary
