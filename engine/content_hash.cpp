// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/content_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace granary {

struct ContentHash::State {
    XXH3_state_t xxh;  // over-aligned: new takes care of that
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
    XXH3_128bits_reset(&state_->xxh);
}

ContentHash::~ContentHash() = default;

void ContentHash::add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

ContentHash::Digest ContentHash::digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
    return {hash.low64, hash.high64};
}

}  // namespace granary
