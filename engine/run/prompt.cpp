// SPDX-License-Identifier: GPL-3.0-or-later
// The prompt loop: a chunk of tokens passes through all layers together, in the loan's buffers.
#include <algorithm>
#include <array>
#include <memory>

#include "engine/run/clock.h"
#include "engine/run/pass.h"

namespace granary {
namespace {

// The experts of a chunk. Resident ones are read from their slots; the others come through the
// ring in waves, each expert once, in fixed order: all of them when the chunk streams, those that
// have routes when it is staged. Streamed waves are copied as far ahead as the ring goes, also
// into the next layer while attention computes: residency does not change in a chunk. Experts in
// memory that the device cannot read pass through locked memory, filled by the processor. Of a
// staged chunk's experts the CPU computes a share where they lie: the coldest, which have the
// fewest rows to pay for a copy.
class ExpertPass {
  public:
    ExpertPass(const RunContext& run, const MemoryManager::Loan& loan, uint32_t chunk)
        : run_(run),
          loan_(loan),
          stream_(chunk >= run.plan.stream_min),
          wave_size_(loan.layout.ring_wave),
          layers_(run.model.facts.layers),
          entries_(reinterpret_cast<gpu::ExpertEntry*>(loan.base + loan.layout.entries)),
          filled_(loan.layout.ring_waves),
          drained_(loan.layout.ring_waves) {
        for (uint32_t n = 0; n < layers_.size(); ++n) split(n);
        if (stream_)
            for (size_t i = 0; i < filled_.size(); ++i) copy_next_wave();
    }

    // Errors: the device's, where it must be asked for routes.
    Result<void> run(uint32_t layer, const PassBuffers& at) {
        const MoeWeights& moe = run_.model.layers[layer].moe;
        const gpu::ExpertCacheView& cache = run_.memory.experts().view(layer);
        const Layer& lists = layers_[layer];
        const gpu::ExpertEntry* entries = cache.entries;
        if (run_.stand_ins) {
            place_stand_ins(layer);
            entries = entries_;
        } else if (!lists.missing.empty()) {
            place_missing(layer);
            entries = entries_;
        }
        const auto compute = [&](std::span<const int32_t> list) {
            run_.phase(Phase::experts);
            run_.kernels().expert_ffn(moe.shape, entries, list, at.routes, at.norm, at.hidden,
                                      at.expert_out);
        };
        compute(lists.ready);
        const bool brought = !lists.missing.empty() && brings(layer);
        if (!stream_ && brought)
            if (auto r = read_counts(at.routes); !r) return r;
        for (; computed_ < waves_.size() && waves_[computed_].layer == layer; ++computed_) {
            const std::span<const int32_t> wave = experts_of(waves_[computed_]);
            if (!stream_) {
                if (brought)
                    bring(gpu::StreamId::compute, computed_,
                          [&](int32_t expert) { return counts_[expert] > 0; });
                else
                    run_.kernels().gather_routed(cache, wave, at.routes, entries_);
                compute(wave);
                continue;
            }
            const size_t place = computed_ % filled_.size();
            run_.phase(Phase::waiting);
            run_.device.wait(gpu::StreamId::compute, filled_[place]);
            compute(wave);
            drained_[place] = run_.device.record(gpu::StreamId::compute);
            copy_next_wave();
        }
        return {};
    }

    uint64_t bytes_streamed() const { return bytes_streamed_; }

  private:
    struct Layer {
        std::vector<int32_t> ready, missing;  // readable where they are; through the ring
        size_t first_wave = 0;
    };
    struct Wave {
        uint32_t layer = 0;
        size_t first = 0;  // of the layer's missing experts
    };

    void split(uint32_t layer) {
        const gpu::ExpertCacheView& known = run_.memory.experts().known(layer);
        const bool in_place = run_.memory.experts().rows() == 0;
        Layer& lists = layers_[layer];
        for (uint32_t e = 0; e < known.experts; ++e)
            (in_place || run_.stand_ins || known.slot_of[e] >= 0 ? lists.ready : lists.missing)
                .push_back(static_cast<int32_t>(e));
        if (!stream_) share_with_cpu(known, lists);
        lists.first_wave = waves_.size();
        for (size_t first = 0; first < lists.missing.size(); first += wave_size_)
            waves_.push_back({layer, first});
    }

