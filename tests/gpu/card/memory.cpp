// SPDX-License-Identifier: GPL-3.0-or-later
// The card's memory: addresses, granules and what lies where.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "tests/gpu/card/kernels.h"

FakeCudaFault fake_cuda_fault = kSound;

namespace granary::test::card {

Machine machine;

Machine::Machine() : file(memfd_create("card", MFD_CLOEXEC)) {}

size_t Machine::used_bytes() const {
    size_t bytes = lost_bytes + (users > 0 ? kContextBytes : 0);
    for (const auto& [handle, piece] : handles) bytes += piece.bytes;
    return bytes;
}

namespace {

void forget(Address at, size_t bytes) {
    mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool on_card(Address address) {
    auto next = machine.reserved.upper_bound(address);
    if (next == machine.reserved.begin()) return false;
    --next;
    return address < next->first + next->second;
}

}  // namespace

Span usable_around(Address address) {
    const std::lock_guard lock(machine.mutex);
    Span span;
    for (const auto* const table : {&machine.host, &machine.registered}) {
        auto next = table->upper_bound(address);
        if (next == table->begin()) continue;
        --next;
        if (address < next->first + next->second) return {next->first, next->first + next->second};
    }
    auto next = machine.mappings.upper_bound(address);
    if (next == machine.mappings.begin()) return {};
    --next;
    if (address >= next->first + next->second.bytes || !next->second.access) return {};
    span = {next->first, next->first + next->second.bytes};
    for (++next; next != machine.mappings.end() && next->first == span.end && next->second.access;
         ++next)
        span.end += next->second.bytes;
    return span;
}

bool usable(const void* at, size_t bytes) {
    const auto address = reinterpret_cast<Address>(at);
    {
        const std::lock_guard lock(machine.mutex);
        if (!on_card(address)) return true;  // host memory
    }
    const Span span = usable_around(address);
    return span.end >= address + bytes && span.end != 0;
}

bool is_pinned(const void* at) {
    const auto address = reinterpret_cast<Address>(at);
    const std::lock_guard lock(machine.mutex);
    if (on_card(address)) return true;
    for (const auto* const table : {&machine.host, &machine.registered}) {
        auto next = table->upper_bound(address);
        if (next == table->begin()) continue;
        --next;
        if (address < next->first + next->second) return true;
    }
    return false;
}

}  // namespace granary::test::card

using namespace granary::test::card;

extern "C" {

// As a new process would find the card: a lost context is lost for the old one's whole life.
void fake_cuda_restart() {
    machine.queue.drain();
    machine.lost = 0;
}

Status cuDevicePrimaryCtxRetain(Context* context, Ordinal) {
    if (machine.lost) return machine.lost;
    ++machine.users;
    *context = reinterpret_cast<Context>(&machine);
    return 0;
}
Status cuDevicePrimaryCtxRelease_v2(Ordinal) {
    if (machine.users == 0) return kInvalid;
    if (--machine.users > 0) return 0;
    machine.queue.drain();
    machine.lost_bytes = 0;  // what was left behind goes with the context
    for (const auto& [address, mapping] : machine.mappings) forget(address, mapping.bytes);
    machine.mappings.clear();
    for (const auto& [handle, piece] : machine.handles)
        machine.free_pieces.emplace(piece.bytes, piece.offset);
    machine.handles.clear();
    for (const auto& [address, bytes] : machine.reserved)
        munmap(reinterpret_cast<void*>(address), bytes);
    machine.reserved.clear();
    machine.graphs.clear();
    machine.capturing = nullptr;
    machine.events.clear();
    for (void* object : machine.objects) ::operator delete(object);
    machine.objects.clear();
    for (const auto& [address, bytes] : machine.host) std::free(reinterpret_cast<void*>(address));
    machine.host.clear();
    machine.registered.clear();
    return 0;
}
Status cuCtxSetCurrent(Context context) {
    return context == reinterpret_cast<Context>(&machine) && machine.users > 0 ? 0 : kInvalid;
}
Status cuCtxSynchronize() {
    machine.queue.drain();
    return machine.lost;
}

Status cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    *free_bytes = facts().bytes - machine.used_bytes();
    *total = facts().bytes;
    return machine.lost;
}
Status cuMemGetAllocationGranularity(size_t* bytes, const AllocationProperties*, int) {
    *bytes = kGranuleBytes;
    return 0;
}
Status cuMemAddressReserve(Address* at, size_t bytes, size_t alignment, Address,
                           unsigned long long) {
    if (machine.lost) return machine.lost;
    alignment = std::max(alignment, kGranuleBytes);
    void* const span = mmap(nullptr, bytes + alignment, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (span == MAP_FAILED) return kOutOfMemory;
    const auto address = reinterpret_cast<Address>(span);
    const Address first = (address + alignment - 1) / alignment * alignment;
    if (first > address) munmap(span, first - address);
    munmap(reinterpret_cast<void*>(first + bytes), address + alignment - first);
    const std::lock_guard lock(machine.mutex);
    machine.reserved[first] = bytes;
    *at = first;
    return 0;
}
Status cuMemAddressFree(Address at, size_t bytes) {
    const std::lock_guard lock(machine.mutex);
    const auto found = machine.reserved.find(at);
    if (found == machine.reserved.end() || found->second != bytes) return kInvalid;
    const auto inside = machine.mappings.lower_bound(at);
    if (inside != machine.mappings.end() && inside->first < at + bytes) return kInvalid;
    munmap(reinterpret_cast<void*>(at), bytes);
    machine.reserved.erase(found);
    return 0;
}
Status cuMemCreate(Granule* handle, size_t bytes, const AllocationProperties* properties,
                   unsigned long long flags) {
    if (machine.lost) return machine.lost;
    if (bytes == 0 || bytes % kGranuleBytes || properties->type != 1 ||
        properties->location.type != 1 || flags)
        return kInvalid;
    if (machine.used_bytes() + bytes > facts().bytes) return kOutOfMemory;
    Piece piece{machine.file_bytes, bytes};
    if (const auto found = machine.free_pieces.find(bytes); found != machine.free_pieces.end()) {
        piece.offset = found->second;
        machine.free_pieces.erase(found);
    } else {
        machine.file_bytes += bytes;
        if (ftruncate(machine.file, static_cast<off_t>(machine.file_bytes)) != 0)
            return kOutOfMemory;
    }
    *handle = machine.next_handle++;
    machine.handles[*handle] = piece;
    return 0;
}
Status cuMemRelease(Granule handle) {
    const auto found = machine.handles.find(handle);
    if (found == machine.handles.end()) return kInvalid;
    for (const auto& [address, mapping] : machine.mappings)
        if (mapping.granule == handle) return kInvalid;  // the layer never does this
    machine.free_pieces.emplace(found->second.bytes, found->second.offset);
    machine.handles.erase(found);
    if (fake_cuda_fault == kLeaks) machine.lost_bytes += kGranuleBytes;
    return 0;
}
Status cuMemMap(Address at, size_t bytes, size_t offset, Granule handle, unsigned long long flags) {
    if (machine.lost) return machine.lost;
    const std::lock_guard lock(machine.mutex);
    const bool reserved =
        std::any_of(machine.reserved.begin(), machine.reserved.end(), [&](const auto& range) {
            return at >= range.first && at + bytes <= range.first + range.second;
        });
    const auto found = machine.handles.find(handle);
    if (!reserved || offset || flags || found == machine.handles.end() ||
        bytes != found->second.bytes)
        return kInvalid;
    for (const auto& [address, mapping] : machine.mappings)
        if (mapping.granule == handle || (address < at + bytes && at < address + mapping.bytes))
            return kInvalid;
    machine.mappings[at] = {bytes, handle, false};
    return 0;
}
Status cuMemSetAccess(Address at, size_t bytes, const Access* access, size_t count) {
    if (machine.lost) return machine.lost;
    if (count != 1 || access->flags != 3) return kInvalid;
    const std::lock_guard lock(machine.mutex);
    for (Address place = at; place < at + bytes;) {
        const auto found = machine.mappings.find(place);
        if (found == machine.mappings.end()) return kInvalid;
        const Piece& piece = machine.handles.at(found->second.granule);
        size_t offset = piece.offset;
        place += piece.bytes;
        if (fake_cuda_fault == kMixesUp && found->first > at) offset -= piece.bytes;
        if (fake_cuda_fault == kHalfAccess && found->first > at) continue;
        if (mmap(reinterpret_cast<void*>(found->first), piece.bytes, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, machine.file, static_cast<off_t>(offset)) == MAP_FAILED)
            return kOutOfMemory;
        found->second.access = true;
    }
    return 0;
}
Status cuMemUnmap(Address at, size_t bytes) {
    const std::lock_guard lock(machine.mutex);
    size_t mapped = 0;
    for (Address place = at; place < at + bytes;) {
        const auto found = machine.mappings.find(place);
        if (found == machine.mappings.end()) return kInvalid;
        mapped += found->second.bytes;
        place += found->second.bytes;
    }
    if (mapped != bytes) return kInvalid;
    machine.mappings.erase(machine.mappings.lower_bound(at),
                           machine.mappings.lower_bound(at + bytes));
    forget(at, bytes);
    return 0;
}

Status cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    if (machine.lost) return machine.lost;
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*memory) return kOutOfMemory;
    const std::lock_guard lock(machine.mutex);
    machine.host[reinterpret_cast<Address>(*memory)] = bytes;
    return 0;
}
// As the driver does, after all work that may still use it; also below.
Status cuMemFreeHost(void* memory) {
    machine.queue.drain();
    const std::lock_guard lock(machine.mutex);
    if (machine.host.erase(reinterpret_cast<Address>(memory)) == 0) return kInvalid;
    std::free(memory);
    return 0;
}
Status cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
    const std::lock_guard lock(machine.mutex);
    machine.registered[reinterpret_cast<Address>(memory)] = bytes;
    return machine.lost;
}
Status cuMemHostUnregister(void* memory) {
    machine.queue.drain();
    const std::lock_guard lock(machine.mutex);
    if (machine.registered.erase(reinterpret_cast<Address>(memory)) == 0) return kInvalid;
    return machine.lost;
}
Status cuMemHostGetDevicePointer_v2(Address* at, void* memory, unsigned) {
    *at = reinterpret_cast<Address>(memory);
    return 0;
}

}  // extern "C"
