// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/script/layout_audit.h"

#include <QAbstractButton>
#include <QAbstractScrollArea>
#include <QAbstractSpinBox>
#include <QApplication>
#include <QComboBox>
#include <QImage>
#include <QKeyEvent>
#include <QLabel>
#include <QLayout>
#include <QLineEdit>
#include <QMainWindow>
#include <QPlainTextEdit>
#include <QPointer>
#include <QScrollBar>
#include <QSet>
#include <QSlider>
#include <QStackedLayout>
#include <QTextEdit>
#include <QToolButton>
#include <QWidget>
#include <algorithm>
#include <map>
#include <vector>

#include "gui/script/outline_audit.h"
#include "gui/theme/contrast.h"

namespace granary::gui {

namespace {

constexpr double kLeastContrast = 4.5;

QString nameOf(const QWidget* widget) {
    QString name = QString::fromLatin1(widget->metaObject()->className());
    if (!widget->objectName().isEmpty()) name += QLatin1Char('#') + widget->objectName();
    const auto* label = qobject_cast<const QLabel*>(widget);
    const auto* button = qobject_cast<const QAbstractButton*>(widget);
    const QString text = label ? label->text() : button ? button->text() : QString();
    if (!text.isEmpty()) name += QStringLiteral(" \"") + text.left(40) + QLatin1Char('"');
    return name;
}

bool isPartOfControl(const QWidget* widget) {
    // Inner parts of Qt's own controls speak through their owner.
    return widget->objectName().startsWith(QLatin1String("qt_")) ||
           qobject_cast<const QScrollBar*>(widget) ||
           qobject_cast<const QAbstractSpinBox*>(widget->parentWidget()) ||
           qobject_cast<const QComboBox*>(widget->parentWidget());
}

bool isControl(const QWidget* widget) {
    return widget->focusPolicy() != Qt::NoFocus &&
           (qobject_cast<const QAbstractButton*>(widget) ||
            qobject_cast<const QAbstractSpinBox*>(widget) ||
            qobject_cast<const QAbstractSlider*>(widget) ||
            qobject_cast<const QLineEdit*>(widget) || qobject_cast<const QComboBox*>(widget) ||
            qobject_cast<const QAbstractScrollArea*>(widget) ||
            widget->focusPolicy() & Qt::TabFocus);
}

void checkName(const QWidget* widget, QStringList& faults) {
    if (!isControl(widget) || isPartOfControl(widget)) return;
    const auto* button = qobject_cast<const QAbstractButton*>(widget);
    if (widget->accessibleName().isEmpty() && (!button || button->text().isEmpty())) {
        faults << QStringLiteral("unnamed control: ") + nameOf(widget);
    }
}

void checkPlace(const QWidget* widget, QStringList& faults) {
    const QWidget* parent = widget->parentWidget();
    if (!parent || widget->isWindow() || isPartOfControl(widget)) return;
    // Content of a scroll area is meant to be larger than its viewport.
    if (qobject_cast<const QAbstractScrollArea*>(parent->parentWidget())) return;
    if (!parent->rect().adjusted(-1, -1, 1, 1).contains(widget->geometry())) {
        const QRect at = widget->geometry();
        faults << QStringLiteral("outside its parent: %1 at %2,%3 %4x%5 in %6 of %7x%8")
                      .arg(nameOf(widget))
                      .arg(at.x())
                      .arg(at.y())
                      .arg(at.width())
                      .arg(at.height())
                      .arg(nameOf(parent))
                      .arg(parent->width())
                      .arg(parent->height());
    }
}

void checkText(const QWidget* widget, QStringList& faults) {
    const auto tooSmall = [&](QSize need) {
        faults << QStringLiteral("clipped text: %1 needs %2x%3, has %4x%5")
                      .arg(nameOf(widget))
                      .arg(need.width())
                      .arg(need.height())
                      .arg(widget->width())
                      .arg(widget->height());
    };
    if (const auto* label = qobject_cast<const QLabel*>(widget)) {
        if (label->text().isEmpty()) return;
        if (label->wordWrap()) {
            const int height = label->heightForWidth(label->width());
            if (height > label->height() + 1) tooSmall({label->width(), height});
        } else if (label->minimumSizeHint().width() > label->width() + 1 ||
                   label->minimumSizeHint().height() > label->height() + 1) {
            tooSmall(label->minimumSizeHint());
        }
        return;
    }
    const auto* tool = qobject_cast<const QToolButton*>(widget);
    const auto* button = qobject_cast<const QAbstractButton*>(widget);
    if (!button || button->text().isEmpty()) return;
    if (tool && tool->toolButtonStyle() == Qt::ToolButtonIconOnly) return;
    const int text = button->fontMetrics().size(Qt::TextShowMnemonic, button->text()).width();
    // Widgets that elide their text say so by a smaller least size, and tell the rest on hover.
    const bool elides = button->minimumSizeHint().width() < text;
    if (!elides && text > button->width()) tooSmall({text, button->height()});
    if (button->fontMetrics().height() > button->height()) {
        tooSmall({button->width(), button->fontMetrics().height()});
    }
}

// Contrast as drawn: the commonest colour of the widget's picture against the one that differs
// from it most among those that text can be made of.
void checkContrast(QWidget* widget, QStringList& faults) {
    const auto* label = qobject_cast<const QLabel*>(widget);
    const auto* button = qobject_cast<const QAbstractButton*>(widget);
    const bool text = (label && !label->text().isEmpty()) ||
                      (button && !button->text().isEmpty() && button->isEnabled());
    if (!text || widget->width() < 4 || widget->height() < 4) return;
    if (const auto* tool = qobject_cast<const QToolButton*>(widget)) {
        if (tool->toolButtonStyle() == Qt::ToolButtonIconOnly) return;
    }
    QWidget* window = widget->window();
    const QRect at(widget->mapTo(window, QPoint(0, 0)), widget->size());
    const QRect visible =
        at & QRect(widget->mapTo(window, widget->visibleRegion().boundingRect().topLeft()),
                   widget->visibleRegion().boundingRect().size());
    if (visible.width() < 8 || visible.height() < 8) return;
    const QImage image = window->grab(visible).toImage();
    std::map<QRgb, int> colours;
    for (int y = 0; y < image.height(); ++y) {
        for (int x = 0; x < image.width(); ++x) ++colours[image.pixel(x, y)];
    }
    const auto commonest =
        std::max_element(colours.begin(), colours.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    double best = 1;
    for (const auto& [colour, count] : colours) {
        best = std::max(best, contrastRatio(QColor(colour), QColor(commonest->first)));
    }
    if (best > 1.05 && best < kLeastContrast) {
        faults << QStringLiteral("contrast %1: %2").arg(best, 0, 'f', 2).arg(nameOf(widget));
    }
}

void checkOutline(QWidget* widget, QStringList& faults) {
    const auto contrast = outlineContrast(widget);
    if (contrast && *contrast < kLeastOutline)
        faults << QStringLiteral("outline %1: %2").arg(*contrast, 0, 'f', 2).arg(nameOf(widget));
}

// The widgets that a layout and the layouts in it have placed.
void collectPlaced(const QWidget* parent, const QLayout* layout,
                   std::vector<const QWidget*>& placed) {
    if (qobject_cast<const QStackedLayout*>(layout)) return;
    for (int i = 0; i < layout->count(); ++i) {
        QLayoutItem* item = layout->itemAt(i);
        if (const QLayout* inner = item->layout()) collectPlaced(parent, inner, placed);
        const QWidget* widget = item->widget();
        if (widget && widget->isVisibleTo(parent)) placed.push_back(widget);
    }
}

// What is placed in the same parent does not lie over each other.
void checkOverlap(const QWidget* parent, QStringList& faults) {
    if (!parent->layout() || qobject_cast<const QMainWindow*>(parent)) return;
    std::vector<const QWidget*> placed;
    collectPlaced(parent, parent->layout(), placed);
    for (size_t a = 0; a < placed.size(); ++a) {
        for (size_t b = a + 1; b < placed.size(); ++b) {
            const QRect both = placed[a]->geometry() & placed[b]->geometry();
            if (both.width() <= 1 || both.height() <= 1) continue;
            faults << QStringLiteral("overlap of %1x%2: %3 and %4")
                          .arg(both.width())
                          .arg(both.height())
                          .arg(nameOf(placed[a]), nameOf(placed[b]));
        }
    }
}

// Tab must reach every stop and come back to where it began.
void checkFocus(QWidget* window, QStringList& faults) {
    QPointer<QWidget> before = QApplication::focusWidget();
    QSet<QWidget*> seen;
    QWidget* last = nullptr;
    int stays = 0;
    constexpr int kMost = 2000;
    constexpr int kLinks = 64;  // stops inside one text
    const QWidgetList inner = window->findChildren<QWidget*>();
    const auto stops = std::count_if(inner.begin(), inner.end(), [&](const QWidget* widget) {
        return widget->isVisibleTo(window) && widget->window() == window && widget->isEnabled() &&
               widget->focusPolicy() & Qt::TabFocus && !isPartOfControl(widget);
    });
    for (int i = 0; i < kMost; ++i) {
        QWidget* focus = window->focusWidget();
        if (focus) seen.insert(focus);
        stays = focus && focus == last && stops > 1 ? stays + 1 : 0;
        if (stays > kLinks) {
            faults << QStringLiteral("focus trap: ") + nameOf(focus);
            break;
        }
        last = focus;
        QKeyEvent tab(QEvent::KeyPress, Qt::Key_Tab, Qt::NoModifier);
        QApplication::sendEvent(focus ? focus : window, &tab);
        if (window->focusWidget() && seen.contains(window->focusWidget()) &&
            window->focusWidget() != last) {
            break;
        }
    }
    if (before) before->setFocus();
}

}  // namespace

QStringList auditLayout(QWidget* window) {
    // What a person sees: after the layouts have followed the last change.
    QCoreApplication::sendPostedEvents(nullptr, QEvent::LayoutRequest);
    QStringList faults;
    for (QWidget* widget : window->findChildren<QWidget*>()) {
        if (!widget->isVisibleTo(window) || widget->window() != window) continue;
        checkName(widget, faults);
        checkPlace(widget, faults);
        checkText(widget, faults);
        checkContrast(widget, faults);
        checkOutline(widget, faults);
        checkOverlap(widget, faults);
    }
    checkFocus(window, faults);
    return faults;
}

}  // namespace granary::gui
