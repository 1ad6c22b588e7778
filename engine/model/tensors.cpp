// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/model/tensors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace granary {
namespace {

std::string shape_text(std::initializer_list<uint64_t> shape) {
    std::string text = "[";
    for (uint64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
    return text + "]";
}

}  // namespace

uint32_t TensorReader::count(const char* key, uint32_t low, uint32_t high) {
    const std::string full = family_ + "." + key;
    auto value = file_.get_unsigned(full);
    if (!value) {
        set_error(value.error());
        return low;
    }
    return in_range(full + " is ", *value, low, high) ? static_cast<uint32_t>(*value) : low;
}

uint32_t TensorReader::count_or(const char* key, uint32_t fallback, uint32_t low, uint32_t high) {
    const std::string full = family_ + "." + key;
    if (file_.find(full)) return count(key, low, high);
    return in_range(full + " is absent, which stands for ", fallback, low, high) ? fallback : low;
}

bool TensorReader::in_range(const std::string& subject, uint64_t value, uint64_t low,
                            uint64_t high) {
    if (value >= low && value <= high) return true;
    set_error({ErrorKind::invalid_file, path_ + " has an impossible value",
               subject + std::to_string(value) + ", expected " + std::to_string(low) + " to " +
                   std::to_string(high),
               ""});
    return false;
}

double TensorReader::real(const char* key, double low, double high) {
    const std::string full = family_ + "." + key;
    auto value = file_.get_real(full);
    if (!value) {
        set_error(value.error());
        return 1;
    }
    // Written so that a NaN fails too.
    if (!(*value >= low && *value <= high)) {
        std::array<char, 96> text{};
        std::snprintf(text.data(), text.size(), "%g, expected %g to %g", *value, low, high);
        set_error({ErrorKind::invalid_file, path_ + " has an impossible value",
                   full + " is " + text.data(), ""});
        return 1;
    }
    return *value;
}

// The bounds leave room for a product or quotient in f32.
float TensorReader::real(const char* key) {
    return static_cast<float>(real(key, 1e-30, 1e30));
}

double TensorReader::real_or(const char* key, double fallback, double low, double high) {
    return file_.find(family_ + "." + key) ? real(key, low, high) : fallback;
}

float TensorReader::real_or(const char* key, float fallback) {
    return file_.find(family_ + "." + key) ? real(key) : fallback;
}

std::string TensorReader::text_or(const char* key, const char* fallback) {
    auto value = file_.find_string(family_ + "." + key);
    if (!value) {
        set_error(value.error());
        return fallback;
    }
    return *value ? std::string(**value) : std::string(fallback);
}

void TensorReader::allow_only(std::span<const std::string_view> names,
                              std::span<const std::string_view> block_parts, uint32_t layers,
                              uint32_t skipped) {
    const auto among = [](std::span<const std::string_view> list, std::string_view name) {
        return std::find(list.begin(), list.end(), name) != list.end();
    };
    const auto is_part = [&](std::string_view name) {
        if (!name.starts_with("blk.")) return false;
        uint32_t block = 0;
        const char* const end = name.data() + name.size();
        const auto [stop, error] = std::from_chars(name.data() + 4, end, block);
        return error == std::errc() && block < layers + skipped && stop != end && *stop == '.' &&
               (block >= layers || among(block_parts, {stop + 1, end}));
    };
    for (const gguf::Tensor& tensor : file_.tensors()) {
        if (among(names, tensor.name) || is_part(tensor.name)) continue;
        return set_error({ErrorKind::unsupported, "a tensor of this model is not supported",
                          gguf::printable(tensor.name) + " in " + path_ + " is not part of " +
                              family_ + " as this program knows it",
                          "Choose another conversion of the model"});
    }
}

const gguf::Tensor* TensorReader::find(const std::string& name,
                                       std::initializer_list<uint64_t> shape) {
    const gguf::Tensor* tensor = file_.tensor(name);
    if (!tensor) {
        set_error({ErrorKind::invalid_file, path_ + " lacks a tensor",
                   name + " " + shape_text(shape), "The file may be damaged or another variant"});
        return nullptr;
    }
    size_t axis = 0;
    bool equal = tensor->dims <= shape.size();
    for (uint64_t n : shape) equal = equal && tensor->shape[axis++] == n;
    if (!equal) {
        set_error({ErrorKind::invalid_file, path_ + " has a tensor of unexpected shape",
                   name + " is [" + std::to_string(tensor->shape[0]) + ", " +
                       std::to_string(tensor->shape[1]) + ", " + std::to_string(tensor->shape[2]) +
                       ", " + std::to_string(tensor->shape[3]) + "], expected " + shape_text(shape),
                   ""});
        return nullptr;
    }
    if (!gpu::weight_type_info(tensor->type).decodes) {
        set_error(
            {ErrorKind::unsupported, "this program cannot compute with a tensor's type",
             name + " in " + path_ + " is " + std::string(gpu::weight_type_info(tensor->type).name),
             "Use another quantisation of the model"});
        return nullptr;
    }
    return tensor;
}

uint32_t TensorReader::rows_of(const std::string& name, uint32_t most) {
    const gguf::Tensor* tensor = file_.tensor(name);
    if (!tensor) {
        set_error({ErrorKind::invalid_file, path_ + " lacks a tensor", name,
                   "The file may be damaged or another variant"});
        return 1;
    }
    return in_range("the number of rows of " + name + " is ", tensor->rows(), 1, most)
               ? static_cast<uint32_t>(tensor->rows())
               : 1;
}

gpu::Weight TensorReader::matrix(const std::string& name, uint32_t rows, uint32_t cols) {
    const gguf::Tensor* tensor = find(name, {cols, rows});
    if (!tensor) return {};
    return {tensor->data, tensor->type, rows, cols};
}

gpu::Weight TensorReader::experts(const std::string& name, uint32_t experts, uint32_t rows,
                                  uint32_t cols) {
    const gguf::Tensor* tensor = find(name, {cols, rows, experts});
    if (!tensor) return {};
    return {tensor->data, tensor->type, rows, cols};
}

const float* TensorReader::vector(const std::string& name, uint32_t size) {
    return floats(name, {size});
}

const float* TensorReader::table(const std::string& name, uint32_t rows, uint32_t cols) {
    return floats(name, {cols, rows});
}

const float* TensorReader::floats(const std::string& name, std::initializer_list<uint64_t> shape) {
    const gguf::Tensor* tensor = find(name, shape);
    if (!tensor) return nullptr;
    if (tensor->type != gpu::WeightType::f32) {
        set_error(
            {ErrorKind::unsupported, "a vector of the model is not F32",
             name + " in " + path_ + " is " + std::string(gpu::weight_type_info(tensor->type).name),
             ""});
        return nullptr;
    }
    return reinterpret_cast<const float*>(tensor->data);
}

}  // namespace granary
