// SPDX-License-Identifier: GPL-3.0-or-later
// The tensor table, and where each tensor's data lies.
#include <algorithm>
#include <limits>

#include "engine/gguf/printable.h"
#include "engine/gguf/reader.h"

namespace granary::gguf {
namespace {

constexpr uint64_t max_name_bytes = 255;
constexpr uint64_t max_elements = uint64_t{1} << 62;

// What a number that no WeightType has means, so that a person knows what to ask for.
std::string foreign_type(uint32_t number) {
    switch (number) {
        case 4:
        case 5:
            return "a 4-bit type that was removed from the format in 2023";
        case 9:
        case 15:
            return "a type for activations, never for weights";
        case 24:
        case 25:
        case 26:
        case 27:
            return "integers, which are no weights";
        case 28:
            return "64-bit floating point";
        case 31:
        case 32:
        case 33:
        case 36:
        case 37:
        case 38:
            return "an interleaved type that was removed from the format";
        case 41:
            return "Q1_0";
        case 42:
            return "Q2_0";
        default:
            break;
    }
    if (number >= 97 && number < 1000) return "a type of ik_llama.cpp's own";
    return "no known type";
}

}  // namespace

bool Reader::tensor_table() {
    for (subject_index_ = 0; subject_index_ < tensor_count_; ++subject_index_) {
        subject_ = "tensor";
        subject_name_ = {};
        if (!tensor_entry()) return false;
    }
    subject_ = nullptr;
    return true;
}

bool Reader::tensor_entry() {
    Tensor tensor;
    const uint64_t start = at_;
    if (!string(tensor.name, "name", "length of the name")) return false;
    if (tensor.name.empty() || tensor.name.size() > max_name_bytes) {
        return invalid("a tensor's name must have 1 to 255 bytes", "length of the name", start,
                       std::to_string(tensor.name.size()));
    }
    subject_name_ = tensor.name;
    uint64_t elements = 1;
    if (!shape(tensor, elements) || !weight_type(tensor) || !size_in_bytes(tensor, elements) ||
        !number(tensor.offset, "data offset")) {
        return false;
    }
    tensor.part = number_;
    part_.tensors.push_back(tensor);
    return true;
}

bool Reader::shape(Tensor& tensor, uint64_t& elements) {
    if (!number(tensor.dims, "number of dimensions")) return false;
    if (tensor.dims > tensor.shape.size()) {
        return invalid("a tensor has at most 4 dimensions", "number of dimensions", at_ - 4,
                       std::to_string(tensor.dims));
    }
    for (uint32_t i = 0; i < tensor.dims; ++i) {
        uint64_t& size = tensor.shape[i];
        if (!number(size, "dimension")) return false;
        if (size == 0) return invalid("a tensor is empty", "dimension", at_ - 8, "0");
        if (size > max_elements / elements) {
            return invalid("a tensor is larger than any file", "dimension", at_ - 8,
                           std::to_string(size));
        }
        elements *= size;
    }
    return true;
}

bool Reader::weight_type(Tensor& tensor) {
    uint32_t type = 0;
    if (!number(type, "weight type")) return false;
    if (gpu::weight_type_info(type) == nullptr) {
        return bad(ErrorKind::unsupported, "a tensor's weight type is not supported", "weight type",
                   at_ - 4, "number " + std::to_string(type) + " is " + foreign_type(type),
                   "Choose a file in another quantisation, such as Q4_K_M");
    }
    tensor.type = static_cast<gpu::WeightType>(type);
    return true;
}

bool Reader::size_in_bytes(Tensor& tensor, uint64_t elements) {
    const gpu::WeightTypeInfo& info = gpu::weight_type_info(tensor.type);
    if (tensor.cols() % info.block_elements != 0) {
        return invalid("a tensor's row is no whole number of blocks", "weight type", at_ - 4,
                       "rows of " + std::to_string(tensor.cols()) + ", blocks of " +
                           std::to_string(info.block_elements) + " (" + std::string(info.name) +
                           ")");
    }
    const uint64_t blocks = elements / info.block_elements;
    if (blocks > std::numeric_limits<uint64_t>::max() / info.block_bytes) {
        return invalid("a tensor is larger than any file", "weight type", at_ - 4,
                       std::to_string(blocks) + " blocks");
    }
    tensor.bytes = blocks * info.block_bytes;
    return true;
}

bool Reader::place_tensors() {
    if (part_.tensors.empty()) return true;
    // No overflow: the cursor is within a file, and alignment_ <= 2^30.
    const uint64_t start = (at_ + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t room = file_.size() > start ? file_.size() - start : 0;
    subject_ = "tensor";
    for (subject_index_ = 0; subject_index_ < part_.tensors.size(); ++subject_index_) {
        Tensor& tensor = part_.tensors[subject_index_];
        subject_name_ = tensor.name;
        // The table's entry: name, dimension count, dimensions, type, then this field.
        const uint64_t field =
            offset_of(tensor.name) + tensor.name.size() + 4 + uint64_t{8} * tensor.dims + 4;
        if (tensor.offset % alignment_ != 0) {
            return invalid(
                "a tensor's data is not aligned", "data offset", field,
                std::to_string(tensor.offset) + ", alignment " + std::to_string(alignment_));
        }
        if (tensor.bytes > room || tensor.offset > room - tensor.bytes) {
            return bad(ErrorKind::invalid_file, "a tensor's data lies outside the file",
                       "data offset", field,
                       std::to_string(tensor.offset) + " + " + std::to_string(tensor.bytes) +
                           " bytes, the data section has " + std::to_string(room),
                       "The download may be incomplete: compare the file's size");
        }
        tensor.offset += start;
        tensor.data = file_.data() + tensor.offset;
    }
    return no_overlap();
}

// Data of two tensors apart means that all tensors together are no larger than the file, which
// every later sum of bytes may rely on.
bool Reader::no_overlap() {
    std::vector<uint32_t> order(part_.tensors.size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](uint32_t left, uint32_t right) {
        return part_.tensors[left].offset < part_.tensors[right].offset;
    });
    for (size_t i = 1; i < order.size(); ++i) {
        const Tensor& before = part_.tensors[order[i - 1]];
        const Tensor& tensor = part_.tensors[order[i]];
        if (before.offset + before.bytes <= tensor.offset) continue;
        subject_index_ = order[i];
        subject_name_ = tensor.name;
        return invalid(
            "the data of two tensors overlaps", "data", tensor.offset,
            quoted(before.name) + " ends at " + std::to_string(before.offset + before.bytes));
    }
    return true;
}

}  // namespace granary::gguf
