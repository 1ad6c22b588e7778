// SPDX-License-Identifier: GPL-3.0-or-later
// Products of the four warps of a group, whose factors lie in shared memory: in rows of 128 bytes
// in swizzled order, which is the one layout that is known here. Each warp makes its own 16 rows.
#include "tests/gpu/ptx/half.h"
#include "tests/gpu/ptx/operation.h"
#include "tests/gpu/ptx/tensor_map.h"
#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {
namespace {

constexpr uint32_t kRows = 16, kDepth = 16, kMostColumns = 256;
constexpr uint64_t kSharedA = 1, kTransposedB = 2;  // flags

// A factor in shared memory, by the fields of its description.
class Factor {
  public:
    Factor(Warp& w, const Instruction& i, uint64_t description)
        : warp_(w),
          instruction_(i),
          begin_((description & 0x3fff) << 4),
          next_((description >> 16 & 0x3fff) << 4),
          group_((description >> 32 & 0x3fff) << 4) {
        if (description >> 62 != 1) fault(*w.block, i, "another layout than rows of 128 bytes");
    }
    // Element `k` of row `outer`: rows of `k`, in groups of eight.
    float at(uint32_t outer, uint32_t k) const {
        const uint32_t row = begin_ + outer / 8 * group_ + outer % 8 * 128;
        if (k % 8 == 0) note_read(warp_, kNoLane, swizzled(row + 2 * k), 16, instruction_);
        return half(row + 2 * k);
    }
    // The same where rows run along k, 64 of the outer dimension in each.
    float transposed(uint32_t outer, uint32_t k) const {
        const uint32_t row = begin_ + outer / 64 * next_ + k / 8 * group_ + k % 8 * 128;
        if (outer % 8 == 0)
            note_read(warp_, kNoLane, swizzled(row + outer % 64 * 2), 16, instruction_);
        return half(row + outer % 64 * 2);
    }

  private:
    float half(uint32_t at) const {
        uint16_t value;
        std::memcpy(&value, shared_at(*warp_.block, swizzled(at), 2, instruction_), 2);
        return from_half(value);
    }
    Warp& warp_;
    const Instruction& instruction_;
    uint32_t begin_, next_, group_;
};

// Registers: 0 to 3 A, or 0 its description; 4 B's; 5 whether what the sums hold is added to.
// value: flags, and from bit 8 on the number of the list of sums.
void multiply(Warp& w, const Instruction& i) {
    const std::vector<uint32_t>& sums = w.block->function->lists[i.value >> 8];
    const auto columns = static_cast<uint32_t>(sums.size() * 2);
    alignas(32) float a[kRows][kDepth], b[kDepth][kMostColumns], c[kRows][kMostColumns];
    if (i.value & kSharedA) {
        const Factor factor(w, i, bits(w, i, 0, 0));
        for (uint32_t row = 0; row < kRows; ++row)
            for (uint32_t k = 0; k < kDepth; ++k)
                a[row][k] = factor.at(w.number % 4 * kRows + row, k);
    } else {
        for (uint32_t r = 0; r < 4; ++r)
            for (uint32_t group = 0; group < 8; ++group)
                _mm256_store_ps(&a[group + r % 2 * 8][r / 2 * 8], eight_halves(w, i.at[r], group));
    }
    const Factor factor(w, i, bits(w, i, 4, 0));
    for (uint32_t col = 0; col < columns; ++col)
        for (uint32_t k = 0; k < kDepth; ++k)
            b[k][col] = i.value & kTransposedB ? factor.transposed(col, k) : factor.at(col, k);
    // Lane 4 g + t holds, of eight columns each, rows g and g + 8 of columns 2 t and 2 t + 1.
    const bool adds = predicate(w, i.at[5]) & 1;
    for (uint32_t s = 0; s < sums.size(); ++s)
        for (uint32_t lane = 0; lane < kLanes; ++lane)
            c[lane / 4 + s % 4 / 2 * 8][s / 4 * 8 + lane % 4 * 2 + s % 2] =
                adds ? lanes<float>(w, sums[s])[lane].value : 0.0f;
    for (uint32_t row = 0; row < kRows; ++row)
        for (uint32_t k = 0; k < kDepth; ++k) {
            const __m256 of_row = _mm256_set1_ps(a[row][k]);
            for (uint32_t col = 0; col < columns; col += 8)
                _mm256_store_ps(&c[row][col], _mm256_fmadd_ps(of_row, _mm256_load_ps(&b[k][col]),
                                                              _mm256_load_ps(&c[row][col])));
        }
    for (uint32_t s = 0; s < sums.size(); ++s)
        for (uint32_t lane = 0; lane < kLanes; ++lane)
            lanes<float>(w, sums[s])[lane].value =
                c[lane / 4 + s % 4 / 2 * 8][s / 4 * 8 + lane % 4 * 2 + s % 2];
}

void products(const Operation& o, FunctionRoom& room, Instruction& to) {
    if (!o.has("mma_async")) {  // fences and waits: products are made at once here
        to.control = Control::nothing;
        return;
    }
    const Operand& sums = o.operand(0);
    const bool registers = o.operand(1).kind == Operand::Kind::vector;
    if (o.types() != std::vector{Type::f32, Type::f16, Type::f16} || sums.parts.size() % 8 != 0 ||
        sums.parts.size() * 2 > kMostColumns || o.operands.size() < 7)
        o.unknown("not in this form");
    std::vector<uint32_t> list;
    for (const Operand& part : sums.parts) list.push_back(part.at);
    to.value = uint64_t{room.list(std::move(list))} << 8;
    if (registers) {
        for (uint32_t r = 0; r < 4; ++r) room.put(to, r, o.operand(1).parts.at(r), Type::b32);
    } else {
        to.value |= kSharedA;
        room.put(to, 0, o.operand(1), Type::b64);
        if (o.operand(6).number != 0) o.unknown("A transposed");
    }
    room.put(to, 4, o.operand(2), Type::b64);
    to.at[5] = o.operand(3).at;
    if (o.operand(4).number != 1 || o.operand(5).number != 1) o.unknown("a factor negated");
    if (o.operands.back().number != 0) to.value |= kTransposedB;
    to.control = Control::together;
    to.run = multiply;
}

}  // namespace

Builder warpgroup_builder(std::string_view name) {
    return name == "wgmma" ? products : nullptr;
}

}  // namespace granary::test::ptx
