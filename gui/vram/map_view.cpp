// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/vram/map_view.h"

#include <QAccessibleWidget>
#include <QElapsedTimer>
#include <QKeyEvent>
#include <QLocale>
#include <QMouseEvent>
#include <QPainter>
#include <QPainterPath>
#include <QWheelEvent>
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gui/theme/metrics.h"
#include "gui/theme/theme.h"
#include "gui/theme/units.h"
#include "gui/vram/cell_art.h"

namespace granary::gui {

namespace {

constexpr int kPadding = 8;       // logical, between the frame and the cells
constexpr int kLargestCell = 28;  // logical
constexpr size_t kRecentFrames = 256;
constexpr int kLabel = 20;  // logical height of a range's label

// A picture with a name, a spoken summary, and the text of the cell under the cursor.
class MapAccessible : public QAccessibleWidget {
  public:
    explicit MapAccessible(MapView* view) : QAccessibleWidget(view, QAccessible::Graphic) {}
    QString text(QAccessible::Text kind) const override {
        const auto* view = static_cast<const MapView*>(widget());
        if (kind != QAccessible::Value) return QAccessibleWidget::text(kind);
        const MapModel::HoverText text = view->currentText();
        return text.second.isEmpty() ? text.first : text.first + QStringLiteral("; ") + text.second;
    }
};

QAccessibleInterface* makeAccessible(const QString& key, QObject* object) {
    Q_UNUSED(key)
    if (auto* view = qobject_cast<MapView*>(object)) return new MapAccessible(view);
    return nullptr;
}

}  // namespace

MapView::MapView(MapModel& model, QWidget* parent)
    : QWidget(parent), m_model(model), m_palette(&MapPalette::of(palette())) {
    static const bool kInstalled = (QAccessible::installFactory(makeAccessible), true);
    Q_UNUSED(kInstalled)
    setObjectName(QStringLiteral("memoryMap"));
    setAccessibleName(tr("Memory map"));
    setAccessibleDescription(m_model.summary());
    setAttribute(Qt::WA_OpaquePaintEvent);
    setMouseTracking(true);
    setFocusPolicy(Qt::StrongFocus);
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Expanding);
    m_art.resize(CellKey::kCount);
}

void MapView::relay() {
    m_scale = devicePixelRatioF();
    const QSize pixels(std::max(qRound(width() * m_scale), 1),
                       std::max(qRound(height() * m_scale), 1));
    if (m_image.size() != pixels) m_image = QImage(pixels, QImage::Format_RGB32);
    m_image.setDevicePixelRatio(m_scale);
    const int padding = qRound(kPadding * m_scale);
    m_inner = QRect(QPoint(0, 0), pixels).adjusted(padding, padding, -padding, -padding);

    std::vector<int> sections;
    for (const MapModel::Section& section : m_model.sections()) sections.push_back(section.cells);
    const int label = m_model.order() == MapOrder::Ranges ? qRound(kLabel * m_scale) : 0;
    const int oldCell = m_layout.cell();
    m_layout.compute(m_inner.size(), sections, label, qRound(kLargestCell * m_scale));
    if (m_layout.cell() != oldCell) std::fill(m_art.begin(), m_art.end(), QImage());
    m_scroll = std::clamp(m_scroll, 0, scrollMaximum());
    m_top = std::max((m_inner.height() - m_layout.contentHeight()) / 2, 0);
    drawAll();
    Q_EMIT captionChanged();
}

int MapView::scrollMaximum() const {
    return std::max(m_layout.contentHeight() - m_inner.height(), 0);
}

