// SPDX-License-Identifier: GPL-3.0-or-later
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "gpu/host/host_kernels.h"
#include "tests/gpu/kernels_support.h"

namespace granary::gpu::test {
namespace {

using host::HostKernels;
using host::ThreadPool;

struct RouteTable {
    std::vector<int32_t> expert, count, first, order;
    std::vector<float> weight;
    Routes view;
    RouteTable(uint32_t rows, uint32_t used, uint32_t experts)
        : expert(rows * used),
          count(experts),
          first(experts + 1),
          order(rows * used),
          weight(rows * used) {
        view = {expert.data(), weight.data(), count.data(), first.data(), order.data(), rows};
    }
    RouteTable(const RouteTable&) = delete;
};

TEST(Route, MatchesDoublePrecisionAndSorts) {
    Random random(1);
    constexpr uint32_t kExperts = 20, kUsed = 4, kHidden = 512, kRows = 70;
    const RandomWeight router(WeightType::f32, kExperts, kHidden, random);
    const std::vector<float> x = random.values(size_t{kRows} * kHidden);
    for (const bool normalise : {true, false}) {
        ThreadPool pool(2);
        HostKernels kernels(pool);
        RouteTable routes(kRows, kUsed, kExperts);
        kernels.route({kExperts, kUsed, normalise, 2.5f}, router.weight, x.data(), routes.view);
        for (uint32_t row = 0; row < kRows; ++row) {
            std::vector<double> p(kExperts);
            for (uint32_t e = 0; e < kExperts; ++e)
                for (uint32_t k = 0; k < kHidden; ++k)
                    p[e] += static_cast<double>(router.decoded[e * kHidden + k]) *
                            x[size_t{row} * kHidden + k];
            const double largest = *std::max_element(p.begin(), p.end());
            double sum = 0, chosen = 0;
            for (double& value : p) sum += value = std::exp(value - largest);
            std::vector<int32_t> best(kExperts);
            std::iota(best.begin(), best.end(), 0);
            std::stable_sort(best.begin(), best.end(),
                             [&](int32_t a, int32_t b) { return p[a] > p[b]; });
            for (uint32_t rank = 0; rank < kUsed; ++rank) chosen += p[best[rank]] / sum;
            for (uint32_t rank = 0; rank < kUsed; ++rank) {
                EXPECT_EQ(routes.expert[row * kUsed + rank], best[rank]);
                const double weight = p[best[rank]] / sum / (normalise ? chosen : 1) * 2.5;
                EXPECT_NEAR(routes.weight[row * kUsed + rank], weight, 1e-5 * weight);
            }
        }
        std::vector<int32_t> sorted;
        for (uint32_t e = 0; e < kExperts; ++e) {
            EXPECT_EQ(routes.first[e], static_cast<int32_t>(sorted.size()));
            for (uint32_t r = 0; r < kRows * kUsed; ++r)
                if (routes.expert[r] == static_cast<int32_t>(e))
                    sorted.push_back(static_cast<int32_t>(r));
            EXPECT_EQ(routes.count[e], static_cast<int32_t>(sorted.size()) - routes.first[e]);
        }
        EXPECT_EQ(routes.first[kExperts], static_cast<int32_t>(sorted.size()));
        EXPECT_EQ(routes.order, sorted);
    }
}

TEST(Route, LowerIndexAmongEqualsAndBrokenRows) {
    ThreadPool pool(1);
    HostKernels kernels(pool);
    std::vector<float> zeros(5 * 32), x(64, 1.0f);
    x[40] = NAN;
    RouteTable routes(2, 3, 5);
    const Weight router{reinterpret_cast<const std::byte*>(zeros.data()), WeightType::f32, 5, 32};
    kernels.route({5, 3, true, 1}, router, x.data(), routes.view);
    EXPECT_EQ(routes.expert, (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
    EXPECT_FLOAT_EQ(routes.weight[0], 1 / 3.0f);
    EXPECT_FLOAT_EQ(routes.weight[5], 1 / 3.0f);
}

// An MoE layer's experts in three types.
struct Experts {
    ExpertShape shape;
    std::vector<RandomWeight> gate, up, down;
    std::vector<ExpertEntry> entries;
    Experts(ExpertShape s, Random& random) : shape(s) {
        for (uint32_t e = 0; e < s.experts; ++e) {
            gate.emplace_back(s.gate, s.ffn, s.hidden, random);
            up.emplace_back(s.up, s.ffn, s.hidden, random);
            down.emplace_back(s.down, s.hidden, s.ffn, random);
            entries.push_back({gate[e].data.data(), up[e].data.data(), down[e].data.data()});
        }
    }
    std::vector<double> exact(uint32_t e, const float* x) const {
        std::vector<double> inner(shape.ffn), out(shape.hidden);
        for (uint32_t j = 0; j < shape.ffn; ++j) {
            double g = 0, u = 0;
            for (uint32_t k = 0; k < shape.hidden; ++k) {
                g += static_cast<double>(gate[e].decoded[size_t{j} * shape.hidden + k]) * x[k];
                u += static_cast<double>(up[e].decoded[size_t{j} * shape.hidden + k]) * x[k];
            }
            inner[j] = g / (1 + std::exp(-g)) * u;
        }
        for (uint32_t j = 0; j < shape.hidden; ++j)
            for (uint32_t k = 0; k < shape.ffn; ++k)
                out[j] +=
                    static_cast<double>(down[e].decoded[size_t{j} * shape.ffn + k]) * inner[k];
        return out;
    }
};

// Routes by a fixed rule; expert 1 gets none.
void set_routes(RouteTable& routes, uint32_t used, uint32_t experts, uint32_t first_row) {
    const auto total = static_cast<uint32_t>(routes.expert.size());
    for (uint32_t r = 0; r < total; ++r) {
        const uint32_t row = first_row + r / used;
        uint32_t e = (row * 7 + r % used * 2) % experts;
        if (e == 1) e = 3;
        routes.expert[r] = static_cast<int32_t>(e);
        routes.weight[r] = 0.25f + static_cast<float>(r % used);
    }
    int32_t at = 0;
    for (uint32_t e = 0; e < experts; ++e) {
        routes.first[e] = at;
        for (uint32_t r = 0; r < total; ++r)
            if (routes.expert[r] == static_cast<int32_t>(e)) routes.order[at++] = r;
        routes.count[e] = at - routes.first[e];
    }
    routes.first[experts] = at;
}

std::vector<float> run_experts(const Experts& experts, const std::vector<float>& x, uint32_t rows,
                               uint32_t step, unsigned threads, Arithmetic arithmetic) {
    const ExpertShape& shape = experts.shape;
    ThreadPool pool(threads);
    HostKernels kernels(pool);
    std::vector<int32_t> list(shape.experts);
    std::iota(list.begin(), list.end(), 0);
    std::vector<float> out(size_t{rows} * shape.used * shape.hidden);
    for (uint32_t i = 0; i < rows; i += step) {
        const uint32_t count = std::min(step, rows - i);
        RouteTable routes(count, shape.used, shape.experts);
        set_routes(routes, shape.used, shape.experts, i);
        Rows in(kernels, count, shape.hidden, arithmetic);
        std::copy_n(x.data() + size_t{i} * shape.hidden, in.values.size(), in.values.data());
        kernels.quantise(in.view);
        Rows hidden(kernels, count * shape.used, shape.ffn, arithmetic);
        // In two lists, as a cache and a stage would be.
        const size_t half = list.size() / 2;
        float* to = out.data() + size_t{i} * shape.used * shape.hidden;
        kernels.expert_ffn(shape, experts.entries.data(), {list.data(), half}, routes.view, in.view,
                           hidden.view, to);
        kernels.expert_ffn(shape, experts.entries.data(), {list.data() + half, list.size() - half},
                           routes.view, in.view, hidden.view, to);
    }
    return out;
}

const ExpertShape kShapes[] = {
    {256, 256, 6, 3, WeightType::q4_k, WeightType::q4_k, WeightType::q6_k},
    {64, 96, 5, 2, WeightType::f32, WeightType::q8_0, WeightType::q5_0},
    {256, 48, 4, 2, WeightType::iq4_xs, WeightType::q5_k, WeightType::f16},
};

TEST(ExpertFfn, MatchesDoublePrecision) {
    for (const ExpertShape& shape : kShapes) {
        Random random(2);
        const Experts experts(shape, random);
        constexpr uint32_t kRows = 9;
        const std::vector<float> x = random.values(size_t{kRows} * shape.hidden);
        RouteTable routes(kRows, shape.used, shape.experts);
        set_routes(routes, shape.used, shape.experts, 0);
        for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::fast}) {
            const std::vector<float> out = run_experts(experts, x, kRows, kRows, 2, arithmetic);
            for (uint32_t r = 0; r < kRows * shape.used; ++r) {
                const std::vector<float> got(&out[size_t{r} * shape.hidden],
                                             &out[size_t{r} * shape.hidden] + shape.hidden);
                // Fast: three quantised products, each within 8e-3 (kernels_linear_test).
                EXPECT_LT(distance(got, experts.exact(static_cast<uint32_t>(routes.expert[r]),
                                                      &x[size_t{r / shape.used} * shape.hidden])),
                          arithmetic == Arithmetic::f32 ? 5e-6 : 2.4e-2);
            }
        }
    }
}

TEST(ExpertFfn, RowsAndThreadsChangeNothing) {
    for (const ExpertShape& shape : kShapes) {
        Random random(3);
        const Experts experts(shape, random);
        constexpr uint32_t kRows = 300;
        const std::vector<float> x = random.values(size_t{kRows} * shape.hidden);
        for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::fast}) {
            const std::vector<float> first = run_experts(experts, x, kRows, kRows, 1, arithmetic);
            for (const uint32_t step : {1u, 17u, 300u})
                EXPECT_TRUE(same_bits(first, run_experts(experts, x, kRows, step, 2, arithmetic)))
                    << step;
        }
    }
}

