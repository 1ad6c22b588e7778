// SPDX-License-Identifier: GPL-3.0-or-later
// The tests behind `is`.
#include <algorithm>
#include <cmath>

#include "engine/text/template/arguments.h"
#include "engine/text/template/builtins.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/text_form.h"
#include "engine/text/template/unicode.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

void no_arguments(const Arguments& arguments) {
    Bound("test", arguments, {});
}

template <bool (*Predicate)(const Value&)>
bool plain(Workspace&, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return Predicate(input);
}

bool is_boolean(const Value& v) {
    return v.as<bool>() != nullptr;
}
bool is_callable(const Value& v) {
    return v.function() != nullptr || v.loop() != nullptr || v.absence() != nullptr;
}
bool is_defined(const Value& v) {
    return v.absence() == nullptr;
}
bool is_undefined(const Value& v) {
    return v.absence() != nullptr;
}
bool is_escaped(const Value& v) {
    return v.text() != nullptr && v.text()->markup;
}
bool is_false(const Value& v) {
    return v.as<bool>() != nullptr && !*v.as<bool>();
}
bool is_true(const Value& v) {
    return v.as<bool>() != nullptr && *v.as<bool>();
}
bool is_float(const Value& v) {
    return v.as<double>() != nullptr;
}
bool is_integer(const Value& v) {
    return v.as<int64_t>() != nullptr || v.as<uint64_t>() != nullptr;
}
bool is_iterable(const Value& v) {
    return v.text() != nullptr || v.sequence() != nullptr || v.mapping() != nullptr ||
           v.iterator() != nullptr || v.loop() != nullptr || v.absence() != nullptr;
}
bool is_mapping(const Value& v) {
    return v.mapping() != nullptr;
}
bool is_none(const Value& v) {
    return v.is_none();
}
bool is_number(const Value& v) {
    return v.is_number();
}
bool is_sequence(const Value& v) {  // has a length and elements
    const Sequence* s = v.sequence();
    return v.text() != nullptr || v.mapping() != nullptr || v.absence() != nullptr ||
           is_list_or_tuple(v) || (s != nullptr && s->flavor == Sequence::Flavor::range);
}
bool is_string(const Value& v) {
    return v.text() != nullptr;
}

bool has_remainder(Workspace& workspace, const Value& value, const Value& divisor,
                   int64_t remainder) {
    return equal(workspace, arithmetic(workspace, BinaryOp::modulo, value, divisor), remainder);
}

bool divisible_by(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("divisibleby", arguments, {"num"}, 1);
    return has_remainder(workspace, input, *args[0], 0);
}

bool is_even(Workspace& workspace, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return has_remainder(workspace, input, int64_t{2}, 0);
}

bool is_odd(Workspace& workspace, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return has_remainder(workspace, input, int64_t{2}, 1);
}

template <bool Upper>
bool has_case(Workspace& workspace, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    const std::string text = to_text(workspace, input);
    bool cased = false;
    for (size_t at = 0; at < text.size();) {
        const char32_t c = decode(text, at);
        if (Upper ? is_lower(c) || is_title(c) : is_upper(c) || is_title(c)) return false;
        cased |= is_cased(c);
    }
    return cased;
}

template <CompareOp Op>
bool compares(Workspace& workspace, const Value& input, const Arguments& arguments) {
    const Bound args("test", arguments, {"other"}, 1);
    return compare(workspace, Op, input, *args[0]);
}

bool same_as(Workspace&, const Value& input, const Arguments& arguments) {
    const Bound args("sameas", arguments, {"other"}, 1);
    const Value& other = *args[0];
    if (input.data().index() != other.data().index()) return false;
    if (input.text() != nullptr) return input.text() == other.text();
    if (input.sequence() != nullptr) return input.sequence() == other.sequence();
    if (input.mapping() != nullptr) return input.mapping() == other.mapping();
    return same_key(input, other);
}

bool names_filter(Workspace&, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return input.text() != nullptr && find_filter(input.text()->bytes) != nullptr;
}

bool names_test(Workspace&, const Value& input, const Arguments& arguments) {
    no_arguments(arguments);
    return input.text() != nullptr && find_test(input.text()->bytes) != nullptr;
}

constexpr std::pair<std::string_view, Test> kTests[] = {
    {"!=", compares<CompareOp::not_equal>},
    {"<", compares<CompareOp::less>},
    {"<=", compares<CompareOp::less_equal>},
    {"==", compares<CompareOp::equal>},
    {">", compares<CompareOp::greater>},
    {">=", compares<CompareOp::greater_equal>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", compares<CompareOp::equal>},
    {"equalto", compares<CompareOp::equal>},
    {"escaped", plain<is_escaped>},
    {"even", is_even},
    {"false", plain<is_false>},
    {"filter", names_filter},
    {"float", plain<is_float>},
    {"ge", compares<CompareOp::greater_equal>},
    {"greaterthan", compares<CompareOp::greater>},
    {"gt", compares<CompareOp::greater>},
    {"in", compares<CompareOp::in>},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", compares<CompareOp::less_equal>},
    {"lessthan", compares<CompareOp::less>},
    {"lower", has_case<false>},
    {"lt", compares<CompareOp::less>},
    {"mapping", plain<is_mapping>},
    {"ne", compares<CompareOp::not_equal>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", is_odd},
    {"sameas", same_as},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"test", names_test},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", has_case<true>},
};

}  // namespace

Test find_test(std::string_view name) {
    const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                     [name](const auto& test) { return test.first == name; });
    return found != std::end(kTests) ? found->second : nullptr;
}

}  // namespace granary::jinja
