// SPDX-License-Identifier: GPL-3.0-or-later
// The look of the program: Fusion with our own palette pair and controls (control_style.h), and a
// style sheet for accents only.
//
// Dynamic properties that the style sheet knows:
//   QPushButton    accent=true             the one button that goes on
//   QToolButton    chip=true               a rounded button of the tool bar that shows a state
//   QToolButton    segment=left|mid|right  one of several exclusive choices
//   QFrame         bar=info|warning|danger a message in the flow, with its buttons
//   QLabel         tone=muted|warning|danger|success
//   QWidget        card=true               a raised surface with a hairline border
#pragma once

#include <QColor>
#include <QObject>
#include <QPalette>

class QApplication;
class QWidget;

namespace granary::gui {

enum class ThemeMode { System, Light, Dark };

// Colours beyond those of QPalette. Text tones reach 4.5:1 on the window, base and card colours.
struct Tones {
    QColor border;                             // hairlines between surfaces
    QColor card;                               // a raised surface
    QColor hover;                              // under the pointer
    QColor muted;                              // secondary text
    QColor accent;                             // text and marks in the accent colour
    QColor warning;                            // text
    QColor danger;                             // text
    QColor success;                            // text
    QColor infoBack, warningBack, dangerBack;  // bars; plain text on them reaches 4.5:1
    // Outlines of controls; they reach 3:1 on the window, base and card colours.
    QColor control;          // that can be used
    QColor controlDisabled;  // that cannot, for now
    QColor focus;            // the ring around what the keyboard acts on
};

class Theme : public QObject {
    Q_OBJECT
  public:
    explicit Theme(QApplication& app, QObject* parent = nullptr);

    ThemeMode mode() const { return m_mode; }
    void setMode(ThemeMode mode);
    bool dark() const { return m_dark; }

    // "system", "light", "dark"; anything else is System.
    static ThemeMode modeFromName(const QString& name);
    static QString name(ThemeMode mode);

    static QPalette palette(bool dark);
    static bool isDark(const QPalette& palette);  // by the lightness of the window colour
    static const Tones& tones(bool dark);
    static const Tones& tones(const QPalette& palette) { return tones(isDark(palette)); }
    static QString styleSheet(bool dark);

    // Sets a dynamic property and has the style sheet look at the widget again.
    static void setProperty(QWidget* widget, const char* name, const QVariant& value);

  Q_SIGNALS:
    void changed(bool dark);

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;

  private:
    void apply();
    bool systemIsDark() const;

    QApplication& m_app;
    ThemeMode m_mode = ThemeMode::System;
    bool m_dark = false;
    bool m_applying = false;
};

}  // namespace granary::gui
