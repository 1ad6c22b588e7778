// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/gpu/cuda_kernel_bench/bench.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "gpu/cuda/device_code.h"
#include "gpu/host/half.h"

namespace granary::gpu::cuda::bench {
namespace {

constexpr size_t kGranule = size_t{64} << 20;
constexpr size_t kPlaces = 1024;  // 64 GiB of addresses

}  // namespace

Bench::Bench(Ordinal device) {
    auto driver = must(open_driver());
    const auto devices = must(list_devices(*driver));
    for (const DeviceFacts& facts : devices)
        if (facts.ordinal == device) facts_ = facts;
    device_ = must(GpuMemory::open(std::move(driver), {device, kGranule}));
    range_ = must(device_->reserve(kPlaces));
    check(this->driver().event_create(&begin_, 0), "cuEventCreate");
    check(this->driver().event_create(&end_, 0), "cuEventCreate");
}

std::byte* Bench::allocate_bytes(size_t bytes) {
    std::byte* const at = device_->base(range_) + used_;
    used_ += (bytes + 1023) / 1024 * 1024;
    if (used_ > mapped_ * kGranule) {
        const size_t more = (used_ + kGranule - 1) / kGranule - mapped_;
        std::vector<GranuleId> ids(more);
        for (size_t i = 0; i < more; ++i) ids[i] = static_cast<GranuleId>(device_->granules() + i);
        must(device_->create_granules(more));
        must(device_->map(range_, mapped_, ids));
        mapped_ += more;
    }
    return at;
}

Function Bench::find(const char* file, const std::string& kernel) {
    auto& module = modules_[file];
    if (!module) module = must(Module::load(device_->context().shared_driver(), device_code(file)));
    auto function = module->function(kernel.c_str());
    return function ? *function : nullptr;
}

void Bench::check(Status status, const char* function) const {
    if (status != 0) must<void>(tl::unexpected(driver().error(status, function, "A call failed")));
}

Bench::Time Bench::time(const std::function<void()>& work) {
    work();
    std::vector<float> times;
    for (float sum = 0; times.size() < 5 || (sum < 60 && times.size() < 40); sum += times.back()) {
        check(driver().event_record(begin_, stream()), "cuEventRecord");
        work();
        check(driver().event_record(end_, stream()), "cuEventRecord");
        synchronize();
        times.emplace_back();
        check(driver().event_elapsed(&times.back(), begin_, end_), "cuEventElapsedTime");
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    return {median, (times[times.size() * 3 / 4] - times[times.size() / 4]) / median};
}

void Bench::add(Line line) {
    std::printf("%-9s %-34s %-30s %9.3f ms %4.1f%%", line.part.c_str(), line.what.c_str(),
                line.kernel.c_str(), line.milliseconds, line.spread * 100);
    std::printf(line.tflops > 0 ? " %7.1f TFLOP/s" : "                ", line.tflops);
    std::printf(line.gigabytes > 0 ? " %7.1f GB/s" : "             ", line.gigabytes);
    std::printf(line.share > 0 ? " %5.1f %%" : "        ", line.share * 100);
    if (line.error >= 0) std::printf("  error %.1e", line.error);
    std::printf("\n");
    std::fflush(stdout);
    lines_.push_back(std::move(line));
}

void Bench::expect(bool good, const std::string& what) {
    if (good) return;
    ++failures_;
    std::printf("FAILED: %s\n", what.c_str());
    std::fflush(stdout);
}

void in_parallel(size_t count, const std::function<void(size_t)>& work) {
    std::atomic<size_t> next{0};
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
        threads.emplace_back([&] {
            for (size_t j = next++; j < count; j = next++) work(j);
        });
}

std::vector<uint16_t> random_halves(size_t count, float bound, uint64_t seed) {
    constexpr size_t kPiece = 1 << 16;
    std::vector<uint16_t> values(count);
    in_parallel((count + kPiece - 1) / kPiece, [&](size_t piece) {
        Random random(seed * 0x100000001b3ull + piece);
        for (size_t i = piece * kPiece; i < std::min(count, (piece + 1) * kPiece); ++i)
            values[i] = host::float_to_half(random.symmetric() * bound);
    });
    return values;
}

float half_value(uint16_t half) {
    static const std::vector<float> table = [] {
        std::vector<float> values(65536);
        for (uint32_t i = 0; i < 65536; ++i)
            values[i] = host::half_to_float(static_cast<uint16_t>(i));
        return values;
    }();
    return table[half];
}

double RelativeError::value() const {
    return std::sqrt(difference_ / size_);
}

}  // namespace granary::gpu::cuda::bench
