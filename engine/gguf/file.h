// SPDX-License-Identifier: GPL-3.0-or-later
// A GGUF file (versions 2 and 3, split files too), memory-mapped. Every length and offset is
// checked before it is used; nothing that a file says makes us allocate without bound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpu/error.h"
#include "gpu/weight_type.h"

namespace granary::gguf {

// An array value stays in the mapped file: numbers are widened on access, strings are views.
// unsigned_at and signed_at are for integers and truth values; a negative number read as unsigned
// is its two's complement, so no upper bound lets it pass. Past the end, or asked for another
// kind, every accessor gives zero or an empty string.
class Array {
  public:
    enum class Kind : uint8_t { unsigned_integer, signed_integer, real, boolean, string };
    Kind kind() const { return kind_; }
    size_t size() const { return size_; }
    uint64_t unsigned_at(size_t i) const;
    int64_t signed_at(size_t i) const;
    double real_at(size_t i) const;  // of any number kind
    std::string_view string_at(size_t i) const;

  private:
    friend class Reader;
    Kind kind_ = Kind::unsigned_integer;
    uint32_t element_bytes_ = 0;
    size_t size_ = 0;
    const std::byte* data_ = nullptr;  // numbers, unaligned
    std::vector<std::string_view> strings_;
};

using Value = std::variant<uint64_t, int64_t, double, bool, std::string_view, Array>;

struct Tensor {
    std::string_view name;
    gpu::WeightType type = gpu::WeightType::f32;
    uint32_t dims = 0;                          // 0 to 4; 0 is a scalar
    std::array<uint64_t, 4> shape{1, 1, 1, 1};  // as in the file: the row length first
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
    uint64_t offset = 0;  // in its file
    uint32_t part = 0;    // of a split file

    uint64_t cols() const { return shape[0]; }
    uint64_t rows() const { return shape[1]; }
};

class File {
  public:
    // Maps the file; given the first (or any) part of a split file, the others beside it too.
    // Errors name file, field and offset.
    static Result<std::shared_ptr<const File>> open(const std::string& path);
    ~File();

    const std::string& path() const;
    // The parts as they are mapped, whole.
    std::vector<std::span<const std::byte>> mappings() const;
    // Whether all parts still have the bytes that are mapped, which the system is asked for.
    Result<void> still_whole() const;
    // Whether all that has been read of them so far was there: where it was not, zeros were read.
    Result<void> intact() const;
    uint32_t version() const;
    uint64_t total_bytes() const;                                          // of all parts
    std::span<const std::pair<std::string_view, Value>> metadata() const;  // in file order
    std::span<const Tensor> tensors() const;

    const Value* find(std::string_view key) const;
    const Tensor* tensor(std::string_view name) const;

    // Typed look-ups; an error names file and key. get_* fail where the key is absent or of
    // another type; find_* give nothing where it is absent, and fail on another type. Writers
    // differ on signedness: a signed number that is not negative counts as unsigned, and any
    // integer as real.
    Result<uint64_t> get_unsigned(std::string_view key) const;
    Result<double> get_real(std::string_view key) const;
    Result<std::string_view> get_string(std::string_view key) const;
    Result<const Array*> get_array(std::string_view key) const;
    Result<std::optional<uint64_t>> find_unsigned(std::string_view key) const;
    Result<std::optional<double>> find_real(std::string_view key) const;
    Result<std::optional<bool>> find_bool(std::string_view key) const;
    Result<std::optional<std::string_view>> find_string(std::string_view key) const;

  private:
    struct Impl;
    explicit File(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace granary::gguf
