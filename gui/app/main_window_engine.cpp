// SPDX-License-Identifier: GPL-3.0-or-later
// The part of the window that speaks with the engine: models, settings, refusals, documents.
#include <spdlog/spdlog.h>
#include <QApplication>
#include <QClipboard>
#include <QDesktopServices>
#include <QDockWidget>
#include <QFileDialog>
#include <QFileInfo>
#include <QLocale>
#include <QMenu>
#include <QMessageBox>
#include <QToolBar>
#include <cstdio>

#include "granary/version.h"
#include "gui/app/actions.h"
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
#include "gui/documents/extractor.h"
#include "gui/library/chats_panel.h"
#include "gui/library/library.h"
#include "gui/plots/strip_plot.h"
#include "gui/settings/count_control.h"
#include "gui/settings/count_spin.h"
#include "gui/settings/settings_panel.h"
#include "gui/settings/settings_sheet.h"
#include "gui/theme/theme.h"
#include "gui/theme/units.h"
#include "gui/vram/vram_pane.h"
#include "gui/widgets/chip.h"
#include "gui/widgets/message_bar.h"

namespace granary::gui {

namespace {

constexpr uint64_t kStarterBudget = 40ull << 20;  // the card that the starter is shown on
constexpr uint64_t kStarterGranule = 64ull << 10;

QString text(const std::string& value) {
    return QString::fromStdString(value);
}

// Errors are written to stand inside a line; here they begin one.
QString sentence(const std::string& what) {
    const QString line = text(what);
    return line.left(1).toUpper() + line.mid(1);
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
            MessageBar::Kind::error, sentence(error.what),
            text(error.detail + (error.advice.empty() ? "" : ". " + error.advice)),
            {{tr("Open another model"), QStringLiteral("openAnother"), [this] { chooseModel(); }},
             {tr("Copy details"), QStringLiteral("copyDetails"),
              [error] { QApplication::clipboard()->setText(text(error.message())); }, false}});
    });
    connect(engine, &EngineController::readProgress, this,
            [this](quint32 done, quint32 total, double) {
                if (total)
                    m_stateChip->setText(tr("Reading %1 %").arg(quint64(done) * 100 / total));
            });
    connect(engine, &EngineController::memoryChanged, m_status, &StatusLine::setMemory);
    connect(engine, &EngineController::memoryChanged, this, [this](const MemoryFigures& figures) {
        if (figures.rates) m_vram->setRates(*figures.rates);
    });
    connect(engine, &EngineController::finished, m_status, &StatusLine::setReport);
    connect(engine, &EngineController::applied, this, [this](bool ok, const QString& message) {
        const auto& model = m_engine->model();
        if (ok && model && model->planner) m_vram->setPlanner(*model->planner);
        m_vram->applied(ok, message);
        if (!ok) {
            showError(tr("The settings were not applied"), message);
        } else if (model) {
            m_pane->bar()->dismiss();
            m_status->setContextMax(model->plan.max_context);
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
        showError(sentence(error.what), text(error.detail + ". " + error.advice));
    });
    connect(m_chat, &ChatController::questionSent, this, [this](const QString& question) {
        m_pane->bar()->dismiss();
        m_pane->hideQuestion(question);
    });
    connect(m_chat, &ChatController::answered, this, [this] {
        if (!m_options.firstQuestion || !m_firstQuestionAsked) return;
        m_options.firstQuestion = false;
        std::printf("Granary is open; first question answered in %.0f ms\n", m_chat->msToAnswer());
        std::fflush(stdout);
    });
    connect(m_tray, &DocumentTray::refused, this, [this](const Error& error) {
        showError(sentence(error.what),
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
            if (!m_options.given.contains(QLatin1String("device"))) settings.device = "host";
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
    m_loadSettings = settings;
    m_loadClock.start();
    m_engine->open(path, settings);
}

void MainWindow::onOpened(const LoadedModel& model) {
    m_vram->setEngine(model.telemetry, model.planner, model.plan.settings);
    showDevices();
    m_plot->setEngine(model.telemetry);
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

void MainWindow::showDevices() {
    const auto& model = m_engine->model();
    m_vram->sheet()->setDevices(
        model ? std::optional<gpu::DeviceInfo>(model->device) : std::nullopt, m_devices);
}

void MainWindow::showDeviceMenu() {
    const auto& model = m_engine->model();
    if (!model) return;
    auto* menu = new QMenu(this);
    menu->setObjectName(QStringLiteral("deviceMenu"));
    menu->setAttribute(Qt::WA_DeleteOnClose);
    menu->addSection(text(model->device.name));
    const bool host = model->device.id == "host";
    const bool card = host && model->device.face == gpu::Face::card;
    const auto choice = [&](const QString& label, bool checked, const std::string& device,
                            uint64_t budget) {
        QAction* action = menu->addAction(label, this, [this, device, budget] {
            Settings settings = m_engine->model()->plan.settings;
            settings.device = device;
            settings.vram_budget = budget;
            settings.granule = budget == kStarterBudget ? kStarterGranule : 0;
            applyByDraft(settings);
        });
        action->setCheckable(true);
        action->setChecked(checked);
        action->setEnabled(!checked && !m_engine->busy());
    };
    for (const gpu::FoundDevice& device : m_devices)
        if (device.usable() && device.id != "host")
            choice(deviceLabel(device), device.id == model->device.id, device.id, 0);
    choice(tr("CPU, full speed"), host && !card, "host", 0);
    const uint64_t budget = card ? model->plan.budget_bytes : kStarterBudget;
    choice(tr("Emulated card, %1 of RAM").arg(bytesText(budget)), card, "host", budget);
    menu->addSeparator();
    for (const gpu::FoundDevice& device : m_devices)
        if (!device.usable())
            menu->addAction(tr("%1: not used, %2").arg(text(device.name), text(device.note)))
                ->setEnabled(false);
    if (m_devices.size() < 2) menu->addAction(tr("No other device was found"))->setEnabled(false);
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
        choices.push_back(
            {tr("Choose part"), QStringLiteral("choosePart"), [this] { choosePart(0); }});
    }
    if (error.advice.find("max-context") != std::string::npos) {
        choices.push_back({tr("Change the longest context"), QStringLiteral("changeContext"),
                           [this] { showLongestContext(); }, false});
    }
    if (!m_chat->messages().isEmpty()) {
        choices.push_back(
            {tr("New chat"), QStringLiteral("refusedNewChat"), [this] { m_chat->newChat(); }});
    }
    m_pane->bar()->present(
        MessageBar::Kind::warning, sentence(error.what),
        text(error.detail + (error.advice.empty() || error.detail.empty() ? "" : ". ") +
             error.advice),
        std::move(choices));
    updateChips();
}

void MainWindow::showLongestContext() {
    if (m_vramDock->isHidden()) m_actions->toggleVram->trigger();
    m_vram->settings()->longestContext()->number()->setFocus(Qt::OtherFocusReason);
}

void MainWindow::showFailure(const Error& error, bool engineLost) {
    std::vector<MessageBar::Choice> choices;
    if (engineLost) {
        choices.push_back({tr("Reload"), QStringLiteral("reload"), [this] {
                               const auto& model = m_engine->model();
                               open(m_modelPath, model ? model->plan.settings : m_options.settings);
                           }});
    }
    choices.push_back({tr("Copy details"), QStringLiteral("copyDetails"),
                       [error] { QApplication::clipboard()->setText(text(error.message())); },
                       false});
    m_pane->bar()->present(MessageBar::Kind::error, sentence(error.what),
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

}  // namespace granary::gui
