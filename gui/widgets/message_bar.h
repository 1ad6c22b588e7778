// SPDX-License-Identifier: GPL-3.0-or-later
// One message over the input: what happened, the numbers, and buttons that do something about
// it. It never takes the focus away and never blocks the window.
#pragma once

#include <QWidget>
#include <functional>
#include <vector>

class QLabel;

namespace granary::gui {

class FlowLayout;

class MessageBar : public QWidget {
    Q_OBJECT

  public:
    enum class Kind { information, question, warning, error };
    struct Choice {
        QString text;
        QString objectName;
        std::function<void()> act;
        bool closes = true;
        bool first = false;  // the recommended one
    };

    explicit MessageBar(QWidget* parent = nullptr);

    void present(Kind kind, const QString& what, const QString& detail,
                 std::vector<Choice> choices);
    void dismiss();
    bool isOpen() const { return m_open; }
    QString text() const;  // what and detail, for reports and scripts

  Q_SIGNALS:
    void dismissed();  // by a person: with the close button or a choice that closes

  protected:
    void paintEvent(QPaintEvent* event) override;

  private:
    Kind m_kind = Kind::information;
    bool m_open = false;
    QLabel* m_what;
    QLabel* m_detail;
    QWidget* m_buttons;
    FlowLayout* m_buttonLayout;
};

}  // namespace granary::gui
