// SPDX-License-Identifier: GPL-3.0-or-later
// Small templates with what Jinja2 3.1 (sandboxed, trim_blocks, lstrip_blocks, loop controls) made
// of them under Python 3.11: operators, filters, tests, methods, scopes and whitespace.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "granary/chat_template.h"
#include "tests/unpacked.h"

namespace granary {
namespace {

using Json = nlohmann::ordered_json;

Result<std::string> render(const std::string& source, const Json& context = Json::object()) {
    const auto parsed = ChatTemplate::parse(source);
    if (!parsed) return tl::unexpected(parsed.error());
    return parsed->render(context);
}

TEST(ChatTemplateSnippets, BehaveAsInJinja2) {
    const Json recorded =
        Json::parse(test::unpacked(GRANARY_TEST_DATA "/template_snippets.json.gz"));
    Json context = recorded["context"];
    context["now"] = recorded["now"];
    ASSERT_GT(recorded["snippets"].size(), 900u);
    for (const Json& snippet : recorded["snippets"]) {
        const auto source = snippet["template"].get<std::string>();
        const auto rendered = render(source, context);
        if (snippet.contains("fails")) {
            EXPECT_FALSE(rendered) << source << "\ngives " << *rendered;
        } else if (rendered) {
            EXPECT_EQ(*rendered, snippet["expected"].get<std::string>()) << source;
        } else {
            ADD_FAILURE() << source << "\n" << rendered.error().message();
        }
    }
}

struct BadTemplate {
    const char* source;
    ErrorKind kind;
    const char* what;   // part of the message
    const char* where;  // position in it
};

TEST(ChatTemplateSnippets, ErrorsNameConstructLineAndColumn) {
    const BadTemplate cases[] = {
        {"a\n {{ x | nope }}", ErrorKind::unsupported, "filter 'nope'", "line 2, column 9 "},
        {"{% if x is nope %}{% endif %}", ErrorKind::unsupported, "test 'nope'",
         "line 1, column 12 "},
        {"{{ 'é' }}{% include 'a' %}", ErrorKind::unsupported, "tag 'include'",
         "line 1, column 13 "},
        {"{% if x %}", ErrorKind::invalid_file, "inside the block 'if'", "line 1, column 11 "},
        {"{% if x %}{% endfor %}", ErrorKind::invalid_file, "unknown tag 'endfor'",
         "line 1, column 14 "},
        {"{{ x y }}", ErrorKind::invalid_file, "unexpected 'y'", "line 1, column 6 "},
        {"{{ 'x }}", ErrorKind::invalid_file, "closing quote", "line 1, column 4 "},
        {"{{ (x }}", ErrorKind::invalid_file, "unexpected '}'", "line 1, column 7 "},
        {"{# x", ErrorKind::invalid_file, "comment", "line 1, column 1 "},
        {"{% break %}", ErrorKind::invalid_file, "outside of a loop", "line 1, column 4 "},
        {"{{ \"\\N{DOT}\" }}", ErrorKind::invalid_file, "\\N{name} is not supported",
         "line 1, column 4 "},
        {"{{ 99999999999999999999 }}", ErrorKind::unsupported, "64 bits", "line 1, column 4 "},
        {"\n\n  {{ absent.part }}", ErrorKind::invalid_argument, "'absent' is undefined",
         "line 3, column 13 "},
        {"{{ {}.a.b }}", ErrorKind::invalid_argument, "'dict object' has no attribute 'a'",
         "line 1, column 9 "},
        {"{{ 'a'.encode() }}", ErrorKind::unsupported, "string method 'encode'",
         "line 1, column 14 "},
        {"{{ [].append(1) }}", ErrorKind::invalid_argument, "cannot change", "line 1, column 13 "},
        {"{{ 1 + 'a' }}", ErrorKind::invalid_argument, "'int' and 'str'", "line 1, column 6 "},
        {"{{ strftime_now('%Q') }}", ErrorKind::unsupported, "directive %Q", "line 1, column 16 "},
        {"{{ cycler(1) }}", ErrorKind::unsupported, "function 'cycler'", "line 1, column 10 "},
        {"{{ dict }}", ErrorKind::invalid_argument, "it was not called", "line 1, column 4 "},
    };
    for (const BadTemplate& bad : cases) {
        const auto rendered = render(bad.source);
        ASSERT_FALSE(rendered) << bad.source << "\ngives " << *rendered;
        const std::string message = rendered.error().message();
        EXPECT_EQ(rendered.error().kind, bad.kind) << bad.source << "\n" << message;
        EXPECT_NE(message.find(bad.what), std::string::npos) << bad.source << "\n" << message;
        EXPECT_NE(message.find(bad.where), std::string::npos) << bad.source << "\n" << message;
    }
}

TEST(ChatTemplateSnippets, ATemplateThatRaisesGivesItsMessage) {
    const auto rendered = render("text {{ raise_exception('Roles must alternate!') }}");
    ASSERT_FALSE(rendered);
    EXPECT_EQ(rendered.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(rendered.error().what, "Roles must alternate!");
}

TEST(ChatTemplateSnippets, TheClockIsFixedOrRuns) {
    const std::string source = "{{ strftime_now('%Y-%m-%d %H:%M:%S.%f %z') }}";
    EXPECT_EQ(*render(source, {{"now", "2024-02-29T23:59:58.25+02:00"}}),
              "2024-02-29 23:59:58.250000 +0200");
    EXPECT_EQ(*render(source, {{"now", "2024-02-29"}}), "2024-02-29 00:00:00.000000 ");
    EXPECT_GT(render(source)->substr(0, 4), "2024");
    for (const char* bad : {"2023-02-29", "2024-1-1", "yesterday", "2024-01-01T25:00", ""}) {
        EXPECT_FALSE(render(source, {{"now", bad}})) << bad;
    }
    EXPECT_FALSE(render(source, {{"now", 5}}));
    EXPECT_EQ(*render("{{ now is defined }}", {{"now", "2024-02-29"}}), "False");
}

TEST(ChatTemplateSnippets, NumbersOfTheContextKeepTheirValue) {
    const Json context = Json::parse(
        R"({"a": 18446744073709551615, "b": 9223372036854775807, "c": -9223372036854775808,
            "d": 1.0, "e": 1e300, "f": 0.1})");
    EXPECT_EQ(*render("{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ [a, f] | tojson }} {{ a > b }}",
                      context),
              "18446744073709551615 9223372036854775807 -9223372036854775808 1.0 1e+300 "
              "[18446744073709551615, 0.1] True");
    EXPECT_FALSE(render("{{ a + 1 }}", context));
    EXPECT_FALSE(render("{{ b + 1 }}", context));
    EXPECT_FALSE(render("{{ c // -1 }}", context));
    EXPECT_EQ(*render("{{ c % -1 }}", context), "0");
}

TEST(ChatTemplateSnippets, OneTemplateRendersManyTimes) {
    const auto parsed = ChatTemplate::parse(
        "{% set ns = namespace(n=0) %}{% for i in x %}{% set ns.n = ns.n + i %}{% endfor %}"
        "{{ ns.n }}");
    ASSERT_TRUE(parsed);
    EXPECT_EQ(*parsed->render({{"x", {1, 2, 3}}}), "6");
    EXPECT_EQ(*parsed->render({{"x", {4}}}), "4");
    EXPECT_FALSE(parsed->render(Json::array()));
}

}  // namespace
}  // namespace granary
