// SPDX-License-Identifier: GPL-3.0-or-later
// "address.city": what filters such as map and sort read from each item.
#pragma once

#include <string>
#include <vector>

#include "engine/text/template/value.h"

namespace granary::jinja {

class Workspace;

class AttributePath {
  public:
    // attribute: text with dots, an integer, or null for the item itself. Digits are indexes.
    AttributePath(Workspace& workspace, const Value* attribute);

    // A part that is missing is `fallback` if there is one.
    Value of(Workspace& workspace, const Value& item, const Value* fallback = nullptr) const;

  private:
    std::vector<Value> parts_;
};

// Text in lower case, other values as they are: how filters compare unless told otherwise.
Value ignore_case(Workspace& workspace, const Value& value);

}  // namespace granary::jinja
