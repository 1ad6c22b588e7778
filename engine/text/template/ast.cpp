// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/ast.h"

#include <algorithm>

namespace granary::jinja {

namespace {

struct DeepestChild {
    int depth = 0;

    void add(const ExpressionPtr& child) {
        if (child) depth = std::max(depth, child->depth);
    }
    void add(const std::vector<ExpressionPtr>& children) {
        for (const auto& child : children) add(child);
    }
    void add(const ArgumentList& list) {
        add(list.positional);
        for (const auto& [name, value] : list.named) add(value);
        add(list.rest);
        add(list.named_rest);
    }
    void operator()(const Literal&) {}
    void operator()(const Name&) {}
    void operator()(const SequenceDisplay& n) { add(n.items); }
    void operator()(const MappingDisplay& n) {
        for (const auto& [key, value] : n.entries) add(key), add(value);
    }
    void operator()(const Unary& n) { add(n.operand); }
    void operator()(const Binary& n) { add(n.left), add(n.right); }
    void operator()(const Logical& n) { add(n.left), add(n.right); }
    void operator()(const Concatenation& n) { add(n.parts); }
    void operator()(const Comparison& n) {
        add(n.first);
        for (const auto& [op, operand] : n.rest) add(operand);
    }
    void operator()(const Conditional& n) { add(n.then), add(n.test), add(n.otherwise); }
    void operator()(const Attribute& n) { add(n.object); }
    void operator()(const Subscript& n) { add(n.object), add(n.index); }
    void operator()(const Slice& n) { add(n.object), add(n.start), add(n.stop), add(n.step); }
    void operator()(const Call& n) { add(n.callee), add(n.arguments); }
    void operator()(const FilterCall& n) { add(n.input), add(n.arguments); }
    void operator()(const TestCall& n) { add(n.input), add(n.arguments); }
};

}  // namespace

int depth_below(const Expression::Node& node) {
    DeepestChild children;
    std::visit(children, node);
    return children.depth;
}

}  // namespace granary::jinja
