// SPDX-License-Identifier: GPL-3.0-or-later
// A rounded button with a leading dot or icon and text that elides: model, device and state in
// the tool bar, documents in the tray, questions above the input.
#pragma once

#include <QAbstractButton>
#include <QColor>

namespace granary::gui {

class Chip : public QAbstractButton {
    Q_OBJECT

  public:
    explicit Chip(QWidget* parent = nullptr);

    void setDot(const QColor& color);  // invalid: no dot
    // Second, muted part of the text, never elided: "1,412 tokens".
    void setNote(const QString& note);
    QString note() const { return m_note; }
    void setRemovable(bool removable);
    void setOutlined(bool outlined);
    void setMaximumTextWidth(int pixels) { m_maximumTextWidth = pixels; }

    QSize sizeHint() const override;
    QSize minimumSizeHint() const override;

  Q_SIGNALS:
    void removeClicked();

  protected:
    void paintEvent(QPaintEvent* event) override;
    bool event(QEvent* event) override;
    void mousePressEvent(QMouseEvent* event) override;
    void mouseMoveEvent(QMouseEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;

  private:
    QRect removeRect() const;
    int fixedWidth() const;  // everything but the text

    QColor m_dot;
    QString m_note;
    bool m_removable = false;
    bool m_outlined = false;
    bool m_overRemove = false;
    int m_maximumTextWidth = 320;
};

}  // namespace granary::gui
