// SPDX-License-Identifier: GPL-3.0-or-later
// The link of an emulated card: an in-order queue of copies with a thread of its own, so that
// copies overlap with what the device computes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>

namespace granary::gpu::host {

class CopyThread {
  public:
    explicit CopyThread(int nice = 0);
    ~CopyThread();  // does what is still queued
    CopyThread(const CopyThread&) = delete;
    CopyThread& operator=(const CopyThread&) = delete;

    void copy(void* to, const void* from, size_t bytes) { push({to, from, 0, bytes}); }
    void fill(void* to, int byte, size_t bytes) { push({to, nullptr, byte, bytes}); }

    // Number of the last work queued so far; wait() returns once it is done. The waiting thread
    // helps with what nobody has begun: it would idle otherwise, and a wake-up is saved.
    uint64_t ticket();
    uint64_t done();  // the last work that is done; tickets up to it do not wait
    void wait(uint64_t ticket);

  private:
    struct Work {
        void* to;
        const void* from;  // null: fill with byte
        int byte;
        size_t bytes;
    };

    void push(const Work& work);
    void do_first(std::unique_lock<std::mutex>& lock);
    void run(int nice);

    std::mutex mutex_;
    std::condition_variable queued_, done_;
    std::deque<Work> queue_;
    bool busy_ = false;  // somebody does the work before the queue's first
    bool stopping_ = false;
    uint64_t queued_count_ = 0, done_count_ = 0;
    std::thread thread_;
};

}  // namespace granary::gpu::host
