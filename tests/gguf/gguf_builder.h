// SPDX-License-Identifier: GPL-3.0-or-later
// Writes GGUF files for tests, sound ones and, field by field, unsound ones.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gpu/weight_type.h"

namespace granary::test {

// A folder that goes away with the object.
class TempDir {
  public:
    TempDir() {
        std::string pattern = (std::filesystem::temp_directory_path() / "granary-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
        path_ = pattern;
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    std::string file(const std::string& name) const { return (path_ / name).string(); }

  private:
    std::filesystem::path path_;
};

inline void write_file(const std::string& path, std::string_view bytes) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

// The bytes of a number as the file holds them.
template <class T>
std::string raw(T number) {
    static_assert(std::is_arithmetic_v<T>);
    std::string bytes(sizeof number, '\0');
    std::memcpy(bytes.data(), &number, sizeof number);
    return bytes;
}

inline std::string raw_string(std::string_view text) {
    return raw(uint64_t{text.size()}) + std::string(text);
}

template <class T>
constexpr uint32_t gguf_type() {
    if constexpr (std::is_same_v<T, uint8_t>) return 0;
    if constexpr (std::is_same_v<T, int8_t>) return 1;
    if constexpr (std::is_same_v<T, uint16_t>) return 2;
    if constexpr (std::is_same_v<T, int16_t>) return 3;
    if constexpr (std::is_same_v<T, uint32_t>) return 4;
    if constexpr (std::is_same_v<T, int32_t>) return 5;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, uint64_t>) return 10;
    if constexpr (std::is_same_v<T, int64_t>) return 11;
    if constexpr (std::is_same_v<T, double>) return 12;
    return 8;  // anything else is written as a string
}

class GgufBuilder {
  public:
    uint32_t version = 3;
    uint64_t alignment = 32;  // of the data; writing the key is up to the test

    template <class T>
    GgufBuilder& put(std::string_view key, const T& value) {
        if constexpr (std::is_arithmetic_v<T>) {
            return put_raw(key, gguf_type<T>(), raw(value));
        } else {
            return put_raw(key, 8, raw_string(value));
        }
    }

    template <class T>
    GgufBuilder& put_array(std::string_view key, const std::vector<T>& values) {
        std::string bytes = raw(gguf_type<T>()) + raw(uint64_t{values.size()});
        for (const T& value : values) {
            if constexpr (std::is_arithmetic_v<T>) {
                bytes += raw(value);
            } else {
                bytes += raw_string(value);
            }
        }
        return put_raw(key, 9, bytes);
    }

    // A value whose bytes the test composes itself.
    GgufBuilder& put_raw(std::string_view key, uint32_t type, const std::string& bytes) {
        metadata_ += raw_string(key) + raw(type) + bytes;
        ++metadata_count_;
        return *this;
    }

    // `shape` has the row length first; `data` has the bytes that type and shape ask for.
    GgufBuilder& tensor(std::string_view name, gpu::WeightType type,
                        const std::vector<uint64_t>& shape, std::string_view data) {
        data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
        tensor_raw(name, static_cast<uint32_t>(type), shape, data_.size());
        data_ += data;
        return *this;
    }

    // The same with values, stored as f32.
    GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& shape,
                        const std::vector<float>& values) {
        return tensor(
            name, gpu::WeightType::f32, shape,
            {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    }

    // An entry of the tensor table alone, with any numbers.
    GgufBuilder& tensor_raw(std::string_view name, uint32_t type,
                            const std::vector<uint64_t>& shape, uint64_t offset) {
        table_ += raw_string(name) + raw(static_cast<uint32_t>(shape.size()));
        for (const uint64_t size : shape) table_ += raw(size);
        table_ += raw(type) + raw(offset);
        ++tensor_count_;
        return *this;
    }

    std::string bytes() const {
        std::string file =
            "GGUF" + raw(version) + raw(tensor_count_) + raw(metadata_count_) + metadata_ + table_;
        file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
        return file + data_;
    }

    void save(const std::string& path) const { write_file(path, bytes()); }

  private:
    uint64_t metadata_count_ = 0;
    uint64_t tensor_count_ = 0;
    std::string metadata_;
    std::string table_;
    std::string data_;
};

}  // namespace granary::test