void MapView::drawAll() {
    m_image.fill(palette().color(QPalette::Window));
    {
        QPainter painter(&m_image);
        painter.setRenderHint(QPainter::Antialiasing);
        QPainterPath frame;
        frame.addRoundedRect(QRectF(rect()).adjusted(0.5, 0.5, -0.5, -0.5), metrics::kRadius,
                             metrics::kRadius);
        painter.fillPath(frame, m_palette->canvas);
        painter.strokePath(frame, QPen(Theme::tones(palette()).border, 1));
    }
    for (int cell = 0; cell < m_layout.cells() && cell < m_model.cells(); ++cell) drawCell(cell);
    if (m_layout.labelHeight() == 0) return;

    QPainter painter(&m_image);
    painter.setFont(metrics::small(font()));
    const QLocale locale;
    const QRectF inner(QPointF(m_inner.topLeft()) / m_scale, QSizeF(m_inner.size()) / m_scale);
    painter.setClipRect(inner);
    for (size_t i = 0; i < m_layout.sections().size(); ++i) {
        const MapLayout::Section& section = m_layout.sections()[i];
        const qreal bottom = (m_inner.top() + m_top + section.top - m_scroll) / m_scale;
        const qreal left = (m_inner.left() + m_layout.left()) / m_scale;
        const QRectF label(left, bottom - kLabel, m_layout.columns() * m_layout.cell() / m_scale,
                           kLabel - 3);
        const MapModel::Section& info = m_model.sections()[i];
        painter.setPen(palette().color(QPalette::Text));
        painter.drawText(label, Qt::AlignLeft | Qt::AlignBottom, info.name);
        painter.setPen(m_palette->text);
        painter.drawText(label, Qt::AlignRight | Qt::AlignBottom,
                         counted(static_cast<qulonglong>(info.cells), tr("place"), tr("places")));
    }
}

QRect MapView::cellPixels(int cell) const {
    return m_layout.rect(cell).translated(m_inner.left(), m_inner.top() + m_top - m_scroll);
}

QRectF MapView::cellRect(int cell) const {
    const QRect pixels = cellPixels(cell);
    return {QPointF(pixels.topLeft()) / m_scale, QSizeF(pixels.size()) / m_scale};
}

int MapView::cellAt(QPointF position) const {
    const QPoint pixel(static_cast<int>(std::floor(position.x() * m_scale)),
                       static_cast<int>(std::floor(position.y() * m_scale)));
    if (!m_inner.contains(pixel)) return -1;
    const int cell =
        m_layout.cellAt(pixel - m_inner.topLeft() - QPoint(0, m_top) + QPoint(0, m_scroll));
    return cell < m_model.cells() ? cell : -1;
}

const QImage& MapView::art(CellKey key) {
    QImage& image = m_art[key.bits % CellKey::kCount];
    if (image.isNull()) image = cellImage(*m_palette, key, m_layout.cell() - m_layout.gap());
    return image;
}

void MapView::drawCell(int cell) {
    const QRect target = cellPixels(cell);
    const QRect visible = target & m_inner;
    if (visible.isEmpty()) return;
    const QImage& source = art(m_model.key(cell));
    const size_t bytes = static_cast<size_t>(visible.width()) * 4;
    const qsizetype stride = m_image.bytesPerLine(), sourceStride = source.bytesPerLine();
    uchar* to = m_image.bits() + visible.top() * stride + visible.left() * 4;
    const uchar* from = source.constBits() + (visible.top() - target.top()) * sourceStride +
                        (visible.left() - target.left()) * 4;
    for (int row = 0; row < visible.height(); ++row, to += stride, from += sourceStride)
        std::memcpy(to, from, bytes);
}

void MapView::refresh() {
    QElapsedTimer timer;
    timer.start();
    const MapModel::Changes changes = m_model.takeChanges();
    if (changes.relaid) {
        m_hover = m_cursor = -1;
        m_related.clear();
        if (m_pinned >= m_model.granules()) m_pinned = -1;
        relay();
        update();
        Q_EMIT currentChanged();
    } else if (!changes.cells.empty() && m_scale > 0) {
        QRect dirty;
        for (const int cell : changes.cells) {
            drawCell(cell);
            dirty |= cellPixels(cell);
        }
        dirty &= m_inner;
        const QRectF logical(QPointF(dirty.topLeft()) / m_scale, QSizeF(dirty.size()) / m_scale);
        update(logical.toAlignedRect().adjusted(-1, -1, 1, 1));
        relate();
        Q_EMIT currentChanged();
    } else {
        return;
    }
    m_pendingMs += timer.nsecsElapsed() / 1e6;
}

void MapView::drawRing(QPainter& painter, int cell, const QColor& color, qreal width) const {
    const qreal pixel = 1 / m_scale;
    const QRectF cellRectangle = cellRect(cell);
    const auto stroke = [&](qreal out, qreal w, const QColor& c) {
        painter.setPen(QPen(c, w, Qt::SolidLine, Qt::SquareCap, Qt::MiterJoin));
        painter.drawRect(cellRectangle.adjusted(-out, -out, out, out));
    };
    // A line of the canvas colour under it keeps the ring apart from the fill on every class.
    stroke(width / 2, width + 2 * pixel, m_palette->canvas);
    stroke(width / 2, width, color);
}

