// SPDX-License-Identifier: GPL-3.0-or-later
// Long random sequences of everything that a memory manager can be asked for, on a device that
// keeps books, against a reference that counts. Run with --steps N --seed S for other sequences; a
// failure prints the seed and the step that show it again.
#include <chrono>
#include <iostream>

#include "tests/memory/cases.h"
#include "tests/memory/reference.h"

namespace granary::test {
namespace {

uint64_t steps_wanted = 100'000;
uint64_t seed_wanted = 1;

constexpr uint64_t kStepsOfAPool = 2'000;
constexpr size_t kMostConversations = 4;

// How often the rarer things happened: a sequence that never meets them proves little.
struct Coverage {
    uint64_t grown_from_loan = 0, grown_under_a_loan = 0, refused = 0, trimmed = 0, slid = 0,
             shrunk = 0, lowered = 0, lowered_into_loan = 0, raised = 0, budget_refused = 0,
             three_conversations = 0, experts_lost_to_kv = 0, experts_lost_to_loan = 0;
};

class Sequence {
  public:
    Sequence(Case& chosen, Random& random, Coverage& coverage)
        : coverage_(coverage),
          case_(chosen),
          pool_(*chosen.pool),
          memory_(*chosen.pool->memory),
          random_(random),
          reference_(pool_.plan, memory_.kv().step_bytes) {}

    void run(uint64_t steps) {
        for (uint64_t n = 0; n < steps; ++n) {
            step();
            if (::testing::Test::HasFatalFailure()) return;
        }
        while (!pool_.stamps.empty()) drop();
        compare();
    }
    void step() {
        const char* const done = change();
        compare();
        if (::testing::Test::HasFatalFailure()) FAIL() << "step " << steps_ << ": " << done;
        ++steps_;
    }

  private:
    const char* change() {
        switch (random_.below(12)) {
            case 0:
                if (pool_.stamps.size() < kMostConversations) create();
                return "create_kv";
            case 1:
                if (!pool_.stamps.empty() && random_.one_in(2)) drop();
                return "drop_kv";
            case 2:
            case 3:
            case 4:
                if (!pool_.stamps.empty()) grow();
                return "grow_kv";
            case 5:
                if (!pool_.stamps.empty()) trim();
                return "trim_kv";
            case 6:
                take_loan();
                return "take_loan";
            case 7:
            case 8:
                if (reference_.lent) shrink_loan();
                return "shrink_loan";
            case 9:
                return_loan();
                return "return_loan";
            case 10:
                if (!random_.one_in(4)) return_loan();
                set_budget();
                return "set_budget";
            default:
                for (uint64_t n = random_.between(1, 8); n > 0; --n)
                    pool_.use_expert(
                        static_cast<uint32_t>(random_.below(pool_.model.facts.layers)),
                        static_cast<uint32_t>(random_.below(pool_.model.facts.experts)), ++tick_);
                start_work();
                return "decode";
        }
    }

