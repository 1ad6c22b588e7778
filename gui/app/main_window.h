// SPDX-License-Identifier: GPL-3.0-or-later
// The frame: menu, tool bar, docks, centre, status bar; and what connects engine, chat and map.
#pragma once

#include <QElapsedTimer>
#include <QMainWindow>
#include <memory>
#include <optional>

#include "gpu/found_devices.h"
#include "gui/app/heartbeat.h"
#include "gui/app/options.h"
#include "gui/app/profile.h"
#include "gui/app/resources.h"
#include "gui/documents/token_counter.h"
#include "gui/engine/engine_controller.h"
#include "gui/script/script_target.h"

class QDockWidget;
class QTabWidget;
class QToolBar;

namespace granary::gui {

class Actions;
class CardBar;
class ChatController;
class ChatPane;
class ChatsPanel;
class Chip;
class DocumentTray;
class DropOverlay;
class Library;
class LogView;
class StatusLine;
class StripPlot;
class Theme;
class VramPane;

class MainWindow : public QMainWindow, public ScriptTarget {
    Q_OBJECT

  public:
    MainWindow(const Options& options, Profile& profile, Theme& theme);
    ~MainWindow() override;

    // After the window is shown: opens what the command line asked for.
    void begin();
    void openModel(const QString& path);
    void dropFiles(const QStringList& paths);
    EngineController& engine() const { return *m_engine; }

    QWidget* scriptWindow() override { return this; }
    void scriptOpen(const QString& path) override { openModel(path); }
    void scriptDrop(const QStringList& paths) override { dropFiles(paths); }
    Result<void> scriptSet(const QString& name, const QString& value) override;
    State scriptState() const override { return m_engine->state(); }
    bool scriptPending() const override;
    QJsonObject scriptReport() const override;
    void scriptMeasure(bool on) override;

  Q_SIGNALS:
    void stateChanged(granary::State state);
    void usable(double msSinceStart);

  protected:
    void closeEvent(QCloseEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void paintEvent(QPaintEvent* event) override;
    void dragEnterEvent(QDragEnterEvent* event) override;
    void dragLeaveEvent(QDragLeaveEvent* event) override;
    void dropEvent(QDropEvent* event) override;

  private:
    void makeCentre();
    void makeDocks();
    void styleTabs();
    void makeToolBar();
    void makeRails();
    void makeMenus();
    void connectEngine();
    void connectActions();

    void open(const QString& path, const Settings& settings);
    void applySettings(const Settings& settings);
    void applyByDraft(const Settings& settings);
    void chooseModel();
    void chooseDocuments();
    void onOpened(const LoadedModel& model);
    void onStateChanged(State state);
    void updateActions();
    void updateChips();
    void updateCentre();
    void updateHint();
    void updateQuestions();
    void showRefusal(const Error& error);
    void showLongestContext();
    void showFailure(const Error& error, bool engineLost);
    void showError(const QString& what, const QString& detail);
    void askAboutLink(const QUrl& link);
    void checkDocument(int index);
    void choosePart(int index);
    void readAll(qint64 tokens);
    void showDeviceMenu();
    void showDevices();
    void tryFirstQuestion();

    void applyFirstLayout();
    void restoreLayout();
    void saveLayout();
    void fold();
    void showRails();
    void focusPane(int direction);
    QSize layoutKey() const;

    Options m_options;
    Profile& m_profile;
    Theme& m_theme;
    std::optional<Welcome> m_welcome;
    std::vector<gpu::FoundDevice> m_devices;
    Settings m_loadSettings;  // of the model being loaded
    Heartbeat m_heartbeat;

    std::unique_ptr<EngineController> m_engine;
    std::unique_ptr<Library> m_library;
    TokenCounter m_counter;
    Actions* m_actions;
    ChatController* m_chat = nullptr;

    ChatPane* m_pane = nullptr;
    DocumentTray* m_tray = nullptr;
    ChatsPanel* m_chats = nullptr;
    VramPane* m_vram = nullptr;
    StripPlot* m_plot = nullptr;
    LogView* m_log = nullptr;
    StatusLine* m_status = nullptr;
    DropOverlay* m_overlay = nullptr;
    QDockWidget* m_libraryDock = nullptr;
    QDockWidget* m_vramDock = nullptr;
    QDockWidget* m_bottomDock = nullptr;
    QTabWidget* m_bottomTabs = nullptr;
    QToolBar* m_toolBar = nullptr;
    QToolBar* m_libraryRail = nullptr;
    QToolBar* m_vramRail = nullptr;
    Chip* m_modelChip = nullptr;
    Chip* m_deviceChip = nullptr;
    Chip* m_stateChip = nullptr;
    CardBar* m_cardBar = nullptr;

    QString m_modelPath;  // being opened, or open
    QElapsedTimer m_loadClock;
    bool m_firstQuestionAsked = false;
    bool m_libraryFolded = false, m_vramFolded = false;
    bool m_painted = false;
    bool m_laidOut = false;
    double m_msToUsable = -1;
};

}  // namespace granary::gui
