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
    const QLocale locale;
    setAccessibleName(
        tr("%1: %n granule(s), %2, %3", nullptr, static_cast<int>(m_granules))
            .arg(text(), bytesText(m_bytes), isChecked() ? tr("shown") : tr("hidden")));
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
    const int width = 3 * kSpace + kSwatch +
                      fm.horizontalAdvance(QStringLiteral("quarantined 99,999 1023.9 MiB"));
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
    const int bytesWidth = fm.horizontalAdvance(QStringLiteral("1023.9 MiB"));
    const QRect text = rect().adjusted(2 * kSpace + kSwatch, 0, -kSpace, 0);
    const QRect bytes(text.right() - bytesWidth + 1, 0, bytesWidth, height());
    painter.setPen(absent ? tones.muted : palette().color(QPalette::WindowText));
    QFont font = this->font();
    font.setStrikeOut(!isChecked());
    painter.setFont(font);
    painter.drawText(text, Qt::AlignLeft | Qt::AlignVCenter, this->text());
    painter.setFont(this->font());
    painter.drawText(text.adjusted(0, 0, -bytesWidth, 0), Qt::AlignRight | Qt::AlignVCenter,
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

void Legend::resizeEvent(QResizeEvent*) {
    const int least = m_items[0]->sizeHint().width() + metrics::kGrid;
    const int fit = std::max(width() / least, 1);
    arrange(fit >= 4 ? 4 : std::min(fit, 2));
}

void Legend::setAmounts(const std::array<uint32_t, kOwners>& granules, uint64_t granuleBytes) {
    for (size_t i = 0; i < granules.size(); ++i)
        m_items[i]->setAmount(granules[i], granules[i] * granuleBytes);
}

}  // namespace granary::gui