    KvId any() {
        auto at = pool_.stamps.begin();
        std::advance(at, static_cast<ptrdiff_t>(random_.below(pool_.stamps.size())));
        return at->first;
    }
    void create() {
        const auto kv = memory_.create_kv();
        ASSERT_TRUE(kv) << kv.error().message();
        ASSERT_TRUE(pool_.stamps.emplace(*kv, std::vector<uint64_t>()).second);
        reference_.kv[*kv] = 0;
    }
    void drop() {
        const KvId kv = any();
        memory_.drop_kv(kv);
        pool_.stamps.erase(kv);
        reference_.drop(kv);
    }
    void grow() {
        const KvId kv = any();
        const uint64_t cells = random_.between(0, pool_.plan.max_context);
        const size_t before = pool_.mapped(kv);
        ASSERT_EQ(memory_.kv_need(kv, cells), reference_.need(kv, cells));
        const auto grown = memory_.grow_kv(kv, cells);
        ASSERT_EQ(grown.has_value(), reference_.grow(kv, cells));
        if (!grown) {
            ASSERT_EQ(grown.error().kind, ErrorKind::refused) << grown.error().message();
            ++coverage_.refused;
            return;
        }
        coverage_.experts_lost_to_kv += grown->experts_lost > 0;
        coverage_.grown_from_loan += grown->from_loan > 0;
        coverage_.grown_under_a_loan += grown->granules > 0 && reference_.lent > 0;
        ASSERT_EQ(grown->granules, grown->from_spare + grown->from_experts + grown->from_loan);
        ASSERT_GE(memory_.kv_cells(kv), cells);
        const size_t after = pool_.mapped(kv);
        ASSERT_EQ(after - before, grown->granules);
        const auto* const base = reinterpret_cast<const char*>(memory_.kv_base(kv));
        for (size_t at = before * pool_.plan.granule_bytes;
             pool_.has_content && at < after * pool_.plan.granule_bytes; at += 509)
            ASSERT_EQ(base[at], 0) << "a new cell is not zero";
        if (after > before) pool_.stamp(kv, before, after - before);
    }
    void trim() {
        const KvId kv = any();
        const uint64_t cells = random_.between(0, pool_.plan.max_context);
        const uint32_t freed = memory_.trim_kv(kv, cells);
        const uint32_t before = reference_.kv[kv];
        reference_.trim(kv, cells);
        ASSERT_EQ(freed, before - reference_.kv[kv]);
        coverage_.trimmed += freed > 0;
        pool_.stamps[kv].resize(reference_.kv[kv]);
    }
    uint32_t granules_of(uint32_t chunk) const {
        const uint64_t bytes = loan_layout(pool_.model.facts, pool_.facts, chunk).bytes;
        return static_cast<uint32_t>((bytes + pool_.plan.granule_bytes - 1) /
                                     pool_.plan.granule_bytes);
    }
    void take_loan() {
        const uint32_t most = std::max(pool_.plan.chunk, 2 * kSmallestChunk);
        const auto chunk = static_cast<uint32_t>(
            random_.one_in(2) ? random_.between(kSmallestChunk, most) : pool_.plan.chunk);
        const bool slides = granules_of(chunk) > reference_.above;
        auto loan = memory_.take_loan(chunk);
        ASSERT_EQ(loan.has_value(), reference_.lend(granules_of(chunk)));
        if (!loan) {
            ASSERT_EQ(loan.error().kind, ErrorKind::internal) << loan.error().message();
            return;
        }
        coverage_.slid += slides;
        coverage_.experts_lost_to_loan += loan->experts_lost > 0;
        loan_ = *loan;
        use_loan();
    }
    void shrink_loan() {
        const uint32_t chunk =
            random_.one_in(8) ? loan_.chunk + 512 : std::max(smaller_chunk(loan_.chunk), 64u);
        const std::byte* const ring = loan_.base + loan_.layout.ring;
        auto loan = memory_.shrink_loan(loan_, chunk);
        ASSERT_EQ(loan.has_value(), reference_.shrink(granules_of(chunk)));
        if (!loan) return;
        coverage_.shrunk += granules_of(chunk) < granules_of(loan_.chunk);
        if (granules_of(chunk) <= granules_of(loan_.chunk)) {
            ASSERT_EQ(loan->base + loan->layout.ring, ring);
        }
        loan_ = *loan;
        use_loan();
    }
    void return_loan() {
        memory_.return_loan();
        reference_.lent = 0;
    }
    // Streams that are at work when the next change comes: on cells, and on the loan's ring.
    void start_work() {
        if (!pool_.stamps.empty())
            if (const KvId kv = any(); !pool_.stamps[kv].empty()) pool_.restamp(kv);
        if (reference_.lent)
            pool_.device->fill(gpu::StreamId::copy, loan_.base + loan_.layout.ring, 0x11,
                               loan_.layout.bytes - loan_.layout.ring);
    }
    void use_loan() {
        if (pool_.has_content) std::memset(loan_.base, 0xee, loan_.layout.bytes);
    }
    void set_budget() {
        const uint64_t budget =
            random_.one_in(4) ? case_.most : random_.between(case_.least, case_.most);
        // Other loans, as `prefill` would ask for them, where they fit.
        const auto prefill =
            static_cast<uint32_t>(random_.one_in(2) ? 0 : 64 * random_.between(1, 16));
        auto plan = pool_.plan_for(budget, prefill);
        if (!plan) plan = pool_.plan_for(budget, 0);
        ASSERT_TRUE(plan) << plan.error().message();
        const uint32_t held = memory_.granules(), above = reference_.above;
        const auto set = memory_.set_budget(*plan);
        ASSERT_EQ(set.has_value(), reference_.set_budget(*plan));
        if (set) {
            pool_.plan = *plan;
            coverage_.lowered += memory_.granules() < held;
            coverage_.raised += memory_.granules() > held;
            coverage_.lowered_into_loan += memory_.granules() < held && reference_.above < above;
        } else {
            ++coverage_.budget_refused;
            const bool other_layout =
                reference_.lent || plan->budget_bytes > memory_.capacity() * plan->granule_bytes;
            ASSERT_EQ(set.error().kind, other_layout ? ErrorKind::internal : ErrorKind::refused)
                << set.error().message();
        }
    }

