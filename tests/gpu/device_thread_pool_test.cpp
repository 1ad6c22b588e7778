// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <thread>
#include <vector>

namespace granary::gpu::host {
namespace {

class ThreadPoolOf : public testing::TestWithParam<unsigned> {};

TEST_P(ThreadPoolOf, RunsEachWorkerOnce) {
    ThreadPool pool(GetParam());
    ASSERT_EQ(pool.threads(), GetParam());
    for (int round = 0; round < 200; ++round) {
        std::vector<int> calls(pool.threads(), 0);  // plain ints: run() orders them
        pool.run([&](unsigned worker) { ++calls[worker]; });
        for (int count : calls) ASSERT_EQ(count, 1);
    }
}

TEST_P(ThreadPoolOf, BarrierOrdersPhasesAndResetsTheCounter) {
    ThreadPool pool(GetParam());
    const unsigned threads = pool.threads();
    std::vector<unsigned> mine(threads), sums(threads, 0);
    std::vector<size_t> claimed(threads);
    for (unsigned round = 0; round < 100; ++round) {
        pool.run([&](unsigned worker) {
            for (unsigned phase = 0; phase < 5; ++phase) {
                mine[worker] = round + phase + worker;
                claimed[worker] = 0;
                while (pool.next() < 100) ++claimed[worker];
                pool.barrier();
                unsigned sum = 0;
                size_t items = 0;
                for (unsigned other = 0; other < threads; ++other) {
                    sum += mine[other] - other;
                    items += claimed[other];
                }
                if (sum != threads * (round + phase) || items != 100) ++sums[worker];
                pool.barrier();
            }
        });
        for (unsigned wrong : sums) ASSERT_EQ(wrong, 0u);
    }
}

TEST_P(ThreadPoolOf, NextClaimsEachIndexOnceInEachRun) {
    ThreadPool pool(GetParam());
    for (int round = 0; round < 50; ++round) {
        std::vector<unsigned char> taken(1000, 0);
        pool.run([&](unsigned) {
            for (size_t i = pool.next(); i < taken.size(); i = pool.next()) ++taken[i];
        });
        ASSERT_EQ(std::count(taken.begin(), taken.end(), 1), 1000);
    }
}

// Waits of every length: spinning, yielding and sleeping workers must all wake.
TEST_P(ThreadPoolOf, WakesAfterAnyPause) {
    ThreadPool pool(GetParam());
    std::atomic<unsigned> calls{0};
    unsigned runs = 0;
    for (int microseconds : {0, 1, 10, 30, 100, 190, 200, 210, 300, 1000, 5000}) {
        for (int repeat = 0; repeat < 5; ++repeat) {
            std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
            pool.run([&](unsigned worker) {
                if (worker == pool.threads() - 1)
                    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
                pool.barrier();
                ++calls;
            });
            ++runs;
        }
    }
    EXPECT_EQ(calls, runs * pool.threads());
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolOf, testing::Values(1u, 2u, 3u, 8u));

TEST(ThreadPool, WorkersGetTheirPriorityAndTheCallerKeepsItsOwn) {
    const int own = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
    const int nice = std::clamp(own + 5, 1, 19);  // 0 asks for nothing
    ThreadPool pool(3, nice);
    std::vector<int> seen(3);
    pool.run([&](unsigned worker) {
        seen[worker] = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
    });
    EXPECT_EQ(seen, (std::vector<int>{own, nice, nice}));
}

TEST(ThreadPool, OneThreadMeansTheCaller) {
    ThreadPool pool(1);
    std::thread::id id;
    pool.run([&](unsigned) { id = std::this_thread::get_id(); });
    EXPECT_EQ(id, std::this_thread::get_id());
}

TEST(ThreadPool, ShareCoversAllItemsInWholeGrains) {
    for (size_t items : {0, 1, 7, 64, 100, 1000}) {
        for (size_t grain : {1, 4, 16}) {
            for (unsigned workers : {1u, 2u, 3u, 7u}) {
                size_t end = 0;
                for (unsigned worker = 0; worker < workers; ++worker) {
                    const Share part = share(items, grain, worker, workers);
                    EXPECT_EQ(part.begin, end);
                    EXPECT_TRUE(part.begin % grain == 0 || part.begin == items);
                    end = part.end;
                }
                EXPECT_EQ(end, items);
            }
        }
    }
}

// The figures are printed, not judged: a shared machine can stretch any of them.
TEST(ThreadPool, Latency) {
    ThreadPool pool(2);
    const auto measure = [](auto&& work) {
        double best = 1e9;
        for (int repeat = 0; repeat < 20; ++repeat) {
            const auto start = std::chrono::steady_clock::now();
            work();
            const std::chrono::duration<double, std::micro> time =
                std::chrono::steady_clock::now() - start;
            best = std::min(best, time.count() / 1000);
        }
        return best;
    };
    const double run = measure([&] {
        for (int i = 0; i < 1000; ++i) pool.run([](unsigned) {});
    });
    const double barrier = measure([&] {
        pool.run([&](unsigned) {
            for (int i = 0; i < 1000; ++i) pool.barrier();
        });
    });
    std::printf("2 threads: empty run() %.3f us, barrier() %.3f us\n", run, barrier);
    EXPECT_GT(run, 0);
    EXPECT_GT(barrier, 0);
}

}  // namespace
}  // namespace granary::gpu::host
