// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/engine/engine_worker.h"

#include <spdlog/spdlog.h>
#ifdef __linux__
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace granary::gui {

namespace {

constexpr qint64 kProgressEveryMs = 50;

std::string bytesByOwner(const std::array<uint64_t, kOwners>& bytes) {
    std::string line;
    for (int i = 0; i < kOwners; ++i) {
        if (!line.empty()) line += ", ";
        line += std::string(owner_name(static_cast<Owner>(i))) + " " +
                std::to_string(bytes[static_cast<size_t>(i)]);
    }
    return line;
}

}  // namespace

EngineWorker::EngineWorker(TextBuffer& text) : m_text(text) {}

EngineWorker::~EngineWorker() = default;

void EngineWorker::begin() {
#ifdef __linux__
    setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
#endif
}

bool EngineWorker::move(StateEvent event) {
    const auto next = next_state(m_state, event);
    if (!next) return false;
    if (*next != m_state) {
        m_state = *next;
        Q_EMIT stateChanged(m_state);
    }
    return true;
}

void EngineWorker::publishMemory() {
    if (!m_engine) return;
    Q_EMIT memory(
        {m_engine->bytes(), m_engine->driver_allocations_after_load(), m_engine->learned_rates()});
}

LoadedModel EngineWorker::describe() const {
    LoadedModel model;
    model.path = m_path;
    model.facts = m_engine->model();
    model.device = m_engine->device();
    model.plan = m_engine->plan();
    model.planner = m_engine->planner();
    model.tokenizer = m_engine->tokenizer();
    model.telemetry = &m_engine->telemetry();
    model.hasChatTemplate = m_engine->has_chat_template();
    model.loadSeconds = m_loadSeconds;
    return model;
}

void EngineWorker::open(const QString& path, const Settings& settings, const Stop& stop) {
    if (!move(StateEvent::open) && !move(StateEvent::reload)) return;
    m_engine.reset();
    QElapsedTimer clock;
    clock.start();
    m_progressClock.start();

    EngineOptions options;
    options.settings = settings;
    options.nice = kNice;
    options.log = [](LogLevel level, std::string_view line) {
        const auto severity = level == LogLevel::error     ? spdlog::level::err
                              : level == LogLevel::warning ? spdlog::level::warn
                                                           : spdlog::level::info;
        spdlog::log(severity, "{}", line);
    };
    options.progress.stop = stop.get();
    options.progress.on_bytes = [this](uint64_t done, uint64_t total) {
        if (done < total && m_progressClock.elapsed() < kProgressEveryMs) return;
        m_progressClock.restart();
        Q_EMIT loadProgress(done, total);
    };
    auto engine = Engine::open(path.toStdString(), options);
    Result<ConversationId> conversation =
        engine ? (*engine)->create_conversation() : tl::unexpected<Error>(engine.error());
    if (!conversation) {
        const Error& error = conversation.error();
        if (error.kind == ErrorKind::cancelled) {
            Q_EMIT openCancelled();
            move(StateEvent::load_cancelled);
        } else {
            spdlog::error("{}", error.message());
            Q_EMIT openFailed(error);
            move(StateEvent::load_failed);
        }
        return;
    }
    m_engine = std::move(*engine);
    m_conversation = *conversation;

    m_path = path;
    m_loadSeconds = static_cast<double>(clock.elapsed()) / 1000.0;
    const LoadedModel model = describe();
    spdlog::info("{} loaded in {:.2f} s; budget {} bytes: {}", model.facts.name, m_loadSeconds,
                 model.plan.budget_bytes, bytesByOwner(m_engine->bytes()));
    Q_EMIT opened(model);
    publishMemory();
    move(StateEvent::loaded);
}

void EngineWorker::close() {
    if (!move(StateEvent::close)) return;
    m_engine.reset();
}

void EngineWorker::ask(const Request& request, const Stop& stop) {
    move(StateEvent::edit);  // a new prompt answers the bar of the last one
    if (!m_engine || m_state != State::idle) return;
    m_progressClock.start();

    // Reading begins with the engine's first sign of life: a refusal never passes through it.
    const auto begin = [this] {
        if (m_state == State::idle) move(StateEvent::send);
    };
    Listener listener;
    listener.on_progress = [&](uint32_t done, uint32_t total, double eta) {
        begin();
        if (done > 0 && done < total && m_progressClock.elapsed() < kProgressEveryMs) return;
        m_progressClock.restart();
        Q_EMIT readProgress(done, total, eta);
    };
    listener.on_read = [&](const Report& report) {
        begin();
        move(StateEvent::read);
        Q_EMIT read(report);
    };
    listener.on_text = [this](std::string_view text) {
        if (m_text.append(text)) Q_EMIT firstText();
    };
    const auto report = m_engine->answer(m_conversation, request, listener, *stop);
    publishMemory();
    if (report) {
        spdlog::info("{}; {}", report->kept_line(), report->memory_line());
        begin();
        Q_EMIT finished(*report);
        move(StateEvent::finished);
        return;
    }
    const Error& error = report.error();
    spdlog::warn("{}", error.message());
    const bool nothingRead = m_state == State::idle && error.kind != ErrorKind::device_lost;
    if (nothingRead || error.kind == ErrorKind::refused) {
        Q_EMIT refused(error);
        move(StateEvent::refuse);
        return;
    }
    begin();
    const bool lost = error.kind == ErrorKind::device_lost;
    Q_EMIT failed(error, lost);
    move(lost ? StateEvent::engine_lost : StateEvent::request_failed);
}

void EngineWorker::apply(const Settings& settings) {
    move(StateEvent::edit);
    if (!m_engine || m_state != State::idle) {
        Q_EMIT applied(false, tr("No model is open"), {});
        return;
    }
    const auto mustReread = m_engine->apply(settings);
    if (!mustReread) {
        const Error& error = mustReread.error();
        spdlog::warn("settings kept: {}", error.message());
        const bool lost = error.kind == ErrorKind::device_lost;
        Q_EMIT applied(false, QString::fromStdString(error.message()),
                       lost ? LoadedModel() : describe());
        if (lost) {
            Q_EMIT failed(error, true);
            move(StateEvent::engine_lost);
        }
        return;
    }
    publishMemory();
    spdlog::info("settings applied; budget {} bytes: {}", m_engine->plan().budget_bytes,
                 bytesByOwner(m_engine->bytes()));
    Q_EMIT applied(true,
                   *mustReread ? tr("Applied. The conversation will be read again with your next "
                                    "question.")
                               : tr("Applied. Nothing has to be read again."),
                   describe());
}

void EngineWorker::refuse(const Error& error) {
    move(StateEvent::edit);
    if (!next_state(m_state, StateEvent::refuse)) return;
    Q_EMIT refused(error);
    move(StateEvent::refuse);
}

void EngineWorker::edit() {
    move(StateEvent::edit);
}

}  // namespace granary::gui