TEST(Combine, AddsInRankOrder) {
    Random random(4);
    ThreadPool pool(2);
    HostKernels kernels(pool);
    constexpr uint32_t kRows = 40, kUsed = 4, kHidden = 100;
    RouteTable routes(kRows, kUsed, 8);
    routes.weight = random.values(routes.weight.size());
    routes.view.weight = routes.weight.data();
    const std::vector<float> out = random.values(size_t{kRows} * kUsed * kHidden);
    std::vector<float> x = random.values(size_t{kRows} * kHidden);
    std::vector<double> exact(x.begin(), x.end());
    for (size_t i = 0; i < exact.size(); ++i)
        for (uint32_t rank = 0; rank < kUsed; ++rank) {
            const size_t route = i / kHidden * kUsed + rank;
            exact[i] +=
                static_cast<double>(routes.weight[route]) * out[route * kHidden + i % kHidden];
        }
    kernels.combine(routes.view, kUsed, kHidden, out.data(), x.data());
    EXPECT_LT(distance(x, exact), 1e-6);
}

// A cache of `slots` slots over six experts whose bytes all equal the expert's number.
struct Cache {
    static constexpr uint32_t kExperts = 6;
    static constexpr size_t kBytes = 100000;
    std::vector<std::byte> home_bytes, slot_bytes;
    std::vector<ExpertEntry> home, entries;
    std::vector<int32_t> slot_of, expert_in;
    std::vector<uint8_t> usable;
    std::vector<std::byte*> base;
    std::vector<float> heat;
    std::vector<uint32_t> last_use;
    uint64_t hits = 0, misses = 0, copied = 0;
    ExpertCacheView view;
    explicit Cache(uint32_t slots)
        : home_bytes(kExperts * 3 * kBytes),
          slot_bytes(slots * 3 * kBytes),
          home(kExperts),
          entries(kExperts),
          slot_of(kExperts, -1),
          expert_in(slots, -1),
          usable(slots, 1),
          base(slots),
          heat(kExperts),
          last_use(kExperts) {
        for (uint32_t e = 0; e < kExperts; ++e) {
            std::byte* at = home_bytes.data() + e * 3 * kBytes;
            std::fill_n(at, 3 * kBytes, static_cast<std::byte>(e));
            home[e] = {at, at + kBytes, at + 2 * kBytes};
        }
        for (uint32_t s = 0; s < slots; ++s) base[s] = slot_bytes.data() + s * 3 * kBytes;
        view = {kExperts,    slots,       slot_of.data(),  expert_in.data(), usable.data(),
                base.data(), heat.data(), last_use.data(), entries.data(),   home.data(),
                kBytes,      kBytes,      kBytes,          kBytes,           2 * kBytes,
                &hits,       &misses,     &copied};
    }
    bool readable(int32_t e) const {
        const ExpertEntry& entry = entries[e];
        const auto value = static_cast<std::byte>(e);
        return entry.gate && entry.gate[0] == value && entry.up[kBytes - 1] == value &&
               entry.down[kBytes / 2] == value;
    }
    bool consistent() const {
        for (uint32_t e = 0; e < kExperts; ++e) {
            if (slot_of[e] < 0) continue;
            if (expert_in[slot_of[e]] != static_cast<int32_t>(e)) return false;
            if (entries[e].gate != base[slot_of[e]] || !readable(e)) return false;
        }
        return true;
    }
    void fetch(HostKernels& kernels, std::vector<int32_t> picks, uint32_t tick) {
        RouteTable routes(1, static_cast<uint32_t>(picks.size()), kExperts);
        routes.expert = picks;
        routes.view.expert = routes.expert.data();
        for (const int32_t e : picks) ++routes.count[e];
        const DecodePlace place{nullptr, 0, tick};
        kernels.fetch_experts(view, routes.view, static_cast<uint32_t>(picks.size()), &place);
        for (const int32_t e : picks) EXPECT_TRUE(readable(e)) << e;
        EXPECT_TRUE(consistent());
    }
};

