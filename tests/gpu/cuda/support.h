// SPDX-License-Identifier: GPL-3.0-or-later
// What the parity tests share: a GPU with its kernels, the host's as oracle, and arrays in device
// memory. Without a GPU, or without kernels for it, every test is skipped with the reason.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/cuda/decode_codes.h"
#include "gpu/cuda/driver.h"
#include "gpu/cuda/kernels.h"
#include "gpu/cuda/ordered_rows.h"
#include "gpu/device.h"
#include "gpu/host/half.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::cuda::test {

using namespace granary::gpu::test;

// A GPU of the machine, number 0, and the memory that tests use; made once for the program.
class Gpu {
  public:
    // Null where there is none; `reason` says why then.
    static Gpu* get(std::string* reason);

    GpuMemory& device() { return *device_; }
    // The card is one of tests/gpu/card, a thousand times slower than a GPU.
    bool is_emulated() const;
    // Those that prompts multiply so with, made when they are first asked for.
    CudaKernels& kernels(CudaProducts products = CudaProducts::fastest);
    Kernels& host() { return host_->kernels(); }
    // Until the next reset; a multiple of 256 bytes, filled with 0xff (NaN, -1). Ends the program
    // where there is no more.
    std::byte* allocate(size_t bytes);
    // After a test has handed over another place.
    void restore_prompt_scratch(CudaProducts products);
    void reset() { used_ = 0; }
    // What was queued has run. Errors are the test's failures.
    void synchronize();

  private:
    Result<void> open();
    Result<void> load(CudaProducts products);

    std::unique_ptr<GpuMemory> device_;
    std::unique_ptr<CudaKernels> kernels_[3];  // by CudaProducts
    std::unique_ptr<Device> host_;
    HostBuffer host_scratch_;
    RangeId range_ = 0;
    size_t used_ = 0, mapped_ = 0;
    std::byte* scratch_[2] = {};
};

// `count` values in device memory, poisoned unless they are given.
template <class T>
class Array {
  public:
    Array(Gpu& gpu, size_t count)
        : gpu_(gpu), count_(count), data_(reinterpret_cast<T*>(gpu.allocate(count * sizeof(T)))) {}
    Array(Gpu& gpu, std::span<const T> values) : Array(gpu, values.size()) { put(values); }
    Array(Gpu& gpu, const std::vector<T>& values) : Array(gpu, std::span<const T>(values)) {}

    T* data() const { return data_; }
    operator T*() const { return data_; }
    size_t size() const { return count_; }
    void put(std::span<const T> values) {
        gpu_.device().copy(StreamId::compute, data_, values.data(), values.size_bytes());
    }
    std::vector<T> get() const {
        std::vector<T> values(count_);
        gpu_.device().copy(StreamId::compute, values.data(), data_, count_ * sizeof(T));
        gpu_.synchronize();
        return values;
    }

  private:
    Gpu& gpu_;
    size_t count_;
    T* data_;
};

// Page-locked host memory with these bytes.
HostBuffer locked(Gpu& gpu, std::span<const std::byte> bytes);

// Rows of f16 codes in the order of columns, as f32; `rows` rows of code_bytes(cols).
std::vector<float> from_ordered(const std::vector<std::byte>& codes, uint32_t rows, uint32_t cols);
// The inverse; what fills up a row is 0.
std::vector<std::byte> to_ordered(const std::vector<float>& values, uint32_t rows, uint32_t cols);

// Codes of a decode step (decode_codes.h): that they are those of `values`, and fill up rows with
// zeros.
void expect_decode_codes(const std::vector<std::byte>& codes, const std::vector<float>& values,
                         uint32_t rows, uint32_t cols);

class CudaTest : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string reason;
        gpu_ = Gpu::get(&reason);
        if (!gpu_) GTEST_SKIP() << reason;
        gpu_->reset();
    }
    void TearDown() override {
        if (gpu_) gpu_->synchronize();
    }
    Gpu& gpu() { return *gpu_; }
    CudaKernels& kernels(CudaProducts products = CudaProducts::fastest) {
        return gpu_->kernels(products);
    }
    Kernels& host() { return gpu_->host(); }
    // All of them on a GPU; the first `some` where the card is emulated.
    template <class T>
    std::vector<T> cases(size_t some, std::initializer_list<T> all) const {
        std::vector<T> chosen(all);
        if (gpu_->is_emulated()) chosen.resize(std::min(some, chosen.size()));
        return chosen;
    }

  private:
    Gpu* gpu_ = nullptr;
};

}  // namespace granary::gpu::cuda::test
