// SPDX-License-Identifier: GPL-3.0-or-later
// A PTX text, word by word, and what a module declares.
#pragma once

#include "tests/gpu/ptx/operation.h"

namespace granary::test::ptx {

using Words = std::vector<std::string_view>;

// "12", "0x1F", "0f3F800000" (the bits of a float), "0d..." (of a double). Errors: Fault.
uint64_t number_of(std::string_view word);

// ".align 16 .b8 NAME[128]" and the like, from behind the space's name.
struct Declared {
    std::string_view name;
    uint32_t bytes = 0, alignment = 1, element = 1;
};

// Reads words one after the other.
class Reader {
  public:
    Reader(const Words& words, size_t at) : words_(&words), at_(at) {}
    size_t at() const { return at_; }
    bool ended() const { return at_ >= words_->size(); }
    std::string_view peek(size_t further = 0) const {
        return at_ + further < words_->size() ? (*words_)[at_ + further] : std::string_view();
    }
    std::string_view next() {
        if (ended()) throw Fault("the text ends too early");
        return (*words_)[at_++];
    }
    bool take(std::string_view word) {
        if (peek() != word) return false;
        ++at_;
        return true;
    }
    void expect(std::string_view word) {
        if (!take(word))
            throw Fault("expected " + std::string(word) + ", found " + std::string(peek()));
    }
    void skip_statement() {
        while (next() != ";") {
        }
    }
    // From behind the space's name to what follows the declaration.
    Declared declaration();

  private:
    const Words* words_;
    size_t at_;
};

struct Module::Parts {
    std::string text;
    Words words;
    int target = 0;
    std::map<std::string_view, Variable> variables;
    std::map<std::string_view, Declared> shared;  // of the module; 0 bytes: what a launch adds
    struct Begin {
        size_t word;  // of its parameters
        std::string_view result;
    };
    std::map<std::string_view, Begin> functions, kernels;

    void read();
    void variable(Reader& reader);
};

// Decodes a kernel, and what it calls. Errors: Fault.
void decode(Module::Parts& module, std::string_view kernel, Function& into);

}  // namespace granary::test::ptx
