// SPDX-License-Identifier: GPL-3.0-or-later
#include "granary/planner.h"

#include <algorithm>

#include "engine/kv/kv_layout.h"
#include "engine/memory/admission.h"
#include "engine/memory/layout.h"
#include "engine/memory/rates.h"
#include "engine/memory/schedule.h"
#include "engine/model/rope.h"

namespace granary {
namespace {

constexpr uint32_t kDefaultContext = 32768;
// Where experts are read in place a larger chunk only saves reading their weights once more, and
// its buffers leave the processor's caches: on the starter model 1,024 read slower than 512.
constexpr uint32_t kAutoChunkUnified = 512;
// A larger chunk must save this share of the time: it takes more of the experts' room.
constexpr double kWorthwhile = 0.03;

uint32_t context_of(const ModelFacts& model, const Settings& settings) {
    return settings.max_context ? settings.max_context
                                : std::min(model.trained_context, kDefaultContext);
}

// What a plan is made in: the same for every chunk. Granules unless it says otherwise.
struct Frame {
    const ModelFacts& model;
    const DeviceFacts& device;
    const Settings& settings;
    std::optional<Rates> corrected{};  // for predictions alone
    bool card = false;
    uint64_t granule = 0;  // bytes
    uint64_t step_bytes = 0;
    Least least{};
    uint64_t free_granules = 0;
    uint64_t limit = 0;   // of these, what the user allows
    uint64_t always = 0;  // fixed, workspace, state

