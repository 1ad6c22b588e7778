// SPDX-License-Identifier: GPL-3.0-or-later
// Unpacking weight rows to a tile with vectors whose lanes are rows: 16 bytes of each row are
// transposed, then each vector holds four columns of Isa::kRows rows. The formats are those of
// decode.cpp, decode_k.cpp and decode_iq.cpp; no load leaves a row's block.
//
// Isa is a struct in the unnamed namespace of the file that includes this one, so that no code
// for one instruction set can be linked into another.
#pragma once

#include "gpu/host/tile.h"
#include "gpu/host/unroll.h"

namespace granary::gpu::host {

template <class Isa>
struct Unpacker {
    using Int = typename Isa::Int;
    using Float = typename Isa::Float;

    const std::byte* rows[Isa::kRows];  // the current block of each row
    Tile* tile;
    uint32_t first_row;

    void put(size_t quad, Int codes) const { Isa::store(tile->codes[quad][first_row], codes); }
    void put_scale(size_t index, Float scale) const {
        Isa::store(tile->scale[index] + first_row, scale);
    }
    void put_minimum(size_t index, Float minimum) const {
        Isa::store(tile->minimum[index] + first_row, minimum);
    }
    void words(size_t offset, Int out[4]) const { Isa::transpose(rows, offset, out); }
    Int word(size_t offset, size_t number) const {
        Int all[4];
        words(offset, all);
        return all[number];
    }
    static Int low_nibbles(Int v) { return Isa::both(v, Isa::bytes(15)); }
    static Int high_nibbles(Int v) { return low_nibbles(Isa::right(v, 4)); }
    static Float upper_half(Int v) { return Isa::half(Isa::right(v, 16)); }

    // 16 bytes of nibbles: low ones for quads 0 to 3, high ones for quads `apart` later.
    template <class F>
    void nibbles(size_t offset, size_t quad, size_t apart, F&& finish) const {
        Int word[4];
        words(offset, word);
        GRANARY_UNROLL
        for (size_t i = 0; i < 4; ++i) {
            put(quad + i, finish(low_nibbles(word[i]), i));
            put(quad + apart + i, finish(high_nibbles(word[i]), apart + i));
        }
    }
    static Int as_it_is(Int codes, size_t) { return codes; }

    // ---- blocks of 32 --------------------------------------------------------------------

    void q4_0(uint32_t group) const {
        nibbles(2, group * 8, 4, as_it_is);
        put_scale(group, Isa::half(word(0, 0)));
    }
    void q4_1(uint32_t group) const {
        nibbles(4, group * 8, 4, as_it_is);
        const Int head = word(0, 0);
        put_scale(group, Isa::half(head));
        put_minimum(group, Isa::minus(upper_half(head)));
    }
    // Four bits of the row's 32 to bit 4 of four bytes: x * (1 + 2^7 + 2^14 + 2^21) puts bit i of
    // a nibble at bit 8 i.
    static auto with_fifth_bits(Int bits) {
        return [bits](Int codes, size_t quad) {
            const Int four =
                Isa::both(Isa::right(bits, static_cast<int>(4 * quad)), Isa::words(15));
            const Int spread = Isa::both(Isa::times(four, Isa::words(0x204081)), Isa::bytes(1));
            return Isa::either(codes, Isa::left(spread, 4));
        };
    }
    void q5_0(uint32_t group) const {
        nibbles(6, group * 8, 4, with_fifth_bits(word(2, 0)));
        put_scale(group, Isa::half(word(0, 0)));
    }
    void q5_1(uint32_t group) const {
        nibbles(8, group * 8, 4, with_fifth_bits(word(4, 0)));
        const Int head = word(0, 0);
        put_scale(group, Isa::half(head));
        put_minimum(group, Isa::minus(upper_half(head)));
    }
    void q8_0(uint32_t group) const {
        for (size_t part = 0; part < 2; ++part) {
            Int word[4];
            words(2 + 16 * part, word);
            GRANARY_UNROLL
            for (size_t i = 0; i < 4; ++i)
                put(group * 8 + part * 4 + i, Isa::differ(word[i], Isa::bytes(0x80)));
        }
        put_scale(group, Isa::half(word(0, 0)));
    }
    static auto in_table(const uint8_t* table) {
        return [all = Isa::table(table)](Int codes, size_t) { return Isa::lookup(all, codes); };
    }
    void iq4_nl(uint32_t group) const {
        nibbles(2, group * 8, 4, in_table(kNonlinearCodes));
        put_scale(group, Isa::half(word(0, 0)));
    }
    void mxfp4(uint32_t group) const {
        nibbles(1, group * 8, 4, in_table(kMxfp4Codes));
        for (uint32_t r = 0; r < Isa::kRows; ++r)
            tile->scale[group][first_row + r] = mxfp4_scale(rows[r][0]);
    }

