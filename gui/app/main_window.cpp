// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/app/main_window.h"

#include <spdlog/spdlog.h>
#include <QCloseEvent>
#include <QDockWidget>
#include <QFileInfo>
#include <QHBoxLayout>
#include <QLocale>
#include <QMenuBar>
#include <QPushButton>
#include <QScreen>
#include <QTabWidget>
#include <QThreadPool>
#include <QToolBar>
#include <cstdio>

#include "gui/app/actions.h"
#include "gui/app/chat_controller.h"
#include "gui/app/chips.h"
#include "gui/app/pane_layout.h"
#include "gui/app/status_line.h"
#include "gui/chat/chat_pane.h"
#include "gui/chat/composer.h"
#include "gui/chat/empty_state.h"
#include "gui/chat/find_bar.h"
#include "gui/chat/transcript.h"
#include "gui/documents/document_tray.h"
#include "gui/documents/drop_overlay.h"
#include "gui/library/chats_panel.h"
#include "gui/library/library.h"
#include "gui/logs/log_view.h"
#include "gui/plots/strip_plot.h"
#include "gui/settings/settings_sheet.h"
#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"
#include "gui/vram/card_bar.h"
#include "gui/vram/vram_pane.h"
#include "gui/widgets/chip.h"
#include "gui/widgets/message_bar.h"

