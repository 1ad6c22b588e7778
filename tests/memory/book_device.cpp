// SPDX-License-Identifier: GPL-3.0-or-later
#include "tests/memory/book_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace granary::test {

using gpu::GranuleId;
using gpu::RangeId;
using gpu::StreamId;

namespace {
// Addresses cost nothing until they are touched: a test may reserve thousands of ranges.
constexpr size_t kArenaBytes = size_t{1} << 38;
constexpr int kSpoilt = 0xdb;
}  // namespace

BookDevice::BookDevice(size_t granule_bytes, size_t most_granules) {
    info_.id = "book";
    info_.name = "A device of tables";
    info_.face = gpu::Face::card;
    info_.granule_bytes = granule_bytes;
    info_.total_bytes = info_.free_bytes = uint64_t{granule_bytes} * most_granules;
    void* const arena = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) std::abort();
    arena_ = static_cast<std::byte*>(arena);
}

BookDevice::~BookDevice() {
    munmap(arena_, kArenaBytes);
}

tl::unexpected<Error> BookDevice::fault(std::string what) {
    faults_.push_back(what);
    return fail(ErrorKind::internal, std::move(what));
}

gpu::Kernels& BookDevice::kernels() {
    std::abort();  // it computes nothing
}

BookDevice::Range* BookDevice::find(RangeId range) {
    return range < ranges_.size() && ranges_[range].base ? &ranges_[range] : nullptr;
}

Result<RangeId> BookDevice::reserve(size_t places) {
    if (places == 0) return fault("a range of no places is reserved");
    // A place more than asked for, so that neighbours in the arena are never one piece.
    const size_t bytes = ((places + 1) * info_.granule_bytes + 4095) / 4096 * 4096;
    if (bytes > kArenaBytes - arena_used_) return fault("there are no addresses left");
    const auto range = static_cast<RangeId>(ranges_.size());
    ranges_.push_back({arena_ + arena_used_, std::vector<GranuleId>(places, kNone),
                       std::vector<Tickets>(places)});
    by_address_.emplace_back(arena_ + arena_used_, range);
    arena_used_ += bytes;
    return range;
}

void BookDevice::release(RangeId range) {
    Range* const found = find(range);
    if (!found) {
        (void)fault("a range is released that does not exist");
        return;
    }
    for (GranuleId granule : found->granules)
        if (granule != kNone) {
            (void)fault("a range is released with places mapped");
            break;
        }
    std::erase_if(by_address_, [&](const auto& entry) { return entry.second == range; });
    *found = {};
}

std::byte* BookDevice::base(RangeId range) const {
    return range < ranges_.size() ? ranges_[range].base : nullptr;
}

size_t BookDevice::places(RangeId range) const {
    return range < ranges_.size() ? ranges_[range].granules.size() : 0;
}

Result<void> BookDevice::create_granules(size_t count) {
    ++driver_allocations_;
    if ((held_ + count) * info_.granule_bytes > info_.total_bytes)
        return fault("more granules are created than the device has");
    granules_.resize(granules_.size() + count);
    held_ += count;
    return {};
}

bool BookDevice::held(GranuleId granule) const {
    return granule < granules_.size() && granules_[granule].held;
}

Result<void> BookDevice::release_granules(std::span<const GranuleId> granules) {
    for (GranuleId id : granules) {
        if (!held(id)) return fault("a granule is given back that is not held");
        if (granules_[id].mapped) return fault("a granule is given back that is mapped");
        granules_[id].held = false;
    }
    held_ -= granules.size();
    return {};
}

Result<void> BookDevice::recreate_granules(std::span<const GranuleId> granules) {
    ++driver_allocations_;
    for (GranuleId id : granules) {
        if (id >= granules_.size()) return fault("a granule that never was is asked for again");
        if (granules_[id].held) return fault("a granule is asked for again that is held");
        granules_[id].held = true;
    }
    held_ += granules.size();
    return {};
}

// A granule that was just mapped holds whatever it held elsewhere.
void BookDevice::spoil(const Range& range, size_t first, size_t count) {
    if (range.granules.size() * info_.granule_bytes <= kKeptBytes)
        std::memset(range.base + first * info_.granule_bytes, kSpoilt, count * info_.granule_bytes);
}

Result<void> BookDevice::map(RangeId range, size_t first, std::span<const GranuleId> granules) {
    Range* const found = find(range);
    if (!found) return fault("granules are mapped into a range that does not exist");
    if (first > found->granules.size() || granules.size() > found->granules.size() - first)
        return fault("granules are mapped outside their range");
    for (size_t i = 0; i < granules.size(); ++i) {
        const GranuleId id = granules[i];
        if (found->granules[first + i] != kNone) return fault("a place is mapped twice");
        if (!held(id)) return fault("a granule is mapped that is not held");
        if (granules_[id].mapped) return fault("a granule is mapped twice");
        granules_[id].mapped = true;
        found->granules[first + i] = id;
    }
    spoil(*found, first, granules.size());
    return {};
}

