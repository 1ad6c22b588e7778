// SPDX-License-Identifier: GPL-3.0-or-later
// Templates that want to crash, hang or eat memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/text/template/interpreter.h"
#include "engine/text/template/parser.h"
#include "granary/chat_template.h"

namespace granary::jinja {
namespace {

using Json = nlohmann::ordered_json;

// Limits of the same kind as the real ones, small enough for a test to reach them quickly.
Limits small_limits() {
    Limits limits;
    limits.steps = 300'000;
    limits.text_bytes = 1u << 20;
    limits.live_bytes = 8u << 20;
    limits.items = 1u << 16;
    return limits;
}

// The failure's message; empty if the template renders.
std::string failure_of(const std::string& source, const Json& context = Json::object(),
                       const Limits& limits = small_limits()) {
    try {
        const Program program = parse(source, limits);
        Workspace workspace(limits, std::nullopt);
        Interpreter(program, workspace, context).run();
        return {};
    } catch (const Failure& failure) {
        return failure.what.empty() ? "no message" : failure.what;
    }
}

std::string repeat(const std::string& text, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += text;
    return out;
}

TEST(HostileTemplate, DeepSourceIsRefused) {
    const size_t n = 20'000;
    for (const std::string& source : {"{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}",
                                      "{{ " + repeat("[", n) + " }}",
                                      "{{ " + repeat("not ", n) + "1 }}",
                                      "{{ " + repeat("-", n) + "1 }}",
                                      "{{ 1" + repeat(" + 1", n) + " }}",
                                      "{{ 1" + repeat(" ~ 1 if 1 else 1", n) + " }}",
                                      "{{ x" + repeat(".x", n) + " }}",
                                      "{{ x" + repeat("[0]", n) + " }}",
                                      "{{ x" + repeat("()", n) + " }}",
                                      "{{ x" + repeat("|trim", n) + " }}",
                                      "{{ " + repeat("{1:", n) + " }}",
                                      "{{ 1" + repeat(" and 1", n) + " }}",
                                      "{{ x" + repeat(" is defined", n) + " }}",
                                      "{{ 2" + repeat(" ** 2", n) + " }}",
                                      "{{ x" + repeat("(x", n) + " }}",
                                      "{{ x" + repeat("|f(x", n) + " }}",
                                      "{{ 1 if " + repeat("1 if ", n) + "1 }}",
                                      "{{ dict(" + repeat("a=1,", n) + ") }}",
                                      "{% set " + repeat("(", n) + "a" + repeat(")", n) + " = 1 %}",
                                      repeat("{% if 1 %}", n),
                                      repeat("{% for a in b %}", n),
                                      repeat("{% macro a() %}", n),
                                      repeat("{% call a() %}", n),
                                      repeat("{% filter trim %}", n),
                                      repeat("{% generation %}", n),
                                      repeat("{% with %}", n),
                                      repeat("{% set a %}", n)}) {
        Limits limits;
        limits.source_bytes = 64u << 20;
        EXPECT_NE(failure_of(source, {}, limits), "") << source.substr(0, 40);
    }
    EXPECT_NE(failure_of(std::string(2u << 20, 'x')), "") << "source too large";
}

TEST(HostileTemplate, LongButFlatSourceIsFine) {
    EXPECT_EQ(failure_of("{{ 'a' ~ " + repeat("'a' ~ ", 5000) + "'a' }}"), "");
    EXPECT_EQ(failure_of("{% if 0 %}" + repeat("{% elif 0 %}", 5000) + "{% endif %}"), "");
    EXPECT_EQ(failure_of("{{ [" + repeat("1,", 5000) + "] }}"), "");
    EXPECT_EQ(failure_of("{{ 1 < 2" + repeat(" < 3 >= 3", 2000) + " }}"), "");
}

TEST(HostileTemplate, WorkWithoutEndIsStopped) {
    for (const std::string source : {
             "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
             "{% macro a() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}",
             "{% macro a() %}{{ caller() }}{% endmacro %}{% macro b() %}{% call a() %}{{ b() }}"
             "{% endcall %}{% endmacro %}{{ b() }}",
             "{% for i in [[]] recursive %}{{ loop([[]]) }}{% endfor %}",
             "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
             "{% for a in range(9999) if a < 0 %}{% for b in range(9999) %}{% endfor %}{% else %}"
             "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
             "{% endfor %}",
             "{{ range(1000000000) }}",
             "{{ range(0, 9000000000000000000, 3) | length }}",
             "{{ range(-9000000000000000000, 9000000000000000000) | length }}",
             "{% set x = range(9999) | list %}{% for a in x %}{{ x | sort | length }}{% endfor %}",
             "{% set x = range(9999) | list %}{{ x | unique | list | length }}",
             "{% set s = 'ab' * 200000 %}{% for a in range(9999) %}{{ 'ba' * 9 in s }}"
             "{{ s.find('aa') }}{{ s | length }}{% endfor %}",
             "{% set s = 'ab' * 200000 %}{% for a in range(9999) %}{{ s[a] }}{% endfor %}",
             "{% set s = 'a' * 200000 %}{% for a in range(9999) %}{{ s == s ~ '' }}{% endfor %}",
             "{% set ns = namespace() %}{% for a in range(9999) %}{% for b in range(99) %}"
             "{% set ns.x = [ns.x] %}{% endfor %}{% endfor %}",
             // Needles and sets that make a simple search quadratic.
             "{% set s = 'a' * 500000 %}{% set t = 'a' * 250000 %}"
             "{% for a in range(9999) %}{{ t ~ 'b' in s }}{% endfor %}",
             "{% set s = 'a' * 500000 %}{{ s.rfind('b' ~ 'a' * 250000) }}",
             "{% set s = 'a' * 500000 %}{{ s.rsplit('b' ~ 'a' * 250000) }}",
             // Keys that are slow to compare.
             "{% set t = ['a'] %}{% set ns = namespace(t=(1, 2)) %}{% for i in range(60) %}"
             "{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {ns.t: 1} }}",
             "{% set k = 'a' * 500000 %}{% for i in range(9999) %}{{ {k ~ 1: 1, k ~ 2: 2} }}"
             "{% endfor %}",
             "{% for i in range(9999) %}{{ dict(range(9999) | batch(2) | list) }}{% endfor %}",
         }) {
        EXPECT_NE(failure_of(source), "") << source;
    }
}

TEST(HostileTemplate, GrowthIsStopped) {
    for (const std::string source : {
             "{{ 'a' * 1000000000000 }}",
             "{{ 'a' * 9223372036854775807 }}",
             "{{ [1] * 1000000000000 }}",
             "{{ [1, 2] * 9223372036854775807 }}",
             "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
             "{% endfor %}",
             "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
             "{% endfor %}",
             "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
             "{% endfor %}",
             "{% set ns = namespace(s=['lol']) %}{% for i in range(60) %}"
             "{% set ns.s = [ns.s, ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
             "{% set ns = namespace(s=['lol']) %}{% for i in range(60) %}"
             "{% set ns.s = [ns.s, ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}",
             "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(60) %}"
             "{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}"
             "{{ ns.s == ns.t }}",
             "{% set ns = namespace(s='lol') %}{% for i in range(60) %}"
             "{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% endfor %}{{ ns.s | string }}",
             "{% set ns = namespace(s=[]) %}{% for i in range(9999) %}"
             "{% set ns.s = ns.s + ['a' * 99999] %}{% endfor %}",
             "{% set ns = namespace() %}{% for i in range(999) %}{% set ns.s = [ns.s] %}"
             "{% endfor %}",
             "{% set ns = namespace() %}{% for i in range(999) %}{% set ns.s = {1: ns.s} %}"
             "{% endfor %}",
             "{% set ns = namespace(s=[]) %}{% for i in range(999) %}"
             "{% set ns.s = [ns.s.count] %}{% endfor %}",
             "{{ 'x'.center(1000000000000) }}",
             "{{ 'x'.zfill(9223372036854775807) }}",
             "{{ 'x' | center(1000000000000) }}",
             "{{ 'x\\ny' | indent(1000000000000) }}",
             "{{ '%1000000000d' % 1 }}",
             "{{ '%.1000000000f' % 1.5 }}",
             "{{ '%*d' % (9223372036854775807, 1) }}",
             "{{ '{:1000000000}'.format(1) }}",
             "{{ '{:99999999999999999999}'.format(1) }}",
             "{{ 'a'.replace('', 'b' * 900000).replace('b', 'c' * 900000) }}",
             "{{ ('a' * 900000) | replace('a', 'bb') }}",
             "{{ (['a' * 900000] * 60000) | join }}",
             "{{ ('a' * 900000).join(['b', 'c', 'd']) }}",
             "{{ ('a' * 900000) | list }}",
             "{{ ('a,' * 400000).split(',') }}",
             "{{ ('a ' * 400000).split() }}",
             "{{ ('a\\n' * 400000).splitlines() }}",
             "{{ '\\t'.expandtabs(9223372036854775807) }}",
             "{{ [1] | batch(1000000000000, 0) | list }}",
             "{{ [1] | slice(1000000000000) | list }}",
             "{{ 9 ** 9 ** 9 }}",
             "{{ 7 ** 99999999999 }}",
             "{{ [[1] * 60000] * 60000 }}",
             "{% for i in range(9999) %}{{ 'x' * 999 }}{% endfor %}",
             "{% macro m(n) %}{{ 'x' * 900000 }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}"
             "{{ m(100) }}",
             "{% for i in range(9999) %}{% set x = namespace() %}{% set x.y = 'a' * 9999 %}"
             "{% endfor %}",
             "{% set ns = namespace() %}{% for i in range(9999) %}{% macro m() %}{% endmacro %}"
             "{% set ns.m = m %}{% set q = 'a' * 99999 %}{% endfor %}",
         }) {
        EXPECT_NE(failure_of(source), "") << source;
    }
}

// Values that refer to each other in a ring must not outlive the rendering; a leak checker sees.
TEST(HostileTemplate, RingsAreTakenApart) {
    for (const std::string source : {
             "{% set ns = namespace() %}{% set ns.self = ns %}{% set ns.list = [ns, {'n': ns}] %}",
             "{% for i in [1] %}{% macro m() %}{{ i }}{% endmacro %}{% set k = m %}{% endfor %}",
             "{% set ns = namespace() %}{% macro m() %}{% set ns.f = caller %}{% endmacro %}"
             "{% for i in [1] %}{% call m() %}{% endcall %}{% set g = ns.f %}{% endfor %}",
             "{% set ns = namespace() %}{% for i in [1, 2] %}{% set ns.l = loop %}{% endfor %}",
             "{% for i in [1, 2] %}{% set l = loop %}{% endfor %}",
         }) {
        EXPECT_EQ(failure_of(source), "") << source;
    }
    // One closure holds the next: taken apart without recursion.
    Limits limits;
    limits.steps = 10'000'000;
    EXPECT_EQ(failure_of("{% set ns = namespace(f=0) %}{% macro a(f) %}{% macro b() %}{{ f }}"
                         "{% endmacro %}{% set ns.f = b %}{% endmacro %}"
                         "{% for i in range(50000) %}{{ a(ns.f) }}{% endfor %}",
                         {}, limits),
              "");
    EXPECT_EQ(failure_of("{% set ns = namespace(f=0) %}{% for i in range(50000) %}"
                         "{% set ns.f = namespace(next=ns.f) %}{% endfor %}",
                         {}, limits),
              "");
}

TEST(HostileTemplate, ContextsAreBoundedToo) {
    Json deep = 1;
    for (int i = 0; i < 500; ++i) deep = Json::array({deep});
    EXPECT_NE(failure_of("{{ x }}", {{"x", deep}}), "");
    EXPECT_EQ(failure_of("no x", {{"y", deep}}), "") << "what is not read costs nothing";
    EXPECT_NE(failure_of("{{ x }}", {{"x", std::string(2u << 20, 'a')}}), "");
    EXPECT_NE(failure_of("{{ x }}", {{"x", "\xff\xfe"}}), "") << "not UTF-8";
    EXPECT_NE(failure_of("\xff{{ x }}"), "") << "not UTF-8";
}

// A step of any kind is short, so the real limits (ten times these steps) end within seconds.
TEST(HostileTemplate, StepsAreShort) {
    Limits limits;
    limits.steps /= 10;
    const std::string sources[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% set s = 'ab' * 20000000 %}{% for a in range(99999) %}{{ s.find('aa') }}{% endfor %}",
        "{% set s = 'a' * 30000000 %}{{ s.rfind('b' ~ 'a' * 10000000) }}",
        "{% set s = 'a' * 30000000 %}{{ s.strip('b' * 30000000) }}"
        "{% for a in range(99999) %}{{ 'a' * 10000000 ~ 'b' in s }}{% endfor %}",
        "{% set s = 'é' * 9000000 %}{% for i in range(99999) %}{{ (s | upper)[5] }}{% endfor %}",
        "{% set s = '\n' * 9000000 %}{% for i in range(99999) %}{{ (s | tojson)[5] }}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}",
        "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}"
        "{% set ns.s = ns.s + ['a' * 99999] %}{% endfor %}",
    };
    for (const std::string& source : sources) {
        const auto start = std::chrono::steady_clock::now();
        EXPECT_NE(failure_of(source, Json::object(), limits), "");
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        EXPECT_LT(seconds.count(), 30.0) << source;  // tenths of one; a sanitizer is slow
    }
}

// Published templates with bytes changed, pieces cut, doubled and swapped: an error or a text.
TEST(HostileTemplate, MutatedTemplatesEndInAnErrorOrText) {
    std::vector<Json> fixtures;
    for (const auto& entry : std::filesystem::directory_iterator(GRANARY_TEST_DATA "/templates")) {
        if (entry.path().extension() != ".json") continue;
        std::ifstream stream(entry.path());
        fixtures.push_back(Json::parse(stream));
    }
    ASSERT_FALSE(fixtures.empty());
    std::sort(fixtures.begin(), fixtures.end(), [](const Json& a, const Json& b) {
        return a["name"].get<std::string>() < b["name"].get<std::string>();
    });
    std::mt19937 random(20260102);
    const auto below = [&random](size_t n) { return n == 0 ? 0 : random() % n; };
    const std::string pieces[] = {"{{", "}}", "{%",  "%}", "{#", "#}", "-",  "'",  "(",  ")",
                                  "[",  "]",  "|",   ".",  "~",  "*",  "**", "if", "in", ":",
                                  "::", "\\", "not", "is", "0",  "-1", " ",  "\n", "é",  "\xf0"};
    const auto start = std::chrono::steady_clock::now();
    size_t tried = 0;
    size_t texts = 0;
    while (std::chrono::steady_clock::now() - start < std::chrono::seconds(3) && tried < 4000) {
        const Json& fixture = fixtures[below(fixtures.size())];
        std::string source = fixture["template"].get<std::string>();
        for (size_t changes = 1 + below(4); changes > 0; --changes) {
            const size_t at = below(source.size());
            const size_t size = below(std::min<size_t>(source.size() - at, 40) + 1);
            switch (below(5)) {
                case 0:
                    source.erase(at, size);
                    break;
                case 1:
                    source.insert(at, source.substr(below(source.size()), 30));
                    break;
                case 2:
                    source.insert(at, pieces[below(std::size(pieces))]);
                    break;
                case 3:
                    source.replace(at, size, pieces[below(std::size(pieces))]);
                    break;
                default:
                    source[at] = static_cast<char>(below(256));
                    break;
            }
        }
        ++tried;
        const auto parsed = ChatTemplate::parse(source);
        if (!parsed) {
            EXPECT_FALSE(parsed.error().what.empty());
            continue;
        }
        const auto rendered = parsed->render(fixture["cases"][below(8)]["context"]);
        texts += rendered ? 1 : 0;
        EXPECT_TRUE(rendered || !rendered.error().message().empty());
    }
    EXPECT_GT(texts, tried / 20) << "most mutations only break the syntax: too wild";
}

}  // namespace
}  // namespace granary::jinja
