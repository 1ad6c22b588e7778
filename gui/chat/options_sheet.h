// SPDX-License-Identifier: GPL-3.0-or-later
// The side sheet of one chat: system prompt and temperature.
#pragma once

#include <QWidget>

#include "gui/chat/chat_types.h"

class QDoubleSpinBox;
class QPlainTextEdit;
class QSlider;

namespace granary::gui {

class OptionsSheet : public QWidget {
    Q_OBJECT

  public:
    explicit OptionsSheet(QWidget* parent = nullptr);
    void setOptions(const ChatOptions& options);
    ChatOptions options() const;

    static constexpr int kWidth = 320;

  Q_SIGNALS:
    void optionsChanged(const granary::gui::ChatOptions& options);
    void closed();

  protected:
    void paintEvent(QPaintEvent* event) override;
    void keyPressEvent(QKeyEvent* event) override;

  private:
    QPlainTextEdit* m_system;
    QSlider* m_slider;
    QDoubleSpinBox* m_temperature;
};

}  // namespace granary::gui
