// SPDX-License-Identifier: GPL-3.0-or-later
// Reads one mapped GGUF file: header, metadata, tensor table. Values and names are views into
// the mapping. Whatever is read is checked against the file's true size first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/gguf/file.h"
#include "engine/gguf/mapping.h"
#include "engine/gguf/name_index.h"

namespace granary::gguf {

// What one file holds; a split model has several.
struct Part {
    uint32_t version = 0;
    std::vector<std::pair<std::string_view, Value>> metadata;
    NameIndex keys;
    std::vector<Tensor> tensors;

    const Value* find(std::string_view key) const;
};

class Reader {
  public:
    // `number` is what the tensors will carry as their part.
    Reader(const Mapping& file, uint32_t number) : file_(file), number_(number) {}
    Result<Part> read();

  private:
    // Each step returns false after it has put the cause in error_.
    bool header();
    bool count(uint64_t& out, const char* field, uint64_t most, uint64_t entry_bytes);
    bool metadata();
    bool metadata_entry();
    bool value(Value& out);
    bool scalar(uint32_t type, Value& out);
    bool array(Array& out);
    bool string_array(Array& out, uint64_t count);
    bool alignment();
    bool tensor_table();
    bool tensor_entry();
    bool weight_type(Tensor& tensor);
    bool shape(Tensor& tensor, uint64_t& elements);
    bool size_in_bytes(Tensor& tensor, uint64_t elements);
    bool place_tensors();
    bool no_overlap();

    uint64_t left() const { return file_.size() - at_; }
    bool need(uint64_t bytes, const char* field);
    template <class T>
    bool number(T& out, const char* field);
    bool string(std::string_view& out, const char* field, const char* length_field);
    uint64_t offset_of(std::string_view text) const;
    bool bad(ErrorKind kind, std::string what, const char* field, uint64_t offset,
             const std::string& numbers, std::string advice = {});
    bool invalid(std::string what, const char* field, uint64_t offset,
                 const std::string& numbers = {}) {
        return bad(ErrorKind::invalid_file, std::move(what), field, offset, numbers);
    }

    const Mapping& file_;
    const uint32_t number_;
    uint64_t at_ = 0;  // the cursor, never past the end of the file
    Part part_;
    Error error_;
    uint64_t metadata_count_ = 0;
    uint64_t tensor_count_ = 0;
    uint64_t strings_ = 0;  // in all arrays so far
    uint64_t alignment_ = 32;

    // What is being read, for an error's text.
    const char* subject_ = nullptr;
    uint64_t subject_index_ = 0;
    std::string_view subject_name_;
};

}  // namespace granary::gguf
