// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/host/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "gpu/host/machine.h"

namespace granary::gpu::host {
namespace {

std::string system_error(const char* call) {
    return std::string(call) + ": " + std::strerror(errno);
}

tl::unexpected<Error> wrong_call(std::string what, std::string detail) {
    return fail(ErrorKind::internal, std::move(what), std::move(detail));
}

std::string place_text(RangeId range, size_t place) {
    return "range " + std::to_string(range) + ", place " + std::to_string(place);
}

tl::unexpected<Error> too_many_mappings(size_t count) {
    return fail(ErrorKind::device, "The memory of the device is cut into too many pieces",
                std::to_string(count) + " separate mappings, " +
                    std::to_string(Memory::kMostMappings) + " are allowed",
                "Choose larger granules");
}

}  // namespace

Memory::~Memory() {
    for (RangeId range = 0; range < ranges_.size(); ++range) release(range);
    if (file_ >= 0) close(file_);
}

Memory::Range* Memory::find(RangeId range) {
    return range < ranges_.size() && ranges_[range].base ? &ranges_[range] : nullptr;
}

const Memory::Range* Memory::find(RangeId range) const {
    return range < ranges_.size() && ranges_[range].base ? &ranges_[range] : nullptr;
}

std::byte* Memory::base(RangeId range) const {
    const Range* found = find(range);
    return found ? found->base : nullptr;
}

size_t Memory::places(RangeId range) const {
    const Range* found = find(range);
    return found ? found->granules.size() : 0;
}

Result<RangeId> Memory::reserve(size_t places) {
    constexpr size_t kMostBytes = size_t{1} << 46;  // half of the addresses of a process
    if (places == 0) return wrong_call("A range of no places was asked for", "");
    if (places > kMostBytes / granule_bytes_ - 1)
        return fail(ErrorKind::out_of_memory, "A range is larger than all addresses",
                    std::to_string(places) + " granules of " + format_bytes(granule_bytes_));
    if (mappings_ + 1 > kMostMappings || ranges_.size() >= std::numeric_limits<RangeId>::max())
        return fail(ErrorKind::device, "There are too many ranges", std::to_string(ranges_.size()));
    // One granule more than asked for: the range begins at a multiple of its granules.
    const size_t bytes = places * granule_bytes_;
    void* const span = mmap(nullptr, bytes + granule_bytes_, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (span == MAP_FAILED)
        return fail(ErrorKind::out_of_memory, "Addresses for a range cannot be reserved",
                    format_bytes(bytes) + ", " + system_error("mmap"));
    auto* const first = static_cast<std::byte*>(span);
    const size_t before =
        (granule_bytes_ - reinterpret_cast<uintptr_t>(span) % granule_bytes_) % granule_bytes_;
    if (before > 0) munmap(first, before);
    munmap(first + before + bytes, granule_bytes_ - before);
    ranges_.push_back({first + before, std::vector<GranuleId>(places, kNone)});
    ++mappings_;
    return static_cast<RangeId>(ranges_.size() - 1);
}

void Memory::release(RangeId range) {
    Range* const found = find(range);
    if (!found) return;
    mappings_ -= borders(*found, 0, found->granules.size() - 1) + 1;
    for (GranuleId granule : found->granules)
        if (granule != kNone) mapped_[granule] = false;
    munmap(found->base, found->granules.size() * granule_bytes_);
    *found = {};
}

uint64_t Memory::system_bytes() const {
    struct stat status {};
    return file_ >= 0 && fstat(file_, &status) == 0 ? uint64_t{512} * status.st_blocks : 0;
}

tl::unexpected<Error> Memory::no_memory(size_t count, const std::string& cause) const {
    return fail(
        ErrorKind::out_of_memory, "There is no memory for granules",
        std::to_string(count) + " of " + format_bytes(granule_bytes_) + " were asked for, " + cause,
        "Close other programs or choose smaller settings");
}

Result<void> Memory::create(size_t count) {
    if (count == 0) return {};
    if (count > kNone - granules())
        return wrong_call("More granules were asked for than can be numbered",
                          std::to_string(count));
    // The system would rather kill a process than refuse it memory, so ask before taking.
    const uint64_t free_bytes = machine_memory().free_bytes;
    if (count > free_bytes / granule_bytes_)
        return no_memory(count, format_bytes(free_bytes) + " of main memory are free");
    if (file_ < 0) file_ = memfd_create("granary-device", MFD_CLOEXEC);
    if (file_ < 0) return no_memory(count, system_error("memfd_create"));
    // fallocate takes the pages now: a file that were only made longer would kill the process at
    // the first touch that finds no memory. When it fails, the file is as it was.
    int result = 0;
    do {
        result = fallocate(file_, 0, static_cast<off_t>(bytes()),
                           static_cast<off_t>(count * granule_bytes_));
    } while (result != 0 && errno == EINTR);
    if (result != 0) return no_memory(count, system_error("fallocate"));
    mapped_.resize(granules() + count, false);
    return {};
}

Result<Memory::Range*> Memory::checked(RangeId range, size_t first, size_t count) {
    Range* const found = find(range);
    if (!found) return wrong_call("This range does not exist", std::to_string(range));
    const size_t places = found->granules.size();
    if (first > places || count > places - first)
        return wrong_call("Places outside their range were named",
                          place_text(range, first) + ", " + std::to_string(count) + " of them, " +
                              std::to_string(places) + " exist");
    return found;
}

// Neighbours share a mapping when both are holes or their granules follow one another in the file.
bool Memory::joined(const Range& range, size_t place) const {
    const GranuleId before = range.granules[place - 1], here = range.granules[place];
    return before == kNone || here == kNone ? before == here : before + 1 == here;
}

size_t Memory::borders(const Range& range, size_t first, size_t last) const {
    size_t count = 0;
    const size_t end = std::min(last + 1, range.granules.size() - 1);
    for (size_t place = std::max<size_t>(first, 1); place <= end; ++place)
        count += !joined(range, place);
    return count;
}

Result<void> Memory::make_hole(const Range& range, size_t first, size_t count) {
    void* const at = range.base + first * granule_bytes_;
    if (mmap(at, count * granule_bytes_, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return fail(ErrorKind::device, "Granules cannot be unmapped",
                    std::to_string(count) + ", " + system_error("mmap"));
    return {};
}

Result<void> Memory::map(RangeId range, size_t first, std::span<const GranuleId> granules) {
    const Result<Range*> found = checked(range, first, granules.size());
    if (!found) return tl::unexpected(found.error());
    if (granules.empty()) return {};
    Range& target = **found;
    const size_t last = first + granules.size() - 1;
    for (size_t place = first; place <= last; ++place)
        if (target.granules[place] != kNone)
            return wrong_call("A place is mapped already", place_text(range, place));

    // The tables change first, since they tell what the change will cost; undo() takes it back.
    const size_t borders_before = borders(target, first, last);
    size_t entered = 0;
    const auto undo = [&] {
        for (size_t i = 0; i < entered; ++i) {
            mapped_[granules[i]] = false;
            target.granules[first + i] = kNone;
        }
    };
    for (; entered < granules.size(); ++entered) {
        const GranuleId granule = granules[entered];
        if (granule >= mapped_.size() || mapped_[granule]) {
            undo();
            return wrong_call(granule >= mapped_.size() ? "This granule does not exist"
                                                        : "A granule is mapped already",
                              "granule " + std::to_string(granule));
        }
        mapped_[granule] = true;
        target.granules[first + entered] = granule;
    }
    const size_t after = mappings_ - borders_before + borders(target, first, last);
    if (after > kMostMappings) {
        undo();
        return too_many_mappings(after);
    }
    for (size_t begin = first; begin <= last;) {
        size_t end = begin + 1;
        while (end <= last && joined(target, end)) ++end;
        // Populated at once: the pages exist, and a fault for each would come in the middle of
        // work.
        if (mmap(target.base + begin * granule_bytes_, (end - begin) * granule_bytes_,
                 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file_,
                 static_cast<off_t>(target.granules[begin] * uint64_t{granule_bytes_})) ==
            MAP_FAILED) {
            const std::string cause = system_error("mmap");
            // Nothing is lost if this fails too: what stays mapped is not in the tables.
            (void)make_hole(target, first, granules.size());
            undo();
            return fail(ErrorKind::device, "Granules cannot be mapped",
                        std::to_string(granules.size()) + ", " + cause);
        }
        begin = end;
    }
    mappings_ = after;
    return {};
}

Result<void> Memory::unmap(RangeId range, size_t first, size_t count) {
    const Result<Range*> found = checked(range, first, count);
    if (!found) return tl::unexpected(found.error());
    if (count == 0) return {};
    Range& target = **found;
    const size_t last = first + count - 1;
    for (size_t place = first; place <= last; ++place)
        if (target.granules[place] == kNone)
            return wrong_call("A place is not mapped", place_text(range, place));
    // A hole inside a run of granules makes three mappings of one: counted before it is made.
    const auto begin = target.granules.begin() + static_cast<ptrdiff_t>(first);
    const std::vector<GranuleId> granules(begin, begin + static_cast<ptrdiff_t>(count));
    const size_t borders_before = borders(target, first, last);
    std::fill_n(begin, count, kNone);
    const size_t after = mappings_ - borders_before + borders(target, first, last);
    const Result<void> hole = after > kMostMappings && after > mappings_
                                  ? Result<void>(too_many_mappings(after))
                                  : make_hole(target, first, count);
    if (!hole) {
        std::copy(granules.begin(), granules.end(), begin);
        return hole;
    }
    for (GranuleId granule : granules) mapped_[granule] = false;
    mappings_ = after;
    return {};
}

}  // namespace granary::gpu::host
