// SPDX-License-Identifier: GPL-3.0-or-later
#include <bit>
#include <cstring>

#include "engine/gguf/file.h"

namespace granary::gguf {
namespace {

template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Two's complement of any width, widened with its sign or without.
uint64_t load_integer(const std::byte* at, uint32_t bytes, bool sign) {
    switch (bytes) {
        case 1:
            return sign ? static_cast<uint64_t>(load<int8_t>(at)) : load<uint8_t>(at);
        case 2:
            return sign ? static_cast<uint64_t>(load<int16_t>(at)) : load<uint16_t>(at);
        case 4:
            return sign ? static_cast<uint64_t>(load<int32_t>(at)) : load<uint32_t>(at);
        default:
            return load<uint64_t>(at);
    }
}

}  // namespace

uint64_t Array::unsigned_at(size_t i) const {
    if (i >= size_ || kind_ == Kind::real || kind_ == Kind::string) return 0;
    return load_integer(data_ + i * element_bytes_, element_bytes_, kind_ == Kind::signed_integer);
}

int64_t Array::signed_at(size_t i) const {
    return std::bit_cast<int64_t>(unsigned_at(i));
}

double Array::real_at(size_t i) const {
    if (i >= size_ || kind_ == Kind::string) return 0.0;
    if (kind_ == Kind::signed_integer) return static_cast<double>(signed_at(i));
    if (kind_ != Kind::real) return static_cast<double>(unsigned_at(i));
    const std::byte* const at = data_ + i * element_bytes_;
    return element_bytes_ == 4 ? static_cast<double>(load<float>(at)) : load<double>(at);
}

std::string_view Array::string_at(size_t i) const {
    return i < strings_.size() ? strings_[i] : std::string_view();
}

}  // namespace granary::gguf
