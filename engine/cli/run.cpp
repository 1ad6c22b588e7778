// SPDX-License-Identifier: GPL-3.0-or-later
#include "engine/cli/run.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <ostream>

#include "engine/cli/common.h"
#include "engine/extract/client.h"

namespace granary::cli {
namespace {

// The only message of a conversation without a chat template: all of its text.
constexpr const char* kRaw = "raw";

// Conversation and messages of `path`, or new ones where there is no such file.
Result<Reopened> reopen(Engine& engine, const std::optional<std::string>& path, std::ostream& err,
                        const StopSignal& stop) {
    if (path)
        if (auto r = check_writable(*path); !r) return tl::unexpected(r.error());
    std::error_code none;
    if (!path || !std::filesystem::exists(*path, none)) {
        auto id = engine.create_conversation();
        if (!id) return tl::unexpected(id.error());
        return Reopened{*id, 0, {}};
    }
    const auto start = std::chrono::steady_clock::now();
    LoadProgress progress;
    progress.stop = &stop;
    auto reopened = engine.restore_conversation(*path, progress);
    if (!reopened) return reopened;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    char text[64];
    std::snprintf(text, sizeof text, "reopened %u tokens in %.2f s\n", reopened->cells,
                  seconds.count());
    err << text << std::flush;
    return reopened;
}

}  // namespace

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
    auto conversation = reopen(**engine, options.conversation, err, stop);
    if (!conversation) return report_error(conversation.error(), err);
    std::vector<Message> messages = std::move(conversation->messages);
    if (!messages.empty() && (messages[0].role == kRaw) != options.raw)
        return report_error(
            {ErrorKind::invalid_argument,
             options.raw ? "the conversation was begun with a chat template"
                         : "the conversation was begun with --raw",
             *options.conversation, options.raw ? "Leave --raw out" : "Give --raw again"},
            err);

    Request request;
    request.use_raw = options.raw;
    if (options.raw) {
        request.raw = (messages.empty() ? "" : messages[0].content) + text;
    } else {
        request.messages = messages;
        request.messages.push_back({"user", text});
    }
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
    std::string answer;
    listener.on_text = [&](std::string_view piece) {
        answer += piece;
        if (terminals.out)
            out << for_terminal(piece);
        else
            out << piece;
        if (!out.flush()) stop.request();
    };
    auto report = (*engine)->answer(conversation->id, request, listener, stop);
    clear_progress();
    if (!report) return report_error(report.error(), err);
    if (!(out << "\n" << std::flush)) return kFailed;
    if (options.verbose) {
        err << report->kept_line() << "\n" << report->memory_line() << "\n";
        err << "answered " << report->answer_tokens << " tokens at "
            << std::lround(report->answer_tokens / std::max(report->answer_seconds, 1e-9))
            << " tok/s\n";
    }
    if (options.conversation) {
        // A question that got no answer is not part of it; what was read for it is.
        if (report->finish != Finish::stopped || !answer.empty()) {
            messages = std::move(request.messages);
            if (options.raw)
                messages = {{kRaw, request.raw + answer}};
            else if (!answer.empty())
                messages.push_back({"assistant", answer});
        }
        auto saved =
            (*engine)->save_conversation(conversation->id, *options.conversation, messages);
        if (!saved) return report_error(saved.error(), err);
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
