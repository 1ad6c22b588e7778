// SPDX-License-Identifier: GPL-3.0-or-later
// A slider over a CountScale: dragging and keys go from stop to stop, the spin box beside it sets
// any number. Values beyond a mark lie in a hatched zone.
#pragma once

#include <QSlider>
#include <optional>

#include "gui/settings/count_scale.h"

namespace granary::gui {

class CountSlider : public QSlider {
    Q_OBJECT
  public:
    explicit CountSlider(const CountScale& scale, QWidget* parent = nullptr);

    void setScale(const CountScale& scale);
    const CountScale& scale() const { return m_scale; }
    // The zone beyond `value` is drawn apart; none: no zone.
    void setMark(std::optional<uint32_t> value);

    AutoCount count() const { return m_count; }
    void setCount(const AutoCount& value);  // no signal

    QSize sizeHint() const override { return {180, 26}; }
    QSize minimumSizeHint() const override { return {90, 26}; }

  Q_SIGNALS:
    void countEdited(granary::AutoCount value);

  protected:
    void paintEvent(QPaintEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mouseReleaseEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;
    void enterEvent(QEnterEvent* event) override;
    void leaveEvent(QEvent* event) override;

  private:
    qreal xOf(int position) const;
    void edit(const AutoCount& value);

    CountScale m_scale;
    AutoCount m_count;
    std::optional<uint32_t> m_mark;
};

}  // namespace granary::gui
