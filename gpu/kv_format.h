// SPDX-License-Identifier: GPL-3.0-or-later
// The formats of K/V cells: which codes K and V have, and where they lie in a step. The one place
// that answers how many bytes a cell takes.
//
// int8 and int4 keep a head's values as small integers with an FP16 scale s for each group of 64
// (int8) or 32 (int4) of them, or for what is left at the end of a head: groups never cross a head.
//   s = fp16(max|x| / 127) or fp16(max|x| / 7); code = clamp(rint(x / s)) with that rounded s,
//   in -127..127 or -7..7; s = 0 gives codes 0. A value is code * s again.
// int4 values are kept rotated: see KvPart::rotated. Their codes are two's complement nibbles. A
// group of n values takes n / 2 bytes: byte i holds value i in its low nibble and value n / 2 + i
// in its high one, so that masks and shifts of whole words give neighbouring values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace granary::gpu {

// k8v4: K as int8, V as int4. q4: both int4. f32 is a test format.
enum class KvFormat : uint8_t { f16, int8, k8v4, q4, f32 };

constexpr std::string_view kv_format_name(KvFormat format) {
    constexpr std::string_view names[] = {"f16", "int8", "k8v4", "q4", "f32"};
    return names[static_cast<size_t>(format)];
}

enum class KvCodes : uint8_t { f16, f32, int8, int4 };

constexpr KvCodes k_codes(KvFormat format) {
    constexpr KvCodes codes[] = {KvCodes::f16, KvCodes::int8, KvCodes::int8, KvCodes::int4,
                                 KvCodes::f32};
    return codes[static_cast<size_t>(format)];
}
constexpr KvCodes v_codes(KvFormat format) {
    return format == KvFormat::k8v4 ? KvCodes::int4 : k_codes(format);
}

// Values that share a scale; 0: the codes have none.
constexpr uint32_t kv_group(KvCodes codes) {
    return codes == KvCodes::int8 ? 64 : codes == KvCodes::int4 ? 32 : 0;
}
// Bytes of one head's codes and of its scales; head_dim is a multiple of 8.
constexpr size_t kv_code_bytes(KvCodes codes, uint32_t head_dim) {
    constexpr size_t half_bytes[] = {4, 8, 2, 1};
    return head_dim * half_bytes[static_cast<size_t>(codes)] / 2;
}
constexpr size_t kv_scale_bytes(KvCodes codes, uint32_t head_dim) {
    const uint32_t group = kv_group(codes);
    return group == 0 ? 0 : (head_dim + group - 1) / group * sizeof(uint16_t);
}

inline constexpr uint32_t kStepCells = 1024;

// K or V of one attention layer in a step: the codes of kStepCells cells, then their scales. A
// cell's row holds [kv_heads, head_dim] codes or [kv_heads, groups] scales.
struct KvPart {
    KvCodes codes = KvCodes::f16;
    size_t code_offset = 0, scale_offset = 0;  // from the layer's place in a step
    size_t code_row = 0, scale_row = 0;        // bytes of one cell
    // A Walsh-Hadamard rotation spreads a head's outliers over all its values before they are
    // rounded to 4 bits: in runs of the largest power of two d that divides the head, scaled
    // 1 / sqrt(d). It is its own inverse and keeps q . k, so q is rotated like K, and the output of
    // attention is rotated back like V.
    bool rotated() const { return codes == KvCodes::int4; }
};

// One attention layer's cells in a step: K codes, K scales, V codes, V scales.
struct KvParts {
    KvPart k, v;
    size_t bytes = 0;  // a multiple of 2 * kStepCells
};
constexpr KvParts kv_parts(KvCodes k, KvCodes v, uint32_t kv_heads, uint32_t head_dim) {
    KvParts parts;
    const auto lay = [&](KvCodes codes) {
        KvPart part{codes, parts.bytes, 0, kv_heads * kv_code_bytes(codes, head_dim),
                    kv_heads * kv_scale_bytes(codes, head_dim)};
        part.scale_offset = part.code_offset + part.code_row * kStepCells;
        parts.bytes = part.scale_offset + part.scale_row * kStepCells;
        return part;
    };
    parts.k = lay(k);
    parts.v = lay(v);
    return parts;
}
constexpr KvParts kv_parts(KvFormat format, uint32_t kv_heads, uint32_t head_dim) {
    return kv_parts(k_codes(format), v_codes(format), kv_heads, head_dim);
}

// Where generated tokens go, in device memory: what changes from token to token lies there and not
// in the arguments of kernels, so that a recorded step can be replayed.
struct DecodePlace {
    std::byte* kv = nullptr;  // base of the conversation's range
    uint32_t first_cell = 0;  // of the first token
    uint32_t tick = 0;        // of heat
};

// The K/V cells of one layer of one conversation. The range is step-major: row c of a part lies in
// step c / kStepCells at base + step * step_bytes + offset + (c % kStepCells) * row.
struct KvView {
    std::byte* base = nullptr;  // the layer's place in the first step; null where `place` is given
    size_t step_bytes = 0;      // all layers of one step
    KvPart k, v;
    const DecodePlace* place = nullptr;  // decode: base is place->kv + offset
    size_t offset = 0;                   // of the layer's place in a step
};

}  // namespace granary::gpu
