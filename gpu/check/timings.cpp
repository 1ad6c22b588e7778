// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/check/timings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <utility>

#include "gpu/check/check.h"

namespace granary::gpu::check {
namespace {

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Memory of this process, unmapped with the object.
struct Mapping {
    void* at = MAP_FAILED;
    size_t bytes = 0;
    Mapping(size_t count, int protection, int flags, int file)
        : at(mmap(nullptr, count, protection, flags, file, 0)), bytes(count) {
        if (at == MAP_FAILED) throw Failed{std::string("mmap: ") + std::strerror(errno)};
    }
    ~Mapping() { munmap(at, bytes); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
};

class Bench {
  public:
    Bench(const std::shared_ptr<cuda::Driver>& driver, const cuda::Options& options,
          const TimingOptions& limits)
        : device_(need(cuda::GpuMemory::open(driver, options))),
          driver_(*driver),
          limits_(limits),
          granule_(device_->info().granule_bytes) {}

    std::vector<Timing> run() {
        granules();
        copies();
        return std::move(timings_);
    }

  private:
    void add(std::string name, double value, std::string unit) {
        timings_.push_back({std::move(name), value, std::move(unit), {}});
    }
    void skip(std::string name, std::string why) {
        timings_.push_back({std::move(name), 0, {}, std::move(why)});
    }
    void check(cuda::Status status, const char* what) {
        if (status != 0) throw Failed{std::string(what) + ": " + driver_.name_of(status)};
    }

    // Maps and unmaps all granules in runs of `run`, several times; the best round counts.
    void map_in_runs(RangeId range, size_t run) {
        double map = 1e9, unmap = 1e9;
        for (int round = 0; round < 3; ++round) {
            map = std::min(
                map, seconds_of([&] {
                    for (size_t first = 0; first < limits_.granules; first += run)
                        need(device_->map(range, first, ids(static_cast<GranuleId>(first), run)));
                }));
            unmap = std::min(unmap, seconds_of([&] {
                                 for (size_t first = 0; first < limits_.granules; first += run)
                                     need(device_->unmap(range, first, run));
                             }));
        }
        const std::string how = run == 1 ? ", one by one" : ", in runs of " + std::to_string(run);
        const auto count = static_cast<double>(limits_.granules);
        add("map and set access" + how, 1e6 * map / count, "us per granule");
        add("unmap" + how, 1e6 * unmap / count, "us per granule");
    }

    void granules() {
        const auto count = static_cast<double>(limits_.granules);
        const RangeId range = need(device_->reserve(limits_.granules));
        const auto all = ids(0, limits_.granules);
        add("create", 1e6 * seconds_of([&] { need(device_->create_granules(all.size())); }) / count,
            "us per granule");
        for (const size_t run : {size_t{1}, size_t{16}, limits_.granules}) map_in_runs(range, run);
        add("release", 1e6 * seconds_of([&] { need(device_->release_granules(all)); }) / count,
            "us per granule");
        add("create again",
            1e6 * seconds_of([&] { need(device_->recreate_granules(all)); }) / count,
            "us per granule");
        need(device_->map(range, 0, all));
        card_ = device_->base(range);
        card_bytes_ = std::min(limits_.granules * granule_, limits_.bytes);
    }

    void copy_rate(const std::string& name, void* to, const void* from, size_t bytes) {
        constexpr int kCopies = 4;
        std::vector<double> times;
        for (int round = 0; round < 5; ++round)
            times.push_back(seconds_of([&] {
                for (int i = 0; i < kCopies; ++i) device_->copy(StreamId::copy, to, from, bytes);
                need(device_->synchronize(StreamId::copy));
            }));
        std::sort(times.begin(), times.end());
        add(name, kCopies * static_cast<double>(bytes) / times[2] / 1e9, "GB/s");
    }

    // Locks `mapping` in place, copies from it, and lets it go.
    void lock_and_copy(const std::string& what, const Mapping& mapping, unsigned flags) {
        const double gib = static_cast<double>(mapping.bytes) / (1 << 30);
        cuda::Status status = 0;
        const double locking = seconds_of([&] {
            status = driver_.host_register(mapping.at, mapping.bytes, cuda::kHostPortable | flags);
        });
        if (status != 0) return skip("page-lock " + what, driver_.name_of(status));
        add("page-lock " + what, 1e3 * locking / gib, "ms per GiB");
        copy_rate("copy up from " + what, card_, mapping.at, card_bytes_);
        const double unlocking = seconds_of(
            [&] { check(driver_.host_unregister(mapping.at), "host memory cannot be let go"); });
        add("unlock " + what, 1e3 * unlocking / gib, "ms per GiB");
    }

    void copies() {
        const size_t bytes = limits_.bytes;
        {
            HostBuffer buffer;
            const double taken = seconds_of([&] { buffer = need(device_->page_locked(bytes)); });
            add("page-locked buffer", 1e3 * taken / (static_cast<double>(bytes) / (1 << 30)),
                "ms per GiB");
            std::memset(buffer.data.get(), 1, bytes);
            copy_rate("copy up from page-locked buffer", card_, buffer.data.get(), card_bytes_);
            copy_rate("copy down to page-locked buffer", buffer.data.get(), card_, card_bytes_);
        }
        {
            const Mapping anonymous(bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
            const double touched = seconds_of([&] { std::memset(anonymous.at, 2, bytes); });
            add("touch anonymous memory", 1e3 * touched / (static_cast<double>(bytes) / (1 << 30)),
                "ms per GiB");
            copy_rate("copy up from pageable memory", card_, anonymous.at, card_bytes_);
            lock_and_copy("anonymous memory", anonymous, 0);
        }
        file_mapping();
        copy_rate("copy within the card", card_ + card_bytes_ / 2, card_, card_bytes_ / 2);
    }

    void file_mapping() {
        constexpr const char* kName = "file mapping, read-only";
        const int file = open(limits_.folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (file < 0)
            return skip(std::string("page-lock ") + kName,
                        limits_.folder + ": " + std::strerror(errno));
        std::vector<char> block(1 << 20);
        bool written = true;
        for (size_t at = 0; written && at < limits_.bytes; at += block.size()) {
            std::fill(block.begin(), block.end(), static_cast<char>(at >> 20));
            written = write(file, block.data(), block.size()) == static_cast<ssize_t>(block.size());
        }
        if (written) {
            const Mapping mapping(limits_.bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file);
            lock_and_copy(kName, mapping, cuda::kRegisterReadOnly);
        } else {
            skip(std::string("page-lock ") + kName, limits_.folder + ": " + std::strerror(errno));
        }
        close(file);
    }

    std::unique_ptr<cuda::GpuMemory> device_;
    const cuda::Driver& driver_;
    const TimingOptions limits_;
    size_t granule_;
    std::byte* card_ = nullptr;
    size_t card_bytes_ = 0;
    std::vector<Timing> timings_;
};

}  // namespace

Result<std::vector<Timing>> measure(const std::shared_ptr<cuda::Driver>& driver,
                                    const cuda::Options& options, const TimingOptions& limits) {
    try {
        return Bench(driver, options, limits).run();
    } catch (const Failed& failed) {
        return fail(ErrorKind::device, "The costs could not be measured", failed.reason);
    }
}

}  // namespace granary::gpu::check