void MapView::paintEvent(QPaintEvent*) {
    QElapsedTimer timer;
    timer.start();
    if (m_scale != devicePixelRatioF() || m_image.isNull()) relay();
    QPainter painter(this);
    // On a fractional scale the widget may begin between two device pixels; the image must not.
    const QPointF origin = painter.deviceTransform().map(QPointF(0, 0));
    const QPointF aligned(std::round(origin.x()), std::round(origin.y()));
    const QPointF shift = (aligned - origin) / m_scale;
    painter.drawImage(shift, m_image);
    painter.translate(shift);

    if (m_model.empty()) {
        painter.setPen(m_palette->text);
        painter.drawText(rect().adjusted(24, 24, -24, -24), Qt::AlignCenter | Qt::TextWordWrap,
                         m_emptyText);
    }
    painter.save();
    painter.setClipRect(
        QRectF(QPointF(m_inner.topLeft()) / m_scale, QSizeF(m_inner.size()) / m_scale)
            .adjusted(-3, -3, 3, 3));
    if (m_related.size() > 1)
        for (const int cell : m_related) drawRing(painter, cell, m_palette->ring, 1);
    const int pinned = m_model.cellOfGranule(m_pinned);
    if (pinned >= 0) drawRing(painter, pinned, m_palette->pin, 2);
    if (const int cell = current(); cell >= 0 && cell != pinned)
        drawRing(painter, cell, m_palette->ring, 1.5);
    painter.restore();

    if (scrollMaximum() > 0) {
        const qreal track = height() - 2.0 * kPadding;
        const qreal share = m_inner.height() / static_cast<qreal>(m_layout.contentHeight());
        const qreal at = m_scroll / static_cast<qreal>(m_layout.contentHeight());
        painter.setRenderHint(QPainter::Antialiasing);
        painter.setPen(Qt::NoPen);
        painter.setBrush(m_palette->text);
        painter.drawRoundedRect(
            QRectF(width() - 6, kPadding + track * at, 3, std::max(track * share, 12.0)), 1.5, 1.5);
    }
    if (hasFocus()) {
        painter.setRenderHint(QPainter::Antialiasing);
        painter.setBrush(Qt::NoBrush);
        painter.setPen(QPen(palette().color(QPalette::Highlight), 2));
        painter.drawRoundedRect(QRectF(rect()).adjusted(1, 1, -1, -1), metrics::kRadius,
                                metrics::kRadius);
    }
    m_lastMs = m_pendingMs + timer.nsecsElapsed() / 1e6;
    m_pendingMs = 0;
    m_worstMs = std::max(m_worstMs, m_lastMs);
    m_recentMs.push_back(m_lastMs);
    if (m_recentMs.size() > kRecentFrames) m_recentMs.pop_front();
}

