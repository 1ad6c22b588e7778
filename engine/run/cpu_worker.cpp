// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/cpu_worker.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <numeric>

#include "engine/memory/layout.h"
#include "engine/run/clock.h"

namespace granary {
namespace {

constexpr uint32_t kMost = gpu::CpuRequest::kMost;

// Bytes of the largest expert.
uint64_t stride(const Model& model) {
    const auto& bytes = model.facts.expert_bytes;
    return *std::max_element(bytes.begin(), bytes.end());
}

size_t floats(const Model& model) {
    return round_up(model.facts.hidden * sizeof(float), 256);
}

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

CpuWorker::Shares CpuWorker::even_shares(uint32_t percent) {
    Shares shares{};
    for (uint32_t misses = 0; misses <= kMost; ++misses)
        shares[misses] = static_cast<uint8_t>((misses * percent + 50) / 100);
    return shares;
}

CpuWorker::Shares CpuWorker::fastest_shares(const Seconds& processor, double gather) {
    Shares shares{};
    for (uint32_t misses = 0; misses <= kMost; ++misses)
        shares[misses] = static_cast<uint8_t>(fastest_share(misses, processor, gather).experts);
    return shares;
}

Result<std::unique_ptr<CpuWorker>> CpuWorker::create(gpu::Device& device, const Model& model,
                                                     std::byte* memory, uint32_t wave) {
    auto shared = device.page_locked(round_up(sizeof(gpu::CpuRequest), 256) + 2 * floats(model));
    if (!shared) return tl::unexpected(shared.error());
    const bool all_readable =
        std::all_of(model.layers.begin(), model.layers.end(),
                    [](const Layer& layer) { return layer.moe.home_readable; });
    // A token's experts lie in it too, when they are brought.
    const uint64_t places =
        std::max<uint64_t>(wave * kRingWaves, round_up(model.facts.experts_used, kRingWaves));
    auto ring = all_readable ? gpu::HostBuffer() : device.page_locked(places * stride(model));
    if (!ring) return tl::unexpected(ring.error());
    std::unique_ptr<CpuWorker> worker(
        new CpuWorker(device, model, memory, std::move(*shared), std::move(*ring)));
    if (auto r = worker->set_shares({}); !r) return tl::unexpected(r.error());
    return worker;
}

CpuWorker::CpuWorker(gpu::Device& device, const Model& model, std::byte* memory,
                     gpu::HostBuffer shared, gpu::HostBuffer ring)
    : device_(device),
      model_(model),
      memory_(memory),
      shared_(std::move(shared)),
      ring_(std::move(ring)),
      request_(*new (shared_.data.get()) gpu::CpuRequest),
      x_(reinterpret_cast<float*>(shared_.data.get() + round_up(sizeof(gpu::CpuRequest), 256))),
      sum_(x_ + floats(model) / sizeof(float)) {
    std::fill_n(x_, model.facts.hidden, 1.0f);
}

gpu::CpuShare CpuWorker::of_layer(uint32_t layer) const {
    static_assert(round_up(sizeof(Shares), 8) + 2 * sizeof(uint64_t) <= kCpuWorkerBytes);
    gpu::CpuShare share;
    share.request = &request_;
    share.x = x_;
    share.sum = sum_;
    share.of_misses = reinterpret_cast<const uint8_t*>(memory_);
    share.pending = reinterpret_cast<uint64_t*>(memory_ + round_up(sizeof(Shares), 8));
    share.staging = share.pending + 1;
    if (brings(layer)) {
        share.stage = ring_.data.get();
        share.stage_stride = stride(model_);
    }
    share.layer = layer;
    share.last = layer + 1 == model_.facts.layers;
    return share;
}

Result<void> CpuWorker::begin(unsigned threads, int nice) {
    if (begun()) return {};
    gpu::HostDeviceOptions options;
    options.threads = threads;
    options.nice = nice;
    auto host = gpu::make_host_device(options);
    if (!host) return tl::unexpected(host.error());
    host_ = std::move(*host);
    const ModelFacts& facts = model_.facts;
    const gpu::Kernels& kernels = host_->kernels();
    list_.resize(kMost);
    count_.resize(facts.experts);
    first_.resize(facts.experts + 1);
    order_.resize(kMost);
    places_.resize(facts.experts);
    std::iota(order_.begin(), order_.end(), 0);
    weight_.resize(kMost);
    hidden_.resize(size_t{kMost} * facts.expert_ffn);
    out_.resize(size_t{kMost} * facts.hidden);
    codes_.resize(kernels.code_bytes(facts.hidden));
    hidden_codes_.resize(kMost * kernels.code_bytes(facts.expert_ffn));
    return {};
}

Result<void> CpuWorker::set_shares(const Shares& shares) {
    fastest_.reset();
    table_ = shares;
    return put(table_);
}

CpuWorker::Shares CpuWorker::Fastest::shares() const {
    return fastest_shares({processor.fixed * slowdown, processor.each * slowdown}, gather);
}

Result<void> CpuWorker::share_fastest(const Seconds& processor, double gather) {
    fastest_ = Fastest{processor, gather};
    table_ = fastest_->shares();
    return put(table_);
}

Result<void> CpuWorker::adapt() {
    // So many tell a slower processor from one that was kept for a moment.
    constexpr uint32_t kEnough = 64;
    if (!fastest_ || fastest_->requests < kEnough) return {};
    Fastest& of = *fastest_;
    of.slowdown = of.taken / of.foretold;
    of.requests = 0;
    of.foretold = of.taken = 0;
    const Shares shares = of.shares();
    if (shares == table_) return {};
    table_ = shares;
    return put(table_);
}

Result<void> CpuWorker::try_again() {
    if (!fastest_ || any_) return {};
    return share_fastest(fastest_->processor, fastest_->gather);
}

Result<void> CpuWorker::put(const Shares& shares) {
    any_ = std::any_of(shares.begin(), shares.end(), [](uint8_t share) { return share > 0; });
    device_.copy(gpu::StreamId::compute, memory_, shares.data(), sizeof shares);
    device_.fill(gpu::StreamId::compute, memory_ + round_up(sizeof shares, 8), 0xff,
                 2 * sizeof(uint64_t));
    return device_.synchronize(gpu::StreamId::compute);
}

void CpuWorker::bring(uint32_t layer, std::span<const int32_t> experts,
                      std::span<const gpu::ExpertEntry> to) {
    const MoeWeights& moe = model_.layers[layer].moe;
    gpu::ExpertCacheView view;
    view.experts = model_.facts.experts;
    view.home = moe.home.data();
    view.gate_bytes = moe.gate_bytes;
    view.up_bytes = moe.up_bytes;
    view.down_bytes = moe.down_bytes;
    for (size_t i = 0; i < experts.size(); ++i) {
        count_[experts[i]] = 1;
        places_[experts[i]] = to[i];
    }
    gpu::Routes routes;
    routes.count = count_.data();
    host_->kernels().gather_routed(view, experts, routes, places_.data());
}

void CpuWorker::compute(uint32_t layer, std::span<const int32_t> experts,
                        std::span<const float> weights, gpu::Arithmetic arithmetic) {
    const MoeWeights& moe = model_.layers[layer].moe;
    gpu::Kernels& kernels = host_->kernels();
    const auto count = static_cast<uint32_t>(experts.size());
    const std::span<int32_t> list(list_.data(), count);
    std::copy(experts.begin(), experts.end(), list.begin());
    std::sort(list.begin(), list.end());
    for (uint32_t i = 0; i < count; ++i) {
        const auto at = std::find(experts.begin(), experts.end(), list[i]);
        weight_[i] = weights[static_cast<size_t>(at - experts.begin())];
        count_[list[i]] = 1;
        first_[list[i]] = static_cast<int32_t>(i);
        first_[list[i] + 1] = static_cast<int32_t>(i) + 1;
    }
    const gpu::Routes routes{
        list.data(), weight_.data(), count_.data(), first_.data(), order_.data(), 1, true};
    const bool fast = arithmetic == gpu::Arithmetic::fast;
    const gpu::Activations x{x_, fast ? codes_.data() : nullptr, 1, model_.facts.hidden, true};
    const gpu::Activations hidden{hidden_.data(), fast ? hidden_codes_.data() : nullptr, count,
                                  model_.facts.expert_ffn, true};
    gpu::ExpertShape shape = moe.shape;
    shape.used = count;
    kernels.quantise(x);
    kernels.expert_ffn(shape, moe.home.data(), list, routes, x, hidden, out_.data());
    std::fill_n(sum_, model_.facts.hidden, 0.0f);
    kernels.combine(routes, count, model_.facts.hidden, out_.data(), sum_);
}

CpuWorker::Seconds CpuWorker::measure(gpu::Arithmetic arithmetic) {
    constexpr uint32_t kFew = 1, kMany = 4, kTimes = 15;
    const ModelFacts& facts = model_.facts;
    const std::vector<float> weights(kMany, 1.0f);
    uint32_t next = 0;
    const auto typical = [&](uint32_t count) {
        std::vector<double> all;
        std::vector<int32_t> experts(count);
        for (uint32_t i = 0; i < kTimes; ++i) {
            // Other layers and experts each time: none is in a cache yet.
            for (int32_t& expert : experts) expert = static_cast<int32_t>(next++ % facts.experts);
            const auto start = Clock::now();
            compute(next % facts.layers, experts, {weights.data(), count}, arithmetic);
            all.push_back(seconds_since(start));
        }
        std::nth_element(all.begin(), all.begin() + kTimes / 2, all.end());
        return all[kTimes / 2];
    };
    (void)typical(kFew);  // the first ones wake the threads
    const uint32_t many = std::min(kMany, facts.experts);
    if (many == kFew) return {kProcessorBell, typical(kFew)};
    const double few_seconds = typical(kFew), many_seconds = typical(many);
    Seconds seconds;
    seconds.each = std::max((many_seconds - few_seconds) / (many - kFew), few_seconds / 16);
    seconds.fixed = std::max(few_seconds - seconds.each, 0.0) + kProcessorBell;
    return seconds;
}

void CpuWorker::serve(gpu::Event end, uint32_t tick, gpu::Arithmetic arithmetic) {
    if (!begun() || (!shares() && !brings_some())) return;
    std::array<gpu::ExpertEntry, kMost> stage;
    // A step that fails never asks: the device is asked now and then.
    constexpr uint32_t kPolls = 8192;
    uint64_t seen = gpu::CpuRequest::kNone;
    for (uint32_t polls = 1;; ++polls) {
        const uint64_t asked = std::atomic_ref(request_.asked).load(std::memory_order_acquire);
        if (asked == seen || asked / gpu::CpuRequest::kLayers != tick) {
            if (polls % kPolls == 0 && device_.passed(end)) return;
            pause();
            continue;
        }
        seen = asked;
        const auto layer = static_cast<uint32_t>(asked % gpu::CpuRequest::kLayers);
        const uint32_t count = std::min(request_.count, kMost);
        const uint32_t to_bring = std::min(request_.stage_count, kMost);
        if (to_bring > 0) {
            const MoeWeights& moe = model_.layers[layer].moe;
            for (uint32_t i = 0; i < to_bring; ++i) {
                std::byte* const at = ring_.data.get() + i * stride(model_);
                stage[i] = {at, at + moe.up_offset, at + moe.down_offset};
            }
            bring(layer, {request_.stage_expert, to_bring}, stage);
            std::atomic_ref(request_.staged).store(asked, std::memory_order_release);
        }
        if (count > 0) {
            const auto start = Clock::now();
            compute(layer, {request_.expert, count}, {request_.weight, count}, arithmetic);
            computed_ += count;
            std::atomic_ref(request_.answered).store(asked, std::memory_order_release);
            if (fastest_) {
                ++fastest_->requests;
                fastest_->foretold += fastest_->processor.of(count);
                fastest_->taken += seconds_since(start) + kProcessorBell;
            }
        }
        if (layer + 1 == model_.facts.layers) return;
        polls = 1;
    }
}

}  // namespace granary
