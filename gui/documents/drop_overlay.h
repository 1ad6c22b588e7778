// SPDX-License-Identifier: GPL-3.0-or-later
// Lies over the window while files hang over it, and says what letting go will do.
#pragma once

#include <QWidget>

namespace granary::gui {

class DropOverlay : public QWidget {
    Q_OBJECT

  public:
    explicit DropOverlay(QWidget* parent);
    void present(const QString& text);

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    QString m_text;
};

}  // namespace granary::gui
