// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/parser.h"

#include "engine/text/template/parser_state.h"
#include "engine/text/template/unicode.h"

namespace granary::jinja {

namespace {

std::string describe(const Token& token) {
    switch (token.type) {
        case Token::Type::data:
            return "template text";
        case Token::Type::print_begin:
            return "'{{'";
        case Token::Type::print_end:
            return "'}}'";
        case Token::Type::block_begin:
            return "'{%'";
        case Token::Type::block_end:
            return "'%}'";
        case Token::Type::string:
            return "a string";
        case Token::Type::integer:
            return "an integer";
        case Token::Type::real:
            return "a number";
        case Token::Type::end:
            return "the end of the template";
        default:
            return "'" + token.text + "'";
    }
}

}  // namespace

Program parse(std::string_view source, const Limits& limits) {
    if (source.size() > limits.source_bytes) {
        stop("the template has " + format_bytes(source.size()) + ", the limit is " +
                 format_bytes(limits.source_bytes),
             ErrorKind::refused);
    }
    if (const size_t bad = invalid_utf8(source); bad != std::string_view::npos) {
        stop("the template is not UTF-8 at byte " + std::to_string(bad), ErrorKind::invalid_file);
    }
    return Parser(tokenize(source), limits).run();
}

Program Parser::run() {
    for (NameId id = 0; id < program_.names.size(); ++id) ids_.emplace(program_.names[id], id);
    program_.body = parse_block({});
    return std::move(program_);
}

Parser::Nesting::Nesting(int& depth, int limit, Position at, const char* what) : depth_(depth) {
    if (depth >= limit) {
        stop_at(at, std::string(what) + " nested deeper than " + std::to_string(limit),
                ErrorKind::refused);
    }
    ++depth_;
}

NameId Parser::intern(const std::string& name) {
    const auto [entry, added] = ids_.try_emplace(name, static_cast<NameId>(program_.names.size()));
    if (added) program_.names.push_back(name);
    return entry->second;
}

void Parser::unexpected(std::string_view expected) const {
    stop_at(now().at, "unexpected " + describe(now()) + ", expected " + std::string(expected));
}

bool Parser::skip_op(std::string_view op) {
    return now().is_op(op) ? (take(), true) : false;
}

bool Parser::skip_name(std::string_view name) {
    return now().is_name(name) ? (take(), true) : false;
}

void Parser::expect_op(std::string_view op) {
    if (!skip_op(op)) unexpected("'" + std::string(op) + "'");
}

void Parser::expect_name(std::string_view name) {
    if (!skip_name(name)) unexpected("'" + std::string(name) + "'");
}

void Parser::expect(Token::Type type) {
    if (now().type != type) {
        Token wanted;
        wanted.type = type;
        unexpected(describe(wanted));
    }
    take();
}

std::string Parser::expect_identifier() {
    if (now().type != Token::Type::name) unexpected("a name");
    return take().text;
}

// Statements up to a tag of `ends`, which stays the current token.
Block Parser::parse_block(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(statement_depth_, limits_.statement_depth, now().at, "blocks");
    Block block;
    while (true) {
        const Position at = now().at;
        switch (now().type) {
            case Token::Type::data:
                block.push_back({at, Output{take().text}});
                break;
            case Token::Type::print_begin:
                take();
                block.push_back({at, Print{parse_tuple(true)}});
                expect(Token::Type::print_end);
                break;
            case Token::Type::block_begin: {
                take();
                const auto ended = [this](std::string_view end) { return now().is_name(end); };
                if (std::any_of(ends.begin(), ends.end(), ended)) return block;
                block.push_back(parse_statement());
                expect(Token::Type::block_end);
                break;
            }
            default:
                if (now().type == Token::Type::end && open_.empty()) return block;
                if (now().type == Token::Type::end) {
                    stop_at(at, "the template ends inside the block '" + open_.back() + "'");
                }
                unexpected("a tag");
        }
    }
}

Block Parser::parse_body(std::initializer_list<std::string_view> ends) {
    skip_op(":");
    expect(Token::Type::block_end);
    return parse_block(ends);
}

Block Parser::parse_whole_body(std::string_view end) {
    Block body = parse_body({end});
    take();
    return body;
}

// A body whose output is kept apart; a loop outside of it cannot be left from inside.
Block Parser::parse_captured_body(std::string_view end) {
    const int loops = std::exchange(loop_depth_, 0);
    Block body = parse_whole_body(end);
    loop_depth_ = loops;
    return body;
}

Statement Parser::parse_statement() {
    if (now().type != Token::Type::name) unexpected("the name of a tag");
    const Token tag = take();
    open_.push_back(tag.text);
    Statement statement{tag.at, parse_tag(tag)};
    open_.pop_back();
    return statement;
}

Statement::Node Parser::parse_tag(const Token& tag) {
    if (tag.text == "if") return parse_if();
    if (tag.text == "for") return parse_for();
    if (tag.text == "set") return parse_set();
    if (tag.text == "macro") return parse_macro();
    if (tag.text == "call") return parse_call_block(tag.at);
    if (tag.text == "filter") return parse_filter_block();
    if (tag.text == "with") return parse_with();
    if (tag.text == "generation") return Scope{parse_captured_body("endgeneration")};
    if (tag.text == "break" || tag.text == "continue") {
        if (loop_depth_ == 0) stop_at(tag.at, "'" + tag.text + "' outside of a loop");
        if (tag.text == "break") return Break{};
        return Continue{};
    }
    static constexpr std::string_view known[] = {"extends", "include",    "import", "from",
                                                 "block",   "autoescape", "print",  "do",
                                                 "trans",   "debug"};
    if (std::find(std::begin(known), std::end(known), tag.text) != std::end(known)) {
        stop_at(tag.at, "the tag '" + tag.text + "' is not supported in a chat template",
                ErrorKind::unsupported);
    }
    open_.pop_back();
    stop_at(tag.at, "unknown tag '" + tag.text + "'" +
                        (open_.empty() ? "" : " inside the block '" + open_.back() + "'"));
}

If Parser::parse_if() {
    If node;
    while (true) {
        ExpressionPtr test = parse_tuple(false);
        Block body = parse_body({"elif", "else", "endif"});
        node.branches.emplace_back(std::move(test), std::move(body));
        if (!skip_name("elif")) break;
    }
    if (skip_name("else")) node.otherwise = parse_body({"endif"});
    take();
    return node;
}

For Parser::parse_for() {
    For node;
    node.target = parse_target(false);
    expect_name("in");
    node.iterable = parse_tuple(false, false, "recursive");
    if (skip_name("if")) node.filter = parse_expression();
    node.recursive = skip_name("recursive");
    ++loop_depth_;
    node.body = parse_body({"endfor", "else"});
    --loop_depth_;
    if (skip_name("else")) node.otherwise = parse_body({"endfor"});
    take();
    return node;
}

Statement::Node Parser::parse_set() {
    Target target = parse_target(true);
    if (skip_op("=")) return Set{std::move(target), parse_tuple(true)};
    SetBlock node;
    node.target = std::move(target);
    node.filters = parse_filter_chain(true);
    node.body = parse_captured_body("endset");
    return node;
}

std::vector<FilterCall> Parser::parse_filter_chain(bool bar_first) {
    std::vector<FilterCall> filters;
    while (!bar_first || now().is_op("|")) {
        if (bar_first) take();
        bar_first = true;
        filters.push_back(parse_filter(nullptr));
    }
    return filters;
}

std::unique_ptr<const Macro> Parser::parse_macro() {
    auto macro = std::make_unique<Macro>();
    macro->name = intern(expect_identifier());
    parse_signature(*macro);
    parse_macro_body(*macro, "endmacro");
    return macro;
}

void Parser::parse_signature(Macro& macro) {
    macros_.push_back(&macro);
    expect_op("(");
    while (!now().is_op(")")) {
        if (!macro.parameters.empty()) expect_op(",");
        const Position at = now().at;
        Parameter parameter{intern(expect_identifier()), nullptr};
        if (skip_op("=")) {
            parameter.fallback = parse_expression();
        } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
            stop_at(at, "a parameter without default follows one with default");
        }
        macro.parameters.push_back(std::move(parameter));
    }
    expect_op(")");
    macros_.pop_back();
}

