// SPDX-License-Identifier: GPL-3.0-or-later
// The right dock: the memory map, its legend, two lines about a cell, and the sliders.
//
// It reads the engine's telemetry at its own pace (30 Hz while something changes, 5 Hz idle, not
// at all while hidden) and never makes the engine wait.
#pragma once

#include <QElapsedTimer>
#include <QPointer>
#include <QWidget>
#include <array>
#include <optional>

#include "granary/planner.h"
#include "granary/settings.h"
#include "granary/telemetry.h"
#include "gui/settings/settings_draft.h"
#include "gui/vram/map_history.h"
#include "gui/vram/map_model.h"

class QAction;
class QLabel;
class QStackedWidget;
class QTimer;

namespace granary::gui {

class CardBar;
class GranuleTable;
class Legend;
class MapView;
class ReplayStrip;
class SettingsPanel;
class SettingsSheet;

class VramPane : public QWidget {
    Q_OBJECT
  public:
    explicit VramPane(QWidget* parent = nullptr);
    ~VramPane() override;

    // A loaded model. The telemetry must live until clearEngine() or the next setEngine().
    void setEngine(Telemetry* telemetry, std::optional<Planner> planner, Settings settings);
    // The engine has learned how fast its machine is: previews say so.
    void setRates(const Rates& rates);
    // Of another device that the engine has moved to.
    void setPlanner(const Planner& planner);
    void clearEngine();
    // A model is being loaded with these settings.
    void expect(const Settings& settings);

    // The bar of the tool bar shows what the map shows, and the ghost of edited settings.
    void setCardBar(CardBar* bar);

    SettingsDraft& draft() { return m_draft; }
    MapView* map() const { return m_view; }
    Legend* legend() const { return m_legend; }
    SettingsPanel* settings() const { return m_settings; }
    SettingsSheet* sheet() const { return m_sheet; }
    const MapModel& model() const { return m_model; }
    const MapHistory& history() const { return m_history; }

    // For menus and scripts; object names apply, undo, replaySlowly, stopReplay, showTable.
    QAction* applyAction() const;
    QAction* undoAction() const;
    QAction* replayAction() const { return m_replayAction; }
    QAction* stopReplayAction() const { return m_stopReplayAction; }
    QAction* tableAction() const { return m_tableAction; }

    bool replaying() const { return m_replay.running(); }
    // Milliseconds of one map frame (the differences drawn and the paint event): the median of the
    // last frames, and the slowest since the model was loaded.
    double paintMs() const;
    double worstPaintMs() const;

  public Q_SLOTS:
    // The engine's answer to applyRequested. On success setEngine() need not follow unless the
    // telemetry, planner or settings are others than those asked for.
    void applied(bool ok, const QString& message);
    // Plays the last prompt's frames at a tenth of the speed; says so where none was kept.
    void replaySlowly();
    void stopReplay();
    // While a request runs Apply waits.
    void setBusy(bool busy);
    void openSheet();

  Q_SIGNALS:
    void applyRequested(const granary::Settings& settings);
    void replayingChanged(bool replaying);
    // Not more often than text can be read.
    void amountsShown(const std::array<uint32_t, granary::kOwners>& granules, quint64 granuleBytes);

  protected:
    void showEvent(QShowEvent* event) override;
    void hideEvent(QHideEvent* event) override;

  private:
    QWidget* makeHeader();
    QWidget* makeControls();
    void makeMapMenu();
    void tick();
    bool takeFrames();
    void showFrame(const MapFrame& frame, bool jump);
    void showHover();
    void showAmounts(bool now);
    void showFace();
    void endReplay();
    bool isSeen() const;
    void setPace();
    double liveNow() const;
    MapSpan promptSpan() const;

    Telemetry* m_telemetry = nullptr;
    std::optional<Planner> m_planner;
    MapModel m_model;
    MapHistory m_history;
    MapReplay m_replay;
    MapFrame m_live;  // the newest frame, also while a replay shows another
    SettingsDraft m_draft;

    MapView* m_view;
    GranuleTable* m_table;
    Legend* m_legend;
    SettingsPanel* m_settings;
    SettingsSheet* m_sheet = nullptr;
    QPointer<CardBar> m_bar;  // belongs to the tool bar
    QStackedWidget* m_pages = nullptr;
    QWidget* m_liveButtons = nullptr;
    ReplayStrip* m_strip = nullptr;
    QLabel* m_caption = nullptr;
    QLabel* m_face = nullptr;
    QLabel* m_hoverFirst = nullptr;
    QLabel* m_hoverSecond = nullptr;
    QAction* m_replayAction;
    QAction* m_stopReplayAction;
    QAction* m_tableAction;
    QAction* m_poolAction;
    QAction* m_rangesAction;

    QTimer* m_timer;
    QElapsedTimer m_sinceFrame, m_sinceChange, m_sinceText, m_sinceDraw, m_sinceTick;
    std::array<uint32_t, kOwners> m_shownGranules{};  // by class, in legend and card bar
    bool m_busy = false;
    double m_askedAt = 0;  // when the last request began, in the engine's seconds
};

}  // namespace granary::gui
