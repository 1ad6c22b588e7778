// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/text/template/format.h"
#include "engine/text/template/markup.h"
#include "engine/text/template/numbers.h"
#include "engine/text/template/operators.h"
#include "engine/text/template/workspace.h"

namespace granary::jinja {

namespace {

[[noreturn]] void unsupported_operands(std::string_view op, const Value& a, const Value& b) {
    refuse_absent(a);
    refuse_absent(b);
    stop("unsupported operand type(s) for " + std::string(op) + ": '" + type_name(a) + "' and '" +
         type_name(b) + "'");
}

[[noreturn]] void integer_overflow() {
    stop("an integer of the template does not fit 64 bits", ErrorKind::unsupported);
}

int64_t power(int64_t base, int64_t exponent) {
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) {
            integer_overflow();
        }
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) integer_overflow();
    }
    return result;
}

int64_t floor_divide(int64_t a, int64_t b) {
    if (b == -1) {
        if (a == std::numeric_limits<int64_t>::min()) integer_overflow();
        return -a;
    }
    const int64_t quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value integer_arithmetic(BinaryOp op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
        case BinaryOp::add:
            overflow = __builtin_add_overflow(a, b, &result);
            break;
        case BinaryOp::subtract:
            overflow = __builtin_sub_overflow(a, b, &result);
            break;
        case BinaryOp::multiply:
            overflow = __builtin_mul_overflow(a, b, &result);
            break;
        case BinaryOp::divide:
            if (b == 0) stop("division by zero");
            return static_cast<double>(a) / static_cast<double>(b);
        case BinaryOp::floor_divide:
            if (b == 0) stop("integer division or modulo by zero");
            return floor_divide(a, b);
        case BinaryOp::modulo:
            if (b == 0) stop("integer modulo by zero");
            if (b == -1) return int64_t{0};
            result = a % b;
            if (result != 0 && (result < 0) != (b < 0)) result += b;
            break;
        case BinaryOp::power:
            if (b >= 0) return power(a, b);
            if (a == 0) stop("0.0 cannot be raised to a negative power");
            return std::pow(static_cast<double>(a), static_cast<double>(b));
    }
    if (overflow) integer_overflow();
    return result;
}

Value real_arithmetic(BinaryOp op, double a, double b) {
    switch (op) {
        case BinaryOp::add:
            return a + b;
        case BinaryOp::subtract:
            return a - b;
        case BinaryOp::multiply:
            return a * b;
        case BinaryOp::divide:
            if (b == 0) stop("float division by zero");
            return a / b;
        case BinaryOp::floor_divide:
        case BinaryOp::modulo: {
            if (b == 0) stop("float floor division or modulo by zero");
            double rest = std::fmod(a, b);
            double quotient = (a - rest) / b;
            if (rest != 0) {
                if ((b < 0) != (rest < 0)) {
                    rest += b;
                    quotient -= 1;
                }
            } else {
                rest = std::copysign(0.0, b);
            }
            if (op == BinaryOp::modulo) return rest;
            if (quotient == 0) return std::copysign(0.0, a / b);
            const double down = std::floor(quotient);
            return quotient - down > 0.5 ? down + 1 : down;
        }
        case BinaryOp::power: {
            if (a == 0 && b < 0) stop("0.0 cannot be raised to a negative power");
            if (a < 0 && b != std::floor(b) && std::isfinite(b)) {
                stop("a negative number to a broken power is complex", ErrorKind::unsupported);
            }
            const double result = std::pow(a, b);
            if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
                stop("(34, 'Numerical result out of range')");
            }
            return result;
        }
    }
    return 0.0;
}

