// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/host_weights.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "engine/gguf/file.h"
#include "engine/memory/layout.h"

namespace granary {
namespace {

using Bytes = std::span<const std::byte>;

bool holds(const Bytes& outer, const Bytes& inner) {
    return inner.data() >= outer.data() &&
           inner.data() + inner.size() <= outer.data() + outer.size();
}

// What a layer's experts take up: one span for each matrix, or for matrices that lie in turns.
std::vector<Bytes> spans_of(const MoeWeights& moe) {
    const auto span = [&](const std::byte* gpu::ExpertEntry::*matrix, uint64_t bytes) {
        const std::byte* const begin = moe.home.front().*matrix;
        return Bytes(begin, moe.home.back().*matrix + bytes - begin);
    };
    std::vector<Bytes> spans{span(&gpu::ExpertEntry::gate, moe.gate_bytes),
                             span(&gpu::ExpertEntry::up, moe.up_bytes),
                             span(&gpu::ExpertEntry::down, moe.down_bytes)};
    std::sort(spans.begin(), spans.end(),
              [](const Bytes& a, const Bytes& b) { return a.data() < b.data(); });
    std::vector<Bytes> merged;
    for (const Bytes& next : spans) {
        if (!merged.empty() && next.data() < merged.back().data() + merged.back().size()) {
            const std::byte* const begin = merged.back().data();
            const std::byte* const end =
                std::max(begin + merged.back().size(), next.data() + next.size());
            merged.back() = Bytes(begin, end);
        } else {
            merged.push_back(next);
        }
    }
    return merged;
}

Result<gpu::HostBuffer> copy_of(gpu::Device& device, const Bytes& bytes) {
    auto copy = device.page_locked(bytes.size());
    if (copy) std::memcpy(copy->data.get(), bytes.data(), bytes.size());
    return copy;
}

// Puts a layer's experts into locked copies. Errors: the device's; nothing is moved then.
Result<void> move_layer(gpu::Device& device, MoeWeights& moe, HostWeights& weights) {
    const std::vector<Bytes> spans = spans_of(moe);
    std::vector<gpu::HostBuffer> copies;
    for (const Bytes& span : spans) {
        auto copy = copy_of(device, span);
        if (!copy) return tl::unexpected(copy.error());
        copies.push_back(std::move(*copy));
    }
    for (gpu::ExpertEntry& entry : moe.home)
        for (const auto matrix :
             {&gpu::ExpertEntry::gate, &gpu::ExpertEntry::up, &gpu::ExpertEntry::down})
            for (size_t i = 0; i < spans.size(); ++i) {
                if (!holds(spans[i], {entry.*matrix, 1})) continue;
                entry.*matrix = copies[i].data.get() + (entry.*matrix - spans[i].data());
                break;
            }
    for (gpu::HostBuffer& copy : copies) {
        weights.copied += copy.bytes;
        weights.copies.push_back(std::move(copy));
    }
    return {};
}

}  // namespace

uint64_t lock_allowance(const Settings& settings) {
    constexpr uint64_t kLeastLeft = uint64_t{4} << 30;
    if (settings.page_lock) return *settings.page_lock;
    const auto machine = gpu::host_device_info({});
    if (!machine) return 0;
    const uint64_t left = std::max(kLeastLeft, machine->total_bytes * 15 / 100);
    return machine->free_bytes - std::min(machine->free_bytes, left);
}

Result<HostWeights> lock_weights(gpu::Device& device, Model& model, uint64_t allowance) {
    HostWeights weights;
    uint64_t left = allowance;
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    std::vector<Bytes> locked;
    for (const Bytes& part : model.file->mappings()) {
        const uint64_t whole = round_up(part.size(), page);
        const uint64_t bytes = whole <= left ? part.size() : left / page * page;
        if (bytes == 0) break;
        if (auto r = device.lock_pages(part.first(bytes)); !r) {
            if (r.error().kind == ErrorKind::device_lost) return tl::unexpected(r.error());
            weights.refusal = r.error().message();
            break;
        }
        locked.push_back(part.first(bytes));
        weights.in_place += bytes;
        left -= std::min(left, whole);
    }
    const auto is_locked = [&](const Bytes& bytes) {
        return std::any_of(locked.begin(), locked.end(),
                           [&](const Bytes& part) { return holds(part, bytes); });
    };

    // Kernels read the rows of the embedding where it lies: it is never without.
    const Bytes embedding(model.embedding.data, model.facts.host_bytes);
    if (!is_locked(embedding)) {
        auto copy = copy_of(device, embedding);
        if (!copy) return tl::unexpected(copy.error());
        model.embedding.data = copy->data.get();
        weights.copied += copy->bytes;
        left -= std::min(left, copy->bytes);
        weights.copies.push_back(std::move(*copy));
    }

    for (Layer& layer : model.layers) {
        const std::vector<Bytes> spans = spans_of(layer.moe);
        if (std::all_of(spans.begin(), spans.end(), is_locked)) continue;
        uint64_t bytes = 0;
        for (const Bytes& span : spans) bytes += span.size();
        if (!weights.refusal.empty() && bytes <= left) {
            auto moved = move_layer(device, layer.moe, weights);
            if (moved) {
                left -= bytes;
                continue;
            }
            if (moved.error().kind == ErrorKind::device_lost) return tl::unexpected(moved.error());
            left = 0;  // the system has no more to give
            weights.refusal += "; " + moved.error().message();
        }
        layer.moe.home_readable = false;
        ++weights.unreadable_layers;
    }
    return weights;
}

}  // namespace granary
