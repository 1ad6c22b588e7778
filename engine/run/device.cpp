// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/run/device.h"

#include <charconv>

#include "gpu/kernels.h"

namespace granary {
namespace {

// Of the machine, not of the card that it plays: a plan for a larger card must be possible.
uint64_t free_memory() {
    const auto machine = gpu::host_device_info({});
    return machine ? machine->free_bytes : 0;
}

gpu::HostDeviceOptions device_options(const Settings& settings, int nice) {
    gpu::HostDeviceOptions options;
    options.face = settings.vram_budget ? gpu::Face::card : gpu::Face::unified;
    if (settings.vram_budget) options.granule_bytes = settings.granule;
    options.budget_bytes = settings.vram_budget;
    options.threads = settings.threads;
    options.nice = nice;
    return options;
}

}  // namespace

DeviceChoice choose_device(const std::string& wanted, const std::vector<gpu::FoundDevice>& found) {
    DeviceChoice choice;
    for (const gpu::FoundDevice& device : found) {
        if (device.usable() && (wanted == "auto" || wanted == device.id))
            choice.candidates.push_back(device);
        else if (!device.usable())
            choice.passed_over.push_back(device.name + " is not used: " + device.note);
    }
    // One that nobody found says itself why it cannot be opened.
    if (choice.candidates.empty()) choice.candidates.push_back({wanted, wanted, 0, {}});
    return choice;
}

Result<std::unique_ptr<gpu::Device>> open_device(const std::string& name, const Settings& settings,
                                                 size_t granule_bytes, int nice) {
    constexpr std::string_view kCuda = "cuda:";
    if (name.starts_with(kCuda)) {
        gpu::CudaDeviceOptions options;
        std::from_chars(name.data() + kCuda.size(), name.data() + name.size(), options.ordinal);
        options.granule_bytes = granule_bytes;
        return gpu::make_cuda_device(options);
    }
    gpu::HostDeviceOptions options = device_options(settings, nice);
    if (granule_bytes) options.granule_bytes = granule_bytes;
    return gpu::make_host_device(options);
}

Result<void> check_kernels(gpu::Device& device, const ModelFacts& model) {
    const std::string beyond =
        device.kernels().beyond(model.attention, {model.experts, model.experts_used});
    if (beyond.empty()) return {};
    return fail(ErrorKind::unsupported, "this device cannot run the model",
                device.info().name + ": " + beyond, "Set device to host");
}

DeviceFacts facts_of(gpu::Device& device, const ModelFacts& model, gpu::Arithmetic arithmetic) {
    DeviceFacts facts;
    facts.host = device.info().id == "host";
    facts.face = device.info().face;
    facts.granule_bytes = device.info().granule_bytes;
    facts.free_bytes = facts.host ? free_memory() : device.info().free_bytes;
    const gpu::Kernels& kernels = device.kernels();
    if (arithmetic == gpu::Arithmetic::fast) {
        facts.code_bytes_hidden = kernels.code_bytes(model.hidden);
        facts.code_bytes_attention =
            kernels.code_bytes(model.attention.heads * model.attention.head_dim);
        facts.code_bytes_ffn = kernels.code_bytes(model.expert_ffn);
        if (model.delta_layers) facts.code_bytes_delta = kernels.code_bytes(model.delta.width());
        if (model.shared_ffn) facts.code_bytes_shared = kernels.code_bytes(model.shared_ffn);
    }
    if (arithmetic == gpu::Arithmetic::f32) facts.auto_kv = gpu::KvFormat::f32;
    const uint64_t one = kernels.scratch_bytes(model.attention, gpu::kDecodeCut);
    const uint64_t two = kernels.scratch_bytes(model.attention, 2 * gpu::kDecodeCut);
    facts.scratch_per_cut = two - one;
    facts.scratch_base = one - facts.scratch_per_cut;
    const auto prompt_scratch = [&](uint32_t rows) {
        return kernels.prompt_scratch_bytes(model.attention, model.experts, model.experts_used,
                                            model.hidden, rows);
    };
    facts.prompt_scratch_per_row = prompt_scratch(2) - prompt_scratch(1);
    facts.prompt_scratch_base = prompt_scratch(1) - facts.prompt_scratch_per_row;
    const bool f32 = arithmetic == gpu::Arithmetic::f32;
    facts.expert_out_bytes = f32 ? sizeof(float) : kernels.expert_out_bytes();
    const bool values = f32 || kernels.keeps_hidden_values();
    facts.hidden_value_bytes = values ? sizeof(float) : 0;
    facts.ring_wave = kernels.experts_at_once();
    facts.shares_with_cpu = !facts.host && kernels.shares_with_cpu();
    if (!facts.host) {
        const gpu::DeviceLimits& promised = device.info().promised;
        if (promised.products > 0 && promised.memory > 0)
            facts.rates = unmeasured_card(promised.products, promised.memory);
        return facts;
    }
    facts.threads = device.info().threads;
    const auto machine = gpu::host_device_info({});
    facts.threads_unless_told = machine ? machine->threads : facts.threads;
    return facts;
}

}  // namespace granary
