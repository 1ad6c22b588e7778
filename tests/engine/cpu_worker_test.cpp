// SPDX-License-Identifier: GPL-3.0-or-later
// The processor's share of a token: what it answers, and how a share is chosen. The device's side
// of the conversation is played by a thread; the kernels that speak for a GPU are tested in
// tests/gpu/cuda.
#include "engine/run/cpu_worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "engine/gguf/file.h"
#include "engine/memory/layout.h"
#include "tests/engine/small_model.h"

namespace granary {
namespace {

using test::SmallModel;

// Behind copies that nobody queued.
constexpr gpu::Event kNever{UINT64_MAX, gpu::StreamId::copy};

std::unique_ptr<gpu::Device> card() {
    gpu::HostDeviceOptions options;
    options.face = gpu::Face::card;
    options.budget_bytes = 1 << 20;
    return std::move(*gpu::make_host_device(options));
}

struct Fixture {
    test::TempDir folder;
    std::shared_ptr<const gguf::File> file;
    Model model;
    std::unique_ptr<gpu::Device> device = card();
    std::vector<std::byte> memory = std::vector<std::byte>(kCpuWorkerBytes);
    std::unique_ptr<CpuWorker> worker;

    explicit Fixture(const SmallModel& small) {
        file = std::move(*gguf::File::open(small.save(folder, "model.gguf")));
        model = std::move(*load_model(file));
        worker = std::move(*CpuWorker::create(*device, model, memory.data(), 2));
        EXPECT_TRUE(worker->begin(2, 0));
    }
};

TEST(CpuWorker, AnswersWhatTheDevicesKernelsWouldHavePutOut) {
    SmallModel small;
    small.layers = 3;
    small.gate_up = small.down = gpu::WeightType::q8_0;
    Fixture at(small);
    ASSERT_TRUE(at.worker->set_shares(CpuWorker::even_shares(100)));
    const ModelFacts& facts = at.model.facts;
    std::mt19937 random(5);
    for (const gpu::Arithmetic arithmetic : {gpu::Arithmetic::fast, gpu::Arithmetic::f32}) {
        for (uint32_t tick = 1; tick <= 5; ++tick) {
            const uint32_t asks_from = tick % 3;  // of three layers; the last asks for none at 2
            std::vector<std::vector<float>> inputs, answers;
            std::vector<std::vector<int32_t>> asked;
            std::thread gpu([&] {
                for (uint32_t layer = asks_from; layer < 3; ++layer) {
                    const gpu::CpuShare share = at.worker->of_layer(layer);
                    EXPECT_EQ(share.last, layer == 2);
                    std::vector<int32_t> experts;
                    if (asks_from < 2 || layer < 2) {
                        experts = {6, 1, 2};
                        experts.resize(1 + (tick + layer) % 3);
                    }
                    for (uint32_t i = 0; i < facts.hidden; ++i)
                        share.x[i] = static_cast<float>(random()) * 0x1p-31f - 1.0f;
                    for (size_t i = 0; i < experts.size(); ++i) {
                        share.request->expert[i] = experts[i];
                        share.request->weight[i] = 0.25f * static_cast<float>(i + 1);
                    }
                    share.request->count = static_cast<uint32_t>(experts.size());
                    const uint64_t number = (100 * static_cast<uint32_t>(arithmetic) + tick) *
                                                gpu::CpuRequest::kLayers +
                                            layer;
                    std::atomic_ref(share.request->asked).store(number);
                    if (experts.empty()) continue;
                    while (std::atomic_ref(share.request->answered).load() != number)
                        std::this_thread::yield();
                    asked.push_back(experts);
                    inputs.emplace_back(share.x, share.x + facts.hidden);
                    answers.emplace_back(share.sum, share.sum + facts.hidden);
                }
            });
            at.worker->serve(kNever, 100 * static_cast<uint32_t>(arithmetic) + tick, arithmetic);
            gpu.join();
            for (size_t i = 0; i < asked.size(); ++i) {
                // One expert after the other, each by itself.
                std::vector<float> sum(facts.hidden);
                const MoeWeights& moe = at.model.layers[asks_from + i].moe;
                gpu::Kernels& kernels = at.device->kernels();
                for (size_t e = 0; e < asked[i].size(); ++e) {
                    int32_t expert = asked[i][e], order = 0;
                    std::vector<int32_t> count(facts.experts), first(facts.experts + 1);
                    count[static_cast<size_t>(expert)] = 1;
                    first[static_cast<size_t>(expert) + 1] = 1;
                    float weight = 0.25f * static_cast<float>(e + 1);
                    const gpu::Routes routes{&expert, &weight, count.data(), first.data(),
                                             &order,  1,       true};
                    std::vector<std::byte> codes(kernels.code_bytes(facts.hidden)),
                        hidden_codes(kernels.code_bytes(facts.expert_ffn));
                    const bool fast = arithmetic == gpu::Arithmetic::fast;
                    std::vector<float> hidden(facts.expert_ffn), out(facts.hidden);
                    const gpu::Activations x{inputs[i].data(), fast ? codes.data() : nullptr, 1,
                                             facts.hidden, true};
                    gpu::ExpertShape shape = moe.shape;
                    shape.used = 1;
                    kernels.quantise(x);
                    kernels.expert_ffn(
                        shape, moe.home.data(), {&expert, 1}, routes, x,
                        {hidden.data(), fast ? hidden_codes.data() : nullptr, 1, facts.expert_ffn},
                        out.data());
                    for (uint32_t c = 0; c < facts.hidden; ++c) sum[c] += weight * out[c];
                }
                for (uint32_t c = 0; c < facts.hidden; ++c)
                    EXPECT_NEAR(answers[i][c], sum[c], 1e-5) << tick << " " << i << " " << c;
            }
        }
    }
    EXPECT_GT(at.worker->experts_computed(), 20u);
}

TEST(CpuWorker, AStepThatNeverAsksIsNotWaitedFor) {
    Fixture at(SmallModel{});
    ASSERT_TRUE(at.worker->set_shares(CpuWorker::even_shares(50)));
    at.worker->serve(at.device->record(gpu::StreamId::compute), 1, gpu::Arithmetic::fast);
    EXPECT_EQ(at.worker->experts_computed(), 0u);
}

// The last layer asks also where nobody serves: while the processor has no share, or where a step
// ended between two looks.
TEST(CpuWorker, WhatAnEarlierStepAskedIsNotTakenForTheNext) {
    Fixture at(SmallModel{});
    ASSERT_TRUE(at.worker->set_shares(CpuWorker::even_shares(50)));
    const uint32_t last = at.model.facts.layers - 1;
    gpu::CpuRequest& request = *at.worker->of_layer(last).request;
    const auto ask = [&](uint32_t tick, uint32_t layer, uint32_t count) {
        request.count = count;
        const uint64_t number = tick * gpu::CpuRequest::kLayers + layer;
        std::atomic_ref(request.asked).store(number);
        return number;
    };
    ask(1, last, 0);
    std::atomic<bool> served{false};
    std::thread gpu([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        request.expert[0] = 1;
        const uint64_t number = ask(2, 0, 1);
        while (std::atomic_ref(request.answered).load() != number && !served)
            std::this_thread::yield();
        ask(2, last, 0);
    });
    at.worker->serve(kNever, 2, gpu::Arithmetic::fast);
    served = true;
    gpu.join();
    EXPECT_EQ(at.worker->experts_computed(), 1u);
}

// A processor that takes longer than it did when it was measured is left less, or nothing; for the
// next answer it is asked again.
TEST(CpuWorker, SharesFollowWhatRequestsTake) {
    SmallModel small;
    small.layers = 2;
    Fixture at(small);
    uint32_t tick = 0;
    const auto serve_steps = [&](uint32_t steps) {
        for (uint32_t i = 0; i < steps; ++i) {
            ++tick;
            std::thread gpu([&] {
                for (uint32_t layer = 0; layer < 2; ++layer) {
                    const gpu::CpuShare share = at.worker->of_layer(layer);
                    std::fill_n(share.x, at.model.facts.hidden, 0.5f);
                    share.request->expert[0] = static_cast<int32_t>(i % at.model.facts.experts);
                    share.request->weight[0] = 1;
                    share.request->count = 1;
                    const uint64_t number = uint64_t{tick} * gpu::CpuRequest::kLayers + layer;
                    std::atomic_ref(share.request->asked).store(number);
                    while (std::atomic_ref(share.request->answered).load() != number)
                        std::this_thread::yield();
                }
            });
            at.worker->serve(kNever, tick, gpu::Arithmetic::fast);
            gpu.join();
        }
    };
    // Foretold a millionth of a nanosecond, and a nanosecond over the link.
    ASSERT_TRUE(at.worker->share_fastest({0, 1e-15}, 1e-9));
    EXPECT_TRUE(at.worker->shares());
    serve_steps(31);
    ASSERT_TRUE(at.worker->adapt());
    EXPECT_TRUE(at.worker->shares());  // 62 requests tell too little
    EXPECT_EQ(at.worker->slowdown(), 1);
    serve_steps(1);
    ASSERT_TRUE(at.worker->adapt());
    EXPECT_GT(at.worker->slowdown(), 1e6);
    EXPECT_FALSE(at.worker->shares());
    ASSERT_TRUE(at.worker->try_again());
    EXPECT_TRUE(at.worker->shares());
    EXPECT_EQ(at.worker->slowdown(), 1);

    // Quicker than a link of an hour, whatever it takes; suspended it is asked for nothing.
    ASSERT_TRUE(at.worker->share_fastest({0, 1e-3}, 3600));
    serve_steps(32);
    ASSERT_TRUE(at.worker->adapt());
    EXPECT_TRUE(at.worker->shares());
    ASSERT_TRUE(at.worker->suspend_shares());
    EXPECT_FALSE(at.worker->shares());
    ASSERT_TRUE(at.worker->resume_shares());
    EXPECT_TRUE(at.worker->shares());
    ASSERT_TRUE(at.worker->set_shares({}));
    ASSERT_TRUE(at.worker->try_again());
    EXPECT_FALSE(at.worker->shares());
}

TEST(CpuWorker, SharesMakeTheSlowerSideFirst) {
    // As fast as the link: half. Misses of one are the device's.
    const auto half = CpuWorker::fastest_shares({0, 50e-6}, 50e-6);
    EXPECT_EQ(half[0], 0);
    EXPECT_EQ(half[1], 0);
    EXPECT_EQ(half[2], 1);
    EXPECT_EQ(half[8], 4);
    // Three times as fast.
    EXPECT_EQ(CpuWorker::fastest_shares({0, 20e-6}, 60e-6)[8], 6);
    // So fast that everything would be its own: one stays.
    EXPECT_EQ(CpuWorker::fastest_shares({0, 1e-9}, 60e-6)[8], 7);
    // Slower than the link could be with all of it.
    EXPECT_EQ(CpuWorker::fastest_shares({0, 1e-3}, 50e-6)[8], 0);
    // What every request costs counts.
    EXPECT_EQ(CpuWorker::fastest_shares({95e-6, 10e-6}, 50e-6)[2], 0);
    EXPECT_EQ(CpuWorker::even_shares(50)[3], 2);
    EXPECT_EQ(CpuWorker::even_shares(100)[1], 1);
    EXPECT_EQ(CpuWorker::even_shares(0)[64], 0);
}

}  // namespace
}  // namespace granary