    void share_with_cpu(const gpu::ExpertCacheView& known, Layer& lists) const {
        std::vector<int32_t>& missing = lists.missing;
        const size_t count = missing.size() * run_.plan.cpu_share / 100;
        if (count == 0) return;
        std::stable_sort(missing.begin(), missing.end(),
                         [&](int32_t a, int32_t b) { return known.heat[a] > known.heat[b]; });
        lists.ready.insert(lists.ready.end(), missing.end() - static_cast<ptrdiff_t>(count),
                           missing.end());
        missing.resize(missing.size() - count);
        std::sort(lists.ready.begin(), lists.ready.end());
        std::sort(missing.begin(), missing.end());
    }

    std::span<const int32_t> experts_of(const Wave& wave) const {
        const std::vector<int32_t>& missing = layers_[wave.layer].missing;
        return {&missing[wave.first], std::min(wave_size_, missing.size() - wave.first)};
    }
    // One matrix of each expert of a wave: they lie side by side in the ring, as they do in the
    // file, so that experts that follow one another are one copy.
    struct Part {
        const std::byte* gpu::ExpertEntry::*matrix;
        std::byte* begin;
        size_t bytes, stride;
    };
    std::array<Part, 3> parts_of(size_t wave) const {
        const gpu::ExpertCacheView& known = run_.memory.experts().known(waves_[wave].layer);
        std::byte* const begin = loan_.base + loan_.layout.ring +
                                 wave % filled_.size() * wave_size_ * loan_.layout.ring_stride;
        const size_t gate = known.up_offset, up = known.down_offset - known.up_offset;
        return {{{&gpu::ExpertEntry::gate, begin, known.gate_bytes, gate},
                 {&gpu::ExpertEntry::up, begin + wave_size_ * gate, known.up_bytes, up},
                 {&gpu::ExpertEntry::down, begin + wave_size_ * (gate + up), known.down_bytes,
                  round_up(known.down_bytes, kPartAlignment)}}};
    }
    // Where expert number `i` of wave number `wave` lies in the ring.
    gpu::ExpertEntry place_of(size_t wave, size_t i) const {
        gpu::ExpertEntry entry;
        for (const Part& part : parts_of(wave)) entry.*part.matrix = part.begin + i * part.stride;
        return entry;
    }

    // Writes the layer's pointer table: slots for residents, places in the ring for the others.
    void place_missing(uint32_t layer) {
        const gpu::ExpertCacheView& known = run_.memory.experts().known(layer);
        const Layer& lists = layers_[layer];
        table_.assign(known.entries, known.entries + known.experts);
        for (size_t i = 0; i < lists.missing.size(); ++i)
            table_[lists.missing[i]] = place_of(lists.first_wave + i / wave_size_, i % wave_size_);
        run_.device.copy(gpu::StreamId::compute, entries_, table_.data(),
                         table_.size() * sizeof(gpu::ExpertEntry));
    }

    void place_stand_ins(uint32_t layer) {
        const gpu::ExpertCacheView& known = run_.memory.experts().known(layer);
        table_.assign(known.entries, known.entries + known.experts);
        std::vector<gpu::ExpertEntry> resident;
        for (uint32_t e = 0; e < known.experts; ++e)
            if (known.slot_of[e] >= 0) resident.push_back(known.entries[e]);
        for (uint32_t e = 0; e < known.experts && !resident.empty(); ++e)
            if (known.slot_of[e] < 0) table_[e] = resident[e % resident.size()];
        run_.device.copy(gpu::StreamId::compute, entries_, table_.data(),
                         table_.size() * sizeof(gpu::ExpertEntry));
    }

