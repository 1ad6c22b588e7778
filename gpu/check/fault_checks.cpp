// SPDX-License-Identifier: GPL-3.0-or-later
// Calls of the driver made to fail, and a context lost in earnest.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "gpu/check/check.h"

namespace granary::gpu::check {
namespace {

constexpr size_t kGranules = 8;
constexpr cuda::Status kInvalidValue = 1, kLaunchFailure = 719;

// A short life of a pool in which each call may fail: what failed is noted, the rest goes on.
class Life {
  public:
    explicit Life(Subject& subject) : subject_(subject) {}

    void open() {
        auto card = subject_.open();
        if (note(card)) card_ = std::move(*card);
    }

    void live() {
        if (!card_) return;
        DeviceMemory& memory = card_->memory();
        const auto a = memory.reserve(kGranules), b = memory.reserve(kGranules);
        if (!note(a) || !note(b)) return;
        a_ = *a;
        if (!note(memory.create_granules(kGranules))) return;
        map(*a, 0, ids(0, 6));
        write(*a, 0);
        note(memory.synchronize(StreamId::compute));
        unmap(*a, 3, 2);
        map(*b, 0, ids(3, 2));
        write(*b, 0);
        note(memory.release_granules(ids(6, 2)));
        if (!memory.held(6) && !memory.held(7)) note(memory.recreate_granules(ids(6, 2)));
        auto buffer = memory.page_locked(4096);
        if (note(buffer) && is_mapped(*a, 0)) {
            buffer_ = std::move(*buffer);
            std::memset(buffer_.data.get(), 1, 4096);
            memory.copy(StreamId::copy, memory.base(*a), buffer_.data.get(), 4096);
            memory.wait(StreamId::compute, memory.record(StreamId::copy));
            memory.fill(StreamId::compute, memory.base(*a), 2, 4096);
            note(card_->wrong_words(memory.base(*a), 4096, 1));
            if (auto replay = card_->capture_write(memory.base(*a), 4096, 3); note(replay)) {
                replay_ = std::move(*replay);
                note(replay_->run());
            }
        }
        note(memory.synchronize(StreamId::copy));
        note(memory.synchronize(StreamId::compute));
    }

    const std::vector<Error>& errors() const { return errors_; }
    Card* card() { return card_.get(); }

    // Nothing fails any more: what the calls answered is how things are, and all of it works.
    void check_state() {
        if (!card_) return;
        DeviceMemory& memory = card_->memory();
        need(memory.synchronize(StreamId::copy));
        need(memory.synchronize(StreamId::compute));
        size_t held = 0;
        std::vector<GranuleId> gone;
        for (GranuleId granule = 0; granule < memory.granules(); ++granule) {
            held += memory.held(granule);
            if (!memory.held(granule)) gone.push_back(granule);
        }
        expect_equal(memory.driver_bytes(), held * uint64_t{memory.info().granule_bytes},
                     "bytes held");
        for (const auto& [place, granule] : places_)
            need(memory.unmap(place.first, place.second, 1));
        if (memory.granules() == 0) return;
        need(memory.recreate_granules(gone));
        const std::vector<GranuleId> all = ids(0, memory.granules());
        need(memory.map(*a_, 0, all));
        const size_t bytes = all.size() * memory.info().granule_bytes;
        need(card_->write(memory.base(*a_), bytes, 99));
        expect_equal(need(card_->wrong_words(memory.base(*a_), bytes, 99)), 0, "wrong words");
    }

