// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/inspect.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/cli/common.h"
#include "engine/cli/table.h"
#include "engine/cli/weight_summary.h"
#include "engine/gguf/file.h"
#include "engine/gguf/printable.h"
#include "engine/model/rope.h"

namespace granary::cli {
namespace {

using gguf::Array;
using nlohmann::ordered_json;

constexpr size_t table_array_elements = 6;
constexpr size_t table_string_bytes = 72;
constexpr size_t json_array_elements = 64;
constexpr size_t json_string_bytes = 65536;

template <class... Cases>
struct Overloaded : Cases... {
    using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

const char* kind_name(Array::Kind kind) {
    switch (kind) {
        case Array::Kind::unsigned_integer:
            return "unsigned";
        case Array::Kind::signed_integer:
            return "signed";
        case Array::Kind::real:
            return "real";
        case Array::Kind::boolean:
            return "bool";
        case Array::Kind::string:
            return "string";
    }
    return "";
}

// The shortest of the usual forms: a float's 0.1 reads 0.1, not 0.10000000149.
std::string real_text(double value) {
    char buffer[32];
    std::snprintf(buffer, sizeof buffer, "%.7g", value);
    return buffer;
}

uint32_t part_count(const gguf::File& file) {
    uint32_t parts = 1;
    for (const gguf::Tensor& tensor : file.tensors()) parts = std::max(parts, tensor.part + 1);
    return parts;
}

// ---- context

struct Context {
    uint32_t trained = 0;
    RopeScaling rope;
};
// What a file says of its context; nothing where it has no such length, an error where it cannot
// be read.
Result<std::optional<Context>> context_of(const gguf::File& file) {
    const auto architecture = file.get_string("general.architecture");
    if (!architecture || !file.find(std::string(*architecture) + ".context_length"))
        return std::nullopt;
    TensorReader read(file, std::string(*architecture));
    Context context;
    context.trained = read.count("context_length", 1, 1u << 30);
    context.rope = read_rope_scaling(read, context.trained);
    if (read.error()) return tl::unexpected(*read.error());
    return context;
}

// ---- table

std::string element_text(const Array& array, size_t i) {
    switch (array.kind()) {
        case Array::Kind::unsigned_integer:
            return std::to_string(array.unsigned_at(i));
        case Array::Kind::signed_integer:
            return std::to_string(array.signed_at(i));
        case Array::Kind::real:
            return real_text(array.real_at(i));
        case Array::Kind::boolean:
            return array.unsigned_at(i) != 0 ? "true" : "false";
        case Array::Kind::string:
            return gguf::quoted(array.string_at(i), 24);
    }
    return "";
}

std::string array_text(const Array& array) {
    std::string text = std::to_string(array.size()) + " " + kind_name(array.kind()) + ": [";
    const size_t shown = std::min(array.size(), table_array_elements);
    for (size_t i = 0; i < shown; ++i) {
        if (i > 0) text += ", ";
        text += element_text(array, i);
    }
    return text + (shown < array.size() ? ", ...]" : "]");
}

std::string string_text(std::string_view value) {
    std::string text = gguf::quoted(value, table_string_bytes);
    if (value.size() > table_string_bytes) text += " (" + format_bytes(value.size()) + ")";
    return text;
}

std::string value_text(const gguf::Value& value) {
    return std::visit(Overloaded{[](uint64_t v) { return std::to_string(v); },
                                 [](int64_t v) { return std::to_string(v); },
                                 [](double v) { return real_text(v); },
                                 [](bool v) { return std::string(v ? "true" : "false"); },
                                 [](std::string_view v) { return string_text(v); },
                                 [](const Array& v) { return array_text(v); }},
                      value);
}

std::string shape_text(const gguf::Tensor& tensor) {
    if (tensor.dims == 0) return "scalar";
    std::string text;
    for (uint32_t i = 0; i < tensor.dims; ++i) {
        if (i > 0) text += " x ";
        text += std::to_string(tensor.shape[i]);
    }
    return text;
}

using Row = Table::Row;

void print_table(std::ostream& out, const std::vector<Row>& rows, const std::vector<bool>& right) {
    Table table({}, right);
    for (const Row& row : rows) table.add(row);
    table.print(out);
}

std::string exact_bytes(uint64_t bytes) {
    const std::string text = format_bytes(bytes);
    return bytes < 1024 ? text : text + " (" + std::to_string(bytes) + ")";
}

std::string context_text(const Context& context) {
    std::string text = grouped(context.trained) + " tokens, positions " + context.rope.text();
    if (context.rope.kind != RopeKind::none)
        text += " from " + grouped(context.rope.original) + " tokens";
    return text;
}

void print_summary(std::ostream& out, const gguf::File& file) {
    const WeightSummary sum = summarise_weights(file);
    std::vector<Row> rows;
    for (const auto& [name, type] : sum.types) {
        rows.push_back({std::string(name), std::to_string(type.tensors), exact_bytes(type.bytes)});
    }
    out << "\nWeight types (tensors, bytes)\n";
    print_table(out, rows, {false, true, false});

    rows = {{"all weights", exact_bytes(sum.tensor_bytes)},
            {"fixed", exact_bytes(sum.fixed_bytes)}};
    if (sum.host_bytes > 0) {
        rows.push_back({"token embedding, in host memory", exact_bytes(sum.host_bytes)});
    }
    if (sum.expert_layers > 0) {
        rows.push_back({"routed experts", exact_bytes(sum.expert_bytes) + " in " +
                                              std::to_string(sum.expert_layers) + " layers of " +
                                              std::to_string(sum.experts)});
        std::string each = exact_bytes(sum.expert_bytes_least);
        if (sum.expert_bytes_most != sum.expert_bytes_least) {
            each += " to " + exact_bytes(sum.expert_bytes_most) + ", differing by layer";
        }
        rows.push_back({"one expert", each});
    }
    if (sum.kv_bytes_per_token_f16) {
        rows.push_back({"K/V a token, f16",
                        exact_bytes(*sum.kv_bytes_per_token_f16) +
                            (sum.windowed ? ", sliding-window layers counted in full" : "")});
    }
    const auto context = context_of(file);
    if (!context)
        rows.push_back({"context", gguf::printable(context.error().message())});
    else if (*context)
        rows.push_back({"context", context_text(**context)});
    out << "\nSummary\n";
    print_table(out, rows, {false, false});
}

void print_text(std::ostream& out, const gguf::File& file) {
    const uint32_t parts = part_count(file);
    out << gguf::printable(file.path(), 4096) << ": GGUF version " << file.version() << ", "
        << exact_bytes(file.total_bytes());
    if (parts > 1) out << " in " << parts << " parts";
    out << "\n\nMetadata (" << file.metadata().size() << ")\n";
    std::vector<Row> rows;
    for (const auto& [key, value] : file.metadata()) {
        rows.push_back({gguf::printable(key, 60), value_text(value)});
    }
    print_table(out, rows, {false, false});

    out << "\nTensors (" << file.tensors().size() << ")\n";
    rows.clear();
    for (const gguf::Tensor& tensor : file.tensors()) {
        rows.push_back({gguf::printable(tensor.name, 60),
                        std::string(gpu::weight_type_info(tensor.type).name), shape_text(tensor),
                        std::to_string(tensor.bytes)});
    }
    print_table(out, rows, {false, false, false, true});
    if (!file.tensors().empty()) print_summary(out, file);
}

// ---- JSON

ordered_json element_json(const Array& array, size_t i) {
    switch (array.kind()) {
        case Array::Kind::unsigned_integer:
            return array.unsigned_at(i);
        case Array::Kind::signed_integer:
            return array.signed_at(i);
        case Array::Kind::real:
            return array.real_at(i);
        case Array::Kind::boolean:
            return array.unsigned_at(i) != 0;
        case Array::Kind::string:
            return array.string_at(i).substr(0, json_string_bytes);
    }
    return nullptr;
}

ordered_json array_json(const Array& array) {
    ordered_json values = ordered_json::array();
    const size_t shown = std::min(array.size(), json_array_elements);
    for (size_t i = 0; i < shown; ++i) values.push_back(element_json(array, i));
    return {{"type", kind_name(array.kind())}, {"count", array.size()}, {"values", values}};
}

ordered_json value_json(const gguf::Value& value) {
    return std::visit(
        Overloaded{[](std::string_view v) { return ordered_json(v.substr(0, json_string_bytes)); },
                   [](const Array& v) { return array_json(v); },
                   [](auto v) { return ordered_json(v); }},
        value);
}

ordered_json summary_json(const WeightSummary& sum) {
    ordered_json types = ordered_json::object();
    for (const auto& [name, type] : sum.types) {
        types[std::string(name)] = {{"tensors", type.tensors}, {"bytes", type.bytes}};
    }
    ordered_json out = {
        {"types", types},
        {"tensor_bytes", sum.tensor_bytes},
        {"fixed_bytes", sum.fixed_bytes},
        {"host_bytes", sum.host_bytes},
        {"expert_bytes", sum.expert_bytes},
        {"expert_layers", sum.expert_layers},
        {"experts", sum.experts},
        {"bytes_per_expert", {{"least", sum.expert_bytes_least}, {"most", sum.expert_bytes_most}}},
        {"kv_bytes_per_token_f16", nullptr},
        {"kv_windowed", sum.windowed}};
    if (sum.kv_bytes_per_token_f16) {
        out["kv_bytes_per_token_f16"] = *sum.kv_bytes_per_token_f16;
    }
    return out;
}

ordered_json context_json(const gguf::File& file) {
    const auto context = context_of(file);
    if (!context) return {{"error", context.error().message()}};
    if (!*context) return nullptr;
    const RopeScaling& rope = (*context)->rope;
    return {{"trained", (*context)->trained},
            {"rope_scaling", rope_kind_name(rope.kind)},
            {"rope_factor", rope.factor},
            {"original", rope.original}};
}

void print_json(std::ostream& out, const gguf::File& file) {
    // Appended, not looked up by key: an ordered object searches in linear time, keys are unique.
    ordered_json::object_t metadata;
    for (const auto& [key, value] : file.metadata()) {
        metadata.emplace_back(std::string(key), value_json(value));
    }
    ordered_json tensors = ordered_json::array();
    for (const gguf::Tensor& tensor : file.tensors()) {
        ordered_json shape = ordered_json::array();
        for (uint32_t i = 0; i < tensor.dims; ++i) shape.push_back(tensor.shape[i]);
        tensors.push_back({{"name", tensor.name},
                           {"type", gpu::weight_type_info(tensor.type).name},
                           {"shape", shape},
                           {"bytes", tensor.bytes},
                           {"offset", tensor.offset},
                           {"part", tensor.part}});
    }
    const ordered_json all = {{"file", file.path()},
                              {"version", file.version()},
                              {"parts", part_count(file)},
                              {"bytes", file.total_bytes()},
                              {"metadata", std::move(metadata)},
                              {"tensors", tensors},
                              {"context", context_json(file)},
                              {"summary", summary_json(summarise_weights(file))}};
    // All that is not ASCII is written as \uXXXX, so no file can reach the terminal's controls;
    // bytes that are not UTF-8 become U+FFFD.
    out << all.dump(2, ' ', true, ordered_json::error_handler_t::replace) << '\n';
}

}  // namespace

int inspect(const std::string& path, bool json, std::ostream& out, std::ostream& err) {
    const auto file = gguf::File::open(path);
    if (!file) {
        return report_error(file.error(), err);
    }
    if (json) {
        print_json(out, **file);
    } else {
        print_text(out, **file);
    }
    return kOk;
}

}  // namespace granary::cli