    void compare() {
        if (::testing::Test::HasFatalFailure()) return;
        ASSERT_TRUE(case_.book->faults().empty()) << case_.book->faults().front();
        ASSERT_EQ(pool_.owned(Owner::loan), reference_.lent);
        ASSERT_EQ(pool_.owned(Owner::experts) + pool_.owned(Owner::spare),
                  reference_.below + reference_.above - reference_.lent);
        for (const auto& [kv, granules] : reference_.kv) ASSERT_EQ(pool_.mapped(kv), granules);
        ASSERT_EQ(pool_.device->tables().size(), 4 + reference_.kv.size());
        if (const auto& [below, above] = pool_.marks(); below < above) {
            ASSERT_EQ(below, reference_.below);
            ASSERT_EQ(above, memory_.capacity() - reference_.always - reference_.above);
        }
        ASSERT_EQ(memory_.granules(), reference_.sum());
        ASSERT_EQ(pool_.device->driver_bytes(), reference_.sum() * pool_.plan.granule_bytes);
        ASSERT_EQ(memory_.lendable(), reference_.lendable());
        ASSERT_EQ(memory_.kv_available(), reference_.available());
        coverage_.three_conversations += pool_.stamps.size() >= 3;
        const KvId one = pool_.stamps.empty() ? 0 : any();
        const Standing standing = memory_.standing(one);
        ASSERT_EQ(standing.away, 0u);
        ASSERT_EQ(standing.idle + standing.mapped + reference_.always + reference_.below +
                      reference_.above,
                  reference_.sum());
        pool_.check(static_cast<uint32_t>(random_.below(pool_.model.facts.layers)), 1);
        // A slot is smaller than what lies between two marks: each mark costs one at most, and the
        // granules at its sides.
        const uint64_t largest = *std::max_element(pool_.model.facts.expert_bytes.begin(),
                                                   pool_.model.facts.expert_bytes.end());
        ASSERT_LE(pool_.idle_expert_bytes(),
                  3 * (largest + pool_.plan.granule_bytes) +
                      kSlotAlignment * 2 * memory_.experts().usable_slots());
    }

