// SPDX-License-Identifier: GPL-3.0-or-later
#include "gui/theme/theme.h"

#include <QApplication>
#include <QEvent>
#include <QStyle>
#include <QWidget>

#include "gui/theme/control_style.h"

namespace granary::gui {

namespace {

QColor rgb(unsigned value) {
    return QColor::fromRgb(value);
}

}  // namespace

Theme::Theme(QApplication& app, QObject* parent) : QObject(parent), m_app(app) {
    QApplication::setStyle(new ControlStyle);
    app.installEventFilter(this);
    apply();
}

void Theme::setMode(ThemeMode mode) {
    if (mode == m_mode) return;
    m_mode = mode;
    apply();
}

ThemeMode Theme::modeFromName(const QString& name) {
    if (name == QLatin1String("light")) return ThemeMode::Light;
    if (name == QLatin1String("dark")) return ThemeMode::Dark;
    return ThemeMode::System;
}

QString Theme::name(ThemeMode mode) {
    switch (mode) {
        case ThemeMode::Light:
            return QStringLiteral("light");
        case ThemeMode::Dark:
            return QStringLiteral("dark");
        case ThemeMode::System:
            break;
    }
    return QStringLiteral("system");
}

bool Theme::isDark(const QPalette& palette) {
    return palette.color(QPalette::Window).lightness() < 128;
}

bool Theme::systemIsDark() const {
    // A default palette takes our own away, and what shows then is the system's.
    QApplication::setPalette(QPalette());
    return isDark(QApplication::palette());
}

void Theme::apply() {
    m_applying = true;
    const bool wasDark = m_dark;
    m_dark = m_mode == ThemeMode::System ? systemIsDark() : m_mode == ThemeMode::Dark;
    QApplication::setPalette(palette(m_dark));
    const QString sheet = styleSheet(m_dark);
    if (m_app.styleSheet() != sheet) m_app.setStyleSheet(sheet);
    m_applying = false;
    if (wasDark != m_dark) Q_EMIT changed(m_dark);
}

bool Theme::eventFilter(QObject* watched, QEvent* event) {
    // The desktop changed its theme while we follow it.
    if (event->type() == QEvent::ThemeChange && m_mode == ThemeMode::System && !m_applying)
        QMetaObject::invokeMethod(
            this, [this] { apply(); }, Qt::QueuedConnection);
    return QObject::eventFilter(watched, event);
}

QPalette Theme::palette(bool dark) {
    QPalette p;
    const auto set = [&p](QPalette::ColorRole role, unsigned light, unsigned disabled) {
        p.setColor(QPalette::Active, role, rgb(light));
        p.setColor(QPalette::Inactive, role, rgb(light));
        p.setColor(QPalette::Disabled, role, rgb(disabled));
    };
    const auto all = [&set](QPalette::ColorRole role, unsigned value) { set(role, value, value); };
    if (dark) {
        all(QPalette::Window, 0x1b1e23);
        set(QPalette::WindowText, 0xe4e8ed, 0x929aa5);
        all(QPalette::Base, 0x14171b);
        all(QPalette::AlternateBase, 0x1f2329);
        set(QPalette::Text, 0xe4e8ed, 0x929aa5);
        all(QPalette::PlaceholderText, 0x949ca7);
        all(QPalette::Button, 0x282d34);
        set(QPalette::ButtonText, 0xe4e8ed, 0x949ca7);
        all(QPalette::BrightText, 0xffffff);
        all(QPalette::ToolTipBase, 0x2c323a);
        all(QPalette::ToolTipText, 0xeef1f4);
        set(QPalette::Highlight, 0x2d68d2, 0x3a424d);
        set(QPalette::HighlightedText, 0xffffff, 0xd7dce2);
        all(QPalette::Link, 0x82b4f6);
        all(QPalette::LinkVisited, 0xc49bea);
        all(QPalette::Light, 0x3b424c);
        all(QPalette::Midlight, 0x30363e);
        all(QPalette::Mid, 0x23272d);
        all(QPalette::Dark, 0x101317);
        all(QPalette::Shadow, 0x08090b);
    } else {
        all(QPalette::Window, 0xf4f5f7);
        set(QPalette::WindowText, 0x1c2127, 0x666d78);
        all(QPalette::Base, 0xffffff);
        all(QPalette::AlternateBase, 0xf1f3f6);
        set(QPalette::Text, 0x1c2127, 0x666d78);
        all(QPalette::PlaceholderText, 0x656c77);
        all(QPalette::Button, 0xfbfbfc);
        set(QPalette::ButtonText, 0x1c2127, 0x666d78);
        all(QPalette::BrightText, 0xffffff);
        all(QPalette::ToolTipBase, 0x23282f);
        all(QPalette::ToolTipText, 0xf4f5f7);
        set(QPalette::Highlight, 0x2860c4, 0xd9dee5);
        set(QPalette::HighlightedText, 0xffffff, 0x4a515b);
        all(QPalette::Link, 0x1d55b5);
        all(QPalette::LinkVisited, 0x6b3fa0);
        all(QPalette::Light, 0xffffff);
        all(QPalette::Midlight, 0xe9ecf0);
        all(QPalette::Mid, 0xc8cdd5);
        all(QPalette::Dark, 0x9aa2ae);
        all(QPalette::Shadow, 0x5b6470);
    }
    return p;
}

const Tones& Theme::tones(bool dark) {
    static const Tones kLight{rgb(0xd9dde3), rgb(0xffffff), rgb(0xe8ebf0), rgb(0x5f6671),
                              rgb(0x1d55b5), rgb(0x8a4b00), rgb(0xb3141f), rgb(0x13693f),
                              rgb(0xe6effc), rgb(0xfdf1da), rgb(0xfce6e7), rgb(0x6d7682),
                              rgb(0x7b8490), rgb(0x1d55b5)};
    static const Tones kDark{rgb(0x343a43), rgb(0x22262c), rgb(0x2c323a), rgb(0x9fa7b2),
                             rgb(0x82b4f6), rgb(0xf2b75c), rgb(0xff8f8f), rgb(0x63d6a0),
                             rgb(0x1d2c44), rgb(0x3a2d14), rgb(0x43202a), rgb(0x828c99),
                             rgb(0x6b7480), rgb(0x82b4f6)};
    return dark ? kDark : kLight;
}

QString Theme::styleSheet(bool dark) {
    // %1 border, %2 card, %3 hover, %4 muted, %5 accent fill, %6 accent fill hovered,
    // %7 info, %8 warning, %9 danger bars, %10-%12 warning, danger, success text, %13 window,
    // %14 scroll handle, %15 scroll handle hovered, %16 checked segment, %17 disabled text,
    // %18 ring of the focus, %19 the same on an accent fill.
    static const char kSheet[] = R"(
QToolTip { border: 1px solid %1; padding: 4px 6px; }
QMainWindow::separator { background: %1; width: 1px; height: 1px; }
QMainWindow::separator:hover { background: %5; }
QToolBar { border: 0; border-bottom: 1px solid %1; padding: 4px 8px; spacing: 8px; }
QStatusBar { border-top: 1px solid %1; }
QStatusBar::item { border: 0; }
QMenuBar { border-bottom: 1px solid %1; }
QDockWidget::title { padding: 6px 12px; border-bottom: 1px solid %1; text-align: left; }
QSplitter::handle { background: %1; }
QPushButton, QToolButton[chip="true"] {
    border: 1px solid %1; border-radius: 5px; padding: 4px 12px; min-height: 18px;
    background: %2; }
QPushButton:hover, QToolButton[chip="true"]:hover { background: %3; }
QPushButton:pressed, QToolButton[chip="true"]:pressed { background: %1; }
QPushButton:disabled { color: %17; background: %13; }
QPushButton:focus, QToolButton[chip="true"]:focus {
    border: 2px solid %18; padding: 3px 11px; }
QPushButton[accent="true"] { background: %5; border-color: %5; color: #ffffff; }
QPushButton[accent="true"]:hover { background: %6; border-color: %6; }
QPushButton[accent="true"]:disabled { background: %13; border-color: %1; color: %17; }
QPushButton[accent="true"]:focus { border: 2px solid %19; }
QToolButton[chip="true"]::menu-indicator { image: none; }
QToolButton[segment="left"], QToolButton[segment="mid"], QToolButton[segment="right"] {
    border: 1px solid %1; padding: 3px 10px; min-height: 16px; background: %2; }
QToolButton[segment="left"] {
    border-top-left-radius: 5px; border-bottom-left-radius: 5px; border-right: 0; }
QToolButton[segment="mid"] { border-right: 0; }
QToolButton[segment="right"] {
    border-top-right-radius: 5px; border-bottom-right-radius: 5px; }
QToolButton[segment]:hover { background: %3; }
QToolButton[segment]:checked { background: %16; color: #ffffff; border-color: %16; }
QToolButton[segment]:focus { border: 2px solid %18; padding: 2px 9px; }
QToolButton[segment]:checked:focus { border-color: %19; }
QFrame[bar="info"] { background: %7; border: 0; border-radius: 5px; }
QFrame[bar="warning"] { background: %8; border: 0; border-radius: 5px; }
QFrame[bar="danger"] { background: %9; border: 0; border-radius: 5px; }
QLabel[tone="muted"] { color: %4; }
QLabel[tone="warning"] { color: %10; }
QLabel[tone="danger"] { color: %11; }
QLabel[tone="success"] { color: %12; }
QWidget[card="true"] { background: %2; border: 1px solid %1; border-radius: 5px; }
QAbstractSpinBox { min-height: 22px; }
QHeaderView::section {
    background: %2; border: 0; border-bottom: 1px solid %1; padding: 4px 6px; }
QListView#logLines { padding-left: 8px; }
QMenu { background: %2; border: 1px solid %1; padding: 4px; }
QMenu::item { padding: 5px 28px 5px 28px; border-radius: 4px; }
QMenu::item:selected { background: %3; }
QMenu::item:disabled { color: %17; }
QMenu::indicator { left: 8px; }
QMenu::separator { height: 1px; background: %1; margin: 4px 8px; }
QScrollBar:vertical { background: transparent; width: 12px; margin: 0; border: 0; }
QScrollBar:horizontal { background: transparent; height: 12px; margin: 0; border: 0; }
QScrollBar::handle { background: %14; border-radius: 4px; margin: 2px; }
QScrollBar::handle:vertical { min-height: 28px; }
QScrollBar::handle:horizontal { min-width: 28px; }
QScrollBar::handle:hover { background: %15; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: none; }
)";
    const Tones& t = tones(dark);
    const QPalette p = palette(dark);
    const QColor accent = p.color(QPalette::Highlight);
    const QColor scroll = dark ? rgb(0x464e59) : rgb(0xc3c9d1);
    const QColor values[] = {t.border,
                             t.card,
                             t.hover,
                             t.muted,
                             accent,
                             dark ? accent.darker(112) : accent.darker(115),
                             t.infoBack,
                             t.warningBack,
                             t.dangerBack,
                             t.warning,
                             t.danger,
                             t.success,
                             p.color(QPalette::Window),
                             scroll,
                             dark ? scroll.lighter(130) : scroll.darker(118),
                             accent,
                             p.color(QPalette::Disabled, QPalette::ButtonText),
                             t.focus,
                             p.color(QPalette::WindowText)};
    QString sheet = QString::fromLatin1(kSheet);
    // From the highest number down: %1 is also the beginning of %10.
    for (int i = static_cast<int>(std::size(values)); i > 0; --i)
        sheet.replace(QLatin1Char('%') + QString::number(i), values[i - 1].name());
    return sheet;
}

void Theme::setProperty(QWidget* widget, const char* name, const QVariant& value) {
    if (widget->property(name) == value) return;
    widget->setProperty(name, value);
    widget->style()->unpolish(widget);
    widget->style()->polish(widget);
    widget->update();
}

}  // namespace granary::gui
