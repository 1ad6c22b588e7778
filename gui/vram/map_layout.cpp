// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/map_layout.h"

#include <algorithm>

namespace granary::gui {

void MapLayout::compute(QSize size, const std::vector<int>& sectionCells, int labelHeight,
                        int largestCell) {
    const int width = std::max(size.width(), 1), height = std::max(size.height(), 1);
    m_labelHeight = labelHeight;
    const auto rowsWith = [&](int columns) {
        int64_t rows = 0;
        for (const int cells : sectionCells) rows += (int64_t{cells} + columns - 1) / columns;
        return rows;
    };
    const int labels = labelHeight * static_cast<int>(sectionCells.size());

    m_cell = 0;
    m_columns = 1;
    for (int columns = 1; columns <= width; columns *= 2) {
        const int64_t rows = std::max<int64_t>(rowsWith(columns), 1);
        const int fit = static_cast<int>(
            std::min<int64_t>(width / columns, std::max(height - labels, 0) / rows));
        if (fit >= m_cell) {  // among equals the widest: its rows are worth the most
            m_cell = fit;
            m_columns = columns;
        }
    }
    m_cell = std::min(m_cell, std::max(largestCell, 1));
    if (m_cell < kLeastCell) {
        m_cell = kLeastCell;
        m_columns = 1;
        while (m_columns * 2 * m_cell <= width) m_columns *= 2;
    }
    m_left = std::max((width - m_columns * m_cell + gap()) / 2, 0);

    m_sections.clear();
    m_cells = 0;
    int y = 0;
    for (const int cells : sectionCells) {
        y += labelHeight;
        const int rows = (cells + m_columns - 1) / m_columns;
        m_sections.push_back({m_cells, cells, y, rows});
        m_cells += cells;
        y += rows * m_cell;
    }
    m_contentHeight = y;
}

int MapLayout::sectionOf(int cell) const {
    const auto after = std::upper_bound(m_sections.begin(), m_sections.end(), cell,
                                        [](int c, const Section& s) { return c < s.first; });
    return static_cast<int>(after - m_sections.begin()) - 1;
}

QRect MapLayout::rect(int cell) const {
    if (cell < 0 || cell >= m_cells) return {};
    const Section& section = m_sections[static_cast<size_t>(sectionOf(cell))];
    const int index = cell - section.first;
    return {m_left + index % m_columns * m_cell, section.top + index / m_columns * m_cell,
            m_cell - gap(), m_cell - gap()};
}

int MapLayout::cellAt(QPoint point) const {
    const int x = point.x() - m_left;
    if (x < 0 || x >= m_columns * m_cell) return -1;
    for (const Section& section : m_sections) {
        const int y = point.y() - section.top;
        if (y < 0 || y >= section.rows * m_cell) continue;
        const int index = y / m_cell * m_columns + x / m_cell;
        return index < section.cells ? section.first + index : -1;
    }
    return -1;
}

int MapLayout::rowNeighbour(int cell, int direction) const {
    if (cell < 0 || cell >= m_cells) return cell;
    int index = sectionOf(cell);
    const Section* section = &m_sections[static_cast<size_t>(index)];
    const int column = (cell - section->first) % m_columns;
    int row = (cell - section->first) / m_columns + direction;
    if (row < 0 || row >= section->rows) {
        do {
            index += direction;
            if (index < 0 || index >= static_cast<int>(m_sections.size())) return cell;
            section = &m_sections[static_cast<size_t>(index)];
        } while (section->cells == 0);
        row = direction > 0 ? 0 : section->rows - 1;
    }
    return section->first + std::min(row * m_columns + column, section->cells - 1);
}

}  // namespace granary::gui
