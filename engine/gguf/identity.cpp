// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/gguf/identity.h"

#include <algorithm>

namespace granary::gguf {
namespace {

constexpr size_t kPages = 64, kPageBytes = 4096;

// With their lengths, so that no two lists of texts look alike.
void add_text(ContentHash& hash, std::string_view text) {
    hash.add(uint64_t{text.size()});
    hash.add(text);
}

void add_array(ContentHash& hash, const Array& array) {
    hash.add(static_cast<uint8_t>(array.kind()));
    hash.add(uint64_t{array.size()});
    for (size_t i = 0; i < array.size(); ++i) {
        if (array.kind() == Array::Kind::string)
            add_text(hash, array.string_at(i));
        else if (array.kind() == Array::Kind::real)
            hash.add(array.real_at(i));
        else
            hash.add(array.unsigned_at(i));
    }
}

}  // namespace

ContentHash::Digest identity_of(const File& file) {
    ContentHash hash;
    for (const auto& [key, value] : file.metadata()) {
        // How a file is split changes nothing of the model.
        if (key.starts_with("split.")) continue;
        add_text(hash, key);
        hash.add(static_cast<uint8_t>(value.index()));
        std::visit(
            [&](const auto& v) {
                using T = std::decay_t<decltype(v)>;
                if constexpr (std::is_same_v<T, Array>)
                    add_array(hash, v);
                else if constexpr (std::is_same_v<T, std::string_view>)
                    add_text(hash, v);
                else
                    hash.add(v);
            },
            value);
    }
    uint64_t bytes = 0;
    for (const Tensor& tensor : file.tensors()) {
        add_text(hash, tensor.name);
        hash.add(static_cast<uint8_t>(tensor.type));
        hash.add(tensor.dims);
        for (const uint64_t size : tensor.shape) hash.add(size);
        bytes += tensor.bytes;
    }
    hash.add(bytes);
    uint64_t passed = 0, page = 0;
    for (const Tensor& tensor : file.tensors()) {
        for (; page < kPages && bytes / kPages * page < passed + tensor.bytes; ++page) {
            const uint64_t wanted = bytes / kPages * page;
            const uint64_t at = wanted > passed ? wanted - passed : 0;
            hash.add({tensor.data + at, std::min<uint64_t>(kPageBytes, tensor.bytes - at)});
        }
        passed += tensor.bytes;
    }
    return hash.digest();
}

}  // namespace granary::gguf
