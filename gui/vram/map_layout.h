// SPDX-License-Identifier: GPL-3.0-or-later
// Where the cells of the map lie. All lengths are device pixels, so that a cell is whole pixels
// at every scale.
#pragma once

#include <QPoint>
#include <QRect>
#include <QSize>
#include <vector>

namespace granary::gui {

class MapLayout {
  public:
    static constexpr int kLeastCell = 2;  // below it the map scrolls

    struct Section {
        int first = 0;  // cell
        int cells = 0;
        int top = 0;  // of its first row of cells; its label lies above
        int rows = 0;
    };

    // Cells of consecutive sections, each starting on a new row, `labelHeight` above each (0:
    // none). Columns become the power of two that gives the largest cell in `size`, at most
    // `largestCell`.
    void compute(QSize size, const std::vector<int>& sectionCells, int labelHeight,
                 int largestCell);

    int columns() const { return m_columns; }
    int cell() const { return m_cell; }  // pitch, gap included
    int gap() const { return m_cell >= 4 ? 1 : 0; }
    int cells() const { return m_cells; }
    int left() const { return m_left; }
    int contentHeight() const { return m_contentHeight; }
    int labelHeight() const { return m_labelHeight; }
    const std::vector<Section>& sections() const { return m_sections; }

    QRect rect(int cell) const;      // without the gap
    int cellAt(QPoint point) const;  // -1: none there; the gap belongs to the cell before it
    int sectionOf(int cell) const;
    // The cell a row up (-1) or down (1) in the same column, over the borders of sections; the
    // nearest where that row is shorter; `cell` itself at the ends.
    int rowNeighbour(int cell, int direction) const;

  private:
    std::vector<Section> m_sections;
    int m_columns = 1, m_cell = 1, m_cells = 0, m_left = 0, m_contentHeight = 0, m_labelHeight = 0;
};

}  // namespace granary::gui
