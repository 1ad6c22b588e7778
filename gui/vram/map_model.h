// SPDX-License-Identifier: GPL-3.0-or-later
// What the memory map shows, without a widget: a frame of granule words becomes cells in one of
// two orders, and the difference to the frame before becomes the list of cells to draw again.
#pragma once

#include <QCoreApplication>
#include <QString>
#include <array>
#include <cstdint>
#include <vector>

#include "granary/telemetry.h"
#include "gui/vram/cell_key.h"

namespace granary::gui {

// Pool: one cell per granule by creation index; a cell never moves, it changes colour.
// Ranges: one cell per place of each range in address order; places without a granule are hollow.
enum class MapOrder { Pool, Ranges };

class MapModel {
    Q_DECLARE_TR_FUNCTIONS(granary::gui::MapModel)

  public:
    static constexpr double kFlashSeconds = 0.3;

    struct Section {
        QString name;
        int cells = 0;
    };
    struct Changes {
        bool relaid = false;     // the cells are others than before: draw everything
        std::vector<int> cells;  // else: these look different
    };
    struct HoverText {
        QString first, second;
    };

    // Takes a frame over. Frames of another size or other ranges re-lay the map. After a jump in
    // time (a replay begins or ends) the difference to the frame before is nothing that happened,
    // so no cell flashes.
    void setFrame(const MapFrame& frame, bool jump = false);
    void clear();
    // Bytes of one expert's slot by layer, as the expert range is cut in row order; for the hover
    // text of a granule that two slots share. Empty: not known.
    void setSlotBytes(std::vector<uint64_t> bytes);
    // The clock of animations, in the seconds of the frames: live or recorded.
    void setNow(double seconds);
    double now() const { return m_now; }
    bool animating() const { return !m_flashing.empty(); }

    MapOrder order() const { return m_order; }
    void setOrder(MapOrder order);
    bool shown(Owner owner) const { return m_shown[static_cast<size_t>(owner)]; }
    void setShown(Owner owner, bool shown);
    bool reducedMotion() const { return m_reducedMotion; }
    void setReducedMotion(bool reduced);

    const MapFrame& frame() const { return m_frame; }
    bool empty() const { return m_frame.words.empty(); }
    int granules() const { return static_cast<int>(m_frame.words.size()); }
    uint32_t count(Owner owner) const { return m_frame.granules[static_cast<size_t>(owner)]; }
    uint64_t bytes(Owner owner) const { return count(owner) * m_frame.granule_bytes; }

    int cells() const { return static_cast<int>(m_keys.size()); }
    const std::vector<Section>& sections() const { return m_sections; }
    CellKey key(int cell) const { return m_keys[static_cast<size_t>(cell)]; }
    int granule(int cell) const;           // -1: hollow
    int cellOfGranule(int granule) const;  // -1: none

    // What differs since the last call.
    Changes takeChanges();

    HoverText hoverText(int cell) const;
    QString holdsText(GranuleWord word) const;  // "layer 3, expert 12"; empty for most classes
    QString placeText(int granule) const;       // "experts at 2.5 MiB", "in no range"
    // The next or previous cell (direction 1, -1) whose granule has the owner class of `cell`,
    // around the end; `cell` itself if there is no other.
    int nextOfSameOwner(int cell, int direction) const;
    // The cells of the same expert or K/V step as `cell`, itself included; empty for others.
    std::vector<int> sameOwnerId(int cell) const;
    // "experts 512 of 640 granules, 80 per cent; kv ..": for screen readers and copies.
    QString summary() const;

    // Whether the words of each class count up to the frame's own sums.
    static bool sumsAgree(const MapFrame& frame);
    static Owner ownerOf(GranuleWord word);

  private:
    void layCells();
    void rebuildKeys();
    CellKey keyOf(int granule) const;
    int flashOf(int granule) const;
    int recencyOf(GranuleWord word) const;
    QString secondSlotText(int granule) const;

    MapFrame m_frame;
    MapOrder m_order = MapOrder::Pool;
    std::array<bool, kOwners> m_shown{true, true, true, true, true, true, true, true};
    bool m_reducedMotion = false;
    double m_now = 0;
    uint32_t m_newestUse = 0;
    std::vector<uint64_t> m_slotEnds;  // [layers] of a row's slots, from the row's beginning

    std::vector<Section> m_sections;
    std::vector<int> m_granuleOfCell;  // Ranges order only; -1: hollow
    std::vector<int> m_cellOfGranule;  // Ranges order only
    std::vector<CellKey> m_keys;       // [cells]
    std::vector<double> m_changedAt;   // [granules] seconds of the last change of owner
    std::vector<int> m_flashing;       // granules that changed hands a moment ago

    bool m_relaid = true;
    std::vector<int> m_changed;
};

}  // namespace granary::gui