    // ---- blocks of 256 -------------------------------------------------------------------

    // d, dmin and eight pairs of 6-bit scale and minimum, see six_bit_pair in decode_k.cpp.
    void pairs(uint32_t group) const {
        Int head[4];
        words(0, head);
        const Float d = Isa::half(head[0]), dmin = upper_half(head[0]);
        const Int six = Isa::words(63), four = Isa::words(15), upper = Isa::words(48);
        GRANARY_UNROLL
        for (int i = 0; i < 4; ++i) {
            const Int scale = Isa::both(Isa::right(head[1], 8 * i), six);
            const Int minimum = Isa::both(Isa::right(head[2], 8 * i), six);
            const Int low = Isa::right(head[3], 8 * i);
            const Int late_scale =
                Isa::either(Isa::both(low, four), Isa::both(Isa::right(head[1], 8 * i + 2), upper));
            const Int late_minimum = Isa::either(Isa::both(Isa::right(low, 4), four),
                                                 Isa::both(Isa::right(head[2], 8 * i + 2), upper));
            const uint32_t at = group + static_cast<uint32_t>(i);
            put_scale(at, Isa::mul(d, Isa::to_float(scale)));
            put_minimum(at, Isa::mul(dmin, Isa::to_float(minimum)));
            put_scale(at + 4, Isa::mul(d, Isa::to_float(late_scale)));
            put_minimum(at + 4, Isa::mul(dmin, Isa::to_float(late_minimum)));
        }
    }
    void q4_k(uint32_t group) const {
        pairs(group);
        for (uint32_t part = 0; part < 8; ++part)
            nibbles(16 + 16 * part, (group + part / 2 * 2) * 8 + part % 2 * 4, 8, as_it_is);
    }
    void q5_k(uint32_t group) const {
        pairs(group);
        Int high[8];  // bit g of each byte: the fifth bit of group g
        words(16, high);
        words(32, high + 4);
        for (uint32_t part = 0; part < 8; ++part) {
            const int even = static_cast<int>(part / 2 * 2);
            nibbles(48 + 16 * part, (group + part / 2 * 2) * 8 + part % 2 * 4, 8,
                    [&](Int codes, size_t quad) {
                        const int g = even + (quad >= 8);
                        const Int bit =
                            Isa::both(Isa::right(high[part % 2 * 4 + quad % 8], g), Isa::bytes(1));
                        return Isa::either(codes, Isa::left(bit, 4));
                    });
        }
    }
    void q6_k(uint32_t group) const {
        const Int high = Isa::bytes(48);
        const auto join = [&](Int nibbles, Int bits) {
            return Isa::either(nibbles, Isa::both(bits, high));
        };
        for (uint32_t half = 0; half < 2; ++half) {
            for (uint32_t part = 0; part < 2; ++part) {
                Int first[4], second[4], upper[4];
                words(64 * half + 16 * part, first);        // groups 0 and 2
                words(64 * half + 32 + 16 * part, second);  // groups 1 and 3
                words(128 + 32 * half + 16 * part, upper);
                GRANARY_UNROLL
                for (size_t i = 0; i < 4; ++i) {
                    const size_t quad = (group + 4 * half) * 8 + part * 4 + i;
                    put(quad, join(low_nibbles(first[i]), Isa::left(upper[i], 4)));
                    put(quad + 8, join(low_nibbles(second[i]), Isa::left(upper[i], 2)));
                    put(quad + 16, join(high_nibbles(first[i]), upper[i]));
                    put(quad + 24, join(high_nibbles(second[i]), Isa::right(upper[i], 2)));
                }
            }
        }
        const Float d = upper_half(word(194, 3));
        Int scales[4];
        words(192, scales);
        GRANARY_UNROLL
        for (int i = 0; i < 16; ++i)
            put_scale(2 * group + static_cast<uint32_t>(i),
                      Isa::mul(d, Isa::to_float(Isa::signed_byte(scales[i / 4], i % 4))));
    }
    // Each 128 weights: group j of four is bits 2 j, 2 j + 1 of 32 bytes.
    template <class F>
    void two_bits(size_t offset, uint32_t group, F&& finish) const {
        for (uint32_t part = 0; part < 4; ++part) {
            Int word[4];
            words(offset + 16 * part, word);
            GRANARY_UNROLL
            for (size_t i = 0; i < 4; ++i) {
                GRANARY_UNROLL
                for (uint32_t j = 0; j < 4; ++j) {
                    const Int codes =
                        Isa::both(Isa::right(word[i], static_cast<int>(2 * j)), Isa::bytes(3));
                    const uint32_t of_block = part / 2 * 4 + j;
                    put((group + of_block) * 8 + part % 2 * 4 + i,
                        finish(codes, of_block, part % 2 * 4 + i));
                }
            }
        }
    }
    void q2_k(uint32_t group) const {
        two_bits(16, group, [](Int codes, uint32_t, size_t) { return codes; });
        const Int head = word(68, 3);
        const Float d = Isa::half(head), dmin = upper_half(head);
        Int scales[4];
        words(0, scales);
        GRANARY_UNROLL
        for (int i = 0; i < 16; ++i) {
            const Int both = Isa::right(scales[i / 4], i % 4 * 8);
            const uint32_t at = 2 * group + static_cast<uint32_t>(i);
            put_scale(at, Isa::mul(d, Isa::to_float(Isa::both(both, Isa::words(15)))));
            put_minimum(
                at, Isa::mul(dmin, Isa::to_float(Isa::both(Isa::right(both, 4), Isa::words(15)))));
        }
    }
    void q3_k(uint32_t group) const {
        Int high[8];  // bit g of each byte: the third bit of group g
        words(0, high);
        words(16, high + 4);
        two_bits(32, group, [&](Int codes, uint32_t of_block, size_t quad) {
            const Int bit =
                Isa::both(Isa::right(high[quad], static_cast<int>(of_block)), Isa::bytes(1));
            return Isa::either(codes, Isa::left(bit, 2));
        });
        Int tail[4];  // two bytes of codes, twelve of scales, d
        words(94, tail);
        const Float d = upper_half(tail[3]);
        Int scales[3];
        GRANARY_UNROLL
        for (int i = 0; i < 3; ++i)
            scales[i] = Isa::either(Isa::right(tail[i], 16), Isa::left(tail[i + 1], 16));
        GRANARY_UNROLL
        for (int i = 0; i < 16; ++i) {  // see unpack_q3_k
            const Int low =
                Isa::both(Isa::right(scales[i % 8 / 4], i % 4 * 8 + i / 8 * 4), Isa::words(15));
            const Int upper =
                Isa::both(Isa::right(scales[2], i % 4 * 8 + i / 4 * 2), Isa::words(3));
            const Int scale = Isa::subtract(Isa::either(low, Isa::left(upper, 4)), Isa::words(32));
            put_scale(2 * group + static_cast<uint32_t>(i), Isa::mul(d, Isa::to_float(scale)));
        }
    }
    void iq4_xs(uint32_t group) const {
        Int head[4];  // d, eight times two high scale bits; eight times four low ones
        words(0, head);
        const Float d = Isa::half(head[0]);
        const auto table = in_table(kNonlinearCodes);
        for (uint32_t i = 0; i < 8; ++i) {
            nibbles(8 + 16 * i, (group + i) * 8, 4, table);
            const auto shift = static_cast<int>(i);
            const Int low = Isa::both(Isa::right(head[1], 4 * shift), Isa::words(15));
            const Int high = Isa::both(Isa::right(head[0], 16 + 2 * shift), Isa::words(3));
            const Int scale = Isa::subtract(Isa::either(low, Isa::left(high, 4)), Isa::words(32));
            put_scale(group + i, Isa::mul(d, Isa::to_float(scale)));
        }
    }
};

// Runs one of Unpacker's functions over the blocks of a tile.
template <class Isa>
void unpack_blocks(void (Unpacker<Isa>::*unpack)(uint32_t) const, uint32_t groups_per_block,
                   size_t block_bytes, const TileWeights& weights, uint32_t first_group,
                   uint32_t groups, Tile* tile) {
    for (uint32_t row = 0; row < kTileRows; row += Isa::kRows) {
        Unpacker<Isa> unpacker;
        unpacker.tile = tile;
        unpacker.first_row = row;
        for (uint32_t r = 0; r < Isa::kRows; ++r) {
            const uint32_t real = row + r < weights.rows ? row + r : weights.rows - 1;
            unpacker.rows[r] = weights.row + real * weights.row_bytes +
                               first_group / groups_per_block * block_bytes;
        }
        for (uint32_t group = 0; group < groups; group += groups_per_block) {
            (unpacker.*unpack)(group);
            // Sixteen streams are more than processors prefetch by themselves: fetch the same
            // lines of the next tile. What lies past the end is not read.
            if (group / groups_per_block * block_bytes % 64 < block_bytes)
                for (const std::byte* block : unpacker.rows)
                    for (size_t byte = 0; byte < block_bytes; byte += 64)
                        __builtin_prefetch(block + kTileRows * weights.row_bytes + byte, 0, 2);
            for (const std::byte*& block : unpacker.rows) block += block_bytes;
        }
    }
}

template <class Isa>
void unpack_tile(const TileWeights& weights, uint32_t first_group, uint32_t groups, Tile* tile) {
    using U = Unpacker<Isa>;
    const auto run = [&](void (U::*unpack)(uint32_t) const, uint32_t per_block, size_t bytes) {
        unpack_blocks<Isa>(unpack, per_block, bytes, weights, first_group, groups, tile);
    };
    switch (weights.type) {
        case WeightType::q4_0:
            return run(&U::q4_0, 1, 18);
        case WeightType::q4_1:
            return run(&U::q4_1, 1, 20);
        case WeightType::q5_0:
            return run(&U::q5_0, 1, 22);
        case WeightType::q5_1:
            return run(&U::q5_1, 1, 24);
        case WeightType::q8_0:
            return run(&U::q8_0, 1, 34);
        case WeightType::iq4_nl:
            return run(&U::iq4_nl, 1, 18);
        case WeightType::mxfp4:
            return run(&U::mxfp4, 1, 17);
        case WeightType::q2_k:
            return run(&U::q2_k, 8, 84);
        case WeightType::q3_k:
            return run(&U::q3_k, 8, 110);
        case WeightType::q4_k:
            return run(&U::q4_k, 8, 144);
        case WeightType::q5_k:
            return run(&U::q5_k, 8, 176);
        case WeightType::q6_k:
            return run(&U::q6_k, 8, 210);
        case WeightType::iq4_xs:
            return run(&U::iq4_xs, 8, 136);
        default:
            return unpack_any(weights, first_group, groups, tile);
    }
}

}  // namespace granary::gpu::host
