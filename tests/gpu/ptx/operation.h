// SPDX-License-Identifier: GPL-3.0-or-later
// One operation as the text has it, its names resolved, and those who make instructions of them.
#pragma once

#include "tests/gpu/ptx/program.h"

namespace granary::test::ptx {

enum class Type : uint8_t {
    none,
    pred,
    b8,
    u8,
    s8,
    b16,
    u16,
    s16,
    f16,
    b32,
    u32,
    s32,
    f32,
    f16x2,
    b64,
    u64,
    s64,
    f64,
};

Type type_of(std::string_view name);  // none: it is no type's name
uint32_t bytes_of(Type type);         // a predicate: 0

struct Operand {
    enum class Kind : uint8_t { reg, number, vector, address, sink } kind = Kind::sink;
    bool negated = false;    // "!%p"
    bool in_frame = false;   // an address: of a call's parameter, which lies in the lane's frame
    uint8_t bytes = 0;       // of a register's lane; a predicate's 0
    uint32_t at = kNoGuard;  // register; an address's base, or none
    uint64_t number = 0;     // an address's offset
    std::vector<Operand> parts;  // of a vector, or the second of "%r|%p"
};

struct Operation {
    std::string_view text;
    std::vector<std::string_view> parts;  // "add", "s32"
    std::vector<Operand> operands;

    bool has(std::string_view part) const;
    // The types among the parts, in their order; type(): the last.
    std::vector<Type> types() const;
    Type type() const;
    const Operand& operand(size_t i) const;
    [[noreturn]] void unknown(const char* why) const;
};

// What makes instructions may ask for room in the function.
class FunctionRoom {
  public:
    virtual ~FunctionRoom() = default;
    // A register that holds `bits` in every lane, of 8 bytes where `wide`, else of 4.
    virtual uint32_t constant(uint64_t bits, bool wide) = 0;
    // Keeps a list of registers; its number in Function::lists.
    virtual uint32_t list(std::vector<uint32_t> registers) = 0;

    // Sets register number `i` of the instruction: a register, or a number of the type's size.
    void put(Instruction& to, uint32_t i, const Operand& operand, Type type);
    // The same of what may stand in brackets: an address that is all in a register.
    void put_place(Instruction& to, uint32_t i, Operand operand, Type type);
};

// Each makes an instruction of an operation of its family. Errors: Fault, where it is none that is
// known.
using Builder = void (*)(const Operation&, FunctionRoom&, Instruction&);
// The one of that name, or null.
Builder find_builder(const std::map<std::string_view, Builder>& builders, std::string_view name);
Builder arithmetic_builder(std::string_view name);
Builder bits_builder(std::string_view name);
Builder move_builder(std::string_view name);
Builder convert_builder(std::string_view name);
Builder memory_builder(std::string_view name);
Builder copy_builder(std::string_view name);
Builder warp_builder(std::string_view name);
Builder matrix_builder(std::string_view name);
Builder barrier_builder(std::string_view name);
Builder warpgroup_builder(std::string_view name);

// Of "cp.async": what the copy engine does, and arrivals of other copies (bulk_copies.cpp).
void bulk_copies(const Operation& o, FunctionRoom& room, Instruction& to);

}  // namespace granary::test::ptx
