// SPDX-License-Identifier: GPL-3.0-or-later
// What a script sees of the window.
#include <QDockWidget>
#include <QJsonArray>

#include "gui/app/chat_controller.h"
#include "gui/app/main_window.h"
#include "gui/chat/chat_pane.h"
#include "gui/documents/document_tray.h"
#include "gui/theme/units.h"
#include "gui/vram/vram_pane.h"
#include "gui/widgets/message_bar.h"

namespace granary::gui {

void MainWindow::scriptMeasure(bool on) {
    if (on)
        m_heartbeat.resume();
    else
        m_heartbeat.pause();
}

bool MainWindow::scriptPending() const {
    return m_chat->pending() || m_chat->answering() || m_engine->busy() || m_tray->reading() ||
           m_tray->counting() || m_vram->draft().state() == SettingsDraft::State::Applying;
}

QJsonObject MainWindow::scriptReport() const {
    const auto& model = m_engine->model();
    const std::string_view name = state_name(m_engine->state());
    QJsonObject report;
    report[QStringLiteral("state")] =
        QString::fromUtf8(name.data(), static_cast<qsizetype>(name.size()));
    report[QStringLiteral("message")] = m_pane->bar()->text();
    QJsonObject docks;
    for (const auto& [key, dock] :
         {std::pair{"library", m_libraryDock}, std::pair{"vram", m_vramDock},
          std::pair{"bottom", m_bottomDock}}) {
        docks[QLatin1String(key)] =
            QJsonObject{{QStringLiteral("visible"), dock->isVisible()},
                        {QStringLiteral("width"), dock->isVisible() ? dock->width() : 0},
                        {QStringLiteral("height"), dock->isVisible() ? dock->height() : 0}};
    }
    docks[QStringLiteral("centre")] = QJsonObject{{QStringLiteral("width"), m_pane->width()},
                                                  {QStringLiteral("height"), m_pane->height()}};
    report[QStringLiteral("docks")] = docks;
    const auto listed = [](const QVector<Document>& documents) {
        QJsonArray list;
        for (const Document& document : documents) {
            list.append(QJsonObject{{QStringLiteral("name"), document.label()},
                                    {QStringLiteral("tokens"), document.tokens}});
        }
        return list;
    };
    report[QStringLiteral("tray")] = listed(m_tray->documents());
    QJsonArray transcript;
    for (const ChatMessage& message : m_chat->messages()) {
        transcript.append(QJsonObject{{QStringLiteral("role"), roleName(message.role)},
                                      {QStringLiteral("text"), message.text},
                                      {QStringLiteral("documents"), listed(message.documents)},
                                      {QStringLiteral("ending"), endingName(message.ending)},
                                      {QStringLiteral("memory"), message.memoryLine},
                                      {QStringLiteral("kept"), message.keptLine}});
    }
    report[QStringLiteral("transcript")] = transcript;
    QJsonObject settings, bytes, granules;
    if (model) {
        for (const Settings::Entry& entry : Settings::entries()) {
            settings[QString::fromUtf8(entry.name.data(),
                                       static_cast<qsizetype>(entry.name.size()))] =
                QString::fromStdString(model->plan.settings.get(entry.name));
        }
        // Bytes as the engine counts them, granules as the map shows them: two ways to one truth.
        const MapFrame& frame = m_vram->model().frame();
        for (int i = 0; i < kOwners; ++i) {
            const auto at = static_cast<size_t>(i);
            const QString owner = ownerText(static_cast<Owner>(i));
            bytes[owner] = static_cast<qint64>(m_engine->memory().bytes[at]);
            granules[owner] = static_cast<qint64>(frame.granules[at]);
        }
    }
    report[QStringLiteral("settings")] = settings;
    report[QStringLiteral("bytes")] = bytes;
    report[QStringLiteral("granules")] = granules;
    report[QStringLiteral("driver_allocations_after_load")] =
        static_cast<qint64>(m_engine->memory().driverAllocationsAfterLoad);
    report[QStringLiteral("ms_to_usable")] = m_msToUsable;
    report[QStringLiteral("ms_to_first_text")] = m_chat->msToFirstText();
    report[QStringLiteral("gap_p999_ms")] = m_heartbeat.p999Ms();
    report[QStringLiteral("gap_max_ms")] = m_heartbeat.maxMs();
    report[QStringLiteral("paint_ms")] = m_vram->paintMs();
    return report;
}

}  // namespace granary::gui
