// SPDX-License-Identifier: GPL-3.0-or-later
// Where a person writes: an input of 2 to 8 lines in a rounded frame, with what belongs to it.
#pragma once

#include <QPlainTextEdit>

#include "gui/widgets/panel.h"

namespace granary::gui {

// Enter sends, Shift+Enter breaks the line. A paste longer than a screen becomes a document.
class InputEdit : public QPlainTextEdit {
    Q_OBJECT

  public:
    explicit InputEdit(QWidget* parent = nullptr);
    QSize sizeHint() const override;

  Q_SIGNALS:
    void submitted();
    void longPaste(const QString& text);

  protected:
    void keyPressEvent(QKeyEvent* event) override;
    bool canInsertFromMimeData(const QMimeData* source) const override;
    void insertFromMimeData(const QMimeData* source) override;
    void resizeEvent(QResizeEvent* event) override;
    void changeEvent(QEvent* event) override;

  private:
    void fit();
    void setMargins();
    int heightOf(int lines) const;

    int m_lines = 0;
};

class Composer : public Panel {
    Q_OBJECT

  public:
    // The actions appear as buttons below the input.
    Composer(QAction* attach, QAction* options, QAction* send, QAction* stop,
             QWidget* parent = nullptr);

    QString text() const;
    void setText(const QString& text);
    InputEdit* input() const { return m_input; }
    // What stands at the left below the input: tokens, or why there is no sending.
    void setHint(const QString& hint);
    void setAnswering(bool answering);  // Stop stands where Send was

  Q_SIGNALS:
    void edited();
    void submitted();
    void longPaste(const QString& text);

  private:
    InputEdit* m_input;
    QLabel* m_hint;
    AccentButton* m_send;
    AccentButton* m_stop;
};

}  // namespace granary::gui
