// SPDX-License-Identifier: GPL-3.0-or-later
// Passes calls on to another device, keeps its own table of what is mapped where, and lets calls
// fail when a test wants it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device.h"

namespace granary::test {

class WatchedDevice final : public gpu::Device {
  public:
    explicit WatchedDevice(std::unique_ptr<gpu::Device> device) : device_(std::move(device)) {}

    // Calls number `first` to `first + count - 1` from here on fail with `kind` and do nothing. A
    // lost device stays lost. Only the calls that can fail count: memory and synchronize. Copies
    // and fills before a synchronize that fails are lost.
    void arm(uint64_t first, uint64_t count, ErrorKind kind = ErrorKind::device) {
        calls_ = 0;
        first_ = first;
        count_ = kind == ErrorKind::device_lost ? UINT64_MAX - first : count;
        kind_ = kind;
        failed_.clear();
    }
    void disarm() {
        count_ = 0;
        catch_up();
    }
    // What calls that fail advise.
    void advise(std::string advice) { advice_ = std::move(advice); }
    // Copies and fills are done all the same, for engines: their kernels run whatever failed before
    // them, and would read an address that never came.
    void lose_no_copies() { loses_copies_ = false; }
    uint64_t calls() const { return calls_; }
    const std::vector<std::string>& failed() const { return failed_; }  // by name, since arm()
    // A failing release_granules gives this many granules back before it fails.
    void set_given_back_before_failing(size_t count) { given_back_before_failing_ = count; }

    // From now on as a GPU, which reads only host memory that is locked; `refuses`: it cannot be
    // where it is mapped.
    void want_locked_memory(bool refuses) {
        wants_locked_ = true;
        refuses_locking_ = refuses;
    }
    // Copies on the copy stream from memory that it neither locked nor handed out.
    uint64_t unlocked_copies() const { return unlocked_copies_; }

    static constexpr gpu::GranuleId kNone = UINT32_MAX;
    using Table = std::vector<gpu::GranuleId>;  // [places]; kNone: unmapped
    const std::map<gpu::RangeId, Table>& tables() const { return tables_; }
    // The table of the live range that begins at `base`; null: there is none.
    const Table* table_at(const std::byte* base) const {
        for (const auto& [range, table] : tables_)
            if (device_->base(range) == base) return &table;
        return nullptr;
    }
    // Calls that a sound manager would not have made: the device below refused them.
    const std::vector<std::string>& refused() const { return refused_; }
    // For those who outlive the device: the same list.
    void tell_refused_to(std::vector<std::string>* list) { list_ = list; }

