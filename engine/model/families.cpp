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
constexpr std::array<Family, 1> kFamilies{{{"qwen3moe", load_qwen3moe}}};

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
        add_vector(layer.attention.norm, facts.hidden);
        add_matrix(layer.attention.q);
        add_matrix(layer.attention.k);
        add_matrix(layer.attention.v);
        add_matrix(layer.attention.out);
        add_vector(layer.attention.q_norm, attention.head_dim);
        add_vector(layer.attention.k_norm, attention.head_dim);
        add_vector(layer.moe.norm, facts.hidden);
        add_matrix(layer.moe.router);
    }
    add_vector(output_norm, facts.hidden);
    add_matrix(output);
    return list;
}

}  // namespace granary