double MapView::paintMs() const {
    if (m_recentMs.empty()) return 0;
    std::vector<double> sorted(m_recentMs.begin(), m_recentMs.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
}

void MapView::resetPaintMs() {
    m_lastMs = m_worstMs = 0;
    m_recentMs.clear();
}

void MapView::resizeEvent(QResizeEvent*) {
    relay();
}

void MapView::changeEvent(QEvent* event) {
    if (event->type() == QEvent::PaletteChange || event->type() == QEvent::FontChange) {
        m_palette = &MapPalette::of(palette());
        std::fill(m_art.begin(), m_art.end(), QImage());
        if (m_scale > 0) drawAll();
        update();
    }
    QWidget::changeEvent(event);
}

bool MapView::event(QEvent* event) {
    // N and P move the cursor; a window shortcut must not take them while the map has the focus.
    if (event->type() == QEvent::ShortcutOverride) {
        const auto* key = static_cast<QKeyEvent*>(event);
        if (key->modifiers() == Qt::NoModifier &&
            (key->key() == Qt::Key_N || key->key() == Qt::Key_P)) {
            event->accept();
            return true;
        }
    }
    return QWidget::event(event);
}

int MapView::current() const {
    if (m_hover >= 0) return m_hover;
    if (hasFocus() && m_cursor >= 0) return m_cursor;
    return m_model.cellOfGranule(m_pinned);
}

void MapView::relate() {
    std::vector<int> related = m_model.sameOwnerId(current());
    if (related == m_related) return;
    m_related = std::move(related);
    update();
}

void MapView::setHover(int cell) {
    if (cell == m_hover) return;
    m_hover = cell;
    relate();
    update();
    Q_EMIT currentChanged();
}

void MapView::moveCursor(int cell) {
    if (m_model.cells() == 0) return;
    m_cursor = std::clamp(cell, 0, m_model.cells() - 1);
    m_hover = -1;
    relate();
    const QRect pixels = cellPixels(m_cursor);
    if (pixels.top() < m_inner.top())
        scrollTo(m_scroll - (m_inner.top() - pixels.top()) - m_layout.labelHeight());
    else if (pixels.bottom() > m_inner.bottom())
        scrollTo(m_scroll + pixels.bottom() - m_inner.bottom());
    update();
    Q_EMIT currentChanged();
    QAccessibleValueChangeEvent spoken(this, currentText().first);
    QAccessible::updateAccessibility(&spoken);
}

void MapView::setPinnedGranule(int granule) {
    m_pinned = granule < m_model.granules() ? granule : -1;
    relate();
    update();
    Q_EMIT currentChanged();
}

void MapView::scrollTo(int pixels) {
    const int to = std::clamp(pixels, 0, scrollMaximum());
    if (to == m_scroll) return;
    m_scroll = to;
    drawAll();
    update();
}

void MapView::mouseMoveEvent(QMouseEvent* event) {
    setHover(cellAt(event->position()));
}

void MapView::mousePressEvent(QMouseEvent* event) {
    if (event->button() != Qt::LeftButton) return QWidget::mousePressEvent(event);
    const int cell = cellAt(event->position());
    if (cell >= 0) m_cursor = cell;
    const int granule = m_model.granule(cell);
    setPinnedGranule(granule == m_pinned ? -1 : granule);
}

void MapView::leaveEvent(QEvent*) {
    setHover(-1);
}

void MapView::wheelEvent(QWheelEvent* event) {
    if (scrollMaximum() == 0) return event->ignore();
    const int rows = m_layout.cell() * 8;
    scrollTo(m_scroll - event->angleDelta().y() * rows / 120);
    setHover(cellAt(event->position()));
}

void MapView::keyPressEvent(QKeyEvent* event) {
    const int from = std::max(m_cursor, 0);
    const bool first = m_cursor < 0;  // the first key shows the cursor where it is
    switch (event->key()) {
        case Qt::Key_Left:
            return moveCursor(first ? from : from - 1);
        case Qt::Key_Right:
            return moveCursor(first ? from : from + 1);
        case Qt::Key_Up:
            return moveCursor(first ? from : m_layout.rowNeighbour(from, -1));
        case Qt::Key_Down:
            return moveCursor(first ? from : m_layout.rowNeighbour(from, 1));
        case Qt::Key_Home:
            return moveCursor(0);
        case Qt::Key_End:
            return moveCursor(m_model.cells() - 1);
        case Qt::Key_N:
            return moveCursor(m_model.nextOfSameOwner(from, 1));
        case Qt::Key_P:
            return moveCursor(m_model.nextOfSameOwner(from, -1));
        case Qt::Key_Space:
        case Qt::Key_Return:
        case Qt::Key_Enter: {
            const int granule = m_model.granule(m_cursor);
            return setPinnedGranule(granule == m_pinned ? -1 : granule);
        }
        case Qt::Key_Escape:
            if (m_pinned >= 0) return setPinnedGranule(-1);
            break;
        default:
            break;
    }
    QWidget::keyPressEvent(event);
}

void MapView::focusInEvent(QFocusEvent* event) {
    setAccessibleDescription(m_model.summary());
    QWidget::focusInEvent(event);
    Q_EMIT currentChanged();
}

void MapView::focusOutEvent(QFocusEvent* event) {
    QWidget::focusOutEvent(event);
    Q_EMIT currentChanged();
}

QString MapView::caption() const {
    if (m_model.empty()) return {};
    const uint64_t granule = m_model.frame().granule_bytes;
    return tr("one cell = %1, one row = %2")
        .arg(bytesText(granule), QString::fromStdString(format_bytes(
                                     granule * static_cast<uint64_t>(m_layout.columns()))));
}

void MapView::setEmptyText(const QString& text) {
    m_emptyText = text;
    update();
}

}  // namespace granary::gui
