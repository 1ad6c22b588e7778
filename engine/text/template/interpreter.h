// SPDX-License-Identifier: GPL-3.0-or-later
// Walks a Program and writes what it prints.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/text/template/arguments.h"
#include "engine/text/template/ast.h"
#include "engine/text/template/frame.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

class Interpreter {
  public:
    // Takes from the context what the program names. Program and workspace must live longer.
    Interpreter(const Program& program, Workspace& workspace,
                const nlohmann::ordered_json& context);

    std::string run();

  private:
    enum class Flow { normal, leave_loop, next_turn };

    // Statements
    Flow run(const Block& block);
    Flow run(const Statement& statement);
    Flow run(const Output& node);
    Flow run(const Print& node);
    Flow run(const If& node);
    Flow run(const For& node);
    Flow run(const Set& node);
    Flow run(const SetBlock& node);
    Flow run(const std::unique_ptr<const Macro>& node);
    Flow run(const CallBlock& node);
    Flow run(const FilterBlock& node);
    Flow run(const With& node);
    Flow run(const Scope& node);
    Flow run(const Break&) { return Flow::leave_loop; }
    Flow run(const Continue&) { return Flow::next_turn; }
    void run_loop(const For& node, const Value& iterable, int depth0);
    std::string capture(const Block& block);  // what it prints, in a scope of its own
    Value filtered(Value value, const std::vector<FilterCall>& filters);

    // Expressions
    Value evaluate(const Expression& expression);
    Value evaluate(const Literal& node, Position at);
    Value evaluate(const Name& node, Position at);
    Value evaluate(const SequenceDisplay& node, Position at);
    Value evaluate(const MappingDisplay& node, Position at);
    Value evaluate(const Unary& node, Position at);
    Value evaluate(const Binary& node, Position at);
    Value evaluate(const Logical& node, Position at);
    Value evaluate(const Concatenation& node, Position at);
    Value evaluate(const Comparison& node, Position at);
    Value evaluate(const Conditional& node, Position at);
    Value evaluate(const Attribute& node, Position at);
    Value evaluate(const Subscript& node, Position at);
    Value evaluate(const Slice& node, Position at);
    Value evaluate(const Call& node, Position at);
    Value evaluate(const FilterCall& node, Position at);
    Value evaluate(const TestCall& node, Position at);
    Arguments evaluate(const ArgumentList& list);

    Value call(const Value& callee, const Arguments& arguments);
    Value call(const Closure& closure, const std::string& name, const Arguments& arguments);
    Value closure(const Macro& macro, std::string name);

    // Variables
    const Value* find(NameId name);
    void assign(NameId name, Value value);
    void assign(const Target& target, const Value& value);

    const Program& program_;
    Workspace& workspace_;
    std::vector<std::optional<Value>> globals_;  // by NameId: the template's own scope
    Ref<Frame> frame_;                           // the innermost scope; null: globals_
    TextBuilder* out_ = nullptr;
    int depth_ = 0;
    int call_depth_ = 0;
};

}  // namespace granary::jinja