    void copy_next_wave() {
        if (copied_ == waves_.size()) return;
        const uint32_t layer = waves_[copied_].layer;
        const size_t place = copied_ % filled_.size();
        run_.device.wait(gpu::StreamId::copy, drained_[place]);
        if (brings(layer)) {
            bring(gpu::StreamId::copy, copied_, [](int32_t) { return true; });
        } else {
            const std::vector<gpu::ExpertEntry>& home = run_.model.layers[layer].moe.home;
            const std::span<const int32_t> experts = experts_of(waves_[copied_]);
            copy_wave(gpu::StreamId::copy, copied_,
                      [&](const Part& part, size_t i) { return home[experts[i]].*part.matrix; });
        }
        filled_[place] = run_.device.record(gpu::StreamId::copy);
        ++copied_;
    }

    // from(part, i): where that matrix of a wave's i-th expert lies in locked host memory; null: it
    // is left out.
    template <class From>
    void copy_wave(gpu::StreamId stream, size_t wave, const From& from) {
        const size_t count = experts_of(waves_[wave]).size();
        copies_.clear();
        for (const Part& part : parts_of(wave)) {
            for (size_t i = 0, n = 1; i < count; i += n) {
                const std::byte* const first = from(part, i);
                n = 1;
                if (!first) continue;
                while (i + n < count && part.stride == part.bytes &&
                       from(part, i + n) == first + n * part.bytes)
                    ++n;
                copies_.push_back({part.begin + i * part.stride, first, n * part.bytes});
                bytes_streamed_ += n * part.bytes;
            }
        }
        run_.device.copy_all(stream, copies_);
    }

    bool brings(uint32_t layer) const { return run_.cpu && run_.cpu->brings(layer); }

    // A wave of experts that the device cannot read: the processor copies those that are wanted to
    // locked memory, laid out as they will be in the ring.
    template <class Wanted>
    void bring(gpu::StreamId stream, size_t wave, const Wanted& wanted) {
        const std::span<const int32_t> experts = experts_of(waves_[wave]);
        std::byte* const ring = loan_.base + loan_.layout.ring +
                                wave % filled_.size() * wave_size_ * loan_.layout.ring_stride;
        std::byte* const locked = run_.cpu->ring_place(brought_);
        gpu::Event& taken = taken_[brought_++ % taken_.size()];
        run_.device.wait_here(taken);
        const auto in_locked = [&](const Part& part, size_t i) {
            return locked + (part.begin - ring) + i * part.stride;
        };
        bring_list_.clear();
        bring_to_.clear();
        for (size_t i = 0; i < experts.size(); ++i) {
            if (!wanted(experts[i])) continue;
            gpu::ExpertEntry to;
            for (const Part& part : parts_of(wave)) to.*part.matrix = in_locked(part, i);
            bring_list_.push_back(experts[i]);
            bring_to_.push_back(to);
        }
        run_.cpu->bring(waves_[wave].layer, bring_list_, bring_to_);
        copy_wave(stream, wave, [&](const Part& part, size_t i) {
            return wanted(experts[i]) ? in_locked(part, i) : nullptr;
        });
        taken = run_.device.record(stream);
    }

    Result<void> read_counts(const gpu::Routes& routes) {
        counts_.resize(run_.model.facts.experts);
        run_.device.copy(gpu::StreamId::compute, counts_.data(), routes.count,
                         counts_.size() * sizeof counts_[0]);
        return run_.device.synchronize(gpu::StreamId::compute);
    }

    const RunContext& run_;
    const MemoryManager::Loan& loan_;
    const bool stream_;
    const size_t wave_size_;
    std::vector<Layer> layers_;
    std::vector<Wave> waves_;           // of all layers, in order
    size_t copied_ = 0, computed_ = 0;  // of them
    uint64_t bytes_streamed_ = 0;
    gpu::ExpertEntry* const entries_;  // device table of the layer at hand
    std::vector<gpu::ExpertEntry> table_;
    std::vector<gpu::Event> filled_, drained_;  // by place in the ring
    std::vector<gpu::Copy> copies_;             // of a wave
    // Of layers whose experts the processor brings.
    std::array<gpu::Event, CpuWorker::kRingWaves> taken_{};
    size_t brought_ = 0;  // waves
    std::vector<int32_t> counts_, bring_list_;
    std::vector<gpu::ExpertEntry> bring_to_;
};

// Gives the device a layer while it computes the one before. It is never given more, and a layer
// that takes long is waited for: Stop must be noticed within 250 ms.
class QueueAhead {
  public:
    explicit QueueAhead(gpu::Device& device) : device_(device) {}
    Result<void> layer_queued() {
        const gpu::Event end = device_.record(gpu::StreamId::compute);
        if (seconds_since(last_) > kLong) {
            if (auto r = device_.synchronize(gpu::StreamId::compute); !r) return r;
        } else {
            device_.wait_here(before_);
        }
        before_ = end;
        last_ = Clock::now();
        return {};
    }

