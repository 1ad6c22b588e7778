// SPDX-License-Identifier: GPL-3.0-or-later
// Expressions.
#include "engine/text/template/interpreter.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"

namespace granary::jinja {

Value Interpreter::evaluate(const Expression& expression) {
    workspace_.step();
    if (depth_ >= workspace_.limits().evaluation_depth) {
        stop("expressions and calls nested deeper than " +
                 std::to_string(workspace_.limits().evaluation_depth),
             ErrorKind::refused);
    }
    ++depth_;
    workspace_.at = expression.at;
    Value value =
        std::visit([this, at = expression.at](const auto& node) { return evaluate(node, at); },
                   expression.node);
    --depth_;
    return value;
}

Value Interpreter::evaluate(const Literal& node, Position) {
    return node.value;
}

Value Interpreter::evaluate(const Name& node, Position) {
    if (const Value* value = find(node.id)) return *value;
    return workspace_.absent(Absence::Why::variable, "", program_.names[node.id]);
}

Value Interpreter::evaluate(const SequenceDisplay& node, Position at) {
    std::vector<Value> items;
    items.reserve(node.items.size());
    for (const auto& item : node.items) items.push_back(evaluate(*item));
    workspace_.at = at;
    return node.tuple ? workspace_.tuple(std::move(items)) : workspace_.list(std::move(items));
}

Value Interpreter::evaluate(const MappingDisplay& node, Position at) {
    std::vector<std::pair<Value, Value>> entries;
    entries.reserve(node.entries.size());
    for (const auto& [key, value] : node.entries) {
        Value k = evaluate(*key);
        entries.emplace_back(std::move(k), evaluate(*value));
    }
    workspace_.at = at;
    return workspace_.mapping(std::move(entries));
}

Value Interpreter::evaluate(const Unary& node, Position at) {
    const Value operand = evaluate(*node.operand);
    workspace_.at = at;
    switch (node.op) {
        case Unary::Op::negate:
            return negate(workspace_, operand);
        case Unary::Op::plus:
            return unary_plus(operand);
        case Unary::Op::logical_not:
            break;
    }
    return !truthy(operand);
}

Value Interpreter::evaluate(const Binary& node, Position at) {
    const Value left = evaluate(*node.left);
    const Value right = evaluate(*node.right);
    workspace_.at = at;
    return arithmetic(workspace_, node.op, left, right);
}

Value Interpreter::evaluate(const Logical& node, Position) {
    Value left = evaluate(*node.left);
    return truthy(left) == node.is_and ? evaluate(*node.right) : left;
}

Value Interpreter::evaluate(const Concatenation& node, Position at) {
    TextBuilder out(workspace_);
    for (const auto& part : node.parts) {
        const Value value = evaluate(*part);
        workspace_.at = at;
        append_text(out, value);
    }
    return workspace_.text(out.take());
}

Value Interpreter::evaluate(const Comparison& node, Position at) {
    Value left = evaluate(*node.first);
    for (const auto& [op, operand] : node.rest) {
        Value right = evaluate(*operand);
        workspace_.at = at;
        if (!compare(workspace_, op, left, right)) return false;
        left = std::move(right);
    }
    return true;
}

Value Interpreter::evaluate(const Conditional& node, Position) {
    if (truthy(evaluate(*node.test))) return evaluate(*node.then);
    if (node.otherwise) return evaluate(*node.otherwise);
    return workspace_.absent(Absence::Why::hint, "if",
                             "the inline if is false and has no else, so it has no value");
}

Value Interpreter::evaluate(const Attribute& node, Position at) {
    const Value object = evaluate(*node.object);
    workspace_.at = at;
    return attribute(workspace_, object, node.name);
}

Value Interpreter::evaluate(const Subscript& node, Position at) {
    const Value object = evaluate(*node.object);
    const Value index = evaluate(*node.index);
    workspace_.at = at;
    return subscript(workspace_, object, index);
}

Value Interpreter::evaluate(const Slice& node, Position at) {
    const Value object = evaluate(*node.object);
    const auto bound = [this](const ExpressionPtr& e) { return e ? evaluate(*e) : Value(); };
    const Value start = bound(node.start);
    const Value end = bound(node.stop);
    const Value step = bound(node.step);
    workspace_.at = at;
    return slice(workspace_, object, &start, &end, &step);
}

Value Interpreter::evaluate(const Call& node, Position at) {
    Value callee;
    if (const auto* member = std::get_if<Attribute>(&node.callee->node)) {
        // The usual case, a method of a text or mapping, without making a function of it.
        const Value self = evaluate(*member->object);
        if (const Method method = find_method(self, member->name)) {
            const Arguments arguments = evaluate(node.arguments);
            workspace_.at = at;
            return method(workspace_, self, arguments);
        }
        workspace_.at = node.callee->at;
        callee = attribute(workspace_, self, member->name);
    } else {
        callee = evaluate(*node.callee);
    }
    const Arguments arguments = evaluate(node.arguments);
    workspace_.at = at;
    return call(callee, arguments);
}

Value Interpreter::evaluate(const FilterCall& node, Position at) {
    const Value input = evaluate(*node.input);
    const Arguments arguments = evaluate(node.arguments);
    workspace_.at = at;
    return node.filter(workspace_, input, arguments);
}

Value Interpreter::evaluate(const TestCall& node, Position at) {
    const Value input = evaluate(*node.input);
    const Arguments arguments = evaluate(node.arguments);
    workspace_.at = at;
    return node.test(workspace_, input, arguments);
}

Arguments Interpreter::evaluate(const ArgumentList& list) {
    Arguments arguments;
    arguments.positional.reserve(list.positional.size());
    for (const auto& value : list.positional) arguments.positional.push_back(evaluate(*value));
    for (const auto& [name, value] : list.named) {
        for (const auto& other : arguments.named) {
            if (other.first == name) stop("keyword argument '" + name + "' given twice");
        }
        arguments.named.emplace_back(name, evaluate(*value));
    }
    if (list.rest) {
        for (Value& value : iterate(workspace_, evaluate(*list.rest))) {
            arguments.positional.push_back(std::move(value));
        }
    }
    if (list.named_rest) {
        const Value rest = evaluate(*list.named_rest);
        const Mapping* mapping = rest.mapping();
        if (mapping == nullptr) stop("argument after ** must be a mapping");
        for (const auto& [key, value] : mapping->entries) {
            if (key.text() == nullptr) stop("keywords must be strings");
            for (const auto& other : arguments.named) {
                if (other.first == key.text()->bytes) {
                    stop("keyword argument '" + other.first + "' given twice");
                }
            }
            workspace_.step(arguments.named.size());
            arguments.named.emplace_back(key.text()->bytes, value);
        }
    }
    return arguments;
}

}  // namespace granary::jinja
