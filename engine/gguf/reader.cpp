// SPDX-License-Identifier: GPL-3.0-or-later
// Header and metadata; reader_tensors.cpp reads the tensor table. The format is the public GGUF
// specification's: numbers are little-endian, nothing is aligned before the tensors' data.
#include "engine/gguf/reader.h"

#include <bit>
#include <cstring>

#include "engine/gguf/printable.h"

namespace granary::gguf {
namespace {

static_assert(std::endian::native == std::endian::little,
              "values are used as they lie in the file");

// Far above any real model, far below what would hurt. A sparse file costs its author nothing,
// so the file's size alone bounds too little.
constexpr uint64_t max_metadata = 1u << 16;
constexpr uint64_t max_tensors = 1u << 20;
constexpr uint64_t max_strings = 1u << 24;
constexpr uint64_t max_truth_values = 1u << 24;  // of an array; each is looked at
constexpr uint64_t max_key_bytes = 65535;
constexpr uint64_t max_alignment = 1u << 30;

// The least that an entry can take: metadata = key length, one character, type, one byte;
// tensor = name length, one character, dimension count, type, offset.
constexpr uint64_t min_metadata_bytes = 8 + 1 + 4 + 1;
constexpr uint64_t min_tensor_bytes = 8 + 1 + 4 + 4 + 8;

enum ValueType : uint32_t {
    type_uint8 = 0,
    type_int8 = 1,
    type_uint16 = 2,
    type_int16 = 3,
    type_uint32 = 4,
    type_int32 = 5,
    type_float32 = 6,
    type_bool = 7,
    type_string = 8,
    type_array = 9,
    type_uint64 = 10,
    type_int64 = 11,
    type_float64 = 12,
};

struct NumberLayout {
    Array::Kind kind;
    uint32_t bytes;  // 0: not a number
};

NumberLayout number_layout(uint32_t type) {
    using enum Array::Kind;
    switch (type) {
        case type_uint8:
            return {unsigned_integer, 1};
        case type_int8:
            return {signed_integer, 1};
        case type_uint16:
            return {unsigned_integer, 2};
        case type_int16:
            return {signed_integer, 2};
        case type_uint32:
            return {unsigned_integer, 4};
        case type_int32:
            return {signed_integer, 4};
        case type_float32:
            return {real, 4};
        case type_bool:
            return {boolean, 1};
        case type_uint64:
            return {unsigned_integer, 8};
        case type_int64:
            return {signed_integer, 8};
        case type_float64:
            return {real, 8};
        default:
            return {unsigned_integer, 0};
    }
}

}  // namespace

const Value* Part::find(std::string_view key) const {
    const auto at = keys.find(key);
    return at ? &metadata[*at].second : nullptr;
}

Result<Part> Reader::read() {
    if (!header() || !metadata() || !alignment() || !tensor_table() || !place_tensors()) {
        return tl::unexpected(std::move(error_));
    }
    return std::move(part_);
}

bool Reader::bad(ErrorKind kind, std::string what, const char* field, uint64_t offset,
                 const std::string& numbers, std::string advice) {
    std::string detail = quoted(file_.path()) + ": " + field;
    if (subject_ != nullptr) {
        detail += std::string(" of ") + subject_ + " " + std::to_string(subject_index_);
        if (!subject_name_.empty()) detail += " " + quoted(subject_name_);
    }
    detail += ", offset " + std::to_string(offset);
    if (!numbers.empty()) detail += ": " + numbers;
    error_ = Error{kind, std::move(what), std::move(detail), std::move(advice)};
    return false;
}

bool Reader::need(uint64_t bytes, const char* field) {
    if (bytes <= left()) return true;
    return bad(ErrorKind::invalid_file, "the file is cut short or damaged", field, at_,
               "needs " + std::to_string(bytes) + " bytes, the file ends at " +
                   std::to_string(file_.size()),
               "Download or copy it again");
}

template <class T>
bool Reader::number(T& out, const char* field) {
    if (!need(sizeof out, field)) return false;
    std::memcpy(&out, file_.data() + at_, sizeof out);
    at_ += sizeof out;
    return true;
}
template bool Reader::number(uint32_t&, const char*);
template bool Reader::number(uint64_t&, const char*);

bool Reader::string(std::string_view& out, const char* field, const char* length_field) {
    uint64_t length = 0;
    if (!number(length, length_field) || !need(length, field)) return false;
    out = {reinterpret_cast<const char*>(file_.data() + at_), static_cast<size_t>(length)};
    at_ += length;
    return true;
}

uint64_t Reader::offset_of(std::string_view text) const {
    return static_cast<uint64_t>(reinterpret_cast<const std::byte*>(text.data()) - file_.data());
}

bool Reader::header() {
    if (!need(4, "magic")) return false;
    const std::string_view magic(reinterpret_cast<const char*>(file_.data()), 4);
    if (magic != "GGUF") {
        return bad(ErrorKind::invalid_file, "this is not a GGUF file", "magic", 0,
                   "found " + quoted(magic) + " instead of \"GGUF\"", "Choose a .gguf file");
    }
    at_ = 4;
    if (!number(part_.version, "version")) return false;
    if (part_.version != 0 && (part_.version & 0xffffu) == 0) {
        return bad(ErrorKind::unsupported, "this is a big-endian GGUF file", "version", 4,
                   std::to_string(part_.version),
                   "Convert the model to little-endian, the usual form");
    }
    if (part_.version != 2 && part_.version != 3) {
        return bad(ErrorKind::unsupported, "this GGUF version is not supported", "version", 4,
                   std::to_string(part_.version) + ", supported are 2 and 3",
                   "Convert the model again");
    }
    return count(tensor_count_, "number of tensors", max_tensors, min_tensor_bytes) &&
           count(metadata_count_, "number of metadata entries", max_metadata, min_metadata_bytes);
}

bool Reader::count(uint64_t& out, const char* field, uint64_t most, uint64_t entry_bytes) {
    if (!number(out, field)) return false;
    if (out <= most && out <= left() / entry_bytes) return true;
    return bad(ErrorKind::invalid_file, "the file is cut short or damaged", field, at_ - 8,
               std::to_string(out) + " do not fit into a file of " + std::to_string(file_.size()) +
                   " bytes",
               "Download or copy it again");
}

bool Reader::metadata() {
    // No reserve: the counts are claims, the entries are what is really there.
    for (subject_index_ = 0; subject_index_ < metadata_count_; ++subject_index_) {
        subject_ = "metadata entry";
        subject_name_ = {};
        if (!metadata_entry()) return false;
    }
    subject_ = nullptr;
    for (const auto& entry : part_.metadata) part_.keys.add(entry.first);
    if (const auto twice = part_.keys.sort()) {
        const std::string_view key = part_.metadata[*twice].first;
        return invalid("a metadata key occurs twice", "key", offset_of(key), quoted(key));
    }
    return true;
}

bool Reader::metadata_entry() {
    const uint64_t start = at_;
    std::string_view key;
    if (!string(key, "key", "length of the key")) return false;
    if (key.empty() || key.size() > max_key_bytes) {
        return invalid("a metadata key must have 1 to 65535 bytes", "length of the key", start,
                       std::to_string(key.size()));
    }
    subject_name_ = key;
    Value out;
    if (!value(out)) return false;
    part_.metadata.emplace_back(key, std::move(out));
    return true;
}

bool Reader::value(Value& out) {
    uint32_t type = 0;
    if (!number(type, "value type")) return false;
    if (type == type_array) {
        Array list;
        if (!array(list)) return false;
        out = std::move(list);
        return true;
    }
    if (type == type_string) {
        std::string_view text;
        if (!string(text, "value", "length of the value")) return false;
        out = text;
        return true;
    }
    return scalar(type, out);
}

bool Reader::scalar(uint32_t type, Value& out) {
    const NumberLayout layout = number_layout(type);
    if (layout.bytes == 0) {
        return invalid("a metadata value has no known type", "value type", at_ - 4,
                       std::to_string(type) + ", known are 0 to 12");
    }
    if (!need(layout.bytes, "value")) return false;
    Array one;  // a list of one: the widening is written once
    one.kind_ = layout.kind;
    one.element_bytes_ = layout.bytes;
    one.size_ = 1;
    one.data_ = file_.data() + at_;
    at_ += layout.bytes;
    switch (layout.kind) {
        case Array::Kind::signed_integer:
            out = one.signed_at(0);
            break;
        case Array::Kind::real:
            out = one.real_at(0);
            break;
        case Array::Kind::boolean:
            if (one.unsigned_at(0) > 1) {
                return invalid("a truth value must be 0 or 1", "value", at_ - 1,
                               std::to_string(one.unsigned_at(0)));
            }
            out = one.unsigned_at(0) == 1;
            break;
        default:
            out = one.unsigned_at(0);
            break;
    }
    return true;
}

bool Reader::array(Array& out) {
    uint32_t type = 0;
    uint64_t count = 0;
    if (!number(type, "element type")) return false;
    if (type == type_array) {
        return bad(ErrorKind::unsupported, "arrays of arrays are not supported", "element type",
                   at_ - 4, std::to_string(type));
    }
    if (!number(count, "number of elements")) return false;
    if (type == type_string) return string_array(out, count);
    const NumberLayout layout = number_layout(type);
    if (layout.bytes == 0) {
        return invalid("an array has no known element type", "element type", at_ - 12,
                       std::to_string(type) + ", known are 0 to 12");
    }
    if (count > left() / layout.bytes) {
        return invalid("the file is too short for an array", "number of elements", at_ - 8,
                       std::to_string(count) + " of " + std::to_string(layout.bytes) +
                           " bytes, the file ends at " + std::to_string(file_.size()));
    }
    out.kind_ = layout.kind;
    out.element_bytes_ = layout.bytes;
    out.size_ = static_cast<size_t>(count);
    out.data_ = file_.data() + at_;
    at_ += count * layout.bytes;
    if (layout.kind != Array::Kind::boolean) return true;
    if (count > max_truth_values)
        return bad(ErrorKind::unsupported, "an array holds too many truth values",
                   "number of elements", at_ - count - 8,
                   std::to_string(count) + ", at most " + std::to_string(max_truth_values));
    for (size_t i = 0; i < out.size_; ++i) {
        if (out.unsigned_at(i) <= 1) continue;
        return invalid("a truth value must be 0 or 1", "element", at_ - count + i,
                       std::to_string(out.unsigned_at(i)));
    }
    return true;
}

bool Reader::string_array(Array& out, uint64_t count) {
    if (count > left() / 8) {
        return invalid(
            "the file is too short for an array", "number of elements", at_ - 8,
            std::to_string(count) + " strings, the file ends at " + std::to_string(file_.size()));
    }
    strings_ += count;
    if (strings_ > max_strings) {
        return bad(ErrorKind::unsupported, "the file holds too many strings", "number of elements",
                   at_ - 8,
                   std::to_string(strings_) + " so far, at most " + std::to_string(max_strings));
    }
    out.kind_ = Array::Kind::string;
    out.size_ = static_cast<size_t>(count);
    out.strings_.resize(out.size_);
    for (std::string_view& text : out.strings_) {
        if (!string(text, "element", "length of an element")) return false;
    }
    return true;
}

bool Reader::alignment() {
    const Value* const given = part_.find("general.alignment");
    if (given == nullptr) return true;
    const auto* const bytes = std::get_if<uint64_t>(given);
    const uint64_t key_offset =
        offset_of(part_.metadata[*part_.keys.find("general.alignment")].first);
    if (bytes == nullptr) {
        return invalid("the alignment must be an unsigned integer", "general.alignment",
                       key_offset);
    }
    if (*bytes < 8 || *bytes > max_alignment || !std::has_single_bit(*bytes)) {
        return invalid("the alignment must be a power of two from 8 to 2^30", "general.alignment",
                       key_offset, std::to_string(*bytes));
    }
    alignment_ = *bytes;
    return true;
}

}  // namespace granary::gguf
