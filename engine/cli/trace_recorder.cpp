// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/trace_recorder.h"

#include <chrono>

#include "engine/cli/common.h"

namespace granary::cli {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(250);
constexpr auto kPatience = std::chrono::milliseconds(10);  // how soon the end is noticed

TraceHeader header_of(const Engine& engine) {
    const Plan& plan = engine.plan();
    TraceHeader header;
    header.model = engine.model().name;
    header.device = engine.device().name;
    header.settings = {"max-context " + std::to_string(plan.max_context),
                       "prefill " + std::to_string(plan.chunk),
                       "kv " + std::string(gpu::kv_format_name(plan.kv_format)),
                       "vram-budget " + format_bytes(plan.budget_bytes)};
    header.granule_bytes = plan.granule_bytes;
    header.experts_per_layer = engine.model().experts;
    return header;
}

}  // namespace

TraceRecorder::TraceRecorder(Engine& engine)
    : telemetry_(engine.telemetry()), header_(header_of(engine)), thread_([this] { record(); }) {}

void TraceRecorder::record() {
    auto due = std::chrono::steady_clock::now();
    bool last = false;
    while (!last && !failed_) {
        last = stopping_;
        if (!last && std::chrono::steady_clock::now() < due) {
            std::this_thread::sleep_for(kPatience);
            continue;
        }
        due += kInterval;
        const MapFrame* const frame = telemetry_.map.take();
        if (!frame) continue;
        if (!writer_) {
            // The pool's, which a lowered budget leaves larger than itself.
            header_.granules = static_cast<uint32_t>(frame->words.size());
            writer_.emplace(header_);
        }
        const Counters& counters = telemetry_.counters;
        const TraceCounts counts{counters.prompt_done, counters.prompt_total,
                                 counters.tokens_answered, counters.bytes_copied,
                                 counters.driver_allocations_after_load};
        if (auto r = writer_->add(*frame, counts); !r) failed_ = r.error();
    }
}

void TraceRecorder::stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
}

Result<void> TraceRecorder::write(const std::string& path) {
    stop();
    if (failed_) return tl::unexpected(*failed_);
    if (!writer_) return fail(ErrorKind::internal, "nothing was there to record", path);
    return write_file_atomically(path, writer_->bytes());
}

}  // namespace granary::cli
