// SPDX-License-Identifier: GPL-3.0-or-later
// Code of an answer: a head with the language and Copy, the text in one width below it, scrolled
// sideways where a line is long.
#pragma once

#include <QWidget>

class QLabel;
class QPlainTextEdit;

namespace granary::gui {

class CodeBlock : public QWidget {
    Q_OBJECT

  public:
    explicit CodeBlock(QWidget* parent = nullptr);
    void setCode(const QString& language, const QString& code);
    QString code() const { return m_code; }
    QPlainTextEdit* editor() const { return m_editor; }

  protected:
    void paintEvent(QPaintEvent* event) override;
    bool eventFilter(QObject* watched, QEvent* event) override;

  private:
    void fit();

    QString m_code;
    QLabel* m_language;
    QPlainTextEdit* m_editor;
};

}  // namespace granary::gui
