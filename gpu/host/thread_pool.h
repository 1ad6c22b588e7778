// SPDX-License-Identifier: GPL-3.0-or-later
// A fork-join pool for kernels that last microseconds: workers spin for a short while before they
// sleep, and the calling thread is worker 0.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace granary::gpu::host {

class ThreadPool {
  public:
    // Starts threads - 1 workers at `nice`; the caller's own priority stays as it is. Where the
    // system refuses a thread, threads() is what was got.
    explicit ThreadPool(unsigned threads, int nice = 0);
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    unsigned threads() const { return threads_; }

    // Runs f(worker) for worker in [0, threads()) at the same time and returns when all are done.
    // f must not throw and must not call run() again; it may call barrier().
    template <class F>
    void run(F&& f) {
        using Plain = std::remove_reference_t<F>;
        run_erased([](void* context, unsigned worker) { (*static_cast<Plain*>(context))(worker); },
                   const_cast<void*>(static_cast<const void*>(&f)));
    }

    // Inside run(): waits until every worker has reached it.
    void barrier();

    // Inside run(): the next unclaimed index from 0 on; the counter starts at 0 in each run() and
    // again after each barrier().
    size_t next() { return counter_.fetch_add(1, std::memory_order_relaxed); }

  private:
    void run_erased(void (*function)(void*, unsigned), void* context);

    struct Impl;
    unsigned threads_;
    std::unique_ptr<Impl> impl_;
    alignas(64) std::atomic<size_t> counter_{0};  // a cache line of its own
};

// The share [begin, end) of `worker` in `items`, cut in whole `grain`s.
struct Share {
    size_t begin, end;
};
inline Share share(size_t items, size_t grain, unsigned worker, unsigned workers) {
    const size_t grains = (items + grain - 1) / grain;
    const size_t begin = grains * worker / workers * grain;
    const size_t end = grains * (worker + 1) / workers * grain;
    return {begin < items ? begin : items, end < items ? end : items};
}

}  // namespace granary::gpu::host