    const gpu::DeviceInfo& info() const override { return device_->info(); }
    gpu::Kernels& kernels() override { return device_->kernels(); }
    Result<gpu::RangeId> reserve(size_t places) override {
        if (auto r = call("reserve"); !r) return tl::unexpected(r.error());
        auto range = device_->reserve(places);
        if (range) tables_[*range].assign(places, kNone);
        return range;
    }
    void release(gpu::RangeId range) override {
        tables_.erase(range);
        device_->release(range);
    }
    std::byte* base(gpu::RangeId range) const override { return device_->base(range); }
    size_t places(gpu::RangeId range) const override { return device_->places(range); }
    Result<void> create_granules(size_t count) override {
        if (auto r = call("create_granules"); !r) {
            ++failed_asks_;
            return r;
        }
        return seen(device_->create_granules(count));
    }
    size_t granules() const override { return device_->granules(); }
    Result<void> release_granules(std::span<const gpu::GranuleId> granules) override {
        if (auto r = call("release_granules"); !r) {
            const size_t some = std::min(given_back_before_failing_, granules.size());
            if (auto s = seen(device_->release_granules(granules.first(some))); !s) return s;
            return r;
        }
        return seen(device_->release_granules(granules));
    }
    Result<void> recreate_granules(std::span<const gpu::GranuleId> granules) override {
        if (auto r = call("recreate_granules"); !r) {
            ++failed_asks_;
            return r;
        }
        return seen(device_->recreate_granules(granules));
    }
    bool held(gpu::GranuleId granule) const override { return device_->held(granule); }
    Result<void> map(gpu::RangeId range, size_t first,
                     std::span<const gpu::GranuleId> granules) override {
        if (auto r = call("map"); !r) return r;
        auto done = seen(device_->map(range, first, granules));
        if (done)
            std::copy(granules.begin(), granules.end(),
                      tables_.at(range).begin() + static_cast<ptrdiff_t>(first));
        return done;
    }
    Result<void> unmap(gpu::RangeId range, size_t first, size_t count) override {
        if (auto r = call("unmap"); !r) return r;
        auto done = seen(device_->unmap(range, first, count));
        if (done)
            std::fill_n(tables_.at(range).begin() + static_cast<ptrdiff_t>(first), count, kNone);
        return done;
    }
    uint64_t driver_allocations() const override {
        return device_->driver_allocations() + failed_asks_;
    }
    uint64_t driver_bytes() const override { return device_->driver_bytes(); }
    Result<gpu::HostBuffer> page_locked(size_t bytes) override {
        if (auto r = call("page_locked"); !r) return tl::unexpected(r.error());
        auto buffer = device_->page_locked(bytes);
        if (buffer) locked_.emplace_back(buffer->data.get(), buffer->bytes);
        return buffer;
    }
    Result<void> lock_pages(std::span<const std::byte> pages) override {
        if (refuses_locking_)
            return fail(ErrorKind::device, "pages cannot be locked", "on purpose");
        locked_.push_back(pages);
        return device_->lock_pages(pages);
    }
    bool wants_locked_memory() const override { return wants_locked_; }
    void copy(gpu::StreamId stream, void* to, const void* from, size_t bytes) override {
        if (stream == gpu::StreamId::copy && wants_locked_ && !is_locked(from, bytes))
            ++unlocked_copies_;
        if (!loses_copies_ || !fails(calls_)) {
            catch_up();
            return device_->copy(stream, to, from, bytes);
        }
        const auto* const begin = static_cast<const std::byte*>(from);
        waiting_.push_back([this, stream, to, content = std::vector(begin, begin + bytes)] {
            device_->copy(stream, to, content.data(), content.size());
        });
    }
    void fill(gpu::StreamId stream, void* to, int byte, size_t bytes) override {
        if (!loses_copies_ || !fails(calls_)) {
            catch_up();
            return device_->fill(stream, to, byte, bytes);
        }
        waiting_.push_back([=, this] { device_->fill(stream, to, byte, bytes); });
    }
    gpu::Event record(gpu::StreamId stream) override { return device_->record(stream); }
    void wait(gpu::StreamId stream, gpu::Event event) override { device_->wait(stream, event); }
    void wait_here(gpu::Event event) override { device_->wait_here(event); }
    bool passed(gpu::Event event) override { return device_->passed(event); }
    Result<void> synchronize(gpu::StreamId stream) override {
        if (auto r = call("synchronize"); !r) {
            waiting_.clear();
            return r;
        }
        return device_->synchronize(stream);
    }

  private:
    bool is_locked(const void* from, size_t bytes) const {
        const auto* const begin = static_cast<const std::byte*>(from);
        for (const std::span<const std::byte>& span : locked_)
            if (begin >= span.data() && begin + bytes <= span.data() + span.size()) return true;
        return false;
    }
    void catch_up() {
        for (const auto& work : std::exchange(waiting_, {})) work();
    }
    bool fails(uint64_t call) const { return call >= first_ && call - first_ < count_; }
    Result<void> call(const char* name) {
        if (!fails(calls_++)) {
            catch_up();
            return {};
        }
        failed_.emplace_back(name);
        return fail(kind_, "a device call failed on purpose", name, advice_);
    }
    Result<void> seen(Result<void> result) {
        if (!result) refused_.push_back(result.error().message());
        if (!result && list_) list_->push_back(result.error().message());
        return result;
    }

    std::unique_ptr<gpu::Device> device_;
    bool wants_locked_ = false, refuses_locking_ = false;
    std::vector<std::span<const std::byte>> locked_;
    uint64_t unlocked_copies_ = 0;
    std::map<gpu::RangeId, Table> tables_;
    uint64_t calls_ = 0, first_ = 0, count_ = 0, failed_asks_ = 0;
    std::string advice_;
    ErrorKind kind_ = ErrorKind::device;
    size_t given_back_before_failing_ = 0;
    bool loses_copies_ = true;
    std::vector<std::function<void()>> waiting_;
    std::vector<std::string> failed_, refused_;
    std::vector<std::string>* list_ = nullptr;
};

}  // namespace granary::test
