// SPDX-License-Identifier: GPL-3.0-or-later
// The expert cache that follows the routes of decode steps, against the host's.
#include <algorithm>
#include <atomic>
#include <numeric>

#include "tests/gpu/cuda/routes.h"

namespace granary::gpu::cuda::test {
namespace {

// The same cache twice: the host's view, and one in device memory. Experts have odd sizes, one of
// them no multiple of 16 bytes.
struct Cache {
    static constexpr size_t kGate = 4096 + 16, kUp = 4096 + 6, kDown = 2048 + 2, kUpAt = 4352,
                            kDownAt = 8704, kSlot = 11008;
    Gpu& gpu;
    uint32_t experts, slots;
    std::vector<int32_t> slot_of, expert_in;
    std::vector<uint8_t> usable;
    std::vector<float> heat;
    std::vector<uint32_t> last_use;
    std::vector<std::byte> host_slots;
    std::vector<std::byte*> host_bases, card_bases;
    std::vector<ExpertEntry> home, host_entries, card_entries;
    std::vector<uint64_t> counters = std::vector<uint64_t>(3);
    HostBuffer weights;  // [experts] of kSlot bytes
    Array<std::byte> slot_memory;
    ExpertCacheView host_view, card_view;
    std::vector<std::shared_ptr<void>> arrays;

    template <class T>
    Array<T>& kept(const std::vector<T>& values) {
        auto array = std::make_shared<Array<T>>(gpu, values);
        arrays.push_back(array);
        return *array;
    }

    Cache(Gpu& g, uint32_t expert_count, uint32_t slot_count, Random& random)
        : gpu(g),
          experts(expert_count),
          slots(slot_count),
          slot_of(experts, -1),
          expert_in(slots, -1),
          usable(slots, 1),
          heat(experts),
          last_use(experts),
          host_slots(slots * kSlot),
          slot_memory(g, slots * kSlot + 16) {
        std::vector<std::byte> bytes(experts * kSlot);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.engine());
        weights = locked(gpu, bytes);
        for (uint32_t e = 0; e < experts; ++e) {
            const std::byte* const at = weights.data.get() + e * kSlot;
            home.push_back({at, at + kUpAt, at + kDownAt});
            heat[e] = random.uniform() * 3;
        }
        host_entries = card_entries = home;
        for (uint32_t s = 0; s < slots; ++s) {
            host_bases.push_back(host_slots.data() + s * kSlot);
            card_bases.push_back(slot_memory.data() + s * kSlot);
            if (random.engine() % 8 == 0) usable[s] = 0;
            if (random.engine() % 4 == 0) continue;  // empty
            const uint32_t e = (s * 7 + 3) % experts;
            if (slot_of[e] >= 0 || !usable[s]) continue;
            slot_of[e] = static_cast<int32_t>(s);
            expert_in[s] = static_cast<int32_t>(e);
            host_entries[e] = entry(host_bases[s]);
            card_entries[e] = entry(card_bases[s]);
        }
        host_view = {experts,
                     slots,
                     slot_of.data(),
                     expert_in.data(),
                     usable.data(),
                     host_bases.data(),
                     heat.data(),
                     last_use.data(),
                     host_entries.data(),
                     home.data(),
                     kGate,
                     kUp,
                     kDown,
                     kUpAt,
                     kDownAt,
                     &counters[0],
                     &counters[1],
                     &counters[2]};
        card_view = host_view;
        card_view.slot_of = kept(slot_of);
        card_view.expert_in = kept(expert_in);
        card_view.usable = kept(usable);
        card_view.slot_base = kept(card_bases);
        card_view.heat = kept(heat);
        card_view.last_use = kept(last_use);
        card_view.entries = kept(card_entries);
        card_view.home = kept(home);
        uint64_t* const counts = kept(counters);
        card_view.hits = counts;
        card_view.misses = counts + 1;
        card_view.bytes_copied = counts + 2;
    }
    static ExpertEntry entry(std::byte* base) { return {base, base + kUpAt, base + kDownAt}; }

