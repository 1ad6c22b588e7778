// SPDX-License-Identifier: GPL-3.0-or-later
// A card without a GPU, behind NVIDIA's driver interface: enough of it for all that this project
// asks a driver. Device memory is one file in RAM, and the rules are the driver's: memory is used
// only where it is mapped and access is set, whole mappings are unmapped, and a kernel that breaks
// this ends the context. Work is done by one thread, in the order in which it is queued.
//
// What the card is called, how large it is and which kernels it can run differ: see kernels.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <thread>
#include <vector>

#include "gpu/cuda/driver.h"

// A fault that the driver is to have, for tests of the checks themselves.
extern "C" {
enum FakeCudaFault : int { kSound, kLeaks, kMixesUp, kHalfAccess, kGrows };
extern FakeCudaFault fake_cuda_fault;
}

namespace granary::test::card {

using namespace gpu::cuda;

inline constexpr size_t kGranuleBytes = 2 << 20, kContextBytes = 20 << 20;
inline constexpr Status kInvalid = 1, kNotFound = 500, kNotReady = 600, kLaunchFailed = 719,
                        kNotSupported = 801;

// A piece of work; its status is the context's from then on, unless it is 0.
using Work = std::function<Status()>;

// Work in its order, and the thread that does it.
class Queue {
  public:
    explicit Queue(std::atomic<Status>& lost) : lost_(lost) {}
    ~Queue();
    void add(Work work);
    void drain();  // until all is done
    // Under the lock: whatever the work changes that others read.
    std::mutex& mutex() { return mutex_; }
    std::condition_variable& changed() { return changed_; }

  private:
    void work();

    std::atomic<Status>& lost_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Work> waiting_;
    bool busy_ = false, ending_ = false;
    std::thread thread_;
};

struct Mapping {
    size_t bytes = 0;
    Granule granule = 0;
    bool access = false;
};
struct Piece {
    size_t offset = 0, bytes = 0;  // of the file
};
struct EventState {
    uint64_t recorded = 0, passed = 0;  // how often
    double seconds = 0;                 // when it passed last
};

// The state of the one card.
struct Machine {
    int file = -1;
    std::mutex mutex;  // of the memory's tables, which kernels read
    std::map<Address, size_t> reserved;
    std::map<Address, Mapping> mappings;
    std::map<Granule, Piece> handles;
    std::multimap<size_t, size_t> free_pieces;  // bytes -> offset
    size_t file_bytes = 0;
    Granule next_handle = 1;
    std::map<Address, size_t> host;        // memory of ours
    std::map<Address, size_t> registered;  // and that of others, page-locked
    size_t lost_bytes = 0;                 // by a fault
    int users = 0;
    std::atomic<Status> lost = 0;

    std::set<void*> objects;  // streams, modules
    std::map<Event, std::unique_ptr<EventState>> events;
    using Graph = std::vector<Work>;
    std::map<void*, std::unique_ptr<Graph>> graphs;
    Graph* capturing = nullptr;  // one of them
    Queue queue{lost};

    Machine();
    size_t used_bytes() const;
    // Queues work, or records it where a graph is being captured.
    Status give(Work work);
};
extern Machine machine;

struct Span {
    uintptr_t begin = 0, end = 0;
};
// What of the card's memory, or of page-locked host memory, a kernel may use around an address;
// `end` is 0: nothing.
Span usable_around(Address address);
// Whether the driver may copy from or to there: any host memory, and the card's where it is mapped.
bool usable(const void* at, size_t bytes);
// Of the card, or page-locked: a copy from there need not be made at once.
bool is_pinned(const void* at);

template <class T>
T new_object() {
    void* const object = ::operator new(16);
    machine.objects.insert(object);
    return static_cast<T>(object);
}
template <class T>
Status free_object(T object) {
    if (machine.objects.erase(object) == 0) return kInvalid;
    ::operator delete(object);
    return 0;
}

}  // namespace granary::test::card
