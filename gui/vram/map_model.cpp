// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/map_model.h"

#include <QLocale>
#include <QStringList>
#include <algorithm>
#include <cmath>

#include "gui/theme/units.h"

namespace granary::gui {

namespace {

constexpr double kLongAgo = -1e9;
constexpr uint32_t kTickMask = 0x3fffff;  // ticks are counted modulo 2^22

bool isEmptySlot(GranuleWord word) {
    return (word.flags() & GranuleWord::empty_slot) != 0;
}

bool isUnused(GranuleWord word) {
    return isEmptySlot(word) || (word.last_use() == 0 && word.hits_log2() == 0);
}

bool sameShape(const MapFrame& a, const MapFrame& b) {
    return a.words.size() == b.words.size() && a.granule_bytes == b.granule_bytes &&
           a.ranges == b.ranges;
}

}  // namespace

Owner MapModel::ownerOf(GranuleWord word) {
    // A class that this version does not know must not pass for a usable one.
    const auto value = static_cast<unsigned>(word.owner());
    return value < kOwners ? static_cast<Owner>(value) : Owner::quarantined;
}

bool MapModel::sumsAgree(const MapFrame& frame) {
    std::array<uint32_t, kOwners> sums{};
    for (const GranuleWord word : frame.words)
        if (word.in_budget()) ++sums[static_cast<size_t>(ownerOf(word))];
    return sums == frame.granules;
}

void MapModel::clear() {
    m_frame = {};
    m_now = 0;
    m_changedAt.clear();
    m_flashing.clear();
    layCells();
}

void MapModel::setFrame(const MapFrame& frame, bool jump) {
    Q_ASSERT(sumsAgree(frame));
    const bool relay = !sameShape(frame, m_frame) || frame.places.size() != m_frame.places.size();
    const bool moved = m_order == MapOrder::Ranges && frame.places != m_frame.places;
    if (relay || jump) {
        m_changedAt.assign(frame.words.size(), kLongAgo);
        m_flashing.clear();
        m_now = frame.seconds;
    } else if (!m_reducedMotion) {
        for (size_t i = 0; i < frame.words.size(); ++i) {
            if (frame.words[i].owner() == m_frame.words[i].owner()) continue;
            m_changedAt[i] = frame.seconds;
            m_flashing.push_back(static_cast<int>(i));
        }
    }
    m_frame = frame;
    m_now = std::max(m_now, frame.seconds);

    // The newest tick, by serial-number comparison since ticks wrap.
    bool any = false;
    for (const GranuleWord word : m_frame.words) {
        if (word.owner() != Owner::experts || isEmptySlot(word)) continue;
        const uint32_t use = word.last_use();
        if (!any || ((use - m_newestUse) & kTickMask) < kTickMask / 2) m_newestUse = use;
        any = true;
    }
    if (relay || moved)
        layCells();  // keeps the geometry and redraws changed cells only if the sections stay
    else
        rebuildKeys();
}

void MapModel::setSlotBytes(std::vector<uint64_t> bytes) {
    uint64_t end = 0;
    for (uint64_t& slot : bytes) slot = end += slot;
    m_slotEnds = std::move(bytes);
}

void MapModel::setNow(double seconds) {
    m_now = seconds;
    if (m_flashing.empty()) return;
    for (const int granule : m_flashing) {
        const int cell = cellOfGranule(granule);
        const CellKey key = keyOf(granule);
        if (cell < 0 || m_keys[static_cast<size_t>(cell)] == key) continue;
        m_keys[static_cast<size_t>(cell)] = key;
        m_changed.push_back(cell);
    }
    std::erase_if(m_flashing, [this](int granule) { return flashOf(granule) == 0; });
}

void MapModel::setOrder(MapOrder order) {
    if (order == m_order) return;
    m_order = order;
    layCells();
}

void MapModel::setShown(Owner owner, bool shown) {
    m_shown[static_cast<size_t>(owner)] = shown;
    rebuildKeys();
}

void MapModel::setReducedMotion(bool reduced) {
    m_reducedMotion = reduced;
    if (!reduced) return;
    m_changedAt.assign(m_frame.words.size(), kLongAgo);
    m_flashing.clear();
    rebuildKeys();
}

void MapModel::layCells() {
    std::vector<Section> sections;
    const size_t granules = m_frame.words.size();
    if (m_order == MapOrder::Pool) {
        m_granuleOfCell.clear();
        m_cellOfGranule.clear();
        if (granules > 0) sections.push_back({tr("Pool"), static_cast<int>(granules)});
    } else {
        m_granuleOfCell.clear();
        m_cellOfGranule.assign(granules, -1);
        std::vector<int> firstCell;
        int cells = 0;
        for (const RangeInfo& range : m_frame.ranges) {
            firstCell.push_back(cells);
            cells += static_cast<int>(range.places);
            if (range.places > 0)
                sections.push_back(
                    {QString::fromStdString(range.name), static_cast<int>(range.places)});
        }
        m_granuleOfCell.assign(static_cast<size_t>(cells), -1);
        std::vector<int> elsewhere;
        for (size_t i = 0; i < granules; ++i) {
            const Place place = i < m_frame.places.size() ? m_frame.places[i] : Place{};
            const bool mapped = place.range < m_frame.ranges.size() &&
                                place.place < m_frame.ranges[place.range].places;
            const int cell = mapped ? firstCell[place.range] + static_cast<int>(place.place) : -1;
            if (cell < 0 || m_granuleOfCell[static_cast<size_t>(cell)] >= 0) {
                elsewhere.push_back(static_cast<int>(i));
                continue;
            }
            m_granuleOfCell[static_cast<size_t>(cell)] = static_cast<int>(i);
            m_cellOfGranule[i] = cell;
        }
        // Every granule has a cell, so that the cells of a class add up to its counter.
        if (!elsewhere.empty()) {
            sections.push_back({tr("in no range"), static_cast<int>(elsewhere.size())});
            for (const int granule : elsewhere) {
                m_cellOfGranule[static_cast<size_t>(granule)] =
                    static_cast<int>(m_granuleOfCell.size());
                m_granuleOfCell.push_back(granule);
            }
        }
    }
    const bool same = std::equal(
        sections.begin(), sections.end(), m_sections.begin(), m_sections.end(),
        [](const Section& a, const Section& b) { return a.name == b.name && a.cells == b.cells; });
    m_sections = std::move(sections);
    if (!same) {
        m_relaid = true;
        m_changed.clear();
        int cells = 0;
        for (const Section& section : m_sections) cells += section.cells;
        m_keys.assign(static_cast<size_t>(cells), CellKey{0xffff});
    }
    rebuildKeys();
}

void MapModel::rebuildKeys() {
    for (size_t cell = 0; cell < m_keys.size(); ++cell) {
        const int holder = granule(static_cast<int>(cell));
        const CellKey key = holder < 0 ? CellKey::hollowPlace() : keyOf(holder);
        if (key == m_keys[cell]) continue;
        m_keys[cell] = key;
        if (!m_relaid) m_changed.push_back(static_cast<int>(cell));
    }
    std::erase_if(m_flashing, [this](int granule) { return flashOf(granule) == 0; });
}

int MapModel::flashOf(int granule) const {
    const double age = m_now - m_changedAt[static_cast<size_t>(granule)];
    if (age >= kFlashSeconds) return 0;
    if (age <= 0) return CellKey::kFlashSteps;
    return static_cast<int>(std::ceil(CellKey::kFlashSteps * (1 - age / kFlashSeconds)));
}

int MapModel::recencyOf(GranuleWord word) const {
    if (isUnused(word)) return 0;
    const uint32_t age = (m_newestUse - word.last_use()) & kTickMask;
    if (age < 2) return 4;
    if (age < 16) return 3;
    if (age < 64) return 2;
    return age < 512 ? 1 : 0;
}

CellKey MapModel::keyOf(int granule) const {
    const GranuleWord word = m_frame.words[static_cast<size_t>(granule)];
    if (!word.in_budget()) return CellKey::hollowPlace();
    const Owner owner = ownerOf(word);
    return CellKey::make(owner, owner == Owner::experts ? recencyOf(word) : 0, flashOf(granule),
                         (word.flags() & GranuleWord::in_transfer) != 0,
                         !m_shown[static_cast<size_t>(owner)]);
}

int MapModel::granule(int cell) const {
    if (cell < 0 || cell >= cells()) return -1;
    return m_order == MapOrder::Pool ? cell : m_granuleOfCell[static_cast<size_t>(cell)];
}

int MapModel::cellOfGranule(int granule) const {
    if (granule < 0 || granule >= granules()) return -1;
    return m_order == MapOrder::Pool ? granule : m_cellOfGranule[static_cast<size_t>(granule)];
}

MapModel::Changes MapModel::takeChanges() {
    Changes changes{m_relaid, std::move(m_changed)};
    m_relaid = false;
    m_changed.clear();
    return changes;
}

QString MapModel::holdsText(GranuleWord word) const {
    const QLocale locale;
    switch (ownerOf(word)) {
        case Owner::experts:
            if (isEmptySlot(word)) return tr("empty slot");
            if (m_frame.experts_per_layer == 0)
                return tr("slot %1").arg(locale.toString(word.id()));
            return tr("layer %1, expert %2")
                .arg(locale.toString(word.id() / m_frame.experts_per_layer),
                     locale.toString(word.id() % m_frame.experts_per_layer));
        case Owner::kv: {
            constexpr uint64_t kStep = 1024;
            const uint64_t first = word.id() * kStep;
            return tr("from token %1, step %2")
                .arg(locale.toString(static_cast<qulonglong>(first)), locale.toString(word.id()));
        }
        default:
            return {};
    }
}

// The slot that begins in this granule and reaches over its end is the one that the granule at the
// next place names first.
QString MapModel::secondSlotText(int granule) const {
    const auto i = static_cast<size_t>(granule);
    if (ownerOf(m_frame.words[i]) != Owner::experts || i >= m_frame.places.size() ||
        m_slotEnds.empty() || m_slotEnds.back() == 0)
        return {};
    const Place next{m_frame.places[i].range, m_frame.places[i].place + 1};
    // Where the next granule begins, counted from the beginning of its row of slots.
    const uint64_t inRow = next.place * m_frame.granule_bytes % m_slotEnds.back();
    const auto slot = std::upper_bound(m_slotEnds.begin(), m_slotEnds.end(), inRow);
    const uint64_t begin = slot == m_slotEnds.begin() ? 0 : *(slot - 1);
    const uint64_t reach = inRow - begin;  // of that slot into this granule
    if (reach == 0 || reach >= m_frame.granule_bytes) return {};
    for (size_t k = 0; k < m_frame.places.size(); ++k)
        if (m_frame.places[k] == next && ownerOf(m_frame.words[k]) == Owner::experts)
            return holdsText(m_frame.words[k]);
    return {};
}

QString MapModel::placeText(int granule) const {
    const auto i = static_cast<size_t>(granule);
    const Place place = i < m_frame.places.size() ? m_frame.places[i] : Place{};
    if (place.range >= m_frame.ranges.size() || place.place >= m_frame.ranges[place.range].places)
        return tr("in no range");
    return tr("%1 at %2")
        .arg(QString::fromStdString(m_frame.ranges[place.range].name),
             bytesText(place.place * m_frame.granule_bytes));
}

MapModel::HoverText MapModel::hoverText(int cell) const {
    if (cell < 0 || cell >= cells()) return {};
    const QLocale locale;
    const QString dot = QStringLiteral(" \u00b7 ");
    const int holder = granule(cell);
    if (holder < 0) {
        int index = cell;
        size_t section = 0;
        while (section + 1 < m_sections.size() && index >= m_sections[section].cells)
            index -= m_sections[section++].cells;
        return {tr("Not mapped"),
                tr("place %1 of %2").arg(locale.toString(index), m_sections[section].name)};
    }
    const GranuleWord word = m_frame.words[static_cast<size_t>(holder)];
    if (!word.in_budget())
        return {tr("Granule %1").arg(locale.toString(holder)),
                tr("given back to other programs while the budget is lower")};
    const Owner owner = ownerOf(word);
    QStringList first{tr("Granule %1").arg(locale.toString(holder)), ownerText(owner)};
    if (const QString text = holdsText(word); !text.isEmpty()) first << text;

    if (const QString text = secondSlotText(holder); !text.isEmpty())
        first << tr("and %1").arg(text);

    QStringList second;
    second << placeText(holder);
    if (owner == Owner::experts) {
        if (isEmptySlot(word)) {
            second << tr("its expert was taken away");
        } else if (isUnused(word)) {
            second << tr("not used yet");
        } else {
            const uint32_t age = (m_newestUse - word.last_use()) & kTickMask;
            second << (age == 0 ? tr("used by the last token")
                                : tr("used %1 ago").arg(counted(age, tr("token"), tr("tokens"))));
            if (word.hits_log2() > 0)
                second << tr("at least %1 hits")
                              .arg(locale.toString(static_cast<qulonglong>(1) << word.hits_log2()));
        }
    }
    if ((word.flags() & GranuleWord::in_transfer) != 0) second << tr("in transfer");
    return {first.join(dot), second.join(dot)};
}

int MapModel::nextOfSameOwner(int cell, int direction) const {
    const int holder = granule(cell);
    const int total = cells();
    if (total == 0) return cell;
    for (int step = 1; step < total; ++step) {
        const int other = ((cell + direction * step) % total + total) % total;
        const int otherHolder = granule(other);
        if (holder < 0
                ? otherHolder < 0
                : otherHolder >= 0 && ownerOf(m_frame.words[static_cast<size_t>(otherHolder)]) ==
                                          ownerOf(m_frame.words[static_cast<size_t>(holder)]))
            return other;
    }
    return cell;
}

std::vector<int> MapModel::sameOwnerId(int cell) const {
    std::vector<int> found;
    const int holder = granule(cell);
    if (holder < 0) return found;
    const GranuleWord word = m_frame.words[static_cast<size_t>(holder)];
    if ((word.owner() != Owner::experts && word.owner() != Owner::kv) || isEmptySlot(word))
        return found;
    for (size_t i = 0; i < m_frame.words.size(); ++i)
        if (m_frame.words[i].owner() == word.owner() && m_frame.words[i].id() == word.id() &&
            !isEmptySlot(m_frame.words[i]))
            found.push_back(cellOfGranule(static_cast<int>(i)));
    return found;
}

QString MapModel::summary() const {
    if (empty()) return tr("No memory to show");
    const QLocale locale;
    QStringList parts;
    for (int i = 0; i < kOwners; ++i) {
        const auto owner = static_cast<Owner>(i);
        if (count(owner) == 0) continue;
        parts << tr("%1 %2 of %3 granules, %4 per cent")
                     .arg(ownerText(owner), locale.toString(count(owner)),
                          locale.toString(granules()),
                          locale.toString(qRound(100.0 * count(owner) / granules())));
    }
    return parts.join(QStringLiteral("; "));
}

}  // namespace granary::gui
