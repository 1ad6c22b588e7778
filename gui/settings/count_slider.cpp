// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/settings/count_slider.h"

#include <QKeyEvent>
#include <QMouseEvent>
#include <QPainter>
#include <QPainterPath>
#include <QSignalBlocker>
#include <algorithm>

#include "gui/theme/theme.h"

namespace granary::gui {

namespace {

constexpr qreal kHandle = 7;  // radius
constexpr qreal kGroove = 4;  // height

}  // namespace

CountSlider::CountSlider(const CountScale& scale, QWidget* parent)
    : QSlider(Qt::Horizontal, parent), m_scale(scale) {
    setFocusPolicy(Qt::StrongFocus);
    setScale(scale);
}

void CountSlider::setScale(const CountScale& scale) {
    m_scale = scale;
    const QSignalBlocker blocker(this);
    setRange(0, m_scale.maximum());
    setSingleStep(CountScale::kPerStop);
    setPageStep(2 * CountScale::kPerStop);
    setValue(m_scale.position(m_count));
    update();
}

void CountSlider::setMark(std::optional<uint32_t> value) {
    m_mark = value;
    update();
}

void CountSlider::setCount(const AutoCount& value) {
    m_count = value;
    const QSignalBlocker blocker(this);
    setValue(m_scale.position(value));
    update();
}

void CountSlider::edit(const AutoCount& value) {
    if (value == m_count) return;
    m_count = value;
    setValue(m_scale.position(value));
    update();
    Q_EMIT countEdited(value);
}

qreal CountSlider::xOf(int position) const {
    const qreal track = width() - 2 * (kHandle + 1);
    return kHandle + 1 + track * position / std::max(m_scale.maximum(), 1);
}

void CountSlider::paintEvent(QPaintEvent*) {
    QPainter painter(this);
    painter.setRenderHint(QPainter::Antialiasing);
    const Tones& tones = Theme::tones(palette());
    const QColor accent = isEnabled() ? tones.accent : tones.controlDisabled;
    const QColor groove = isEnabled() ? tones.controlDisabled : tones.border;
    const qreal y = height() / 2.0 - 3, left = xOf(0), right = xOf(m_scale.maximum());
    const qreal at = xOf(m_scale.position(m_count));

    QPainterPath track;
    track.addRoundedRect(QRectF(left - 2, y - kGroove / 2, right - left + 4, kGroove), 2, 2);
    painter.fillPath(track, groove);
    painter.save();
    painter.setClipPath(track);
    painter.fillRect(QRectF(left - 2, 0, at - left + 2, height()), accent);
    const qreal mark =
        m_mark ? xOf(m_scale.position({AutoCount::Kind::number, *m_mark})) : right + 4;
    if (m_mark) {
        // Beyond the mark: hatched, and in the colour of a warning where the value reaches in.
        painter.fillRect(QRectF(mark, 0, right + 4 - mark, height()), groove);
        if (at > mark) painter.fillRect(QRectF(mark, 0, at - mark, height()), tones.warning);
        painter.setPen(QPen(palette().color(QPalette::Window), 1.5));
        for (qreal x = mark; x < right + 8; x += 5)
            painter.drawLine(QPointF(x, y + 4), QPointF(x + 6, y - 4));
    }
    painter.restore();
    // Stops.
    painter.setPen(Qt::NoPen);
    for (int stop = 0; stop < m_scale.stops(); ++stop) {
        const qreal x = xOf(stop * CountScale::kPerStop);
        const bool marked = m_mark && qAbs(x - mark) < 0.5;
        painter.setBrush(marked ? tones.warning : tones.muted);
        const qreal h = marked ? 6 : 3;
        painter.drawRect(QRectF(x - 0.5, height() - 7, marked ? 2 : 1, h));
    }
    const QPointF centre(at, y);
    if (hasFocus()) {
        QColor halo = accent;
        halo.setAlpha(80);
        painter.setBrush(halo);
        painter.drawEllipse(centre, kHandle + 3, kHandle + 3);
    }
    const QColor ring = m_mark && at > mark + 0.5 ? tones.warning : accent;
    painter.setPen(QPen(ring, 2));
    painter.setBrush(underMouse() && isEnabled() ? ring : palette().color(QPalette::Base));
    painter.drawEllipse(centre, kHandle - 1, kHandle - 1);
}

void CountSlider::mousePressEvent(QMouseEvent* event) {
    if (event->button() != Qt::LeftButton) return event->ignore();
    setSliderDown(true);
    mouseMoveEvent(event);
}

void CountSlider::mouseMoveEvent(QMouseEvent* event) {
    if (!isSliderDown()) return event->ignore();
    const qreal track = std::max(xOf(m_scale.maximum()) - xOf(0), 1.0);
    const qreal share = std::clamp((event->position().x() - xOf(0)) / track, 0.0, 1.0);
    edit(m_scale.value(m_scale.nearestStop(qRound(share * m_scale.maximum()))));
}

void CountSlider::mouseReleaseEvent(QMouseEvent* event) {
    setSliderDown(false);
    event->accept();
}

void CountSlider::keyPressEvent(QKeyEvent* event) {
    switch (event->key()) {
        case Qt::Key_Left:
        case Qt::Key_Down:
            return edit(m_scale.neighbour(m_count, -1));
        case Qt::Key_Right:
        case Qt::Key_Up:
            return edit(m_scale.neighbour(m_count, 1));
        case Qt::Key_PageDown:
            return edit(m_scale.neighbour(m_count, -2));
        case Qt::Key_PageUp:
            return edit(m_scale.neighbour(m_count, 2));
        case Qt::Key_Home:
            return edit(m_scale.value(0));
        case Qt::Key_End:
            return edit(m_scale.value(m_scale.maximum()));
        default:
            event->ignore();
    }
}

void CountSlider::wheelEvent(QWheelEvent* event) {
    // A pane that scrolls under the pointer must not change a setting in passing.
    event->ignore();
}

void CountSlider::enterEvent(QEnterEvent* event) {
    QSlider::enterEvent(event);
    update();
}

void CountSlider::leaveEvent(QEvent* event) {
    QSlider::leaveEvent(event);
    update();
}

}  // namespace granary::gui