    template <class T>
    std::vector<T> from_card(const T* data, size_t count) {
        std::vector<T> values(count);
        gpu.device().copy(StreamId::compute, values.data(), data, count * sizeof(T));
        gpu.synchronize();
        return values;
    }
    void expect_same(const std::string& what) {
        EXPECT_EQ(from_card(card_view.slot_of, experts), slot_of) << what;
        EXPECT_EQ(from_card(card_view.expert_in, slots), expert_in) << what;
        EXPECT_EQ(from_card(card_view.last_use, experts), last_use) << what;
        EXPECT_TRUE(same_bits(from_card(card_view.heat, experts), heat)) << what;
        EXPECT_EQ(from_card(card_view.hits, 3), counters) << what;
        const std::vector<ExpertEntry> entries = from_card(card_view.entries, experts);
        for (uint32_t e = 0; e < experts; ++e) {
            const ExpertEntry expected =
                slot_of[e] < 0 ? home[e] : entry(card_bases[static_cast<size_t>(slot_of[e])]);
            EXPECT_EQ(entries[e].gate, expected.gate) << what << " " << e;
            EXPECT_EQ(entries[e].up, expected.up) << what << " " << e;
            EXPECT_EQ(entries[e].down, expected.down) << what << " " << e;
        }
    }
    // What lies in the slots that calls filled.
    void expect_copied(const std::vector<bool>& filled, const std::string& what) {
        const std::vector<std::byte> bytes = from_card(slot_memory.data(), slots * kSlot);
        for (uint32_t s = 0; s < slots; ++s) {
            if (!filled[s]) continue;
            const std::byte* const from =
                weights.data.get() + static_cast<size_t>(expert_in[s]) * kSlot;
            const std::byte* const at = bytes.data() + s * kSlot;
            EXPECT_EQ(std::memcmp(at, from, kGate), 0) << what << " " << s;
            EXPECT_EQ(std::memcmp(at + kUpAt, from + kUpAt, kUp), 0) << what << " " << s;
            EXPECT_EQ(std::memcmp(at + kDownAt, from + kDownAt, kDown), 0) << what << " " << s;
            EXPECT_EQ(at[kGate], std::byte{0xff}) << "past the end";
        }
    }
};

HostRoutes random_routes(uint32_t rows, uint32_t experts, uint32_t used, Random& random) {
    HostRoutes routes(rows, experts, used);
    for (uint32_t row = 0; row < rows; ++row)
        for (uint32_t rank = 0; rank < used; ++rank) {
            auto* const here = routes.expert.data() + row * used;
            int32_t e = 0;
            do {
                // Some experts are picked more often.
                const uint32_t wide = random.engine() % experts;
                e = static_cast<int32_t>(random.engine() % 2 ? wide : wide % (experts / 2 + 1));
            } while (std::find(here, here + rank, e) != here + rank);
            here[rank] = e;
        }
    routes.sort();
    return routes;
}

TEST_F(CudaTest, FetchFollowsTheHostExactly) {
    Random random(23);
    struct Case {
        uint32_t experts, slots, rows, used;
    };
    for (const Case& at : {Case{128, 60, 1, 8},
                           {128, 60, 4, 8},
                           {128, 9, 1, 8},
                           {128, 7, 1, 8},
                           {128, 128, 8, 8},
                           {512, 400, 2, 10},
                           {2000, 1500, 8, 64},
                           {4, 2, 1, 2},
                           {16, 1, 1, 1}}) {
        gpu().reset();
        Cache cache(gpu(), at.experts, at.slots, random);
        std::vector<bool> filled(at.slots);
        const std::string what = std::to_string(at.experts) + " experts, " +
                                 std::to_string(at.slots) + " slots, " + std::to_string(at.rows);
        for (uint32_t tick = 1; tick <= 40; ++tick) {
            const HostRoutes routes = random_routes(at.rows, at.experts, at.used, random);
            const CardRoutes routed(gpu(), routes);
            const DecodePlace place{nullptr, 0, tick};
            const Array<DecodePlace> now(gpu(), std::span<const DecodePlace>(&place, 1));
            const std::vector<int32_t> before = cache.expert_in;
            host().fetch_experts(cache.host_view, routes.view, at.used, &place);
            kernels().fetch_experts(cache.card_view, routed.view, at.used, now);
            for (uint32_t s = 0; s < at.slots; ++s)
                if (cache.expert_in[s] != before[s]) filled[s] = true;
            if (tick % 8 == 0) cache.expect_same(what + ", tick " + std::to_string(tick));
        }
        cache.expect_copied(filled, what);
        EXPECT_GT(cache.counters[1], 0u) << what;
    }
}

// Complete caches bring nothing, and what a step notes of them is what the host notes.
TEST_F(CudaTest, StepsOfCompleteCachesAreNotedAtTheirEnd) {
    constexpr uint32_t kLayers = 3, kExperts = 200, kUsed = 8;
    Random random(25);
    for (const uint32_t rows : {1u, 5u}) {
        gpu().reset();
        // Tables as the engine lays them: one behind the other.
        struct Table {
            float heat[kExperts];
            uint32_t last_use[kExperts];
            uint64_t counters[3];
            int32_t picks[8 * kUsed];
        };
        std::vector<Table> expected(kLayers);
        std::vector<int32_t> slot_of(kExperts);
        std::iota(slot_of.begin(), slot_of.end(), 0);
        for (Table& table : expected) {
            table = {};
            for (float& heat : table.heat) heat = random.uniform() * 3;
        }
        const Array<Table> tables(gpu(), expected);
        const auto view_of = [&](Table& table) {
            ExpertCacheView view;
            view.experts = view.slots = kExperts;
            view.complete = true;
            view.heat = table.heat;
            view.last_use = table.last_use;
            view.hits = table.counters;
            view.misses = table.counters + 1;
            view.bytes_copied = table.counters + 2;
            view.picks = table.picks;
            return view;
        };
        std::vector<uint8_t> usable(kExperts, 1);
        // Logits are x itself.
        std::vector<float> identity(kExperts * kExperts);
        for (size_t e = 0; e < kExperts; ++e) identity[e * (kExperts + 1)] = 1;
        const Array<float> router(gpu(), identity);
        const auto weight_of = [](const float* data) {
            return Weight{reinterpret_cast<const std::byte*>(data), WeightType::f32, kExperts,
                          kExperts};
        };
        const RouterShape shape{kExperts, kUsed, true, 1};
        for (uint32_t tick = 1; tick <= 12; ++tick) {
            const DecodePlace place{nullptr, 0, tick};
            const Array<DecodePlace> now(gpu(), std::span<const DecodePlace>(&place, 1));
            for (uint32_t n = 0; n < kLayers; ++n) {
                const std::vector<float> x = random.values(size_t{rows} * kExperts);
                HostRoutes routes(rows, kExperts, kUsed);
                const CardRoutes routed(gpu(), rows, kExperts, kUsed);
                Routes view = routed.view;
                view.decode = true;
                ExpertCacheView on_host = view_of(expected[n]);
                on_host.slot_of = slot_of.data();
                on_host.usable = usable.data();
                host().route_and_fetch(shape, weight_of(identity.data()), x.data(), routes.view,
                                       on_host, &place, {});
                kernels().route_and_fetch(shape, weight_of(router), Array<float>(gpu(), x), view,
                                          view_of(tables.data()[n]), now, {});
            }
            kernels().note_picks(view_of(tables.data()[0]), sizeof(Table), kLayers, rows * kUsed,
                                 now);
        }
        const std::vector<Table> got = tables.get();
        for (uint32_t n = 0; n < kLayers; ++n) {
            EXPECT_EQ(std::memcmp(got[n].heat, expected[n].heat, sizeof got[n].heat), 0) << n;
            EXPECT_TRUE(std::ranges::equal(got[n].last_use, expected[n].last_use)) << n;
            EXPECT_TRUE(std::ranges::equal(got[n].counters, expected[n].counters)) << n;
            EXPECT_GT(got[n].counters[0], 0u);
        }
    }
}

TEST_F(CudaTest, RoutesToACompleteCacheAreKeptForTheEndOfTheStep) {
    Random random(26);
    const RouterShape shape{64, 8, true, 1};
    std::vector<float> identity(64 * 64);
    for (size_t e = 0; e < 64; ++e) identity[e * 65] = 1;
    const Array<float> router(gpu(), identity), x(gpu(), random.values(3 * 64));
    const CardRoutes routed(gpu(), 3, 64, 8);
    Routes view = routed.view;
    view.decode = true;
    const Array<int32_t> picks(gpu(), 8 * 8);
    ExpertCacheView cache;
    cache.experts = cache.slots = 64;
    cache.complete = true;
    cache.picks = picks;
    kernels().route_and_fetch(
        shape, {reinterpret_cast<const std::byte*>(router.data()), WeightType::f32, 64, 64}, x,
        view, cache, nullptr, {});
    const std::vector<int32_t> got = picks.get();
    EXPECT_TRUE(std::ranges::equal(std::span(got).first(24), routed.expert.get()));
    EXPECT_EQ(got[24], -1);  // and no more
}

TEST_F(CudaTest, RouteAndFetchInOneFollowTheHostExactly) {
    Random random(24);
    struct Case {
        uint32_t experts, slots, rows, used;
    };
    for (const Case& at : {Case{128, 60, 1, 8}, {256, 250, 8, 8}, {64, 3, 2, 4}}) {
        gpu().reset();
        Cache cache(gpu(), at.experts, at.slots, random);
        const std::string what = std::to_string(at.experts) + " experts, " +
                                 std::to_string(at.slots) + " slots, " + std::to_string(at.rows);
        // Logits are x itself.
        std::vector<float> identity(size_t{at.experts} * at.experts);
        for (size_t e = 0; e < at.experts; ++e) identity[e * at.experts + e] = 1;
        const Array<float> router(gpu(), identity);
        const auto weight = [&](const float* data) {
            return Weight{reinterpret_cast<const std::byte*>(data), WeightType::f32, at.experts,
                          at.experts};
        };
        std::vector<bool> filled(at.slots);
        const RouterShape shape{at.experts, at.used, true, 1};
        for (uint32_t tick = 1; tick <= 24; ++tick) {
            const std::vector<float> x = random.values(size_t{at.rows} * at.experts);
            HostRoutes routes(at.rows, at.experts, at.used);
            const CardRoutes routed(gpu(), at.rows, at.experts, at.used);
            Routes view = routed.view;
            view.decode = true;
            const DecodePlace place{nullptr, 0, tick};
            const Array<DecodePlace> now(gpu(), std::span<const DecodePlace>(&place, 1));
            const Array<float> in(gpu(), x);
            const std::vector<int32_t> before = cache.expert_in;
            host().route_and_fetch(shape, weight(identity.data()), x.data(), routes.view,
                                   cache.host_view, &place, {});
            kernels().route_and_fetch(shape, weight(router), in, view, cache.card_view, now, {});
            EXPECT_EQ(routed.expert.get(), routes.expert) << what;
            for (uint32_t s = 0; s < at.slots; ++s)
                if (cache.expert_in[s] != before[s]) filled[s] = true;
            if (tick % 8 == 0) cache.expect_same(what + ", tick " + std::to_string(tick));
        }
        cache.expect_copied(filled, what);
    }
}

// The coldest of the missed experts are asked for, the others gathered as if nothing else were
// missed, and what is answered is added.
TEST_F(CudaTest, TheProcessorIsLeftTheColdestMisses) {
    Random random(26);
    constexpr uint32_t kExperts = 128, kSlots = 60, kUsed = 8, kLayer = 3;
    std::vector<float> identity(size_t{kExperts} * kExperts);
    for (size_t e = 0; e < kExperts; ++e) identity[e * kExperts + e] = 1;
    uint32_t asked = 0;
    for (uint32_t tick = 1; tick <= 40; ++tick) {
        gpu().reset();
        const bool last = tick % 4 == 0;
        const std::string what = "tick " + std::to_string(tick);
        Cache cache(gpu(), kExperts, kSlots, random);
        std::vector<uint8_t> of_misses(CpuRequest::kMost + 1);
        for (uint32_t m = 0; m < of_misses.size(); ++m)
            of_misses[m] = static_cast<uint8_t>(tick % 3 == 0 ? 0 : tick % 3 == 1 ? m / 2 : m);
        const HostBuffer shared = locked(gpu(), std::vector<std::byte>(4096 + 2 * 4 * kExperts));
        auto* const request = new (shared.data.get()) CpuRequest;
        auto* const x_of_host = reinterpret_cast<float*>(shared.data.get() + 4096);
        float* const sum = x_of_host + kExperts;
        const Array<uint8_t> table(gpu(), of_misses);
        const Array<uint64_t> words(gpu(), std::vector<uint64_t>(2));
        // Every other time the device cannot read the experts: they are brought, at a stride.
        const bool brings = tick % 2 == 0;
        constexpr size_t kStride = Cache::kSlot + 64;
        const HostBuffer stage = locked(gpu(), std::vector<std::byte>(kUsed * kStride));
        CpuShare share;
        share.request = request;
        share.x = x_of_host;
        share.sum = sum;
        share.pending = words;
        share.staging = words.data() + 1;
        share.of_misses = table;
        share.stage = brings ? stage.data.get() : nullptr;
        share.stage_stride = kStride;
        share.layer = kLayer;
        share.last = last;

        const std::vector<float> x = random.values(kExperts);
        const Array<float> in(gpu(), x), router(gpu(), identity);
        const DecodePlace place{nullptr, 0, tick};
        const Array<DecodePlace> now(gpu(), std::span<const DecodePlace>(&place, 1));
        const RouterShape shape{kExperts, kUsed, true, 1};
        const auto weight = [&](const float* data) {
            return Weight{reinterpret_cast<const std::byte*>(data), WeightType::f32, kExperts,
                          kExperts};
        };
        HostRoutes routes(1, kExperts, kUsed);
        host().route(shape, weight(identity.data()), x.data(), routes.view);
        std::vector<int32_t> missed;
        for (int32_t e = 0; e < static_cast<int32_t>(kExperts); ++e)
            if (routes.count[static_cast<size_t>(e)] > 0 &&
                cache.slot_of[static_cast<size_t>(e)] < 0)
                missed.push_back(e);
        std::vector<int32_t> coldest = missed;
        std::stable_sort(coldest.begin(), coldest.end(), [&](int32_t a, int32_t b) {
            return cache.heat[static_cast<size_t>(a)] < cache.heat[static_cast<size_t>(b)];
        });
        coldest.resize(of_misses[missed.size()]);

        const CardRoutes routed(gpu(), 1, kExperts, kUsed);
        Routes view = routed.view;
        view.decode = true;
        kernels().route_and_fetch(shape, weight(router), in, view, cache.card_view, now, share);
        const uint64_t number = tick * CpuRequest::kLayers + kLayer;
        std::vector<int32_t> stay;
        for (const int32_t e : missed)
            if (std::find(coldest.begin(), coldest.end(), e) == coldest.end()) stay.push_back(e);
        const bool asks = !coldest.empty() || last || (brings && !stay.empty());
        if (brings && !stay.empty()) {
            while (std::atomic_ref(request->asked).load(std::memory_order_acquire) != number) {
            }
            ASSERT_EQ(request->stage_count, stay.size()) << what;
            for (size_t i = 0; i < stay.size(); ++i) {
                EXPECT_EQ(request->stage_expert[i], stay[i]) << what;
                std::memcpy(stage.data.get() + i * kStride,
                            cache.weights.data.get() + static_cast<size_t>(stay[i]) * Cache::kSlot,
                            Cache::kSlot);
            }
            std::atomic_ref(request->staged).store(number, std::memory_order_release);
        }
        gpu().synchronize();
        EXPECT_EQ(request->asked, asks ? number : CpuRequest::kNone) << what;
        EXPECT_EQ(words.get()[0], coldest.empty() ? CpuRequest::kNone : number) << what;
        EXPECT_EQ(words.get()[1], brings && !stay.empty() ? number : CpuRequest::kNone) << what;
        if (asks) {
            ASSERT_EQ(request->count, coldest.size()) << what;
            asked += !coldest.empty();
        }
        std::vector<int32_t> expert = routes.expert;
        std::vector<float> weights = routes.weight;
        for (size_t i = 0; i < coldest.size(); ++i) {
            EXPECT_EQ(request->expert[i], coldest[i]) << what;
            const auto rank = std::find(expert.begin(), expert.end(), coldest[i]) - expert.begin();
            EXPECT_NEAR(request->weight[i], weights[static_cast<size_t>(rank)], 1e-5) << what;
            expert[static_cast<size_t>(rank)] = -1;
            weights[static_cast<size_t>(rank)] = 0;
        }
        if (!coldest.empty()) {
            EXPECT_TRUE(same_bits(std::vector<float>(x_of_host, x_of_host + kExperts), x)) << what;
        }
        EXPECT_EQ(routed.expert.get(), expert) << what;
        const std::vector<int32_t> slot_of = cache.from_card(cache.card_view.slot_of, kExperts);
        for (const int32_t e : missed) {
            const bool left = std::find(coldest.begin(), coldest.end(), e) != coldest.end();
            EXPECT_EQ(slot_of[static_cast<size_t>(e)] < 0, left) << what << " " << e;
            if (!left) cache.expert_in[static_cast<size_t>(slot_of[static_cast<size_t>(e)])] = e;
        }
        std::vector<bool> filled(kSlots);
        for (const int32_t e : stay)
            filled[static_cast<size_t>(slot_of[static_cast<size_t>(e)])] = true;
        cache.expect_copied(filled, what);
        const std::vector<float> got = routed.weight.get();
        for (size_t rank = 0; rank < kUsed; ++rank)
            EXPECT_NEAR(got[rank], weights[rank], 1e-5) << what;

        // The answer comes while the device waits for it. What was left has no output: poison.
        std::vector<uint16_t> halves(size_t{kUsed} * kExperts, 0x7e00);
        std::vector<double> expected(x.begin(), x.end());
        for (size_t rank = 0; rank < kUsed; ++rank)
            for (uint32_t c = 0; c < kExperts; ++c) {
                if (expert[rank] < 0) continue;
                halves[rank * kExperts + c] = host::float_to_half(random.uniform());
                expected[c] +=
                    static_cast<double>(got[rank]) *
                    static_cast<double>(host::half_to_float(halves[rank * kExperts + c]));
            }
        for (uint32_t c = 0; c < kExperts; ++c) {
            sum[c] = random.uniform();
            if (!coldest.empty()) expected[c] += static_cast<double>(sum[c]);
        }
        const Array<uint16_t> outputs(gpu(), halves);
        const Array<float> before(gpu(), x), total(gpu(), x.size()), norm(gpu(), x.size()),
            norm_weight(gpu(), std::vector<float>(kExperts, 1.0f));
        kernels().combine_and_norm(view, kUsed, kExperts, outputs.data(), before, total,
                                   norm_weight, 1e-5f, {norm, nullptr, 1, kExperts, true}, share);
        std::atomic_ref(request->answered).store(number, std::memory_order_release);
        EXPECT_LT(distance(total.get(), expected), 1e-6) << what;
    }
    EXPECT_GT(asked, 20u);
}

TEST_F(CudaTest, NotesOfAPromptAreTheHosts) {
    Random random(24);
    Cache cache(gpu(), 128, 50, random);
    uint32_t tick = 5;
    for (const auto& [rows, first] : {std::pair{600u, 88u}, {5u, 0u}, {7u, 7u}, {1000u, 999u}}) {
        const HostRoutes routes = random_routes(rows, 128, 8, random);
        const CardRoutes routed(gpu(), routes);
        host().note_routes(cache.host_view, routes.view, 8, first, ++tick);
        kernels().note_routes(cache.card_view, routed.view, 8, first, tick);
        cache.expect_same(std::to_string(rows));
    }
}

TEST_F(CudaTest, GatherCopiesListedExpertsWithRoutes) {
    Random random(25);
    Cache cache(gpu(), 24, 24, random);
    HostRoutes routes = random_routes(3, 24, 4, random);
    const CardRoutes routed(gpu(), routes);
    std::vector<int32_t> list;
    for (int32_t e = 0; e < 24; e += 2) list.push_back(e);
    const Array<std::byte> target(gpu(), 24 * Cache::kSlot);
    std::vector<ExpertEntry> to;
    for (size_t e = 0; e < 24; ++e) to.push_back(Cache::entry(target + e * Cache::kSlot));
    const Array<ExpertEntry> table(gpu(), to);
    kernels().gather_routed(cache.card_view, list, routed.view, table);
    const std::vector<std::byte> bytes = target.get();
    for (size_t e = 0; e < 24; ++e) {
        const std::byte* const at = bytes.data() + e * Cache::kSlot;
        const std::byte* const from = cache.weights.data.get() + e * Cache::kSlot;
        if (e % 2 == 1 || routes.count[e] == 0) {
            for (size_t i = 0; i < Cache::kSlot; ++i) ASSERT_EQ(at[i], std::byte{0xff}) << e;
            continue;
        }
        EXPECT_EQ(std::memcmp(at, from, Cache::kGate), 0) << e;
        EXPECT_EQ(std::memcmp(at + Cache::kUpAt, from + Cache::kUpAt, Cache::kUp), 0) << e;
        EXPECT_EQ(std::memcmp(at + Cache::kDownAt, from + Cache::kDownAt, Cache::kDown), 0) << e;
    }
}

}  // namespace
}  // namespace granary::gpu::cuda::test
