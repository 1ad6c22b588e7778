// SPDX-License-Identifier: GPL-3.0-or-later
// The memory map as one widget over one image: only cells that look different are drawn again.
#pragma once

#include <QImage>
#include <QWidget>
#include <deque>
#include <vector>

#include "gui/theme/map_palette.h"
#include "gui/vram/map_layout.h"
#include "gui/vram/map_model.h"

namespace granary::gui {

class MapView : public QWidget {
    Q_OBJECT
  public:
    explicit MapView(MapModel& model, QWidget* parent = nullptr);

    // Draws what the model says has changed since the last call.
    void refresh();

    const MapLayout& layoutOfCells() const { return m_layout; }
    // Logical coordinates of this widget.
    int cellAt(QPointF position) const;
    QRectF cellRect(int cell) const;
    // Device pixels of the widget's image.
    QRect cellPixels(int cell) const;

    // The cell that the hover text is about: under the pointer, else under the cursor, else the
    // pinned one; -1: none.
    int current() const;
    MapModel::HoverText currentText() const { return m_model.hoverText(current()); }
    int cursorCell() const { return m_cursor; }
    int pinnedGranule() const { return m_pinned; }
    void setPinnedGranule(int granule);

    // "one cell = 64 KiB, one row = 4 MiB"
    QString caption() const;
    // Said in place of the map while there is none.
    void setEmptyText(const QString& text);

    // Milliseconds of one map frame: the difference drawn into the image, and the paint event. The
    // median of the last frames, the newest, and the slowest since resetPaintMs().
    double paintMs() const;
    double lastPaintMs() const { return m_lastMs; }
    double worstPaintMs() const { return m_worstMs; }
    void resetPaintMs();

    QSize sizeHint() const override { return {416, 300}; }
    QSize minimumSizeHint() const override { return {200, 120}; }

  Q_SIGNALS:
    void currentChanged();  // another cell, or its text is another
    void captionChanged();

  protected:
    bool event(QEvent* event) override;
    void paintEvent(QPaintEvent* event) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void leaveEvent(QEvent* event) override;
    void wheelEvent(QWheelEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;
    void focusInEvent(QFocusEvent* event) override;
    void focusOutEvent(QFocusEvent* event) override;

  private:
    void relay();
    void relate();
    void drawAll();
    void drawCell(int cell);
    const QImage& art(CellKey key);
    void moveCursor(int cell);
    void setHover(int cell);
    void scrollTo(int pixels);
    int scrollMaximum() const;
    void drawRing(QPainter& painter, int cell, const QColor& color, qreal width) const;

    MapModel& m_model;
    const MapPalette* m_palette;
    MapLayout m_layout;
    QRect m_inner;  // device pixels in which cells are drawn
    int m_top = 0;  // device pixels above the content when it is lower than m_inner
    int m_scroll = 0;
    qreal m_scale = 0;
    QImage m_image;
    std::vector<QImage> m_art;  // by CellKey
    int m_hover = -1, m_cursor = -1, m_pinned = -1;
    std::vector<int> m_related;  // cells of the same expert or step as the current one
    QString m_emptyText;
    double m_pendingMs = 0, m_lastMs = 0, m_worstMs = 0;
    std::deque<double> m_recentMs;
};

}  // namespace granary::gui
