// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/thread_pool.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "gpu/host/machine.h"

namespace granary::gpu::host {
namespace {

using Clock = std::chrono::steady_clock;

// A waiting thread spins for a moment (all that neighbours in step need), then offers its core to
// others for a while (a wake-up costs more than most kernels last), then sleeps. Spinning longer
// gains nothing on free cores and is ruin on busy ones, where both threads may share a core: on 2
// cores under load 9, ten barriers took 262 us with 20 us of it, 25 us with 0.5 us, 16 us with
// none; on free cores 2.1, 2.1 and 4.5 us.
constexpr auto kSpin = std::chrono::nanoseconds(500);
constexpr auto kYield = std::chrono::microseconds(200);

void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// A value that threads wait on. Sequential consistency pairs "change the value, then look for
// sleepers" with "become a sleeper, then look at the value": one of the two sees the other.
struct alignas(64) Gate {
    std::atomic<uint32_t> value{0};
    std::atomic<uint32_t> sleepers{0};
    std::mutex mutex;
    std::condition_variable changed;

    template <class Reached>
    void wait(bool crowded, Reached reached) {
        if (reached(value.load(std::memory_order_acquire))) return;
        const auto start = Clock::now();
        const auto spin_end = crowded ? start : start + kSpin;
        const auto yield_end = spin_end + kYield;
        for (auto now = start; now < yield_end; now = Clock::now()) {
            if (now < spin_end) {
                for (int i = 0; i < 32; ++i) {
                    if (reached(value.load(std::memory_order_acquire))) return;
                    pause_cpu();
                }
            } else {
                sched_yield();
                if (reached(value.load(std::memory_order_acquire))) return;
            }
        }
        std::unique_lock lock(mutex);
        sleepers.fetch_add(1);
        changed.wait(lock, [&] { return reached(value.load()); });
        sleepers.fetch_sub(1);
    }

    // After a change of value.
    void wake() {
        if (sleepers.load() == 0) return;
        std::lock_guard lock(mutex);
        changed.notify_all();
    }
};

}  // namespace

struct ThreadPool::Impl {
    bool crowded = false;  // more threads than cores: spinning would keep a peer from running
    bool stopping = false;
    void (*function)(void*, unsigned) = nullptr;
    void* context = nullptr;
    Gate epoch;    // counts runs
    Gate busy;     // workers that have not finished the run
    Gate barrier;  // counts barriers passed
    alignas(64) std::atomic<uint32_t> arrived{0};
    std::vector<std::thread> workers;

    void work(unsigned worker, int nice) {
        if (nice != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice);
        for (uint32_t seen = 0;; ++seen) {
            epoch.wait(crowded, [seen](uint32_t value) { return value != seen; });
            if (stopping) return;
            function(context, worker);
            if (busy.value.fetch_sub(1) == 1) busy.wake();
        }
    }
};

ThreadPool::ThreadPool(unsigned threads, int nice) : threads_(1), impl_(std::make_unique<Impl>()) {
    impl_->crowded = threads > usable_cores();
    try {
        while (threads_ < threads) {
            impl_->workers.emplace_back(
                [impl = impl_.get(), worker = threads_, nice] { impl->work(worker, nice); });
            ++threads_;
        }
    } catch (const std::system_error&) {
        // threads_ says how many there are.
    }
}

ThreadPool::~ThreadPool() {
    impl_->stopping = true;
    impl_->epoch.value.fetch_add(1);
    impl_->epoch.wake();
    for (std::thread& worker : impl_->workers) worker.join();
}

void ThreadPool::run_erased(void (*function)(void*, unsigned), void* context) {
    counter_.store(0, std::memory_order_relaxed);
    if (threads_ > 1) {
        impl_->function = function;
        impl_->context = context;
        impl_->busy.value.store(threads_ - 1, std::memory_order_relaxed);
        impl_->epoch.value.fetch_add(1);
        impl_->epoch.wake();
    }
    function(context, 0);
    if (threads_ > 1)
        impl_->busy.wait(impl_->crowded, [](uint32_t workers) { return workers == 0; });
}

void ThreadPool::barrier() {
    // The barrier's number must be read before arriving: afterwards it may change at any time.
    const uint32_t number = impl_->barrier.value.load(std::memory_order_acquire);
    if (impl_->arrived.fetch_add(1) + 1 < threads_) {
        impl_->barrier.wait(impl_->crowded, [number](uint32_t value) { return value != number; });
        return;
    }
    impl_->arrived.store(0, std::memory_order_relaxed);
    counter_.store(0, std::memory_order_relaxed);
    impl_->barrier.value.fetch_add(1);
    impl_->barrier.wake();
}

}  // namespace granary::gpu::host
