// SPDX-License-Identifier: GPL-3.0-or-later
#include "gpu/check/checks.h"

#include <chrono>
#include <numeric>

#include "gpu/check/check.h"

namespace granary::gpu::check {

std::vector<GranuleId> ids(GranuleId first, size_t count) {
    std::vector<GranuleId> list(count);
    std::iota(list.begin(), list.end(), first);
    return list;
}

std::string counted(uint64_t count, const char* word) {
    return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

Pool::Pool(Subject& subject, size_t granules)
    : card_(need(subject.open())), patterns_(granules, 0) {
    need(memory().create_granules(granules));
    a_ = need(memory().reserve(granules));
    b_ = need(memory().reserve(granules));
}

void Pool::map(RangeId range, size_t first, std::span<const GranuleId> granules) {
    need(memory().map(range, first, granules));
    for (size_t i = 0; i < granules.size(); ++i) places_[{range, first + i}] = granules[i];
}

void Pool::unmap(RangeId range, size_t first, size_t count) {
    need(memory().synchronize(StreamId::compute));
    need(memory().unmap(range, first, count));
    for (size_t i = 0; i < count; ++i) places_.erase({range, first + i});
}

void Pool::write(RangeId range, size_t place) {
    uint64_t& pattern = patterns_[places_.at({range, place})];
    pattern = next_pattern_++;
    need(card_->write(at(range, place), granule_bytes(), pattern));
}

void Pool::write_all() {
    for (const auto& [place, granule] : places_) write(place.first, place.second);
}

void Pool::compare(RangeId range, size_t place) {
    const GranuleId granule = places_.at({range, place});
    const uint64_t wrong =
        need(card_->wrong_words(at(range, place), granule_bytes(), patterns_[granule]));
    expect_equal(wrong, 0,
                 "wrong words of granule " + std::to_string(granule) + " at place " +
                     std::to_string(place) + " of range " + std::to_string(range));
}

void Pool::compare_all() {
    for (const auto& [place, granule] : places_) compare(place.first, place.second);
}

size_t Pool::mapped_places() const {
    return places_.size();
}

std::vector<Outcome> run_checks(Subject& subject, const Limits& limits,
                                const std::function<void(const Outcome&)>& done) {
    std::vector<Check> checks = memory_checks();
    for (const Check& check : fault_checks()) checks.push_back(check);
    std::vector<Outcome> outcomes;
    for (const Check& check : checks) {
        Outcome outcome{check.name, check.promise, Outcome::Verdict::held, {}, 0};
        const auto start = std::chrono::steady_clock::now();
        try {
            outcome.detail = check.run(subject, limits);
        } catch (const Failed& failed) {
            outcome.verdict = Outcome::Verdict::failed;
            outcome.detail = failed.reason;
        } catch (const NotApplicable& reason) {
            outcome.verdict = Outcome::Verdict::not_applicable;
            outcome.detail = reason.reason;
        }
        outcome.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        if (cuda::Driver* driver = subject.driver()) driver->interceptor = nullptr;
        outcomes.push_back(outcome);
        if (done) done(outcomes.back());
    }
    return outcomes;
}

}  // namespace granary::gpu::check
