// SPDX-License-Identifier: GPL-3.0-or-later
// Small shared pieces of the window's look: a rounded surface, icon buttons, quiet labels.
#pragma once

#include <QLabel>
#include <QProgressBar>
#include <QToolButton>
#include <QWidget>

#include "gui/widgets/icons.h"

class QPushButton;

namespace granary::gui {

// A rounded surface with a hairline; `fill` names the palette role it is filled with.
class Panel : public QWidget {
    Q_OBJECT

  public:
    explicit Panel(QPalette::ColorRole fill = QPalette::Base, QWidget* parent = nullptr);
    void setHighlighted(bool highlighted);  // the border in the accent colour, as for focus

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    QPalette::ColorRole m_fill;
    bool m_highlighted = false;
};

// A label in the theme's muted tone.
class QuietLabel : public QLabel {
    Q_OBJECT

  public:
    explicit QuietLabel(const QString& text = {}, QWidget* parent = nullptr);
};

// One line of text that ends in an ellipsis where there is no room, and tells all of it on hover.
class ElidedLabel : public QWidget {
    Q_OBJECT

  public:
    explicit ElidedLabel(QWidget* parent = nullptr);
    void setText(const QString& text);
    QString text() const { return m_text; }
    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    QString m_text;
};

// Flat and square, with an accessible name that is also the tooltip.
QToolButton* iconButton(Glyph glyph, const QString& name, QWidget* parent = nullptr);

// A push button filled with the accent colour: one per view at most.
class AccentButton : public QToolButton {
    Q_OBJECT

  public:
    explicit AccentButton(QWidget* parent = nullptr);
    QSize sizeHint() const override;

  protected:
    void paintEvent(QPaintEvent* event) override;
};

// A line of 4 pixels that fills; without a range it is a quiet track.
class ThinProgress : public QProgressBar {
    Q_OBJECT

  public:
    explicit ThinProgress(QWidget* parent = nullptr);

  protected:
    void paintEvent(QPaintEvent* event) override;
};

// A widget whose content is a centred column of at most `width` pixels.
QWidget* centredColumn(QWidget* content, int width, QWidget* parent = nullptr);

inline constexpr int kColumnWidth = 900;

}  // namespace granary::gui
