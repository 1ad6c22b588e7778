// SPDX-License-Identifier: GPL-3.0-or-later
// The part of the window that speaks with the engine: models, settings, refusals, documents.
#include <spdlog/spdlog.h>
#include <QApplication>
#include <QClipboard>
#include <QDesktopServices>
#include <QDragEnterEvent>
#include <QFileDialog>
#include <QFileInfo>
#include <QJsonArray>
#include <QDockWidget>
#include <QLocale>
#include <QMenu>
#include <QMessageBox>
#include <QMimeData>
#include <QToolBar>
#include <cstdio>

#include "granary/version.h"
#include "gui/app/actions.h"
#include "gui/app/budget_search.h"
#include "gui/app/chat_controller.h"
#include "gui/app/chips.h"
#include "gui/app/main_window.h"
#include "gui/app/pane_layout.h"
#include "gui/app/status_line.h"
#include "gui/chat/chat_pane.h"
#include "gui/chat/composer.h"
#include "gui/chat/empty_state.h"
#include "gui/chat/find_bar.h"
#include "gui/chat/options_sheet.h"
#include "gui/chat/transcript.h"
#include "gui/documents/document_tray.h"
#include "gui/documents/drop_overlay.h"
#include "gui/documents/extractor.h"
#include "gui/documents/part_dialog.h"
#include "gui/library/chats_panel.h"
#include "gui/library/library.h"
#include "gui/plots/strip_plot.h"
#include "gui/settings/settings_sheet.h"
#include "gui/theme/theme.h"
#include "gui/theme/units.h"
#include "gui/vram/vram_pane.h"
#include "gui/widgets/chip.h"
#include "gui/widgets/message_bar.h"

