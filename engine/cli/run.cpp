// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/run.h"

#include <cmath>
#include <ostream>

#include "engine/cli/common.h"
#include "engine/extract/client.h"

namespace granary::cli {

int run(const RunOptions& options, std::ostream& out, std::ostream& err, Terminals terminals,
        StopSignal& stop) {
    std::string text = options.prompt;
    if (options.document) {
        auto document = extract_document(default_extractor_path(), *options.document, stop);
        if (!document) return report_error(document.error(), err);
        text = document->prompt_text() + "\n\n" + text;
    }
    if (text.find_first_not_of(" \t\r\n") == std::string::npos)
        return report_error({ErrorKind::refused, "the prompt is empty", "",
                             "Give --prompt TEXT or --file DOCUMENT"},
                            err);

    EngineOptions engine_options;
    engine_options.settings = options.settings;
    engine_options.progress.stop = &stop;
    engine_options.log = [&](LogLevel level, std::string_view line) {
        if (options.verbose || level != LogLevel::info) err << line << "\n";
    };
    auto engine = Engine::open(options.model, engine_options);
    if (!engine) return report_error(engine.error(), err);
    auto conversation = (*engine)->create_conversation();
    if (!conversation) return report_error(conversation.error(), err);

    Request request;
    request.use_raw = options.raw;
    if (options.raw)
        request.raw = text;
    else
        request.messages = {{"user", text}};
    request.max_tokens = options.max_tokens;
    request.sampling = options.sampling;

    Listener listener;
    bool progress_shown = false;
    const auto clear_progress = [&] {
        if (progress_shown) err << "\r\033[K" << std::flush;
        progress_shown = false;
    };
    if (terminals.err)
        listener.on_progress = [&](uint32_t done, uint32_t total, double eta) {
            err << "\rreading " << done << " of " << total << " tokens, "
                << static_cast<long>(std::ceil(eta)) << " s left\033[K" << std::flush;
            progress_shown = true;
        };
    listener.on_read = [&](const Report&) { clear_progress(); };
    listener.on_text = [&](std::string_view piece) {
        if (terminals.out)
            out << for_terminal(piece);
        else
            out << piece;
        if (!out.flush()) stop.request();
    };
    auto report = (*engine)->answer(*conversation, request, listener, stop);
    clear_progress();
    if (!report) return report_error(report.error(), err);
    if (!(out << "\n" << std::flush)) return kFailed;
    if (options.verbose) {
        err << report->kept_line() << "\n" << report->memory_line() << "\n";
        err << "answered " << report->answer_tokens << " tokens at "
            << std::lround(report->answer_tokens / std::max(report->answer_seconds, 1e-9))
            << " tok/s\n";
    }
    switch (report->finish) {
        case Finish::answer_ended:
            return kOk;
        case Finish::token_limit:
            return kOk;
        case Finish::context_full:
            err << "granary-cli: context full: the answer stopped at max-context "
                << (*engine)->plan().max_context << "\n";
            return kOk;
        case Finish::stopped:
            return kInterrupted;
    }
    return kOk;
}

}  // namespace granary::cli