    uint64_t granules_of(uint64_t bytes) const { return divide_up(bytes, granule); }
    uint64_t loan_of(uint32_t chunk) const {
        return granules_of(loan_layout(model, device, chunk).bytes);
    }
    uint64_t room() const { return limit - always - least.floor; }  // for K/V and loan
    // K/V of a chunk's own cells must fit beside its loan; later the loan shrinks.
    bool fits(uint32_t chunk, uint32_t max_context) const {
        const uint64_t cells = std::min(chunk, max_context);
        return loan_of(chunk) + granules_of(steps_of(cells) * step_bytes) <= room();
    }
};

Frame frame_of(const ModelFacts& model, const DeviceFacts& device, const Settings& settings,
               uint32_t max_context) {
    Frame frame{model, device, settings};
    frame.card = device.face == gpu::Face::card;
    frame.granule = device.granule_bytes;
    frame.step_bytes = kv_step_bytes(model, device, settings, max_context);
    frame.least = least_of(model, device, settings, max_context);
    frame.always = frame.least.fixed + frame.least.workspace + frame.least.state;
    frame.free_granules =
        (device.free_bytes - std::min(device.free_bytes, settings.vram_reserve)) / frame.granule;
    frame.limit = settings.vram_budget
                      ? std::min(frame.free_granules, settings.vram_budget / frame.granule)
                      : frame.free_granules;
    return frame;
}

// The next smaller chunk that fits, where the smallest does.
uint32_t smaller_that_fits(const Frame& frame, uint32_t chunk, uint32_t max_context) {
    while (!frame.fits(chunk, max_context)) chunk = smaller_chunk(chunk);
    return chunk;
}

// Bytes by class while a prompt runs, with `kv` granules of K/V and `loan` lent: where the
// manager's marks are then.
std::array<uint64_t, kOwners> classes(const ModelFacts& model, const Plan& plan, uint64_t kv,
                                      uint64_t loan) {
    const uint64_t end = plan.expert_range, rest = end - std::min<uint64_t>(end, plan.loan);
    const uint64_t below = std::min<uint64_t>(kv, rest - std::min<uint64_t>(rest, plan.floor));
    const uint64_t low = rest - below, top = rest + (kv - below);
    // What lies behind the last row has no slot.
    const uint64_t slots = divide_up(plan.rows_at_start * model.row_bytes, plan.granule_bytes);
    const auto with_slots = [&](uint64_t from, uint64_t to) {
        return std::min(to, slots) - std::min(std::min(to, slots), from);
    };
    const uint64_t experts = with_slots(0, low) + with_slots(top, end - loan);
    std::array<uint64_t, kOwners> bytes{};
    const auto set = [&](Owner owner, uint64_t granules) {
        bytes[static_cast<int>(owner)] = granules * plan.granule_bytes;
    };
    set(Owner::fixed, plan.fixed);
    set(Owner::workspace, plan.workspace);
    set(Owner::state, plan.state);
    set(Owner::kv, kv);
    set(Owner::loan, loan);
    set(Owner::experts, experts);
    set(Owner::spare, end - kv - loan - experts);
    return bytes;
}

// The layout with a first chunk of `chunk` tokens, which fits, and what is predicted of it.
Plan lay(const Frame& frame, Plan plan, uint32_t chunk, const AutoCount& stream_min) {
    const ModelFacts& model = frame.model;
    const Least& least = frame.least;
    const uint64_t loan = frame.loan_of(chunk);
    const uint64_t all_rows = frame.card ? model.experts : 0;
    const uint64_t useful =
        frame.always + least.kv_at_max + loan + frame.granules_of(all_rows * model.row_bytes);
    const uint64_t budget = std::min(frame.limit, useful);
    plan.chunk = chunk;
    plan.budget_bytes = budget * frame.granule;
    plan.fixed = static_cast<uint32_t>(least.fixed);
    plan.workspace = static_cast<uint32_t>(least.workspace);
    plan.state = static_cast<uint32_t>(least.state);
    plan.expert_range = static_cast<uint32_t>(budget - frame.always);
    plan.kv_at_max = static_cast<uint32_t>(least.kv_at_max);
    plan.loan = static_cast<uint32_t>(loan);
    plan.smallest_loan = static_cast<uint32_t>(least.smallest_loan);
    plan.floor = static_cast<uint32_t>(least.floor);
    const auto rows_in = [&](uint64_t granules) {
        return static_cast<uint32_t>(
            std::min<uint64_t>(granules * frame.granule / model.row_bytes, all_rows));
    };
    plan.rows_at_start = static_cast<uint32_t>(std::min<uint64_t>(
        divide_up(plan.expert_range * frame.granule, model.row_bytes), all_rows));
    plan.rows_at_max = rows_in(plan.expert_range - plan.kv_at_max);

    const auto schedule = make_schedule(
        model, frame.device, {plan.expert_range - plan.floor, frame.granule, frame.step_bytes}, {},
        chunk, 0, plan.max_context);
    plan.chunk_at_max = schedule.back().chunk;
    const uint64_t last_loan = frame.loan_of(plan.chunk_at_max);
    plan.at_start = classes(model, plan, 0, loan);
    plan.at_max = classes(model, plan, plan.kv_at_max, last_loan);

    const Predictor predictor(model, frame.device, plan);
    switch (stream_min.kind) {
        case AutoCount::Kind::automatic:
            plan.stream_min = predictor.faster_streamed_from(
                predictor.rows_beside(plan.max_context, last_loan * frame.granule));
            break;
        case AutoCount::Kind::number:
            plan.stream_min = stream_min.number;
            break;
        case AutoCount::Kind::never:
            plan.stream_min = UINT32_MAX;
            break;
    }
    const Predictor here(model, frame.device, plan, frame.corrected.value_or(predictor.rates()));
    const PromptTime prompt = here.prompt(schedule, plan.max_context);
    plan.speeds.reading = plan.max_context / prompt.seconds;
    plan.speeds.reading_at_max = prompt.stretches.back().last_tok_s;
    plan.speeds.answering_at_start = 1 / here.token(0);
    plan.speeds.answering_at_max = 1 / here.token(plan.max_context - 1);
    return plan;
}

// Seconds of a prompt that fills the context, and of bringing back the experts whose place its
// last loan takes: what a larger chunk costs the answers.
double cost_of(const Frame& frame, const Plan& plan) {
    const Predictor predictor(frame.model, frame.device, plan);
    const uint32_t lost =
        plan.rows_at_max -
        predictor.rows_beside(plan.max_context, frame.loan_of(plan.chunk_at_max) * frame.granule);
    return plan.max_context / plan.speeds.reading + predictor.copy_seconds(lost);
}

// Of the chunks 64, 128 .. that fit, the smallest that is about as quick as the quickest. Neither
// prefill-stream-min nor cpu-share has a say: they change while a layout stays.
uint32_t quickest_chunk(const Frame& frame, Plan begun) {
    const uint32_t largest = frame.card ? kLargestChunk : kAutoChunkUnified;
    begun.cpu_share = 0;
    std::vector<std::pair<double, uint32_t>> costs;
    for (uint32_t chunk = kSmallestChunk;
         chunk <= largest && frame.fits(chunk, begun.max_context) &&
         (chunk == kSmallestChunk || chunk / 2 < begun.max_context);  // as the context can fill
         chunk *= 2)
        costs.emplace_back(cost_of(frame, lay(frame, begun, chunk, {})), chunk);
    const double quickest = std::min_element(costs.begin(), costs.end())->first;
    return std::find_if(
               costs.begin(), costs.end(),
               [&](const auto& cost) { return cost.first <= quickest * (1 + kWorthwhile); })
        ->second;
}

Result<Plan> plan_on(const ModelFacts& model, const DeviceFacts& device,
                     const DeviceFacts& any_budget, const Settings& settings,
                     const std::optional<Rates>& corrected) {
    Plan plan;
    plan.settings = settings;
    plan.granule_bytes = device.granule_bytes;
    plan.max_context = context_of(model, settings);
    const auto rope = resolve_rope(model, settings, plan.max_context);
    if (!rope) return tl::unexpected(rope.error());
    plan.rope = *rope;
    plan.kv_format = kv_format_of(model, device, settings, plan.max_context);

    Frame frame = frame_of(model, device, settings, plan.max_context);
    if (frame.least.total() > frame.limit)
        return tl::unexpected(refusal(model, device, any_budget, settings, plan.max_context,
                                      frame.free_granules, frame.limit));

    // On the host the CPU's kernels are the device's own, bit for bit: a share that is asked for is
    // given under `deterministic` too.
    plan.card = frame.card;
    if (frame.card && device.host)
        plan.cpu_share = settings.cpu_share.value_or(settings.deterministic ? 0 : 100);
    // Beside a GPU they differ in the last bits.
    if (frame.card && device.shares_with_cpu && !settings.deterministic)
        plan.answer_share = settings.cpu_share.value_or(kFastestShare);
    const uint32_t chunk = settings.prefill.kind == AutoCount::Kind::number
                               ? std::clamp(settings.prefill.number, kSmallestChunk, kLargestChunk)
                               : quickest_chunk(frame, plan);
    frame.corrected = corrected;
    if (frame.fits(chunk, plan.max_context))
        return lay(frame, plan, chunk, settings.prefill_stream_min);
    return fail(
        ErrorKind::refused, "a reading step of " + std::to_string(chunk) + " tokens does not fit",
        "its loan takes " + format_bytes(frame.loan_of(chunk) * frame.granule) +
            " beside its K/V, " + format_bytes(frame.room() * frame.granule) + " can be lent",
        "Set prefill to " + std::to_string(smaller_that_fits(frame, chunk, plan.max_context)) +
            " or less");
}

}  // namespace

Result<Plan> Planner::plan(const Settings& settings) const {
    DeviceFacts device = facts_for(device_, settings);
    auto plan = plan_on(model_, device, device_, settings, corrected_);
    // The unified face has no budget until it is planned; a large one gets large granules.
    const bool on_host = device.host && device.face == gpu::Face::unified;
    if (!plan || !on_host) return plan;
    device.granule_bytes = gpu::default_granule_bytes(plan->budget_bytes);
    if (device.granule_bytes == plan->granule_bytes) return plan;
    return plan_on(model_, device, device_, settings, corrected_);
}

WaysOut Planner::ways_out(const Settings& settings) const {
    const DeviceFacts device = facts_for(device_, settings);
    const uint32_t max_context = context_of(model_, settings);
    const Frame frame = frame_of(model_, device, settings, max_context);
    if (frame.least.total() > frame.limit)
        return granary::ways_out(model_, device, device_, settings, max_context, frame.limit);
    WaysOut ways;
    if (settings.prefill.kind == AutoCount::Kind::number)
        ways.prefill = smaller_that_fits(frame, settings.prefill.number, max_context);
    return ways;
}

std::array<uint64_t, kOwners> Planner::bytes_at(const Plan& plan, uint32_t cells,
                                                uint32_t chunk) const {
    const auto granules = [&](uint64_t bytes) { return divide_up(bytes, plan.granule_bytes); };
    const uint64_t step_bytes = kv_layout(model_, plan.kv_format).step_bytes;
    return classes(model_, plan, granules(steps_of(cells) * step_bytes),
                   granules(loan_layout(model_, device_of(plan), chunk).bytes));
}

DeviceFacts Planner::device_of(const Plan& plan) const {
    DeviceFacts device = facts_for(device_, plan.settings);
    device.granule_bytes = plan.granule_bytes;
    return device;
}

Rates Planner::rates_of(const DeviceFacts& device) const {
    return corrected_.value_or(granary::rates_of(device));
}

PromptTime Planner::predict_prompt(const Plan& plan, const std::vector<ScheduledChunks>& schedule,
                                   uint32_t total) const {
    const DeviceFacts device = device_of(plan);
    return Predictor(model_, device, plan, rates_of(device)).prompt(schedule, total);
}

double Planner::predict_decode(const Plan& plan, uint32_t depth, double hits) const {
    const DeviceFacts device = device_of(plan);
    return Predictor(model_, device, plan, rates_of(device)).token(depth, hits);
}

double Planner::predict_decode(const Plan& plan, uint32_t depth) const {
    return predict_decode(plan, depth, uniform_hits(plan, depth));
}

double Planner::uniform_hits(const Plan& plan, uint32_t depth) const {
    const DeviceFacts device = device_of(plan);
    return Predictor(model_, device, plan, rates_of(device)).uniform_hits(depth);
}

Result<std::vector<ScheduledChunks>> Planner::schedule(const Plan& plan, const Standing& standing,
                                                       uint32_t from, uint32_t total) const {
    const DeviceFacts device = device_of(plan);
    const uint64_t step_bytes = kv_layout(model_, plan.kv_format).step_bytes;
    auto schedule = make_schedule(model_, device,
                                  {plan.expert_range - plan.floor, plan.granule_bytes, step_bytes},
                                  standing, plan.chunk, from, total);
    if (!schedule.empty() || from >= total) return schedule;
    const uint64_t kv = divide_up(steps_of(total) * step_bytes, plan.granule_bytes);
    return fail(ErrorKind::refused, "K/V of " + std::to_string(total) + " tokens does not fit",
                sum_text({{"K/V", std::max<uint64_t>(kv, standing.mapped)},
                          {"smallest loan", plan.smallest_loan},
                          {"other conversations", standing.idle},
                          {"granules out of use", standing.away}},
                         plan.granule_bytes) +
                    ", " + format_bytes((plan.expert_range - plan.floor) * plan.granule_bytes) +
                    " can be given",
                "Close other chats or raise vram-budget");
}

}  // namespace granary