    Coverage& coverage_;
    Case& case_;
    Pool& pool_;
    MemoryManager& memory_;
    Random& random_;
    Reference reference_;
    MemoryManager::Loan loan_;
    uint32_t tick_ = 0;
    uint64_t steps_ = 0;
};

TEST(MemoryProperty, RandomSequencesAgreeWithTheReference) {
    const auto start = std::chrono::steady_clock::now();
    Coverage met;
    size_t pools = 0;
    for (uint64_t done = 0; done < steps_wanted; done += kStepsOfAPool, ++pools) {
        SCOPED_TRACE("again with --seed " + std::to_string(seed_wanted + pools) + " --steps " +
                     std::to_string(kStepsOfAPool));
        Random random(seed_wanted + pools);
        Case chosen;
        open_any(chosen, random);
        if (HasFailure()) return;
        Sequence(chosen, random, met).run(std::min(kStepsOfAPool, steps_wanted - done));
        if (HasFailure()) return;
    }
    if (steps_wanted >= 20 * kStepsOfAPool) {
        for (const uint64_t times :
             {met.grown_from_loan, met.grown_under_a_loan, met.refused, met.trimmed, met.slid,
              met.shrunk, met.lowered, met.lowered_into_loan, met.raised, met.budget_refused,
              met.three_conversations, met.experts_lost_to_kv, met.experts_lost_to_loan}) {
            EXPECT_GT(times, 20u);
        }
    }
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::cout << steps_wanted << " steps of " << pools << " pools from seed " << seed_wanted << ": "
              << static_cast<uint64_t>(static_cast<double>(steps_wanted) / seconds)
              << " steps per second\n";
}

TEST(MemoryProperty, TwoCardsInOneProcessDoNotMeet) {
    for (uint64_t seed = seed_wanted; seed < seed_wanted + 5; ++seed) {
        SCOPED_TRACE("again with --seed " + std::to_string(seed));
        Random random(seed);
        Coverage met;
        Case one, other;
        open_any(one, random);
        open_any(other, random);
        if (HasFailure()) return;
        Sequence first(one, random, met), second(other, random, met);
        for (int step = 0; step < 500; ++step) {
            (random.one_in(2) ? first : second).step();
            if (HasFailure()) return;
        }
    }
}

TEST(MemoryProperty, LayersOfDifferentSizesWasteLittle) {
    for (const bool wild : {false, true})
        for (const double gib : {7.0, 9.25, 14.5, 22.0}) {
            Case it;
            open_real(it, wild, static_cast<uint64_t>(gib * (1 << 30)), 2 << 20);
            if (HasFailure()) return;
            Pool& pool = *it.pool;
            // Where not all experts have a slot: what lies idle between the marks, and behind the
            // last whole row.
            const auto expect_little_waste = [&](const char* when) {
                pool.check();
                const uint64_t tail = pool.memory->experts().rows() < pool.model.facts.experts
                                          ? pool.owned(Owner::spare) * pool.plan.granule_bytes
                                          : 0;
                const uint64_t all = pool.expert_bytes() + tail;
                EXPECT_LE(100 * (pool.idle_expert_bytes() + tail), 3 * all)
                    << gib << " GiB, " << when << ", wild " << wild;
            };
            expect_little_waste("loaded");
            const auto kv = pool.memory->create_kv();
            ASSERT_TRUE(kv);
            pool.stamps[*kv] = {};
            ASSERT_TRUE(pool.memory->take_loan(pool.plan.chunk));
            for (uint64_t cells = 1; cells < 65'536; cells += 4'321) {
                auto grown = pool.memory->grow_kv(*kv, cells);
                if (!grown) break;
                pool.stamp(*kv, pool.stamps[*kv].size(), grown->granules);
                expect_little_waste("lent and grown");
            }
            pool.memory->return_loan();
            expect_little_waste("grown");
        }
}

// As many granules as a card of 116 GiB has: they come back in the order of their numbers, so that
// ranges stay in few pieces however often they change hands.
TEST(MemoryProperty, MappingsStayFewInALargePool) {
    Random random(seed_wanted);
    Case it;
    open_real(it, true, 58'000ull * (256 << 10), 256 << 10);
    if (HasFailure()) return;
    Coverage met;
    Sequence sequence(it, random, met);
    size_t most = 0;
    for (uint64_t step = 0; step < steps_wanted / 500; ++step) {
        sequence.step();
        if (HasFailure()) return;
        most = std::max(most, it.book->mappings());
    }
    EXPECT_LT(most, 30'000u);
    std::cout << it.pool->device->granules() << " granules, at most " << most << " mappings\n";
}

}  // namespace
}  // namespace granary::test

int main(int argc, char** argv) {
    return granary::test::run_steps(argc, argv, granary::test::steps_wanted,
                                    granary::test::seed_wanted);
}
