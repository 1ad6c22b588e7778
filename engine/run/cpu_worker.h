// SPDX-License-Identifier: GPL-3.0-or-later
// What the processor does for a GPU. Its share of a generated token: experts that the device left
// to it are computed where they lie in host memory, by the kernels of the host, while the device
// does the rest of the layer. And experts in memory that the device cannot read are brought to
// where it can. How the two speak to each other in a recorded step: gpu/kernels.h, CpuShare.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/memory/rates.h"
#include "engine/model/model.h"
#include "gpu/device.h"
#include "gpu/kernels.h"

namespace granary {

class CpuWorker {
  public:
    // By number of misses in a layer, how many of them are the processor's.
    using Shares = std::array<uint8_t, gpu::CpuRequest::kMost + 1>;
    using Seconds = ProcessorSeconds;
    // The same percentage of any number, to the nearest.
    static Shares even_shares(uint32_t percent);
    // fastest_share of each number.
    static Shares fastest_shares(const Seconds& processor, double gather);

    // Places for experts that are brought: so many waves of a prompt's ring.
    static constexpr uint32_t kRingWaves = 3;

    // `memory`: kCpuWorkerBytes of the device. `wave`: experts that a prompt brings at once. It is
    // given no share at first. A load point.
    static Result<std::unique_ptr<CpuWorker>> create(gpu::Device& device, const Model& model,
                                                     std::byte* memory, uint32_t wave);

    // For layer `layer` of a recorded step.
    gpu::CpuShare of_layer(uint32_t layer) const;

    // Threads of its own, at `nice`; 0: one for each core. Errors: the system refuses them.
    Result<void> begin(unsigned threads, int nice);
    bool begun() const { return host_ != nullptr; }
    // Of experts that are not in a cache of the processor. It must have begun.
    Seconds measure(gpu::Arithmetic arithmetic);
    // Whether a layer's experts must be brought; whether those of any must.
    bool brings(uint32_t layer) const { return !model_.layers[layer].moe.home_readable; }
    bool brings_some() const { return ring_.bytes > 0; }
    // Page-locked, for wave `number` of a prompt, [wave] experts of the largest layer. Only where
    // some layer's experts must be brought.
    std::byte* ring_place(size_t number) const {
        return ring_.data.get() + number % kRingWaves * (ring_.bytes / kRingWaves);
    }
    // Copies experts of a layer, the i-th to to[i]. It must have begun.
    void bring(uint32_t layer, std::span<const int32_t> experts,
               std::span<const gpu::ExpertEntry> to);

    // From the next step on. Errors: the device's.
    Result<void> set_shares(const Shares& shares);
    // fastest_shares, and so again whenever requests turn out to take longer or less than foretold:
    // while a token is computed the link and other programs use the same memory.
    Result<void> share_fastest(const Seconds& processor, double gather);
    // Between steps: looks at the requests that were served.
    Result<void> adapt();
    // Where that left the processor nothing, it is asked anew.
    Result<void> try_again();
    // How many times longer requests take than was measured.
    double slowdown() const { return fastest_ ? fastest_->slowdown : 1; }
    // No share until resume_shares.
    Result<void> suspend_shares() { return put({}); }
    Result<void> resume_shares() { return put(table_); }
    bool shares() const { return begun() && any_; }

    // Answers what the layers of the step of `tick` (gpu::DecodePlace) ask, until the last has
    // asked or the device is past `end`, which is recorded behind the step. Steps that were not
    // served may have asked, too: the last layer of each does.
    void serve(gpu::Event end, uint32_t tick, gpu::Arithmetic arithmetic);

    uint64_t experts_computed() const { return computed_; }  // by serve

  private:
    CpuWorker(gpu::Device& device, const Model& model, std::byte* memory, gpu::HostBuffer shared,
              gpu::HostBuffer ring);
    // sum = of the listed experts, in order of their numbers, weight * output.
    void compute(uint32_t layer, std::span<const int32_t> experts, std::span<const float> weights,
                 gpu::Arithmetic arithmetic);

    Result<void> put(const Shares& shares);

    // What adapt goes by, since it last looked: seconds foretold by `processor` and taken.
    struct Fastest {
        Seconds processor;
        double gather = 0, slowdown = 1;
        uint32_t requests = 0;
        double foretold = 0, taken = 0;
        Shares shares() const;
    };

    gpu::Device& device_;
    const Model& model_;
    std::byte* const memory_;   // on the device: Shares, then the words `pending` and `staging`
    gpu::HostBuffer shared_;    // CpuRequest, x, sum
    gpu::HostBuffer ring_;      // none where nothing is to be brought
    gpu::CpuRequest& request_;  // in shared_
    float *x_, *sum_;           // [hidden] each
    Shares table_{};            // what holds unless suspended
    bool any_ = false;          // share that the device knows is not 0
    std::optional<Fastest> fastest_;
    uint64_t computed_ = 0;
    std::unique_ptr<gpu::Device> host_;  // null: not begun
    // For compute: of as many experts as can be asked for.
    std::vector<int32_t> list_, count_, first_, order_;
    std::vector<gpu::ExpertEntry> places_;  // [experts]
    std::vector<float> weight_, hidden_, out_;
    std::vector<std::byte> codes_, hidden_codes_;
};

}  // namespace granary