namespace granary::gui {

namespace {

constexpr uint64_t kStarterBudget = 40ull << 20;   // the card that the starter is shown on
constexpr uint64_t kStarterGranule = 64ull << 10;
constexpr qint64 kMostContext = 1 << 20;

QString text(const std::string& value) { return QString::fromStdString(value); }

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

void MainWindow::connectEngine() {
    EngineController* engine = m_engine.get();
    connect(engine, &EngineController::stateChanged, this, &MainWindow::onStateChanged);
    connect(engine, &EngineController::closing, this, [this] {
        m_vram->clearEngine();
        m_plot->clearEngine();
        m_status->clearEngine();
        m_counter.setTokenizer(nullptr);
    });
    connect(engine, &EngineController::opened, this, &MainWindow::onOpened);
    connect(engine, &EngineController::loadProgress, this, [this](quint64 done, quint64 total) {
        m_pane->empty()->setLoadProgress(done, total,
                                         static_cast<double>(m_loadClock.elapsed()) / 1000.0);
        m_stateChip->setText(tr("Loading %1 %").arg(total ? done * 100 / total : 0));
    });
    connect(engine, &EngineController::openCancelled, this, [this] { m_modelPath.clear(); });
    connect(engine, &EngineController::openFailed, this, [this](const Error& error) {
        m_modelPath.clear();
        m_pane->bar()->present(
            MessageBar::Kind::error, text(error.what),
            text(error.detail + (error.advice.empty() ? "" : ". " + error.advice)),
            {{tr("Open another model"), QStringLiteral("openAnother"), [this] { chooseModel(); }},
             {tr("Copy details"), QStringLiteral("copyDetails"),
              [error] { QApplication::clipboard()->setText(text(error.message())); }, false}});
    });
    connect(engine, &EngineController::readProgress, this,
            [this](quint32 done, quint32 total, double) {
                if (total) m_stateChip->setText(tr("Reading %1 %").arg(quint64(done) * 100 / total));
            });
    connect(engine, &EngineController::memoryChanged, m_status, &StatusLine::setMemory);
    connect(engine, &EngineController::finished, m_status, &StatusLine::setReport);
    connect(engine, &EngineController::applied, this, [this](bool ok, const QString& message) {
        m_vram->applied(ok, message);
        const auto& model = m_engine->model();
        if (!ok) {
            showError(tr("The settings were not applied"), message);
        } else if (model) {
            m_pane->bar()->dismiss();
            m_status->setContextMax(model->plan.max_context);
            // Another face is another machine to the map.
            if (m_shownFace != model->device.face) {
                m_vram->setEngine(model->telemetry, model->planner, model->plan.settings);
            }
            m_shownFace = model->device.face;
        }
        updateChips();
        updateHint();
    });

    connect(m_vram, &VramPane::applyRequested, this, &MainWindow::applySettings);
    connect(m_pane->transcript(), &Transcript::replayRequested, m_vram, [this] {
        if (m_vramDock->isHidden()) m_actions->toggleVram->trigger();
        m_vram->replaySlowly();
    });
    connect(m_pane->transcript(), &Transcript::linkActivated, this, &MainWindow::askAboutLink);
    connect(m_pane->transcript(), &Transcript::linkHovered, this, [this](const QUrl& link) {
        statusBar()->showMessage(link.isEmpty() ? QString() : link.toDisplayString());
    });
    connect(m_pane->empty(), &EmptyState::modelChosen, this, &MainWindow::openModel);
    connect(m_pane, &ChatPane::questionChosen, m_chat, &ChatController::sendQuestion);
    connect(m_pane->composer(), &Composer::submitted, m_actions->send, &QAction::trigger);
    connect(m_pane->composer(), &Composer::longPaste, this, [this](const QString& pasted) {
        m_tray->add(pastedDocument(pasted, tr("Pasted text")));
    });
    connect(m_pane->bar(), &MessageBar::dismissed, engine, &EngineController::edit);
    // Any edit answers a refusal.
    connect(m_pane->composer(), &Composer::edited, this, [this] {
        if (m_engine->state() == State::refused || m_engine->state() == State::failed) {
            m_pane->bar()->dismiss();
        }
    });

    connect(m_chat, &ChatController::changed, this, [this] {
        updateActions();
        updateCentre();
        updateHint();
        updateQuestions();
    });
    connect(m_chat, &ChatController::refused, this, &MainWindow::showRefusal);
    connect(m_chat, &ChatController::failed, this, &MainWindow::showFailure);
    connect(m_chat, &ChatController::storeFailed, this, [this](const Error& error) {
        showError(text(error.what), text(error.detail + ". " + error.advice));
    });
    connect(m_chat, &ChatController::questionSent, this, [this](const QString& question) {
        m_pane->bar()->dismiss();
        m_pane->hideQuestion(question);
    });
    connect(m_chat, &ChatController::answered, this, [this] {
        if (!m_options.firstQuestion || !m_firstQuestionAsked) return;
        m_options.firstQuestion = false;
        std::printf("Granary is open; first question answered in %.0f ms\n",
                    m_chat->msToAnswer());
        std::fflush(stdout);
    });
    connect(m_tray, &DocumentTray::refused, this, [this](const Error& error) {
        showError(text(error.what),
                  text(error.detail + (error.advice.empty() ? "" : ". " + error.advice)));
    });
    connect(m_tray, &DocumentTray::counted, this, &MainWindow::checkDocument);
    connect(m_tray, &DocumentTray::changed, this, &MainWindow::tryFirstQuestion);
    if (m_welcome) {
        QStringList questions;
        for (const SampleQuestion& sample : m_welcome->questions) questions << sample.question;
        m_pane->setQuestions(questions);
        m_pane->showQuestions(false);
    }
}

void MainWindow::connectActions() {
    const auto on = [this](QAction* action, auto&& what) {
        connect(action, &QAction::triggered, this, std::forward<decltype(what)>(what));
    };
    on(m_actions->openModel, [this] { chooseModel(); });
    on(m_actions->openStarter, [this] { openModel(starterModelPath()); });
    on(m_actions->closeModel, [this] {
        m_modelPath.clear();
        m_engine->close();
    });
    on(m_actions->attach, [this] { chooseDocuments(); });
    on(m_actions->quit, [this] { close(); });
    on(m_actions->newChat, [this] {
        m_pane->bar()->dismiss();
        m_engine->edit();
        m_chat->newChat();
    });
    on(m_actions->send, [this] { m_chat->send(); });
    on(m_actions->stop, [this] { m_engine->stop(); });
    on(m_actions->continueAnswer, [this] { m_chat->continueAnswer(); });
    on(m_actions->regenerate, [this] { m_chat->regenerate(); });
    on(m_actions->editLast, [this] { m_chat->editLast(); });
    connect(m_chat, &ChatController::editingBegan, this, [this] {
        m_pane->bar()->present(
            MessageBar::Kind::information, tr("Editing your last question"),
            tr("Sending replaces it and its answer."),
            {{tr("Cancel"), QStringLiteral("cancelEdit"), [this] { m_chat->cancelEdit(); }}});
    });
    on(m_actions->copyAnswer, [this] {
        for (auto at = m_chat->messages().crbegin(); at != m_chat->messages().crend(); ++at) {
            if (at->role != Role::assistant) continue;
            QApplication::clipboard()->setText(at->text);
            return;
        }
    });
    on(m_actions->find, [this] { m_pane->findBar()->open(); });
    on(m_actions->nextPane, [this] { focusPane(1); });
    on(m_actions->previousPane, [this] { focusPane(-1); });
    on(m_actions->resetLayout, [this] {
        m_profile.forgetLayouts();
        applyFirstLayout();
        fold();
    });
    const auto toggle = [this, &on](QAction* action, QDockWidget* dock, bool& folded) {
        on(action, [this, dock, action, &folded] {
            dock->setVisible(action->isChecked());
            folded = false;
            // The narrowest windows have room for one side pane beside the text.
            if (width() < kVramFolds && !dock->isHidden()) {
                QDockWidget* other = dock == m_vramDock ? m_libraryDock : m_vramDock;
                if (!other->isHidden()) {
                    other->hide();
                    (dock == m_vramDock ? m_libraryFolded : m_vramFolded) = true;
                }
            }
            showRails();
        });
    };
    toggle(m_actions->toggleLibrary, m_libraryDock, m_libraryFolded);
    toggle(m_actions->toggleVram, m_vramDock, m_vramFolded);
    on(m_actions->toggleBottom,
       [this] { m_bottomDock->setVisible(m_actions->toggleBottom->isChecked()); });
    const auto theme = [this, &on](QAction* action, ThemeMode mode) {
        on(action, [this, mode] {
            m_theme.setMode(mode);
            m_profile.setTheme(Theme::name(mode));
        });
    };
    theme(m_actions->themeSystem, ThemeMode::System);
    theme(m_actions->themeLight, ThemeMode::Light);
    theme(m_actions->themeDark, ThemeMode::Dark);
    on(m_actions->about, [this] {
        auto* box = new QMessageBox(
            QMessageBox::NoIcon, tr("About Granary"),
            tr("Granary %1\n\nMixture-of-Experts language models at long contexts on one "
               "computer.\nGNU General Public Licence, version 3 or later.")
                .arg(QLatin1String(version())),
            QMessageBox::Close, this);
        box->setAttribute(Qt::WA_DeleteOnClose);
        box->open();
    });
    connect(m_modelChip, &Chip::clicked, this, [this] { chooseModel(); });
    connect(m_deviceChip, &Chip::clicked, this, [this] { showDeviceMenu(); });
    connect(m_stateChip, &Chip::clicked, this, [this] {
        m_actions->toggleBottom->setChecked(m_bottomDock->isHidden());
        m_bottomDock->setVisible(m_bottomDock->isHidden());
    });
    connect(&m_theme, &Theme::changed, this, [this] {
        styleTabs();
        updateChips();
    });
}

// ---- models and settings ---------------------------------------------------------------------

void MainWindow::chooseModel() {
    auto* dialog = new QFileDialog(this, tr("Open a model"), QFileInfo(m_modelPath).path(),
                                   tr("Models (*.gguf);;All files (*)"));
    dialog->setObjectName(QStringLiteral("openDialog"));
    dialog->setFileMode(QFileDialog::ExistingFile);
    dialog->setAttribute(Qt::WA_DeleteOnClose);
    connect(dialog, &QFileDialog::fileSelected, this, &MainWindow::openModel);
    dialog->open();
}

void MainWindow::chooseDocuments() {
    auto* dialog = new QFileDialog(
        this, tr("Add documents"), {},
        tr("Documents (*.txt *.md *.pdf *.c *.cpp *.h *.py *.rs *.js *.ts *.go *.java);;"
           "All files (*)"));
    dialog->setObjectName(QStringLiteral("documentDialog"));
    dialog->setFileMode(QFileDialog::ExistingFiles);
    dialog->setAttribute(Qt::WA_DeleteOnClose);
    connect(dialog, &QFileDialog::filesSelected, this, &MainWindow::dropFiles);
    dialog->open();
}

void MainWindow::openModel(const QString& path) {
    if (path.isEmpty()) return;
    Settings settings = m_options.settings;
    if (isStarterModel(path)) {
        // The starter shows what the program does: on a card small enough to see it.
        if (!m_options.given.contains(QLatin1String("vram-budget"))) {
            settings.vram_budget = kStarterBudget;
            if (!m_options.given.contains(QLatin1String("granule"))) {
                settings.granule = kStarterGranule;
            }
        }
    }
    open(path, settings);
}

void MainWindow::open(const QString& path, const Settings& settings) {
    m_modelPath = path;
    m_loadClock.start();
    m_engine->open(path, settings);
}

void MainWindow::onOpened(const LoadedModel& model) {
    m_vram->setEngine(model.telemetry, model.planner, model.plan.settings);
    m_vram->sheet()->setDevices(text(model.device.name), m_unusedDevices);
    m_plot->setEngine(model.telemetry);
    m_shownFace = model.device.face;
    m_status->setEngine(&model.telemetry->counters, model.plan.max_context);
    m_counter.setTokenizer(model.tokenizer);
    m_tray->recount();
    m_chat->setDefaultTemperature(isStarterModel(model.path) ? 0.0 : 0.7);
    m_profile.addRecentModel(model.path);
    setWindowTitle(tr("%1 - Granary").arg(text(model.facts.name)));
    updateChips();
}

void MainWindow::applySettings(const Settings& settings) {
    const auto& model = m_engine->model();
    if (!model) {
        m_vram->applied(false, tr("No model is open"));
        return;
    }
    m_engine->apply(settings);
}

Result<void> MainWindow::scriptSet(const QString& name, const QString& value) {
    if (m_engine->model()) return m_vram->draft().set(name, value);
    const auto set = m_options.settings.set(name.toStdString(), value.toStdString());
    if (set) m_options.given << name;
    return set;
}

void MainWindow::showDeviceMenu() {
    const auto& model = m_engine->model();
    if (!model) return;
    auto* menu = new QMenu(this);
    menu->setObjectName(QStringLiteral("deviceMenu"));
    menu->setAttribute(Qt::WA_DeleteOnClose);
    menu->addSection(text(model->device.name));
    const bool card = model->device.face == gpu::Face::card;
    const auto face = [&](const QString& label, bool checked, uint64_t budget) {
        QAction* action = menu->addAction(label, this, [this, budget] {
            Settings settings = m_engine->model()->plan.settings;
            settings.vram_budget = budget;
            settings.granule = budget == kStarterBudget ? kStarterGranule : 0;
            applyByDraft(settings);
        });
        action->setCheckable(true);
        action->setChecked(checked);
        action->setEnabled(!checked && !m_engine->busy());
    };
    face(tr("CPU, full speed"), !card, 0);
    const uint64_t budget = card ? model->plan.budget_bytes : kStarterBudget;
    face(tr("Emulated card, %1 of RAM").arg(bytesText(budget)), card, budget);
    menu->addSeparator();
    if (m_unusedDevices.empty()) {
        menu->addAction(tr("No other device was found"))->setEnabled(false);
    }
    for (const gpu::UnusedDevice& device : m_unusedDevices) {
        menu->addAction(tr("%1: not used, %2").arg(text(device.name), text(device.reason)))
            ->setEnabled(false);
    }
    menu->addSeparator();
    menu->addAction(tr("All settings\u2026"), m_vram, &VramPane::openSheet);
    menu->popup(m_deviceChip->mapToGlobal(QPoint(0, m_deviceChip->height() + 2)));
}

// ---- messages --------------------------------------------------------------------------------

void MainWindow::showError(const QString& what, const QString& detail) {
    spdlog::warn("{}: {}", what.toStdString(), detail.toStdString());
    m_pane->bar()->present(MessageBar::Kind::error, what, detail, {});
    updateChips();
}

void MainWindow::showRefusal(const Error& error) {
    std::vector<MessageBar::Choice> choices;
    if (m_tray->count() > 0 && m_engine->model()) {
        choices.push_back({tr("Choose part"), QStringLiteral("choosePart"),
                           [this] { choosePart(0); }});
    }
    if (!m_chat->messages().isEmpty()) {
        choices.push_back({tr("New chat"), QStringLiteral("refusedNewChat"),
                           [this] { m_chat->newChat(); }});
    }
    m_pane->bar()->present(
        MessageBar::Kind::warning, text(error.what),
        text(error.detail + (error.advice.empty() || error.detail.empty() ? "" : ". ") +
             error.advice),
        std::move(choices));
    updateChips();
}

void MainWindow::showFailure(const Error& error, bool engineLost) {
    std::vector<MessageBar::Choice> choices;
    if (engineLost) {
        choices.push_back({tr("Reload"), QStringLiteral("reload"), [this] {
                               const auto& model = m_engine->model();
                               open(m_modelPath, model ? model->plan.settings
                                                       : m_options.settings);
                           }});
    }
    choices.push_back({tr("Copy details"), QStringLiteral("copyDetails"),
                       [error] { QApplication::clipboard()->setText(text(error.message())); },
                       false});
    m_pane->bar()->present(MessageBar::Kind::error, text(error.what),
                           text(error.detail + (error.advice.empty() ? "" : ". " + error.advice)),
                           std::move(choices));
    updateChips();
}

void MainWindow::askAboutLink(const QUrl& link) {
    const QString shown = link.toDisplayString();
    std::vector<MessageBar::Choice> choices;
    const QStringList known{QStringLiteral("http"), QStringLiteral("https"),
                            QStringLiteral("mailto")};
    if (known.contains(link.scheme().toLower())) {
        choices.push_back({tr("Open in the browser"), QStringLiteral("openLink"),
                           [link] { QDesktopServices::openUrl(link); }});
    }
    choices.push_back({tr("Copy the link"), QStringLiteral("copyLink"),
                       [shown] { QApplication::clipboard()->setText(shown); }});
    m_pane->bar()->present(MessageBar::Kind::question, tr("This link leaves Granary"), shown,
                           std::move(choices));
}

// ---- documents -------------------------------------------------------------------------------

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

void MainWindow::dragLeaveEvent(QDragLeaveEvent*) { m_overlay->hide(); }

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
    const QString what =
        tr("%1: %2 tokens; this model was trained for %3")
            .arg(document.label(), locale.toString(document.tokens),
                 locale.toString(model->facts.trained_context));
    std::vector<MessageBar::Choice> choices;
    choices.push_back(
        {tr("Choose part"), QStringLiteral("choosePart"), [this, index] { choosePart(index); },
         true, true});
    QString detail;
    if (tokens + 2048 > kMostContext) {
        detail = tr("Granary reads at most %1 tokens at once.").arg(locale.toString(kMostContext));
    } else {
        const auto needed = settingsForContext(*model->planner, plan.settings, tokens);
        if (needed) {
            const bool nonsense = tokens > model->facts.trained_context;
            QStringList cost{
                tr("needs %1").arg(bytesText(needed->budget_bytes))};
            const double seconds =
                m_engine->memory().readCost.seconds(static_cast<double>(tokens));
            if (seconds > 0) cost << tr("about %1").arg(durationText(seconds));
            if (nonsense) cost << tr("the answer will be nonsense");
            choices.push_back({(nonsense ? tr("Read all: memory demonstration, %1")
                                         : tr("Read all: %1"))
                                   .arg(cost.join(QStringLiteral(", "))),
                               QStringLiteral("readAll"), [this, tokens] { readAll(tokens); }});
        } else {
            detail = text(needed.error().message());
        }
    }
    choices.push_back({tr("Open another model"), QStringLiteral("openAnother"),
                       [this] { chooseModel(); }});
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
    if (m_vram->draft().canApply()) m_vram->draft().apply();
    else showError(tr("These settings do not fit"), m_vram->draft().refusal());
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

// ---- for scripts -----------------------------------------------------------------------------

void MainWindow::scriptMeasure(bool on) {
    if (on) m_heartbeat.resume();
    else m_heartbeat.pause();
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
                text(model->plan.settings.get(entry.name));
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
