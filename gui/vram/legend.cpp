// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/legend.h"

#include <QGridLayout>
#include <QLocale>
#include <QPainter>
#include <algorithm>

#include "gui/theme/map_palette.h"
#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"
#include "gui/theme/units.h"
#include "gui/vram/cell_art.h"

namespace granary::gui {

namespace {

// What a person looks for first stands first.
constexpr std::array<Owner, kOwners> kOrder{Owner::experts, Owner::kv,         Owner::loan,
                                            Owner::fixed,   Owner::workspace,  Owner::state,
                                            Owner::spare,   Owner::quarantined};
constexpr int kSwatch = 12, kSpace = 6;

// Of the right-hand column; longer figures are rare and then take what the name leaves.
int bytesWidth(const QFontMetrics& fm) {
    return fm.horizontalAdvance(QStringLiteral("999.9 MiB")) + kSpace;
}

}  // namespace

LegendItem::LegendItem(Owner owner, QWidget* parent) : QAbstractButton(parent), m_owner(owner) {
    setObjectName(QStringLiteral("legend-") + ownerText(owner));
    setCheckable(true);
    setChecked(true);
    setText(ownerText(owner));
    setFont(metrics::small(font()));
    setFocusPolicy(Qt::StrongFocus);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    connect(this, &QAbstractButton::toggled, this, &LegendItem::describe);
    describe();
}

void LegendItem::describe() {
    setAccessibleName(tr("%1: %2, %3, %4")
                          .arg(text(), counted(m_granules, tr("granule"), tr("granules")),
                               bytesText(m_bytes), isChecked() ? tr("shown") : tr("hidden")));
    setToolTip(ownerMeaning(m_owner) + QLatin1Char('\n') +
               (isChecked() ? tr("Click to hide it on the map") : tr("Click to show it again")));
}

void LegendItem::setAmount(uint32_t granules, uint64_t bytes) {
    if (granules == m_granules && bytes == m_bytes) return;
    m_granules = granules;
    m_bytes = bytes;
    describe();
    update();
}

QSize LegendItem::sizeHint() const {
    const QFontMetrics fm = fontMetrics();
    const int width = 4 * kSpace + kSwatch + fm.horizontalAdvance(text()) +
                      fm.horizontalAdvance(QLocale().toString(m_granules)) + bytesWidth(fm);
    return {width, fm.height() + 6};
}

void LegendItem::enterEvent(QEnterEvent* event) {
    QAbstractButton::enterEvent(event);
    update();
}

void LegendItem::leaveEvent(QEvent* event) {
    QAbstractButton::leaveEvent(event);
    update();
}

void LegendItem::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const Tones& tones = Theme::tones(palette());
    const QRectF frame = QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5);
    if (underMouse() || isDown()) {
        painter.setPen(Qt::NoPen);
        painter.setBrush(tones.hover);
        painter.drawRoundedRect(frame, 4, 4);
    }
    if (hasFocus()) {
        painter.setPen(QPen(palette().color(QPalette::Highlight), 1.5));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(frame.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4);
    }
    const MapPalette& map = MapPalette::of(palette());
    const QRectF swatch(kSpace, (height() - kSwatch) / 2.0, kSwatch, kSwatch);
    if (isChecked()) {
        paintSwatch(painter, map, m_owner, swatch, 2.5);
    } else {
        painter.setPen(QPen(tones.muted, 1));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(swatch.adjusted(0.5, 0.5, -0.5, -0.5), 2.5, 2.5);
    }
    const bool absent = m_granules == 0 || !isChecked();
    const QLocale locale;
    const QFontMetrics fm = fontMetrics();
    const QRect text = rect().adjusted(2 * kSpace + kSwatch, 0, -kSpace, 0);
    const QRect bytes(text.right() - bytesWidth(fm) + 1, 0, bytesWidth(fm), height());
    painter.setPen(absent ? tones.muted : palette().color(QPalette::WindowText));
    QFont font = this->font();
    font.setStrikeOut(!isChecked());
    painter.setFont(font);
    painter.drawText(text, Qt::AlignLeft | Qt::AlignVCenter, this->text());
    painter.setFont(this->font());
    painter.drawText(text.adjusted(0, 0, -bytesWidth(fm), 0), Qt::AlignRight | Qt::AlignVCenter,
                     locale.toString(m_granules));
    painter.setPen(tones.muted);
    painter.drawText(bytes, Qt::AlignRight | Qt::AlignVCenter,
                     m_granules == 0 ? QStringLiteral("\u2013") : bytesText(m_bytes));
}

Legend::Legend(QWidget* parent) : QWidget(parent), m_grid(new QGridLayout(this)) {
    setObjectName(QStringLiteral("legend"));
    setAccessibleName(tr("Legend of the memory map"));
    m_grid->setContentsMargins(0, 0, 0, 0);
    m_grid->setHorizontalSpacing(metrics::kGrid);
    m_grid->setVerticalSpacing(0);
    for (int i = 0; i < kOwners; ++i) {
        auto* item = new LegendItem(static_cast<Owner>(i), this);
        m_items[static_cast<size_t>(i)] = item;
        connect(item, &QAbstractButton::toggled, this,
                [this, item](bool shown) { Q_EMIT shownChanged(item->owner(), shown); });
    }
    arrange(2);
    // The focus walks the legend in the order in which it is read.
    for (size_t i = 1; i < kOrder.size(); ++i) setTabOrder(item(kOrder[i - 1]), item(kOrder[i]));
}

void Legend::arrange(int columns) {
    if (columns == m_columns) return;
    m_columns = columns;
    const int rows = (kOwners + columns - 1) / columns;
    for (int i = 0; i < kOwners; ++i) {
        LegendItem* entry = item(kOrder[static_cast<size_t>(i)]);
        m_grid->removeWidget(entry);
        m_grid->addWidget(entry, i % rows, i / rows);
    }
    for (int column = 0; column < kOwners; ++column)
        m_grid->setColumnStretch(column, column < columns ? 1 : 0);
}

void Legend::fit() {
    int least = 0;
    for (const LegendItem* entry : m_items) least = std::max(least, entry->sizeHint().width());
    const int fit = (width() + metrics::kGrid) / (least + metrics::kGrid);
    arrange(fit >= 4 ? 4 : std::clamp(fit, 1, 2));
}

void Legend::resizeEvent(QResizeEvent*) {
    fit();
}

void Legend::setAmounts(const std::array<uint32_t, kOwners>& granules, uint64_t granuleBytes) {
    for (size_t i = 0; i < granules.size(); ++i)
        m_items[i]->setAmount(granules[i], granules[i] * granuleBytes);
    fit();
}

}  // namespace granary::gui
