// SPDX-License-Identifier: GPL-3.0-or-later
// The part of the window that takes documents: by drop, by dialog, and with a question where one
// is too long.
#include <QDragEnterEvent>
#include <QLocale>
#include <QMimeData>

#include "gui/app/budget_search.h"
#include "gui/app/chat_controller.h"
#include "gui/app/main_window.h"
#include "gui/chat/chat_pane.h"
#include "gui/chat/composer.h"
#include "gui/documents/document_tray.h"
#include "gui/documents/drop_overlay.h"
#include "gui/documents/part_dialog.h"
#include "gui/theme/units.h"
#include "gui/vram/vram_pane.h"
#include "gui/widgets/message_bar.h"

namespace granary::gui {

namespace {

constexpr qint64 kMostContext = 1 << 20;

QString text(const std::string& value) {
    return QString::fromStdString(value);
}

QStringList localFiles(const QMimeData* data) {
    QStringList files;
    for (const QUrl& url : data->urls()) {
        if (url.isLocalFile()) files << url.toLocalFile();
    }
    return files;
}

bool isModel(const QString& path) {
    return path.endsWith(QLatin1String(".gguf"), Qt::CaseInsensitive);
}

}  // namespace

void MainWindow::dropFiles(const QStringList& paths) {
    for (const QString& path : paths) {
        if (isModel(path)) {
            openModel(path);
            return;
        }
    }
    for (const QString& path : paths) m_tray->addFile(path);
    m_pane->composer()->input()->setFocus();
}

void MainWindow::dragEnterEvent(QDragEnterEvent* event) {
    const QStringList files = localFiles(event->mimeData());
    if (files.isEmpty()) return;
    const bool model = std::any_of(files.begin(), files.end(), isModel);
    m_overlay->present(model ? tr("Let go to open this model")
                             : tr("Let go to add %n document(s) to your next question", nullptr,
                                  static_cast<int>(files.size())));
    event->acceptProposedAction();
}

void MainWindow::dragLeaveEvent(QDragLeaveEvent*) {
    m_overlay->hide();
}

void MainWindow::dropEvent(QDropEvent* event) {
    m_overlay->hide();
    dropFiles(localFiles(event->mimeData()));
    event->acceptProposedAction();
}

// A document longer than the context is asked about, not refused.
void MainWindow::checkDocument(int index) {
    const auto& model = m_engine->model();
    const QVector<Document> documents = m_tray->documents();
    if (!model || index >= documents.size()) return;
    const qint64 tokens = m_tray->tokens();
    const Plan& plan = model->plan;
    if (tokens + answer_room(plan.max_context) <= plan.max_context) return;
    const QLocale locale;
    const Document& document = documents[index];
    const QString what = tr("%1: %2 tokens; this model was trained for %3")
                             .arg(document.label(), locale.toString(document.tokens),
                                  locale.toString(model->facts.trained_context));
    std::vector<MessageBar::Choice> choices;
    choices.push_back({tr("Choose part"), QStringLiteral("choosePart"),
                       [this, index] { choosePart(index); }, true, true});
    QString detail;
    if (tokens + 2048 > kMostContext) {
        detail = tr("Granary reads at most %1 tokens at once.").arg(locale.toString(kMostContext));
    } else {
        const auto needed = settingsForContext(*model->planner, plan.settings, tokens);
        if (needed) {
            const bool nonsense = tokens > model->facts.trained_context;
            QStringList cost{tr("needs %1").arg(bytesText(needed->budget_bytes))};
            if (const auto& rates = m_engine->memory().rates) {
                const Planner planner = model->planner->corrected(*rates);
                const auto length = static_cast<uint32_t>(tokens);
                if (const auto schedule = planner.schedule(*needed, {}, 0, length))
                    cost << tr("about %1")
                                .arg(durationText(
                                    planner.predict_prompt(*needed, *schedule, length).seconds));
            }
            if (nonsense) cost << tr("the answer will be nonsense");
            choices.push_back(
                {(nonsense ? tr("Read all: memory demonstration, %1") : tr("Read all: %1"))
                     .arg(cost.join(QStringLiteral(", "))),
                 QStringLiteral("readAll"), [this, tokens] { readAll(tokens); }});
        } else {
            detail = text(needed.error().message());
        }
    }
    choices.push_back(
        {tr("Open another model"), QStringLiteral("openAnother"), [this] { chooseModel(); }});
    m_pane->bar()->present(MessageBar::Kind::question, what, detail, std::move(choices));
}

void MainWindow::choosePart(int index) {
    const QVector<Document> documents = m_tray->documents();
    const auto tokenIndex = m_tray->index(index);
    const auto& model = m_engine->model();
    if (!model || !tokenIndex || index >= documents.size()) return;
    constexpr qint64 kQuestionRoom = 256;  // for the template and a question
    const qint64 others = m_tray->tokens() - documents[index].tokens;
    const qint64 most = qint64{model->plan.max_context} - answer_room(model->plan.max_context) -
                        kQuestionRoom - others;
    auto* dialog = new PartDialog(documents[index], tokenIndex, most, this);
    dialog->setAttribute(Qt::WA_DeleteOnClose);
    connect(dialog, &QDialog::accepted, this,
            [this, dialog, index] { m_tray->replace(index, dialog->part()); });
    dialog->open();
}

void MainWindow::readAll(qint64 tokens) {
    const auto& model = m_engine->model();
    if (!model) return;
    const auto plan = settingsForContext(*model->planner, model->plan.settings, tokens);
    if (!plan) {
        showError(text(plan.error().what), text(plan.error().detail));
        return;
    }
    applyByDraft(plan->settings);
}

// As if a person had moved the controls: they show it, and Undo goes back.
void MainWindow::applyByDraft(const Settings& settings) {
    m_vram->draft().edit(settings);
    if (m_vram->draft().canApply())
        m_vram->draft().apply();
    else
        showError(tr("These settings do not fit"), m_vram->draft().refusal());
}

void MainWindow::tryFirstQuestion() {
    if (!m_options.firstQuestion || m_firstQuestionAsked || !m_welcome || !m_chat) return;
    if (m_engine->state() != State::idle || m_tray->count() == 0 || m_tray->reading() ||
        m_tray->counting()) {
        return;
    }
    m_firstQuestionAsked = true;
    m_chat->sendQuestion(m_welcome->questions.front().question);
}

}  // namespace granary::gui
