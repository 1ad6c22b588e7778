// SPDX-License-Identifier: GPL-3.0-or-later
#include <utility>

#include "gpu/check/card.h"
#include "gpu/cuda/pattern.h"

namespace granary::gpu::check {
namespace {

// The host computes inline: what is queued on its compute stream is done.
class HostCard final : public Card {
  public:
    explicit HostCard(std::unique_ptr<Device> device) : device_(std::move(device)) {}

    DeviceMemory& memory() override { return *device_; }

    Result<void> write(std::byte* at, size_t bytes, uint64_t seed) override {
        auto* const words = reinterpret_cast<uint64_t*>(at);
        for (size_t i = 0; i < bytes / 8; ++i) words[i] = pattern_word(seed, i);
        return {};
    }

    Result<uint64_t> wrong_words(const std::byte* at, size_t bytes, uint64_t seed) override {
        const auto* const words = reinterpret_cast<const uint64_t*>(at);
        uint64_t wrong = 0;
        for (size_t i = 0; i < bytes / 8; ++i) wrong += words[i] != pattern_word(seed, i);
        return wrong;
    }

    Result<std::unique_ptr<Replay>> capture_write(std::byte*, size_t, uint64_t) override {
        return fail(ErrorKind::unsupported, "The host captures no work");
    }

    Result<uint64_t> free_bytes() override {
        return device_->info().total_bytes - device_->driver_bytes();
    }

  private:
    std::unique_ptr<Device> device_;
};

class HostSubject final : public Subject {
  public:
    HostSubject(uint64_t bytes, size_t granule_bytes) {
        options_.face = Face::card;
        options_.budget_bytes = bytes;
        options_.granule_bytes = granule_bytes;
        options_.threads = 1;
    }
    Result<std::unique_ptr<Card>> open() override {
        auto device = make_host_device(options_);
        if (!device) return tl::unexpected(device.error());
        return std::make_unique<HostCard>(std::move(*device));
    }

  private:
    HostDeviceOptions options_;
};

}  // namespace

std::unique_ptr<Subject> host_subject(uint64_t bytes, size_t granule_bytes) {
    return std::make_unique<HostSubject>(bytes, granule_bytes);
}

}  // namespace granary::gpu::check
