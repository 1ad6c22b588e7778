// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/model/tensors.h"

#include <cmath>

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
    if (*value < low || *value > high) {
        set_error({ErrorKind::invalid_file, file_.path() + " has an impossible value",
                   full + " is " + std::to_string(*value) + ", expected " + std::to_string(low) +
                       " to " + std::to_string(high),
                   ""});
        return low;
    }
    return static_cast<uint32_t>(*value);
}

uint32_t TensorReader::count_or(const char* key, uint32_t fallback, uint32_t low, uint32_t high) {
    return file_.find(family_ + "." + key) ? count(key, low, high) : fallback;
}

float TensorReader::real(const char* key) {
    const std::string full = family_ + "." + key;
    auto value = file_.get_real(full);
    if (!value) {
        set_error(value.error());
        return 1;
    }
    if (!std::isfinite(*value) || *value <= 0 || *value > 1e30) {
        set_error({ErrorKind::invalid_file, file_.path() + " has an impossible value",
                   full + " is " + std::to_string(*value) + ", expected a positive number", ""});
        return 1;
    }
    return static_cast<float>(*value);
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

const gguf::Tensor* TensorReader::find(const std::string& name,
                                       std::initializer_list<uint64_t> shape) {
    const gguf::Tensor* tensor = file_.tensor(name);
    if (!tensor) {
        set_error({ErrorKind::invalid_file, file_.path() + " lacks a tensor",
                   name + " " + shape_text(shape), "The file may be damaged or another variant"});
        return nullptr;
    }
    size_t axis = 0;
    bool equal = tensor->dims <= shape.size();
    for (uint64_t n : shape) equal = equal && tensor->shape[axis++] == n;
    if (!equal) {
        set_error({ErrorKind::invalid_file, file_.path() + " has a tensor of unexpected shape",
                   name + " is [" + std::to_string(tensor->shape[0]) + ", " +
                       std::to_string(tensor->shape[1]) + ", " + std::to_string(tensor->shape[2]) +
                       ", " + std::to_string(tensor->shape[3]) + "], expected " + shape_text(shape),
                   ""});
        return nullptr;
    }
    if (!gpu::weight_type_info(tensor->type).decodes) {
        set_error({ErrorKind::unsupported, "this program cannot compute with a tensor's type",
                   name + " in " + file_.path() + " is " +
                       std::string(gpu::weight_type_info(tensor->type).name),
                   "Use another quantisation of the model"});
        return nullptr;
    }
    return tensor;
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
    const gguf::Tensor* tensor = find(name, {size});
    if (!tensor) return nullptr;
    if (tensor->type != gpu::WeightType::f32) {
        set_error({ErrorKind::unsupported, "a vector of the model is not F32",
                   name + " in " + file_.path() + " is " +
                       std::string(gpu::weight_type_info(tensor->type).name),
                   ""});
        return nullptr;
    }
    return reinterpret_cast<const float*>(tensor->data);
}

}  // namespace granary
