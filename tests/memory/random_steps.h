// SPDX-License-Identifier: GPL-3.0-or-later
// What property tests share: chance from a seed, and how many steps of it, from the command line.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>

namespace granary::test {

class Random {
  public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    uint64_t below(uint64_t n) { return engine_() % n; }
    uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
    bool one_in(uint64_t n) { return below(n) == 0; }
    template <class T>
    T of(std::initializer_list<T> list) {
        return list.begin()[below(list.size())];
    }

  private:
    std::mt19937_64 engine_;
};

// main() of such a test: `--steps N --seed S` after the options of GoogleTest.
inline int run_steps(int argc, char** argv, uint64_t& steps, uint64_t& seed) {
    ::testing::InitGoogleTest(&argc, argv);
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string name = argv[i];
        if (name != "--steps" && name != "--seed") return 1;
        (name == "--steps" ? steps : seed) = std::stoull(argv[i + 1]);
    }
    return RUN_ALL_TESTS();
}

}  // namespace granary::test
