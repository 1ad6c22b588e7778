// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/engine.h"

#include <cstdio>

#include "engine/memory/rates.h"
#include "engine/model/rope.h"
#include "engine/run/clock.h"
#include "engine/run/device.h"
#include "engine/run/engine_impl.h"
#include "granary/device_profile.h"

namespace granary {

Result<std::unique_ptr<Core>> Engine::Impl::prepare(const Settings& settings,
                                                    uint64_t freed) const {
    // Where the program chose, it stays with its choice: new settings move no model.
    const std::string running = core ? core->device->info().id : std::string();
    const bool stays = core && settings.device == core->plan.settings.device;
    const std::string wanted = stays ? running : settings.device;
    DeviceChoice choice = choose_device(
        wanted, wanted == "host" ? std::vector<gpu::FoundDevice>() : options.find_devices());
    LogLevel level = LogLevel::info;
    for (size_t i = 0;; ++i) {
        const gpu::FoundDevice& device = choice.candidates[i];
        auto prepared = prepare_on(device.id, settings, freed);
        if (!prepared) {
            if (i + 1 == choice.candidates.size()) return prepared;
            choice.passed_over.push_back(device.name +
                                         " is not used: " + prepared.error().message());
            level = LogLevel::warning;  // it could have been
            continue;
        }
        if (running == device.id) return prepared;
        if (settings.device == "auto") {
            std::string line = "computing on " + (*prepared)->device->info().name;
            for (const std::string& other : choice.passed_over) line += "; " + other;
            log(level, line);
        }
        if (!device.note.empty()) log(LogLevel::warning, device.name + ": " + device.note);
        return prepared;
    }
}

Result<std::unique_ptr<Core>> Engine::Impl::prepare_on(const std::string& device_name,
                                                       const Settings& settings,
                                                       uint64_t freed) const {
    auto core = std::make_unique<Core>();
    auto model = load_model(file);
    if (!model) return tl::unexpected(model.error());
    core->model = std::move(*model);

    for (size_t granule_bytes = 0;;) {
        auto device = open_device(device_name, settings, granule_bytes, options.nice);
        if (!device) return tl::unexpected(device.error());
        core->device = std::move(*device);
        if (options.wrap_device) core->device = options.wrap_device(std::move(core->device));
        const ModelFacts& facts = core->model.facts;
        if (auto r = check_kernels(*core->device, facts); !r) return tl::unexpected(r.error());
        core->facts = facts_of(*core->device, facts, options.arithmetic);
        core->facts.free_bytes += freed;
        // The cores that a process may use can change: the plan is for the threads that there are.
        if (settings.threads == 0) core->facts.threads_unless_told = core->facts.threads;
        auto plan = Planner(facts, core->facts).plan(settings);
        if (!plan) return tl::unexpected(plan.error());
        core->plan = *plan;
        core->model.attention.rope = rope_table(facts.rope_dims, facts.rope_base, plan->rope);
        if (core->plan.granule_bytes == core->device->info().granule_bytes) return core;
        // The unified face has no budget until it is planned; a large one gets large granules.
        granule_bytes = core->plan.granule_bytes;
    }
}

Result<void> Engine::Impl::lock_weights(Core& core) const {
    if (!core.device->wants_locked_memory()) return {};
    const auto start = Clock::now();
    const uint64_t allowance = lock_allowance(core.plan.settings);
    auto weights = granary::lock_weights(*core.device, core.model, allowance);
    if (!weights) return tl::unexpected(weights.error());
    core.host_weights = std::move(*weights);
    const HostWeights& locked = core.host_weights;
    std::string line =
        format_bytes(locked.in_place) + " of the model file are locked in main memory";
    if (locked.copied) line += ", " + format_bytes(locked.copied) + " in locked copies";
    line += ", in " + std::to_string(seconds_since(start)) + " s";
    if (!locked.refusal.empty()) line += "; refused: " + locked.refusal;
    const bool slower = locked.unreadable_layers > 0;
    if (slower)
        line += "; experts of " + std::to_string(locked.unreadable_layers) + " of " +
                std::to_string(core.model.facts.layers) + " layers are not, of " +
                format_bytes(allowance) + " that page-lock allows: the processor copies them first";
    log(slower ? LogLevel::warning : LogLevel::info, line);
    return {};
}

Result<void> Engine::Impl::lay(Core& core, const LoadProgress& progress) {
    if (const auto note = context_note(core.plan.rope, core.plan.max_context); !note.empty())
        log(core.plan.rope.kind == RopeKind::none ? LogLevel::warning : LogLevel::info, note);
    if (auto r = lock_weights(core); !r) return r;
    auto memory = MemoryManager::create(*core.device, core.model, core.plan, core.facts, telemetry,
                                        options.log, progress);
    if (!memory) return tl::unexpected(memory.error());
    core.memory = std::move(*memory);
    const WorkspaceLayout layout =
        workspace_layout(core.model.facts, core.facts, core.plan.max_context);
    core.device->kernels().set_scratch(core.memory->workspace() + layout.scratch,
                                       layout.scratch_bytes);
    if (core.model.facts.shared_ffn) {
        std::vector<gpu::ExpertEntry> shared;
        for (const Layer& layer : core.model.layers)
            shared.push_back({layer.moe.shared->gate.data, layer.moe.shared->up.data,
                              layer.moe.shared->down.data});
        core.device->copy(gpu::StreamId::compute, core.memory->workspace() + layout.shared,
                          shared.data(), shared.size() * sizeof shared[0]);
        if (auto r = core.device->synchronize(gpu::StreamId::compute); !r) return r;
    }
    if ((core.device->kernels().shares_with_cpu() || core.host_weights.unreadable_layers > 0) &&
        core.plan.rows_at_start > 0) {
        auto worker =
            CpuWorker::create(*core.device, core.model,
                              core.memory->workspace() + layout.cpu_worker, core.facts.ring_wave);
        if (!worker) return tl::unexpected(worker.error());
        core.cpu = std::move(*worker);
        if (core.host_weights.unreadable_layers > 0)
            if (auto r = core.cpu->begin(core.plan.settings.threads, options.nice); !r) return r;
        if (auto r = share_with_cpu(core); !r) return r;
    }
    if (core.device->records()) {
        const auto record = [&](bool complete, std::optional<gpu::RecordingId>& to) {
            auto step = record_step(context_of(core), 1, complete);
            if (!step) return Result<void>(tl::unexpected(step.error()));
            to = *step;
            return Result<void>();
        };
        if (auto r = record(false, core.recorded.any); !r) return r;
        if (core.memory->experts().rows() >= core.model.facts.experts)
            if (auto r = record(true, core.recorded.complete); !r) return r;
    }
    if (auto r = file->intact(); !r) return r;
    core.memory->end_load();
    telemetry.counters.context_max.store(core.plan.max_context);
    telemetry.counters.context_used.store(0);
    return {};
}

Result<void> Engine::Impl::share_with_cpu(Core& core) const {
    const uint32_t percent = core.plan.answer_share;
    if (!core.cpu) return {};
    if (percent == 0) return core.cpu->shares() ? core.cpu->set_shares({}) : Result<void>();
    if (auto r = core.cpu->begin(core.plan.settings.threads, options.nice); !r) return r;
    if (percent != kFastestShare) return core.cpu->set_shares(CpuWorker::even_shares(percent));
    const ModelFacts& facts = core.model.facts;
    const CpuWorker::Seconds processor = core.cpu->measure(options.arithmetic);
    // A kernel gathers at nine tenths of what copies reach.
    const double rate =
        core.memory->load_rate() > 0 ? 0.9 * core.memory->load_rate() : rates_of(core.facts).gather;
    const double gather = static_cast<double>(facts.row_bytes) / facts.layers / rate;
    char text[160];
    std::snprintf(
        text, sizeof text,
        "of %u experts that a layer of an answer misses the processor computes %u: %.0f us "
        "each, the link %.0f us",
        facts.experts_used, fastest_share(facts.experts_used, processor, gather).experts,
        1e6 * processor.each, 1e6 * gather);
    log(LogLevel::info, text);
    return core.cpu->share_fastest(processor, gather);
}

RunContext Engine::Impl::context_of(const Core& core) const {
    return {*core.device,
            core.model,
            *core.memory,
            core.plan,
            workspace_layout(core.model.facts, core.facts, core.plan.max_context),
            options.arithmetic,
            core.recorded,
            core.cpu.get(),
            phases};
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<void> Engine::Impl::open(const std::string& path, const EngineOptions& given) {
    options = given;
    options.progress = {};  // belongs to this call
    auto opened = gguf::File::open(path);
    if (!opened) return tl::unexpected(opened.error());
    file = std::move(*opened);
    // The family first: a model that cannot run is told as such, not by its odd vocabulary.
    auto model = load_model(file);
    if (!model) return tl::unexpected(model.error());
    auto made = make_tokenizer(*file);
    if (!made) return tl::unexpected(made.error());
    tokenizer = std::move(*made);
    if (const std::string why = tokenizer->slower(); !why.empty()) log(LogLevel::info, why);
    if (model->facts.vocab < tokenizer->size())
        return fail(ErrorKind::invalid_file, path + " has more tokens than embeddings",
                    std::to_string(tokenizer->size()) + " tokens, " +
                        std::to_string(model->facts.vocab) + " rows in token_embd");

    auto source = file->find_string("tokenizer.chat_template");
    if (!source) return tl::unexpected(source.error());
    if (*source) {
        auto parsed = ChatTemplate::parse(**source);
        if (parsed)
            chat_template = std::move(*parsed);
        else
            template_error = parsed.error();
    } else {
        template_error = {ErrorKind::unsupported, "the model has no chat template", path,
                          "Send raw text instead"};
    }
    auto prepared = prepare(options.settings, 0);
    if (!prepared) return tl::unexpected(prepared.error());
    core = std::move(*prepared);
    return lay(*core, given.progress);
}

Result<bool> Engine::Impl::apply(const Settings& settings) {
    const Settings old = core->plan.settings;
    if (settings == old) return false;
    // Compared as they are resolved: an auto context is the same as its number.
    if (auto plan = Planner(core->model.facts, core->facts).plan(settings)) {
        Settings running = old, wanted = settings;
        running.max_context = core->plan.max_context;
        wanted.max_context = plan->max_context;
        wanted.prefill_stream_min = old.prefill_stream_min;
        wanted.cpu_share = old.cpu_share;
        wanted.deterministic = old.deterministic;
        // Where the layout stays as it is, only the plan changes.
        if (wanted == running) {
            core->plan = *plan;
            if (auto r = share_with_cpu(*core); !r) return tl::unexpected(r.error());
            return false;
        }
        // Within the pool that was laid a budget can fall and rise while conversations live.
        wanted.vram_budget = old.vram_budget;
        if (wanted == running && settings.vram_budget && old.vram_budget &&
            plan->granule_bytes == core->plan.granule_bytes &&
            plan->budget_bytes <= core->memory->capacity() * plan->granule_bytes) {
            if (auto r = change_budget(*plan); !r) return tl::unexpected(r.error());
            return false;
        }
    }
    // A refusal is found by arithmetic while the old layout still runs. What this process gives
    // back when it lays memory anew is free to the new layout.
    auto next = prepare(settings, core->plan.budget_bytes);
    if (!next) return tl::unexpected(next.error());

    for (auto& [id, conversation] : conversations) give_up(conversation);
    core->cpu.reset();
    core->memory.reset();
    core = std::move(*next);
    auto laid = lay(*core, {});
    if (laid) return true;

    const Error cause = laid.error();
    log(LogLevel::warning, "settings not applied: " + cause.message());
    auto back = prepare(old, core->device->driver_bytes());
    if (back) {
        core = std::move(*back);  // what the failed device holds goes first
        laid = lay(*core, {});
        // The engine goes on, also where the device of the new settings was lost.
        if (laid)
            return fail(cause.kind == ErrorKind::device_lost ? ErrorKind::device : cause.kind,
                        cause.what, cause.detail, cause.advice);
    }
    return fail(ErrorKind::device_lost,
                "the new settings failed and the old ones could not be laid again",
                cause.message() + "; " + (back ? laid.error() : back.error()).message());
}

Result<void> Engine::Impl::change_budget(const Plan& plan) {
    MemoryManager& memory = *core->memory;
    const auto wanted = plan.budget_bytes / plan.granule_bytes;
    while (memory.granules() > wanted + memory.kv_available() && give_up_idle(nullptr)) {
    }
    if (auto r = memory.set_budget(plan); !r) return r;
    core->plan = plan;
    return {};
}

Result<Planner> make_planner(const std::string& path, const Settings& settings,
                             const DeviceProfile* profile) {
    return guarded([&]() -> Result<Planner> {
        auto file = gguf::File::open(path);
        if (!file) return tl::unexpected(file.error());
        auto model = load_model(*file);
        if (!model) return tl::unexpected(model.error());
        if (profile) return Planner(model->facts, profile->facts(model->facts));
        Settings without_card = settings;  // its kernels need the same
        without_card.vram_budget = 0;
        const auto found =
            settings.device == "host" ? std::vector<gpu::FoundDevice>() : gpu::found_devices();
        const DeviceChoice choice = choose_device(settings.device, found);
        for (size_t i = 0;; ++i) {
            const bool last = i + 1 == choice.candidates.size();
            auto device = open_device(choice.candidates[i].id, without_card, 0, 0);
            const Result<void> runs =
                device ? check_kernels(**device, model->facts) : tl::unexpected(device.error());
            if (!runs && last) return tl::unexpected(runs.error());
            if (!runs) continue;
            Planner planner(model->facts, facts_of(**device, model->facts, gpu::Arithmetic::fast));
            if (last || planner.plan(settings)) return planner;
        }
    });
}

// ---- the public face

Result<std::unique_ptr<Engine>> Engine::open(const std::string& path,
                                             const EngineOptions& options) {
    return guarded([&]() -> Result<std::unique_ptr<Engine>> {
        auto impl = std::make_unique<Impl>();
        if (auto opened = impl->open(path, options); !opened) return tl::unexpected(opened.error());
        return std::unique_ptr<Engine>(new Engine(std::move(impl)));
    });
}

Result<std::vector<TokenId>> Engine::tokens_of(const Request& request) const {
    return guarded([&] { return impl_->tokens_of(request); });
}
Result<bool> Engine::apply(const Settings& settings) {
    return impl_->call([&] { return impl_->apply(settings); });
}
Result<Report> Engine::answer(ConversationId id, const Request& request, const Listener& listener,
                              const StopSignal& stop) {
    return impl_->call([&] { return impl_->answer(id, request, listener, stop); });
}
Result<LogitsResult> Engine::logits(const LogitsRequest& request) {
    return impl_->call([&] { return impl_->logits(request); });
}
Result<std::vector<BenchResult>> Engine::bench(std::span<const BenchStage> stages,
                                               const Listener& listener, const StopSignal* stop) {
    return impl_->call([&] { return impl_->bench(stages, listener, stop); });
}
Result<Limits> Engine::measure_limits() {
    return impl_->call([&] { return impl_->measure_limits(); });
}
uint64_t Engine::free_bytes_now() {
    return impl_->core->device->free_bytes_now();
}

const ModelFacts& Engine::model() const {
    return impl_->core->model.facts;
}
const gpu::DeviceInfo& Engine::device() const {
    return impl_->core->device->info();
}
const Plan& Engine::plan() const {
    return impl_->core->plan;
}
Planner Engine::planner() const {
    return Planner(model(), impl_->core->facts, learned_rates());
}
std::shared_ptr<const Tokenizer> Engine::tokenizer() const {
    return impl_->tokenizer;
}
Rates Engine::Impl::rates() const {
    return pace.corrected(rates_of(core->facts));
}
std::optional<Rates> Engine::learned_rates() const {
    if (!impl_->pace.knows_reading()) return {};
    return impl_->rates();
}
Result<Rates> Engine::measure_rates() {
    return impl_->call([&] { return impl_->measure_rates(); });
}
DeviceProfile Engine::profile(const Rates& rates) const {
    return DeviceProfile::of(*impl_->core->device, rates);
}
Telemetry& Engine::telemetry() {
    return impl_->telemetry;
}
bool Engine::has_chat_template() const {
    return impl_->chat_template.has_value();
}
std::array<uint64_t, kOwners> Engine::bytes() const {
    return impl_->core->memory ? impl_->core->memory->bytes() : std::array<uint64_t, kOwners>{};
}
uint64_t Engine::driver_allocations_after_load() const {
    const auto& memory = impl_->core->memory;
    return memory ? memory->driver_allocations_after_load() : 0;
}

Result<ConversationId> Engine::create_conversation() {
    return impl_->call([&] { return impl_->begin_conversation(); });
}
Result<uint64_t> Engine::save_conversation(ConversationId id, const std::string& path,
                                           const std::vector<Message>& messages,
                                           const LoadProgress& progress) {
    return impl_->call([&] { return impl_->save_conversation(id, path, messages, progress); });
}
Result<Reopened> Engine::restore_conversation(const std::string& path,
                                              const LoadProgress& progress) {
    return impl_->call([&] { return impl_->restore_conversation(path, progress); });
}

void Engine::drop_conversation(ConversationId id) {
    const auto found = impl_->conversations.find(id);
    if (found == impl_->conversations.end()) return;
    if (found->second.kv && impl_->core->memory && !impl_->lost)
        impl_->core->memory->drop_kv(found->second.kv);
    impl_->leave(found->second);
    impl_->conversations.erase(found);
}

uint32_t Engine::cells(ConversationId id) const {
    const auto found = impl_->conversations.find(id);
    return found == impl_->conversations.end() ? 0 : found->second.cells;
}

}  // namespace granary
