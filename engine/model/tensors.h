// SPDX-License-Identifier: GPL-3.0-or-later
// Reads a family's metadata and tensors and remembers the first fault, so that a family file
// reads as a list of names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/gguf/file.h"
#include "engine/gguf/printable.h"
#include "gpu/kernels.h"

namespace granary {

class TensorReader {
  public:
    TensorReader(const gguf::File& file, std::string family)
        : file_(file), path_(gguf::quoted(file.path())), family_(std::move(family)) {}

    // "<family>.<key>"; within [low, high], the fallback too.
    uint32_t count(const char* key, uint32_t low, uint32_t high);
    uint32_t count_or(const char* key, uint32_t fallback, uint32_t low, uint32_t high);
    float real(const char* key);
    double real(const char* key, double low, double high);
    float real_or(const char* key, float fallback);
    double real_or(const char* key, double fallback, double low, double high);
    std::string text_or(const char* key, const char* fallback);

    // A matrix [rows, cols]; of any type that this program decodes.
    gpu::Weight matrix(const std::string& name, uint32_t rows, uint32_t cols);
    // [experts, rows, cols]: the first expert's matrix; experts follow one another.
    gpu::Weight experts(const std::string& name, uint32_t experts, uint32_t rows, uint32_t cols);
    const float* vector(const std::string& name, uint32_t size);                // f32
    const float* table(const std::string& name, uint32_t rows, uint32_t cols);  // f32
    bool has(const std::string& name) const { return file_.tensor(name) != nullptr; }

    // Rows of a matrix [.., cols], where the file decides how many: at most `most`.
    uint32_t rows_of(const std::string& name, uint32_t most);

    // The file may hold these tensors and blk.0 .. blk.<layers - 1> with these parts. Any other (a
    // bias, a shared expert) would change what the model says and is read by nobody: unsupported.
    // The `skipped` blocks behind them may hold anything: this program has no use for them.
    void allow_only(std::span<const std::string_view> names,
                    std::span<const std::string_view> block_parts, uint32_t layers,
                    uint32_t skipped = 0);

    const std::optional<Error>& error() const { return error_; }
    void set_error(Error error) {
        if (!error_) error_ = std::move(error);
    }

  private:
    bool in_range(const std::string& subject, uint64_t value, uint64_t low, uint64_t high);
    const float* floats(const std::string& name, std::initializer_list<uint64_t> shape);
    const gguf::Tensor* find(const std::string& name, std::initializer_list<uint64_t> shape);

    const gguf::File& file_;
    std::string path_;  // as errors show it
    std::string family_;
    std::optional<Error> error_;
};

}  // namespace granary
