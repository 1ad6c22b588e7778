// SPDX-License-Identifier: GPL-3.0-or-later
// Find in the conversation: Enter and F3 go on, Shift goes back, Escape closes.
#pragma once

#include <QWidget>

class QLabel;
class QLineEdit;

namespace granary::gui {

class FindBar : public QWidget {
    Q_OBJECT

  public:
    explicit FindBar(QWidget* parent = nullptr);
    void open();
    void close();
    void setHits(int hit, int count);
    void next(bool backwards);

  Q_SIGNALS:
    void findRequested(const QString& text, bool backwards);
    void closed();

  protected:
    void keyPressEvent(QKeyEvent* event) override;

  private:
    QLineEdit* m_edit;
    QLabel* m_count;
};

}  // namespace granary::gui
