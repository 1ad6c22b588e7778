// SPDX-License-Identifier: GPL-3.0-or-later
// Hashing for the tables of a vocabulary. Seeded, so that a file made to collide cannot.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace granary::text {

// The two halves of a 128-bit product, folded: every input bit reaches every output bit.
inline uint64_t fold_multiply(uint64_t a, uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline constexpr uint64_t hash_multiplier = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio

inline uint64_t hash_bytes(std::string_view bytes, uint64_t seed) {
    uint64_t hash = seed ^ bytes.size();
    const char* at = bytes.data();
    size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t word;
        std::memcpy(&word, at, 8);
        hash = fold_multiply(hash ^ word, hash_multiplier);
    }
    uint64_t word = 0;
    if (left > 0) std::memcpy(&word, at, left);
    hash = fold_multiply(hash ^ word, hash_multiplier);
    return hash ^ (hash >> 32);
}

// Another number on every call and in every process. It decides where entries lie in a table,
// never what a look-up gives.
inline uint64_t hash_seed() {
    const int here = 0;
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    return fold_multiply(static_cast<uint64_t>(now) ^ hash_multiplier,
                         reinterpret_cast<uintptr_t>(&here) | 1);
}

}  // namespace granary::text
