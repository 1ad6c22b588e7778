// SPDX-License-Identifier: GPL-3.0-or-later
// A card whose kernels are those of the memory's self-check, written out by hand: it needs no
// compiler of device code.
#include "gpu/cuda/pattern.h"
#include "tests/gpu/card/kernels.h"

namespace granary::test::card {

struct Kernel {
    std::string name;
    bool counts;
};

const Facts& facts() {
    static constexpr Facts kFacts{"Card of the tests", 512 << 20, 86, 99 << 10};
    return kFacts;
}

const Kernel* find_kernel(const std::string& name) {
    static const std::array kernels{Kernel{"write_pattern", false}, Kernel{"count_wrong", true}};
    for (const Kernel& kernel : kernels)
        if (kernel.name == name) return &kernel;
    return nullptr;
}

int target_of(const Kernel&) {
    return 0;
}

void other_work() {}

Work launch(const Kernel& kernel, const std::array<uint32_t, 3>&, const std::array<uint32_t, 3>&,
            uint32_t, bool, void** arguments) {
    auto* const words = *static_cast<uint64_t**>(arguments[0]);
    const uint64_t count = *static_cast<uint64_t*>(arguments[1]);
    const uint64_t seed = *static_cast<uint64_t*>(arguments[2]);
    auto* const wrong = kernel.counts ? *static_cast<unsigned long long**>(arguments[3]) : nullptr;
    return [=]() -> Status {
        if (!usable(words, count * 8)) return kIllegalAddress;
        for (uint64_t i = 0; i < count; ++i) {
            const uint64_t word = gpu::pattern_word(seed, i);
            if (wrong)
                *wrong += words[i] != word;
            else
                words[i] = word;
        }
        return 0;
    };
}

}  // namespace granary::test::card
