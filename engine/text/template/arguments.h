// SPDX-License-Identifier: GPL-3.0-or-later
// Arguments of a call, and their binding to the parameters of a builtin.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/template/value.h"

namespace granary::jinja {

class Workspace;

struct Arguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
};

// Positional and named arguments in the order of `parameters`. Throws for arguments that the
// builtin does not have, that are given twice, or that are missing among the first `required`.
class Bound {
  public:
    Bound(std::string_view builtin, const Arguments& arguments,
          std::initializer_list<std::string_view> parameters, size_t required = 0);

    const Value* operator[](size_t i) const { return values_[i]; }  // null: not given
    bool given(size_t i) const { return values_[i] != nullptr; }

    // Throw if the argument is given and of another type.
    int64_t integer(size_t i, int64_t fallback = 0) const;
    std::string_view text(size_t i, std::string_view fallback = {}) const;
    bool truth(size_t i, bool fallback = false) const;

  private:
    [[noreturn]] void wrong_type(size_t i, const char* wanted) const;

    std::string_view builtin_;
    std::array<std::string_view, 8> names_{};
    std::array<const Value*, 8> values_{};
};

}  // namespace granary::jinja
