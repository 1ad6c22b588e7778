// SPDX-License-Identifier: GPL-3.0-or-later
// How tests know the emulated card, a thousand times slower than a GPU, from one.
#pragma once

#include <string_view>

namespace granary::test::card {

inline constexpr std::string_view kEmulatedName = "Emulated card of the tests";

// Of a device's name, which others may have put something to.
inline bool is_emulated(std::string_view name) {
    return name.find(kEmulatedName) != std::string_view::npos;
}

}  // namespace granary::test::card
