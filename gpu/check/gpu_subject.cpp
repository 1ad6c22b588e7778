// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <utility>

#include "gpu/check/card.h"
#include "gpu/cuda/device.h"
#include "gpu/cuda/module.h"

namespace granary::gpu::check {
namespace {

using cuda::Status;

class GraphReplay final : public Replay {
  public:
    GraphReplay(cuda::GpuMemory& device, cuda::GraphExec graph) : device_(device), graph_(graph) {}
    ~GraphReplay() override { (void)device_.context().driver().graph_exec_destroy(graph_); }
    Result<void> run() override {
        const cuda::Driver& driver = device_.context().driver();
        const Status status = driver.graph_launch(graph_, device_.stream(StreamId::compute));
        if (status != 0)
            return tl::unexpected(
                driver.error(status, driver.graph_launch.name(), "A graph cannot be launched"));
        return device_.synchronize(StreamId::compute);
    }

  private:
    cuda::GpuMemory& device_;
    cuda::GraphExec graph_;
};

class GpuCard final : public Card {
  public:
    static Result<std::unique_ptr<Card>> open(const std::shared_ptr<cuda::Driver>& driver,
                                              const cuda::Options& options,
                                              std::span<const std::byte> code) {
        auto memory = cuda::GpuMemory::open(driver, options);
        if (!memory) return tl::unexpected(memory.error());
        auto module = cuda::Module::load(driver, code);
        if (!module) return tl::unexpected(module.error());
        auto write = (*module)->function("write_pattern");
        auto count = (*module)->function("count_wrong");
        if (!write || !count) return tl::unexpected(!write ? write.error() : count.error());
        auto counter = (*memory)->page_locked(sizeof(unsigned long long));
        if (!counter) return tl::unexpected(counter.error());
        std::unique_ptr<GpuCard> card(new GpuCard);
        card->memory_ = std::move(*memory);
        card->module_ = std::move(*module);
        card->write_ = *write;
        card->count_ = *count;
        card->counter_ = std::move(*counter);
        // The driver loads a kernel at its first launch, and may take memory for it then.
        if (auto r = card->write(nullptr, 0, 0); !r) return tl::unexpected(r.error());
        if (auto r = card->wrong_words(nullptr, 0, 0); !r) return tl::unexpected(r.error());
        return card;
    }

    DeviceMemory& memory() override { return *memory_; }

    Result<void> write(std::byte* at, size_t bytes, uint64_t seed) override {
        return launch(write_, bytes, reinterpret_cast<uint64_t*>(at), uint64_t{bytes / 8}, seed);
    }

    Result<uint64_t> wrong_words(const std::byte* at, size_t bytes, uint64_t seed) override {
        auto* const wrong = reinterpret_cast<unsigned long long*>(counter_.data.get());
        *wrong = 0;
        auto counted = launch(count_, bytes, reinterpret_cast<const uint64_t*>(at),
                              uint64_t{bytes / 8}, seed, wrong);
        if (counted) counted = memory_->synchronize(StreamId::compute);
        if (!counted) return tl::unexpected(counted.error());
        return *wrong;
    }

    Result<std::unique_ptr<Replay>> capture_write(std::byte* at, size_t bytes,
                                                  uint64_t seed) override {
        const cuda::Driver& driver = memory_->context().driver();
        const cuda::Stream stream = memory_->stream(StreamId::compute);
        cuda::Graph graph = nullptr;
        cuda::GraphExec exec = nullptr;
        Status status = driver.capture_begin(stream, cuda::kCaptureThreadLocal);
        Result<void> queued;
        if (status == 0) {
            queued = write(at, bytes, seed);
            status = driver.capture_end(stream, &graph);
        }
        if (status == 0) status = driver.graph_instantiate(&exec, graph, 0);
        if (graph) (void)driver.graph_destroy(graph);
        std::unique_ptr<Replay> replay;
        if (status == 0) {
            replay = std::make_unique<GraphReplay>(*memory_, exec);
            status = driver.graph_upload(exec, stream);
        }
        if (!queued) return tl::unexpected(queued.error());
        if (status != 0)
            return tl::unexpected(driver.error(status, "stream capture", "A graph cannot be made"));
        return replay;
    }

    Result<uint64_t> free_bytes() override {
        const auto now = memory_->memory_now();
        if (!now) return tl::unexpected(now.error());
        return now->first;
    }

  private:
    template <class... Args>
    Result<void> launch(cuda::Function function, size_t bytes, Args... args) {
        constexpr unsigned kThreads = 256;
        const cuda::Driver& driver = memory_->context().driver();
        const auto blocks =
            static_cast<unsigned>(std::clamp<size_t>(bytes / 8 / kThreads, 1, 4096));
        if (const Status status = cuda::launch(driver, function, {blocks}, {kThreads}, 0,
                                               memory_->stream(StreamId::compute), args...);
            status != 0)
            return tl::unexpected(
                driver.error(status, driver.launch.name(), "A kernel cannot be launched"));
        return {};
    }

    // In this order, so that each goes before what it uses.
    std::unique_ptr<cuda::GpuMemory> memory_;
    std::unique_ptr<cuda::Module> module_;
    cuda::Function write_ = nullptr, count_ = nullptr;
    HostBuffer counter_;
};

class GpuSubject final : public Subject {
  public:
    GpuSubject(std::shared_ptr<cuda::Driver> driver, cuda::Options options,
               std::span<const std::byte> code)
        : driver_(std::move(driver)), options_(options), code_(code) {}
    Result<std::unique_ptr<Card>> open() override {
        return GpuCard::open(driver_, options_, code_);
    }
    cuda::Driver* driver() override { return driver_.get(); }

  private:
    std::shared_ptr<cuda::Driver> driver_;
    cuda::Options options_;
    std::span<const std::byte> code_;
};

}  // namespace

std::unique_ptr<Subject> gpu_subject(std::shared_ptr<cuda::Driver> driver, cuda::Ordinal device,
                                     size_t granule_bytes, std::span<const std::byte> code) {
    return std::make_unique<GpuSubject>(std::move(driver), cuda::Options{device, granule_bytes},
                                        code);
}

}  // namespace granary::gpu::check
