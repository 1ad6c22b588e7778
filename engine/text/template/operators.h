// SPDX-License-Identifier: GPL-3.0-or-later
// What Python's operators do with values. All throw Failure where Python raises.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "engine/text/template/ast.h"
#include "engine/text/template/value.h"

namespace granary::jinja {

class Workspace;

Value arithmetic(Workspace& workspace, BinaryOp op, const Value& left, const Value& right);
Value negate(Workspace& workspace, const Value& value);
Value unary_plus(const Value& value);

bool equal(Workspace& workspace, const Value& left, const Value& right);
bool less(Workspace& workspace, const Value& left, const Value& right);  // left < right
bool compare(Workspace& workspace, CompareOp op, const Value& left, const Value& right);
bool contains(Workspace& workspace, const Value& container, const Value& item);

// Throws for keys that a mapping cannot have.
void require_key(Workspace& workspace, const Value& key);
// Equality of mapping keys that are not text; keys have no lists inside.
bool same_key(const Value& left, const Value& right);
void fill_mapping(Workspace& workspace, Mapping& mapping,
                  std::vector<std::pair<Value, Value>> entries);

// object.name and object[index]; what is not there is an Absence.
Value attribute(Workspace& workspace, const Value& object, std::string_view name);
// Methods and what namespaces and loops have: no elements. Nothing if there is no such attribute.
std::optional<Value> member(Workspace& workspace, const Value& object, std::string_view name);
Value subscript(Workspace& workspace, const Value& object, const Value& index);
// object[start:stop:step]; null bounds are left out.
Value slice(Workspace& workspace, const Value& object, const Value* start, const Value* stop,
            const Value* step);

// What a loop over the value sees. An Iterator is used up by this.
std::vector<Value> iterate(Workspace& workspace, const Value& value);
std::optional<size_t> length(const Value& value);  // as len(); nothing if it has none

}  // namespace granary::jinja
