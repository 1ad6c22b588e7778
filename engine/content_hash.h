// SPDX-License-Identifier: GPL-3.0-or-later
// A fast hash that finds damage (XXH3, 128 bits). It keeps nobody from forging what it covers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>

namespace granary {

class ContentHash {
  public:
    using Digest = std::array<uint64_t, 2>;

    ContentHash();
    ~ContentHash();
    void add(std::span<const std::byte> bytes);
    void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
    template <class T>
    requires std::is_arithmetic_v<T>
    void add(T number) { add(std::as_bytes(std::span(&number, 1))); }
    Digest digest() const;  // of all that was added so far

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace granary
