// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/widgets/full_height_scroll.h"

#include <QEvent>
#include <QResizeEvent>
#include <QScrollBar>

namespace granary::gui {

FullHeightScroll::FullHeightScroll(QWidget* parent) : QScrollArea(parent) {
    setFrameShape(QFrame::NoFrame);
    setWidgetResizable(true);
    setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
    setFocusPolicy(Qt::NoFocus);
}

void FullHeightScroll::setContent(QWidget* content) {
    setWidget(content);
    viewport()->setAutoFillBackground(false);
    content->setAutoFillBackground(false);
}

QSize FullHeightScroll::sizeHint() const {
    if (widget() == nullptr) return QScrollArea::sizeHint();
    const QSize content = widget()->sizeHint();
    const int height = widget()->hasHeightForWidth() && width() > 0
                           ? widget()->heightForWidth(width())
                           : content.height();
    return {content.width(), height};
}

// With room for its scroll bar, which would else lie over the content's right edge.
QSize FullHeightScroll::minimumSizeHint() const {
    return {widget()->minimumSizeHint().width() + verticalScrollBar()->sizeHint().width(), 80};
}

bool FullHeightScroll::eventFilter(QObject* watched, QEvent* event) {
    if (watched == widget() && event->type() == QEvent::LayoutRequest) updateGeometry();
    return QScrollArea::eventFilter(watched, event);
}

void FullHeightScroll::resizeEvent(QResizeEvent* event) {
    QScrollArea::resizeEvent(event);
    if (event->size().width() != event->oldSize().width()) updateGeometry();
}

}  // namespace granary::gui
