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

// Granules from `begin` on that follow one another in the file: the index behind the last.
size_t run_end(std::span<const GranuleId> granules, size_t begin) {
    size_t end = begin + 1;
    while (end < granules.size() && granules[end] == granules[end - 1] + 1) ++end;
    return end;
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
        if (granule != kNone) granules_[granule] = Use::free;
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
    if (count > kNone - granules())
        return wrong_call("More granules were asked for than can be numbered",
                          std::to_string(count));
    if (auto r = system_has(count); !r) return r;
    if (file_ < 0) file_ = memfd_create("granary-device", MFD_CLOEXEC);
    if (file_ < 0) return no_memory(count, system_error("memfd_create"));
    if (!take_pages(granules(), count)) return no_memory(count, system_error("fallocate"));
    granules_.resize(granules() + count, Use::free);
    held_ += count;
    return {};
}

bool Memory::change_use(std::span<const GranuleId> granules, Use from, Use to) {
    for (size_t i = 0; i < granules.size(); ++i) {
        if (granules[i] < granules_.size() && granules_[granules[i]] == from) {
            granules_[granules[i]] = to;
            continue;
        }
        for (size_t done = 0; done < i; ++done) granules_[granules[done]] = from;
        return false;
    }
    return true;
}

Result<void> Memory::release_granules(std::span<const GranuleId> granules) {
    if (!change_use(granules, Use::free, Use::released))
        return wrong_call("Granules that are not free were to be given back",
                          std::to_string(granules.size()));
    for (size_t begin = 0, end; begin < granules.size(); begin = end) {
        end = run_end(granules, begin);
        if (!give_pages_back(granules[begin], end - begin)) {
            const std::string cause = system_error("fallocate");
            const std::span<const GranuleId> rest = granules.subspan(begin);
            (void)change_use(rest, Use::released, Use::free);
            return fail(ErrorKind::device, "The system does not take memory back",
                        std::to_string(rest.size()) + " granules, " + cause);
        }
        held_ -= end - begin;
    }
    return {};
}

Result<void> Memory::recreate(std::span<const GranuleId> granules) {
    if (!change_use(granules, Use::released, Use::free))
        return wrong_call("Granules that were not given back were asked for again",
                          std::to_string(granules.size()));
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
        (void)change_use(granules, Use::free, Use::released);
        for (size_t i = 0; i < begin; ++i) (void)give_pages_back(granules[i], 1);
        return taken;
    }
    held_ += granules.size();
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
            granules_[granules[i]] = Use::free;
            target.granules[first + i] = kNone;
        }
    };
    for (; entered < granules.size(); ++entered) {
        const GranuleId granule = granules[entered];
        if (granule >= granules_.size() || granules_[granule] != Use::free) {
            undo();
            return wrong_call(granule >= granules_.size() ? "This granule does not exist"
                              : held(granule)             ? "A granule is mapped already"
                                                          : "A granule was given back",
                              "granule " + std::to_string(granule));
        }
        granules_[granule] = Use::mapped;
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
    for (GranuleId granule : granules) granules_[granule] = Use::free;
    mappings_ = after;
    return {};
}

}  // namespace granary::gpu::host
