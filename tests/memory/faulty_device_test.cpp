// SPDX-License-Identifier: GPL-3.0-or-later
// Every device call of every transaction fails (DESIGN 4.6): once, twice, for good, or since the
// device is lost. The error says so, each granule still has one owner, no table names memory that
// is not there, what is out of use is shown and logged, and the manager goes on.
#include <functional>

#include "tests/host_settings.h"
#include "tests/memory/cases.h"

namespace granary::test {
namespace {

constexpr uint64_t kContext = 4096;

// A card with little to spare: at its budget K/V of the whole context takes of the loan's place.
// Or any card.
struct Card {
    explicit Card(Random& random) { open_any(it, random); }
    Card() {
        BookModelShape shape;
        shape.state_bytes = 3000;
        shape.layers = {{900, 900, 1500}, {700, 700, 2900}, {900, 900, 1500}};
        it.content.resize(1);
        Settings settings = host_settings();
        settings.granule = 12 << 10;
        settings.max_context = kContext;
        settings.kv = gpu::KvFormat::k8v4;
        settings.prefill = {AutoCount::Kind::number, 256};
        it.open(shape, settings, [](uint64_t least, uint64_t) { return least + (72 << 10); });
    }
    Pool& pool() { return *it.pool; }
    MemoryManager& memory() { return *it.pool->memory; }
    WatchedDevice& device() { return *it.pool->device; }

    KvId begin(uint64_t cells) {
        const auto kv = memory().create_kv();
        EXPECT_TRUE(kv);
        pool().stamps[*kv] = {};
        if (cells) {
            EXPECT_TRUE(grow(*kv, cells));
        }
        return *kv;
    }
    Result<void> grow(KvId kv, uint64_t cells) {
        const size_t before = pool().stamps.at(kv).size();
        const auto grown = memory().grow_kv(kv, cells);
        if (!grown) return tl::unexpected(grown.error());
        const auto* const base = reinterpret_cast<const char*>(memory().kv_base(kv));
        const size_t granule = pool().plan.granule_bytes;
        for (size_t at = before * granule; at < pool().mapped(kv) * granule; at += 509)
            EXPECT_EQ(base[at], 0);
        pool().stamp(kv, before, pool().mapped(kv) - before);
        return {};
    }
    void trim(KvId kv, uint64_t cells) {
        memory().trim_kv(kv, cells);
        std::vector<uint64_t>& stamps = pool().stamps.at(kv);
        stamps.resize(std::min(stamps.size(), pool().mapped(kv)));
    }
    void drop(KvId kv) {
        memory().drop_kv(kv);
        pool().stamps.erase(kv);
    }
    Result<void> lend(uint32_t chunk) {
        auto taken = memory().take_loan(chunk);
        if (!taken) return tl::unexpected(taken.error());
        loan = *taken;
        std::memset(loan.base, 0xee, loan.layout.bytes);
        return {};
    }
    Result<void> shrink(uint32_t chunk) {
        auto smaller = memory().shrink_loan(loan, chunk);
        if (!smaller) return tl::unexpected(smaller.error());
        loan = *smaller;
        return {};
    }
    Result<void> set_budget(uint64_t bytes) {
        auto plan = pool().plan_for(bytes, 0);
        if (!plan) return tl::unexpected(plan.error());
        auto set = memory().set_budget(*plan);
        if (set) pool().plan = *plan;
        return set;
    }

