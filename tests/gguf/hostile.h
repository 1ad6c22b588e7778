// SPDX-License-Identifier: GPL-3.0-or-later
// Shared by the tests of unsound files: a small file that has every kind of field, the list of
// its fields, and the check that whatever opens is safe to use.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "engine/gguf/file.h"
#include "tests/gguf/gguf_builder.h"

namespace granary::test {

inline GgufBuilder small_sound_file() {
    GgufBuilder builder;
    builder.put("general.architecture", "test")
        .put("general.alignment", uint32_t{32})
        .put("b", true)
        .put("f", 1.5f)
        .put("i", int64_t{-3})
        .put_array<std::string>("words", {"ab", "", "cde"})
        .put_array<int16_t>("numbers", {1, 2, 3})
        .put_raw("truths", 9, raw(7u) + raw(uint64_t{2}) + std::string("\0\1", 2))
        .tensor("one", {2, 3}, {1, 2, 3, 4, 5, 6})
        .tensor("two", gpu::WeightType::q8_0, {32, 2, 2}, std::string(136, '\1'))
        .tensor("three", {}, {7});
    return builder;
}

struct Field {
    enum class Kind {
        version,
        count,
        length,
        value_type,
        element_type,
        dims,
        dimension,
        weight_type,
        data_offset
    };
    Kind kind;
    size_t offset;
    size_t size;
};

// Walks a sound file, knowing that it is sound.
class FieldList {
  public:
    explicit FieldList(const std::string& file) : file_(file) {
        field(Field::Kind::version, 4);
        const uint64_t tensors = field(Field::Kind::count, 8);
        const uint64_t entries = field(Field::Kind::count, 8);
        for (uint64_t i = 0; i < entries; ++i) {
            text();
            value(static_cast<uint32_t>(field(Field::Kind::value_type, 4)));
        }
        for (uint64_t i = 0; i < tensors; ++i) {
            text();
            const uint64_t dims = field(Field::Kind::dims, 4);
            for (uint64_t j = 0; j < dims; ++j) field(Field::Kind::dimension, 8);
            field(Field::Kind::weight_type, 4);
            field(Field::Kind::data_offset, 8);
        }
    }
    const std::vector<Field>& fields() const { return fields_; }
    size_t end() const { return at_; }  // of the tensor table

  private:
    uint64_t field(Field::Kind kind, size_t size) {
        fields_.push_back({kind, at_, size});
        uint64_t value = 0;
        std::memcpy(&value, file_.data() + at_, size);
        at_ += size;
        return value;
    }
    void text() { at_ += field(Field::Kind::length, 8); }
    void value(uint32_t type) {
        static constexpr size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        if (type == 8) return text();
        if (type != 9) {
            at_ += bytes[type];
            return;
        }
        const auto element = static_cast<uint32_t>(field(Field::Kind::element_type, 4));
        const uint64_t count = field(Field::Kind::count, 8);
        for (uint64_t i = 0; i < count; ++i) value(element);
    }

    const std::string& file_;
    size_t at_ = 4;
    std::vector<Field> fields_;
};

// One file on disk whose bytes are replaced again and again.
class Scratch {
  public:
    Scratch() : path_(dir_.file("x.gguf")) {
        file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (file_ < 0) throw std::runtime_error("cannot create " + path_);
    }
    ~Scratch() { ::close(file_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    Result<std::shared_ptr<const gguf::File>> open(std::string_view bytes) {
        if (::ftruncate(file_, static_cast<off_t>(bytes.size())) != 0 ||
            ::pwrite(file_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
            throw std::runtime_error("cannot write " + path_);
        }
        return gguf::File::open(path_);
    }
    const std::string& path() const { return path_; }

  private:
    TempDir dir_;
    std::string path_;
    int file_ = -1;
};

// Touches everything that an opened file offers; all of it must lie inside the file.
inline void use_everything(const gguf::File& file) {
    const std::byte* base = nullptr;
    uint64_t tensor_bytes = 0;
    for (const gguf::Tensor& tensor : file.tensors()) {
        base = tensor.data - tensor.offset;
        ASSERT_LE(tensor.offset + tensor.bytes, file.total_bytes());
        ASSERT_LE(tensor.rows() * gpu::row_bytes(tensor.type, tensor.cols()), tensor.bytes);
        ASSERT_EQ(file.tensor(tensor.name), &tensor);
        tensor_bytes += tensor.bytes;
        volatile std::byte last = tensor.data[tensor.bytes - 1];
        (void)last;
    }
    ASSERT_LE(tensor_bytes, file.total_bytes());
    const auto inside = [&](std::string_view text) {
        if (base == nullptr || text.empty()) return;
        const auto* const start = reinterpret_cast<const std::byte*>(text.data());
        ASSERT_GE(start, base);
        ASSERT_LE(start + text.size(), base + file.total_bytes());
    };
    for (const auto& [key, value] : file.metadata()) {
        inside(key);
        ASSERT_EQ(file.find(key), &value);
        if (const auto* text = std::get_if<std::string_view>(&value)) inside(*text);
        if (const auto* array = std::get_if<gguf::Array>(&value)) {
            double sum = 0;
            for (size_t i = 0; i < array->size(); ++i) {
                inside(array->string_at(i));
                sum += array->real_at(i) + static_cast<double>(array->unsigned_at(i));
            }
            volatile double kept = sum;
            (void)kept;
        }
    }
}

// An error about content names the file, a field and an offset inside the file.
inline void expect_clean_error(const Error& error, const std::string& path, size_t file_size) {
    EXPECT_TRUE(error.kind == ErrorKind::invalid_file || error.kind == ErrorKind::unsupported)
        << error.message();
    EXPECT_FALSE(error.what.empty());
    EXPECT_EQ(error.detail.find('"' + path + "\": "), 0u) << error.detail;
    const size_t at = error.detail.find(", offset ");
    ASSERT_NE(at, std::string::npos) << error.detail;
    EXPECT_GT(at, path.size() + 4) << "no field: " << error.detail;
    EXPECT_LE(std::stoull(error.detail.substr(at + 9)), file_size) << error.detail;
}

}  // namespace granary::test
