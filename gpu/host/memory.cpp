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

tl::unexpected<Error> too_many_mappings(size_t count) {
    return fail(ErrorKind::device, "The memory of the device is cut into too many pieces",
                std::to_string(count) + " separate mappings, " +
                    std::to_string(Memory::kMostMappings) + " are allowed",
                "Choose larger granules");
}

}  // namespace

Memory::~Memory() {
    for (RangeId range = 0; range < bases_.size(); ++range) release(range);
    if (file_ >= 0) close(file_);
}

std::byte* Memory::base(RangeId range) const {
    return range < bases_.size() ? bases_[range] : nullptr;
}

Result<RangeId> Memory::reserve(size_t places) {
    constexpr size_t kMostBytes = size_t{1} << 46;  // half of the addresses of a process
    if (places == 0) return fail(ErrorKind::internal, "A range of no places was asked for");
    if (places > kMostBytes / granule_bytes_ - 1)
        return fail(ErrorKind::out_of_memory, "A range is larger than all addresses",
                    std::to_string(places) + " granules of " + format_bytes(granule_bytes_));
    if (mappings_ + 1 > kMostMappings)
        return fail(ErrorKind::device, "There are too many ranges", std::to_string(bases_.size()));
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
    bases_.push_back(first + before);
    ++mappings_;
    return table_.add_range(places);
}

void Memory::release(RangeId range) {
    if (!base(range)) return;
    mappings_ -= borders(range, 0, places(range)) + 1;
    munmap(bases_[range], places(range) * granule_bytes_);
    bases_[range] = nullptr;
    table_.remove_range(range);
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

// The system would rather kill a process than refuse it memory, so ask before taking.
Result<void> Memory::system_has(size_t count) const {
    const uint64_t free_bytes = machine_memory().free_bytes;
    if (count > free_bytes / granule_bytes_)
        return no_memory(count, format_bytes(free_bytes) + " of main memory are free");
    return {};
}

// fallocate takes the pages now: a file that were only made longer would kill the process at the
// first touch that finds no memory. When it fails, the file is as it was.
bool Memory::take_pages(size_t first, size_t count) {
    int result = 0;
    do {
        result = fallocate(file_, 0, static_cast<off_t>(first * granule_bytes_),
                           static_cast<off_t>(count * granule_bytes_));
    } while (result != 0 && errno == EINTR);
    return result == 0;
}

bool Memory::give_pages_back(size_t first, size_t count) {
    int result = 0;
    do {
        result = fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           static_cast<off_t>(first * granule_bytes_),
                           static_cast<off_t>(count * granule_bytes_));
    } while (result != 0 && errno == EINTR);
    return result == 0;
}

Result<void> Memory::create(size_t count) {
    if (count == 0) return {};
    if (auto r = table_.check_addition(count); !r) return r;
    if (auto r = system_has(count); !r) return r;
    if (file_ < 0) file_ = memfd_create("granary-device", MFD_CLOEXEC);
    if (file_ < 0) return no_memory(count, system_error("memfd_create"));
    if (!take_pages(granules(), count)) return no_memory(count, system_error("fallocate"));
    table_.add_granules(count);
    return {};
}

Result<void> Memory::release_granules(std::span<const GranuleId> granules) {
    if (auto r = table_.release(granules); !r) return r;
    for (size_t begin = 0, end; begin < granules.size(); begin = end) {
        end = run_end(granules, begin);
        if (give_pages_back(granules[begin], end - begin)) continue;
        const std::string cause = system_error("fallocate");
        const std::span<const GranuleId> rest = granules.subspan(begin);
        (void)table_.recreate(rest);
        return fail(ErrorKind::device, "The system does not take memory back",
                    std::to_string(rest.size()) + " granules, " + cause);
    }
    return {};
}

Result<void> Memory::recreate(std::span<const GranuleId> granules) {
    if (auto r = table_.recreate(granules); !r) return r;
    Result<void> taken = system_has(granules.size());
    size_t begin = 0;
    while (taken && begin < granules.size()) {
        const size_t end = run_end(granules, begin);
        if (take_pages(granules[begin], end - begin))
            begin = end;
        else
            taken = no_memory(granules.size(), system_error("fallocate"));
    }
    if (!taken) {
        (void)table_.release(granules);
        for (size_t i = 0; i < begin; ++i) (void)give_pages_back(granules[i], 1);
    }
    return taken;
}

size_t Memory::borders(RangeId range, size_t first, size_t count) const {
    const std::span<const GranuleId> granules = table_.places(range);
    const size_t end = std::min(first + count + 1, granules.size());
    size_t found = 0;
    for (size_t place = std::max<size_t>(first, 1); place < end; ++place) {
        const GranuleId before = granules[place - 1], here = granules[place];
        const bool hole = before == GranuleTable::kNone || here == GranuleTable::kNone;
        // Neighbours share a mapping when both are holes or follow one another in the file.
        found += hole ? before != here : before + 1 != here;
    }
    return found;
}

Result<void> Memory::make_hole(RangeId range, size_t first, size_t count) {
    void* const at = bases_[range] + first * granule_bytes_;
    if (mmap(at, count * granule_bytes_, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return fail(ErrorKind::device, "Granules cannot be unmapped",
                    std::to_string(count) + ", " + system_error("mmap"));
    return {};
}

Result<void> Memory::map(RangeId range, size_t first, std::span<const GranuleId> granules) {
    const size_t count = granules.size();
    // The table changes first, since it tells what the change will cost.
    const size_t borders_before = base(range) ? borders(range, first, count) : 0;
    if (auto r = table_.map(range, first, granules); !r || count == 0) return r;
    const size_t after = mappings_ - borders_before + borders(range, first, count);
    if (after > kMostMappings) {
        (void)table_.unmap(range, first, count);
        return too_many_mappings(after);
    }
    for (size_t begin = 0, end; begin < count; begin = end) {
        end = run_end(granules, begin);
        // Populated at once: the pages exist, and a fault for each would come in the middle of
        // work.
        if (mmap(bases_[range] + (first + begin) * granule_bytes_, (end - begin) * granule_bytes_,
                 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, file_,
                 static_cast<off_t>(granules[begin] * uint64_t{granule_bytes_})) != MAP_FAILED)
            continue;
        const std::string cause = system_error("mmap");
        // Nothing is lost if this fails too: what stays mapped is not in the table.
        (void)make_hole(range, first, count);
        (void)table_.unmap(range, first, count);
        return fail(ErrorKind::device, "Granules cannot be mapped",
                    std::to_string(count) + ", " + cause);
    }
    mappings_ = after;
    return {};
}

Result<void> Memory::unmap(RangeId range, size_t first, size_t count) {
    const size_t borders_before = base(range) ? borders(range, first, count) : 0;
    const Result<std::vector<GranuleId>> granules = table_.unmap(range, first, count);
    if (!granules) return tl::unexpected(granules.error());
    if (count == 0) return {};
    // A hole inside a run of granules makes three mappings of one: counted before it is made.
    const size_t after = mappings_ - borders_before + borders(range, first, count);
    const Result<void> hole = after > kMostMappings && after > mappings_
                                  ? Result<void>(too_many_mappings(after))
                                  : make_hole(range, first, count);
    if (hole)
        mappings_ = after;
    else
        (void)table_.map(range, first, *granules);
    return hole;
}

}  // namespace granary::gpu::host
