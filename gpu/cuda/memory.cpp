// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/cuda/memory.h"

#include <string>

namespace granary::gpu::cuda {

Memory::Memory(const SharedContext& context, size_t granule_bytes)
    : driver_(context.driver()), granule_bytes_(granule_bytes) {
    properties_.location.id = access_.location.id = context.device();
}

// Errors have nobody who could act on them here; after a lost context they are expected.
Memory::~Memory() {
    for (RangeId range = 0; range < bases_.size(); ++range) release(range);
    for (GranuleId granule = 0; granule < handles_.size(); ++granule)
        if (held(granule)) (void)driver_.granule_release(handles_[granule]);
    for (Granule handle : stranded_) (void)driver_.granule_release(handle);
}

std::byte* Memory::base(RangeId range) const {
    return range < bases_.size() ? reinterpret_cast<std::byte*>(bases_[range]) : nullptr;
}

Result<RangeId> Memory::reserve(size_t places) {
    if (places == 0) return fail(ErrorKind::internal, "A range of no places was asked for");
    if (places > SIZE_MAX / granule_bytes_)
        return fail(ErrorKind::out_of_memory, "A range is larger than all addresses",
                    std::to_string(places) + " granules of " + format_bytes(granule_bytes_));
    Address base = 0;
    const size_t bytes = places * granule_bytes_;
    if (const Status status = driver_.address_reserve(&base, bytes, granule_bytes_, 0, 0);
        status != 0)
        return tl::unexpected(driver_.error(status, driver_.address_reserve.name(),
                                            "Addresses for a range cannot be reserved",
                                            format_bytes(bytes)));
    bases_.push_back(base);
    return table_.add_range(places);
}

void Memory::release(RangeId range) {
    if (!base(range)) return;
    const std::span<const GranuleId> places = table_.places(range);
    for (size_t place = 0; place < places.size(); ++place)
        if (places[place] != GranuleTable::kNone)
            (void)driver_.unmap(address(range, place), granule_bytes_);
    (void)driver_.address_free(bases_[range], places.size() * granule_bytes_);
    bases_[range] = 0;
    table_.remove_range(range);
}

Status Memory::new_handle(Granule* handle) const {
    return driver_.granule_create(handle, granule_bytes_, &properties_, 0);
}

void Memory::take_back(Granule handle) {
    if (driver_.granule_release(handle) != 0) stranded_.push_back(handle);
}

Result<void> Memory::create(size_t count) {
    if (auto r = table_.check_addition(count); !r) return r;
    const size_t before = handles_.size();
    for (size_t i = 0; i < count; ++i) {
        Granule handle = 0;
        if (const Status status = new_handle(&handle); status != 0) {
            for (size_t done = before; done < handles_.size(); ++done) take_back(handles_[done]);
            handles_.resize(before);
            return tl::unexpected(driver_.error(
                status, driver_.granule_create.name(), "There is no device memory for granules",
                std::to_string(i) + " of " + std::to_string(count) + " granules of " +
                    format_bytes(granule_bytes_) + " could be had"));
        }
        handles_.push_back(handle);
    }
    table_.add_granules(count);
    return {};
}

Result<void> Memory::release_granules(std::span<const GranuleId> granules) {
    if (auto r = table_.release(granules); !r) return r;
    for (size_t i = 0; i < granules.size(); ++i) {
        const Status status = driver_.granule_release(handles_[granules[i]]);
        if (status == 0) continue;
        (void)table_.recreate(granules.subspan(i));
        return tl::unexpected(driver_.error(
            status, driver_.granule_release.name(), "The driver does not take memory back",
            std::to_string(granules.size() - i) + " of " + std::to_string(granules.size()) +
                " granules of " + format_bytes(granule_bytes_)));
    }
    return {};
}

Result<void> Memory::recreate(std::span<const GranuleId> granules) {
    if (auto r = table_.recreate(granules); !r) return r;
    for (size_t i = 0; i < granules.size(); ++i) {
        const Status status = new_handle(&handles_[granules[i]]);
        if (status == 0) continue;
        for (size_t done = 0; done < i; ++done) take_back(handles_[granules[done]]);
        (void)table_.release(granules);
        return tl::unexpected(driver_.error(
            status, driver_.granule_create.name(), "There is no device memory for granules",
            std::to_string(i) + " of " + std::to_string(granules.size()) + " granules of " +
                format_bytes(granule_bytes_) + " could be had again"));
    }
    return {};
}

Result<void> Memory::map(RangeId range, size_t first, std::span<const GranuleId> granules) {
    const size_t count = granules.size();
    if (auto r = table_.map(range, first, granules); !r || count == 0) return r;
    Status status = 0;
    size_t mapped = 0;
    while (mapped < count) {
        status = driver_.map(address(range, first + mapped), granule_bytes_, 0,
                             handles_[granules[mapped]], 0);
        if (status != 0) break;
        ++mapped;
    }
    const bool all = mapped == count;
    // Setting access costs as much as mapping: once for the whole run.
    if (all)
        status = driver_.set_access(address(range, first), count * granule_bytes_, &access_, 1);
    if (status == 0) return {};

    // Place by place, so that one that the driver keeps is one that the table keeps.
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
        if (i < mapped && driver_.unmap(address(range, first + i), granule_bytes_) != 0)
            ++kept;
        else
            (void)table_.unmap(range, first + i, 1);
    }
    std::string detail = std::to_string(count) + " of " + format_bytes(granule_bytes_);
    if (kept > 0) detail += ", " + std::to_string(kept) + " of them stay mapped and out of use";
    return tl::unexpected(driver_.error(status,
                                        all ? driver_.set_access.name() : driver_.map.name(),
                                        "Granules cannot be mapped", std::move(detail)));
}

Result<void> Memory::unmap(RangeId range, size_t first, size_t count) {
    const Result<std::vector<GranuleId>> granules = table_.unmap(range, first, count);
    if (!granules) return tl::unexpected(granules.error());
    if (count == 0) return {};
    const Status status = driver_.unmap(address(range, first), count * granule_bytes_);
    if (status == 0) return {};
    (void)table_.map(range, first, *granules);
    return tl::unexpected(
        driver_.error(status, driver_.unmap.name(), "Granules cannot be unmapped",
                      std::to_string(count) + " of " + format_bytes(granule_bytes_)));
}

}  // namespace granary::gpu::cuda
