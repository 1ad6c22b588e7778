// SPDX-License-Identifier: GPL-3.0-or-later
// Products of small matrices that lie spread over a warp's registers, and how they get there. Which
// lane holds which element: "Matrix Fragments for mma.m16n8k16" and the like in NVIDIA's "Parallel
// Thread Execution ISA".
#include "tests/gpu/ptx/half.h"
#include "tests/gpu/ptx/operation.h"
#include "tests/gpu/ptx/warp.h"

namespace granary::test::ptx {
namespace {

uint32_t word(const Warp& w, uint32_t at, uint32_t lane) {
    return lanes<uint32_t>(w, at)[lane].value;
}

// Of halves [16, kDepth] x [kDepth, 8], sums in f32. Registers: 0 the sums, 4 A, then B, then what
// is added.
template <uint32_t kDepth>
void multiply_halves(Warp& w, const Instruction& i) {
    constexpr uint32_t kRegsA = kDepth / 4, kRegsB = kDepth / 8;
    alignas(32) float a[16][kDepth], column[8][kDepth], b[kDepth][8];
    for (uint32_t group = 0; group < 8; ++group) {
        for (uint32_t r = 0; r < kRegsA; ++r)
            _mm256_store_ps(&a[group + r % 2 * 8][r / 2 * 8], eight_halves(w, i.at[4 + r], group));
        for (uint32_t r = 0; r < kRegsB; ++r)
            _mm256_store_ps(&column[group][r * 8], eight_halves(w, i.at[4 + kRegsA + r], group));
    }
    for (uint32_t k = 0; k < kDepth; ++k)
        for (uint32_t col = 0; col < 8; ++col) b[k][col] = column[col][k];
    // Eight rows of sums at a time: four lanes hold a row, its even columns in one register and its
    // odd ones in the next.
    for (uint32_t half = 0; half < 2; ++half) {
        __m256 sums[8];
        const float* const even = &lanes<float>(w, i.at[4 + kRegsA + kRegsB + 2 * half])[0].value;
        const float* const odd =
            &lanes<float>(w, i.at[4 + kRegsA + kRegsB + 2 * half + 1])[0].value;
        for (uint32_t row = 0; row < 8; ++row) {
            const __m128 e = _mm_loadu_ps(even + 4 * row), o = _mm_loadu_ps(odd + 4 * row);
            sums[row] = _mm256_set_m128(_mm_unpackhi_ps(e, o), _mm_unpacklo_ps(e, o));
        }
        for (uint32_t k = 0; k < kDepth; ++k) {
            const __m256 of_k = _mm256_load_ps(b[k]);
            for (uint32_t row = 0; row < 8; ++row)
                sums[row] =
                    _mm256_fmadd_ps(_mm256_broadcast_ss(&a[half * 8 + row][k]), of_k, sums[row]);
        }
        float* const to_even = &lanes<float>(w, i.at[2 * half])[0].value;
        float* const to_odd = &lanes<float>(w, i.at[2 * half + 1])[0].value;
        for (uint32_t row = 0; row < 8; ++row) {
            const __m128 low = _mm256_castps256_ps128(sums[row]);
            const __m128 high = _mm256_extractf128_ps(sums[row], 1);
            _mm_storeu_ps(to_even + 4 * row, _mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)));
            _mm_storeu_ps(to_odd + 4 * row, _mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));
        }
    }
}

// Of bytes [kRows, kDepth] x [kDepth, 8], sums in s32.
template <uint32_t kRows, uint32_t kDepth>
void multiply_bytes(Warp& w, const Instruction& i) {
    constexpr uint32_t kBands = kRows / 8, kRegsA = kBands * kDepth / 16, kRegsB = kDepth / 16,
                       kSums = kRows / 4;
    int32_t a[kRows][kDepth], b[kDepth][8], c[kRows][8];
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
        const uint32_t group = lane / 4, in_group = lane % 4;
        for (uint32_t r = 0; r < kRegsA; ++r)
            for (uint32_t k = 0; k < 4; ++k)
                a[group + r % kBands * 8][in_group * 4 + k + r / kBands * 16] =
                    static_cast<int8_t>(word(w, i.at[4 + r], lane) >> (8 * k));
        for (uint32_t r = 0; r < kRegsB; ++r)
            for (uint32_t k = 0; k < 4; ++k)
                b[in_group * 4 + k + r * 16][group] =
                    static_cast<int8_t>(word(w, i.at[4 + kRegsA + r], lane) >> (8 * k));
        for (uint32_t r = 0; r < kSums; ++r)
            c[group + r / 2 * 8][in_group * 2 + r % 2] =
                static_cast<int32_t>(word(w, i.at[4 + kRegsA + kRegsB + r], lane));
    }
    for (uint32_t row = 0; row < kRows; ++row)
        for (uint32_t k = 0; k < kDepth; ++k)
            for (uint32_t col = 0; col < 8; ++col) c[row][col] += a[row][k] * b[k][col];
    for (uint32_t lane = 0; lane < kLanes; ++lane)
        for (uint32_t r = 0; r < kSums; ++r)
            lanes<int32_t>(w, i.at[r])[lane].value = c[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2];
}

