// SPDX-License-Identifier: GPL-3.0-or-later
// A frameless scroll area that asks for all the height that its content needs, so that it scrolls
// only where the window is too low.
#pragma once

#include <QScrollArea>

namespace granary::gui {

class FullHeightScroll : public QScrollArea {
    Q_OBJECT
  public:
    explicit FullHeightScroll(QWidget* parent = nullptr);
    void setContent(QWidget* content);

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
};

}  // namespace granary::gui