  private:
    static constexpr double kLong = 0.06;  // seconds

    gpu::Device& device_;
    gpu::Event before_;
    Clock::time_point last_ = Clock::now();
};

}  // namespace

Result<ChunkDone> read_chunk(const RunContext& run, const MemoryManager::Loan& loan,
                             std::byte* kv_base, const ChunkPlace& place,
                             std::span<const TokenId> tokens, const LayerCallback& callback,
                             const std::function<bool()>& wanted) {
    const Model& model = run.model;
    gpu::Kernels& kernels = run.kernels();
    const auto rows = static_cast<uint32_t>(tokens.size());
    const PassBuffers at = run.buffers(loan.base, loan.layout.pass, rows);
    ExpertPass experts(run, loan, rows);
    kernels.set_prompt_scratch(loan.base + loan.layout.scratch, loan.layout.scratch_bytes);

    run.device.copy(gpu::StreamId::compute, at.tokens, tokens.data(), tokens.size_bytes());
    kernels.embed(model.embedding, at.tokens, rows, at.x);
    QueueAhead ahead(run.device);
    kernels.set_wanted(wanted);
    const auto forget = std::unique_ptr<gpu::Kernels, void (*)(gpu::Kernels*)>(
        &kernels, [](gpu::Kernels* k) { k->set_wanted({}); });
    const auto stop = [&]() -> Result<ChunkDone> {
        (void)run.device.synchronize(gpu::StreamId::copy);
        (void)run.device.synchronize(gpu::StreamId::compute);
        return fail(ErrorKind::cancelled, "reading was stopped");
    };
    kernels.rms_norm(at.x, mixer_norm(model, 0), model.norm_eps, at.norm);
    for (uint32_t n = 0; n < model.facts.layers; ++n) {
        const MoeWeights& moe = model.layers[n].moe;
        const gpu::ExpertCacheView& cache = run.memory.experts().view(n);

        mix(run, n, at, {nullptr, kv_base, place.first_cell, place.checkpoints});
        if (wanted && !wanted()) return stop();  // x may hold what must not be routed by

        kernels.rms_norm(at.x, moe.norm, model.norm_eps, at.norm);
        kernels.route(moe.routing, moe.router, at.norm.values, at.routes);
        if (cache.slots)
            kernels.note_routes(cache, at.routes, moe.shape.used, place.first_warming, place.tick);
        if (auto r = experts.run(n, at); !r) return tl::unexpected(r.error());
        run.phase(Phase::dense);
        uint32_t used = moe.shape.used;
        if (moe.shared) {
            kernels.combine(at.routes, used, moe.shape.hidden, at.expert_out, at.x);
            run_shared_expert(run, n, at);
            run.phase(Phase::dense);
            used = 1;
        }
        kernels.combine(at.routes, used, moe.shape.hidden, at.expert_out, at.x);
        kernels.rms_norm(at.x, mixer_norm(model, n + 1), model.norm_eps, at.norm);

        if (auto r = ahead.layer_queued(); !r) return tl::unexpected(r.error());
        if (!callback(n + 1)) return stop();
    }
    if (run.phases) run.phases->collect();
    if (auto r = run.device.synchronize(gpu::StreamId::compute); !r)
        return tl::unexpected(r.error());
    if (auto r = model.file->intact(); !r) return tl::unexpected(r.error());
    return ChunkDone{at, experts.bytes_streamed()};
}

}  // namespace granary
