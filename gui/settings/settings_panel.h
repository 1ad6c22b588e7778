// SPDX-License-Identifier: GPL-3.0-or-later
// The three sliders, the line that says what they would do, Apply and Undo.
#pragma once

#include <QWidget>

#include "gui/settings/settings_draft.h"

class QAction;
class QLabel;
class QPushButton;

namespace granary::gui {

class CountControl;

class SettingsPanel : public QWidget {
    Q_OBJECT
  public:
    explicit SettingsPanel(SettingsDraft& draft, QWidget* parent = nullptr);

    // Of the loaded model; 0: not known, or no model.
    void setTrainedContext(uint32_t tokens);

    QAction* applyAction() const { return m_apply; }
    QAction* undoAction() const { return m_undo; }
    CountControl* longestContext() const { return m_context; }
    CountControl* readingStep() const { return m_step; }
    CountControl* streamAllExperts() const { return m_stream; }
    QString line() const;  // as shown, without mark-up

  private:
    void showDraft();
    void showLine();

    SettingsDraft& m_draft;
    CountControl* m_context;
    CountControl* m_step;
    CountControl* m_stream;
    QLabel* m_line;
    QAction* m_apply;
    QAction* m_undo;
    QPushButton* m_applyButton;
    QPushButton* m_undoButton;
    uint32_t m_trained = 0;
};

// A push button that follows an action: text, tooltip, enabled, and a click triggers it.
void followAction(QPushButton* button, QAction* action);

}  // namespace granary::gui
