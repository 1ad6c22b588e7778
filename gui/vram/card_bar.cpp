// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/card_bar.h"

#include <QHelpEvent>
#include <QPainter>
#include <QPainterPath>
#include <QToolTip>
#include <algorithm>
#include <numeric>

#include "gui/theme/map_palette.h"
#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"
#include "gui/theme/units.h"
#include "gui/vram/cell_art.h"

namespace granary::gui {

namespace {

// Strongest claim first, as the memory manager orders them.
constexpr std::array<Owner, kOwners> kOrder{Owner::fixed, Owner::workspace,  Owner::state,
                                            Owner::kv,    Owner::loan,       Owner::experts,
                                            Owner::spare, Owner::quarantined};

uint64_t sum(const std::array<uint64_t, kOwners>& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

}  // namespace

CardBar::CardBar(QWidget* parent) : QWidget(parent) {
    setObjectName(QStringLiteral("cardBar"));
    m_empty = tr("no model");
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    setFont(metrics::small(font()));
    describe();
}

void CardBar::setAmounts(const std::array<uint32_t, kOwners>& granules, uint64_t granuleBytes) {
    Bytes bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = granules[i] * granuleBytes;
    if (bytes == m_bytes) return;
    m_bytes = bytes;
    describe();
    update();
}

void CardBar::setEmptyText(const QString& text) {
    m_empty = text;
    describe();
    update();
}

void CardBar::setGhost(const std::optional<Plan>& plan) {
    if (!plan && !m_ghost) return;
    m_ghost = plan;
    describe();
    update();
}

void CardBar::describe() {
    const uint64_t budget = sum(m_bytes);
    QString text = tr("Card: %1").arg(budget == 0 ? m_empty : bytesText(budget));
    for (const Owner owner : kOrder)
        if (const uint64_t bytes = m_bytes[static_cast<size_t>(owner)]; bytes > 0)
            text += QStringLiteral(", ") + ownerText(owner) + QLatin1Char(' ') + bytesText(bytes);
    setAccessibleName(text);
    setAccessibleDescription(
        m_ghost ? tr("planned: %1 with a full context").arg(bytesText(m_ghost->budget_bytes))
                : QString());
}

double CardBar::scaleBytes() const {
    const uint64_t planned = m_ghost ? m_ghost->budget_bytes : 0;
    return static_cast<double>(std::max({sum(m_bytes), planned, uint64_t{1}}));
}

QRectF CardBar::barRect() const {
    const int label = fontMetrics().horizontalAdvance(QStringLiteral("1023.9 MiB")) + 8;
    return QRectF(rect()).adjusted(1, 5, -label, -5);
}

void CardBar::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const MapPalette& map = MapPalette::of(palette());
    const Tones& tones = Theme::tones(palette());
    const QRectF whole = barRect();
    const double scale = scaleBytes();
    const uint64_t budget = sum(m_bytes);
    // The ghost takes the lower third while there is one.
    const QRectF now = m_ghost ? whole.adjusted(0, 0, 0, -whole.height() * 0.4) : whole;

    const auto stack = [&](const Bytes& bytes, const QRectF& bar) {
        const double total = static_cast<double>(sum(bytes)) / scale;
        const QRectF used(bar.left(), bar.top(), bar.width() * total, bar.height());
        painter.save();
        QPainterPath clip;
        clip.addRoundedRect(used, 3, 3);
        painter.setClipPath(clip);
        painter.fillRect(used, map.canvas);
        double at = 0;
        for (const Owner owner : kOrder) {
            const double share = static_cast<double>(bytes[static_cast<size_t>(owner)]) / scale;
            if (share == 0) continue;
            // A class that is there is seen: at least 2 px, with a hairline to the next.
            const QRectF segment(bar.left() + at * bar.width(), bar.top(),
                                 std::max(share * bar.width(), 2.0), bar.height());
            paintSegment(painter, map, owner, segment.adjusted(0, 0, -1, 0));
            at += share;
        }
        painter.restore();
        painter.setPen(QPen(tones.border, 1));
        painter.setBrush(Qt::NoBrush);
        painter.drawRoundedRect(used.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3);
    };
    if (budget == 0) {
        painter.setPen(QPen(tones.border, 1, Qt::DashLine));
        painter.drawRoundedRect(whole.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3);
        painter.setPen(tones.muted);
        painter.drawText(whole, Qt::AlignCenter, m_empty);
        return;
    }
    stack(m_bytes, now);
    uint64_t limit = budget;
    if (m_ghost) {
        const QRectF ghost(whole.left(), now.bottom() + 2, whole.width(),
                           whole.bottom() - now.bottom() - 2);
        painter.setOpacity(0.75);
        stack(m_ghost->at_max, ghost);
        painter.setOpacity(1);
        limit = m_ghost->budget_bytes;
    }
    // The limit: what this process may hold, now or with the settings being edited.
    const qreal x = whole.left() + whole.width() * static_cast<double>(limit) / scale;
    painter.setPen(QPen(palette().color(QPalette::WindowText), 2));
    painter.drawLine(QPointF(x, 2), QPointF(x, height() - 2));
    painter.setPen(palette().color(QPalette::WindowText));
    painter.drawText(QRectF(whole.right() + 6, 0, width() - whole.right() - 6, height()),
                     Qt::AlignLeft | Qt::AlignVCenter, bytesText(limit));
}

std::optional<Owner> CardBar::ownerAt(QPointF position) const {
    const QRectF bar = barRect();
    if (!bar.contains(position)) return std::nullopt;
    double at = (position.x() - bar.left()) / bar.width() * scaleBytes();
    for (const Owner owner : kOrder) {
        const auto bytes = static_cast<double>(m_bytes[static_cast<size_t>(owner)]);
        if (bytes > 0 && at < bytes) return owner;
        at -= bytes;
    }
    return std::nullopt;
}

bool CardBar::event(QEvent* event) {
    if (event->type() == QEvent::ToolTip) {
        const auto* help = static_cast<QHelpEvent*>(event);
        if (const auto owner = ownerAt(help->pos())) {
            const uint64_t bytes = m_bytes[static_cast<size_t>(*owner)];
            QString text = tr("%1: %2 of %3")
                               .arg(ownerText(*owner), bytesText(bytes), bytesText(sum(m_bytes)));
            if (m_ghost)
                text += QLatin1Char('\n') +
                        tr("planned with a full context: %1")
                            .arg(bytesText(m_ghost->at_max[static_cast<size_t>(*owner)]));
            QToolTip::showText(help->globalPos(), text + QLatin1Char('\n') + ownerMeaning(*owner),
                               this);
        } else {
            QToolTip::hideText();
        }
        return true;
    }
    return QWidget::event(event);
}

}  // namespace granary::gui