void Parser::parse_macro_body(Macro& macro, std::string_view end) {
    macros_.push_back(&macro);
    macro.body = parse_captured_body(end);
    macros_.pop_back();
}

CallBlock Parser::parse_call_block(Position at) {
    auto caller = std::make_unique<Macro>();
    caller->name = Program::caller;
    if (now().is_op("(")) parse_signature(*caller);
    CallBlock node;
    node.call = parse_expression();
    if (!std::holds_alternative<Call>(node.call->node)) stop_at(at, "'call' needs a call");
    parse_macro_body(*caller, "endcall");
    node.caller = std::move(caller);
    return node;
}

FilterBlock Parser::parse_filter_block() {
    FilterBlock node;
    node.filters = parse_filter_chain(false);
    node.body = parse_captured_body("endfilter");
    return node;
}

With Parser::parse_with() {
    With node;
    while (now().type != Token::Type::block_end && !now().is_op(":")) {
        if (!node.values.empty()) expect_op(",");
        Target target = parse_target(false);
        expect_op("=");
        node.values.emplace_back(std::move(target), parse_expression());
    }
    node.body = parse_whole_body("endwith");
    return node;
}

Target Parser::parse_target(bool with_namespace) {
    Target first = parse_single_target(with_namespace);
    if (!now().is_op(",")) return first;
    Target tuple;
    tuple.is_tuple = true;
    tuple.at = first.at;
    tuple.parts.push_back(std::move(first));
    while (skip_op(",")) {
        if (now().type != Token::Type::name && !now().is_op("(")) break;
        if (now().is_name("in")) break;
        tuple.parts.push_back(parse_single_target(with_namespace));
    }
    return tuple;
}

Target Parser::parse_single_target(bool with_namespace) {
    const Nesting nesting = nest_expression();
    Target target;
    target.at = now().at;
    if (skip_op("(")) {
        target = parse_target(with_namespace);
        expect_op(")");
        return target;
    }
    const std::string name = expect_identifier();
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
        if (name == constant) stop_at(target.at, "cannot assign to '" + name + "'");
    }
    target.name = intern(name);
    if (with_namespace && skip_op(".")) target.attribute = expect_identifier();
    return target;
}

}  // namespace granary::jinja
