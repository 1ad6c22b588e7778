// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/gguf/mapping_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

namespace granary::gguf {

// A mapping, or a free place for one. Places are used again and never freed, so that the handler
// can walk them at any moment.
struct MappingGuard::Watched {
    std::atomic<uintptr_t> begin{0}, end{0};  // end is 0 where the place is free
    std::atomic<uintptr_t> lost{UINTPTR_MAX};
    Watched* next = nullptr;
};

namespace {

using Watched = MappingGuard::Watched;

// A signal has one handler in a process, and it is handed nothing of ours: this list is what all
// engines of a process share.
std::atomic<Watched*> all{nullptr};
struct sigaction before = {};

void pass_on(int signal, siginfo_t* info, void* context) {
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(signal, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(signal);
    else
        ::signal(signal, SIG_DFL);  // the read is tried again, and ends the process
}

// Called by the thread that read, in the midst of the read, which is tried again afterwards.
void on_bus_error(int signal, siginfo_t* info, void* context) {
    const int error = errno;
    const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
    const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    for (Watched* watched = all; watched; watched = watched->next) {
        const uintptr_t end = watched->end, begin = watched->begin;
        const bool taken_meanwhile = watched->end != end;
        if (taken_meanwhile || at < begin || at >= end) continue;
        const uintptr_t first = at / page * page;
        uintptr_t lost = watched->lost;
        while (first < lost && !watched->lost.compare_exchange_weak(lost, first)) {
        }
        if (::mmap(reinterpret_cast<void*>(first), end - first, PROT_READ,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
            break;
        errno = error;
        return;
    }
    pass_on(signal, info, context);
}

void set_handler() {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &before);
}

Watched* watch(uintptr_t begin, uintptr_t end) {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (!all) set_handler();
    Watched* place = all;
    while (place && place->end != 0) place = place->next;
    if (!place) {
        place = new Watched;
        place->next = all;
        all = place;
    }
    place->lost = UINTPTR_MAX;
    place->begin = begin;
    place->end = end;  // from here on the handler knows it
    return place;
}

}  // namespace

MappingGuard::MappingGuard(const std::byte* data, uint64_t size)
    : watched_(watch(reinterpret_cast<uintptr_t>(data), reinterpret_cast<uintptr_t>(data) + size)) {
}

void MappingGuard::Release::operator()(Watched* watched) const {
    watched->end = 0;
}

std::optional<uint64_t> MappingGuard::lost_from() const {
    const uintptr_t lost = watched_->lost;
    if (lost == UINTPTR_MAX) return {};
    return lost - watched_->begin;
}

}  // namespace granary::gguf
