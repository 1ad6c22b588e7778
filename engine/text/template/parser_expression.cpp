// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/text/template/parser_state.h"

namespace granary::jinja {

namespace {

constexpr size_t kMostArguments = 255;

Value text_value(std::string bytes) {
    auto text = std::make_shared<Text>();
    text->bytes = std::move(bytes);
    return Ref<const Text>(std::move(text));
}

}  // namespace

ExpressionPtr Parser::make(Position at, Expression::Node node) const {
    const int depth = depth_below(node);
    if (depth >= limits_.expression_depth) {
        stop_at(at,
                "an expression has more than " + std::to_string(limits_.expression_depth) +
                    " operators in one chain",
                ErrorKind::refused);
    }
    return std::make_unique<Expression>(Expression{at, depth + 1, std::move(node)});
}

// Expressions separated by commas make a tuple; one alone stands for itself. `end` is a name that
// ends the tuple after a comma.
ExpressionPtr Parser::parse_tuple(bool with_conditional, bool parenthesised, std::string_view end) {
    const Position at = now().at;
    std::vector<ExpressionPtr> items;
    bool tuple = false;
    while (true) {
        const Token& token = now();
        if (token.type == Token::Type::print_end || token.type == Token::Type::block_end ||
            token.is_op(")") || (!end.empty() && token.is_name(end))) {
            break;
        }
        items.push_back(parse_expression(with_conditional));
        if (!skip_op(",")) break;
        tuple = true;
    }
    if (!tuple && !items.empty()) return std::move(items.front());
    if (!tuple && !parenthesised) unexpected("an expression");
    return make(at, SequenceDisplay{std::move(items), true});
}

ExpressionPtr Parser::parse_expression(bool with_conditional) {
    const Nesting nesting = nest_expression();
    const Position at = now().at;
    ExpressionPtr node = parse_or();
    while (with_conditional && skip_name("if")) {
        ExpressionPtr test = parse_or();
        ExpressionPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
        node = make(at, Conditional{std::move(node), std::move(test), std::move(otherwise)});
    }
    return node;
}

ExpressionPtr Parser::parse_or() {
    ExpressionPtr left = parse_and();
    while (now().is_name("or")) {
        const Position at = take().at;
        left = make(at, Logical{false, std::move(left), parse_and()});
    }
    return left;
}

ExpressionPtr Parser::parse_and() {
    ExpressionPtr left = parse_not();
    while (now().is_name("and")) {
        const Position at = take().at;
        left = make(at, Logical{true, std::move(left), parse_not()});
    }
    return left;
}

ExpressionPtr Parser::parse_not() {
    if (!now().is_name("not")) return parse_comparison();
    const Nesting nesting = nest_expression();
    const Position at = take().at;
    return make(at, Unary{Unary::Op::logical_not, parse_not()});
}

ExpressionPtr Parser::parse_comparison() {
    static constexpr std::pair<std::string_view, CompareOp> operators[] = {
        {"==", CompareOp::equal},  {"!=", CompareOp::not_equal},
        {"<", CompareOp::less},    {"<=", CompareOp::less_equal},
        {">", CompareOp::greater}, {">=", CompareOp::greater_equal}};
    const Position at = now().at;
    Comparison comparison{parse_sum(), {}};
    while (true) {
        const auto* op = std::find_if(std::begin(operators), std::end(operators),
                                      [this](const auto& o) { return now().is_op(o.first); });
        CompareOp kind;
        if (op != std::end(operators)) {
            take();
            kind = op->second;
        } else if (skip_name("in")) {
            kind = CompareOp::in;
        } else if (now().is_name("not") && ahead(1).is_name("in")) {
            take();
            take();
            kind = CompareOp::not_in;
        } else {
            break;
        }
        comparison.rest.emplace_back(kind, parse_sum());
    }
    if (comparison.rest.empty()) return std::move(comparison.first);
    return make(at, std::move(comparison));
}

ExpressionPtr Parser::parse_sum() {
    ExpressionPtr left = parse_concatenation();
    while (now().is_op("+") || now().is_op("-")) {
        const Token op = take();
        const BinaryOp kind = op.text == "+" ? BinaryOp::add : BinaryOp::subtract;
        left = make(op.at, Binary{kind, std::move(left), parse_concatenation()});
    }
    return left;
}

ExpressionPtr Parser::parse_concatenation() {
    const Position at = now().at;
    ExpressionPtr first = parse_product();
    if (!now().is_op("~")) return first;
    Concatenation node;
    node.parts.push_back(std::move(first));
    while (skip_op("~")) node.parts.push_back(parse_product());
    return make(at, std::move(node));
}

ExpressionPtr Parser::parse_product() {
    static constexpr std::pair<std::string_view, BinaryOp> operators[] = {
        {"*", BinaryOp::multiply},
        {"/", BinaryOp::divide},
        {"//", BinaryOp::floor_divide},
        {"%", BinaryOp::modulo}};
    ExpressionPtr left = parse_power();
    while (true) {
        const auto* op = std::find_if(std::begin(operators), std::end(operators),
                                      [this](const auto& o) { return now().is_op(o.first); });
        if (op == std::end(operators)) return left;
        const Position at = take().at;
        left = make(at, Binary{op->second, std::move(left), parse_power()});
    }
}

ExpressionPtr Parser::parse_power() {
    ExpressionPtr left = parse_unary();
    while (now().is_op("**")) {
        const Position at = take().at;
        left = make(at, Binary{BinaryOp::power, std::move(left), parse_unary()});
    }
    return left;
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
    ExpressionPtr node;
    if (now().is_op("-") || now().is_op("+")) {
        const Nesting nesting = nest_expression();
        const Token op = take();
        const auto kind = op.text == "-" ? Unary::Op::negate : Unary::Op::plus;
        node = make(op.at, Unary{kind, parse_unary(false)});
    } else {
        node = parse_primary();
    }
    node = parse_postfix(std::move(node));
    return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::parse_primary() {
    const Token token = now();
    switch (token.type) {
        case Token::Type::name:
            take();
            if (token.text == "true" || token.text == "True") {
                return make(token.at, Literal{Value(true)});
            }
            if (token.text == "false" || token.text == "False") {
                return make(token.at, Literal{Value(false)});
            }
            if (token.text == "none" || token.text == "None") {
                return make(token.at, Literal{Value()});
            }
            for (Macro* macro : macros_) {
                macro->uses_caller |= token.text == "caller";
                macro->uses_varargs |= token.text == "varargs";
                macro->uses_kwargs |= token.text == "kwargs";
            }
            return make(token.at, Name{intern(token.text)});
        case Token::Type::string: {
            std::string text;  // neighbouring strings are one
            while (now().type == Token::Type::string) text += take().text;
            return make(token.at, Literal{text_value(std::move(text))});
        }
        case Token::Type::integer:
            take();
            return make(token.at, Literal{Value(token.integer)});
        case Token::Type::real:
            take();
            return make(token.at, Literal{Value(token.real)});
        case Token::Type::op:
            if (token.text == "(") {
                take();
                ExpressionPtr inner = parse_tuple(true, true);
                expect_op(")");
                return inner;
            }
            if (token.text == "[") return parse_list();
            if (token.text == "{") return parse_dict();
            unexpected("an expression");
        default:
            unexpected("an expression");
    }
}

ExpressionPtr Parser::parse_list() {
    const Position at = take().at;
    SequenceDisplay list{{}, false};
    while (!now().is_op("]")) {
        if (!list.items.empty()) expect_op(",");
        if (now().is_op("]")) break;
        list.items.push_back(parse_expression());
    }
    expect_op("]");
    return make(at, std::move(list));
}

ExpressionPtr Parser::parse_dict() {
    const Position at = take().at;
    MappingDisplay dict;
    while (!now().is_op("}")) {
        if (!dict.entries.empty()) expect_op(",");
        if (now().is_op("}")) break;
        ExpressionPtr key = parse_expression();
        expect_op(":");
        dict.entries.emplace_back(std::move(key), parse_expression());
    }
    expect_op("}");
    return make(at, std::move(dict));
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr node) {
    while (true) {
        const Position at = now().at;
        if (now().is_op(".") || now().is_op("[")) {
            node = parse_subscript(std::move(node));
        } else if (now().is_op("(")) {
            node = make(at, Call{std::move(node), parse_arguments()});
        } else {
            return node;
        }
    }
}

ExpressionPtr Parser::parse_filters(ExpressionPtr node) {
    while (true) {
        const Position at = now().at;
        if (skip_op("|")) {
            node = make(at, parse_filter(std::move(node)));
        } else if (now().is_name("is")) {
            node = parse_test(std::move(node));
        } else if (now().is_op("(")) {
            node = make(at, Call{std::move(node), parse_arguments()});
        } else {
            return node;
        }
    }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr object) {
    const Token opening = take();
    if (opening.text == ".") {
        const Token name = take();
        if (name.type == Token::Type::name) {
            return make(name.at, Attribute{std::move(object), name.text});
        }
        if (name.type != Token::Type::integer) stop_at(name.at, "expected a name after '.'");
        return make(name.at,
                    Subscript{std::move(object), make(name.at, Literal{Value(name.integer)})});
    }
    const auto bound_follows = [this] {
        return !now().is_op(":") && !now().is_op("]") && !now().is_op(",");
    };
    ExpressionPtr start = bound_follows() ? parse_expression() : nullptr;
    if (!now().is_op(":")) {
        if (!start) unexpected("an index");
        if (now().is_op(",")) {
            stop_at(now().at, "an index of several parts is not supported", ErrorKind::unsupported);
        }
        expect_op("]");
        return make(opening.at, Subscript{std::move(object), std::move(start)});
    }
    take();
    ExpressionPtr end = bound_follows() ? parse_expression() : nullptr;
    ExpressionPtr step;
    if (skip_op(":") && bound_follows()) step = parse_expression();
    expect_op("]");
    return make(opening.at,
                Slice{std::move(object), std::move(start), std::move(end), std::move(step)});
}

std::string Parser::parse_dotted_name() {
    std::string name = expect_identifier();
    while (skip_op(".")) name += "." + expect_identifier();
    return name;
}

FilterCall Parser::parse_filter(ExpressionPtr input) {
    const Position at = now().at;
    const std::string name = parse_dotted_name();
    const Filter filter = find_filter(name);
    if (filter == nullptr) {
        stop_at(at, "the filter '" + name + "' is not supported", ErrorKind::unsupported);
    }
    FilterCall call{std::move(input), filter, {}};
    if (now().is_op("(")) call.arguments = parse_arguments();
    return call;
}

ExpressionPtr Parser::parse_test(ExpressionPtr input) {
    const Position at = take().at;
    const bool negated = skip_name("not");
    const Position name_at = now().at;
    const std::string name = parse_dotted_name();
    const Test test = find_test(name);
    if (test == nullptr) {
        stop_at(name_at, "the test '" + name + "' is not supported", ErrorKind::unsupported);
    }
    TestCall call{std::move(input), test, {}};
    const Token& next = now();
    const bool operand = next.type == Token::Type::string || next.type == Token::Type::integer ||
                         next.type == Token::Type::real || next.is_op("[") || next.is_op("{") ||
                         (next.type == Token::Type::name && !next.is_name("else") &&
                          !next.is_name("or") && !next.is_name("and"));
    if (next.is_op("(")) {
        call.arguments = parse_arguments();
    } else if (next.is_name("is")) {
        stop_at(next.at, "tests cannot be chained with 'is'");
    } else if (operand) {
        call.arguments.positional.push_back(parse_postfix(parse_primary()));
    }
    ExpressionPtr node = make(name_at, std::move(call));
    if (!negated) return node;
    return make(at, Unary{Unary::Op::logical_not, std::move(node)});
}

ArgumentList Parser::parse_arguments() {
    const Position at = now().at;
    const auto require = [at](bool ok) {
        if (!ok) stop_at(at, "arguments in an order that a call does not allow");
    };
    expect_op("(");
    ArgumentList list;
    bool first = true;
    while (!now().is_op(")")) {
        if (!first) expect_op(",");
        if (!first && now().is_op(")")) break;
        first = false;
        if (list.positional.size() + list.named.size() >= kMostArguments) {
            stop_at(now().at,
                    "a call has more than " + std::to_string(kMostArguments) + " arguments",
                    ErrorKind::refused);
        }
        if (skip_op("*")) {
            require(!list.rest && !list.named_rest);
            list.rest = parse_expression();
        } else if (skip_op("**")) {
            require(!list.named_rest);
            list.named_rest = parse_expression();
        } else if (now().type == Token::Type::name && ahead(1).is_op("=")) {
            require(!list.named_rest);
            std::string name = take().text;
            take();
            list.named.emplace_back(std::move(name), parse_expression());
        } else {
            require(!list.rest && !list.named_rest && list.named.empty());
            list.positional.push_back(parse_expression());
        }
    }
    expect_op(")");
    return list;
}

}  // namespace granary::jinja
