// SPDX-License-Identifier: GPL-3.0-or-later
// The prompt loop: a chunk of tokens passes through all layers together, in the loan's buffers.
#include <algorithm>
#include <array>

#include "engine/run/pass.h"

namespace granary {
namespace {

// The experts of one layer for one chunk. Resident ones are read from their slots; the others
// come through the ring, each once, in fixed order: all of them when the chunk streams, those
// that have routes when it is staged. Of a staged chunk's the CPU computes a share where they lie:
// the coldest, which have the fewest rows to pay for a copy.
class ExpertPass {
  public:
    ExpertPass(const RunContext& run, const MemoryManager::Loan& loan, uint32_t chunk)
        : run_(run),
          loan_(loan),
          stream_(chunk >= run.plan.stream_min),
          entries_(reinterpret_cast<gpu::ExpertEntry*>(loan.base + loan.layout.entries)) {}

    void run(uint32_t layer, const PassBuffers& at) {
        const MoeWeights& moe = run_.model.layers[layer].moe;
        home_ = moe.home.data();
        const gpu::ExpertCacheView& cache = run_.memory.experts().view(layer);
        const gpu::ExpertCacheView& known = run_.memory.experts().known(layer);  // as it stays
        ready_.clear();
        missing_.clear();
        const bool in_place = run_.memory.experts().rows() == 0;
        for (uint32_t e = 0; e < cache.experts; ++e)
            (in_place || known.slot_of[e] >= 0 ? ready_ : missing_)
                .push_back(static_cast<int32_t>(e));
        if (!stream_) share_with_cpu(known);
        const gpu::ExpertEntry* entries = cache.entries;
        if (!missing_.empty()) {
            place_missing(known);
            entries = entries_;
        }
        const auto compute = [&](std::span<const int32_t> list) {
            run_.kernels().expert_ffn(moe.shape, entries, list, at.routes, at.norm, at.hidden,
                                      at.expert_out);
        };
        if (stream_) {
            size_t copied = 0;
            const size_t ahead = std::min<size_t>(kRingBuffers, missing_.size());
            for (; copied < ahead; ++copied) copy_ahead(cache, copied);
            compute(ready_);
            for (size_t i = 0; i < missing_.size(); ++i) {
                run_.device.wait(gpu::StreamId::compute, filled_[i % kRingBuffers]);
                compute({&missing_[i], 1});
                drained_[i % kRingBuffers] = run_.device.record(gpu::StreamId::compute);
                if (copied < missing_.size()) copy_ahead(cache, copied++);
            }
        } else {
            compute(ready_);
            for (size_t first = 0; first < missing_.size(); first += kRingBuffers) {
                const std::span<const int32_t> wave(
                    &missing_[first], std::min<size_t>(kRingBuffers, missing_.size() - first));
                run_.kernels().gather_routed(cache, wave, at.routes, entries_);
                compute(wave);
            }
        }
    }

  private:
    void share_with_cpu(const gpu::ExpertCacheView& known) {
        const size_t count = missing_.size() * run_.plan.cpu_share / 100;
        if (count == 0) return;
        std::stable_sort(missing_.begin(), missing_.end(),
                         [&](int32_t a, int32_t b) { return known.heat[a] > known.heat[b]; });
        ready_.insert(ready_.end(), missing_.end() - static_cast<ptrdiff_t>(count), missing_.end());
        missing_.resize(missing_.size() - count);
        std::sort(ready_.begin(), ready_.end());
        std::sort(missing_.begin(), missing_.end());
    }

    // Writes the layer's pointer table: slots for residents, ring buffers for the others.
    void place_missing(const gpu::ExpertCacheView& cache) {
        table_.assign(cache.entries, cache.entries + cache.experts);
        for (size_t i = 0; i < missing_.size(); ++i) {
            std::byte* const buffer =
                loan_.base + loan_.layout.ring + i % kRingBuffers * loan_.layout.ring_stride;
            table_[missing_[i]] = {buffer, buffer + cache.up_offset, buffer + cache.down_offset};
        }
        run_.device.copy(gpu::StreamId::compute, entries_, table_.data(),
                         table_.size() * sizeof(gpu::ExpertEntry));
    }

    void copy_ahead(const gpu::ExpertCacheView& cache, size_t i) {
        const int32_t expert = missing_[i];
        const gpu::ExpertEntry& home = home_[expert];
        const auto to = [&](const std::byte* p) { return const_cast<std::byte*>(p); };
        const auto copy_stream = gpu::StreamId::copy;
        run_.device.wait(copy_stream, drained_[i % kRingBuffers]);
        run_.device.copy(copy_stream, to(table_[expert].gate), home.gate, cache.gate_bytes);
        run_.device.copy(copy_stream, to(table_[expert].up), home.up, cache.up_bytes);
        run_.device.copy(copy_stream, to(table_[expert].down), home.down, cache.down_bytes);
        filled_[i % kRingBuffers] = run_.device.record(copy_stream);
    }

    const RunContext& run_;
    const MemoryManager::Loan& loan_;
    const bool stream_;
    gpu::ExpertEntry* const entries_;         // device table of the layer at hand
    const gpu::ExpertEntry* home_ = nullptr;  // [experts] of the layer at hand
    std::vector<int32_t> ready_, missing_;    // readable where they are; through the ring
    std::vector<gpu::ExpertEntry> table_;
    std::array<gpu::Event, kRingBuffers> filled_{}, drained_{};
};

}  // namespace

Result<PassBuffers> read_chunk(const RunContext& run, const MemoryManager::Loan& loan,
                               std::byte* kv_base, const ChunkPlace& place,
                               std::span<const TokenId> tokens, const LayerCallback& callback) {
    const Model& model = run.model;
    gpu::Kernels& kernels = run.kernels();
    const auto rows = static_cast<uint32_t>(tokens.size());
    const PassBuffers at = run.buffers(loan.base, loan.layout.pass, rows);
    ExpertPass experts(run, loan, rows);
    kernels.set_prompt_scratch(loan.base + loan.layout.scratch, loan.layout.scratch_bytes);

    run.device.copy(gpu::StreamId::compute, at.tokens, tokens.data(), tokens.size_bytes());
    kernels.embed(model.embedding, at.tokens, rows, at.x);
    for (uint32_t n = 0; n < model.facts.layers; ++n) {
        const MoeWeights& moe = model.layers[n].moe;
        const gpu::ExpertCacheView& cache = run.memory.experts().view(n);

        mix(run, n, at, {nullptr, kv_base, place.first_cell, place.checkpoints});

        kernels.rms_norm(at.x, moe.norm, model.norm_eps, at.norm);
        kernels.route(moe.routing, moe.router, at.norm.values, at.routes);
        if (cache.slots)
            kernels.note_routes(cache, at.routes, moe.shape.used, place.first_warming, place.tick);
        experts.run(n, at);
        kernels.combine(at.routes, moe.shape.used, moe.shape.hidden, at.expert_out, at.x);
        add_shared_expert(run, n, at);

        if (!callback(n + 1)) {
            (void)run.device.synchronize(gpu::StreamId::copy);
            (void)run.device.synchronize(gpu::StreamId::compute);
            return fail(ErrorKind::cancelled, "reading was stopped");
        }
    }
    if (auto r = run.device.synchronize(gpu::StreamId::compute); !r)
        return tl::unexpected(r.error());
    return at;
}

}  // namespace granary
