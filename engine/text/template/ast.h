// SPDX-License-Identifier: GPL-3.0-or-later
// A parsed template: statements that hold expressions.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/template/builtins.h"
#include "engine/text/template/failure.h"
#include "engine/text/template/value.h"

namespace granary::jinja {

using NameId = uint32_t;  // index into Program::names

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Literal {
    Value value;
};
struct Name {
    NameId id;
};
struct SequenceDisplay {
    std::vector<ExpressionPtr> items;
    bool tuple;
};
struct MappingDisplay {
    std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Unary {
    enum class Op { negate, plus, logical_not } op;
    ExpressionPtr operand;
};
enum class BinaryOp { add, subtract, multiply, divide, floor_divide, modulo, power };
struct Binary {
    BinaryOp op;
    ExpressionPtr left, right;
};
struct Logical {
    bool is_and;
    ExpressionPtr left, right;
};
struct Concatenation {
    std::vector<ExpressionPtr> parts;
};
enum class CompareOp { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
struct Comparison {
    ExpressionPtr first;
    std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
struct Conditional {
    ExpressionPtr then, test, otherwise;  // otherwise may be null
};
struct Attribute {
    ExpressionPtr object;
    std::string name;
};
struct Subscript {
    ExpressionPtr object, index;
};
struct Slice {
    ExpressionPtr object, start, stop, step;  // bounds may be null
};
struct ArgumentList {
    std::vector<ExpressionPtr> positional;
    std::vector<std::pair<std::string, ExpressionPtr>> named;
    ExpressionPtr rest, named_rest;  // *x and **x, may be null
};
struct Call {
    ExpressionPtr callee;
    ArgumentList arguments;
};
struct FilterCall {
    ExpressionPtr input;  // null in a chain that filters a block
    Filter filter;
    ArgumentList arguments;
};
struct TestCall {
    ExpressionPtr input;
    Test test;
    ArgumentList arguments;
};

struct Expression {
    using Node = std::variant<Literal, Name, SequenceDisplay, MappingDisplay, Unary, Binary,
                              Logical, Concatenation, Comparison, Conditional, Attribute, Subscript,
                              Slice, Call, FilterCall, TestCall>;
    Position at;
    int depth;  // nodes on the longest way down, this one included
    Node node;
};

int depth_below(const Expression::Node& node);  // of its deepest child; 0 without children

// What can stand left of "=".
struct Target {
    NameId name = 0;
    std::string attribute;      // of a namespace called `name`, if not empty
    std::vector<Target> parts;  // unpacked if is_tuple
    bool is_tuple = false;
    Position at;
};

struct Statement;
using Block = std::vector<Statement>;

struct Output {
    std::string text;
};
struct Print {
    ExpressionPtr value;
};
struct If {
    std::vector<std::pair<ExpressionPtr, Block>> branches;
    Block otherwise;
};
struct For {
    Target target;
    ExpressionPtr iterable, filter;  // filter may be null
    bool recursive;
    Block body, otherwise;
};
struct Set {
    Target target;
    ExpressionPtr value;
};
struct SetBlock {
    Target target;
    std::vector<FilterCall> filters;
    Block body;
};
struct Parameter {
    NameId name;
    ExpressionPtr fallback;  // may be null
};
struct Macro {
    NameId name;
    std::vector<Parameter> parameters;
    Block body;
    bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};
struct CallBlock {
    std::unique_ptr<const Macro> caller;
    ExpressionPtr call;  // always a Call
};
struct FilterBlock {
    std::vector<FilterCall> filters;
    Block body;
};
struct With {
    std::vector<std::pair<Target, ExpressionPtr>> values;
    Block body;
};
struct Scope {  // "generation": marks what a model wrote, for training; here only a scope
    Block body;
};
struct Break {};
struct Continue {};

struct Statement {
    using Node = std::variant<Output, Print, If, For, Set, SetBlock, std::unique_ptr<const Macro>,
                              CallBlock, FilterBlock, With, Scope, Break, Continue>;
    Position at;
    Node node;
};

struct Program {
    // Names that the language itself gives a meaning; every program has them.
    enum : NameId { loop, caller, varargs, kwargs };

    Block body;
    std::vector<std::string> names = {"loop", "caller", "varargs", "kwargs"};
};

}  // namespace granary::jinja
