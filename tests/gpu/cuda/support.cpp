// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gpu/cuda/support.h"

#include <cmath>
#include <cstdio>

#include "tests/gpu/card/name.h"

namespace granary::gpu::cuda::test {
namespace {

constexpr size_t kGranule = size_t{64} << 20;
constexpr size_t kPlaces = 128;                // 8 GiB of addresses
constexpr size_t kScratch = size_t{64} << 20;  // of either kind

}  // namespace

Gpu* Gpu::get(std::string* reason) {
    static std::string why;
    static const std::unique_ptr<Gpu> gpu = [] {
        auto made = std::make_unique<Gpu>();
        if (auto opened = made->open(); !opened) {
            why = opened.error().message();
            made.reset();
        }
        return made;
    }();
    *reason = why;
    return gpu.get();
}

bool Gpu::is_emulated() const {
    return granary::test::card::is_emulated(device_->info().name);
}

Result<void> Gpu::open() {
    auto driver = open_driver();
    if (!driver) return tl::unexpected(driver.error());
    auto device = GpuMemory::open(std::move(*driver), {0, kGranule});
    if (!device) return tl::unexpected(device.error());
    device_ = std::move(*device);
    auto range = device_->reserve(kPlaces);
    if (!range) return tl::unexpected(range.error());
    range_ = *range;
    // Ranges of their own, so that reset() leaves them alone.
    for (std::byte*& scratch : scratch_) {
        const auto own = device_->reserve(kScratch / kGranule);
        if (!own) return tl::unexpected(own.error());
        const auto id = static_cast<GranuleId>(device_->granules());
        if (auto r = device_->create_granules(1); !r) return r;
        if (auto r = device_->map(*own, 0, {&id, 1}); !r) return r;
        scratch = device_->base(*own);
        device_->fill(StreamId::compute, scratch, 0xff, kScratch);
    }
    if (auto r = load(CudaProducts::fastest); !r) return r;

    auto host = make_host_device({});
    if (!host) return tl::unexpected(host.error());
    host_ = std::move(*host);
    auto buffer = host_->page_locked(kScratch);
    if (!buffer) return tl::unexpected(buffer.error());
    host_scratch_ = std::move(*buffer);
    host_->kernels().set_scratch(host_scratch_.data.get(), kScratch);
    return {};
}

Result<void> Gpu::load(CudaProducts products) {
    auto loaded = load_kernels<CudaKernels>(*device_, products);
    if (!loaded) return tl::unexpected(loaded.error());
    (*loaded)->set_scratch(scratch_[0], kScratch);
    (*loaded)->set_prompt_scratch(scratch_[1], kScratch);
    kernels_[static_cast<size_t>(products)] = std::move(*loaded);
    return {};
}

CudaKernels& Gpu::kernels(CudaProducts products) {
    auto& kernels = kernels_[static_cast<size_t>(products)];
    if (!kernels) {
        if (auto loaded = load(products); !loaded) {
            std::fprintf(stderr, "%s\n", loaded.error().message().c_str());
            std::abort();
        }
    }
    return *kernels;
}

void Gpu::restore_prompt_scratch(CudaProducts products) {
    kernels(products).set_prompt_scratch(scratch_[1], kScratch);
}

std::byte* Gpu::allocate(size_t bytes) {
    std::byte* const at = device_->base(range_) + used_;
    bytes = (bytes + 255) / 256 * 256;
    used_ += bytes;
    if (used_ > mapped_ * kGranule) {
        const size_t more = (used_ + kGranule - 1) / kGranule - mapped_;
        std::vector<GranuleId> ids(more);
        for (size_t i = 0; i < more; ++i) ids[i] = static_cast<GranuleId>(device_->granules() + i);
        Result<void> made = device_->create_granules(more);
        if (made) made = device_->map(range_, mapped_, ids);
        if (!made) {
            std::fprintf(stderr, "%s\n", made.error().message().c_str());
            std::abort();
        }
        mapped_ += more;
    }
    device_->fill(StreamId::compute, at, 0xff, bytes);
    return at;
}

void Gpu::synchronize() {
    const Result<void> done = device_->synchronize(StreamId::compute);
    ASSERT_TRUE(done) << done.error().message();
}

HostBuffer locked(Gpu& gpu, std::span<const std::byte> bytes) {
    auto buffer = gpu.device().page_locked(bytes.size());
    if (!buffer) {
        std::fprintf(stderr, "%s\n", buffer.error().message().c_str());
        std::abort();
    }
    std::memcpy(buffer->data.get(), bytes.data(), bytes.size());
    return std::move(*buffer);
}

std::vector<float> from_ordered(const std::vector<std::byte>& codes, uint32_t rows, uint32_t cols) {
    const size_t row_bytes = (size_t{cols} * 2 + 63) / 64 * 64;
    std::vector<float> values(size_t{rows} * cols);
    for (uint32_t row = 0; row < rows; ++row)
        for (uint32_t col = 0; col < cols; ++col)
            values[size_t{row} * cols + col] =
                host::load_half(codes.data() + row * row_bytes + 2 * ordered_column(col));
    return values;
}

std::vector<std::byte> to_ordered(const std::vector<float>& values, uint32_t rows, uint32_t cols) {
    const size_t row_bytes = (size_t{cols} * 2 + 63) / 64 * 64;
    std::vector<std::byte> codes(rows * row_bytes);
    for (uint32_t row = 0; row < rows; ++row)
        for (uint32_t col = 0; col < cols; ++col) {
            const uint16_t half = host::float_to_half(values[size_t{row} * cols + col]);
            std::memcpy(codes.data() + row * row_bytes + 2 * ordered_column(col), &half,
                        sizeof half);
        }
    return codes;
}

void expect_decode_codes(const std::vector<std::byte>& codes, const std::vector<float>& values,
                         uint32_t rows, uint32_t cols) {
    const size_t row_bytes = (size_t{cols} * 2 + 63) / 64 * 64;
    ASSERT_EQ(codes.size(), rows * row_bytes);
    for (uint32_t row = 0; row < rows; ++row) {
        for (uint32_t first = 0; first < cols; first += 32) {
            const auto value = [&](uint32_t i) {
                return first + i < cols ? values[size_t{row} * cols + first + i] : 0.0f;
            };
            DecodeGroup group;
            std::memcpy(&group, codes.data() + row * row_bytes + first / 32 * sizeof group,
                        sizeof group);
            float most = 0;
            int coarse_sum = 0, fine_sum = 0;
            for (uint32_t i = 0; i < 32; ++i) most = std::max(most, std::abs(value(i)));
            ASSERT_NEAR(group.scale, most / 127, most * 1e-6) << row << ' ' << first;
            for (uint32_t i = 0; i < 32; ++i) {
                const int nibble = group.fine[i % 16] >> (i < 16 ? 0 : 4) & 15;
                const int fine = nibble < 8 ? nibble : nibble - 16;
                coarse_sum += group.coarse[i];
                fine_sum += fine;
                const float back =
                    group.scale * (static_cast<float>(group.coarse[i]) + float(fine) / 16);
                // Half a step, and what f32 leaves.
                ASSERT_NEAR(back, value(i), group.scale / 32 * 1.001f) << row << ' ' << first + i;
            }
            ASSERT_EQ(group.coarse_sum, coarse_sum) << row << ' ' << first;
            ASSERT_EQ(group.fine_sum, fine_sum) << row << ' ' << first;
        }
    }
}

}  // namespace granary::gpu::cuda::test