TEST(FetchExperts, FillsEmptySlotsThenTheColdest) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    Cache cache(3);
    cache.fetch(kernels, {0, 1}, 1);
    EXPECT_EQ(cache.misses, 2u);
    EXPECT_EQ(cache.copied, 2 * 3 * Cache::kBytes);
    cache.fetch(kernels, {0, 2}, 2);
    EXPECT_EQ(cache.hits, 1u);
    EXPECT_EQ(cache.slot_of[2], 2);
    cache.fetch(kernels, {2, 0}, 3);  // both held
    EXPECT_EQ(cache.hits, 3u);
    cache.fetch(kernels, {3, 0}, 4);  // 1 is the coldest
    EXPECT_EQ(cache.slot_of[1], -1);
    EXPECT_EQ(cache.entries[1].gate, cache.home[1].gate);
    EXPECT_EQ(cache.slot_of[3], 1);
    cache.fetch(kernels, {1, 3}, 5);  // 2 is the coldest that is not picked
    EXPECT_EQ(cache.slot_of[2], -1);
    EXPECT_EQ(cache.misses, 5u);
    EXPECT_EQ(cache.copied, 5 * 3 * Cache::kBytes);
    EXPECT_GT(cache.heat[0], cache.heat[1]);
}

TEST(NoteRoutes, CountsTheLastRowsAsDecodeCallsWould) {
    ThreadPool pool(1);
    HostKernels kernels(pool);
    Cache cache(3);
    RouteTable routes(4, 2, Cache::kExperts);
    routes.expert = {0, 1, 0, 1, 2, 3, 2, 4};
    routes.view.expert = routes.expert.data();
    cache.heat[5] = 1;
    kernels.note_routes(cache.view, routes.view, 2, 2, 7);
    EXPECT_EQ(cache.heat[0], 0);
    EXPECT_EQ(cache.heat[2], 2);
    EXPECT_EQ(cache.heat[3], 1);
    EXPECT_EQ(cache.last_use[4], 7u);
    EXPECT_NEAR(cache.heat[5], std::pow(1 - 1.0 / 256, 2), 1e-6);
    kernels.note_routes(cache.view, routes.view, 2, 4, 8);  // no rows
    EXPECT_EQ(cache.heat[2], 2);
}

