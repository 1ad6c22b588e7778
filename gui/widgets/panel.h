// SPDX-License-Identifier: GPL-3.0-or-later
// Small shared pieces of the window's look: a field, icon buttons, quiet labels.
#pragma once

#include <QLabel>
#include <QPointer>
#include <QProgressBar>
#include <QToolButton>
#include <QWidget>

#include "gui/widgets/icons.h"

class QPushButton;

namespace granary::gui {

// A field made of several widgets: it looks as a line edit does, in the state of its editor.
class Panel : public QWidget {
    Q_OBJECT

  public:
    using QWidget::QWidget;
    void setEditor(QWidget* editor);  // the part that is written in; it draws no frame of its own

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;
    void paintEvent(QPaintEvent* event) override;

  private:
    QPointer<QWidget> m_editor;
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
    void keyPressEvent(QKeyEvent* event) override;
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
