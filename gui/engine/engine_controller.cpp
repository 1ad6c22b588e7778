// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/engine/engine_controller.h"

#include <QCoreApplication>

#include "gui/engine/engine_worker.h"

namespace granary::gui {

EngineController::EngineController(QObject* parent)
    : QObject(parent), m_stop(std::make_shared<StopSignal>()), m_worker(new EngineWorker(m_text)) {
    qRegisterMetaType<State>();
    qRegisterMetaType<Error>();
    qRegisterMetaType<Report>();
    qRegisterMetaType<LoadedModel>();
    qRegisterMetaType<MemoryFigures>();

    m_thread.setObjectName(QStringLiteral("engine"));
    m_worker->moveToThread(&m_thread);
    connect(&m_thread, &QThread::started, m_worker, &EngineWorker::begin);
    connect(&m_thread, &QThread::finished, m_worker, &QObject::deleteLater);

    connect(m_worker, &EngineWorker::stateChanged, this, [this](State state) {
        m_state = state;
        if (busy()) {
            m_drain.start();
        } else {
            m_drain.stop();
            drainText();
        }
        Q_EMIT stateChanged(state);
    });
    connect(m_worker, &EngineWorker::opened, this, [this](const LoadedModel& model) {
        m_model = model;
        Q_EMIT opened(model);
    });
    connect(m_worker, &EngineWorker::memory, this, [this](const MemoryFigures& figures) {
        m_memory = figures;
        Q_EMIT memoryChanged(figures);
    });
    connect(m_worker, &EngineWorker::applied, this,
            [this](bool ok, const QString& message, const LoadedModel& model) {
                if (ok && m_model) m_model = model;
                Q_EMIT applied(ok, message);
            });
    connect(m_worker, &EngineWorker::loadProgress, this, &EngineController::loadProgress);
    connect(m_worker, &EngineWorker::openFailed, this, &EngineController::openFailed);
    connect(m_worker, &EngineWorker::openCancelled, this, &EngineController::openCancelled);
    connect(m_worker, &EngineWorker::readProgress, this, &EngineController::readProgress);
    connect(m_worker, &EngineWorker::read, this, &EngineController::read);
    connect(m_worker, &EngineWorker::firstText, this, &EngineController::drainText);
    connect(m_worker, &EngineWorker::finished, this, [this](const Report& report) {
        drainText();
        Q_EMIT finished(report);
    });
    connect(m_worker, &EngineWorker::refused, this, &EngineController::refused);
    connect(m_worker, &EngineWorker::failed, this, [this](const Error& error, bool lost) {
        drainText();
        Q_EMIT failed(error, lost);
    });

    m_drain.setInterval(kDrainMs);
    connect(&m_drain, &QTimer::timeout, this, &EngineController::drainText);
    m_thread.start();
}

EngineController::~EngineController() {
    shutDown();
}

void EngineController::shutDown() {
    m_stop->request();
    m_thread.quit();
    m_thread.wait();
    QCoreApplication::sendPostedEvents(this, QEvent::MetaCall);
    m_drain.stop();
}

void EngineController::drainText() {
    const std::string more = m_text.take();
    if (!more.empty())
        Q_EMIT text(QString::fromUtf8(more.data(), static_cast<qsizetype>(more.size())));
}

std::shared_ptr<StopSignal> EngineController::renewStop() {
    m_stop = std::make_shared<StopSignal>();
    return m_stop;
}

void EngineController::leave() {
    Q_EMIT closing();
    m_model.reset();
    m_memory = {};
    m_stop->request();
}

void EngineController::open(const QString& path, const Settings& settings) {
    leave();
    QMetaObject::invokeMethod(m_worker, [worker = m_worker, path, settings, stop = renewStop()] {
        worker->open(path, settings, stop);
    });
}

void EngineController::close() {
    leave();
    QMetaObject::invokeMethod(m_worker, &EngineWorker::close);
}

void EngineController::ask(const Request& request) {
    m_text.clear();
    QMetaObject::invokeMethod(
        m_worker, [worker = m_worker, request, stop = renewStop()] { worker->ask(request, stop); });
}

void EngineController::stop() {
    m_stop->request();
}

void EngineController::apply(const Settings& settings) {
    QMetaObject::invokeMethod(m_worker, [worker = m_worker, settings] { worker->apply(settings); });
}

void EngineController::refuse(const Error& error) {
    QMetaObject::invokeMethod(m_worker, [worker = m_worker, error] { worker->refuse(error); });
}

void EngineController::edit() {
    if (m_state == State::refused || m_state == State::failed) {
        QMetaObject::invokeMethod(m_worker, &EngineWorker::edit);
    }
}

}  // namespace granary::gui
