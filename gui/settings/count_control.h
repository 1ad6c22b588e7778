// SPDX-License-Identifier: GPL-3.0-or-later
// One setting that is a count: label, slider and spin box that always show the same value. Its
// objectName is the setting's identifier; the parts are IDENTIFIER-slider and IDENTIFIER-number.
#pragma once

#include <QWidget>

#include "gui/settings/count_scale.h"

class QLabel;

namespace granary::gui {

class CountSlider;
class CountSpin;

class CountControl : public QWidget {
    Q_OBJECT
  public:
    CountControl(const QString& identifier, const QString& label, const QString& help,
                 const CountScale& scale, QWidget* parent = nullptr);

    void setScale(const CountScale& scale);
    void setMark(std::optional<uint32_t> value);
    AutoCount count() const;
    void setCount(const AutoCount& value);  // no signal
    void setAutoMeaning(uint32_t number);
    // A few words at the right of the label; warning: they are about something to think over.
    void setNote(const QString& text, bool warning);

    CountSlider* slider() const { return m_slider; }
    CountSpin* number() const { return m_number; }

  Q_SIGNALS:
    void edited(granary::AutoCount value);

  private:
    QLabel* m_label;
    QLabel* m_note;
    CountSlider* m_slider;
    CountSpin* m_number;
};

}  // namespace granary::gui