TEST(FetchExperts, ReadsInPlaceWithTooFewUsableSlots) {
    ThreadPool pool(1);
    HostKernels kernels(pool);
    Cache cache(3);
    cache.usable[0] = cache.usable[2] = 0;
    cache.fetch(kernels, {4, 5}, 1);
    EXPECT_EQ(cache.entries[4].gate, cache.home[4].gate);
    EXPECT_EQ(cache.slot_of[4], -1);
    EXPECT_EQ(cache.copied, 0u);
    EXPECT_EQ(cache.misses, 2u);
    cache.usable[0] = 1;
    cache.fetch(kernels, {4, 5}, 2);  // slot 2 stays untouched
    EXPECT_EQ(cache.expert_in[2], -1);
    EXPECT_EQ(cache.copied, 2 * 3 * Cache::kBytes);
}

TEST(GatherRouted, CopiesOnlyRoutedExperts) {
    ThreadPool pool(2);
    HostKernels kernels(pool);
    Cache cache(0);
    std::vector<std::byte> stage(Cache::kExperts * 3 * Cache::kBytes, std::byte{0x55});
    std::vector<ExpertEntry> to;
    for (uint32_t e = 0; e < Cache::kExperts; ++e) {
        const std::byte* at = stage.data() + e * 3 * Cache::kBytes;
        to.push_back({at, at + Cache::kBytes, at + 2 * Cache::kBytes});
    }
    RouteTable routes(1, 2, Cache::kExperts);
    routes.count[2] = routes.count[5] = 1;
    const std::array<int32_t, 4> list{1, 2, 4, 5};
    kernels.gather_routed(cache.view, list, routes.view, to.data());
    for (uint32_t e = 0; e < Cache::kExperts; ++e) {
        const auto expected = e == 2 || e == 5 ? static_cast<std::byte>(e) : std::byte{0x55};
        for (size_t i = 0; i < 3 * Cache::kBytes; ++i)
            ASSERT_EQ(stage[e * 3 * Cache::kBytes + i], expected);
    }
}

}  // namespace
}  // namespace granary::gpu::test