void products(const Operation& o, FunctionRoom& room, Instruction& to) {
    const bool bytes = o.has("s8");
    if (o.has("m16n8k16") && o.has("f32"))
        to.run = multiply_halves<16>;
    else if (o.has("m16n8k8") && o.has("f32"))
        to.run = multiply_halves<8>;
    else if (o.has("m16n8k16") && bytes)
        to.run = multiply_bytes<16, 16>;
    else if (o.has("m16n8k32") && bytes)
        to.run = multiply_bytes<16, 32>;
    else if (o.has("m8n8k16") && bytes)
        to.run = multiply_bytes<8, 16>;
    if (!to.run || o.has("satfinite") ||
        (!bytes && o.types() != std::vector{Type::f32, Type::f16, Type::f16, Type::f32}))
        o.unknown("not known");
    uint32_t at = 0;
    for (uint32_t v = 0; v < 4; ++v) {
        if (v == 1) at = 4;  // sums may be two
        const Operand& given = o.operand(v);
        const std::vector<Operand> one{given};
        for (const Operand& part : given.kind == Operand::Kind::vector ? given.parts : one)
            room.put(to, at++, part, Type::b32);
    }
    to.control = Control::together;
}

// Element [row, col] of 8 x 8 halves, two in a register: lane 4 * row + col / 2 holds it.
template <bool kTransposed>
uint32_t spread(const uint16_t (&matrix)[8][8], uint32_t lane) {
    const uint32_t major = lane / 4, minor = lane % 4 * 2;
    if (kTransposed) return matrix[minor][major] | uint32_t{matrix[minor + 1][major]} << 16;
    return matrix[major][minor] | uint32_t{matrix[major][minor + 1]} << 16;
}

// parts: matrices; each eight lanes say where the rows of one begin. Register 4 is the address.
template <bool kTransposed>
void load_matrices(Warp& w, const Instruction& i) {
    uint16_t matrices[4][8][8] = {};
    for (uint32_t m = 0; m < i.parts; ++m) {
        for (uint32_t row = 0; row < 8; ++row) {
            const uint64_t at = bits(w, i, 4, 8 * m + row) + i.value;
            if (at % 16 != 0) fault(*w.block, i, "an address that is not aligned");
            std::memcpy(matrices[m][row], shared_at(*w.block, at, 16, i), 16);
            note_read(w, kNoLane, at, 16, i);
        }
    }
    for (uint32_t m = 0; m < i.parts; ++m)
        for (uint32_t lane = 0; lane < kLanes; ++lane)
            set_bits(w, i, m, lane, spread<kTransposed>(matrices[m], lane));
}

// The inverse, of parts.
void store_matrices(Warp& w, const Instruction& i) {
    for (uint32_t m = 0; m < i.parts; ++m) {
        uint16_t matrix[8][8];
        for (uint32_t lane = 0; lane < kLanes; ++lane)
            for (uint32_t h = 0; h < 2; ++h)
                matrix[lane % 4 * 2 + h][lane / 4] =
                    static_cast<uint16_t>(word(w, i.at[m], lane) >> (16 * h));
        for (uint32_t row = 0; row < 8; ++row) {
            const uint64_t at = bits(w, i, 4, 8 * m + row) + i.value;
            if (at % 16 != 0) fault(*w.block, i, "an address that is not aligned");
            std::memcpy(shared_at(*w.block, at, 16, i), matrix[row], 16);
            note_write(w, kNoLane, at, 16, i);
        }
    }
}

void matrix_moves(const Operation& o, FunctionRoom& room, Instruction& to) {
    const bool loads = o.parts[0] == "ldmatrix";
    to.parts = o.has("x4") ? 4 : o.has("x2") ? 2 : 1;
    const Operand& target = o.operand(loads ? 0 : 1);
    if (!o.has("m8n8") || !o.has("b16") || target.kind != Operand::Kind::vector ||
        target.parts.size() != to.parts)
        o.unknown("not known");
    for (uint32_t m = 0; m < to.parts; ++m) room.put(to, m, target.parts[m], Type::b32);
    Operand base = o.operand(loads ? 1 : 0);
    to.value = base.number;
    base.kind = Operand::Kind::reg;
    room.put(to, 4, base, Type::b32);
    if (!loads && !o.has("trans")) o.unknown("not known");
    to.run = !loads ? store_matrices : o.has("trans") ? load_matrices<true> : load_matrices<false>;
    to.control = Control::together;
}

void transpose(Warp& w, const Instruction& i) {
    uint16_t matrix[8][8];
    for (uint32_t lane = 0; lane < kLanes; ++lane)
        for (uint32_t h = 0; h < 2; ++h)
            matrix[lane / 4][lane % 4 * 2 + h] =
                static_cast<uint16_t>(word(w, i.at[1], lane) >> (16 * h));
    for (uint32_t lane = 0; lane < kLanes; ++lane)
        set_bits(w, i, 0, lane, spread<true>(matrix, lane));
}
void transpositions(const Operation& o, FunctionRoom& room, Instruction& to) {
    if (!o.has("trans")) o.unknown("not known");
    room.put(to, 0, o.operand(0), Type::b32);
    room.put(to, 1, o.operand(1), Type::b32);
    to.run = transpose;
    to.control = Control::together;
}

}  // namespace

Builder matrix_builder(std::string_view name) {
    static const std::map<std::string_view, Builder> builders{{"mma", products},
                                                              {"ldmatrix", matrix_moves},
                                                              {"stmatrix", matrix_moves},
                                                              {"movmatrix", transpositions}};
    return find_builder(builders, name);
}

}  // namespace granary::test::ptx
