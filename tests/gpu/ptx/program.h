// SPDX-License-Identifier: GPL-3.0-or-later
// A kernel as it is executed: instructions with the places of their registers, for a warp of 32
// lanes at a time. PTX, NVIDIA's portable device code, is described in "Parallel Thread Execution
// ISA"; what stands here is its meaning, not its speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/gpu/ptx/tokens.h"

namespace granary::test::ptx {

inline constexpr uint32_t kLanes = 32, kAll = ~uint32_t{0};

struct Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&);

enum class Control : uint8_t {
    none,
    nothing,   // it only tells hardware what to expect: not kept
    branch,    // to `target`, where the guard holds
    exit,      // of the lanes where the guard holds
    together,  // once all lanes that it names have come
    barrier,   // of warps: what the handler asks for
};

inline constexpr uint32_t kNoGuard = ~uint32_t{0};

struct Instruction {
    Handler run = nullptr;
    Control control = Control::none;
    bool unless = false;        // the guard is negated
    uint8_t wide = 0;           // bit i: register i has 8 bytes a lane, not 4
    uint8_t parts = 1;          // of a vector that is loaded or stored
    uint32_t guard = kNoGuard;  // where the predicate lies
    uint32_t target = 0;
    std::array<uint32_t, 15> at{};  // registers, as bytes from the warp's first
    uint64_t value = 0;             // a number that belongs to the operation
    uint32_t members = kNoGuard;    // register of the lanes that come together; none: all
    std::string_view text;          // the operation, for messages

    bool is_wide(uint32_t i) const { return wide >> i & 1; }
};

// Values that do not change from lane to lane, or are a lane's number; set before a warp starts.
enum class Special : uint8_t {
    tid_x,
    tid_y,
    tid_z,
    ntid_x,
    ntid_y,
    ntid_z,
    ctaid_x,
    ctaid_y,
    ctaid_z,
    nctaid_x,
    nctaid_y,
    nctaid_z,
    laneid,
};

struct Function {
    std::string name;
    std::vector<Instruction> code;
    uint32_t register_bytes = 0;  // of a warp
    struct Constant {
        uint32_t at;
        uint64_t bits;
        bool wide;
    };
    std::vector<Constant> constants;
    struct SpecialAt {
        uint32_t at;
        Special special;
    };
    std::vector<SpecialAt> specials;
    std::vector<std::vector<uint32_t>> lists;  // registers, of operations with many
    uint32_t parameter_bytes = 0;
    std::vector<uint32_t> parameters;  // bytes of each, for launches
    std::vector<uint32_t> parameter_at;
    uint32_t frame_bytes = 0;   // local memory of a lane
    uint32_t shared_bytes = 0;  // of a block, but for what a launch adds
    uint32_t added_at = 0;      // where that begins: behind all that could stand before it
    uint32_t threads = 1024;    // a block has at most
};

// A text that was compiled for a card, and its variables. Functions are decoded when they are first
// asked for.
class Module {
  public:
    // Errors: Fault.
    explicit Module(std::string text);
    ~Module();
    // Null: there is no such kernel. Errors: Fault, for what is not known here.
    const Function* kernel(const std::string& name);
    int target() const;  // 80: written for capability 8.0

    // Variables in global memory, which kernels may read and write.
    struct Variable {
        std::unique_ptr<std::byte[]> memory;
        std::byte* at = nullptr;  // aligned
        size_t bytes = 0;
    };
    const std::map<std::string_view, Variable>& variables() const;

    struct Parts;

  private:
    std::unique_ptr<Parts> parts_;
    std::map<std::string, std::unique_ptr<Function>> kernels_;
};

}  // namespace granary::test::ptx