namespace granary::gui {

MainWindow::MainWindow(const Options& options, Profile& profile, Theme& theme)
    : m_options(options),
      m_profile(profile),
      m_theme(theme),
      m_welcome(loadWelcome()),
      m_engine(std::make_unique<EngineController>()),
      m_library(std::make_unique<Library>(profile.chatsPath())),
      m_actions(new Actions(this)) {
    setObjectName(QStringLiteral("granary"));
    setWindowTitle(tr("Granary"));
    setAccessibleName(tr("Granary"));
    setMinimumSize(kLeastWindow);
    setAcceptDrops(true);
    setDockNestingEnabled(false);
    setContextMenuPolicy(Qt::NoContextMenu);
    // Side docks have the full height; the bottom dock lies between them.
    setCorner(Qt::BottomLeftCorner, Qt::LeftDockWidgetArea);
    setCorner(Qt::BottomRightCorner, Qt::RightDockWidgetArea);

    makeCentre();
    makeDocks();
    makeToolBar();
    makeRails();
    makeMenus();
    m_status = new StatusLine;
    setStatusBar(m_status);
    m_overlay = new DropOverlay(this);
    m_chat = new ChatController(*m_engine, *m_library, *m_pane, *m_chats, *m_tray, this);
    connectEngine();
    connectActions();

    // The list of devices may take a driver a while to tell.
    QThreadPool::globalInstance()->start([this, guard = QPointer<MainWindow>(this)] {
        auto devices = std::make_shared<std::vector<gpu::FoundDevice>>(gpu::found_devices());
        QMetaObject::invokeMethod(qApp, [this, guard, devices] {
            if (!guard) return;
            m_devices = *devices;
            showDevices();
        });
    });
    onStateChanged(State::no_model);
    restoreLayout();
}

MainWindow::~MainWindow() {
    // In the order in which they use each other: nobody looks at telemetry that ends; the engine
    // ends and tells the chat its last text; that is stored before the store goes.
    m_vram->clearEngine();
    m_plot->clearEngine();
    m_status->clearEngine();
    m_engine->disconnect(this);
    m_chat->disconnect(this);
    m_engine->shutDown();
    delete m_chat;
    m_engine.reset();
    spdlog::default_logger()->sinks().pop_back();  // the log view's goes with the window
}

void MainWindow::makeCentre() {
    m_tray = new DocumentTray(m_counter);
    m_pane = new ChatPane(
        {m_actions->attach, m_actions->chatOptions, m_actions->send, m_actions->stop}, m_tray);
    setCentralWidget(m_pane);
}

void MainWindow::makeDocks() {
    const auto dock = [this](const char* name, const QString& title, QWidget* content,
                             Qt::DockWidgetArea area) {
        auto* dock = new QDockWidget(title, this);
        dock->setObjectName(QLatin1String(name));
        dock->setAccessibleName(title);
        dock->setFeatures(QDockWidget::NoDockWidgetFeatures);
        dock->setTitleBarWidget(new QWidget);  // each pane has a head of its own
        dock->setWidget(content);
        addDockWidget(area, dock);
        return dock;
    };
    m_chats = new ChatsPanel(m_actions->newChat);
    m_chats->setMinimumWidth(160);
    m_libraryDock = dock("library", tr("Chats"), m_chats, Qt::LeftDockWidgetArea);

    m_vram = new VramPane;
    m_vramDock = dock("vramDock", tr("Memory map"), m_vram, Qt::RightDockWidgetArea);

    m_plot = new StripPlot;
    m_log = new LogView;
    spdlog::default_logger()->sinks().push_back(m_log->sink());
    m_bottomTabs = new QTabWidget;
    m_bottomTabs->setObjectName(QStringLiteral("bottomTabs"));
    m_bottomTabs->setAccessibleName(tr("Time and log"));
    m_bottomTabs->setDocumentMode(true);
    m_bottomTabs->addTab(m_plot, tr("Time"));
    m_bottomTabs->addTab(m_log, tr("Log"));
    styleTabs();
    m_bottomDock = dock("bottom", tr("Time and log"), m_bottomTabs, Qt::BottomDockWidgetArea);
}

// Flat tabs with a line under the current one.
void MainWindow::styleTabs() {
    const Tones& tones = Theme::tones(m_theme.dark());
    m_bottomTabs->setStyleSheet(
        QStringLiteral("QTabWidget::pane { border: 0; border-top: 1px solid %1; }"
                       "QTabBar { qproperty-drawBase: 0; }"
                       "QTabBar::tab { border: 0; border-bottom: 2px solid transparent;"
                       " padding: 6px 12px; color: %2; background: transparent; }"
                       "QTabBar::tab:hover { color: %3; }"
                       "QTabBar::tab:selected { color: %3; border-bottom-color: %4; }")
            .arg(tones.border.name(), tones.muted.name(),
                 Theme::palette(m_theme.dark()).color(QPalette::WindowText).name(),
                 tones.accent.name()));
}

void MainWindow::makeToolBar() {
    m_toolBar = addToolBar(tr("Main"));
    m_toolBar->setObjectName(QStringLiteral("mainBar"));
    m_toolBar->setMovable(false);
    m_toolBar->setFloatable(false);
    m_toolBar->setFixedHeight(metrics::kToolBar);
    m_toolBar->setStyleSheet(QStringLiteral("QToolBar { padding: 0; }"));
    // One row of our own: a hidden chip leaves no gap, and heights are ours.
    auto* content = new QWidget;
    content->setMinimumHeight(metrics::kControl + 4);
    auto* row = new QHBoxLayout(content);
    row->setContentsMargins(metrics::kGrid, 0, metrics::kGrid, 0);
    row->setSpacing(metrics::kGrid);
    const auto chip = [row](const char* name) {
        auto* chip = new Chip;
        chip->setObjectName(QLatin1String(name));
        chip->setMaximumTextWidth(230);
        chip->setOutlined(true);
        row->addWidget(chip);
        return chip;
    };
    m_modelChip = chip("modelChip");
    m_deviceChip = chip("deviceChip");
    m_stateChip = chip("stateChip");
    // Wide enough for all it will say, so that the bar beside it stands still.
    m_stateChip->setDot(palette().color(QPalette::Highlight));
    m_stateChip->setText(tr("Reading %1 %").arg(100));
    m_stateChip->setMinimumWidth(m_stateChip->sizeHint().width());
    auto* stop = new QPushButton(m_actions->stop->text());
    stop->setObjectName(QStringLiteral("stopButton"));
    stop->setAccessibleName(m_actions->stop->text());
    stop->setToolTip(m_actions->stop->toolTip());
    stop->setFixedHeight(metrics::kControl);
    stop->setEnabled(false);
    connect(stop, &QPushButton::clicked, m_actions->stop, &QAction::trigger);
    connect(m_actions->stop, &QAction::changed, stop,
            [this, stop] { stop->setEnabled(m_actions->stop->isEnabled()); });
    row->addWidget(stop);
    m_cardBar = new CardBar;
    row->addWidget(m_cardBar, 1);
    m_toolBar->addWidget(content);
    m_toolBar->layout()->setContentsMargins(0, 0, 0, 0);
    m_vram->setCardBar(m_cardBar);
}

void MainWindow::makeRails() {
    const auto rail = [this](const char* name, const QString& title, Qt::ToolBarArea area,
                             std::initializer_list<QAction*> actions) {
        auto* bar = new QToolBar(title);
        bar->setObjectName(QLatin1String(name));
        bar->setMovable(false);
        bar->setIconSize({16, 16});
        for (QAction* action : actions) {
            bar->addAction(action);
            bar->widgetForAction(action)->setAccessibleName(action->text());
        }
        addToolBar(area, bar);
        bar->hide();
        return bar;
    };
    m_libraryRail = rail("libraryRail", tr("Chats"), Qt::LeftToolBarArea,
                         {m_actions->toggleLibrary, m_actions->newChat});
    m_vramRail = rail("vramRail", tr("Memory map"), Qt::RightToolBarArea, {m_actions->toggleVram});
}

void MainWindow::makeMenus() {
    QMenu* file = menuBar()->addMenu(tr("&File"));
    file->addAction(m_actions->newChat);
    file->addSeparator();
    file->addAction(m_actions->openModel);
    file->addAction(m_actions->openStarter);
    QMenu* recent = file->addMenu(tr("Open &recent"));
    connect(recent, &QMenu::aboutToShow, this, [this, recent] {
        recent->clear();
        for (const QString& path : m_profile.recentModels()) {
            recent->addAction(QFileInfo(path).fileName(), this, [this, path] { openModel(path); })
                ->setToolTip(path);
        }
        if (recent->isEmpty()) recent->addAction(tr("No model was opened yet"))->setEnabled(false);
    });
    file->addAction(m_actions->closeModel);
    file->addSeparator();
    file->addAction(m_actions->attach);
    file->addSeparator();
    file->addAction(m_actions->quit);

    QMenu* chat = menuBar()->addMenu(tr("&Chat"));
    for (QAction* action :
         {m_actions->stop, m_actions->continueAnswer, m_actions->regenerate, m_actions->editLast,
          m_actions->copyAnswer, m_actions->find, m_actions->chatOptions}) {
        chat->addAction(action);
    }

    QMenu* memory = menuBar()->addMenu(tr("&Memory"));
    memory->addAction(m_vram->applyAction());
    memory->addAction(m_vram->undoAction());
    memory->addSeparator();
    memory->addAction(m_vram->replayAction());
    memory->addAction(m_vram->stopReplayAction());
    memory->addAction(m_vram->tableAction());
    memory->addSeparator();
    memory->addAction(tr("&Device and memory\u2026"), m_vram, &VramPane::openSheet)
        ->setObjectName(QStringLiteral("settings"));

    QMenu* view = menuBar()->addMenu(tr("&View"));
    view->addAction(m_actions->toggleLibrary);
    view->addAction(m_actions->toggleVram);
    view->addAction(m_actions->toggleBottom);
    view->addAction(m_actions->resetLayout);
    view->addSeparator();
    QMenu* theme = view->addMenu(tr("&Colours"));
    for (QAction* action : {m_actions->themeSystem, m_actions->themeLight, m_actions->themeDark}) {
        theme->addAction(action);
    }
    view->addSeparator();
    view->addAction(m_actions->nextPane);
    view->addAction(m_actions->previousPane);

    QMenu* help = menuBar()->addMenu(tr("&Help"));
    help->addAction(m_actions->about);
}

void MainWindow::begin() {
    const ThemeMode mode = m_theme.mode();
    m_actions->themeSystem->setChecked(mode == ThemeMode::System);
    m_actions->themeLight->setChecked(mode == ThemeMode::Light);
    m_actions->themeDark->setChecked(mode == ThemeMode::Dark);
    if (!m_options.model.isEmpty()) openModel(QFileInfo(m_options.model).absoluteFilePath());
    if (!m_options.document.isEmpty()) {
        dropFiles({QFileInfo(m_options.document).absoluteFilePath()});
    }
    m_pane->composer()->input()->setFocus();
}

void MainWindow::paintEvent(QPaintEvent* event) {
    QMainWindow::paintEvent(event);
    if (m_painted) return;
    m_painted = true;
    // Usable once the first picture is out and the event loop is idle again.
    QTimer::singleShot(0, this, [this] {
        m_msToUsable = msSinceProcessStart();
        m_heartbeat.start();
        Q_EMIT usable(m_msToUsable);
    });
}

// ---- layout ----------------------------------------------------------------------------------

QSize MainWindow::layoutKey() const {
    if (m_options.size.isValid()) return m_options.size;
    return screen() ? screen()->size() : QSize(1366, 768);
}

void MainWindow::restoreLayout() {
    const QSize key = layoutKey();
    if (m_options.size.isValid()) {
        resize(m_options.size);
    } else if (!restoreGeometry(m_profile.geometry(key))) {
        const QRect area = screen() ? screen()->availableGeometry() : QRect(0, 0, 1366, 768);
        setGeometry(area);
    }
    const QByteArray state = m_profile.layout(key);
    if (state.isEmpty() || !restoreState(state)) applyFirstLayout();
    m_libraryRail->hide();
    m_vramRail->hide();
    m_toolBar->show();
    m_laidOut = true;
    fold();
}

void MainWindow::applyFirstLayout() {
    const PaneSizes sizes = firstSizes(size());
    m_libraryDock->show();
    m_vramDock->show();
    m_bottomDock->setVisible(sizes.bottom > 0);
    resizeDocks({m_libraryDock, m_vramDock}, {sizes.library, sizes.vram}, Qt::Horizontal);
    if (sizes.bottom > 0) resizeDocks({m_bottomDock}, {sizes.bottom}, Qt::Vertical);
    m_libraryFolded = m_vramFolded = false;
}

void MainWindow::saveLayout() {
    if (m_options.size.isValid()) return;  // a size for this run only
    // A folded pane is open: only this window is too narrow for it.
    m_libraryDock->setVisible(m_libraryDock->isVisible() || m_libraryFolded);
    m_vramDock->setVisible(m_vramDock->isVisible() || m_vramFolded);
    m_profile.setLayout(layoutKey(), saveState());
    m_profile.setGeometry(layoutKey(), saveGeometry());
}

void MainWindow::fold() {
    if (!m_laidOut) return;
    const auto foldPane = [](QDockWidget* dock, bool narrow, bool& folded) {
        if (narrow && !folded && !dock->isHidden()) {
            folded = true;
            dock->hide();
        } else if (!narrow && folded) {
            folded = false;
            dock->show();
        }
    };
    foldPane(m_libraryDock, width() < kLibraryFolds, m_libraryFolded);
    foldPane(m_vramDock, width() < kVramFolds, m_vramFolded);
    showRails();
}

void MainWindow::showRails() {
    m_libraryRail->setVisible(width() < kLibraryFolds && m_libraryDock->isHidden());
    m_vramRail->setVisible(width() < kVramFolds && m_vramDock->isHidden());
    m_actions->toggleLibrary->setChecked(!m_libraryDock->isHidden());
    m_actions->toggleVram->setChecked(!m_vramDock->isHidden());
    m_actions->toggleBottom->setChecked(!m_bottomDock->isHidden());
}

void MainWindow::resizeEvent(QResizeEvent* event) {
    QMainWindow::resizeEvent(event);
    const bool crossed =
        (event->oldSize().width() < kLibraryFolds) != (event->size().width() < kLibraryFolds) ||
        (event->oldSize().width() < kVramFolds) != (event->size().width() < kVramFolds);
    if (crossed) fold();
}

void MainWindow::focusPane(int direction) {
    QList<QWidget*> panes;
    for (QWidget* pane : {static_cast<QWidget*>(m_chats), static_cast<QWidget*>(m_pane),
                          static_cast<QWidget*>(m_vram), static_cast<QWidget*>(m_bottomTabs)}) {
        if (pane->isVisible()) panes << pane;
    }
    qsizetype now = -1;
    QWidget* focus = focusWidget();
    for (qsizetype i = 0; i < panes.size(); ++i) {
        if (focus && (panes[i] == focus || panes[i]->isAncestorOf(focus))) now = i;
    }
    const qsizetype next = (now + direction + panes.size()) % panes.size();
    QWidget* target = panes[next];
    if (target == m_pane) {
        m_pane->composer()->input()->setFocus(Qt::ShortcutFocusReason);
        return;
    }
    for (QWidget* inner : target->findChildren<QWidget*>()) {
        if (inner->isVisible() && inner->isEnabled() && inner->focusPolicy() & Qt::TabFocus) {
            inner->setFocus(Qt::ShortcutFocusReason);
            return;
        }
    }
}

void MainWindow::closeEvent(QCloseEvent* event) {
    saveLayout();
    m_engine->stop();
    QMainWindow::closeEvent(event);
}

// ---- what the window shows -------------------------------------------------------------------

void MainWindow::onStateChanged(State state) {
    m_status->setState(state);
    m_vram->setBusy(m_engine->busy());
    if (state == State::loading) m_vram->expect(m_loadSettings);
    if (state == State::no_model) m_vram->clearEngine();
    m_pane->composer()->setAnswering(m_engine->busy());
    updateChips();
    updateActions();
    updateCentre();
    updateHint();
    tryFirstQuestion();
    Q_EMIT stateChanged(state);
}

void MainWindow::updateActions() {
    const State state = m_engine->state();
    const bool model = m_engine->model().has_value();
    m_actions->send->setEnabled(m_chat && m_chat->canSend());
    m_actions->stop->setEnabled(m_engine->busy() || state == State::loading);
    m_actions->continueAnswer->setEnabled(m_chat && m_chat->canContinue());
    m_actions->regenerate->setEnabled(m_chat && m_chat->canRegenerate());
    m_actions->editLast->setEnabled(m_chat && m_chat->canSend() && !m_chat->messages().isEmpty());
    m_actions->copyAnswer->setEnabled(m_chat && !m_chat->messages().isEmpty());
    m_actions->find->setEnabled(m_chat && !m_chat->messages().isEmpty());
    m_actions->newChat->setEnabled(m_chat && !m_engine->busy() && !m_chat->pending());
    m_actions->closeModel->setEnabled(model);
    m_actions->openStarter->setEnabled(!starterModelPath().isEmpty());
    m_pane->setQuestionsEnabled(m_chat && m_chat->canSend());
    // As soon as it can be written, it is where a person writes.
    QWidget* input = m_pane->composer()->input();
    const bool writable = state != State::no_model && state != State::lost;
    const bool came = writable && !input->isEnabled();
    input->setEnabled(writable);
    if (came) input->setFocus(Qt::OtherFocusReason);
}

void MainWindow::updateChips() {
    const State state = m_engine->state();
    const auto& model = m_engine->model();
    m_modelChip->setIcon(icon(Glyph::chip));
    m_modelChip->setText(m_modelPath.isEmpty() ? tr("No model")
                         : model               ? QString::fromStdString(model->facts.name)
                                               : QFileInfo(m_modelPath).fileName());
    m_modelChip->setToolTip(m_modelPath.isEmpty() ? tr("Open a model") : m_modelPath);
    m_modelChip->setAccessibleName(tr("Model: %1").arg(m_modelChip->text()));
    m_deviceChip->setVisible(model.has_value());
    if (model) {
        m_deviceChip->setText(deviceText(*model));
        m_deviceChip->setToolTip(QString::fromStdString(model->device.name));
        m_deviceChip->setAccessibleName(tr("Device: %1").arg(m_deviceChip->text()));
    }
    m_stateChip->setText(stateText(state));
    m_stateChip->setDot(stateColor(state, palette()));
    m_stateChip->setAccessibleName(tr("State: %1").arg(m_stateChip->text()));
    m_stateChip->setToolTip(m_pane->bar()->isOpen() ? m_pane->bar()->text() : QString());
}

void MainWindow::updateCentre() {
    const State state = m_engine->state();
    const bool messages = m_chat && !m_chat->messages().isEmpty();
    m_pane->showTranscript(messages);
    if (messages) return;
    EmptyState* empty = m_pane->empty();
    if (state == State::no_model) {
        empty->showNoModel(m_actions->openStarter, m_actions->openModel, m_profile.recentModels());
    } else if (state == State::loading) {
        empty->showLoading(QFileInfo(m_modelPath).completeBaseName(), m_actions->stop);
    } else if (m_tray->count() > 0) {
        empty->showReady(tr("Ask about your document"),
                         tr("The model reads all of it, once, before the first answer. Watch the "
                            "memory map on the right while it does."));
    } else {
        empty->showReady(tr("What would you like to know?"),
                         tr("Write below, or drop a document here: text, Markdown, source code "
                            "or PDF."));
    }
}

void MainWindow::updateHint() {
    const State state = m_engine->state();
    QString hint;
    if (state == State::no_model) {
        hint = tr("Open a model to write");
    } else if (state == State::lost) {
        hint = tr("Reload the model to go on");
    } else if (m_chat && m_chat->pending() && !m_engine->busy()) {
        hint = state == State::loading ? tr("Will be sent when the model is ready")
               : m_tray->reading() || m_tray->counting()
                   ? tr("Will be sent when the document is read")
                   : QString();
    } else if (m_tray->tokens() > 0 && m_engine->model()) {
        hint = tr("%1 of %2 tokens")
                   .arg(QLocale().toString(m_tray->tokens()),
                        QLocale().toString(m_engine->model()->plan.max_context));
    }
    m_pane->composer()->setHint(hint);
    m_pane->composer()->input()->setPlaceholderText(
        state == State::no_model ? tr("No model is open") : tr("Write a message"));
}

void MainWindow::updateQuestions() {
    // They belong to the sample document, in the tray or in this chat.
    bool here = false;
    if (m_welcome) {
        const QFileInfo sample(m_welcome->documentPath);
        const auto look = [&](const QVector<Document>& documents) {
            for (const Document& document : documents) {
                here = here || QFileInfo(document.path) == sample;
            }
        };
        look(m_tray->documents());
        for (const ChatMessage& message : m_chat->messages()) look(message.documents);
    }
    m_pane->showQuestions(here);
}

}  // namespace granary::gui
