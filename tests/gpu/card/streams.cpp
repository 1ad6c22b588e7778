// SPDX-License-Identifier: GPL-3.0-or-later
// Work: streams, events, copies and graphs. All streams are one queue: nothing runs before what was
// queued ahead of it, so that whatever waits for another stream has waited.
#include <chrono>
#include <cstring>

#include "tests/gpu/card/kernels.h"

namespace granary::test::card {

Queue::~Queue() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void Queue::add(Work work) {
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(std::move(work));
        if (!thread_.joinable()) thread_ = std::thread([this] { this->work(); });
    }
    changed_.notify_all();
}

void Queue::drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_.empty() && !busy_; });
}

void Queue::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        const std::vector<Work> batch = std::move(waiting_);
        waiting_.clear();
        busy_ = true;
        lock.unlock();
        for (const Work& each : batch) {
            const Status status = each();
            if (status == 0) continue;
            const std::lock_guard again(mutex_);
            if (lost_ == 0) lost_ = status;
        }
        lock.lock();
        busy_ = false;
        changed_.notify_all();
    }
}

Status Machine::give(Work work) {
    Work unless_lost = [this, work = std::move(work)] { return lost ? 0 : work(); };
    if (capturing)
        capturing->push_back(std::move(unless_lost));
    else
        queue.add(std::move(unless_lost));
    return 0;
}

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

Machine::Graph* new_graph(Machine::Graph graph) {
    auto made = std::make_unique<Machine::Graph>(std::move(graph));
    Machine::Graph* const key = made.get();
    machine.graphs[key] = std::move(made);
    return key;
}

}  // namespace
}  // namespace granary::test::card

using namespace granary::test::card;

extern "C" {

Status cuStreamCreate(Stream* stream, unsigned) {
    *stream = new_object<Stream>();
    return machine.lost;
}
Status cuStreamDestroy_v2(Stream stream) {
    machine.queue.drain();
    return free_object(stream);
}
Status cuStreamSynchronize(Stream stream) {
    machine.queue.drain();
    return machine.objects.contains(stream) ? machine.lost.load() : kInvalid;
}
Status cuStreamWaitEvent(Stream, Event event, unsigned) {
    return machine.events.contains(event) ? machine.lost.load() : kInvalid;
}

Status cuEventCreate(Event* event, unsigned) {
    auto state = std::make_unique<EventState>();
    *event = reinterpret_cast<Event>(state.get());
    machine.events[*event] = std::move(state);
    return machine.lost;
}
Status cuEventDestroy_v2(Event event) {
    machine.queue.drain();
    return machine.events.erase(event) == 1 ? 0 : kInvalid;
}
Status cuEventRecord(Event event, Stream stream) {
    const auto found = machine.events.find(event);
    if (found == machine.events.end() || !machine.objects.contains(stream)) return kInvalid;
    EventState* const state = found->second.get();
    const uint64_t number = ++state->recorded;
    machine.queue.add([state, number] {
        const std::lock_guard lock(machine.queue.mutex());
        state->passed = number;
        state->seconds = now();
        machine.queue.changed().notify_all();
        return 0;
    });
    return machine.lost;
}
Status cuEventSynchronize(Event event) {
    const auto found = machine.events.find(event);
    if (found == machine.events.end()) return kInvalid;
    const EventState& state = *found->second;
    std::unique_lock lock(machine.queue.mutex());
    machine.queue.changed().wait(lock, [&] { return state.passed >= state.recorded; });
    return machine.lost;
}
Status cuEventQuery(Event event) {
    const auto found = machine.events.find(event);
    if (found == machine.events.end()) return kInvalid;
    const std::lock_guard lock(machine.queue.mutex());
    if (machine.lost) return machine.lost;
    return found->second->passed >= found->second->recorded ? 0 : kNotReady;
}
Status cuEventElapsedTime(float* milliseconds, Event from, Event to) {
    const auto begin = machine.events.find(from), end = machine.events.find(to);
    if (begin == machine.events.end() || end == machine.events.end()) return kInvalid;
    const std::lock_guard lock(machine.queue.mutex());
    *milliseconds = static_cast<float>(1e3 * (end->second->seconds - begin->second->seconds));
    return machine.lost;
}

Status cuMemsetD8Async(Address to, unsigned char byte, size_t bytes, Stream) {
    if (machine.lost) return machine.lost;
    if (!usable(reinterpret_cast<void*>(to), bytes)) return kInvalid;
    return machine.give([=] {
        other_work();
        std::memset(reinterpret_cast<void*>(to), byte, bytes);
        return 0;
    });
}
// From memory that is not locked a copy is taken at once, to such memory it is waited for.
Status cuMemcpyAsync(Address to, Address from, size_t bytes, Stream) {
    if (machine.lost) return machine.lost;
    void* const target = reinterpret_cast<void*>(to);
    const void* const source = reinterpret_cast<const void*>(from);
    if (!usable(target, bytes) || !usable(source, bytes)) return kInvalid;
    if (is_pinned(source)) {
        const Status status = machine.give([=] {
            other_work();
            std::memmove(target, source, bytes);
            return 0;
        });
        if (!is_pinned(target)) machine.queue.drain();
        return status;
    }
    const auto* const begin = static_cast<const std::byte*>(source);
    auto taken = std::make_shared<std::vector<std::byte>>(begin, begin + bytes);
    return machine.give([=] {
        other_work();
        std::memcpy(target, taken->data(), bytes);
        return 0;
    });
}

// Of locked memory, which the product promises; the last first, since nothing is said of the order.
Status cuMemcpyBatchAsync_v2(const Address* to, const Address* from, const size_t* bytes,
                             size_t count, const CopyAttributes* attributes, const size_t* first,
                             size_t attribute_count, Stream stream) {
    if (machine.lost) return machine.lost;
    if (count == 0 || attribute_count != 1 || *first != 0 || attributes->order != 1)
        return kInvalid;
    for (size_t i = count; i-- > 0;) {
        if (bytes[i] == 0 || !is_pinned(reinterpret_cast<const void*>(from[i]))) return kInvalid;
        if (const Status status = cuMemcpyAsync(to[i], from[i], bytes[i], stream); status != 0)
            return status;
    }
    return 0;
}

Status cuStreamBeginCapture_v2(Stream, int) {
    if (machine.lost || machine.capturing) return machine.lost ? machine.lost.load() : kInvalid;
    machine.capturing = new_graph({});
    return 0;
}
Status cuStreamEndCapture(Stream, Graph* graph) {
    if (!machine.capturing) return kInvalid;
    *graph = reinterpret_cast<Graph>(machine.capturing);
    machine.capturing = nullptr;
    return machine.lost;
}
Status cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) {
    if (machine.lost) return machine.lost;
    *exec = reinterpret_cast<GraphExec>(new_graph(*machine.graphs.at(graph)));
    return 0;
}
Status cuGraphUpload(GraphExec, Stream) {
    return machine.lost;
}
Status cuGraphLaunch(GraphExec exec, Stream) {
    if (machine.lost) return machine.lost;
    for (const Work& work : *machine.graphs.at(exec)) machine.queue.add(work);
    return 0;
}
Status cuGraphExecDestroy(GraphExec exec) {
    machine.queue.drain();
    return machine.graphs.erase(exec) == 1 ? 0 : kInvalid;
}
Status cuGraphDestroy(Graph graph) {
    return machine.graphs.erase(graph) == 1 ? 0 : kInvalid;
}

}  // extern "C"
