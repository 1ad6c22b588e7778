// SPDX-License-Identifier: GPL-3.0-or-later
// What stands over the map while it shows the past: that it does, how far it is, and Stop.
#pragma once

#include <QFrame>

#include "gui/vram/map_history.h"

class QAction;
class QLabel;
class QProgressBar;

namespace granary::gui {

class ReplayStrip : public QFrame {
    Q_OBJECT
  public:
    // The button triggers `stop`.
    explicit ReplayStrip(QAction* stop, QWidget* parent = nullptr);
    void showPosition(double position, const MapSpan& span);

  private:
    QLabel* m_text;
    QProgressBar* m_progress;
};

}  // namespace granary::gui
