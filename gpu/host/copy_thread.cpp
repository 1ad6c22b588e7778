// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/copy_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstring>

namespace granary::gpu::host {

CopyThread::CopyThread(int nice) : thread_([this, nice] { run(nice); }) {}

CopyThread::~CopyThread() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    queued_.notify_all();
    thread_.join();
}

void CopyThread::push(const Work& work) {
    if (work.bytes == 0) return;
    {
        std::lock_guard lock(mutex_);
        queue_.push_back(work);
        ++queued_count_;
    }
    queued_.notify_one();
}

uint64_t CopyThread::ticket() {
    std::lock_guard lock(mutex_);
    return queued_count_;
}

uint64_t CopyThread::done() {
    std::lock_guard lock(mutex_);
    return done_count_;
}

// One at a time, in order: busy_ keeps others from the queue meanwhile.
void CopyThread::do_first(std::unique_lock<std::mutex>& lock) {
    const Work work = queue_.front();
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    if (work.from)
        std::memcpy(work.to, work.from, work.bytes);
    else
        std::memset(work.to, work.byte, work.bytes);
    lock.lock();
    busy_ = false;
    ++done_count_;
    done_.notify_all();
    if (!queue_.empty()) queued_.notify_one();
}

void CopyThread::wait(uint64_t ticket) {
    std::unique_lock lock(mutex_);
    while (done_count_ < ticket) {
        if (!busy_ && !queue_.empty())
            do_first(lock);
        else
            done_.wait(lock);
    }
}

void CopyThread::run(int nice) {
    if (nice != 0) setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice);
    std::unique_lock lock(mutex_);
    for (;;) {
        queued_.wait(lock, [this] { return (!busy_ && !queue_.empty()) || stopping_; });
        if (!busy_ && !queue_.empty())
            do_first(lock);
        else if (queue_.empty())
            return;
        else
            done_.wait(lock);  // stopping, and another thread is at work
    }
}

}  // namespace granary::gpu::host
