// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gpu/ptx/operation.h"

#include <algorithm>

namespace granary::test::ptx {

Type type_of(std::string_view name) {
    static const std::map<std::string_view, Type> types{
        {"pred", Type::pred}, {"b8", Type::b8},   {"u8", Type::u8},       {"s8", Type::s8},
        {"b16", Type::b16},   {"u16", Type::u16}, {"s16", Type::s16},     {"f16", Type::f16},
        {"b32", Type::b32},   {"u32", Type::u32}, {"s32", Type::s32},     {"f32", Type::f32},
        {"b64", Type::b64},   {"u64", Type::u64}, {"f16x2", Type::f16x2}, {"s64", Type::s64},
        {"f64", Type::f64}};
    const auto found = types.find(name);
    return found == types.end() ? Type::none : found->second;
}

uint32_t bytes_of(Type type) {
    switch (type) {
        case Type::none:
        case Type::pred:
            return 0;
        case Type::b8:
        case Type::u8:
        case Type::s8:
            return 1;
        case Type::b16:
        case Type::u16:
        case Type::s16:
        case Type::f16:
            return 2;
        case Type::b64:
        case Type::u64:
        case Type::s64:
        case Type::f64:
            return 8;
        default:
            return 4;
    }
}

bool Operation::has(std::string_view part) const {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
}

std::vector<Type> Operation::types() const {
    std::vector<Type> found;
    for (const std::string_view part : parts)
        if (const Type type = type_of(part); type != Type::none) found.push_back(type);
    return found;
}

Type Operation::type() const {
    const auto all = types();
    return all.empty() ? Type::none : all.back();
}

const Operand& Operation::operand(size_t i) const {
    if (i >= operands.size()) unknown("it has too few operands");
    return operands[i];
}

void Operation::unknown(const char* why) const {
    throw Fault(std::string(text) + ": " + why);
}

void FunctionRoom::put(Instruction& to, uint32_t i, const Operand& operand, Type type) {
    const bool wide = operand.kind == Operand::Kind::reg ? operand.bytes == 8 : bytes_of(type) == 8;
    if (operand.kind == Operand::Kind::number)
        to.at[i] = constant(operand.number, wide);
    else if (operand.kind == Operand::Kind::reg)
        to.at[i] = operand.at;
    else
        throw Fault(std::string(to.text) + ": neither a register nor a number");
    if (wide) to.wide |= static_cast<uint8_t>(1u << std::min(i, 7u));
}

void FunctionRoom::put_place(Instruction& to, uint32_t i, Operand operand, Type type) {
    if (operand.kind == Operand::Kind::address) {
        if (operand.number != 0 || operand.at == kNoGuard)
            throw Fault(std::string(to.text) + ": an address with an offset");
        operand.kind = Operand::Kind::reg;
    }
    put(to, i, operand, type);
}

Builder find_builder(const std::map<std::string_view, Builder>& builders, std::string_view name) {
    const auto found = builders.find(name);
    return found == builders.end() ? nullptr : found->second;
}

}  // namespace granary::test::ptx