Value repeat(Workspace& workspace, const Value& value, int64_t times) {
    times = std::max<int64_t>(times, 0);
    if (const Text* text = value.text()) {
        TextBuilder out(workspace);
        out.repeat(text->bytes, times);
        return workspace.text(out.take(), text->markup);
    }
    const Sequence& sequence = *value.sequence();
    const size_t size = sequence.items.size();
    if (size == 0) times = 0;
    if (times > static_cast<int64_t>(workspace.limits().items)) {
        workspace.check_items(static_cast<uint64_t>(times));
    }
    workspace.check_items(size * static_cast<uint64_t>(times));
    workspace.step(size * static_cast<uint64_t>(times) / 8);
    std::vector<Value> items;
    items.reserve(size * static_cast<size_t>(times));
    for (int64_t i = 0; i < times; ++i) {
        items.insert(items.end(), sequence.items.begin(), sequence.items.end());
    }
    return workspace.sequence(sequence.flavor, std::move(items));
}

// a + b of texts and of sequences; nothing if the operands are neither.
std::optional<Value> join(Workspace& workspace, const Value& a, const Value& b) {
    if (a.text() != nullptr && b.text() != nullptr) {
        const bool markup = a.text()->markup || b.text()->markup;
        TextBuilder out(workspace);
        append_as(out, *a.text(), markup);
        append_as(out, *b.text(), markup);
        return workspace.text(out.take(), markup);
    }
    const Sequence* left = a.sequence();
    const Sequence* right = b.sequence();
    if (left == nullptr || right == nullptr || left->flavor != right->flavor ||
        !is_list_or_tuple(a)) {
        return std::nullopt;
    }
    workspace.check_items(left->items.size() + right->items.size());
    std::vector<Value> items;
    items.reserve(left->items.size() + right->items.size());
    items.insert(items.end(), left->items.begin(), left->items.end());
    items.insert(items.end(), right->items.begin(), right->items.end());
    return workspace.sequence(left->flavor, std::move(items));
}

std::string_view symbol(BinaryOp op) {
    switch (op) {
        case BinaryOp::add:
            return "+";
        case BinaryOp::subtract:
            return "-";
        case BinaryOp::multiply:
            return "*";
        case BinaryOp::divide:
            return "/";
        case BinaryOp::floor_divide:
            return "//";
        case BinaryOp::modulo:
            return "%";
        case BinaryOp::power:
            return "** or pow()";
    }
    return "";
}

}  // namespace

Value arithmetic(Workspace& workspace, BinaryOp op, const Value& left, const Value& right) {
    if (left.is_number() && right.is_number()) {
        const auto a = as_integer(left);
        const auto b = as_integer(right);
        if (a && b) return integer_arithmetic(op, *a, *b);
        const bool real = left.as<double>() != nullptr || right.as<double>() != nullptr;
        if (!real && op != BinaryOp::divide) integer_overflow();
        return real_arithmetic(op, as_real(left), as_real(right));
    }
    if (op == BinaryOp::add) {
        if (auto joined = join(workspace, left, right)) return std::move(*joined);
        if (left.text() != nullptr && right.absence() == nullptr) {
            stop("can only concatenate str (not \"" + std::string(type_name(right)) + "\") to str");
        }
    }
    if (op == BinaryOp::multiply) {
        if (is_repeatable(left) && as_integer(right)) {
            return repeat(workspace, left, *as_integer(right));
        }
        if (is_repeatable(right) && as_integer(left)) {
            return repeat(workspace, right, *as_integer(left));
        }
    }
    if (op == BinaryOp::modulo && left.text() != nullptr) {
        return percent_format(workspace, *left.text(), right);
    }
    unsupported_operands(symbol(op), left, right);
}

Value negate(Workspace&, const Value& value) {
    if (const auto* d = value.as<double>()) return -*d;
    if (const auto i = as_integer(value)) {
        if (*i == std::numeric_limits<int64_t>::min()) integer_overflow();
        return -*i;
    }
    if (const auto* u = value.as<uint64_t>()) {
        if (*u == uint64_t{1} << 63) return std::numeric_limits<int64_t>::min();
        integer_overflow();
    }
    refuse_absent(value);
    stop("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
}

Value unary_plus(const Value& value) {
    if (const auto* b = value.as<bool>()) return int64_t{*b ? 1 : 0};
    if (value.is_number()) return value;
    refuse_absent(value);
    stop("bad operand type for unary +: '" + std::string(type_name(value)) + "'");
}

}  // namespace granary::jinja