Result<void> BookDevice::unmap(RangeId range, size_t first, size_t count) {
    Range* const found = find(range);
    if (!found) return fault("places of a range are unmapped that does not exist");
    if (first > found->granules.size() || count > found->granules.size() - first)
        return fault("places outside their range are unmapped");
    for (size_t place = first; place < first + count; ++place) {
        const GranuleId id = found->granules[place];
        if (id == kNone) return fault("a place is unmapped that is not mapped");
        for (size_t s = 0; s < kStreams; ++s)
            if (found->touched[place][s] > done_[s])
                return fault("a place is unmapped while a stream may still touch it");
        granules_[id].mapped = false;
        found->granules[place] = kNone;
    }
    spoil(*found, first, count);
    return {};
}

size_t BookDevice::mappings() const {
    size_t count = 0;
    for (const auto& [address, range] : by_address_) {
        const std::vector<GranuleId>& granules = ranges_[range].granules;
        for (size_t i = 0; i < granules.size(); ++i) {
            const bool joined = i > 0 && (granules[i] == kNone || granules[i - 1] == kNone
                                              ? granules[i] == granules[i - 1]
                                              : granules[i] == granules[i - 1] + 1);
            count += !joined;
        }
    }
    return count;
}

Result<gpu::HostBuffer> BookDevice::page_locked(size_t bytes) {
    ++driver_allocations_;
    gpu::HostBuffer buffer;
    buffer.data = {new std::byte[bytes](), [](std::byte* data) { delete[] data; }};
    buffer.bytes = bytes;
    return buffer;
}

bool BookDevice::keeps_content(const std::byte* base) const {
    for (const auto& [address, range] : by_address_)
        if (address == base) return keeps_content(range);
    return false;
}

bool BookDevice::keeps_content(RangeId range) const {
    return places(range) * info_.granule_bytes <= kKeptBytes;
}

bool BookDevice::keeps(const void* at) const {
    const auto* const begin = static_cast<const std::byte*>(at);
    for (const auto& [address, range] : by_address_)
        if (begin >= address && begin < address + places(range) * info_.granule_bytes)
            return keeps_content(range);
    return true;  // the host's
}

BookDevice::Range* BookDevice::places_of(const void* at, size_t bytes, size_t& first,
                                         size_t& last) {
    const auto* const begin = static_cast<const std::byte*>(at);
    if (bytes == 0 || begin < arena_ || begin >= arena_ + kArenaBytes) return nullptr;
    const auto above =
        std::upper_bound(by_address_.begin(), by_address_.end(), begin,
                         [](const std::byte* a, const auto& entry) { return a < entry.first; });
    if (above == by_address_.begin()) {
        (void)fault("work on addresses of no range");
        return nullptr;
    }
    Range& range = ranges_[(above - 1)->second];
    const auto offset = static_cast<size_t>(begin - range.base);
    first = offset / info_.granule_bytes;
    last = (offset + bytes - 1) / info_.granule_bytes;
    if (last >= range.granules.size()) {
        (void)fault("work on addresses behind a range");
        return nullptr;
    }
    return &range;
}

void BookDevice::touch(StreamId stream, const void* at, size_t bytes, const char* verb) {
    size_t first = 0, last = 0;
    Range* const range = places_of(at, bytes, first, last);
    if (!range) return;
    const auto s = static_cast<size_t>(stream);
    for (size_t place = first; place <= last; ++place) {
        if (range->granules[place] == kNone) {
            (void)fault(std::string("a place is ") + verb + " that is not mapped");
            return;
        }
        range->touched[place][s] = issued_[s];
    }
}

void BookDevice::copy(StreamId stream, void* to, const void* from, size_t bytes) {
    if (bytes == 0) return;
    ++issued_[static_cast<size_t>(stream)];
    touch(stream, from, bytes, "read");
    touch(stream, to, bytes, "written");
    if (keeps(to) && keeps(from)) std::memcpy(to, from, bytes);
}

void BookDevice::fill(StreamId stream, void* to, int byte, size_t bytes) {
    if (bytes == 0) return;
    ++issued_[static_cast<size_t>(stream)];
    touch(stream, to, bytes, "filled");
    if (keeps(to)) std::memset(to, byte, bytes);
}

gpu::Event BookDevice::record(StreamId stream) {
    return {issued_[static_cast<size_t>(stream)], stream};
}

void BookDevice::wait(StreamId, gpu::Event) {}

Result<void> BookDevice::synchronize(StreamId stream) {
    done_[static_cast<size_t>(stream)] = issued_[static_cast<size_t>(stream)];
    return {};
}

}  // namespace granary::test