  private:
    template <class T>
    bool note(const Result<T>& result) {
        if (!result) errors_.push_back(result.error());
        return result.has_value();
    }
    bool is_mapped(RangeId range, size_t place) const { return places_.contains({range, place}); }
    void map(RangeId range, size_t first, const std::vector<GranuleId>& granules) {
        for (GranuleId granule : granules)
            for (const auto& [place, other] : places_)
                if (granule == other) return;  // its unmapping failed
        if (!note(card_->memory().map(range, first, granules))) return;
        for (size_t i = 0; i < granules.size(); ++i) places_[{range, first + i}] = granules[i];
    }
    void unmap(RangeId range, size_t first, size_t count) {
        for (size_t i = 0; i < count; ++i)
            if (!is_mapped(range, first + i)) return;
        if (!note(card_->memory().unmap(range, first, count))) return;
        for (size_t i = 0; i < count; ++i) places_.erase({range, first + i});
    }
    void write(RangeId range, size_t place) {
        if (!is_mapped(range, place)) return;
        DeviceMemory& memory = card_->memory();
        note(card_->write(memory.base(range) + place * memory.info().granule_bytes, 4096, 1));
    }

    Subject& subject_;
    // Freed with the life and not within it, when nothing is made to fail any more.
    std::unique_ptr<Card> card_;
    HostBuffer buffer_;
    std::unique_ptr<Replay> replay_;
    std::optional<RangeId> a_;
    std::map<std::pair<RangeId, size_t>, GranuleId> places_;
    std::vector<Error> errors_;
};

using Calls = std::map<std::string, size_t, std::less<>>;  // by function

// Ends interception, also where a check has failed: what is let go then still calls the driver.
class Interception {
  public:
    Interception(cuda::Driver& driver, cuda::Interceptor interceptor) : driver_(driver) {
        driver_.interceptor = std::move(interceptor);
    }
    ~Interception() { driver_.interceptor = nullptr; }
    Interception(const Interception&) = delete;
    Interception& operator=(const Interception&) = delete;