    Case it;
    MemoryManager::Loan loan;
    std::vector<KvId> kvs;
};

// What stands before, and the change whose calls fail.
struct Transaction {
    const char* name;
    uint64_t calls;  // at least: a change that takes a shorter way proves less
    std::function<void(Card&)> before;
    std::function<Result<void>(Card&)> change;
};

const std::vector<Transaction>& transactions() {
    static const std::vector<Transaction> list{
        {"create_kv", 1, [](Card&) {},
         [](Card& card) -> Result<void> {
             const auto kv = card.memory().create_kv();
             if (!kv) return tl::unexpected(kv.error());
             card.pool().stamps[*kv] = {};
             return {};
         }},
        {"grow_kv from experts", 6, [](Card& card) { card.kvs = {card.begin(0)}; },
         [](Card& card) { return card.grow(card.kvs[0], 1024); }},
        {"grow_kv from experts and from the loan's place, with a loan", 7,
         [](Card& card) {
             card.kvs = {card.begin(1024)};
             ASSERT_TRUE(card.lend(256));
             ASSERT_TRUE(card.shrink(64));
         },
         [](Card& card) { return card.grow(card.kvs[0], kContext); }},
        {"trim_kv", 5,
         [](Card& card) {
             card.kvs = {card.begin(3072), card.begin(0)};
         },
         [](Card& card) -> Result<void> {
             card.trim(card.kvs[0], 1024);
             return {};
         }},
        {"trim_kv back to the loan's place", 6,
         [](Card& card) { card.kvs = {card.begin(kContext)}; },
         [](Card& card) -> Result<void> {
             card.trim(card.kvs[0], 1);
             return {};
         }},
        {"drop_kv", 5,
         [](Card& card) {
             card.kvs = {card.begin(2048), card.begin(1024)};
         },
         [](Card& card) -> Result<void> {
             card.drop(card.kvs[0]);
             return {};
         }},
        {"take_loan", 3, [](Card& card) { card.kvs = {card.begin(1024)}; },
         [](Card& card) { return card.lend(256); }},
        {"take_loan with a slide", 8, [](Card& card) { card.kvs = {card.begin(1024)}; },
         [](Card& card) { return card.lend(320); }},
        {"shrink_loan", 2, [](Card& card) { ASSERT_TRUE(card.lend(256)); },
         [](Card& card) { return card.shrink(128); }},
        {"return_loan", 2, [](Card& card) { ASSERT_TRUE(card.lend(256)); },
         [](Card& card) -> Result<void> {
             card.memory().return_loan();
             return {};
         }},
        {"set_budget lower", 7, [](Card& card) { card.kvs = {card.begin(1024)}; },
         [](Card& card) { return card.set_budget(card.it.most - (48 << 10)); }},
        {"set_budget lower, into the loan's place", 7,
         [](Card& card) { card.kvs = {card.begin(3072)}; },
         [](Card& card) { return card.set_budget(card.it.least); }},
        {"set_budget higher", 5,
         [](Card& card) {
             card.kvs = {card.begin(1024)};
             ASSERT_TRUE(card.set_budget(card.it.least));
         },
         [](Card& card) { return card.set_budget(card.it.most); }},
    };
    return list;
}

uint64_t calls_of(const Transaction& transaction) {
    Card card;
    transaction.before(card);
    card.device().arm(UINT64_MAX, 0);
    const auto changed = transaction.change(card);
    EXPECT_TRUE(changed) << transaction.name << ": " << changed.error().message();
    EXPECT_EQ(card.pool().owned(Owner::quarantined), 0u);
    card.pool().check();
    return card.device().calls();
}

// With the failures over: K/V grows, a prompt is read, or is refused for what is out of use.
void expect_goes_on(Card& card) {
    Pool& pool = card.pool();
    MemoryManager& memory = card.memory();
    memory.return_loan();
    const auto kv = memory.create_kv();
    ASSERT_TRUE(kv) << kv.error().message();
    pool.stamps[*kv] = {};
    const Planner planner(pool.model.facts, pool.facts);
    const auto schedule = planner.schedule(pool.plan, memory.standing(*kv), 0, 512);
    if (schedule) {
        ASSERT_TRUE(card.lend(schedule->front().chunk));
        ASSERT_TRUE(card.grow(*kv, 512));
        pool.check();
        memory.return_loan();
    } else {
        ASSERT_EQ(schedule.error().kind, ErrorKind::refused);
        ASSERT_GT(pool.owned(Owner::quarantined) + pool.owned(Owner::kv), 0u);
    }
    // However much K/V takes, a prompt can still be read.
    const bool enough = memory.lendable() >= pool.plan.smallest_loan;
    for (uint64_t cells = 1024; cells <= kContext && card.grow(*kv, cells); cells += 1024) {
    }
    ASSERT_EQ(memory.lendable() >= pool.plan.smallest_loan, enough);
    // The state of the conversation at hand is still there to be kept and put back.
    std::vector<std::byte> state(pool.model.facts.state_bytes);
    ASSERT_TRUE(memory.save_state(state.data()));
    ASSERT_TRUE(memory.restore_state(state.data()));
    card.drop(*kv);
    pool.check();
}

TEST(Faults, EachTransactionWhateverFailsLeavesAWorkingManager) {
    for (const Transaction& transaction : transactions()) {
        const uint64_t calls = calls_of(transaction);
        ASSERT_FALSE(HasFailure()) << transaction.name;
        ASSERT_GE(calls, transaction.calls) << transaction.name;
        for (const uint64_t count : {uint64_t{1}, uint64_t{2}, UINT64_MAX / 2}) {
            for (uint64_t n = 0; n < calls; ++n) {
                for (const size_t given_back : {size_t{0}, size_t{2}}) {
                    SCOPED_TRACE(std::string(transaction.name) + ", call " + std::to_string(n) +
                                 ", failing " + (count > 2 ? "for good" : std::to_string(count)) +
                                 ", gives back " + std::to_string(given_back));
                    Card card;
                    transaction.before(card);
                    Pool& pool = card.pool();
                    for (uint32_t e = 0; e < 3; ++e) pool.use_expert(e, 7 - e, 1);
                    const std::array<uint64_t, kOwners> was = card.memory().bytes();
                    card.device().set_given_back_before_failing(given_back);
                    card.device().arm(n, count);
                    const auto changed = transaction.change(card);
                    ASSERT_FALSE(card.device().failed().empty());
                    if (!changed) {
                        ASSERT_EQ(changed.error().kind, ErrorKind::device)
                            << changed.error().message();
                    }
                    card.device().disarm();
                    // Decode goes on without any change of memory; else the next change comes.
                    if (!pool.stamps.empty() && n % 2) {
                        ASSERT_TRUE(card.memory().grow_kv(pool.stamps.begin()->first, 0));
                        pool.check();
                    } else {
                        pool.check_after_failure();
                    }
                    if (HasFatalFailure()) return;
                    ASSERT_TRUE(card.it.book->faults().empty()) << card.it.book->faults().front();
                    if (!changed) {
                        ASSERT_EQ(card.memory().bytes()[static_cast<int>(Owner::loan)],
                                  was[static_cast<int>(Owner::loan)]);
                    }
                    ASSERT_GE(card.memory().lendable() + pool.owned(Owner::quarantined),
                              pool.plan.smallest_loan);
                    // What failed works at the next attempt, unless granules are missing now.
                    if (!changed && pool.owned(Owner::quarantined) == 0) {
                        const auto again = transaction.change(card);
                        ASSERT_TRUE(again) << again.error().message();
                        pool.check();
                        if (HasFatalFailure()) return;
                    }
                    // Nobody lost more than what is out of use, and that is said.
                    const uint32_t out = pool.owned(Owner::quarantined);
                    size_t said = 0;
                    for (const std::string& line : pool.log)
                        said += line.find("out of use until the model is loaded again") !=
                                std::string::npos;
                    ASSERT_EQ(said > 0, out > 0);
                    if (!changed && card.memory().granules() ==
                                        pool.plan.budget_bytes / pool.plan.granule_bytes) {
                        for (const Owner owner : {Owner::fixed, Owner::workspace, Owner::state})
                            ASSERT_EQ(pool.owned(owner) * pool.plan.granule_bytes,
                                      was[static_cast<int>(owner)]);
                    }
                    expect_goes_on(card);
                    if (HasFatalFailure()) return;
                    for (const auto& [kv, stamps] : std::map(pool.stamps)) card.drop(kv);
                    pool.check();
                    if (HasFatalFailure()) return;
                    ASSERT_EQ(pool.owned(Owner::kv), 0u);
                    ASSERT_EQ(pool.owned(Owner::quarantined), out);
                }
            }
        }
    }
}

// Failures in the midst of long sequences, and on top of what earlier ones left.
TEST(Faults, RandomSequencesWithRandomFailures) {
    uint64_t failed = 0, quarantined = 0;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        Random random(seed);
        Card card(random);
        if (HasFailure()) return;
        Pool& pool = card.pool();
        MemoryManager& memory = card.memory();
        const auto any = [&] {
            auto at = pool.stamps.begin();
            std::advance(at, static_cast<ptrdiff_t>(random.below(pool.stamps.size())));
            return at->first;
        };
        const auto change = [&]() -> Result<void> {
            const uint64_t cells = random.below(pool.plan.max_context + 1);
            const bool none = pool.stamps.empty();
            switch (none ? 0 : random.below(9)) {
                case 0:
                case 1:
                    if (pool.stamps.size() < 3) {
                        const auto kv = memory.create_kv();
                        if (!kv) return tl::unexpected(kv.error());
                        pool.stamps[*kv] = {};
                    }
                    return {};
                case 2:
                case 3:
                    return card.grow(any(), cells);
                case 4:
                    card.trim(any(), cells);
                    return {};
                case 5:
                    card.drop(any());
                    return {};
                case 6: {
                    const auto lent =
                        card.lend(static_cast<uint32_t>(random.between(kSmallestChunk, 512)));
                    if (!lent && lent.error().kind == ErrorKind::internal) return {};
                    return lent;
                }
                case 7:
                    if (pool.owned(Owner::loan) && smaller_chunk(card.loan.chunk))
                        return card.shrink(smaller_chunk(card.loan.chunk));
                    memory.return_loan();
                    return {};
                default:
                    memory.return_loan();
                    return card.set_budget(random.between(card.it.least, card.it.most));
            }
        };
        uint32_t out = 0;
        for (int step = 0; step < 150; ++step) {
            SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
            if (random.one_in(3)) {
                card.device().set_given_back_before_failing(random.below(3));
                card.device().arm(random.below(5), random.between(1, 3));
            }
            const uint32_t lendable = memory.lendable();
            const auto changed = change();
            if (lendable >= pool.plan.smallest_loan && pool.owned(Owner::quarantined) == out) {
                ASSERT_GE(memory.lendable(), pool.plan.smallest_loan) << "K/V took the last loan";
            }
            out = pool.owned(Owner::quarantined);
            failed += !card.device().failed().empty();
            card.device().disarm();
            if (!changed) {
                ASSERT_TRUE(changed.error().kind == ErrorKind::device ||
                            changed.error().kind == ErrorKind::refused)
                    << changed.error().message();
            }
            pool.check_after_failure();
            if (HasFailure()) return;
            ASSERT_TRUE(card.it.book->faults().empty()) << card.it.book->faults().front();
        }
        memory.return_loan();
        quarantined += pool.owned(Owner::quarantined);
        for (const auto& [kv, stamps] : std::map(pool.stamps)) card.drop(kv);
        pool.check();
        if (HasFailure()) return;
        ASSERT_EQ(pool.owned(Owner::kv), 0u);
    }
    EXPECT_GT(failed, 500u);
    EXPECT_GT(quarantined, 50u);
}

TEST(Faults, ALostDeviceEndsEverythingWithItsCause) {
    for (const Transaction& transaction : transactions()) {
        const uint64_t calls = calls_of(transaction);
        for (uint64_t n = 0; n < calls; ++n) {
            SCOPED_TRACE(std::string(transaction.name) + ", lost at call " + std::to_string(n));
            Card card;
            transaction.before(card);
            const size_t lines = card.pool().log.size();
            card.device().arm(n, 1, ErrorKind::device_lost);
            const auto changed = transaction.change(card);
            if (!changed) {
                ASSERT_EQ(changed.error().kind, ErrorKind::device_lost)
                    << changed.error().message();
            }
            // The books are in order, and every later request ends with the cause.
            card.pool().check_books();
            if (HasFatalFailure()) return;
            const auto kv = card.memory().create_kv();
            ASSERT_FALSE(kv);
            ASSERT_EQ(kv.error().kind, ErrorKind::device_lost);
            card.memory().return_loan();
            const auto loan = card.memory().take_loan(64);
            ASSERT_FALSE(loan);
            if (card.memory().lendable() >= card.pool().plan.smallest_loan) {
                ASSERT_EQ(loan.error().kind, ErrorKind::device_lost) << loan.error().message();
            }
            ASSERT_LE(card.pool().log.size() - lines, 4u) << "a lost device fills the log";
            ASSERT_LE(card.device().failed().size(), 12u) << "a lost device is asked on and on";
            for (const auto& [id, stamps] : std::map(card.pool().stamps)) card.drop(id);
            card.pool().check_books();
            if (HasFatalFailure()) return;
        }
    }
}

TEST(Faults, ALoadThatFailsAnywhereSaysSo) {
    uint64_t calls = 0;
    {
        Card card;
        card.pool().memory.reset();
    }
    for (uint64_t n = 0; n == 0 || n < calls; ++n)
        for (const ErrorKind kind : {ErrorKind::device, ErrorKind::device_lost}) {
            Case it;
            it.content.resize(1);
            BookModelShape shape;
            shape.layers = {{900, 900, 1500}};
            Settings settings = host_settings();
            settings.granule = 4 << 10;
            settings.max_context = 512;
            it.prepare(shape, settings, [](uint64_t least, uint64_t) { return least; });
            if (HasFailure()) return;
            if (n == 0) {
                it.pool->device->arm(UINT64_MAX, 0);
                ASSERT_TRUE(it.pool->create());
                calls = it.pool->device->calls();
                ASSERT_GT(calls, 8u);
                break;
            }
            it.pool->device->arm(n, 1, kind);
            const auto created = it.pool->create();
            ASSERT_FALSE(created) << n;
            EXPECT_EQ(created.error().kind, kind);
            ASSERT_TRUE(kind == ErrorKind::device_lost || it.book->faults().empty());
        }
}

}  // namespace
}  // namespace granary::test
