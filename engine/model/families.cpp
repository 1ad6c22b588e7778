// SPDX-License-Identifier: GPL-3.0-or-later
#include <array>

#include "engine/gguf/printable.h"
#include "engine/model/model.h"

namespace granary {
namespace {

struct Family {
    std::string_view name;  // general.architecture
    Result<Model> (*load)(std::shared_ptr<const gguf::File>);
};
constexpr std::array<Family, 2> kFamilies{
    {{"qwen3moe", load_qwen3moe}, {"qwen35moe", load_qwen35moe}}};

}  // namespace

Result<Model> load_model(std::shared_ptr<const gguf::File> file) {
    auto name = file->get_string("general.architecture");
    if (!name) return tl::unexpected(name.error());
    for (const Family& family : kFamilies)
        if (family.name == *name) return family.load(std::move(file));
    std::string supported;
    for (const Family& family : kFamilies)
        supported += (supported.empty() ? "" : ", ") + std::string(family.name);
    return fail(ErrorKind::unsupported,
                "models of the family " + gguf::quoted(*name, 64) + " are not supported",
                gguf::quoted(file->path()), "Supported families: " + supported);
}

std::vector<Model::Fixed> Model::fixed() {
    std::vector<Fixed> list;
    const auto add_vector = [&](const float*& pointer, uint64_t size) {
        if (pointer) list.push_back({reinterpret_cast<const std::byte**>(&pointer), size * 4});
    };
    const auto add_matrix = [&](gpu::Weight& weight) {
        list.push_back({&weight.data, weight.rows * gpu::row_bytes(weight.type, weight.cols)});
    };
    for (Layer& layer : layers) {
        if (auto* a = std::get_if<AttentionWeights>(&layer.mixer)) {
            add_vector(a->norm, facts.hidden);
            add_matrix(a->q);
            add_matrix(a->k);
            add_matrix(a->v);
            add_matrix(a->out);
            add_vector(a->q_norm, attention.head_dim);
            add_vector(a->k_norm, attention.head_dim);
        } else if (auto* d = std::get_if<DeltaWeights>(&layer.mixer)) {
            add_vector(d->norm, facts.hidden);
            add_matrix(d->qkv);
            add_matrix(d->gate);
            add_matrix(d->alpha);
            add_matrix(d->beta);
            add_vector(d->kernel, uint64_t{facts.delta.channels()} * facts.delta.taps);
            add_vector(d->dt, facts.delta.value_heads);
            add_vector(d->a, facts.delta.value_heads);
            add_vector(d->head_norm, facts.delta.head_dim);
            add_matrix(d->out);
        }
        add_vector(layer.moe.norm, facts.hidden);
        add_matrix(layer.moe.router);
        if (layer.moe.shared) {
            SharedExpert& shared = *layer.moe.shared;
            add_vector(shared.gate_in, facts.hidden);
            add_matrix(shared.gate);
            add_matrix(shared.up);
            add_matrix(shared.down);
        }
    }
    add_vector(output_norm, facts.hidden);
    add_matrix(output);
    return list;
}

}  // namespace granary