  private:
    cuda::Driver& driver_;
};

size_t total(const Calls& calls) {
    size_t sum = 0;
    for (const auto& [name, count] : calls) sum += count;
    return sum;
}

// The driver's functions that a life without faults calls, and how often; of opening in `opening`.
Calls calls_of_a_life(Subject& subject, Calls* opening = nullptr) {
    if (!subject.driver()) throw NotApplicable{"the host has no driver whose calls could fail"};
    Calls calls;
    subject.driver()->interceptor = [&](std::string_view name) {
        ++calls.try_emplace(std::string(name), 0).first->second;
        return 0;
    };
    Life life(subject);
    life.open();
    if (opening) *opening = calls;
    life.live();
    subject.driver()->interceptor = nullptr;
    if (!life.errors().empty()) throw Failed{life.errors().front().message()};
    life.check_state();
    return calls;
}

std::string failing_calls(Subject& subject, const Limits& limits) {
    Calls calls = calls_of_a_life(subject);
    cuda::Driver& driver = *subject.driver();
    // Nobody could act on the one's error, and a capture that has begun must end.
    calls.erase(std::string(driver.graph_destroy.name()));
    calls.erase(std::string(driver.capture_end.name()));
    // Another pool keeps the context, so that opening is quick and free memory comparable.
    Pool keeper(subject, kGranules);
    const uint64_t before = need(keeper.card().free_bytes());
    size_t runs = 0;
    for (const auto& [name, count] : calls) {
        std::vector<size_t> numbers;
        for (size_t i = 0; i < limits.faults; ++i)
            numbers.push_back(limits.faults > 1 ? i * (count - 1) / (limits.faults - 1) : 0);
        numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
        for (const size_t number : numbers) {
            const bool creates = name == driver.granule_create.name();
            const cuda::Status status = creates ? cuda::kOutOfMemory : kInvalidValue;
            const std::string where = "call " + std::to_string(number) + " of " + name;
            size_t seen = 0;
            bool fired = false;
            {
                Life life(subject);
                driver.interceptor = [&](std::string_view called) {
                    const bool now = called == name && seen++ == number;
                    fired = fired || now;
                    return now ? status : 0;
                };
                life.open();
                life.live();
                driver.interceptor = nullptr;
                expect(fired, where + " did not take place");
                // Free memory after a change is a figure for people: an older one stands.
                expect(!life.errors().empty() || name == driver.memory_info.name(),
                       where + " failed and nobody was told");
                for (const Error& error : life.errors())
                    expect(error.kind == (creates ? ErrorKind::out_of_memory : ErrorKind::device),
                           where + ": " + error.message());
                life.check_state();
            }
            expect_equal(need(keeper.card().free_bytes()), before, "free bytes after " + where);
            ++runs;
        }
    }
    return counted(runs, "failure") + " of " + counted(calls.size(), "driver function");
}

std::string lost_calls(Subject& subject, const Limits& limits) {
    Calls opening;
    const size_t all = total(calls_of_a_life(subject, &opening)), living = all - total(opening);
    cuda::Driver& driver = *subject.driver();
    Pool keeper(subject, kGranules);
    const uint64_t before = need(keeper.card().free_bytes());
    const size_t runs = std::min(living, 16 * limits.faults);
    for (size_t run = 0; run < runs; ++run) {
        const size_t from = run * living / runs;
        const std::string where = "from call " + std::to_string(from) + " on";
        {
            Life life(subject);
            life.open();
            size_t seen = 0;
            const Interception interception(driver, [&](std::string_view name) {
                return seen++ < from || name == driver.capture_end.name() ? 0 : kLaunchFailure;
            });
            life.live();
            expect(!life.errors().empty(), where + " everything failed and nobody was told");
            for (const Error& error : life.errors())
                expect(error.kind == ErrorKind::device_lost, where + ": " + error.message());
            const size_t calls = seen;
            DeviceMemory& memory = life.card()->memory();
            const auto lost = [](const auto& result) {
                return !result && result.error().kind == ErrorKind::device_lost;
            };
            expect(lost(memory.reserve(1)) && lost(memory.create_granules(1)) &&
                       lost(memory.synchronize(StreamId::copy)) && lost(memory.page_locked(8)),
                   where + ": a lost device answered");
            expect_equal(seen, calls, "calls to a device lost " + where);
        }
        expect_equal(need(keeper.card().free_bytes()), before, "free bytes after a loss " + where);
    }
    Life after(subject);
    after.open();
    after.live();
    expect(after.errors().empty(), "a device opened afterwards does not work");
    after.check_state();
    return std::to_string(runs) + " losses, each from another call on";
}

std::string lost_context(Subject& subject, const Limits& limits) {
    if (!subject.driver()) throw NotApplicable{"the host has no context to lose"};
    Error cause;
    uint64_t before = 0;
    {
        Pool pool(subject, limits.granules);
        pool.map(pool.a(), 0, ids(0, 2));
        pool.write_all();
        pool.compare_all();
        before = need(pool.card().free_bytes());
        // A kernel reads the first place that is not mapped.
        const auto read = pool.card().wrong_words(pool.at(pool.a(), 2), pool.granule_bytes(), 1);
        expect(!read, "a kernel read a place that is not mapped");
        cause = read.error();
        expect(cause.kind == ErrorKind::device_lost, cause.message());
        const auto mapped = pool.memory().map(pool.a(), 2, ids(2, 1));
        expect(!mapped && mapped.error().kind == ErrorKind::device_lost, "a lost device answered");
    }
    // The last user of the context is gone. Some drivers make a new one, others need a new process;
    // in between there is nothing.
    if (const auto again = subject.open(); !again) {
        expect(again.error().kind == ErrorKind::device_lost, again.error().message());
        return cause.detail + "; a new context needs a new process";
    }
    Pool pool(subject, limits.granules);
    pool.map(pool.a(), 0, ids(0, limits.granules));
    pool.write_all();
    pool.compare_all();
    expect_equal(need(pool.card().free_bytes()), before, "free bytes with the new context");
    return cause.detail + "; a new context works";
}

}  // namespace

std::vector<Check> fault_checks() {
    return {
        {"failing calls", "a call that fails leaves everything consistent", failing_calls},
        {"lost calls", "a device that answers no more is told apart and ends cleanly", lost_calls},
        {"lost context", "a kernel that ends the context ends it cleanly", lost_context},
    };
}

}  // namespace granary::gpu::check
