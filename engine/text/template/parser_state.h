// SPDX-License-Identifier: GPL-3.0-or-later
// The parser's class: expressions are in parser_expression.cpp, statements in parser.cpp.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/template/ast.h"
#include "engine/text/template/lexer.h"
#include "engine/text/template/limits.h"

namespace granary::jinja {

class Parser {
  public:
    Parser(std::vector<Token> tokens, const Limits& limits)
        : tokens_(std::move(tokens)), limits_(limits) {}

    Program run();

  private:
    // Tokens
    const Token& now() const { return tokens_[at_]; }
    const Token& ahead(size_t n) const { return tokens_[std::min(at_ + n, tokens_.size() - 1)]; }
    Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
    bool skip_op(std::string_view op);
    bool skip_name(std::string_view name);
    void expect_op(std::string_view op);
    void expect_name(std::string_view name);
    void expect(Token::Type type);
    std::string expect_identifier();
    [[noreturn]] void unexpected(std::string_view expected) const;

    // Statements
    Block parse_block(std::initializer_list<std::string_view> ends);
    Block parse_body(std::initializer_list<std::string_view> ends);
    Block parse_whole_body(std::string_view end);
    Block parse_captured_body(std::string_view end);
    Statement parse_statement();
    Statement::Node parse_tag(const Token& tag);
    If parse_if();
    For parse_for();
    Statement::Node parse_set();
    std::unique_ptr<const Macro> parse_macro();
    CallBlock parse_call_block(Position at);
    void parse_signature(Macro& macro);
    void parse_macro_body(Macro& macro, std::string_view end);
    FilterBlock parse_filter_block();
    With parse_with();
    std::vector<FilterCall> parse_filter_chain(bool bar_first);
    Target parse_target(bool with_namespace);
    Target parse_single_target(bool with_namespace);

    // Expressions, from loose to tight
    ExpressionPtr parse_tuple(bool with_conditional, bool parenthesised = false,
                              std::string_view end = {});
    ExpressionPtr parse_expression(bool with_conditional = true);
    ExpressionPtr parse_or();
    ExpressionPtr parse_and();
    ExpressionPtr parse_not();
    ExpressionPtr parse_comparison();
    ExpressionPtr parse_sum();
    ExpressionPtr parse_concatenation();
    ExpressionPtr parse_product();
    ExpressionPtr parse_power();
    ExpressionPtr parse_unary(bool with_filters = true);
    ExpressionPtr parse_primary();
    ExpressionPtr parse_list();
    ExpressionPtr parse_dict();
    ExpressionPtr parse_postfix(ExpressionPtr node);
    ExpressionPtr parse_filters(ExpressionPtr node);
    ExpressionPtr parse_subscript(ExpressionPtr object);
    FilterCall parse_filter(ExpressionPtr input);
    ExpressionPtr parse_test(ExpressionPtr input);
    ArgumentList parse_arguments();
    std::string parse_dotted_name();
    ExpressionPtr make(Position at, Expression::Node node) const;

    NameId intern(const std::string& name);

    // Counts nesting while it lives.
    class Nesting {
      public:
        Nesting(int& depth, int limit, Position at, const char* what);
        ~Nesting() { --depth_; }

      private:
        int& depth_;
    };
    Nesting nest_expression() {
        return {expression_depth_, limits_.expression_depth, now().at, "expressions"};
    }

    std::vector<Token> tokens_;
    const Limits& limits_;
    size_t at_ = 0;
    int statement_depth_ = 0;
    int expression_depth_ = 0;
    int loop_depth_ = 0;             // loops that break and continue can leave
    std::vector<Macro*> macros_;     // whose bodies are being parsed, outermost first
    std::vector<std::string> open_;  // tags not yet closed, for messages
    Program program_;
    std::unordered_map<std::string, NameId> ids_;
};

}  // namespace granary::jinja
