// SPDX-License-Identifier: GPL-3.0-or-later
// What the parts of cuda_kernel_bench share: a GPU with memory to hand out, kernels by name, times
// by events, and the table of results. Anything that goes wrong ends the program with the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpu/cuda/context.h"
#include "gpu/cuda/device.h"
#include "gpu/cuda/module.h"

namespace granary::gpu::cuda::bench {

template <class T>
T must(Result<T> result) {
    if (!result) {
        std::fprintf(stderr, "%s\n", result.error().message().c_str());
        std::exit(2);
    }
    if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// One line of the table. A rate of 0 is not shown.
struct Line {
    std::string part, what, kernel;
    double milliseconds = 0;  // median
    double spread = 0;        // (slowest - fastest) / median of the middle half
    double tflops = 0;
    double gigabytes = 0;  // a second
    double share = 0;      // of the limit for this kind of work, 0 to 1
    double error = -1;     // relative, against the reference; -1: not checked here
};

class Bench {
  public:
    explicit Bench(Ordinal device);

    const DeviceFacts& facts() const { return facts_; }
    const Driver& driver() const { return device_->context().driver(); }
    Stream stream() const { return device_->stream(StreamId::compute); }
    GpuMemory& device() { return *device_; }

    // Device memory until release(mark()) of before.
    template <class T>
    T* allocate(size_t count) {
        return reinterpret_cast<T*>(allocate_bytes(count * sizeof(T)));
    }
    size_t mark() const { return used_; }
    void release(size_t mark) { used_ = mark; }

    template <class T>
    void upload(T* to, const std::vector<T>& from) {
        device_->copy(StreamId::compute, to, from.data(), from.size() * sizeof(T));
        synchronize();
    }
    template <class T>
    T* uploaded(const std::vector<T>& from) {
        T* const to = allocate<T>(from.size());
        upload(to, from);
        return to;
    }
    template <class T>
    std::vector<T> download(const T* from, size_t count) {
        std::vector<T> to(count);
        device_->copy(StreamId::compute, to.data(), from, count * sizeof(T));
        synchronize();
        return to;
    }
    void fill(void* to, int byte, size_t bytes) {
        device_->fill(StreamId::compute, to, byte, bytes);
    }
    void synchronize() { must(device_->synchronize(StreamId::compute)); }

    // Of the file `file`.cu. Null where this GPU's code lacks it.
    Function find(const char* file, const std::string& kernel);
    template <class... Args>
    void launch(Function function, Size3 grid, uint32_t threads, uint32_t shared, Args... args) {
        check(driver().allow_shared_memory(function, shared), "cuFuncSetAttribute");
        check(cuda::launch(driver(), function, grid, {threads, 1, 1}, shared, stream(), args...),
              "cuLaunchKernel");
    }
    void check(Status status, const char* function) const;

    // Runs `work` until it has taken 60 ms, 5 to 40 times, after one warm-up; median milliseconds.
    struct Time {
        double milliseconds, spread;
    };
    Time time(const std::function<void()>& work);

    void add(Line line);
    const std::vector<Line>& lines() const { return lines_; }
    void expect(bool good, const std::string& what);
    int failures() const { return failures_; }

    // Measured first; shares refer to them. TFLOP/s and GB/s.
    double limit_f16 = 0, limit_mma = 0, limit_copy = 0, limit_link = 0;

  private:
    std::byte* allocate_bytes(size_t bytes);

    DeviceFacts facts_;
    std::unique_ptr<GpuMemory> device_;
    RangeId range_ = 0;
    size_t used_ = 0, mapped_ = 0;
    std::unordered_map<std::string, std::unique_ptr<Module>> modules_;
    Event begin_ = nullptr, end_ = nullptr;
    std::vector<Line> lines_;
    int failures_ = 0;
};

// work(i) for i in [0, count), on all of the machine's threads.
void in_parallel(size_t count, const std::function<void(size_t)>& work);

// Reproducible numbers: splitmix64 (Steele, Lea and Flood 2014).
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}
    uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        return z ^ z >> 31;
    }
    uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }
    float symmetric() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1; }  // [-1, 1)

  private:
    uint64_t state_;
};

// `count` f16 in [-bound, bound), the same for the same seed.
std::vector<uint16_t> random_halves(size_t count, float bound, uint64_t seed);
// Exact f16 -> f32 by table.
float half_value(uint16_t half);

// |out - reference| / |reference| over pairs; NaN where any output is.
class RelativeError {
  public:
    void add(double out, double reference) {
        difference_ += (out - reference) * (out - reference);
        size_ += reference * reference;
    }
    void add(const RelativeError& other) {
        difference_ += other.difference_;
        size_ += other.size_;
    }
    double value() const;

  private:
    double difference_ = 0, size_ = 0;
};

// checks: odd shapes, untimed. quick: times at few sizes too.
enum class Depth { checks, quick, full };

void limits(Bench& bench);
void experts(Bench& bench, Depth depth);
void products(Bench& bench, Depth depth);
void attention(Bench& bench, Depth depth);
void gather(Bench& bench);
void rows(Bench& bench);

}  // namespace granary::gpu::cuda::bench
